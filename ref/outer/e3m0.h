/* e3m0.h - four bits a value: a sign and three bits of exponent, no mantissa.
 * [Streaming DiLoCo: Douillard et al. 2025] [spec outer-steps 6] */
#ifndef PL_E3M0_H
#define PL_E3M0_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_E3M0_BLOCK 4096 /* values that share a scale: 4 bytes for it add 0.2 % */

/* Bytes of n values in blocks of `block`: 4 + ceil(block / 2) a block. block >= 1. */
size_t pl_e3m0_bytes(size_t n, size_t block);

/* Block after block: the scale s = max |x| as float32, little-endian, then two codes a byte, the
 * first in the low half. A code's bit 3 is the sign, its others c: 0 means 0, c = 1 to 7 means
 * s 2^(c-7). |x| becomes the nearest of them, ties the larger; 0 has sign 0, and so has the unused
 * half of an odd block's last byte. Thresholds are compared exactly. x is finite: callers check.
 *
 * out and in (pl_e3m0_bytes), x (n): the backend's memory; bytes need no alignment. Equal bit for
 * bit on every backend. A scale that is NaN or infinite, as only a broken sender's is, gives what
 * it gives: callers check what they decode. */
typedef int pl_e3m0_encode_fn(uint8_t *out, const float *x, size_t n, size_t block);
typedef int pl_e3m0_decode_fn(float *x, const uint8_t *in, size_t n, size_t block);

pl_e3m0_encode_fn ref_e3m0_encode, fast_e3m0_encode, cuda_e3m0_encode;
pl_e3m0_decode_fn ref_e3m0_decode, fast_e3m0_decode, cuda_e3m0_decode;

#ifdef __cplusplus
}
#endif
#endif
