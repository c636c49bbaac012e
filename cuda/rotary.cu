/* rotary.cu - rotary embedding, two pairs of channels per thread, or one; the caller provides
 * cosines and sines. */
#include "../ref/rotary.h"

#include "bf16.cuh"
#include "vectorized.cuh"

static __device__ void turn(float *p, float c, float s)
{
    float u = p[0], v = p[1];
    p[0] = u * c - v * s;
    p[1] = v * c + u * s;
}

__global__ void rotate(float *x, const float *cosine, const float *sine, size_t pairs, int n, int G,
                       int d, int half, float sign)
{
    CUDA_EACH (i, pairs) {
        size_t vector = i / (size_t)half, pair = i % (size_t)half;
        size_t at = vector / (size_t)G % (size_t)n * (size_t)half + pair;
        turn(x + vector * (size_t)d + 2 * pair, cosine[at], sign * sine[at]);
    }
}

/* For heads that are a multiple of a vector's width. x16: the result in bfloat16, including
 * channels that are not rotated. */
__global__ void rotate_vectors(float *x, uint16_t *x16, const float *cosine, const float *sine,
                               int rows, int vectors, int n, int d, int half, float sign)
{
    cuda_each_row(rows, vectors, [=](int m, int k) {
        int pair = k * CUDA_VECTOR_WIDTH % d / 2;
        size_t at = ((size_t)m * (size_t)vectors + (size_t)k) * CUDA_VECTOR_WIDTH;
        cuda_vector<float, CUDA_VECTOR_WIDTH> v;
        if (pair >= half && !x16) return;
        v = cuda_load<CUDA_VECTOR_WIDTH>(x + at);
        PL_UNROLL
        for (int i = 0; i < CUDA_VECTOR_WIDTH / 2; i++) {
            size_t angle = (size_t)(m % n) * (size_t)half + (size_t)(pair + i);
            if (pair + i < half) turn(v.at + 2 * i, cosine[angle], sign * sine[angle]);
        }
        if (pair < half) cuda_store(x + at, v);
        if (x16) {
            cuda_vector<uint16_t, CUDA_VECTOR_WIDTH> h;
            PL_UNROLL
            for (int i = 0; i < CUDA_VECTOR_WIDTH; i++) h.at[i] = bf16_of_float(v.at[i]);
            cuda_store(x16 + at, h);
        }
    });
}

/* The inverse rotates gradients, which a GEMM reads next. */
int cuda_rotary(float *x, const float *cosine, const float *sine, int B, int n, int G, int d, int R,
                int inverse)
{
    size_t pairs = (size_t)B * (size_t)n * (size_t)G * (size_t)(R / 2);
    float sign = inverse ? -1.0f : 1.0f;
    int vectors = G * d / CUDA_VECTOR_WIDTH;
    if (!pairs) return PL_OK; /* no pair of channels to rotate */
    if (d % CUDA_VECTOR_WIDTH || !cuda_is_vectorizable(x))
        return PL_LAUNCH(rotate, cuda_blocks(pairs), CUDA_THREADS, x, cosine, sine, pairs, n, G, d,
                         R / 2, sign);
    return PL_LAUNCH(rotate_vectors, cuda_row_grid(B * n, vectors), CUDA_THREADS, x,
                     inverse ? cuda_round_copy(x, (size_t)B * (size_t)n * (size_t)(G * d)) : NULL,
                     cosine, sine, B * n, vectors, n, d, R / 2, sign);
}
