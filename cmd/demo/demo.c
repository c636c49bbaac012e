/* demo.c - `potluck demo`: the paper's kind of model learns to draw real pairs, draws samples, and
 * measures how good they are. */
#include "cmd/cmd.h"
#include "cmd/common/compute.h"
#include "cmd/common/outputs.h"
#include "demo_page.h"
#include "demo_replay.h"
#include "demo_swarm.h"
#include "reference_images.h"
#include "cmd/common/progress_line.h"
#include "cmd/train/train_agree.h"
#include "cmd/train/train_data.h"
#include "cmd/train/train_job.h"
#include "cmd/common/train_log.h"
#include "cmd/train/train_swarm.h"
#include "data/models/checkpoint.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "data/images/contact_sheet.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUICK_PAIRS 1024
#define BATCH 16 /* of gradients in a swarm the least: four peers of uneven speed bring 24 to 32 */
#define PEAK 0.0125
#define TOKEN_NOISE 0.08 /* with local steps; without it the model memorizes: paper/log/demo.md */
#define QUICK_STEPS 800
#define FULL_STEPS 4400
#define GRADIENTS_STEPS 700
/* Local steps are of each peer alone: a batch of 8 makes twice the steps of one of 16, for as many
 * samples, and the mean over peers takes its noise away. */
#define LOCAL_STEPS 5600
#define LOCAL_BATCH 8
#define INNER_STEPS "25"
#define DRAWN 64      /* trained captions to generate images for */
#define MEASURED 1024 /* trained pairs on which the loss is measured */

struct demo {
    struct compute compute;
    struct pl_backend be;
    const char *out, *replay, *algorithm;
    int64_t steps, inner_steps, seed;
    int alone, quick, resume, no_dash;
    uint64_t pairs; /* that are trained on; 0: all */
    struct train_data data;
    struct image_sampler sampler;
    struct reference_images references;
    /* figures */
    struct pl_dalle_loss loss;
    size_t drawn, own, held_out, right, subject;
    double train_seconds, draw_seconds;
    int64_t trained; /* samples */
    struct demo_swarm_result swarm;
};

static int is_local(const struct demo *d)
{
    return train_has_local_steps(&(struct train_swarm){ .algorithm = d->algorithm });
}

/* The stored curve of this kind of demo; NULL: none is there. */
static const char *published(const struct demo *d, char *path, size_t capacity)
{
    struct stat st;
    train_data_demo(path, capacity,
                    d->quick      ? "curve-quick.jsonl"
                    : d->alone    ? "curve.jsonl"
                    : is_local(d) ? "curve-swarm.jsonl"
                                  : "curve-gradients.jsonl");
    return stat(path, &st) ? NULL : path;
}

static int train(struct demo *d, enum train_end *end, struct pl_err *err)
{
    struct pl_train_options training = { .optimizer = pl_lamb_options(), .peak = PEAK };
    struct train_job job = { .cmd = "demo",
                             .out = d->out,
                             .target_batch = BATCH,
                             .micro_batch = BATCH,
                             .save_every = 250, /* and samples for the dashboard from each */
                             .keep = 1,
                             .resume = d->resume };
    struct pl_trainer *trainer = NULL;
    char curve[PATH_MAX + 64];
    double began = pl_seconds();
    int rc;
    job.steps = training.total = (uint64_t)d->steps;
    training.warmup = training.total / 10;
    job.published = published(d, curve, sizeof curve);
    rc = train_data_open(&d->data, &d->sampler.model->config, job.micro_batch, (uint64_t)d->seed,
                         d->pairs, &job.source, err);
    if (!rc && (rc = pl_dalle_init(d->sampler.model, (uint64_t)d->seed)))
        pl_fail(err, rc, "initial values: %s", pl_status_name(rc));
    if (!rc) rc = pl_trainer_open(&trainer, d->sampler.model, &training, err);
    if (rc) return rc;
    d->sampler.model->activations = PL_STORED; /* a small model: memory is no matter */
    if (train_job_run(end, trainer, &job)) {
        rc = PL_EIO;
        err->text[0] = 0; /* the job has already printed the error */
    }
    d->trained = (int64_t)trainer->step * BATCH;
    pl_trainer_close(trainer);
    d->train_seconds = pl_seconds() - began;
    return rc;
}

/* The same by a swarm: the model comes from a surviving peer, whose folder is ours. */
static int train_swarm(struct demo *d, enum train_end *end, struct pl_err *err)
{
    const struct demo_swarm swarm = { .out = d->out,
                                      .compute = &d->compute,
                                      .algorithm = d->algorithm,
                                      .inner_steps = is_local(d) ? d->inner_steps : 1,
                                      .steps = d->steps,
                                      .target_batch = is_local(d) ? LOCAL_BATCH : BATCH,
                                      .limit = (int64_t)d->pairs,
                                      .peak = PEAK,
                                      .token_noise = is_local(d) ? TOKEN_NOISE : 0,
                                      .seed = d->seed,
                                      .page = !d->no_dash };
    char *newest = NULL, curve[PATH_MAX + 64];
    double began = pl_seconds();
    int rc = demo_swarm_train(&d->swarm, &swarm, err);
    d->train_seconds = pl_seconds() - began;
    d->trained = d->swarm.samples;
    *end = d->swarm.end;
    if (rc || *end != TRAIN_DONE) return rc;
    rc = pl_checkpoint_newest(&newest, d->out, err);
    if (!rc && !newest) rc = pl_fail(err, PL_ENOTFOUND, "%s: no checkpoint", d->out);
    if (!rc) rc = train_log_plot(d->out, published(d, curve, sizeof curve), err);
    if (!rc) rc = train_job_load(d->sampler.model, NULL, NULL, NULL, NULL, newest, err);
    free(newest);
    return rc;
}

/* Picks `wanted` captions (or all), evenly spread. index has capacity for references.count. */
static size_t spread(const struct demo *d, size_t *index, int held_out, size_t wanted)
{
    size_t n = 0, taken = 0;
    for (size_t i = 0; i < d->references.count; i++)
        if (d->references.held_out[i] == held_out) index[n++] = i;
    if (n <= wanted) return n;
    for (size_t i = 0; i < wanted; i++) index[taken++] = index[i * n / wanted];
    return taken;
}

static int tokens_of(struct demo *d, int32_t *text, const size_t *index, size_t n,
                     struct pl_err *err)
{
    size_t T = (size_t)d->sampler.model->config.T;
    int rc = PL_OK;
    for (size_t i = 0; i < n && !rc; i++)
        rc = image_sampler_tokens(&d->sampler, text + i * T, d->references.caption[index[i]], err);
    return rc;
}

static int measure_loss(struct demo *d, size_t *index, struct pl_err *err)
{
    size_t T = (size_t)d->sampler.model->config.T, I = d->references.cells;
    size_t n = spread(d, index, 0, MEASURED);
    int32_t *text = calloc(64 * T, sizeof *text), *codes = calloc(64 * I, sizeof *codes);
    struct pl_dalle_loss sum = { 0, 0, 0 };
    int rc = text && codes ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t at = 0; at < n && !rc; at += 64) {
        size_t B = n - at < 64 ? n - at : 64;
        struct pl_dalle_loss one;
        rc = tokens_of(d, text, index + at, B, err);
        for (size_t b = 0; b < B; b++)
            memcpy(codes + b * I, d->references.codes + index[at + b] * I, I * sizeof *codes);
        if (!rc) rc = pl_dalle_evaluate(d->sampler.model, text, codes, (int)B, &one, NULL, err);
        if (rc) break;
        sum.total += (double)B * one.total;
        sum.text += (double)B * one.text;
        sum.image += (double)B * one.image;
    }
    if (n)
        d->loss = (struct pl_dalle_loss){ sum.total / (double)n, sum.text / (double)n,
                                          sum.image / (double)n };
    free(text);
    free(codes);
    return rc;
}

/* The subject (n bytes): the words before the colon of "woman: dark skin tone, red hair". */
static const char *subject_of(const char *caption, size_t *n)
{
    /* "man ..." and "woman ..." of one role count as one subject */
    static const char *const who[] = { "woman ", "man ", "person ", "women ", "men ", "people " };
    *n = strcspn(caption, ":");
    for (size_t i = 0; i < PL_COUNT(who); i++) {
        size_t k = strlen(who[i]);
        if (*n <= k || strncmp(caption, who[i], k)) continue;
        *n -= k;
        return caption + k;
    }
    return caption;
}

static int same_subject(const char *a, const char *b)
{
    size_t n, m;
    a = subject_of(a, &n);
    b = subject_of(b, &m);
    return n == m && !strncmp(a, b, n);
}

/* Generates the captions greedily, counts those nearest to their own reference image, and writes
 * a sheet that alternates sample and reference image. */
static int draw(struct demo *d, size_t *index, size_t n, const char *file, size_t *own,
                size_t *subject, struct pl_err *err)
{
    size_t T = (size_t)d->sampler.model->config.T, I = d->references.cells;
    struct pl_generate_options how = pl_generate_options();
    int32_t *text = calloc(n * T, sizeof *text), *codes = calloc(n * I, sizeof *codes);
    struct pl_image *images = calloc(2 * n, sizeof *images), *drawn = calloc(n, sizeof *drawn),
                    sheet;
    char *path = pl_path_join(d->out, file);
    int rc = text && codes && images && drawn && path ? PL_OK
                                                      : pl_fail(err, PL_ENOMEM, "no memory");
    how.greedy = 1;
    how.batch = 64;
    if (!rc) rc = tokens_of(d, text, index, n, err);
    if (!rc) rc = pl_generate(d->sampler.model, codes, text, (int)n, &how, err);
    if (!rc) rc = image_sampler_decode(&d->sampler, drawn, codes, (int)n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        size_t near = reference_images_nearest(&d->references, &drawn[i], index[i]);
        *own += near == index[i];
        *subject += same_subject(d->references.caption[near], d->references.caption[index[i]]);
        images[2 * i] = drawn[i]; /* views: owned by `drawn` and the references */
        images[2 * i + 1] = d->references.picture[index[i]];
    }
    if (!rc) {
        rc = pl_sheet(&sheet, images, 2 * n, 16, 4);
        if (rc) pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
        else rc = pl_image_write_png(path, &sheet, err);
        pl_image_clear(&sheet);
    }
    for (size_t i = 0; drawn && i < n; i++) pl_image_clear(&drawn[i]);
    free(drawn);
    free(images);
    free(codes);
    free(text);
    free(path);
    return rc;
}

static int show(struct demo *d, struct pl_err *err)
{
    size_t *index = calloc(d->references.count, sizeof *index);
    double began = pl_seconds();
    int rc = index ? reference_images_decode(&d->references, &d->sampler, err)
                   : pl_fail(err, PL_ENOMEM, "no memory");
    size_t unused = 0;
    if (!rc) rc = measure_loss(d, index, err);
    if (!rc) {
        d->drawn = spread(d, index, 0, DRAWN);
        rc = draw(d, index, d->drawn, "drawn.png", &d->own, &unused, err);
    }
    if (!rc) {
        d->held_out = spread(d, index, 1, SIZE_MAX);
        if (d->held_out)
            rc = draw(d, index, d->held_out, "held-out.png", &d->right, &d->subject, err);
    }
    d->draw_seconds = pl_seconds() - began;
    free(index);
    return rc;
}

static int report(const struct demo *d, struct pl_err *err)
{
    char elapsed[24], *text = NULL, *path = pl_path_join(d->out, "figures.json");
    char program[1024], folder[1024]; /* as the shell reads them */
    json_t *root;
    int rc;
    pl_json_begin();
    root = json_pack("{s:s, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f}",
                     "algorithm", d->alone ? "alone" : d->algorithm, "samples",
                     (json_int_t)d->trained, "rounds", (json_int_t)d->swarm.rounds,
                     "averaging_share", d->swarm.averaging, "steps", (json_int_t)d->steps,
                     "samples_per_second", (double)d->trained / d->train_seconds, "loss",
                     d->loss.total, "loss_text", d->loss.text, "loss_image", d->loss.image, "drawn",
                     (json_int_t)d->drawn, "nearest_own", (json_int_t)d->own, "held_out",
                     (json_int_t)d->held_out, "held_out_nearest_own", (json_int_t)d->right,
                     "held_out_same_subject", (json_int_t)d->subject, "train_seconds",
                     d->train_seconds);
    text = pl_json_text(root, JSON_INDENT(1));
    rc = text && path ? pl_file_write(path, text, strlen(text), err)
                      : pl_fail(err, PL_ENOMEM, "no memory");
    printf("\nimage loss on trained pairs: %.4f nats a token (text %.4f); target: below 0.1\n",
           d->loss.image, d->loss.text);
    printf("trained captions drawn:      %zu of %zu nearest to their own picture among %zu; "
           "target: 90 %%\n",
           d->own, d->drawn, d->references.count);
    if (d->held_out)
        printf("combinations never seen:     %zu of %zu nearest to the right picture "
               "(%.0f %%; random %.2f %%),\n"
               "                             %zu to the same subject in any tone or gender "
               "(%.0f %%)\n",
               d->right, d->held_out, 100.0 * (double)d->right / (double)d->held_out,
               100.0 / (double)d->references.count, d->subject,
               100.0 * (double)d->subject / (double)d->held_out);
    if (d->held_out && d->pairs)
        puts("                             (most of their parts were not among the pairs trained "
             "on; --alone has them all)");
    printf("training took %s: %lld samples, %.0f a second",
           progress_time(elapsed, d->train_seconds), (long long)d->trained,
           (double)d->trained / d->train_seconds);
    if (!d->alone)
        printf("; %lld rounds, averaging took %.0f %% of the first trainer's time",
               (long long)d->swarm.rounds, 100 * d->swarm.averaging);
    printf("\n\n");
    printf("pictures, each drawing next to its reference image:\n  %s/drawn.png\n", d->out);
    if (d->held_out) printf("  %s/held-out.png\n", d->out);
    printf("loss curve over the stored one: %s/loss.svg; figures: %s/figures.json\n"
           "next: %s generate --model %s \"cat face\" \"red apple\" --n 4 --top-k 16\n",
           d->out, d->out, outputs_shell_word(program, sizeof program, program_invocation_name),
           outputs_shell_word(folder, sizeof folder, d->out));
    free(text);
    free(path);
    json_decref(root);
    return rc;
}

static int open_all(struct demo *d, struct pl_err *err)
{
    char path[PATH_MAX + 64], codec[PATH_MAX + 64];
    struct pl_dalle_config config;
    int rc = train_data_add(&d->data, train_data_demo(path, sizeof path, "."), err);
    if (!rc)
        rc = train_data_without(&d->data, train_data_demo(path, sizeof path, "holdout.txt"), err);
    if (!rc)
        rc = train_data_tokenizer(&d->data, train_data_demo(path, sizeof path, "t5_2k.model"), err);
    if (!rc) rc = pl_dalle_config_named(&config, "demo", err);
    if (!rc)
        rc = reference_images_open(&d->references, (const char *const *)d->data.path, d->data.paths,
                                   (const char *const *)d->data.without, d->data.without_count,
                                   config.F * config.F, err);
    if (!rc && d->pairs) reference_images_limit(&d->references, d->pairs);
    if (!rc)
        rc = image_sampler_open(&d->sampler, &d->be, NULL, NULL, path,
                                train_data_demo(codec, sizeof codec, "codec.safetensors"), err);
    if (!rc) rc = pl_dalle_open(&d->sampler.model, &config, &d->be, 1, err);
    return rc;
}

/* Sheets that the page drew from an earlier demo: a sample without its sheet is none. */
static void forget_samples(const char *folder)
{
    char path[PATH_MAX + 300];
    DIR *samples;
    snprintf(path, sizeof path, "%s/samples", folder);
    if (!(samples = opendir(path))) return;
    for (const struct dirent *e; (e = readdir(samples));) {
        snprintf(path, sizeof path, "%s/samples/%s/sheet.png", folder, e->d_name);
        unlink(path);
    }
    closedir(samples);
}

/* Of an earlier demo: they would count as newer than ours. */
static int forget_checkpoints(const char *folder, struct pl_err *err)
{
    char *path = NULL;
    int rc;
    while (!(rc = pl_checkpoint_newest(&path, folder, err)) && path) {
        if (unlink(path)) rc = pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
        free(path);
        path = NULL;
        if (rc) break;
    }
    return rc;
}

/* The folder itself is that of the first trainer, another process: the demo takes the page's. */
static int take_folder(const struct demo *d, struct pl_err *err)
{
    char page[PATH_MAX];
    int rc = d->alone ? outputs_take_folder(d->out, err) : PL_OK;
    snprintf(page, sizeof page, "%s/page", d->out);
    return rc ? rc : outputs_take_folder(page, err);
}

#define OPTIONS struct demo
static const struct option_row rows[] = {
    { "alone", NULL, NULL, OPT_FLAG(alone), "train in one process" },
    { "algorithm", "A", "local_sgd", OPT_NAME(algorithm, train_algorithms),
      "how the swarm trains; potluck train --help describes the algorithms. gradients, as in the "
      "paper's run, and powersgd average at each step and train on 973 pairs; local_sgd and diloco "
      "train on all 3,513 pairs in less than twice the time. The others have no clients, so the "
      "demo cannot show them" },
    { "inner-steps", "N", INNER_STEPS, OPT_INTEGER(inner_steps, 2, 10000),
      "local steps of each peer between two rounds of averaging" },
    { "quick", NULL, NULL, OPT_FLAG(quick),
      "train in one process on 973 pairs: a first look in two minutes" },
    { "no-dash", NULL, NULL, OPT_FLAG(no_dash),
      "do not serve a page with the training's progress; otherwise its address is printed" },
    { "out", "DIR", NULL, OPT_PATH(out),
      "folder for model, pictures and figures (default: out/demo, out/demo-alone or "
      "out/demo-quick)" },
    { "steps", "N", NULL, OPT_INTEGER(steps, 1, 10000000),
      "optimizer steps (default: enough to reach the demo's targets)" },
    { "seed", "N", "1", OPT_INTEGER(seed, 0, INT64_MAX), "seed of initial values and data order" },
    { "resume", NULL, NULL, OPT_FLAG(resume),
      "with --alone or --quick: continue from the newest checkpoint in --out" },
    { "replay", "FILE", NULL, OPT_PATH(replay),
      "print the progress of an earlier swarm again, from the events.jsonl in its folder, and "
      "train nothing" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

static int run_demo(int argc, char **argv)
{
    struct demo d = { .out = NULL };
    enum train_end end = TRAIN_DONE;
    struct pl_err err = { "" };
    pid_t page = 0;
    int rc;
    if (options_parse(&command_demo, &d, argc, argv, NULL, &rc)) return rc;
    if (d.replay) {
        rc = demo_replay(d.replay, &err);
        if (rc) command_failed("demo", "%s", err.text);
        return rc != 0;
    }
    if (d.quick) d.alone = 1;
    if (!d.alone && train_gathers(&(struct train_swarm){ .algorithm = d.algorithm })) {
        command_misused(
            "demo",
            "--algorithm %s: each of its peers sends a message to each other one, which "
            "the demo's client cannot; use gradients, powersgd, local_sgd or diloco",
            d.algorithm);
        return 2;
    }
    if (d.resume && !d.alone) {
        command_misused("demo",
                        "--resume is for --alone and --quick: a swarm's peers load their state "
                        "from each other");
        return 2;
    }
    if (!d.out) d.out = d.quick ? "out/demo-quick" : d.alone ? "out/demo-alone" : "out/demo";
    if (!d.steps)
        d.steps = d.quick        ? QUICK_STEPS
                  : d.alone      ? FULL_STEPS
                  : is_local(&d) ? LOCAL_STEPS
                                 : GRADIENTS_STEPS;
    d.pairs = d.quick || (!d.alone && !is_local(&d)) ? QUICK_PAIRS : 0;
    if (compute_open(&d.be, &d.compute, "demo")) return 1;
    rc = take_folder(&d, &err);
    if (!rc && !d.resume) {
        forget_samples(d.out);
        rc = forget_checkpoints(d.out, &err);
    }
    if (!rc) rc = open_all(&d, &err);
    if (!rc) {
        fprintf(stderr, "%zu pairs, %zu of them held out; %zu parameters; backend %s\n",
                d.references.count, d.data.without_count, d.sampler.model->params.trainable,
                d.be.note);
        page = !d.alone || d.no_dash ? 0
                                     : demo_page_start(d.out, d.steps); /* a swarm has its own */
        rc = d.alone ? train(&d, &end, &err) : train_swarm(&d, &end, &err);
    }
    if (!rc && end == TRAIN_DONE) {
        fprintf(stderr, "drawing ...\n");
        rc = show(&d, &err);
        if (!rc) rc = report(&d, &err);
    } else if (!rc && !d.alone)
        fprintf(stderr, "stopped before step %lld: nothing is drawn\n", (long long)d.steps);
    demo_page_end(page, d.out);
    if (rc && err.text[0]) command_failed("demo", "%s", err.text);
    reference_images_close(&d.references);
    image_sampler_close(&d.sampler);
    train_data_close(&d.data);
    return rc != 0;
}

const struct command command_demo = {
    .name = "demo",
    .summary = "train a small model in a swarm on this machine, draw with it, measure it",
    .synopsis = "[--alone] [--quick] [--out DIR] [OPTION ...]",
    .about =
        "Trains a small text-to-image transformer on emoji and their names, in a swarm of five "
        "processes on this machine: one joins late, one is killed half-way, and one is a client "
        "that accepts no connections. Then draws captions that the model has seen and "
        "combinations that it has not, and prints how well it does.",
    .rows = rows,
    .run = run_demo,
};
