/* relay_serve.c - the middle: reservations, and circuits between two streams.
 *
 *   hop stream (caller)                          stop stream (callee)
 *      CONNECT {callee} --->  reserved?  ---> CONNECT {caller, limit}
 *      STATUS OK {limit} <---------------------- STATUS OK
 *      bytes <--------------------------------------> bytes, up to the limits */
#include "relay_internal.h"
#include "net/list.h"

#include <stdlib.h>
#include <time.h>

#define PIPE_FULL 65536 /* bytes waiting for the other side, from which on we stop reading */

enum circuit_state { CIRCUIT_ASKED, CIRCUIT_CALLING, CIRCUIT_OPEN };

/* sides[0] is the caller's, sides[1] the callee's. */
struct circuit {
    struct relay *relay;
    struct host *host;
    enum circuit_state state;
    struct side {
        struct circuit *circuit;
        struct stream *stream;
        size_t passed; /* bytes that came from it */
        int ended;
    } sides[2];
    struct peer_id callee;
    struct account account; /* the caller's */
    struct timer timer;
    struct circuit *next, *prev;
};

/* Not the link's account: a reservation and a circuit outlast one of several connections. */
/* Charged to the peer and its subnet, as a connection is. */
static int open_account(struct account *a, struct stream *c)
{
    struct host *h = stream_host(c);
    const struct connection *l = stream_connection(c);
    int rc = l ? resources_open(host_resources(h), a, &l->remote, 0, loop_now(host_loop(h)))
               : PL_EIO;
    if (!rc) rc = resources_authenticate(a, stream_peer(c));
    return rc;
}

static void finish(struct circuit *k)
{
    struct relay *r = k->relay;
    list_remove(&r->circuits, k);
    resources_close(&k->account);
    timer_stop(&k->timer);
    stream_close(k->sides[0].stream);
    stream_close(k->sides[1].stream);
    free(k);
}

static void drop_reservation(struct relay *r, struct reservation *gone)
{
    list_remove(&r->reservations, gone);
    resources_close(&gone->account);
    free(gone);
}

static struct reservation *find_reservation(const struct relay *r, const struct peer_id *peer)
{
    struct reservation *v = r->reservations;
    while (v && !peer_id_equal(&v->peer, peer)) v = v->next;
    return v;
}

static void drop_expired(struct relay *r, double now)
{
    struct reservation *next;
    for (struct reservation *v = r->reservations; v; v = next) {
        next = v->next;
        if (v->until <= now) drop_reservation(r, v);
    }
}

void relay_serve_lost(struct relay *r, const struct peer_id *peer)
{
    struct reservation *v = find_reservation(r, peer);
    if (v) drop_reservation(r, v);
}

void relay_serve_stop_all(struct relay *r)
{
    while (r->circuits) finish(r->circuits);
    while (r->reservations) drop_reservation(r, r->reservations);
}

static void on_late(void *context) { finish(context); }

static struct relay_message our_limit(int type, int status)
{
    return (struct relay_message){ .type = type,
                                   .status = status,
                                   .has_limit = 1,
                                   .duration_s = RELAY_CIRCUIT_S,
                                   .data_bytes = RELAY_CIRCUIT_BYTES };
}

/* Answers the caller's request with a refusal; that ends it. */
/* STATUS with the reason; the caller decides whether to try elsewhere. */
static void refuse(struct circuit *k, int status)
{
    struct relay_message m = { .type = HOP_STATUS, .status = status };
    relay_send(k->sides[0].stream, RELAY_HOP, &m);
    stream_finish(k->sides[0].stream);
    finish(k);
}

/* --- bytes both ways -------------------------------------------------------------------------- */

/* Bytes from one side go to the other, as fast as that takes them. */
static void pass(struct side *from)
{
    struct circuit *k = from->circuit;
    struct side *to = from == &k->sides[0] ? &k->sides[1] : &k->sides[0];
    size_t n, space = stream_queued(to->stream);
    int ended;
    const uint8_t *data = stream_data(from->stream, &n, &ended);
    space = space < PIPE_FULL ? PIPE_FULL - space : 0;
    if (n > space) {
        n = space;
        ended = 0;
    }
    from->passed += n;
    if (from->passed > RELAY_CIRCUIT_BYTES) {
        finish(k);
        return;
    }
    stream_write(to->stream, data, n);
    stream_took(from->stream, n);
    if (!ended || from->ended) return;
    from->ended = 1;
    stream_finish(to->stream);
    if (to->ended) finish(k);
}

static void on_bytes(void *context, struct stream *c)
{
    struct side *from = context;
    if (from->circuit->state == CIRCUIT_OPEN) pass(from);
}

static void on_taken(void *context, struct stream *c)
{
    struct side *to = context;
    struct circuit *k = to->circuit;
    if (k->state == CIRCUIT_OPEN) pass(to == &k->sides[0] ? &k->sides[1] : &k->sides[0]);
}

static void on_gone(void *context, struct stream *c, int status, const char *why)
{
    struct side *side = context;
    struct circuit *k = side->circuit;
    if (side == &k->sides[1] && k->state == CIRCUIT_CALLING) refuse(k, RELAY_CONNECTION_FAILED);
    else finish(k);
}

/* --- setting up ------------------------------------------------------------------------------- */

static void on_stop_answer(void *context, struct stream *c)
{
    struct side *callee = context;
    struct circuit *k = callee->circuit;
    struct relay_message m;
    size_t used;
    int rc;
    if (k->state != CIRCUIT_CALLING) {
        on_bytes(context, c);
        return;
    }
    rc = relay_next(c, RELAY_STOP, &m, &used);
    if (rc == PL_EAGAIN) return;
    if (rc || m.type != STOP_STATUS || m.status != RELAY_OK) {
        refuse(k, RELAY_CONNECTION_FAILED);
        return;
    }
    stream_took(c, used);
    m = our_limit(HOP_STATUS, RELAY_OK);
    relay_send(k->sides[0].stream, RELAY_HOP, &m);
    k->state = CIRCUIT_OPEN;
    stream_both_ways(k->sides[0].stream);
    timer_start(host_loop(k->host), &k->timer, RELAY_CIRCUIT_S, on_late, k);
    pass(callee);
}

/* CONNECT: asks the callee, if it holds a reservation; on_stop_answer goes on. */
static void connect_circuit(struct circuit *k, const struct relay_message *ask)
{
    static const struct stream_events events = { .readable = on_stop_answer,
                                                 .drained = on_taken,
                                                 .failed = on_gone };
    struct host *h = k->host;
    struct relay_message m = our_limit(STOP_CONNECT, 0);
    struct connection *l = connection_best(host_find_peer(h, &ask->peer));
    size_t same = 0;
    drop_expired(k->relay, loop_now(host_loop(h)));
    k->callee = ask->peer;
    for (const struct circuit *other = k->relay->circuits; other; other = other->next)
        same += other != k && peer_id_equal(&other->callee, &ask->peer);
    if (!ask->peer.length) {
        refuse(k, RELAY_MALFORMED_MESSAGE);
    } else if (!l || l->relayed || !find_reservation(k->relay, &ask->peer)) {
        refuse(k, RELAY_NO_RESERVATION);
    } else if (same >= RELAY_CIRCUITS_PER_PEER) {
        refuse(k, RELAY_RESOURCE_LIMIT_EXCEEDED);
    } else if (!(k->sides[1].stream = stream_open_on(l, STOP, RELAY_LIMIT, &events,
                                                     &k->sides[1]))) {
        refuse(k, RELAY_CONNECTION_FAILED);
    } else {
        m.peer = *stream_peer(k->sides[0].stream);
        relay_send(k->sides[1].stream, RELAY_STOP, &m);
        k->state = CIRCUIT_CALLING;
        timer_start(host_loop(h), &k->timer, RELAY_LIMIT, on_late, k);
    }
}

/* Where all are taken, the subnet that has the most loses one, unless it is the requester's. NULL:
 * refused. */
static struct reservation *new_reservation(struct relay *r, struct stream *c)
{
    struct resources *all = host_resources(stream_host(c));
    struct reservation *v = calloc(1, sizeof *v);
    const struct scope *full = NULL;
    struct account *largest;
    if (!v) return NULL;
    v->peer = *stream_peer(c);
    v->account.owner = v;
    if (!open_account(&v->account, c)) {
        while ((full = resources_charge(&v->account, RESOURCE_RESERVATIONS, 1)) &&
               full->kind == SCOPE_SYSTEM &&
               (largest = resources_largest(all, full, RESOURCE_RESERVATIONS)) &&
               largest->subnet != v->account.subnet)
            drop_reservation(r, largest->owner);
        if (!full) {
            list_add(&r->reservations, v);
            return v;
        }
    }
    resources_close(&v->account);
    free(v);
    return NULL;
}

/* RESERVE: the client may be called through us for an hour, while it stays connected. */
static void reserve(struct circuit *k)
{
    struct host *h = k->host;
    struct relay *r = k->relay;
    struct stream *c = k->sides[0].stream;
    const struct connection *l = stream_connection(c);
    double now = loop_now(host_loop(h));
    struct relay_message m = our_limit(HOP_STATUS, RELAY_OK);
    struct reservation *mine;
    drop_expired(r, now);
    mine = find_reservation(r, stream_peer(c));
    if (!l || l->relayed) { /* a circuit through a circuit would never end */
        refuse(k, RELAY_PERMISSION_DENIED);
        return;
    }
    if (!mine && !(mine = new_reservation(r, c))) {
        refuse(k, RELAY_RESERVATION_REFUSED);
        return;
    }
    mine->until = now + RELAY_RESERVATION_S;
    m.has_reservation = 1;
    m.expire = (uint64_t)time(NULL) + (uint64_t)RELAY_RESERVATION_S;
    m.address_count = host_addresses(h, m.addresses, RELAY_ADDRESSES_MAX);
    relay_send(c, RELAY_HOP, &m);
    stream_finish(c);
    finish(k);
}

/* The first message says the purpose of the stream; after CONNECT it is a pipe. */
static void on_hop_request(void *context, struct stream *c)
{
    struct side *caller = context;
    struct circuit *k = caller->circuit;
    struct relay_message m;
    size_t used;
    int rc;
    if (k->state != CIRCUIT_ASKED) {
        on_bytes(context, c);
        return;
    }
    rc = relay_next(c, RELAY_HOP, &m, &used);
    if (rc == PL_EAGAIN) return;
    stream_took(c, rc ? 0 : used);
    if (rc) refuse(k, RELAY_MALFORMED_MESSAGE);
    else if (m.type == HOP_RESERVE) reserve(k);
    else if (m.type == HOP_CONNECT) connect_circuit(k, &m);
    else refuse(k, RELAY_UNEXPECTED_MESSAGE);
}

void relay_serve_hop(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = on_hop_request,
                                                 .drained = on_taken,
                                                 .failed = on_gone };
    struct relay *r = context;
    struct circuit *k = calloc(1, sizeof *k);
    if (!k || open_account(&k->account, c) || resources_charge(&k->account, RESOURCE_CIRCUITS, 1)) {
        if (k) resources_close(&k->account);
        free(k);
        stream_close(c);
        return;
    }
    k->relay = r;
    k->host = r->host;
    k->sides[0] = (struct side){ .circuit = k, .stream = c };
    k->sides[1].circuit = k;
    list_add(&r->circuits, k);
    stream_listen(c, &events, &k->sides[0]);
    timer_start(host_loop(r->host), &k->timer, RELAY_LIMIT, on_late, k);
}
