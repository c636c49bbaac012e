/* allreduce_reduce.c - the parts that we reduce: which senders' values are here, the sums, the
 * answers.
 *
 * Up to ALLREDUCE_WINDOW parts are open at once, so that a fast sender does not wait for the
 * slowest; answers leave in the order of the parts. */
#include "allreduce_reduce.h"
#include "allreduce_notes.h"
#include "allreduce_receive.h"

#include <stdlib.h>
#include <string.h>

/* --- slots ------------------------------------------------------------------------------------ */

static void slot_open(struct allreduce *x, size_t k)
{
    /* Slots after our last part stay empty; SIZE_MAX marks them. */
    struct slot *s = allreduce_slot(x, k);
    s->k = k < x->reducing.own_count ? k : SIZE_MAX;
    s->arrived = 0;
    s->replied = 0;
}

static void slot_clear(struct allreduce *x, struct slot *s)
{
    for (size_t i = 0; i < s->arrived; i++) {
        /* Messages of half a megabyte come and go; the pool spares the kernel their pages. */
        buffer_pool_give(&x->pool, &s->from[i].message);
        buffer_pool_give(&x->pool, &s->from[i].reply);
    }
    s->arrived = 0;
}

/* Passes the received messages to their final user, the end of the round or the verifier. */
static int keep(struct allreduce *x, struct slot *s)
{
    /* The round needs them again: to compute our own difference at the end, or to show a verifier
     * each sender's message. */
    struct contribution *kept = calloc(s->arrived + 1, sizeof *kept);
    if (!kept) return PL_ENOMEM;
    for (size_t i = 0; i < s->arrived; i++) {
        kept[i] = s->from[i];
        memset(&kept[i].reply, 0, sizeof kept[i].reply);
        memset(&s->from[i].message, 0, sizeof s->from[i].message);
    }
    x->reducing.kept[s->k] = kept;
    x->reducing.kept_count[s->k] = s->arrived;
    return PL_OK;
}

int allreduce_reduce_again(struct allreduce *x, struct pl_reducer *r, size_t k)
{
    const struct pl_part *part = &x->parts[x->reducing.own[k]];
    float *values = x->o.tensor[part->tensor] + part->start;
    /* The sum of floats depends on its order, so it has to be the order of the first time:
     * ours, then theirs as they came. Then the result is the mean that the others were
     * answered with. */
    int rc = pl_reducer_begin(r, x->o.be, part->length);
    if (!rc) rc = pl_reducer_add(r, values, x->o.weight, NULL);
    for (size_t i = 0; !rc && i < x->reducing.kept_count[k]; i++) {
        const struct contribution *c = &x->reducing.kept[k][i];
        if (!c->bad && !c->is_blank)
            rc = pl_reducer_add_message(r, c->part.method, c->part.buffer, c->part.bytes,
                                        c->part.weight, NULL);
    }
    return rc ? rc : pl_reducer_apply(values, r);
}

static int make_kept(struct allreduce *x)
{
    size_t all = 0;
    x->reducing.kept = calloc(x->reducing.own_count + 1, sizeof *x->reducing.kept);
    x->reducing.kept_count = calloc(x->reducing.own_count + 1, sizeof *x->reducing.kept_count);
    x->reducing.kept_at = calloc(x->reducing.own_count + 1, sizeof *x->reducing.kept_at);
    if (!x->reducing.kept || !x->reducing.kept_count || !x->reducing.kept_at) return PL_ENOMEM;
    if (x->reducing.own_delta) return PL_OK; /* to verify, rarely */
    for (size_t k = 0; k < x->reducing.own_count; k++) {
        /* One block, part by part: (count - 1) messages each. */
        x->reducing.kept_at[k] = all;
        all += allreduce_kept_max(x, k) * (x->count - 1);
    }
    return (x->reducing.kept_bytes = allreduce_block_reserve(&x->memory->messages, all))
               ? PL_OK
               : PL_ENOMEM;
}

int allreduce_reduce_open(struct allreduce *x)
{
    if ((x->o.verify || !x->reducing.own_delta) && make_kept(x)) return PL_ENOMEM;
    /* The slots hold one contribution of each groupmate; the messages that they point to come and
     * go. */
    for (size_t w = 0; w < ALLREDUCE_WINDOW; w++) {
        if (!(x->reducing.slot[w].from = calloc(x->count, sizeof *x->reducing.slot[w].from)))
            return PL_ENOMEM;
        slot_open(x, w);
    }
    return allreduce_receive_open(x);
}

void allreduce_reduce_close(struct allreduce *x)
{
    for (size_t w = 0; w < ALLREDUCE_WINDOW; w++) {
        if (x->reducing.slot[w].from) slot_clear(x, &x->reducing.slot[w]);
        free(x->reducing.slot[w].from);
    }
    while (x->reducing.idle_count) pl_reducer_clear(&x->reducing.idle[--x->reducing.idle_count]);
    allreduce_receive_close(x);
    for (size_t k = 0; x->reducing.kept && x->reducing.kept_count && k < x->reducing.own_count;
         k++) {
        for (size_t i = 0; i < x->reducing.kept_count[k]; i++)
            bytes_clear(&x->reducing.kept[k][i].message);
        free(x->reducing.kept[k]);
    }
    free(x->reducing.kept);
    free(x->reducing.kept_count);
    free(x->reducing.kept_at);
}

/* --- sums and answers, on a helper thread ----------------------------------------------------- */

static int usable(const struct allreduce *x, const struct part_message *m)
{
    /* Also a weight of 0 is usable: that sender adds nothing, and is answered like the
     * others. */
    return allreduce_is_weight(x, m->weight) && part_message_is_finite(m);
}

/* Step 2: sum_k w_k x_k in the order of arrival, ours first, and sum_k w_k. */
static int add_all(struct allreduce_job_of *job)
{
    struct allreduce *x = job->x;
    struct slot *s = job->slot;
    const struct pl_part *part = &x->parts[x->reducing.own[s->k]];
    int robust = x->o.clip != 0 || x->o.verify; /* needs them one by one */
    /* The reducer adds a compressed message without a decoded copy: sum += w_k *
     * decode(x_k), one pass over memory for each sender. */
    int rc = pl_reducer_begin(&job->reducer, x->o.be, part->length);
    if (!rc && !robust)
        rc = pl_reducer_add(&job->reducer, x->o.tensor[part->tensor] + part->start, x->o.weight,
                            NULL);
    for (size_t i = 0; !rc && i < s->arrived; i++) {
        struct contribution *c = &s->from[i];
        /* One sender's NaN or infinity would spoil the part for everyone, so that sender is
         * excluded from this part before its values are added. */
        c->bad = !usable(x, &c->part);
        if (!c->bad && !c->is_blank && !robust)
            rc = pl_reducer_add_message(&job->reducer, c->part.method, c->part.buffer,
                                        c->part.bytes, c->part.weight, NULL);
    }
    return rc;
}

/* Step 3: m - x_k, compressed by the method that the sender has used; in a verified round m
 * itself, as float32, since everybody has to check the same numbers. */
static int reply(struct allreduce_job_of *job, struct contribution *c, const float *own)
{
    struct allreduce *x = job->x;
    struct part_message m = c->part;
    uint8_t *buffer;
    int rc;
    m.code = MSG_AVERAGED_PART;
    m.group_id = NULL;
    /* An answer has no weight on the wire. A verified one uses that field for CenteredClip's
     * radius tau, by which everybody can check the aggregate. */
    m.weight = 0;
    if (c->is_blank) { /* the mean is as long as our part */
        struct pl_wire_type type = { .dtype = PL_F32, .dims = 1 };
        type.size[0] = (int64_t)(m.elements = job->reducer.n);
        if ((rc = pl_wire_bytes(&m.bytes, m.method, &type, NULL))) return rc;
    }
    if (x->o.verify) {
        m.method = PL_COMPRESS_NONE;
        m.bytes = job->reducer.n * sizeof *own;
        m.weight = x->verify.own_tau[job->slot->k];
    }
    rc = part_message_write(&c->reply, &buffer, &m);
    if (rc || !m.bytes) return rc;
    /* m - x_k is small compared with m, so 8 bits of it lose little. x_k is the decoded message,
     * not the sender's original value. */
    if (c->is_blank) return pl_reducer_mean(buffer, &job->reducer, m.method, NULL);
    if (!x->o.verify)
        return pl_reducer_reply(buffer, &job->reducer, c->part.method, c->part.buffer,
                                c->part.bytes, NULL);
    memcpy(buffer, own, m.bytes);
    return PL_OK;
}

static void run_reduce(struct allreduce_job *job_)
{
    struct allreduce_job_of *job = (struct allreduce_job_of *)job_;
    struct allreduce *x = job->x;
    struct slot *s = job->slot;
    const struct pl_part *part = &x->parts[x->reducing.own[s->k]];
    /* The slot was closed to the loop's thread when the job began, so nothing here changes
     * meanwhile. */
    float *own = x->reducing.own_delta ? x->reducing.own_delta + x->reducing.own_at[s->k] : NULL;
    /* Sums first; then either CenteredClip's fixed point or nothing takes their place; then
     * an answer to each sender whose values went in; last our own difference. */
    job->status = add_all(job);
    if (!job->status && x->o.verify)
        job->status = allreduce_aggregate(x, s, &job->reducer, own, &x->verify.own_tau[s->k]);
    else if (!job->status && x->o.clip) job->status = allreduce_clip(x, s, &job->reducer);
    for (size_t i = 0; !job->status && i < s->arrived; i++)
        if (!s->from[i].bad) job->status = reply(job, &s->from[i], own);
    if (!job->status && own && !x->o.verify)
        job->status = pl_reducer_delta(own, &job->reducer, x->o.tensor[part->tensor] + part->start);
}

/* Answers leave in the order of the parts. Each part that is answered moves the window on by
 * one: every sender gets credit for one more. */
static void advance(struct allreduce *x, double now)
{
    while (x->reducing.own_done < x->reducing.own_count &&
           allreduce_slot(x, x->reducing.own_done)->replied) {
        /* The oldest open part leaves first, though a later one may have been finished
         * before it: a sender matches answers to its parts by their order alone. */
        struct slot *s = allreduce_slot(x, x->reducing.own_done);
        /* The least weight of any of our parts tells a user how many samples the mean stands
         * for at worst. */
        if (!x->reducing.own_done || s->weight < x->report.weight) x->report.weight = s->weight;
        for (size_t i = 0; i < s->arrived; i++)
            if (!s->from[i].bad) allreduce_receive_answer(x, s->from[i].peer, &s->from[i].reply);
        if (x->reducing.kept && keep(x, s)) {
            allreduce_give_up(x, PL_ENOMEM, "no memory");
            return;
        }
        slot_clear(x, s);
        for (size_t p = 0; p < x->count; p++) {
            /* Time that a sender spent without credit is not its silence. */
            struct in_peer *in = &x->receiving.peer[p];
            /* it had to wait for us */
            if (in->next == x->reducing.own_done + ALLREDUCE_WINDOW) in->wait.since = now;
            if (in->state == IN_SENDING &&
                x->reducing.own_done + ALLREDUCE_WINDOW < x->reducing.own_count)
                x->callbacks->credit(x->context, p, 1);
        }
        x->reducing.own_done++;
        slot_open(x, x->reducing.own_done + ALLREDUCE_WINDOW - 1);
    }
}

void allreduce_reduce_done(struct allreduce *x, double now, struct allreduce_job_of *job)
{
    struct slot *s = job->slot;
    s->job = NULL;
    s->weight = job->reducer.weight;
    /* Its sum buffer goes to the next part, still warm. */
    x->reducing.idle[x->reducing.idle_count++] = job->reducer;
    if (x->phase == ALLREDUCE_CANCELLED) return;
    /* A round that was given up meanwhile wants no answers. */
    if (job->status) { /* out of memory: the round goes on without this peer */
        allreduce_give_up(x, job->status, pl_status_name(job->status));
        return;
    }
    for (size_t i = 0; i < s->arrived; i++) {
        /* The part is answered without it. Its later parts would be as bad, so the sender is
         * dropped for the round; finished parts keep its contribution. */
        struct contribution *c = &s->from[i];
        if (!c->bad) continue;
        allreduce_note_left_out(x, c);
        allreduce_lose_sender(x, &x->receiving.peer[c->peer]);
        if (x->o.verify) x->receiving.peer[c->peer].fault = IN_FAULT_FALSE;
        allreduce_drop_sender(x, c->peer, 1);
    }
    /* If no peer has samples, there is no mean, and the round fails. Otherwise each peer would take
     * its unchanged gradient for an averaged one. */
    if (!(s->weight > 0)) {
        allreduce_give_up(x, PL_EAGAIN, "no peer of the group has values with a weight above 0");
        return;
    }
    /* Answers exist; they leave when all earlier parts have left. */
    s->replied = 1;
    advance(x, now);
}

/* All senders that can still deliver this part have delivered it. A part is reduced at once when
 * every sender has sent it or is lost: adding all of them in one pass costs less memory traffic
 * than adding each on arrival. */
static int has_all(const struct allreduce *x, const struct slot *s)
{
    for (size_t p = 0; p < x->count; p++)
        if (p != x->self && x->receiving.peer[p].state != IN_OVER &&
            x->receiving.peer[p].next <= s->k)
            return 0;
    return 1;
}

void allreduce_reduce_go(struct allreduce *x)
{
    for (size_t w = 0; w < ALLREDUCE_WINDOW; w++) {
        struct slot *s = &x->reducing.slot[w];
        if (s->k == SIZE_MAX || s->job || s->replied || !has_all(x, s)) continue;
        if (!(s->job = allreduce_job_new(x, JOB_REDUCE, run_reduce)))
            continue; /* the next event tries again */
        s->job->slot = s;
        if (x->reducing.idle_count) s->job->reducer = x->reducing.idle[--x->reducing.idle_count];
        for (size_t i = 0; i < s->arrived; i++) s->from[i].reply = buffer_pool_take(&x->pool);
        allreduce_job_start(x, s->job);
    }
}
