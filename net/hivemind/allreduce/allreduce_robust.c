/* allreduce_robust.c - CenteredClip in place of the mean, for groups with Byzantine peers.
 * [TTT 2.1, security] [Karimireddy et al. 2021, alg. 2]
 *
 *   v <- v + sum_k w_k (x_k - v) min(1, tau / |x_k - v|) / sum_k w_k,    beginning at the median
 *
 * A peer that is farther than tau from the middle pulls no harder than one at distance tau, so a
 * minority moves v by at most about tau, whatever it sends. tau is the distance that half of the
 * group is within, part by part. The mathematics is ref/centered_clip.c. */
#include "allreduce_reduce.h"
#include "ref/backend.h"

#include <string.h>

/* All peers' values of a part, ours first. */
static int collect(float *x, double *weight, int *n, const struct allreduce *x_,
                   const struct slot *s)
{
    const struct pl_part *part = &x_->parts[x_->reducing.own[s->k]];
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)part->length } };
    int rc = PL_OK;
    *n = 0;
    /* A peer of weight 0 has no values: an auxiliary peer's copy would pull towards where it
     * began. */
    if (x_->o.weight > 0) {
        memcpy(x, x_->o.tensor[part->tensor] + part->start, part->length * sizeof *x);
        weight[(*n)++] = x_->o.weight;
    }
    for (size_t i = 0; !rc && i < s->arrived; i++) {
        const struct part_message *m = &s->from[i].part;
        if (s->from[i].bad || m->weight <= 0) continue;
        rc = pl_wire_decode(x + (size_t)*n * part->length, x_->o.be, m->method, &type, m->buffer,
                            m->bytes, NULL);
        weight[(*n)++] = m->weight;
    }
    return rc;
}

#define TRIES 3 /* each try computes the radius from the distances to the last try's centre */
/* tolerance, as a fraction of the radius: with half the group unclipped each step at least halves
 * the error */
#define CONVERGED 1e-7
#define ITERATIONS_MAX 100

int allreduce_aggregate(struct allreduce *x, const struct slot *s, struct pl_reducer *r,
                        float *aggregate, double *tau)
{
    size_t d = r->n;
    float *values = pl_alloc(x->count * d, sizeof *values);
    double *v = pl_alloc(d, sizeof *v), *weight = pl_alloc(2 * x->count, sizeof *weight);
    struct pl_clip_result result;
    int n = 0, rc = values && v && weight ? collect(values, weight, &n, x, s) : PL_ENOMEM;
    *tau = r->weight = 0;
    if (!rc && !n) rc = PL_EUSE; /* no peer has samples: there is nothing to aggregate */
    for (int i = 0; !rc && i < n; i++) r->weight += weight[i];
    if (!rc && d) rc = x->o.be->median(aggregate, values, n, d, 0);
    for (int i = 0; !rc && d && i < TRIES; i++) {
        struct pl_clip clip = { .iterations = ITERATIONS_MAX, .stop_largest = -1 };
        for (size_t k = 0; k < d; k++) v[k] = aggregate[k];
        *tau = clip.tau = pl_usual_distance(weight, values, v, n, d);
        /* Verification checks sum_i (x_i - v) min(1, tau / |x_i - v|) = 0, which holds at
         * the fixed point only: so it iterates until a step is negligible next to tau, not
         * five times. */
        clip.stop_norm = CONVERGED * clip.tau;
        /* tau = 0: half of the peers have the same values, and the median is these already. */
        if (*tau > 0) rc = x->o.be->centered_clip(v, &result, values, NULL, n, d, &clip);
        for (size_t k = 0; k < d; k++) aggregate[k] = (float)v[k];
    }
    pl_free(values);
    pl_free(v);
    pl_free(weight);
    return rc;
}

int allreduce_clip(struct allreduce *x, const struct slot *s, struct pl_reducer *r)
{
    const struct pl_backend *be = x->o.be;
    size_t d = r->n;
    float *sum = pl_reducer_sum(r), *values = pl_alloc(x->count * d, sizeof *values);
    double *v = pl_alloc(d, sizeof *v), *weight = pl_alloc(x->count, sizeof *weight);
    int n = 0, rc = sum && values && v && weight ? collect(values, weight, &n, x, s) : PL_ENOMEM;
    if (!rc && n)
        rc = pl_clipped_mean(v, weight, values, n, d, x->o.clip, be->centered_clip, be->median);
    r->weight = 0;
    for (int i = 0; !rc && i < n; i++) r->weight += weight[i];
    /* Answers are divided by the weight later, so mean * weight is stored. */
    for (size_t k = 0; !rc && n && k < d; k++) sum[k] = (float)(v[k] * r->weight);
    pl_free(values);
    pl_free(v);
    pl_free(weight);
    return rc;
}
