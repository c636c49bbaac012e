/* allreduce_buffers.h - memory of an all-reduce that is used again: a pool of message buffers,
 * and the blocks for what a round keeps until its end. Knows nothing of rounds; on the loop's
 * thread only. */
#ifndef PL_ALLREDUCE_BUFFERS_H
#define PL_ALLREDUCE_BUFFERS_H

#include "net/bytes.h"

#define BUFFER_POOL_MAX 64 /* buffers: several groupmates' windows of ALLREDUCE_WINDOW messages */

struct buffer_pool { /* zeros: empty */
    struct bytes spare[BUFFER_POOL_MAX];
    size_t count;
};

/* An empty buffer, with memory if the pool has one. The caller owns it. */
struct bytes buffer_pool_take(struct buffer_pool *p);
/* Takes over the buffer's memory; *b is zeros then. */
void buffer_pool_give(struct buffer_pool *p, struct bytes *b);
void buffer_pool_clear(struct buffer_pool *p);

struct allreduce_block {
    uint8_t *data;
    size_t n;   /* bytes */
    int is_new; /* its pages have not been written to */
};

/* What a round keeps until its end: the messages that arrived for our parts, and the answers to
 * ours. Lent to one round after another, so its pages are new to the system only once. Zeros:
 * empty. */
struct allreduce_memory {
    struct allreduce_block messages, answers;
};
void allreduce_memory_clear(struct allreduce_memory *m);

/* At least n bytes, of undefined content, owned by the block. NULL: no memory. */
uint8_t *allreduce_block_reserve(struct allreduce_block *b, size_t n);
/* Copies n bytes to a place inside the block. */
void allreduce_block_put(const struct allreduce_block *b, uint8_t *place, const uint8_t *data,
                         size_t n);

#endif
