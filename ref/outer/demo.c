/* demo.c - DeMo, decoupled momentum: only the fast part of each peer's momentum is exchanged, the
 * slow part stays and grows. [DeMo: Peng et al. 2024, arXiv 2411.19870] [spec outer-steps 8]
 *
 *   1. x = (1 - eta lambda) x;  m_r = beta m_r + eta g_r
 *   2. q_r = the k largest entries of the cosine transform of each chunk of m_r;  m_r = m_r - q_r
 *   3. Q[i] = mean of q_r[i] over the peers that sent i
 *   4. x = x - eta sign(inverse transform of Q)
 *
 * Every step is exchanged, but of 4096 entries 32: what a few coefficients describe is what the
 * gradients of neighbouring weights have in common. m_r is different on each peer, and is never
 * synchronized. The sign makes eta the size of every entry's step, as in Adam; eta is in m too.
 * A failed exchange changes no x, and m_r takes q_r back, so that a later message has it.
 *
 * demo_message.c has steps 2 and 3. */
#include "algorithms.h"
#include "demo_message.h"

#include <string.h>

/* m_r = 0. The momentum is all that a peer remembers: x is equal on all, so there is no phi. */
static int open_demo(struct pl_outer *o, const float *x, struct pl_err *err)
{
    int rc = pl_outer_check_chunks(o, err);
    if (!rc && !pl_outer_add_own(o, "momentum", o->n * sizeof(float), 0)) rc = PL_ENOMEM;
    return rc;
}

/* 1. The momentum; a gradient with a NaN leaves it as it is. x decays in apply, where it is known
 * that all peers step. */
static int before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    const struct pl_backend *be = o->setup.be;
    float *m = pl_outer_get(o, "momentum");
    int rc = PL_OK;
    /* m = beta m + eta g */
    if (!o->skipped) rc = be->scale(m, (float)o->setup.beta, o->n);
    if (!rc && !o->skipped) rc = be->axpy(m, (float)lr, g, o->n);
    return rc ? rc : PL_OUTER_SEND;
}

/* 2. A gradient with a NaN leaves m_r alone: zeros travel. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    int rc = pl_outer_reserve(o, out->bytes = pl_demo_bytes(o));
    if (!rc && out->weight > 0) rc = pl_demo_write(o, pl_outer_get(o, "momentum"));
    else if (!rc) memset(o->out, 0, out->bytes);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* The exchange has failed: m_r = m_r + q_r, within the rounding of two transforms. g is free. */
static int take_back(struct pl_outer *o, float *g)
{
    const struct pl_outer_message own = { .data = o->out, .bytes = o->out_bytes, .weight = 1 };
    int has_sent = o->skipped ? 0 : pl_demo_is_readable(o, &own); /* a newcomer has not */
    int rc = has_sent < 0 ? has_sent : PL_OK;
    if (has_sent > 0) rc = pl_demo_mean(o, g, &own, 1);
    if (!rc && has_sent > 0) rc = o->setup.be->axpy(pl_outer_get(o, "momentum"), 1, g, o->n);
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* 3., 4. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    struct pl_outer_message *kept;
    int n = 0, rc = be->fill(g, 0, o->n);
    if (!rc && !count) return take_back(o, g);
    if (!(kept = pl_alloc((size_t)count, sizeof *kept))) rc = PL_ENOMEM;
    for (int r = 0; !rc && r < count; r++) {
        int readable = pl_demo_is_readable(o, &in[r]);
        if (readable > 0) kept[n++] = in[r];
        rc = readable < 0 ? readable : PL_OK;
    }
    if (!rc) rc = pl_demo_mean(o, g, kept, n);
    pl_free(kept);
    /* x = (1 - eta lambda) x, apart from the gradient as in AdamW */
    if (!rc && o->setup.weight_decay != 0)
        rc = be->scale(x, (float)(1 - o->lr * o->setup.weight_decay), o->n);
    /* x = x - eta sign(u), with sign(0) = 0: entries that no peer sent do not change */
    if (!rc) rc = be->sign_step(x, g, o->n, (float)o->lr);
    o->counter[PL_OUTER_ROUNDS]++;
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* All tensors in each step. */
static double bytes_per_step(const struct pl_outer *o) { return (double)pl_demo_bytes(o); }

const struct pl_outer_algorithm pl_outer_demo = {
    .name = "demo",
    .summary = "the largest cosine coefficients of each peer's momentum, each step",
    .bytes = "(12 + 32) / 8 of the coefficients sent",
    .exchange = PL_OUTER_GATHER,
    .sends_gradients = 1,
    .takes_back = 1,
    .open = open_demo,
    .before_step = before_step,
    .after_step = pl_outer_next_gradient,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
