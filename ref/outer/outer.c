/* outer.c - the calls of a trainer's loop: before_step and after_step
 * around each local step, then message and apply when after_step asks for a round. An algorithm is
 * a table of these functions; state.c saves and loads it, common.c has the steps that several
 * share. */
#include "outer.h"

#include <math.h>
#include <string.h>

/* DiLoCo's mu and nu, NoLoCo's H, group and gamma = nu, DeMo's topk and chunk, SparseLoCo's beta;
 * paper/spec/outer-steps.md has all that the papers give. */
void pl_outer_defaults(struct pl_outer_setup *s)
{
    *s = (struct pl_outer_setup){
        .peers = 1,
        .H = 50,
        .mu = 0.9,
        .nu = 0.7,
        .gamma = 0.7,
        .group = 2,
        .N = 1,
        .fragments = 1,
        .alpha = 0.5,
        .topk = 32,
        .chunk = 64,
        .beta = 0.95,
        .share = 0.01,
        .powersgd_rank = 4,
        .refill = 1,
        .limit = 1,
        .warm_up = 100,
        .adam = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
    };
}

/* ---- opening ---- */

/* paper/algorithms.md says of each algorithm why it does not take it. */
int pl_outer_check_clip(const struct pl_outer_algorithm *algorithm,
                        const struct pl_outer_setup *setup, struct pl_err *err)
{
    if (setup->clip == 0 || algorithm->takes_clip) return PL_OK;
    return pl_fail(err, PL_EUSE,
                   "algorithm %s takes no centered-clip: its peers' messages are not vectors of "
                   "which the mean alone is used",
                   algorithm->name);
}

/* Arguments that no algorithm can work with. */
static int check(const struct pl_outer_setup *s, struct pl_err *err)
{
    if (s->count < 1 || !s->tensors) return pl_fail(err, PL_EUSE, "no tensors to train");
    if (s->peers < 1 || s->peers > PL_OUTER_PEERS_MAX || s->rank < 0 || s->rank >= s->peers)
        return pl_fail(err, PL_EUSE, "peer %d of %d does not exist", s->rank, s->peers);
    if (s->H < 1) return pl_fail(err, PL_EUSE, "%d inner steps: at least one", s->H);
    for (int i = 0; i < s->count; i++)
        if (s->tensors[i].n < 1 || s->tensors[i].axes < 0 || s->tensors[i].axes > PL_OUTER_AXES_MAX)
            return pl_fail(err, PL_EUSE, "tensor %d: 1 to 2^63 entries in 0 to %d axes", i,
                           PL_OUTER_AXES_MAX);
    return PL_OK;
}

/* 1. Refuses arguments that no algorithm can work with.
 * 2. Copies the shapes, so that the caller's table may go.
 * 3. n = the end of the last tensor: the size of x and g, gaps between tensors included.
 * 4. The algorithm adds its buffers; phi begins at x, which is the same on all peers.
 * After an error pl_outer_close frees the buffers allocated so far. */
int pl_outer_open(struct pl_outer **out, const struct pl_outer_algorithm *algorithm,
                  const struct pl_outer_setup *setup, const float *x, struct pl_err *err)
{
    struct pl_outer_tensor *tensors = NULL;
    struct pl_outer *o;
    int rc = check(setup, err);
    *out = NULL;
    if (!rc) rc = pl_outer_check_clip(algorithm, setup, err);
    if (rc) return rc;
    o = pl_alloc(1, sizeof *o);
    tensors = pl_alloc((size_t)setup->count, sizeof *tensors);
    if (!o || !tensors) {
        pl_free(o);
        pl_free(tensors);
        return pl_fail(err, PL_ENOMEM, "no memory for %d tensors' shapes", setup->count);
    }
    memcpy(tensors, setup->tensors, (size_t)setup->count * sizeof *tensors);
    o->algorithm = algorithm;
    o->setup = *setup;
    o->setup.tensors = tensors;
    for (int i = 0; i < setup->count; i++)
        if (tensors[i].offset + tensors[i].n > o->n) o->n = tensors[i].offset + tensors[i].n;
    rc = algorithm->open ? algorithm->open(o, x, err) : PL_OK;
    if (rc == PL_ENOMEM) pl_fail(err, rc, "no memory for the state of %s", algorithm->name);
    if (rc) pl_outer_close(o);
    else *out = o;
    return rc;
}

void pl_outer_close(struct pl_outer *o)
{
    if (!o) return;
    if (o->algorithm->close) o->algorithm->close(o);
    for (int i = 0; i < o->buffers; i++)
        if (o->buffer[i].on_host) pl_free(o->buffer[i].at);
        else o->setup.be->free(o->buffer[i].at);
    pl_free((void *)(uintptr_t)o->setup.tensors);
    pl_free(o->out);
    pl_free(o);
}

/* ---- the loop's calls ---- */

/* GRADIENT -> STEP or SEND. sum_i g_i^2 is finite exactly if every g_i is a number and none is
 * infinite, since squares of float32 do not overflow a double. */
int pl_outer_before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    double squares;
    int rc = o->setup.be->sumsq(&squares, g, o->n);
    if (rc) return rc;
    o->lr = lr;
    o->counter[PL_OUTER_STEPS]++;
    o->skipped = !isfinite(squares);
    if (!o->skipped) o->counter[PL_OUTER_TAKEN]++;
    /* One NaN in AdamW's moments would stay there for good; a step left out costs one step. Where
     * gradients travel, the others' mean is still to be applied. */
    else if (!o->algorithm->sends_gradients) return o->algorithm->after_step(o, x);
    else if ((rc = o->setup.be->fill(g, 0, o->n))) return rc;
    return o->algorithm->before_step(o, x, g, lr);
}

/* STEP -> GRADIENT, or SEND after every H-th step. */
int pl_outer_after_step(struct pl_outer *o, float *x) { return o->algorithm->after_step(o, x); }

/* SEND -> RECEIVE. In mean = sum_r w_r Delta_r / sum_r w_r a peer without a step since its last
 * message has w_r = 0: zeros with weight 1 would pull the mean towards "no change". Algorithms
 * whose change outlives a failed exchange replace this weight (pl_outer_has_change). */
int pl_outer_message(struct pl_outer *o, struct pl_outer_message *message, float *x, float *g)
{
    int next;
    *message = (struct pl_outer_message){ .rank = o->setup.rank,
                                          .weight = o->algorithm->sends_gradients
                                                        ? !o->skipped
                                                        : o->counter[PL_OUTER_TAKEN] >
                                                              o->counter[PL_OUTER_SENT] };
    next = o->algorithm->message(o, message, x, g);
    o->counter[PL_OUTER_SENT] = o->counter[PL_OUTER_TAKEN];
    message->data = o->out;
    o->out_bytes = next < 0 ? 0 : message->bytes;
    return next;
}

/* RECEIVE -> GRADIENT; or STEP where gradients travel; or SEND if a second exchange follows. */
int pl_outer_apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                   int count)
{
    int next = o->algorithm->apply(o, x, g, in, count);
    o->out_bytes = 0; /* received, or taken back */
    o->counter[PL_OUTER_ARRIVED] = 0;
    return next;
}

/* For exchanges that overlap with local steps: the mean is stored when it has come, and applied
 * when the algorithm asks for it (RECEIVE). 1: there is one. */
int pl_outer_arrive(struct pl_outer *o, const struct pl_outer_message *in, int count)
{
    const size_t n = o->algorithm->under_way(o);
    double total = 0;
    int rc = pl_outer_mean(o, pl_outer_get(o, "mean"), &total, in, count,
                           pl_outer_coded_bytes(o->setup.coding, n), 0, n);
    o->counter[PL_OUTER_ARRIVED] = !rc && total > 0 ? (uint64_t)o->setup.peers : 0;
    return rc ? rc : total > 0;
}

/* As a formula of each algorithm, which a test compares with the bytes of its messages. */
double pl_outer_bytes_per_step(const struct pl_outer *o) { return o->algorithm->bytes_per_step(o); }
