/* feedforward.cuh - the feed-forward layer: what its float32 and bfloat16 versions share. */
#ifndef PL_CUDA_FEEDFORWARD_CUH
#define PL_CUDA_FEEDFORWARD_CUH

#include "../ref/feedforward.h"

#include "launch.cuh"

/* How many of M rows the layer's scratch memory holds at a time. */
static inline int ffn_rows_at_once(int M, size_t bytes_a_row)
{
    /* at the reference run's width 4,096 rows, or 10,000 of bfloat16 */
    const size_t most = (size_t)256 << 20;
    size_t rows = cuda_scratch_share(most) / bytes_a_row;
    return rows < 1 ? 1 : rows < (size_t)M ? (int)rows : M;
}

/* The layer in bfloat16. */
int cuda_ffn_bf16(float *y, float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                  int C);
int cuda_ffn_bf16_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy,
                           float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                           int C);

#endif
