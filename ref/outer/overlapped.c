/* overlapped.c - DiLoCo whose exchange takes as long as H steps: the mean arrives one outer step
 * late. [Eager: Kale et al. 2025, arXiv 2502.12996] [spec outer-steps 7]
 *
 *   delayed    phi = outer step of (phi, mean^{t-1})
 *   eager      phi_r = outer step of (phi_r, mean^{t-1} + (Delta_r^t - Delta_r^{t-1}) / R)
 *
 * Nobody waits: Delta^t travels while the H steps of t + 1 run. Delayed applies what was true H
 * steps ago. Eager replaces its own, stale part of that mean by the one it has just made; so each
 * peer has a phi_r of its own, and they differ by nu Delta_r^t / R only (at mu = 0).
 *
 * Delta^t is taken before the step, and theta_r set to phi after it. In the first round there is no
 * mean yet: Delta^0 = mean^0 = 0. */
#include "algorithms.h"

#include <math.h>

enum { ROUND_WEIGHT = PL_OUTER_OWN }; /* whether the own Delta^t is worth sending */

/* Delta^t and Delta^{t-1}; zero, as both are before the first round. */
static int open_overlapped(struct pl_outer *o, const float *x, struct pl_err *err)
{
    size_t bytes = o->n * sizeof(float);
    if (!pl_outer_add(o, "delta", bytes, 0) || !pl_outer_add(o, "delta before", bytes, 0))
        return PL_ENOMEM;
    return pl_outer_open_phi(o, x);
}

/* phi steps along g, theta begins there, and Delta^t, now the last one, is sent. */
static int finish_round(struct pl_outer *o, float *x, float *g)
{
    const struct pl_outer_setup *s = &o->setup;
    float *phi = pl_outer_get(o, "phi"), *b = pl_outer_get(o, "momentum");
    int rc = PL_OK;
    if (g) rc = s->be->outer_nesterov(phi, b, g, o->n, (float)s->mu, (float)s->nu);
    if (!rc) rc = s->be->copy(x, phi, o->n);
    o->counter[PL_OUTER_ROUNDS]++;
    return rc ? rc : PL_OUTER_SEND;
}

/* mean = mean + (Delta^t - Delta^{t-1}) / R. The mean of R peers holds Delta_r^{t-1} / R of this
 * peer's; taking it out and adding the newest one makes this share fresh, the others' stay
 * stale. */
static int add_own(struct pl_outer *o, float *mean)
{
    const struct pl_backend *be = o->setup.be;
    float share = (float)(1.0 / o->setup.peers);
    int rc = be->axpy(mean, share, pl_outer_get(o, "delta"), o->n);
    return rc ? rc : be->axpy(mean, -share, pl_outer_get(o, "delta before"), o->n);
}

static int is_eager(const struct pl_outer *o) { return o->algorithm == &pl_outer_eager; }

/* Every H steps: Delta^t is made, then the exchange of Delta^{t-1} ends, and apply makes the outer
 * step. The first time nothing was sent before, so there is nothing to receive. */
static int after_step(struct pl_outer *o, float *x)
{
    const struct pl_backend *be = o->setup.be;
    float *delta = pl_outer_get(o, "delta"), *g;
    double squares;
    int rc;
    if (o->counter[PL_OUTER_STEPS] % (uint64_t)o->setup.H) return PL_OUTER_GRADIENT;
    /* Delta^t = phi - theta, before the step; Delta^{t-1} is kept for the eager correction */
    rc = be->copy(pl_outer_get(o, "delta before"), delta, o->n);
    if (!rc) rc = be->copy(delta, pl_outer_get(o, "phi"), o->n);
    if (!rc) rc = be->axpy(delta, -1, x, o->n);
    if (!rc) rc = be->sumsq(&squares, delta, o->n);
    if (rc) return rc;
    o->counter[ROUND_WEIGHT] = isfinite(squares) &&
                               o->counter[PL_OUTER_TAKEN] > o->counter[PL_OUTER_SENT];
    if (!o->counter[ROUND_WEIGHT] && (rc = be->fill(delta, 0, o->n))) return rc;
    if (o->counter[PL_OUTER_ROUNDS]) return PL_OUTER_RECEIVE;
    if (!is_eager(o)) return finish_round(o, x, NULL);
    g = be->alloc(o->n * sizeof *g); /* mean^0 = 0 */
    rc = g ? add_own(o, g) : PL_ENOMEM;
    if (!rc) rc = finish_round(o, x, g);
    be->free(g);
    return rc;
}

/* Sent after the outer step, and on its way during the next H inner steps. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    int rc = pl_outer_encode(o, pl_outer_get(o, "delta"), o->n);
    out->bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    out->weight = (double)o->counter[ROUND_WEIGHT];
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* Without a mean, eager still has its own Delta; the others' messages are lost. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    double total = 0;
    float *mean;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    int rc;
    mean = be->alloc(o->n * sizeof *mean);
    rc = mean ? pl_outer_mean(o, mean, &total, in, count, bytes, 0, o->n) : PL_ENOMEM;
    if (!rc && total == 0) rc = be->fill(mean, 0, o->n);
    if (!rc && is_eager(o)) rc = add_own(o, mean);
    if (!rc) rc = finish_round(o, x, total > 0 || is_eager(o) ? mean : NULL);
    be->free(mean);
    return rc;
}

const struct pl_outer_algorithm pl_outer_delayed = {
    .name = "delayed",
    .summary = "DiLoCo with the mean of the outer step before",
    .bytes = "4 n / H; (n / 2 + n / 1024) / H in E3M0",
    .exchange = PL_OUTER_MEAN,
    .open = open_overlapped,
    .before_step = pl_outer_take_step,
    .after_step = after_step,
    .message = message,
    .apply = apply,
    .bytes_per_step = pl_outer_vector_per_round,
};

const struct pl_outer_algorithm pl_outer_eager = {
    .name = "eager",
    .summary = "the same, with the own part of the mean brought up to date",
    .bytes = "4 n / H; (n / 2 + n / 1024) / H in E3M0",
    .exchange = PL_OUTER_MEAN,
    .open = open_overlapped,
    .before_step = pl_outer_take_step,
    .after_step = after_step,
    .message = message,
    .apply = apply,
    .bytes_per_step = pl_outer_vector_per_round,
};
