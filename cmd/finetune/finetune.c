/* finetune.c - `potluck finetune`: GPT-2 with 8-bit Adam on streamed text: the paper's tutorial.
 * [TTT 2.3] */
#include "cmd/cmd.h"
#include "cmd/common/compute.h"
#include "finetune_job.h"
#include "data/text/bpe.h"
#include "data/files/file.h"
#include "data/models/gpt2_file.h"
#include "../../runtime/models.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FINETUNE_TEXT "/usr/share/common-licenses" /* of base-files: every Debian has them */

static const char usage[] =
    "usage: potluck finetune [--model PATH | --size SIZE] [--data PATH ...] [--out DIR] [OPTION ...]\n"
    "\n"
    "Trains GPT-2 on text that is read as it is needed, with the optimizer's statistics in 8 bits. The\n"
    "paper's tutorial, once its files are there (the hub's gpt2-large, and shards of C4):\n"
    "\n"
    "  potluck finetune --model gpt2-large --data c4/en --length 256 --batch 4 --lr 2e-5\n"
    "\n"
    "Without any file: a small GPT-2 from random initial values, which reads bytes, on the licences that\n"
    "Debian ships.\n"
    "\n"
    "  --model PATH     a checkpoint of the hub, or its folder, with vocab.json and merges.txt in it\n"
    "  --size S         from random initial values: tiny, small, gpt2, gpt2-medium, gpt2-large, gpt2-xl\n"
    "                   (default: tiny, 4 blocks 128 wide)\n"
    "  --vocab DIR      vocab.json and merges.txt of GPT-2 (default: beside --model; without any, ids are\n"
    "                   bytes, and a model of 257 ids is needed)\n"
    "  --data PATH      a file or a folder of them, may be repeated: JSON lines with \"text\" (.json,\n"
    "                   .jsonl), or plain text; gzipped or not (default: " FINETUNE_TEXT ")\n"
    "  --out DIR        log, checkpoints, model.safetensors, config.json (default: out/finetune)\n"
    "  --steps N        optimizer steps (default: 200)\n"
    "  --batch N        windows a step (default: 8)\n"
    "  --accumulate N   taken in N parts, for less memory (default: 1)\n"
    "  --length N       ids in a window (default: the model's positions)\n"
    "  --lr X           peak rate (default: 2e-5; from random values: 3e-3)\n"
    "  --warmup X       share of the steps that warms up (default: 0.1)\n"
    "  --optimizer O    adam8 or adam32: bits of the statistics (default: adam8)\n"
    "  --activations A  recomputed (checkpointing) or stored: less memory or more speed (default:\n"
    "                   recomputed)\n"
    "  --share N        from random values: blocks take turns with N sets of layers (default: 0, each its own)\n"
    "  --offload DIR    statistics in a file there, not in memory; DIR should be on a disk\n"
    "  --held-out N     windows that perplexity is measured on, out of every 20th document (default: 16)\n"
    "  --evaluate-every N   steps between measurements (default: 50; 0: at the beginning and the end)\n"
    "  --save-every N   steps between checkpoints (default: 100; 0: only at the end)\n"
    "  --keep N         checkpoints that stay (default: 2; 0: all)\n"
    "  --resume         continue from the newest checkpoint in --out; repeat the other options: not all of\n"
    "                   them are compared with those of the checkpoint\n"
    "  --seed N         of initial values and order (default: 1)\n"
    "  --quiet          no progress\n" COMPUTE_USAGE "\n"
    "Ctrl-C saves and stops.\n";

#define BYTES_VOCAB 257  /* bytes, and the end of a document */
#define EVERY 20         /* documents, of which one is held out */
#define FILES_MAX 100000 /* C4 has 1,024 */

enum {
    O_MODEL = 1,
    O_SIZE,
    O_VOCAB,
    O_DATA,
    O_OUT,
    O_STEPS,
    O_BATCH,
    O_ACCUMULATE,
    O_LENGTH,
    O_LR,
    O_WARMUP,
    O_OPTIMIZER,
    O_ACTIVATIONS,
    O_HELD,
    O_EVALUATE,
    O_SAVE,
    O_KEEP,
    O_RESUME,
    O_SEED,
    O_QUIET,
    O_SHARE,
    O_OFFLOAD
};

static const struct option options[] = {
    { "model", required_argument, NULL, O_MODEL },
    { "size", required_argument, NULL, O_SIZE },
    { "vocab", required_argument, NULL, O_VOCAB },
    { "data", required_argument, NULL, O_DATA },
    { "out", required_argument, NULL, O_OUT },
    { "steps", required_argument, NULL, O_STEPS },
    { "batch", required_argument, NULL, O_BATCH },
    { "accumulate", required_argument, NULL, O_ACCUMULATE },
    { "length", required_argument, NULL, O_LENGTH },
    { "lr", required_argument, NULL, O_LR },
    { "warmup", required_argument, NULL, O_WARMUP },
    { "optimizer", required_argument, NULL, O_OPTIMIZER },
    { "activations", required_argument, NULL, O_ACTIVATIONS },
    { "share", required_argument, NULL, O_SHARE },
    { "offload", required_argument, NULL, O_OFFLOAD },
    { "held-out", required_argument, NULL, O_HELD },
    { "evaluate-every", required_argument, NULL, O_EVALUATE },
    { "save-every", required_argument, NULL, O_SAVE },
    { "keep", required_argument, NULL, O_KEEP },
    { "resume", no_argument, NULL, O_RESUME },
    { "seed", required_argument, NULL, O_SEED },
    { "quiet", no_argument, NULL, O_QUIET },
    COMPUTE_OPTIONS,
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct requests {
    struct compute compute;
    const char *model, *size, *vocab;
    char **path; /* files of text */
    size_t paths;
    int64_t share, steps, batch, accumulate, length, held_out, evaluate, save, keep, seed;
    double lr, warmup;
    int bits, stored;
    struct finetune_job job;
};

/* Sizes that are quick to train from nothing. */
static const struct {
    const char *name;
    struct pl_gpt2_config config;
} small[] = {
    { "tiny", { 4, 4, 128, 128, BYTES_VOCAB, 512, 0 } },
    { "small", { 8, 8, 256, 256, BYTES_VOCAB, 1024, 0 } },
};

/* --- text ------------------------------------------------------------------------------------- */

static int add_path(struct requests *w, char *path, struct pl_err *err)
{
    char **grown = path && w->paths < FILES_MAX ? realloc(w->path, (w->paths + 1) * sizeof *grown)
                                                : NULL;
    if (!grown) {
        free(path);
        return w->paths == FILES_MAX
                   ? pl_fail(err, PL_ELIMIT, "--data: more than %d files", FILES_MAX)
                   : pl_fail(err, PL_ENOMEM, "no memory");
    }
    w->path = grown;
    grown[w->paths++] = path;
    return PL_OK;
}

static int visible(const struct dirent *d) { return d->d_name[0] != '.'; }

/* A file, or the files of a folder by name; a link to another of them would only say the same
 * twice. */
static int add_data(struct requests *w, const char *path, struct pl_err *err)
{
    struct dirent **entries;
    struct stat st;
    size_t before = w->paths;
    int n, rc = PL_OK;
    if (stat(path, &st)) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return add_path(w, strdup(path), err);
    if ((n = scandir(path, &entries, visible, alphasort)) < 0)
        return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *file = rc ? NULL : pl_path_join(path, entries[i]->d_name);
        if (!rc && !file) rc = pl_fail(err, PL_ENOMEM, "no memory");
        if (!rc && !lstat(file, &st) && S_ISREG(st.st_mode)) {
            rc = add_path(w, file, err);
            file = NULL;
        }
        free(file);
        free(entries[i]);
    }
    free(entries);
    return !rc && w->paths == before
               ? pl_fail(err, PL_ENOTFOUND, "%s: no files in this folder", path)
               : rc;
}

static int encode_bytes(int32_t *ids, size_t room, size_t *count, const void *tokenizer,
                        const char *text, size_t n)
{
    (void)tokenizer;
    *count = n;
    for (size_t i = 0; i < n && i < room; i++) ids[i] = (unsigned char)text[i];
    return PL_OK;
}

static int encode_bpe(int32_t *ids, size_t room, size_t *count, const void *tokenizer,
                      const char *text, size_t n)
{
    return pl_bpe_encode(ids, room, count, tokenizer, text, n);
}

/* vocab.json and merges.txt of a folder; *bpe stays NULL, which means bytes, if `wanted` is 0 and
 * there are none. */
static int open_vocab(struct bpe **bpe, const char *folder, int wanted, struct pl_err *err)
{
    char *vocab = pl_path_join(folder, "vocab.json"), *merges = pl_path_join(folder, "merges.txt");
    int rc = vocab && merges ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    if (!rc && (wanted || (!access(vocab, F_OK) && !access(merges, F_OK)))) {
        rc = pl_bpe_open_gpt2(bpe, vocab, merges, err);
        if (!rc && pl_bpe_end(*bpe) < 0)
            rc = pl_fail(err, PL_EFORMAT, "%s: no <|endoftext|> to put between documents", vocab);
    }
    free(vocab);
    free(merges);
    return rc;
}

/* --- model ------------------------------------------------------------------------------------ */

/* The weights in a folder of the hub, or the path itself; free(). */
static char *weights_of(const char *path)
{
    static const char *const names[] = { "model.safetensors", "pytorch_model.bin" };
    struct stat st;
    if (stat(path, &st) || !S_ISDIR(st.st_mode)) return strdup(path);
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        char *file = pl_path_join(path, names[i]);
        if (!file || !access(file, F_OK) || i + 1 == PL_COUNT(names)) return file;
        free(file);
    }
    return NULL;
}

static char *folder_of(const char *path)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) return strdup(path);
    return slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
}

static int named_size(struct pl_gpt2_config *c, const char *name, struct pl_err *err)
{
    struct pl_err why;
    for (size_t i = 0; i < PL_COUNT(small); i++)
        if (!strcmp(small[i].name, name)) {
            *c = small[i].config;
            return PL_OK;
        }
    return pl_gpt2_named(c, name, &why)
               ? pl_fail(err, PL_EUSE,
                         "--size: no '%.40s': tiny, small, gpt2, gpt2-medium, gpt2-large, gpt2-xl",
                         name)
               : PL_OK;
}

/* From a file, or from random values with as many ids as the vocabulary has. */
static int open_model(struct pl_gpt2 *m, const struct requests *w, const struct bpe *bpe,
                      const struct pl_backend *be, struct pl_err *err)
{
    struct pl_gpt2_config config;
    int vocab = bpe ? pl_bpe_size(bpe) : BYTES_VOCAB, rc;
    if (w->model && w->share)
        return pl_fail(err, PL_EUSE, "--share: the layers of %s are not equal", w->model);
    if (w->model) {
        char *file = weights_of(w->model);
        rc = file ? pl_gpt2_open(m, file, be, 1, err) : pl_fail(err, PL_ENOMEM, "no memory");
        if (!rc && m->config.vocab < vocab) {
            rc = bpe ? pl_fail(err, PL_EUSE, "%s: the model has %d ids, its vocabulary %d", file,
                               m->config.vocab, vocab)
                     : pl_fail(err, PL_EUSE,
                               "%s: no vocab.json and merges.txt beside it (--vocab names their "
                               "folder), and %d ids are too few for bytes",
                               file, m->config.vocab);
        } else if (!rc && !bpe && m->config.vocab != BYTES_VOCAB)
            rc = pl_fail(err, PL_EUSE,
                         "%s: no vocab.json and merges.txt beside it; --vocab names their folder",
                         file);
        free(file);
        if (rc) pl_gpt2_clear(m);
        return rc;
    }
    if ((rc = named_size(&config, w->size, err))) return rc;
    config.vocab = vocab;
    config.groups = (int)w->share;
    if ((rc = pl_gpt2_check(&config, err))) return rc;
    rc = pl_gpt2_init(m, &config, be, 1);
    if (!rc && (rc = pl_gpt2_reset(m, (uint64_t)w->seed))) pl_gpt2_clear(m);
    return rc ? pl_fail(err, rc, "%s: %s for the model", w->size, pl_status_name(rc)) : PL_OK;
}

/* --- the command ------------------------------------------------------------------------------ */

static int either(int *which, const char *flag, const char *value, const char *first,
                  const char *second)
{
    *which = !strcmp(value, second);
    if (*which || !strcmp(value, first)) return PL_OK;
    fprintf(stderr, "potluck finetune: %s: '%.40s' is neither %s nor %s\n", flag, value, first,
            second);
    return PL_EUSE;
}

static int take(struct requests *w, int option, const char *value)
{
    static const char cmd[] = "finetune";
    struct pl_err err = { "" };
    int which, rc;
    switch (option) {
    case O_MODEL: w->model = value; return PL_OK;
    case O_SIZE: w->size = value; return PL_OK;
    case O_VOCAB: w->vocab = value; return PL_OK;
    case O_DATA:
        rc = add_data(w, value, &err);
        if (rc) fprintf(stderr, "potluck finetune: %s\n", err.text);
        return rc;
    case O_OUT: w->job.out = value; return PL_OK;
    case O_STEPS: return cmd_integer(&w->steps, cmd, "--steps", value, 1, 1000000000);
    case O_BATCH: return cmd_integer(&w->batch, cmd, "--batch", value, 1, 1 << 16);
    case O_ACCUMULATE: return cmd_integer(&w->accumulate, cmd, "--accumulate", value, 1, 1 << 16);
    case O_LENGTH: return cmd_integer(&w->length, cmd, "--length", value, 2, CORPUS_WINDOW_MAX);
    case O_LR: return cmd_real(&w->lr, cmd, "--lr", value, 1e-12, 10);
    case O_WARMUP: return cmd_real(&w->warmup, cmd, "--warmup", value, 0, 1);
    case O_OPTIMIZER:
        rc = either(&which, "--optimizer", value, "adam8", "adam32");
        w->bits = which ? 32 : 8;
        return rc;
    case O_ACTIVATIONS: return either(&w->stored, "--activations", value, "recomputed", "stored");
    case O_SHARE: return cmd_integer(&w->share, cmd, "--share", value, 0, PL_PRENORM_LAYERS_MAX);
    case O_OFFLOAD: w->job.offload = value; return PL_OK;
    case O_HELD: return cmd_integer(&w->held_out, cmd, "--held-out", value, 1, 1 << 16);
    case O_EVALUATE:
        return cmd_integer(&w->evaluate, cmd, "--evaluate-every", value, 0, 1000000000);
    case O_SAVE: return cmd_integer(&w->save, cmd, "--save-every", value, 0, 1000000000);
    case O_KEEP: return cmd_integer(&w->keep, cmd, "--keep", value, 0, 1000000);
    case O_RESUME: w->job.resume = 1; return PL_OK;
    case O_SEED: return cmd_integer(&w->seed, cmd, "--seed", value, 0, INT64_MAX);
    case O_QUIET: w->job.quiet = 1; return PL_OK;
    default: return compute_option(&w->compute, cmd, option, value) == 1 ? PL_OK : PL_EUSE;
    }
}

static int run(struct requests *w, struct pl_err *err)
{
    struct pl_backend be;
    struct pl_gpt2 model = { 0 };
    struct bpe *bpe = NULL;
    char *folder = w->model ? folder_of(w->model) : NULL;
    const char *vocab = w->vocab ? w->vocab : folder;
    int rc, opened = 0;
    if (compute_open(&be, &w->compute, "finetune")) {
        free(folder);
        return PL_EUSE;
    }
    if (w->job.offload && strcmp(be.name, "ref") && strcmp(be.name, "fast")) {
        fprintf(stderr,
                "potluck finetune: --offload: backend %s has memory of its own: take fast\n",
                be.name);
        free(folder);
        return PL_EUSE;
    }
    rc = !w->paths ? add_data(w, FINETUNE_TEXT, err) : PL_OK;
    if (!rc && vocab) rc = open_vocab(&bpe, vocab, w->vocab != NULL, err);
    if (!rc) rc = open_model(&model, w, bpe, &be, err);
    opened = !rc;
    compute_explain(err, rc, &be, 0, w->model ? NULL : "a smaller --size, or --share 1");
    if (!rc && !w->length) w->length = model.config.positions;
    if (!rc && w->length > model.config.positions)
        rc = pl_fail(err, PL_EUSE, "--length: %lld ids, the model has %d positions",
                     (long long)w->length, model.config.positions);
    if (rc) fprintf(stderr, "potluck finetune: %s\n", err->text);
    else {
        struct finetune_job *job = &w->job;
        job->model = &model;
        job->unit = bpe ? "token" : "byte";
        job->optimizer = pl_adam_options(0.01, w->bits);
        job->optimizer.max_grad_norm = 1;
        job->lr = w->lr > 0 ? w->lr : w->model ? 2e-5 : 3e-3;
        job->corpus = (struct corpus_options){
            .path = (const char *const *)w->path,
            .paths = w->paths,
            .encode = bpe ? encode_bpe : encode_bytes,
            .tokenizer = bpe,
            .end = bpe ? pl_bpe_end(bpe) : BYTES_VOCAB - 1,
            .window = (int)w->length,
            .seed = (uint64_t)w->seed,
            .every = EVERY,
        };
        model.stack.stored = w->stored;
        if (!job->quiet)
            fprintf(stderr,
                    "GPT-2, %d blocks %d wide, %s, %zu parameters, ids are %ss; Adam with %d-bit "
                    "statistics; %zu files of text; backend %s\n",
                    model.config.layers, model.config.width,
                    w->model ? w->model : "from random values", model.params.trainable, job->unit,
                    w->bits, w->paths, be.note);
        rc = finetune_job_run(job);
    }
    if (opened) pl_gpt2_clear(&model);
    pl_bpe_close(bpe);
    free(folder);
    return rc;
}

int cmd_finetune(int argc, char **argv)
{
    struct requests w = {
        .size = "tiny",
        .steps = 200,
        .batch = 8,
        .accumulate = 1,
        .held_out = 16,
        .evaluate = 50,
        .save = 100,
        .keep = 2,
        .seed = 1,
        .warmup = 0.1,
        .bits = 8,
        .job = { .out = "out/finetune" },
    };
    struct pl_err err = { "" };
    int option, rc = PL_OK, help = 0;
    while (!rc && !help && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') help = 1;
        else rc = option == '?' ? PL_EUSE : take(&w, option, optarg);
    }
    if (help) fputs(usage, stdout);
    if (!rc && !help) rc = cmd_no_more("finetune", argc, argv);
    if (!rc && w.batch % w.accumulate) {
        fprintf(stderr, "potluck finetune: --accumulate: %lld does not divide the batch of %lld\n",
                (long long)w.accumulate, (long long)w.batch);
        rc = PL_EUSE;
    }
    if (!rc && !help) {
        w.job.steps = (uint64_t)w.steps;
        w.job.batch = (int)w.batch;
        w.job.parts = (int)w.accumulate;
        w.job.warmup = w.warmup;
        w.job.held_out = (int)w.held_out;
        w.job.save_every = (int)w.save;
        w.job.evaluate_every = (int)w.evaluate;
        w.job.keep = (int)w.keep;
        rc = run(&w, &err);
        if (rc == PL_EUSE) rc = PL_EIO; /* what only the files show is no misuse */
    }
    for (size_t i = 0; i < w.paths; i++) free(w.path[i]);
    free(w.path);
    return rc == PL_EUSE ? 2 : rc ? 1 : 0;
}
