/* vector.h - the few whole-buffer operations that models need between layers, so
 * that they never touch device memory themselves. n counts float32 elements. */
#ifndef PL_VECTOR_H
#define PL_VECTOR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int pl_fill_fn(float *x, float value, size_t n);
/* y = x; must not overlap. */
typedef int pl_copy_fn(float *y, const float *x, size_t n);
/* y += a x, a product and a sum each rounded once, or one fused: they differ by 1 ulp of |a x|. */
typedef int pl_axpy_fn(float *y, float a, const float *x, size_t n);
/* x = a x */
typedef int pl_scale_fn(float *x, float a, size_t n);
/* *sum (host memory) = sum of x^2, accumulated in double; relative tolerance 1e-12 * log2(n).
 * Infinite or NaN exactly when x holds such a value. */
typedef int pl_sumsq_fn(double *sum, const float *x, size_t n);

/* Rows to columns: y (B,C,y_step) = x (B,R,x_step) transposed, the first R of y_step columns from
 * the first C of x_step; the rest of y is unchanged. R <= y_step, C <= x_step. y must not be x. */
typedef int pl_transpose_fn(float *y, int y_step, const float *x, int x_step, int B, int R, int C);

pl_fill_fn ref_fill, fast_fill, cuda_fill;
pl_copy_fn ref_copy, fast_copy, cuda_copy;
pl_axpy_fn ref_axpy, fast_axpy, cuda_axpy;
pl_scale_fn ref_scale, fast_scale, cuda_scale;
pl_sumsq_fn ref_sumsq, fast_sumsq, cuda_sumsq;
pl_transpose_fn ref_transpose, fast_transpose, cuda_transpose;

#ifdef __cplusplus
}
#endif
#endif
