/* averager_parts.c - streams on which groupmates send us parts to reduce.
 *
 *   stream opens ---admitted---> first part: of the running round? ---yes---> attached to a place
 *                                    |
 *                                    +--our round has not begun: parked, up to 64 MiB in all
 *                                    +--of another group, or we are in none: BAD_GROUP_ID
 *
 * Groupmates that are faster send before our own round has begun; hivemind's peers do so, too. */
#include "averager_internal.h"
#include "net/hivemind/messages/part_message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct averager *averager_of(const struct part_stream *p) { return p->caller.list->owner; }

void averager_part_free(struct part_stream *p)
{
    struct averager *a = averager_of(p);
    /* The place in the round is empty again: the engine's callbacks then find no stream to
     * send on. */
    if (p->state == PART_STREAM_ATTACHED && a->round.in) a->round.in[p->place] = NULL;
    a->parts.parked_bytes -= p->first_n;
    free(p->first);
    caller_remove(&p->caller);
    free(p);
}

static void refuse(struct part_stream *p, enum averaging_code code)
{
    struct bytes out = { 0 };
    if (!part_message_code(&out, code))
        rpc_send(p->caller.stream, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
    /* A message with only a code, then the end: the sender counts a refusal, not a loss. */
    rpc_end(p->caller.stream);
    averager_part_free(p);
}

void averager_part_evict(struct caller *part)
{
    refuse((struct part_stream *)part, MSG_INTERNAL_ERROR);
}

/* A first part names its group. [spec hivemind-protocol 5] */
static void attach(struct part_stream *p, const uint8_t *data, size_t n)
{
    struct averager *a = averager_of(p);
    struct part_message m;
    uint8_t name[DHT_ID_BYTES + ALLREDUCE_PHASE_MAX];
    /* Bytes first, then the sender: its ID is the stream's, so it can only take its own
     * place. */
    int place = group_find(&a->round.group, rpc_peer(p->caller.stream));
    const size_t name_n = allreduce_name(name, &a->round.group, a->round.phase.name);
    if (part_message_read(&m, data, n, NULL) || m.group_id_n != name_n ||
        memcmp(m.group_id, name, name_n)) {
        refuse(p, MSG_BAD_GROUP_ID);
    } else if (place < 0) {
        /* hivemind answers a stranger with an error of the call instead of a message. */
        rpc_fail(p->caller.stream, "ValueError('not a member of this group')");
        averager_part_free(p);
    } else if (!allreduce_awaits(a->round.x, (size_t)place) || a->round.in[place]) {
        /* One stream a sender and round: a second one could only overwrite the first one's. */
        refuse(p, MSG_INTERNAL_ERROR);
    } else {
        p->state = PART_STREAM_ATTACHED;
        p->caller.is_served = 1;
        p->place = (size_t)place;
        a->round.in[place] = p;
        /* The first part has used one of the window's credits already. */
        rpc_credit(p->caller.stream, ALLREDUCE_WINDOW - 1);
        allreduce_message(a->round.x, loop_now(a->loop), p->place, ALLREDUCE_IN, data, n);
        averager_drive(a);
    }
}

/* Faster groupmates wait until we have our trigger. */
static void park(struct part_stream *p, const uint8_t *data, size_t n)
{
    struct averager *a = averager_of(p);
    /* The limit is for all senders together: 128 first parts of half a megabyte. Groupmates come
     * before others, and of these the network that has the most loses the newest. */
    p->caller.is_served = 1;
    while (a->parts.parked_bytes + n > AVERAGER_PARKED_MAX &&
           caller_make_place(&a->parts.all, rpc_peer(p->caller.stream))) {}
    p->caller.is_served = 0;
    if (a->parts.parked_bytes + n > AVERAGER_PARKED_MAX || !(p->first = malloc(n + 1))) {
        refuse(p, MSG_INTERNAL_ERROR);
        return;
    }
    memcpy(p->first, data, n);
    p->first_n = n;
    p->state = PART_STREAM_PARKED;
    a->parts.parked_bytes += n;
}

/* A faster groupmate has begun the next phase of the present round. */
static int is_later(const struct averager *a, const uint8_t *data, size_t n)
{
    uint8_t name[DHT_ID_BYTES + ALLREDUCE_PHASE_MAX];
    struct part_message m;
    return a->round.phase.later && !part_message_read(&m, data, n, NULL) && m.group_id &&
           m.group_id_n == allreduce_name(name, &a->round.group, a->round.phase.later) &&
           !memcmp(m.group_id, name, m.group_id_n);
}

/* The part may be of a group that we are in, or will be. */
static int may_be_ours(const struct averager *a, const uint8_t *data, size_t n)
{
    struct part_message m;
    return !part_message_read(&m, data, n, NULL) && m.group_id_n >= DHT_ID_BYTES &&
           !averager_has_left(a, m.group_id);
}

static void part_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct part_stream *p = context;
    struct averager *a = averager_of(p);
    if (p->state == PART_STREAM_ATTACHED) {
        allreduce_message(a->round.x, loop_now(a->loop), p->place, ALLREDUCE_IN, data, n);
        averager_drive(a);
        return;
    }
    /* It has sent something in time; from here the round's own limits hold, or, while it is
     * parked, ours: we are the one that is late. */
    rpc_deadline(p->caller.stream, 0);
    if (a->call.phase == AVERAGER_REDUCING && !is_later(a, data, n)) attach(p, data, n);
    /* The group ID can't be judged yet: BEGIN_ALLREDUCE may be about to arrive. hivemind's peers
     * wait in the same place. [spec hivemind-protocol 5.4] */
    else if (may_be_ours(a, data, n)) park(p, data, n);
    else refuse(p, MSG_BAD_GROUP_ID);
}

/* After its last part a sender ends its side; the answers still flow on the other. */
static void part_end(void *context, struct rpc_stream *s)
{
    struct part_stream *p = context;
    struct averager *a = averager_of(p);
    if (p->state != PART_STREAM_ATTACHED) return;
    allreduce_ended(a->round.x, loop_now(a->loop), p->place, ALLREDUCE_IN);
    averager_drive(a);
}

/* A connection that breaks takes the sender's remaining parts with it. An unattached stream
 * leaves no trace: no round knows of it yet. */
static void part_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct part_stream *p = context;
    struct averager *a = averager_of(p);
    if (p->state != PART_STREAM_ATTACHED) {
        averager_part_free(p);
        return;
    }
    allreduce_failed(a->round.x, loop_now(a->loop), p->place, ALLREDUCE_IN, why);
    averager_drive(a);
}

/* Time limit of the first part. A groupmate has as long as for any other part: over a slow uplink
 * that it shares with parts for others, half a megabyte takes long. */
static void limit_first_part(struct part_stream *p)
{
    const struct averager *a = averager_of(p);
    /* A caller that is not in our group has ten seconds for one message; losing it costs us
     * nothing. */
    double limit = AVERAGER_FIRST_MESSAGE;
    if (group_find(&a->round.group, rpc_peer(p->caller.stream)) >= 0)
        limit = fmax(limit, a->o.sender_timeout);
    rpc_deadline(p->caller.stream, limit);
}

static void on_part_admitted(void *context, int status)
{
    struct part_stream *p = context;
    p->caller.proof = NULL;
    if (!status) {
        /* One message: the first part. More credit comes with a place in the round. */
        rpc_credit(p->caller.stream, 1);
        return;
    }
    caller_refuse(&p->caller);
    averager_part_free(p);
}

void averager_on_part_stream(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { part_message, part_end, part_failed, NULL };
    struct averager *a = context;
    struct part_stream *p = caller_has_place(&a->parts.all, rpc_peer(s)) ? calloc(1, sizeof *p)
                                                                         : NULL;
    if (!p) {
        rpc_close(s);
        return;
    }
    caller_add(&a->parts.all, &p->caller, s, &events);
    limit_first_part(p);
    /* Nothing is read before it is known whether the caller is a member, and then one part. */
    rpc_pause(s);
    if (!caller_admit(&p->caller, on_part_admitted)) averager_part_free(p);
    else if (!p->caller.proof) rpc_credit(s, 1);
}

/* The round has begun. A stream without a first part yet may be of a group that was not known here
 * when the stream began: its limit is set anew. */
void averager_attach_parked(struct averager *a)
{
    for (struct caller *c = a->parts.all.first, *next; c; c = next) {
        struct part_stream *p = (struct part_stream *)c;
        next = c->next;
        if (p->state == PART_STREAM_NEW) limit_first_part(p);
        if (p->state != PART_STREAM_PARKED || is_later(a, p->first, p->first_n)) continue;
        /* Taken out of the stream first: attaching may refuse it and free the stream. */
        uint8_t *first = p->first;
        size_t n = p->first_n;
        a->parts.parked_bytes -= n;
        p->first = NULL;
        p->first_n = 0;
        attach(p, first, n);
        free(first);
    }
}

void averager_refuse_parked(struct averager *a)
{
    for (struct caller *c = a->parts.all.first, *next; c; c = next) {
        struct part_stream *p = (struct part_stream *)c;
        next = c->next;
        /* The step is over, so these streams belong to no group of ours. */
        if (p->state == PART_STREAM_PARKED) refuse(p, MSG_BAD_GROUP_ID);
    }
}
