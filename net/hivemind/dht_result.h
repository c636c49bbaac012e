/* dht_result.h - the newest of what several nodes told about one key. [spec hivemind-protocol
 * 1.6] */
#ifndef PL_DHT_RESULT_H
#define PL_DHT_RESULT_H

#include "dht_message.h"
#include "dht_store.h"
#include "validate.h"

struct dht_result {
    enum dht_found_type type;
    double expiration;        /* -INFINITY: nothing yet */
    struct bytes value;       /* a regular value */
    struct dht_dictionary dictionary;
};
void dht_result_init(struct dht_result *r);
void dht_result_clear(struct dht_result *r);

/* Takes what a node (or our own storage) told. Records that are not newer are not looked at; others
 * are checked one by one, and bad ones left out. Dictionaries are merged by the storage rule, a
 * regular value and a dictionary replace each other by expiration. PL_OK: something newer came.
 * PL_EAGAIN: nothing newer. PL_ENOMEM. */
int dht_result_merge(struct dht_result *r, const struct validators *v, const struct dht_id *key,
                     enum dht_found_type type, const uint8_t *value, size_t n, double expiration);

/* For whoever asked: drops what has expired and the signatures. */
int dht_result_finish(struct dht_result *r, double now);
int dht_result_copy(struct dht_result *to, const struct dht_result *from);

/* As a record to hand on (still signed). `packed` takes a dictionary's bytes. */
int dht_result_record(struct dht_record *to, struct bytes *packed, const struct dht_result *r,
                      const struct dht_id *key);

#endif
