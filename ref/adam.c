/* adam.c - Adam with decoupled weight decay, for the 8-bit fine-tuning of the tutorial.
 * [Adam alg. 1] [AdamW alg. 2] [TTT 2.3]
 *
 *   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
 *   p = (1 - lr decay) p - lr (m / bias1) / (sqrt(v / bias2) + eps)
 *
 * bias1 = 1 - beta1^t and bias2 = 1 - beta2^t undo that both means began at zero. Decay shrinks p
 * directly: as part of g it would be divided by sqrt(v) too, which spares the very parameters that
 * have large gradients. */
#include "adam.h"

#include <math.h>

struct update {
    const struct pl_adam *step;
    const float *g;
    float *p;
};

static void update(void *context, float *m, float *v, size_t begin, size_t n)
{
    const struct update *t = context;
    const struct pl_adam *step = t->step;
    const float *g = t->g + begin;
    float *p = t->p + begin;
    float b1 = (float)step->beta1, c1 = (float)(1 - step->beta1), eps = (float)step->eps;
    float b2 = (float)step->beta2, c2 = (float)(1 - step->beta2);
    float shrink = (float)(1 - step->lr * step->decay), k = (float)(-step->lr / step->bias1);
    float root = (float)sqrt(step->bias2);
    for (size_t i = 0; i < n; i++) {
        float gi = step->clip * g[i];
        m[i] = fmaf(gi, c1, m[i] * b1);
        v[i] = fmaf(c2 * gi, gi, v[i] * b2);
        p[i] = fmaf(k, m[i] / (sqrtf(v[i]) / root + eps), p[i] * shrink);
    }
}

int ref_adam(float *p, const float *g, const struct pl_moments *moments, size_t n,
             const struct pl_adam *step)
{
    struct update t = { .step = step, .g = g, .p = p };
    return pl_moments_step(moments, n, moments->block, update, &t);
}
