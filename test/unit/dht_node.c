/* dht_node.c - whole nodes over loopback, several in this process: storing, finding, dictionaries,
 * expiry, dead nodes, newcomers, clients, clocks, tokens. */
#include "await.h"
#include "../../net/hivemind/dht_node_inside.h"
#include "../../ref/rng.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define NODES 8
#define LIMIT 60.0 /* s for anything; nothing here takes half a second on an idle machine */

/* --- waiting ---------------------------------------------------------------------------------- */

static int await(const int *flag, int n) { return await_noted(flag, n, LIMIT); }

static void nap(double s)
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
    double clock; /* set before opening: this far off */
    const char *announce; /* the same: others are told this address */
    int relay;
    const char *listen;   /* NULL: any port */
};

static void on_joined(void *context, int status, const struct pl_err *err)
{
    struct node *n = context;
    n->joined = !status;
    if (status) n->why = *err;
    note(&n->tries);
}

static void open_dht(void *context)
{
    struct node *n = context;
    struct multiaddr a;
    if (host_addresses(n->host, &a, 1)) multiaddr_text(n->address, &a);
    if (dht_node_open(&n->dht, n->host, &n->options, on_joined, n, &n->why)) {
        n->dht = NULL;
        return;
    }
    n->dht->clock_offset = n->clock;
}

static void close_dht(void *context)
{
    struct node *n = context;
    dht_node_close(n->dht);
    n->dht = NULL;
}

/* join: an address, or NULL for the first one. The rest of n->options is the caller's. */
static void open_node(struct node *n, struct loop *l, const char *join)
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
    if (host_open(&n->host, l, &o, &err)) fail_msg("%s", err.text);
    loop_call(l, open_dht, n);
    if (!n->dht) fail_msg("%s", n->why.text);
    n->options.join = NULL;
    n->options.join_count = 0;
    if (!n->options.hold) assert_true(await(&n->tries, 1));
}

static void close_node(struct node *n)
{
    if (n->dht) loop_call(n->loop, close_dht, n);
    host_close(n->host);
    identity_clear(&n->me);
    n->host = NULL;
}

static void open_nodes(struct node *nodes, int count, struct loop *l)
{
    memset(nodes, 0, (size_t)count * sizeof *nodes);
    for (int i = 0; i < count; i++) {
        open_node(&nodes[i], l, i ? nodes[0].address : NULL);
        if (!nodes[i].joined) fail_msg("%s", nodes[i].why.text);
    }
}

/* --- wishes ----------------------------------------------------------------------------------- */

struct wish {
    struct node *n;
    const char *key;
    struct bytes subkey, value;
    double in_s;            /* until it expires */
    int latest, done, status, has_subkey;
    struct dht_result result;
    struct dht_status look;
};

static void on_stored(void *context, int status)
{
    struct wish *w = context;
    w->status = status;
    note(&w->done);
}

static void begin_store(void *context)
{
    struct wish *w = context;
    struct dht_id key;
    dht_id_of_text(&key, w->key);
    dht_node_store(w->n->dht, &key, w->has_subkey ? bytes_at(&w->subkey) : NULL,
                   bytes_length(&w->subkey), bytes_at(&w->value), bytes_length(&w->value),
                   dht_node_time(w->n->dht) + w->in_s, on_stored, w);
}

/* subkey NULL: a regular value. */
static int store(struct node *n, const char *key, const char *subkey, int64_t value, double in_s)
{
    struct wish w = { .n = n, .key = key, .in_s = in_s, .has_subkey = subkey != NULL };
    if (subkey) mp_text(&w.subkey, subkey);
    mp_int(&w.value, value);
    loop_post(n->loop, begin_store, &w);
    if (!await(&w.done, 1)) fail_msg("store of %s does not end", key);
    bytes_clear(&w.subkey);
    bytes_clear(&w.value);
    return w.status;
}

static void on_got(void *context, int status, const struct dht_result *r)
{
    struct wish *w = context;
    w->status = status;
    if (!status) dht_result_copy(&w->result, r);
    note(&w->done);
}

static void begin_get(void *context)
{
    struct wish *w = context;
    struct dht_id key;
    dht_id_of_text(&key, w->key);
    dht_node_get(w->n->dht, &key, w->latest, on_got, w);
}

static int get(struct node *n, const char *key, int latest, struct dht_result *r)
{
    struct wish w = { .n = n, .key = key, .latest = latest };
    dht_result_init(&w.result);
    loop_post(n->loop, begin_get, &w);
    if (!await(&w.done, 1)) fail_msg("get of %s does not end", key);
    *r = w.result;
    return w.status;
}

/* The integer of a regular value, or -1 for nothing there. */
static int64_t get_number(struct node *n, const char *key, int latest)
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

static size_t get_count(struct node *n, const char *key, int latest)
{
    struct dht_result r;
    size_t count = get(n, key, latest, &r) ? 0 : r.dictionary.count;
    dht_result_clear(&r);
    return count;
}

static void begin_look(void *context)
{
    struct wish *w = context;
    dht_node_status(w->n->dht, &w->look);
}

static struct dht_status look(struct node *n)
{
    struct wish w = { .n = n };
    loop_call(n->loop, begin_look, &w);
    return w.look;
}

/* --- tests ------------------------------------------------------------------------------------ */

static struct loop *loop;
static struct node nodes[NODES];

static int setup(void **state)
{
    struct pl_err err;
    (void)state;
    return loop_open(&loop, &err);
}

static int teardown(void **state)
{
    (void)state;
    loop_close(loop);
    return 0;
}

static void stores_and_finds(void **state)
{
    (void)state;
    open_nodes(nodes, NODES, loop);
    for (int i = 1; i < NODES; i++) assert_true(look(&nodes[i]).nodes >= (size_t)i - 1);
    assert_int_equal(store(&nodes[1], "a", NULL, 7, 600), PL_OK);
    for (int i = 0; i < NODES; i++)
    for (int latest = 0; latest <= 1; latest++)
        assert_int_equal(get_number(&nodes[i], "a", latest), 7);
    assert_int_equal(store(&nodes[2], "a", NULL, 8, 300), PL_EAGAIN); /* expires before the other */
    assert_int_equal(get_number(&nodes[2], "a", 1), 7);
    assert_int_equal(store(&nodes[2], "a", NULL, 9, 900), PL_OK);
    assert_int_equal(get_number(&nodes[5], "a", 1), 9);
    assert_int_equal(get_number(&nodes[3], "nothing", 0), -1);
}

static void dictionaries(void **state)
{
    char subkey[24];
    (void)state;
    for (int i = 0; i < NODES; i++) {
        snprintf(subkey, sizeof subkey, "peer %d", i);
        assert_int_equal(store(&nodes[i], "d", subkey, i, 60), PL_OK);
    }
    for (int i = 0; i < NODES; i++) assert_int_equal(get_count(&nodes[i], "d", 1), NODES);
    assert_int_equal(store(&nodes[4], "d", "peer 0", 100, 70), PL_OK);
    assert_int_equal(get_count(&nodes[6], "d", 1), NODES);
    /* a newer value replaces it whole */
    assert_int_equal(store(&nodes[4], "d", NULL, 5, 80), PL_OK);
    assert_int_equal(get_number(&nodes[1], "d", 1), 5);
}

static void pass_half_a_minute(void *context)
{
    (void)context;
    for (int i = 0; i < NODES; i++) nodes[i].dht->clock_offset += 30;
}

static void expiry(void **state)
{
    (void)state;
    assert_int_equal(store(&nodes[3], "soon", NULL, 1, 29), PL_OK);
    assert_int_equal(store(&nodes[3], "some", "short", 1, 29), PL_OK);
    assert_int_equal(store(&nodes[3], "some", "long", 1, 600), PL_OK);
    assert_int_equal(get_count(&nodes[5], "some", 1), 2);
    assert_int_equal(get_number(&nodes[5], "soon", 0), 1);
    loop_call(loop, pass_half_a_minute, NULL);
    assert_int_equal(get_number(&nodes[5], "soon", 0), -1);
    assert_int_equal(get_number(&nodes[5], "soon", 1), -1);
    assert_int_equal(get_count(&nodes[5], "some", 0), 1);
    assert_int_equal(store(&nodes[3], "soon", NULL, 1, -1), PL_EAGAIN);
}

static void clients(void **state)
{
    struct node client = { .options = { .client_mode = 1 } };
    size_t before = look(&nodes[0]).nodes;
    (void)state;
    open_node(&client, loop, nodes[0].address);
    assert_true(client.joined);
    assert_int_equal(store(&client, "from a client", NULL, 3, 60), PL_OK);
    assert_int_equal(get_number(&nodes[6], "from a client", 0), 3);
    assert_int_equal(get_number(&client, "a", 1), 9);
    assert_int_equal(look(&nodes[0]).nodes, before);
    assert_int_equal(look(&client).records, 0); /* nobody could ask it */
    close_node(&client);
}

/* A record survives all nodes that first had it, because newcomers are given theirs. */
static void newcomers_get_records(void **state)
{
    const double until = pl_seconds() + LIMIT;
    struct node fresh[4];
    size_t records = 0;
    (void)state;
    memset(fresh, 0, sizeof fresh);
    for (int i = 0; i < 4; i++) {
        open_node(&fresh[i], loop, nodes[i].address);
        assert_true(fresh[i].joined);
    }
    while (!records && pl_seconds() < until) {
        nap(0.05);
        for (int i = 0; i < 4; i++) records += look(&fresh[i]).records;
    }
    assert_true(records > 0);
    for (int i = 0; i < 4; i++) close_node(&fresh[i]);
}

static void dead_nodes(void **state)
{
    (void)state;
    assert_int_equal(store(&nodes[0], "kept", NULL, 11, 600), PL_OK);
    for (int i = 5; i < NODES; i++) close_node(&nodes[i]);
    assert_int_equal(get_number(&nodes[1], "kept", 1), 11);
    assert_int_equal(store(&nodes[2], "kept", NULL, 12, 700), PL_OK);
    assert_int_equal(get_number(&nodes[3], "kept", 1), 12);
    assert_int_equal(store(&nodes[4], "later", "x", 1, 700), PL_OK);
    for (int i = 0; i < 5; i++) { /* and are forgotten once they were missed */
        struct dht_status s = look(&nodes[i]);
        assert_true(s.nodes <= 8);
    }
    for (int i = 0; i < 5; i++) close_node(&nodes[i]);
}

static void upkeep_now(void *context)
{
    struct node *n = context;
    struct timer t = n->dht->upkeep_timer;
    timer_stop(&n->dht->upkeep_timer);
    t.fn(t.context);
}

static void failed_join_says_why(void **state)
{
    struct node n = { .dht = NULL };
    (void)state;
    open_node(&n, loop,
              "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWSkvkGQpYmokxqw6g5oz8UUNRDjUwW24iXeXc6gQ5rJ7a");
    assert_false(n.joined);
    assert_non_null(strstr(n.why.text, "127.0.0.1"));
    loop_call(loop, upkeep_now, &n); /* looking after an empty table is no entry */
    nap(0.1);
    loop_call(loop, upkeep_now, &n);
    assert_int_equal(look(&n).joined, 0);
    close_node(&n);
}

struct call {
    struct node *from;
    const struct peer_id *to;
    int done, status;
};

static void on_pong(void *context, int status, const struct dht_pong *pong)
{
    struct call *c = context;
    (void)pong;
    c->status = status;
    note(&c->done);
}

static void begin_ping(void *context)
{
    struct call *c = context;
    dht_node_ping(c->from->dht, c->to, 0, on_pong, c);
}

/* Two that begin at the same time: either may look for the other a little too early. */
static void entry_comes_later(void **state)
{
    struct node early = { .dht = NULL }, entry = { .dht = NULL };
    char at[MULTIADDR_TEXT_MAX];
    double began;
    (void)state;
    open_node(&entry, loop, NULL);
    strcpy(at, entry.address);
    *strstr(at, "/p2p/") = 0;
    close_node(&entry);
    open_node(&early, loop, at);
    assert_false(early.joined);
    entry.listen = at;
    open_node(&entry, loop, NULL);
    began = pl_seconds();
    while (!look(&early).joined && pl_seconds() - began < 10) nap(0.05);
    assert_int_equal(look(&early).joined, 1); /* upkeep comes later than that */
    close_node(&early);
    close_node(&entry);
}

static void enter(void *context)
{
    struct node *n = context;
    dht_node_enter(n->dht);
}

/* It may look around before it enters. */
static void held_back(void **state)
{
    struct node entry = { .dht = NULL }, n = { .dht = NULL, .options.hold = 1 };
    struct call c = { .from = &n, .to = &entry.me.id, .status = PL_EAGAIN };
    (void)state;
    open_node(&entry, loop, NULL);
    open_node(&n, loop, entry.address);
    nap(0.2);
    assert_int_equal(n.tries, 0);
    assert_int_equal(look(&n).initial_answered, 0);
    loop_call(loop, enter, &n);
    assert_true(await(&n.tries, 1));
    assert_true(n.joined);
    loop_call(loop, begin_ping, &c);
    assert_true(await(&c.done, 1));
    assert_int_equal(c.status, PL_OK);
    close_node(&n);
    close_node(&entry);
}

/* Nobody can dial the address that it tells: it becomes like a client, unless a relay is there. */
static void behind_a_router(void **state)
{
    struct node hub, hidden, other;
    struct dht_status s;
    (void)state;
    for (int relay = 0; relay <= 1; relay++) {
        memset(&hub, 0, sizeof hub);
        memset(&hidden, 0, sizeof hidden);
        memset(&other, 0, sizeof other);
        hub.relay = relay;
        hidden.announce = "/ip4/127.0.0.1/tcp/9";
        open_node(&hub, loop, NULL);
        open_node(&hidden, loop, hub.address);
        assert_true(hidden.joined);
        const double until = pl_seconds() + LIMIT;
        for (;;) {
            s = look(&hidden);
            if ((relay ? s.relayed : !s.reachable) || pl_seconds() > until) break;
            nap(0.05);
        }
        assert_int_equal(s.reachable, relay);
        assert_int_equal(s.relayed, relay);
        loop_call(loop, upkeep_now, &hidden); /* is a node again once it has its relay */
        nap(0.2);
        assert_int_equal(store(&hidden, "from behind", NULL, 5, 60), PL_OK);
        assert_int_equal(get_number(&hub, "from behind", 1), 5);
        open_node(&other, loop, hub.address);
        if (relay) {
            struct call c = { .from = &other, .to = &hidden.me.id, .status = PL_EAGAIN };
            /* the hub hears of it */
            for (int tries = 1; c.status && pl_seconds() < until; tries++) {
                loop_call(loop, begin_ping, &c);
                assert_true(await(&c.done, tries));
                if (c.status) nap(0.1);
            }
            assert_int_equal(c.status, PL_OK);
        }
        close_node(&other);
        close_node(&hidden);
        close_node(&hub);
    }
}

/* Whoever's clock is wrong follows the others'. */
static void clocks(void **state)
{
    struct node n[3];
    (void)state;
    memset(n, 0, sizeof n);
    n[0].clock = n[1].clock = 100;
    open_node(&n[0], loop, NULL);
    open_node(&n[1], loop, n[0].address);
    open_node(&n[2], loop, n[1].address);
    assert_true(n[2].joined);
    for (int i = 0; i < 3; i++) /* what a call took may be what it is off by */
        assert_true(fabs(look(&n[i]).clock_offset - 100) < 10);
    assert_int_equal(store(&n[2], "on time", NULL, 1, 60), PL_OK);
    assert_int_equal(get_number(&n[0], "on time", 1), 1);
    for (int i = 0; i < 3; i++) close_node(&n[i]);
}

/* A swarm with tokens: members understand each other, others are refused and told so. */
static void tokens(void **state)
{
    struct rsa_key authority, keys[3];
    struct auth auths[3];
    struct node n[4];
    struct pl_err err;
    (void)state;
    memset(n, 0, sizeof n);
    memset(auths, 0, sizeof auths);
    assert_int_equal(rsa_key_make(&authority, &err), PL_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rsa_key_make(&keys[i], &err), PL_OK);
        auths[i].key = &keys[i];
        auths[i].authority = authority.key;
        auth_token_issue(&auths[i].token, &authority, "user", bytes_at(&keys[i].text),
                         bytes_length(&keys[i].text),
                         (double)time(NULL) + (i < 2 ? 86400 : -100));
        n[i].options.auth = &auths[i];
    }
    open_node(&n[0], loop, NULL);
    open_node(&n[1], loop, n[0].address);
    assert_true(n[1].joined);
    assert_int_equal(store(&n[1], "members only", NULL, 1, 60), PL_OK);
    assert_int_equal(get_number(&n[0], "members only", 1), 1);
    assert_int_equal(look(&n[0]).nodes, 1);
    open_node(&n[2], loop, n[0].address); /* its token has expired */
    assert_false(n[2].joined);
    assert_non_null(strstr(n[2].why.text, "expired"));
    open_node(&n[3], loop, n[0].address); /* has none */
    assert_false(n[3].joined);
    assert_non_null(strstr(n[3].why.text, "access token"));
    assert_int_equal(look(&n[0]).nodes, 1);
    for (int i = 0; i < 4; i++) close_node(&n[i]);
    for (int i = 0; i < 3; i++) {
        auth_clear(&auths[i]);
        rsa_key_clear(&keys[i]);
    }
    rsa_key_clear(&authority);
}

/* Garbage as requests: an error comes back, the node lives. */
struct garbage {
    struct node *from;
    const struct peer_id *to;
    const uint8_t *data;
    size_t n;
    enum dht_call call;
    int done, status;
};

static void on_garbage(void *context, const struct rpc_result *r)
{
    struct garbage *g = context;
    g->status = r->status;
    note(&g->done);
}

static void send_garbage(void *context)
{
    struct garbage *g = context;
    rpc_call_unary(g->from->host, g->to, dht_call_name(g->call), g->data, g->n, 3, on_garbage, g);
}

static void garbage(void **state)
{
    static const uint8_t odd_id[] = { 0x12, 0x03, 0x0a, 0x01, 0x07 };
    static const uint8_t uneven[] = { 0x12, 0x01, 'k', 0x1a, 0x01, 0xc0 };
    struct node n[2];
    struct pl_rng rng;
    (void)state;
    pl_rng_init(&rng, 5, 0);
    open_nodes(n, 2, loop);
    for (int i = 0; i < 60; i++) {
        uint8_t noise[64];
        struct garbage g = { .from = &n[1], .to = &n[0].me.id, .data = noise, .n = 1 + i % 64,
                             .call = (enum dht_call)(i % 3) };
        for (size_t k = 0; k < sizeof noise; k++) noise[k] = (uint8_t)pl_rng_u64(&rng);
        if (i == 0)
            g = (struct garbage){ .from = &n[1], .to = g.to, .data = odd_id, .n = sizeof odd_id };
        if (i == 1)
            g = (struct garbage){
                .from = &n[1], .to = g.to, .data = uneven, .n = sizeof uneven, .call = DHT_STORE
            };
        loop_post(loop, send_garbage, &g);
        assert_true(await(&g.done, 1));
        if (i < 2) assert_int_equal(g.status, PL_EPROTO);
    }
    assert_int_equal(store(&n[1], "still", NULL, 1, 60), PL_OK);
    assert_int_equal(get_number(&n[0], "still", 1), 1);
    close_node(&n[0]);
    close_node(&n[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_and_finds),
        cmocka_unit_test(dictionaries),
        cmocka_unit_test(expiry),
        cmocka_unit_test(clients),
        cmocka_unit_test(newcomers_get_records),
        cmocka_unit_test(dead_nodes),
        cmocka_unit_test(failed_join_says_why),
        cmocka_unit_test(entry_comes_later),
        cmocka_unit_test(held_back),
        cmocka_unit_test(behind_a_router),
        cmocka_unit_test(clocks),
        cmocka_unit_test(tokens),
        cmocka_unit_test(garbage),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
