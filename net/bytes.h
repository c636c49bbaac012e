/* bytes.h - a growable buffer with a limit, and a cursor over received bytes. Every engine of net/
 * takes bytes in one and gives bytes in the other. */
#ifndef PL_BYTES_H
#define PL_BYTES_H

#include "../ref/base.h"

/* Zero-initialise to begin. Data lie in data[begin .. end). The owner calls bytes_clear. */
struct bytes {
    uint8_t *data;
    size_t begin, end, capacity;
    size_t limit; /* most bytes held at once; 0: no limit but memory */
    int failed;   /* PL_ENOMEM or PL_ELIMIT once something did not fit; sticks until cleared */
};

static inline size_t bytes_length(const struct bytes *b) { return b->end - b->begin; }
/* Never NULL, so that a view of nothing may be handed to memcpy and its like. */
static inline const uint8_t *bytes_at(const struct bytes *b)
{
    return b->data ? b->data + b->begin : (const uint8_t *)"";
}

void bytes_clear(struct bytes *b);
/* Space for n more bytes at the end, to be filled and then counted with `end += n`. NULL:
 * failed. */
uint8_t *bytes_reserve(struct bytes *b, size_t n);
int bytes_add(struct bytes *b, const void *data, size_t n);
int bytes_u8(struct bytes *b, uint8_t x);
int bytes_be16(struct bytes *b, uint16_t x);
int bytes_be32(struct bytes *b, uint32_t x);
int bytes_be64(struct bytes *b, uint64_t x);
int bytes_varint(struct bytes *b, uint64_t x); /* unsigned LEB128 */
/* Drops n bytes from the front; n <= length. */
void bytes_take(struct bytes *b, size_t n);

/* Reading: every get_ returns PL_OK and moves on, PL_EAGAIN when bytes are missing (nothing moves),
 * or PL_EFORMAT. */
struct cursor {
    const uint8_t *at;
    size_t left;
};
int get_u8(struct cursor *c, uint8_t *x);
int get_be16(struct cursor *c, uint16_t *x);
int get_be32(struct cursor *c, uint32_t *x);
int get_be64(struct cursor *c, uint64_t *x);
/* PL_EFORMAT: more than 10 bytes or 64 bits. */
int get_varint(struct cursor *c, uint64_t *x);
/* A view of n bytes, borrowed. */
int get_bytes(struct cursor *c, const uint8_t **data, size_t n);
/* varint length, then that many bytes; a length above max is PL_ELIMIT at once. */
int get_delimited(struct cursor *c, const uint8_t **data, size_t *n, size_t max);

#endif
