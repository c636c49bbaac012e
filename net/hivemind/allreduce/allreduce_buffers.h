/* allreduce_buffers.h - reusable memory of an all-reduce: a pool of message buffers, and two blocks
 * for data that a round keeps until its end. Knows nothing of rounds; used on the loop's thread
 * only. */
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

/* Memory for data that a round keeps until its end: the messages that arrived for our parts, and
 * the answers to ours. One round after another borrows it, so its pages are mapped once. Zeros:
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
