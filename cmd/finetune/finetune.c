/* finetune.c - `potluck finetune`: GPT-2 with 8-bit Adam on streamed text: the paper's tutorial.
 * [TTT 2.3] */
#include "cmd/cmd.h"
#include "cmd/options/checkpoint_options.h"
#include "cmd/common/compute.h"
#include "cmd/common/plural.h"
#include "finetune_job.h"
#include "data/text/bpe.h"
#include "data/models/gpt2_file.h"
#include "../../runtime/models.h"
#include "cmd/common/outputs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FINETUNE_TEXT "/usr/share/common-licenses" /* of base-files: every Debian has them */

#define BYTES_VOCAB 257  /* bytes, and the end of a document */
#define EVERY 20         /* documents, of which one is held out */
#define FILES_MAX 100000 /* C4 has 1,024 */

struct requests {
    struct compute compute;
    const char *model, *size, *vocab;
    char **path; /* files of text */
    size_t paths;
    int64_t share, length, seed;
    int has_adam32; /* index of --optimizer: 32-bit state */
    int stored;     /* index of --activations */
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

static int encode_bytes(int32_t *ids, size_t capacity, size_t *count, const void *tokenizer,
                        const char *text, size_t n)
{
    *count = n;
    for (size_t i = 0; i < n && i < capacity; i++) ids[i] = (unsigned char)text[i];
    return PL_OK;
}

static int encode_bpe(int32_t *ids, size_t capacity, size_t *count, const void *tokenizer,
                      const char *text, size_t n)
{
    return pl_bpe_encode(ids, capacity, count, tokenizer, text, n);
}

/* vocab.json and merges.txt of a folder; *bpe stays NULL, which means bytes, if `wanted` is 0 and
 * the files are missing. */
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
    for (size_t i = 0; i < PL_COUNT(small); i++)
        if (!strcmp(small[i].name, name)) {
            *c = small[i].config;
            return PL_OK;
        }
    return pl_gpt2_named(c, name, err);
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
                               "%s: no vocab.json and merges.txt next to it (--vocab names their "
                               "folder), and %d ids are too few for bytes",
                               file, m->config.vocab);
        } else if (!rc && !bpe && m->config.vocab != BYTES_VOCAB)
            rc = pl_fail(err, PL_EUSE,
                         "%s: no vocab.json and merges.txt next to it; --vocab names their folder",
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

static int take_data(void *options, const char *name, const char *value, struct pl_err *err)
{
    return add_data(options, value, err);
}

static const char *const sizes[] = { "tiny",       "small",   "gpt2", "gpt2-medium",
                                     "gpt2-large", "gpt2-xl", NULL };
static const char *const optimizers[] = { "adam8", "adam32", NULL };
static const char *const activations[] = { "recomputed", "stored", NULL };

#define OPTIONS struct requests
static const struct option_row rows[] = {
    { "model", "PATH", NULL, OPT_PATH(model),
      "GPT-2 checkpoint in the hub's format, or its folder with vocab.json and merges.txt" },
    { "size", "S", "tiny", OPT_NAME(size, sizes),
      "without --model, train this size from random initial values: tiny (4 blocks of width "
      "128), small, gpt2, gpt2-medium, gpt2-large or gpt2-xl" },
    { "vocab", "DIR", NULL, OPT_PATH(vocab),
      "folder with GPT-2's vocab.json and merges.txt (default: next to --model. If there are "
      "none, tokens are bytes and the model needs a vocabulary of 257)" },
    { "data", "PATH", NULL, OPT_CALL_FILE(take_data),
      "text: a file, or a folder of files, gzipped or not; JSON lines with \"text\" (.json, "
      ".jsonl) or plain "
      "text. May be repeated (default: " FINETUNE_TEXT ")" },
    { "out", "DIR", "out/finetune", OPT_PATH(job.out),
      "folder for log, checkpoints, model.safetensors and config.json" },
    { "steps", "N", "200", OPT_INTEGER(job.steps, 1, 1000000000), "optimizer steps" },
    { "batch", "N", "8", OPT_INTEGER(job.batch, 1, 1 << 16), "sequences per optimizer step" },
    { "accumulate", "N", "1", OPT_INTEGER(job.parts, 1, 1 << 16),
      "micro-batches per optimizer step, to save memory; must divide --batch" },
    { "length", "N", NULL, OPT_INTEGER(length, 2, CORPUS_WINDOW_MAX),
      "tokens per sequence (default: the model's number of positions)" },
    { "lr", "X", NULL, OPT_REAL(job.lr, 1e-12, 10),
      "peak learning rate (default: 2e-5, or 3e-3 without --model)" },
    { "warmup", "X", "0.1", OPT_REAL(job.warmup, 0, 1),
      "fraction of the steps with a rising learning rate" },
    { "optimizer", "O", "adam8", OPT_CHOICE(has_adam32, optimizers),
      "Adam with 8-bit or 32-bit state" },
    { "activations", "A", "recomputed", OPT_CHOICE(stored, activations),
      "activations kept for the backward pass"
      "\n- recomputed: each block's input alone (gradient checkpointing)"
      "\n- stored: all, which is faster" },
    { "share", "N", "0", OPT_INTEGER(share, 0, PL_PRENORM_LAYERS_MAX),
      "without --model: share N sets of layer parameters among all blocks; 0 shares nothing" },
    { "offload", "DIR", NULL, OPT_PATH(job.offload),
      "keep optimizer state in a file in this folder, which should be on a disk, and not in "
      "memory" },
    { "held-out", "N", "16", OPT_INTEGER(job.held_out, 1, 1 << 16),
      "sequences on which perplexity is measured, taken from every 20th document" },
    { "evaluate-every", "N", "50", OPT_INTEGER(job.evaluate_every, 0, 1000000000),
      "steps between measurements; 0 measures only at the beginning and the end" },
    CHECKPOINT_ROWS(job),
    { "seed", "N", "1", OPT_INTEGER(seed, 0, INT64_MAX), "seed of initial values and data order" },
    { "quiet", NULL, NULL, OPT_FLAG(job.quiet), "print no progress" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

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
        command_failed("finetune", "--offload: backend %s has memory of its own: take fast",
                       be.name);
        free(folder);
        return PL_EUSE;
    }
    rc = !w->paths ? add_data(w, FINETUNE_TEXT, err) : PL_OK;
    if (!rc && vocab) rc = open_vocab(&bpe, vocab, w->vocab != NULL, err);
    if (!rc) rc = outputs_check_folder(w->job.out, err);
    if (!rc) rc = open_model(&model, w, bpe, &be, err);
    opened = !rc;
    compute_explain(err, rc, &be, 0, w->model ? NULL : "a smaller --size, or --share 1");
    if (!rc && !w->length) w->length = model.config.positions;
    if (!rc && w->length > model.config.positions)
        rc = pl_fail(err, PL_EUSE, "--length: %lld ids, the model has %d positions",
                     (long long)w->length, model.config.positions);
    if (rc) command_failed("finetune", "%s", err->text);
    else {
        struct finetune_job *job = &w->job;
        job->model = &model;
        job->unit = bpe ? "token" : "byte";
        int bits = w->has_adam32 ? 32 : 8;
        job->optimizer = pl_adam_options(0.01, bits);
        job->optimizer.max_grad_norm = 1;
        job->lr = job->lr > 0 ? job->lr : w->model ? 2e-5 : 3e-3;
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
            fprintf(
                stderr,
                "GPT-2, %d blocks %d wide, %s, %zu parameters, tokens are %ss; Adam with %d-bit "
                "state; %zu file%s of text; backend %s\n",
                model.config.layers, model.config.width, w->model ? w->model : "from random values",
                model.params.trainable, job->unit, bits, w->paths, PLURAL(w->paths), be.note);
        rc = finetune_job_run(job);
    }
    if (opened) pl_gpt2_clear(&model);
    pl_bpe_close(bpe);
    free(folder);
    return rc;
}

static int run_finetune(int argc, char **argv)
{
    struct requests w = { .length = 0 };
    struct pl_err err = { "" };
    int status, ended = options_parse(&command_finetune, &w, argc, argv, NULL, &status);
    if (!ended && w.job.batch % w.job.parts) {
        command_misused("finetune", "--accumulate: %d does not divide the batch of %d", w.job.parts,
                        w.job.batch);
        status = 2;
    } else if (!ended) status = run(&w, &err) != 0;
    for (size_t i = 0; i < w.paths; i++) free(w.path[i]);
    free(w.path);
    return status;
}

const struct command command_finetune = {
    .name = "finetune",
    .summary = "fine-tune GPT-2 on streamed text with 8-bit Adam: the tutorial",
    .synopsis = "[--model PATH | --size SIZE] [--data PATH ...] [--out DIR] [OPTION ...]",
    .about =
        "Trains GPT-2 on text that is read while training, with optimizer state in 8 bits. The "
        "paper's tutorial, with gpt2-large from the hub and shards of C4:\n"
        "\n"
        "  potluck finetune --model gpt2-large --data c4/en --length 256 --batch 4 --lr 2e-5\n"
        "\n"
        "Without --model and --data it trains a small GPT-2 from random initial values. Its "
        "tokens are bytes, and its text is the licences that Debian installs.",
    .rows = rows,
    .notes = "Ctrl-C saves a checkpoint and stops.",
    .run = run_finetune,
};
