/* dht_id.c - see dht_id.h. */
#include "dht_id.h"
#include "net/hivemind/messages/msgpack.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>

void dht_id_of(struct dht_id *id, const void *data, size_t n)
{
    EVP_Digest(data, n, id->bytes, NULL, EVP_sha1(), NULL);
}

int dht_id_of_text(struct dht_id *id, const char *key)
{
    uint8_t raw[1024];
    struct bytes b = { .data = raw, .room = sizeof raw, .limit = sizeof raw };
    if (strlen(key) > 1000) return PL_ELIMIT;
    mp_text(&b, key); /* fits: nothing is allocated */
    dht_id_of(id, bytes_at(&b), bytes_length(&b));
    return PL_OK;
}

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

int dht_id_compare(const struct dht_id *a, const struct dht_id *b)
{
    return memcmp(a->bytes, b->bytes, DHT_ID_BYTES);
}

int dht_id_equal(const struct dht_id *a, const struct dht_id *b) { return !dht_id_compare(a, b); }

void dht_id_xor(struct dht_id *out, const struct dht_id *a, const struct dht_id *b)
{
    for (int i = 0; i < DHT_ID_BYTES; i++) out->bytes[i] = a->bytes[i] ^ b->bytes[i];
}

int dht_id_common_bits(const struct dht_id *a, const struct dht_id *b)
{
    for (int i = 0; i < DHT_ID_BYTES; i++) {
        unsigned differ = a->bytes[i] ^ b->bytes[i];
        if (differ) return 8 * i + __builtin_clz(differ) - 24;
    }
    return DHT_ID_BITS;
}

int dht_id_nearer(const struct dht_id *a, const struct dht_id *b, const struct dht_id *to)
{
    for (int i = 0; i < DHT_ID_BYTES; i++) {
        int x = a->bytes[i] ^ to->bytes[i], y = b->bytes[i] ^ to->bytes[i];
        if (x != y) return x - y;
    }
    return 0;
}
