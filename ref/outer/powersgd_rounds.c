/* powersgd_rounds.c - PowerSGD behind the interface of outer.h: two exchanges a step, of thin
 * factors in place of gradients. The mathematics is ref/powersgd.c. [Vogels et al. 2019, alg. 1, 2]
 * [spec wire-extensions A.3, A.4]
 *
 *   M_r += g_r,  P_r = M_r Q_r        -> mean of P_r, then orthonormal
 *   Q_r = M_r^T P                     -> mean of Q_r, and of the tensors too small to compress
 *   g = P Q^T, with which the inner optimizer steps
 *   M_r -= P Q^T                      hivemind's rule: the group's approximation
 *   M_r -= P Q_r^T                    own_feedback, the textbook's: what this peer has given
 *
 * With hivemind's rule M_r keeps the difference between g_r and the mean permanently; these
 * differences cancel only while the same peers stay. Both rules in one group diverge: all peers
 * follow one. */
#include "powersgd_parts.h"

enum { PHASE = PL_OUTER_OWN }; /* 0: P is next, 1: Q */

/* M = 0; Q is drawn; P needs no beginning, as it is M Q in each step. */
static int open_powersgd(struct pl_outer *o, const float *x, struct pl_err *err)
{
    size_t n_p, n_q, whole;
    int rc = PL_OK;
    if (o->setup.powersgd_rank < 1)
        return pl_fail(err, PL_EUSE, "rank %d: at least 1", o->setup.powersgd_rank);
    pl_powersgd_sizes(o, &n_p, &n_q, &whole);
    if (!pl_outer_add_own(o, "memory", o->n * sizeof(float), 0) ||
        !pl_outer_add(o, "p", n_p * sizeof(float), 0) ||
        !pl_outer_add(o, "q", (n_q + whole) * sizeof(float), 0))
        return PL_ENOMEM;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, NULL);
        if (part.s.r) rc = pl_powersgd_draw(o, &part, (uint64_t)i);
    }
    return rc;
}

/* 1. M_r = M_r + g_r, P_r = M_r Q: one step of a power iteration, which turns Q towards the largest
 * singular vectors of M_r, step after step. Without compressed tensors phase P is empty, and left
 * out. */
static int before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    int rc = PL_OK;
    o->counter[PHASE] = 1;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, g);
        if (!part.s.r) continue;
        rc = pl_powersgd_p(&part.s, part.g);
        o->counter[PHASE] = 0;
    }
    return rc ? rc : PL_OUTER_SEND;
}

/* P_r and Q_r are linear in M_r while the other factor is the same on all peers, so the mean of the
 * factors is the factor of the mean: that is why an all-reduce will do. Phase P: all P. Phase Q:
 * all Q, then the tensors that are sent whole. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    size_t n_p, n_q, whole, n;
    float *q = pl_outer_get(o, "q"), *all = q;
    int rc = PL_OK;
    pl_powersgd_sizes(o, &n_p, &n_q, &whole);
    if (o->counter[PHASE]) rc = pl_powersgd_copy_whole(o, q + n_q, g, 0);
    else all = pl_outer_get(o, "p");
    n = o->counter[PHASE] ? n_q + whole : n_p;
    if (!rc) rc = pl_outer_encode(o, all, n);
    out->bytes = pl_outer_coded_bytes(o->setup.coding, n);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* A failed round takes g out of the memory again: the next one would add it twice. */
static int give_up(struct pl_outer *o, float *g)
{
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, g);
        if (part.s.r) rc = o->setup.be->axpy(part.s.M, -1, part.g, o->setup.tensors[i].n);
    }
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* 2. P = orthonormal(mean of P_r), Q_r = M_r^T P. With P^T P = 1 the best Q for a given P is M^T P,
 * without solving anything. Each peer orthonormalizes the decoded P, so all have the same P. */
static int take_p(struct pl_outer *o, float *g, const struct pl_outer_message *in, int count,
                  size_t n)
{
    double total = 0;
    int rc = pl_outer_mean(o, pl_outer_get(o, "p"), &total, in, count,
                           pl_outer_coded_bytes(o->setup.coding, n), 0, n);
    if (rc) return rc;
    if (total == 0) return give_up(o, g);
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, g);
        if (part.s.r) rc = pl_powersgd_q(&part.s);
    }
    o->counter[PHASE] = 1;
    return rc ? rc : PL_OUTER_SEND;
}

/* Textbook's feedback: M -= P Q_r^T, by the Q_r that this peer has sent. scratch: as g. */
static int subtract_own(struct pl_outer *o, float *scratch)
{
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, scratch);
        if (!part.s.r) continue;
        rc = o->setup.be->linear(part.g, part.s.P, part.s.Q, NULL, part.s.a, part.s.r, part.s.b);
        if (!rc) rc = o->setup.be->axpy(part.s.M, -1, part.g, o->setup.tensors[i].n);
    }
    return rc;
}

/* 3. Q = mean of Q_r;  g = P Q^T;  M_r is reduced by the part that was sent. A peer whose gradient
 * had a NaN sent nothing, so its M_r is unchanged. */
static int take_q(struct pl_outer *o, float *g, const struct pl_outer_message *in, int count,
                  size_t n_q, size_t whole)
{
    const struct pl_backend *be = o->setup.be;
    float *q = pl_outer_get(o, "q"), *mean = be->alloc((n_q + whole) * sizeof *mean);
    double total = 0, squares;
    int rc = PL_ENOMEM;
    if (mean)
        rc = pl_outer_mean(o, mean, &total, in, count,
                           pl_outer_coded_bytes(o->setup.coding, n_q + whole), 0, n_q + whole);
    if (!rc && total == 0) {
        be->free(mean);
        return give_up(o, g);
    }
    if (!rc && o->setup.own_feedback && !o->skipped) rc = subtract_own(o, g);
    if (!rc) rc = be->copy(q, mean, n_q + whole);
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, g);
        const struct pl_powersgd *s = &part.s;
        if (!s->r) continue;
        /* g = P Q^T, where M_r is settled already; or g and M_r = M_r - g together */
        if (o->setup.own_feedback || o->skipped)
            rc = be->linear(part.g, s->P, s->Q, NULL, s->a, s->r, s->b);
        else rc = pl_powersgd_restore(part.g, &part.s);
        /* A Q of zeros, after a round of zeros, would stay one and let nothing through. */
        if (!rc) rc = be->sumsq(&squares, s->Q, part.n_q);
        if (!rc && squares == 0 && o->setup.refill)
            rc = pl_powersgd_draw(o, &part, o->counter[PL_OUTER_ROUNDS] << 32 | (uint64_t)i);
    }
    if (!rc) rc = pl_powersgd_copy_whole(o, q + n_q, g, 1);
    o->counter[PL_OUTER_ROUNDS]++;
    be->free(mean);
    return rc ? rc : PL_OUTER_STEP;
}

/* Two exchanges a step: P's mean, then Q's. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    size_t n_p, n_q, whole;
    pl_powersgd_sizes(o, &n_p, &n_q, &whole);
    return o->counter[PHASE] ? take_q(o, g, in, count, n_q, whole) : take_p(o, g, in, count, n_p);
}

/* Both exchanges; without compressed tensors there is only the second. */
static double bytes_per_step(const struct pl_outer *o)
{
    size_t n_p, n_q, whole;
    pl_powersgd_sizes(o, &n_p, &n_q, &whole);
    return (n_p ? (double)pl_outer_coded_bytes(o->setup.coding, n_p) : 0) +
           (double)pl_outer_coded_bytes(o->setup.coding, n_q + whole);
}

const struct pl_outer_algorithm pl_outer_powersgd = {
    .name = "powersgd",
    .summary = "each gradient as two thin factors, in two exchanges",
    .bytes = "4 r (a + b) for each matrix (a,b) that it pays for, 4 n of the rest",
    .exchange = PL_OUTER_MEAN,
    .is_reduced = 1,
    .sends_gradients = 1,
    .open = open_powersgd,
    .before_step = before_step,
    .after_step = pl_outer_next_gradient,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
