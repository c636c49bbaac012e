/* dht_table.h - updates of the routing table by every message. Kademlia needs no messages of its
 * own for that: each call and each answer shows that a node lives. [Kademlia 2.2] */
#ifndef PL_DHT_TABLE_H
#define PL_DHT_TABLE_H

#include "dht_calls.h"

struct dht_table {
    struct dht_core *core;
    struct dht_calls *calls;
};
/* A node with this id has called us or answered. */
void dht_table_seen(struct dht_table *t, const struct dht_id *id, const struct peer_id *peer);

#endif
