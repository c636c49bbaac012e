/* allreduce_robust.c - CenteredClip in place of the mean, for groups with Byzantine peers.
 * [TTT 2.1, security] [Karimireddy et al. 2021, alg. 2]
 *
 *   v <- v + sum_k w_k (x_k - v) min(1, tau / |x_k - v|) / sum_k w_k,    beginning at the median
 *
 * A peer that is farther than tau from the middle pulls no harder than one at distance tau, so a
 * minority moves v by at most about tau, whatever it sends. tau is the distance that half of the
 * group is within, part by part. */
#include "allreduce_reduce.h"
#include "ref/backend.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* each reduces the remaining pull of the Byzantine peers on the centre; published: 1 to 50 */
#define ITERATIONS 5

/* tau: the median of the peers' distances from the middle. */
static double usual_distance(double *far, const float *x, const float *middle, int n, size_t d)
{
    for (int i = 0; i < n; i++) {
        const float *from = x + (size_t)i * d;
        double squares = 0;
        for (size_t k = 0; k < d; k++)
            squares += ((double)from[k] - middle[k]) * ((double)from[k] - middle[k]);
        /* |x_i - middle|, in float64: squares of float32 values fit without overflow. */
        far[i] = sqrt(squares);
    }
    qsort(far, (size_t)n, sizeof *far, pl_ascending);
    /* The upper median of an even number of distances: at least half of them are within it. */
    return far[n / 2];
}

/* A peer's number of samples cannot be checked, so a claim above the median counts as the median.
 * Of n peers a Byzantine one then has at most 2 / n of the weight. */
static void cap_weights(double *weight, double *scratch, int n)
{
    memcpy(scratch, weight, (size_t)n * sizeof *scratch);
    qsort(scratch, (size_t)n, sizeof *scratch, pl_ascending);
    for (int i = 0; i < n; i++) weight[i] = fmin(weight[i], scratch[n / 2]);
}

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
        *tau = clip.tau = usual_distance(weight, values, aggregate, n, d);
        /* Verification checks sum_i (x_i - v) min(1, tau / |x_i - v|) = 0, which holds at
         * the fixed point only: so it iterates until a step is negligible next to tau, not
         * five times. */
        clip.stop_norm = CONVERGED * clip.tau;
        for (size_t k = 0; k < d; k++) v[k] = aggregate[k];
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
    size_t d = r->n;
    float *sum = pl_reducer_sum(r), *values = pl_alloc(x->count * d + d, sizeof *values),
          *middle = values ? values + x->count * d : NULL;
    double *v = pl_alloc(d, sizeof *v), *weight = pl_alloc(2 * x->count, sizeof *weight);
    double *scratch = weight ? weight + x->count : NULL;
    struct pl_clip clip = { .iterations = ITERATIONS, .stop_norm = -1, .stop_largest = -1 };
    struct pl_clip_result result;
    int n = 0, rc = sum && values && v && weight ? collect(values, weight, &n, x, s) : PL_ENOMEM;
    r->weight = 0;
    if (!rc && n) cap_weights(weight, scratch, n);
    for (int i = 0; !rc && i < n; i++) r->weight += weight[i];
    if (!rc && n && d) {
        rc = x->o.be->median(middle, values, n, d, 0);
        for (size_t k = 0; k < d; k++) v[k] = middle[k];
        /* The coordinate-wise median is a start that no minority can move far.
         * [CenteredClip, alg. 2] */
        clip.tau = x->o.clip > 0 ? x->o.clip : usual_distance(scratch, values, middle, n, d);
        if (!rc) rc = x->o.be->centered_clip(v, &result, values, weight, n, d, &clip);
        /* Answers are divided by the weight later, so mean * weight is stored. */
        for (size_t k = 0; k < d; k++) sum[k] = (float)(v[k] * r->weight);
    }
    pl_free(values);
    pl_free(v);
    pl_free(weight);
    return rc;
}
