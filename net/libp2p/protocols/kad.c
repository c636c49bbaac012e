/* kad.c - finds the addresses of a peer ID by asking the peers nearest to it, both sides.
 * [spec libp2p-wire 11] [Kademlia]
 *
 * An ID's place is its SHA-256; the distance of two places is their exclusive or, read as a number.
 * Every peer knows many of its own neighbourhood, so each round of questions comes nearer:
 *
 *   1. the candidates are our connected peers, nearest to the target first
 *   2. a round asks KAD_AT_ONCE of them: FIND_NODE {target}
 *   3. each answers with the peers it knows that are nearest to the target, and their addresses
 *   4. they become candidates; the search ends when an address of the target was learned, when
 *      no candidate is left, or after KAD_ROUNDS
 *
 * A server must answer every FIND_NODE, also one for its own ID: others take it into their routing
 * tables by that answer. */
#include "kad.h"
#include "net/libp2p/host/exchange.h"
#include "net/libp2p/host/host_protocol.h"
#include "net/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KAD "/ipfs/kad/1.0.0"

/* --- server ----------------------------------------------------------------------------------- */

struct kad {
    struct exchange *answering;
    struct router_query *queries;
};

static struct kad *kad_of(const struct host *h) { return host_state(h, &kad_protocol); }

/* The nearest so far, nearest first. */
struct nearest {
    uint8_t target[32];
    const struct peer_id *requester;
    const struct peer *found[KAD_CLOSER];
    size_t count;
};

/* Exclusive or of the places, most significant byte first. */
static int is_nearer(const uint8_t target[32], const struct peer *a, const struct peer *b)
{
    for (int i = 0; i < 32; i++) {
        uint8_t x = a->place[i] ^ target[i], y = b->place[i] ^ target[i];
        if (x != y) return x < y;
    }
    return 0;
}

/* Insertion into a short sorted list: 20 of perhaps thousands. */
static void consider(void *context, struct peer *p)
{
    struct nearest *n = context;
    size_t at = n->count;
    if (!p->serves_kad || !p->address_count || peer_id_equal(&p->id, n->requester)) return;
    while (at > 0 && is_nearer(n->target, p, n->found[at - 1])) at--;
    if (at == KAD_CLOSER) return;
    if (n->count < KAD_CLOSER) n->count++;
    memmove(n->found + at + 1, n->found + at, (n->count - 1 - at) * sizeof *n->found);
    n->found[at] = p;
}

static void describe(struct kad_peer *out, const struct peer *p)
{
    out->id = p->id;
    out->connection = p->connections != NULL;
    out->address_count = 0;
    for (size_t i = 0; i < p->address_count && i < KAD_ADDRESSES_MAX; i++)
        out->addresses[out->address_count++] = p->addresses[i].at;
}

/* The answer: ourselves, if we are the target; otherwise the target, if known, and its nearest
 * neighbours. */
static int find_node(struct host *h, const struct peer_id *requester, const struct kad_message *ask,
                     struct bytes *out)
{
    struct kad_message reply = { .type = KAD_FIND_NODE, .cluster = ask->cluster };
    struct nearest near = { .requester = requester };
    struct peer_id id = { 0 };
    const struct peer *target = NULL;
    int known, rc;
    if (!(reply.closer = malloc((KAD_CLOSER + 1) * sizeof *reply.closer))) return PL_ENOMEM;
    peer_place(near.target, ask->key, ask->key_bytes);
    known = !peer_id_parse(&id, ask->key, ask->key_bytes);
    if (known && peer_id_equal(&id, host_id(h))) {
        struct kad_peer *self = &reply.closer[reply.closer_count++];
        self->id = id;
        self->connection = 0;
        self->address_count = host_own_addresses(h, self->addresses, KAD_ADDRESSES_MAX);
    } else {
        /* The requested peer itself, also if it serves no look-ups. */
        if (known && !peer_id_equal(&id, requester)) target = host_find_peer(h, &id);
        if (target && target->address_count) describe(&reply.closer[reply.closer_count++], target);
        peers_each(host_peerstore(h), consider, &near);
        for (size_t i = 0; i < near.count && reply.closer_count < KAD_CLOSER; i++)
            if (near.found[i] != target)
                describe(&reply.closer[reply.closer_count++], near.found[i]);
    }
    rc = kad_put(out, &reply);
    free(reply.closer);
    return rc;
}

static void on_request(void *context, struct stream *c)
{
    struct exchange *a = context;
    for (;;) {
        const uint8_t *body;
        size_t n, used;
        struct kad_message ask;
        struct bytes out = { 0 };
        int rc = stream_next_message(c, &body, &n, &used, KAD_REQUEST_MAX);
        if (rc == PL_EAGAIN) return;
        if (rc == PL_EIO) stream_finish(c); /* the requester is done */
        if (!rc) {
            rc = kad_get(&ask, body, n);
            if (!rc && (ask.type != KAD_FIND_NODE || !ask.key_bytes)) rc = PL_EPROTO;
            if (!rc) rc = find_node(a->host, stream_peer(c), &ask, &out);
            if (!rc) stream_write(c, bytes_at(&out), bytes_length(&out));
            kad_clear(&ask);
            bytes_clear(&out);
        }
        if (rc) {
            exchange_end(a);
            return;
        }
        stream_took(c, used);
        timer_start(host_loop(a->host), &a->timer, KAD_IDLE_LIMIT, exchange_end, a);
    }
}

static void on_asked(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = on_request,
                                                 .failed = exchange_failed };
    exchange_serve(c, &kad_of(context)->answering, sizeof(struct exchange), &events, KAD_IDLE_LIMIT,
                   exchange_end);
}

/* --- client ----------------------------------------------------------------------------------- */

struct candidate {
    struct peer_id id;
    uint8_t distance[32];
    int asked;
};

/* One peer being asked. */
struct question {
    struct exchange exchange;
    struct router_query *query;
};

struct router_query {
    struct host *host;
    struct peer_id target;
    uint8_t place[32];
    struct candidate candidates[KAD_CANDIDATES_MAX]; /* nearest first */
    size_t candidate_count;
    struct exchange *questions;
    size_t question_count;
    int round;
    size_t answers;
    struct timer timer, next_step;
    int late, found;
    router_done *done;
    void *context;
    struct router_query *next, *prev;
};

/* Answered, failed or late. */
static void drop_question(struct question *ask)
{
    ask->query->question_count--;
    exchange_end(ask);
}

static void cancel(struct router_query *q)
{
    while (q->questions) exchange_end(q->questions);
    timer_stop(&q->timer);
    timer_stop(&q->next_step);
    list_remove(&kad_of(q->host)->queries, q);
    free(q);
}

/* Sorted by distance, without repetition; a full list keeps the nearest. */
static void add_candidate(struct router_query *q, const struct peer_id *id)
{
    struct candidate fresh = { .id = *id };
    size_t at;
    if (peer_id_equal(id, host_id(q->host)) || peer_id_equal(id, &q->target)) return;
    for (size_t i = 0; i < q->candidate_count; i++)
        if (peer_id_equal(&q->candidates[i].id, id)) return;
    peer_place(fresh.distance, id->bytes, id->length);
    for (int i = 0; i < 32; i++) fresh.distance[i] ^= q->place[i];
    for (at = q->candidate_count; at > 0; at--)
        if (memcmp(fresh.distance, q->candidates[at - 1].distance, 32) >= 0) break;
    if (at == KAD_CANDIDATES_MAX) return;
    if (q->candidate_count < KAD_CANDIDATES_MAX) q->candidate_count++;
    memmove(q->candidates + at + 1, q->candidates + at,
            (q->candidate_count - 1 - at) * sizeof fresh);
    q->candidates[at] = fresh;
}

static void step(void *context);

static void step_soon(struct router_query *q)
{
    timer_start(host_loop(q->host), &q->next_step, 0, step, q);
}

/* Into the address book, as far as the reporting peer can know. */
static void learn(struct router_query *q, const struct stream *c, const struct kad_peer *reported)
{
    const struct connection *l = stream_connection(c);
    double now = loop_now(host_loop(q->host));
    struct peer *p;
    size_t before;
    if (!l || !reported->address_count ||
        !(p = peers_get(host_peerstore(q->host), &reported->id, now)))
        return;
    before = p->address_count;
    for (size_t i = 0; i < reported->address_count; i++)
        if (multiaddr_is_plausible(&reported->addresses[i], &l->remote))
            peer_learn(p, &reported->addresses[i], now + HOST_ADDRESS_TTL);
    routing_peer_changed(p);
    if (peer_id_equal(&reported->id, &q->target)) q->found |= p->address_count > before;
    else if (p->address_count) add_candidate(q, &reported->id);
}

static void on_answer(void *context, struct stream *c)
{
    struct question *ask = context;
    struct router_query *q = ask->query;
    struct kad_message m;
    const uint8_t *body;
    size_t n, used;
    int ended, rc = stream_next_message(c, &body, &n, &used, KAD_RESPONSE_MAX);
    if (rc == PL_EAGAIN) {
        stream_data(c, &n, &ended);
        if (!stream_expect(c, n + 1)) return;
        rc = PL_ELIMIT;
    }
    if (!rc && !kad_get(&m, body, n)) {
        q->answers++;
        for (size_t i = 0; i < m.closer_count; i++) learn(q, c, &m.closer[i]);
        kad_clear(&m);
    }
    stream_finish(c);
    drop_question(ask);
    step_soon(q);
}

static void on_no_answer(void *context)
{
    struct question *ask = context;
    struct router_query *q = ask->query;
    drop_question(ask);
    step_soon(q);
}

static void on_failed(void *context, struct stream *c, int status, const char *why)
{
    on_no_answer(context);
}

static void ask_one(struct router_query *q, const struct peer_id *id)
{
    static const struct stream_events events = { .readable = on_answer, .failed = on_failed };
    struct kad_message m = { .type = KAD_FIND_NODE, .cluster = 1, .key_bytes = q->target.length };
    struct question *ask = exchange_new(q->host, &q->questions, sizeof *ask);
    struct exchange *x;
    struct bytes out = { 0 };
    if (!ask) return;
    x = &ask->exchange;
    memcpy(m.key, q->target.bytes, q->target.length);
    ask->query = q;
    q->question_count++;
    x->stream = stream_open_known(q->host, id, KAD, KAD_ANSWER_LIMIT, &events, ask);
    timer_start(host_loop(q->host), &x->timer, KAD_ANSWER_LIMIT, on_no_answer, ask);
    if (!x->stream || kad_put(&out, &m)) drop_question(ask);
    else stream_write(x->stream, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

static void report(struct router_query *q, int status)
{
    router_done *done = q->done;
    void *context = q->context;
    char id[PEER_ID_TEXT_MAX], why[200] = "";
    peer_id_text(id, &q->target);
    if (status && !q->candidate_count)
        snprintf(why, sizeof why, "%s: no address of it is known, and no peer that could be asked",
                 id);
    else if (status)
        snprintf(why, sizeof why,
                 "%s: no address of it is known; %zu of %zu peers asked have answered", id,
                 q->answers, q->candidate_count);
    cancel(q);
    done(context, status, why);
}

/* The next round, or the outcome. A round ends with its last answer, so a slow peer delays it by
 * ten seconds at most. */
static void step(void *context)
{
    struct router_query *q = context;
    if (q->found) {
        report(q, PL_OK);
        return;
    }
    if (q->late) {
        report(q, PL_EAGAIN);
        return;
    }
    if (q->question_count) return; /* a round ends with its last answer */
    if (q->round++ < KAD_ROUNDS)
        for (size_t i = 0; i < q->candidate_count && q->question_count < KAD_AT_ONCE; i++)
            if (!q->candidates[i].asked) {
                q->candidates[i].asked = 1;
                ask_one(q, &q->candidates[i].id);
            }
    if (!q->question_count) report(q, PL_ENOTFOUND);
}

static void on_late(void *context)
{
    struct router_query *q = context;
    q->late = 1;
    step(q);
}

static void add_connected(void *context, struct peer *p)
{
    /* A peer that has only just connected may serve look-ups before its identify message says
     * so. */
    if ((p->serves_kad || !p->identified) && connection_best(p)) add_candidate(context, &p->id);
}

static struct router_query *find(struct host *h, const struct peer_id *id, double timeout_s,
                                 router_done *done, void *context)
{
    struct router_query *q = calloc(1, sizeof *q);
    struct kad *k = kad_of(h);
    if (!q) return NULL;
    q->host = h;
    q->target = *id;
    q->done = done;
    q->context = context;
    peer_place(q->place, id->bytes, id->length);
    peers_each(host_peerstore(h), add_connected, q);
    list_add(&k->queries, q);
    timer_start(host_loop(h), &q->timer, timeout_s, on_late, q);
    step_soon(q);
    return q;
}

/* --- begin and end ---------------------------------------------------------------------------- */

static int start(struct host *h)
{
    static const struct peer_router router = { find, cancel };
    struct kad *k = calloc(1, sizeof *k);
    if (!k) return PL_ENOMEM;
    host_set_state(h, &kad_protocol, k);
    host_set_router(h, &router);
    return host_is_client(h) ? PL_OK : host_serve(h, KAD, on_asked, h);
}

static void stop(struct host *h)
{
    struct kad *k = kad_of(h);
    if (!k) return;
    while (k->answering) exchange_end(k->answering);
    while (k->queries) report(k->queries, PL_EIO);
    host_set_router(h, NULL);
    host_set_state(h, &kad_protocol, NULL);
    free(k);
}

const struct host_protocol kad_protocol = { .start = start, .stop = stop };
