/* averager_share.c - the state that we give to newcomers. [spec hivemind-protocol 7]
 *
 * A peer announces in the DHT that it shares a state, with its epoch as the priority, every 25
 * s. A newcomer opens a stream and is sent the newest snapshot: metadata first, then the
 * tensors, as fast as it reads. Two downloads run at once, others wait in a queue, and a reader
 * that stalls is ended, so that it does not keep its place from those that wait. */
#include "averager_internal.h"
#include "net/hivemind/messages/msgpack.h"

#include <stdlib.h>

#define ANNOUNCE_EVERY 25.0 /* s; the records live for 30 */

/* --- snapshots -------------------------------------------------------------------------------- */

static void drop_snapshot(struct state_snapshot *s)
{
    /* A snapshot is frozen: the trainer goes on with its tensors while newcomers read this
     * copy. It is freed with its last reader. hivemind locks the tensors instead, so
     * downloads and averaging wait for each other. [spec hivemind-protocol 12] */
    if (s && !--s->users) s->release(s);
}

/* --- announcing ------------------------------------------------------------------------------- */

static void on_stored(void *context, int status) { (void)context, (void)status; }

static void announce(void *context)
{
    struct averager *a = context;
    struct bytes value = { 0 };
    /* A float64, as hivemind reads it; nil once, when sharing ends, so that newcomers stop
     * asking. */
    if (a->shared.is_on) mp_float(&value, a->shared.priority);
    else mp_nil(&value);
    if (!value.failed)
        dht_node_store(a->node, &a->names.state_id, bytes_at(&a->names.subkey),
                       bytes_length(&a->names.subkey), bytes_at(&value), bytes_length(&value),
                       averager_now(a) + STATE_PRIORITY_LIFE, on_stored, NULL);
    bytes_clear(&value);
    if (a->shared.is_on)
        timer_start(a->loop, &a->shared.announce_timer, ANNOUNCE_EVERY, announce, a);
}

void averager_share(struct averager *a, struct state_snapshot *s, double priority)
{
    int was = a->shared.is_on, changed = a->shared.priority != priority;
    /* Downloads that are under way keep the snapshot that they began with: a state of two
     * epochs would be none. */
    drop_snapshot(a->shared.snapshot);
    a->shared.snapshot = s;
    if (s) s->users = 1;
    a->shared.priority = priority;
    /* Auxiliary peers have no data of their own, and clients can't be called.
     * [spec hivemind-protocol 7] */
    a->shared.is_on = s && !a->o.client_mode && !a->o.auxiliary;
    /* At once when something changed, else by the timer. */
    if (a->shared.is_on ? !was || changed : was) announce(a);
    if (!a->shared.is_on) timer_stop(&a->shared.announce_timer);
}

/* --- giving ----------------------------------------------------------------------------------- */

static void give_next(struct averager *a);

static void free_giving(struct giving *g)
{
    timer_stop(&g->watch);
    state_source_clear(&g->source);
    drop_snapshot(g->snapshot);
    averager_caller_remove(&g->caller.a->shared.givings, &g->caller);
    free(g);
}

/* The next messages, as many as the connection takes at once. */
static void give(struct giving *g)
{
    struct averager *a = g->caller.a;
    int rc = PL_OK;
    /* One message at a time: the next is encoded when the connection has taken the last, so
     * a slow reader holds one message of ours, not a model. */
    while (!rc && !rpc_queued(g->caller.stream)) {
        struct bytes out = { 0 };
        rc = state_source_next(&g->source, &out, a->o.be, NULL);
        if (!rc) rc = rpc_send(g->caller.stream, bytes_at(&out), bytes_length(&out));
        g->pace.bytes += bytes_length(&out);
        bytes_clear(&out);
    }
    if (!rc) return;
    /* PL_ENOTFOUND: the last tensor has been sent. */
    if (rc == PL_ENOTFOUND) rpc_end(g->caller.stream);
    else rpc_fail(g->caller.stream, "RuntimeError('the state could not be read')");
    free_giving(g);
    give_next(a);
}

static void giving_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context, (void)s, (void)data, (void)n; /* the request is empty */
}
static void giving_drained(void *context, struct rpc_stream *s)
{
    struct giving *g = context;
    (void)s;
    /* The connection has taken the last message: encode the next. */
    if (g->snapshot) give(g);
}
/* A newcomer that has gone frees its place for the one that waits longest. */
static void giving_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct giving *g = context;
    struct averager *a = g->caller.a;
    (void)s, (void)status, (void)why;
    free_giving(g);
    give_next(a);
}

/* Approximate size of all messages of the state; the download's time limit follows from it. */
static size_t snapshot_bytes(const struct state_snapshot *s)
{
    size_t all = s->metadata_n, n;
    for (size_t i = 0; i < s->count; i++)
        if (!pl_wire_bytes(&n, s->tensors[i].method, &s->tensors[i].type, NULL)) all += n;
    return all;
}

/* A reader that has stalled would keep its place from those who wait. */
static void watch_giving(void *context)
{
    struct giving *g = context;
    struct averager *a = g->caller.a;
    /* The same limits as a newcomer has for its donor (averager_download.c), seen from the other
     * end. */
    if (!averager_pace_check(&g->pace, loop_now(a->loop), snapshot_bytes(g->snapshot), NULL)) {
        timer_start(a->loop, &g->watch, STATE_RATE_WINDOW, watch_giving, g);
        return;
    }
    rpc_fail(g->caller.stream, "TimeoutError('the state is read too slowly')");
    free_giving(g);
    give_next(a);
}

static void begin_giving(struct giving *g)
{
    struct state_snapshot *s = g->caller.a->shared.snapshot;
    g->snapshot = s;
    /* Shared by all downloads of this snapshot: memory holds one copy of the model, not one
     * a newcomer. */
    s->users++;
    g->source = (struct state_source){ .metadata = s->metadata,
                                       .metadata_n = s->metadata_n,
                                       .tensors = s->tensors,
                                       .count = s->count };
    averager_pace_begin(&g->pace, loop_now(g->caller.a->loop));
    timer_start(g->caller.a->loop, &g->watch, STATE_RATE_WINDOW, watch_giving, g);
    give(g);
}

/* The one that has waited longest: the list has the newest first. */
static void give_next(struct averager *a)
{
    struct giving *first = NULL;
    size_t running = 0;
    for (struct caller *c = a->shared.givings.first; c; c = c->next) {
        /* Only those that were admitted wait in the queue; a token that is being asked for
         * may never come. */
        struct giving *g = (struct giving *)c;
        if (g->snapshot) running++;
        else if (!c->proof) first = g;
    }
    if (first && a->shared.snapshot && running < AVERAGER_DOWNLOADS_MAX) begin_giving(first);
}

/* In a moderated run parameters go to members alone. */
static void on_giving_admitted(void *context, int status)
{
    struct giving *g = context;
    struct averager *a = g->caller.a;
    g->caller.proof = NULL;
    rpc_credit(g->caller.stream, RPC_ALWAYS);
    if (status) {
        averager_caller_refuse(&g->caller);
        free_giving(g);
    }
    give_next(a);
}

static void on_giving(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { giving_message, NULL, giving_failed,
                                                     giving_drained };
    struct averager *a = context;
    struct giving *g;
    size_t own = 0;
    for (struct caller *c = a->shared.givings.first; c; c = c->next)
        /* The queue has 64 places, and one peer two of them: newcomers can't keep each other
         * out. */
        own += peer_id_equal(rpc_peer(c->stream), rpc_peer(s));
    if (!a->shared.is_on || own == AVERAGER_QUEUE_PEER ||
        a->shared.givings.count == AVERAGER_QUEUE_MAX || !(g = calloc(1, sizeof *g))) {
        rpc_end(s); /* closed without a message: this peer shares no state now */
        rpc_close(s);
        return;
    }
    averager_caller_add(&a->shared.givings, &g->caller, a, s, &events);
    if (!averager_caller_admit(&g->caller, on_giving_admitted)) free_giving(g);
    give_next(a);
}

/* --- life ------------------------------------------------------------------------------------- */

int averager_state_open(struct averager *a, struct pl_err *err)
{
    /* A client can't be called, and so can't be a donor. */
    if (a->o.client_mode) return PL_OK;
    if (rpc_serve_stream(a->host, a->names.rpc[AVERAGER_DOWNLOAD], JOIN_MESSAGE_MAX, on_giving, a))
        return pl_fail(err, PL_EUSE, "averaging: %s is already served",
                       a->names.rpc[AVERAGER_DOWNLOAD]);
    if (!averager_witness_open(a, err)) return PL_OK;
    rpc_unserve(a->host, a->names.rpc[AVERAGER_DOWNLOAD]);
    return PL_EUSE;
}

void averager_state_close(struct averager *a)
{
    /* The nil announcement tells newcomers at once; the record would live for 30 s
     * otherwise. */
    averager_share(a, NULL, a->shared.priority);
    if (!a->o.client_mode) {
        rpc_unserve(a->host, a->names.rpc[AVERAGER_DOWNLOAD]);
        averager_witness_close(a);
    }
    while (a->shared.givings.first) free_giving((struct giving *)a->shared.givings.first);
    averager_load_close(a);
}
