/* dash_folder.c - follows a training folder for the dashboard: reads its log, and draws samples
 * from its checkpoints.
 *
 * Samples are drawn by this same program, as a child process of low priority: the page must not
 * slow down the training that it shows. */
#include "dash_folder.h"
#include "cmd/train/train_job.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "net/hivemind/records/run_manifest.h"
#include "ref/small.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PACE 0.05   /* of the running mean of a step's time: steps differ, an estimate should not */
#define FINISH_S 20 /* for the last pictures, at the end of a run */
#define OLD_LINES 400 /* of a log older than the dashboard: evenly spread */
#define AMONG "128"   /* reference images to compare samples with: quick to decode */
#define PICTURE_MAX (64u << 20)

void dash_folder_begin(struct dash_folder *f, const char *folder, const char *captions,
                       const char *nearest, int64_t total_steps)
{
    *f = (struct dash_folder){ .folder = folder,
                               .captions = captions,
                               .nearest = nearest,
                               .total_steps = total_steps,
                               .drawn = -1,
                               .held_out = NAN };
}

static void paint(struct dash_folder *f, int64_t step, const char *checkpoint)
{
    char model[PATH_MAX], out[PATH_MAX];
    char *args[] = {
        "potluck", "generate", "--model",  model,     "--captions", (char *)(uintptr_t)f->captions,
        "--out",   out,        "--greedy", "--quiet", "--threads",  "1",
        NULL,      NULL,       "--among",  AMONG,     NULL
    };
    if (f->nearest) {
        args[12] = "--nearest";
        args[13] = (char *)(uintptr_t)f->nearest;
    }
    snprintf(out, sizeof out, "%s/samples", f->folder);
    if (mkdir(out, 0777) && errno != EEXIST) return;
    snprintf(model, sizeof model, "%s/%s", f->folder, checkpoint);
    snprintf(out, sizeof out, "%s/samples/%06lld", f->folder, (long long)step);
    f->drawn = step;
    if ((f->sampler = fork()) == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpriority(PRIO_PROCESS, 0, 10);
        if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    if (f->sampler < 0) f->sampler = 0;
}

int dash_folder_poll(struct dash_folder *f, struct http_server *s, struct dashboard *d,
                     struct pl_err *err)
{
    struct run_folder before = f->now;
    int rc = run_folder_read(&f->now, f->folder, err);
    if (rc) return rc;
    rc = run_folder_publish(&f->now, &before, f->folder, s, d, err);
    if (f->sampler > 0 && waitpid(f->sampler, NULL, WNOHANG) == f->sampler) f->sampler = 0;
    if (f->now.samples && f->now.sample_step[f->now.samples - 1] > f->drawn)
        f->drawn = f->now.sample_step[f->now.samples - 1];
    if (f->captions && !f->sampler && f->now.checkpoints && f->now.checkpoint_step[0] > f->drawn)
        paint(f, f->now.checkpoint_step[0], f->now.checkpoint[0]);
    return rc;
}

/* --- the log ---------------------------------------------------------------------------------- */

/* Reads a line of the log. PL_EFORMAT: it is no step's line; a line about held-out pairs changes
 * *held_out. PL_ENOMEM: it could not be read. */
static int read_line(struct dash_line *l, const char *text, double *held_out)
{
    json_t *o = pl_json_load(text, strlen(text), 0, NULL);
    const json_t *loss = json_object_get(o, "loss");
    int is_step = json_is_number(loss); /* else an event */
    if (!o && pl_json_status() == PL_ENOMEM) return PL_ENOMEM;
    if (json_is_number(json_object_get(o, "held_out")))
        *held_out = json_number_value(json_object_get(o, "held_out"));
    *l = (struct dash_line){ .step = json_integer_value(json_object_get(o, "step")),
                             .samples = json_integer_value(json_object_get(o, "samples")),
                             .loss = json_number_value(loss),
                             .rate = json_number_value(json_object_get(o, "samples_per_second")),
                             .held_out = *held_out };
    json_decref(o);
    return is_step ? PL_OK : PL_EFORMAT;
}

/* At `now`, of a line that was written at `time`. */
static int report_step(struct dashboard *d, const struct dash_line *l, double time, double now,
                       double step_s, struct pl_err *err)
{
    struct dashboard_metrics m = {
        .key = DASHBOARD_THIS,
        .record = { l->step, l->rate, l->samples, l->loss, 1 },
        .expiration = time + METRICS_LIFE,
    };
    struct dashboard_report r = { .key = DASHBOARD_THIS,
                                  .record = {
                                      .version = "potluck " PL_VERSION,
                                      .samples = l->all_samples,
                                      .computed_ms = (int64_t)fmin(1e3 * l->all_seconds, 1e15),
                                      .held_out = l->held_out } };
    struct dashboard_snapshot snapshot = {
        .time = now,
        .metrics = &m,
        .metrics_count = 1,
        .report = &r,
        .report_count = 1,
        .step_s = step_s,
    };
    return dashboard_update(d, &snapshot, err);
}

static double seconds(const struct dash_line *l)
{
    return l->rate > 0 ? (double)l->samples / l->rate : 0;
}

/* The steps of the whole run, which the training writes with its first checkpoint; 0: not known. */
static int64_t steps_of(const char *folder)
{
    char *path = pl_path_join(folder, TRAIN_OPTIONS_FILE), *text = NULL;
    struct run_manifest *m = calloc(1, sizeof *m);
    int64_t steps = 0;
    if (path && m && !pl_file_read_text(&text, path, MANIFEST_BYTES_MAX, NULL) &&
        !manifest_read(m, text, strlen(text), NULL))
        steps = m->steps;
    free(text);
    free(m);
    free(path);
    return steps;
}

/* Publishes the new lines. They carry no time, so it is computed backwards: the last line is as
 * old as the file, and each step took samples / (samples per second). */
int dash_folder_log(struct dash_folder *f, struct dashboard *d, struct pl_err *err)
{
    struct dash_line *lines = NULL, l;
    size_t n = 0, capacity = 0, size = 0, each;
    char *path = pl_path_join(f->folder, "log.jsonl"), *text = NULL;
    FILE *file = path ? fopen(path, "r") : NULL;
    struct stat st;
    double at;
    int rc = PL_OK;
    free(path);
    if (!file) return PL_OK; /* not begun yet */
    if (!f->total_steps) dashboard_schedule(d, steps_of(f->folder));
    if (fstat(fileno(file), &st) || st.st_size < f->at)
        f->at = f->samples = 0, f->seconds = 0; /* begun anew */
    if (!fseek(file, f->at, SEEK_SET))
        for (ssize_t got; (got = getline(&text, &size, file)) > 0 && text[got - 1] == '\n';) {
            int status = read_line(&l, text, &f->held_out);
            if (!status && pl_grow(&lines, n, &capacity, 64)) status = PL_ENOMEM;
            if (status == PL_ENOMEM) break; /* this line is read again the next time */
            f->at += got;
            if (status) continue;
            if (l.samples > 0 && l.samples <= INT64_MAX - f->samples) f->samples += l.samples;
            l.all_samples = f->samples;
            l.all_seconds = f->seconds += seconds(&l);
            lines[n++] = l;
        }
    fclose(file);
    free(text);
    at = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
    for (size_t i = 1; i < n; i++) at -= seconds(&lines[i]);
    each = n / OLD_LINES + 1;
    for (size_t i = 0; i < n && !rc; i++) {
        double took = seconds(&lines[i]);
        if (i) at += took;
        f->time = fmax(at, f->time);
        f->step_s = f->step_s > 0 ? f->step_s + PACE * (took - f->step_s) : took;
        if (i % each == 0 || i + 1 == n)
            rc = report_step(d, &lines[i], f->time, f->time, f->step_s, err);
        f->last = lines[i];
    }
    free(lines);
    /* As of now: the training may have ended, or may have been stopped. */
    if (!rc && f->last.step)
        rc = report_step(d, &f->last, f->time, fmax((double)time(NULL), f->time), f->step_s, err);
    return rc;
}

/* --- the end ---------------------------------------------------------------------------------- */

int dash_folder_finish(struct dash_folder *f, struct http_server *s, struct dashboard *d,
                       struct pl_err *err)
{
    double until = pl_seconds() + FINISH_S;
    int rc = dash_folder_poll(f, s, d, err);
    while (!rc && f->sampler && pl_seconds() < until) {
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        rc = dash_folder_poll(f, s, d, err);
    }
    return rc ? rc : dash_folder_poll(f, s, d, err);
}

/* Makes a hard link, which takes no space, or a copy on another file system. */
static int also_at(const char *from, const char *to, struct pl_err *err)
{
    struct pl_file_out out;
    static char block[1 << 16];
    ssize_t n = 0;
    int in, rc;
    (void)!unlink(to); /* of an earlier copy of the page */
    if (!link(from, to)) return PL_OK;
    if ((in = open(from, O_RDONLY | O_CLOEXEC)) < 0)
        return pl_fail(err, PL_EIO, "%s: %s", from, strerror(errno));
    rc = pl_file_create(&out, to, err);
    while (!rc && (n = read(in, block, sizeof block)) > 0)
        rc = pl_file_append(&out, block, (size_t)n, err);
    if (!rc && n < 0) rc = pl_fail(err, PL_EIO, "%s: %s", from, strerror(errno));
    if (!rc) rc = pl_file_commit(&out, err);
    pl_file_discard(&out);
    close(in);
    return rc;
}

static int folder_for(char path[PATH_MAX], const char *to, const char *name, struct pl_err *err)
{
    snprintf(path, PATH_MAX, "%s/%s", to, name);
    return mkdir(path, 0777) && errno != EEXIST
               ? pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno))
               : PL_OK;
}

int dash_folder_export(const struct dash_folder *f, const char *to, struct pl_err *err)
{
    char from[PATH_MAX], path[PATH_MAX];
    int rc = f->now.samples ? folder_for(path, to, "samples", err) : PL_OK;
    if (!rc && f->now.checkpoints) rc = folder_for(path, to, "checkpoints", err);
    for (size_t i = 0; i < f->now.checkpoints && !rc; i++) {
        snprintf(from, sizeof from, "%s/%s", f->folder, f->now.checkpoint[i]);
        snprintf(path, sizeof path, "%s/checkpoints/%s", to, f->now.checkpoint[i]);
        rc = also_at(from, path, err);
    }
    if (!rc && f->now.real_step) {
        snprintf(from, sizeof from, "%s/samples/%06lld/real.png", f->folder,
                 (long long)f->now.real_step);
        snprintf(path, sizeof path, "%s/samples/real.png", to);
        rc = also_at(from, path, err);
    }
    for (size_t i = 0; i < f->now.samples && !rc; i++) {
        void *data;
        size_t n;
        snprintf(from, sizeof from, "%s/samples/%06lld/sheet.png", f->folder,
                 (long long)f->now.sample_step[i]);
        snprintf(path, sizeof path, "%s/samples/%lld.png", to, (long long)f->now.sample_step[i]);
        if ((rc = pl_file_read(&data, &n, from, PICTURE_MAX, err))) break;
        rc = pl_file_write(path, data, n, err);
        free(data);
    }
    return rc;
}

void dash_folder_end(struct dash_folder *f)
{
    if (f->sampler <= 0) return;
    kill(f->sampler, SIGTERM);
    waitpid(f->sampler, NULL, 0);
    f->sampler = 0;
}
