/* allreduce_send.c - our side as a sender: steps 1 and 4 of the butterfly all-reduce (allreduce.c).
 *
 * Each reducer has a stream. While one part is on its way the next one is compressed on a helper
 * thread, so a stream holds at most one message that waits and one that is being encoded. Answers
 * come in the order of the parts. They are kept, not applied: a round is applied as a whole or not
 * at all.
 *
 * A reducer is given up after reducer_timeout without progress; earlier, after its patience,
 * when the other reducers are ahead of it and its message is not moving either. */
#include "allreduce_send.h"
#include "allreduce_notes.h"
#include "allreduce_receive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Step 1, on a helper thread: one part, compressed. The first part names the group, which tells the
 * reducer the round that it belongs to. A blank part is one that hivemind's reducers understand:
 * they add 0 * 0 to every value, and subtract 0 from the mean. */
static void run_encode(struct allreduce_job *job_)
{
    struct allreduce_job_of *job = (struct allreduce_job_of *)job_;
    struct allreduce *x = job->x;
    const struct pl_part *part = &x->parts[job->part];
    const float zero = 0, *values = allreduce_values(x, part);
    const int is_blank = allreduce_is_blank(x, job->part);
    const size_t length = is_blank ? 1 : part->length;
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)length } };
    /* The weight goes with every part: hivemind's reducers read it from each message. */
    struct part_message m = { .weight = is_blank ? 0 : x->o.weight,
                              .elements = length,
                              .has_part = 1,
                              .method = allreduce_method(x, part) };
    /* Encoded straight into the message: its length follows from the method and the number
     * of values. */
    uint8_t *buffer;
    if (job->part == x->sending.peer[job->peer].part[0]) {
        m.code = MSG_PART_FOR_AVERAGING;
        m.group_id = x->name;
        m.group_id_n = x->name_n;
    }
    job->status = pl_wire_bytes(&m.bytes, m.method, &type, NULL);
    if (!job->status) job->status = part_message_write(&job->message, &buffer, &m);
    if (!job->status && m.bytes)
        job->status = pl_wire_encode(buffer, x->o.be, m.method, &type, is_blank ? &zero : values,
                                     NULL);
}

static void lose_reducer(struct allreduce *x, size_t peer, const char *why)
{
    struct out_peer *out = &x->sending.peer[peer];
    char name[PEER_ID_TEXT_MAX];
    /* A reducer that has answered everything may close its stream: that is its end, not a
     * loss. */
    if (out->state == OUT_LOST || out->answered == out->parts) return;
    if (out->state == OUT_OPEN) x->callbacks->close(x->context, peer, ALLREDUCE_OUT);
    out->state = OUT_LOST;
    /* The first loss is the reason; others of this round often follow from it. */
    if (!x->notes.lost.text[0]) {
        peer_id_text(name, &x->o.group->members[peer].peer);
        pl_fail(&x->notes.lost, PL_EIO, "%.60s, which reduces, has left or fallen silent: %.200s%s",
                name, why, x->o.phase ? "; or its rank of PowerSGD is not ours" : "");
    }
    x->report.reducers_lost++;
}

void allreduce_send_go(struct allreduce *x, double now, size_t peer)
{
    struct out_peer *out = &x->sending.peer[peer];
    if (out->state != OUT_OPEN) return;
    /* 1. Send an encoded part once the previous message has left: a queue would only grow. */
    if (out->is_ready && !x->callbacks->is_busy(x->context, peer)) {
        const size_t part = out->part[out->sent], length = x->parts[part].length;
        x->report.bytes_out += bytes_length(&out->ready);
        if (allreduce_is_blank(x, part)) x->report.withheld += length;
        else x->report.values_out += length;
        out->is_ready = 0;
        out->sent++;
        out->wait.since = now;
        allreduce_send(x, peer, ALLREDUCE_OUT, &out->ready);
        if (out->sent == out->parts) x->callbacks->finish(x->context, peer, ALLREDUCE_OUT);
    }
    /* 2. Encode the next part meanwhile. At most one is ready and one is being encoded, so
     * memory does not grow with the number of parts. */
    if (!out->is_ready && !out->job && out->encoding < out->parts) {
        if (!(out->job = allreduce_job_new(x, JOB_ENCODE, run_encode))) {
            x->cause = CAUSE_OURS;
            lose_reducer(x, peer, "no memory");
            return;
        }
        /* The job's buffer comes from the pool, and becomes the message that is sent. */
        out->job->peer = peer;
        out->job->part = out->part[out->encoding++];
        out->job->message = buffer_pool_take(&x->pool);
        allreduce_job_start(x, out->job);
    }
}

void allreduce_send_encoded(struct allreduce *x, struct allreduce_job_of *job)
{
    struct out_peer *out = &x->sending.peer[job->peer];
    out->job = NULL;
    /* Without this part its reducer can't finish, so the round has no result. The fault is
     * ours: no reducer is held responsible (allreduce_outcome). */
    if (job->status) {
        x->cause = CAUSE_OURS;
        lose_reducer(x, job->peer, "no memory");
        return;
    }
    out->ready = job->message;
    out->is_ready = 1;
    memset(&job->message, 0, sizeof job->message);
}

void allreduce_send_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                            size_t n)
{
    struct out_peer *out = &x->sending.peer[peer];
    struct part_message m;
    struct answer *a;
    int broken;
    if (out->state != OUT_OPEN) return;
    /* Answers are matched by their order: the n-th message belongs to the n-th part sent. */
    broken = part_message_read(&m, data, n, NULL);
    if (broken || m.code != MSG_AVERAGED_PART) { /* any other code: it is in trouble itself */
        const int has_left = !broken && m.code == MSG_BAD_GROUP_ID && !out->answered &&
                             allreduce_awaits(x, peer);
        if (!broken && m.code == MSG_INTERNAL_ERROR) allreduce_note_refusal(x, peer);
        out->fault = broken ? FAULT_FALSE : has_left ? FAULT_LEFT : FAULT_REFUSED;
        lose_reducer(x, peer,
                     broken     ? "its answer can't be read"
                     : has_left ? "it is in no group with us"
                                : "it is in trouble itself");
        if (has_left) allreduce_drop_sender(x, peer, 0);
        return;
    }
    /* hivemind's reducers answer 0 / 0 where all peers' parts are blank, or of weight 0. */
    if (out->answered < out->sent && m.has_part && !part_message_is_finite(&m) &&
        allreduce_is_blank(x, out->part[out->answered])) {
        out->fault = FAULT_REFUSED;
        lose_reducer(x, peer, "no peer has values of one of our parts");
        return;
    }
    /* Answers that no honest reducer sends: more answers than parts, another length, values that
     * are not finite; in a verified round anything but float32 with a radius. Since the stream is
     * authenticated, such an answer is a proof, and the peer is banned. */
    if (out->answered >= out->sent || !m.has_part ||
        m.elements != x->parts[out->part[out->answered]].length || !part_message_is_finite(&m) ||
        (x->o.verify && (m.method != PL_COMPRESS_NONE || !(m.weight >= 0 && isfinite(m.weight))))) {
        out->fault = FAULT_FALSE;
        lose_reducer(x, peer, "its answer is not one to our part");
        return;
    }
    /* Reducers answer in the compression of our part, so an answer fits its place; one in
     * another method may be longer, and is still understood. */
    a = &x->sending.answers[out->part[out->answered]];
    if (m.bytes > a->capacity && !(a->data = a->other = malloc(m.bytes))) {
        x->cause = CAUSE_OURS;
        lose_reducer(x, peer, "no memory");
        return;
    }
    allreduce_block_put(&x->memory->answers, a->data, m.buffer, m.bytes);
    /* Kept, not applied: until the last answer the round may still fail. */
    a->n = m.bytes;
    a->method = m.method;
    a->weight = m.weight;
    out->answered++;
    /* Progress: its time starts anew. */
    out->wait.since = now;
    if (!x->sending.answered++) x->sending.first_answer = now;
    x->report.received += m.elements;
    x->report.bytes_in += n;
}

void allreduce_send_end(struct allreduce *x, size_t peer)
{
    struct out_peer *out = &x->sending.peer[peer];
    if (out->state != OUT_OPEN) return;
    out->state = OUT_CLOSED;
    x->callbacks->close(x->context, peer, ALLREDUCE_OUT);
}

void allreduce_send_lost(struct allreduce *x, size_t peer, const char *why)
{
    if (x->sending.peer[peer].state == OUT_OPEN) lose_reducer(x, peer, why);
    allreduce_send_end(x, peer); /* all answers are there */
}

/* --- time ------------------------------------------------------------------------------------- */

/* The other reducers have answered more of their parts than this one has, on average. */
static int is_behind(const struct allreduce *x, const struct out_peer *out)
{
    /* answered / parts of the others, against this one's, cross-multiplied to avoid a
     * division by 0. */
    size_t parts = x->sending.asked - out->parts, answered = x->sending.answered - out->answered;
    return (double)answered * (double)out->parts > (double)out->answered * (double)parts;
}

/* When a reducer is given up. */
static struct allreduce_deadline reducer_deadline(const struct allreduce *x, size_t peer)
{
    const struct out_peer *out = &x->sending.peer[peer];
    struct allreduce_deadline d = { .at = INFINITY };
    if (out->state == OUT_LOST || out->answered == out->parts) return d;
    /* All reducers of a group wait for its slowest sender, so a silent reducer means
     * something only if the others are answering. */
    return allreduce_deadline(x, &out->wait, x->o.reducer_timeout, x->sending.first_answer,
                              x->o.patience && is_behind(x, out) ? x->o.patience[peer].reducer
                                                                 : INFINITY);
}

double allreduce_send_wake(const struct allreduce *x)
{
    double at = INFINITY;
    for (size_t p = 0; p < x->count; p++) at = fmin(at, reducer_deadline(x, p).at);
    return at;
}

void allreduce_send_tick(struct allreduce *x, double now)
{
    for (size_t p = 0; p < x->count; p++) {
        struct allreduce_deadline d = reducer_deadline(x, p);
        struct out_peer *out = &x->sending.peer[p];
        if (now >= d.at && !allreduce_may_wait(x, now, &out->wait, d, p, ALLREDUCE_OUT,
                                               out->part[out->answered], x->o.reducer_timeout))
            lose_reducer(x, p, "no answer in time");
    }
}

/* --- begin and end ---------------------------------------------------------------------------- */

/* Our own parts have no answer. In a verified round answers are float32, whatever compression we
 * send with. */
static size_t answer_bytes(const struct allreduce *x, const struct pl_part *part)
{
    if (part->reducer == (int)x->self) return 0;
    return x->o.verify ? part->length * sizeof(float) : allreduce_part_bytes(x, part);
}

/* Every answer has its place. */
int allreduce_send_open(struct allreduce *x)
{
    size_t all = 0;
    uint8_t *at;
    if (!(x->sending.answers = calloc(x->part_count + 1, sizeof *x->sending.answers)))
        return PL_ENOMEM;
    for (size_t i = 0; i < x->part_count; i++)
        /* One block for all answers of the round, so that nothing is allocated while they
         * arrive, and the next round finds the same pages. */
        all += x->sending.answers[i].capacity = answer_bytes(x, &x->parts[i]);
    if (!(at = allreduce_block_reserve(&x->memory->answers, all))) return PL_ENOMEM;
    for (size_t i = 0; i < x->part_count; i++) {
        x->sending.answers[i].data = at;
        at += x->sending.answers[i].capacity;
    }
    return PL_OK;
}

void allreduce_send_close(struct allreduce *x)
{
    for (size_t i = 0; x->sending.answers && i < x->part_count; i++)
        free(x->sending.answers[i].other);
    for (size_t p = 0; x->sending.peer && p < x->count; p++) {
        bytes_clear(&x->sending.peer[p].ready);
        pl_free(x->sending.peer[p].part);
    }
    free(x->sending.answers);
    free(x->sending.peer);
}
