/* adam.cu - one pass: moments and weights together. */
#include "../ref/adam.h"

#include "moments.cuh"
#include "weights.cuh"

#include <math.h>

struct adam_step {
    struct decay_rates rates;
    float eps, keep, k, root;
};

static __device__ float adam_update(float p, float m, float v, const struct adam_step *s)
{
    return fmaf(s->k, m / (sqrtf(v) / s->root + s->eps), p * s->keep);
}

__global__ void adam_float(float *p, const float *g, float *m, float *v, size_t n,
                           struct adam_step s)
{
    CUDA_EACH(i, n) {
        float mi = m[i], vi = v[i];
        advance(&mi, &vi, g[i], s.rates);
        m[i] = mi;
        v[i] = vi;
        p[i] = adam_update(p[i], mi, vi, &s);
    }
}

__global__ void adam_coded(float *p, const float *g, struct coded_moments c, size_t n,
                           struct adam_step s)
{
    advance_block(&c, g, n, s.rates,
                  [&](size_t i, float m, float v) { p[i] = adam_update(p[i], m, v, &s); });
}

int cuda_adam(float *p, const float *g, const struct pl_moments *m, size_t n,
              const struct pl_adam *step)
{
    struct adam_step s = { rates_of(step->beta1, step->beta2, step->clip), (float)step->eps,
                           (float)(1 - step->lr * step->decay), (float)(-step->lr / step->bias1),
                           (float)sqrt(step->bias2) };
    cuda_written(p, n * sizeof *p);
    if (m->value[0])
        return PL_LAUNCH(adam_float, cuda_blocks(n), CUDA_THREADS, p, g, m->value[0], m->value[1],
                         n, s);
    return PL_LAUNCH(adam_coded, (unsigned)pl_blocks(n, m->block), CUDA_THREADS, p, g,
                     coded_moments_of(m), n, s);
}
