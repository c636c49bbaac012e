/* batch_shards.h - a small model's batch on several threads. Its operations are too short to share
 * each among threads, so the batch is cut into shards instead, each of which goes all the way,
 * forward and backward, on one thread, with gradients of its own that are added in the shards'
 * order. The cut follows from the sizes alone, and so do all bits of the result. */
#ifndef PL_BATCH_SHARDS_H
#define PL_BATCH_SHARDS_H

#include <stddef.h>

/* The shards of a batch of B: 1 for a model of PL_SHARD_PARAMETERS or more, whose operations are
 * long enough; otherwise the number at which each has PL_SHARD_SAMPLES sequences: 1, 2 or
 * PL_SHARDS_MAX, which two or four threads share evenly. */
#define PL_SHARD_PARAMETERS 4000000
#define PL_SHARD_SAMPLES 6
#define PL_SHARDS_MAX 4
int pl_batch_shards(size_t parameters, int B);

#endif
