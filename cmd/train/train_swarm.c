/* train_swarm.c - a training as a user of the collaborative optimizer. [TTT 2.1; 3.3]
 *
 *   join     into the swarm, with preflight checks (train_join.c)
 *   loop     draw a batch, add its gradient (swarm_trainer.c), pl_collaborative_step
 *   report   the optimizer's events become lines for the user, log entries and checkpoints
 *
 * The optimizer decides when to step. */
#include "train_swarm.h"
#include "swarm_events.h"
#include "swarm_trainer.h"
#include "train_join.h"
#include "train_rounds.h"
#include "cmd/common/interrupt.h"

#include <math.h>
#include <stdio.h>

/* The context of the optimizer's options. */
struct swarm_training {
    struct train_swarm *w;
    struct train_join join;
    struct swarm_trainer trainer;
    int has_mates; /* others have trained with us */
    double stepped_at;
};

/* lr(e) rises to the peak during warmup, then falls to 0 at the last step, for all peers alike.
 * [spec hivemind-protocol 10] */
static double learning_rate(void *context, int64_t epoch)
{
    const struct pl_train_options *o = &((struct swarm_training *)context)->trainer.t->options;
    return pl_schedule_linear(o->peak, o->warmup, o->total, (uint64_t)epoch);
}

/* --- events ----------------------------------------------------------------------------------- */

static void report_time(struct swarm_training *l, int at_end)
{
    const struct train_swarm *w = l->w;
    const struct averaging_plan plan = { .has_local_steps = train_has_local_steps(w),
                                         .is_delayed = w->delay == PL_DELAY_ROUND,
                                         .inner_steps = w->inner_steps,
                                         .target_batch = w->job->target_batch };
    if (l->has_mates && (w->json || !w->job->quiet))
        averaging_time_report(&l->trainer.time, &plan, w->job->cmd, at_end, w->json);
}

/* On the training's thread, within pl_collaborative_open, _step, _finish and _close. */
static void report(void *context, const struct pl_collaborative_event *e)
{
    struct swarm_training *l = context;
    struct train_swarm *w = l->w;
    const double began = pl_seconds();
    struct pl_err err;
    /* a token that was refused is requested again with the next batch */
    if (e->kind == PL_COLLABORATIVE_BATCH &&
        membership_renew(&w->join->membership, &l->join.swarm, &err))
        fprintf(stderr, "\npotluck %s: %s\n", w->job->cmd, err.text);
    if (w->json) swarm_event_json(e);
    else if (!w->job->quiet)
        swarm_event_text(e, w->job->cmd, w->averaging->verify, train_period(w));
    if (e->kind == PL_COLLABORATIVE_READY && w->min_peers > 1 && !w->json && !w->job->quiet)
        fprintf(stderr, "potluck %s: the first step waits for %d peers, five minutes at most\n",
                w->job->cmd, w->min_peers);
    if (e->kind == PL_COLLABORATIVE_EPOCH && w->job->outer)
        swarm_trainer_end_outer_step(&l->trainer);
    if (e->kind == PL_COLLABORATIVE_EPOCH) {
        l->has_mates |= e->round.peers > 1;
        if (w->hooks->stepped(w->hooks->state, &l->trainer.report, began - l->stepped_at, &err))
            fprintf(stderr, "potluck %s: %s\n", w->job->cmd, err.text);
        l->stepped_at = began;
        l->trainer.time.computing += pl_seconds() - began;
        report_time(l, 0);
    }
}

/* --- the run ---------------------------------------------------------------------------------- */

/* Ctrl-C, the last step, or the time limit. */
static int is_over(const struct swarm_training *l, const struct pl_collaborative *c, double began)
{
    const struct train_job *job = l->w->job;
    return interrupted() ||
           (job->outer ? l->trainer.t->step : (uint64_t)pl_collaborative_epoch(c)) >= job->steps ||
           (job->seconds > 0 && pl_seconds() - began > job->seconds);
}

static int train(struct swarm_training *l, struct pl_collaborative *c, double began,
                 struct pl_err *err)
{
    const struct train_held_out *h = l->w->job->held_out;
    struct averaging_time *time = &l->trainer.time;
    double held_out = NAN;
    int rc = PL_OK;
    l->stepped_at = pl_seconds();
    while (!rc && !is_over(l, c, began)) {
        const double batch_began = pl_seconds();
        double loss, called, computing;
        rc = swarm_trainer_add_batch(&l->trainer, &loss, err);
        called = pl_seconds();
        time->computing += called - batch_began;
        computing = time->computing;
        /* A loss that is not finite drops the batch; the optimizer decides whether to go on. */
        if (rc == PL_EAGAIN && is_over(l, c, began)) rc = PL_OK;
        else if (rc == PL_EFORMAT) rc = pl_collaborative_discard(c, err->text, err);
        else if (!rc) rc = pl_collaborative_step(c, NULL, l->w->job->micro_batch, loss, err);
        if (h && isfinite(h->last) && h->last != held_out)
            pl_collaborative_held_out(c, held_out = h->last);
        /* Time in the optimizer's call, less the time that our hooks computed within it. */
        time->averaging += pl_seconds() - called - (time->computing - computing);
    }
    if (!rc) report_time(l, 1);
    return rc ? rc : pl_collaborative_finish(c, err);
}

/* A checkpoint of a training alone knows its steps, but no outer ones. */
static int64_t first_epoch(const struct swarm_training *l)
{
    const struct pl_outer *o = l->w->job->outer;
    if (!o) return (int64_t)l->trainer.t->step;
    return o->counter[PL_OUTER_STEPS] == l->trainer.t->step
               ? (int64_t)o->counter[PL_OUTER_ROUNDS]
               : (int64_t)l->trainer.t->step / train_period(l->w);
}

static int64_t last_epoch(const struct swarm_training *l)
{
    return (int64_t)l->w->job->steps / train_period(l->w);
}

static int train_in_swarm(struct swarm_training *l, struct pl_err *err)
{
    struct pl_trainer *t = l->trainer.t;
    struct train_swarm *w = l->w;
    const struct averaging_options *a = w->averaging;
    const struct pl_collaborative_node node = { &l->join.swarm, &l->join.key };
    struct pl_collaborative_run run = { .name = w->run,
                                        .node = &node,
                                        .client_mode = w->join->client_mode };
    const struct pl_collaborative_trainer trainer = swarm_trainer_hooks(&l->trainer);
    struct pl_collaborative_options o = {
        .device = t->model->params.be->note,
        .own_name = w->name,
        .compression = a->compression,
        .target_batch = w->job->target_batch,
        .min_peers = (size_t)w->min_peers,
        .lr = t->options.peak,
        .schedule = learning_rate,
        .algorithm = w->algorithm,
        .algorithm_settings = w->algorithm_settings,
        .powersgd_rank = w->powersgd_rank ? w->powersgd_rank : train_rounds_rank(w->hooks->rounds),
        .inner_steps = w->inner_steps,
        .outer_lr = w->outer_lr,
        /* 0 would be the default */
        .outer_momentum = w->outer_momentum > 0 ? w->outer_momentum : -1,
        .epoch = first_epoch(l),
        .epochs = last_epoch(l),
        .average_state_every = w->average_state_every,
        .matchmaking_time = a->matchmaking_time,
        .averaging_timeout = a->averaging_timeout,
        .allreduce_timeout = a->allreduce_timeout,
        .group_size = (size_t)a->group_size,
        .group_bits = a->group_bits,
        .bandwidth = a->bandwidth == PL_BANDWIDTH_UNKNOWN ? 0
                     : a->bandwidth == 0                  ? -1
                                                          : a->bandwidth,
        .clip = a->clip,
        .verify = a->verify,
        .delay = (enum pl_collaborative_delay)w->delay,
        .report = report,
        .context = l,
        .trainer = &trainer
    };
    struct pl_collaborative *c = NULL;
    double began = pl_seconds();
    int rc = pl_collaborative_open(&c, &run, NULL, 0, &o, err);
    if (!rc && train_is_powersgd(w)) rc = train_rounds_load(w->hooks->rounds, c, o.epoch, err);
    if (!rc) rc = train(l, c, began, err);
    train_rounds_end(w->hooks->rounds);
    if (c && !w->job->outer) t->step = (uint64_t)pl_collaborative_epoch(c);
    pl_collaborative_close(c);
    return rc;
}

int train_swarm_run(void *context, struct pl_trainer *trainer, const struct train_job *job,
                    const struct train_hooks *hooks, struct pl_err *err)
{
    struct train_swarm *w = context;
    struct swarm_training l = { .w = w };
    int rc;
    w->job = job;
    w->hooks = hooks;
    rc = swarm_trainer_open(&l.trainer, w, trainer, &l.join.swarm.me.id, err);
    if (!rc) {
        if (!(rc = train_join_open(&l.join, w, trainer, err))) rc = train_in_swarm(&l, err);
        train_join_close(&l.join);
    }
    swarm_trainer_close(&l.trainer);
    return rc;
}
