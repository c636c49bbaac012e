/* batch_shards.h - a small model's batch on several threads. Its operations are too short to share
 * each among threads, so the batch is cut into shards instead, each of which goes all the way,
 * forward and backward, on one thread, with gradients of its own that are added in the shards'
 * order. The cut follows from the sizes alone, and so do all bits of the result. */
#ifndef PL_BATCH_SHARDS_H
#define PL_BATCH_SHARDS_H

#include "dalle_run.h"

/* The shards of a batch of B: 1 for a model of PL_SHARD_PARAMETERS or more, whose operations are
 * long enough; else so many that each has PL_SHARD_SAMPLES sequences: 1, 2 or PL_SHARDS_MAX, which
 * two or four threads share evenly. */
#define PL_SHARD_PARAMETERS 4000000
#define PL_SHARD_SAMPLES 6
#define PL_SHARDS_MAX 4
int pl_batch_shards(size_t parameters, int B);

/* What a model needs to be run; dalle_run.c's. */
struct pl_dalle_buffers {
    int capacity;          /* sequences that fit in the next four */
    int32_t *ids, *labels; /* (capacity,S) host */
    int32_t *ids_be, *labels_be;
    struct pl_dalle *shard; /* (shards) models that share the parameters' values */
    int shards;
};
void pl_dalle_release_buffers(struct pl_dalle *m);

/* Forward and backward of B sequences of a batch of which they are `share`; adds their part to the
 * gradients and to *loss. The ids have been checked. */
int pl_dalle_step_part(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                       double share, double scale, struct pl_dalle_loss *loss);

/* The same of a whole batch in `shards` parts, at most PL_SHARDS_MAX and B, in parallel. */
int pl_dalle_step_sharded(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                          int shards, double scale, struct pl_dalle_loss *loss);
void pl_dalle_release_shards(struct pl_dalle *m);

#endif
