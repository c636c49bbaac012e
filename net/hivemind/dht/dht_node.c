/* dht_node.c - the node's life, what it answers, and what it learns from every message. */
#include "dht_node_internal.h"
#include "net/hivemind/records/hash_index.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VALIDATIONS_MAX 128 /* callers that wait until we have called them back */
/* s; a peer with a new id gets our records again after that: ids are free */
#define HAND_OVER_AGAIN 60.0

double dht_node_time(const struct dht_node *n)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + n->clock_offset;
}

/* --- what every message teaches --------------------------------------------------------------- */

static struct blacklisted *blacklisted(const struct dht_node *n, const struct peer_id *peer)
{
    for (size_t i = 0; i < n->blacklist_count; i++)
        if (peer_id_equal(&n->blacklist[i].peer, peer)) return &n->blacklist[i];
    return NULL;
}

/* We have entered without waiting for its answer any longer. */
static int is_late_initial(const struct dht_node *n, const struct peer_id *peer)
{
    for (size_t i = 0; !n->joining && i < n->initial_count; i++)
        if (n->initials[i].state == INITIAL_TRYING && peer_id_equal(&n->initials[i].peer, peer))
            return 1;
    return 0;
}

int dht_node_avoids(const struct dht_node *n, const struct peer_id *peer)
{
    const struct blacklisted *b = blacklisted(n, peer);
    return (b && loop_now(n->loop) < b->until) || is_late_initial(n, peer);
}

double dht_node_patience(const struct dht_node *n) { return DHT_SEARCH_PATIENCE + 2 * n->answer_s; }

void dht_node_answered(struct dht_node *n, const struct peer_id *peer, double seconds)
{
    struct blacklisted *b = blacklisted(n, peer);
    n->answer_s += n->answer_s > 0 ? (seconds - n->answer_s) / 8 : seconds;
    if (b) *b = n->blacklist[--n->blacklist_count];
}

void dht_node_lost(struct dht_node *n, const struct dht_id *id, const struct peer_id *peer)
{
    struct blacklisted *b = blacklisted(n, peer);
    if (id) dht_routing_remove(&n->state.routing, id);
    if (!b) {
        if (n->blacklist_count == BLACKLIST_MAX) { /* whoever is let in again first gives way */
            b = &n->blacklist[0];
            for (size_t i = 1; i < n->blacklist_count; i++)
                if (n->blacklist[i].until < b->until) b = &n->blacklist[i];
        } else {
            b = &n->blacklist[n->blacklist_count++];
        }
        b->peer = *peer;
        b->failures = 0;
    }
    b->until = loop_now(n->loop) + fmin(BLACKLIST_LONGEST, BLACKLIST_FIRST * ldexp(1, b->failures));
    if (b->failures < 30) b->failures++;
}

/* A bucket is full: does its longest silent node still live? A failure removes it. */
static void on_checked(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_node *n = context;
    const struct dht_contact *known = dht_routing_find_peer(&n->state.routing, &who->peer);
    if (known && (r->status || (r->pong->has_id && !dht_id_equal(&r->pong->id, &known->id))))
        dht_routing_remove(&n->state.routing, &known->id);
}

static void hand_over(struct dht_node *n, const struct dht_contact *newcomer)
{
    struct dht_record *records;
    struct bytes packed = { 0 };
    size_t count;
    if (!dht_state_hand_over(&n->state, dht_node_time(n), &newcomer->id, &records, &count,
                             &packed)) {
        for (size_t i = 0; i < count; i++) dht_ask_store(n, newcomer, &records[i], NULL, NULL);
        free(records);
    }
    bytes_clear(&packed);
}

void dht_node_seen(struct dht_node *n, const struct dht_id *id, const struct peer_id *peer)
{
    struct dht_contact ask, c = { .id = *id, .peer = *peer };
    const struct dht_contact *old = dht_routing_find_peer(&n->state.routing, peer);
    double now = loop_now(n->loop);
    int is_new = !dht_routing_find(&n->state.routing, id);
    if (dht_id_equal(id, &n->state.self) || peer_id_equal(peer, host_id(n->host))) return;
    if (old && !dht_id_equal(&old->id, id)) { /* one place in the table for one peer: its latest */
        struct dht_id was = old->id;
        is_new = is_new && now - old->seen >= HAND_OVER_AGAIN;
        dht_routing_remove(&n->state.routing, &was);
    }
    if (is_new && !n->state.client_mode) hand_over(n, &c);
    if (!dht_routing_add(&n->state.routing, id, peer, now, &ask) && ask.peer.length)
        dht_ask_ping(n, &ask.peer, 0, on_checked, n);
}

/* --- serving ---------------------------------------------------------------------------------- */

/* A ping with `validate`: answered when we have called back. */
struct validation {
    struct dht_node *node;
    struct rpc_call *call;
    struct dht_id id;
    uint8_t nonce[AUTH_NONCE];
    struct validation *next;
};

static void reply(struct dht_node *n, struct rpc_call *call, const struct bytes *plain,
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

/* As hivemind shows an exception; quotes inside would end the text early. */
static void refuse(struct rpc_call *call, const struct pl_err *err)
{
    char text[sizeof err->text + 16];
    snprintf(text, sizeof text, "ValueError('%s')", err->text);
    for (char *c = text + 12; c[0] && c[1] && c[2]; c++)
        if (*c == '\'') *c = '"';
    rpc_reply_error(call, text);
}

static void end_validation(struct validation *v)
{
    struct validation **at = &v->node->validations;
    while (*at != v) at = &(*at)->next;
    *at = v->next;
    v->node->validation_count--;
    free(v);
}

static void on_called_back(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct validation *v = context;
    struct dht_node *n = v->node;
    struct bytes answer = { 0 };
    int available = !r->status && r->pong->has_id && dht_id_equal(&r->pong->id, &v->id);
    (void)who; /* our call has put it into the table by itself */
    if (dht_serve_validated(&n->state, dht_node_time(n), available, &answer))
        rpc_reply_error(v->call, "MemoryError()");
    else reply(n, v->call, &answer, v->nonce);
    bytes_clear(&answer);
    end_validation(v);
}

/* PL_EAGAIN: too many of them wait. */
static int call_back(struct dht_node *n, struct rpc_call *call, const struct dht_id *id,
                     const uint8_t nonce[AUTH_NONCE])
{
    struct validation *v;
    if (n->validation_count == VALIDATIONS_MAX || !(v = calloc(1, sizeof *v))) return PL_EAGAIN;
    v->node = n;
    v->call = call;
    v->id = *id;
    memcpy(v->nonce, nonce, AUTH_NONCE);
    if (dht_ask_ping(n, rpc_caller(call), 0, on_called_back, v)) {
        free(v);
        return PL_EAGAIN;
    }
    v->next = n->validations;
    n->validations = v;
    n->validation_count++;
    return PL_OK;
}

/* The /24 or /64 of the connection, as a hash; a relay's for a peer behind one. */
static uint64_t subnet_of(const struct dht_node *n, const struct peer_id *peer)
{
    struct multiaddr a;
    struct multiaddr_target t;
    if (host_remote_address(n->host, peer, &a) || multiaddr_target(&t, &a) || !t.family) return 0;
    return hash_bytes(t.ip, t.family == 4 ? 3 : 8);
}

static void serve(struct dht_node *n, enum dht_call kind, struct rpc_call *call,
                  const uint8_t *data, size_t length)
{
    struct dht_caller caller = { .peer = *rpc_caller(call) }; /* the call is gone once answered */
    uint8_t nonce[AUTH_NONCE] = { 0 };
    struct bytes answer = { 0 };
    struct dht_request r = { .has_id = 0 };
    struct pl_err err = { "" };
    double now = dht_node_time(n);
    int rc = PL_OK;
    n->calls_served++;
    if (n->auth) {
        rc = auth_check_request(&data, &length, nonce, n->auth, now, data, length, &err);
        if (!rc) rc = auth_check_sender(data, length, &caller.peer, &err);
        if (!rc) dht_members_add(n, &caller.peer, n->auth->until);
    }
    if (kind == DHT_STORE) caller.subnet = subnet_of(n, &caller.peer);
    if (!rc) rc = dht_serve(&n->state, kind, now, &caller, data, length, &answer, &r, &err);
    if (rc) {
        refuse(call, &err);
    } else if (bytes_length(&answer)) {
        reply(n, call, &answer, nonce);
        if (r.has_id) dht_node_seen(n, &r.id, &caller.peer);
    } else if (call_back(n, call, &r.id, nonce)) {
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

static int start_serving(struct dht_node *n, struct pl_err *err)
{
    static rpc_unary_handler *const handlers[DHT_CALLS] = { on_ping, on_store, on_find };
    for (int i = 0; i < DHT_CALLS; i++) {
        int rc = rpc_serve_unary(n->host, dht_call_name((enum dht_call)i), handlers[i], n);
        if (!rc) continue;
        while (i-- > 0) rpc_unserve(n->host, dht_call_name((enum dht_call)i));
        return pl_fail(err, rc, "DHT: this host serves a node already");
    }
    n->serves = 1;
    return PL_OK;
}

static void stop_serving(struct dht_node *n)
{
    for (int i = 0; n->serves && i < DHT_CALLS; i++)
        rpc_unserve(n->host, dht_call_name((enum dht_call)i));
    n->serves = 0;
    while (n->validations) {
        rpc_reply_error(n->validations->call, "RuntimeError('leaving')");
        end_validation(n->validations);
    }
}

/* --- pings for the user ----------------------------------------------------------------------- */

static void on_pong(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_task *t = context, **at = &t->node->pings;
    struct dht_pong pong = { .seconds = r->seconds, .clock_error = NAN, .error = r->error };
    (void)who;
    if (r->pong) {
        pong.has_id = r->pong->has_id;
        pong.id = r->pong->id;
        pong.available = r->pong->available;
        if (r->pong->dht_time != 0) /* its clock was read half-way */
            pong.clock_error = r->pong->dht_time - (dht_node_time(t->node) - r->seconds / 2);
    }
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (!t->cancelled) t->pinged(t->context, r->status, &pong);
    free(t);
}

struct dht_task *dht_node_ping(struct dht_node *n, const struct peer_id *peer, int validate,
                               dht_pinged *pinged, void *context)
{
    struct dht_task *t = calloc(1, sizeof *t);
    if (!t || dht_ask_ping(n, peer, validate, on_pong, t)) {
        free(t);
        return NULL;
    }
    t->node = n;
    t->pinged = pinged;
    t->context = context;
    t->next = n->pings;
    n->pings = t;
    return t;
}

void dht_node_cancel(struct dht_task *t) { t->cancelled = 1; }

static void close_pings(struct dht_node *n)
{
    while (n->pings) {
        struct dht_task *t = n->pings;
        struct dht_pong pong = { .clock_error = NAN, .error = "the node is closed" };
        n->pings = t->next;
        if (!t->cancelled) t->pinged(t->context, PL_EAGAIN, &pong);
        free(t);
    }
}

/* --- life ------------------------------------------------------------------------------------- */

/* Wishes become searches, searches become calls, calls are put together and sent. */
static void on_turn(void *context)
{
    struct dht_node *n = context;
    dht_join_turn(n);
    dht_get_turn(n);
    dht_put_turn(n);
    dht_walk_turn(n);
    dht_outgoing_turn(n);
}

void dht_node_wake(struct dht_node *n)
{
    if (!n->turn.place && !n->closing) timer_start(n->loop, &n->turn, 0, on_turn, n);
}

static int prepare(struct dht_node *n, struct host *h, const struct dht_node_options *o,
                   struct pl_err *err)
{
    struct dht_id self;
    n->host = h;
    n->loop = host_loop(h);
    n->self = (struct dht_caller){ .peer = *host_id(h), .is_self = 1 };
    n->auth = o->auth;
    if (n->auth) n->auth->self = *host_id(h);
    n->held = o->hold;
    n->call_limit = o->call_limit_s > 0 ? o->call_limit_s : DHT_CALL_LIMIT;
    n->clock_error = NAN;
    n->wants_client_mode = o->client_mode;
    n->called_back = !o->client_mode;
    if (!(n->blacklist = malloc(BLACKLIST_MAX * sizeof *n->blacklist)) || dht_id_random(&self) ||
        dht_state_init(&n->state, &self, o->client_mode,
                       o->validators ? o->validators : &n->fallback))
        return pl_fail(err, PL_ENOMEM, "DHT: no memory");
    return PL_OK;
}

int dht_node_open(struct dht_node **out, struct host *h, const struct dht_node_options *o,
                  dht_joined *joined, void *context, struct pl_err *err)
{
    struct dht_node *n = calloc(1, sizeof *n);
    int rc;
    *out = NULL;
    if (!n) return pl_fail(err, PL_ENOMEM, "DHT: no memory");
    rc = prepare(n, h, o, err);
    n->on_joined = joined;
    n->on_joined_context = context;
    /* Handlers first: whoever we ping calls back before it answers. */
    if (!rc && !o->client_mode) rc = start_serving(n, err);
    if (!rc) rc = dht_reach_open(n);
    if (!rc) rc = dht_join_open(n, o->join, o->join_count, err);
    if (rc) dht_node_close(n);
    else *out = n;
    return rc;
}

void dht_node_close(struct dht_node *n)
{
    if (!n) return;
    n->closing = 1;
    stop_serving(n);
    timer_stop(&n->turn);
    dht_join_close(n);
    dht_reach_close(n);
    dht_outgoing_close(n);
    dht_walk_close(n);
    dht_get_close(n);
    dht_put_close(n);
    close_pings(n);
    dht_members_close(n);
    dht_state_clear(&n->state);
    free(n->blacklist);
    free(n);
}

int dht_node_can_be_called(const struct dht_node *n)
{
    return !n->wants_client_mode && n->called_back && dht_reach_is_open(n);
}

int dht_node_is_closed(const struct dht_node *n) { return dht_reach_is_closed(n); }

int dht_node_knows_reach(const struct dht_node *n) { return dht_reach_is_known(n); }

void dht_node_status(const struct dht_node *n, struct dht_status *s)
{
    memset(s, 0, sizeof *s);
    s->id = n->state.self;
    s->joined = n->joined;
    s->client_mode = n->wants_client_mode;
    s->reachable = dht_node_can_be_called(n);
    s->relayed = dht_reach_is_relayed(n);
    s->clock_offset = n->clock_offset;
    s->clock_error = n->clock_error;
    s->nodes = dht_routing_size(&n->state.routing);
    s->records = n->state.storage.count;
    s->cached = n->state.cache.count;
    s->initial = n->initial_count;
    for (size_t i = 0; i < n->initial_count; i++)
        s->initial_answered += n->initials[i].state == INITIAL_GOOD;
    s->calls_made = n->calls_made;
    s->calls_failed = n->calls_failed;
    s->calls_served = n->calls_served;
}
