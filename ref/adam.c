/* adam.c - the equations, block after block where the moments are 8-bit codes. */
#include "adam.h"

#include <math.h>

static void update(float *p, float *m, float *v, const float *g, size_t n,
                   const struct pl_adam *step)
{
    float b1 = (float)step->beta1, c1 = (float)(1 - step->beta1), eps = (float)step->eps;
    float b2 = (float)step->beta2, c2 = (float)(1 - step->beta2);
    float keep = (float)(1 - step->lr * step->decay), k = (float)(-step->lr / step->bias1);
    float root = (float)sqrt(step->bias2);
    for (size_t i = 0; i < n; i++) {
        float gi = step->clip * g[i];
        m[i] = fmaf(gi, c1, m[i] * b1);
        v[i] = fmaf(c2 * gi, gi, v[i] * b2);
        p[i] = fmaf(k, m[i] / (sqrtf(v[i]) / root + eps), p[i] * keep);
    }
}

int ref_adam(float *p, const float *g, const struct pl_moments *s, size_t n,
             const struct pl_adam *step)
{
    float book[2][PL_CODES], *m, *v;
    if (s->value[0]) {
        update(p, s->value[0], s->value[1], g, n, step);
        return PL_OK;
    }
    m = pl_alloc(s->block, sizeof *m);
    v = pl_alloc(s->block, sizeof *v);
    if (!m || !v) {
        pl_free(m);
        pl_free(v);
        return PL_ENOMEM;
    }
    pl_codebook(book[0], PL_MAP_SIGNED, s->rule);
    pl_codebook(book[1], PL_MAP_UNSIGNED, s->rule);
    for (size_t b = 0, at = 0; at < n; b++, at += s->block) {
        size_t some = n - at < s->block ? n - at : s->block;
        ref_dequantize(m, s->code[0] + at, s->absmax[0] + b, some, s->block, book[0]);
        ref_dequantize(v, s->code[1] + at, s->absmax[1] + b, some, s->block, book[1]);
        update(p + at, m, v, g + at, some, step);
        ref_quantize(s->code[0] + at, s->absmax[0] + b, m, some, s->block, PL_MAP_SIGNED, s->rule);
        ref_quantize(s->code[1] + at, s->absmax[1] + b, v, some, s->block, PL_MAP_UNSIGNED,
                     s->rule);
    }
    pl_free(m);
    pl_free(v);
    return PL_OK;
}
