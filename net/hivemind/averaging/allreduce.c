/* allreduce.c - see allreduce.h: the life of a round, our parts on their way to others, the end. */
#include "allreduce_internal.h"
#include "ref/backend.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define APPLY_JOBS 4 /* helper threads that the end is spread over */

/* --- jobs ------------------------------------------------------------------------------------- */

static void run_encode(struct allreduce_job_of *job);
static void run_apply(struct allreduce_job_of *job);

static void run(struct allreduce_job *job_)
{
    struct allreduce_job_of *job = (struct allreduce_job_of *)job_;
    switch (job->kind) {
    case JOB_ENCODE: run_encode(job); break;
    case JOB_APPLY: run_apply(job); break;
    case JOB_VERIFY: verifier_step(job->x->verifier); break;
    case JOB_REDUCE: allreduce_reduce_run(job); break;
    }
}

struct allreduce_job_of *allreduce_job_new(struct allreduce *x, enum job_kind kind)
{
    struct allreduce_job_of *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->job.run = run;
    job->x = x;
    job->kind = kind;
    return job;
}

void allreduce_job_start(struct allreduce *x, struct allreduce_job_of *job)
{
    x->jobs++;
    x->port->work(x->context, &job->job);
}

void allreduce_job_free(struct allreduce_job_of *job)
{
    bytes_clear(&job->message);
    free(job);
}

/* --- memory ----------------------------------------------------------------------------------- */

struct bytes allreduce_buffer(struct allreduce *x)
{
    return x->spare_count ? x->spare[--x->spare_count] : (struct bytes){ 0 };
}

void allreduce_buffer_back(struct allreduce *x, struct bytes *b)
{
    if (!b->data || b->failed || x->spare_count == ALLREDUCE_SPARES) {
        bytes_clear(b);
        return;
    }
    b->begin = b->end = 0;
    x->spare[x->spare_count++] = *b;
    memset(b, 0, sizeof *b);
}

/* Ordinary pages: it is written once a round and read once, so large ones gain little, and where a
 * virtual machine gives back what is free, large ones have to come from its host again. */
uint8_t *allreduce_room(struct allreduce_room *r, size_t n)
{
    r->is_new = !r->data || r->n < n;
    if (!r->is_new) return r->data;
    free(r->data);
    r->data = malloc(n + 1);
    r->n = r->data ? n : 0;
    return r->data;
}

/* Of memory that is new to the system, a message's pages are asked for all at once: one by one,
 * when they are written to, they cost twice as much. */
void allreduce_put(const struct allreduce_room *r, uint8_t *place, const uint8_t *data, size_t n)
{
#ifdef MADV_POPULATE_WRITE
    if (r->is_new) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t from = ((uintptr_t)place + page - 1) / page * page;
        uintptr_t end = ((uintptr_t)place + n) / page * page;
        if (end > from) (void)madvise((void *)from, end - from, MADV_POPULATE_WRITE);
    }
#endif
    if (n) memcpy(place, data, n);
}

void allreduce_memory_clear(struct allreduce_memory *m)
{
    free(m->messages.data);
    free(m->answers.data);
    memset(m, 0, sizeof *m);
}

void allreduce_send(struct allreduce *x, size_t peer, enum allreduce_way way, struct bytes *message)
{
    if (x->port->give) x->port->give(x->context, peer, way, message);
    else x->port->send(x->context, peer, way, bytes_at(message), bytes_length(message));
    allreduce_buffer_back(x, message);
}

/* --- ending ----------------------------------------------------------------------------------- */

static void close_streams(struct allreduce *x)
{
    for (size_t p = 0; p < x->count; p++)
        if (x->out[p].open) {
            x->out[p].open = 0;
            x->port->close(x->context, p, ALLREDUCE_OUT);
        }
    allreduce_reduce_stop(x);
}

void allreduce_give_up(struct allreduce *x, int status, const char *why)
{
    if (x->cancelled || x->applying) return; /* once it is being applied, it will be in a moment */
    x->cancelled = 1;
    x->status = status;
    pl_fail(&x->err, status, "averaging: %s", why);
    close_streams(x);
}

/* Empty parts travel uncompressed: the 8-bit methods know no empty tensor. */
enum pl_compression allreduce_method(const struct allreduce *x, const struct pl_part *part)
{
    return part->length ? x->o.method[part->tensor] : PL_COMPRESS_NONE;
}

static float *values_of(const struct allreduce *x, const struct pl_part *part)
{
    return x->o.tensor[part->tensor] + part->start;
}

static int apply_own(struct allreduce *x, struct pl_reducer *reducer, size_t k)
{
    const struct pl_part *part = &x->parts[x->own[k]];
    struct pl_coded delta = { .method = PL_COMPRESS_NONE };
    if (!x->own_delta) return allreduce_reduce_again(x, reducer, k);
    delta.data = x->own_delta + x->own_at[k];
    if (!x->o.verify) return x->o.be->average_add(values_of(x, part), &delta, 1, part->length);
    memcpy(values_of(x, part), delta.data, part->length * sizeof(float));
    return PL_OK;
}

static void run_apply(struct allreduce_job_of *job)
{
    struct allreduce *x = job->x;
    struct pl_reducer reducer = { 0 };
    for (size_t p = job->begin; !job->status && p < job->end; p++) {
        const struct answer *a = &x->answers[p];
        if (x->parts[p].owner == (int)x->self) continue;
        if (x->o.verify && a->n) memcpy(values_of(x, &x->parts[p]), a->data, a->n);
        else if (!x->o.verify)
            job->status = pl_apply_delta(values_of(x, &x->parts[p]), x->parts[p].length, x->o.be,
                                         a->method, a->data, a->n, NULL);
    }
    for (size_t k = 0; !job->status && k < x->own_count; k++)
        if (x->own[k] >= job->begin && x->own[k] < job->end)
            job->status = apply_own(x, &reducer, k);
    pl_reducer_clear(&reducer);
}

static void apply(struct allreduce *x)
{
    size_t begin = 0, jobs = x->part_count < APPLY_JOBS ? x->part_count : APPLY_JOBS;
    struct allreduce_job_of *job[APPLY_JOBS] = { 0 };
    int rc = PL_OK;
    for (size_t i = 0; i < jobs; i++)
        if (!(job[i] = allreduce_job_new(x, JOB_APPLY))) rc = PL_ENOMEM;
    if (rc) {
        for (size_t i = 0; i < jobs; i++) free(job[i]);
        allreduce_give_up(x, rc, "no memory");
        return;
    }
    x->applying = 1;
    close_streams(x);
    for (size_t i = 0; i < jobs; i++) {
        job[i]->begin = begin;
        job[i]->end = begin = (i + 1) * x->part_count / jobs;
        allreduce_job_start(x, job[i]);
    }
}

static int all_answered(const struct allreduce *x)
{
    for (size_t p = 0; p < x->count; p++)
        if (!x->out[p].failed && x->out[p].answered < x->out[p].parts) return 0;
    return x->own_done == x->own_count;
}

static void pump(struct allreduce *x, double now, size_t peer);

/* After every event: does what can be done now. */
static void go(struct allreduce *x, double now)
{
    if (x->ended) return;
    if (!x->cancelled && !x->applying) {
        for (size_t p = 0; p < x->count; p++) pump(x, now, p);
        allreduce_reduce_go(x);
        if (x->missing)
            allreduce_give_up(x, PL_EIO,
                              "a peer's values are missing, and a round without them can't be "
                              "verified");
        else if (all_answered(x)) {
            if (x->report.reducers_lost)
                allreduce_give_up(x, PL_EIO,
                                  x->misfit.text[0]    ? x->misfit.text
                                  : x->refusal.text[0] ? x->refusal.text
                                                       : x->gone.text);
            else if (x->o.verify && !x->verified) allreduce_verify_go(x, now);
            else apply(x);
        }
    }
    if (x->jobs || (!x->cancelled && !x->applying)) return;
    x->ended = 1;
    x->port->over(x->context, x->status, &x->err);
}

void allreduce_cancel(struct allreduce *x, double now)
{
    allreduce_give_up(x, PL_EAGAIN, "cancelled");
    go(x, now);
}

/* --- our parts, and the answers --------------------------------------------------------------- */

static void run_encode(struct allreduce_job_of *job)
{
    struct allreduce *x = job->x;
    const struct pl_part *part = &x->parts[job->part];
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)part->length } };
    struct part_message m = { .weight = x->o.weight,
                              .elements = part->length,
                              .has_part = 1,
                              .method = allreduce_method(x, part) };
    uint8_t *buffer;
    if (job->part == x->out[job->peer].part[0]) {
        m.code = MSG_PART_FOR_AVERAGING;
        m.group_id = x->o.group->id;
        m.group_id_n = DHT_ID_BYTES;
    }
    job->status = pl_wire_bytes(&m.bytes, m.method, &type, NULL);
    if (!job->status) job->status = part_message_write(&job->message, &buffer, &m);
    if (!job->status && m.bytes)
        job->status = pl_wire_encode(buffer, x->o.be, m.method, &type, values_of(x, part), NULL);
}

static void lose_reducer(struct allreduce *x, size_t peer, const char *why)
{
    struct out_peer *out = &x->out[peer];
    char name[PEER_ID_TEXT_MAX];
    if (out->failed || out->answered == out->parts) return;
    out->failed = 1;
    if (!x->gone.text[0]) {
        peer_id_text(name, &x->o.group->members[peer].peer);
        pl_fail(&x->gone, PL_EIO, "%.60s, which reduces, has left or fallen silent: %.200s", name,
                why);
    }
    x->report.reducers_lost++;
    if (out->open) {
        out->open = 0;
        x->port->close(x->context, peer, ALLREDUCE_OUT);
    }
}

static void pump(struct allreduce *x, double now, size_t peer)
{
    struct out_peer *out = &x->out[peer];
    if (out->failed || !out->open) return;
    if (out->is_ready && !x->port->is_busy(x->context, peer)) {
        x->report.bytes_out += bytes_length(&out->ready);
        x->report.values_out += x->parts[out->part[out->sent]].length;
        out->is_ready = 0;
        out->sent++;
        out->since = now;
        allreduce_send(x, peer, ALLREDUCE_OUT, &out->ready);
        if (out->sent == out->parts) x->port->finish(x->context, peer, ALLREDUCE_OUT);
    }
    if (!out->is_ready && !out->job && out->encoding < out->parts) {
        if (!(out->job = allreduce_job_new(x, JOB_ENCODE))) {
            x->own_trouble = 1;
            lose_reducer(x, peer, "no memory");
            return;
        }
        out->job->peer = peer;
        out->job->part = out->part[out->encoding++];
        out->job->message = allreduce_buffer(x);
        allreduce_job_start(x, out->job);
    }
}

static void encoded(struct allreduce *x, struct allreduce_job_of *job)
{
    struct out_peer *out = &x->out[job->peer];
    out->job = NULL;
    if (job->status) {
        x->own_trouble = 1;
        lose_reducer(x, job->peer, "no memory");
        return;
    }
    out->ready = job->message;
    out->is_ready = 1;
    memset(&job->message, 0, sizeof job->message);
}

/* What a reducer says to a part that it did not expect, and to one that comes too late. */
static void note_refusal(struct allreduce *x, size_t peer)
{
    char name[PEER_ID_TEXT_MAX];
    if (x->refusal.text[0]) return;
    peer_id_text(name, &x->o.group->members[peer].peer);
    pl_fail(&x->refusal, PL_EIO,
            "%.60s takes no more of our parts: we were too slow for it, or its "
            "--part-bytes (ours: %zu) or --compression is not ours",
            name, x->o.part_bytes);
}

static void take_answer(struct allreduce *x, double now, size_t peer, const uint8_t *data, size_t n)
{
    struct out_peer *out = &x->out[peer];
    struct part_message m;
    struct answer *a;
    int broken;
    if (!out->open || out->failed) return;
    broken = part_message_read(&m, data, n, NULL);
    if (broken || m.code != MSG_AVERAGED_PART) { /* any other code: it is in trouble itself */
        if (!broken && m.code == MSG_INTERNAL_ERROR) note_refusal(x, peer);
        out->lied = broken != 0;
        out->refused = !broken;
        lose_reducer(x, peer, broken ? "its answer can't be read" : "it is in trouble itself");
        return;
    }
    if (out->answered >= out->sent || !m.has_part ||
        m.elements != x->parts[out->part[out->answered]].length || !part_message_is_sound(&m) ||
        (x->o.verify && (m.method != PL_COMPRESS_NONE || !(m.weight >= 0 && isfinite(m.weight))))) {
        out->lied = 1;
        lose_reducer(x, peer, "its answer is not one to our part");
        return;
    }
    a = &x->answers[out->part[out->answered]];
    if (m.bytes > a->room && !(a->data = a->other = malloc(m.bytes))) {
        x->own_trouble = 1;
        lose_reducer(x, peer, "no memory");
        return;
    }
    allreduce_put(&x->memory->answers, a->data, m.buffer, m.bytes);
    a->n = m.bytes;
    a->method = m.method;
    a->weight = m.weight;
    out->answered++;
    out->since = now;
    if (!x->answered++) x->first_answer = now;
    x->report.received += m.elements;
    x->report.bytes_in += n;
}

/* --- events ----------------------------------------------------------------------------------- */

void allreduce_message(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                       const uint8_t *data, size_t n)
{
    if (x->cancelled || x->applying) return;
    if (way == ALLREDUCE_OUT) take_answer(x, now, peer, data, n);
    else allreduce_reduce_message(x, now, peer, data, n);
    go(x, now);
}

void allreduce_ended(struct allreduce *x, double now, size_t peer, enum allreduce_way way)
{
    if (x->cancelled || x->applying) return;
    if (way == ALLREDUCE_IN) {
        allreduce_reduce_ended(x, peer);
    } else if (x->out[peer].open) {
        lose_reducer(x, peer, "it ended before its last answer"); /* unless all are there */
        if (x->out[peer].open) x->port->close(x->context, peer, ALLREDUCE_OUT);
        x->out[peer].open = 0;
    }
    go(x, now);
}

void allreduce_failed(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                      const char *why)
{
    if (x->cancelled || x->applying) return;
    if (way == ALLREDUCE_IN) {
        allreduce_ban(x, peer, 0);
    } else if (x->out[peer].open) {
        lose_reducer(x, peer, why);
        if (x->out[peer].open) x->port->close(x->context, peer, ALLREDUCE_OUT);
        x->out[peer].open = 0;
    }
    go(x, now);
}

void allreduce_drained(struct allreduce *x, double now, size_t peer)
{
    x->out[peer].since = now;
    go(x, now);
}

void allreduce_done(struct allreduce *x, double now, struct allreduce_job *job_)
{
    struct allreduce_job_of *job = (struct allreduce_job_of *)job_;
    assert(x->jobs);
    x->jobs--;
    switch (job->kind) {
    case JOB_ENCODE: encoded(x, job); break;
    case JOB_APPLY:
        if (job->status) x->status = pl_fail(&x->err, job->status, "averaging: no memory");
        break;
    case JOB_REDUCE: allreduce_reduce_done(x, now, job); break;
    case JOB_VERIFY: allreduce_verify_done(x, now, job); break;
    }
    allreduce_job_free(job);
    go(x, now);
}

int allreduce_is_moving(const struct allreduce *x, size_t peer, enum allreduce_way way, size_t part,
                        double elapsed, double timeout)
{
    double bytes = (double)allreduce_part_bytes(x, &x->parts[part]), moved;
    if (!x->port->moved || timeout <= 0) return 0;
    moved = (double)x->port->moved(x->context, peer, way);
    return moved > 0 && moved >= bytes * elapsed / (2 * timeout);
}

/* The other reducers have answered more of their parts than this one has, on average. */
static int is_behind(const struct allreduce *x, const struct out_peer *out)
{
    size_t parts = x->asked - out->parts, answered = x->answered - out->answered;
    return (double)answered * (double)out->parts > (double)out->answered * (double)parts;
}

/* When a reducer is given up; *patience: before its timeout, unless something moves. */
static double reducer_until(const struct allreduce *x, size_t peer, int *patience)
{
    const struct out_peer *out = &x->out[peer];
    double until = x->o.reducer_timeout > 0 ? out->since + x->o.reducer_timeout : INFINITY, early;
    *patience = 0;
    if (out->failed || out->answered == out->parts) return INFINITY;
    if (!x->o.patience || !is_behind(x, out)) return until;
    early = fmax(fmax(out->since, out->checked), x->first_answer) +
            fmax(x->o.patience[peer].reducer, 3 * x->slowest);
    *patience = early < until;
    return fmin(early, until);
}

static void check_reducer(struct allreduce *x, double now, size_t peer)
{
    struct out_peer *out = &x->out[peer];
    int patience;
    if (now < reducer_until(x, peer, &patience)) return;
    if (patience && allreduce_is_moving(x, peer, ALLREDUCE_OUT, out->part[out->answered],
                                        now - out->since, x->o.reducer_timeout))
        out->checked = now;
    else lose_reducer(x, peer, "no answer in time");
}

double allreduce_wake(const struct allreduce *x)
{
    double at = x->o.time_limit > 0 ? x->began + x->o.time_limit : INFINITY;
    if (x->cancelled || x->applying) return INFINITY;
    for (size_t p = 0; p < x->count; p++) {
        int patience;
        at = fmin(at, reducer_until(x, p, &patience));
    }
    return fmin(fmin(at, allreduce_verify_wake(x)), allreduce_reduce_wake(x));
}

void allreduce_tick(struct allreduce *x, double now)
{
    if (x->o.time_limit > 0 && now >= x->began + x->o.time_limit) {
        x->is_late = !x->cancelled && !x->applying;
        if (x->is_late) allreduce_reduce_late(x);
        allreduce_verify_expire(x, now);
        allreduce_give_up(x, PL_EAGAIN,
                          x->misfit.text[0] ? x->misfit.text
                                            : "the exchange took longer than its time limit");
    }
    if (!x->cancelled && !x->applying) {
        for (size_t p = 0; p < x->count; p++) check_reducer(x, now, p);
        allreduce_reduce_tick(x, now);
    }
    go(x, now);
}

/* --- begin and end ---------------------------------------------------------------------------- */

const char *allreduce_lie(const struct allreduce *x, size_t peer)
{
    if (x->verifier && x->verifier->banned[peer]) /* the round may hold all the same */
        return x->verifier->err.text[0] ? x->verifier->err.text : "it has equivocated";
    if (x->out[peer].lied) return "it answers with what no reducer gives";
    return x->in[peer].lied ? "it sends what no part is" : NULL;
}

int allreduce_is_charged(const struct allreduce *x, size_t peer)
{
    return x->verifier && x->verifier->charged[peer];
}

/* As a sender to us. */
static enum allreduce_conduct sender_conduct(const struct allreduce *x, const struct in_peer *in)
{
    if (in->lost) return ALLREDUCE_WITHHELD;
    if (!x->own_count) return ALLREDUCE_UNKNOWN;
    return in->next == x->own_count ? ALLREDUCE_DELIVERED : ALLREDUCE_UNKNOWN;
}

enum allreduce_conduct allreduce_conduct(const struct allreduce *x, size_t peer, double *latest)
{
    const struct out_peer *out = &x->out[peer];
    enum allreduce_conduct sender = sender_conduct(x, &x->in[peer]);
    *latest = x->in[peer].latest;
    if (peer == x->self || x->own_trouble) return ALLREDUCE_UNKNOWN;
    if (sender == ALLREDUCE_WITHHELD || out->lied) return ALLREDUCE_WITHHELD;
    if (out->answered == out->parts) return out->parts ? ALLREDUCE_DELIVERED : sender;
    if (x->report.senders_lost) return ALLREDUCE_UNKNOWN;
    if (out->refused) return ALLREDUCE_REFUSED;
    return out->failed || x->is_late ? ALLREDUCE_WITHHELD : ALLREDUCE_UNKNOWN;
}

const char *allreduce_left_out(const struct allreduce *x)
{
    return x->left_out.text[0] ? x->left_out.text : NULL;
}

size_t allreduce_message_max(const struct allreduce *x)
{
    return ALLREDUCE_HEADERS + PL_CODES * sizeof(float) + x->values_max * sizeof(float);
}

const char *allreduce_differs(const struct allreduce *x)
{
    return x->differs.text[0] && !x->misfit.text[0] && !x->refusal.text[0] ? x->differs.text : NULL;
}

void allreduce_report(const struct allreduce *x, struct allreduce_report *r)
{
    *r = x->report;
    r->values = x->values;
    for (size_t k = 0; k < x->own_done; k++) r->received += x->parts[x->own[k]].length;
}

size_t allreduce_part_bytes(const struct allreduce *x, const struct pl_part *part)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)part->length } };
    size_t bytes;
    return pl_wire_bytes(&bytes, allreduce_method(x, part), &type, NULL) ? 0 : bytes;
}

/* What others will send us, beside our own differences as floats. */
static int messages_are_smaller(const struct allreduce *x, size_t own_values)
{
    size_t bytes = 0;
    if (x->o.clip != 0 || x->o.verify) return 0; /* what these make of them takes long */
    for (size_t k = 0; k < x->own_count; k++)
        bytes += allreduce_part_bytes(x, &x->parts[x->own[k]]);
    return bytes * (x->count - 1) < own_values * sizeof(float);
}

static int deal_parts(struct allreduce *x, struct pl_err *err)
{
    size_t own_values = 0;
    for (size_t i = 0; i < x->part_count; i++) {
        x->values += x->parts[i].length;
        if (x->parts[i].length > x->values_max) x->values_max = x->parts[i].length;
        x->out[x->parts[i].owner].parts++;
    }
    for (size_t p = 0; p < x->count; p++) {
        x->out[p].part = pl_alloc(x->out[p].parts, sizeof *x->out[p].part);
        if (!x->out[p].part) return pl_fail(err, PL_ENOMEM, "averaging: no memory");
        x->out[p].parts = 0;
    }
    for (size_t i = 0; i < x->part_count; i++) {
        struct out_peer *out = &x->out[x->parts[i].owner];
        out->part[out->parts++] = i;
    }
    /* Our own are not sent. */
    x->own = x->out[x->self].part;
    x->own_count = x->out[x->self].parts;
    x->out[x->self].part = NULL;
    x->out[x->self].parts = 0;
    if (!(x->own_at = pl_alloc(x->own_count, sizeof *x->own_at)))
        return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    for (size_t k = 0; k < x->own_count; k++) {
        x->own_at[k] = own_values;
        own_values += x->parts[x->own[k]].length;
    }
    if (messages_are_smaller(x, own_values)) return PL_OK;
    x->own_delta = malloc((own_values + 1) * sizeof *x->own_delta);
    return x->own_delta ? PL_OK : pl_fail(err, PL_ENOMEM, "averaging: no memory");
}

static size_t answer_room(const struct allreduce *x, const struct pl_part *part)
{
    if (part->owner == (int)x->self) return 0;
    return x->o.verify ? part->length * sizeof(float) : allreduce_part_bytes(x, part);
}

/* Every answer has its place. */
static int place_answers(struct allreduce *x, struct pl_err *err)
{
    size_t all = 0;
    uint8_t *at;
    if (!(x->answers = calloc(x->part_count + 1, sizeof *x->answers)))
        return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    for (size_t i = 0; i < x->part_count; i++)
        all += x->answers[i].room = answer_room(x, &x->parts[i]);
    if (!(at = allreduce_room(&x->memory->answers, all)))
        return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    for (size_t i = 0; i < x->part_count; i++) {
        x->answers[i].data = at;
        at += x->answers[i].room;
    }
    return PL_OK;
}

int allreduce_open(struct allreduce **out, const struct allreduce_options *o,
                   const struct allreduce_port *port, void *context, double now, struct pl_err *err)
{
    struct allreduce *x = calloc(1, sizeof *x);
    int rc = PL_ENOMEM;
    *out = NULL;
    if (!x) return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    x->o = *o;
    x->memory = o->memory ? o->memory : &x->own_memory;
    x->port = port;
    x->context = context;
    x->count = o->group->count;
    x->self = o->group->self;
    x->began = now;
    if (!(o->weight >= 0 && o->weight <= PART_WEIGHT_MAX)) {
        rc = pl_fail(err, PL_EUSE, "averaging: our weight is %g, expected 0 to %g", o->weight,
                     PART_WEIGHT_MAX);
        goto done;
    }
    x->out = calloc(x->count, sizeof *x->out);
    if (!x->out) goto done;
    rc = pl_partition(&x->parts, &x->part_count, o->elements, o->method, o->tensors, o->share,
                      (int)x->count, o->part_bytes, err);
    if (!rc) rc = deal_parts(x, err);
    if (!rc) rc = place_answers(x, err);
    if (!rc) rc = allreduce_reduce_open(x, err);
    if (!rc && o->verify) rc = allreduce_verify_open(x, err);
done:
    if (rc) {
        allreduce_close(x);
        return rc;
    }
    for (size_t p = 0; p < x->count; p++) {
        x->out[p].since = now;
        x->asked += x->out[p].parts;
        if (!x->out[p].parts) continue;
        x->out[p].open = 1;
        port->open(context, p);
    }
    *out = x;
    go(x, now);
    return PL_OK;
}

void allreduce_close(struct allreduce *x)
{
    if (!x) return;
    assert(!x->jobs);
    for (size_t i = 0; x->answers && i < x->part_count; i++) free(x->answers[i].other);
    for (size_t p = 0; x->out && p < x->count; p++) {
        bytes_clear(&x->out[p].ready);
        pl_free(x->out[p].part);
    }
    allreduce_verify_close(x);
    allreduce_reduce_close(x);
    while (x->spare_count) bytes_clear(&x->spare[--x->spare_count]);
    free(x->answers);
    free(x->out);
    free(x->own_delta);
    allreduce_memory_clear(&x->own_memory);
    pl_free(x->parts);
    pl_free(x->own);
    pl_free(x->own_at);
    free(x);
}
