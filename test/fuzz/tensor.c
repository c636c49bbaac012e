/* tensor.c - any bytes as tensor messages: each alone, and all of them as a stream. What is
 * accepted decodes, encodes again, and comes back with the same elements. */
#include "net/hivemind/messages/tensor_message.h"
#include "../../ref/backend.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct pl_backend be;

static void use(struct tensor_message *m)
{
    struct tensor_message again = *m;
    size_t n = tensor_elements(m), size = pl_dtype_size(m->type.dtype), packed_bytes;
    void *x = pl_alloc(n, size), *y = pl_alloc(n, size);
    uint8_t *packed;
    if (n > m->bytes || !x || !y) abort(); /* a message may not promise more than it brings */
    if (pl_wire_decode(x, &be, m->method, &m->type, m->buffer, m->bytes, NULL)) abort();
    again.method = PL_COMPRESS_NONE; /* loses nothing */
    if (tensor_fill(&again, &be, x, NULL) || tensor_pack(&packed, &packed_bytes, &again)) abort();
    tensor_clear(&again);
    if (tensor_unpack(&again, packed, packed_bytes, NULL)) abort();
    if (pl_wire_decode(y, &be, again.method, &again.type, again.buffer, again.bytes, NULL)) abort();
    if (n && m->type.dtype != PL_BF16_T && memcmp(x, y, n * size)) abort();
    tensor_clear(&again);
    free(packed);
    pl_free(x);
    pl_free(y);
}

/* The input: messages, each behind its length in two bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tensor_join join = { .limit = 1 << 20 };
    if (!be.alloc) pl_backend_ref(&be);
    while (bytes >= 2) {
        size_t length = (size_t)data[0] << 8 | data[1];
        struct tensor_message m;
        struct pl_err err = { "" };
        int rc;
        data += 2, bytes -= 2;
        if (length > bytes) length = bytes;
        rc = tensor_unpack(&m, data, length, &err);
        if (rc ? !err.text[0] : 0) abort();
        if (!rc) use(&m);
        tensor_clear(&m);
        rc = tensor_join_add(&join, data, length, &err);
        if (!rc) {
            tensor_join_take(&m, &join);
            use(&m);
            tensor_clear(&m);
        }
        data += length, bytes -= length;
    }
    tensor_join_clear(&join);
    return 0;
}
