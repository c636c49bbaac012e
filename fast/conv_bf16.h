/* conv_bf16.h - convolutions as a GEMM of operands rounded to bfloat16; see conv_bf16.c. */
#ifndef PL_FAST_CONV_BF16_H
#define PL_FAST_CONV_BF16_H

#include "../ref/conv.h"

/* 1 if matrix products are that much faster in bfloat16 that im2col pays off: with AMX. */
int conv_bf16_is_faster(const struct pl_conv *c, int transposed);

/* y = conv(x, w, b), as fast_conv; with `transposed` y = dx and x = dy, as fast_conv_dx (stride 1,
 * b is NULL). PL_OK or PL_ENOMEM. */
int conv_bf16(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c,
              int transposed);

#endif
