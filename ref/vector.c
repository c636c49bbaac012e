/* vector.c - operations on whole buffers between a model's layers, so that models never touch a
 * device's memory themselves. Names are those of BLAS.
 *
 *   fill   x = value          axpy   y += a x         sumsq      sum x^2
 *   copy   y = x              scale  x = a x          transpose  y[c][r] = x[r][c], of each matrix
 *
 * The only rounding is that of the result: products and sums are in double. */
#include "vector.h"

#include <string.h>

int ref_fill(float *x, float value, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = value;
    return PL_OK;
}

int ref_copy(float *y, const float *x, size_t n)
{
    if (n) memcpy(y, x, n * sizeof *y);
    return PL_OK;
}

int ref_axpy(float *y, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)(y[i] + (double)a * x[i]);
    return PL_OK;
}

int ref_scale(float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = a * x[i];
    return PL_OK;
}

int ref_sumsq(double *sum, const float *x, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)x[i] * x[i];
    *sum = s;
    return PL_OK;
}

/* B matrices (R,C) to (C,R); rows of both may be parts of wider ones: x_step, y_step floats
 * apart. */
int ref_transpose(float *y, int y_step, const float *x, int x_step, int B, int R, int C)
{
    for (int b = 0; b < B; b++)
        for (int c = 0; c < C; c++)
            for (int r = 0; r < R; r++)
                y[((size_t)b * (size_t)C + (size_t)c) * (size_t)y_step + (size_t)r] =
                    x[((size_t)b * (size_t)R + (size_t)r) * (size_t)x_step + (size_t)c];
    return PL_OK;
}
