/* dht_dictionary.h - several peers' values under one key of the DHT, each with its own subkey and
 * expiration. [spec hivemind-protocol 1.2, 1.5] */
#ifndef PL_DHT_DICTIONARY_H
#define PL_DHT_DICTIONARY_H

#include "../bytes.h"

/* Of one dictionary, with DHT_RECORD_COST for each item: a found one has to fit into an answer
 * (RPC_UNARY_MAX) beside others. Signed progress records of 1,500 peers fit. */
#define DHT_DICTIONARY_MAX (2u << 20)
#define DHT_RECORD_COST 128 /* bytes that a record takes beside what it holds, roughly */

struct dht_item {
    uint8_t *subkey, *value; /* msgpack; the value may carry a signature. One block of memory */
    size_t subkey_n, n;
    double expiration;
};

struct dht_dictionary {
    struct dht_item *items; /* in the order in which they came to stay */
    size_t count, room, bytes;
    double latest;   /* greatest expiration ever offered, -INFINITY before the first */
    double earliest; /* a bound: no item expires before */
    double size_max; /* items; INFINITY: no limit */
};

void dht_dictionary_init(struct dht_dictionary *d);
void dht_dictionary_clear(struct dht_dictionary *d);

/* PL_OK: it is in. PL_EAGAIN: refused, because it has expired or is not newer than what is there
 * (the greater expiration is the newer one), or there is no room for it. PL_ENOMEM. `latest` is
 * raised in any case. subkey: msgpack in our one way of writing. */
int dht_dictionary_store(struct dht_dictionary *d, double now, const void *subkey, size_t subkey_n,
                         const void *value, size_t n, double expiration);
/* Drops what has expired. */
void dht_dictionary_prune(struct dht_dictionary *d, double now);
const struct dht_item *dht_dictionary_find(const struct dht_dictionary *d, const void *subkey,
                                           size_t n);

/* As an extension value; prune before. */
int dht_dictionary_write(struct bytes *out, const struct dht_dictionary *d);
/* Reads one, dropping nothing that has expired. PL_EFORMAT with a sentence. *d is filled anew. */
int dht_dictionary_read(struct dht_dictionary *d, const uint8_t *data, size_t n,
                        struct pl_err *err);

/* A subkey in our one way of writing, appended to out. PL_EFORMAT for bytes that are no msgpack, or
 * are of a kind that can't be a key in hivemind (lists, maps). */
int dht_subkey_write(struct bytes *out, const uint8_t *data, size_t n);

#endif
