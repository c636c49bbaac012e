/* streaming.c - Streaming DiLoCo: the parameters in fragments, each with an outer step of its own
 * at its own moment, and while an exchange is under way the peers train on.
 * [Streaming DiLoCo: Douillard et al. 2025] [spec outer-steps 5]
 *
 *   step s                  send Delta_{r,p} = phi_p - theta_{r,p} of fragment p; go on training
 *   step s + tau            outer step of fragment p alone, then
 *                           theta_{r,p} = alpha theta_{r,p} + (1 - alpha) phi_p
 *
 * As many bytes as DiLoCo's, but a P-th of them at a time, and tau steps to send them: the link may
 * be P times slower at its peak, and nobody waits. alpha keeps a part of what a peer learnt during
 * the tau steps.
 *
 * With `offsets` fragment p is sent at the steps s = offset_p (mod H). Without, as torchft does it:
 * every H / P steps one fragment's step is due, and it was sent tau steps before; the fragment is
 * the number of steps done so far modulo P, so a failed exchange is tried again. */
#include "algorithms.h"

#include <math.h>

#define ON_GRID (-1) /* in place of an offset: one fragment after the other */

enum {
    DONE = PL_OUTER_OWN,
    CURSOR
}; /* exchanges applied; the fragment that this step has reached */

static uint64_t *due(const struct pl_outer *o) { return (uint64_t *)pl_outer_get(o, "due"); }
static uint64_t *taken(const struct pl_outer *o) { return (uint64_t *)pl_outer_get(o, "taken"); }
static const int *offsets(const struct pl_outer *o) { return o->work; }

static size_t values_of(const struct pl_outer *o, int p)
{
    size_t n = 0;
    for (int i = 0; i < o->setup.count; i++)
        if (o->setup.tensors[i].fragment == p) n += o->setup.tensors[i].n;
    return n;
}

static int open_streaming(struct pl_outer *o, const float *x, struct pl_err *err)
{
    struct pl_outer_setup *s = &o->setup;
    int P = s->fragments, *kept, rc;
    size_t n, largest = 0;
    if (P < 1 || P > PL_OUTER_FRAGMENTS_MAX || (!s->offsets && s->H % P))
        return pl_fail(err, PL_EUSE, "%d fragments: 1 to %d, and %d steps in equal parts", P,
                       PL_OUTER_FRAGMENTS_MAX, s->H);
    if (s->tau < 0 || s->tau >= (s->offsets ? s->H : s->H / P))
        return pl_fail(err, PL_EUSE,
                       "an all-reduce takes %d steps, expected fewer than the steps "
                       "between two",
                       s->tau);
    for (int i = 0; i < s->count; i++)
        if (s->tensors[i].fragment < 0 || s->tensors[i].fragment >= P)
            return pl_fail(err, PL_EUSE, "tensor %d: in fragment %d of %d", i,
                           s->tensors[i].fragment, P);
    for (int p = 0; p < P; p++) {
        if (!(n = values_of(o, p)))
            return pl_fail(err, PL_EUSE, "fragment %d of %d is empty", p, P);
        if (n > largest) largest = n;
    }
    if ((rc = pl_outer_open_phi(o, x))) return rc;
    if (!pl_outer_add(o, "mean", largest * sizeof(float), 0)) return PL_ENOMEM;
    /* the step at which each fragment's exchange ends; 0: none under way */
    if (!pl_outer_add(o, "due", (size_t)P * sizeof(uint64_t), 1)) return PL_ENOMEM;
    /* inner steps taken until its last message */
    if (!pl_outer_add(o, "taken", (size_t)P * sizeof(uint64_t), 1)) return PL_ENOMEM;
    if (!(o->work = kept = pl_alloc((size_t)P, sizeof *kept))) return PL_ENOMEM; /* not state */
    for (int p = 0; p < P; p++) kept[p] = s->offsets ? s->offsets[p] : ON_GRID;
    s->offsets = NULL;
    return PL_OK;
}

static void close_streaming(struct pl_outer *o) { pl_free(o->work); }

/* offsets    s = offset_p (mod H)
 * on the grid   s = -tau (mod H / P), and p = exchanges done (mod P) */
static int is_sent_now(const struct pl_outer *o, int p)
{
    uint64_t s = o->counter[PL_OUTER_STEPS], H = (uint64_t)o->setup.H;
    uint64_t P = (uint64_t)o->setup.fragments, S = H / P, tau = (uint64_t)o->setup.tau;
    /* Under way. An end in the past belongs to no exchange. */
    if (due(o)[p] >= s && due(o)[p] <= s + tau) return 0;
    if (offsets(o)[0] != ON_GRID) return (s + H - (uint64_t)offsets(o)[p] % H) % H == 0;
    return s % S == (S - tau) % S && o->counter[DONE] % P == (uint64_t)p;
}

/* The next action within this inner step, beginning with the fragment that was reached. */
static int scan(struct pl_outer *o)
{
    for (; o->counter[CURSOR] < (uint64_t)o->setup.fragments; o->counter[CURSOR]++) {
        int p = (int)o->counter[CURSOR];
        if (is_sent_now(o, p)) return PL_OUTER_SEND;
        if (due(o)[p] && due(o)[p] == o->counter[PL_OUTER_STEPS]) return PL_OUTER_RECEIVE;
    }
    return PL_OUTER_GRADIENT;
}

/* Several fragments may be due at one step; each call of the loop continues the scan. */
static int after_step(struct pl_outer *o, float *x)
{
    o->counter[CURSOR] = 0;
    return scan(o);
}

/* Delta_{r,p}: the fragment's tensors one after the other */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    const struct pl_backend *be = o->setup.be;
    int p = (int)o->counter[CURSOR], rc;
    size_t n, at = 0;
    float *phi = pl_outer_get(o, "phi"), *delta;
    if (o->counter[CURSOR] >= (uint64_t)o->setup.fragments) return PL_EUSE; /* nothing is due */
    n = values_of(o, p);
    delta = be->alloc(n * sizeof *delta);
    rc = delta ? PL_OK : PL_ENOMEM;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[i];
        if (t->fragment != p) continue;
        rc = be->copy(delta + at, phi + t->offset, t->n);
        if (!rc) rc = be->axpy(delta + at, -1, x + t->offset, t->n);
        at += t->n;
    }
    if (!rc) rc = pl_outer_encode(o, delta, n);
    be->free(delta);
    out->bytes = pl_outer_coded_bytes(o->setup.coding, n);
    out->weight = o->counter[PL_OUTER_TAKEN] > taken(o)[p];
    if (rc) return rc;
    taken(o)[p] = o->counter[PL_OUTER_TAKEN];
    due(o)[p] = o->counter[PL_OUTER_STEPS] + (uint64_t)o->setup.tau;
    return scan(o);
}

/* theta = alpha theta + (1 - alpha) phi. A NaN must not outlive the exchange: alpha = 0 is a
 * copy. */
static int begin_at(struct pl_outer *o, float *theta, const float *phi, size_t n, double alpha)
{
    const struct pl_backend *be = o->setup.be;
    double squares;
    int rc = be->sumsq(&squares, theta, n);
    if (rc) return rc;
    return alpha == 0 || !isfinite(squares) ? be->copy(theta, phi, n)
                                            : be->outer_mix(theta, phi, n, (float)alpha);
}

/* A failed exchange takes the fragment back to phi_p: peers whose local parameters differ for good
 * would otherwise never agree again on them. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_outer_setup *s = &o->setup;
    int p = (int)o->counter[CURSOR], has_mean, rc;
    size_t at = 0;
    float *phi = pl_outer_get(o, "phi"), *b = pl_outer_get(o, "momentum");
    float *mean = pl_outer_get(o, "mean");
    if (o->counter[CURSOR] >= (uint64_t)s->fragments) return PL_EUSE;
    has_mean = pl_outer_arrived(o, in, count);
    rc = has_mean < 0 ? has_mean : PL_OK;
    for (int i = 0; !rc && i < s->count; i++) {
        const struct pl_outer_tensor *t = &s->tensors[i];
        size_t k = t->offset;
        if (t->fragment != p) continue;
        if (has_mean)
            rc = s->be->outer_nesterov(phi + k, b + k, mean + at, t->n, (float)s->mu, (float)s->nu);
        if (!rc) rc = begin_at(o, x + k, phi + k, t->n, has_mean ? s->alpha : 0);
        at += t->n;
    }
    if (rc) return rc;
    due(o)[p] = 0;
    if (has_mean) {
        o->counter[DONE]++;
        o->counter[PL_OUTER_ROUNDS]++;
    }
    /* on the grid one fragment ends at a time */
    o->counter[CURSOR] = offsets(o)[0] != ON_GRID ? (uint64_t)p + 1 : (uint64_t)s->fragments;
    return scan(o);
}

/* That of the fragment which this step has reached; between steps, on the grid, of the one under
 * way. */
static size_t under_way(const struct pl_outer *o)
{
    const uint64_t P = (uint64_t)o->setup.fragments, p = o->counter[CURSOR];
    return values_of(o, (int)(p < P ? p : o->counter[DONE] % P));
}

/* Every fragment once in H steps. */
static double bytes_per_step(const struct pl_outer *o)
{
    double bytes = 0;
    for (int p = 0; p < o->setup.fragments; p++)
        bytes += (double)pl_outer_coded_bytes(o->setup.coding, values_of(o, p));
    return bytes / o->setup.H;
}

const struct pl_outer_algorithm pl_outer_streaming = {
    .name = "streaming",
    .summary = "DiLoCo by fragments, while the peers train on",
    .bytes = "4 n / H, a fragment at a time; (n / 2 + n / 1024) / H in E3M0",
    .exchange = PL_OUTER_MEAN,
    .takes_clip = 1,
    .open = open_streaming,
    .close = close_streaming,
    .before_step = pl_outer_take_step,
    .after_step = after_step,
    .message = message,
    .apply = apply,
    .under_way = under_way,
    .bytes_per_step = bytes_per_step,
};
