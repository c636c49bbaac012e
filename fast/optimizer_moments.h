/* optimizer_moments.h - a step of an optimizer over one tensor's moments, in whatever form they are kept. */
#ifndef PL_FAST_MOMENTS_H
#define PL_FAST_MOMENTS_H

#include "quant.h"

/* Updates the decoded moments m, v of elements at..at+n-1 of the tensor, and whatever else the
 * context names; adds its contributions to sums (two numbers of the caller's choice). */
typedef void fast_update_fn(const void *context, float *m, float *v, size_t at, size_t n,
                            double sums[2]);

/* Runs `update` over a tensor of n elements, block after block: a block is decoded into scratch
 * that stays in the first cache, updated, and encoded again. Pieces go to threads; their sums are
 * added in the order of the pieces. PL_EUSE: moments in a form that has no fast coder, nothing was
 * done. */
int fast_moments(double sums[2], const struct pl_moments *moments, size_t n, fast_update_fn *update,
                 const void *context);

#endif
