/* dht_relays.c - a peer behind NAT finds relays among the nodes of the DHT, keeps two, and takes another one when one
 * leaves or grants nothing. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/dht/dht_node.h"
#include "net/hivemind/dht/dht_node_internal.h"
#include "net/libp2p/relay/relay.h"

#include <unistd.h>

struct question {
    struct peer *p;
    size_t relays; /* that it has a reservation with */
    int by[PEERS], asked[PEERS];
};

static void ask(void *context)
{
    struct question *q = context;
    dht_reachability_check(&q->p->dht->reachability);
    q->relays = 0;
    for (size_t i = 0; i < count; i++) {
        q->by[i] = relay_has_reservation(q->p->host, &peers[i].me.id);
        q->asked[i] = relay_is_used(q->p->host, &peers[i].me.id);
        q->relays += (size_t)q->by[i];
    }
}

static void await_relays(struct question *q, size_t n)
{
    const double until = pl_seconds() + LIMIT;
    do {
        usleep(20000);
        loop_call(loop, ask, q);
        if (pl_seconds() > until) fail_msg("%zu relays, expected %zu", q->relays, n);
    } while (q->relays != n);
}

static struct peer *add_hidden(void)
{
    announce = "/ip4/127.0.0.1/tcp/9";
    relays = 0;
    return add(0, 0);
}

static void let_time_pass(void *context)
{
    struct dht_relays *r = &((struct peer *)context)->dht->reachability.relays;
    for (size_t i = 0; i < r->count; i++) r->list[i].granted -= DHT_RELAY_TRIAL;
}

/* The peer that it joins by is none. */
static void found_among_nodes(void **state)
{
    struct question q = { .p = NULL };
    size_t first;
    add(0, 0);
    relays = 1;
    for (int i = 0; i < 3; i++) add(0, 0);
    q.p = add_hidden();
    await_relays(&q, 2);
    assert_false(q.by[0]);
    /* One leaves: the third takes its place. */
    for (first = 1; !q.by[first]; first++) continue;
    close_peer(&peers[first]);
    await_relays(&q, 1);
    loop_call(loop, let_time_pass, q.p);
    await_relays(&q, 2);
    assert_false(q.by[first]);
    assert_int_equal(q.by[1] + q.by[2] + q.by[3], 2);
}

static int stale(const struct dht_relays *r, const struct peer_id *peer)
{
    for (size_t i = 0; i < r->count; i++)
        if (peer_id_equal(&r->list[i].peer, peer)) return r->list[i].again > 0;
    return 0;
}

static void on_hop(void *context, struct stream *s) { stream_finish(s); }

static void serve_nothing(void *context)
{
    struct peer *p = context;
    host_unserve(p->host, "/libp2p/circuit/relay/0.2.0/hop");
    assert_int_equal(host_serve(p->host, "/libp2p/circuit/relay/0.2.0/hop", on_hop, p), PL_OK);
}

/* A peer that says it is a relay and grants nothing keeps its place for a while only, also one that is
 * named first. */
static void those_that_grant_nothing_are_left(void **state)
{
    struct question q = { .p = NULL };
    relays = 1;
    for (int i = 0; i < 3; i++) add(0, 0);
    loop_call(loop, serve_nothing, &peers[0]);
    q.p = add_hidden();
    await_relays(&q, 1);
    assert_false(q.by[0]);
    loop_call(loop, let_time_pass, q.p);
    await_relays(&q, 2);
    assert_int_equal(q.by[1] + q.by[2], 2);
    assert_false(q.asked[0]);
    assert_true(stale(&q.p->dht->reachability.relays, &peers[0].me.id));
}

/* A peer that is publicly reachable asks no relay. */
static void not_without_need(void **state)
{
    struct question q = { .p = NULL };
    relays = 1;
    for (int i = 0; i < 3; i++) add(0, 0);
    q.p = &peers[2];
    for (int i = 0; i < 20; i++) {
        usleep(20000);
        loop_call(loop, ask, &q);
        assert_int_equal(q.relays, 0);
    }
    assert_int_equal(q.p->dht->reachability.relays.count, 0);
}

static void on_check(void *context, struct stream *s) {}

static void check_nothing(void *context)
{
    struct peer *p = context;
    host_unserve(p->host, "/libp2p/autonat/1.0.0");
    assert_int_equal(host_serve(p->host, "/libp2p/autonat/1.0.0", on_check, p), PL_OK);
}

/* Behind a router that drops what comes in, a check takes as long as its dial: a relay is asked long before
 * that. */
static void slow_check_is_not_waited_for(void **state)
{
    const double begun = pl_seconds();
    struct question q = { .p = NULL };
    relays = 1;
    add(0, 0);
    loop_call(loop, check_nothing, &peers[0]);
    q.p = add_hidden();
    await_relays(&q, 1);
    assert_int_equal(q.p->dht->reachability.pending, 1);
    assert_true(pl_seconds() - begun < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(found_among_nodes, begin_test, end_test),
        cmocka_unit_test_setup_teardown(those_that_grant_nothing_are_left, begin_test, end_test),
        cmocka_unit_test_setup_teardown(not_without_need, begin_test, end_test),
        cmocka_unit_test_setup_teardown(slow_check_is_not_waited_for, begin_test, end_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
