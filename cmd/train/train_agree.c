/* train_agree.c - from a manifest to the options of a training, and manifests in files. */
#include "train_agree.h"
#include "data/files/file.h"
#include "data/files/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Indented JSON has a line for each element of an array: 256 blocks take 20,000 bytes. */
#define FILE_BYTES_MAX ((size_t)64 << 10)

/* Those of potluck lab, and PowerSGD by both rules. */
const char *const train_algorithms[] = {
    "gradients", "powersgd",   "powersgd_own", "diloco",
    "local_sgd", "sparseloco", "noloco",       "partial",
    "demo",      "dgc",        "onebit_adam",  "delayed_nesterov",
    "streaming", "delayed",    "eager",        "delayed_gradients",
    NULL
};

static const char *named(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (!strcmp(*names, name)) return *names;
    return NULL;
}

int train_agree(struct train_requests *w, const struct run_manifest *m, struct pl_err *err)
{
    w->agreed = m;
    w->config = NULL;
    w->swarm.run = m->run;
    w->optimizer = named(train_optimizers, m->optimizer);
    w->swarm.algorithm = named(train_algorithms, m->algorithm);
    w->averaging.compression = named(compression_names, m->compression);
    if (!w->optimizer || !w->swarm.algorithm || !w->averaging.compression)
        return pl_fail(
            err, PL_EUSE,
            "the run's optimizer %s, algorithm %s or compression %s is not known to this "
            "version: update potluck",
            m->optimizer, m->algorithm, m->compression);
    w->job.steps = (uint64_t)m->steps;
    w->job.target_batch = (int)m->target_batch;
    w->swarm.average_state_every = m->average_state_every;
    w->swarm.inner_steps = m->inner_steps;
    w->swarm.algorithm_settings = m->algorithm_settings;
    w->swarm.outer_lr = m->outer_lr;
    w->swarm.outer_momentum = m->outer_momentum;
    w->lr = m->lr;
    w->warmup = m->warmup;
    w->token_noise = m->token_noise;
    w->seed = m->seed;
    return PL_OK;
}

int train_agree_data(struct train_requests *w, const struct run_manifest *m, struct pl_err *err)
{
    int rc = PL_OK;
    if (w->data.paths) return PL_OK;
    if (!m->data_count)
        return pl_fail(err, PL_EUSE, "the run's peers bring their own data: --data PATH is needed");
    /* A stranger's manifest names these servers: our access tokens are not sent to them. */
    w->data.has_no_token = 1;
    for (size_t i = 0; i < m->data_count && !rc; i++)
        if (strcmp(m->data[i], "demo")) {
            w->given[w->given_count++] = m->data[i];
            rc = train_data_add(&w->data, m->data[i], err);
        }
    return rc;
}

/* --- files ------------------------------------------------------------------------------------ */

int train_manifest_read_file(struct run_manifest *m, const char *path, struct pl_err *err)
{
    struct pl_err why = { "" };
    json_error_t place;
    json_t *root;
    char *text, *compact;
    int rc = pl_file_read_text(&text, path, FILE_BYTES_MAX, err);
    if (rc) return rc;
    root = pl_json_load(text, strlen(text), JSON_REJECT_DUPLICATES, &place);
    rc = root ? PL_OK : pl_json_status();
    free(text);
    if (rc) return pl_fail(err, rc, "%.200s: line %d: %.100s", path, place.line, place.text);
    compact = pl_json_text(root, JSON_COMPACT);
    json_decref(root);
    rc = compact ? manifest_read(m, compact, strlen(compact), &why) : PL_ENOMEM;
    free(compact);
    if (rc) return pl_fail(err, rc, "%.200s: %s", path, *why.text ? why.text : "no memory");
    if (*m->run) return PL_OK;
    return pl_fail(err, PL_EUSE, "%.200s: manifest: run: a name is needed", path);
}

int train_manifest_write_file(const struct run_manifest *m, const char *path, struct pl_err *err)
{
    char *compact, *text, *line;
    json_t *root;
    size_t n;
    int rc = manifest_write(&compact, m, err);
    if (rc) return rc;
    root = pl_json_load(compact, strlen(compact), 0, NULL);
    free(compact);
    text = pl_json_text(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_decref(root);
    n = text ? strlen(text) : 0;
    if (!text || !(line = realloc(text, n + 2))) {
        free(text);
        return pl_fail(err, PL_ENOMEM, "no memory");
    }
    memcpy(line + n, "\n", 2);
    if (!strcmp(path, "-")) fputs(line, stdout);
    else rc = pl_file_write(path, line, n + 1, err);
    free(line);
    return rc;
}

/* manifest_compare, and the seed, which peers of a run need not share. */
static int compare_before(const struct run_manifest *now, const struct run_manifest *before,
                          struct pl_err *differs)
{
    const int rc = manifest_compare(now, before, differs);
    const size_t used = rc ? strlen(differs->text) : 0;
    if (rc == PL_ENOMEM || now->seed == before->seed) return rc;
    snprintf(differs->text + used, sizeof differs->text - used,
             "%sseed: %lld here, %lld in the run", used ? "; " : "", (long long)now->seed,
             (long long)before->seed);
    return PL_EUSE;
}

/* A folder without the file is that of an older version, or of potluck peer. */
int train_agree_before(const struct train_requests *w, const struct run_manifest *now,
                       struct pl_err *err)
{
    char *path = pl_path_join(w->job.out, TRAIN_OPTIONS_FILE), *text = NULL;
    struct run_manifest *before = calloc(1, sizeof *before);
    struct pl_err differs;
    int rc = path && before ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    if (!rc && !pl_file_read_text(&text, path, MANIFEST_BYTES_MAX, NULL) &&
        !manifest_read(before, text, strlen(text), NULL)) {
        int found = compare_before(now, before, &differs);
        if (found == PL_ENOMEM) rc = pl_fail(err, found, "%s", differs.text);
        else if (found)
            fprintf(stderr, "potluck %s: warning: --resume with other options: %.400s before\n",
                    w->job.cmd, differs.text);
    }
    free(before);
    free(text);
    free(path);
    return rc;
}
