/* train_log.c - one JSON line for each step, and a plot of the loss made from these lines.
 *
 * A line is flushed as soon as it is written, so a run that is killed loses one step at most. On
 * resuming, lines after the checkpoint's step are removed: those steps are made again. The file is
 * rewritten under another name and then renamed, so that it is never half a log. */
#include "train_log.h"
#include "data/images/figure.h"
#include "data/files/json.h"
#include "data/files/file.h"
#include "data/files/memory_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_MAX (1u << 30) /* bytes: five million steps */

/* Reads the next line of a log as JSON, *entry is NULL at the end; *at moves on. Broken lines (a
 * run that was killed while writing) are skipped. Returns PL_OK or PL_ENOMEM. */
static int next_line(json_t **entry, const char *text, size_t bytes, size_t *at)
{
    while (*at < bytes) {
        const char *line = text + *at, *end = memchr(line, '\n', bytes - *at);
        size_t n = end ? (size_t)(end - line) : bytes - *at;
        *entry = pl_json_load(line, n, 0, NULL);
        *at += n + 1;
        if (json_is_object(*entry)) return PL_OK;
        if (!*entry && pl_json_status() == PL_ENOMEM) return PL_ENOMEM;
        json_decref(*entry);
    }
    *entry = NULL;
    return PL_OK;
}

/* Removes the lines after a step: a resumed run writes them again. */
static int cut(const char *path, uint64_t step, struct pl_err *err)
{
    struct pl_file_out out;
    char *text;
    size_t bytes, at = 0;
    json_t *entry;
    int rc = pl_file_read((void **)&text, &bytes, path, LOG_MAX, err);
    if (rc) return rc;
    rc = pl_file_create(&out, path, err);
    while (!rc && !(rc = next_line(&entry, text, bytes, &at)) && entry) {
        char *line = NULL;
        int kept = (uint64_t)json_integer_value(json_object_get(entry, "step")) <= step;
        if (kept && !(line = pl_json_text(entry, JSON_COMPACT | JSON_PRESERVE_ORDER)))
            rc = PL_ENOMEM;
        if (line) {
            rc = pl_file_append(&out, line, strlen(line), err);
            if (!rc) rc = pl_file_append(&out, "\n", 1, err);
        }
        free(line);
        json_decref(entry);
    }
    free(text);
    if (rc == PL_ENOMEM) pl_fail(err, rc, "%s: no memory", path);
    if (!rc) return pl_file_commit(&out, err);
    pl_file_discard(&out);
    return rc;
}

/* step 0: a new log; otherwise the old one is continued after this step. */
int train_log_open(struct train_log *log, const char *folder, uint64_t step, struct pl_err *err)
{
    int rc = PL_OK;
    memset(log, 0, sizeof *log);
    log->path = pl_path_join(folder, "log.jsonl");
    if (!log->path) return pl_fail(err, PL_ENOMEM, "%s: no memory", folder);
    if (step && access(log->path, F_OK) == 0) rc = cut(log->path, step, err);
    if (!rc && !(log->file = fopen(log->path, step ? "a" : "w")))
        rc = pl_fail(err, PL_EIO, "%s: %s", log->path, strerror(errno));
    if (rc) train_log_close(log);
    return rc;
}

/* Takes the entry. An entry that is NULL (no memory) is an error as well. */
int train_log_put(struct train_log *log, json_t *entry, struct pl_err *err)
{
    char *line = pl_json_text(entry, JSON_COMPACT | JSON_PRESERVE_ORDER);
    int failed;
    json_decref(entry);
    if (!line) return pl_fail(err, PL_ENOMEM, "%s: no memory for a line", log->path);
    failed = fprintf(log->file, "%s\n", line) < 0 || fflush(log->file);
    free(line);
    return failed ? pl_fail(err, PL_EIO, "%s: cannot write: %s", log->path, strerror(errno))
                  : PL_OK;
}

int train_log_step(struct train_log *log, uint64_t step, const struct pl_train_report *r,
                   double samples_per_second, struct pl_err *err)
{
    return train_log_put(log,
                         json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "step",
                                   (json_int_t)step, "samples", (json_int_t)r->samples, "loss",
                                   r->loss.total, "loss_text", r->loss.text, "loss_image",
                                   r->loss.image, "lr", r->lr, "grad_norm", r->grad_norm,
                                   "samples_per_second", samples_per_second),
                         err);
}

int train_log_event(struct train_log *log, uint64_t step, const char *event, const char *text,
                    struct pl_err *err)
{
    return train_log_put(log,
                         json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "event", event,
                                   "text", text),
                         err);
}

int train_log_held_out(struct train_log *log, uint64_t step, double loss, int pairs,
                       struct pl_err *err)
{
    return train_log_put(log,
                         json_pack("{s:I, s:f, s:i}", "step", (json_int_t)step, "held_out", loss,
                                   "pairs", pairs),
                         err);
}

/* A training that ended before its first step leaves no empty file. */
void train_log_close(struct train_log *log)
{
    int is_empty = log->file && !fseek(log->file, 0, SEEK_END) && ftell(log->file) == 0;
    if (log->file) fclose(log->file);
    if (is_empty) unlink(log->path);
    free(log->path);
    memset(log, 0, sizeof *log);
}

int train_curve_read(struct train_curve *c, const char *path, struct pl_err *err)
{
    char *text;
    size_t bytes, at = 0, capacity = 0;
    json_t *entry;
    int rc;
    memset(c, 0, sizeof *c);
    rc = pl_file_read((void **)&text, &bytes, path, LOG_MAX, err);
    if (rc) return rc;
    /* As many points as lines, and one for a last line without an end. */
    for (size_t i = 0; i < bytes; i++) capacity += text[i] == '\n';
    c->step = calloc(capacity + 1, sizeof(double));
    c->image = calloc(capacity + 1, sizeof(double));
    c->text = calloc(capacity + 1, sizeof(double));
    if (!c->step || !c->image || !c->text) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    while (!rc && !(rc = next_line(&entry, text, bytes, &at)) && entry) {
        /* Steps have a loss; events and held-out losses are other lines. */
        const json_t *loss = json_object_get(entry, "loss_image");
        if (loss && c->count <= capacity) {
            c->step[c->count] = json_number_value(json_object_get(entry, "step"));
            c->image[c->count] = json_number_value(loss);
            c->text[c->count++] = json_number_value(json_object_get(entry, "loss_text"));
        }
        json_decref(entry);
    }
    free(text);
    if (rc == PL_ENOMEM) pl_fail(err, rc, "%s: no memory", path);
    if (rc) train_curve_clear(c);
    return rc;
}

void train_curve_clear(struct train_curve *c)
{
    free(c->step);
    free(c->image);
    free(c->text);
    memset(c, 0, sizeof *c);
}

/* loss.svg: our two losses, over the reference run's if a log of it is given. */
int train_log_plot(const char *folder, const char *published, struct pl_err *err)
{
    static const struct figure figure = {
        .title = "loss", .x_label = "steps", .y_label = "nats a token", .log_y = 1
    };
    char *path = pl_path_join(folder, "log.jsonl"), *to = pl_path_join(folder, "loss.svg");
    struct train_curve ours = { 0 }, theirs = { 0 };
    struct figure_line line[3];
    struct pl_memory_stream text = { 0 };
    FILE *out;
    int n = 0, rc;
    rc = path && to ? train_curve_read(&ours, path, err) : pl_fail(err, PL_ENOMEM, "no memory");
    if (!rc && published) rc = train_curve_read(&theirs, published, err);
    if (!rc && ours.count) {
        line[n++] = (struct figure_line){ "image", ours.step, ours.image, ours.count };
        line[n++] = (struct figure_line){ "text", ours.step, ours.text, ours.count };
        if (theirs.count)
            line[n++] = (struct figure_line){ "image, stored curve", theirs.step, theirs.image,
                                              theirs.count };
        out = pl_memory_stream_open(&text);
        if (out) figure_lines(out, &figure, line, n);
        if (pl_memory_stream_close(&text, out)) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", to);
        else rc = pl_file_write(to, text.text, text.bytes, err);
    }
    free(text.text);
    train_curve_clear(&ours);
    train_curve_clear(&theirs);
    free(path);
    free(to);
    return rc;
}
