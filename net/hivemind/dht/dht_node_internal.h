/* dht_node_internal.h - the parts of a node and how they depend on each other: each includes
 * only what is below it. Only dht_node.c sees all of them, and tests.
 *
 *   dht_node
 *     |
 *   join     server     get, put     pings
 *     |  \     |           |           |
 *     |  walks | <---------+           |
 *     |    |   table                   |
 *     +--> +-> calls <-----------------+
 *              |
 *            core: tables, clock, blacklist, members, initial peers */
#ifndef PL_DHT_NODE_INTERNAL_H
#define PL_DHT_NODE_INTERNAL_H

#include "dht_get.h"
#include "dht_join.h"
#include "dht_pings.h"
#include "dht_put.h"
#include "dht_server.h"

struct dht_node {
    struct dht_core core;
    struct dht_calls calls;
    struct dht_table table;
    struct dht_walks walks;
    struct dht_gets gets;
    struct dht_puts puts;
    struct dht_pings pings;
    struct dht_server server;
    struct dht_reachability reachability;
    struct dht_join join;
    struct timer run_timer; /* due at once when a part has something to do */
    enum { NODE_OPENING, NODE_RUNNING, NODE_CLOSING } state;
};

#endif
