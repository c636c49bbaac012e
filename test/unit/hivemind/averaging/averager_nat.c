/* averager_nat.c - peers behind NAT: they take part in rounds through connections that
 * they have made themselves, and meet through a relay, which carries too little for more. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/dht/dht_node.h"
#include "net/hivemind/dht/dht_node_internal.h"

#include <arpa/inet.h>
#include <math.h>
#include <sys/socket.h>
#include <unistd.h>

/* A listener that answers nothing, and its address as text; once it is closed, connections are
 * refused. */
static int mute_port(char *text, size_t capacity)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;
    int port = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(port >= 0 && !bind(port, (struct sockaddr *)&at, n) && !listen(port, 16));
    assert_int_equal(getsockname(port, (struct sockaddr *)&at, &n), 0);
    snprintf(text, capacity, "/ip4/127.0.0.1/tcp/%d", ntohs(at.sin_port));
    return port;
}

static void read_relayed(void *context)
{
    struct peer *p = context;
    struct dht_status s;
    dht_node_status(p->dht, &s);
    p->loaded = s.relayed;
}

/* Until it has found out, and has a relay. */
static void await_relay(struct peer *p)
{
    const double until = pl_seconds() + LIMIT;
    for (p->loaded = 0; !p->loaded; usleep(20000)) {
        loop_call(loop, read_relayed, p);
        if (pl_seconds() > until) fail_msg("peer %zu has no relay", (size_t)(p - peers));
    }
}

static double mean[VALUES];

static size_t share_of(const struct peer *in, const struct peer *p)
{
    for (size_t i = 0; i < in->group; i++)
        if (peer_id_equal(&in->member[i], &p->me.id)) return in->share[i];
    fail_msg("peer %zu is not in the group", (size_t)(p - peers));
    return 0;
}

static void has_mean(const struct peer *p)
{
    for (size_t i = 0; i < VALUES; i++)
        if (!(fabs((double)p->values[i] - mean[i]) < 1e-6))
            fail_msg("peer %zu: value %zu is %g, not %g", (size_t)(p - peers), i,
                     (double)p->values[i], mean[i]);
}

static void begin_one(struct peer *p, size_t expected)
{
    loop_call(loop, open_averager, p);
    if (!p->a) fail_msg("%s", p->err.text);
    p->step.expected = expected;
    loop_call(loop, begin, p);
}

static void make_mean(void)
{
    double weights = 0;
    memset(mean, 0, sizeof mean);
    for (size_t k = 0; k < count; k++) weights += peers[k].step.weight;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < VALUES; i++)
            mean[i] += peers[k].step.weight / weights * (double)peers[k].values[i];
}

/* The first reduces everything. */
static void all_agree(void)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].group, count);
        has_mean(&peers[i]);
        for (size_t k = 0; k < count; k++)
            assert_int_equal(share_of(&peers[i], &peers[k]), k ? 0 : VALUES);
    }
}

static void peers_behind_nat_reduce_nothing(void **state)
{
    relays = 1;
    add(0, 0);
    announce = "/ip4/127.0.0.1/tcp/9";
    add(0, 0), add(0, 0);
    make_mean();
    for (size_t i = 1; i < count; i++) await_relay(&peers[i]);
    for (size_t i = 0; i < count; i++) begin_one(&peers[i], count);
    all_agree();
}

static void has_shares(const struct peer *p, size_t first, size_t second)
{
    assert_true(await(&p->done, 1));
    if (p->status) fail_msg("peer %zu: %s", (size_t)(p - peers), p->err.text);
    assert_int_equal(share_of(p, &peers[0]), first);
    assert_int_equal(share_of(p, &peers[1]), second);
}

static void begin_again(struct peer *p)
{
    p->done = 0;
    loop_call(loop, begin, p);
}

/* The connection that it has made itself carries the others' parts, too: from the second round on
 * it reduces as much as the others. */
static void peers_behind_nat_reduce_over_direct_connections(void **state)
{
    relays = 1;
    add(0, 0);
    announce = "/ip4/127.0.0.1/tcp/9";
    add(0, 0);
    await_relay(&peers[1]);
    for (size_t i = 0; i < 2; i++) begin_one(&peers[i], 2);
    for (size_t i = 0; i < 2; i++) has_shares(&peers[i], VALUES, 0);
    make_mean();
    for (size_t i = 0; i < 2; i++) begin_again(&peers[i]);
    for (size_t i = 0; i < 2; i++) has_shares(&peers[i], VALUES / 2, VALUES / 2);
    for (size_t i = 0; i < 2; i++) has_mean(&peers[i]);
    /* A third one is expected, and might not reach it. */
    for (size_t i = 0; i < 2; i++) peers[i].step.expected = 3, begin_again(&peers[i]);
    for (size_t i = 0; i < 2; i++) has_shares(&peers[i], VALUES, 0);
}

/* Two that reach each other through the relay alone: in the next round, too, they reduce nothing. */
static void relayed_pair_reduces_nothing(void **state)
{
    relays = 1;
    add(0, 0);
    announce = "/ip4/127.0.0.1/tcp/9";
    add(0, 0), add(0, 0);
    for (size_t i = 1; i < count; i++) await_relay(&peers[i]);
    for (size_t i = 0; i < count; i++) begin_one(&peers[i], count);
    for (size_t i = 0; i < count; i++) assert_true(await(&peers[i].done, 1));
    make_mean();
    for (size_t i = 0; i < count; i++) begin_again(&peers[i]);
    all_agree();
}

static void *close_soon(void *port)
{
    usleep(700000); /* longer than three need to find each other */
    close(*(int *)port);
    return NULL;
}

/* They search for a group at once, before they can know that they are behind NAT: it is waited
 * for, since each would be given a share. */
static void known_before_the_search(void **state)
{
    char nowhere[64];
    int port = mute_port(nowhere, sizeof nowhere);
    pthread_t closing;
    add(0, 0);
    announce = nowhere;
    add(0, 0), add(0, 0);
    make_mean();
    assert_int_equal(pthread_create(&closing, NULL, close_soon, &port), 0);
    for (size_t i = 0; i < count; i++) begin_one(&peers[i], count);
    pthread_join(closing, NULL);
    all_agree();
}

static void hush(void *context) { host_unserve(((struct peer *)context)->host, "/ipfs/id/1.0.0"); }

/* A peer that serves fewer protocols than before identifies itself to all again. */
static void identify_to_all(void *context)
{
    host_unserve(((struct peer *)context)->host, "/none");
}
static void no_maintenance(void *context)
{
    timer_stop(&((struct peer *)context)->dht->join.maintenance_timer);
}

static void read_reachability(void *context)
{
    struct peer *p = context;
    p->loaded = dht_node_is_behind_nat(p->dht);
}

/* Its entry lets it in before it has reported the address that it observes. */
static void reachability_is_learned_after_joining(void **state)
{
    const double until = pl_seconds() + LIMIT;
    struct peer *p;
    loop_call(loop, hush, add(0, 0));
    announce = "/ip4/127.0.0.1/tcp/9";
    p = add(0, 0);
    loop_call(loop, no_maintenance, p);
    for (loop_call(loop, identify_to_all, &peers[0]); !p->loaded && pl_seconds() < until;
         usleep(20000))
        loop_call(loop, read_reachability, p);
    assert_true(p->loaded);
}

/* Its search begins before it knows. */
static void reachability_is_learned_during_the_search(void **state)
{
    char nowhere[64];
    int port = mute_port(nowhere, sizeof nowhere);
    relays = 1;
    add(0, 0);
    announce = nowhere;
    begin_one(add(0, 0), 2);
    usleep(6000000); /* longer than a first search waits for it */
    close(port);
    make_mean();
    await_relay(&peers[1]);
    usleep((useconds_t)(2e6 * MATCHMAKING_POLL_EVERY)); /* and it has polled */
    begin_one(&peers[0], 2);
    all_agree();
}

static struct gather behind_nat(enum group_mode mode)
{
    return (struct gather){ .bandwidth = 0, .mode = mode };
}

/* All behind one router reach each other there; clients do not. */
static void peers_behind_one_router_share(void **state)
{
    struct group_member m[3] = { { .gather = behind_nat(GROUP_FULL) },
                                 { .gather = behind_nat(GROUP_CLIENT) },
                                 { .gather = behind_nat(GROUP_FULL) } };
    struct group g = { .members = m, .count = 3 };
    size_t share[3];
    assert_int_equal(group_shares(share, &g, 1000, NULL), PL_OK);
    assert_int_equal(share[0], 500);
    assert_int_equal(share[1], 0);
    assert_int_equal(share[2], 500);
    m[2].gather.bandwidth = PL_BANDWIDTH_UNKNOWN;
    assert_int_equal(group_shares(share, &g, 1000, NULL), PL_OK);
    assert_int_equal(share[2], 1000);
    g.count = 2;
    m[0].gather.mode = GROUP_CLIENT;
    assert_int_equal(group_shares(share, &g, 1000, NULL), PL_EUSE);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)
    const struct CMUnitTest tests[] = { TEST(peers_behind_nat_reduce_nothing),
                                        TEST(peers_behind_nat_reduce_over_direct_connections),
                                        TEST(relayed_pair_reduces_nothing),
                                        TEST(known_before_the_search),
                                        TEST(reachability_is_learned_after_joining),
                                        TEST(reachability_is_learned_during_the_search),
                                        cmocka_unit_test(peers_behind_one_router_share) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
