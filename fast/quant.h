/* quant.h - encode and decode one block of 8-bit codes; shared by quant.c, the optimizers and
 * compress.c. */
#ifndef PL_FAST_QUANT_H
#define PL_FAST_QUANT_H

#include "fast.h"

/* Tables for one map and rule; see quant.c. */
struct fast_coder;
/* Built at first use, never freed. NULL: no memory, or a rule without a table (CUDA). */
const struct fast_coder *fast_coder(enum pl_map map, enum pl_rule rule);

/* Largest |x|, NaN ignored; -FLT_MAX of NaN alone. */
float fast_absmax(const float *x, size_t n);
void fast_block_encode(const struct fast_coder *coder, uint8_t *codes, const float *x, float absmax,
                       size_t n);
/* Floats that long reads prefetch ahead: one page, where the hardware prefetcher stops. Prefetching
 * beyond the end is harmless. */
#define FAST_PREFETCH_FLOATS 1024

/* fast_uniform8_encode of values that are computed just before they are read: make(context, x + at,
 * at, n) fills n of them, which stay in x. NULL: x is filled already. */
int fast_uniform8_encode_made(uint8_t *codes, float table[PL_CODES], float *x, size_t n,
                              void (*make)(const void *context, float *x, size_t at, size_t n),
                              const void *context);
/* y[i] = table[codes[i]] */
void fast_table_lookup(float *y, const uint8_t *codes, const float table[PL_CODES], size_t n);
/* The mean of the values with each code, summed in index order; 0 for unused codes. */
void fast_code_means(float table[PL_CODES], const uint8_t *codes, const float *x, size_t n);
void fast_block_decode(float *y, const uint8_t *codes, float absmax, size_t n,
                       const float book[PL_CODES]);

#endif
