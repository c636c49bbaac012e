/* preflight_router.c - the network between this machine and the others: whether they can connect to
 * us, the kind of NAT, whether the router forwards a port on request, and available relays. */
#include "preflight_internal.h"

#include "net/libp2p/peer/peerstore.h"
#include "net/libp2p/relay/port_mapping.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PEERS_ASKED 3      /* to call us; each may take its time */
#define MAPPING_WAIT 6.0   /* s for the router's first answer; most take one */
#define MAPPING_POLL 50000 /* us between polls */

/* --- port mapping ----------------------------------------------------------------------------- */

struct mapping_view {
    struct swarm *s;
    struct gateway *gateway;
    enum port_mapping_state state;
};

static void view_mapping(void *context)
{
    struct mapping_view *v = context;
    v->state = port_mapping_outcome(v->s->host, v->gateway);
}

static enum port_mapping_state await_mapping(struct preflight *c, struct gateway *out)
{
    struct mapping_view v = { c->s, out, PORT_MAPPING_OFF };
    const double until = pl_seconds() + MAPPING_WAIT;
    while (loop_call(c->s->loop, view_mapping, &v), v.state == PORT_MAPPING_PENDING &&
                                                        pl_seconds() < until &&
                                                        !probe_is_stopped(c->s, c->stop))
        usleep(MAPPING_POLL);
    return v.state;
}

static const char *outcome_text(const struct gateway_outcome *o)
{
    return o->status == GATEWAY_NOT_ASKED ? "not needed" : o->why;
}

/* Only a peer that others cannot reach needs it: for others nothing is waited for. */
static void mapping(struct preflight *c)
{
    struct gateway g;
    struct mapping_view v = { c->s, &g, PORT_MAPPING_OFF };
    const struct gateway_outcome *natpmp = &g.outcome[GATEWAY_NATPMP],
                                 *upnp = &g.outcome[GATEWAY_UPNP];
    int needed = !c->reached && c->options->listen_count;
    char at[MULTIADDR_TEXT_MAX];
    if (needed) v.state = await_mapping(c, &g);
    else loop_call(c->s->loop, view_mapping, &v);
    if (v.state == PORT_MAPPING_OFF && c->options->listen_count)
        preflight_say(c, FINDING_GOOD, "mapping", "not asked for: %s\n\n",
                      c->options->no_port_mapping ? "--no-port-mapping"
                                                  : "no private address to forward a port to");
    if (v.state != PORT_MAPPING_KNOWN) return;
    if (gateway_is_mapped(&g)) {
        multiaddr_text(at, &g.outside);
        preflight_say(c, FINDING_GOOD, "mapping",
                      "the router forwards %.100s to us (%s)\n\na port forwarded", at,
                      natpmp->status == GATEWAY_MAPPED ? "NAT-PMP" : "UPnP");
        return;
    }
    preflight_say(c, needed ? FINDING_WARNING : FINDING_GOOD, "mapping",
                  "the router forwards no port: NAT-PMP: %s; UPnP: %s%s", outcome_text(natpmp),
                  outcome_text(upnp),
                  needed ? "\nyour side: switch on UPnP or NAT-PMP in the router (PCP alone does "
                           "not help); where another NAT is behind it (CGNAT), only a relay helps"
                         : "\n\n");
}

/* --- the others' view ------------------------------------------------------------------------- */

/* Asks bootstrap peers to connect to us. Returns how many have failed to; why: the last one's
 * reason. */
static int ask_peers(struct preflight *c, char why[256])
{
    struct probe p = { .s = c->s, .stop = c->stop };
    char at[MULTIADDR_TEXT_MAX], peer[PEER_ID_TEXT_MAX];
    int tried = 0;
    for (size_t i = 0; i < c->good_count && i < PEERS_ASKED; i++) {
        int status;
        p.peer = c->good[i]->peer;
        status = probe_reachability(&p);
        peer_id_text(peer, &p.peer);
        if (!status) {
            multiaddr_text(at, &p.at);
            preflight_say(c, FINDING_GOOD, "reachability",
                          "%.60s connected to us at %.200s\n\npublicly reachable", peer,
                          p.at.length ? at : "our address");
            c->reached = 1;
            return 0;
        }
        tried += status == PL_EIO;
        snprintf(why, 256, "%.60s: %.180s", peer, p.why);
    }
    return tried;
}

static void reachability(struct preflight *c)
{
    char why[256] = "";
    struct gateway g;
    int tried;
    if (!c->options->listen_count) {
        preflight_say(c, FINDING_GOOD, "reachability",
                      "not checked: a client does not listen (--client-mode)\n\na client");
        return;
    }
    tried = ask_peers(c, why);
    /* The router may forward a port to us by now. */
    if (tried && await_mapping(c, &g) == PORT_MAPPING_KNOWN && gateway_is_mapped(&g))
        tried = ask_peers(c, why);
    if (c->reached) return;
    if (tried)
        preflight_say(
            c, FINDING_BAD, "reachability",
            "not publicly reachable: %.250s"
            "\nyour side: allow TCP to the listening port (in the firewall; in the router forward "
            "it and --announce the outside address), or join with --client-mode",
            why);
    else if (!probe_is_stopped(c->s, c->stop))
        preflight_say(c, FINDING_GOOD, "reachability",
                      "not known, no bootstrap peer tried to connect to us: "
                      "%.250s (hivemind's peers try public addresses only)"
                      "\n\nreachability not known",
                      why);
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

/* From the addresses that peers observe for our connections, which is all that TCP shows of a
 * router. NAT is no problem for a peer that is reachable, or for a client. */
static void nat(struct preflight *c)
{
    const struct probe_view *first = NULL;
    enum finding_level level = c->reached || !c->options->listen_count ? FINDING_GOOD
                                                                       : FINDING_WARNING;
    char seen[MULTIADDR_TEXT_MAX];
    int translated = 0, moved = 0, differ = 0;
    for (size_t i = 0; i < c->good_count; i++) {
        const struct probe_view *v = &c->good[i]->view;
        if (!v->has_seen || !v->has_local || multiaddr_scope(&v->seen) == SCOPE_LOOPBACK) continue;
        translated |= !same_ip(&v->seen, &v->local);
        moved |= !same_port(&v->seen, &v->local);
        differ |= first && !same_ip(&first->seen, &v->seen) &&
                  multiaddr_scope(&first->seen) == multiaddr_scope(&v->seen);
        if (!first) first = v;
    }
    if (!first) {
        preflight_say(
            c, FINDING_GOOD, "NAT",
            "none between us and the peers that reported our address (this machine)\n\nno NAT");
        return;
    }
    multiaddr_text(seen, &first->seen);
    if (differ)
        preflight_say(
            c, level, "NAT",
            "peers see different addresses: %.100s and more"
            "\nyour side: several routers, or a provider's shared one (CGNAT): others "
            "cannot connect to you directly; a relay or --client-mode works\nseveral routers",
            seen);
    else if (translated)
        preflight_say(
            c, level, "NAT",
            "a router shows you as %.100s and %s ports"
            "\nyour side: to be reachable, forward the listening TCP port in the router and "
            "give --announce\nbehind a router",
            seen, moved ? "changes" : "keeps");
    else
        preflight_say(c, FINDING_GOOD, "NAT", "none: peers see this machine as %.100s\n\nno NAT",
                      seen);
}

static void relays(struct preflight *c)
{
    char peer[PEER_ID_TEXT_MAX];
    int needed = !c->reached && c->options->listen_count;
    for (size_t i = 0; i < c->good_count; i++)
        if (c->good[i]->view.relays) {
            peer_id_text(peer, &c->good[i]->peer);
            preflight_say(c, FINDING_GOOD, "relay",
                          "%.60s relays connections to peers that are not reachable\n\na relay",
                          peer);
            return;
        }
    preflight_say(c, needed ? FINDING_WARNING : FINDING_GOOD, "relay",
                  "no bootstrap peer is a relay%s",
                  needed ? "\ntheir side: only matters if you are not reachable; any reachable "
                           "machine can run potluck peer --relay"
                         : "; only matters for peers that are not reachable\n\nno relay");
}

void preflight_router(struct preflight *c)
{
    reachability(c);
    nat(c);
    mapping(c);
    relays(c);
}
