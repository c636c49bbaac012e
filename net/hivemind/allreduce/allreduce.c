/* allreduce.c - the butterfly all-reduce of one group, as an engine: phases, events, and the
 * result. [TTT 2.1, communication] [spec hivemind-protocol 5]
 *
 * The tensors of n peers are cut into parts, and each part has one reducer. Every peer is a sender
 * of all its parts and the reducer of some:
 *
 *            peer A             peer B             peer C
 *          [a1 a2 a3]         [b1 b2 b3]         [c1 c2 c3]      A reduces part 1, B 2, C 3
 *   1. scatter   B, C send b1, c1 to A;   A, C send a2, c2 to B;   A, B send a3, b3 to C
 *   2. reduce    A: m1 = sum_k w_k x_k1 / sum_k w_k               (B: m2, C: m3)
 *   3. gather    A answers B with m1 - b1, and C with m1 - c1     (B, C the same with theirs)
 *   4. apply     every peer adds its differences: x_k += m - x_k
 *
 * Every value crosses each peer's link about twice, whatever n is; a parameter server would receive
 * n times as much. Differences travel instead of means because they are small, so compressing them
 * to 8 bits loses little. ref/average.c is the same algorithm in one process, and gives the same
 * bits.
 *
 * The steps overlap, part by part: while one part travels, the next is compressed, and others'
 * parts are added up. Where each step is: 1 allreduce_send.c and allreduce_receive.c; 2, 3
 * allreduce_reduce.c; 4 apply() below.
 *
 * Nothing in the tensors changes before the last answer: a round is applied as a whole, or not
 * at all. A lost sender is left out of the means. A lost reducer ends the round without a
 * result, since its part can't be averaged; the averager then looks for another group. */
#include "allreduce_receive.h"
#include "allreduce_reduce.h"
#include "allreduce_send.h"
#include "allreduce_verify.h"
#include "ref/backend.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define APPLY_JOBS 4 /* helper threads that the end is spread over */

/* --- ending ----------------------------------------------------------------------------------- */

/* Ours to reducers, and theirs to us; those that are closed already stay so. Senders get CANCELLED:
 * they do not count us as silent, and need not wait for a timeout. */
static void close_streams(struct allreduce *x)
{
    for (size_t p = 0; p < x->count; p++) allreduce_send_end(x, p);
    allreduce_receive_stop(x);
}

static int apply_own(struct allreduce *x, struct pl_reducer *reducer, size_t k)
{
    const struct pl_part *part = &x->parts[x->reducing.own[k]];
    struct pl_coded delta = { .method = PL_COMPRESS_NONE };
    /* Our own part travels nowhere: its difference is exact in float32, or is computed now
     * from the messages that were kept, in the same order and so with the same bits. */
    if (!x->reducing.own_delta) return allreduce_reduce_again(x, reducer, k);
    delta.data = x->reducing.own_delta + x->reducing.own_at[k];
    if (!x->o.verify)
        return x->o.be->average_add(allreduce_values(x, part), &delta, 1, part->length);
    /* A verified round has checked the aggregate, not a difference: the aggregate replaces
     * our values. */
    memcpy(allreduce_values(x, part), delta.data, part->length * sizeof(float));
    return PL_OK;
}

static void run_apply(struct allreduce_job *job_)
{
    struct allreduce_job_of *job = (struct allreduce_job_of *)job_;
    struct allreduce *x = job->x;
    for (size_t p = job->begin; !job->status && p < job->end; p++) {
        const struct answer *a = &x->sending.answers[p];
        if (x->parts[p].reducer == (int)x->self) continue;
        /* x_k += Q(m - x_k): the reducer has subtracted what it decoded of ours, but the difference
         * is added to our values as they are, so our own quantization error is kept. What went
         * blank counted as 0. */
        if (allreduce_is_blank(x, p))
            memset(allreduce_values(x, &x->parts[p]), 0, x->parts[p].length * sizeof(float));
        if (x->o.verify && a->n) memcpy(allreduce_values(x, &x->parts[p]), a->data, a->n);
        else if (!x->o.verify)
            job->status = pl_apply_delta(allreduce_values(x, &x->parts[p]), x->parts[p].length,
                                         x->o.be, a->method, a->data, a->n, job->scratch, NULL);
    }
    for (size_t k = 0; !job->status && k < x->reducing.own_count; k++)
        if (x->reducing.own[k] >= job->begin && x->reducing.own[k] < job->end)
            job->status = apply_own(x, &job->reducer, k);
}

static void clear_apply(struct allreduce_job_of *job)
{
    pl_reducer_clear(&job->reducer);
    pl_free(job->scratch);
}

static void free_apply(struct allreduce_job_of *job)
{
    if (job) clear_apply(job);
    free(job);
}

/* Has a message to be decoded into scratch before it is added? 0 in verified rounds, which copy. */
static int decodes(const struct allreduce *x)
{
    int any = 0;
    for (size_t p = 0; p < x->part_count; p++)
        any |= x->parts[p].reducer != (int)x->self &&
               pl_needs_scratch(x->sending.answers[p].method);
    for (size_t k = 0; !x->reducing.own_delta && k < x->reducing.own_count; k++)
        for (size_t i = 0; i < x->reducing.kept_count[k]; i++)
            any |= pl_needs_scratch(x->reducing.kept[k][i].part.method);
    return any && !x->o.verify;
}

static struct allreduce_job_of *new_apply(struct allreduce *x, int with_scratch)
{
    struct allreduce_job_of *job = allreduce_job_new(x, JOB_APPLY, run_apply);
    if (!job) return NULL;
    if (with_scratch && !(job->scratch = pl_alloc(x->values_max, sizeof *job->scratch)))
        goto failed;
    /* allreduce_reduce_again adds up our parts once more: our own values, and all senders'
     * messages. */
    if (!x->reducing.own_delta &&
        pl_reducer_reserve(&job->reducer, x->o.be, x->values_max, x->count, with_scratch))
        goto failed;
    return job;
failed:
    free_apply(job);
    return NULL;
}

/* All memory first: after the first job has begun, tensors change, and a job that fails would leave
 * the round half applied. */
static void apply(struct allreduce *x)
{
    size_t begin = 0, jobs = x->part_count < APPLY_JOBS ? x->part_count : APPLY_JOBS;
    struct allreduce_job_of *job[APPLY_JOBS] = { 0 };
    int rc = PL_OK, with_scratch = decodes(x);
    for (size_t i = 0; i < jobs; i++)
        if (!(job[i] = new_apply(x, with_scratch))) rc = PL_ENOMEM;
    if (rc) {
        for (size_t i = 0; i < jobs; i++) free_apply(job[i]);
        allreduce_give_up(x, rc, "no memory");
        return;
    }
    x->phase = ALLREDUCE_APPLYING;
    close_streams(x);
    /* Step 4, x_k += m - x_k, over ranges of parts. */
    for (size_t i = 0; i < jobs; i++) {
        job[i]->begin = begin;
        /* Parts don't overlap, so neither do the ranges, and no value depends on the number
         * of jobs. */
        job[i]->end = begin = (i + 1) * x->part_count / jobs;
        allreduce_job_start(x, job[i]);
    }
}

/* The round is complete: each reducer has answered all of our parts or is lost, and all of
 * our own parts are reduced and answered. */
static int all_answered(const struct allreduce *x)
{
    for (size_t p = 0; p < x->count; p++)
        if (x->sending.peer[p].state != OUT_LOST &&
            x->sending.peer[p].answered < x->sending.peer[p].parts)
            return 0;
    return x->reducing.own_done == x->reducing.own_count;
}

/* After every event: does what can be done now. */
static void go(struct allreduce *x, double now)
{
    if (x->phase == ALLREDUCE_ENDED) return;
    /* The first reason to end wins. A verified round needs everybody's values, so one that
     * is missing ends it at once; a lost reducer ends it only when the others have had their
     * answers, since they may still finish theirs. */
    if (x->phase == ALLREDUCE_REDUCING) {
        for (size_t p = 0; p < x->count; p++) allreduce_send_go(x, now, p);
        allreduce_reduce_go(x);
        if (x->o.verify && x->report.senders_lost)
            allreduce_give_up(x, PL_EIO,
                              "a peer's values are missing, and a round without them can't be "
                              "verified");
        else if (all_answered(x)) {
            /* hivemind keeps its old values for the parts of a lost reducer and calls that a
             * success: then the peers of a group differ without anybody's noticing. Here the
             * round has no result, and the averager looks for another group.
             * [spec hivemind-protocol 5.5, 12] */
            if (x->report.reducers_lost)
                allreduce_give_up(x, PL_EIO,
                                  x->notes.mismatch.text[0]  ? x->notes.mismatch.text
                                  : x->notes.refusal.text[0] ? x->notes.refusal.text
                                                             : x->notes.lost.text);
            else if (x->o.verify && x->verify.state != VERIFY_HOLDS) allreduce_verify_go(x, now);
            else apply(x);
        }
    }
    if (x->phase == ALLREDUCE_CANCELLED) close_streams(x);
    if (x->jobs || x->phase == ALLREDUCE_REDUCING) return;
    x->phase = ALLREDUCE_ENDED;
    x->callbacks->over(x->context, x->status, &x->err);
}

void allreduce_cancel(struct allreduce *x, double now)
{
    allreduce_give_up(x, PL_EAGAIN, "cancelled");
    go(x, now);
}

/* --- events ----------------------------------------------------------------------------------- */

/* On a stream of ours a message is a reducer's answer, on a groupmate's a part for us. */
void allreduce_message(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                       const uint8_t *data, size_t n)
{
    if (x->phase != ALLREDUCE_REDUCING) return;
    if (way == ALLREDUCE_OUT) allreduce_send_message(x, now, peer, data, n);
    else allreduce_receive_message(x, now, peer, data, n);
    go(x, now);
}

void allreduce_ended(struct allreduce *x, double now, size_t peer, enum allreduce_way way)
{
    if (x->phase != ALLREDUCE_REDUCING) return;
    if (way == ALLREDUCE_IN) {
        allreduce_receive_ended(x, peer);
    } else {
        allreduce_send_lost(x, peer, "it ended before its last answer");
    }
    go(x, now);
}

void allreduce_failed(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                      const char *why)
{
    if (x->phase != ALLREDUCE_REDUCING) return;
    if (way == ALLREDUCE_IN) {
        allreduce_drop_sender(x, peer, 0);
    } else {
        allreduce_send_lost(x, peer, why);
    }
    go(x, now);
}

/* Our last message has left this machine: the reducer's time for an answer begins here, not
 * when the message was queued. A slow uplink of ours is not its fault. */
void allreduce_drained(struct allreduce *x, double now, size_t peer)
{
    x->sending.peer[peer].wait.since = now;
    go(x, now);
}

int allreduce_verify_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                             size_t n)
{
    int rc;
    /* Packets may come while our own answers are still missing: a faster peer has begun to
     * verify. They wait in the verifier's inbox. */
    if (!x->verify.verifier || x->phase != ALLREDUCE_REDUCING) return PL_EPROTO;
    rc = verifier_receive(x->verify.verifier, peer, data, n);
    allreduce_tick(x, now); /* operations that waited for it continue */
    return rc;
}

void allreduce_done(struct allreduce *x, double now, struct allreduce_job *job_)
{
    struct allreduce_job_of *job = (struct allreduce_job_of *)job_;
    assert(x->jobs);
    x->jobs--;
    switch (job->kind) {
    case JOB_ENCODE: allreduce_send_encoded(x, job); break;
    case JOB_APPLY:
        clear_apply(job);
        if (job->status) x->status = pl_fail(&x->err, job->status, "averaging: no memory");
        break;
    case JOB_REDUCE: allreduce_reduce_done(x, now, job); break;
    case JOB_VERIFY: allreduce_verify_done(x, now); break;
    }
    bytes_clear(&job->message);
    free(job);
    go(x, now);
}

double allreduce_wake(const struct allreduce *x)
{
    /* The earliest of all deadlines; the owner sets one timer for it after every event. */
    double at = x->o.time_limit > 0 ? x->began + x->o.time_limit : INFINITY;
    if (x->phase != ALLREDUCE_REDUCING) return INFINITY;
    at = fmin(at, fmin(allreduce_send_wake(x), allreduce_receive_wake(x)));
    return fmin(at, allreduce_verify_wake(x));
}

void allreduce_tick(struct allreduce *x, double now)
{
    if (x->phase == ALLREDUCE_REDUCING && x->o.time_limit > 0 &&
        now >= x->began + x->o.time_limit) {
        /* The senders that this round waits for are noted first: they, not the reducers that
         * wait for them too, have withheld something. */
        if (x->cause == CAUSE_THEIRS) x->cause = CAUSE_TIME;
        allreduce_receive_late(x);
        allreduce_verify_expire(x, now);
        allreduce_give_up(x, PL_EAGAIN,
                          x->notes.mismatch.text[0]
                              ? x->notes.mismatch.text
                              : "the all-reduce took longer than its time limit");
    }
    if (x->phase == ALLREDUCE_REDUCING) {
        allreduce_send_tick(x, now);
        allreduce_receive_tick(x, now);
    }
    go(x, now);
}

/* --- begin and end ---------------------------------------------------------------------------- */

void allreduce_report(const struct allreduce *x, struct allreduce_report *r)
{
    *r = x->report;
    r->values = x->values;
    /* Our own parts count as received once they are reduced: a peer alone with its parts has
     * them all. */
    for (size_t k = 0; k < x->reducing.own_done; k++)
        r->received += x->parts[x->reducing.own[k]].length;
}

/* A round keeps our own differences as float32 until its end, or the others' messages, from which
 * they are computed again: the smaller of the two. */
static int messages_are_smaller(const struct allreduce *x, size_t own_values)
{
    size_t bytes = 0;
    /* CenteredClip would take long a second time, so its differences are kept. */
    if (x->o.clip != 0 || x->o.verify) return 0;
    for (size_t k = 0; k < x->reducing.own_count; k++)
        /* n - 1 messages of a part against its difference at four bytes a value: in groups
         * of up to four peers, 8-bit messages take less memory. */
        bytes += allreduce_part_bytes(x, &x->parts[x->reducing.own[k]]);
    return bytes * (x->count - 1) < own_values * sizeof(float);
}

/* pl_partition gives each part a reducer by the peers' shares [spec hivemind-protocol 5.3];
 * all peers compute the same parts. Here they are sorted by reducer: a list of parts for each
 * reducer, in order, which is the order of messages on its stream. */
static int assign_parts(struct allreduce *x)
{
    size_t own_values = 0;
    if (!(x->sending.peer = calloc(x->count, sizeof *x->sending.peer))) return PL_ENOMEM;
    for (size_t i = 0; i < x->part_count; i++) {
        x->values += x->parts[i].length;
        if (x->parts[i].length > x->values_max) x->values_max = x->parts[i].length;
        x->sending.peer[x->parts[i].reducer].parts++;
    }
    for (size_t p = 0; p < x->count; p++) {
        x->sending.peer[p].part = pl_alloc(x->sending.peer[p].parts,
                                           sizeof *x->sending.peer[p].part);
        if (!x->sending.peer[p].part) return PL_ENOMEM;
        x->sending.peer[p].parts = 0;
    }
    for (size_t i = 0; i < x->part_count; i++) {
        struct out_peer *out = &x->sending.peer[x->parts[i].reducer];
        out->part[out->parts++] = i;
    }
    /* Our own are not sent. The reducing half takes their list. */
    x->reducing.own = x->sending.peer[x->self].part;
    x->reducing.own_count = x->sending.peer[x->self].parts;
    x->sending.peer[x->self].part = NULL;
    x->sending.peer[x->self].parts = 0;
    if (!(x->reducing.own_at = pl_alloc(x->reducing.own_count, sizeof *x->reducing.own_at)))
        return PL_ENOMEM;
    for (size_t k = 0; k < x->reducing.own_count; k++) {
        x->reducing.own_at[k] = own_values;
        own_values += x->parts[x->reducing.own[k]].length;
    }
    if (messages_are_smaller(x, own_values)) return PL_OK;
    /* One block for all own differences; each part has its place in it, by own_at. */
    x->reducing.own_delta = malloc((own_values + 1) * sizeof *x->reducing.own_delta);
    return x->reducing.own_delta ? PL_OK : PL_ENOMEM;
}

size_t allreduce_name(uint8_t name[DHT_ID_BYTES + ALLREDUCE_PHASE_MAX], const struct group *group,
                      const char *phase)
{
    const size_t n = phase ? strlen(phase) : 0;
    assert(n <= ALLREDUCE_PHASE_MAX);
    memcpy(name, group->id, DHT_ID_BYTES);
    if (n) memcpy(name + DHT_ID_BYTES, phase, n);
    return DHT_ID_BYTES + n;
}

int allreduce_open(struct allreduce **out, const struct allreduce_options *o,
                   const struct allreduce_callbacks *callbacks, void *context, double now,
                   struct pl_err *err)
{
    struct allreduce *x = calloc(1, sizeof *x);
    int rc;
    *out = NULL;
    if (!x) return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    x->o = *o;
    x->memory = o->memory ? o->memory : &x->own_memory;
    x->callbacks = callbacks;
    x->context = context;
    x->count = o->group->count;
    x->self = o->group->self;
    x->began = now;
    x->name_n = allreduce_name(x->name, o->group, o->phase);
    /* Written so that a NaN fails. A weight of 0 is fine: auxiliary peers receive the mean
     * without contributing to it. */
    if (!(o->weight >= 0 && o->weight <= PART_WEIGHT_MAX)) {
        rc = pl_fail(err, PL_EUSE, "averaging: our weight is %g, expected 0 to %g", o->weight,
                     PART_WEIGHT_MAX);
        goto done;
    }
    /* Order matters: parts, then their reducers, then the memory of each half, then verification,
     * which reads all of these. */
    rc = pl_partition(&x->parts, &x->part_count, o->elements, o->method, o->tensors, o->share,
                      (int)x->count, o->part_bytes, err);
    if (rc) goto done;
    rc = assign_parts(x);
    if (!rc) rc = allreduce_send_open(x);
    if (!rc) rc = allreduce_reduce_open(x);
    if (rc) pl_fail(err, rc, "averaging: no memory");
    else if (o->verify) rc = allreduce_verify_open(x, err);
done:
    if (rc) {
        allreduce_close(x);
        return rc;
    }
    for (size_t p = 0; p < x->count; p++) {
        x->sending.peer[p].wait.since = now;
        x->sending.asked += x->sending.peer[p].parts;
        /* A stream to each reducer; a peer without a share reduces nothing and needs none.
         * Our own list is empty by now. */
        if (!x->sending.peer[p].parts) continue;
        x->sending.peer[p].state = OUT_OPEN;
        callbacks->open(context, p);
    }
    *out = x;
    go(x, now);
    return PL_OK;
}

void allreduce_close(struct allreduce *x)
{
    if (!x) return;
    assert(!x->jobs);
    allreduce_verify_close(x);
    allreduce_send_close(x);
    allreduce_reduce_close(x);
    buffer_pool_clear(&x->pool);
    free(x->reducing.own_delta);
    allreduce_memory_clear(&x->own_memory);
    pl_free(x->parts);
    pl_free(x->reducing.own);
    pl_free(x->reducing.own_at);
    free(x);
}
