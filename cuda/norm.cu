/* norm.cu - a block a row; gains are summed column by column, in one order. */
#include "../ref/norm.h"

#include "launch.cuh"

struct statistics {
    float mean, inverse;
};

/* Of x (D), for all threads of the block: the mean first, then squares around it, so that a mean
 * far from zero costs no digits. */
static __device__ struct statistics row_statistics(const float *x, int D, float eps)
{
    struct statistics s;
    float sum = 0;
    for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) sum += x[i];
    s.mean = cuda_block_sum(sum) / (float)D;
    sum = 0;
    for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) {
        float c = x[i] - s.mean;
        sum = fmaf(c, c, sum);
    }
    s.inverse = 1 / sqrtf(cuda_block_sum(sum) / (float)D + eps);
    return s;
}

/* Threads for rows of D: a warp a row's worth at least. */
static unsigned row_threads(int D)
{
    return D <= 64 ? 32 : D <= 512 ? 128 : CUDA_THREADS;
}

__global__ void normalize(float *y, const float *x, const float *gain, const float *offset, int M,
                          int D, float eps)
{
    for (int m = (int)blockIdx.x; m < M; m += (int)gridDim.x) {
        const float *row = x + (size_t)m * (size_t)D;
        float *out = y + (size_t)m * (size_t)D;
        struct statistics s = row_statistics(row, D, eps);
        for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x)
            out[i] = fmaf((row[i] - s.mean) * s.inverse, gain[i], offset[i]);
    }
}

int cuda_layer_norm(float *y, const float *x, const float *gain, const float *offset, int M, int D,
                    float eps)
{
    return PL_LAUNCH(normalize, (unsigned)M, row_threads(D), y, x, gain, offset, M, D, eps);
}

__global__ void gather_statistics(struct statistics *s, const float *x, int M, int D, float eps)
{
    for (int m = (int)blockIdx.x; m < M; m += (int)gridDim.x) {
        struct statistics mine = row_statistics(x + (size_t)m * (size_t)D, D, eps);
        if (threadIdx.x == 0) s[m] = mine;
    }
}

/* part: the gain's, then the offset's. */
__global__ void norm_gains(double *part, const float *dy, const float *x,
                           const struct statistics *s, int M, int D)
{
    cuda_column_parts(part, M, D, [=](int r, int c) {
        size_t i = (size_t)r * (size_t)D + (size_t)c;
        return (double)(dy[i] * ((x[i] - s[r].mean) * s[r].inverse));
    });
    part += (size_t)gridDim.y * (size_t)D;
    cuda_column_parts(part, M, D, [=](int r, int c) {
        return (double)dy[(size_t)r * (size_t)D + (size_t)c];
    });
}

/* dx = inverse * (g - mean(g) - h * mean(g h)), see ref/norm.c */
__global__ void norm_dx(float *dx, const float *dy, const float *x, const float *gain,
                        const struct statistics *s, int M, int D, int add)
{
    for (int m = (int)blockIdx.x; m < M; m += (int)gridDim.x) {
        size_t at = (size_t)m * (size_t)D;
        struct statistics r = s[m];
        float sum_g = 0, sum_gh = 0;
        for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) {
            float g = dy[at + (size_t)i] * gain[i], h = (x[at + (size_t)i] - r.mean) * r.inverse;
            sum_g += g;
            sum_gh = fmaf(g, h, sum_gh);
        }
        sum_g = cuda_block_sum(sum_g) / (float)D;
        sum_gh = cuda_block_sum(sum_gh) / (float)D;
        for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) {
            float g = dy[at + (size_t)i] * gain[i], h = (x[at + (size_t)i] - r.mean) * r.inverse;
            float d = r.inverse * (g - sum_g - h * sum_gh);
            dx[at + (size_t)i] = add ? dx[at + (size_t)i] + d : d;
        }
    }
}

int cuda_layer_norm_backward(float *dx, float *dgain, float *doffset, const float *dy,
                             const float *x, const float *gain, int M, int D, float eps, int add)
{
    dim3 grid = cuda_column_grid(M, D);
    double *part = NULL;
    int rc;
    struct statistics *s =
        (struct statistics *)cuda_scratch(&rc, CUDA_SLOT_SUMS, (size_t)M * sizeof *s);
    if (rc == PL_OK)
        rc = PL_LAUNCH(gather_statistics, (unsigned)M, row_threads(D), s, x, M, D, eps);
    /* the gains first: dx may lie on dy */
    if (rc == PL_OK) part = cuda_column_scratch(&rc, 2, grid, D);
    if (rc == PL_OK) rc = PL_LAUNCH(norm_gains, grid, CUDA_THREADS, part, dy, x, s, M, D);
    if (rc == PL_OK) rc = cuda_column_add(dgain, part, grid, D);
    if (rc == PL_OK) rc = cuda_column_add(doffset, part + (size_t)grid.y * (size_t)D, grid, D);
    if (rc == PL_OK)
        rc = PL_LAUNCH(norm_dx, (unsigned)M, row_threads(D), dx, dy, x, gain, s, M, D, add);
    return rc;
}

__global__ void scale_add(float *y, const float *x, const float *s, size_t n, int D, float sign)
{
    CUDA_EACH(i, n) y[i] = fmaf(sign * s[i % (size_t)D], x[i], y[i]);
}

int cuda_scale_add(float *y, const float *x, const float *s, int M, int D, float sign)
{
    size_t n = (size_t)M * (size_t)D;
    return PL_LAUNCH(scale_add, cuda_blocks(n), CUDA_THREADS, y, x, s, n, D, sign);
}

__global__ void scale_gains(double *part, const float *dy, const float *x, int M, int D)
{
    cuda_column_parts(part, M, D, [=](int r, int c) {
        size_t i = (size_t)r * (size_t)D + (size_t)c;
        return (double)dy[i] * x[i];
    });
}

__global__ void scale_rows(float *dx, const float *dy, const float *s, size_t n, int D)
{
    CUDA_EACH(i, n) dx[i] = s[i % (size_t)D] * dy[i];
}

int cuda_layer_scale_backward(float *dx, float *ds, const float *dy, const float *x, const float *s,
                              int M, int D)
{
    size_t n = (size_t)M * (size_t)D;
    dim3 grid = cuda_column_grid(M, D);
    int rc;
    double *part = cuda_column_scratch(&rc, 1, grid, D);
    if (rc == PL_OK) rc = PL_LAUNCH(scale_gains, grid, CUDA_THREADS, part, dy, x, M, D);
    if (rc == PL_OK) rc = cuda_column_add(ds, part, grid, D);
    if (rc == PL_OK) rc = PL_LAUNCH(scale_rows, cuda_blocks(n), CUDA_THREADS, dx, dy, s, n, D);
    return rc;
}
