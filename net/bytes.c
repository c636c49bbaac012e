/* bytes.c - a buffer that is filled at its end and emptied at its front, and a cursor for
 * reading.
 *
 * Bytes taken from the front are not moved at once: that would cost the square of the length for
 * a reader that takes little by little. They are reclaimed when space is needed and at least
 * half of the buffer is free in front; otherwise the buffer doubles. So each byte is moved a
 * bounded number of times on average. Errors stick, so a message is composed without a check
 * after each field. */
#include "bytes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The limit stays: it belongs to the buffer's use, not to its content. */
void bytes_clear(struct bytes *b)
{
    size_t limit = b->limit;
    free(b->data);
    memset(b, 0, sizeof *b);
    b->limit = limit;
}

uint8_t *bytes_reserve(struct bytes *b, size_t n)
{
    size_t length = bytes_length(b), capacity;
    uint8_t *data;
    int far;
    if (b->failed) return NULL;
    if (n > SIZE_MAX / 4 || (b->limit && n > b->limit - (length < b->limit ? length : b->limit))) {
        b->failed = PL_ELIMIT;
        return NULL;
    }
    if (b->data && b->capacity - b->end >= n) return b->data + b->end;
    /* Move to the front; grow if that is not enough, or would be done too often. */
    far = b->begin >= b->capacity / 2;
    if (b->begin) memmove(b->data, b->data + b->begin, length);
    b->begin = 0;
    b->end = length;
    if (b->data && far && b->capacity - length >= n) return b->data + b->end;
    capacity = b->capacity ? 2 * b->capacity : 256;
    while (capacity < length + n) capacity *= 2;
    if (!(data = realloc(b->data, capacity))) { /* large blocks are remapped, not copied */
        b->failed = PL_ENOMEM;
        return NULL;
    }
    b->data = data;
    b->capacity = capacity;
    return b->data + b->end;
}

/* A failed buffer stays as it is, so a message is never sent in part. */
int bytes_add(struct bytes *b, const void *data, size_t n)
{
    uint8_t *to = bytes_reserve(b, n);
    if (!to) return b->failed;
    if (n) memcpy(to, data, n);
    b->end += n;
    return PL_OK;
}

int bytes_u8(struct bytes *b, uint8_t x) { return bytes_add(b, &x, 1); }

static int add_be(struct bytes *b, uint64_t x, int n)
{
    uint8_t raw[8];
    for (int i = 0; i < n; i++) raw[i] = (uint8_t)(x >> 8 * (n - 1 - i));
    return bytes_add(b, raw, (size_t)n);
}

int bytes_be16(struct bytes *b, uint16_t x) { return add_be(b, x, 2); }
int bytes_be32(struct bytes *b, uint32_t x) { return add_be(b, x, 4); }
int bytes_be64(struct bytes *b, uint64_t x) { return add_be(b, x, 8); }

/* Seven bits a byte, the lowest first; the top bit says that more follow. */
int bytes_varint(struct bytes *b, uint64_t x)
{
    uint8_t raw[10];
    size_t n = 0;
    do {
        raw[n] = (uint8_t)(x & 127);
        x >>= 7;
        if (x) raw[n] |= 128;
        n++;
    } while (x);
    return bytes_add(b, raw, n);
}

void bytes_take(struct bytes *b, size_t n)
{
    assert(n <= bytes_length(b));
    b->begin += n;
    if (b->begin == b->end) b->begin = b->end = 0;
}

int get_bytes(struct cursor *c, const uint8_t **data, size_t n)
{
    if (c->left < n) return PL_EAGAIN;
    *data = c->at;
    c->at += n;
    c->left -= n;
    return PL_OK;
}

int get_u8(struct cursor *c, uint8_t *x)
{
    const uint8_t *p;
    int rc = get_bytes(c, &p, 1);
    if (!rc) *x = *p;
    return rc;
}

static int get_be(struct cursor *c, uint64_t *x, size_t n)
{
    const uint8_t *p;
    int rc = get_bytes(c, &p, n);
    *x = 0;
    for (size_t i = 0; !rc && i < n; i++) *x = *x << 8 | p[i];
    return rc;
}

int get_be16(struct cursor *c, uint16_t *x)
{
    uint64_t wide;
    int rc = get_be(c, &wide, 2);
    *x = (uint16_t)wide;
    return rc;
}

int get_be32(struct cursor *c, uint32_t *x)
{
    uint64_t wide;
    int rc = get_be(c, &wide, 4);
    *x = (uint32_t)wide;
    return rc;
}

int get_be64(struct cursor *c, uint64_t *x) { return get_be(c, x, 8); }

/* At most ten bytes, and the tenth holds the highest bit alone. */
int get_varint(struct cursor *c, uint64_t *x)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 10; i++) {
        uint8_t byte;
        if (i >= c->left) return PL_EAGAIN;
        byte = c->at[i];
        if (i == 9 && byte > 1) return PL_EFORMAT; /* more than 64 bits */
        value |= (uint64_t)(byte & 127) << 7 * i;
        if (byte & 128) continue;
        c->at += i + 1;
        c->left -= i + 1;
        *x = value;
        return PL_OK;
    }
    return PL_EFORMAT;
}

/* Nothing moves before all of it is there, so a caller may simply try again with more bytes. */
int get_delimited(struct cursor *c, const uint8_t **data, size_t *n, size_t max)
{
    struct cursor ahead = *c;
    uint64_t length;
    int rc = get_varint(&ahead, &length);
    if (rc) return rc;
    if (length > max) return PL_ELIMIT;
    rc = get_bytes(&ahead, data, (size_t)length);
    if (rc) return rc;
    *n = (size_t)length;
    *c = ahead;
    return PL_OK;
}
