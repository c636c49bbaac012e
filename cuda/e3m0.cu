/* e3m0.cu - E3M0, a thread block for each block of values. A float32 reaches a threshold exactly if
 * it reaches the smallest float32 that is not below it: so thresholds are rounded up once, and no
 * value is compared in double. Bytes are written one by one: a block begins at any address. */
#include "../ref/outer/e3m0.h"

#include "launch.cuh"
#include "bf16_weights.cuh"

#include <math.h>
#include <string.h>

#define LEVELS 7

static __device__ float threshold(float s, int c)
{
    double exact = c ? 3 * ldexp((double)s, c - 8) : (double)s / 128;
    float rounded = (float)exact;
    return (double)rounded < exact ? nextafterf(rounded, INFINITY) : rounded;
}

static __device__ unsigned code_of(float x, cuda_shared<float> limit)
{
    float size = fabsf(x);
    unsigned c = 0;
    PL_UNROLL
    for (int k = 0; k < LEVELS; k++) c += size >= limit[k];
    return x < 0 && c ? c | 8 : c;
}

__global__ void e3m0_encode(uint8_t *out, const float *x, size_t n, size_t block)
{
    PL_SHARED(float, limit, LEVELS);
    size_t blocks = (n + block - 1) / block, bytes = 4 + (block + 1) / 2;
    for (size_t k = blockIdx.x; k < blocks; k += gridDim.x) {
        size_t at = k * block, count = n - at < block ? n - at : block;
        uint8_t *to = out + k * bytes;
        float s = 0;
        unsigned bits;
        for (size_t i = threadIdx.x; i < count; i += blockDim.x) s = fmaxf(s, fabsf(x[at + i]));
        s = cuda_block_max(s);
        memcpy(&bits, &s, sizeof bits);
        if (threadIdx.x < 4) to[threadIdx.x] = (uint8_t)(bits >> 8 * threadIdx.x);
        /* of a block of zeros no value reaches a threshold */
        if (threadIdx.x < LEVELS)
            limit[threadIdx.x] = s > 0 ? threshold(s, (int)threadIdx.x) : INFINITY;
        __syncthreads();
        for (size_t i = threadIdx.x; i < (count + 1) / 2; i += blockDim.x) {
            unsigned low = code_of(x[at + 2 * i], limit);
            unsigned high = 2 * i + 1 < count ? code_of(x[at + 2 * i + 1], limit) : 0;
            to[4 + i] = (uint8_t)(low | high << 4);
        }
        __syncthreads(); /* before the next block's thresholds */
    }
}

int cuda_e3m0_encode(uint8_t *out, const float *x, size_t n, size_t block)
{
    size_t blocks = (n + block - 1) / block;
    if (!n) return PL_OK;
    return PL_LAUNCH(e3m0_encode, (unsigned)(blocks < CUDA_BLOCKS_MOST ? blocks : CUDA_BLOCKS_MOST),
                     CUDA_THREADS, out, x, n, block);
}

__global__ void e3m0_decode(float *x, const uint8_t *in, size_t n, size_t block)
{
    size_t bytes = 4 + (block + 1) / 2;
    CUDA_EACH (i, n) {
        const uint8_t *from = in + i / block * bytes;
        size_t j = i % block;
        unsigned code = from[4 + j / 2] >> (j % 2 ? 4 : 0) & 15, c = code & 7;
        unsigned bits = from[0] | from[1] << 8 | from[2] << 16 | (unsigned)from[3] << 24;
        float s, size;
        memcpy(&s, &bits, sizeof s);
        size = c ? (float)ldexp((double)s, (int)c - LEVELS) : 0;
        x[i] = code & 8 ? -size : size;
    }
}

int cuda_e3m0_decode(float *x, const uint8_t *in, size_t n, size_t block)
{
    if (!n) return PL_OK;
    cuda_written(x, n * sizeof *x);
    return PL_LAUNCH(e3m0_decode, cuda_blocks(n), CUDA_THREADS, x, in, n, block);
}
