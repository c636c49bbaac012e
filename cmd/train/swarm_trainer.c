/* swarm_trainer.c - the hooks by which the collaborative optimizer moves a trainer of
 * runtime/trainer.h: its gradient, a step, another peer's state. [TTT 3.3] */
#include "swarm_trainer.h"
#include "cmd/common/interrupt.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define SHARE 0.2 /* of the last batch in our speed */

int swarm_trainer_add_batch(struct swarm_trainer *l, double *loss, struct pl_err *err)
{
    const struct train_job *job = l->w->job;
    const int32_t *text, *codes;
    /* The trainer sums losses over all samples of the step: the batch's is the difference. */
    double before = l->t->sum.total, began = pl_seconds(), left;
    int rc = PL_OK;
    if (l->me && l->shuffled_epoch != l->epoch) {
        rc = swarm_samples_shuffle(&job->source, l->me, l->epoch, err);
        l->shuffled_epoch = l->epoch;
    }
    if (!rc) rc = job->source.next(job->source.context, &text, &codes, err);
    if (rc) return rc == PL_EFORMAT ? PL_EIO : rc; /* bad data is not bad numbers */
    if ((rc = pl_trainer_add(l->t, text, codes, job->micro_batch, err))) return rc;
    *loss = (l->t->sum.total - before) / job->micro_batch;
    /* An average over some batches: how long a groupmate's gradient will take to recompute. */
    l->seconds_a_sample += (l->seconds_a_sample > 0 ? SHARE : 1) *
                           ((pl_seconds() - began) / job->micro_batch - l->seconds_a_sample);
    if ((left = began + l->w->slow - pl_seconds()) > 0) {
        struct timespec nap = { (time_t)left, (long)((left - floor(left)) * 1e9) };
        nanosleep(&nap, NULL);
    }
    return PL_OK;
}

/* --- the trainer's hooks, see optimizer_trainer.h ----------------------------------------- */

/* The losses of all samples since the last common step. */
static void add_loss(struct swarm_trainer *l, const struct pl_dalle_loss *sum, uint64_t samples)
{
    l->sum.total += sum->total;
    l->sum.text += sum->text;
    l->sum.image += sum->image;
    l->samples += samples;
}

/* g_k = (sum over our samples) / n_k. Delayed: pl_trainer_begin_delayed copies the
 * gradient, so that the next batches accumulate anew. */
static int take_gradient(void *context, int delayed, float **gradient)
{
    struct swarm_trainer *l = context;
    int rc = pl_trainer_mean(l->t);
    *gradient = l->t->model->params.grad;
    if (l->w->job->outer) add_loss(l, &l->t->sum, l->t->samples);
    if (rc || !delayed) return rc;
    l->w->hooks->gathered(l->w->hooks->state);
    rc = pl_trainer_begin_delayed(l->t);
    *gradient = pl_trainer_delayed_grad(l->t);
    return rc;
}

/* The step from `epoch` to the next. The trainer's own counter follows, since the learning rate of
 * the schedule depends on it. */
static int step(void *context, int64_t epoch, int delayed, struct pl_err *err)
{
    struct swarm_trainer *l = context;
    double began = pl_seconds();
    int rc;
    l->t->step = (uint64_t)epoch;
    /* On a thread of its own, while batches are computed. */
    if (delayed) return pl_trainer_step_delayed(l->t, &l->report, err);
    rc = pl_trainer_step(l->t, &l->report, err);
    l->time.computing += pl_seconds() - began;
    if (!rc) l->epoch = epoch + 1;
    if (!rc && l->w->job->outer) l->w->hooks->moved(l->w->hooks->state);
    return rc;
}

static int change(void *context, enum trainer_change change, int64_t epoch)
{
    struct swarm_trainer *l = context;
    switch (change) {
    case TRAINER_APPLY: return pl_trainer_apply_delayed(l->t);
    case TRAINER_LOADED:
        l->t->step = (uint64_t)epoch;
        l->epoch = epoch;
        /* what the trainer rolls back to after bad numbers: now the state just loaded */
        return pl_trainer_snapshot(l->t);
    case TRAINER_DROP:
        /* The order begins anew as well: a validator draws the first samples of an epoch, so ours
         * have to be those. */
        l->shuffled_epoch = -1;
        return pl_trainer_drop(l->t);
    }
    return PL_OK;
}

static int is_interrupted(void *context) { return interrupted(); }

/* Peers verify each other only if they have the same data, so its name goes to the group. A
 * validator can recompute a gradient only if the data can be drawn in a given order. */
int swarm_trainer_open(struct swarm_trainer *l, struct train_swarm *w, struct pl_trainer *t,
                       const struct peer_id *me, struct pl_err *err)
{
    const struct train_source *source = &w->job->source;
    int rc;
    *l = (struct swarm_trainer){ .w = w, .t = t, .epoch = (int64_t)t->step, .shuffled_epoch = -1 };
    rc = optimizer_state_open_params(&l->state, t->optimizer, &t->options.optimizer,
                                     &t->model->params, err);
    if (rc || !w->averaging->verify || !(w->averaging->validators > 0) || !source->shuffle)
        return rc;
    l->me = me;
    return source->name(source->context, l->data, err);
}

void swarm_trainer_close(struct swarm_trainer *l) { optimizer_state_close(&l->state); }

struct pl_collaborative_trainer swarm_trainer_hooks(struct swarm_trainer *l)
{
    struct pl_collaborative_trainer hooks = { .state = &l->state,
                                              .value = l->t->model->params.value,
                                              .context = l,
                                              .take_gradient = take_gradient,
                                              .step = step,
                                              .change = change,
                                              .is_interrupted = is_interrupted,
                                              .overlaps = l->t->model->params.be->many_threads,
                                              .outer = l->w->job->outer };
    if (l->me)
        hooks.validation = (struct trainer_validation){ swarm_samples_recompute,
                                                        l->w->averaging->validators, l->data };
    return hooks;
}

void swarm_trainer_end_outer_step(struct swarm_trainer *l)
{
    const double n = fmax(1, (double)l->samples);
    l->report.loss = (struct pl_dalle_loss){ l->sum.total / n, l->sum.text / n, l->sum.image / n };
    l->report.samples = l->samples;
    l->t->step = l->w->job->outer->counter[PL_OUTER_STEPS];
    memset(&l->sum, 0, sizeof l->sum);
    l->samples = 0;
}
