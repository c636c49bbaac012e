/* dht_table.c - Kademlia keeps its routing table fresh by the messages that flow anyway: the
 * sender of a request or an answer is alive [Kademlia 2.2, spec hivemind-protocol 1.4].
 *
 *   node seen --known--> moves to the end of its bucket, as the one seen last
 *      |
 *      +--new, bucket has space--> added; gets the records that it is now nearest to
 *      |
 *      +--new, bucket is full--> waits as a replacement; the bucket's longest silent node is pinged
 *                                  and loses its place if it does not answer
 *
 * Old nodes are preferred to new ones: those that have been up long stay up longer, and a
 * stranger cannot flush the table by calling from many ids. */
#include "dht_table.h"

#include <stdlib.h>

/* s; a peer with a new id gets our records again only after that: ids cost nothing. */
#define HAND_OVER_AGAIN 60.0

/* The pinged node of a full bucket. It loses its place if it does not answer, or answers under
 * another id, as after a restart. */
static void on_checked(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_table *t = context;
    struct dht_routing *routing = &t->core->state.routing;
    const struct dht_contact *known = dht_routing_find_peer(routing, &who->peer);
    if (known && (r->status || (r->pong->has_id && !dht_id_equal(&r->pong->id, &known->id))))
        dht_routing_remove(routing, &known->id);
}

/* Replication follows the nodes: each record belongs on the nodes nearest to its key, so a new node
 * receives the records that it is near to. dht_serve.c chooses them. */
static void hand_over(struct dht_table *t, const struct dht_contact *newcomer)
{
    struct dht_record *records;
    struct bytes packed = { 0 };
    size_t count;
    if (!dht_state_hand_over(&t->core->state, dht_core_time(t->core), &newcomer->id, &records,
                             &count, &packed)) {
        for (size_t i = 0; i < count; i++)
            dht_ask_store(t->calls, newcomer, &records[i], NULL, NULL);
        free(records);
    }
    bytes_clear(&packed);
}

void dht_table_seen(struct dht_table *t, const struct dht_id *id, const struct peer_id *peer)
{
    struct dht_state *s = &t->core->state;
    struct dht_contact ask, c = { .id = *id, .peer = *peer };
    const struct dht_contact *old = dht_routing_find_peer(&s->routing, peer);
    double now = loop_now(t->core->loop);
    int is_new = !dht_routing_find(&s->routing, id);
    if (dht_id_equal(id, &s->self) || peer_id_equal(peer, host_id(t->core->host))) return;
    if (old && !dht_id_equal(&old->id, id)) { /* one peer, one entry: its latest id */
        struct dht_id was = old->id;
        is_new = is_new && now - old->seen >= HAND_OVER_AGAIN;
        dht_routing_remove(&s->routing, &was);
    }
    if (is_new && !s->client_mode) hand_over(t, &c);
    if (!dht_routing_add(&s->routing, id, peer, now, &ask) && ask.peer.length)
        dht_ask_ping(t->calls, &ask.peer, 0, on_checked, t);
}
