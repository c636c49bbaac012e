/* dht_world.h - several whole DHT nodes over loopback in this process, and their requests, for the
 * DHT's tests. Included by one file of each test program. */
#ifndef PL_TEST_DHT_WORLD_H
#define PL_TEST_DHT_WORLD_H

#include "test/unit/net/await.h"
#include "net/hivemind/dht/dht_node.h"
#include "net/hivemind/dht/dht_node_internal.h"
#include "net/libp2p/libp2p.h"
#include "test/unit/unit.h"

#include <math.h>
#include <time.h>

#define LIMIT 60.0 /* s for anything; nothing here takes half a second on an idle machine */

/* --- the loop of a program's nodes: a group's set-up and tear-down --------------------------- */

static struct loop *loop;

static inline int open_loop(void **state)
{
    struct pl_err err;
    return loop_open(&loop, &err);
}

static inline int close_loop(void **state)
{
    loop_close(loop);
    return 0;
}

/* --- waiting ---------------------------------------------------------------------------------- */

static inline int await(const int *flag, int n) { return await_noted(flag, n, LIMIT); }

static inline void nap(double s)
{
    struct timespec t = { (time_t)s, (long)((s - floor(s)) * 1e9) };
    nanosleep(&t, NULL);
}

/* --- nodes ------------------------------------------------------------------------------------ */

struct node {
    struct loop *loop;
    struct identity me;
    struct host *host;
    struct dht_node *dht;
    struct dht_node_options options;
    char address[MULTIADDR_TEXT_MAX];
    int tries, joined;
    struct pl_err why;
    double clock;         /* set before opening: this far off */
    const char *announce; /* the same: others are sent this address */
    int relay;
    const char *listen; /* NULL: any port */
};

static inline void on_joined(void *context, int status, const struct pl_err *err)
{
    struct node *n = context;
    n->joined = !status;
    if (status) n->why = *err;
    note(&n->tries);
}

static inline void open_dht(void *context)
{
    struct node *n = context;
    struct multiaddr a;
    if (host_addresses(n->host, &a, 1)) multiaddr_text(n->address, &a);
    if (dht_node_open(&n->dht, n->host, &n->options, on_joined, n, &n->why)) {
        n->dht = NULL;
        return;
    }
    n->dht->core.clock_offset = n->clock;
}

static inline void close_dht(void *context)
{
    struct node *n = context;
    dht_node_close(n->dht);
    n->dht = NULL;
}

/* join: an address, or NULL for the first one. The rest of n->options is the caller's. */
static inline void open_node(struct node *n, struct loop *l, const char *join)
{
    const char *const listen = n->listen ? n->listen : "/ip4/127.0.0.1/tcp/0";
    struct host_options o = { .me = &n->me,
                              .listen = &listen,
                              .listen_count = !n->options.client_mode,
                              .client_mode = n->options.client_mode,
                              .relay = n->relay,
                              .announce = &n->announce,
                              .announce_count = n->announce != NULL };
    struct pl_err err = { "" };
    n->loop = l;
    n->tries = n->joined = 0;
    n->options.call_limit_s = LIMIT / 4;
    if (join) {
        n->options.join = &join;
        n->options.join_count = 1;
    }
    assert_int_equal(identity_make(&n->me, KEY_ED25519, &err), PL_OK);
    if (libp2p_open(&n->host, l, &o, &err)) fail_msg("%s", err.text);
    loop_call(l, open_dht, n);
    if (!n->dht) fail_msg("%s", n->why.text);
    n->options.join = NULL;
    n->options.join_count = 0;
    if (!n->options.hold) assert_true(await(&n->tries, 1));
}

/* On the node's loop: what it does every ten seconds. */
static inline void maintenance_now(void *context)
{
    struct node *n = context;
    struct timer t = n->dht->join.maintenance_timer;
    timer_stop(&n->dht->join.maintenance_timer);
    t.fn(t.context);
}

static inline void close_node(struct node *n)
{
    if (n->dht) loop_call(n->loop, close_dht, n);
    host_close(n->host);
    identity_clear(&n->me);
    n->host = NULL;
}

static inline void open_nodes(struct node *nodes, int count, struct loop *l)
{
    memset(nodes, 0, (size_t)count * sizeof *nodes);
    for (int i = 0; i < count; i++) {
        open_node(&nodes[i], l, i ? nodes[0].address : NULL);
        if (!nodes[i].joined) fail_msg("%s", nodes[i].why.text);
    }
}

/* --- requests ----------------------------------------------------------------------------------- */

struct request {
    struct node *n;
    const char *key;
    struct bytes subkey, value;
    double in_s; /* until it expires */
    int latest, done, status, has_subkey;
    struct dht_result result;
    struct dht_status state;
};

static inline void on_stored(void *context, int status)
{
    struct request *w = context;
    w->status = status;
    note(&w->done);
}

static inline void begin_store(void *context)
{
    struct request *w = context;
    struct dht_id key;
    dht_id_of_text(&key, w->key);
    dht_node_store(w->n->dht, &key, w->has_subkey ? bytes_at(&w->subkey) : NULL,
                   bytes_length(&w->subkey), bytes_at(&w->value), bytes_length(&w->value),
                   dht_node_time(w->n->dht) + w->in_s, on_stored, w);
}

/* subkey NULL: a regular value. */
static inline int store(struct node *n, const char *key, const char *subkey, int64_t value,
                        double in_s)
{
    struct request w = { .n = n, .key = key, .in_s = in_s, .has_subkey = subkey != NULL };
    if (subkey) mp_text(&w.subkey, subkey);
    mp_int(&w.value, value);
    loop_post(n->loop, begin_store, &w);
    if (!await(&w.done, 1)) fail_msg("store of %s does not end", key);
    bytes_clear(&w.subkey);
    bytes_clear(&w.value);
    return w.status;
}

static inline void on_got(void *context, int status, const struct dht_result *r)
{
    struct request *w = context;
    w->status = status;
    if (!status) dht_result_copy(&w->result, r);
    note(&w->done);
}

static inline void begin_get(void *context)
{
    struct request *w = context;
    struct dht_id key;
    dht_id_of_text(&key, w->key);
    dht_node_get(w->n->dht, &key, w->latest, on_got, w);
}

static inline int get(struct node *n, const char *key, int latest, struct dht_result *r)
{
    struct request w = { .n = n, .key = key, .latest = latest };
    dht_result_init(&w.result);
    loop_post(n->loop, begin_get, &w);
    if (!await(&w.done, 1)) fail_msg("get of %s does not end", key);
    *r = w.result;
    return w.status;
}

/* The integer of a regular value, or -1 for nothing there. */
static inline int64_t get_number(struct node *n, const char *key, int latest)
{
    struct dht_result r;
    struct mp_value *v;
    int64_t x = -1;
    if (!get(n, key, latest, &r) && r.type == DHT_FOUND_REGULAR &&
        !mp_read(&v, bytes_at(&r.value), bytes_length(&r.value), NULL)) {
        x = mp_count(v);
        mp_free(v);
    }
    dht_result_clear(&r);
    return x;
}

static inline size_t get_count(struct node *n, const char *key, int latest)
{
    struct dht_result r;
    size_t count = get(n, key, latest, &r) ? 0 : r.dictionary.count;
    dht_result_clear(&r);
    return count;
}

static inline void begin_poll(void *context)
{
    struct request *w = context;
    dht_node_status(w->n->dht, &w->state);
}

static inline struct dht_status read_status(struct node *n)
{
    struct request w = { .n = n };
    loop_call(n->loop, begin_poll, &w);
    return w.state;
}

#endif
