/* dht_walk.h - searches over the network: the engine of dht_search.h, run with calls and timers. */
#ifndef PL_DHT_WALK_H
#define PL_DHT_WALK_H

#include "dht_calls.h"

struct dht_walks {
    struct dht_core *core;
    struct dht_calls *calls;
    struct dht_walk *list;
};

struct dht_walk {
    struct dht_walks *walks;
    struct dht_search search; /* options may be set until the next iteration of the loop */
    /* NEW: not started. OVER: `over` was called, late answers may still come. */
    enum { WALK_NEW, WALK_RUNNING, WALK_OVER } state;
    void (*over)(void *context, struct dht_walk *w);
    void *context;
    struct timer timer; /* until the next node is late */
    struct dht_walk *next, *prev;
};
/* `over` is called once; the search may be read in it, and does not exist afterwards. NULL: no
 * memory. */
struct dht_walk *dht_walk_start(struct dht_walks *walks, const struct dht_id *key,
                                double sufficient, void (*over)(void *, struct dht_walk *),
                                void *context);
void dht_walks_run(struct dht_walks *walks); /* starts those that are new */
void dht_walks_close(struct dht_walks *walks);

#endif
