/* train.c - `potluck train`: a model from shards of captions and codes. */
#include "net/hivemind/swarm/averaging.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "cmd/common/compute.h"
#include "train_data.h"
#include "train_job.h"
#include "train_swarm.h"
#include "data/models/checkpoint.h"
#include "data/models/dalle_config.h"
#include "data/files/file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_OUT_PAIRS 64 /* a third of the work of training on as many */

static const char usage[] =
    "usage: potluck train [--data SHARDS ...] [--config NAME|FILE] [--out DIR] [OPTION ...]\n"
    "\n"
    "Trains a text-to-image transformer on pairs of captions and picture codes.\n"
    "\n"
    "  --data PATH      a shard, or a folder of *.parquet; or the URL of a shard, or of a list of them\n"
    "                   (.json, .txt, or a folder's page: a URL that ends in / or .html), which are\n"
    "                   then read as they are needed; may be repeated (default: the demo's)\n"
    "  --cache DIR      keeps what comes from URLs there, for the next pass and for other peers of this\n"
    "                   machine; --cache-mb N of it at most (default: 10000), oldest out first\n"
    "  --part K/N       only each N-th shard, from the K-th on: N peers read different ones\n"
    "  --without FILE   captions, one a line, that are held out\n"
    "  --evaluate-every N   steps between losses on pairs of those captions (default: 100; 0: never)\n"
    "  --limit N        use only N pairs, evenly spread (default: all)\n"
    "  --tokenizer FILE spiece.model (default: the demo's)\n"
    "  --config C       run, middle, small, demo, or a JSON file (default: demo)\n"
    "  --out DIR        log, checkpoints, loss curve (default: out/train)\n"
    "  --steps N        optimizer steps (default: 1000)\n"
    "  --target-batch N samples a step (default: 64; the run: 4096)\n"
    "  --batch N        samples at a time, a divisor of the target (default: the target, at most 64)\n"
    "  --optimizer O    lamb8, lamb32, adamw8 or adamw32 (default: lamb8, the run's)\n"
    "  --offload        the optimizer in the machine's memory, on its processors, as in the run\n"
    "  --lr X           peak learning rate (default: 0.01; the run: 0.0025 at batch 4096)\n"
    "  --warmup X       share of the steps that warms up (default: 0.1)\n"
    "  --activations A  reversible, recomputed or stored: less memory or more speed (default:\n"
    "                   reversible)\n"
    "  --seed N         of initial values and order (default: 1)\n"
    "  --data-seed N    of the order alone: another one for each peer of a run (default: --seed)\n"
    "  --save-every N   steps between checkpoints (default: 100; 0: only at the end)\n"
    "  --keep N         checkpoints that stay (default: 2; 0: all)\n"
    "  --resume         continue from the newest checkpoint in --out; repeat the other options: not all of\n"
    "                   them are compared with those of the checkpoint\n"
    "  --quiet          no progress\n" COMPUTE_USAGE "\n";

static const char usage_together[] = /* C11 promises 4,095 characters of a text */
    "Together with others, who give the same --run, --config, --steps and --target-batch:\n"
    "  --run ID         the swarm's name; the target batch is then everybody's together\n"
    "  --join MULTIADDR a peer of the swarm; may be repeated. Without it this is the first one\n"
    "  --listen MULTIADDR   default /ip4/0.0.0.0/tcp/0, any free port\n"
    "  --announce MULTIADDR an address to be told to others instead, behind a router\n"
    "  --identity FILE  our key (default: a new one)\n"
    "  --authority URL --token-file FILE [--authority-ca FILE]  in a moderated swarm: potluck authority\n"
    "  --client-mode    only call others; for peers that cannot be called\n"
    "  --matchmaking-time S    how long peers may take to find each other (default: 15)\n"
    "  --averaging-timeout S   then the own gradient has to do (default: 180)\n"
    "  --allreduce-timeout S   for the exchange alone (default: 60)\n"
    "  --average-state-every N steps between rounds that average the parameters (default: 1)\n"
    "  --group-size N   a round begins as soon as so many are there (default: all who come in time)\n"
    "  --group-bits B   zeros and ones, drawn by lot: only those with the same meet, and each round changes\n"
    "                   them. For swarms of hundreds, in groups of --group-size (default: none)\n"
    "  --compression C  run, none, float16, uniform8 (default: run)\n"
    "  --bandwidth B    tell groupmates, in the same unit for all: who has more reduces more, the slow nothing\n"
    "  --robust R       against liars: centered-clip[:RADIUS] in place of the mean in what we reduce;\n"
    "                   btard[:VALIDATORS]: also verified, where everybody in the group asks for it and\n"
    "                   has the same data; so many gradients a round are computed again (default: 0.25)\n"
    "  --delay D        what goes on beside the next local batches, which then begin with older parameters:\n"
    "                   none, step (the optimizer's, as in the run), round (averaging gradients, too: for slow\n"
    "                   links); takes two more buffers of the parameters' size (default: none)\n"
    "  --slow S         let each batch take at least so long\n"
    "  --epochs N       the same as --steps\n" OWN_PAGE_USAGE PREFLIGHT_USAGE
    "  --json           lines of JSON on standard output\n"
    "\n"
    "Ctrl-C saves and stops. What comes next: potluck generate --model DIR \"a caption\"\n";

enum {
    O_DATA = 1,
    O_WITHOUT,
    O_LIMIT,
    O_TOKENIZER,
    O_CONFIG,
    O_OUT,
    O_STEPS,
    O_TARGET,
    O_BATCH,
    O_EVALUATE,
    O_OPTIMIZER,
    O_LR,
    O_WARMUP,
    O_ACTIVATIONS,
    O_SEED,
    O_SAVE,
    O_KEEP,
    O_RESUME,
    O_QUIET,
    O_RUN,
    O_JOIN,
    O_LISTEN,
    O_ANNOUNCE,
    O_IDENTITY,
    O_CLIENT,
    O_MATCHMAKING,
    O_AVERAGING,
    O_ALLREDUCE,
    O_STATE,
    O_COMPRESSION,
    O_SLOW,
    O_JSON,
    O_DATA_SEED,
    O_PART,
    O_ROBUST,
    O_BANDWIDTH,
    O_DELAY,
    O_CACHE,
    O_CACHE_MB,
    O_OFFLOAD,
    O_GROUP_SIZE,
    O_GROUP_BITS,
    O_NO_CHECK
};

static const struct option options[] = {
    { "data", required_argument, NULL, O_DATA },
    { "part", required_argument, NULL, O_PART },
    { "cache", required_argument, NULL, O_CACHE },
    { "cache-mb", required_argument, NULL, O_CACHE_MB },
    { "without", required_argument, NULL, O_WITHOUT },
    { "limit", required_argument, NULL, O_LIMIT },
    { "tokenizer", required_argument, NULL, O_TOKENIZER },
    { "config", required_argument, NULL, O_CONFIG },
    { "out", required_argument, NULL, O_OUT },
    { "steps", required_argument, NULL, O_STEPS },
    { "target-batch", required_argument, NULL, O_TARGET },
    { "batch", required_argument, NULL, O_BATCH },
    { "evaluate-every", required_argument, NULL, O_EVALUATE },
    { "optimizer", required_argument, NULL, O_OPTIMIZER },
    { "offload", no_argument, NULL, O_OFFLOAD },
    { "lr", required_argument, NULL, O_LR },
    { "warmup", required_argument, NULL, O_WARMUP },
    { "activations", required_argument, NULL, O_ACTIVATIONS },
    { "seed", required_argument, NULL, O_SEED },
    { "data-seed", required_argument, NULL, O_DATA_SEED },
    { "save-every", required_argument, NULL, O_SAVE },
    { "keep", required_argument, NULL, O_KEEP },
    { "resume", no_argument, NULL, O_RESUME },
    { "quiet", no_argument, NULL, O_QUIET },
    { "no-check", no_argument, NULL, O_NO_CHECK },
    { "run", required_argument, NULL, O_RUN },
    { "join", required_argument, NULL, O_JOIN },
    { "listen", required_argument, NULL, O_LISTEN },
    { "announce", required_argument, NULL, O_ANNOUNCE },
    { "identity", required_argument, NULL, O_IDENTITY },
    { "client-mode", no_argument, NULL, O_CLIENT },
    { "matchmaking-time", required_argument, NULL, O_MATCHMAKING },
    { "averaging-timeout", required_argument, NULL, O_AVERAGING },
    { "allreduce-timeout", required_argument, NULL, O_ALLREDUCE },
    { "average-state-every", required_argument, NULL, O_STATE },
    { "group-size", required_argument, NULL, O_GROUP_SIZE },
    { "group-bits", required_argument, NULL, O_GROUP_BITS },
    { "compression", required_argument, NULL, O_COMPRESSION },
    { "robust", required_argument, NULL, O_ROBUST },
    { "bandwidth", required_argument, NULL, O_BANDWIDTH },
    { "delay", required_argument, NULL, O_DELAY },
    { "slow", required_argument, NULL, O_SLOW },
    { "epochs", required_argument, NULL, O_STEPS },
    { "json", no_argument, NULL, O_JSON },
    OWN_PAGE_OPTIONS,
    MEMBERSHIP_OPTIONS,
    COMPUTE_OPTIONS,
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct requests {
    struct compute compute;
    struct train_data data;
    int64_t part, parts; /* from 1; parts 0: all */
    const char *config, *tokenizer, *optimizer, *cache;
    int64_t cache_mb;
    int offload;
    enum pl_activations activations;
    int64_t evaluate_every, limit, steps, target, batch, seed, data_seed, save_every, keep;
    double lr, warmup;
    struct train_held_out held_out;
    struct train_job job;
    struct train_swarm swarm;
};

static int choose(const char *flag, const char *text, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(text, names[i])) return (int)i;
    fprintf(stderr, "potluck train: %s: '%.40s' is none of", flag, text);
    for (size_t i = 0; i < count; i++) fprintf(stderr, " %s", names[i]);
    fputc('\n', stderr);
    return PL_EUSE;
}

static const char *const delays[] = { "none", "step",
                                      "round" }; /* as enum pl_collaborative_delay */
static const char *const activations[] = { "reversible", "recomputed", "stored" };
static const char *const optimizers[] = { "lamb8", "lamb32", "adamw8", "adamw32" };

static int add_address(const char **list, size_t *count, const char *address)
{
    if (*count == TRAIN_ADDRESSES_MAX) {
        fprintf(stderr, "potluck train: more than %d addresses\n", TRAIN_ADDRESSES_MAX);
        return PL_EUSE;
    }
    list[(*count)++] = address;
    return PL_OK;
}

/* "2/5" */
static int take_part(struct requests *w, const char *value)
{
    char first[24];
    size_t n = strcspn(value, "/");
    snprintf(first, sizeof first, "%.*s", (int)(n < 20 ? n : 20), value);
    if (cmd_integer(&w->parts, "train", "--part", value[n] ? value + n + 1 : "", 1, INT32_MAX) ||
        cmd_integer(&w->part, "train", "--part", first, 1, w->parts))
        return PL_EUSE;
    return PL_OK;
}

static int take(struct requests *w, int option, const char *value)
{
    struct pl_err err;
    int rc;
    switch (option) {
    case O_DATA: rc = train_data_add(&w->data, value, &err); break;
    case O_WITHOUT: rc = train_data_without(&w->data, value, &err); break;
    case O_PART: return take_part(w, value);
    case O_CACHE: w->cache = value; return PL_OK;
    case O_CACHE_MB: return cmd_integer(&w->cache_mb, "train", "--cache-mb", value, 1, 1 << 30);
    case O_LIMIT: return cmd_integer(&w->limit, "train", "--limit", value, 1, INT32_MAX);
    case O_TOKENIZER: w->tokenizer = value; return PL_OK;
    case O_CONFIG: w->config = value; return PL_OK;
    case O_OUT: w->job.out = value; return PL_OK;
    case O_STEPS: return cmd_integer(&w->steps, "train", "--steps", value, 1, 1000000000);
    case O_TARGET: return cmd_integer(&w->target, "train", "--target-batch", value, 1, 1 << 20);
    case O_BATCH: return cmd_integer(&w->batch, "train", "--batch", value, 1, 1 << 16);
    case O_EVALUATE:
        return cmd_integer(&w->evaluate_every, "train", "--evaluate-every", value, 0, 1000000000);
    case O_OPTIMIZER:
        w->optimizer = value;
        return choose("--optimizer", value, optimizers, 4) < 0 ? PL_EUSE : PL_OK;
    case O_OFFLOAD: w->offload = 1; return PL_OK;
    case O_LR: return cmd_real(&w->lr, "train", "--lr", value, 0, 1e3);
    case O_WARMUP: return cmd_real(&w->warmup, "train", "--warmup", value, 0, 1);
    case O_ACTIVATIONS:
        rc = choose("--activations", value, activations, 3);
        if (rc < 0) return rc;
        w->activations = (enum pl_activations)rc;
        return PL_OK;
    case O_SEED: return cmd_integer(&w->seed, "train", "--seed", value, 0, INT64_MAX);
    case O_DATA_SEED:
        return cmd_integer(&w->data_seed, "train", "--data-seed", value, 0, INT64_MAX);
    case O_SAVE: return cmd_integer(&w->save_every, "train", "--save-every", value, 0, 1000000000);
    case O_KEEP: return cmd_integer(&w->keep, "train", "--keep", value, 0, 1000000);
    case O_RESUME: w->job.resume = 1; return PL_OK;
    case O_QUIET: w->job.quiet = 1; return PL_OK;
    case O_NO_CHECK: w->swarm.no_check = 1; return PL_OK;
    case O_RUN: w->swarm.run = value; return PL_OK;
    case O_JOIN: return add_address(w->swarm.join, &w->swarm.join_count, value);
    case O_LISTEN: return add_address(w->swarm.listen, &w->swarm.listen_count, value);
    case O_ANNOUNCE: return add_address(w->swarm.announce, &w->swarm.announce_count, value);
    case O_IDENTITY: w->swarm.identity = value; return PL_OK;
    case O_CLIENT: w->swarm.client_mode = 1; return PL_OK;
    case O_MATCHMAKING:
        return cmd_real(&w->swarm.matchmaking_time, "train", "--matchmaking-time", value, 0.1,
                        3600);
    case O_AVERAGING:
        return cmd_real(&w->swarm.averaging_timeout, "train", "--averaging-timeout", value, 0.1,
                        86400);
    case O_ALLREDUCE:
        return cmd_real(&w->swarm.allreduce_timeout, "train", "--allreduce-timeout", value, 0.1,
                        86400);
    case O_STATE:
        return cmd_integer(&w->swarm.average_state_every, "train", "--average-state-every", value,
                           1, 1000000);
    case O_GROUP_SIZE:
        return cmd_integer(&w->swarm.group_size, "train", "--group-size", value, 2,
                           GROUP_PEERS_MAX);
    case O_GROUP_BITS: return cmd_group_bits(&w->swarm.group_bits, "train", value);
    case O_COMPRESSION: w->swarm.compression = value; return PL_OK;
    case O_ROBUST:
        if (!robust_named(&w->swarm.clip, &w->swarm.verify, &w->swarm.validators, value))
            return PL_OK;
        fprintf(stderr,
                "potluck train: --robust: '%.40s' is none of none, centered-clip[:RADIUS], "
                "btard[:VALIDATORS]\n",
                value);
        return PL_EUSE;
    case O_BANDWIDTH: return cmd_real(&w->swarm.bandwidth, "train", "--bandwidth", value, 0, 1e15);
    case O_DELAY:
        rc = choose("--delay", value, delays, PL_COUNT(delays));
        if (rc < 0) return rc;
        w->swarm.delay = rc;
        return PL_OK;
    case O_SLOW: return cmd_real(&w->swarm.slow, "train", "--slow", value, 0, 3600);
    case O_JSON: w->swarm.json = 1; return PL_OK;
    default:
        if (membership_option(&w->swarm.membership, option, value)) return PL_OK;
        if (own_page_option(&w->swarm.page, option, value)) return PL_OK;
        return compute_option(&w->compute, "train", option, value) > 0 ? PL_OK : PL_EUSE;
    }
    if (rc) fprintf(stderr, "potluck train: %s\n", err.text);
    return rc;
}

/* The largest divisor of the target that is at most 64. */
static int64_t default_batch(int64_t target)
{
    int64_t b = target < 64 ? target : 64;
    while (target % b) b--;
    return b;
}

/* A training of its own among the checkpoints of an earlier one would be lost: the earlier one's
 * are the newest by number, so they are what stays and what --resume and generate take. In a swarm
 * the number is everybody's, and a peer that comes back goes on from there. */
static int take_folder(const struct requests *w, struct pl_err *err)
{
    char *newest = NULL;
    int rc = pl_folder_make(w->job.out, err);
    if (!rc && !w->job.resume && !w->swarm.run) rc = pl_checkpoint_newest(&newest, w->job.out, err);
    if (newest)
        rc = pl_fail(err, PL_EUSE,
                     "%s is there already: --resume goes on from it, another --out leaves it alone",
                     newest);
    free(newest);
    return rc;
}

static int run(struct requests *w, struct pl_err *err)
{
    struct pl_backend be, host;
    struct pl_dalle_config config;
    struct pl_dalle *model = NULL;
    struct pl_trainer *trainer = NULL;
    struct pl_train_options training = { .peak = w->lr };
    enum train_end end;
    char path[PATH_MAX + 64];
    int rc;
    if (compute_open(&be, &w->compute, "train")) return PL_EUSE;
    train_optimizer_named(&training.optimizer, w->optimizer);
    training.devices = w->compute.devices;
    if (w->offload) {
        compute_open_host(&host, &w->compute);
        training.optimizer.host = &host;
    }
    rc = pl_dalle_config_find(&config, w->config, err);
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
    if (!rc)
        rc = train_data_open(&w->data, &config, w->job.micro_batch,
                             (uint64_t)(w->data_seed < 0 ? w->seed : w->data_seed),
                             (uint64_t)w->limit, &w->job.source, err);
    if (!rc && w->data.withouts && w->evaluate_every) {
        w->held_out.every = (int)w->evaluate_every;
        w->job.held_out = &w->held_out;
        rc = train_data_held_out(&w->data, &config, HELD_OUT_PAIRS, &w->held_out.tokens,
                                 &w->held_out.codes, &w->held_out.count, err);
    }
    if (!rc) rc = pl_dalle_open(&model, &config, &be, 1, err);
    if (!rc && (rc = pl_dalle_init(model, (uint64_t)w->seed)))
        pl_fail(err, rc, "initial values: %s", pl_status_name(rc));
    if (!rc) {
        model->activations = w->activations;
        training.total = (uint64_t)w->steps;
        training.warmup = (uint64_t)(w->warmup * (double)w->steps);
        rc = pl_trainer_open(&trainer, model, &training, err);
    }
    if (rc) {
        /* The model fits where what did not is the optimizer's: that can lie in the host's
         * memory. */
        compute_explain(err, rc, &be, 0,
                        model && !w->offload && be.host_alloc ? "--offload" : NULL);
        fprintf(stderr, "potluck train: %s\n", err->text);
    } else {
        if (!w->job.quiet)
            fprintf(stderr, "%s: %zu parameters in %zu tensors; backend %s\n", config.name,
                    model->params.trainable, model->params.count, be.note);
        rc = train_job_run(&end, trainer, &w->job);
        if (!rc && end == TRAIN_DONE && !w->job.quiet) {
            struct pairs_counts counts;
            char text[256];
            pl_batch_stream_counts(w->data.stream, &counts);
            pl_batch_stream_counts_text(text, sizeof text, &counts);
            fprintf(stderr,
                    "%s\ntrained: the model, log.jsonl and loss.png are in %s\n"
                    "next: potluck generate --model %s \"a caption\"\n",
                    text, w->job.out, w->job.out);
        }
    }
    pl_free(w->held_out.tokens);
    pl_free(w->held_out.codes);
    pl_trainer_close(trainer);
    pl_dalle_close(model);
    return rc;
}

int cmd_train(int argc, char **argv)
{
    struct requests w = {
        .config = "demo",
        .optimizer = "lamb8",
        .activations = PL_REVERSIBLE,
        .steps = 1000,
        .target = 64,
        .evaluate_every = 100,
        .held_out = { .last = NAN },
        .seed = 1,
        .data_seed = -1,
        .save_every = 100,
        .keep = 2,
        .cache_mb = 10000,
        .lr = 0.01,
        .warmup = 0.1,
        .job = { .cmd = "train", .out = "out/train" },
        .swarm = { .compression = "run",
                   .bandwidth = PL_BANDWIDTH_UNKNOWN,
                   .matchmaking_time = 15,
                   .averaging_timeout = 180,
                   .allreduce_timeout = 60,
                   .average_state_every = 1 },
    };
    struct pl_err err = { "" };
    int option, rc = PL_OK;
    while (!rc && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            fputs(usage_together, stdout);
            train_data_close(&w.data);
            return 0;
        }
        rc = option == '?' ? PL_EUSE : take(&w, option, optarg);
    }
    if (!rc) rc = cmd_no_more("train", argc, argv);
    if (!rc && !w.batch) w.batch = default_batch(w.target);
    if (!rc && !w.swarm.run && (w.swarm.join_count || w.swarm.client_mode || w.swarm.page.wanted)) {
        fputs("potluck train: --join, --client-mode and --dash need the swarm's name: --run ID\n",
              stderr);
        rc = PL_EUSE;
    }
    if (!rc && w.swarm.client_mode && !w.swarm.join_count)
        rc = cmd_misused("train", "--client-mode only calls others: --join MULTIADDR");
    if (!rc && w.swarm.verify && w.swarm.validators > 0 && w.swarm.delay) {
        fputs(
            "potluck train: --delay makes gradients of two steps' parameters, which nobody can compute "
            "again: --robust btard:0, or --delay none\n",
            stderr);
        rc = PL_EUSE;
    }
    if (w.swarm.run) {
        if (!w.swarm.listen_count) w.swarm.listen[w.swarm.listen_count++] = "/ip4/0.0.0.0/tcp/0";
        w.job.together = train_swarm_run;
        w.job.collaborative_context = &w.swarm;
    }
    if (!rc && !w.swarm.run && w.target % w.batch) {
        fprintf(stderr, "potluck train: --batch: %lld does not divide the target batch %lld\n",
                (long long)w.batch, (long long)w.target);
        rc = PL_EUSE;
    }
    if (rc) {
        train_data_close(&w.data);
        return rc == PL_EUSE ? 2 : 1;
    }
    w.job.steps = (uint64_t)w.steps;
    w.job.target_batch = (int)w.target;
    w.job.micro_batch = (int)w.batch;
    w.job.save_every = (int)w.save_every;
    w.job.keep = (int)w.keep;
    rc = run(&w, &err);
    train_data_close(&w.data);
    return rc ? 1 : 0;
}
