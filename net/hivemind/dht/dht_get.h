/* dht_get.h - reading records: from our storage, our cache, or the nodes nearest to the key. */
#ifndef PL_DHT_GET_H
#define PL_DHT_GET_H

#include "dht_walk.h"

#define DHT_REFETCHES_MAX 64 /* cached keys renewed in time; a run reads some ten */

struct dht_gets {
    struct dht_core *core;
    struct dht_calls *calls;
    struct dht_walks *walks;
    struct dht_getting *list;
    /* cached records in use, and the DHT times at which to look for newer ones */
    struct dht_refetch {
        struct dht_id key;
        double at;
    } refetches[DHT_REFETCHES_MAX];
    size_t refetch_count;
    struct timer refetch_timer;
};
/* As dht_node_get. */
struct dht_task *dht_get_start(struct dht_gets *gets, const struct dht_id *key, int latest,
                               dht_got *got, void *context);
void dht_gets_run(struct dht_gets *gets); /* starts those that are new */
void dht_gets_close(struct dht_gets *gets);

#endif
