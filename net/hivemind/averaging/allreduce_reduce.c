/* allreduce_reduce.c - the parts that we reduce: who has sent, the sums, the answers.
 *
 * Up to ALLREDUCE_WINDOW parts are open at once, so that a fast sender does not wait for the
 * slowest; answers leave in the order of the parts. */
#include "allreduce_internal.h"
#include "ref/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- slots ------------------------------------------------------------------------------------ */

static struct slot *slot_of(struct allreduce *x, size_t k)
{
    return &x->slot[k % ALLREDUCE_WINDOW];
}

static void slot_open(struct allreduce *x, size_t k)
{
    struct slot *s = slot_of(x, k);
    s->k = k < x->own_count ? k : SIZE_MAX;
    s->arrived = 0;
    s->replied = 0;
}

static void slot_clear(struct allreduce *x, struct slot *s)
{
    for (size_t i = 0; i < s->arrived; i++) {
        allreduce_buffer_back(x, &s->from[i].message);
        allreduce_buffer_back(x, &s->from[i].reply);
    }
    s->arrived = 0;
}

/* Hands what came over to who needs it at the end. */
static int keep(struct allreduce *x, struct slot *s)
{
    struct contribution *kept = calloc(s->arrived + 1, sizeof *kept);
    if (!kept) return PL_ENOMEM;
    for (size_t i = 0; i < s->arrived; i++) {
        kept[i] = s->from[i];
        memset(&kept[i].reply, 0, sizeof kept[i].reply);
        memset(&s->from[i].message, 0, sizeof s->from[i].message);
    }
    x->kept[s->k] = kept;
    x->kept_count[s->k] = s->arrived;
    return PL_OK;
}

int allreduce_reduce_again(struct allreduce *x, struct pl_reducer *r, size_t k)
{
    const struct pl_part *part = &x->parts[x->own[k]];
    float *values = x->o.tensor[part->tensor] + part->start;
    int rc = pl_reducer_begin(r, x->o.be, part->length);
    if (!rc) rc = pl_reducer_add(r, values, x->o.weight, NULL);
    for (size_t i = 0; !rc && i < x->kept_count[k]; i++) {
        const struct contribution *c = &x->kept[k][i];
        if (!c->bad)
            rc = pl_reducer_add_message(r, c->part.method, c->part.buffer, c->part.bytes,
                                        c->part.weight, NULL);
    }
    return rc ? rc : pl_reducer_apply(values, r);
}

#define KEPT_HEADER 128 /* bytes of a message beside its values; most are smaller */

static size_t kept_room(const struct allreduce *x, size_t k)
{
    return allreduce_part_bytes(x, &x->parts[x->own[k]]) + KEPT_HEADER;
}

/* Where a peer's message of our k-th part stays; NULL: it needs memory of its own. */
static uint8_t *kept_place(const struct allreduce *x, size_t k, size_t peer, size_t n)
{
    if (!x->kept_bytes || n > kept_room(x, k)) return NULL;
    return x->kept_bytes + x->kept_at[k] + (peer - (peer > x->self)) * kept_room(x, k);
}

static int make_kept(struct allreduce *x)
{
    size_t all = 0;
    x->kept = calloc(x->own_count + 1, sizeof *x->kept);
    x->kept_count = calloc(x->own_count + 1, sizeof *x->kept_count);
    x->kept_at = calloc(x->own_count + 1, sizeof *x->kept_at);
    if (!x->kept || !x->kept_count || !x->kept_at) return PL_ENOMEM;
    if (x->own_delta) return PL_OK; /* to verify, rarely */
    for (size_t k = 0; k < x->own_count; k++) {
        x->kept_at[k] = all;
        all += kept_room(x, k) * (x->count - 1);
    }
    return (x->kept_bytes = allreduce_room(&x->memory->messages, all)) ? PL_OK : PL_ENOMEM;
}

int allreduce_reduce_open(struct allreduce *x, struct pl_err *err)
{
    int rc = PL_ENOMEM;
    if (!(x->in = calloc(x->count, sizeof *x->in))) goto done;
    if ((x->o.verify || !x->own_delta) && make_kept(x)) goto done;
    for (size_t w = 0; w < ALLREDUCE_WINDOW; w++) {
        if (!(x->slot[w].from = calloc(x->count, sizeof *x->slot[w].from))) goto done;
        slot_open(x, w);
    }
    for (size_t p = 0; p < x->count; p++) {
        struct in_peer *in = &x->in[p];
        in->state = x->own_count && p != x->self ? IN_AWAITED : IN_COMPLETE;
        in->since = x->began;
        in->holds = x->o.share[p] == 0;
        if (in->holds && in->state == IN_AWAITED &&
            !(in->held = calloc(x->own_count, sizeof *in->held)))
            goto done;
    }
    rc = PL_OK;
done:
    return rc ? pl_fail(err, rc, "averaging: no memory") : rc;
}

void allreduce_reduce_close(struct allreduce *x)
{
    for (size_t w = 0; w < ALLREDUCE_WINDOW; w++) {
        if (x->slot[w].from) slot_clear(x, &x->slot[w]);
        free(x->slot[w].from);
    }
    while (x->idle_count) pl_reducer_clear(&x->idle[--x->idle_count]);
    for (size_t p = 0; x->in && p < x->count; p++) {
        for (size_t i = 0; i < x->in[p].held_count; i++) bytes_clear(&x->in[p].held[i]);
        free(x->in[p].held);
    }
    free(x->in);
    for (size_t k = 0; x->kept_count && k < x->own_count; k++) {
        for (size_t i = 0; i < x->kept_count[k]; i++) bytes_clear(&x->kept[k][i].message);
        free(x->kept[k]);
    }
    free(x->kept);
    free(x->kept_count);
    free(x->kept_at);
}

int allreduce_awaits(const struct allreduce *x, size_t peer)
{
    return x->in[peer].state == IN_AWAITED && !x->cancelled && !x->applying;
}

/* --- senders ---------------------------------------------------------------------------------- */

static int is_open(const struct in_peer *in)
{
    return in->state == IN_SENDING || (in->state == IN_COMPLETE && in->next);
}

static void lose(struct allreduce *x, struct in_peer *in)
{
    if (!in->lost) x->report.senders_lost++;
    in->lost = 1;
    if (x->o.verify) x->missing = 1;
}

void allreduce_ban(struct allreduce *x, size_t peer, int tell)
{
    struct in_peer *in = &x->in[peer];
    struct bytes code = { 0 };
    int was_open = is_open(in);
    if (in->state == IN_OVER || peer == x->self) return;
    if (in->next < x->own_count) lose(x, in);
    in->state = IN_OVER;
    if (!was_open) return;
    if (tell && !part_message_code(&code, MSG_INTERNAL_ERROR)) {
        x->port->send(x->context, peer, ALLREDUCE_IN, bytes_at(&code), bytes_length(&code));
        x->port->finish(x->context, peer, ALLREDUCE_IN);
    }
    bytes_clear(&code);
    x->port->close(x->context, peer, ALLREDUCE_IN);
}

void allreduce_reduce_stop(struct allreduce *x)
{
    struct bytes code = { 0 };
    for (size_t p = 0; p < x->count; p++) {
        struct in_peer *in = &x->in[p];
        if (!is_open(in)) continue;
        in->state = IN_OVER;
        if (!part_message_code(&code, MSG_CANCELLED)) {
            x->port->send(x->context, p, ALLREDUCE_IN, bytes_at(&code), bytes_length(&code));
            x->port->finish(x->context, p, ALLREDUCE_IN);
        }
        bytes_clear(&code);
        x->port->close(x->context, p, ALLREDUCE_IN);
    }
}

/* Everything answered: the stream is done with. */
static void complete(struct allreduce *x, size_t peer)
{
    struct in_peer *in = &x->in[peer];
    if (in->answered < x->own_count) return;
    in->state = IN_OVER; /* nothing more is expected from it, or sent */
    x->port->finish(x->context, peer, ALLREDUCE_IN);
    x->port->close(x->context, peer, ALLREDUCE_IN);
}

static void send_answer(struct allreduce *x, size_t peer, struct bytes *answer)
{
    x->report.values_out += x->parts[x->own[x->in[peer].answered++]].length;
    x->report.bytes_out += bytes_length(answer);
    allreduce_send(x, peer, ALLREDUCE_IN, answer);
    complete(x, peer);
}

/* Whoever reduces nothing reads no answers before it has sent everything: they would lie in the
 * way. */
static void answer(struct allreduce *x, size_t peer, struct bytes *reply)
{
    struct in_peer *in = &x->in[peer];
    if (!is_open(in)) return;
    if (in->holds && in->next < x->own_count) {
        in->held[in->held_count++] = *reply;
        memset(reply, 0, sizeof *reply);
    } else {
        send_answer(x, peer, reply);
    }
}

static void send_held(struct allreduce *x, size_t peer)
{
    struct in_peer *in = &x->in[peer];
    for (size_t i = 0; i < in->held_count && is_open(in); i++) send_answer(x, peer, &in->held[i]);
    in->held_count = 0;
}

void allreduce_reduce_ended(struct allreduce *x, size_t peer)
{
    if (is_open(&x->in[peer]) && x->in[peer].next < x->own_count) allreduce_ban(x, peer, 1);
}

/* The message stays, and the part with it. */
static int keep_message(struct allreduce *x, struct contribution *c, size_t k, const uint8_t *data,
                        size_t n)
{
    uint8_t *place = kept_place(x, k, c->peer, n);
    if (place) {
        allreduce_put(&x->memory->messages, place, data, n);
    } else {
        c->message = allreduce_buffer(x);
        if (bytes_add(&c->message, data, n)) {
            bytes_clear(&c->message);
            return PL_ENOMEM;
        }
        place = c->message.data + c->message.begin;
    }
    c->part.buffer = place + (c->part.buffer - data);
    c->part.group_id = NULL; /* it has been looked at */
    return PL_OK;
}

/* Parts of a tensor are as long as --part-bytes and its compression make them, so a part of another
 * length tells which of the two is not ours. [spec hivemind-protocol 5] */
static void note_misfit(struct allreduce *x, size_t peer, const struct pl_part *part,
                        const struct part_message *m)
{
    const struct group_member *who = &x->o.group->members[peer];
    enum pl_compression ours = allreduce_method(x, part);
    size_t whole = pl_part_values(m->method, x->o.part_bytes);
    size_t rest = x->o.elements[part->tensor] - part->start;
    size_t per_value = x->o.part_bytes / whole ? x->o.part_bytes / whole : 1;
    char name[PEER_ID_TEXT_MAX];
    if (x->misfit.text[0]) return;
    peer_id_text(name, &who->peer);
    if (m->method != ours && m->elements == (whole < rest ? whole : rest))
        pl_fail(&x->misfit, PL_EPROTO,
                "%.60s sends parts of %zu values (%s), we send parts of %zu "
                "(%s); your side, if the others agree with it, else its: --compression",
                name, m->elements, pl_compression_name(m->method), part->length,
                pl_compression_name(ours));
    else
        pl_fail(
            &x->misfit, PL_EPROTO,
            "%.60s sends a part of %zu values (%zu bytes) where ours has "
            "%zu (%zu bytes at most, --part-bytes %zu); your side, if the others agree with it, "
            "else its: --part-bytes",
            name, m->elements, m->elements * per_value, part->length, part->length * per_value,
            x->o.part_bytes);
}

/* Everybody is answered in the compression that they send. */
static void note_differs(struct allreduce *x, size_t peer, const struct pl_part *part,
                         const struct part_message *m)
{
    enum pl_compression ours = allreduce_method(x, part);
    char name[PEER_ID_TEXT_MAX];
    if (x->differs.text[0] || m->method == ours) return;
    peer_id_text(name, &x->o.group->members[peer].peer);
    pl_fail(&x->differs, PL_OK,
            "%.60s sends %s where we send %s; both are understood, nothing has "
            "to be done (--compression)",
            name, pl_compression_name(m->method), pl_compression_name(ours));
}

void allreduce_reduce_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                              size_t n)
{
    struct in_peer *in = &x->in[peer];
    struct contribution c = { .peer = peer };
    struct part_message first;
    struct slot *s = slot_of(x, in->next);
    const struct pl_part *part;
    if (in->state == IN_AWAITED) {
        in->state = IN_SENDING;
        if (part_message_read(&first, data, n, NULL) || first.code != MSG_PART_FOR_AVERAGING) {
            allreduce_ban(x, peer, 1);
            return;
        }
    }
    if (in->state != IN_SENDING) {
        /* more than its parts */
        if (in->state == IN_COMPLETE && is_open(in)) allreduce_ban(x, peer, 1);
        return;
    }
    if (s->k != in->next || part_message_read(&c.part, data, n, NULL) || !c.part.has_part) {
        allreduce_ban(x, peer, 1); /* beyond the window too: it was not told that it may */
        return;
    }
    part = &x->parts[x->own[s->k]];
    if (c.part.elements != part->length) note_misfit(x, peer, part, &c.part);
    else note_differs(x, peer, part, &c.part);
    if (c.part.elements != part->length || keep_message(x, &c, s->k, data, n)) {
        allreduce_ban(x, peer, 1);
        return;
    }
    if (!s->arrived) s->first_at = now;
    s->from[s->arrived++] = c;
    x->report.bytes_in += n;
    in->next++;
    in->latest = fmax(in->latest, now - in->since);
    x->slowest = fmax(x->slowest, now - in->since);
    in->since = now;
    if (in->next < x->own_count) return;
    in->state = IN_COMPLETE;
    x->port->credit(x->context, peer, 1); /* for its end mark; another part would be one too many */
    send_held(x, peer);
}

/* --- sums and answers, on a helper thread ----------------------------------------------------- */

static double weight_max(const struct allreduce *x)
{
    return x->o.weight_max > 0 ? fmin(x->o.weight_max, PART_WEIGHT_MAX) : PART_WEIGHT_MAX;
}

static int is_weight(const struct allreduce *x, double weight) /* not of a NaN */
{
    return weight >= 0 && weight <= weight_max(x);
}

static int usable(const struct allreduce *x, const struct part_message *m)
{
    return is_weight(x, m->weight) && part_message_is_sound(m);
}

static void note_left_out(struct allreduce *x, const struct contribution *c)
{
    char name[PEER_ID_TEXT_MAX];
    if (x->left_out.text[0]) return;
    peer_id_text(name, &x->o.group->members[c->peer].peer);
    if (!is_weight(x, c->part.weight))
        pl_fail(&x->left_out, PL_EPROTO, "%.60s is left out: its weight is %g, expected 0 to %g",
                name, c->part.weight, weight_max(x));
    else
        pl_fail(&x->left_out, PL_EPROTO,
                "%.60s is left out: its values are not finite, or beyond %g", name,
                (double)PART_VALUE_MAX);
}

/* Everybody's values of the part, ours first. */
static int add_all(struct allreduce_job_of *job)
{
    struct allreduce *x = job->x;
    struct slot *s = job->slot;
    const struct pl_part *part = &x->parts[x->own[s->k]];
    int robust = x->o.clip != 0 || x->o.verify; /* needs them one by one */
    int rc = pl_reducer_begin(&job->reducer, x->o.be, part->length);
    if (!rc && !robust)
        rc = pl_reducer_add(&job->reducer, x->o.tensor[part->tensor] + part->start, x->o.weight,
                            NULL);
    for (size_t i = 0; !rc && i < s->arrived; i++) {
        struct contribution *c = &s->from[i];
        c->bad = !usable(x, &c->part);
        if (!c->bad && !robust)
            rc = pl_reducer_add_message(&job->reducer, c->part.method, c->part.buffer,
                                        c->part.bytes, c->part.weight, NULL);
    }
    return rc;
}

static int reply(struct allreduce_job_of *job, struct contribution *c, const float *own)
{
    struct allreduce *x = job->x;
    struct part_message m = c->part;
    uint8_t *buffer;
    int rc;
    m.code = MSG_AVERAGED_PART;
    m.group_id = NULL;
    m.weight = 0;
    if (x->o.verify) {
        m.method = PL_COMPRESS_NONE;
        m.bytes = job->reducer.n * sizeof *own;
        m.weight = x->own_tau[job->slot->k];
    }
    rc = part_message_write(&c->reply, &buffer, &m);
    if (rc || !m.bytes) return rc;
    if (!x->o.verify)
        return pl_reducer_reply(buffer, &job->reducer, c->part.method, c->part.buffer,
                                c->part.bytes, NULL);
    memcpy(buffer, own, m.bytes);
    return PL_OK;
}

void allreduce_reduce_run(struct allreduce_job_of *job)
{
    struct allreduce *x = job->x;
    struct slot *s = job->slot;
    const struct pl_part *part = &x->parts[x->own[s->k]];
    float *own = x->own_delta ? x->own_delta + x->own_at[s->k] : NULL;
    job->status = add_all(job);
    if (!job->status && x->o.verify)
        job->status = allreduce_aggregate(x, s, &job->reducer, own, &x->own_tau[s->k]);
    else if (!job->status && x->o.clip) job->status = allreduce_clip(x, s, &job->reducer);
    for (size_t i = 0; !job->status && i < s->arrived; i++)
        if (!s->from[i].bad) job->status = reply(job, &s->from[i], own);
    if (!job->status && own && !x->o.verify)
        job->status = pl_reducer_delta(own, &job->reducer, x->o.tensor[part->tensor] + part->start);
}

/* Parts that are answered make room for the next, in order. */
static void advance(struct allreduce *x, double now)
{
    while (x->own_done < x->own_count && slot_of(x, x->own_done)->replied) {
        struct slot *s = slot_of(x, x->own_done);
        if (!x->own_done || s->weight < x->report.weight) x->report.weight = s->weight;
        for (size_t i = 0; i < s->arrived; i++)
            if (!s->from[i].bad) answer(x, s->from[i].peer, &s->from[i].reply);
        if (x->kept && keep(x, s)) {
            allreduce_give_up(x, PL_ENOMEM, "no memory");
            return;
        }
        slot_clear(x, s);
        for (size_t p = 0; p < x->count; p++) {
            struct in_peer *in = &x->in[p];
            /* it had to wait for us */
            if (in->next == x->own_done + ALLREDUCE_WINDOW) in->since = now;
            if (in->state == IN_SENDING && x->own_done + ALLREDUCE_WINDOW < x->own_count)
                x->port->credit(x->context, p, 1);
        }
        x->own_done++;
        slot_open(x, x->own_done + ALLREDUCE_WINDOW - 1);
    }
}

void allreduce_reduce_done(struct allreduce *x, double now, struct allreduce_job_of *job)
{
    struct slot *s = job->slot;
    s->job = NULL;
    s->weight = job->reducer.weight;
    x->idle[x->idle_count++] = job->reducer;
    if (x->cancelled) return;
    if (job->status) { /* our own trouble: memory. The group will miss us, and we the group */
        allreduce_give_up(x, job->status, pl_status_name(job->status));
        return;
    }
    for (size_t i = 0; i < s->arrived; i++) {
        struct contribution *c = &s->from[i];
        if (!c->bad) continue;
        note_left_out(x, c);
        x->in[c->peer].lied = x->o.verify;
        lose(x, &x->in[c->peer]);
        allreduce_ban(x, c->peer, 1);
    }
    s->replied = 1;
    advance(x, now);
}

/* Nobody's part is missing who could still send it. */
static int has_all(const struct allreduce *x, const struct slot *s)
{
    for (size_t p = 0; p < x->count; p++)
        if (p != x->self && x->in[p].state != IN_OVER && x->in[p].next <= s->k) return 0;
    return 1;
}

void allreduce_reduce_go(struct allreduce *x)
{
    for (size_t w = 0; w < ALLREDUCE_WINDOW; w++) {
        struct slot *s = &x->slot[w];
        if (s->k == SIZE_MAX || s->job || s->replied || !has_all(x, s)) continue;
        if (!(s->job = allreduce_job_new(x, JOB_REDUCE))) continue; /* the next event tries again */
        s->job->slot = s;
        if (x->idle_count) s->job->reducer = x->idle[--x->idle_count];
        for (size_t i = 0; i < s->arrived; i++) s->from[i].reply = allreduce_buffer(x);
        allreduce_job_start(x, s->job);
    }
}

/* --- time ------------------------------------------------------------------------------------- */

static int is_awaited(const struct allreduce *x, const struct in_peer *in)
{
    return (in->state == IN_AWAITED || in->state == IN_SENDING) && in->next < x->own_count &&
           in->next < x->own_done + ALLREDUCE_WINDOW;
}

/* When a sender is given up; *patience: before its timeout, unless something moves. */
static double sender_until(const struct allreduce *x, size_t peer, int *patience)
{
    const struct in_peer *in = &x->in[peer];
    const struct slot *s = &x->slot[in->next % ALLREDUCE_WINDOW];
    double until = x->o.sender_timeout > 0 ? in->since + x->o.sender_timeout : INFINITY, early;
    size_t others;
    *patience = 0;
    if (!is_awaited(x, in)) return INFINITY;
    others = x->count - 2 - x->report.senders_lost; /* than it and us */
    if (!x->o.patience || s->k != in->next || !s->arrived || 2 * s->arrived < others) return until;
    early = fmax(fmax(in->since, in->checked), s->first_at) +
            fmax(x->o.patience[peer].sender, 3 * x->slowest);
    *patience = early < until;
    return fmin(early, until);
}

double allreduce_reduce_wake(const struct allreduce *x)
{
    double at = INFINITY;
    int patience;
    for (size_t p = 0; p < x->count; p++) at = fmin(at, sender_until(x, p, &patience));
    return at;
}

void allreduce_reduce_tick(struct allreduce *x, double now)
{
    for (size_t p = 0; p < x->count; p++) {
        struct in_peer *in = &x->in[p];
        int patience;
        if (now < sender_until(x, p, &patience)) continue;
        if (patience && allreduce_is_moving(x, p, ALLREDUCE_IN, x->own[in->next], now - in->since,
                                            x->o.sender_timeout))
            in->checked = now;
        else allreduce_ban(x, p, 1);
    }
}

/* Those who have sent all that our window lets them wait for us. */
void allreduce_reduce_late(struct allreduce *x)
{
    for (size_t p = 0; p < x->count; p++)
        if (is_awaited(x, &x->in[p])) lose(x, &x->in[p]);
}
