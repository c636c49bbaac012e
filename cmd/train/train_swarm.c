/* train_swarm.c - a trainer of runtime/trainer.h under the collaborative optimizer of
 * net/hivemind/optimizer.h. [TTT 2.1; 3.3]
 *
 *   batch   draw samples, add their gradient, pl_collaborative_step
 *   hooks   the optimizer asks this trainer for its gradient, for a step, for a peer's state
 *   report  its events become lines for the user, log entries and checkpoints
 *
 * The optimizer decides when to step. Parameters stay in the device's memory. */
#include "train_swarm.h"
#include "averaging_time.h"
#include "swarm_events.h"
#include "cmd/common/train_manifest.h"
#include "train_rounds.h"
#include "cmd/common/outputs.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/doctor/preflight.h"
#include "net/hivemind/optimizer/optimizer_trainer.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The context of all hooks. */
struct swarm_trainer {
    struct train_swarm *w;
    struct swarm *s;
    struct pl_trainer *t;
    struct optimizer_state state;
    struct pl_train_report report; /* of the last step */
    /* For validators: a peer's samples of an epoch follow from its id and the epoch, so that any
     * groupmate can compute its gradient again. */
    int is_repeatable;
    int64_t epoch, shuffled_epoch; /* of the parameters; of the order */
    double seconds_a_sample;       /* ours, running */
    struct pl_dalle_loss sum;      /* with local steps: of all since the last outer one */
    uint64_t samples;
    struct averaging_time time;
    int has_mates; /* others have trained with us */
    double stepped_at;
};

static int set_up(struct pl_outer_setup *setup, const struct train_swarm *w, struct pl_err *err)
{
    const struct pl_collaborative_options o = { .algorithm = w->algorithm,
                                                .algorithm_settings = w->algorithm_settings,
                                                .inner_steps = w->inner_steps,
                                                .outer_lr = w->outer_lr,
                                                .outer_momentum = w->outer_momentum };
    return collaborative_outer_setup(setup, &o, err);
}

int64_t train_period(const struct train_swarm *w)
{
    struct pl_outer_setup setup;
    return !train_outer(w) || set_up(&setup, w, NULL) ? 1 : pl_outer_period(train_outer(w), &setup);
}

/* Steps of the run at an outer step, as the schedule and the log count them. */
static uint64_t steps_at(const struct swarm_trainer *l, int64_t epoch)
{
    return (uint64_t)(epoch * train_period(l->w));
}

/* --- batches ---------------------------------------------------------------------------------- */

#define PATIENCE 0.5 /* of an all-reduce's time limit: to compute a groupmate's gradient */
#define SHARE 0.2    /* of the last batch in our speed */

/* Seed = SHA-256(peer id, epoch): the order of a peer's samples is public, and differs for each
 * peer and epoch. */
static int shuffle_for(struct swarm_trainer *l, const struct peer_id *peer, int64_t epoch,
                       struct pl_err *err)
{
    const struct train_source *source = &l->w->job->source;
    uint8_t text[sizeof peer->bytes + 8], hash[32];
    uint64_t seed = 0;
    memcpy(text, peer->bytes, peer->length);
    for (int i = 0; i < 8; i++) text[peer->length + i] = (uint8_t)((uint64_t)epoch >> 8 * i);
    EVP_Digest(text, peer->length + 8, hash, NULL, EVP_sha256(), NULL);
    for (int i = 0; i < 8; i++) seed = seed << 8 | hash[i];
    return source->shuffle(source->context, seed >> 1, err); /* as JSON's integers are */
}

/* PL_EAGAIN: interrupted while it waited for data. PL_EFORMAT: the loss is not finite. */
static int add_batch(struct swarm_trainer *l, double *loss, struct pl_err *err)
{
    const struct train_job *job = l->w->job;
    const int32_t *text, *codes;
    /* The trainer sums losses over all samples of the step: the batch's is the difference. */
    double before = l->t->sum.total, began = pl_seconds(), left;
    int rc = PL_OK;
    if (l->is_repeatable && l->shuffled_epoch != l->epoch) {
        rc = shuffle_for(l, &l->s->me.id, l->epoch, err);
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

/* g_k = (sum over our samples) / n_k. Delayed: pl_trainer_begin_delayed exchanges the gradient
 * buffer, so that the next batches accumulate in another one. */
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
    if (!rc && l->w->job->outer) { l->w->hooks->moved(l->w->hooks->state); }
    return rc;
}

/* The report of an outer step has the mean loss of its inner ones. */
static void end_outer_step(struct swarm_trainer *l)
{
    const double n = fmax(1, (double)l->samples);
    l->report.loss = (struct pl_dalle_loss){ l->sum.total / n, l->sum.text / n, l->sum.image / n };
    l->report.samples = l->samples;
    l->t->step = l->w->job->outer->counter[PL_OUTER_STEPS];
    memset(&l->sum, 0, sizeof l->sum);
    l->samples = 0;
}

/* The order begins anew as well: a validator draws the first samples of an epoch, so ours have to
 * be those. */
static int drop(struct swarm_trainer *l)
{
    l->shuffled_epoch = -1;
    return pl_trainer_drop(l->t);
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
    case TRAINER_DROP: return drop(l);
    }
    return PL_OK;
}

/* A validator's part in BTARD: the peer's first samples of this epoch, in batches of our own size.
 * It must end well before the all-reduce's time limit, while the whole group waits for it. */
static int recompute(void *context, const struct peer_id *peer, int64_t epoch, uint64_t samples,
                     float **gradient)
{
    struct swarm_trainer *l = context;
    const struct train_job *job = l->w->job;
    uint64_t own_samples = l->t->samples;
    struct pl_dalle_loss own_sum = l->t->sum;
    int rc = l->seconds_a_sample * (double)samples > PATIENCE * l->w->averaging->allreduce_timeout
                 ? PL_EAGAIN
                 : PL_OK;
    *gradient = l->t->model->params.grad;
    if (rc || epoch != l->epoch) return rc ? rc : PL_ENOTFOUND;
    rc = drop(l);
    if (!rc) rc = shuffle_for(l, peer, epoch, NULL);
    for (uint64_t n = 0, some; !rc && n < samples; n += some) {
        const int32_t *text, *codes;
        some = samples - n;
        if (some > (uint64_t)job->micro_batch) some = (uint64_t)job->micro_batch;
        rc = job->source.next(job->source.context, &text, &codes, NULL);
        if (!rc) rc = pl_trainer_add(l->t, text, codes, (int)some, NULL);
    }
    if (!rc) rc = pl_trainer_mean(l->t);
    l->t->samples = own_samples;
    l->t->sum = own_sum;
    return rc;
}

/* lr(e) rises to the peak during warmup, then falls to 0 at the last step, for all peers alike.
 * [spec hivemind-protocol 10] */
static double learning_rate(void *context, int64_t epoch)
{
    const struct pl_train_options *o = &((struct swarm_trainer *)context)->t->options;
    return pl_schedule_linear(o->peak, o->warmup, o->total, (uint64_t)epoch);
}

/* --- events ----------------------------------------------------------------------------------- */

static void report_time(struct swarm_trainer *l, int at_end)
{
    const struct train_swarm *w = l->w;
    const struct averaging_plan plan = { .has_local_steps = train_has_local_steps(w),
                                         .is_delayed = w->delay == PL_DELAY_ROUND,
                                         .inner_steps = w->inner_steps,
                                         .target_batch = w->job->target_batch };
    if (l->has_mates && (w->json || !w->job->quiet))
        averaging_time_report(&l->time, &plan, w->job->cmd, at_end, w->json);
}

/* On the training's thread, within pl_collaborative_open, _step, _finish and _close. */
static void report(void *context, const struct pl_collaborative_event *e)
{
    struct swarm_trainer *l = context;
    struct train_swarm *w = l->w;
    const double began = pl_seconds();
    struct pl_err err;
    /* a token that was refused is requested again with the next batch */
    if (e->kind == PL_COLLABORATIVE_BATCH && membership_renew(&w->join->membership, l->s, &err))
        fprintf(stderr, "\npotluck %s: %s\n", w->job->cmd, err.text);
    if (w->json) swarm_event_json(e);
    else if (!w->job->quiet)
        swarm_event_text(e, w->job->cmd, w->averaging->verify, (int64_t)steps_at(l, 1));
    if (e->kind == PL_COLLABORATIVE_EPOCH && w->job->outer) end_outer_step(l);
    if (e->kind == PL_COLLABORATIVE_EPOCH) {
        l->has_mates |= e->round.peers > 1;
        if (w->hooks->stepped(w->hooks->state, &l->report, began - l->stepped_at, &err))
            fprintf(stderr, "potluck %s: %s\n", w->job->cmd, err.text);
        l->stepped_at = began;
        l->time.computing += pl_seconds() - began;
        report_time(l, 0);
    }
}

/* --- the run ---------------------------------------------------------------------------------- */

/* Ctrl-C, the last step, or the time limit. */
static int is_over(const struct swarm_trainer *l, const struct pl_collaborative *c, double began)
{
    const struct train_job *job = l->w->job;
    return l->w->hooks->interrupted(l->w->hooks->state) ||
           (job->outer ? l->t->step : (uint64_t)pl_collaborative_epoch(c)) >= job->steps ||
           (job->seconds > 0 && pl_seconds() - began > job->seconds);
}

static int train(struct swarm_trainer *l, struct pl_collaborative *c, double began,
                 struct pl_err *err)
{
    const struct train_held_out *h = l->w->job->held_out;
    double held_out = NAN;
    int rc = PL_OK;
    l->stepped_at = pl_seconds();
    while (!rc && !is_over(l, c, began)) {
        const double batch_began = pl_seconds();
        double loss, called, computing;
        rc = add_batch(l, &loss, err);
        called = pl_seconds();
        l->time.computing += called - batch_began;
        computing = l->time.computing;
        /* A loss that is not finite drops the batch; the optimizer decides whether to go on. */
        if (rc == PL_EAGAIN && is_over(l, c, began)) rc = PL_OK;
        else if (rc == PL_EFORMAT) rc = pl_collaborative_discard(c, err->text, err);
        else if (!rc) rc = pl_collaborative_step(c, NULL, l->w->job->micro_batch, loss, err);
        if (h && isfinite(h->last) && h->last != held_out)
            pl_collaborative_held_out(c, held_out = h->last);
        /* Time in the optimizer's call, less the time that our hooks computed within it. */
        l->time.averaging += pl_seconds() - called - (l->time.computing - computing);
    }
    if (!rc) report_time(l, 1);
    return rc ? rc : pl_collaborative_finish(c, err);
}

/* A checkpoint of a training alone knows its steps, but no outer ones. */
static int64_t first_epoch(const struct swarm_trainer *l)
{
    const struct pl_outer *o = l->w->job->outer;
    if (!o) return (int64_t)l->t->step;
    return o->counter[PL_OUTER_STEPS] == l->t->step ? (int64_t)o->counter[PL_OUTER_ROUNDS]
                                                    : (int64_t)l->t->step / train_period(l->w);
}

static int64_t last_epoch(const struct swarm_trainer *l)
{
    return (int64_t)l->w->job->steps / train_period(l->w);
}

static int train_in_swarm(struct swarm_trainer *l, struct swarm *s, const struct rsa_key *key,
                          struct pl_err *err)
{
    const struct pl_params *p = &l->t->model->params;
    struct train_swarm *w = l->w;
    const struct averaging_options *a = w->averaging;
    char data[TRAIN_DATA_NAME] = "";
    const struct pl_collaborative_node node = { s, key };
    struct pl_collaborative_run run = { .name = w->run,
                                        .node = &node,
                                        .client_mode = w->join->client_mode };
    struct pl_collaborative_trainer trainer = { .state = &l->state,
                                                .value = p->value,
                                                .context = l,
                                                .take_gradient = take_gradient,
                                                .step = step,
                                                .change = change,
                                                .overlaps = p->be->many_threads,
                                                .outer = w->job->outer };
    struct pl_collaborative_options o = {
        .device = p->be->note,
        .own_name = w->name,
        .compression = a->compression,
        .target_batch = w->job->target_batch,
        .lr = l->t->options.peak,
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
    /* Peers verify each other only if they have the same data: its name goes to the group. */
    int rc = l->is_repeatable ? w->job->source.name(w->job->source.context, data, err) : PL_OK;
    if (l->is_repeatable)
        trainer.validation = (struct trainer_validation){ recompute, a->validators, data };
    l->epoch = (int64_t)l->t->step;
    l->shuffled_epoch = -1;
    if (!rc) rc = pl_collaborative_open(&c, &run, NULL, 0, &o, err);
    if (!rc && train_is_powersgd(w)) rc = train_rounds_load(w->hooks->rounds, c, o.epoch, err);
    if (!rc) rc = train(l, c, began, err);
    train_rounds_end(w->hooks->rounds);
    if (c && !w->job->outer) l->t->step = (uint64_t)pl_collaborative_epoch(c);
    pl_collaborative_close(c);
    return rc;
}

/* Printed before anything is waited for: others may come while we still join. */
static void print_addresses(const struct train_swarm *w, struct swarm *s)
{
    char address[MULTIADDR_TEXT_MAX], name[1024], before[sizeof name + 20];
    snprintf(before, sizeof before, "  --run %s --join ",
             outputs_shell_word(name, sizeof name, w->run));
    if (!w->json)
        cmd_show_addresses(s, stderr,
                           w->manifest ? "others join this run by potluck join ADDRESS, or by "
                                         "potluck train with the same options and\n"
                                       : "others join this run with\n",
                           before);
    else if (!swarm_address_for_others(s, address))
        printf("{\"event\":\"listening\",\"multiaddr\":\"%s\"}\n", address);
    fflush(stdout);
}

int train_settings(const struct train_swarm *w, struct pl_err *err)
{
    struct pl_outer_setup setup;
    return set_up(&setup, w, err);
}

int train_swarm_open_outer(struct pl_outer **outer, const struct train_swarm *w,
                           struct pl_trainer *trainer, struct pl_err *err)
{
    const struct pl_outer_algorithm *algorithm = train_outer(w);
    const struct pl_params *p = &trainer->model->params;
    struct optimizer_state state;
    struct pl_outer_setup setup;
    int rc;
    *outer = NULL;
    if (!algorithm) return PL_OK;
    if ((rc = set_up(&setup, w, err))) return rc;
    rc = optimizer_state_open_params(&state, NULL, &trainer->options.optimizer, p, err);
    if (rc) return rc;
    rc = optimizer_state_open_outer(outer, &state, algorithm, &setup, p->value, err);
    optimizer_state_close(&state);
    return rc;
}

int train_swarm_run(void *context, struct pl_trainer *trainer, const struct train_job *job,
                    const struct train_hooks *hooks, struct pl_err *err)
{
    struct train_swarm *w = context;
    struct swarm_trainer l = { .w = w, .t = trainer };
    struct validators validators = { 0 };
    struct rsa_key key = { 0 };
    struct swarm_options so = join_options_swarm(w->join, job->cmd);
    struct pl_memory_plan memory;
    /* Peers report the target of an outer step. */
    const int64_t target = job->target_batch * train_period(w);
    struct preflight_join_options asks = { .swarm = &so,
                                           .run = w->run,
                                           .memory = &memory,
                                           .target_batch = target,
                                           .be = trainer->model->params.be,
                                           .json = w->json,
                                           .quiet = job->quiet,
                                           .off = w->no_check };
    struct preflight_join *check = NULL;
    struct train_manifest *manifest = NULL;
    struct swarm s;
    int rc = optimizer_state_open_params(&l.state, trainer->optimizer, &trainer->options.optimizer,
                                         &trainer->model->params, err);
    w->job = job;
    w->hooks = hooks;
    so.hold = 1; /* the preflight check joins the DHT */
    so.validators = &validators;
    /* A validator can recompute a gradient only if the data can be drawn in a given order. */
    l.is_repeatable = w->averaging->verify && w->averaging->validators > 0 && job->source.shuffle;
    if (!rc) rc = rsa_key_make(&key, err);
    validators.key = &key;
    if (!rc && (rc = validators_add_run(&validators, w->run)))
        pl_fail(err, rc, "--run: '%.60s' is too long a name", w->run);
    l.s = &s;
    if (!rc) rc = cmd_membership_open(&w->join->membership, &so.auth, err);
    if (!rc && !(rc = swarm_open(&s, &so, err))) {
        print_addresses(w, &s);
        w->page.run = w->run;
        w->page.membership = &w->join->membership;
        w->page.folder = job->out;
        w->page.target_batch = target;
        w->page.total_steps = (int64_t)job->steps;
        own_page_start(&w->page, &s, so.join, so.join_count);
        train_memory_plan(&memory, &trainer->model->config, job->micro_batch,
                          trainer->model->activations, &trainer->options.optimizer);
        /* Clock, version, settings and reachability are compared with the run's before we train. */
        rc = preflight_join(&check, &s, &asks, err);
        if (!rc && w->manifest)
            rc = train_manifest_begin(&manifest, &s, &so, &key, w->manifest, err);
        if (!rc) rc = train_in_swarm(&l, &s, &key, err);
        own_page_end(&w->page);
        train_manifest_end(manifest);
        preflight_join_end(check);
        swarm_close(&s);
    }
    membership_close(&w->join->membership);
    optimizer_state_close(&l.state);
    rsa_key_clear(&key);
    return rc;
}
