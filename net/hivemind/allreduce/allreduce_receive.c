/* allreduce_receive.c - others' parts on their way to us: step 1 of the butterfly all-reduce, seen
 * by the reducer (allreduce.c).
 *
 *   AWAITED ---first part---> SENDING ---last part---> COMPLETE ---all answered---> OVER
 *      |                         |                         |
 *      +-------------------------+-------------------------+---lost, late, or no part---> OVER
 *
 * Flow control is by credit: a sender may be at most ALLREDUCE_WINDOW parts ahead of the slowest
 * one, so the memory that it can claim is bounded. If a sender is lost, the mean is taken over the
 * others, except in a verified round, which needs all values. */
#include "allreduce_receive.h"
#include "allreduce_notes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int allreduce_awaits(const struct allreduce *x, size_t peer)
{
    return x->receiving.peer[peer].state == IN_AWAITED && x->phase == ALLREDUCE_REDUCING;
}

/* COMPLETE without a part received: the peer has nothing to send to us, so it has no stream. */
static int is_open(const struct in_peer *in)
{
    return in->state == IN_SENDING || (in->state == IN_COMPLETE && in->next);
}

/* A sender counts once, however often it fails. */
void allreduce_lose_sender(struct allreduce *x, struct in_peer *in)
{
    if (in->fault != IN_FAULT_NONE) return;
    in->fault = IN_FAULT_LOST;
    x->report.senders_lost++;
}

/* An error code is the last message: the sender learns the reason, and need not wait for its
 * timeout. */
static void close_stream(struct allreduce *x, size_t peer, enum averaging_code code)
{
    struct bytes message = { 0 };
    x->receiving.peer[peer].state = IN_OVER;
    if (code != MSG_NO_CODE && !part_message_code(&message, code)) {
        allreduce_send(x, peer, ALLREDUCE_IN, &message);
        x->callbacks->finish(x->context, peer, ALLREDUCE_IN);
    }
    bytes_clear(&message);
    x->callbacks->close(x->context, peer, ALLREDUCE_IN);
}

void allreduce_drop_sender(struct allreduce *x, size_t peer, int report)
{
    struct in_peer *in = &x->receiving.peer[peer];
    if (in->state == IN_OVER || peer == x->self) return;
    /* Parts that have arrived stay in their means; from the next part on the denominator is
     * smaller by its weight. [spec hivemind-protocol 5.5] */
    if (in->next < x->reducing.own_count) allreduce_lose_sender(x, in);
    if (is_open(in)) close_stream(x, peer, report ? MSG_INTERNAL_ERROR : MSG_NO_CODE);
    in->state = IN_OVER;
}

void allreduce_receive_stop(struct allreduce *x)
{
    for (size_t p = 0; p < x->count; p++)
        if (is_open(&x->receiving.peer[p])) close_stream(x, p, MSG_CANCELLED);
}

/* Everything answered: the stream is done with. */
static void complete(struct allreduce *x, size_t peer)
{
    struct in_peer *in = &x->receiving.peer[peer];
    if (in->answered < x->reducing.own_count) return;
    in->state = IN_OVER; /* nothing more is expected from it, or sent */
    x->callbacks->finish(x->context, peer, ALLREDUCE_IN);
    x->callbacks->close(x->context, peer, ALLREDUCE_IN);
}

static void send_answer(struct allreduce *x, size_t peer, struct bytes *answer)
{
    x->report.values_out += x->parts[x->reducing.own[x->receiving.peer[peer].answered++]].length;
    x->report.bytes_out += bytes_length(answer);
    allreduce_send(x, peer, ALLREDUCE_IN, answer);
    complete(x, peer);
}

/* Step 3. A peer that reduces nothing reads no answers before it has sent everything (hivemind's
 * clients), so its answers are held back: they would fill the stream.
 * [spec hivemind-protocol 5.4] */
void allreduce_receive_answer(struct allreduce *x, size_t peer, struct bytes *reply)
{
    struct in_peer *in = &x->receiving.peer[peer];
    if (!is_open(in)) return;
    if (in->holds && in->next < x->reducing.own_count) {
        in->held[in->held_count++] = *reply;
        memset(reply, 0, sizeof *reply);
    } else {
        send_answer(x, peer, reply);
    }
}

static void send_held(struct allreduce *x, size_t peer)
{
    struct in_peer *in = &x->receiving.peer[peer];
    for (size_t i = 0; i < in->held_count && is_open(in); i++) send_answer(x, peer, &in->held[i]);
    in->held_count = 0;
}

void allreduce_receive_ended(struct allreduce *x, size_t peer)
{
    /* After its last part a sender ends its side; before, the end means that it has given
     * up. */
    if (is_open(&x->receiving.peer[peer]) && x->receiving.peer[peer].next < x->reducing.own_count)
        allreduce_drop_sender(x, peer, 1);
}

/* The message stays, and the part with it. */
static int keep_message(struct allreduce *x, struct contribution *c, size_t k, const uint8_t *data,
                        size_t n)
{
    /* The buffer is the stream's until this call returns. Where messages are kept until the
     * end of the round they have a place in one block; otherwise a pooled buffer holds this
     * one until its part is answered. */
    uint8_t *place = allreduce_kept_place(x, k, c->peer, n);
    if (place) {
        allreduce_block_put(&x->memory->messages, place, data, n);
    } else {
        c->message = buffer_pool_take(&x->pool);
        if (bytes_add(&c->message, data, n)) {
            bytes_clear(&c->message);
            return PL_ENOMEM;
        }
        place = c->message.data + c->message.begin;
    }
    /* The parsed view pointed into the stream's buffer; it moves with the bytes. */
    c->part.buffer = place + (c->part.buffer - data);
    c->part.group_id = NULL; /* it has been looked at */
    return PL_OK;
}

void allreduce_receive_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                               size_t n)
{
    struct in_peer *in = &x->receiving.peer[peer];
    struct contribution c = { .peer = peer };
    struct part_message first;
    struct slot *s = allreduce_slot(x, in->next);
    const struct pl_part *part;
    int fits;
    /* 1. The first message opens the exchange and names the group; averager_parts.c has
     * compared its ID. */
    if (in->state == IN_AWAITED) {
        in->state = IN_SENDING;
        if (part_message_read(&first, data, n, NULL) || first.code != MSG_PART_FOR_AVERAGING)
            goto refused;
    }
    /* 2. Others follow, one a part, in the order of our parts. */
    if (in->state == IN_COMPLETE && is_open(in)) goto refused; /* more than its parts */
    if (in->state != IN_SENDING) return;
    /* Beyond the window, too: it had no credit for that. */
    if (s->k != in->next || part_message_read(&c.part, data, n, NULL) || !c.part.has_part)
        goto refused;
    /* 3. Its length must be our part's: parts are not labelled, so a peer that cuts
     * otherwise would have its values added to the wrong place. A blank part has one. */
    part = &x->parts[x->reducing.own[s->k]];
    c.is_blank = c.part.elements == 1 && part->length > 1 && c.part.weight == 0 && !x->o.verify;
    fits = c.is_blank || c.part.elements == part->length;
    if (!fits) allreduce_note_mismatch(x, peer, part, &c.part);
    else allreduce_note_differs(x, peer, part, &c.part);
    if (!fits || keep_message(x, &c, s->k, data, n)) goto refused;
    /* Step 1 of one part is done; the slot adds it up when all senders' copies are here. */
    if (!s->arrived) s->first_at = now;
    s->from[s->arrived++] = c;
    x->report.bytes_in += n;
    in->next++;
    /* The duration goes to reliability.h, and determines how long we wait for the others. */
    in->latest = fmax(in->latest, now - in->wait.since);
    x->receiving.slowest = fmax(x->receiving.slowest, now - in->wait.since);
    in->wait.since = now;
    /* 4. After the last part its answers may flow. */
    if (in->next < x->reducing.own_count) return;
    in->state = IN_COMPLETE;
    x->callbacks->credit(x->context, peer,
                         1); /* for its end mark; another part would be one too many */
    send_held(x, peer);
    return;
refused:
    allreduce_drop_sender(x, peer, 1);
}

/* --- time ------------------------------------------------------------------------------------- */

static int is_awaited(const struct allreduce *x, const struct in_peer *in)
{
    /* The window closes for a sender that is ALLREDUCE_WINDOW parts ahead of our oldest open
     * one: it has no credit and waits for us, so its silence is ours. */
    return (in->state == IN_AWAITED || in->state == IN_SENDING) &&
           in->next < x->reducing.own_count && in->next < x->reducing.own_done + ALLREDUCE_WINDOW;
}

/* When a sender is given up. */
static struct allreduce_deadline sender_deadline(const struct allreduce *x, size_t peer)
{
    const struct in_peer *in = &x->receiving.peer[peer];
    const struct slot *s = &x->reducing.slot[in->next % ALLREDUCE_WINDOW];
    struct allreduce_deadline d = { .at = INFINITY };
    size_t others = x->count - 2 - x->report.senders_lost; /* than it and us */
    int is_due;
    if (!is_awaited(x, in)) return d;
    /* Patience counts once at least half of the other senders have sent this very part: then
     * the part is due, and this sender is the one that is late. */
    is_due = s->k == in->next && s->arrived && 2 * s->arrived >= others;
    return allreduce_deadline(x, &in->wait, x->o.sender_timeout, s->first_at,
                              x->o.patience && is_due ? x->o.patience[peer].sender : INFINITY);
}

double allreduce_receive_wake(const struct allreduce *x)
{
    double at = INFINITY;
    for (size_t p = 0; p < x->count; p++) at = fmin(at, sender_deadline(x, p).at);
    return at;
}

void allreduce_receive_tick(struct allreduce *x, double now)
{
    for (size_t p = 0; p < x->count; p++) {
        struct allreduce_deadline d = sender_deadline(x, p);
        struct in_peer *in = &x->receiving.peer[p];
        if (now >= d.at && !allreduce_may_wait(x, now, &in->wait, d, p, ALLREDUCE_IN,
                                               x->reducing.own[in->next], x->o.sender_timeout))
            allreduce_drop_sender(x, p, 1);
    }
}

/* Senders that have used up our window are waiting for us. */
void allreduce_receive_late(struct allreduce *x)
{
    for (size_t p = 0; p < x->count; p++)
        if (is_awaited(x, &x->receiving.peer[p])) allreduce_lose_sender(x, &x->receiving.peer[p]);
}

/* --- begin and end ---------------------------------------------------------------------------- */

int allreduce_receive_open(struct allreduce *x)
{
    if (!(x->receiving.peer = calloc(x->count, sizeof *x->receiving.peer))) return PL_ENOMEM;
    for (size_t p = 0; p < x->count; p++) {
        struct in_peer *in = &x->receiving.peer[p];
        /* Every peer sends to every reducer, auxiliary peers with weight 0, too.
         * [spec hivemind-protocol 5.2] */
        in->state = x->reducing.own_count && p != x->self ? IN_AWAITED : IN_COMPLETE;
        in->wait.since = x->began;
        in->holds = x->o.share[p] == 0;
        if (in->holds && in->state == IN_AWAITED &&
            !(in->held = calloc(x->reducing.own_count, sizeof *in->held)))
            return PL_ENOMEM;
    }
    return PL_OK;
}

void allreduce_receive_close(struct allreduce *x)
{
    for (size_t p = 0; x->receiving.peer && p < x->count; p++) {
        for (size_t i = 0; i < x->receiving.peer[p].held_count; i++)
            bytes_clear(&x->receiving.peer[p].held[i]);
        free(x->receiving.peer[p].held);
    }
    free(x->receiving.peer);
}
