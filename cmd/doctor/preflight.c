/* preflight.c - the checks of the network: contacts every bootstrap peer separately, then compares
 * their clocks. Each failure names the side that has to act: an error message of the connection is
 * looked up in a table of signs. */
#include "preflight_internal.h"

#include "ref/small.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_REFUSED 3.0 /* s; farther off, real hivemind peers refuse to join each other */

/* --- causes and advice ------------------------------------------------------------------------ */

static const char *advice_for(const char *address, int status, const char *why)
{
    static const struct {
        const char *sign, *advice;
    } list[] = {
        { "not multistream", "your side: another program than a libp2p peer answers there; check "
                             "address and port" },
        { "refused", "their side: no program listens on that port; ask for the current address, or "
                     "start the peer" },
        { "unknown node", "your side: the name cannot be resolved; check its spelling, then this "
                          "machine's DNS" },
        { "temporary failure", "your side: the name cannot be resolved now; is this machine "
                               "online?" },
        { "has no address", "their side: the name is known but has no address; ask for the "
                            "current one" },
        { "not an address that we can dial", "your side: only TCP addresses can be dialed; ask for "
                                             "one like /ip4/1.2.3.4/tcp/31337/p2p/ID" },
        { "network is unreachable", "your side: this machine has no route to it; is it online?" },
        { "address not available", "your side: this machine has no address to dial from; is it "
                                   "online?" },
        /* from a firewall that rejects packets, or a router whose neighbor is off */
        { "host is unreachable", "their side, if others cannot join either: that machine is "
                                 "off, or a firewall rejects us; otherwise your side: this machine "
                                 "has no route to it" },
        { "does not serve /libp2p/circuit/relay", "their side: the first peer of that address is "
                                                  "not a relay (potluck peer --relay); ask for "
                                                  "another address" },
        { "holds no reservation", "their side: the peer behind the relay has left; ask for another "
                                  "address" },
        { "the relay ", "their side: the relay is full or in trouble; ask for another address" },
        { "that is ourselves", "your side: this is the address of your own identity" },
        { " answered",
          "their side: another peer, or the same peer with a new key, answers at that address "
          "(potluck peer keeps its key with --identity); ask for the current address" },
        { "no encryption in common", "their side: it allows neither Noise nor TLS 1.3" },
        { "says nothing", "their side: a program accepts connections there and sends nothing: a "
                          "peer that hangs, or another program; check the port, or use another "
                          "bootstrap peer" },
        { "connection lost", "their side: it closed the connection: it has too many connections, a "
                             "firewall interferes, or it is not a libp2p peer" },
        { "own identity", "your side: this is the address of your own identity" },
    };
    if ((strstr(why, " is unreachable") || strstr(why, "address not available")) &&
        (!strncmp(address, "/ip6/", 5) || !strncmp(address, "/dns6/", 6)))
        return "your side, if others can join: this machine has no route to IPv6 addresses; ask "
               "for one that begins with /ip4";
    for (size_t i = 0; i < PL_COUNT(list); i++)
        if (strstr(why, list[i].sign)) return list[i].advice;
    if (status == PL_EAGAIN)
        return "their side, if others cannot join either: that machine is off, or its firewall "
               "drops us; otherwise your side: your network blocks that port";
    return "your side: check the address";
}

/* --- one bootstrap peer ----------------------------------------------------------------------- */

/* Why it refuses our request, or we refuse its answer. Python peers give less detail than ours. */
static const char *refusal_advice(const char *why)
{
    static const struct {
        const char *sign, *advice;
    } list[] = {
        { "('message: carries no access token", "your side: this swarm requires an access token "
                                                "(--authority)" },
        { "message: carries no access token", "your side: this swarm uses no access tokens: "
                                              "leave --authority out" },
        { "not signed by our authority", "your side: this swarm's access tokens come from another "
                                         "authority than --authority" },
        { "('access token: expired", "your side, if others can join: your clock or your "
                                     "authority's is wrong (timedatectl set-ntp true); "
                                     "otherwise theirs" },
        { "access token: expired", "their side: that peer's token has expired, and it cannot reach "
                                   "its authority; yours, if your clock is ahead (timedatectl "
                                   "set-ntp true)" },
        { "away from our clock", "your side, if others can join: your clock is wrong "
                                 "(timedatectl set-ntp true)" },
    };
    for (size_t i = 0; i < PL_COUNT(list); i++)
        if (strstr(why, list[i].sign)) return list[i].advice;
    return "your side: it refuses us; this swarm may require an access token (--authority), or "
           "your clock is wrong";
}

static void bootstrap_refuses(struct preflight_bootstrap *e, int status, const char *why)
{
    preflight_set(&e->finding, FINDING_BAD, "bootstrap",
                  "%.200s: connected, but it is not a DHT node: %.200s\n%s", e->address, why,
                  status == PL_ENOTFOUND
                      ? "their side: a libp2p peer that runs no hivemind DHT, or runs it in "
                        "client mode"
                  : status == PL_EPROTO
                      ? refusal_advice(why)
                      : "their side: it is overloaded or hangs; use another bootstrap peer");
}

static void check_bootstrap(struct preflight_bootstrap *e)
{
    struct preflight *c = e->c;
    struct probe p = { .s = c->s, .stop = c->stop };
    struct dht_pong pong;
    struct pl_err err = { "" };
    double took;
    int status = multiaddr_from_text(&p.at, e->address, NULL);
    assert(!status); /* swarm_open has read it */
    e->clock = NAN;
    if ((status = probe_dial(&p))) {
        const char *why = p.why;
        size_t n = strlen(e->address);
        while (!strncmp(why, e->address, n) && !strncmp(why + n, ": ", 2)) why += n + 2;
        preflight_set(&e->finding, FINDING_BAD, "bootstrap", "%.200s: %.200s\n%s", e->address, why,
                      advice_for(e->address, status, why));
        return;
    }
    took = p.seconds;
    if ((status = swarm_ping(c->s, &pong, &err, &p.peer))) {
        bootstrap_refuses(e, status, err.text);
        return;
    }
    e->clock = pong.clock_error;
    e->ping_s = probe_ping(&p) ? pong.seconds : p.seconds;
    preflight_set(&e->finding, FINDING_GOOD, "bootstrap",
                  "%.200s: connected in %.0f ms; round trip %.2f ms", e->address, 1e3 * took,
                  1e3 * e->ping_s);
    e->peer = p.peer;
    e->good = 1;
    pthread_mutex_lock(&c->s->lock);
    if (c->first_good && !*c->first_good) *c->first_good = pl_seconds();
    pthread_cond_broadcast(&c->s->changed);
    pthread_mutex_unlock(&c->s->lock);
    probe_identity(&p, &e->view);
}

static void *run_bootstrap(void *bootstrap)
{
    check_bootstrap(bootstrap);
    return NULL;
}

/* In parallel, because a silent one takes the whole time limit. */
static void check_all_bootstraps(struct preflight *c)
{
    c->count = c->options->join_count < DHT_INITIAL_MAX ? c->options->join_count : DHT_INITIAL_MAX;
    for (size_t i = 0; i < c->count; i++) {
        struct preflight_bootstrap *e = &c->bootstraps[i];
        e->c = c;
        e->address = c->options->join[i];
        e->has_thread = i + 1 < c->count && !pthread_create(&e->thread, NULL, run_bootstrap, e);
        if (!e->has_thread) check_bootstrap(e);
    }
    for (size_t i = 0; i < c->count; i++) {
        struct preflight_bootstrap *e = &c->bootstraps[i];
        if (e->has_thread) pthread_join(e->thread, NULL);
        if (e->good) c->good[c->good_count++] = e;
    }
    for (size_t i = 0; i < c->count; i++) {
        struct finding *f = &c->bootstraps[i].finding;
        /* One that accepts us is enough. */
        if (c->good_count && f->level == FINDING_BAD) f->level = FINDING_WARNING;
        if (c->good_count && &c->bootstraps[i] == c->good[0])
            snprintf(f->brief, sizeof f->brief, "%zu of %zu bootstrap peers (%.2f ms)",
                     c->good_count, c->count, 1e3 * c->good[0]->ping_s);
        c->report(c->context, f);
    }
}

/* --- together --------------------------------------------------------------------------------- */

static void clocks(struct preflight *c)
{
    double clock[DHT_INITIAL_MAX], off;
    size_t n = 0;
    for (size_t i = 0; i < c->good_count; i++)
        if (isfinite(c->good[i]->clock)) clock[n++] = c->good[i]->clock;
    if (!n) return;
    qsort(clock, n, sizeof *clock, pl_ascending);
    off = -(n % 2 ? clock[n / 2] : (clock[n / 2 - 1] + clock[n / 2]) / 2);
    c->clock_differs = fabs(off) >= DHT_CLOCK_TOLERANCE;
    if (!c->clock_differs)
        preflight_say(c, FINDING_GOOD, "clock",
                      "%.2f s from the other peers' clocks\n\nclock %.2f s off", fabs(off),
                      fabs(off));
    else
        preflight_say(
            c, fabs(off) < CLOCK_REFUSED ? FINDING_WARNING : FINDING_BAD, "clock",
            "%.1f s %s the other peers' clocks\nyour side, if they agree: set the clock "
            "(timedatectl set-ntp true); this program follows two peers that agree, Python "
            "peers %s",
            fabs(off), off > 0 ? "ahead of" : "behind",
            fabs(off) < CLOCK_REFUSED ? "are close to refusing it" : "refuse it");
}

int preflight_peers(struct preflight *c)
{
    check_all_bootstraps(c);
    if (!c->good_count) return PL_EIO;
    clocks(c);
    preflight_run(c);
    preflight_router(c);
    preflight_ways(c);
    preflight_bandwidth(c);
    return PL_OK;
}

int preflight_swarm(const struct swarm_options *o, const struct preflight_plan *plan,
                    preflight_report *report, void *context)
{
    struct swarm_options visit = *o;
    struct preflight *c = calloc(1, sizeof *c);
    struct swarm s;
    struct pl_err err;
    int rc;
    if (!c) return PL_ENOMEM;
    *c = (struct preflight){
        .s = &s, .options = o, .plan = plan, .report = report, .context = context
    };
    visit.join_count = 0;
    visit.visitor = 1;
    if (!(rc = swarm_open(&s, &visit, &err))) {
        rc = preflight_peers(c);
        swarm_close(&s);
    } else {
        preflight_say(
            c, FINDING_BAD, "network",
            "%s\nyour side: is the --listen address one of this machine, and the port free?",
            err.text);
    }
    free(c);
    return rc;
}
