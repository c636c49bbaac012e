/* msgpack.c - any bytes as a value, a DHT dictionary and a subkey; what is read is written in one
 * way only. */
#include "net/hivemind/records/dht_dictionary.h"
#include "net/hivemind/messages/msgpack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void once_more(const struct bytes *first)
{
    struct bytes second = { 0 };
    struct mp_value *v;
    if (mp_read(&v, bytes_at(first), bytes_length(first), NULL)) abort();
    mp_write(&second, v);
    if (bytes_length(&second) != bytes_length(first) ||
        memcmp(bytes_at(&second), bytes_at(first), bytes_length(first)))
        abort();
    mp_free(v);
    bytes_clear(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes out = { 0 };
    struct dht_dictionary d;
    struct mp_value *v;
    struct pl_err err;
    if (!mp_read(&v, data, n, &err)) {
        mp_write(&out, v);
        once_more(&out);
        mp_free(v);
    }
    bytes_clear(&out);
    if (!dht_dictionary_read(&d, data, n, &err)) {
        dht_dictionary_write(&out, &d);
        once_more(&out);
        dht_dictionary_prune(&d, 1000);
        dht_dictionary_clear(&d);
    }
    bytes_clear(&out);
    if (!dht_subkey_write(&out, data, n)) once_more(&out);
    bytes_clear(&out);
    return 0;
}
