/* shift.cu - token shift as a gather: every output element computes which position it comes from.
 * The gradient gathers, too: an element goes to at most one position. */
#include "../ref/shift.h"

#include "bf16.cuh"
#include "vectorized.cuh"

/* As ref/shift.c: the position that channel c of position p is copied from; -1: a zero. */
static __device__ int origin(int p, int c, int D, int P, int F)
{
    int half = (D + 1) / 2, quarter = (D + 3) / 4, cell = p - P;
    if (cell < 0) return c < half ? p - 1 : p;
    if (c < quarter) return cell / F > 0 ? p - F : -1;
    if (c < 2 * quarter) return cell % F > 0 ? p - 1 : -1;
    return p;
}

/* y16: the same in bfloat16, for the GEMM that follows; or NULL. */
template <int WIDTH>
__global__ void shift(float *y, uint16_t *y16, const float *x, int rows, int vectors, int n, int P,
                      int F)
{
    int D = vectors * WIDTH;
    cuda_each_row(rows, vectors, [=](int m, int c) {
        int p = m % n, from = origin(p, c * WIDTH, D, P, F);
        size_t at = (size_t)m * (size_t)D + (size_t)c * WIDTH;
        cuda_vector<float, WIDTH> v = {};
        if (from >= 0) v = cuda_load<WIDTH>(x + ((ptrdiff_t)at + (ptrdiff_t)(from - p) * D));
        cuda_store(y + at, v);
        if (y16) {
            cuda_vector<uint16_t, WIDTH> h;
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++) h.at[k] = bf16_of_float(v.at[k]);
            cuda_store(y16 + at, h);
        }
    });
}

/* Whether all channels of a vector come from the same position. */
static int by_vectors(int D, const float *a, const float *b)
{
    return D % (4 * CUDA_VECTOR_WIDTH) == 0 && cuda_is_vectorizable(a, b);
}

int cuda_shift(float *y, const float *x, int B, int n, int D, int P, int F)
{
    uint16_t *y16 = cuda_round_copy(y, (size_t)B * (size_t)n * (size_t)D);
    int vectorized = by_vectors(D, y, x), vectors = vectorized ? D / CUDA_VECTOR_WIDTH : D;
    return CUDA_LAUNCH_VECTORIZED(vectorized, shift, cuda_row_grid(B * n, vectors), CUDA_THREADS, y,
                                  y16, x, B * n, vectors, n, P, F);
}

/* The position whose channel c is copied from position p; -1: none. */
static __device__ int taker(int p, int c, int D, int n, int P, int F)
{
    int half = (D + 1) / 2, quarter = (D + 3) / 4, cell = p - P, to = p;
    if (cell < 0) {
        /* the first image cell copies nothing from the text */
        if (c < half) to = p + 1 < P ? p + 1 : n;
    } else if (c < quarter) to = p + F;
    else if (c < 2 * quarter) to = (cell + 1) % F ? p + 1 : n;
    return to < n ? to : -1;
}

template <int WIDTH>
__global__ void unshift(float *dx, const float *dy, int rows, int vectors, int n, int P, int F)
{
    int D = vectors * WIDTH;
    cuda_each_row(rows, vectors, [=](int m, int k) {
        int c = k * WIDTH, p = m % n, to = taker(p, c, D, n, P, F);
        size_t at = (size_t)m * (size_t)D + (size_t)c;
        cuda_vector<float, WIDTH> v = {};
        if (to >= 0) v = cuda_load<WIDTH>(dy + ((ptrdiff_t)at + (ptrdiff_t)(to - p) * D));
        cuda_store(dx + at, v);
    });
}

int cuda_shift_backward(float *dx, const float *dy, int B, int n, int D, int P, int F)
{
    int vectorized = by_vectors(D, dx, dy), vectors = vectorized ? D / CUDA_VECTOR_WIDTH : D;
    return CUDA_LAUNCH_VECTORIZED(vectorized, unshift, cuda_row_grid(B * n, vectors), CUDA_THREADS,
                                  dx, dy, B * n, vectors, n, P, F);
}
