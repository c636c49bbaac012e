/* dht_put.h - storing records at the nodes nearest to their keys. */
#ifndef PL_DHT_PUT_H
#define PL_DHT_PUT_H

#include "dht_walk.h"

struct dht_puts {
    struct dht_core *core;
    struct dht_calls *calls;
    struct dht_walks *walks;
    struct dht_putting *list;
};
/* As dht_node_store. */
struct dht_task *dht_put_start(struct dht_puts *puts, const struct dht_id *key, const void *subkey,
                               size_t subkey_n, const void *value, size_t value_n,
                               double expiration, dht_stored *stored, void *context);
void dht_puts_run(struct dht_puts *puts); /* starts those that are new */
void dht_puts_close(struct dht_puts *puts);

#endif
