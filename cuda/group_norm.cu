/* group_norm.cu - group norm, one thread block per group of an image. Sums are in double, because a
 * group of VQGAN's largest image has a quarter of a million values. ref/norm.h has the contract. */
#include "../ref/norm.h"

#include "launch.cuh"

struct group {
    float mean, scale;
};

/* Mean and inverse deviation of n values, for all threads of the block. */
static __device__ struct group group_statistics(const float *x, size_t n, float eps)
{
    struct group g;
    double sum = 0, mean;
    for (size_t i = threadIdx.x; i < n; i += CUDA_THREADS) sum += x[i];
    mean = cuda_block_sum(sum) / (double)n;
    sum = 0;
    for (size_t i = threadIdx.x; i < n; i += CUDA_THREADS) sum += (x[i] - mean) * (x[i] - mean);
    g.mean = (float)mean;
    g.scale = (float)(1 / sqrt(cuda_block_sum(sum) / (double)n + eps));
    return g;
}

__global__ void group_normalize(float *y, const float *x, const float *weight, const float *bias,
                                int C, int P, int G, float eps)
{
    size_t n = (size_t)(C / G) * (size_t)P, at = blockIdx.x * n;
    struct group g = group_statistics(x + at, n, eps);
    int first = (int)(blockIdx.x % (unsigned)G) * (C / G);
    for (size_t i = threadIdx.x; i < n; i += CUDA_THREADS) {
        int c = first + (int)(i / (size_t)P);
        y[at + i] = fmaf((x[at + i] - g.mean) * g.scale, weight[c], bias[c]);
    }
}

int cuda_group_norm(float *y, const float *x, const float *weight, const float *bias, int B, int C,
                    int P, int G, float eps)
{
    return PL_LAUNCH(group_normalize, (unsigned)(B * G), CUDA_THREADS, y, x, weight, bias, C, P, G,
                     eps);
}

/* sums (2,B,C): of dy and of dy h over a channel's positions; one block per group. */
__global__ void channel_sums(double *sums, struct group *groups, const float *dy, const float *x,
                             int C, int P, int G, float eps)
{
    int channels = C / G, b = (int)blockIdx.x / G;
    size_t n = (size_t)channels * (size_t)P, total = (size_t)(gridDim.x / (unsigned)G) * (size_t)C;
    struct group g = group_statistics(x + blockIdx.x * n, n, eps);
    if (threadIdx.x == 0) groups[blockIdx.x] = g;
    for (int k = 0; k < channels; k++) {
        size_t c = (size_t)b * (size_t)C + (size_t)((int)blockIdx.x % G * channels + k);
        const float *dyc = dy + c * (size_t)P, *xc = x + c * (size_t)P;
        double sum = 0, sum_h = 0;
        for (int i = (int)threadIdx.x; i < P; i += CUDA_THREADS) {
            sum += dyc[i];
            sum_h += (double)dyc[i] * ((xc[i] - g.mean) * g.scale);
        }
        sum = cuda_block_sum(sum);
        sum_h = cuda_block_sum(sum_h);
        if (threadIdx.x == 0) {
            sums[c] = sum;
            sums[total + c] = sum_h;
        }
    }
}

__global__ void group_param_grads(float *dweight, float *dbias, const double *sums, int B, int C)
{
    CUDA_EACH (c, (size_t)C) {
        double weight = dweight[c], bias = dbias[c];
        for (int b = 0; b < B; b++) {
            bias += sums[(size_t)b * (size_t)C + c];
            weight += sums[((size_t)B + (size_t)b) * (size_t)C + c];
        }
        dweight[c] = (float)weight;
        dbias[c] = (float)bias;
    }
}

__global__ void group_dx(float *dx, const double *sums, const struct group *groups, const float *dy,
                         const float *x, const float *weight, int B, int C, int P, int G)
{
    int channels = C / G, b = (int)blockIdx.x / G, first = (int)blockIdx.x % G * channels;
    size_t n = (size_t)channels * (size_t)P, at = blockIdx.x * n;
    struct group g = groups[blockIdx.x];
    double sum_g = 0, sum_gh = 0;
    float mean_g, mean_gh;
    for (int k = 0; k < channels; k++) {
        size_t c = (size_t)b * (size_t)C + (size_t)(first + k);
        sum_g += weight[first + k] * sums[c];
        sum_gh += weight[first + k] * sums[(size_t)B * (size_t)C + c];
    }
    mean_g = (float)(sum_g / (double)n);
    mean_gh = (float)(sum_gh / (double)n);
    for (size_t i = threadIdx.x; i < n; i += CUDA_THREADS) {
        float h = (x[at + i] - g.mean) * g.scale,
              d = dy[at + i] * weight[first + (int)(i / (size_t)P)];
        dx[at + i] = g.scale * (d - mean_g - h * mean_gh);
    }
}

int cuda_group_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                             const float *x, const float *weight, int B, int C, int P, int G,
                             float eps)
{
    size_t channels = (size_t)B * (size_t)C, count = (size_t)B * (size_t)G;
    struct group *groups;
    double *sums;
    int rc;
    sums = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS,
                                  2 * channels * sizeof *sums + count * sizeof *groups);
    if (rc != PL_OK) return rc;
    groups = (struct group *)(sums + 2 * channels);
    rc = PL_LAUNCH(channel_sums, (unsigned)count, CUDA_THREADS, sums, groups, dy, x, C, P, G, eps);
    if (rc == PL_OK)
        rc = PL_LAUNCH(group_param_grads, cuda_blocks((size_t)C), CUDA_THREADS, dweight, dbias,
                       sums, B, C);
    if (rc == PL_OK)
        rc = PL_LAUNCH(group_dx, (unsigned)count, CUDA_THREADS, dx, sums, groups, dy, x, weight, B,
                       C, P, G);
    return rc;
}
