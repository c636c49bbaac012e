/* conv.h - 2-D convolution and the 2x upsampling of VQGAN. [Esser et al. 2021] */
#ifndef PL_CONV_H
#define PL_CONV_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros are padded on each side separately: VQGAN's downsampling pads right and bottom only. */
struct pl_conv {
    int B, C, H, W; /* input (B,C,H,W) */
    int O, K;       /* weight (O,C,K,K) */
    int stride, top, left, bottom, right;
};
/* Height and width of the output. */
static inline int pl_conv_height(const struct pl_conv *c)
{
    return (c->H + c->top + c->bottom - c->K) / c->stride + 1;
}
static inline int pl_conv_width(const struct pl_conv *c)
{
    return (c->W + c->left + c->right - c->K) / c->stride + 1;
}

/* Cross-correlation: y (B,O,H',W'), w (O,C,K,K), b (O) or NULL. Tolerances as in linear.h, over
 * C*K*K terms (with --precision bf16 operands may be rounded as there), by the largest sum of
 * |x||w|, or root of squares, within 3 places (Winograd). PL_OK, PL_ENOMEM or PL_EDEVICE. */
typedef int pl_conv_fn(float *y, const float *x, const float *w, const float *b,
                       const struct pl_conv *c);
/* dx (B,C,H,W) is overwritten. */
typedef int pl_conv_dx_fn(float *dx, const float *dy, const float *w, const struct pl_conv *c);
/* dw and db (NULL: none) are added to. */
typedef int pl_conv_dw_fn(float *dw, float *db, const float *dy, const float *x,
                          const struct pl_conv *c);

/* x (N,H,W) -> y (N,2H,2W), each place four times; backward sums each 2x2. N = B*C. */
typedef int pl_upsample_fn(float *y, const float *x, int N, int H, int W);
typedef int pl_upsample_backward_fn(float *dx, const float *dy, int N, int H, int W);

pl_conv_fn ref_conv, fast_conv, cuda_conv;
pl_conv_dx_fn ref_conv_dx, fast_conv_dx, cuda_conv_dx;
pl_conv_dw_fn ref_conv_dw, fast_conv_dw, cuda_conv_dw;
pl_upsample_fn ref_upsample, fast_upsample, cuda_upsample;
pl_upsample_backward_fn ref_upsample_backward, fast_upsample_backward, cuda_upsample_backward;

#ifdef __cplusplus
}
#endif
#endif
