/* rotary.h - rotary position embedding of queries, keys and values: tables and rotation.
 * [TTT 3.1] [RoFormer: Su et al. 2021, 3.4.2, eq. 34] */
#ifndef PL_ROTARY_H
#define PL_ROTARY_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Channels that rotate in a head of width d: 6 * floor(floor(d/3)/2). The run: 60 of 64. */
int pl_rotary_channels(int d);

/* angle (P+F*F, R/2) in radians, R = pl_rotary_channels(d): text axis, row axis, column axis.
 * Rounded in float32 step by step as DALLE-pytorch does: at 8192 times a frequency, the last bits
 * of an angle decide. Host memory. */
void pl_rotary_angles(float *angle, int P, int F, int d);

/* cos and sin of n angles, with full range reduction (angles reach 8192 rad), rounded once. */
void pl_rotary_tables(float *cosine, float *sine, const float *angle, size_t n);

/* Rotates channel pairs (2i, 2i+1), i < R/2, of G vectors a token by the token's angles; channels
 * R..d-1 stay.
 *   x             (B,n,G,d)  in and out; a packed qkv has G = 3H
 *   cosine, sine  (n,R/2)
 *   inverse       1 rotates back, which is also the gradient: a rotation's transpose is its inverse
 * Tolerance: 4 ulp of hypot(x[2i], x[2i+1]). Returns PL_OK or PL_EDEVICE. */
typedef int pl_rotary_fn(float *x, const float *cosine, const float *sine, int B, int n, int G,
                         int d, int R, int inverse);

pl_rotary_fn ref_rotary, fast_rotary, cuda_rotary;

#ifdef __cplusplus
}
#endif
#endif
