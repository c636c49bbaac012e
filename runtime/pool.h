/* pool.h - a caching allocator for a model's intermediate values: activations of one step serve the
 * next, because fresh memory costs more than most layers do. */
#ifndef PL_POOL_H
#define PL_POOL_H

#include "../ref/model/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* be is borrowed. NULL: no memory. The caller frees it with pl_pool_close, and its buffers, all of
 * them, with it. */
struct pl_scratch *pl_pool_open(const struct pl_backend *be);
void pl_pool_close(struct pl_scratch *pool);

#ifdef __cplusplus
}
#endif
#endif
