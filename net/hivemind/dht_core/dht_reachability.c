/* dht_reachability.c - a node that others cannot reach loses stored records and delays searches, so
 * it should run as a client [spec hivemind-protocol 12; libp2p-wire 14]. AutoNAT finds out: we ask
 * initial peers to dial the address that they see us at, from a connection of their own.
 *
 *   UNKNOWN (counts as open) --one could dial us--> OPEN
 *       |  some tried, none could; or for now, no answer yet after LATE
 *       v
 *   CLOSED --a relay carries connections to us (dht_relays.c)--> open through a relay
 *       |  no relay
 *       v
 *   a client, until it changes; checked again every CHECK_EVERY
 *
 * An initial peer may answer in the DHT before identify has reported how it sees us and which
 * protocols it serves: on a busy machine by seconds. Then the check follows as soon as it has. */
#include "dht_reachability.h"
#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/relay/relay.h"

#include <stdlib.h>

#define CHECK_EVERY 300.0 /* s */
#define CHECK_LIMIT 20.0  /* s for dialling us; the other side gives up after AUTONAT_LIMIT */
/* s until the first check that is under way counts as failed: where no router is in the way, a dial
 * takes a round trip. One that is dropped takes 15 s, and without a relay nobody could call us. */
#define LATE 2.0
#define PATIENCE 5.0 /* s that a first averaging waits for the first check, which takes moments */

/* identify has finished with a peer: now its view of our address and its protocols are known. */
static void on_identified(void *context, const struct peer_id *peer)
{
    struct dht_reachability *r = context;
    for (size_t i = 0; r->entered > 0 && i < r->core->initial_count; i++)
        if (peer_id_equal(&r->core->initials[i].peer, peer)) dht_reachability_check(r);
}

/* The router has begun to forward a port to us, or has stopped. */
static void on_changed(void *context)
{
    struct dht_reachability *r = context;
    int is_mapped = host_is_mapped(r->core->host);
    if (is_mapped == r->is_mapped) return;
    r->is_mapped = is_mapped;
    r->checked = 0;
    if (r->entered > 0) dht_reachability_check(r);
}

void dht_reachability_open(struct dht_reachability *r)
{
    r->watch.events.changed = on_changed;
    r->relays.core = r->core;
    r->watch.events.identified = on_identified;
    r->watch.context = r;
    host_watch(r->core->host, &r->watch);
}

void dht_reachability_close(struct dht_reachability *r)
{
    host_unwatch(r->core->host, &r->watch);
    timer_stop(&r->late);
    for (int i = 0; i < REACHABILITY_ASKED; i++)
        if (r->checks[i].question) autonat_cancel(r->checks[i].question);
}

int dht_reachability_is_relayed(const struct dht_reachability *r)
{
    struct multiaddr at;
    return r->state == REACH_CLOSED && relay_addresses(r->core->host, &at, 1) == 1;
}

/* Known enough: a check has ended, or waiting longer would not help. Without an initial peer
 * that answers no one can check. */
int dht_reachability_is_known(const struct dht_reachability *r)
{
    const struct dht_core *c = r->core;
    if (r->state != REACH_UNKNOWN || !(r->entered > 0) ||
        loop_now(c->loop) - r->entered >= PATIENCE)
        return 1;
    for (size_t i = 0; i < c->initial_count; i++)
        if (c->initials[i].state == INITIAL_GOOD) return 0;
    return 1;
}

int dht_reachability_is_open(const struct dht_reachability *r)
{
    return r->state != REACH_CLOSED || dht_reachability_is_relayed(r);
}

/* PL_EIO: it tried and failed. Other errors say nothing about us: it did not try, because our
 * address is private or it has too many requests. One success outweighs all failures. */
static void on_checked(void *context, int status, const struct multiaddr *at, const char *why)
{
    struct dht_reachability_check *check = context;
    struct dht_reachability *r = check->of;
    check->question = NULL;
    r->could += !status;
    if (!status) r->is_translated = host_is_translated(r->core->host, at);
    r->could_not += status == PL_EIO;
    if (--r->pending) return;
    if (r->could) r->state = REACH_OPEN;
    else if (r->could_not) r->state = REACH_CLOSED;
    else if (r->state == REACH_UNKNOWN || r->is_assumed) r->state = REACH_OPEN;
    r->is_assumed = 0;
    dht_reachability_check(r);
}

static void on_late(void *context)
{
    struct dht_reachability *r = context;
    if (r->state != REACH_UNKNOWN || !r->pending) return;
    r->state = REACH_CLOSED;
    r->is_assumed = 1;
    dht_reachability_check(r);
}

static void ask_initial_peers(struct dht_reachability *r)
{
    struct dht_core *n = r->core;
    r->checked = loop_now(n->loop);
    r->could = r->could_not = 0;
    for (size_t i = 0; i < n->initial_count && r->pending < REACHABILITY_ASKED; i++) {
        struct dht_reachability_check *check = &r->checks[r->pending];
        struct multiaddr
            seen; /* our address as it sees it, from identify: the one that it should dial */
        if (n->initials[i].state != INITIAL_GOOD ||
            host_observed(n->host, &n->initials[i].peer, &seen))
            continue;
        check->of = r;
        check->question = autonat_ask(n->host, &n->initials[i].peer, CHECK_LIMIT, on_checked,
                                      check);
        r->pending += check->question != NULL;
    }
    if (!r->pending) r->checked = 0;
    else if (r->state == REACH_UNKNOWN) timer_start(n->loop, &r->late, LATE, on_late, r);
}

void dht_reachability_check(struct dht_reachability *r)
{
    double now = loop_now(r->core->loop);
    if (r->core->wants_client_mode) return;
    if (!(r->entered > 0)) r->entered = now;
    if (!r->pending && (!r->checked || now - r->checked >= CHECK_EVERY)) ask_initial_peers(r);
    /* Relays carry little, so only peers that need them use them. A router that lets in only the
     * peers that we have dialed lets in the one that checks: behind a router the relays stay. */
    dht_relays_update(&r->relays, r->state == REACH_CLOSED || r->is_translated);
    /* Whether we call ourselves a client in the messages to come. */
    r->core->state.client_mode = !r->called_back || !dht_reachability_is_open(r);
}
