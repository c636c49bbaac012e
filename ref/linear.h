/* linear.h - y = x W^T + b and its two gradients. */
#ifndef PL_LINEAR_H
#define PL_LINEAR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x (M,K), W (N,K), b (N) or NULL, y (M,N). y must not overlap the inputs.
 *
 * Tolerance against the reference, per element: (K + 8) * 2^-24 of
 * sum |x||W| + |b| in float32; 2^-6 of the root of the sum of squares of the
 * terms with --precision bf16 (both operands rounded once to bfloat16, at most
 * 2^-8 each: near 7 standard deviations; sums in float32). The same bounds
 * hold for the gradients, over the summed dimension.
 * All return PL_OK, PL_ENOMEM or PL_EDEVICE. M, K, N >= 1. */
typedef int pl_linear_fn(float *y, const float *x, const float *W, const float *b, int M, int K,
                         int N);

/* dx (M,K) = dy (M,N) W; with `add` 1 the product is added to dx. */
typedef int pl_linear_dx_fn(float *dx, const float *dy, const float *W, int M, int K, int N,
                            int add);

/* dW (N,K) += dy^T x; db (N) += column sums of dy, when db is not NULL. */
typedef int pl_linear_dw_fn(float *dW, float *db, const float *dy, const float *x, int M, int K,
                            int N);

pl_linear_fn ref_linear, fast_linear, cuda_linear;
pl_linear_dx_fn ref_linear_dx, fast_linear_dx, cuda_linear_dx;
pl_linear_dw_fn ref_linear_dw, fast_linear_dw, cuda_linear_dw;

#ifdef __cplusplus
}
#endif
#endif
