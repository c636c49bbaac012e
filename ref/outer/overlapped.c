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
 * mean yet: Delta^0 = mean^0 = 0. If an exchange fails, the next message holds its Delta, too. */
#include "algorithms.h"

#include <math.h>

enum {
    ROUND_WEIGHT = PL_OUTER_OWN, /* whether the own Delta^t is worth sending */
    PEERS                        /* R' of the last step; 0: there was none, nor a message */
};

/* Delta^t, Delta^{t-1} and mean^{t-1}; zero, as all are before the first round. */
static int open_overlapped(struct pl_outer *o, const float *x, struct pl_err *err)
{
    size_t bytes = o->n * sizeof(float);
    if (!pl_outer_add(o, "delta", bytes, 0) || !pl_outer_add(o, "delta before", bytes, 0) ||
        !pl_outer_add(o, "mean", bytes, 0))
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
    if (!o->counter[PEERS]) o->counter[PEERS] = 1;
    return rc ? rc : PL_OUTER_SEND;
}

/* mean = mean + Delta^t / R - Delta^{t-1} / R'. The mean of R peers holds Delta_r^{t-1} / R of this
 * peer's. phi_r has it already, since the last step, by the number R' of peers known then; it is
 * taken out, and the newest one added: this share is fresh, the others' stay stale. */
static int add_own(struct pl_outer *o, float *mean)
{
    const struct pl_backend *be = o->setup.be;
    const uint64_t before = o->counter[PEERS];
    uint64_t R = o->counter[PL_OUTER_ARRIVED];
    int rc;
    if (!R) R = before ? before : (uint64_t)o->setup.peers;
    o->counter[PEERS] = R;
    rc = be->axpy(mean, (float)(1.0 / (double)R), pl_outer_get(o, "delta"), o->n);
    if (rc || !before) return rc;
    return be->axpy(mean, -(float)(1.0 / (double)before), pl_outer_get(o, "delta before"), o->n);
}

static int is_eager(const struct pl_outer *o) { return o->algorithm == &pl_outer_eager; }

/* Every H steps: Delta^t is made, then the exchange of Delta^{t-1} ends, and apply makes the outer
 * step. The first time nothing was sent before, so there is nothing to receive. */
static int after_step(struct pl_outer *o, float *x)
{
    const struct pl_backend *be = o->setup.be;
    float *delta = pl_outer_get(o, "delta"), *mean = pl_outer_get(o, "mean");
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
    if (o->counter[PEERS]) return PL_OUTER_RECEIVE;
    if (!is_eager(o)) return finish_round(o, x, NULL);
    rc = be->fill(mean, 0, o->n); /* mean^0 */
    if (!rc) rc = add_own(o, mean);
    return rc ? rc : finish_round(o, x, mean);
}

/* Sent after the outer step, and on its way during the next H inner steps. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    int rc = pl_outer_encode(o, pl_outer_get(o, "delta"), o->n);
    out->bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    out->weight = (double)o->counter[ROUND_WEIGHT];
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* The exchange has failed: Delta^t = Delta^t + Delta^{t-1}, so that no local step is lost. A
 * newcomer has its donor's Delta^{t-1}, and no step before it: the donor keeps that one. */
static int keep_lost(struct pl_outer *o)
{
    float *delta = pl_outer_get(o, "delta");
    double squares;
    int rc;
    if (o->counter[PL_OUTER_SENT] == o->counter[PL_OUTER_DELIVERED]) return PL_OK;
    rc = o->setup.be->axpy(delta, 1, pl_outer_get(o, "delta before"), o->n);
    if (!rc) rc = o->setup.be->sumsq(&squares, delta, o->n);
    if (!rc) o->counter[ROUND_WEIGHT] = squares > 0;
    return rc;
}

/* Without a mean, phi of delayed stays, and eager's moves by its own Delta alone. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    float *mean = pl_outer_get(o, "mean");
    const int has_mean = pl_outer_arrived(o, in, count);
    int rc = has_mean < 0 ? has_mean : PL_OK;
    if (!has_mean) rc = o->setup.be->fill(mean, 0, o->n);
    if (!rc && !has_mean) rc = keep_lost(o);
    if (!rc && is_eager(o)) rc = add_own(o, mean);
    return rc ? rc : finish_round(o, x, has_mean || is_eager(o) ? mean : NULL);
}

static size_t all_values(const struct pl_outer *o) { return o->n; }

const struct pl_outer_algorithm pl_outer_delayed = {
    .name = "delayed",
    .summary = "DiLoCo with the mean of the outer step before",
    .bytes = "4 n / H; (n / 2 + n / 1024) / H in E3M0",
    .exchange = PL_OUTER_MEAN,
    .takes_clip = 1,
    .open = open_overlapped,
    .before_step = pl_outer_take_step,
    .after_step = after_step,
    .message = message,
    .apply = apply,
    .under_way = all_values,
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
    .under_way = all_values,
    .bytes_per_step = pl_outer_vector_per_round,
};
