/* lamb.c - LAMB: Adam's direction for each parameter, and a step length for each tensor.
 * [LAMB alg. 2] [TTT 3.3]
 *
 *   1. moments    m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
 *   2. direction  u = m / (sqrt(v) + eps) + decay p
 *   3. trust      r = |p| / |u|, norms over the tensor
 *   4. step       p = p - lr r u
 *
 * Batches of thousands of samples want a high learning rate, and a rate at which one tensor still
 * learns destroys another. With r every tensor moves by lr times its own norm, however large its
 * gradients are; or however small: biases of rare words, which all fall, grow by (1 + lr) a step,
 * and so does the noise of a step. The clamp of r bounds that.
 *
 * Stored values are float32, in the order of operations of the reference run's optimizer; norms are
 * summed in double. Where the moments are 8-bit codes, pl_moments_step decodes and encodes them
 * around 1. */
#include "lamb.h"

#include <math.h>

struct update {
    const struct pl_lamb *step;
    const float *g, *p;
    float *u;
    double pp, uu; /* |p|^2, |u|^2 */
};

static void update_moments(void *context, float *m, float *v, size_t begin, size_t n)
{
    struct update *t = context;
    const struct pl_lamb *step = t->step;
    const float *g = t->g + begin, *p = t->p + begin;
    float *u = t->u + begin;
    float b1 = (float)step->beta1, c1 = (float)(1 - step->beta1), eps = (float)step->eps;
    float b2 = (float)step->beta2, c2 = (float)(1 - step->beta2), decay = (float)step->decay;
    for (size_t i = 0; i < n; i++) {
        float gi = step->clip * g[i];
        m[i] = fmaf(gi, c1, m[i] * b1); /* 1. */
        v[i] = fmaf(c2 * gi, gi, v[i] * b2);
        u[i] = m[i] / (sqrtf(v[i]) + eps); /* 2. */
        if (decay != 0) u[i] = fmaf(decay, p[i], u[i]);
        t->pp += (double)p[i] * p[i];
        t->uu += (double)u[i] * u[i];
    }
}

int ref_lamb(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
             const struct pl_moments *moments, size_t n, const struct pl_lamb *step)
{
    struct update t = { .step = step, .g = g, .p = p, .u = u };
    int rc = pl_moments_step(moments, n, step->chunk, update_moments, &t);
    float k;
    if (rc) return rc;
    /* 3. The weight norm is clamped (1e4 in the reference run); a tensor of zeros, as biases are at
     * first, has no norm to go by: r = 1. */
    norms->weight = (float)fmin(sqrt(t.pp), step->clamp);
    norms->step = (float)sqrt(t.uu);
    norms->trust = norms->weight == 0 || norms->step == 0 ? 1 : norms->weight / norms->step;
    /* 4. */
    k = (float)(-step->lr * norms->trust);
    for (size_t i = 0; i < n; i++) p[i] = fmaf(k, u[i], p[i]);
    return PL_OK;
}
