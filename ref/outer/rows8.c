/* rows8.c - one byte a value: rows of a matrix have sizes of their own, so each has a scale. A
 * vector seen as rows of one value would cost 8 bytes each: vectors stay as they are.
 * [spec outer-steps 6] */
#include "rows8.h"
#include "../byte_order.h"

#include <math.h>
#include <string.h>

#define LARGEST 127

/* A row: its scale as float32, then a byte a value, padded to whole words. */
static size_t row_bytes(size_t columns) { return 4 + (columns + 3) / 4 * 4; }

size_t pl_rows8_bytes(size_t rows, size_t columns) { return rows * row_bytes(columns); }

/* q = x * 127 / max |x|, cut towards zero like a cast: values shrink by half a step on average */
static void encode_row(uint8_t *out, const float *x, size_t columns)
{
    float largest = 0, scale;
    for (size_t i = 0; i < columns; i++) largest = fmaxf(largest, fabsf(x[i]));
    scale = LARGEST / largest;
    if (isinf(scale)) scale = 1; /* a row of zeros, or of numbers too small to divide by */
    pl_copy_little(out, &scale, 4, 1);
    memset(out + 4, 0, row_bytes(columns) - 4);
    for (size_t i = 0; i < columns; i++) out[4 + i] = (uint8_t)(int8_t)truncf(x[i] * scale);
}

/* x = q / scale, exact for a row's largest value but for one rounding. A scale of 0 comes from a
 * row with an infinity, whose values are lost. */
static void decode_row(float *x, const uint8_t *in, size_t columns)
{
    float scale;
    pl_copy_little(&scale, in, 4, 1);
    if (scale == 0) scale = 1;
    for (size_t i = 0; i < columns; i++)
        x[i] = (float)(int8_t)in[4 + i] / scale; /* x = q / scale */
}

void pl_rows8_encode(uint8_t *out, const float *x, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++)
        encode_row(out + r * row_bytes(columns), x + r * columns, columns);
}

void pl_rows8_decode(float *x, const uint8_t *in, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++)
        decode_row(x + r * columns, in + r * row_bytes(columns), columns);
}

/* The reduce-scatter of a quantized all-reduce: the rank that owns these rows adds up all peers'
 * rows, its own first, and encodes the sum again. The division by R is left to the decoders, as
 * sums fill the byte's range as well as means do. */
int pl_rows8_reduce(uint8_t *out, const uint8_t *const *in, int peers, int own, size_t rows,
                    size_t columns)
{
    float *both = pl_alloc(2 * columns, sizeof *both), *sum = both, *one = both + columns;
    if (!both) return PL_ENOMEM;
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * row_bytes(columns);
        memset(sum, 0, columns * sizeof *sum);
        for (int k = 0; k < peers; k++) {
            decode_row(one, in[(own + k) % peers] + at, columns);
            for (size_t i = 0; i < columns; i++) sum[i] += one[i];
        }
        encode_row(out + at, sum, columns);
    }
    pl_free(both);
    return PL_OK;
}
