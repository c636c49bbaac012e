/* dht_store.h - the records that a node keeps for others (or in its cache), until they expire.
 * [spec hivemind-protocol 1.5]
 *
 * The record with the greater expiration is the newer one; an equal one changes nothing. In
 * hivemind a refused older store shortens the life of the newer record; here a refused store
 * changes nothing. */
#ifndef PL_DHT_STORE_H
#define PL_DHT_STORE_H

#include "dht_dictionary.h"
#include "dht_id.h"

/* Bytes of one store. A run of 1,000 peers needs about 2 MiB, nearly all of it signed; a quarter is
 * for declarations and plain values each, and neither kind takes another's. */
#define DHT_STORE_MAX (64u << 20)
#define DHT_CACHE_MAX (16u << 20)
#define DHT_VALUE_MAX (1u << 20) /* of one regular value */

struct dht_entry {
    struct dht_id key;
    double expiration;
    uint8_t *value; /* NULL: a dictionary */
    size_t n;
    struct dht_origin from; /* of the value; of a dictionary, its first item's */
    struct dht_dictionary dictionary;
    size_t place, at; /* in the heap, in the array */
};

struct dht_store {
    struct dht_entry **entries; /* in no order */
    struct dht_entry **heap;    /* the earliest first; ties by key */
    size_t count, capacity;
    struct hash_index by_key;
    size_t bytes, class_bytes[DHT_CLASSES], bytes_max;
    double size_max;         /* keys; INFINITY: no limit */
    struct dht_quota *quota; /* borrowed; of this store's and others' records; NULL: none */
};

void dht_store_init(struct dht_store *s, size_t bytes_max);
void dht_store_clear(struct dht_store *s);

/* Stores a copy: a regular value if the item's subkey is NULL, otherwise one item of a dictionary
 * (its subkey from dht_subkey_write). PL_OK: stored. PL_EAGAIN: refused (expired, not newer, of a
 * lower kind than the present record, or no space for it or its holder). PL_ENOMEM. */
int dht_store_put(struct dht_store *s, double now, const struct dht_id *key,
                  const struct dht_item *item);
/* 1: dht_store_put would refuse the item of a dictionary, since the present record is as new, and
 * of no lower kind. */
int dht_store_is_known(const struct dht_store *s, const struct dht_id *key,
                       const struct dht_item *item);
/* 1: there is a record under the key, for an item of a dictionary under its subkey. */
int dht_store_holds(const struct dht_store *s, const struct dht_id *key,
                    const struct dht_item *item);
/* The record, or NULL; its dictionary is pruned. Valid until the next change. */
struct dht_entry *dht_store_get(struct dht_store *s, double now, const struct dht_id *key);
void dht_store_remove(struct dht_store *s, const struct dht_id *key);
/* Drops expired records. */
void dht_store_prune(struct dht_store *s, double now);

/* The highest class of the key's records. */
enum dht_class dht_entry_class(const struct dht_entry *e);
/* Bytes of values that any peer may have written. */
size_t dht_entry_plain_bytes(const struct dht_entry *e);
/* The value as it travels: as it is, or the packed dictionary. */
int dht_entry_write(struct bytes *out, const struct dht_entry *e);

#endif
