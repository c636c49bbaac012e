/* dht_id.c - Kademlia's metric. Keys and nodes share one space of 160-bit numbers, and the
 * distance of two is their XOR read as a number [Kademlia 2.1]: d(x, y) = x XOR y. It is
 * symmetric, zero only for x = y, and keeps the triangle inequality (x XOR z = (x XOR y) XOR (y
 * XOR z) <= the sum). Ids with a longer common prefix are nearer, so a routing table can halve
 * the remaining distance with every step. */
#include "dht_id.h"
#include "net/hivemind/messages/msgpack.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>

/* SHA-1 spreads keys evenly over the id space; the hash is not a secret and needs no collision
 * resistance here, since records carry their own signatures. */
void dht_id_of(struct dht_id *id, const void *data, size_t n)
{
    EVP_Digest(data, n, id->bytes, NULL, EVP_sha1(), NULL);
}

/* hivemind hashes a key's msgpack form: "ttt" is a3 74 74 74, and the text's length is part of
 * it. */
int dht_id_of_text(struct dht_id *id, const char *key)
{
    uint8_t raw[1024];
    struct bytes b = { .data = raw, .capacity = sizeof raw, .limit = sizeof raw };
    if (strlen(key) > 1000) return PL_ELIMIT;
    mp_text(&b, key); /* fits: nothing is allocated */
    dht_id_of(id, bytes_at(&b), bytes_length(&b));
    return PL_OK;
}

/* A node chooses its id at random when it starts. It isn't its peer ID: one peer may have a new
 * id each day. */
int dht_id_random(struct dht_id *id)
{
    return RAND_bytes(id->bytes, DHT_ID_BYTES) == 1 ? PL_OK : PL_ENOMEM;
}

int dht_id_parse(struct dht_id *id, const void *data, size_t n)
{
    if (n != DHT_ID_BYTES) return PL_EFORMAT;
    memcpy(id->bytes, data, n);
    return PL_OK;
}

/* Big-endian bytes compare like the numbers. */
int dht_id_compare(const struct dht_id *a, const struct dht_id *b)
{
    return memcmp(a->bytes, b->bytes, DHT_ID_BYTES);
}

int dht_id_equal(const struct dht_id *a, const struct dht_id *b) { return !dht_id_compare(a, b); }

/* The length of the common prefix: 160 minus the number of bits of the XOR. __builtin_clz counts
 * in 32 bits, of which a byte uses the last 8. */
int dht_id_common_bits(const struct dht_id *a, const struct dht_id *b)
{
    for (int i = 0; i < DHT_ID_BYTES; i++) {
        unsigned differ = a->bytes[i] ^ b->bytes[i];
        if (differ) return 8 * i + __builtin_clz(differ) - 24;
    }
    return DHT_ID_BITS;
}

/* Compares a XOR to with b XOR to without computing either beyond the first byte that differs. */
int dht_id_nearer(const struct dht_id *a, const struct dht_id *b, const struct dht_id *to)
{
    for (int i = 0; i < DHT_ID_BYTES; i++) {
        int x = a->bytes[i] ^ to->bytes[i], y = b->bytes[i] ^ to->bytes[i];
        if (x != y) return x - y;
    }
    return 0;
}
