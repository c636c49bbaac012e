/* rows8.h - a matrix in one byte a value and a scale a row, as torchft quantizes pseudo-gradients
 * without a device for 8-bit floats. [spec outer-steps 6] Host memory. */
#ifndef PL_ROWS8_H
#define PL_ROWS8_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of rows (rows, columns): 4 for the scale and a multiple of 4 for the values, each. */
size_t pl_rows8_bytes(size_t rows, size_t columns);

/* Each row: scale = 127 / max |x|, float32 (infinite: 1), then x * scale, cut towards zero. */
void pl_rows8_encode(uint8_t *out, const float *x, size_t rows, size_t columns);
/* x = value / scale; a scale of 0, as padding has, counts as 1. */
void pl_rows8_decode(float *x, const uint8_t *in, size_t rows, size_t columns);
/* out = the encoded sum of in[0..peers-1], each pl_rows8_bytes; the sum begins at peer `own` and
 * goes round. PL_OK or PL_ENOMEM. */
int pl_rows8_reduce(uint8_t *out, const uint8_t *const *in, int peers, int own, size_t rows,
                    size_t columns);

#ifdef __cplusplus
}
#endif
#endif
