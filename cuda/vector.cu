/* vector.cu - element-wise operations on whole buffers, at the speed of memory. */
#include "../ref/vector.h"

#include "vectorized.cuh"
#include "bf16_weights.cuh"

template <int WIDTH> __global__ void fill(float *x, float value, size_t n)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        cuda_vector<float, width.is> v;
        PL_UNROLL
        for (int k = 0; k < width.is; k++) v.at[k] = value;
        cuda_store(x + i, v);
    });
}

int cuda_fill(float *x, float value, size_t n)
{
    if (!n) return PL_OK;
    cuda_written(x, n * sizeof *x);
    return CUDA_LAUNCH_VECTORIZED(cuda_is_vectorizable(x), fill,
                                  cuda_vector_blocks(cuda_is_vectorizable(x), n), CUDA_THREADS, x,
                                  value, n);
}

int cuda_copy(float *y, const float *x, size_t n)
{
    if (!n) return PL_OK;
    cuda_written(y, n * sizeof *y);
    return cuda_status(
        cudaMemcpyAsync(y, x, n * sizeof *y, cudaMemcpyDeviceToDevice, cuda_stream()));
}

template <int WIDTH> __global__ void axpy(float *y, float a, const float *x, size_t n)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto to = cuda_load<width.is>(y + i), from = cuda_load<width.is>(x + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) to.at[k] = fmaf(a, from.at[k], to.at[k]);
        cuda_store(y + i, to);
    });
}

int cuda_axpy(float *y, float a, const float *x, size_t n)
{
    int vectorized = cuda_is_vectorizable(y, x);
    if (!n) return PL_OK;
    cuda_written(y, n * sizeof *y);
    return CUDA_LAUNCH_VECTORIZED(vectorized, axpy, cuda_vector_blocks(vectorized, n), CUDA_THREADS,
                                  y, a, x, n);
}

template <int WIDTH> __global__ void scale(float *x, float a, size_t n)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto v = cuda_load<width.is>(x + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) v.at[k] = a * v.at[k];
        cuda_store(x + i, v);
    });
}

int cuda_scale(float *x, float a, size_t n)
{
    if (!n) return PL_OK;
    cuda_written(x, n * sizeof *x);
    return CUDA_LAUNCH_VECTORIZED(cuda_is_vectorizable(x), scale,
                                  cuda_vector_blocks(cuda_is_vectorizable(x), n), CUDA_THREADS, x,
                                  a, n);
}

/* One partial sum per thread block; then one block adds those. The order depends on n, and on
 * whether x is aligned for vectorized loads. */
#define SUM_BLOCKS 1024

template <int WIDTH> __global__ void squares(double *part, const float *x, size_t n)
{
    double s = 0;
    cuda_each_vector<WIDTH>(n, [&](size_t i, auto width) {
        auto v = cuda_load<width.is>(x + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) s += (double)v.at[k] * v.at[k];
    });
    s = cuda_block_sum(s);
    if (threadIdx.x == 0) part[blockIdx.x] = s;
}

__global__ void sum_parts(double *sum, const double *part, int parts)
{
    double s = 0;
    for (int i = (int)threadIdx.x; i < parts; i += CUDA_THREADS) s += part[i];
    s = cuda_block_sum(s);
    if (threadIdx.x == 0) *sum = s;
}

int cuda_sumsq(double *sum, const float *x, size_t n)
{
    int vectorized = cuda_is_vectorizable(x);
    unsigned all = cuda_vector_blocks(vectorized, n), blocks = all < SUM_BLOCKS ? all : SUM_BLOCKS;
    double *part;
    int rc;
    *sum = 0;
    if (!n) return PL_OK;
    part = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS, (SUM_BLOCKS + 1) * sizeof *part);
    if (rc == PL_OK)
        rc = CUDA_LAUNCH_VECTORIZED(vectorized, squares, blocks, CUDA_THREADS, part, x, n);
    if (rc == PL_OK)
        rc = PL_LAUNCH(sum_parts, 1, CUDA_THREADS, part + SUM_BLOCKS, part, (int)blocks);
    return rc == PL_OK ? cuda_download(sum, part + SUM_BLOCKS, sizeof *sum) : rc;
}

/* Transposes through a tile of 32 x 32 in shared memory, so that global memory is read and written
 * in whole rows. A row of 33 avoids bank conflicts. */
__global__ void turn(float *y, int y_step, const float *x, int x_step, int R, int C)
{
    PL_SHARED(float, tile, 32 * 33);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int r0 = (int)blockIdx.x * 32, c0 = (int)blockIdx.y * 32;
    x += (size_t)blockIdx.z * (size_t)R * (size_t)x_step;
    y += (size_t)blockIdx.z * (size_t)C * (size_t)y_step;
    for (int r = warp; r < 32; r += CUDA_THREADS / 32)
        if (r0 + r < R && c0 + lane < C)
            tile[r * 33 + lane] = x[(size_t)(r0 + r) * (size_t)x_step + (size_t)(c0 + lane)];
    __syncthreads();
    for (int c = warp; c < 32; c += CUDA_THREADS / 32)
        if (c0 + c < C && r0 + lane < R)
            y[(size_t)(c0 + c) * (size_t)y_step + (size_t)(r0 + lane)] = tile[lane * 33 + c];
}

int cuda_transpose(float *y, int y_step, const float *x, int x_step, int B, int R, int C)
{
    int rc = PL_OK;
    cuda_written(y, (size_t)B * (size_t)C * (size_t)y_step * sizeof *y);
    for (int b = 0; rc == PL_OK && b < B; b += 65535) { /* gridDim.z is at most 65535 */
        dim3 grid((unsigned)((R + 31) / 32), (unsigned)((C + 31) / 32),
                  (unsigned)(B - b < 65535 ? B - b : 65535));
        if (!R || !C) return PL_OK;
        rc = PL_LAUNCH(turn, grid, CUDA_THREADS, y + (size_t)b * (size_t)C * (size_t)y_step, y_step,
                       x + (size_t)b * (size_t)R * (size_t)x_step, x_step, R, C);
    }
    return rc;
}
