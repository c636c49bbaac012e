/* quant.h - block-wise 8-bit quantization with dynamic code books, for the optimizer's moments.
 * [8-bit optimizers 2.1, 2.2] [TTT 2.1, memory] */
#ifndef PL_QUANT_H
#define PL_QUANT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CODES 256

/* A code book is 256 ascending values in [-1, 1] whose spacing grows with their size: seven
 * decades, each with twice the entries of the one below. Gradients and first moments need signs;
 * second moments use the sign's bit for twice the entries. */
enum pl_map { PL_MAP_SIGNED, PL_MAP_UNSIGNED };

/* How a value finds its code. The three differ in rare codes only, and any reader decodes all of
 * them, since absmax and book travel along.
 *   RUN   the reference run's library on a CPU: the quotient x / absmax goes to the nearest entry,
 *         ties to the lower one. It overwrites entry 0 with -1, so -absmax is exact, and an
 *         unsigned zero becomes 3.25e-7 absmax: a second moment never decodes to zero in a block
 *         that isn't
 *   LUT   today's library on a CPU: x * (1 / absmax) is first rounded to a grid of 65536 points
 *   CUDA  the library's GPU kernels: x * (1 / absmax), halving, ties to the even index */
enum pl_rule { PL_RULE_RUN, PL_RULE_LUT, PL_RULE_CUDA };

/* The code book that `rule` decodes with. Bit-exact; no table is stored anywhere. */
void pl_codebook(float book[PL_CODES], enum pl_map map, enum pl_rule rule);

/* The code of a quotient z = x / absmax by the reference run's rule; NaN gets 0. */
uint8_t pl_code_run(const float book[PL_CODES], float z);
/* The code of a scaled value v = x * (1 / absmax) by the other two. NaN gets 0; so does infinity
 * by LUT, where the library reads outside its table: 1 / absmax overflows for the smallest
 * absmax. */
uint8_t pl_code_lut(const float book[PL_CODES], float v);
uint8_t pl_code_cuda(const float book[PL_CODES], float v);

/* ceil(n / block). */
size_t pl_blocks(size_t n, size_t block);

/* codes (n), absmax (blocks) of x (n), in blocks of `block` >= 1 values, the last one short.
 * absmax is the largest |x| of the block, NaN ignored (a block of NaN alone: -FLT_MAX). A zero
 * block has codes 0. Infinity makes the block's absmax infinite: finite values get the code of
 * zero, infinities code 0. Denormals count. Every backend: equal, bit for bit, for RUN and LUT. */
typedef int pl_quantize_fn(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                           enum pl_map map, enum pl_rule rule);

/* y[i] = book[codes[i]] * absmax[i / block], rounded once. The book is host memory: any 256
 * values, for instance a peer's. Equal, bit for bit. */
typedef int pl_dequantize_fn(float *y, const uint8_t *codes, const float *absmax, size_t n,
                             size_t block, const float book[PL_CODES]);

pl_quantize_fn ref_quantize, fast_quantize, cuda_quantize;
pl_dequantize_fn ref_dequantize, fast_dequantize, cuda_dequantize;

#ifdef __cplusplus
}
#endif
#endif
