/* sparseloco.c - local steps, and of their changes only the largest entries in two bits.
 * [SparseLoCo: Sarfi et al. 2025, arXiv 2508.15706] [spec outer-steps 10]
 *
 *   1. Delta_r = phi - theta_r after H local steps;  e_r = beta e_r + Delta_r
 *   2. q_r = the k largest of each chunk of e_r, quantized;  e_r = e_r - q_r
 *   3. n_r = |q_r|,  f_r = min(1, median(n) / n_r):  no norm above the median
 *   4. G[i] = mean of f_r q_r[i] over the peers that sent i;  phi = phi - nu G,  theta_r = phi
 *
 * The error feedback e_r is also the momentum: what is not sent waits, decays by beta, and is sent
 * when it has grown. So the outer step is plain SGD. H times fewer bytes by the local steps, and
 * 146 times fewer by the chunks: 64 of 4096 entries, 14 bits each.
 *
 * What the others do not receive is not lost: e_r takes q_r back, and it is sent with what follows.
 *
 * "Mean over those who sent" is the published code's; the paper's text has a mean over all R
 * (mean_over_all). Tensors whose chunks would be single entries (sides are large primes) travel
 * whole, as plain means. */
#include "sparseloco_message.h"

#include <math.h>

static int open_sparse(struct pl_outer *o, const float *x, struct pl_err *err)
{
    float *phi;
    int rc = pl_outer_check_chunks(o, err);
    if (rc) return rc;
    o->setup.coding = PL_OUTER_FLOAT32; /* of tensors that travel whole */
    phi = pl_outer_add(o, "phi", o->n * sizeof *phi, 0);
    if (!phi || !pl_outer_add_own(o, "error", o->n * sizeof *phi, 0)) return PL_ENOMEM;
    return o->setup.be->copy(phi, x, o->n);
}

/* 1., 2. A peer with a NaN in theta_r, or without steps, sends nothing, and its e_r is zero. Steps
 * taken before a failed exchange count: theta_r or e_r still holds them. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    const struct pl_backend *be = o->setup.be;
    float *e = pl_outer_get(o, "error");
    size_t all = pl_sparseloco_bytes(o);
    double squares;
    int rc = pl_outer_reserve(o, all);
    /* e = beta e + phi - theta */
    if (!rc) rc = be->scale(e, (float)o->setup.beta, o->n);
    if (!rc) rc = be->axpy(e, 1, pl_outer_get(o, "phi"), o->n);
    if (!rc) rc = be->axpy(e, -1, x, o->n);
    if (!rc) rc = be->sumsq(&squares, e, o->n);
    if (rc) return rc;
    out->bytes = all;
    out->weight = pl_outer_has_change(o);
    if (!isfinite(squares)) out->weight = 0;
    if (out->weight == 0 && (rc = be->fill(e, 0, o->n))) return rc;
    if (!rc) rc = pl_sparseloco_write(o, e);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* The own message was not received: e = e + q, q being the mean of this message alone. If the whole
 * exchange has failed, phi is the same, and theta_r goes on: e = e - Delta_r, which the next
 * message adds again. A newcomer has no message yet. */
static int take_back(struct pl_outer *o, const float *x, float *q, int has_failed)
{
    const struct pl_backend *be = o->setup.be;
    const struct pl_outer_message own = { .data = o->out, .bytes = o->out_bytes, .weight = 1 };
    float *e = pl_outer_get(o, "error");
    int has_sent = pl_sparseloco_is_readable(o, &own), rc = has_sent < 0 ? has_sent : PL_OK;
    if (!rc && has_sent) rc = pl_sparseloco_mean(o, q, &own, 1);
    if (!rc && has_sent) rc = be->axpy(e, 1, q, o->n);
    if (!rc && has_failed) rc = be->axpy(e, -1, pl_outer_get(o, "phi"), o->n);
    if (!rc && has_failed) rc = be->axpy(e, 1, x, o->n);
    return rc;
}

static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    float *phi = pl_outer_get(o, "phi"), *G;
    struct pl_outer_message *kept = pl_alloc((size_t)count, sizeof *kept);
    double squares = 0;
    int rc, n = 0, is_received = 0, loses_nothing;
    G = be->alloc(o->n * sizeof *G);
    rc = kept && G ? be->sumsq(&squares, x, o->n) : PL_ENOMEM;
    for (int r = 0; !rc && r < count; r++) {
        int readable = in[r].weight > 0 ? pl_sparseloco_is_readable(o, &in[r]) : 0;
        if (readable > 0) {
            is_received |= in[r].rank == o->setup.rank;
            kept[n++] = in[r];
        }
        rc = readable < 0 ? readable : PL_OK;
    }
    /* Without a change e is zero, and with a NaN the change is dropped: nothing to take back. */
    loses_nothing = is_received || !isfinite(squares) || !pl_outer_has_change(o);
    if (!rc && !loses_nothing) rc = take_back(o, x, G, !n);
    if (!rc && n) rc = pl_sparseloco_mean(o, G, kept, n);
    if (!rc && n) rc = be->axpy(phi, (float)-o->setup.nu, G, o->n); /* phi = phi - nu G */
    if (!rc && (n || loses_nothing)) rc = be->copy(x, phi, o->n);
    if (!rc && loses_nothing) pl_outer_restart(o);
    o->counter[PL_OUTER_ROUNDS] += !rc && n;
    pl_free(kept);
    be->free(G);
    return rc ? rc : PL_OUTER_GRADIENT;
}

static double bytes_per_step(const struct pl_outer *o)
{
    return (double)pl_sparseloco_bytes(o) / o->setup.H;
}

const struct pl_outer_algorithm pl_outer_sparseloco = {
    .name = "sparseloco",
    .summary = "H local steps; of the change the largest entries in 14 bits",
    .bytes = "(14 / 8 of the entries sent, and 16 a tensor) / H",
    .exchange = PL_OUTER_GATHER,
    .takes_back = 1,
    .open = open_sparse,
    .before_step = pl_outer_take_step,
    .after_step = pl_outer_send_every_H,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
