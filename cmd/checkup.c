/* checkup.c - the swarm's half of checkup.h: every entry peer, then what they say together. */
#include "checkup.h"

#include "../net/libp2p/autonat.h"
#include "../net/libp2p/peers.h"
#include "../net/libp2p/ping.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT 10.0          /* s for each question */
#define IDENTIFY_WAIT 2.0   /* s until a peer has said what it serves */
#define CLOCK_REFUSED 3.0   /* s; farther off, real hivemind peers refuse to join each other */
#define HOP "/libp2p/circuit/relay/0.2.0/hop"
/* bytes of the record that is sent and fetched to see how fast that is */
#define LOAD (1u << 20)
#define LOAD_EXPIRES 20.0   /* s that it lies there */
#define SLOW 1.0e6          /* bytes a second; a step of the run moves 100 MB each way */

/* One question under way; the answer's fields are whose question it was. */
struct probe {
    struct swarm *s;
    struct multiaddr at;
    struct peer_id peer;
    const struct bytes *request;
    const char *call;
    int done, status;
    double seconds;
    char why[512];
};

static void end(struct probe *p, int status, const char *why)
{
    pthread_mutex_lock(&p->s->lock);
    p->status = status;
    snprintf(p->why, sizeof p->why, "%s", why);
    p->done = 1;
    pthread_cond_broadcast(&p->s->changed);
    pthread_mutex_unlock(&p->s->lock);
}

static int ask(struct probe *p, loop_fn *begin)
{
    p->done = 0;
    if (loop_post(p->s->loop, begin, p)) return PL_ENOMEM;
    pthread_mutex_lock(&p->s->lock);
    while (!p->done) pthread_cond_wait(&p->s->changed, &p->s->lock);
    pthread_mutex_unlock(&p->s->lock);
    return p->status;
}

/* --- the questions ---------------------------------------------------------------------------- */

static void on_dialled(void *context, int status, const struct peer_id *peer,
                       const struct pl_err *err)
{
    struct probe *p = context;
    if (!status) p->peer = *peer;
    end(p, status, status ? err->text : "");
}

static void dial(void *context)
{
    struct probe *p = context;
    if (!host_dial(p->s->host, &p->at, LIMIT, on_dialled, p)) end(p, PL_ENOMEM, "no memory");
}

static void on_pinged(void *context, int status, double rtt_s, const char *why)
{
    struct probe *p = context;
    p->seconds = rtt_s;
    end(p, status, why);
}

static void look_for_peer(void *context)
{
    struct probe *p = context;
    struct multiaddr_target t;
    if (!multiaddr_target(&t, &p->at)) p->peer = t.peer;
    p->done = p->peer.length && host_is_connected(p->s->host, &p->peer);
}

static int is_connected(struct probe *p)
{
    return !loop_call(p->s->loop, look_for_peer, p) && p->done;
}

static void ping(void *context)
{
    struct probe *p = context;
    if (ping_peer(p->s->host, &p->peer, LIMIT, on_pinged, p)) end(p, PL_ENOMEM, "no memory");
}

static void on_reached(void *context, int status, const struct multiaddr *at, const char *why)
{
    struct probe *p = context;
    p->at = *at;
    end(p, status, why);
}

static void reach(void *context)
{
    struct probe *p = context;
    if (!autonat_ask(p->s->host, &p->peer, 2 * LIMIT, on_reached, p))
        end(p, PL_ENOMEM, "no memory");
}

static void on_called(void *context, const struct rpc_result *r)
{
    struct probe *p = context;
    end(p, r->status, r->status ? r->error : "");
}

static void call(void *context)
{
    struct probe *p = context;
    if (!rpc_call_unary(p->s->host, &p->peer, p->call, bytes_at(p->request),
                        bytes_length(p->request), 3 * LIMIT, on_called, p))
        end(p, PL_ENOMEM, "no memory");
}

/* What is known without asking. */
struct view {
    struct swarm *s;
    struct peer_id peer;
    int identified, relays;
    struct multiaddr seen, local;
    int has_seen, has_local;
};

static void look(void *context)
{
    struct view *v = context;
    v->has_seen = !host_observed(v->s->host, &v->peer, &v->seen);
    v->has_local = !host_local_address(v->s->host, &v->peer, &v->local);
    v->relays = host_peer_serves(v->s->host, &v->peer, HOP);
    v->identified = v->has_seen;
}

/* --- what it means ---------------------------------------------------------------------------- */

__attribute__((format(printf, 5, 6)))
static void say(checkup_tell *tell, void *context, enum finding_level level, const char *what,
                const char *format, ...)
{
    struct finding f = { .level = level, .what = what };
    char *advice;
    va_list args;
    va_start(args, format);
    vsnprintf(f.text, sizeof f.text, format, args);
    va_end(args);
    if ((advice = strchr(f.text, '\n'))) { /* text, newline, advice */
        snprintf(f.advice, sizeof f.advice, "%.399s", advice + 1);
        *advice = 0;
    }
    tell(context, &f);
}

static const char *advice_for(int status, const char *why)
{
    static const struct { const char *sign, *advice; } list[] = {
        { "refused", "their side: nobody listens at that port; ask for the present address, or start the peer" },
        { "unknown node", "the name cannot be looked up: check its spelling, then this machine's DNS" },
        { "temporary failure", "the name cannot be looked up now: is this machine online?" },
        { "has no address", "the name is known but has no address: ask for the present one" },
        { "unreachable", "your side: this machine has no way there; is it online?" },
        { "that is ourselves", "your side: this is the address of the identity that you use here" },
        { " answered", "another peer lives there now: take the ID that answered, if you trust who told you" },
        { "no encryption in common", "their side: it allows neither Noise nor TLS 1.3" },
        { "not multistream", "something else than a libp2p peer answers there: check the port" },
        { "closed it", "their side closed the connection: too many, or a firewall cuts it" },
        { "own identity", "your side: this is the address of the identity that you use here" },
    };
    for (size_t i = 0; i < PL_COUNT(list); i++)
        if (strstr(why, list[i].sign)) return list[i].advice;
    if (status == PL_EAGAIN)
        return "no answer at all: that machine is off, or a firewall between drops it; "
               "try from another network to see which side";
    return "check the address";
}

struct checkup {
    struct swarm *s;
    const struct swarm_options *options;
    checkup_tell *tell;
    void *context;
    int good;
    double clock[DHT_INITIAL_MAX];
    size_t clocks;
    struct peer_id peers[DHT_INITIAL_MAX]; /* that let us in */
    struct view views[DHT_INITIAL_MAX];
};

static int by_value(const void *a_, const void *b_)
{
    double a = *(const double *)a_, b = *(const double *)b_;
    return (a > b) - (a < b);
}

/* --- one entry peer --------------------------------------------------------------------------- */

static void look_at(struct checkup *c, const struct peer_id *peer)
{
    struct view *v = &c->views[c->good];
    memset(v, 0, sizeof *v);
    v->s = c->s;
    v->peer = *peer;
    for (double waited = 0; waited < IDENTIFY_WAIT && !v->identified; waited += 0.05) {
        if (loop_call(c->s->loop, look, v)) return;
        if (!v->identified) usleep(50000);
    }
}

static void entry_peer(struct checkup *c, const char *address)
{
    struct probe p = { .s = c->s };
    struct dht_pong pong;
    struct pl_err err = { "" };
    double began, took;
    int status = multiaddr_from_text(&p.at, address, &err);
    if (status) {
        say(c->tell, c->context, FINDING_BAD, "entry", "%.300s: %s\nyour side: an address reads "
            "/ip4/1.2.3.4/tcp/31337/p2p/ID", address, err.text);
        return;
    }
    began = pl_seconds();
    if (is_connected(&p)) status = PL_OK;
    else status = ask(&p, dial);
    if (status) {
        const char *why = p.why;
        size_t n = strlen(address);
        while (!strncmp(why, address, n) && !strncmp(why + n, ": ", 2)) why += n + 2;
        say(c->tell, c->context, FINDING_BAD, "entry", "%.200s: %.200s\n%s", address, why,
            advice_for(status, why));
        return;
    }
    took = pl_seconds() - began;
    if ((status = swarm_ping(c->s, &pong, &err, &p.peer))) {
        say(c->tell, c->context, FINDING_BAD, "entry",
            "%.200s: connected, but no node of the DHT: %.200s\n%s",
            address, err.text,
            status == PL_ENOTFOUND
                ? "their side: a libp2p peer that runs no hivemind DHT, or runs it in client mode"
            : status == PL_EPROTO
                ? "it refuses us: this swarm may ask for an access token, or for "
                  "another clock"
                : "their side: it is overloaded or frozen; take another entry peer");
        return;
    }
    if (isfinite(pong.clock_error)) c->clock[c->clocks++] = pong.clock_error;
    status = ask(&p, ping);
    say(c->tell, c->context, FINDING_GOOD, "entry",
        "%.200s: there after %.0f ms; %.2f ms there and back", address, 1e3 * took,
        1e3 * (status ? pong.seconds : p.seconds));
    look_at(c, &p.peer);
    c->peers[c->good++] = p.peer;
}

/* --- together --------------------------------------------------------------------------------- */

static void clocks(struct checkup *c)
{
    double off;
    if (!c->clocks) return;
    qsort(c->clock, c->clocks, sizeof *c->clock, by_value);
    off = -(c->clocks % 2 ? c->clock[c->clocks / 2]
                          : (c->clock[c->clocks / 2 - 1] + c->clock[c->clocks / 2]) / 2);
    if (fabs(off) < DHT_CLOCK_TOLERANCE)
        say(c->tell, c->context, FINDING_GOOD, "clock", "%.2f s from the others'", fabs(off));
    else
        say(c->tell, c->context, fabs(off) < CLOCK_REFUSED ? FINDING_WARNING : FINDING_BAD, "clock",
            "%.1f s %s the others'\nset it (timedatectl set-ntp true); this program corrects itself, "
            "Python peers %s", fabs(off), off > 0 ? "ahead of" : "behind",
            fabs(off) < CLOCK_REFUSED ? "come close to refusing it" : "refuse it");
}

static int same_ip(const struct multiaddr *a, const struct multiaddr *b)
{
    struct multiaddr_target x, y;
    return !multiaddr_target(&x, a) && !multiaddr_target(&y, b) && x.family == y.family &&
           !memcmp(x.ip, y.ip, sizeof x.ip);
}

static int same_port(const struct multiaddr *a, const struct multiaddr *b)
{
    struct multiaddr_target x, y;
    return !multiaddr_target(&x, a) && !multiaddr_target(&y, b) && x.port == y.port;
}

/* From how peers see the connections that we made: TCP shows no more of a router than that. */
static void nat(struct checkup *c)
{
    const struct view *first = NULL;
    char seen[MULTIADDR_TEXT_MAX];
    int translated = 0, moved = 0, differ = 0;
    for (int i = 0; i < c->good; i++) {
        const struct view *v = &c->views[i];
        if (!v->has_seen || !v->has_local || multiaddr_reach(&v->seen) == REACH_LOOPBACK) continue;
        translated |= !same_ip(&v->seen, &v->local);
        moved |= !same_port(&v->seen, &v->local);
        differ |= first && !same_ip(&first->seen, &v->seen) &&
                  multiaddr_reach(&first->seen) == multiaddr_reach(&v->seen);
        if (!first) first = v;
    }
    if (!first) {
        say(c->tell, c->context, FINDING_GOOD, "NAT",
            "none between us and the peers that told (this machine)");
        return;
    }
    multiaddr_text(seen, &first->seen);
    if (differ)
        say(c->tell, c->context, FINDING_WARNING, "NAT",
            "other addresses for other peers: %.100s and more"
            "\nseveral routers, or a provider's shared one (CGNAT): others cannot call you "
            "directly; a relay or --client-mode works",
            seen);
    else if (translated)
        say(c->tell, c->context, FINDING_WARNING, "NAT", "a router shows you as %.100s and %s ports"
            "\nto be called, forward the listening TCP port in the router and give --announce", seen,
            moved ? "changes" : "keeps");
    else
        say(c->tell, c->context, FINDING_GOOD, "NAT", "none: peers see this machine as %.100s",
            seen);
}

static void reachability(struct checkup *c)
{
    struct probe p = { .s = c->s };
    char at[MULTIADDR_TEXT_MAX], peer[PEER_ID_TEXT_MAX], why[256] = "";
    int tried = 0;
    if (!c->options->listen_count) {
        say(c->tell, c->context, FINDING_GOOD, "reach",
            "not asked: nothing listens (--client-mode)");
        return;
    }
    for (int i = 0; i < c->good; i++) {
        int status;
        p.peer = c->peers[i];
        status = ask(&p, reach);
        peer_id_text(peer, &p.peer);
        if (!status) {
            multiaddr_text(at, &p.at);
            say(c->tell, c->context, FINDING_GOOD, "reach", "%.60s has reached us at %.200s", peer,
                p.at.length ? at : "our address");
            return;
        }
        tried += status == PL_EIO;
        snprintf(why, sizeof why, "%.60s: %.180s", peer, p.why);
    }
    if (tried)
        say(c->tell, c->context, FINDING_BAD, "reach", "others cannot call us: %.250s"
            "\nyour side: let TCP to the listening port in (firewall; router: forward it, then "
            "--announce the outside address), or join with --client-mode", why);
    else if (c->good)
        say(c->tell, c->context, FINDING_WARNING, "reach",
            "no entry peer would try to call us: %.250s"
            "\nhivemind's peers try public addresses only; on the same network this means nothing",
            why);
}

static void relays(struct checkup *c)
{
    char peer[PEER_ID_TEXT_MAX];
    for (int i = 0; i < c->good; i++)
        if (c->views[i].relays) {
            peer_id_text(peer, &c->peers[i]);
            say(c->tell, c->context, FINDING_GOOD, "relay",
                "%.60s carries connections for those who cannot be called",
                peer);
            return;
        }
    say(c->tell, c->context, FINDING_WARNING, "relay",
        "no entry peer relays\nonly matters for peers that "
        "cannot be called: somebody reachable can run potluck peer --relay");
}

/* A large record goes there and comes back; twice, the better one counts. */
static void bandwidth(struct checkup *c)
{
    struct bytes store = { 0 }, find = { 0 };
    uint8_t *load = calloc(1, LOAD);
    struct dht_record r = { .subkey = dht_no_subkey, .subkey_n = sizeof dht_no_subkey };
    struct probe p = { .s = c->s };
    double up = INFINITY, down = INFINITY;
    int rc = load && c->good && !c->options->auth ? dht_id_random(&r.key) : PL_ENOMEM;
    if (!rc) { /* msgpack: bin32 */
        static const uint8_t head[] = { 0xc6, 0, (LOAD - 5) >> 16 & 255, (LOAD - 5) >> 8 & 255,
                                        (LOAD - 5) & 255 };
        memcpy(load, head, sizeof head);
        r.value = load;
        r.n = LOAD;
        p.peer = c->peers[0];
    }
    for (int i = 0; i < 2 && !rc; i++) {
        double began = pl_seconds();
        r.expiration = swarm_time(c->s) + LOAD_EXPIRES + i;
        bytes_clear(&store);
        rc = dht_write_store(&store, NULL, &r, 1);
        p.call = dht_call_name(DHT_STORE);
        p.request = &store;
        if (!rc) rc = ask(&p, call);
        up = fmin(up, pl_seconds() - began);
        if (!i && !rc) rc = dht_write_find(&find, NULL, &r.key, 1);
        began = pl_seconds();
        p.call = dht_call_name(DHT_FIND);
        p.request = &find;
        if (!rc) rc = ask(&p, call);
        down = fmin(down, pl_seconds() - began);
    }
    if (!rc)
        say(c->tell, c->context, LOAD / fmax(up, down) < SLOW ? FINDING_WARNING : FINDING_GOOD,
            "bandwidth", "%.1f MB/s to the first entry peer, %.1f MB/s from it%s", 1e-6 * LOAD / up,
            1e-6 * LOAD / down,
            LOAD / fmax(up, down) < SLOW
                ? "\na slow line delays the steps of all: take part with a small "
                  "--bandwidth, or in --client-mode"
                : "");
    else if (c->good && !c->options->auth)
        say(c->tell, c->context, FINDING_WARNING, "bandwidth", "not measured: %.200s\ntry again",
            p.why);
    bytes_clear(&store);
    bytes_clear(&find);
    free(load);
}

static int check(struct swarm *s, const struct swarm_options *o, int thorough, checkup_tell *tell,
                 void *context)
{
    struct checkup *c = calloc(1, sizeof *c);
    int rc;
    if (!c) return PL_ENOMEM;
    *c = (struct checkup){ .s = s, .options = o, .tell = tell, .context = context };
    for (size_t i = 0; i < o->join_count && i < DHT_INITIAL_MAX; i++) entry_peer(c, o->join[i]);
    rc = c->good ? PL_OK : PL_EIO;
    if (c->good) {
        clocks(c);
        nat(c);
        reachability(c);
        relays(c);
        if (thorough) bandwidth(c);
    }
    free(c);
    return rc;
}

int checkup_swarm(const struct swarm_options *o, int thorough, checkup_tell *tell, void *context)
{
    struct swarm_options visit = *o;
    struct swarm s;
    struct pl_err err;
    int rc;
    visit.join_count = 0;
    visit.visitor = 1;
    if ((rc = swarm_open(&s, &visit, &err))) {
        say(tell, context, FINDING_BAD, "network",
            "%s\nyour side: is the address to listen at this machine's, and the port free?",
            err.text);
        return rc;
    }
    rc = check(&s, o, thorough, tell, context);
    swarm_close(&s);
    return rc;
}

static void explain(void *context, const struct finding *f)
{
    if (f->level == FINDING_BAD)
        fprintf(stderr, "potluck %s: %s: %s\n    -> %s\n", (const char *)context, f->what, f->text,
                f->advice);
}

void checkup_explain(struct swarm *s, const struct swarm_options *o)
{
    check(s, o, 0, explain, (void *)(uintptr_t)o->cmd);
}
