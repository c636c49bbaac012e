/* averager_round.c - one all-reduce over the network: the engine's callbacks (allreduce.h) as
 * streams, timers and helper threads, and the effect of each groupmate's outcome on its
 * reliability.
 *
 * Streams go from senders to reducers: ours to each groupmate that reduces are opened here, and
 * theirs to us arrive in averager_parts.c. Answers travel back on the same streams. */
#include "averager_internal.h"
#include "net/hivemind/matchmaking/uplinks.h"

#include <math.h>
#include <stdlib.h>

/* Durations are measured by the loop's clock, which never jumps; only expirations are DHT
 * times. */
static double now_of(const struct averager *a) { return loop_now(a->loop); }

#define FIRST_WINDOWS 4 /* that the values fill: then even a client measures its uplink */

/* --- our streams to reducers ------------------------------------------------------------------ */

/* Each event goes to the engine; then averager_drive sets the timer by which the engine must be
 * called. */
static void out_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct out_stream *out = context;
    struct averager *a = out->a;
    allreduce_message(a->round.x, now_of(a), out->place, ALLREDUCE_OUT, data, n);
    averager_drive(a);
}

/* A reducer ends after its last answer; before that, it has left the round. */
static void out_end(void *context, struct rpc_stream *s)
{
    struct out_stream *out = context;
    struct averager *a = out->a;
    out->state = OUT_STREAM_OPEN; /* nothing more will come: no use in lingering */
    allreduce_ended(a->round.x, now_of(a), out->place, ALLREDUCE_OUT);
    averager_drive(a);
}

static void out_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct out_stream *out = context;
    struct averager *a = out->a;
    out->state = OUT_STREAM_OPEN;
    allreduce_failed(a->round.x, now_of(a), out->place, ALLREDUCE_OUT, why);
    averager_drive(a);
}

static void out_drained(void *context, struct rpc_stream *s)
{
    struct out_stream *out = context;
    struct averager *a = out->a;
    /* The connection has taken all bytes: the next part may go. */
    allreduce_drained(a->round.x, now_of(a), out->place);
    averager_drive(a);
}

/* The longest message that anybody can send honestly: any part, uncompressed. */
static size_t message_max(const struct averager *a)
{
    size_t values = 0;
    for (size_t t = 0; t < a->o.tensors; t++) {
        /* The limit of a message is the memory that a groupmate can make us spend on one:
         * our longest part as float32, with the tables of any compression. */
        size_t n = pl_part_values(a->tensors.method[t], a->o.part_bytes);
        /* A part ends with its tensor. */
        if (n > a->tensors.elements[t]) n = a->tensors.elements[t];
        if (n > values) values = n;
    }
    /* No message is longer than libp2p's calls allow, whatever --part-bytes says. */
    values = ALLREDUCE_HEADERS + (PL_CODES + values) * sizeof(float);
    return values < RPC_MESSAGE_MAX ? values : RPC_MESSAGE_MAX;
}

static void on_open(void *context, size_t peer)
{
    static const struct rpc_stream_events events = { out_message, out_end, out_failed,
                                                     out_drained };
    struct averager *a = context;
    struct out_stream *out = &a->round.out[peer];
    double limit = a->o.sender_timeout > 0 ? a->o.sender_timeout : AVERAGER_FIRST_MESSAGE;
    /* In a moderated run no values go to a peer without a token, even if the leader has let
     * it in. */
    if (dht_node_admits(a->node, &a->round.group.members[peer].peer))
        out->stream = rpc_open(a->host, &a->round.group.members[peer].peer,
                               a->names.rpc[AVERAGER_AGGREGATE], message_max(a), limit, &events,
                               out);
    /* The timer reports a stream that could not be opened: the engine has called us, and must not
     * be called back. */
    out->state = out->stream ? OUT_STREAM_OPEN : OUT_STREAM_DEAD;
}

/* --- the callbacks ---------------------------------------------------------------------------- */

static struct rpc_stream *stream_of(const struct averager *a, size_t peer, enum allreduce_way way)
{
    /* A pair of peers that both reduce has two streams, one opened by each: answers travel
     * on the stream on which the part came. */
    if (way == ALLREDUCE_OUT) return a->round.out[peer].stream;
    return a->round.in[peer] ? a->round.in[peer]->caller.stream : NULL;
}

static void on_give(void *context, size_t peer, enum allreduce_way way, struct bytes *data)
{
    struct averager *a = context;
    struct rpc_stream *s = stream_of(a, peer, way);
    /* How long it is, so that moved() can tell how much of it has left. */
    if (way == ALLREDUCE_OUT) a->round.out[peer].sent_n = bytes_length(data);
    /* The message becomes the stream's own buffer: half a megabyte is not copied. */
    if (s) a->round.given += (double)bytes_length(data);
    if (s) rpc_give(s, data);
}

/* Bytes that the connection has not taken yet: TCP's window and yamux' are full, so the
 * reducer or the link is slower than we are. */
static int is_busy(void *context, size_t peer)
{
    struct rpc_stream *s = stream_of(context, peer, ALLREDUCE_OUT);
    return s && rpc_queued(s) > 0;
}

/* A sender's first part comes on a stream that has no place in the group yet. */
static struct rpc_stream *stream_from(const struct averager *a, size_t peer)
{
    const struct peer_id *id = &a->round.group.members[peer].peer;
    for (struct caller *c = a->parts.all.first; c; c = c->next)
        if (peer_id_equal(rpc_peer(c->stream), id)) return c->stream;
    return NULL;
}

static size_t moved(void *context, size_t peer, enum allreduce_way way)
{
    const struct averager *a = context;
    struct rpc_stream *s = stream_of(a, peer, way);
    /* For a message of ours: its length less the bytes still queued. For an incoming one: the bytes
     * that have arrived so far. */
    size_t queued = s && way == ALLREDUCE_OUT ? rpc_queued(s) : 0;
    if (!s && way == ALLREDUCE_IN) s = stream_from(a, peer);
    if (!s) return 0;
    /* Nothing of ours is on its way, so it is an answer's bytes that count. */
    if (!queued) return rpc_unread(s);
    return queued < a->round.out[peer].sent_n ? a->round.out[peer].sent_n - queued : 0;
}

static void on_finish(void *context, size_t peer, enum allreduce_way way)
{
    struct averager *a = context;
    struct rpc_stream *s = stream_of(a, peer, way);
    if (s) rpc_end(s);
    if (way == ALLREDUCE_OUT && s) a->round.out[peer].state = OUT_STREAM_FINISHED;
}

static void linger_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n) {}
static void linger_end(void *context, struct rpc_stream *s) { rpc_close(s); }
static void linger_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    rpc_close(s);
}

/* Ends a stream that we are done with but that the other side has still to end. */
static void linger(struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { linger_message, linger_end, linger_failed,
                                                     NULL };
    rpc_listen(s, &events, NULL);
    /* A stream that is closed at once could lose its last answer on the way; one that is
     * never ended by the other side is closed by the deadline. */
    rpc_deadline(s, AVERAGER_LINGER);
}

static void on_close(void *context, size_t peer, enum allreduce_way way)
{
    struct averager *a = context;
    struct out_stream *out = &a->round.out[peer];
    if (way == ALLREDUCE_IN) {
        if (a->round.in[peer]) averager_part_free(a->round.in[peer]);
        return;
    }
    /* Everything was sent and answered: the other side's end mark is still to come. */
    if (out->state == OUT_STREAM_FINISHED) linger(out->stream);
    else rpc_close(out->stream);
    out->stream = NULL;
    out->state = OUT_STREAM_CLOSED;
}

static void on_credit(void *context, size_t peer, size_t messages)
{
    struct rpc_stream *s = stream_of(context, peer, ALLREDUCE_IN);
    /* Credit is this averager's flow control on top of libp2p's: in messages, so that the
     * engine decides how many parts a sender may be ahead. */
    if (s) rpc_credit(s, messages);
}

/* On a helper thread of the loop: compression, sums, CenteredClip, verification. */
static void run_job(void *context)
{
    struct allreduce_job *job = context;
    job->run(job);
}

static void job_done(void *context)
{
    struct allreduce_job *job = context;
    struct averager *a = job->owner;
    /* Back on the loop's thread: from here the job's memory is the engine's again. */
    allreduce_done(a->round.x, now_of(a), job);
    averager_drive(a);
}

static void on_work(void *context, struct allreduce_job *job)
{
    struct averager *a = context;
    job->owner = a;
    if (!loop_work(a->loop, run_job, job_done, job)) return;
    /* Without memory for a helper thread's request the round does not fail: the loop's thread does
     * the work here, and the timer reports it to the engine. */
    job->run(job);
    job->next = a->round.done_here;
    a->round.done_here = job;
}

/* Called from inside the engine, so it only notes the end; on_turn frees the round. */
static void on_over(void *context, int status, const struct pl_err *err)
{
    struct averager *a = context;
    a->call.phase = AVERAGER_REDUCED;
    a->round.status = status;
    if (status) a->call.why = *err;
    averager_turn(a);
}

static const struct allreduce_callbacks callbacks = { on_open,   NULL,     is_busy,
                                                      on_finish, on_close, on_credit,
                                                      on_work,   on_over,  averager_verify_send,
                                                      on_give,   moved };

/* --- reliability ------------------------------------------------------------------------------ */

/* A reducer waits for the slowest sender before it answers. A proven reducer may take as long as
 * any sender's timeout: it sees other failures than we do. */
static void set_patience(struct averager *a)
{
    double slowest = 0;
    for (size_t i = 0; i < a->round.group.count; i++) {
        /* The timeout follows the peer's earlier rounds: the slower it was, the longer we wait. */
        a->round.patience[i].sender = reliability_silence(a->reliability,
                                                          &a->round.group.members[i].peer,
                                                          a->o.sender_timeout);
        /* The slowest sender's patience bounds how long any reducer can honestly wait before
         * it answers; twice that covers the answer itself. */
        slowest = fmax(slowest, a->round.patience[i].sender);
    }
    for (size_t i = 0; i < a->round.group.count; i++)
        a->round.patience[i].reducer = reliability_is_proven(a->reliability,
                                                             &a->round.group.members[i].peer)
                                           ? a->o.sender_timeout + RELIABILITY_SILENCE
                                           : 2 * slowest;
}

/* Failures first: unproven peers share one count, so deliveries of some of them then make up for
 * failures of others. If all others have failed, the fault may be our own connection: then failures
 * of proven peers are not noted. */
void averager_note_outcomes(struct averager *a)
{
    const double now = loop_now(a->loop);
    size_t count[ALLREDUCE_WITHHELD + 1] = { 0 }, failed;
    enum allreduce_outcome worst;
    int spare;
    double latest;
    for (size_t i = 0; i < a->round.group.count; i++)
        /* Count first: the meaning of one peer's failure depends on the others' outcome. */
        if (i != a->round.group.self) count[allreduce_outcome(a->round.x, i, &latest)]++;
    /* A refusal often follows from another peer's silence, because a reducer then gives up the
     * whole group. So a refusal counts as a failure only if no peer was silent. */
    worst = count[ALLREDUCE_WITHHELD] || a->o.verify ? ALLREDUCE_WITHHELD : ALLREDUCE_REFUSED;
    failed = count[ALLREDUCE_WITHHELD] + count[ALLREDUCE_REFUSED];
    spare = failed > 1 && failed == a->round.group.count - 1;
    for (size_t i = 0; i < a->round.group.count; i++)
        /* A charge was noted by ban_proven already, as more than a failure. */
        if (i != a->round.group.self && !allreduce_is_charged(a->round.x, i) &&
            allreduce_outcome(a->round.x, i, &latest) >= worst &&
            !(spare && reliability_is_proven(a->reliability, &a->round.group.members[i].peer)))
            reliability_failed(a->reliability, now, a->round.began,
                               &a->round.group.members[i].peer);
        else if (allreduce_outcome(a->round.x, i, &latest) == ALLREDUCE_LEFT)
            reliability_left(a->reliability, now, a->round.began, &a->round.group.members[i].peer);
    for (size_t i = 0; i < a->round.group.count; i++)
        if (i != a->round.group.self && !allreduce_is_charged(a->round.x, i) &&
            /* `latest` feeds the patience of later rounds. */
            allreduce_outcome(a->round.x, i, &latest) == ALLREDUCE_DELIVERED)
            reliability_delivered(a->reliability, now, &a->round.group.members[i].peer, latest);
}

/* --- begin and end ---------------------------------------------------------------------------- */

/* Protects the group's connections until the next group: strangers must not displace them, neither
 * during the round nor while its last messages are on their way. */
void averager_protect(struct averager *a, const struct group *g)
{
    /* The host closes idle or excess connections when strangers open many; those of a group
     * stay. */
    while (a->round.protected_count)
        host_unprotect(a->host, &a->round.protected_peers[--a->round.protected_count]);
    free(a->round.protected_peers);
    a->round.protected_peers = g ? calloc(g->count, sizeof *a->round.protected_peers) : NULL;
    for (size_t i = 0; a->round.protected_peers && i < g->count; i++)
        if (!host_protect(a->host, &g->members[i].peer))
            a->round.protected_peers[a->round.protected_count++] = g->members[i].peer;
}

/* Which of our parts have values: others in each round, so that every part's turn comes. */
static void set_upload(struct averager *a, const size_t *share)
{
    const double rate = a->o.bandwidth > 0 ? a->o.bandwidth : bandwidth_stated(a->bandwidth),
                 part = uplinks_fraction(&a->round.group, share, rate, a->slow);
    a->round.upload = part < 1 && !share[a->round.group.self] ? part : 0;
    a->round.upload_from = (double)random_source_below(&a->o.random, 1 << 16) / (1 << 16);
}

/* Prepares the state of each member of the group, before the first part is sent. */
static int prepare(struct averager *a)
{
    /* Shares follow from the gather messages, so every member computes the same ones. */
    size_t n = a->round.group.count, total = 0, *share = pl_alloc(n, sizeof *share);
    int rc = PL_ENOMEM;
    a->round.out = calloc(n, sizeof *a->round.out);
    a->round.in = calloc(n, sizeof *a->round.in);
    a->round.share = pl_alloc(n, sizeof *a->round.share);
    a->round.patience = pl_alloc(n, sizeof *a->round.patience);
    for (size_t t = 0; t < a->o.tensors; t++) total += a->tensors.elements[t];
    if (share && a->round.out && a->round.in && a->round.share && a->round.patience)
        rc = group_shares(share, &a->round.group, total, &a->call.why);
    for (size_t i = 0; !rc && i < n; i++) {
        /* In values, not in fractions: pl_partition scales them anyway, and integers are
         * exact. */
        a->round.share[i] = (double)share[i];
        a->round.out[i].a = a;
        a->round.out[i].place = i;
    }
    if (!rc) set_patience(a);
    if (!rc) set_upload(a, share);
    pl_free(share);
    return rc;
}

/* Shares and weights are the group's in each phase. The time limit is of all of them. */
static void set_phase(struct allreduce_options *o, const struct round_phase *p)
{
    o->phase = p->name;
    o->tensors = p->what->tensors;
    o->elements = p->what->elements;
    o->method = p->what->method;
    o->tensor = p->what->tensor;
    if (o->time_limit > 0) o->time_limit = fmax(1, o->time_limit - p->spent);
}

/* In the first round of a run no uplink is known, so that slow ones reduce as much as others, and
 * may take minutes. It measures them: after upload_limit the group searches again, and its shares
 * follow from what has been measured. Smaller values than some windows measure nothing. */
static double time_limit(const struct averager *a)
{
    const double bytes = a->slow * a->o.upload_limit * BANDWIDTH_MBIT;
    if (a->round.has_begun || bytes < FIRST_WINDOWS * BANDWIDTH_WINDOW_BYTES ||
        uplinks_are_known(&a->round.group))
        return a->o.allreduce_timeout;
    return a->o.upload_limit;
}

void averager_round_begin(struct averager *a)
{
    struct allreduce_options o = { .be = a->o.be,
                                   .group = &a->round.group,
                                   .tensors = a->o.tensors,
                                   .elements = a->tensors.elements,
                                   .method = a->tensors.method,
                                   .tensor = a->call.step.tensor,
                                   .weight = a->o.auxiliary ? 0 : a->call.step.weight,
                                   .part_bytes = a->o.part_bytes,
                                   .sender_timeout = a->o.sender_timeout,
                                   .reducer_timeout = a->o.reducer_timeout,
                                   .time_limit = time_limit(a),
                                   .weight_max = a->o.weight_max,
                                   .clip = a->o.verify ? PL_CLIP_USUAL : a->o.clip,
                                   .me = host_identity(a->host),
                                   .claim = a->call.step.claim,
                                   .validation = a->o.validation,
                                   .random = a->o.random,
                                   .memory = &a->round.memory };
    /* All peers of the group call this with the same gather messages, so they cut the
     * tensors alike; nothing about parts is ever announced. */
    int rc = prepare(a);
    o.verify = averager_can_verify(a, &rc);
    a->call.result.verified = o.verify;
    a->call.phase = AVERAGER_REDUCING;
    a->round.has_begun = 1;
    a->round.began = a->round.sampled = now_of(a);
    a->round.given = 0;
    a->round.uplink = (struct bandwidth_meter){ 0 };
    /* Followers of another leader may be new to us. */
    for (size_t i = 0; i < a->round.group.count; i++)
        if (i != a->round.group.self) averager_see(a, &a->round.group.members[i].peer);
    o.share = a->round.share;
    o.upload = a->round.upload;
    o.upload_from = a->round.upload_from;
    if (a->round.phase.what) set_phase(&o, &a->round.phase);
    /* Verification takes as long as it takes, and has silences of its own. */
    o.patience = o.verify || a->o.sender_timeout <= 0 || a->o.timeouts_only ? NULL
                                                                            : a->round.patience;
    if (o.weight > 0 && !o.claim.samples)
        o.claim.samples = 1; /* of values that no peer recomputes */
    /* Our own parts leave at once; groupmates that have begun earlier are parked, and
     * attached below. */
    if (!rc) rc = allreduce_open(&a->round.x, &o, &callbacks, a, now_of(a), &a->call.why);
    if (rc) {
        averager_round_clear(a);
        a->call.phase = AVERAGER_SEARCHED; /* ends the step: the same would happen in any group */
        a->search.status = rc;
        averager_turn(a);
        return;
    }
    /* Without memory for it only proofs that come late are lost. */
    if (o.verify)
        (void)equivocation_log_add(&a->verify.log, a->round.began, &verifier_rules, &a->round.group,
                                   allreduce_round(a->round.x));
    averager_protect(a, &a->round.group);
    averager_connect_group(a);
    averager_attach_parked(a);
    averager_drive(a);
}

void averager_round_clear(struct averager *a)
{
    /* Streams that wait for the next round stay; those of this round end with it. */
    for (struct caller *c = a->parts.all.first, *next; c; c = next) {
        next = c->next;
        if (((struct part_stream *)c)->state == PART_STREAM_ATTACHED)
            averager_part_free((struct part_stream *)c);
    }
    allreduce_close(a->round.x);
    a->round.x = NULL;
    free(a->round.out);
    free(a->round.in);
    pl_free(a->round.share);
    pl_free(a->round.patience);
    a->round.out = NULL;
    a->round.in = NULL;
    a->round.share = NULL;
    a->round.patience = NULL;
    timer_stop(&a->round.timer);
}

int averager_round_open(struct averager *a, struct pl_err *err)
{
    if (a->o.client_mode) return PL_OK;
    a->parts.all = (struct caller_list){ .node = a->node,
                                         .owner = a,
                                         .max = AVERAGER_PARTS_MAX,
                                         .peer_max = AVERAGER_PEER_PARTS_MAX,
                                         .evict = averager_part_evict };
    /* Served for the averager's whole life: groupmates that are faster call before our round
     * begins. */
    if (rpc_serve_stream(a->host, a->names.rpc[AVERAGER_AGGREGATE], message_max(a),
                         averager_on_part_stream, a))
        return pl_fail(err, PL_EUSE, "averaging: %s is already served",
                       a->names.rpc[AVERAGER_AGGREGATE]);
    return averager_verify_open(a, err);
}

void averager_round_close(struct averager *a)
{
    averager_verify_close(a);
    if (!a->o.client_mode) rpc_unserve(a->host, a->names.rpc[AVERAGER_AGGREGATE]);
    while (a->parts.all.first) averager_part_free((struct part_stream *)a->parts.all.first);
    timer_stop(&a->round.timer);
}
