/* finetune_job.c - fine-tunes a language model on streamed text: batch, step, held-out
 * perplexity, checkpoint.
 *
 *   loss        = mean over tokens of -log p(next token)
 *   perplexity  = exp(loss) over held-out windows
 *
 * A checkpoint holds the state right after a step. The position in the text follows from the number
 * of steps, so a resumed run repeats the steps after the checkpoint exactly. */
#include "finetune_job.h"
#include "cmd/common/compute.h"
#include "cmd/common/offload.h"
#include "cmd/common/interrupt.h"
#include "cmd/common/progress_line.h"
#include "cmd/common/process_memory.h"
#include "cmd/common/outputs.h"
#include "cmd/common/train_log.h"
#include "data/models/gpt2_file.h"
#include "data/models/weights.h"
#include "ref/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state {
    const struct finetune_job *job;
    struct pl_optimizer *optimizer;
    struct pl_backend disk; /* the optimizer's, if its moments are offloaded */
    struct corpus *text, *held;
    int32_t *ids, *held_ids; /* (batch, window), (held_out, window) */
    struct train_log log;
    struct progress progress;
    uint64_t step, first_step, saved_step;
    double mean; /* seconds a step, running */
    double first_perplexity, perplexity, at_start;
};

/* Most memory that was resident. Not getrusage's figure, which begins with the parent's. */
static double peak_bytes(void) { return proc_bytes("/proc/self/status", "VmHWM"); }

/* Names the text: a checkpoint of another text cannot be resumed. NULL: no memory. */
static json_t *text_json(const struct finetune_job *job)
{
    json_t *files = json_array();
    int failed = !files;
    for (size_t i = 0; !failed && i < job->corpus.paths; i++)
        failed = json_array_append_new(files, json_string(job->corpus.path[i]));
    if (failed) {
        json_decref(files);
        return NULL;
    }
    return json_pack("{s:o, s:i, s:i, s:I}", "files", files, "window", job->corpus.window, "batch",
                     job->batch, "seed", (json_int_t)job->corpus.seed);
}

static int save(struct state *s, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    char name[64], *path;
    json_t *training = json_pack("{s:I, s:I, s:f, s:o}", "step", (json_int_t)s->step,
                                 "optimizer_steps", (json_int_t)pl_optimizer_steps(s->optimizer),
                                 "first_perplexity", s->first_perplexity, "text", text_json(job));
    int rc;
    snprintf(name, sizeof name, "checkpoint-%06llu.safetensors", (unsigned long long)s->step);
    path = pl_path_join(job->out, name);
    if (!path || !training)
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory for a checkpoint", job->out);
    else rc = pl_gpt2_save(job->model, s->optimizer, training, path, err);
    if (!rc) rc = pl_checkpoint_prune(job->out, job->keep, err);
    if (!rc) s->saved_step = s->step;
    json_decref(training);
    free(path);
    return rc;
}

static int load(struct state *s, const char *path, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    struct st_file *f;
    json_t *training = NULL, *text = text_json(job);
    int rc = pl_weights_open(&f, path, err);
    if (!rc) rc = pl_gpt2_load(job->model, f, err);
    if (!rc) rc = pl_checkpoint_load_optimizer(&job->model->params, s->optimizer, f, err);
    if (!rc && !(training = pl_checkpoint_json(f, "training", err))) rc = PL_EFORMAT;
    if (!rc) {
        json_int_t step = json_integer_value(json_object_get(training, "step"));
        json_int_t steps = json_integer_value(json_object_get(training, "optimizer_steps"));
        if (step < 0 || steps < 0 || !json_is_integer(json_object_get(training, "step")))
            rc = pl_fail(err, PL_EFORMAT, "%s: metadata 'training' has no step", path);
        else if (!json_equal(text, json_object_get(training, "text")))
            rc = pl_fail(err, PL_EUSE,
                         "%s: was trained on other files, or with another --length, --batch or "
                         "--seed",
                         path);
        s->step = (uint64_t)step;
        s->first_perplexity = json_number_value(json_object_get(training, "first_perplexity"));
        pl_optimizer_set_steps(s->optimizer, (uint64_t)steps);
    }
    if (!rc) rc = pl_corpus_skip(s->text, s->step * (uint64_t)job->batch, err);
    json_decref(training);
    json_decref(text);
    pl_safetensors_close(f);
    return rc;
}

/* The model returns a status without a sentence: this adds one. */
static int refused(struct pl_err *err, int rc, const char *what)
{
    return pl_fail(err, rc, "%s: %s%s", what, pl_status_name(rc),
                   rc == PL_ENOMEM ? " for the activations" : "");
}

/* exp of the mean loss over the held-out windows. */
static int evaluate(struct state *s, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    int n = job->corpus.window, at_once = job->batch / job->parts, rc = PL_OK;
    double sum = 0, loss;
    for (int first = 0; first < job->held_out && !rc; first += at_once) {
        int B = job->held_out - first < at_once ? job->held_out - first : at_once;
        const int32_t *ids = s->held_ids + (size_t)first * (size_t)n;
        rc = pl_gpt2_loss(job->model, &loss, ids, ids, NULL, B, n, 0);
        if (!rc) sum += loss * B;
    }
    if (rc) return refused(err, rc, "held-out text");
    s->perplexity = exp(sum / job->held_out);
    if (!(s->first_perplexity > 0)) s->first_perplexity = s->perplexity;
    return train_log_put(&s->log,
                         json_pack("{s:I, s:f, s:f}", "step", (json_int_t)s->step, "held_out_loss",
                                   sum / job->held_out, "perplexity", s->perplexity),
                         err);
}

static void show(struct state *s, double loss, int force)
{
    const struct finetune_job *job = s->job;
    double rate = s->mean > 0 ? (double)job->batch * job->corpus.window / s->mean : 0;
    char left[24], took[24];
    s->progress.done = (double)s->step / (double)job->steps;
    progress_show(&s->progress, force,
                  "step %llu of %llu  loss %.4f  held-out perplexity %.2f  %.0f %ss/s  "
                  "%s elapsed, %s left",
                  (unsigned long long)s->step, (unsigned long long)job->steps, loss, s->perplexity,
                  rate, job->unit, progress_time(took, progress_elapsed(&s->progress)),
                  progress_time(left, (double)(job->steps - s->step) * s->mean));
}

/* Accumulates the gradients of a batch, part by part; *loss is the batch's mean. */
static int accumulate(struct state *s, double *loss, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    size_t n = (size_t)job->corpus.window;
    int at_once = job->batch / job->parts, rc = PL_OK;
    char what[32];
    *loss = 0;
    for (int i = 0; i < job->batch && !rc; i++)
        rc = pl_corpus_next(s->text, s->ids + (size_t)i * n, err);
    for (int k = 0; k < job->parts && !rc; k++) {
        const int32_t *ids = s->ids + (size_t)(k * at_once) * n;
        double part;
        rc = pl_gpt2_loss(job->model, &part, ids, ids, NULL, at_once, (int)n, 1.0 / job->parts);
        if (rc) {
            snprintf(what, sizeof what, "step %llu", (unsigned long long)s->step + 1);
            return refused(err, rc, what);
        }
        *loss += part / job->parts;
    }
    return rc;
}

static int one_step(struct state *s, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    const struct pl_params *p = &job->model->params;
    double began = pl_seconds(), took, loss, norm = 0;
    /* the first step counts: a fine-tuning is too short to spend one on a rate of 0 */
    double lr = pl_schedule_linear(job->lr, (uint64_t)(job->warmup * (double)job->steps) + 1,
                                   job->steps + 1, s->step + 1);
    int rc = accumulate(s, &loss, err);
    if (!rc && (rc = pl_optimizer_grad_norm(s->optimizer, p->grad, &norm)))
        return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    if (!rc && (!isfinite(loss) || !isfinite(norm)))
        return pl_fail(err, PL_EFORMAT,
                       "step %llu: loss %g, gradient norm %g: not finite, nothing was changed; a "
                       "lower --lr may help",
                       (unsigned long long)s->step + 1, loss, norm);
    if (!rc && ((rc = pl_optimizer_step_normed(s->optimizer, p->value, p->grad, norm, lr)) ||
                (rc = p->be->fill(p->grad, 0, p->total)) || (rc = p->be->sync())))
        return pl_fail(err, rc, "step: %s", pl_status_name(rc));
    if (rc) return rc;
    s->step++;
    took = pl_seconds() - began;
    s->mean = s->mean > 0 ? 0.9 * s->mean + 0.1 * took : took;
    rc = train_log_put(&s->log,
                       json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "step", (json_int_t)s->step,
                                 "loss", loss, "lr", lr, "grad_norm", norm, "ids_per_second",
                                 (double)job->batch * job->corpus.window / took, "peak_bytes",
                                 peak_bytes()),
                       err);
    if (!rc && (s->step == job->steps ||
                (job->evaluate_every && s->step % (uint64_t)job->evaluate_every == 0)))
        rc = evaluate(s, err);
    show(s, loss, s->step == job->steps);
    if (!rc && job->save_every && s->step % (uint64_t)job->save_every == 0) rc = save(s, err);
    return rc;
}

static int open_text(struct state *s, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    struct corpus_options held = job->corpus;
    size_t window = (size_t)job->corpus.window;
    int rc = pl_corpus_open(&s->text, &job->corpus, err);
    held.held_out = 1;
    held.buffer = 1;
    if (!rc) rc = pl_corpus_open(&s->held, &held, err);
    s->ids = pl_alloc((size_t)job->batch * window, sizeof *s->ids);
    s->held_ids = pl_alloc((size_t)job->held_out * window, sizeof *s->held_ids);
    if (!rc && (!s->ids || !s->held_ids)) rc = pl_fail(err, PL_ENOMEM, "no memory for a batch");
    for (int i = 0; i < job->held_out && !rc; i++)
        rc = pl_corpus_next(s->held, s->held_ids + (size_t)i * window, err);
    return rc;
}

static int open_optimizer(struct state *s, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    struct pl_params params = job->model->params;
    int rc = job->offload ? offload_open(&s->disk, params.be, job->offload, err) : PL_OK;
    if (job->offload) params.be = &s->disk;
    return rc ? rc : pl_optimizer_open_params(&s->optimizer, &params, &job->optimizer, err);
}

static int prepare(struct state *s, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    char *newest = NULL;
    int rc = outputs_take_folder(job->out, err);
    if (!rc) rc = open_optimizer(s, err);
    if (!rc) rc = open_text(s, err);
    if (!rc) rc = pl_checkpoint_newest(&newest, job->out, err);
    if (!rc && newest && !job->resume)
        rc = pl_fail(err, PL_EUSE,
                     "%s exists: --resume continues from it; give another --out to keep it",
                     newest);
    if (!rc && job->resume) {
        if (!newest)
            rc = pl_fail(err, PL_ENOTFOUND,
                         "%s: no checkpoint to continue "
                         "from",
                         job->out);
        else rc = load(s, newest, err);
        if (!rc && !job->quiet) fprintf(stderr, "continuing from %s\n", newest);
    }
    free(newest);
    s->first_step = s->saved_step = s->step;
    if (!rc) rc = train_log_open(&s->log, job->out, s->step, err);
    return rc ? rc : evaluate(s, err);
}

static int finish(struct state *s, struct pl_err *err)
{
    const struct finetune_job *job = s->job;
    struct pl_corpus_counts counts = pl_corpus_counts(s->text);
    int rc = PL_OK, end = strcmp(job->unit, "token") ? -1 : job->corpus.end;
    if (s->step != s->saved_step || s->step == 0) rc = save(s, err);
    if (!rc) rc = pl_gpt2_export(job->model, end, job->out, err);
    if (rc) return rc;
    if (s->step < job->steps)
        fprintf(stderr,
                "stopped at step %llu of %llu; everything is saved in %s, continue with --resume\n",
                (unsigned long long)s->step, (unsigned long long)job->steps, job->out);
    printf("held-out perplexity %.2f -> %.2f a %s after %llu steps\n", s->first_perplexity,
           s->perplexity, job->unit, (unsigned long long)s->step);
    if (!job->quiet)
        printf("%llu %ss read in %llu documents; peak memory %.0f MB, of which %.0f MB before the "
               "first step\n"
               "the model, which transformers reads too, and log.jsonl are in %s\n",
               (unsigned long long)counts.ids, job->unit, (unsigned long long)counts.documents,
               peak_bytes() / 1e6, s->at_start / 1e6, job->out);
    return PL_OK;
}

/* A hint that saves memory and changes the training least. */
static void explain(struct pl_err *err, int rc, const struct state *s)
{
    const struct finetune_job *job = s->job;
    int less = job->batch / job->parts / 2; /* windows at a time */
    const char *option = "a smaller --length or --size";
    char parts[48];
    while (less > 1 && job->batch % less) less--;
    if (!s->optimizer && !job->optimizer.min_8bit) option = "--optimizer adam8";
    else if (job->model->stack.stored) option = "--activations recomputed";
    else if (less >= 1) {
        snprintf(parts, sizeof parts, "--accumulate %d", job->batch / less);
        option = parts;
    } else if (!job->optimizer.min_8bit) option = "--optimizer adam8";
    compute_explain(err, rc, job->model->params.be, 0, option);
}

int finetune_job_run(const struct finetune_job *job)
{
    struct interrupt before;
    struct state s = { .job = job };
    struct pl_err err = { "" };
    int rc;
    interrupt_catch(&before);
    progress_begin(&s.progress, job->quiet);
    rc = prepare(&s, &err);
    s.at_start = peak_bytes();
    while (!rc && s.step < job->steps && !interrupted()) rc = one_step(&s, &err);
    progress_end(&s.progress);
    if (!rc) rc = finish(&s, &err);
    explain(&err, rc, &s);
    if (rc) command_failed("finetune", "%s", err.text);
    interrupt_release(&before);
    train_log_close(&s.log);
    pl_optimizer_close(s.optimizer);
    offload_close();
    pl_corpus_close(s.text);
    pl_corpus_close(s.held);
    pl_free(s.ids);
    pl_free(s.held_ids);
    return rc;
}
