/* scratch.h - where a model's intermediate values lie. A model takes buffers and gives them back;
 * how they are found is its caller's matter: runtime/pool.h uses them again, so
 * the buffers of one training step serve the next. */
#ifndef PL_SCRATCH_H
#define PL_SCRATCH_H

#include "../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_scratch {
    float *(*take)(struct pl_scratch *scratch, size_t n);
    void (*give)(struct pl_scratch *scratch, const float *at);
    void (*give_all)(struct pl_scratch *scratch);
};

/* Backend memory for n floats (also of 32-bit integers), its content undefined; NULL: none left. */
static inline float *pl_scratch_take(struct pl_scratch *scratch, size_t n)
{
    return scratch->take(scratch, n);
}
/* Gives a buffer back; NULL is harmless. */
static inline void pl_scratch_give(struct pl_scratch *scratch, const float *at)
{
    scratch->give(scratch, at);
}
/* After an error, and before a new pass: every buffer is free again. */
static inline void pl_scratch_give_all(struct pl_scratch *scratch) { scratch->give_all(scratch); }

#ifdef __cplusplus
}
#endif
#endif
