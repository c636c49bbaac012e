/* vector.c - whole-buffer operations as they stand. */
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
