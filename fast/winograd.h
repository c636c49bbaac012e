/* winograd.h - 3 x 3 convolutions of stride 1 with a quarter of the multiplications; see
 * winograd.c. */
#ifndef PL_FAST_WINOGRAD_H
#define PL_FAST_WINOGRAD_H

#include "../ref/conv.h"

/* 1 if this convolution, or with `transposed` its gradient to the input, is worth the
 * transforms. */
int winograd_is_faster(const struct pl_conv *c, int transposed);

/* y = conv(x, w, b), as fast_conv; with `transposed` y = dx and x = dy, as fast_conv_dx (b is
 * NULL). PL_OK or PL_ENOMEM. */
int winograd(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c,
             int transposed);

#endif
