/* pool.h - buffers that come back: activations of one step serve the next, because fresh memory
 * costs more than most layers do. */
#ifndef PL_POOL_H
#define PL_POOL_H

#include "../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_pool {
    const struct pl_backend *be; /* borrowed */
    struct pl_pool_buffer {
        float *at;
        size_t floats;
        int busy;
    } *list;
    size_t count, room;
};

/* Backend memory for n floats (also of 32-bit integers), its content undefined; NULL: none left. */
float *pl_pool_take(struct pl_pool *pool, size_t n);
/* Back for reuse; NULL is harmless. */
void pl_pool_give(struct pl_pool *pool, const float *at);
/* After an error, and before a new pass: whatever was taken is free again. */
void pl_pool_give_all(struct pl_pool *pool);
void pl_pool_clear(struct pl_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
