/* dalle_run_internal.h - one piece of a batch, for dalle_run.c: dalle_batch.c has it; and a whole
 * batch in shards: batch_shards.c. The ids have been checked. */
#ifndef PL_DALLE_RUN_INTERNAL_H
#define PL_DALLE_RUN_INTERNAL_H

#include "dalle_run.h"

/* A model's buffers and state for runs. */
struct pl_dalle_buffers {
    int capacity;          /* sequences that fit in the next four */
    int32_t *ids, *labels; /* (capacity,S) host */
    int32_t *ids_be, *labels_be;
    struct pl_dalle *shard; /* (shards) models that share the parameters' values */
    int shards;
};
void dalle_release_buffers(struct pl_dalle *m);

/* Positions of a sequence with `count` codes. */
int dalle_length(const struct pl_dalle_config *c, int count);
/* Sequences to take at a time. */
int dalle_at_a_time(const struct pl_dalle *m, int B);
/* Forward pass and loss of B sequences; with `backward` the output layer's gradients, too, and the
 * noise that follows `before` other sequences of the batch. */
int dalle_forward_loss(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                       int backward, int before, double scale, double mean[2], float *logp);
void dalle_add_loss(struct pl_dalle_loss *loss, const struct pl_dalle_config *c,
                    const double mean[2], double share);
/* Forward and backward of B sequences of a batch of which they are `share`; adds their part to the
 * gradients and to *loss. */
int dalle_step_part(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                    double share, double scale, struct pl_dalle_loss *loss);

/* dalle_step_part of a whole batch in `shards` parts, at most PL_SHARDS_MAX and B, in parallel. */
int dalle_step_sharded(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                       int shards, double scale, struct pl_dalle_loss *loss);
void dalle_release_shards(struct pl_dalle *m);

#endif
