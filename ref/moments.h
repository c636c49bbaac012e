/* moments.h - an optimizer's state for one tensor: running means of the gradient and of its square,
 * either as floats or as 8-bit codes with a scale per block. [8-bit optimizers 2] */
#ifndef PL_MOMENTS_H
#define PL_MOMENTS_H

#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Index 0 is the first moment (signed code book), 1 the second (unsigned). Either `value` or
 * `code` and `absmax` are set. All are backend memory; zeroed means zero moments in both forms. */
struct pl_moments {
    float *value[2];  /* (n) each */
    uint8_t *code[2]; /* (n) each */
    float *absmax[2]; /* (pl_blocks(n, block)) each */
    size_t block;
    enum pl_rule rule;
};

/* New moments of elements begin..begin+n-1 from the old: m and v (n), in and out. */
typedef void pl_moments_step_fn(void *context, float *m, float *v, size_t begin, size_t n);

/* Calls step over all n >= 1 elements, in order: moments in floats at once and in place; codes are
 * decoded `chunk` elements at a time (a multiple of the block; 0: all), and encoded afterwards.
 * Host memory. PL_OK or PL_ENOMEM. */
int pl_moments_step(const struct pl_moments *moments, size_t n, size_t chunk,
                    pl_moments_step_fn *step, void *context);

#ifdef __cplusplus
}
#endif
#endif
