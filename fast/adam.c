/* adam.c - Adam in one pass over memory. Moments are stored as 8-bit codes in blocks: each block is
 * decoded, its moments and parameters are updated, and it is encoded again while it is in L1. */
#include "optimizer_moments.h"

#include <math.h>

struct step {
    float *p;
    const float *g;
    float clip, beta1, rest1, beta2, rest2, eps, keep, k, root;
};

FAST_CLONES static void update(const void *context, float *m, float *v, size_t at, size_t n,
                               double sums[2])
{
    const struct step s = *(const struct step *)context;
    float *p = s.p + at;
    const float *g = s.g + at;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float gi = s.clip * g[i];
        m[i] = fast_fma(gi, s.rest1, m[i] * s.beta1);
        v[i] = fast_fma(s.rest2 * gi, gi, v[i] * s.beta2);
        p[i] = fast_fma(s.k, m[i] / (sqrtf(v[i]) / s.root + s.eps), p[i] * s.keep);
    }
}

int fast_adam(float *p, const float *g, const struct pl_moments *moments, size_t n,
              const struct pl_adam *c)
{
    struct step s = {
        .p = p,
        .g = g,
        .clip = c->clip,
        .beta1 = (float)c->beta1,
        .rest1 = (float)(1 - c->beta1),
        .beta2 = (float)c->beta2,
        .rest2 = (float)(1 - c->beta2),
        .eps = (float)c->eps,
        .keep = (float)(1 - c->lr * c->decay),
        .k = (float)(-c->lr / c->bias1),
        .root = (float)sqrt(c->bias2),
    };
    double sums[2];
    int rc = fast_moments(sums, moments, n, update, &s);
    if (rc == PL_EUSE) rc = ref_adam(p, g, moments, n, c);
    fast_written(p, n * sizeof *p);
    return rc;
}
