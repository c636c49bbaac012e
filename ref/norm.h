/* norm.h - layer norm, group norm and LayerScale.
 * [TTT 3.1] [Ba et al. 2016] [Wu & He 2018] [CaiT: Touvron et al. 2021] */
#ifndef PL_NORM_H
#define PL_NORM_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layer norm over the last axis: y = (x - mean) / sqrt(var + eps) * weight + bias, var biased.
 *   x, y (M,D)   weight, bias (D)   y may be x
 * Tolerance: 16 * 2^-24 * (|y - bias| + |weight| * rms / sqrt(var + eps) + |bias|), rms the root of
 * the row's mean square: the error of a mean in float32 is relative to the largest summands, not to
 * the mean. */
typedef int pl_layer_norm_fn(float *y, const float *x, const float *weight, const float *bias,
                             int M, int D, float eps);
/* dx (M,D) = gradient (with `add` 1: added); dweight, dbias (D) are added to. Mean and variance are
 * computed from x again: nothing but x is saved between the passes. dx may be dy, not x. */
typedef int pl_layer_norm_backward_fn(float *dx, float *dweight, float *dbias, const float *dy,
                                      const float *x, const float *weight, int M, int D, float eps,
                                      int add);

/* Group norm: G groups of C/G neighbouring channels; mean and variance over a group's channels and
 * all P places of one image.  x, y (B,C,P)   weight, bias (C)   y may be x */
typedef int pl_group_norm_fn(float *y, const float *x, const float *weight, const float *bias,
                             int B, int C, int P, int G, float eps);
typedef int pl_group_norm_backward_fn(float *dx, float *dweight, float *dbias, const float *dy,
                                      const float *x, const float *weight, int B, int C, int P,
                                      int G, float eps);

/* LayerScale and the residual sum in one: y (M,D) += sign * s[d] * x (M,D), sign +1 or -1
 * (-1 undoes a reversible block). Tolerance: 2 ulp of |y| + |s x|. */
typedef int pl_scale_add_fn(float *y, const float *x, const float *s, int M, int D, float sign);
/* Of s * x: dx (M,D) = s * dy;  ds (D) += sum over rows of dy * x. dx may be dy. */
typedef int pl_layer_scale_backward_fn(float *dx, float *ds, const float *dy, const float *x,
                                       const float *s, int M, int D);

pl_layer_norm_fn ref_layer_norm, fast_layer_norm, cuda_layer_norm;
pl_layer_norm_backward_fn ref_layer_norm_backward, fast_layer_norm_backward,
    cuda_layer_norm_backward;
pl_group_norm_fn ref_group_norm, fast_group_norm, cuda_group_norm;
pl_group_norm_backward_fn ref_group_norm_backward, fast_group_norm_backward,
    cuda_group_norm_backward;
pl_scale_add_fn ref_scale_add, fast_scale_add, cuda_scale_add;
pl_layer_scale_backward_fn ref_layer_scale_backward, fast_layer_scale_backward,
    cuda_layer_scale_backward;

#ifdef __cplusplus
}
#endif
#endif
