/* adam.cu - Adam in one pass over memory: moments and weights are updated together. */
#include "../ref/adam.h"

#include "optimizer_moments.cuh"
#include "bf16_weights.cuh"

#include <math.h>

struct adam_step {
    struct decay_rates rates;
    float eps, keep, k, root;
};

static __device__ float adam_update(float p, float m, float v, const struct adam_step *s)
{
    return fmaf(s->k, m / (sqrtf(v) / s->root + s->eps), p * s->keep);
}

template <int WIDTH>
__global__ void adam_float(float *p, const float *g, float *m, float *v, size_t n,
                           struct adam_step s)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        constexpr int W = width.is;
        auto mi = cuda_load<W>(m + i), vi = cuda_load<W>(v + i), gi = cuda_load<W>(g + i);
        auto pi = cuda_load<W>(p + i);
        PL_UNROLL
        for (int k = 0; k < W; k++) {
            advance(&mi.at[k], &vi.at[k], gi.at[k], s.rates);
            pi.at[k] = adam_update(pi.at[k], mi.at[k], vi.at[k], &s);
        }
        cuda_store(m + i, mi);
        cuda_store(v + i, vi);
        cuda_store(p + i, pi);
    });
}

template <int WIDTH, int RUN>
static __device__ void adam_blocks(float *p, const float *g, const struct coded_moments *c,
                                   size_t n, const struct adam_step *s)
{
    typedef cuda_vector<float, WIDTH> vector;
    advance_blocks<WIDTH, RUN>(c, g, n, s->rates, [&](size_t i, size_t left, vector m, vector v) {
        auto pi = cuda_load_some<WIDTH>(p + i, left);
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++) pi.at[k] = adam_update(pi.at[k], m.at[k], v.at[k], s);
        cuda_store_some(p + i, pi, left);
    });
}
template <int WIDTH>
__global__ void __launch_bounds__(CUDA_THREADS, 3)
    adam_run(float *p, const float *g, struct coded_moments c, size_t n, struct adam_step s)
{
    adam_blocks<WIDTH, 1>(p, g, &c, n, &s);
}
template <int WIDTH>
__global__ void adam_searched(float *p, const float *g, struct coded_moments c, size_t n,
                              struct adam_step s)
{
    adam_blocks<WIDTH, 0>(p, g, &c, n, &s);
}

int cuda_adam(float *p, const float *g, const struct pl_moments *m, size_t n,
              const struct pl_adam *step)
{
    struct adam_step s = { rates_of(step->beta1, step->beta2, step->clip), (float)step->eps,
                           (float)(1 - step->lr * step->decay), (float)(-step->lr / step->bias1),
                           (float)sqrt(step->bias2) };
    int vectorized = cuda_is_vectorizable(p, g), rc;
    struct coded_moments c;
    unsigned blocks, threads;
    cuda_written(p, n * sizeof *p);
    if (m->value[0]) {
        vectorized = vectorized && cuda_is_vectorizable(m->value[0], m->value[1]);
        return CUDA_LAUNCH_VECTORIZED(vectorized, adam_float, cuda_vector_blocks(vectorized, n),
                                      CUDA_THREADS, p, g, m->value[0], m->value[1], n, s);
    }
    if ((rc = coded_moments_of(&c, m)) != PL_OK) return rc;
    vectorized = vectorized && is_vectorizable(m);
    blocks = cuda_value_grid(pl_blocks(n, m->block));
    threads = cuda_value_threads(m->block);
    return m->rule == PL_RULE_RUN
               ? CUDA_LAUNCH_VECTORIZED(vectorized, adam_run, blocks, threads, p, g, c, n, s)
               : CUDA_LAUNCH_VECTORIZED(vectorized, adam_searched, blocks, threads, p, g, c, n, s);
}
