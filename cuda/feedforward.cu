/* feedforward.cu - activations, element by element, and the feed-forward layer. z (M,2C) is the
 * largest buffer of a transformer block, so the layer takes as many rows at a time as fit in a
 * fixed amount of scratch memory. */
#include "../ref/linear.h"

#include "bf16.cuh"
#include "feedforward.cuh"
#include "vectorized.cuh"

#define SQRT_HALF 0.70710678118654752440f
#define INV_SQRT_2_PI 0.39894228040143267794f
#define TANH_SCALE 0.79788456080286535588f /* sqrt(2 / pi) */
#define TANH_CUBIC 0.044715f
#define QUICK 1.702f

static __device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }
/* The derivative of x sigmoid(a x). 1 - s is computed from e, so that it keeps its digits for large
 * x. */
static __device__ float sigmoid_slope(float x, float a)
{
    float e = expf(-fabsf(a * x)), s = 1 / (1 + e), rest = e * s; /* of |a x| */
    float part = a * x * s * rest;
    return x < 0 ? rest + part : s + part;
}
/* (1 + erf(x / sqrt 2)) / 2, without the cancellation of 1 + erf for x far below zero */
static __device__ float gelu_share(float x) { return 0.5f * erfcf(-x * SQRT_HALF); }
static __device__ float gelu(float x) { return x * gelu_share(x); }
static __device__ float gelu_slope(float x)
{
    return fmaf(x * INV_SQRT_2_PI, expf(-0.5f * x * x), gelu_share(x));
}

static __device__ float value(float x, enum pl_activation kind)
{
    switch (kind) {
    case PL_GELU: return gelu(x);
    case PL_GELU_TANH: return 0.5f * x * (1 + tanhf(TANH_SCALE * fmaf(TANH_CUBIC * x * x, x, x)));
    case PL_QUICKGELU: return x * sigmoid(QUICK * x);
    case PL_SWISH: return x * sigmoid(x);
    }
    return 0;
}

static __device__ float slope(float x, enum pl_activation kind)
{
    float t;
    switch (kind) {
    case PL_GELU: return gelu_slope(x);
    case PL_GELU_TANH:
        t = tanhf(TANH_SCALE * fmaf(TANH_CUBIC * x * x, x, x));
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * TANH_SCALE * (1 + 3 * TANH_CUBIC * x * x);
    case PL_QUICKGELU: return sigmoid_slope(x, QUICK);
    case PL_SWISH: return sigmoid_slope(x, 1);
    }
    return 0;
}

__global__ void activate(float *y, const float *x, size_t n, enum pl_activation kind)
{
    CUDA_EACH (i, n) y[i] = value(x[i], kind);
}

int cuda_activation(float *y, const float *x, size_t n, enum pl_activation kind)
{
    if (!n) return PL_OK;
    return PL_LAUNCH(activate, cuda_blocks(n), CUDA_THREADS, y, x, n, kind);
}

__global__ void activate_backward(float *dx, const float *dy, const float *x, size_t n,
                                  enum pl_activation kind)
{
    CUDA_EACH (i, n) dx[i] = dy[i] * slope(x[i], kind);
}

int cuda_activation_backward(float *dx, const float *dy, const float *x, size_t n,
                             enum pl_activation kind)
{
    if (!n) return PL_OK;
    return PL_LAUNCH(activate_backward, cuda_blocks(n), CUDA_THREADS, dx, dy, x, n, kind);
}

template <int WIDTH> __global__ void gate(float *y, const float *z, int M, int vectors)
{
    size_t C = (size_t)vectors * WIDTH;
    cuda_each_row(M, vectors, [=](int m, int c) {
        size_t at = (size_t)m * C + (size_t)c * WIDTH, wide = at + (size_t)m * C;
        auto u = cuda_load<WIDTH>(z + wide), g = cuda_load<WIDTH>(z + wide + C);
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++) u.at[k] *= gelu(g.at[k]);
        cuda_store(y + at, u);
    });
}

int cuda_geglu(float *y, const float *z, int M, int C)
{
    int vectorized = C % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(y, z),
        vectors = vectorized ? C / CUDA_VECTOR_WIDTH : C;
    return CUDA_LAUNCH_VECTORIZED(vectorized, gate, cuda_row_grid(M, vectors), CUDA_THREADS, y, z,
                                  M, vectors);
}

template <int WIDTH>
__global__ void gate_backward(float *dz, const float *dy, const float *z, int M, int vectors)
{
    size_t C = (size_t)vectors * WIDTH;
    cuda_each_row(M, vectors, [=](int m, int c) {
        size_t at = (size_t)m * C + (size_t)c * WIDTH, wide = at + (size_t)m * C;
        auto u = cuda_load<WIDTH>(z + wide), g = cuda_load<WIDTH>(z + wide + C);
        auto d = cuda_load<WIDTH>(dy + at);
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++) {
            float gk = g.at[k], uk = u.at[k], dk = d.at[k];
            u.at[k] = dk * gelu(gk);
            g.at[k] = dk * uk * gelu_slope(gk);
        }
        cuda_store(dz + wide, u);
        cuda_store(dz + wide + C, g);
    });
}

int cuda_geglu_backward(float *dz, const float *dy, const float *z, int M, int C)
{
    int vectorized = C % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(dz, dy, z),
        vectors = vectorized ? C / CUDA_VECTOR_WIDTH : C;
    return CUDA_LAUNCH_VECTORIZED(vectorized, gate_backward, cuda_row_grid(M, vectors),
                                  CUDA_THREADS, dz, dy, z, M, vectors);
}

/* z from row m on: in the caller's buffer if it saves z, otherwise in scratch that is reused. */
static float *rows_of_z(float *saved_z, float *scratch, int m, int C)
{
    return saved_z ? saved_z + 2 * (size_t)m * (size_t)C : scratch;
}

int cuda_ffn(float *y, float *saved_z, const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    size_t row = (saved_z ? 1 : 3) * (size_t)C;
    int rc, some = ffn_rows_at_once(M, row * sizeof *y);
    float *h;
    if (cuda_bf16()) return cuda_ffn_bf16(y, saved_z, x, w, M, D, C);
    h = (float *)cuda_scratch(&rc, CUDA_SLOT_LAYER, (size_t)some * row * sizeof *h);
    for (int m = 0; rc == PL_OK && m < M; m += some) {
        int rows = M - m < some ? M - m : some;
        float *z = rows_of_z(saved_z, h + (size_t)some * (size_t)C, m, C);
        rc = cuda_linear(z, x + (size_t)m * (size_t)D, w->W1, w->b1, rows, D, 2 * C);
        if (rc == PL_OK) rc = cuda_geglu(h, z, rows, C);
        if (rc == PL_OK) rc = cuda_linear(y + (size_t)m * (size_t)D, h, w->W2, w->b2, rows, C, D);
    }
    return rc;
}

int cuda_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy, float *saved_z,
                      const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    size_t row = (saved_z ? 2 : 4) * (size_t)C;
    int rc, some = ffn_rows_at_once(M, row * sizeof *dx);
    float *h, *dh;
    if (cuda_bf16()) return cuda_ffn_bf16_backward(y, dx, dw, dy, saved_z, x, w, M, D, C);
    h = (float *)cuda_scratch(&rc, CUDA_SLOT_LAYER, (size_t)some * row * sizeof *h);
    dh = h + (size_t)some * (size_t)C;
    for (int m = 0; rc == PL_OK && m < M; m += some) {
        int rows = M - m < some ? M - m : some;
        size_t at = (size_t)m * (size_t)D;
        float *z = rows_of_z(saved_z, dh + (size_t)some * (size_t)C, m, C);
        if (!saved_z) rc = cuda_linear(z, x + at, w->W1, w->b1, rows, D, 2 * C);
        if (rc == PL_OK) rc = cuda_geglu(h, z, rows, C);
        if (rc == PL_OK && y) rc = cuda_linear(y + at, h, w->W2, w->b2, rows, C, D);
        if (rc == PL_OK) rc = cuda_linear_dw(dw->W2, dw->b2, dy + at, h, rows, C, D);
        if (rc == PL_OK) rc = cuda_linear_dx(dh, dy + at, w->W2, rows, C, D, 0);
        if (rc == PL_OK) rc = cuda_geglu_backward(z, dh, z, rows, C); /* z is dz from here on */
        if (rc == PL_OK) rc = cuda_linear_dw(dw->W1, dw->b1, z, x + at, rows, D, 2 * C);
        if (rc == PL_OK) rc = cuda_linear_dx(dx + at, z, w->W1, rows, D, 2 * C, 0);
    }
    return rc;
}
