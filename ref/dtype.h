/* dtype.h - element types of stored and sent tensors, and their conversion from and to float32. */
#ifndef PL_DTYPE_H
#define PL_DTYPE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pl_dtype {
    PL_F64,
    PL_F32,
    PL_F16,
    PL_BF16_T,
    PL_I64,
    PL_I32,
    PL_I16,
    PL_I8,
    PL_U8,
    PL_BOOL,
    PL_DTYPES
};
/* Bytes of one element. */
size_t pl_dtype_size(enum pl_dtype t);

/* Halves are rounded to the nearest, ties to even, beyond their range to infinity; subnormals are
 * kept and a NaN stays one. */
float pl_half_to_float(uint16_t h);
uint16_t pl_half_from_float(float x);
float pl_bf16_to_float(uint16_t h);
uint16_t pl_bf16_from_float(float x);

/* n elements at `data`, which need not be aligned; rounded once where float32 is the narrower. */
void pl_to_float(float *out, enum pl_dtype t, const void *data, size_t n);
/* Integers truncate towards zero and stop at the ends of their range; NaN becomes 0. A bool is
 * whether x is not 0. */
void pl_from_float(void *data, enum pl_dtype t, const float *x, size_t n);

#ifdef __cplusplus
}
#endif
#endif
