/* vector.c - element-wise operations on whole buffers, in pieces of one thread each; sums in
 * double, piece by piece. */
#include "fast.h"

#include <string.h>

#define PIECES_MAX 256
#define PIECE_MIN 16384 /* elements; fewer are not worth a thread */

/* Elements in a piece of n; depends on n alone. */
static size_t each(size_t n)
{
    size_t count = ((n + PIECES_MAX - 1) / PIECES_MAX + 15) / 16 * 16;
    return count > PIECE_MIN ? count : PIECE_MIN;
}

/* The length of the piece that begins at `at`. */
static size_t piece(size_t n, size_t at) { return n - at < each(n) ? n - at : each(n); }

FAST_CLONES static void fill_piece(float *x, float value, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] = value;
}

FAST_CLONES static void axpy_piece(float *y, float a, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = fast_fma(a, x[i], y[i]);
}

FAST_CLONES static void scale_piece(float *x, float a, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] = a * x[i];
}

FAST_CLONES static double sumsq_piece(const float *x, size_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sum;
}

int fast_fill(float *x, float value, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > each(n))
    for (size_t at = 0; at < n; at += each(n)) fill_piece(x + at, value, piece(n, at));
    fast_written(x, n * sizeof *x);
    return PL_OK;
}

int fast_copy(float *y, const float *x, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > each(n))
    for (size_t at = 0; at < n; at += each(n)) memcpy(y + at, x + at, piece(n, at) * sizeof *y);
    fast_written(y, n * sizeof *y);
    return PL_OK;
}

int fast_axpy(float *y, float a, const float *x, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > each(n))
    for (size_t at = 0; at < n; at += each(n)) axpy_piece(y + at, a, x + at, piece(n, at));
    fast_written(y, n * sizeof *y);
    return PL_OK;
}

int fast_scale(float *x, float a, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > each(n))
    for (size_t at = 0; at < n; at += each(n)) scale_piece(x + at, a, piece(n, at));
    fast_written(x, n * sizeof *x);
    return PL_OK;
}

int fast_sumsq(double *sum, const float *x, size_t n)
{
    double part[PIECES_MAX] = { 0 };
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > each(n))
    for (size_t at = 0; at < n; at += each(n))
        part[at / each(n)] = sumsq_piece(x + at, piece(n, at));
    *sum = 0;
    for (int k = 0; k < PIECES_MAX; k++) *sum += part[k];
    return PL_OK;
}
