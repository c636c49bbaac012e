/* codebook.cu - vector quantization: squared distances to all codes are |e|^2 - 2 z.e + |z|^2, so
 * one GEMM and the codebook's norms suffice. Gumbel codes use one thread per position, because
 * adjacent positions are adjacent in memory for every code. */
#include "../ref/codebook.h"

#include "launch.cuh"

__global__ void row_norms(float *norm, const float *table, int D)
{
    float s = 0;
    for (int d = (int)threadIdx.x; d < D; d += CUDA_THREADS) {
        float e = table[blockIdx.x * (size_t)D + (size_t)d];
        s = fmaf(e, e, s);
    }
    s = cuda_block_sum(s);
    if (threadIdx.x == 0) norm[blockIdx.x] = s;
}

/* One block per position: the first n with the smallest norm[n] - 2 product[n]. */
__global__ void first_smallest(int32_t *code, const float *product, const float *norm, int N)
{
    PL_SHARED(float, least, CUDA_THREADS / 32);
    PL_SHARED(int, where, CUDA_THREADS / 32);
    const float *row = product + blockIdx.x * (size_t)N;
    float best = INFINITY;
    int at = 0;
    for (int n = (int)threadIdx.x; n < N; n += CUDA_THREADS) {
        float v = fmaf(-2, row[n], norm[n]);
        if (v < best) best = v, at = n;
    }
    for (int distance = 16; distance; distance /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, distance);
        int there = __shfl_xor_sync(0xffffffffu, at, distance);
        if (other < best || (other == best && there < at)) best = other, at = there;
    }
    if (threadIdx.x % 32 == 0) {
        least[threadIdx.x / 32] = best;
        where[threadIdx.x / 32] = at;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < CUDA_THREADS / 32; w++) {
            float other = least[w];
            int there = where[w];
            if (other < best || (other == best && there < at)) best = other, at = there;
        }
        code[blockIdx.x] = at;
    }
}

int cuda_nearest_code(int32_t *code, const float *z, const float *table, int B, int D, int P, int N)
{
    size_t products = (size_t)P * (size_t)N;
    int rc;
    float *norm = (float *)cuda_scratch(&rc, CUDA_SLOT_LAYER,
                                        ((size_t)N + products) * sizeof *norm);
    float *product = norm + N;
    if (rc == PL_OK) rc = PL_LAUNCH(row_norms, (unsigned)N, CUDA_THREADS, norm, table, D);
    for (int b = 0; rc == PL_OK && b < B; b++) {
        rc = cuda_gemm_float32(product, N, z + (size_t)b * (size_t)D * (size_t)P, 1, table, 1, P, N,
                               D, 0);
        if (rc == PL_OK)
            rc = PL_LAUNCH(first_smallest, (unsigned)P, CUDA_THREADS, code + (size_t)b * (size_t)P,
                           product, norm, N);
    }
    return rc;
}

__global__ void take_codes(float *z, const float *table, const int32_t *code, size_t n, int D,
                           int P)
{
    CUDA_EACH (i, n) {
        size_t p = i % (size_t)P, d = i / (size_t)P % (size_t)D, b = i / (size_t)P / (size_t)D;
        z[i] = table[(size_t)code[b * (size_t)P + p] * (size_t)D + d];
    }
}

int cuda_code_rows(float *z, const float *table, const int32_t *code, int B, int D, int P, int N)
{
    size_t n = (size_t)B * (size_t)D * (size_t)P;
    (void)N;
    return PL_LAUNCH(take_codes, cuda_blocks(n), CUDA_THREADS, z, table, code, n, D, P);
}

/* As the gradient of embed.cu: the first position of a code adds up all of its positions, in
 * ascending order. */
__global__ void add_codes(float *dtable, const float *dz, float scale, const int32_t *code,
                          int positions, int D, int P)
{
    PL_SHARED(unsigned, same, CUDA_THREADS / 32);
    int m = (int)blockIdx.x, id = code[m], lane = (int)threadIdx.x % 32,
        warp = (int)threadIdx.x / 32;
    int earlier = 0;
    for (int k = (int)threadIdx.x; k < m; k += CUDA_THREADS) earlier |= code[k] == id;
    if (__syncthreads_or(earlier)) return;
    for (int c0 = 0; c0 < D; c0 += CUDA_THREADS) {
        int c = c0 + (int)threadIdx.x;
        double sum = 0;
        for (int begin = m; begin < positions; begin += CUDA_THREADS) {
            int k = begin + (int)threadIdx.x;
            unsigned bits = __ballot_sync(0xffffffffu, k < positions && code[k] == id);
            __syncthreads();
            if (lane == 0) same[warp] = bits;
            __syncthreads();
            for (int w = 0; w < CUDA_THREADS / 32; w++)
                for (unsigned left = same[w]; left; left &= left - 1) {
                    int position = begin + w * 32 + __ffs((int)left) - 1;
                    if (c < D)
                        sum += dz[((size_t)(position / P) * (size_t)D + (size_t)c) * (size_t)P +
                                  (size_t)(position % P)];
                }
        }
        if (c < D) {
            float *to = dtable + (size_t)id * (size_t)D + (size_t)c;
            *to = (float)(*to + scale * sum);
        }
    }
}

int cuda_code_rows_backward(float *dtable, const float *dz, float scale, const int32_t *code, int B,
                            int D, int P, int N)
{
    (void)N;
    return PL_LAUNCH(add_codes, (unsigned)(B * P), CUDA_THREADS, dtable, dz, scale, code, B * P, D,
                     P);
}

static __device__ float noisy(const float *logits, const float *noise, size_t i)
{
    return noise ? logits[i] + noise[i] : logits[i];
}

__global__ void gumbel_code(int32_t *code, const float *logits, const float *noise,
                            size_t positions, int N, int P)
{
    CUDA_EACH (i, positions) {
        size_t at = i / (size_t)P * (size_t)N * (size_t)P + i % (size_t)P;
        float best = noisy(logits, noise, at);
        int32_t where = 0;
        for (int n = 1; n < N; n++) {
            float v = noisy(logits, noise, at + (size_t)n * (size_t)P);
            if (v > best) best = v, where = n;
        }
        code[i] = where;
    }
}

int cuda_gumbel_code(int32_t *code, const float *logits, const float *noise, int B, int N, int P)
{
    size_t positions = (size_t)B * (size_t)P;
    return PL_LAUNCH(gumbel_code, cuda_blocks(positions), CUDA_THREADS, code, logits, noise,
                     positions, N, P);
}

/* One position's maximum, and the sum of exp((x - max) / temperature). */
struct softmax {
    float largest;
    double sum;
};
static __device__ struct softmax softmax_of(const float *logits, const float *noise, size_t at,
                                            int N, int P, float temperature)
{
    struct softmax s = { -INFINITY, 0 };
    for (int n = 0; n < N; n++)
        s.largest = fmaxf(s.largest, noisy(logits, noise, at + (size_t)n * (size_t)P));
    for (int n = 0; n < N; n++)
        s.sum += expf((noisy(logits, noise, at + (size_t)n * (size_t)P) - s.largest) / temperature);
    return s;
}

__global__ void gumbel_soft(float *y, const float *logits, const float *noise, float temperature,
                            size_t positions, int N, int P)
{
    CUDA_EACH (i, positions) {
        size_t at = i / (size_t)P * (size_t)N * (size_t)P + i % (size_t)P;
        struct softmax s = softmax_of(logits, noise, at, N, P, temperature);
        for (int n = 0; n < N; n++) {
            size_t k = at + (size_t)n * (size_t)P;
            y[k] = expf((noisy(logits, noise, k) - s.largest) / temperature) / (float)s.sum;
        }
    }
}

int cuda_gumbel_soft(float *y, const float *logits, const float *noise, float temperature, int B,
                     int N, int P)
{
    size_t positions = (size_t)B * (size_t)P;
    return PL_LAUNCH(gumbel_soft, cuda_blocks(positions), CUDA_THREADS, y, logits, noise,
                     temperature, positions, N, P);
}

#define PART_BLOCKS 256

__global__ void kl_parts(double *part, const float *logits, size_t positions, int N, int P)
{
    double sum = 0;
    CUDA_EACH (i, positions) {
        size_t at = i / (size_t)P * (size_t)N * (size_t)P + i % (size_t)P;
        struct softmax s = softmax_of(logits, NULL, at, N, P, 1);
        for (int n = 0; n < N; n++) {
            double q = expf(logits[at + (size_t)n * (size_t)P] - s.largest) / s.sum;
            sum += q * log(q * N + 1e-10);
        }
    }
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

int cuda_kl_uniform(double *kl, const float *logits, int B, int N, int P)
{
    size_t positions = (size_t)B * (size_t)P;
    unsigned blocks = cuda_blocks(positions) < PART_BLOCKS ? cuda_blocks(positions) : PART_BLOCKS;
    double part[PART_BLOCKS], *device;
    int rc;
    device = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS, sizeof part);
    if (rc == PL_OK)
        rc = PL_LAUNCH(kl_parts, blocks, CUDA_THREADS, device, logits, positions, N, P);
    if (rc == PL_OK) rc = cuda_download(part, device, blocks * sizeof *part);
    *kl = 0;
    for (unsigned i = 0; rc == PL_OK && i < blocks; i++) *kl += part[i] / (double)positions;
    return rc;
}

/* ref/codebook.c derives the gradient of the divergence. */
__global__ void gumbel_slopes(float *dlogits, const float *a, const float *y, const float *logits,
                              float temperature, float kl_weight, size_t positions, int N, int P)
{
    CUDA_EACH (i, positions) {
        size_t at = i / (size_t)P * (size_t)N * (size_t)P + i % (size_t)P;
        struct softmax s = softmax_of(logits, NULL, at, N, P, 1);
        double ay = 0, qr = 0;
        for (int n = 0; n < N; n++) {
            size_t k = at + (size_t)n * (size_t)P;
            double q = expf(logits[k] - s.largest) / s.sum, qN = q * N;
            ay += (double)a[k] * y[k];
            qr += q * (log(qN + 1e-10) + qN / (qN + 1e-10));
        }
        for (int n = 0; n < N; n++) {
            size_t k = at + (size_t)n * (size_t)P;
            double q = expf(logits[k] - s.largest) / s.sum, qN = q * N;
            double slope = log(qN + 1e-10) + qN / (qN + 1e-10);
            dlogits[k] = (float)(y[k] * (a[k] - ay) / temperature +
                                 kl_weight * q * (slope - qr) / (double)positions);
        }
    }
}

int cuda_gumbel_backward(float *dlogits, const float *a, const float *y, const float *logits,
                         float temperature, float kl_weight, int B, int N, int P)
{
    size_t positions = (size_t)B * (size_t)P;
    return PL_LAUNCH(gumbel_slopes, cuda_blocks(positions), CUDA_THREADS, dlogits, a, y, logits,
                     temperature, kl_weight, positions, N, P);
}

__global__ void pixel_parts(double *part, float *dy, const float *y, const float *x, float l1,
                            float l2, size_t n)
{
    double absolute = 0, squares = 0;
    CUDA_EACH (i, n) {
        double d = (double)y[i] - x[i];
        absolute += fabs(d);
        squares += d * d;
        if (dy)
            dy[i] = (float)(((d > 0) - (d < 0)) * (double)l1 / (double)n + 2 * l2 * d / (double)n);
    }
    absolute = cuda_block_sum(absolute);
    squares = cuda_block_sum(squares);
    if (threadIdx.x == 0) {
        part[2 * blockIdx.x] = absolute;
        part[2 * blockIdx.x + 1] = squares;
    }
}

int cuda_pixel_loss(double loss[2], float *dy, const float *y, const float *x, float l1, float l2,
                    size_t n)
{
    unsigned blocks = cuda_blocks(n) < PART_BLOCKS ? cuda_blocks(n) : PART_BLOCKS;
    double part[2 * PART_BLOCKS], *device;
    int rc;
    device = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS, sizeof part);
    if (rc == PL_OK) rc = PL_LAUNCH(pixel_parts, blocks, CUDA_THREADS, device, dy, y, x, l1, l2, n);
    if (rc == PL_OK) rc = cuda_download(part, device, 2 * blocks * sizeof *part);
    loss[0] = loss[1] = 0;
    for (unsigned i = 0; rc == PL_OK && i < blocks; i++) {
        loss[0] += part[2 * i] / (double)n;
        loss[1] += part[2 * i + 1] / (double)n;
    }
    return rc;
}
