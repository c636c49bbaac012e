/* vector.c - element-wise operations on whole buffers, in pieces of one thread each; sums in
 * double, piece by piece. */
#include "fast.h"

#include <string.h>

#define PIECES_MAX 256
#define PIECE_MIN 16384 /* elements; fewer are not worth a thread */

/* Piece k of n elements; depends on n alone. */
struct span {
    size_t at, n;
};

static size_t each(size_t n)
{
    size_t count = ((n + PIECES_MAX - 1) / PIECES_MAX + 15) / 16 * 16;
    return count > PIECE_MIN ? count : PIECE_MIN;
}

static int pieces(size_t n) { return (int)((n + each(n) - 1) / each(n)); }

static struct span span(size_t n, int k)
{
    size_t at = (size_t)k * each(n);
    return (struct span){ at, n - at < each(n) ? n - at : each(n) };
}

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
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        struct span p = span(n, k);
        fill_piece(x + p.at, value, p.n);
    }
    return PL_OK;
}

int fast_copy(float *y, const float *x, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        struct span p = span(n, k);
        memcpy(y + p.at, x + p.at, p.n * sizeof *y);
    }
    return PL_OK;
}

int fast_axpy(float *y, float a, const float *x, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        struct span p = span(n, k);
        axpy_piece(y + p.at, a, x + p.at, p.n);
    }
    return PL_OK;
}

int fast_scale(float *x, float a, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        struct span p = span(n, k);
        scale_piece(x + p.at, a, p.n);
    }
    return PL_OK;
}

int fast_sumsq(double *sum, const float *x, size_t n)
{
    double part[PIECES_MAX] = { 0 };
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        struct span p = span(n, k);
        part[k] = sumsq_piece(x + p.at, p.n);
    }
    *sum = 0;
    for (int k = 0; k < PIECES_MAX; k++) *sum += part[k];
    return PL_OK;
}
