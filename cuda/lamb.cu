/* lamb.cu - LAMB in two passes: one for moments, update and both norms, one for the weights. The
 * trust ratio between them is computed on the device. */
#include "../ref/lamb.h"

#include "optimizer_moments.cuh"
#include "bf16_weights.cuh"

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

/* part (2, blocks): each block's sum of squares of p and of u. */
static __device__ void leave_sums(double *part, double pp, double uu)
{
    pp = cuda_block_sum(pp);
    uu = cuda_block_sum(uu);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = pp;
        part[gridDim.x + blockIdx.x] = uu;
    }
}

template <int WIDTH>
__global__ void lamb_float(double *part, float *u, const float *g, const float *p, float *m,
                           float *v, size_t n, struct lamb_step s)
{
    double pp = 0, uu = 0;
    cuda_each_vector<WIDTH>(n, [&](size_t i, auto width) {
        constexpr int W = width.is;
        auto mi = cuda_load<W>(m + i), vi = cuda_load<W>(v + i), gi = cuda_load<W>(g + i);
        auto pi = cuda_load<W>(p + i), ui = pi;
        PL_UNROLL
        for (int k = 0; k < W; k++) {
            advance(&mi.at[k], &vi.at[k], gi.at[k], s.rates);
            ui.at[k] = lamb_update(mi.at[k], vi.at[k], pi.at[k], &s);
            pp += (double)pi.at[k] * pi.at[k];
            uu += (double)ui.at[k] * ui.at[k];
        }
        cuda_store(m + i, mi);
        cuda_store(v + i, vi);
        cuda_store(u + i, ui);
    });
    leave_sums(part, pp, uu);
}

template <int WIDTH, int RUN>
static __device__ void lamb_blocks(double *part, float *u, const float *g, const float *p,
                                   const struct coded_moments *c, size_t n,
                                   const struct lamb_step *s)
{
    typedef cuda_vector<float, WIDTH> vector;
    double pp = 0, uu = 0;
    advance_blocks<WIDTH, RUN>(c, g, n, s->rates, [&](size_t i, size_t left, vector m, vector v) {
        auto pi = cuda_load_some<WIDTH>(p + i, left), ui = pi;
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++) {
            ui.at[k] = lamb_update(m.at[k], v.at[k], pi.at[k], s);
            if ((size_t)k >= left) continue;
            pp += (double)pi.at[k] * pi.at[k];
            uu += (double)ui.at[k] * ui.at[k];
        }
        cuda_store_some(u + i, ui, left);
    });
    leave_sums(part, pp, uu);
}
template <int WIDTH>
__global__ void __launch_bounds__(CUDA_THREADS, 3)
    lamb_run(double *part, float *u, const float *g, const float *p, struct coded_moments c,
             size_t n, struct lamb_step s)
{
    lamb_blocks<WIDTH, 1>(part, u, g, p, &c, n, &s);
}
template <int WIDTH>
__global__ void lamb_searched(double *part, float *u, const float *g, const float *p,
                              struct coded_moments c, size_t n, struct lamb_step s)
{
    lamb_blocks<WIDTH, 0>(part, u, g, p, &c, n, &s);
}

/* One block: the norms from the sums of `parts` blocks. */
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

template <int WIDTH>
__global__ void take_step(float *p, const float *u, const struct pl_lamb_norms *norms, size_t n,
                          double lr)
{
    float by = (float)(-lr * norms->trust);
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto pi = cuda_load<width.is>(p + i), ui = cuda_load<width.is>(u + i);
        PL_UNROLL
        for (int k = 0; k < width.is; k++) pi.at[k] = fmaf(by, ui.at[k], pi.at[k]);
        cuda_store(p + i, pi);
    });
}

int cuda_lamb(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
              const struct pl_moments *m, size_t n, const struct pl_lamb *step)
{
    struct lamb_step s = step_of(step);
    int coded = !m->value[0], vectorized = cuda_is_vectorizable(p, u, g), some, rc;
    unsigned blocks;
    double *part;
    struct pl_lamb_norms *found;
    struct coded_moments c;
    some = vectorized &&
           (coded ? is_vectorizable(m) : cuda_is_vectorizable(m->value[0], m->value[1]));
    blocks = coded ? cuda_value_grid(pl_blocks(n, m->block)) : cuda_vector_blocks(some, n);
    part = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS, 2 * blocks * sizeof *part + sizeof *found);
    if (rc == PL_OK && coded) rc = coded_moments_of(&c, m);
    if (rc != PL_OK) return rc;
    found = (struct pl_lamb_norms *)(part + 2 * blocks);
    cuda_written(p, n * sizeof *p);
    if (coded && m->rule == PL_RULE_RUN)
        rc = CUDA_LAUNCH_VECTORIZED(some, lamb_run, blocks, cuda_value_threads(m->block), part, u,
                                    g, p, c, n, s);
    else if (coded)
        rc = CUDA_LAUNCH_VECTORIZED(some, lamb_searched, blocks, cuda_value_threads(m->block), part,
                                    u, g, p, c, n, s);
    else
        rc = CUDA_LAUNCH_VECTORIZED(some, lamb_float, blocks, CUDA_THREADS, part, u, g, p,
                                    m->value[0], m->value[1], n, s);
    if (rc == PL_OK)
        rc = PL_LAUNCH(find_trust, 1, CUDA_THREADS, found, part, (size_t)blocks, s.clamp);
    if (rc == PL_OK)
        rc = CUDA_LAUNCH_VECTORIZED(vectorized, take_step, cuda_vector_blocks(vectorized, n),
                                    CUDA_THREADS, p, u, found, n, s.lr);
    return rc == PL_OK ? cuda_download(norms, found, sizeof *norms) : rc;
}
