/* powersgd_rounds.c - PowerSGD behind the interface of outer.h: two exchanges a step, of thin
 * factors in place of gradients. The mathematics is ref/powersgd.c. [Vogels et al. 2019, alg. 1, 2]
 * [spec wire-extensions A.3, A.4]
 *
 *   M_r += g_r,  P_r = M_r Q_r        -> mean of P_r, then orthonormal
 *   Q_r = M_r^T P                     -> mean of Q_r, and of the tensors that don't pay
 *   g = P Q^T, with which the inner optimizer steps
 *   M_r -= P Q^T                      hivemind's rule: what the group has received
 *   M_r -= P Q_r^T                    own_feedback, the textbook's: what this peer has given
 *
 * With hivemind's rule M_r keeps how g_r differs from the mean, for ever; it cancels between peers
 * only while the same ones stay. Both rules in one group diverge: all peers follow one. */
#include "../powersgd.h"
#include "../rng.h"
#include "algorithms.h"

#include <string.h>

#define LEAST_GAIN 0.5 /* hivemind's min_compression_ratio: less is not worth two exchanges */

enum { PHASE = PL_OUTER_OWN }; /* 0: P is next, 1: Q */

/* A tensor's factors within the buffers; r = 0: it travels as it is. */
struct part {
    struct pl_powersgd s;
    size_t p_at, q_at, n_p, n_q;
    float *g;
};

/* Factors of all tensors lie one after the other, in the tensors' order, as hivemind sends them. */
static struct part part_of(const struct pl_outer *o, int i, float *g)
{
    struct part part = { .n_p = 0 };
    for (int k = 0; k <= i; k++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[k];
        size_t a, b;
        pl_powersgd_dims(&a, &b, t->shape, t->axes);
        part.p_at += part.n_p;
        part.q_at += part.n_q;
        part.s = (struct pl_powersgd){ .be = o->setup.be, .a = (int)a, .b = (int)b };
        if (pl_powersgd_pays(a, b, t->axes, o->setup.powersgd_rank, LEAST_GAIN))
            part.s.r = o->setup.powersgd_rank;
        part.n_p = a * (size_t)part.s.r;
        part.n_q = part.s.r ? b * (size_t)part.s.r : 0;
    }
    part.s.M = pl_outer_get(o, "memory");
    part.s.P = pl_outer_get(o, "p");
    part.s.Q = pl_outer_get(o, "q");
    if (part.s.M) part.s.M += o->setup.tensors[i].offset;
    if (part.s.P) part.s.P += part.p_at;
    if (part.s.Q) part.s.Q += part.q_at;
    part.g = g ? g + o->setup.tensors[i].offset : NULL;
    return part;
}

/* Values of the exchanges: all P; all Q, and the whole tensors behind them. */
static void sizes(const struct pl_outer *o, size_t *n_p, size_t *n_q, size_t *whole)
{
    *n_p = *n_q = *whole = 0;
    for (int i = 0; i < o->setup.count; i++) {
        struct part part = part_of(o, i, NULL);
        *n_p += part.n_p;
        *n_q += part.n_q;
        if (!part.s.r) *whole += o->setup.tensors[i].n;
    }
}

/* The same first Q on all peers: unlike ones do no harm, but the first round is worse. */
static int draw(const struct pl_outer *o, const struct part *part, uint64_t stream)
{
    float *Q = pl_alloc(part->n_q, sizeof *Q);
    struct pl_rng rng;
    int rc = PL_ENOMEM;
    pl_rng_init(&rng, o->setup.seed, stream);
    for (size_t k = 0; Q && k < part->n_q; k++) Q[k] = (float)pl_rng_uniform(&rng);
    if (Q) rc = o->setup.be->put(part->s.Q, Q, part->n_q * sizeof *Q);
    pl_free(Q);
    return rc;
}

static int open_powersgd(struct pl_outer *o, const float *x, struct pl_err *err)
{
    size_t n_p, n_q, whole;
    int rc = PL_OK;
    (void)x;
    if (o->setup.powersgd_rank < 1)
        return pl_fail(err, PL_EUSE, "rank %d: at least 1", o->setup.powersgd_rank);
    sizes(o, &n_p, &n_q, &whole);
    if (!pl_outer_add(o, "memory", o->n * sizeof(float), 0) ||
        !pl_outer_add(o, "p", n_p * sizeof(float), 0) ||
        !pl_outer_add(o, "q", (n_q + whole) * sizeof(float), 0))
        return PL_ENOMEM;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part part = part_of(o, i, NULL);
        if (part.s.r) rc = draw(o, &part, (uint64_t)i);
    }
    return rc;
}

/* M += g, P = M Q. Without compressed tensors phase P is empty, and left out. */
static int before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    int rc = PL_OK;
    (void)x, (void)lr;
    o->counter[PHASE] = 1;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part part = part_of(o, i, g);
        if (!part.s.r) continue;
        rc = pl_powersgd_p(&part.s, part.g);
        o->counter[PHASE] = 0;
    }
    return rc ? rc : PL_OUTER_SEND;
}

/* Whole tensors lie behind the factors Q, in the order of the tensors. */
static int copy_whole(struct pl_outer *o, float *packed, float *g, int unpack)
{
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part part = part_of(o, i, g);
        size_t n = o->setup.tensors[i].n;
        if (part.s.r) continue;
        rc = unpack ? o->setup.be->copy(part.g, packed, n) : o->setup.be->copy(packed, part.g, n);
        packed += n;
    }
    return rc;
}

/* Phase P: all P. Phase Q: all Q, then the tensors that are sent whole. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    size_t n_p, n_q, whole, n;
    float *q = pl_outer_get(o, "q"), *all = q;
    int rc = PL_OK;
    (void)x;
    sizes(o, &n_p, &n_q, &whole);
    if (o->counter[PHASE]) rc = copy_whole(o, q + n_q, g, 0);
    else all = pl_outer_get(o, "p");
    n = o->counter[PHASE] ? n_q + whole : n_p;
    if (!rc) rc = pl_outer_encode(o, 0, all, n);
    out->bytes = pl_outer_coded_bytes(o->setup.coding, n);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* A failed round takes g out of the memory again: the next one would add it twice. */
static int give_up(struct pl_outer *o, float *g)
{
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part part = part_of(o, i, g);
        if (part.s.r) rc = o->setup.be->axpy(part.s.M, -1, part.g, o->setup.tensors[i].n);
    }
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* P = mean of P_r, made orthonormal;  Q_r = M_r^T P. Each peer orthonormalizes what it decoded. */
static int take_p(struct pl_outer *o, float *g, const struct pl_outer_message *in, int count,
                  size_t n)
{
    double total = 0;
    int rc = pl_outer_mean(o, pl_outer_get(o, "p"), &total, in, count,
                           pl_outer_coded_bytes(o->setup.coding, n), 0, n);
    if (rc) return rc;
    if (total == 0) return give_up(o, g);
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part part = part_of(o, i, g);
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
        struct part part = part_of(o, i, scratch);
        if (!part.s.r) continue;
        rc = o->setup.be->linear(part.g, part.s.P, part.s.Q, NULL, part.s.a, part.s.r, part.s.b);
        if (!rc) rc = o->setup.be->axpy(part.s.M, -1, part.g, o->setup.tensors[i].n);
    }
    return rc;
}

/* Q = mean of Q_r;  g = P Q^T;  M_r loses what was sent. A peer whose gradient had a NaN gave
 * nothing, so its M_r loses nothing. */
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
        struct part part = part_of(o, i, g);
        const struct pl_powersgd *s = &part.s;
        if (!s->r) continue;
        if (o->setup.own_feedback || o->skipped)
            rc = be->linear(part.g, s->P, s->Q, NULL, s->a, s->r, s->b);
        else rc = pl_powersgd_restore(part.g, &part.s);
        /* A Q of zeros, after a round of zeros, would stay one and let nothing through. */
        if (!rc) rc = be->sumsq(&squares, s->Q, part.n_q);
        if (!rc && squares == 0 && o->setup.refill)
            rc = draw(o, &part, o->counter[PL_OUTER_ROUNDS] << 32 | (uint64_t)i);
    }
    if (!rc) rc = copy_whole(o, q + n_q, g, 1);
    o->counter[PL_OUTER_ROUNDS]++;
    be->free(mean);
    return rc ? rc : PL_OUTER_STEP;
}

static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    size_t n_p, n_q, whole;
    (void)x;
    sizes(o, &n_p, &n_q, &whole);
    return o->counter[PHASE] ? take_q(o, g, in, count, n_q, whole) : take_p(o, g, in, count, n_p);
}

static double bytes_per_step(const struct pl_outer *o)
{
    size_t n_p, n_q, whole;
    sizes(o, &n_p, &n_q, &whole);
    return (n_p ? (double)pl_outer_coded_bytes(o->setup.coding, n_p) : 0) +
           (double)pl_outer_coded_bytes(o->setup.coding, n_q + whole);
}

const struct pl_outer_algorithm pl_outer_powersgd = {
    .name = "powersgd",
    .summary = "each gradient as two thin factors, in two exchanges",
    .bytes = "4 r (a + b) for each matrix (a,b) that it pays for, 4 n of the rest",
    .exchange = PL_OUTER_MEAN,
    .sends_gradients = 1,
    .open = open_powersgd,
    .before_step = before_step,
    .after_step = pl_outer_next_gradient,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
