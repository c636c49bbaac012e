/* averager_join.c - matchmaking over the network. [spec hivemind-protocol 4.1; 4.4]
 *
 * The engine matchmaking.c decides; this file executes its decisions, and passes it the replies:
 *
 *   engine        network
 *   declare       store {our peer ID: true} under the group key, valid until we want to begin
 *   poll          read that key from all nodes near it; the peers found become candidates
 *   ask           call rpc_join_group at a candidate that begins earlier; its stream says
 *                 accepted, then begin or disbanded
 *   (we lead)     serve rpc_join_group; the stream stays open until the group begins
 *
 * Declarations are unsigned, so a candidate is a hint and not a fact. Invented candidates can waste
 * few of our calls, and cannot displace an honest peer. */
#include "averager_internal.h"
#include "net/hivemind/messages/msgpack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REACH_EVERY 0.02 /* s between checks whether our reachability is known */
#define DOUBTFUL_MAX \
    32 /* candidates that only third parties report; three of them may stay silent */

static void drive(struct averager *a);

/* --- declarations ----------------------------------------------------------------------------- */

static void on_declare(void *context, double expiration, int active)
{
    struct averager *a = context;
    struct bytes value = { 0 };
    /* Subkey: our peer ID. Value: true while we search. Expiration: by when we want to
     * begin. One key holds all declarations as a dictionary. [spec hivemind-protocol 4.1] Whether
     * it was stored shows by whether others find us; the next window declares again. */
    if (!mp_bool(&value, active))
        dht_node_store(a->node, &a->names.key_id, bytes_at(&a->state.subkey),
                       bytes_length(&a->state.subkey), bytes_at(&value), bytes_length(&value),
                       expiration, NULL, NULL);
    bytes_clear(&value);
}

/* Declarations are not signed, so a node can report anything about others. Our nodes keep only what
 * a peer has stored itself; hivemind's keep the greatest expiration from any sender. So:
 * - a peer's own report counts, and a record that it has written here;
 * - of third parties' reports "true" counts, whether or not others report "false": a peer that
 *   needs no group refuses when it is asked;
 * - a peer that is only reported by others, and that we are not connected to, is doubtful. */
static struct matchmaking_candidate read_claim(const struct averager *a, const struct dht_claim *c)
{
    return (struct matchmaking_candidate){ c->peer, c->expiration,
                                           !c->own && !host_is_connected(a->host, &c->peer) };
}

static int by_doubt(const void *a_, const void *b_)
{
    const struct matchmaking_candidate *a = a_, *b = b_;
    if (a->doubtful != b->doubtful) return a->doubtful - b->doubtful;
    return (a->expiration > b->expiration) - (a->expiration < b->expiration);
}

/* Of reports by third parties the number counts: several nodes near the key have stored an
 * honest peer's declaration, an invented one lies where its author put it. */
static int by_reports(const void *a_, const void *b_)
{
    const struct dht_claim *a = a_, *b = b_;
    if (a->own != b->own) return b->own - a->own;
    return (a->reports < b->reports) - (a->reports > b->reports);
}

/* The peers that search for a group. A peer's own declarations come first, then those that most
 * nodes report; at most DOUBTFUL_MAX doubtful peers are kept. The engine later sorts candidates by
 * expiration; this function decides which ones it gets. */
static size_t read_claims(struct matchmaking_candidate *found, const struct averager *a,
                          struct dht_claim *claims, size_t count)
{
    size_t n = 0, doubtful = 0;
    qsort(claims, count, sizeof *claims, by_reports);
    for (size_t i = 0; i < count; i++) {
        found[n] = read_claim(a, &claims[i]);
        /* The engine asks three of them at most that stay silent, so 32 are plenty; the rest
         * is dropped before it costs anything. */
        if (!found[n].doubtful || doubtful++ < DOUBTFUL_MAX) n++;
    }
    qsort(found, n, sizeof *found, by_doubt);
    return n;
}

static void on_got(void *context, int status, const struct dht_result *r)
{
    struct averager *a = context;
    size_t count = status ? 0 : r->claim_count, n = 0;
    struct matchmaking_candidate *found = malloc((count + 1) * sizeof *found);
    struct dht_claim *claims = malloc((count + 1) * sizeof *claims);
    a->search.lookup = NULL;
    if (found && claims && count) {
        /* The result belongs to the DHT node and is sorted here, so it is copied. */
        memcpy(claims, r->claims, count * sizeof *claims);
        n = read_claims(found, a, claims, count);
    }
    /* Seen for the first time now: a peer that was there before a failure is not suspected
     * of it. */
    for (size_t i = 0; i < n; i++) averager_see(a, &found[i].peer);
    /* A poll is as good a moment as any to notice that we have become reachable, or have
     * ceased to be. */
    matchmaking_set_behind_nat(&a->search.mm, averager_now(a), averager_cannot_be_called(a));
    matchmaking_found(&a->search.mm, averager_now(a), found, n);
    free(found);
    free(claims);
    drive(a);
}

static void on_poll(void *context)
{
    struct averager *a = context;
    if (averager_check_reachability(a)) averager_search_gather(a);
    /* "Latest": from all nodes that answer, not from the first, since each holds other
     * declarations. */
    a->search.lookup = dht_node_get(a->node, &a->names.key_id, 1, on_got, a);
}

/* --- our question ----------------------------------------------------------------------------- */

/* A leader sends two messages on this stream: its answer, and when the group begins or ends,
 * that. */
static void asking_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct averager *a = context;
    matchmaking_message(&a->search.mm, averager_now(a), data, n);
    drive(a);
}

static void asking_end(void *context, struct rpc_stream *s)
{
    struct averager *a = context;
    /* If the stream ends before BEGIN_ALLREDUCE, the leader has given us up. */
    matchmaking_leader_gone(&a->search.mm, averager_now(a));
    drive(a);
}

static void asking_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct averager *a = context;
    /* Saved for the error of a search that finds no group. */
    pl_fail(&a->search.ask.why, status, "the last leader could not be reached: %.250s", why);
    asking_end(context, s);
}

static void open_asking(struct averager *a)
{
    static const struct rpc_stream_events events = { asking_message, asking_end, asking_failed,
                                                     NULL };
    /* The time limit is for opening it; the engine has limits of its own for the answers. */
    a->search.ask.stream = rpc_open(a->host, &a->search.ask.leader, a->names.rpc[AVERAGER_JOIN],
                                    LEADER_MESSAGE_MAX, a->o.request_timeout, &events, a);
    a->search.ask.state = a->search.ask.stream ? ASK_OPEN : ASK_FAILED;
    if (!a->search.ask.stream) return;
    rpc_send(a->search.ask.stream, bytes_at(&a->search.ask.request),
             bytes_length(&a->search.ask.request));
    /* One request, then our side ends, as hivemind's streaming call wants it. */
    rpc_end(a->search.ask.stream);
}

static void on_leader_admitted(void *context, int status)
{
    struct averager *a = context;
    a->search.ask.proof = NULL;
    if (!status) {
        open_asking(a);
        if (a->search.ask.state == ASK_FAILED) drive(a);
        return;
    }
    a->search.ask.state = ASK_NONE;
    /* In a moderated run a leader without a token would be asked for nothing: no groupmate
     * of it may send it a part. */
    pl_fail(&a->search.ask.why, status, "the last leader showed no valid access token");
    matchmaking_leader_gone(&a->search.mm, averager_now(a));
    drive(a);
}

static void on_ask(void *context, const struct peer_id *leader, const uint8_t *request, size_t n)
{
    struct averager *a = context;
    a->search.ask.leader = *leader;
    bytes_clear(&a->search.ask.request);
    a->search.ask.state = ASK_FAILED;
    if (bytes_add(&a->search.ask.request, request, n)) return;
    /* A token is asked for over the DHT before the first call to that peer; it holds for
     * later ones. */
    if (!caller_needs_token(a->node, leader, a->o.client_mode)) {
        open_asking(a);
        return;
    }
    a->search.ask.proof = dht_node_admit(a->node, leader, on_leader_admitted, a);
    if (a->search.ask.proof) a->search.ask.state = ASK_ADMITTING;
}

/* Closing the stream is enough: the leader drops us from its followers. */
static void on_leave(void *context)
{
    struct averager *a = context;
    if (a->search.ask.proof) dht_node_cancel(a->search.ask.proof);
    a->search.ask.proof = NULL;
    rpc_close(a->search.ask.stream);
    a->search.ask.stream = NULL;
    a->search.ask.state = ASK_NONE;
}

/* --- others' questions ------------------------------------------------------------------------ */

/* A peer's stream, on which it asks us to lead. */
struct join_request {
    struct caller caller; /* first */
    int has_asked;
};

static struct averager *averager_of(const struct join_request *r) { return r->caller.list->owner; }

static void free_request(struct join_request *request)
{
    caller_remove(&request->caller);
    free(request);
}

static void on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last)
{
    struct join_request *request = stream;
    /* The first answer leaves the stream open if it was ACCEPTED; the group's begin, or its
     * end, follows. */
    rpc_send(request->caller.stream, data, n);
    request->caller.is_served = 1; /* a follower's */
    if (!last) return;
    rpc_end(request->caller.stream);
    free_request(request);
}

static void request_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct join_request *request = context;
    struct averager *a = averager_of(request);
    if (request->has_asked) return; /* one question a stream */
    request->has_asked = 1;
    /* The request is here; how long the peer waits for the answer is up to it. */
    rpc_deadline(s, 0);
    averager_see(a, rpc_peer(s));
    /* The peer ID is that of the stream, authenticated by Noise, so it cannot be forged. */
    matchmaking_request(&a->search.mm, averager_now(a), request, rpc_peer(s), data, n);
    drive(a);
}

/* A follower that has gone must not be in the group: its share would have no reducer. */
static void request_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct join_request *request = context;
    matchmaking_request_gone(&averager_of(request)->search.mm, request);
    free_request(request);
}

static void evict(struct caller *request)
{
    matchmaking_request_gone(&averager_of((struct join_request *)request)->search.mm, request);
    free_request((struct join_request *)request);
}

static void on_request_admitted(void *context, int status)
{
    struct join_request *request = context;
    request->caller.proof = NULL;
    if (!status) {
        rpc_credit(request->caller.stream, RPC_ALWAYS);
        return;
    }
    caller_refuse(&request->caller);
    free_request(request);
}

static void on_request(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { request_message, NULL, request_failed, NULL };
    struct averager *a = context;
    struct join_request *request = caller_has_place(&a->search.requests, rpc_peer(s))
                                       ? calloc(1, sizeof *request)
                                       : NULL;
    if (!request) {
        rpc_close(s);
        return;
    }
    caller_add(&a->search.requests, &request->caller, s, &events);
    /* A stream without a request holds a place; ten seconds are enough to send one. */
    rpc_deadline(s, AVERAGER_FIRST_MESSAGE);
    if (!caller_admit(&request->caller, on_request_admitted)) free_request(request);
}

/* --- the search ------------------------------------------------------------------------------- */

/* The search has ended inside the engine; averager.c acts on it from the loop (on_turn). */
static void on_over(void *context, int status)
{
    struct averager *a = context;
    if (a->search.lookup) dht_node_cancel(a->search.lookup);
    a->search.lookup = NULL;
    a->call.phase = AVERAGER_SEARCHED;
    a->search.status = status;
    averager_turn(a);
}

static int refuses(void *context, const struct peer_id *peer)
{
    const struct averager *a = context;
    const double now = loop_now(a->loop);
    /* Both were earned in a verified round that the others have seen fail, too: so they
     * refuse as well, and no group falls apart by it. */
    return bans_has(&a->bans, now, peer) || reliability_is_refused(a->reliability, now, peer);
}

/* net/hivemind/training knows which peers declare repeatedly and never come (liveness.h). */
static int is_absent(void *context, const struct peer_id *peer)
{
    const struct averager *a = context;
    return a->o.absent && a->o.absent(a->o.absent_context, peer);
}

/* Expected are the peers that report progress under this run: a stranger can't be waited
 * for, nor make the group begin early. */
static int is_expected(void *context, const struct peer_id *peer)
{
    const struct averager *a = context;
    return !a->o.reports || a->o.reports(a->o.absent_context, peer);
}

void averager_see(struct averager *a, const struct peer_id *peer)
{
    reliability_see(a->reliability, loop_now(a->loop), peer, is_expected(a, peer));
}

static int is_paused(void *context, const struct peer_id *peer)
{
    struct averager *a = context;
    const int reports = is_expected(a, peer);
    /* Strangers under ever new names could spoil each try of a round. So from the second try on
     * only peers that are proven or report progress are taken. */
    if (a->call.result.attempts && !reports && !reliability_is_proven(a->reliability, peer))
        return 1;
    averager_see(a, peer); /* its failure counts for those that it was taken for */
    return reliability_is_paused(a->reliability, loop_now(a->loop), peer, reports);
}

static int is_proven(void *context, const struct peer_id *peer)
{
    const struct averager *a = context;
    return reliability_is_proven(a->reliability, peer);
}

/* Identify follows each new connection. */
static void on_identified(void *context, const struct peer_id *peer)
{
    const struct averager *a = context;
    reliability_connected(a->reliability, loop_now(a->loop), peer);
}

/* A leader that accepts followers and never begins costs them a whole window: a failure like
 * any, dated back to when its window began. One that disbands them may be left with too few. */
static void on_abandoned(void *context, const struct peer_id *leader, int has_disbanded)
{
    struct averager *a = context;
    const double now = loop_now(a->loop), began = now - a->o.min_matchmaking_time;
    if (has_disbanded) reliability_disbanded(a->reliability, now, began, leader);
    else reliability_failed(a->reliability, now, began, leader);
}

static const struct matchmaking_callbacks callbacks = { on_declare, on_poll,      on_ask,
                                                        on_leave,   on_answer,    refuses,
                                                        is_absent,  is_expected,  is_paused,
                                                        is_proven,  on_abandoned, on_over };

/* Timer of the search: errors that could not be passed to the engine from inside its own callback
 * come first, then its deadlines. */
static void on_time(void *context)
{
    struct averager *a = context;
    double now = averager_now(a);
    if (a->search.ask.state == ASK_FAILED) {
        a->search.ask.state = ASK_NONE;
        matchmaking_leader_gone(&a->search.mm, now);
    }
    if (a->search.mm.state == MATCHMAKING_LOOKING && a->search.mm.polls.under_way &&
        !a->search.lookup)
        matchmaking_found(&a->search.mm, now, NULL, 0); /* the poll could not be begun */
    matchmaking_tick(&a->search.mm, now);
    drive(a);
}

/* After every event: the clock that the engine has not got. */
static void drive(struct averager *a)
{
    /* The engine says when it wants to be called; one timer serves all its deadlines. */
    double wake = matchmaking_wake(&a->search.mm);
    int at_once = a->search.ask.state == ASK_FAILED ||
                  (a->search.mm.polls.under_way && !a->search.lookup);
    if (a->search.mm.state == MATCHMAKING_IDLE) timer_stop(&a->search.timer);
    else
        timer_start(a->loop, &a->search.timer, at_once ? 0.1 : fmax(0, wake - averager_now(a)),
                    on_time, a);
}

void averager_search_gather(struct averager *a)
{
    /* The engine borrows the message, and reads it when it asks and when it assembles a
     * group. */
    a->search.mm.o.gather = bytes_at(&a->search.gather);
    a->search.mm.o.gather_n = bytes_length(&a->search.gather);
}

static void on_reach(void *context) { averager_search(context); }

/* The first search waits until our reachability is known. Otherwise others would give us a share
 * whose parts they cannot send to us, or follow a leader that they cannot reach. */
void averager_search(struct averager *a)
{
    double now = averager_now(a);
    a->call.phase = AVERAGER_SEARCHING;
    if (!dht_node_knows_reachability(a->node)) {
        /* Dial-backs by other peers take a moment after the start; there is no event for
         * their end. */
        timer_start(a->loop, &a->search.reach_timer, REACH_EVERY, on_reach, a);
        return;
    }
    (void)averager_check_reachability(a);
    averager_search_gather(a);
    matchmaking_set_behind_nat(&a->search.mm, now, averager_cannot_be_called(a));
    matchmaking_begin(&a->search.mm, now, a->call.step.scheduled, a->call.step.deadline);
    /* Before the trigger an early group gains nothing: it would wait for our values. */
    if (a->call.triggered) {
        matchmaking_patience(&a->search.mm, a->call.step.patience);
        matchmaking_expect(&a->search.mm, now, a->call.step.expected);
    }
    drive(a);
}

void averager_search_cancel(struct averager *a)
{
    matchmaking_cancel(&a->search.mm);
    /* After this no callback of the search may come: its token, poll and timers end here. */
    if (a->search.ask.proof) dht_node_cancel(a->search.ask.proof);
    a->search.ask.proof = NULL;
    if (a->search.lookup) dht_node_cancel(a->search.lookup);
    a->search.lookup = NULL;
    timer_stop(&a->search.timer);
    timer_stop(&a->search.reach_timer);
}

int averager_join_open(struct averager *a, struct pl_err *err)
{
    struct matchmaking_options o = { .self = *host_id(a->host),
                                     .key = a->names.key,
                                     .min_time = a->o.min_matchmaking_time,
                                     .request_timeout = a->o.request_timeout,
                                     .slow = a->slow,
                                     .verify = a->o.verify,
                                     .target_size = a->o.target_size,
                                     .min_size = a->o.min_size,
                                     .client_mode = a->o.client_mode,
                                     .random = a->o.random };
    memcpy(o.schema_hash, a->tensors.schema_hash, sizeof o.schema_hash);
    /* One engine for the averager's life; each search clears the state of the previous one. */
    matchmaking_init(&a->search.mm, &o, &callbacks, a);
    a->search.requests = (struct caller_list){ .node = a->node,
                                               .owner = a,
                                               .max = AVERAGER_REQUESTS_MAX,
                                               .peer_max = AVERAGER_PEER_REQUESTS_MAX,
                                               .evict = evict };
    /* A client can't be called, so it serves nothing. */
    if (!a->o.client_mode &&
        rpc_serve_stream(a->host, a->names.rpc[AVERAGER_JOIN], JOIN_MESSAGE_MAX, on_request, a))
        return pl_fail(err, PL_EUSE, "averaging: %s is already served",
                       a->names.rpc[AVERAGER_JOIN]);
    a->search.watch = (struct host_watch){ .events.identified = on_identified, .context = a };
    host_watch(a->host, &a->search.watch);
    return PL_OK;
}

void averager_join_close(struct averager *a)
{
    host_unwatch(a->host, &a->search.watch);
    if (!a->o.client_mode) rpc_unserve(a->host, a->names.rpc[AVERAGER_JOIN]);
    while (a->search.requests.first) {
        matchmaking_request_gone(&a->search.mm, a->search.requests.first);
        free_request((struct join_request *)a->search.requests.first);
    }
}
