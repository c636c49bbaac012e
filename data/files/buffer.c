/* buffer.c - a byte array that grows by doubling, so that n appended bytes cost O(n) in all. */
#include "buffer.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>

void pl_buffer_add(struct pl_buffer *b, const void *data, size_t bytes)
{
    if (b->failed || !bytes) return;
    if (pl_grow_by(&b->data, b->bytes, bytes, &b->capacity, 64)) {
        b->failed = 1;
        return;
    }
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

void pl_buffer_byte(struct pl_buffer *b, uint8_t byte) { pl_buffer_add(b, &byte, 1); }

void pl_buffer_le32(struct pl_buffer *b, uint32_t x)
{
    uint8_t p[4] = { (uint8_t)x, (uint8_t)(x >> 8), (uint8_t)(x >> 16), (uint8_t)(x >> 24) };
    pl_buffer_add(b, p, sizeof p);
}

void pl_buffer_clear(struct pl_buffer *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}
