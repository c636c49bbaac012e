/* lamb.c - LAMB in two passes over memory. The first decodes a block of moments, updates it,
 * accumulates the norms of parameters and update, and encodes it again while it is in L1; the
 * update overwrites the gradient. The second pass adds the scaled update to the parameters. Loops
 * are plain C over groups of 16, so that sums have the same order for vectors of any width. */
#include "optimizer_moments.h"

#include <math.h>

#define LANES 16
#define PIECE 65536

struct step {
    float *p, *u;
    const float *g;
    float clip, beta1, rest1, beta2, rest2, eps, decay;
};

FAST_INLINE void group(const struct step *s, float *m, float *v, size_t at, int n, double *pp,
                       double *uu)
{
    float p[LANES] = { 0 }, u[LANES] = { 0 };
    for (int k = 0; k < n; k++) p[k] = s->p[at + (size_t)k];
    for (int k = 0; k < n; k++) {
        float g = s->clip * s->g[at + (size_t)k];
        m[k] = fast_fma(g, s->rest1, m[k] * s->beta1);
        v[k] = fast_fma(s->rest2 * g, g, v[k] * s->beta2);
        u[k] = m[k] / (sqrtf(v[k]) + s->eps);
        if (s->decay != 0) u[k] = fast_fma(s->decay, p[k], u[k]);
    }
    for (int k = 0; k < n; k++) s->u[at + (size_t)k] = u[k];
    for (int k = 0; k < LANES; k++) {
        pp[k] += (double)p[k] * (double)p[k];
        uu[k] += (double)u[k] * (double)u[k];
    }
}

FAST_CLONES static void update(const void *context, float *m, float *v, size_t at, size_t n,
                               double sums[2])
{
    const struct step s = *(const struct step *)context;
    double pp[LANES] = { 0 }, uu[LANES] = { 0 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) group(&s, m + i, v + i, at + i, LANES, pp, uu);
    if (i < n) group(&s, m + i, v + i, at + i, (int)(n - i), pp, uu);
    for (int k = 0; k < LANES; k++) {
        sums[0] += pp[k];
        sums[1] += uu[k];
    }
}

FAST_CLONES static void add(float *p, float k, const float *u, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) p[i] = fast_fma(k, u[i], p[i]);
}

int fast_lamb(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
              const struct pl_moments *moments, size_t n, const struct pl_lamb *c)
{
    struct step s = {
        .p = p,
        .u = u,
        .g = g,
        .clip = c->clip,
        .beta1 = (float)c->beta1,
        .rest1 = (float)(1 - c->beta1),
        .beta2 = (float)c->beta2,
        .rest2 = (float)(1 - c->beta2),
        .eps = (float)c->eps,
        .decay = (float)c->decay,
    };
    double sums[2];
    float k;
    int rc = fast_moments(sums, moments, n, update, &s);
    if (rc == PL_EUSE) rc = ref_lamb(norms, p, u, g, moments, n, c);
    else if (rc == PL_OK) {
        norms->weight = (float)fmin(sqrt(sums[0]), c->clamp);
        norms->step = (float)sqrt(sums[1]);
        norms->trust = norms->weight == 0 || norms->step == 0 ? 1 : norms->weight / norms->step;
        k = (float)(-c->lr * norms->trust);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > PIECE)
        for (size_t at = 0; at < n; at += PIECE)
            add(p + at, k, u + at, n - at < PIECE ? n - at : PIECE);
    }
    fast_written(p, n * sizeof *p);
    return rc;
}
