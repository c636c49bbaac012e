/* dht_dictionary.h - several peers' values under one key of the DHT, each with its own subkey and
 * expiration. [spec hivemind-protocol 1.2, 1.5] */
#ifndef PL_DHT_DICTIONARY_H
#define PL_DHT_DICTIONARY_H

#include "net/bytes.h"
#include "dht_quota.h"

/* Bytes of one dictionary by the kind of its items, with DHT_RECORD_COST for each: a found one has
 * to fit into an answer (RPC_UNARY_MAX) together with others. Each kind has its own limit. */
#define DHT_DICTIONARY_SIGNED_MAX (1280u << 10)     /* progress records of 1,300 peers */
#define DHT_DICTIONARY_DECLARATION_MAX (256u << 10) /* 1,400 peers' */
#define DHT_DICTIONARY_PLAIN_MAX (512u << 10)       /* no record of a run is of this kind */
#define DHT_DICTIONARY_MAX (2u << 20)               /* all of these */
/* The limit of a dictionary from another node, which may allow more than we do. The longest message
 * holds 4 MiB; the memory of items besides their bytes at most doubles that for records of a
 * run. */
#define DHT_DICTIONARY_READ_MAX (8u << 20)
#define DHT_RECORD_COST 128 /* bytes of memory that a record takes besides its content, roughly */
/* Items of one owner in one dictionary: in a run it is one. Another application may have a few. */
#define DHT_OWNER_ITEMS_MAX 4

struct dht_item {
    uint8_t *subkey, *value; /* msgpack; the value may carry a signature. One block of memory */
    size_t subkey_n, n;
    double expiration;
    struct dht_origin from;
    uint64_t hash; /* of the subkey */
};

struct dht_dictionary {
    struct dht_item *items; /* in the order in which they came to stay */
    size_t count, capacity;
    size_t bytes, class_bytes[DHT_CLASSES];
    struct hash_index by_subkey, by_owner; /* private */
    struct dht_quota *quota; /* borrowed; its holders are charged for items; NULL: no charges */
    double latest;           /* greatest expiration ever offered, -INFINITY before the first */
    double earliest;         /* a bound: no item expires before */
    double size_max;         /* items; INFINITY: no limit */
};

void dht_dictionary_init(struct dht_dictionary *d);
void dht_dictionary_clear(struct dht_dictionary *d);

/* 0: the item is longer than all that a dictionary keeps of its kind. */
int dht_dictionary_fits(const struct dht_item *item);
/* Stores a copy. PL_OK: it is in. PL_EAGAIN: refused, because it has expired or is not newer than
 * what is there (the greater expiration is the newer one), there is no space for it, or its owner
 * has enough items. PL_ENOMEM. `latest` is raised in any case. The item's subkey: msgpack in our
 * unique form; its hash is not read. */
int dht_dictionary_put(struct dht_dictionary *d, double now, const struct dht_item *item);
/* The same for a plain item of our own. */
int dht_dictionary_store(struct dht_dictionary *d, double now, const void *subkey, size_t subkey_n,
                         const void *value, size_t n, double expiration);
/* Drops expired items. */
void dht_dictionary_prune(struct dht_dictionary *d, double now);
/* Drops the items that expire before `now`, and those that are marked: marked (count), or NULL.
 * O(n). */
void dht_dictionary_drop(struct dht_dictionary *d, double now, const uint8_t *marked);
const struct dht_item *dht_dictionary_find(const struct dht_dictionary *d, const void *subkey,
                                           size_t n);

/* The highest class of its items; DHT_PLAIN if it has none. */
enum dht_class dht_dictionary_class(const struct dht_dictionary *d);

/* As an extension value; prune before. */
int dht_dictionary_write(struct bytes *out, const struct dht_dictionary *d);
/* The same, of the items of class `least` and above. */
int dht_dictionary_write_from(struct bytes *out, const struct dht_dictionary *d,
                              enum dht_class least);
/* Reads one, dropping nothing that has expired. PL_EFORMAT with a sentence. *d is filled anew. */
int dht_dictionary_read(struct dht_dictionary *d, const uint8_t *data, size_t n,
                        struct pl_err *err);

/* A subkey in our one way of writing, appended to out. PL_EFORMAT for bytes that are not msgpack,
 * or are of a kind that can't be a key in hivemind (lists, maps). */
int dht_subkey_write(struct bytes *out, const uint8_t *data, size_t n);

#endif
