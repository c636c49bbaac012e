/* moments.h - what an optimizer remembers of one tensor: running means of the gradient and of its
 * square, either as floats or as 8-bit codes with a scale per block. */
#ifndef PL_MOMENTS_H
#define PL_MOMENTS_H

#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Index 0 is the first moment (signed code book), 1 the second (unsigned). Either `value` or
 * `code` and `absmax` are set. All are backend memory; zeroed means zero moments in both forms. */
struct pl_moments {
    float *value[2];   /* (n) each */
    uint8_t *code[2];  /* (n) each */
    float *absmax[2];  /* (pl_blocks(n, block)) each */
    size_t block;
    enum pl_rule rule;
};

#ifdef __cplusplus
}
#endif
#endif
