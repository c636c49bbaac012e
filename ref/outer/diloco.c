/* diloco.c - train alone for H steps, then agree: local SGD and DiLoCo.
 * [Local SGD: Stich 2019] [DiLoCo: Douillard et al. 2023] [spec outer-steps 3]
 *
 *   every peer    theta_r = phi, then H steps of the inner optimizer on its own data
 *   together      mean = sum_r w_r Delta_r / sum_r w_r, of pseudo-gradients Delta_r = phi - theta_r
 *   every peer    phi = outer step of (phi, mean);  theta_r = phi
 *
 * H times fewer bytes than a gradient a step. The inner optimizer's moments stay with their peer:
 * they go on over outer steps, and are neither averaged nor reset nor sent.
 *
 * Why the difference and not theta_r itself: the mathematics is the same, but differences are
 * small, so rounding them costs little. */
#include "algorithms.h"

#include <math.h>

/* phi = x,  b = 0 */
static int open_diloco(struct pl_outer *o, const float *x, struct pl_err *err)
{
    return pl_outer_open_phi(o, x);
}

/* mu = 0 and nu = 1: phi becomes the mean of the theta_r. */
static int open_local_sgd(struct pl_outer *o, const float *x, struct pl_err *err)
{
    o->setup.mu = 0;
    o->setup.nu = 1;
    return pl_outer_open_phi(o, x);
}

/* Delta_r = phi - theta_r. A peer that has taken no step since theta_r was phi sends zeros with
 * weight 0. Steps taken before a failed exchange count: theta_r still holds them. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    return pl_outer_send_change(o, out, pl_outer_get(o, "phi"), x);
}

/* After a failed exchange the peer trains on: phi is the same, so its next Delta_r has this one in
 * it, and nothing is lost. Only a peer with a NaN in theta_r starts again from phi. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    float *phi = pl_outer_get(o, "phi"), *b = pl_outer_get(o, "momentum"), *mean;
    double total = 0, squares = 0;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    int rc, restarts;
    mean = be->alloc(o->n * sizeof *mean);
    rc = mean ? pl_outer_mean(o, mean, &total, in, count, bytes, 0, o->n) : PL_ENOMEM;
    /* b = mu b + mean,  phi = phi - nu (mean + mu b):  outer_steps.c */
    if (!rc && total > 0) {
        rc = be->outer_nesterov(phi, b, mean, o->n, (float)o->setup.mu, (float)o->setup.nu);
        o->counter[PL_OUTER_ROUNDS]++;
    } else if (!rc) rc = be->sumsq(&squares, x, o->n);
    restarts = total > 0 || !isfinite(squares);
    if (!rc && restarts) rc = be->copy(x, phi, o->n);
    if (!rc && restarts) pl_outer_restart(o);
    be->free(mean);
    return rc ? rc : PL_OUTER_GRADIENT;
}

const struct pl_outer_algorithm pl_outer_local_sgd = {
    .name = "local_sgd",
    .summary = "H local steps, then the mean of the parameters",
    .bytes = "4 n / H",
    .exchange = PL_OUTER_MEAN,
    .is_reduced = 1,
    .takes_clip = 1,
    .open = open_local_sgd,
    .before_step = pl_outer_take_step,
    .after_step = pl_outer_send_every_H,
    .message = message,
    .apply = apply,
    .bytes_per_step = pl_outer_vector_per_round,
};

const struct pl_outer_algorithm pl_outer_diloco = {
    .name = "diloco",
    .summary = "H local steps, then a Nesterov step along the mean change",
    .bytes = "4 n / H; (n + 1024) / H in 8 bits; (n / 2 + n / 1024) / H in E3M0",
    .exchange = PL_OUTER_MEAN,
    .is_reduced = 1,
    .takes_clip = 1,
    .open = open_diloco,
    .before_step = pl_outer_take_step,
    .after_step = pl_outer_send_every_H,
    .message = message,
    .apply = apply,
    .bytes_per_step = pl_outer_vector_per_round,
};
