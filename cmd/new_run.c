/* new_run.c - `potluck new-run`: writes the manifest of a new run.
 *
 *   ask   - five questions on a terminal, unless --run says that the options are complete
 *   check - reads the model and opens the shards: the manifest names their codec
 *   write - the JSON that peers will publish, for `potluck train --manifest` and for an editor */
#include "cmd/cmd.h"
#include "cmd/common/outputs.h"
#include "cmd/train/train.h"
#include "cmd/train/train_agree.h"
#include "data/models/dalle_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A manifest's name of a run is part of file names and of shells' words, too: narrower than what
 * hivemind takes. */
static int check_name(const char *text, struct pl_err *err)
{
    const char *p = text;
    while (*p > ' ' && *p <= '~' && *p != '.') p++;
    if (*text && !*p && p - text <= MANIFEST_TEXT_MAX) return PL_OK;
    return pl_fail(err, PL_EUSE,
                   "'%.60s' is not a name of up to %d ASCII characters, without spaces and dots",
                   text, MANIFEST_TEXT_MAX);
}

#define ANSWER_MAX 1024 /* characters of an answer: a path, or a URL */

struct new_run { /* train is first: train_take_data takes it for that */
    struct train_requests train;
    const char *out;
    char run[ANSWER_MAX], config[ANSWER_MAX], data[ANSWER_MAX];
};

#define OPTIONS struct new_run
static const struct option_row rows[] = {
    { "run", "ID", NULL, OPT_TEXT_CHECKED(train.swarm.run, check_name),
      "name of the run; with it, no question is asked" },
    { NULL, NULL, NULL, OPT_TABLE(train, train_model_rows), NULL },
    { "data", "URL", NULL, OPT_CALL_FILE(train_take_data),
      "where peers find shards: an https address of a shard or of a list of shards. May be "
      "repeated. With shards on this machine the run names no data, and each peer brings its own "
      "of the same codec (default: the demo's shards)" },
    { "tokenizer", "FILE", NULL, OPT_PATH(train.tokenizer),
      "SentencePiece model that peers must have (default: the demo's)" },
    { "compression", "C", "run", OPT_NAME(train.averaging.compression, compression_names),
      "how peers compress tensors; run: as in the paper's run, 8 bits for large ones and 16 for "
      "others" },
    { NULL, NULL, NULL, OPT_TABLE(train, train_algorithm_rows), NULL },
    { "out", "FILE", "run.json", OPT_PATH(out), "the manifest; - prints it" },
    { 0 },
};

static int run_new_run(int argc, char **argv);
const struct command command_new_run = {
    .name = "new-run",
    .summary = "write the manifest of a new run, by five questions or by options",
    .synopsis = "[--out FILE]\n--run ID [OPTION ...]",
    .about =
        "Writes the manifest of a new run, which all of its peers share: name, model, data, "
        "steps, target batch, optimizer, compression, tokenizer. Asks for the first five on a "
        "terminal; with --run it takes everything from options. The first peer trains by the file "
        "and publishes it, signed, so that others need only its address.",
    .rows = rows,
    .notes = "Next: potluck train --manifest run.json",
    .run = run_new_run,
};

/* --- ask -------------------------------------------------------------------------------------- */

/* One line; an empty one is the default. PL_EUSE: the input has ended. */
static int read_answer(char answer[ANSWER_MAX], const char *question, const char *initial,
                       struct pl_err *err)
{
    size_t n;
    fprintf(stderr, "%s [%s]: ", question, initial);
    fflush(stderr);
    if (!fgets(answer, ANSWER_MAX, stdin)) {
        fputc('\n', stderr);
        return pl_fail(err, PL_EUSE, "no answer: nothing is written");
    }
    n = strcspn(answer, "\r\n");
    answer[n] = 0;
    if (!n) snprintf(answer, ANSWER_MAX, "%s", initial);
    return PL_OK;
}

static int ask_name(struct new_run *r, struct pl_err *err)
{
    struct pl_err why;
    int rc;
    while (!(rc = read_answer(r->run, "name of the run", "my-run", err)) &&
           check_name(r->run, &why))
        fprintf(stderr, "  %s\n", why.text);
    r->train.swarm.run = r->run;
    return rc;
}

static int ask_model(struct new_run *r, struct pl_err *err)
{
    struct pl_dalle_config config;
    struct pl_err why;
    int rc;
    while (!(rc = read_answer(r->config, "model: demo, small, middle, run, or a JSON file",
                              r->train.config, err)) &&
           pl_dalle_config_find(&config, r->config, &why))
        fprintf(stderr, "  %s\n", why.text);
    r->train.config = r->config;
    return rc;
}

static int ask_data(struct new_run *r, struct pl_err *err)
{
    struct pl_err why;
    int rc;
    if (r->train.given_count) return PL_OK; /* --data */
    while (!(rc = read_answer(r->data, "data: demo, an https address of shards, or your shards",
                              "demo", err))) {
        if (!strcmp(r->data, "demo") || !train_take_data(&r->train, "data", r->data, &why)) break;
        fprintf(stderr, "  %s\n", why.text);
        r->train.given_count = 0;
    }
    return rc;
}

static int ask_number(int64_t *to, const char *question, int64_t initial, int64_t most,
                      struct pl_err *err)
{
    char answer[ANSWER_MAX], text[24];
    struct pl_err why;
    int rc;
    snprintf(text, sizeof text, "%lld", (long long)initial);
    while (!(rc = read_answer(answer, question, text, err)) &&
           option_integer(to, answer, 1, most, &why))
        fprintf(stderr, "  %s\n", why.text);
    return rc;
}

static int ask(struct new_run *r, struct pl_err *err)
{
    struct train_job *job = &r->train.job;
    int64_t steps = 0, batch = 0;
    int rc;
    if ((rc = ask_name(r, err)) || (rc = ask_model(r, err)) || (rc = ask_data(r, err)) ||
        (rc = ask_number(&steps, "optimizer steps", (int64_t)job->steps, 1000000000, err)) ||
        (rc = ask_number(&batch, "samples per step, of all peers together", job->target_batch,
                         1 << 20, err)))
        return rc;
    job->steps = (uint64_t)steps;
    job->target_batch = (int)batch;
    return PL_OK;
}

/* --- check, write ----------------------------------------------------------------------------- */

static int write_manifest(struct new_run *r, struct run_manifest *m, struct pl_err *err)
{
    struct train_requests *w = &r->train;
    struct pl_dalle_config config;
    char path[4200];
    int rc;
    train_round_steps(w);
    if ((rc = pl_dalle_config_find(&config, w->config, err))) return rc;
    if (!w->data.paths &&
        (rc = train_data_add(&w->data, train_data_demo(path, sizeof path, "."), err)))
        return rc;
    if ((rc = train_describe(m, w, &config, err))) return rc;
    return train_manifest_write_file(m, r->out, err);
}

/* Called before the questions. An existing manifest is not overwritten: peers may train by it. */
static int check_output(const char *path, struct pl_err *err)
{
    if (access(path, F_OK)) return outputs_check_file(path, err);
    return pl_fail(err, PL_EUSE, "--out: %.200s exists: give another name, or remove it", path);
}

static void show_next(const struct new_run *r, const struct run_manifest *m)
{
    char word[ANSWER_MAX];
    struct pl_dalle_config demo;
    if (m->data_count && !strcmp(m->data[0], "demo") &&
        !pl_dalle_config_named(&demo, "demo", NULL) && m->config.F != demo.F)
        fprintf(
            stderr,
            "potluck new-run: warning: the demo's shards have %d image tokens, this model takes "
            "%d: give shards of its own with --data\n",
            demo.F * demo.F, m->config.F * m->config.F);
    if (!m->data_count)
        fputs("the run names no data: each peer gives its own shards with --data\n", stderr);
    if (!strcmp(r->out, "-")) return;
    fprintf(stderr,
            "%s has the manifest of run \"%s\"\nnext: potluck train --manifest %s%s\n"
            "others: potluck join MULTIADDR, the address that it prints\n",
            r->out, m->run, outputs_shell_word(word, sizeof word, r->out),
            m->data_count ? "" : " --data PATH");
}

static int run_new_run(int argc, char **argv)
{
    struct new_run *r = calloc(1, sizeof *r);
    struct run_manifest *m = calloc(1, sizeof *m);
    struct pl_err err = { "" };
    int status = 1, rc = r && m ? PL_OK : pl_fail(&err, PL_ENOMEM, "no memory");
    if (!rc) {
        train_requests_init(&r->train, "new-run");
        if (options_parse(&command_new_run, r, argc, argv, NULL, &status)) goto done;
        if (!r->train.swarm.run && !isatty(STDIN_FILENO)) {
            command_misused("new-run", "--run ID is needed: there is no terminal to ask on");
            status = 2;
            goto done;
        }
        if (strcmp(r->out, "-")) rc = check_output(r->out, &err);
        if (!rc && !r->train.swarm.run) rc = ask(r, &err);
        if (!rc) rc = write_manifest(r, m, &err);
        if (!rc) show_next(r, m);
    }
    if (rc) command_failed("new-run", "%s", err.text);
    status = rc != PL_OK;
done:
    if (r) train_data_close(&r->train.data);
    free(m);
    free(r);
    return status;
}
