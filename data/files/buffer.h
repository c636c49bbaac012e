/* buffer.h - a growing byte buffer for writers. An allocation failure is remembered in `failed`, so
 * a writer checks once, at the end. All zero is an empty buffer; pl_buffer_clear frees it. */
#ifndef PL_BUFFER_H
#define PL_BUFFER_H

#include "ref/base.h"

struct pl_buffer {
    uint8_t *data;
    size_t bytes, capacity;
    int failed; /* an allocation failed: the content is incomplete */
};

void pl_buffer_add(struct pl_buffer *b, const void *data, size_t bytes);
void pl_buffer_byte(struct pl_buffer *b, uint8_t byte);
void pl_buffer_le32(struct pl_buffer *b, uint32_t x);
void pl_buffer_clear(struct pl_buffer *b);

#endif
