/* embed.cu - embedding lookup, one thread per element. The gradient needs an order without atomic
 * additions: the first position of an id adds up all positions of that id, in ascending order. */
#include "../ref/embed.h"

#include "vectorized.cuh"

template <int WIDTH>
__global__ void take_rows(float *y, const float *table, const int32_t *ids, int M, int vectors)
{
    cuda_each_row(M, vectors, [=](int m, int c) {
        size_t from = (size_t)ids[m] * (size_t)vectors + (size_t)c;
        size_t to = (size_t)m * (size_t)vectors + (size_t)c;
        cuda_store(y + to * WIDTH, cuda_load<WIDTH>(table + from * WIDTH));
    });
}

int cuda_embed(float *y, const float *table, const int32_t *ids, int M, int D, int rows)
{
    int vectorized = D % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(y, table),
        vectors = vectorized ? D / CUDA_VECTOR_WIDTH : D;
    (void)rows;
    return CUDA_LAUNCH_VECTORIZED(vectorized, take_rows, cuda_row_grid(M, vectors), CUDA_THREADS, y,
                                  table, ids, M, vectors);
}

/* One block per position. Which of the next 256 positions have the same id fits 8 words of 32 bits;
 * every thread walks through them in ascending order, for its own channels. */
__global__ void add_rows(float *dtable, const float *dy, const int32_t *ids, int M, int D)
{
    PL_SHARED(unsigned, same, CUDA_THREADS / 32);
    int m = (int)blockIdx.x, id = ids[m], lane = (int)threadIdx.x % 32,
        warp = (int)threadIdx.x / 32;
    float *out = dtable + (size_t)id * (size_t)D;
    int earlier = 0;
    for (int k = (int)threadIdx.x; k < m; k += CUDA_THREADS) earlier |= ids[k] == id;
    if (__syncthreads_or(earlier)) return; /* only the first position of an id does the work */
    for (int begin = m; begin < M; begin += CUDA_THREADS) {
        int k = begin + (int)threadIdx.x;
        unsigned bits = __ballot_sync(0xffffffffu, k < M && ids[k] == id);
        __syncthreads();
        if (lane == 0) same[warp] = bits;
        __syncthreads();
        for (int w = 0; w < CUDA_THREADS / 32; w++)
            for (unsigned left = same[w]; left; left &= left - 1) {
                const float *from = dy +
                                    (size_t)(begin + w * 32 + __ffs((int)left) - 1) * (size_t)D;
                for (int c = (int)threadIdx.x; c < D; c += CUDA_THREADS) out[c] += from[c];
            }
    }
}

int cuda_embed_backward(float *dtable, const float *dy, const int32_t *ids, int M, int D, int rows)
{
    (void)rows;
    return PL_LAUNCH(add_rows, (unsigned)M, CUDA_THREADS, dtable, dy, ids, M, D);
}
