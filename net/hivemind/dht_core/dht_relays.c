/* dht_relays.c - relays for a peer behind NAT, found by itself. A relay is any node of the DHT
 * whose identify message names the hop protocol: such a node offers to carry connections for
 * others. [spec libp2p-wire 14]
 *
 *   candidate --reservation asked--> used --none for DHT_RELAY_TRIAL--> paused --> candidate
 *
 * A relay sees only encrypted bytes, but may fail to carry them. So two are used at a time, of
 * different subnets where there is a choice, and the initial peers, which the user has named, come
 * before nodes that anybody may run. */
#include "dht_relays.h"
#include "net/libp2p/relay/relay.h"

#include <string.h>

#define HOP "/libp2p/circuit/relay/0.2.0/hop"
#define NEAREST 32 /* nodes checked for relays */

static struct dht_relay *find(struct dht_relays *r, const struct peer_id *peer)
{
    for (size_t i = 0; i < r->count; i++)
        if (peer_id_equal(&r->list[i].peer, peer)) return &r->list[i];
    return NULL;
}

/* A full list forgets the relay with the longest pause left: strangers whose offers fail are
 * dropped first, relays in use and the initial peers stay. */
static struct dht_relay *place(struct dht_relays *r)
{
    struct dht_relay *out = NULL;
    if (r->count < DHT_RELAYS_MAX) return &r->list[r->count++];
    for (size_t i = 0; i < r->count; i++) {
        struct dht_relay *e = &r->list[i];
        if (!e->is_used && !e->is_initial && e->again > 0 && (!out || e->again > out->again))
            out = e;
    }
    return out;
}

static void add(struct dht_relays *r, const struct peer_id *peer, int is_initial)
{
    struct dht_relay *e;
    if (find(r, peer) || !host_peer_serves(r->core->host, peer, HOP) || !(e = place(r))) return;
    *e = (struct dht_relay){ .peer = *peer,
                             .subnet = dht_core_subnet(r->core, peer),
                             .is_initial = is_initial };
}

/* Peers that we are connected to, and whose identify message has come. Our look-ups and records
 * keep us connected to the nodes nearest to us. */
static void find_candidates(struct dht_relays *r)
{
    struct dht_core *c = r->core;
    struct dht_contact near[NEAREST];
    size_t n = dht_routing_nearest(&c->state.routing, near, NEAREST, &c->state.self, NULL);
    for (size_t i = 0; i < c->initial_count; i++)
        if (c->initials[i].state == INITIAL_GOOD) add(r, &c->initials[i].peer, 1);
    for (size_t i = 0; i < n; i++) add(r, &near[i].peer, 0);
}

static void leave(struct dht_relays *r, struct dht_relay *e)
{
    relay_leave(r->core->host, &e->peer);
    e->is_used = 0;
}

/* Without a reservation for too long: another one is tried in its place. */
static void check_used(struct dht_relays *r, struct dht_relay *e, double now)
{
    if (relay_has_reservation(r->core->host, &e->peer)) e->granted = now;
    else if (now - e->granted > DHT_RELAY_TRIAL) {
        leave(r, e);
        e->again = now + DHT_RELAY_PAUSE;
    }
}

static int shares_subnet(const struct dht_relays *r, const struct dht_relay *e)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].is_used && e->subnet && r->list[i].subnet == e->subnet) return 1;
    return 0;
}

/* Initial peers before others, then a subnet that no other relay of ours is in. */
static struct dht_relay *best(struct dht_relays *r, double now)
{
    struct dht_relay *out = NULL;
    int most = -1;
    for (size_t i = 0; i < r->count; i++) {
        struct dht_relay *e = &r->list[i];
        int points = 2 * e->is_initial + !shares_subnet(r, e);
        if (e->is_used || now < e->again || !host_is_connected(r->core->host, &e->peer)) continue;
        if (points > most) {
            most = points;
            out = e;
        }
    }
    return out;
}

/* Called at intervals. Not needed any more (a router forwards our port now): the relays are left,
 * since each holds a slot for us. */
void dht_relays_update(struct dht_relays *r, int is_needed)
{
    const double now = loop_now(r->core->loop);
    size_t used = 0;
    struct dht_relay *e;
    for (size_t i = 0; i < r->count; i++) {
        if (!r->list[i].is_used) continue;
        if (is_needed) check_used(r, &r->list[i], now);
        else leave(r, &r->list[i]);
        used += (size_t)r->list[i].is_used;
    }
    if (is_needed && used < DHT_RELAYS_USED) find_candidates(r);
    while (is_needed && used < DHT_RELAYS_USED && (e = best(r, now))) {
        if (relay_use(r->core->host, &e->peer)) return; /* no memory now */
        e->is_used = 1;
        e->granted = now;
        used++;
    }
}
