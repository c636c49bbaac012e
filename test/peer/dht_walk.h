/* dht_walk.h - what the DHT parts of a walk share: calls and records (dht.c), pings and neighbours
 * (dht_pings.c). */
#ifndef PL_PEER_DHT_WALK_H
#define PL_PEER_DHT_WALK_H

#include "walk.h"
#include "net/hivemind/kademlia/dht_message.h"

/* A call with capacity for `count` answers. PL_OK and an answer, or a status with s->why; the
 * caller clears both in any case. */
int walk_dht_call(struct walk *w, enum dht_call which, const struct bytes *request, size_t count,
                  struct dht_answer *a, struct reply *s);
/* Pings with an id of ours; NULL: as a client. The same of *a and *s. */
int walk_dht_ping(struct walk *w, const struct dht_id *id, struct dht_answer *a, struct reply *s);
/* The clauses of pings and neighbours. */
void walk_dht_pings(struct walk *w);

#endif
