/* quant.h - one block of 8-bit codes there and back: what quant.c, lamb.c and adam.c share. */
#ifndef PL_FAST_QUANT_H
#define PL_FAST_QUANT_H

#include "fast.h"

/* How a map and a rule become codes; see quant.c. */
struct fast_coder;
/* Built at the first use, kept for good. NULL: no memory, or a rule that has none (CUDA). */
const struct fast_coder *fast_coder(enum pl_map map, enum pl_rule rule);

/* Largest |x|, NaN ignored; -FLT_MAX of NaN alone. */
float fast_absmax(const float *x, size_t n);
void fast_block_encode(const struct fast_coder *coder, uint8_t *codes, const float *x, float absmax,
                       size_t n);
/* floats that long reads from memory ask for before they are needed: a page, where the processor's
 * own guess ends. They may lie behind the end; asking for them does nothing then. */
#define FAST_PREFETCH_FLOATS 1024

/* fast_uniform8_encode of values that are made just before they are looked at: make(context,
 * x + at, at, n) fills n of them; they stay in x. NULL: they are there. */
int fast_uniform8_encode_made(uint8_t *codes, float table[PL_CODES], float *x, size_t n,
                              void (*make)(const void *context, float *x, size_t at, size_t n),
                              const void *context);
/* y[i] = table[codes[i]] */
void fast_table_lookup(float *y, const uint8_t *codes, const float table[PL_CODES], size_t n);
/* The mean of what each code stands for, summed in the order of the index; 0 for none. */
void fast_code_means(float table[PL_CODES], const uint8_t *codes, const float *x, size_t n);
void fast_block_decode(float *y, const uint8_t *codes, float absmax, size_t n,
                       const float book[PL_CODES]);

#endif
