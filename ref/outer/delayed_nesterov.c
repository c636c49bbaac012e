/* delayed_nesterov.c - peers of unequal speed, and no barrier: each pseudo-gradient is applied when
 * it comes. [Async local SGD: Liu et al. 2024, arXiv 2401.09135, alg. 3 with c = 0]
 * [spec outer-steps 7]
 *
 *   each Delta_r           phi = phi - nu Delta_r / N,   a = a + Delta_r
 *   each N-th, then        b = mu b + a / N,   phi = phi - nu mu b,   a = 0
 *
 * Plain Nesterov would multiply a momentum made of stale changes into every small step, and
 * diverges. Here the momentum waits for N changes and moves phi once for them. N = 1 is Nesterov's
 * step exactly; N = the number of peers is the paper's choice.
 *
 * Every peer applies every change, its own among them, in one order that all agree on, as a log
 * gives it; so phi, b and a are equal everywhere. A peer begins again at phi when its own change is
 * applied. Its staleness is the number of changes between. */
#include "algorithms.h"

#include <math.h>

enum { CHANGES = PL_OUTER_OWN }; /* applied so far */

static int open_asynchronous(struct pl_outer *o, const float *x, struct pl_err *err)
{
    float *start;
    int rc;
    if (o->setup.N < 1) return pl_fail(err, PL_EUSE, "N = %d: at least 1", o->setup.N);
    if (!pl_outer_add(o, "sum", o->n * sizeof *start, 0) ||
        !(start = pl_outer_add(o, "start", o->n * sizeof *start, 0)))
        return PL_ENOMEM;
    rc = o->setup.be->copy(start, x, o->n);
    return rc ? rc : pl_outer_open_phi(o, x);
}

/* Delta_r = start - theta_r: against the phi where this peer began, since the others have moved it.
 * Steps taken before a failed exchange count: theta_r still holds them. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    return pl_outer_send_change(o, out, pl_outer_get(o, "start"), x);
}

static int apply_change(struct pl_outer *o, const float *delta)
{
    const struct pl_outer_setup *s = &o->setup;
    float *phi = pl_outer_get(o, "phi"), *b = pl_outer_get(o, "momentum");
    float *a = pl_outer_get(o, "sum"), N = (float)s->N;
    int rc = s->be->axpy(phi, (float)-s->nu / N, delta, o->n);
    if (!rc) rc = s->be->axpy(a, 1, delta, o->n);
    if (rc || ++o->counter[CHANGES] % (uint64_t)s->N) return rc;
    rc = s->be->scale(b, (float)s->mu, o->n);
    if (!rc) rc = s->be->axpy(b, 1 / N, a, o->n);
    if (!rc) rc = s->be->axpy(phi, (float)(-s->nu * s->mu), b, o->n);
    if (!rc) rc = s->be->fill(a, 0, o->n);
    o->counter[PL_OUTER_ROUNDS]++;
    return rc;
}

/* start = theta_r = phi, the phi of now. */
static int begin_at_phi(struct pl_outer *o, float *x)
{
    int rc = o->setup.be->copy(x, pl_outer_get(o, "phi"), o->n);
    if (!rc) rc = o->setup.be->copy(pl_outer_get(o, "start"), x, o->n);
    pl_outer_restart(o);
    return rc;
}

/* This peer's own message is here; its change counted or did not. A change that did not count is
 * not lost: the peer keeps training from its old start and sends the change again with its next
 * steps. Only a peer without a change, or with a NaN in theta_r, continues from phi in any case. */
static int take_own(struct pl_outer *o, float *x, int counted)
{
    double squares = 0;
    int rc = o->setup.be->sumsq(&squares, x, o->n);
    if (rc || (!counted && pl_outer_has_change(o) && isfinite(squares))) return rc;
    return begin_at_phi(o, x);
}

/* May be called at any time, for changes that others have made. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    const struct pl_outer_message *own = NULL;
    float *delta;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    int rc, counted = 0;
    delta = be->alloc(o->n * sizeof *delta);
    rc = delta ? PL_OK : PL_ENOMEM;
    for (int k = 0; !rc && k < count; k++) {
        double total = 0;
        rc = pl_outer_mean(o, delta, &total, &in[k], 1, bytes, 0, o->n);
        if (!rc && total > 0) rc = apply_change(o, delta);
        if (in[k].rank == o->setup.rank) own = &in[k], counted = total > 0;
    }
    /* After all that have come with it: the peer begins at the newest phi that it knows. */
    if (!rc && own) rc = take_own(o, x, counted);
    be->free(delta);
    return rc ? rc : PL_OUTER_GRADIENT;
}

const struct pl_outer_algorithm pl_outer_delayed_nesterov = {
    .name = "delayed_nesterov",
    .summary = "each peer's change when it comes; momentum once in N changes",
    .bytes = "4 n / H; (n / 2 + n / 1024) / H in E3M0",
    .exchange = PL_OUTER_ONE,
    .open = open_asynchronous,
    .before_step = pl_outer_take_step,
    .after_step = pl_outer_send_every_H,
    .message = message,
    .apply = apply,
    .bytes_per_step = pl_outer_vector_per_round,
};
