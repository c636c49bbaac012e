/* outer_steps.cu - outer steps, at the speed of memory. The build fuses no multiply-add, so each
 * product and sum is rounded once, as in the reference. */
#include "../ref/outer/outer_steps.h"

#include "vectorized.cuh"
#include "bf16_weights.cuh"

template <int WIDTH>
__global__ void nesterov(float *phi, float *b, const float *g, size_t n, float mu, float nu)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto p = cuda_load<width.is>(phi + i), m = cuda_load<width.is>(b + i);
        auto grad = cuda_load<width.is>(g + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) {
            m.at[k] = mu * m.at[k] + grad.at[k];
            p.at[k] -= nu * (grad.at[k] + mu * m.at[k]);
        }
        cuda_store(b + i, m);
        cuda_store(phi + i, p);
    });
}

int cuda_outer_nesterov(float *phi, float *b, const float *g, size_t n, float mu, float nu)
{
    int vectorized = cuda_is_vectorizable(phi, b, g);
    if (!n) return PL_OK;
    cuda_written(phi, n * sizeof *phi);
    return CUDA_LAUNCH_VECTORIZED(vectorized, nesterov, cuda_vector_blocks(vectorized, n),
                                  CUDA_THREADS, phi, b, g, n, mu, nu);
}

template <int WIDTH>
__global__ void mix(float *theta, const float *phi, size_t n, float alpha, float rest)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto t = cuda_load<width.is>(theta + i), p = cuda_load<width.is>(phi + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) t.at[k] = alpha * t.at[k] + rest * p.at[k];
        cuda_store(theta + i, t);
    });
}

int cuda_outer_mix(float *theta, const float *phi, size_t n, float alpha)
{
    int vectorized = cuda_is_vectorizable(theta, phi);
    if (!n) return PL_OK;
    cuda_written(theta, n * sizeof *theta);
    return CUDA_LAUNCH_VECTORIZED(vectorized, mix, cuda_vector_blocks(vectorized, n), CUDA_THREADS,
                                  theta, phi, n, alpha, 1 - alpha);
}

template <int WIDTH>
__global__ void gossip(float *phi, float *b, const float *change, const float *mean, size_t n,
                       float mu, float nu, float gamma)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto p = cuda_load<width.is>(phi + i), m = cuda_load<width.is>(b + i);
        auto d = cuda_load<width.is>(change + i), c = cuda_load<width.is>(mean + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) {
            m.at[k] = mu * m.at[k] + nu * d.at[k] + gamma * (c.at[k] - p.at[k]);
            p.at[k] += m.at[k];
        }
        cuda_store(b + i, m);
        cuda_store(phi + i, p);
    });
}

int cuda_outer_gossip(float *phi, float *b, const float *change, const float *mean, size_t n,
                      float mu, float nu, float gamma)
{
    int vectorized = cuda_is_vectorizable(phi, b, change, mean);
    if (!n) return PL_OK;
    cuda_written(phi, n * sizeof *phi);
    return CUDA_LAUNCH_VECTORIZED(vectorized, gossip, cuda_vector_blocks(vectorized, n),
                                  CUDA_THREADS, phi, b, change, mean, n, mu, nu, gamma);
}

template <int WIDTH> __global__ void sign_step(float *x, const float *u, size_t n, float rate)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto v = cuda_load<width.is>(x + i), w = cuda_load<width.is>(u + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) v.at[k] -= rate * (float)((w.at[k] > 0) - (w.at[k] < 0));
        cuda_store(x + i, v);
    });
}

int cuda_sign_step(float *x, const float *u, size_t n, float rate)
{
    int vectorized = cuda_is_vectorizable(x, u);
    if (!n) return PL_OK;
    cuda_written(x, n * sizeof *x);
    return CUDA_LAUNCH_VECTORIZED(vectorized, sign_step, cuda_vector_blocks(vectorized, n),
                                  CUDA_THREADS, x, u, n, rate);
}
