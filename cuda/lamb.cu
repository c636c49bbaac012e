/* lamb.cu - one pass over the tensor for moments, update and both norms, a second for the weights;
 * the trust ratio between them is worked out on the device. */
#include "../ref/lamb.h"

#include "moments.cuh"
#include "weights.cuh"

#include <math.h>

struct lamb_step {
    struct decay_rates rates;
    float eps, decay;
    double lr, clamp;
};

static struct lamb_step step_of(const struct pl_lamb *s)
{
    struct lamb_step r = { rates_of(s->beta1, s->beta2, s->clip), (float)s->eps, (float)s->decay,
                           s->lr, s->clamp };
    return r;
}

static __device__ float lamb_update(float m, float v, float p, const struct lamb_step *s)
{
    float u = m / (sqrtf(v) + s->eps);
    return s->decay != 0 ? fmaf(s->decay, p, u) : u;
}

/* part (2, blocks): each block's sums of squares of p and u. */
static __device__ void leave_sums(double *part, double pp, double uu)
{
    pp = cuda_block_sum(pp);
    uu = cuda_block_sum(uu);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = pp;
        part[gridDim.x + blockIdx.x] = uu;
    }
}

__global__ void lamb_float(double *part, float *u, const float *g, const float *p, float *m,
                           float *v, size_t n, struct lamb_step s)
{
    double pp = 0, uu = 0;
    CUDA_EACH(i, n) {
        float mi = m[i], vi = v[i], ui;
        advance(&mi, &vi, g[i], s.rates);
        m[i] = mi;
        v[i] = vi;
        u[i] = ui = lamb_update(mi, vi, p[i], &s);
        pp += (double)p[i] * p[i];
        uu += (double)ui * ui;
    }
    leave_sums(part, pp, uu);
}

__global__ void lamb_coded(double *part, float *u, const float *g, const float *p,
                           struct coded_moments c, size_t n, struct lamb_step s)
{
    double pp = 0, uu = 0;
    advance_block(&c, g, n, s.rates, [&](size_t i, float m, float v) {
        float ui = lamb_update(m, v, p[i], &s);
        u[i] = ui;
        pp += (double)p[i] * p[i];
        uu += (double)ui * ui;
    });
    leave_sums(part, pp, uu);
}

/* One block: the norms from `parts` blocks' sums. */
__global__ void find_trust(struct pl_lamb_norms *norms, const double *part, size_t parts,
                           double clamp)
{
    double pp = 0, uu = 0;
    for (size_t i = threadIdx.x; i < parts; i += CUDA_THREADS) {
        pp += part[i];
        uu += part[parts + i];
    }
    pp = cuda_block_sum(pp);
    uu = cuda_block_sum(uu);
    if (threadIdx.x == 0) {
        norms->weight = (float)fmin(sqrt(pp), clamp);
        norms->step = (float)sqrt(uu);
        norms->trust = norms->weight == 0 || norms->step == 0 ? 1 : norms->weight / norms->step;
    }
}

__global__ void take_step(float *p, const float *u, const struct pl_lamb_norms *norms, size_t n,
                          double lr)
{
    float k = (float)(-lr * norms->trust);
    CUDA_EACH(i, n) p[i] = fmaf(k, u[i], p[i]);
}

int cuda_lamb(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
              const struct pl_moments *m, size_t n, const struct pl_lamb *step)
{
    struct lamb_step s = step_of(step);
    size_t blocks = m->value[0] ? cuda_blocks(n) : pl_blocks(n, m->block);
    double *part;
    struct pl_lamb_norms *found;
    int rc;
    part = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS, 2 * blocks * sizeof *part + sizeof *found);
    if (rc != PL_OK) return rc;
    found = (struct pl_lamb_norms *)(part + 2 * blocks);
    cuda_written(p, n * sizeof *p);
    if (m->value[0])
        rc = PL_LAUNCH(lamb_float, (unsigned)blocks, CUDA_THREADS, part, u, g, p, m->value[0],
                       m->value[1], n, s);
    else
        rc = PL_LAUNCH(lamb_coded, (unsigned)blocks, CUDA_THREADS, part, u, g, p,
                       coded_moments_of(m), n, s);
    if (rc == PL_OK) rc = PL_LAUNCH(find_trust, 1, CUDA_THREADS, found, part, blocks, s.clamp);
    if (rc == PL_OK) rc = PL_LAUNCH(take_step, cuda_blocks(n), CUDA_THREADS, p, u, found, n, s.lr);
    return rc == PL_OK ? cuda_get(norms, found, sizeof *norms) : rc;
}
