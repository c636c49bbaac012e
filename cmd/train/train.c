/* train.c - `potluck train`: a text-to-image transformer from shards of captions and image tokens.
 * [TTT 3]
 *
 *   options - backend - data - model with initial values - trainer - train_job_run
 *
 * Alone, train_job.c makes the steps; with --run the collaborative optimizer does (train_swarm.c).
 * All peers of a run have to agree on the model, the optimizer, the schedule and the target batch;
 * seed of the data and size of the micro-batches are each peer's own. */
#include "net/hivemind/swarm/averaging.h"
#include "net/hivemind/progress/peer_report.h"
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "cmd/options/checkpoint_options.h"
#include "cmd/options/checks.h"
#include "cmd/common/outputs.h"
#include "train.h"
#include "train_agree.h"
#include "data/models/checkpoint.h"
#include "data/models/dalle_config.h"
#include "data/files/file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELD_OUT_PAIRS 64 /* a third of the work of training on as many */

static int take_without(void *options, const char *name, const char *value, struct pl_err *err)
{
    return train_data_without(&((struct train_requests *)options)->data, value, err);
}

int train_take_data(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct train_requests *w = options;
    if (w->given_count < OPTION_LIST_MAX) w->given[w->given_count++] = value;
    return train_data_add(&w->data, value, err);
}

/* "2/5" */
static int take_part(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct train_requests *w = options;
    char first[24];
    size_t n = strcspn(value, "/");
    int rc = option_integer(&w->parts, value[n] ? value + n + 1 : "", 1, INT32_MAX, err);
    snprintf(first, sizeof first, "%.*s", (int)(n < 20 ? n : 20), value);
    return rc ? rc : option_integer(&w->part, first, 1, w->parts, err);
}

static const char *const delays[] = { "none", "step", "round",
                                      NULL }; /* as enum pl_collaborative_delay */

#define OPTIONS struct train_requests
/* Each peer's own: potluck join has them, too. */
const struct option_row train_own_rows[] = {
    { "data", "PATH", NULL, OPT_CALL_FILE(train_take_data),
      "shards to train on: a Parquet file, a folder of *.parquet, the URL of a shard, or the "
      "URL of a list of shards (.json, .txt, or a folder's page that ends in / or .html). Shards "
      "from URLs are read while training. May be repeated (default: the run's or the demo's)" },
    { "cache", "DIR", NULL, OPT_PATH(cache),
      "keep downloaded data there, for the next epoch and for other peers on this machine" },
    { "cache-mb", "N", "10000", OPT_INTEGER(cache_mb, 1, 1 << 30),
      "size of the cache in MB; the oldest shards are removed first" },
    { "part", "K/N", NULL, OPT_CALL(take_part),
      "read only every N-th shard, starting with the K-th, so that N peers read different shards" },
    { "exclude", "FILE", NULL, OPT_CALL_FILE(take_without),
      "captions, one per line, whose pairs are held out: excluded from training, used by "
      "--evaluate-every" },
    { "without", "FILE", NULL, OPT_CALL_FILE(take_without), OPTION_OLD_NAME },
    { "evaluate-every", "N", "100", OPT_INTEGER(evaluate_every, 0, 1000000000),
      "steps between evaluations of the loss on held-out pairs; 0 never evaluates" },
    { "limit", "N", NULL, OPT_INTEGER(limit, 1, INT32_MAX),
      "train on only N pairs, evenly spread over the data (default: all)" },
    { "tokenizer", "FILE", NULL, OPT_PATH(tokenizer), "SentencePiece model (default: the demo's)" },
    { "out", "DIR", "out/train", OPT_PATH(job.out), "folder for log, checkpoints and loss curve" },
    { "batch", "N", NULL, OPT_INTEGER(job.micro_batch, 1, 1 << 16),
      "samples per micro-batch; must divide the target batch (default: the target batch, at "
      "most 64; in a swarm an eighth of it, so that peers share a step)" },
    { "offload", NULL, NULL, OPT_FLAG(offload),
      "keep optimizer state in host memory and step on the CPU, as in the paper's run" },
    { "activations", "A", "reversible", OPT_CHOICE(activations, train_activations),
      "activations kept for the backward pass"
      "\n- reversible: none (least memory)"
      "\n- recomputed: two per block\n- stored: all (fastest)" },
    { "data-seed", "N", NULL, OPT_INTEGER(data_seed, 0, INT64_MAX),
      "seed of the data order only; give each peer of a run another one (default: --seed; "
      "with potluck join a random one)" },
    CHECKPOINT_ROWS(job),
    { "quiet", NULL, NULL, OPT_FLAG(job.quiet), "print no progress" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

/* The same of a swarm. */
const struct option_row train_peer_rows[] = {
    { "name", "NAME", NULL, OPT_TEXT(swarm.name),
      "name of this peer on the run's page: at most 24 printable ASCII characters" },
    { NULL, NULL, NULL, OPT_TABLE(join, join_rows), NULL },
    PREFLIGHT_ROW(swarm.no_check),
    { NULL, NULL, NULL, OPT_TABLE(averaging, averaging_rows), NULL },
    { "delay", "D", "none", OPT_CHOICE(swarm.delay, delays),
      "what overlaps with the next micro-batches, which then see stale parameters. An overlap "
      "needs two more buffers of the parameters' size"
      "\n- none: nothing"
      "\n- step: the optimizer step, as in the paper's run"
      "\n- round: the gradient averaging, too, for slow connections" },
    { "min-peers", "N", "1", OPT_INTEGER(swarm.min_peers, 1, 1000000),
      "peers, this one included, that the first step waits for; after five minutes training begins "
      "without them" },
    { "slow", "SECONDS", "0", OPT_SECONDS(swarm.slow, 0, 3600),
      "minimum time per micro-batch, to imitate a slow machine" },
    { "json", NULL, NULL, OPT_FLAG(swarm.json), "print events as lines of JSON" },
    { NULL, NULL, NULL, OPT_TABLE(swarm.page, own_page_rows), NULL },
    { 0 },
};

/* All peers give the same. */
const struct option_row train_model_rows[] = {
    { "config", "NAME|FILE", "demo", OPT_PATH_OR(config, train_configs),
      "the model: run, middle, small, demo, or a JSON file" },
    { "steps", "N", "1000", OPT_INTEGER(job.steps, 1, 1000000000), "optimizer steps" },
    { "epochs", "N", NULL, OPT_INTEGER(job.steps, 1, 1000000000),
      "the same as --steps: an epoch of hivemind is one optimizer step" },
    { "target-batch", "N", "64", OPT_INTEGER(job.target_batch, 1, 1 << 20),
      "samples per optimizer step, of all peers together. The paper's run: 4096" },
    { "optimizer", "O", "lamb8", OPT_NAME(optimizer, train_optimizers),
      "LAMB or AdamW with 8-bit or 32-bit state; clamp30: norms count up to 30, not to 10,000; "
      "muon: the blocks' matrices by Muon, everything else by AdamW" },
    { "lr", "X", "0.01", OPT_REAL(lr, 0, 1e3),
      "peak learning rate. The paper's run: 0.0025 at batch 4096" },
    { "warmup", "X", "0.1", OPT_REAL(warmup, 0, 1),
      "fraction of the steps with a rising learning rate" },
    { "token-noise", "X", "0", OPT_REAL(token_noise, 0, 1),
      "share of the image tokens before the next one that are random in training, so that the "
      "model relies more on the caption; follows the learning rate" },
    { "seed", "N", "1", OPT_INTEGER(seed, 0, INT64_MAX), "seed of initial values and data order" },
    { 0 },
};

const struct option_row train_algorithm_rows[] = {
    { "algorithm", "A", "gradients", OPT_NAME(swarm.algorithm, train_algorithms),
      "what peers average, the same for all of them. The last four lines are for at most 32 peers "
      "of potluck, all of which must accept connections (paper/algorithms.md)"
      "\n- gradients: the gradients of each step, as in the paper's run"
      "\n- powersgd: the same, but each matrix as two thin factors of --powersgd-rank columns. "
      "hivemind's peers with PowerSGDGradientAverager can take part"
      "\n- powersgd_own: powersgd with the textbook's error feedback, which suits peers that come "
      "and go. hivemind's peers cannot take part"
      "\n- local_sgd: the change of the parameters after --inner-steps local steps, each of "
      "--target-batch samples of the peer's own: --inner-steps times fewer bytes"
      "\n- diloco: local_sgd with momentum in the outer step. OpenDiLoCo's peers can take part"
      "\n- sparseloco, noloco, partial, delayed_nesterov: local steps, as with diloco, and other "
      "ways to exchange the changes"
      "\n- streaming, delayed, eager: local steps, also during an exchange"
      "\n- delayed_gradients: gradients, applied one step later"
      "\n- demo, dgc, onebit_adam: a few entries or bits of each gradient; each replaces the "
      "optimizer" },
    { "algorithm-settings", "KEY=X,...", NULL, OPT_TEXT(swarm.algorithm_settings),
      "settings of these last algorithms, the same for all peers"
      "\n- sparseloco, demo: topk=64,chunk=64\n- partial, dgc: share=0.05"
      "\n- onebit_adam: warm_up=200\n- delayed_nesterov: coding=e3m0\n- streaming: fragments=4" },
    { "inner-steps", "N", "50", OPT_INTEGER(swarm.inner_steps, 1, 1000000),
      "local steps of each peer between two common ones; --steps counts local steps" },
    { "outer-lr", "X", "0.7", OPT_REAL(swarm.outer_lr, 0, 1e3), "learning rate of the outer step" },
    { "outer-momentum", "X", "0.9", OPT_REAL(swarm.outer_momentum, 0, 1),
      "momentum of the outer step" },
    { "average-state-every", "N", "1", OPT_INTEGER(swarm.average_state_every, 1, 1000000),
      "steps between rounds that average the parameters" },
    { 0 },
};

static const struct option_row rows[] = {
    TRAIN_ROWS(train_model_rows),
    TRAIN_ROWS(train_own_rows),
    { NULL, NULL, NULL, OPT_HEADING,
      "In a swarm (all peers give the same --run, --config, --steps and --target-batch)" },
    { "run", "ID", NULL, OPT_TEXT_CHECKED(swarm.run, check_run),
      "name of the run; without it, train alone" },
    { "manifest", "FILE", NULL, OPT_PATH(manifest),
      "take the run's name and all that its peers agree on from this file, as potluck new-run "
      "writes it; other options that contradict it are refused" },
    TRAIN_ROWS(train_algorithm_rows),
    { "powersgd-rank", "N", "0", OPT_INTEGER(swarm.powersgd_rank, 0, 16384),
      "columns of powersgd's factors, the same for all peers. 0: as the run's other peers, or 4 "
      "for the first" },
    TRAIN_ROWS(train_peer_rows),
    { 0 },
};

#define BATCH_MOST 64 /* more samples at a time need memory and are hardly faster */
#define SHARERS 8     /* peers that a small target is enough for: the reference run had more */

/* The largest divisor of the target that is at most BATCH_MOST. Peers that share the target add
 * whole micro-batches to it, so each brings a part of it: two with all of it would make a step of
 * twice the target. */
static int default_batch(const struct train_requests *w)
{
    const int target = w->job.target_batch;
    int b = w->swarm.run && !train_has_local_steps(&w->swarm) ? target / SHARERS : target;
    if (b > BATCH_MOST) b = BATCH_MOST;
    if (b < 1) b = 1;
    while (target % b) b--;
    return b;
}

/* A training of its own among the checkpoints of an earlier one would be lost: the earlier one's
 * are the newest by number, so --keep, --resume and generate would prefer them. In a swarm the
 * number is common, and a returning peer continues from there. */
static int take_folder(const struct train_requests *w, struct pl_err *err)
{
    char *newest = NULL;
    int rc = outputs_take_folder(w->job.out, err);
    if (!rc && !w->job.resume && !w->swarm.run) rc = pl_checkpoint_newest(&newest, w->job.out, err);
    if (newest)
        rc = pl_fail(err, PL_EUSE,
                     "%s exists: --resume continues from it; give another --out to keep it",
                     newest);
    free(newest);
    return rc;
}

/* Shards of web servers name their codec when they are opened. */
static int take_codec(struct train_requests *w, struct run_manifest *m, struct pl_err *err)
{
    const char *codec = pl_batch_stream_codec(w->data.stream);
    snprintf(m->codec, sizeof m->codec, "%s", codec);
    w->job.codec = m->codec;
    if (!*codec || !w->agreed || !*w->agreed->codec || !strcmp(codec, w->agreed->codec))
        return PL_OK;
    return pl_fail(err, PL_EUSE, "codec: %s here, %s in the run", codec, w->agreed->codec);
}

static int run(struct train_requests *w, struct pl_err *err)
{
    struct pl_backend be, host;
    struct pl_dalle_config config;
    struct pl_dalle *model = NULL;
    struct pl_trainer *trainer = NULL;
    struct pl_outer *outer = NULL;
    const uint64_t data_seed = (uint64_t)(w->data_seed < 0 ? w->seed : w->data_seed);
    struct pl_train_options training = { .peak = w->lr,
                                         .noise = w->token_noise,
                                         .noise_seed = data_seed };
    struct run_manifest manifest;
    char *options = NULL;
    enum train_end end;
    char path[PATH_MAX + 64];
    int rc = PL_OK;
    /* The order is that of the cost: a mistake in the options shows before anything is read, one in
     * the data before the model takes its memory. */
    if (compute_open(&be, &w->compute, w->job.cmd)) return PL_EUSE;
    train_optimizer_named(&training.optimizer, w->optimizer);
    training.devices = w->compute.devices;
    if (w->offload) {
        compute_open_host(&host, &w->compute);
        training.optimizer.host = &host;
    }
    if (w->agreed && !w->config) config = w->agreed->config;
    else rc = pl_dalle_config_find(&config, w->config, err);
    if (!rc) rc = take_folder(w, err);
    if (!rc && !w->data.paths)
        rc = train_data_add(&w->data, train_data_demo(path, sizeof path, "."), err);
    if (!rc && w->cache)
        rc = train_data_cache(&w->data, w->cache, (uint64_t)w->cache_mb * 1000000, err);
    if (!rc && w->parts) rc = train_data_part(&w->data, w->part - 1, w->parts, err);
    if (!rc)
        rc = train_data_tokenizer(&w->data,
                                  w->tokenizer ? w->tokenizer
                                               : train_data_demo(path, sizeof path, "t5_2k.model"),
                                  err);
    if (!rc) rc = train_describe(&manifest, w, &config, err);
    if (!rc && w->agreed) rc = manifest_compare(&manifest, w->agreed, err);
    if (!rc && w->job.resume) rc = train_agree_before(w, &manifest, err);
    w->swarm.manifest = &manifest;
    if (!rc)
        rc = train_data_open(&w->data, &config, w->job.micro_batch, data_seed, (uint64_t)w->limit,
                             &w->job.source, err);
    if (!rc) rc = take_codec(w, &manifest, err);
    /* A name or a model that no manifest can hold is no reason not to train. */
    if (!rc && manifest_write(&options, &manifest, NULL) == PL_ENOMEM)
        rc = pl_fail(err, PL_ENOMEM, "no memory");
    w->job.options = options;
    if (!rc && w->data.without_count && w->evaluate_every) {
        w->held_out.every = (int)w->evaluate_every;
        w->job.held_out = &w->held_out;
        rc = train_data_held_out(&w->data, &config, HELD_OUT_PAIRS, &w->held_out.tokens,
                                 &w->held_out.codes, &w->held_out.count, err);
    }
    if (!rc) rc = pl_dalle_open(&model, &config, &be, 1, err);
    /* All peers of a run begin with the same seed, hence with the same values: peers that start at
     * the same moment find no state to download. */
    if (!rc && (rc = pl_dalle_init(model, (uint64_t)w->seed)))
        pl_fail(err, rc, "initial values: %s", pl_status_name(rc));
    if (!rc) {
        model->activations = w->activations;
        training.total = w->job.steps;
        training.warmup = (uint64_t)(w->warmup * (double)w->job.steps);
        rc = pl_trainer_open(&trainer, model, &training, err);
    }
    if (!rc && w->swarm.run) rc = train_swarm_open_outer(&outer, &w->swarm, trainer, err);
    w->job.outer = outer;
    if (rc) {
        /* If the model fits and the optimizer state does not, that can be in the host's memory. */
        compute_explain(err, rc, &be, 0,
                        model && !w->offload && be.host_alloc ? "--offload" : NULL);
        command_failed(w->job.cmd, "%s", err->text);
    } else {
        if (!w->job.quiet)
            fprintf(stderr, "%s: %zu parameters in %zu tensors; backend %s\n", config.name,
                    model->params.trainable, model->params.count, be.note);
        rc = train_job_run(&end, trainer, &w->job);
        if (!rc && end == TRAIN_DONE && !w->job.quiet) {
            struct pairs_counts counts;
            char text[256], folder[PATH_MAX];
            pl_batch_stream_counts(w->data.stream, &counts);
            pl_batch_stream_counts_text(text, sizeof text, &counts);
            fprintf(stderr,
                    "%s\ntrained: the model, log.jsonl and loss.svg are in %s\n"
                    "next: potluck generate --model %s \"a caption\"\n",
                    text, w->job.out, outputs_shell_word(folder, sizeof folder, w->job.out));
        }
    }
    pl_free(w->held_out.tokens);
    pl_free(w->held_out.codes);
    pl_outer_close(outer);
    pl_trainer_close(trainer);
    pl_dalle_close(model);
    free(options);
    return rc;
}

/* A longer one would be cut, other letters would become '?' on the page. */
static int is_name(const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return 0;
    return n >= 1 && n <= REPORT_NAME_MAX;
}

/* Options that exclude or need each other. */
static int check(struct train_requests *w)
{
    struct join_options *join = &w->join;
    struct pl_err why;
    if (w->swarm.name && !is_name(w->swarm.name))
        return command_misused(w->job.cmd, "--name: 1 to %d printable ASCII characters",
                               REPORT_NAME_MAX);
    if (!w->swarm.run &&
        (join->join.count || join->client_mode || join->relay || w->swarm.page.wanted))
        return command_misused(
            w->job.cmd, "--join, --client-mode, --relay and --dash need the run's name: --run ID");
    if (join->client_mode && !join->join.count)
        return command_misused(w->job.cmd,
                               "--client-mode accepts no connections: --join MULTIADDR is needed");
    if (strcmp(w->swarm.algorithm, "gradients") && !w->swarm.run)
        return command_misused(w->job.cmd, "--algorithm %s is for a swarm: --run ID is needed",
                               w->swarm.algorithm);
    if (train_is_powersgd(&w->swarm) && (w->averaging.verify || w->averaging.clip != 0))
        return command_misused(w->job.cmd,
                               "--algorithm %s does not take --robust: a peer's factors mean "
                               "nothing without those of the others",
                               w->swarm.algorithm);
    if (train_gathers(&w->swarm) && join->client_mode)
        return command_misused(w->job.cmd,
                               "--algorithm %s does not take --client-mode: each peer gives its "
                               "message to each other peer",
                               w->swarm.algorithm);
    if (train_share_clip(&w->swarm, &w->averaging, &why) || train_settings(&w->swarm, &why))
        return command_misused(w->job.cmd, "%s", why.text);
    if (train_outer(&w->swarm)) {
        if (w->swarm.delay || w->averaging.verify)
            return command_misused(w->job.cmd,
                                   "--algorithm %s takes neither --delay nor --robust btard",
                                   w->swarm.algorithm);
        if (w->swarm.outer_momentum >= 1 || !(w->swarm.outer_lr > 0))
            return command_misused(w->job.cmd,
                                   "--outer-lr must be above 0 and --outer-momentum below 1");
    }
    if (w->averaging.verify && w->averaging.validators > 0 && w->swarm.delay)
        return command_misused(w->job.cmd,
                               "--delay mixes gradients of two steps' parameters, which validators "
                               "cannot recompute: give --robust btard:0 or --delay none");
    if (w->averaging.verify && w->token_noise > 0)
        return command_misused(w->job.cmd, "--robust btard does not take --token-noise: validators "
                                           "recompute gradients without it");
    if (!w->swarm.run && w->job.target_batch % w->job.micro_batch)
        return command_misused(w->job.cmd, "--batch: %d does not divide the target batch %d",
                               w->job.micro_batch, w->job.target_batch);
    return PL_OK;
}

void train_round_steps(struct train_requests *w)
{
    const uint64_t n = (uint64_t)train_period(&w->swarm);
    w->job.steps = (w->job.steps + n - 1) / n * n;
}

/* --run: train_swarm.c gets the parsed options as they are. */
static void use_swarm(struct train_requests *w)
{
    if (!w->swarm.run) return;
    train_round_steps(w);
    join_options_default(&w->join);
    w->swarm.join = &w->join;
    w->swarm.averaging = &w->averaging;
    w->job.train_swarm = train_swarm_run;
    w->job.swarm_context = &w->swarm;
}

int train_run(struct train_requests *w)
{
    const int is_new = access(w->job.out, F_OK) != 0;
    struct pl_err err = { "" };
    int rc;
    if (!w->job.micro_batch) w->job.micro_batch = default_batch(w);
    use_swarm(w);
    if (check(w)) return 2;
    rc = run(w, &err);
    if (rc && is_new) rmdir(w->job.out); /* succeeds only if it is empty */
    return rc != 0;
}

void train_requests_init(struct train_requests *w, const char *cmd)
{
    *w = (struct train_requests){ .held_out = { .last = NAN },
                                  .data_seed = -1,
                                  .job = { .cmd = cmd },
                                  .averaging = { .bandwidth = PL_BANDWIDTH_UNKNOWN } };
}

/* --manifest: the options of the file in place of the defaults, and those of the command line read
 * once more on top of them, so that train_run finds options that contradict the file. */
static int read_manifest(struct train_requests *w, struct run_manifest *m, int argc, char **argv,
                         int *status)
{
    struct pl_err err = { "" };
    int rc = train_manifest_read_file(m, w->manifest, &err);
    if (!rc) {
        train_data_close(&w->data);
        train_requests_init(w, "train");
        options_parse(&command_train, w, 1, argv, NULL, status);
        rc = train_agree(w, m, &err);
    }
    if (!rc && options_override(&command_train, w, argc, argv, NULL, status)) return 1;
    if (!rc) rc = train_agree_data(w, m, &err);
    if (!rc) return 0;
    command_failed("train", "--manifest: %s", err.text);
    *status = command_status(rc);
    return 1;
}

static int run_train(int argc, char **argv)
{
    struct run_manifest manifest = { 0 };
    struct train_requests w;
    int status;
    train_requests_init(&w, "train");
    if (!options_parse(&command_train, &w, argc, argv, NULL, &status) &&
        (!w.manifest || !read_manifest(&w, &manifest, argc, argv, &status)))
        status = train_run(&w);
    train_data_close(&w.data);
    return status;
}

const struct command command_train = {
    .name = "train",
    .summary = "train a text-to-image transformer, alone or in a swarm",
    .synopsis = "[--data SHARDS ...] [--config NAME|FILE] [--out DIR] [OPTION ...]\n"
                "--run ID [--join MULTIADDR ...] [OPTION ...]\n--manifest FILE [OPTION ...]",
    .about =
        "Trains a text-to-image transformer on pairs of captions and image tokens: alone, or with "
        "--run in a swarm. The first peer of a swarm has no --join; it prints how others join.",
    .rows = rows,
    .notes =
        "Ctrl-C saves a checkpoint and stops. Next: potluck generate --model DIR \"a caption\"",
    .run = run_train,
};
