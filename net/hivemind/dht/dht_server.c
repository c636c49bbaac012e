/* dht_server.c - how a request is handled [spec hivemind-protocol 1.3]:
 *
 *  bytes --token and signature checked--> plain request --dht_serve--> answer --signed--> bytes
 *                                             |
 *                                             +--ping with `validate`--> the caller is called first
 *
 * dht_serve.c computes the answers; here are the network, access tokens, and accounting: the
 * records of a caller are charged to its peer ID and its subnet. */
#include "dht_server.h"
#include "net/libp2p/rpc/rpc.h"
#include "net/fair.h"
#include "net/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A ping with `validate` asks "can others call me?". Its answer waits until our own ping has
 * come back, or failed. */
struct dht_validation {
    struct dht_server *server;
    struct rpc_call
        *call; /* NULL: it has lost its place and been answered; our ping is on its way */
    struct peer_id peer;
    uint64_t subnet;
    struct dht_id id;
    uint8_t nonce[AUTH_NONCE];
    struct dht_validation *next, *prev;
};

/* In a moderated swarm the answer is signed over the request's nonce (auth.c). */
static void reply(struct dht_core *n, struct rpc_call *call, const struct bytes *plain,
                  const uint8_t nonce[AUTH_NONCE])
{
    struct bytes answer = { 0 };
    if (!n->auth) {
        rpc_reply(call, bytes_at(plain), bytes_length(plain));
    } else if (!auth_sign_response(&answer, n->auth, nonce, bytes_at(plain), bytes_length(plain))) {
        rpc_reply(call, bytes_at(&answer), bytes_length(&answer));
    } else {
        rpc_reply_error(call, "MemoryError()");
    }
    bytes_clear(&answer);
}

/* hivemind answers an exception with its repr: ValueError('...'). Single quotes inside would end
 * the text early. */
static void refuse(struct rpc_call *call, const struct pl_err *err)
{
    char text[sizeof err->text + 16];
    snprintf(text, sizeof text, "ValueError('%s')", err->text);
    for (char *c = text + 12; c[0] && c[1] && c[2]; c++)
        if (*c == '\'') *c = '"';
    rpc_reply_error(call, text);
}

/* Once answered, the call is gone; nothing else refers to the validation. */
static void end_validation(struct dht_validation *v)
{
    list_remove(&v->server->validations, v);
    free(v);
}

static void answer_validation(struct dht_validation *v, int available)
{
    struct dht_core *n = v->server->core;
    struct bytes answer = { 0 };
    if (dht_serve_validated(&n->state, dht_core_time(n), available, &answer))
        rpc_reply_error(v->call, "MemoryError()");
    else reply(n, v->call, &answer, v->nonce);
    bytes_clear(&answer);
    v->call = NULL;
}

/* Our ping to the caller has come back, or failed: now it gets its answer. */
static void on_called_back(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_validation *v = context;
    /* The node that answered must be the one that asked: another node may have its address by
     * now. */
    int available = !r->status && r->pong->has_id && dht_id_equal(&r->pong->id, &v->id);
    (void)who; /* dht_table.c has added it on its answer */
    if (v->call) answer_validation(v, available);
    end_validation(v);
}

/* Whether one more of this peer may wait. When all places are taken, the newest of the subnet with
 * the most is answered "not available"; groupmates and bootstrap peers come first. */
static int has_place(struct dht_server *s, const struct peer_id *peer, uint64_t subnet)
{
    struct fair f = { 0 };
    struct dht_validation *leaves = NULL;
    size_t own = 0, waiting = 0;
    for (struct dht_validation *v = s->validations; v; v = v->next) {
        own += peer_id_equal(&v->peer, peer);
        if (!v->call) continue;
        waiting++;
        fair_count(&f, v->subnet);
    }
    if (own == VALIDATIONS_PEER_MAX) return 0;
    if (waiting < VALIDATIONS_MAX) return 1;
    if (!host_protects(s->core->host, peer)) fair_newcomer(&f, subnet);
    for (struct dht_validation *v = s->validations; v; v = v->next)
        if (v->call && fair_has_more(&f, v->subnet)) leaves = v;
    if (leaves) answer_validation(leaves, 0);
    return leaves != NULL;
}

/* Calling back costs us a connection, so the number of callers that wait for one is limited.
 * PL_EAGAIN: too many of them wait. The ping goes to the peer ID that the handshake proved, never
 * to an address that the caller names: it cannot be used to make us call a third party. */
static int call_back(struct dht_server *s, struct rpc_call *call, const struct dht_id *id,
                     const uint8_t nonce[AUTH_NONCE])
{
    const struct peer_id *peer = rpc_caller(call);
    const uint64_t subnet = dht_core_subnet(s->core, peer);
    struct dht_validation *v;
    if (!has_place(s, peer, subnet) || !(v = calloc(1, sizeof *v))) return PL_EAGAIN;
    v->server = s;
    v->call = call;
    v->peer = *peer;
    v->subnet = subnet;
    v->id = *id;
    memcpy(v->nonce, nonce, AUTH_NONCE);
    if (dht_ask_ping(s->calls, peer, 0, on_called_back, v)) {
        free(v);
        return PL_EAGAIN;
    }
    list_add(&s->validations, v);
    return PL_OK;
}

/* In a moderated swarm: token and signature are valid, and *data is the plain message behind them.
 * A peer that has failed too often is refused unchecked. */
static int check_member(struct dht_core *n, const struct dht_caller *caller, const uint8_t **data,
                        size_t *length, uint8_t nonce[AUTH_NONCE], double now, struct pl_err *err)
{
    int rc;
    if (!dht_members_may_try(&n->members, &caller->peer, caller->subnet, now))
        return pl_fail(err, PL_EPROTO, "too many wrong access tokens: wait");
    rc = auth_check_request(data, length, nonce, n->auth, now, *data, *length, err);
    if (!rc) rc = auth_check_sender(*data, *length, &caller->peer, err);
    if (rc) dht_members_failed(&n->members, &caller->peer, caller->subnet, now);
    else dht_members_add(&n->members, &caller->peer, n->auth->until);
    return rc;
}

/* One request of another node. Order: is the caller a member, then the answer from our state, and
 * the routing table last, so that a caller never appears in its own answer. */
static void serve(struct dht_server *s, enum dht_call kind, struct rpc_call *call,
                  const uint8_t *data, size_t length)
{
    struct dht_core *n = s->core;
    struct dht_caller caller = { .peer = *rpc_caller(
                                     call) }; /* a copy: the call ends when answered */
    uint8_t nonce[AUTH_NONCE] = { 0 };
    struct bytes answer = { 0 };
    struct dht_request r = { .has_id = 0 };
    struct pl_err err = { "" };
    double now = dht_core_time(n);
    int rc = PL_OK;
    n->calls_served++;
    dht_core_hold_clock(n);
    /* Token, signature, time and nonce first: an outsider gets an error and no work is done for it
     * [spec hivemind-protocol 3]. Then the message is the part behind field 1. */
    if (n->auth || kind == DHT_STORE) caller.subnet = dht_core_subnet(n, &caller.peer);
    if (n->auth) rc = check_member(n, &caller, &data, &length, nonce, now, &err);
    if (!rc) rc = dht_serve(&n->state, kind, now, &caller, data, length, &answer, &r, &err);
    if (kind == DHT_STORE) dht_core_count_records(n);
    if (rc) {
        refuse(call, &err);
    } else if (bytes_length(&answer)) {
        reply(n, call, &answer, nonce);
        /* A caller with an id is a node: it goes into the routing table. Clients have none. */
        if (r.has_id) dht_table_seen(s->table, &r.id, &caller.peer);
    } else if (call_back(s, call, &r.id, nonce)) {
        /* A ping to be validated, which we can't now, so "not available": the caller asks another
         * initial peer, or is a client for a while. */
        if (!dht_serve_validated(&n->state, now, 0, &answer)) reply(n, call, &answer, nonce);
        else rpc_reply_error(call, "MemoryError()");
    }
    dht_request_clear(&r);
    bytes_clear(&answer);
}

static void on_ping(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    serve(context, DHT_PING, call, data, n);
}

static void on_store(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    serve(context, DHT_STORE, call, data, n);
}

static void on_find(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    serve(context, DHT_FIND, call, data, n);
}

int dht_server_open(struct dht_server *s, struct pl_err *err)
{
    static rpc_unary_handler *const handlers[DHT_CALLS] = { on_ping, on_store, on_find };
    struct host *host = s->core->host;
    for (int i = 0; i < DHT_CALLS; i++) {
        int rc = rpc_serve_unary(host, dht_call_name((enum dht_call)i), handlers[i], s);
        if (!rc) continue;
        /* A host has one DHT at most: the protocols' names have no namespace. */
        while (i-- > 0) rpc_unserve(host, dht_call_name((enum dht_call)i));
        return pl_fail(err, rc, "DHT: this host serves a node already");
    }
    s->is_registered = 1;
    return PL_OK;
}

/* Callers that wait for their validation get an error, not silence: they need not time out. */
void dht_server_close(struct dht_server *s)
{
    for (int i = 0; s->is_registered && i < DHT_CALLS; i++)
        rpc_unserve(s->core->host, dht_call_name((enum dht_call)i));
    s->is_registered = 0;
    while (s->validations) {
        if (s->validations->call) rpc_reply_error(s->validations->call, "RuntimeError('leaving')");
        end_validation(s->validations);
    }
}
