/* averager_gather.c - rounds in which each peer of a group takes every other one's message as it
 * is: sparse ones, those of pairs, and all that must be the same bits on all peers.
 * [spec outer-steps 8, 10, 11] [spec wire-extensions F]
 *
 *   every peer    fetches the message of each groupmate, piece by piece:
 *
 *                   A -> B   group, offset                       where B's piece begins
 *                   B -> A   total, epoch, weight, bytes         that piece; several are under way
 *
 *   the end       when it has all, and all have its own; or nothing, at the time limit
 *
 * An all-reduce sums parts at their reducers and rounds on the way. Here nobody sums for others:
 * each peer gets the same n messages, adds them up in the same order (averager_take_messages) and
 * so has the same bits. The price: n - 1 whole messages come in, not two vectors, which pays for
 * messages that are small, or for small groups.
 *
 * Between potluck's peers alone. All or nothing: peers that step have stepped with the same
 * messages. If one groupmate dies, those that lack its message search another group with the same
 * message of their own; if others have stepped already, they take the state of those.
 *
 * Messages of another epoch are left out by all that are at this one. */
#include "averager_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GATHER_SILENCE 30.0 /* s without an answer: the groupmate is gone */
#define GATHER_QUICK 1.0    /* s: a piece that takes less lets one more call be under way */
#define GATHER_CALLS_MIN 2  /* under way to a groupmate, where pieces take longer */
#define GATHER_PAUSE 0.1    /* s until a groupmate is asked again that has not begun yet */
#define GATHER_FAILURES 5   /* of the connection in a row: the groupmate is gone */
#define GATHER_GRACE 3.0    /* s without a request from groupmates that have not fetched all */
#define GATHER_LIMIT 60.0   /* s for a round, where the caller has set no limit */

#define HAS_LEFT "not in this group"

static void ask(void *context);

/* --- the end ---------------------------------------------------------------------------------- */

/* Requests are cancelled, so that no answer arrives for what has ended. */
static void stop_calls(struct gather_fetch *f)
{
    for (size_t i = 0; i < GATHER_CALLS_MAX; i++) {
        if (f->calls[i].request) rpc_cancel(f->calls[i].request);
        f->calls[i].request = NULL;
        f->calls[i].has_piece = 0;
    }
    timer_stop(&f->pause);
}

/* A round that is not cancelled ends here. The averager goes on from the loop, not from within a
 * callback of an RPC. */
static void end_round(struct averager *a, int status)
{
    averager_gather_stop(a);
    a->gather.status = status;
    a->call.phase = AVERAGER_GATHERED;
    averager_turn(a);
}

void averager_gather_stop(struct averager *a)
{
    struct averager_gather *g = &a->gather;
    for (size_t i = 0; g->fetch && i < g->count; i++) stop_calls(&g->fetch[i]);
    timer_stop(&g->timer);
}

/* A peer whose message has not come is left out of the next groups for a while. */
static void fail_round(struct averager *a, size_t place, const char *why)
{
    struct averager_gather *g = &a->gather;
    char name[PEER_ID_TEXT_MAX];
    peer_id_text(name, &g->peers[place]);
    reliability_failed(a->reliability, loop_now(a->loop), g->began, &g->peers[place]);
    pl_fail(&a->call.why, PL_EIO, "averaging: no message from %s: %.200s", name, why);
    end_round(a, PL_EIO);
}

/* The groupmate answers that it is in no group with us: nothing to wait for. */
static void end_without(struct averager *a, size_t place)
{
    struct averager_gather *g = &a->gather;
    char name[PEER_ID_TEXT_MAX];
    peer_id_text(name, &g->peers[place]);
    reliability_left(a->reliability, loop_now(a->loop), g->began, &g->peers[place]);
    pl_fail(&a->call.why, PL_EIO, "averaging: %s has left the group", name);
    end_round(a, PL_EIO);
}

/* At least one other message is of our epoch, or there is nothing to agree on. */
static int has_others(const struct averager *a)
{
    for (size_t i = 0; i < a->gather.count; i++)
        if (i != a->round.group.self && !a->gather.messages[i].is_other_epoch) return 1;
    return 0;
}

/* Most of the peers that were expected have stepped without us, as in claims.h. Fewer do not count:
 * those that are left may still make our step with us. */
static int is_behind(const struct averager *a)
{
    const struct averager_gather *g = &a->gather;
    size_t ahead = 0, expected = a->call.expected;
    if (expected < g->count) expected = g->count;
    if (a->o.target_size && expected > a->o.target_size) expected = a->o.target_size;
    for (size_t i = 0; i < g->count; i++) ahead += (size_t)g->fetch[i].is_ahead;
    return 2 * ahead > expected - 1;
}

/* All are here. values_out: uncompressed, this peer would have sent all of its values to each
 * groupmate; the dashboard's ratio compares that with bytes_out. */
static void finish_round(struct averager *a)
{
    struct averager_gather *g = &a->gather;
    struct allreduce_report *report = &a->call.result.report;
    const double now = loop_now(a->loop);
    for (size_t i = 0; i < g->count; i++) {
        if (i == a->round.group.self) continue;
        reliability_delivered(a->reliability, now, &g->peers[i], now - g->began);
        report->bytes_in += g->messages[i].n;
        for (size_t t = 0; t < a->o.tensors; t++) report->values_out += a->tensors.elements[t];
    }
    report->bytes_out += (size_t)g->sent;
    if (has_others(a)) {
        end_round(a, PL_OK);
        return;
    }
    /* Those that have fetched our message do not use it. */
    g->is_delivered = g->was_delivered;
    /* No other group takes this message: the caller is to take a state instead of searching on. */
    if (is_behind(a) && a->call.ending == ENDING_IN_TIME) a->call.ending = ENDING_AFTER_GROUP;
    end_round(a,
              pl_fail(&a->call.why, PL_EIO, "averaging: all of the others are at another epoch"));
}

/* A groupmate asks for each piece once, unless its connection ends: one that was given as many
 * bytes as there are has all of ours. */
static int has_fetched(const struct averager_gather *g, size_t place)
{
    return g->given[place] >= g->mine_n;
}

static double round_limit(const struct averager *a)
{
    return a->o.allreduce_timeout > 0 ? a->o.allreduce_timeout : GATHER_LIMIT;
}

/* A round that has everything still serves its message until the slowest groupmate has it: a peer
 * that left at once would fail the others' round. A groupmate that has stopped asking is not waited
 * for. */
static void check_end(void *context)
{
    struct averager *a = context;
    struct averager_gather *g = &a->gather;
    const double now = loop_now(a->loop), limit = round_limit(a);
    size_t missing = 0, waiting = 0, first = 0, silent = g->count;
    /* From the last, so that `first` ends as the first place whose message is missing. */
    for (size_t i = g->count; i-- > 0;) {
        if (i == a->round.group.self) continue;
        waiting += !has_fetched(g, i);
        if (g->fetch[i].is_complete) continue;
        missing++, first = i;
        if (now > g->fetch[i].heard_at + GATHER_SILENCE) silent = i;
    }
    if (!missing && (!waiting || now > g->asked_at + GATHER_GRACE)) {
        finish_round(a);
        return;
    }
    /* At the time limit a message that is missing fails the round; one that was not fetched fails
     * it for its groupmate alone. */
    if (now > g->began + limit) {
        if (missing) fail_round(a, first, "it takes too long");
        else finish_round(a);
        return;
    }
    if (silent < g->count) {
        fail_round(a, silent, "it does not answer");
        return;
    }
    timer_start(a->loop, &g->timer, GATHER_PAUSE, check_end, a);
}

/* --- theirs ----------------------------------------------------------------------------------- */

/* The piece from this offset on, or the end. A length that is not ours ends the round: with other
 * settings, or at another moment of the algorithm, there is nothing in common. */
static int take_piece(struct gather_fetch *f, uint64_t offset, const struct gather_piece *p)
{
    struct averager *a = f->a;
    struct averager_message *m = &a->gather.messages[f->place];
    /* Complete, and empty: a groupmate of another epoch is not waited for. */
    if (p->epoch != a->gather.epoch) {
        m->is_other_epoch = f->is_complete = 1;
        f->is_ahead = p->epoch > a->gather.epoch;
        m->n = 0;
        return PL_OK;
    }
    /* Also the bound of the memory below: a groupmate cannot claim more than our own message
     * takes. */
    if (p->total != a->gather.mine_n) return PL_EPROTO;
    /* All pieces but the last are as long as the first one. Tiny ones would be asked for a
     * million times. */
    if (!f->piece) {
        if (p->n < GATHER_PIECE_MIN && p->n < p->total) return PL_EPROTO;
        f->piece = f->next = p->n;
    }
    if (p->n != (p->total - offset < f->piece ? p->total - offset : f->piece)) return PL_EPROTO;
    if (!m->data && !(m->data = malloc(p->total))) return PL_ENOMEM;
    memcpy(m->data + offset, p->data, p->n);
    m->n += p->n;
    /* The limit follows from the target batch: all of the group give the same message no weight. */
    m->weight = a->o.weight_max > 0 && p->weight > a->o.weight_max ? 0 : p->weight;
    f->is_complete = m->n == p->total;
    return PL_OK;
}

/* The calls of a groupmate share one pause, so a connection that ends counts as one failure. */
static void ask_later(struct gather_fetch *f, double seconds)
{
    timer_start(f->a->loop, &f->pause, seconds, ask, f);
}

static void on_failure(struct gather_fetch *f, const struct rpc_result *r)
{
    struct averager *a = f->a;
    /* The groupmate's handler has answered with an error: it searches still, or computes. */
    if (r->status == PL_EPROTO && strstr(r->error, HAS_LEFT)) {
        end_without(a, f->place);
    } else if (r->status == PL_EPROTO) { /* it is not in this round yet */
        f->failures = 0;
        f->heard_at = loop_now(a->loop);
        ask_later(f, GATHER_PAUSE);
    } else if (!f->pause.is_running) {
        /* Doubling pauses: 0.2, 0.4, 0.8, 1.6 s. */
        if (++f->failures >= GATHER_FAILURES) fail_round(a, f->place, r->error);
        else ask_later(f, GATHER_PAUSE * (1 << f->failures));
    }
}

/* Where pieces come quickly more calls keep a fast, long line full; where they do not, each waits
 * for the others. */
static void set_window(struct gather_fetch *f, double took)
{
    if (took < GATHER_QUICK && f->window < GATHER_CALLS_MAX) f->window++;
    else if (took >= GATHER_QUICK && f->window > GATHER_CALLS_MIN) f->window--;
}

static void on_piece(void *context, const struct rpc_result *r)
{
    struct gather_call *call = context;
    struct gather_fetch *f = call->f;
    struct averager *a = f->a;
    struct gather_piece p;
    int rc;
    call->request = NULL;
    if (r->status) {
        on_failure(f, r);
        return;
    }
    f->failures = 0;
    f->heard_at = loop_now(a->loop);
    set_window(f, f->heard_at - call->asked_at);
    /* Bytes are read and checked first; then the next pieces are asked for. */
    rc = gather_piece_read(&p, r->data, r->n);
    if (!rc) rc = take_piece(f, call->offset, &p);
    call->has_piece = 0;
    if (rc == PL_ENOMEM) fail_round(a, f->place, "no memory for it");
    else if (rc)
        fail_round(a, f->place, "it is of another length than ours: do its settings differ?");
    else if (f->is_complete) stop_calls(f);
    else if (!f->pause.is_running) ask(f);
}

/* Until the first piece is here there is one call: it tells how long the others are. */
static int choose_piece(struct gather_fetch *f, struct gather_call *call)
{
    if (call->has_piece) return 1;
    if (f->piece ? f->next >= f->a->gather.mine_n : call != f->calls) return 0;
    call->offset = f->next;
    f->next += f->piece;
    return call->has_piece = 1;
}

/* Calls that have none under way get one, for a piece that failed or the next one. */
static void ask(void *context)
{
    struct gather_fetch *f = context;
    struct averager *a = f->a;
    for (size_t i = 0; i < GATHER_CALLS_MAX; i++) {
        struct gather_call *call = &f->calls[i];
        struct gather_request request = { a->gather.group, 0 };
        struct bytes out = { 0 };
        if (call->request || (i >= f->window && !call->has_piece) || !choose_piece(f, call))
            continue;
        request.offset = call->offset;
        call->asked_at = loop_now(a->loop);
        if (!gather_request_write(&out, &request))
            call->request = rpc_call_unary(a->host, &a->gather.peers[f->place],
                                           a->names.rpc[AVERAGER_GATHER], bytes_at(&out),
                                           bytes_length(&out), round_limit(a), on_piece, call);
        bytes_clear(&out);
        if (!call->request) ask_later(f, GATHER_PAUSE);
    }
}

/* --- ours ------------------------------------------------------------------------------------- */

/* The connection has authenticated the caller (rpc.h): to be of the group is all that it needs. */
static int place_of(const struct averager_gather *g, const struct peer_id *peer)
{
    for (size_t i = 0; i < g->count; i++)
        if (peer_id_equal(&g->peers[i], peer)) return (int)i;
    return -1;
}

/* A member of the group may have any piece, as often as it asks: the host bounds the calls of a
 * peer that are under way. */
static void on_request(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    struct averager *a = context;
    struct averager_gather *g = &a->gather;
    const int place = place_of(g, rpc_caller(call));
    struct gather_request r;
    struct gather_piece p = { g->mine_n, g->epoch, g->weight, NULL, 0 };
    struct bytes out = { 0 };
    const int rc = gather_request_read(&r, data, n);
    if (rc || !g->serves || place < 0 || memcmp(r.group, g->group, sizeof g->group) ||
        r.offset >= g->mine_n) {
        rpc_reply_error(call, !rc && averager_has_left(a, r.group)
                                  ? "KeyError('" HAS_LEFT "')"
                                  : "KeyError('no message for this group')");
        return;
    }
    p.data = g->mine + r.offset;
    p.n = g->mine_n - r.offset < GATHER_PIECE ? g->mine_n - r.offset : GATHER_PIECE;
    if (gather_piece_write(&out, &p)) rpc_reply_error(call, "MemoryError()");
    else {
        rpc_reply(call, bytes_at(&out), bytes_length(&out));
        g->sent += (double)bytes_length(&out);
        g->asked_at = loop_now(a->loop);
        g->given[place] += p.n;
        g->is_delivered |= has_fetched(g, (size_t)place);
    }
    bytes_clear(&out);
}

/* --- a round ---------------------------------------------------------------------------------- */

/* Our own message is not freed: `mine` lives until the next one is set. */
static void clear_group(struct averager *a)
{
    struct averager_gather *g = &a->gather;
    averager_gather_stop(a);
    for (size_t i = 0; g->messages && i < g->count; i++)
        if (g->messages[i].data != g->mine) free(g->messages[i].data);
    free(g->messages);
    free(g->fetch);
    free(g->given);
    free(g->peers);
    g->messages = NULL;
    g->fetch = NULL;
    g->given = NULL;
    g->peers = NULL;
    g->count = 0;
    g->serves = 0;
}

int averager_gather_set(struct averager *a, double weight, int64_t epoch, const uint8_t *data,
                        size_t n)
{
    struct averager_gather *g = &a->gather;
    uint8_t *copy = malloc(n + 1);
    assert(n);
    if (!copy) return PL_ENOMEM;
    /* Groupmates of the round before may still have been fetching: from here on they get none. */
    clear_group(a);
    free(g->mine);
    memcpy(copy, data, n);
    g->mine = copy;
    g->mine_n = n;
    g->is_delivered = 0;
    g->epoch = epoch;
    g->weight = weight;
    return PL_OK;
}

void averager_gather_begin(struct averager *a)
{
    struct averager_gather *g = &a->gather;
    const struct group *group = &a->round.group;
    const size_t n = group->count;
    size_t window;
    clear_group(a);
    a->call.phase = AVERAGER_GATHERING;
    g->was_delivered = g->is_delivered;
    g->sent = 0;
    g->began = g->asked_at = loop_now(a->loop);
    g->peers = calloc(n, sizeof *g->peers);
    g->given = calloc(n, sizeof *g->given);
    g->fetch = calloc(n, sizeof *g->fetch);
    g->messages = calloc(n, sizeof *g->messages);
    if (!g->peers || !g->given || !g->fetch || !g->messages) {
        end_round(a, pl_fail(&a->call.why, PL_ENOMEM, "averaging: no memory"));
        return;
    }
    g->count = n;
    /* All groupmates share the uplinks: at first a megabyte is under way from all of them. */
    window = n > 1 ? GATHER_CALLS_MAX / (n - 1) : GATHER_CALLS_MAX;
    if (window < GATHER_CALLS_MIN) window = GATHER_CALLS_MIN;
    /* Memory and bytes grow with n messages, so a group has a limit of its own. */
    if (n > AVERAGER_GATHER_PEERS_MAX) {
        end_round(a, pl_fail(&a->call.why, PL_ELIMIT,
                             "averaging: a group of %zu peers, expected "
                             "at most %d",
                             n, AVERAGER_GATHER_PEERS_MAX));
        return;
    }
    static_assert(sizeof g->group == sizeof group->id, "a group's ID");
    memcpy(g->group, group->id, sizeof g->group);
    for (size_t i = 0; i < n; i++) g->peers[i] = group->members[i].peer;
    g->messages[group->self] = (struct averager_message){
        .data = g->mine, .n = g->mine_n, .weight = g->weight, .is_own = 1
    };
    /* From here on groupmates can fetch our message. */
    g->serves = 1;
    averager_protect(a, group);
    for (size_t i = 0; i < n; i++) {
        struct gather_fetch *f = &g->fetch[i];
        *f = (struct gather_fetch){ .a = a, .place = i, .window = window, .heard_at = g->began };
        for (size_t k = 0; k < GATHER_CALLS_MAX; k++) f->calls[k].f = f;
        if (i != group->self) ask(f);
    }
    timer_start(a->loop, &g->timer, GATHER_PAUSE, check_end, a);
}

size_t averager_take_messages(struct averager *a, struct averager_message **messages)
{
    struct averager_gather *g = &a->gather;
    const size_t n = g->count, self = a->round.group.self;
    uint8_t *copy = n ? malloc(g->mine_n + 1) : NULL;
    *messages = NULL;
    if (!copy) return 0;
    /* Ours can still be fetched by slower groupmates, so the caller gets a copy of it. */
    memcpy(copy, g->mine, g->mine_n);
    g->messages[self].data = copy;
    *messages = calloc(n, sizeof **messages);
    for (size_t i = 0; *messages && i < n; i++) {
        /* The place of a peer is the number of peer IDs below its own: the order is the same at all
         * peers, whatever order the leader has given. */
        size_t place = 0;
        for (size_t k = 0; k < n; k++) place += peer_id_compare(&g->peers[k], &g->peers[i]) < 0;
        (*messages)[place] = g->messages[i];
        (*messages)[place].peer = g->peers[i];
    }
    if (!*messages) {
        g->messages[self].data = g->mine;
        free(copy);
        return 0;
    }
    free(g->messages);
    g->messages = NULL;
    return n;
}

int averager_was_fetched(const struct averager *a) { return a->gather.is_delivered; }

/* --- life ------------------------------------------------------------------------------------- */

int averager_gather_open(struct averager *a, struct pl_err *err)
{
    if (!a->o.gathers) return PL_OK;
    /* A client cannot be called, an auxiliary peer has no message, and clipping and verification
     * are a reducer's work. */
    if (a->o.client_mode || a->o.auxiliary || a->o.verify || a->o.clip != 0)
        return pl_fail(err, PL_EUSE,
                       "averaging: messages go from each peer to each other one, so "
                       "none can be a client or an auxiliary peer, and none is clipped or "
                       "verified");
    if (rpc_serve_unary(a->host, a->names.rpc[AVERAGER_GATHER], on_request, a))
        return pl_fail(err, PL_EUSE, "averaging: %s is already served",
                       a->names.rpc[AVERAGER_GATHER]);
    return PL_OK;
}

void averager_gather_close(struct averager *a)
{
    if (!a->o.gathers) return;
    clear_group(a);
    rpc_unserve(a->host, a->names.rpc[AVERAGER_GATHER]);
    free(a->gather.mine);
    a->gather.mine = NULL;
}
