/* noloco.c - DiLoCo without an all-reduce: at each outer step the peers form small groups anew, and
 * only a group's members exchange anything. [NoLoCo: Kolehmainen et al. 2025, arXiv 2506.10911]
 * [spec outer-steps 11]
 *
 *   change = mean of theta_j - phi_j,  mean = mean of phi_j      over the n members of the group
 *   b_r = mu b_r + nu change + gamma (mean - phi_r)
 *   phi_r = phi_r + b_r,  theta_r = phi_r
 *
 * Each peer has its own phi_r. Momentum as in DiLoCo moves all of them along; gamma pulls each to
 * its group's mean, and because groups are drawn anew, everybody hears from everybody in about
 * log_n R steps. Within a group the pulls cancel, so the swarm's mean moves by the b_r alone. A
 * step takes as long as one message to one partner, however many peers there are.
 *
 * Evaluate any one phi_r, or the mean of all. */
#include "../byte_order.h"
#include "algorithms.h"

#include <math.h>

static int open_gossip(struct pl_outer *o, const float *x, struct pl_err *err)
{
    o->setup.coding = PL_OUTER_FLOAT32; /* phi_r is no small difference: not rounded */
    if (o->setup.group < 1 || o->setup.group > o->setup.peers)
        return pl_fail(err, PL_EUSE, "groups of %d among %d peers", o->setup.group, o->setup.peers);
    return pl_outer_open_phi(o, x);
}

/* phi_r, then theta_r - phi_r: new minus old, not a pseudo-gradient's sign */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    const struct pl_backend *be = o->setup.be;
    size_t bytes = o->n * sizeof(float);
    float *phi = pl_outer_get(o, "phi"), *change = be->alloc(bytes);
    int rc = change ? be->copy(change, x, o->n) : PL_ENOMEM;
    if (!rc) rc = be->axpy(change, -1, phi, o->n);
    if (!rc) rc = pl_outer_reserve(o, 2 * bytes);
    if (!rc) rc = be->get(o->out, phi, bytes);
    if (!rc) rc = be->get(o->out + bytes, change, bytes);
    if (!rc) pl_little_endian(o->out, sizeof *phi, 2 * o->n);
    be->free(change);
    out->bytes = 2 * bytes;
    out->weight = pl_outer_has_change(o);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* A member whose theta has a NaN does not count; if it is this one, it begins again at phi_r.
 * After a failed exchange the peer trains on: its next change has this one in it. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_outer_setup *s = &o->setup;
    float *phi = pl_outer_get(o, "phi"), *b = pl_outer_get(o, "momentum");
    float *change, *mean;
    double total = 0, changes = 0, squares = 0;
    size_t half = o->n * sizeof(float);
    int rc;
    change = s->be->alloc(2 * o->n * sizeof *change);
    mean = change + o->n;
    rc = change ? pl_outer_mean(o, mean, &total, in, count, 2 * half, 0, o->n) : PL_ENOMEM;
    if (!rc) rc = pl_outer_mean(o, change, &changes, in, count, 2 * half, half, o->n);
    if (!rc && total > 0) {
        rc = s->be->outer_gossip(phi, b, change, mean, o->n, (float)s->mu, (float)s->nu,
                                 (float)s->gamma);
        o->counter[PL_OUTER_ROUNDS]++;
    } else if (!rc) rc = s->be->sumsq(&squares, x, o->n);
    if (!rc && (total > 0 || !isfinite(squares))) {
        rc = s->be->copy(x, phi, o->n);
        pl_outer_restart(o);
    }
    s->be->free(change);
    return rc ? rc : PL_OUTER_GRADIENT;
}

static double bytes_per_step(const struct pl_outer *o)
{
    return 8.0 * (double)o->n * (o->setup.group - 1) / o->setup.H;
}

const struct pl_outer_algorithm pl_outer_noloco = {
    .name = "noloco",
    .summary = "H local steps, then a momentum step with a few partners",
    .bytes = "8 n (group - 1) / H",
    .exchange = PL_OUTER_GROUP,
    .open = open_gossip,
    .before_step = pl_outer_take_step,
    .after_step = pl_outer_send_every_H,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
