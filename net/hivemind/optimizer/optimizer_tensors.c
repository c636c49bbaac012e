/* optimizer_tensors.c - gradient accumulation and the local optimizer, over tensors that lie
 * wherever the caller has them.
 *
 *   g_acc += n_b g_b            for each batch b of n_b samples, whose mean gradient is g_b
 *   g      = g_acc / sum n_b    this peer's value in the all-reduce
 *   x      = optimizer(x, g)    on one flat buffer, then copied into the caller's tensors
 *
 * The optimizer works on one flat buffer, so parameters are copied around each step. A copy
 * costs little compared with the gradients of a whole batch, and a delayed step gets parameters of
 * its own that the caller's model does not read meanwhile. */
#include "optimizer_tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 16 /* floats: each tensor begins at a multiple of 64 bytes, for vectorized loads */

struct collaborative_tensors {
    const struct pl_backend *be;
    const struct pl_collaborative_options *o;
    size_t count, total;
    float **caller; /* the caller's values, borrowed */
    struct pl_optimizer_tensor *list;
    struct pl_wire_type *types;
    float *value, *grad; /* flat */
    float *delayed_value, *delayed_grad;
    int is_delayed_lost;    /* the delayed step failed: its result is not applied */
    const float **gradient; /* each tensor's, for the caller's optimizer */
    int64_t samples;
    struct pl_optimizer *optimizer; /* NULL: the caller's */
    struct optimizer_state state;
};

/* Caller's tensors -> flat buffer. */
static void gather_values(struct collaborative_tensors *t, float *flat)
{
    for (size_t i = 0; i < t->count; i++)
        memcpy(flat + t->list[i].offset, t->caller[i], t->list[i].n * sizeof *flat);
}

/* Flat buffer -> caller's tensors. */
static void scatter_values(struct collaborative_tensors *t, const float *flat)
{
    for (size_t i = 0; i < t->count; i++)
        memcpy(t->caller[i], flat + t->list[i].offset, t->list[i].n * sizeof *flat);
}

void collaborative_tensors_publish(struct collaborative_tensors *t) { scatter_values(t, t->value); }

int collaborative_tensors_add(struct collaborative_tensors *t, const float *const *gradient,
                              int64_t samples, struct pl_err *err)
{
    /* Batches may differ in size: each sample counts the same, as in one large batch. */
    for (size_t i = 0; i < t->count; i++) {
        float *sum = t->grad + t->list[i].offset;
        const float *g = gradient[i];
        for (size_t k = 0; k < t->list[i].n; k++) {
            /* Checked before it is added: a NaN in the sum would cost all samples of the epoch. */
            if (!isfinite(g[k]))
                return pl_fail(err, PL_EFORMAT, "the gradient of %.100s is not finite at %zu",
                               t->list[i].name, k);
            sum[k] += (float)samples * g[k]; /* g_acc += n_b g_b */
        }
    }
    t->samples += samples;
    return PL_OK;
}

/* --- the trainer ------------------------------------------------------------------------------ */

/* Drops the accumulation. */
static void drop(struct collaborative_tensors *t)
{
    memset(t->grad, 0, t->total * sizeof *t->grad);
    t->samples = 0;
}

/* The gradient of our samples; the all-reduce weighs it by their number. [TTT 2.1] */
static int take_gradient(void *context, int delayed, float **gradient)
{
    struct collaborative_tensors *t = context;
    /* g = g_acc / sum n_b */
    float scale = t->samples ? 1 / (float)t->samples : 1;
    for (size_t i = 0; i < t->total; i++) t->grad[i] *= scale;
    *gradient = t->grad;
    if (!delayed) return PL_OK;
    /* Two more buffers, which only delayed updates need. */
    if (!t->delayed_grad && !(t->delayed_grad = pl_alloc(t->total, sizeof(float))))
        return PL_ENOMEM;
    if (!t->delayed_value && !(t->delayed_value = pl_alloc(t->total, sizeof(float))))
        return PL_ENOMEM;
    /* The gradient is kept in a buffer of its own, and accumulation begins anew: the next batches
     * overlap with its round. */
    memcpy(t->delayed_grad, t->grad, t->total * sizeof *t->grad);
    drop(t);
    *gradient = t->delayed_grad;
    return PL_OK;
}

/* The schedule is a function of the epoch alone, so that all peers agree on it. */
static double learning_rate(const struct collaborative_tensors *t, int64_t epoch)
{
    return t->o->schedule ? t->o->schedule(t->o->context, epoch) : t->o->lr;
}

/* value = optimizer(t->value, grad). */
static int step_with(struct collaborative_tensors *t, float *value, float *grad, int64_t epoch,
                     struct pl_err *err)
{
    double norm;
    int rc;
    if (!t->optimizer) {
        for (size_t i = 0; i < t->count; i++) t->gradient[i] = grad + t->list[i].offset;
        /* A caller's optimizer reads and writes the caller's own tensors. */
        scatter_values(t, t->value);
        rc = t->o->step(t->o->context, t->gradient, epoch, err);
        if (!rc) gather_values(t, value);
        return rc;
    }
    /* One norm serves two: a gradient that is not finite is found, and clipping needs it. */
    rc = pl_optimizer_grad_norm(t->optimizer, grad, &norm);
    if (!rc && !isfinite(norm))
        return pl_fail(err, PL_EFORMAT, "step %lld: the gradient is not finite", (long long)epoch);
    if (!rc)
        rc = pl_optimizer_step_normed(t->optimizer, value, grad, norm, learning_rate(t, epoch));
    return rc ? pl_fail(err, rc, "step %lld: %s", (long long)epoch, pl_status_name(rc)) : PL_OK;
}

static int step(void *context, int64_t epoch, int delayed, struct pl_err *err)
{
    struct collaborative_tensors *t = context;
    int rc;
    if (!delayed) {
        rc = step_with(t, t->value, t->grad, epoch, err);
        if (!rc) drop(t);
        return rc;
    }
    /* The step works on a copy: until TRAINER_APPLY the model computes with the old parameters. */
    memcpy(t->delayed_value, t->value, t->total * sizeof *t->value);
    rc = step_with(t, t->delayed_value, t->delayed_grad, epoch, err);
    /* A failed step has left half-written parameters: they are never applied. */
    t->is_delayed_lost = rc != PL_OK;
    return rc;
}

static int change(void *context, enum trainer_change change, int64_t epoch)
{
    struct collaborative_tensors *t = context;
    switch (change) {
    case TRAINER_APPLY: /* Between two batches, when the model does not compute. Corrections by
                         * rounds of the parameters are in the copy already: none is added while a
                         * step is under way. */
        if (!t->is_delayed_lost) memcpy(t->value, t->delayed_value, t->total * sizeof *t->value);
        break;
    case TRAINER_LOADED: break; /* into the flat buffer; the event that follows publishes it */
    case TRAINER_DROP: drop(t); break;
    }
    return PL_OK;
}

/* --- open, close ------------------------------------------------------------------------------ */

/* Checks a tensor of the caller and gives it a place in the flat buffer. */
static int take_tensor(struct collaborative_tensors *t, const struct pl_collaborative_tensor *from,
                       double decay, struct pl_err *err)
{
    size_t i = t->count;
    const char *name = from->name ? from->name : "a tensor without a name";
    struct pl_optimizer_tensor *to = &t->list[i];
    struct pl_wire_type *type = &t->types[i];
    if (from->dims < 0 || from->dims > PL_COLLABORATIVE_DIMS_MAX)
        return pl_fail(err, PL_EUSE, "%.100s: %d axes, expected 0 to %d", name, from->dims,
                       PL_COLLABORATIVE_DIMS_MAX);
    *type = (struct pl_wire_type){ .dtype = PL_F32, .dims = from->dims };
    for (int d = 0; d < from->dims; d++) {
        if (from->shape[d] < 1)
            return pl_fail(err, PL_EUSE, "%.100s: %lld elements along axis %d", name,
                           (long long)from->shape[d], d);
        type->size[d] = from->shape[d];
    }
    if (!from->value) return pl_fail(err, PL_EUSE, "%.100s: no values", name);
    *to = (struct pl_optimizer_tensor){ .offset = t->total,
                                        .decay = from->no_decay ? 0 : decay,
                                        .name = strdup(name) };
    t->caller[i] = from->value;
    t->count++; /* close frees the name */
    if (!to->name) return pl_fail(err, PL_ENOMEM, "no memory");
    if (pl_wire_elements(&to->n, type, NULL) || to->n > SIZE_MAX / 2 - t->total)
        return pl_fail(err, PL_ELIMIT, "%.100s: more elements than memory has addresses", name);
    /* The gaps stay 0 in values and gradients, so they change neither norms nor steps. */
    t->total += (to->n + ALIGN - 1) / ALIGN * ALIGN;
    return PL_OK;
}

int collaborative_tensors_open(struct collaborative_tensors **out,
                               struct pl_collaborative_trainer *trainer,
                               const struct pl_collaborative_tensor *tensors, size_t count,
                               const struct pl_collaborative_options *o,
                               const struct pl_backend *be, struct pl_err *err)
{
    /* LAMB with the reference run's settings, unless the caller says otherwise. [spec
     * hivemind-protocol 10] */
    struct pl_optimizer_options options = o->optimizer ? *o->optimizer : pl_lamb_options();
    /* Tensors with and without decay are two groups; a caller's optimizer knows of none. */
    const double decay = o->step ? 0 : options.decay;
    struct collaborative_tensors *t = calloc(1, sizeof *t);
    int rc = PL_OK;
    *out = NULL;
    if (!t) return pl_fail(err, PL_ENOMEM, "no memory");
    t->be = be;
    t->o = o;
    t->caller = calloc(count + 1, sizeof *t->caller);
    t->list = calloc(count + 1, sizeof *t->list);
    t->types = calloc(count + 1, sizeof *t->types);
    t->gradient = calloc(count + 1, sizeof *t->gradient);
    if (!t->caller || !t->list || !t->types || !t->gradient)
        rc = pl_fail(err, PL_ENOMEM, "no memory");
    if (!count) rc = pl_fail(err, PL_EUSE, "no tensors to train");
    for (size_t i = 0; !rc && i < count; i++) rc = take_tensor(t, &tensors[i], decay, err);
    if (!rc && (!(t->value = pl_alloc(t->total, sizeof(float))) ||
                !(t->grad = pl_alloc(t->total, sizeof(float)))))
        rc = pl_fail(err, PL_ENOMEM, "no memory for %zu parameters and their gradients", t->total);
    if (!rc) gather_values(t, t->value);
    /* A caller's optimizer has moments that we do not know: newcomers get parameters alone. */
    if (!rc && !o->step)
        rc = pl_optimizer_open(&t->optimizer, be, &options, t->list, t->count, err);
    if (!rc)
        rc = optimizer_state_open(&t->state, t->optimizer, &options, be, t->list, t->types,
                                  t->count, err);
    if (rc) {
        collaborative_tensors_close(t);
        return rc;
    }
    *trainer = (struct pl_collaborative_trainer){ .state = &t->state,
                                                  .value = t->value,
                                                  .context = t,
                                                  .take_gradient = take_gradient,
                                                  .step = step,
                                                  .change = change,
                                                  .overlaps = !o->step };
    *out = t;
    return PL_OK;
}

void collaborative_tensors_close(struct collaborative_tensors *t)
{
    if (!t) return;
    optimizer_state_close(&t->state);
    pl_optimizer_close(t->optimizer);
    for (size_t i = 0; i < t->count; i++) free((void *)(uintptr_t)t->list[i].name);
    pl_free(t->value);
    pl_free(t->grad);
    pl_free(t->delayed_value);
    pl_free(t->delayed_grad);
    free(t->caller);
    free(t->list);
    free(t->types);
    free(t->gradient);
    free(t);
}
