/* golden_protocol_calls.c - a recorded DHT, call by call: our server must give the recorded
 * responses; our client must make the recorded requests and find the same results.
 *
 * What each node knows follows from the recording: nodes that exchange a call with a node id learn
 * of each other, stores arrive in calls, and a storing node keeps the record if it is one of the
 * nearest. */
#include "golden_protocol.h"
#include "golden_python_repr.h"
#include "net/hivemind/kademlia/dht_search.h"
#include "net/hivemind/kademlia/dht_serve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct dht_state state;
    struct peer_id peer;
    int checks; /* 1: it has refused a record whose signature is wrong */
};

struct call {
    size_t caller, callee;
    enum dht_call kind;
    double t;
    struct bytes request, response;
    int used; /* 1: one of our searches made this call */
};

struct replay {
    struct golden *g;
    struct node *nodes;
    struct call *calls;
    size_t node_count, call_count;
    double base; /* DHT time at t = 0 */
};

static const struct validators signatures_only;

/* --- reading the recording -------------------------------------------------------------------- */

static int is_named(const struct peer_id *peer, const json_t *node)
{
    char text[PEER_ID_TEXT_MAX];
    peer_id_text(text, peer);
    return !json_object_get(node, "peer_id") || !strcmp(text, protocol_text(node, "peer_id"));
}

static int read_nodes(struct replay *r, const json_t *nodes)
{
    size_t i;
    json_t *n;
    if (!(r->nodes = calloc(json_array_size(nodes) + 1, sizeof *r->nodes))) return 0;
    json_array_foreach(nodes, i, n)
    {
        struct bytes peer = { 0 };
        struct dht_id id;
        int good = protocol_id(r->g, n, "node_id", &id) &&
                   wire_member(r->g, n, "peer_id_bytes", &peer) &&
                   !peer_id_parse(&r->nodes[i].peer, bytes_at(&peer), bytes_length(&peer)) &&
                   is_named(&r->nodes[i].peer, n) &&
                   !dht_state_init(&r->nodes[i].state, &id, 0, NULL);
        bytes_clear(&peer);
        if (!good) return 0;
        r->node_count++;
    }
    return 1;
}

static int read_call(struct replay *r, const json_t *c)
{
    struct call *to = &r->calls[r->call_count];
    const json_t *messages = json_object_get(c, "messages");
    const char *protocol = protocol_text(c, "protocol");
    to->caller = (size_t)golden_int(r->g, c, "caller");
    to->callee = (size_t)golden_int(r->g, c, "callee");
    to->t = golden_real(r->g, c, "t");
    while (to->kind < DHT_CALLS && strcmp(protocol, dht_call_name(to->kind))) to->kind++;
    if (to->kind == DHT_CALLS || to->caller >= r->node_count || to->callee >= r->node_count ||
        json_array_size(messages) != 2 ||
        strcmp(protocol_text(json_array_get(messages, 0), "dir"), "request") ||
        strcmp(protocol_text(json_array_get(messages, 1), "dir"), "response"))
        return 0;
    r->call_count++;
    return wire_member(r->g, json_array_get(messages, 0), "hex", &to->request) &&
           wire_member(r->g, json_array_get(messages, 1), "hex", &to->response);
}

static int read_calls(struct replay *r, const json_t *calls)
{
    size_t i;
    json_t *c;
    if (!(r->calls = calloc(json_array_size(calls) + 1, sizeof *r->calls))) return 0;
    json_array_foreach(calls, i, c) if (!read_call(r, c))
    {
        golden_fail(r->g, "call", "%zu cannot be read", i);
        return 0;
    }
    return 1;
}

static int by_time(const void *a_, const void *b_)
{
    const struct call *a = a_, *b = b_;
    return (a->t > b->t) - (a->t < b->t);
}

/* Finds the nodes' clock, and the nodes that check signatures: these refuse records that are not
 * signed well. */
static void find_clock_and_checkers(struct replay *r)
{
    r->base = NAN;
    for (size_t i = 0; i < r->call_count; i++) {
        struct call *c = &r->calls[i];
        struct dht_answer answer;
        struct dht_request request;
        if (dht_read_request(&request, c->kind, bytes_at(&c->request), bytes_length(&c->request),
                             NULL))
            continue;
        if (!dht_read_answer(&answer, c->kind, request.count, bytes_at(&c->response),
                             bytes_length(&c->response), NULL)) {
            if (c->kind == DHT_PING && isnan(r->base) && answer.dht_time > 0)
                r->base = answer.dht_time - c->t;
            for (size_t k = 0; c->kind == DHT_STORE && k < request.count; k++) {
                const struct dht_record *s = &request.records[k];
                struct record record = { .key = s->key.bytes,
                                         .key_n = DHT_ID_BYTES,
                                         .subkey = s->subkey,
                                         .subkey_n = s->subkey_n,
                                         .value = s->value,
                                         .n = s->n,
                                         .expiration = s->expiration };
                if (!answer.ok[k] && s->subkey_n && record_check(&signatures_only, &record, NULL))
                    r->nodes[c->callee].checks = 1;
            }
            dht_answer_clear(&answer);
        }
        if (!request.has_id) r->nodes[c->caller].state.client_mode = 1;
        dht_request_clear(&request);
    }
    for (size_t i = 0; i < r->node_count; i++)
        if (r->nodes[i].checks) r->nodes[i].state.validators = &signatures_only;
}

/* --- calls ------------------------------------------------------------------------------------ */

static void write_again(struct replay *r, const struct call *c, const struct dht_request *request)
{
    const struct dht_id *self = dht_state_self(&r->nodes[c->caller].state);
    struct bytes out = { 0 };
    if (c->kind == DHT_PING) dht_write_ping(&out, self, request->validate);
    else if (c->kind == DHT_STORE) dht_write_store(&out, self, request->records, request->count);
    else dht_write_find(&out, self, request->keys, request->count);
    wire_same(r->g, "request is written", &out, &c->request);
    bytes_clear(&out);
}

/* Of all nodes, how many are nearer to the key? */
static int is_replica(const struct replay *r, size_t node, const struct dht_id *key)
{
    size_t nearer = 0;
    for (size_t i = 0; i < r->node_count; i++)
        nearer += i != node && !r->nodes[i].state.client_mode &&
                  dht_id_nearer(&r->nodes[i].state.self, &r->nodes[node].state.self, key) < 0;
    return nearer < DHT_REPLICAS;
}

static void learn_of(struct replay *r, size_t node, size_t peer, double t)
{
    dht_routing_add(&r->nodes[node].state.routing, &r->nodes[peer].state.self, &r->nodes[peer].peer,
                    t, NULL);
}

/* 1 if the callee called the caller back, by its own ping, while this one was under way. */
static int was_called_back(const struct replay *r, const struct call *c)
{
    for (size_t i = 0; i < r->call_count; i++) {
        const struct call *back = &r->calls[i];
        if (back->kind == DHT_PING && back->caller == c->callee && back->callee == c->caller &&
            back->t >= c->t && back->t <= c->t + 3)
            return 1;
    }
    return 0;
}

/* A node that stored a value successfully caches it; part of a dictionary only if the key is cached
 * already. */
static void keep_in_cache(struct replay *r, const struct call *c, const struct dht_request *request,
                          double now)
{
    struct dht_answer answer;
    if (dht_read_answer(&answer, DHT_STORE, request->count, bytes_at(&c->response),
                        bytes_length(&c->response), NULL))
        return;
    for (size_t i = 0; i < request->count; i++) {
        struct dht_record record = request->records[i];
        struct dht_state *caller = &r->nodes[c->caller].state;
        int is_value = record.subkey_n == 1 && record.subkey[0] == 0xc0;
        if (record.in_cache || !answer.ok[i] ||
            (!is_value && !dht_store_get(&caller->cache, now, &record.key)))
            continue;
        record.in_cache = 1;
        dht_state_store(caller, now, &record);
    }
    dht_answer_clear(&answer);
}

static void replay_call(struct replay *r, struct call *c)
{
    struct dht_state *callee = &r->nodes[c->callee].state;
    struct dht_request request;
    struct dht_answer recorded;
    struct bytes answer = { 0 };
    struct pl_err err;
    double now = r->base + c->t;
    char what[100];
    int rc = dht_read_request(&request, c->kind, bytes_at(&c->request), bytes_length(&c->request),
                              &err);
    snprintf(what, sizeof what, "%s %zu to %zu at %.4f", dht_call_name(c->kind), c->caller,
             c->callee, c->t);
    if (rc) {
        golden_fail(r->g, dht_call_name(c->kind), "%s", err.text);
        return;
    }
    write_again(r, c, &request);
    if (c->kind == DHT_PING && !dht_read_answer(&recorded, DHT_PING, 0, bytes_at(&c->response),
                                                bytes_length(&c->response), NULL)) {
        now = recorded.dht_time;
        dht_answer_clear(&recorded);
    }
    for (size_t i = 0; c->kind == DHT_STORE && i < request.count; i++)
        if (!request.records[i].in_cache && is_replica(r, c->caller, &request.records[i].key))
            dht_state_store(&r->nodes[c->caller].state, now, &request.records[i]);
    if (c->kind == DHT_STORE) keep_in_cache(r, c, &request, now);
    dht_request_clear(&request);
    rc = dht_serve(callee, c->kind, now, &(struct dht_caller){ .peer = r->nodes[c->caller].peer },
                   bytes_at(&c->request), bytes_length(&c->request), &answer, &request, &err);
    if (!rc && !bytes_length(&answer))
        dht_serve_validated(callee, now, was_called_back(r, c), &answer);
    if (rc) golden_fail(r->g, what, "%s", err.text);
    else wire_same(r->g, what, &answer, &c->response);
    if (!rc && request.has_id) learn_of(r, c->callee, c->caller, c->t);
    learn_of(r, c->caller, c->callee, c->t);
    dht_request_clear(&request);
    bytes_clear(&answer);
}

/* --- searches --------------------------------------------------------------------------------- */

static struct call *find_call(struct replay *r, size_t caller, const struct dht_contact *node,
                              double from, double until)
{
    for (size_t i = 0; i < r->call_count; i++) {
        struct call *c = &r->calls[i];
        if (c->kind == DHT_FIND && c->caller == caller && c->t >= from && c->t <= until &&
            dht_id_equal(&r->nodes[c->callee].state.self, &node->id))
            return c;
    }
    return NULL;
}

/* Walks as our node would; where it asks, the recorded answer is given. */
static void walk(struct replay *r, size_t caller, struct dht_search *s, double from, double until)
{
    const struct dht_id *self = dht_state_self(&r->nodes[caller].state);
    struct dht_contact node;
    while (!dht_search_is_over(s) && dht_search_next(s, &node)) {
        struct call *c = find_call(r, caller, &node, from, until);
        struct dht_answer answer;
        struct bytes request = { 0 };
        if (!c || dht_read_answer(&answer, DHT_FIND, 1, bytes_at(&c->response),
                                  bytes_length(&c->response), NULL)) {
            dht_search_failed(s, &node.id);
            continue;
        }
        dht_write_find(&request, self, &s->key, 1);
        wire_same(r->g, "our search asks", &request, &c->request);
        c->used = 1;
        dht_search_answered(s, &node.id, &answer.found[0]);
        dht_answer_clear(&answer);
        bytes_clear(&request);
    }
}

/* The key is the text between the first pair of quotes. <prefix> stands for any prefix, so such a
 * key is taken from the calls: the one requested meanwhile, or else the one stored last. */
static int key_of(struct replay *r, const char *op, size_t caller, double from, double until,
                  struct dht_id *key)
{
    const char *begin = strchr(op, '\''), *end = begin ? strchr(begin + 1, '\'') : NULL;
    char text[200];
    if (end && !memchr(begin, '<', (size_t)(end - begin))) {
        snprintf(text, sizeof text, "%.*s", (int)(end - begin - 1), begin + 1);
        return !dht_id_of_text(key, text);
    }
    for (size_t i = 0; i < r->call_count; i++) {
        const struct call *c = &r->calls[i];
        struct dht_request request;
        int found;
        if (c->kind != DHT_FIND || c->caller != caller || c->t < from || c->t > until ||
            dht_read_request(&request, DHT_FIND, bytes_at(&c->request), bytes_length(&c->request),
                             NULL))
            continue;
        if ((found = request.count == 1)) *key = request.keys[0];
        dht_request_clear(&request);
        if (found) return 1;
    }
    for (size_t i = r->call_count; i-- > 0;) {
        const struct call *c = &r->calls[i];
        struct dht_request request;
        int found;
        if (c->kind != DHT_STORE || c->t > from ||
            dht_read_request(&request, DHT_STORE, bytes_at(&c->request), bytes_length(&c->request),
                             NULL))
            continue;
        if ((found = request.count == 1)) *key = request.records[0].key;
        dht_request_clear(&request);
        if (found) return 1;
    }
    return 0;
}

/* A search's result enters the caller's own cache if it is newer than the cached value. */
static void cache_result(struct dht_state *node, double now, const struct dht_id *key,
                         const struct dht_result *found, double had)
{
    struct dht_record record;
    struct bytes packed = { 0 };
    if (found->type != DHT_NOT_FOUND && found->expiration > had &&
        !dht_result_record(&record, &packed, found, key)) {
        record.in_cache = 1;
        dht_state_store(node, now, &record);
    }
    bytes_clear(&packed);
}

/* "node 2: get('dict', latest=True)": makes our search and compares its result. */
static void replay_get(struct replay *r, const json_t *op)
{
    const char *text = protocol_text(op, "op");
    const char *digit = strpbrk(text, "0123456789");
    size_t caller = digit ? (size_t)strtoul(digit, NULL, 10) : SIZE_MAX;
    double from = golden_real(r->g, op, "t"), until = from + golden_real(r->g, op, "seconds");
    double now = r->base + from;
    struct dht_contact known[DHT_BUCKET_SIZE];
    struct dht_search s;
    struct dht_state *node;
    struct dht_id key;
    const struct dht_entry *own;
    struct bytes shown = { 0 }, want = { 0 }, packed = { 0 };
    double had;
    if (caller >= r->node_count || !key_of(r, text, caller, from, until, &key)) {
        golden_fail(r->g, "operation", "'%.80s' is not understood", text);
        return;
    }
    node = &r->nodes[caller].state;
    dht_search_init(&s, &key, &node->self, strstr(text, "latest") ? INFINITY : now,
                    node->validators);
    s.time = now;
    dht_search_add(&s, known,
                   dht_routing_nearest(&node->routing, known, DHT_BUCKET_SIZE, &key, NULL));
    if ((own = dht_state_get(node, now, &key)) && !dht_entry_write(&packed, own))
        dht_result_merge(&s.best, NULL, &key, &(struct dht_reporter){ .now = now },
                         own->value ? DHT_FOUND_REGULAR : DHT_FOUND_DICTIONARY, bytes_at(&packed),
                         bytes_length(&packed), own->expiration);
    had = own ? own->expiration : -INFINITY;
    walk(r, caller, &s, from, until);
    cache_result(node, now, &key, &s.best, had);
    dht_result_finish(&s.best, now);
    python_repr_result(&shown, &s.best);
    python_repr_add(&want, protocol_text(op, "result"));
    wire_same(r->g, text, &shown, &want);
    dht_search_clear(&s);
    bytes_clear(&shown);
    bytes_clear(&want);
    bytes_clear(&packed);
}

void protocol_dht_calls(struct golden *g, const json_t *root)
{
    const json_t *operations = json_object_get(root, "operations");
    struct replay r = { .g = g };
    size_t at = 0, i;
    json_t *op;
    if (!read_nodes(&r, json_object_get(root, "nodes")) ||
        !read_calls(&r, json_object_get(root, "calls"))) {
        golden_fail(g, "nodes", "cannot be read");
        goto done;
    }
    qsort(r.calls, r.call_count, sizeof *r.calls, by_time);
    find_clock_and_checkers(&r);
    json_array_foreach(operations, i, op)
    {
        double t = golden_real(g, op, "t");
        while (at < r.call_count && r.calls[at].t < t) replay_call(&r, &r.calls[at++]);
        if (strstr(protocol_text(op, "op"), "get(")) replay_get(&r, op);
    }
    while (at < r.call_count) replay_call(&r, &r.calls[at++]);
done:
    for (i = 0; i < r.call_count; i++) {
        bytes_clear(&r.calls[i].request);
        bytes_clear(&r.calls[i].response);
    }
    for (i = 0; i < r.node_count; i++) dht_state_clear(&r.nodes[i].state);
    free(r.calls);
    free(r.nodes);
}
