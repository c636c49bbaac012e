/* shift.cu - every element asks where it comes from; backwards, where it went, of which there are
 * at most two places: itself and one neighbour. */
#include "../ref/shift.h"

#include "launch.cuh"

/* As ref/shift.c: the position that channel c of position p is taken from; -1: a zero. */
static __device__ int origin(int p, int c, int D, int P, int F)
{
    int half = (D + 1) / 2, quarter = (D + 3) / 4, cell = p - P;
    if (cell < 0) return c < half ? p - 1 : p;
    if (c < quarter) return cell / F > 0 ? p - F : -1;
    if (c < 2 * quarter) return cell % F > 0 ? p - 1 : -1;
    return p;
}

__global__ void shift(float *y, const float *x, size_t total, int n, int D, int P, int F)
{
    CUDA_EACH(i, total) {
        int c = (int)(i % (size_t)D), p = (int)(i / (size_t)D % (size_t)n),
            from = origin(p, c, D, P, F);
        y[i] = from < 0 ? 0 : x[(ptrdiff_t)i + (ptrdiff_t)(from - p) * D];
    }
}

int cuda_shift(float *y, const float *x, int B, int n, int D, int P, int F)
{
    size_t total = (size_t)B * (size_t)n * (size_t)D;
    return PL_LAUNCH(shift, cuda_blocks(total), CUDA_THREADS, y, x, total, n, D, P, F);
}

__global__ void unshift(float *dx, const float *dy, size_t total, int n, int D, int P, int F)
{
    CUDA_EACH(i, total) {
        int c = (int)(i % (size_t)D), p = (int)(i / (size_t)D % (size_t)n);
        float sum = 0;
        /* who may have taken it, in rising order: itself, the next position, one row down */
        if (origin(p, c, D, P, F) == p) sum += dy[i];
        if (p + 1 < n && origin(p + 1, c, D, P, F) == p) sum += dy[i + (size_t)D];
        if (F > 1 && p + F < n && origin(p + F, c, D, P, F) == p)
            sum += dy[i + (size_t)F * (size_t)D];
        dx[i] = sum;
    }
}

int cuda_shift_backward(float *dx, const float *dy, int B, int n, int D, int P, int F)
{
    size_t total = (size_t)B * (size_t)n * (size_t)D;
    return PL_LAUNCH(unshift, cuda_blocks(total), CUDA_THREADS, dx, dy, total, n, D, P, F);
}
