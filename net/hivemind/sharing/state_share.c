/* state_share.c - the state that we give to newcomers. [spec hivemind-protocol 7]
 *
 * A peer announces in the DHT that it shares a state, with its epoch as the priority, every 25
 * s. A newcomer opens a stream and is sent the newest snapshot: metadata first, then the
 * tensors, as fast as it reads. Two downloads run at once, others wait in a queue, and a reader
 * that stalls is ended, so that it does not keep its place from those that wait. */
#include "state_share.h"
#include "net/hivemind/messages/msgpack.h"
#include "state_pace.h"
#include "state_witness.h"

#include <stdlib.h>
#include <string.h>

#define ANNOUNCE_EVERY 25.0     /* s; the records live for 30 */
#define REQUEST_MAX (16u << 10) /* bytes of a request: it has no fields */

/* A newcomer that is being given our state, or waits. */
struct upload {
    struct caller caller;            /* first */
    struct state_snapshot *snapshot; /* NULL: waits */
    struct state_source source;
    struct state_pace pace;
    struct timer watch;
};

static struct state_share *share_of(const struct upload *g) { return g->caller.list->owner; }

/* Auxiliary peers have no data of their own, and clients can't be called.
 * [spec hivemind-protocol 7] */
static int is_sharing(const struct state_share *s)
{
    return s->snapshot && !s->peer->client_mode && !s->peer->auxiliary;
}

/* --- snapshots -------------------------------------------------------------------------------- */

struct state_snapshot *state_snapshot_new(size_t capacity)
{
    struct state_snapshot *s = calloc(1, sizeof *s);
    if (s && (s->tensors = calloc(capacity + 1, sizeof *s->tensors))) return s;
    free(s);
    return NULL;
}

/* count grows with each tensor, so that exactly those that were made are freed. */
void *state_snapshot_add(struct state_snapshot *s, const struct pl_wire_type *type)
{
    size_t n;
    void *data = pl_wire_elements(&n, type, NULL) ? NULL
                                                  : pl_alloc_unset(n, pl_dtype_size(type->dtype));
    if (data) s->tensors[s->count++] = (struct state_tensor){ *type, PL_COMPRESS_NONE, data };
    return data;
}

int state_snapshot_describe(struct state_snapshot *s, const struct bytes *metadata)
{
    s->metadata_n = bytes_length(metadata);
    if (metadata->failed || !(s->metadata = malloc(s->metadata_n + 1))) return PL_ENOMEM;
    memcpy(s->metadata, bytes_at(metadata), s->metadata_n);
    return PL_OK;
}

void state_snapshot_free(struct state_snapshot *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->count; i++) pl_free((void *)(uintptr_t)s->tensors[i].data);
    free(s->tensors);
    free(s->metadata);
    free(s);
}

static void drop_snapshot(struct state_snapshot *s)
{
    /* A snapshot is frozen: the trainer goes on with its tensors while newcomers read this
     * copy. It is freed with its last reader. hivemind locks the tensors instead, so
     * downloads and averaging wait for each other. [spec hivemind-protocol 12] */
    if (s && !--s->users) state_snapshot_free(s);
}

/* --- announcing ------------------------------------------------------------------------------- */

static void announce(void *context)
{
    struct state_share *s = context;
    const struct state_peer *p = s->peer;
    struct bytes value = { 0 };
    /* A float64, as hivemind reads it; nil once, when sharing ends, so that newcomers stop
     * asking. */
    if (is_sharing(s)) mp_float(&value, s->priority);
    else mp_nil(&value);
    if (!value.failed)
        dht_node_store(p->node, &p->id, bytes_at(&p->subkey), bytes_length(&p->subkey),
                       bytes_at(&value), bytes_length(&value),
                       dht_node_time(p->node) + STATE_PRIORITY_LIFE, NULL, NULL);
    bytes_clear(&value);
    if (is_sharing(s)) timer_start(p->loop, &s->announce_timer, ANNOUNCE_EVERY, announce, s);
}

void state_share_set(struct state_share *s, struct state_snapshot *snapshot, double priority)
{
    int was = is_sharing(s), changed = s->priority != priority;
    /* Downloads that are under way keep the snapshot that they began with: a state of two
     * epochs would be none. */
    drop_snapshot(s->snapshot);
    s->snapshot = snapshot;
    if (snapshot) snapshot->users = 1;
    s->priority = priority;
    /* At once after a change, otherwise by the timer. */
    if (is_sharing(s) ? !was || changed : was) announce(s);
    if (!is_sharing(s)) timer_stop(&s->announce_timer);
}

/* --- uploads ---------------------------------------------------------------------------------- */

static void give_next(struct state_share *s);

double state_share_seconds(const struct state_share *s)
{
    return s->seconds + (s->running ? loop_now(s->peer->loop) - s->since : 0);
}

static void free_upload(struct upload *g)
{
    struct state_share *s = share_of(g);
    if (g->snapshot) {
        s->seconds = state_share_seconds(s);
        s->since = loop_now(s->peer->loop);
        s->running--;
    }
    timer_stop(&g->watch);
    state_source_clear(&g->source);
    drop_snapshot(g->snapshot);
    caller_remove(&g->caller);
    free(g);
}

/* The next messages, as many as the connection takes at once. */
static void give(struct upload *g)
{
    struct state_share *s = share_of(g);
    int rc = PL_OK;
    /* One message at a time: the next is encoded when the connection has taken the last, so
     * a slow reader holds one message of ours, not a model. */
    while (!rc && !rpc_queued(g->caller.stream)) {
        struct bytes out = { 0 };
        rc = state_source_next(&g->source, &out, s->peer->be, NULL);
        if (!rc) rc = rpc_send(g->caller.stream, bytes_at(&out), bytes_length(&out));
        g->pace.bytes += bytes_length(&out);
        bytes_clear(&out);
    }
    if (!rc) return;
    /* PL_ENOTFOUND: the last tensor has been sent. */
    if (rc == PL_ENOTFOUND) rpc_end(g->caller.stream);
    else rpc_fail(g->caller.stream, "RuntimeError('the state could not be read')");
    free_upload(g);
    give_next(s);
}

static void upload_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context, (void)s, (void)data, (void)n; /* the request is empty */
}
static void upload_drained(void *context, struct rpc_stream *s)
{
    struct upload *g = context;
    /* The connection has taken the last message: encode the next. */
    if (g->snapshot) give(g);
}
/* A newcomer that has gone frees its place for the one that waits longest. */
static void upload_failed(void *context, struct rpc_stream *stream, int status, const char *why)
{
    struct upload *g = context;
    struct state_share *s = share_of(g);
    free_upload(g);
    give_next(s);
}

/* Approximate size of all messages of the state; the download's time limit follows from it. */
static size_t snapshot_bytes(const struct state_snapshot *s)
{
    size_t all = s->metadata_n, n;
    for (size_t i = 0; i < s->count; i++)
        if (!pl_wire_bytes(&n, s->tensors[i].method, &s->tensors[i].type, NULL)) all += n;
    return all;
}

/* A stalled reader would occupy a place that others wait for. */
static void watch_upload(void *context)
{
    struct upload *g = context;
    struct state_share *s = share_of(g);
    /* The same limits as a newcomer has for its donor (state_download.c), seen from the other
     * end. */
    if (!state_pace_check(&g->pace, loop_now(s->peer->loop), snapshot_bytes(g->snapshot), NULL)) {
        timer_start(s->peer->loop, &g->watch, STATE_RATE_WINDOW, watch_upload, g);
        return;
    }
    rpc_fail(g->caller.stream, "TimeoutError('the state is read too slowly')");
    free_upload(g);
    give_next(s);
}

static void begin_upload(struct upload *g)
{
    struct state_share *s = share_of(g);
    struct state_snapshot *snapshot = s->snapshot;
    g->snapshot = snapshot;
    g->caller.is_served = 1;
    if (!s->running++) s->since = loop_now(s->peer->loop);
    /* Shared by all downloads of this snapshot: memory holds one copy of the model, not one
     * a newcomer. */
    snapshot->users++;
    g->source = (struct state_source){ .metadata = snapshot->metadata,
                                       .metadata_n = snapshot->metadata_n,
                                       .tensors = snapshot->tensors,
                                       .count = snapshot->count };
    state_pace_begin(&g->pace, loop_now(s->peer->loop));
    timer_start(s->peer->loop, &g->watch, STATE_RATE_WINDOW, watch_upload, g);
    give(g);
}

/* How many downloads of a subnet are running. */
static size_t count_running(const struct state_share *s, uint64_t subnet)
{
    size_t n = 0;
    for (const struct caller *c = s->uploads.first; c; c = c->next)
        n += c->is_served && c->subnet == subnet;
    return n;
}

/* The one that has waited longest, of the subnets with the fewest downloads: the list has the
 * newest first. One subnet cannot keep the others waiting: each has a download besides the usual
 * number. */
static void give_next(struct state_share *s)
{
    struct upload *first = NULL;
    size_t fewest = SIZE_MAX;
    for (struct caller *c = s->uploads.first; c; c = c->next) {
        /* Only those that were admitted wait in the queue; a token that is being asked for
         * may never come. */
        struct upload *g = (struct upload *)c;
        size_t n = count_running(s, c->subnet);
        if (g->snapshot || c->proof || n > fewest) continue;
        first = g;
        fewest = n;
    }
    if (first && s->snapshot && s->running < (fewest ? STATE_DOWNLOADS_MAX : STATE_SUBNETS_MAX))
        begin_upload(first);
}

static void evict(struct caller *c)
{
    rpc_fail(c->stream, "RuntimeError('too many of this network wait for the state')");
    free_upload((struct upload *)c);
}

/* In a moderated run parameters go to members alone. */
static void on_upload_admitted(void *context, int status)
{
    struct upload *g = context;
    struct state_share *s = share_of(g);
    g->caller.proof = NULL;
    rpc_credit(g->caller.stream, RPC_ALWAYS);
    if (status) {
        caller_refuse(&g->caller);
        free_upload(g);
    }
    give_next(s);
}

static void on_upload(void *context, struct rpc_stream *stream)
{
    static const struct rpc_stream_events events = { upload_message, NULL, upload_failed,
                                                     upload_drained };
    struct state_share *s = context;
    struct upload *g;
    if (!is_sharing(s) || !caller_has_place(&s->uploads, rpc_peer(stream)) ||
        !(g = calloc(1, sizeof *g))) {
        rpc_end(stream); /* closed without a message: this peer shares no state now */
        rpc_close(stream);
        return;
    }
    caller_add(&s->uploads, &g->caller, stream, &events);
    if (!caller_admit(&g->caller, on_upload_admitted)) free_upload(g);
    give_next(s);
}

/* --- samples for newcomers that confirm another donor's state --------------------------------- */

/* Limits the answers per second, in total and for each peer. */
static int is_too_soon(struct state_share *s, const struct peer_id *peer)
{
    double now = loop_now(s->peer->loop);
    size_t all = 0, own = 0;
    /* A ring of the last answers: it is full for a second exactly if that many were given
     * within it. */
    for (size_t i = 0; i < STATE_ANSWERS_A_SECOND; i++)
        if (s->answered[i].peer.length && now - s->answered[i].at < 1) {
            all++;
            own += peer_id_equal(&s->answered[i].peer, peer);
        }
    /* Both limits: one peer can't take all answers, and many together can't take the CPU. */
    if (all == STATE_ANSWERS_A_SECOND || own >= STATE_ANSWERS_A_PEER) return 1;
    /* Refused requests are not entered: asking too often does not make the pause longer. */
    s->answered[s->answered_next].peer = *peer;
    s->answered[s->answered_next].at = now;
    s->answered_next = (s->answered_next + 1) % STATE_ANSWERS_A_SECOND;
    return 0;
}

static int has_parameters(const struct state_share *s)
{
    /* Samples are of the averaged tensors, with which a state begins; a snapshot of others
     * has none. */
    const struct state_snapshot *snapshot = s->snapshot;
    if (snapshot->count < s->peer->tensors) return 0;
    for (size_t t = 0; t < s->peer->tensors; t++) {
        const struct pl_wire_type *type = &snapshot->tensors[t].type;
        size_t n;
        if (type->dtype != PL_F32 || pl_wire_elements(&n, type, NULL) || n != s->peer->elements[t])
            return 0;
    }
    return 1;
}

static void on_samples(void *context, struct rpc_call *call, const uint8_t *seed, size_t n)
{
    struct state_share *s = context;
    const struct peer_id *caller = rpc_caller(call);
    struct bytes answer = { 0 };
    /* The seed is the caller's, so a donor can't know which values will be compared before
     * it gives its state. One refusal for all reasons: the newcomer asks another donor, whatever
     * this one's reason is. The priority is the epoch of the snapshot: states of other epochs
     * differ honestly. */
    if (!dht_node_admits(s->peer->node, caller) || !is_sharing(s) || !has_parameters(s) ||
        n != STATE_SEED || is_too_soon(s, caller) ||
        state_answer_write(&answer, s->peer, s->snapshot->tensors, (uint64_t)s->priority, seed))
        rpc_reply_error(call, "ValueError('no samples of our state now')");
    else rpc_reply(call, bytes_at(&answer), bytes_length(&answer));
    bytes_clear(&answer);
}

/* --- life ------------------------------------------------------------------------------------- */

int state_share_open(struct state_share *s, const struct state_peer *p, struct pl_err *err)
{
    const char *served = p->download;
    s->peer = p;
    s->uploads = (struct caller_list){ .node = p->node,
                                       .owner = s,
                                       .max = STATE_QUEUE_MAX,
                                       .peer_max = STATE_QUEUE_PEER,
                                       .evict = evict };
    /* A client can't be called, and so can't be a donor. */
    if (p->client_mode) return PL_OK;
    if (!rpc_serve_stream(p->host, p->download, REQUEST_MAX, on_upload, s)) {
        served = p->samples;
        if (!rpc_serve_unary(p->host, p->samples, on_samples, s)) return PL_OK;
        rpc_unserve(p->host, p->download);
    }
    return pl_fail(err, PL_EUSE, "averaging: %s is already served", served);
}

void state_share_close(struct state_share *s)
{
    /* The nil announcement tells newcomers at once; the record would live for 30 s
     * otherwise. */
    state_share_set(s, NULL, s->priority);
    if (!s->peer->client_mode) {
        rpc_unserve(s->peer->host, s->peer->download);
        rpc_unserve(s->peer->host, s->peer->samples);
    }
    while (s->uploads.first) free_upload((struct upload *)s->uploads.first);
}
