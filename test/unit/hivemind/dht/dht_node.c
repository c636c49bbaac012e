/* dht_node.c - whole nodes over loopback: storing, finding, dictionaries, expiry, dead nodes,
 * newcomers, clients, garbage. */
#include "dht_world.h"
#include "ref/rng.h"

#include <stdio.h>

#define NODES 8

static struct node nodes[NODES];

static void stores_and_finds(void **state)
{
    open_nodes(nodes, NODES, loop);
    for (int i = 1; i < NODES; i++) assert_true(read_status(&nodes[i]).nodes >= (size_t)i - 1);
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
    for (int i = 0; i < NODES; i++) nodes[i].dht->core.clock_offset += 30;
}

static void expiry(void **state)
{
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
    size_t before = read_status(&nodes[0]).nodes;
    open_node(&client, loop, nodes[0].address);
    assert_true(client.joined);
    assert_int_equal(store(&client, "from a client", NULL, 3, 60), PL_OK);
    assert_int_equal(get_number(&nodes[6], "from a client", 0), 3);
    assert_int_equal(get_number(&client, "a", 1), 9);
    assert_int_equal(read_status(&nodes[0]).nodes, before);
    assert_int_equal(read_status(&client).records, 0); /* no peer could ask it */
    close_node(&client);
}

/* A record survives all nodes that first had it, because newcomers are given theirs. */
static void newcomers_get_records(void **state)
{
    const double until = pl_seconds() + LIMIT;
    struct node fresh[4];
    size_t records = 0;
    memset(fresh, 0, sizeof fresh);
    for (int i = 0; i < 4; i++) {
        open_node(&fresh[i], loop, nodes[i].address);
        assert_true(fresh[i].joined);
    }
    while (!records && pl_seconds() < until) {
        nap(0.05);
        for (int i = 0; i < 4; i++) records += read_status(&fresh[i]).records;
    }
    assert_true(records > 0);
    for (int i = 0; i < 4; i++) close_node(&fresh[i]);
}

static void dead_nodes(void **state)
{
    assert_int_equal(store(&nodes[0], "kept", NULL, 11, 600), PL_OK);
    for (int i = 5; i < NODES; i++) close_node(&nodes[i]);
    assert_int_equal(get_number(&nodes[1], "kept", 1), 11);
    assert_int_equal(store(&nodes[2], "kept", NULL, 12, 700), PL_OK);
    assert_int_equal(get_number(&nodes[3], "kept", 1), 12);
    assert_int_equal(store(&nodes[4], "later", "x", 1, 700), PL_OK);
    for (int i = 0; i < 5; i++) { /* and are forgotten once they were missed */
        struct dht_status s = read_status(&nodes[i]);
        assert_true(s.nodes <= 8);
    }
    for (int i = 0; i < 5; i++) close_node(&nodes[i]);
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
    pl_rng_init(&rng, 5, 0);
    open_nodes(n, 2, loop);
    for (int i = 0; i < 60; i++) {
        uint8_t noise[64];
        struct garbage g = { .from = &n[1],
                             .to = &n[0].me.id,
                             .data = noise,
                             .n = 1 + i % 64,
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

/* A node that wants to be called back gives its ID; only the node of that ID is available. */
struct called_back {
    struct node *from, *to;
    struct bytes request;
    int done, status, available;
};

static void on_answer(void *context, const struct rpc_result *r)
{
    struct called_back *c = context;
    struct dht_answer a;
    c->status = r->status;
    if (!c->status) c->status = dht_read_answer(&a, DHT_PING, 0, r->data, r->n, NULL);
    if (!c->status) {
        c->available = a.available;
        dht_answer_clear(&a);
    }
    note(&c->done);
}

static void ask_for_a_call(void *context)
{
    struct called_back *c = context;
    rpc_call_unary(c->from->host, &c->to->me.id, dht_call_name(DHT_PING), bytes_at(&c->request),
                   bytes_length(&c->request), 10, on_answer, c);
}

static void the_node_that_answers_is_the_one_that_asked(void **state)
{
    struct node n[2];
    open_nodes(n, 2, loop);
    for (int is_other = 0; is_other <= 1; is_other++) {
        struct called_back c = { .from = &n[1], .to = &n[0] };
        struct dht_id id = *dht_state_self(&n[1].dht->core.state);
        id.bytes[19] ^= (uint8_t)is_other;
        assert_int_equal(dht_write_ping(&c.request, &id, 1), PL_OK);
        loop_post(loop, ask_for_a_call, &c);
        assert_true(await(&c.done, 1));
        assert_int_equal(c.status, PL_OK);
        assert_int_equal(c.available, !is_other);
        bytes_clear(&c.request);
    }
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
        cmocka_unit_test(garbage),
        cmocka_unit_test(the_node_that_answers_is_the_one_that_asked),
    };
    return cmocka_run_group_tests(tests, open_loop, close_loop);
}
