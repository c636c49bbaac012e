/* optimizer_moments.h - one optimizer step over a tensor's moments, stored as 8-bit codes or as
 * floats. */
#ifndef PL_FAST_OPTIMIZER_MOMENTS_H
#define PL_FAST_OPTIMIZER_MOMENTS_H

#include "quant.h"

/* Updates the decoded moments m, v of elements at..at+n-1 and the parameters of the context; adds
 * its contributions to two sums of the caller's choice. */
typedef void fast_update_fn(const void *context, float *m, float *v, size_t at, size_t n,
                            double sums[2]);

/* Runs `update` over a tensor of n elements, block by block: a block is decoded into scratch in L1,
 * updated, and encoded again. Threads take pieces; their sums are added in the order of the pieces.
 * PL_EUSE: moments in a form without a fast coder; nothing was done. */
int fast_moments(double sums[2], const struct pl_moments *moments, size_t n, fast_update_fn *update,
                 const void *context);

#endif
