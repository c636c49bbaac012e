/* lab_job.c - drives a swarm to its end, writes its log, and saves it now and then. */
#include "lab_job.h"

#include "cmd/common/interrupt.h"
#include "cmd/common/progress_line.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "model.h"
#include "cmd/common/outputs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAVE_EVERY 60 /* s of real time */
#define FORMAT "potluck lab 1"
#define HEAD_MAX 65536u /* bytes of a saved run's text */

struct state {
    const struct lab_job *job;
    struct lab_trained trained;
    struct lab_swarm *swarm;
    struct progress progress;
    FILE *log;
    char *log_path, *run_path, *state_path;
    double saved_at, loss; /* real time; the last held-out loss */
};

/* --- log -------------------------------------------------------------------------------------- */

static const char *const activities[] = { "computes", "waits", "downloads", "away" };

static int put(struct state *s, json_t *entry, struct pl_err *err)
{
    char *text = pl_json_text(entry, JSON_COMPACT | JSON_REAL_PRECISION(10));
    int bad = !text || fprintf(s->log, "%s\n", text) < 0;
    free(text);
    json_decref(entry);
    return bad ? pl_fail(err, PL_EIO, "%s: cannot write", s->log_path) : PL_OK;
}

/* JSON has no NaN: a loss that is not finite is left out as null. */
static json_t *number_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static int on_event(void *context, const struct lab_event *e, struct pl_err *err)
{
    struct state *s = context;
    switch (e->kind) {
    case LAB_EVALUATED:
        s->loss = e->loss;
        return put(s,
                   json_pack("{s:s, s:f, s:I, s:f, s:o, s:o, s:f}", "event", "evaluated", "time",
                             e->time, "samples", (json_int_t)e->samples, "bytes", e->bytes, "loss",
                             number_or_null(e->loss), "train_loss", number_or_null(e->train_loss),
                             "utilization", e->utilization),
                   err);
    case LAB_SPENT:
        return put(s,
                   json_pack("{s:s, s:i, s:s, s:f, s:f}", "event", "spent", "peer", e->peer,
                             "state", activities[e->activity], "from", e->from, "to", e->time),
                   err);
    case LAB_EXCHANGED:
        return put(s,
                   json_pack("{s:s, s:I, s:f, s:f, s:i, s:b}", "event", "exchanged", "number",
                             (json_int_t)e->number, "from", e->from, "to", e->time, "members",
                             e->members, "failed", e->has_failed),
                   err);
    }
    return PL_OK;
}

static int put_totals(struct state *s, struct pl_err *err)
{
    json_t *peers = json_array();
    for (int k = 0; k < s->job->run->setup.peers; k++) {
        const struct lab_traffic *t = lab_swarm_traffic(s->swarm, k);
        json_array_append_new(peers, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "sent", t->sent,
                                               "received", t->received, "cancelled", t->cancelled,
                                               "peak_up", t->peak_up, "peak_down", t->peak_down,
                                               "busy", t->busy));
    }
    return put(s,
               json_pack("{s:s, s:f, s:I, s:o}", "event", "ended", "time", lab_swarm_time(s->swarm),
                         "gradients", (json_int_t)lab_swarm_gradients(s->swarm), "peers", peers),
               err);
}

/* --- saved state ------------------------------------------------------------------------------ */

struct head {
    char format[16], backend[32];
    uint64_t text_bytes, log_bytes;
};

/* Which values a saved state holds: a backend's, or zeros. */
static const char *values_of(const struct lab_job *job)
{
    return job->is_timing ? "timing" : job->be->name;
}

static int write_state(struct state *s, FILE *file)
{
    struct head h = { .format = FORMAT, .text_bytes = strlen(s->job->run->text) };
    if (!file || fflush(s->log)) return -1;
    strncpy(h.backend, values_of(s->job), sizeof h.backend - 1);
    h.log_bytes = (uint64_t)ftell(s->log);
    return fwrite(&h, sizeof h, 1, file) != 1 ||
           fwrite(s->job->run->text, 1, h.text_bytes, file) != h.text_bytes ||
           lab_swarm_save(s->swarm, file);
}

/* The state of before stays until the new one is whole and on the disk. */
static int save(struct state *s, struct pl_err *err)
{
    struct pl_file_out out;
    int rc = pl_file_create(&out, s->state_path, err), bad, fd;
    FILE *file;
    if (rc) return rc;
    fd = dup(out.fd); /* the stream closes its own */
    file = fd < 0 ? NULL : fdopen(fd, "wb");
    bad = write_state(s, file);
    if (file) bad |= fclose(file);
    else if (fd >= 0) close(fd);
    if (bad) {
        rc = pl_fail(err, PL_EIO, "%s: %s", s->state_path, strerror(errno));
        pl_file_discard(&out);
        return rc;
    }
    s->saved_at = pl_seconds();
    return pl_file_commit(&out, err);
}

static int load(struct state *s, struct pl_err *err)
{
    const char *want = s->job->run->text;
    struct head h;
    char text[HEAD_MAX];
    FILE *file = fopen(s->state_path, "rb");
    int rc = PL_OK;
    if (!file) return pl_fail(err, PL_ENOTFOUND, "%s: %s", s->state_path, strerror(errno));
    if (fread(&h, sizeof h, 1, file) != 1 || memcmp(h.format, FORMAT, sizeof FORMAT) ||
        h.text_bytes >= sizeof text || fread(text, 1, h.text_bytes, file) != h.text_bytes)
        rc = pl_fail(err, PL_EFORMAT, "%s: not a saved run of this version", s->state_path);
    else if (h.text_bytes != strlen(want) || memcmp(text, want, h.text_bytes))
        rc = pl_fail(err, PL_EUSE, "%s: of a run that differs from this file", s->state_path);
    else if (strncmp(h.backend, values_of(s->job), sizeof h.backend - 1))
        rc = pl_fail(err, PL_EUSE, "%s: computed by backend %.30s", s->state_path, h.backend);
    else if (!(rc = lab_swarm_load(s->swarm, file, err)) &&
             (truncate(s->log_path, (off_t)h.log_bytes) || fseek(s->log, 0, SEEK_END)))
        rc = pl_fail(err, PL_EIO, "%s: %s", s->log_path, strerror(errno));
    fclose(file);
    return rc;
}

/* --- the run ---------------------------------------------------------------------------------- */

static int open_folder(struct state *s, struct pl_err *err)
{
    const struct lab_job *job = s->job;
    int rc = outputs_take_folder(job->out, err);
    s->log_path = pl_path_join(job->out, LAB_LOG);
    s->run_path = pl_path_join(job->out, LAB_RUN);
    s->state_path = pl_path_join(job->out, "state.bin");
    if (!s->log_path || !s->run_path || !s->state_path) return pl_fail(err, PL_ENOMEM, "no memory");
    if (!rc && !job->resume && !access(s->state_path, F_OK))
        rc = pl_fail(err, PL_EUSE,
                     "%s exists: --resume continues from it; give another --out to keep it",
                     s->state_path);
    if (!rc) rc = pl_file_write(s->run_path, job->run->text, strlen(job->run->text), err);
    if (!rc && !(s->log = fopen(s->log_path, job->resume ? "a" : "w")))
        rc = pl_fail(err, PL_EIO, "%s: %s", s->log_path, strerror(errno));
    return rc;
}

static void show(struct state *s, int force)
{
    const struct lab_setup *setup = &s->job->run->setup;
    uint64_t done = lab_swarm_gradients(s->swarm), all = setup->steps * (uint64_t)setup->peers;
    double elapsed = progress_elapsed(&s->progress);
    char left[24], virtual[24];
    s->progress.done = (double)done / (double)all;
    progress_show(&s->progress, force,
                  "%s: gradient %llu of %llu  held-out loss %.4f  %s of virtual time  %s left",
                  s->job->run->name, (unsigned long long)done, (unsigned long long)all, s->loss,
                  progress_time(virtual, lab_swarm_time(s->swarm)),
                  progress_time(left, done ? elapsed * (double)(all - done) / (double)done : 0));
}

static int drive(struct state *s, int *is_complete, struct pl_err *err)
{
    const struct lab_job *job = s->job;
    int rc = PL_EAGAIN;
    while (rc == PL_EAGAIN) {
        if (interrupted() || (job->stop && lab_swarm_gradients(s->swarm) >= job->stop)) {
            show(s, 1);
            return save(s, err);
        }
        rc = lab_swarm_advance(s->swarm, err);
        show(s, rc == PL_OK);
        if (rc == PL_EAGAIN && pl_seconds() - s->saved_at > SAVE_EVERY) {
            int bad = save(s, err);
            if (bad) return bad;
        }
    }
    if (!rc) rc = put_totals(s, err);
    if (!rc && fflush(s->log)) rc = pl_fail(err, PL_EIO, "%s: %s", s->log_path, strerror(errno));
    if (!rc && !job->is_timing)
        rc = lab_trained_save(&s->trained, lab_swarm_common(s->swarm), job->run->setup.steps,
                              job->out, err);
    if (!rc) unlink(s->state_path);
    *is_complete = !rc;
    return rc;
}

int lab_job_run(const struct lab_job *job, int *is_complete, struct pl_err *err)
{
    struct interrupt before;
    struct state s = { .job = job, .loss = NAN, .saved_at = pl_seconds() };
    int rc;
    *is_complete = 0;
    interrupt_catch(&before);
    progress_begin(&s.progress, job->quiet);
    rc = open_folder(&s, err);
    if (!rc) rc = lab_trained_open(&s.trained, job->run, job->be, job->is_timing, err);
    if (!rc)
        rc = lab_swarm_open(&s.swarm, &job->run->setup, &s.trained.model,
                            lab_trained_start(&s.trained), on_event, &s, err);
    if (!rc && job->resume) rc = load(&s, err);
    if (!rc) rc = drive(&s, is_complete, err);
    progress_end(&s.progress);
    if (s.log && fclose(s.log) && !rc) rc = pl_fail(err, PL_EIO, "%s: cannot write", s.log_path);
    interrupt_release(&before);
    lab_swarm_close(s.swarm);
    if (s.trained.dalle) lab_trained_close(&s.trained);
    free(s.log_path);
    free(s.run_path);
    free(s.state_path);
    return rc;
}
