/* dht_id.h - 160-bit names of keys and nodes, and how far they are from each other.
 * [spec hivemind-protocol 1.1] [Kademlia 2.1] */
#ifndef PL_DHT_ID_H
#define PL_DHT_ID_H

#include "ref/base.h"

#define DHT_ID_BYTES 20
#define DHT_ID_BITS 160

struct dht_id {
    uint8_t bytes[DHT_ID_BYTES]; /* big-endian */
};

/* SHA-1 of bytes: a key that is a byte string as it is, any other key's msgpack form. */
void dht_id_of(struct dht_id *id, const void *data, size_t n);
/* The id of a text key, as nearly all keys are: "ttt_progress". PL_ELIMIT beyond 1,000 bytes. */
int dht_id_of_text(struct dht_id *id, const char *key);
int dht_id_random(struct dht_id *id); /* PL_ENOMEM when there is no randomness */
/* PL_EFORMAT unless there are 20 bytes. */
int dht_id_parse(struct dht_id *id, const void *data, size_t n);

/* <0, 0, >0 as numbers. */
int dht_id_compare(const struct dht_id *a, const struct dht_id *b);
int dht_id_equal(const struct dht_id *a, const struct dht_id *b);
/* Leading bits that are the same, 0 to 160. */
int dht_id_common_bits(const struct dht_id *a, const struct dht_id *b);
/* Which is nearer to `to`: <0 a, >0 b, 0 they are the same. */
int dht_id_nearer(const struct dht_id *a, const struct dht_id *b, const struct dht_id *to);

#endif
