/* train_job.c - one training from its first step to its last: batch, step, log, checkpoint, and
 * again.
 *
 * A checkpoint holds the state right after a step, and the data position right after that step's
 * samples. So a resumed run repeats the steps after it bit for bit. (With delayed updates the
 * batches that had begun with the parameters before the step begin again with those after it.) */
#include "train_job.h"
#include "train_rounds.h"
#include "cmd/common/compute.h"
#include "cmd/common/interrupt.h"
#include "cmd/common/progress_line.h"
#include "cmd/common/train_log.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "data/models/checkpoint.h"
#include "data/models/weights.h"
#include "data/models/dalle_config.h"
#include "data/models/dalle_names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROLLBACKS_MAX 5 /* in a row: the numbers will not get better by themselves */

/* One training, alone or in a swarm. */
struct state {
    const struct train_job *job;
    struct train_rounds rounds;
    struct pl_trainer *t;
    struct train_log log;
    struct progress progress;
    json_t *position; /* of the data, right after the last step's samples */
    json_t *gathered; /* the same of the delayed step; NULL: none */
    uint64_t first_step, saved_step;
    double mean; /* seconds a call of `stepped`, running, and the steps that it has: */
    uint64_t stride;
    uint64_t last_step; /* of the call before */
    int rollbacks, has_options;
};

const char *const train_optimizers[] = { "lamb8",   "lamb8_clamp30", "lamb32", "adamw8",
                                         "adamw32", "muon",          NULL };
const char *const train_activations[] = { "reversible", "recomputed", "stored", NULL };
const char *const train_configs[] = { "run", "middle", "small", "demo", NULL };

/* The run's settings but for the size of the state: weight decay 0.045, 8-bit moments for tensors
 * of 65536 elements and more. [spec hivemind-protocol 10] */
int train_optimizer_named(struct pl_optimizer_options *o, const char *name)
{
    *o = pl_lamb_options();
    if (!strcmp(name, "adamw8")) *o = pl_adam_options(0.045, 8);
    else if (!strcmp(name, "adamw32")) *o = pl_adam_options(0.045, 32);
    else if (!strcmp(name, "muon")) *o = pl_muon_options(0.045);
    else if (!strcmp(name, "lamb32")) o->min_8bit = 0;
    else if (!strcmp(name, "lamb8_clamp30")) o->clamp = 30;
    else if (strcmp(name, "lamb8")) return PL_EUSE;
    return PL_OK;
}

void train_memory_plan(struct pl_memory_plan *plan, const struct pl_dalle_config *config,
                       int micro_batch, enum pl_activations activations,
                       const struct pl_optimizer_options *optimizer)
{
    struct pl_memory_model m;
    pl_memory_model_of(&m, config);
    pl_memory_plan_for(plan, &m);
    plan->batch = micro_batch;
    plan->layers = activations == PL_STORED ? PL_MEMORY_STORED : PL_MEMORY_REVERSIBLE;
    plan->optimizer = optimizer->min_8bit ? PL_MEMORY_8BIT : PL_MEMORY_32BIT;
    plan->offload = optimizer->host != NULL;
}

/* The state_dict's names that share a tensor with an earlier one: a checkpoint stores it once, and
 * readers find it by each name. NULL: no memory. */
static json_t *aliases(const struct pl_dalle *m)
{
    size_t count;
    struct pl_dalle_entry *entries = pl_dalle_state_dict(m, &count);
    json_t *alias = json_object();
    int failed = !entries || !alias;
    for (size_t i = 0; !failed && i < count; i++)
        if (entries[i].first != (long)i && entries[i].param >= 0)
            failed = json_object_set_new(alias, entries[i].name,
                                         json_string(entries[entries[i].first].name));
    free(entries);
    if (failed) json_decref(alias);
    return failed ? NULL : alias;
}

int train_job_save(struct pl_dalle *model, struct pl_optimizer *optimizer,
                   const struct pl_outer *outer, struct train_rounds *rounds, uint64_t step,
                   const char *codec, json_t *position, const char *folder, int keep,
                   char **written, struct pl_err *err)
{
    struct pl_checkpoint c = { .params = &model->params, .optimizer = optimizer, .outer = outer };
    char name[64], *path;
    int rc;
    snprintf(name, sizeof name, "checkpoint-%06llu.safetensors", (unsigned long long)step);
    path = pl_path_join(folder, name);
    /* Everything that --resume and generate need besides the tensors is in the metadata. */
    pl_json_begin();
    c.config = pl_dalle_config_to_json(&model->config);
    c.alias = aliases(model);
    c.training = json_pack("{s:I, s:I, s:s*, s:O?}", "step", (json_int_t)step, "optimizer_steps",
                           (json_int_t)pl_optimizer_steps(optimizer), "codec",
                           codec && *codec ? codec : NULL, "data", position);
    if (rounds) {
        train_rounds_save(rounds);
        c.rounds = rounds->data;
        c.rounds_n = rounds->n;
    }
    if (!path || !c.config || !c.alias || !c.training || pl_json_failed())
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory for a checkpoint", folder);
    else rc = pl_checkpoint_save(&c, path, err);
    if (rounds) train_rounds_saved(rounds);
    /* Older ones are removed only after the new one is complete. */
    if (!rc) rc = pl_checkpoint_prune(folder, keep, err);
    json_decref(c.config);
    json_decref(c.alias);
    json_decref(c.training);
    if (written && !rc) *written = path;
    else free(path);
    return rc;
}

/* Written once: --resume compares its options with it. */
static int save_options(struct state *s, struct pl_err *err)
{
    char *path;
    int rc;
    if (s->has_options || !s->job->options) return PL_OK;
    path = pl_path_join(s->job->out, TRAIN_OPTIONS_FILE);
    rc = path ? pl_file_write(path, s->job->options, strlen(s->job->options), err)
              : pl_fail(err, PL_ENOMEM, "%s: no memory", s->job->out);
    free(path);
    s->has_options = !rc;
    return rc;
}

/* Now and as the job says. */
static int save(struct state *s, struct pl_err *err)
{
    const struct train_job *job = s->job;
    int rc = train_job_save(s->t->model, s->t->optimizer, job->outer, &s->rounds, s->t->step,
                            job->codec, s->position, job->out, job->keep, NULL, err);
    if (!rc) s->saved_step = s->t->step;
    return rc ? rc : save_options(s, err);
}

/* A checkpoint of a peer without data has no position: training begins at its own. */
static int seek(struct train_source *source, const json_t *position, const char *path,
                struct pl_err *err)
{
    struct pl_err why = { "" };
    int rc = PL_OK;
    if (!json_is_null(position)) rc = source->seek(source->context, position, &why);
    return rc ? pl_fail(err, rc, "%s: %s", path, why.text) : PL_OK;
}

int train_job_load(struct pl_dalle *model, struct pl_trainer *t, struct train_source *source,
                   struct pl_outer *outer, struct train_rounds *rounds, const char *path,
                   struct pl_err *err)
{
    struct st_file *f;
    json_t *training = NULL;
    int rc = pl_weights_open(&f, path, err);
    if (rc) return rc;
    rc = pl_checkpoint_load_params(&model->params, f, pl_dalle_find_param, err);
    if (!rc && outer) rc = pl_checkpoint_load_outer(outer, model->params.value, f, err);
    if (!rc && rounds) rc = pl_checkpoint_load_rounds(&rounds->data, &rounds->n, f, err);
    /* With a trainer: moments, step, data position, so that training goes on bit for bit. */
    if (!rc && t) rc = pl_checkpoint_load_optimizer(&model->params, t->optimizer, f, err);
    if (!rc && t && !(training = pl_checkpoint_json(f, "training", err))) rc = PL_EFORMAT;
    if (!rc && t) {
        json_int_t step = json_integer_value(json_object_get(training, "step"));
        json_int_t steps = json_integer_value(json_object_get(training, "optimizer_steps"));
        if (step < 0 || steps < 0 || !json_is_integer(json_object_get(training, "step")))
            rc = pl_fail(err, PL_EFORMAT, "%s: metadata 'training' has no step", path);
        t->step = (uint64_t)step;
        pl_optimizer_set_steps(t->optimizer, (uint64_t)steps);
        if (!rc && source) rc = seek(source, json_object_get(training, "data"), path, err);
        if (!rc && (rc = pl_trainer_snapshot(t))) pl_fail(err, rc, "%s: no memory", path);
    }
    json_decref(training);
    pl_safetensors_close(f);
    return rc;
}

/* The progress line. The time left follows from an average over the last ten steps or so. */
static void show(struct state *s, const struct pl_train_report *r, int force)
{
    const struct train_job *job = s->job;
    double rate = s->mean > 0 ? (double)r->samples / s->mean : 0;
    char left[24], took[24];
    s->progress.done = (double)s->t->step / (double)job->steps;
    /* A narrow terminal shows the beginning. */
    progress_show(&s->progress, force,
                  "step %llu of %llu  loss %.4f  %.0f samples/s  %s left, %s elapsed  "
                  "(text %.4f, image %.4f)",
                  (unsigned long long)s->t->step, (unsigned long long)job->steps, r->loss.total,
                  rate,
                  progress_time(left,
                                (double)(job->steps - s->t->step) / (double)s->stride * s->mean),
                  progress_time(took, progress_elapsed(&s->progress)), r->loss.text, r->loss.image);
}

/* Accumulates the samples of one step. PL_EFORMAT: the loss is not finite, and the trainer is as
 * before. */
static int accumulate(struct state *s, struct pl_err *err)
{
    const struct train_job *job = s->job;
    int rc = PL_OK;
    while (!rc && s->t->samples < (uint64_t)job->target_batch && !interrupted()) {
        const int32_t *text, *codes;
        rc = job->source.next(job->source.context, &text, &codes, err);
        if (rc == PL_EAGAIN && interrupted()) return PL_OK; /* stop waiting for data */
        if (rc) return rc == PL_EFORMAT ? PL_EIO : rc;      /* bad data is not bad numbers */
        rc = pl_trainer_add(s->t, text, codes, job->micro_batch, err);
    }
    return rc;
}

/* The mean loss over all held-out pairs, in micro-batches. The last one may be smaller, so losses
 * are weighted by its samples. */
static int measure(struct state *s, struct pl_err *err)
{
    const struct train_job *job = s->job;
    struct pl_dalle *m = s->t->model;
    struct train_held_out *h = job->held_out;
    struct pl_dalle_loss loss = { .total = 0 };
    double sum = 0;
    int rc = PL_OK, B = job->micro_batch;
    for (int at = 0; at < h->count && !rc; at += B) {
        int n = h->count - at < B ? h->count - at : B;
        rc = pl_dalle_evaluate(m, h->tokens + (size_t)at * (size_t)m->config.T,
                               h->codes + (size_t)at * (size_t)(m->config.F * m->config.F), n,
                               &loss, NULL, err);
        sum += loss.total * n;
    }
    if (rc) return rc;
    h->last = sum / h->count;
    return train_log_held_out(&s->log, s->t->step, h->last, h->count, err);
}

/* Delayed updates: samples drawn from here on belong to the next step, so a checkpoint of this step
 * has this position. */
static void gathered(void *state)
{
    struct state *s = state;
    json_decref(s->gathered);
    s->gathered = s->job->source.position(s->job->source.context);
}

static void moved(void *state)
{
    struct state *s = state;
    json_t *position = s->job->source.position(s->job->source.context);
    if (!position) return; /* no memory: an older one repeats some samples */
    json_decref(s->position);
    s->position = position;
}

/* Has the step come to a multiple of `every` since the last call? With DiLoCo a call is an outer
 * step of many inner ones. */
static int is_due(const struct state *s, uint64_t every)
{
    return every && s->t->step / every != s->last_step / every;
}

/* After each step: its log line, the terminal, and a checkpoint every save_every steps. */
static int stepped(void *state, const struct pl_train_report *r, double took, struct pl_err *err)
{
    struct state *s = state;
    const struct train_job *job = s->job;
    int rc;
    s->stride = s->t->step > s->last_step ? s->t->step - s->last_step : 1;
    s->mean = s->mean > 0 ? 0.9 * s->mean + 0.1 * took : took;
    json_decref(s->position);
    s->position = s->gathered ? s->gathered : job->source.position(job->source.context);
    s->gathered = NULL;
    if (!s->position) return pl_fail(err, PL_ENOMEM, "no memory for the data position");
    rc = train_log_step(&s->log, s->t->step, r, (double)r->samples / took, err);
    if (!rc && job->held_out && job->held_out->count && job->held_out->every &&
        (is_due(s, (uint64_t)job->held_out->every) || s->t->step == job->steps))
        rc = measure(s, err);
    show(s, r, s->t->step == job->steps);
    if (!rc && is_due(s, (uint64_t)job->save_every)) {
        rc = save(s, err);
        /* After bad numbers the trainer returns to the state from which a resumed run would
         * begin. */
        if (!rc && (rc = pl_trainer_snapshot(s->t)))
            pl_fail(err, rc, "no memory for the last good state");
    }
    s->last_step = s->t->step;
    return rc;
}

/* Alone: g = mean over the target batch, then x = optimizer(x, g). */
static int one_step(struct state *s, struct pl_err *err)
{
    const struct train_job *job = s->job;
    struct pl_train_report r;
    double began = pl_seconds(), took;
    int rc = accumulate(s, err);
    if (interrupted() && !rc) return PL_OK;
    if (!rc) rc = pl_trainer_mean(s->t);
    if (!rc) rc = pl_trainer_step(s->t, &r, err);
    if (rc == PL_EFORMAT) { /* the trainer has rolled back: go on with other samples */
        progress_end(&s->progress);
        fprintf(stderr, "potluck %s: %s\n", job->cmd, err->text);
        if (++s->rollbacks > ROLLBACKS_MAX)
            return pl_fail(err, rc, "%d times in a row; a lower --lr may help", s->rollbacks);
        return train_log_event(&s->log, s->t->step, "rollback", err->text, err);
    }
    if (rc) return rc;
    s->rollbacks = 0;
    took = pl_seconds() - began;
    return stepped(s, &r, took, err);
}

int train_job_codec(char codec[TRAIN_CODEC_MAX + 1], const char *path, struct pl_err *err)
{
    struct st_file *f;
    json_t *training = NULL;
    const char *name;
    int rc = pl_weights_open(&f, path, err);
    *codec = 0;
    if (rc) return rc;
    if (pl_safetensors_meta(f, "training") && !(training = pl_checkpoint_json(f, "training", err)))
        rc = PL_EFORMAT;
    name = json_string_value(json_object_get(training, "codec"));
    if (name && strlen(name) <= TRAIN_CODEC_MAX) strcpy(codec, name);
    json_decref(training);
    pl_safetensors_close(f);
    return rc;
}

/* Codes of another codec mean other pictures: the model would have to learn anew. */
static int check_codec(const struct train_job *job, const char *path, struct pl_err *err)
{
    char codec[TRAIN_CODEC_MAX + 1];
    int rc = train_job_codec(codec, path, err);
    if (rc || !*codec || !job->codec || !*job->codec || !strcmp(codec, job->codec)) return rc;
    return pl_fail(err, PL_EUSE,
                   "--resume: %.200s is trained on image tokens of codec %s, --data is of %s", path,
                   codec, job->codec);
}

/* The folder, the checkpoint to continue from, and the log up to that checkpoint. */
static int prepare(struct state *s, struct pl_err *err)
{
    const struct train_job *job = s->job;
    char *newest = NULL;
    int rc = PL_OK;
    if (mkdir(job->out, 0777) && errno != EEXIST)
        return pl_fail(err, PL_EIO, "%s: %s", job->out, strerror(errno));
    if (job->resume) {
        struct train_source source = job->source;
        rc = pl_checkpoint_newest(&newest, job->out, err);
        if (!rc && !newest)
            rc = pl_fail(err, PL_ENOTFOUND, "%s: no checkpoint to continue from", job->out);
        if (!rc) rc = check_codec(job, newest, err);
        if (!rc)
            rc = train_job_load(s->t->model, s->t, &source, job->outer, &s->rounds, newest, err);
        if (!rc && !job->quiet) fprintf(stderr, "continuing from %s\n", newest);
        if (!rc && s->t->step >= job->steps)
            fprintf(stderr,
                    "it is at step %llu already: only more --steps than that would train it "
                    "further\n",
                    (unsigned long long)s->t->step);
        free(newest);
    }
    if (!rc && !(s->position = job->source.position(job->source.context)))
        rc = pl_fail(err, PL_ENOMEM, "no memory for the data position");
    s->first_step = s->saved_step = s->last_step = s->t->step;
    s->stride = 1;
    return rc ? rc : train_log_open(&s->log, job->out, s->t->step, err);
}

int train_job_run(enum train_end *end, struct pl_trainer *trainer, const struct train_job *job)
{
    struct interrupt before;
    struct state s = { .job = job, .t = trainer };
    struct pl_err err = { "" };
    int rc;
    interrupt_catch(&before);
    progress_begin(&s.progress, job->quiet);
    rc = prepare(&s, &err);
    /* In a swarm the collaborative optimizer decides when to step; afterwards it calls
     * `stepped`. */
    if (!rc && job->train_swarm) {
        const struct train_hooks hooks = { &s, stepped, gathered, moved, &s.rounds };
        rc = job->train_swarm(job->swarm_context, trainer, job, &hooks, &err);
    }
    while (!rc && !job->train_swarm && s.t->step < job->steps && !interrupted()) {
        if (job->seconds > 0 && progress_elapsed(&s.progress) > job->seconds) interrupt_ask();
        else rc = one_step(&s, &err);
    }
    progress_end(&s.progress);
    *end = s.t->step >= job->steps ? TRAIN_DONE : TRAIN_STOPPED;
    /* The state of the last whole step, with the data position of that moment. */
    if (!rc && (s.t->step != s.saved_step || s.t->step == 0)) rc = save(&s, &err);
    if (!rc && s.t->step > s.first_step) rc = train_log_plot(job->out, job->published, &err);
    compute_explain(&err, rc, trainer->model->be, job->micro_batch, NULL);
    if (rc) command_failed(job->cmd, "%s", err.text);
    if (!rc && *end == TRAIN_STOPPED)
        fprintf(stderr,
                "stopped at step %llu of %llu; everything is saved in %s, continue with --resume\n",
                (unsigned long long)s.t->step, (unsigned long long)job->steps, job->out);
    interrupt_release(&before);
    train_log_close(&s.log);
    json_decref(s.position);
    json_decref(s.gathered);
    free(s.rounds.data);
    return rc;
}
