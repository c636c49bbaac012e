/* dgc.h - Deep Gradient Compression: only the largest entries are sent, the others are accumulated
 * locally. [Lin et al. 2018, arXiv 1712.01887, 3, alg. 4] [spec numerics 14]
 *
 * Values are double, to measure faster versions by. Host memory. */
#ifndef PL_DGC_H
#define PL_DGC_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Entries of n that are sent: ceil(n (1 - sparsity)), at least 1. */
size_t pl_dgc_count(size_t n, double sparsity);

/* One worker's step, without the sending:
 *   g is clipped to Euclidean norm limit = (global threshold) / sqrt(workers)
 *   u = momentum u + g          momentum correction
 *   a = a + u                   accumulated, not sent yet
 * g, u, a (n); g stays as it is. */
void pl_dgc_accumulate(double *u, double *a, const double *g, size_t n, double momentum,
                       double limit);

/* Orders n entries: first the k largest, ties to the lower index, in the order of their index. */
struct pl_entry {
    double size;
    uint32_t index;
};
void pl_largest_first(struct pl_entry *entries, size_t n, size_t k);

/* Takes the `count` entries of a (n) with the largest |a|, ties to the lower index: index (count),
 * ascending, value (count); a and u become 0 there (momentum factor masking). NaN counts as
 * largest, so that it shows instead of hiding in the sums. PL_OK or PL_ENOMEM; count <= n. */
int pl_dgc_take(uint32_t *index, double *value, double *a, double *u, size_t n, size_t count);

/* update (n) += the entries / workers. */
void pl_dgc_add(double *update, const uint32_t *index, const double *value, size_t count,
                int workers);

#ifdef __cplusplus
}
#endif
#endif
