/* shift.h - token shift: part of each token's channels come from its neighbours.
 * DALLE-pytorch's default, which the reference run used and the paper does not mention. */
#ifndef PL_SHIFT_H
#define PL_SHIFT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x, y (B,n,D); the first P positions are text (start token included), the rest image cells of an
 * F-wide grid, row by row; n may be any prefix length 1..P+F*F. y must not be x.
 *   text:  channels [0, ceil(D/2)) come from the position before (zeros for position 0)
 *   image: channels [0,u) from one row up, [u,2u) from the left (cut at D), u = ceil(D/4);
 *          zeros outside the grid, no wrap, no look at the text
 * The other channels stay. Exact.
 * A prefix shorter than P is shifted as the text it is; DALLE-pytorch 1.6.6 leaves it alone. */
typedef int pl_shift_fn(float *y, const float *x, int B, int n, int D, int P, int F);
/* The same moves transposed: dx (B,n,D) is overwritten; dx must not be dy. Exact. */
typedef pl_shift_fn pl_shift_backward_fn;

pl_shift_fn ref_shift, fast_shift, cuda_shift;
pl_shift_backward_fn ref_shift_backward, fast_shift_backward, cuda_shift_backward;

#ifdef __cplusplus
}
#endif
#endif
