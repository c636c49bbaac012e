/* compress.h - float32 in fewer bits, for the way to other peers. [TTT 2.1, communication] wire.h
 * has the layout of the buffers on the wire. Everything here lies in host memory. */
#ifndef PL_COMPRESS_H
#define PL_COMPRESS_H

#include "dtype.h"
#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n halves at `out` (no alignment needed, the machine's order): x held within +-65504, so that
 * nothing becomes infinite, and rounded to nearest even; a NaN stays one. Equal bit for bit but for
 * NaN. */
typedef int pl_float16_encode_fn(void *out, const float *x, size_t n);
typedef int pl_float16_decode_fn(float *x, const void *in, size_t n);

/* 256 equal bins over six standard deviations around the mean; an entry of the table is the mean of
 * the values in its bin, 0 for an empty bin; values beyond the bins count in the outer two.
 *
 *   scale = 6 sigma / 256,  sigma = |x - mean| / sqrt(n - 1)
 *   codes[i] = clamp(round((x[i] - mean) / scale) + 128, 0, 255), ties to even
 *
 * A constant tensor, a single element, or any NaN or infinity gives code 0 everywhere, and
 * table[0] the mean. n >= 1. The entries are summed in the order of the index, in float32, as the
 * peers do: the order is part of the format's last bits.
 * Tolerance: mean and sigma come from sums whose order is free, so a code may be one off where the
 * scaled value is within 1e-4 of a half; otherwise codes are equal and the table too. */
typedef int pl_uniform8_encode_fn(uint8_t *codes, float table[PL_CODES], const float *x, size_t n);

/* x[i] = table[codes[i]] */
typedef int pl_table8_decode_fn(float *x, const uint8_t *codes, const float table[PL_CODES],
                                size_t n);

/* Rows of halves of (x - mean) / deviation; no peer of the reference run sent these.
 *
 *   mean       (rows)   of a row's D values, summed in double
 *   deviation  (rows)   (float)|x - mean| / (float)sqrt(D), at least FLT_EPSILON
 *   halves     (rows,D) no alignment needed; held within +-65504; a NaN stays one
 *
 * D >= 1. Tolerance: sums have a free order, so a mean may be one unit in the last place off, and a
 * deviation 2^-22 of itself; halves are those of the mean and the deviation that came out, bit for
 * bit but for which NaN. */
typedef int pl_meanstd16_encode_fn(void *halves, float *mean, float *deviation, const float *x,
                                   size_t rows, size_t D);
/* Back, into rows * D elements of `type` (float64, float32 or float16): half * deviation + mean,
 * each operation in that precision. Equal bit for bit but for which NaN. */
typedef int pl_meanstd16_decode_fn(void *out, enum pl_dtype type, const void *halves,
                                   const float *mean, const float *deviation, size_t rows,
                                   size_t D);

/* Bins that hold equally many values each; the table as above, n >= 1. Borders are the quantiles
 * at j/256; above 1e5 values, the quantiles of all quantiles of chunks of about that size. They are
 * interpolated in float32, as the peers do: in double a fifth of them would differ in the last
 * bits. NaN counts as larger than everything. Codes and table are equal bit for bit but for which
 * NaN. */
typedef int pl_quantile8_encode_fn(uint8_t *codes, float table[PL_CODES], const float *x, size_t n);
/* Values of a chunk for n: the last one may have fewer. */
size_t pl_quantile8_chunk(size_t n);

pl_float16_encode_fn ref_float16_encode, fast_float16_encode, cuda_float16_encode;
pl_float16_decode_fn ref_float16_decode, fast_float16_decode, cuda_float16_decode;
pl_uniform8_encode_fn ref_uniform8_encode, fast_uniform8_encode, cuda_uniform8_encode;
pl_table8_decode_fn ref_table8_decode, fast_table8_decode, cuda_table8_decode;
pl_meanstd16_encode_fn ref_meanstd16_encode, fast_meanstd16_encode, cuda_meanstd16_encode;
pl_meanstd16_decode_fn ref_meanstd16_decode, fast_meanstd16_decode, cuda_meanstd16_decode;
pl_quantile8_encode_fn ref_quantile8_encode, fast_quantile8_encode, cuda_quantile8_encode;

/* The uniform codes of values that were PL_F16 or PL_BF16_T before they were widened: hivemind
 * takes the mean first, so that it is rounded to `type`, and then widens. Tolerance as above. */
void pl_uniform8_encode_narrow(uint8_t *codes, float table[PL_CODES], const float *x, size_t n,
                               enum pl_dtype type);

#ifdef __cplusplus
}
#endif
#endif
