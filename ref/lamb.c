/* lamb.c - the update as the run's optimizer orders it: float32 operations in its order for what is
 * stored, sums in double for the norms. */
#include "lamb.h"

#include <assert.h>
#include <math.h>

/* m, v and u of `n` elements; adds up the squares of p and u. */
static void update(float *m, float *v, float *u, const float *g, const float *p, size_t n,
                   const struct pl_lamb *step, double *pp, double *uu)
{
    float b1 = (float)step->beta1, c1 = (float)(1 - step->beta1), eps = (float)step->eps;
    float b2 = (float)step->beta2, c2 = (float)(1 - step->beta2), decay = (float)step->decay;
    for (size_t i = 0; i < n; i++) {
        float gi = step->clip * g[i];
        m[i] = fmaf(gi, c1, m[i] * b1);
        v[i] = fmaf(c2 * gi, gi, v[i] * b2);
        u[i] = m[i] / (sqrtf(v[i]) + eps);
        if (decay != 0) u[i] = fmaf(decay, p[i], u[i]);
        *pp += (double)p[i] * p[i];
        *uu += (double)u[i] * u[i];
    }
}

int ref_lamb(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
             const struct pl_moments *s, size_t n, const struct pl_lamb *step)
{
    size_t chunk = !step->chunk || step->chunk > n ? n : step->chunk;
    double pp = 0, uu = 0;
    float k;
    if (s->value[0]) update(s->value[0], s->value[1], u, g, p, n, step, &pp, &uu);
    else {
        float *m = pl_alloc(chunk, sizeof *m), *v = pl_alloc(chunk, sizeof *v), book[2][PL_CODES];
        if (!m || !v) {
            pl_free(m);
            pl_free(v);
            return PL_ENOMEM;
        }
        assert(chunk == n || chunk % s->block == 0);
        pl_codebook(book[0], PL_MAP_SIGNED, s->rule);
        pl_codebook(book[1], PL_MAP_UNSIGNED, s->rule);
        for (size_t at = 0; at < n; at += chunk) {
            size_t some = n - at < chunk ? n - at : chunk, b = at / s->block;
            ref_dequantize(m, s->code[0] + at, s->absmax[0] + b, some, s->block, book[0]);
            ref_dequantize(v, s->code[1] + at, s->absmax[1] + b, some, s->block, book[1]);
            update(m, v, u + at, g + at, p + at, some, step, &pp, &uu);
            ref_quantize(s->code[0] + at, s->absmax[0] + b, m, some, s->block, PL_MAP_SIGNED,
                         s->rule);
            ref_quantize(s->code[1] + at, s->absmax[1] + b, v, some, s->block, PL_MAP_UNSIGNED,
                         s->rule);
        }
        pl_free(m);
        pl_free(v);
    }
    norms->weight = (float)fmin(sqrt(pp), step->clamp);
    norms->step = (float)sqrt(uu);
    norms->trust = norms->weight == 0 || norms->step == 0 ? 1 : norms->weight / norms->step;
    k = (float)(-step->lr * norms->trust);
    for (size_t i = 0; i < n; i++) p[i] = fmaf(k, u[i], p[i]);
    return PL_OK;
}
