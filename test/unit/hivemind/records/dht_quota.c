/* dht_quota.c - how many bytes each peer and each subnet has stored: charged and released to the
 * byte, both limits at n and n + 1, and no memory of those who have nothing. */
#include "net/hivemind/records/dht_quota.h"
#include "net/hivemind/records/dht_store.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

static struct dht_quota q;

static int begin(void **state)
{
    memset(&q, 0, sizeof q);
    return 0;
}

static int end(void **state)
{
    dht_quota_clear(&q);
    assert_int_equal(q.peers.count + q.subnets.count, 0);
    assert_null(q.peers.of);
    assert_null(q.subnets.of);
    return 0;
}

static struct dht_origin origin(uint64_t peer, uint64_t subnet)
{
    return (struct dht_origin){ .caller = peer, .subnet = subnet };
}

static int allows(uint64_t peer, uint64_t subnet, size_t bytes)
{
    const struct dht_origin o = origin(peer, subnet);
    return dht_quota_allows(&q, &o, bytes);
}

static void charge(uint64_t peer, uint64_t subnet, size_t bytes)
{
    const struct dht_origin o = origin(peer, subnet);
    assert_int_equal(dht_quota_reserve(&q), PL_OK);
    dht_quota_charge(&q, &o, bytes);
}

static void release(uint64_t peer, uint64_t subnet, size_t bytes)
{
    const struct dht_origin o = origin(peer, subnet);
    dht_quota_release(&q, &o, bytes);
}

static void limits_are_of_a_peer_and_of_a_subnet(void **state)
{
    q.peer_max = 100;
    q.subnet_max = 150;
    assert_true(allows(1, 10, 100));
    assert_false(allows(1, 10, 101));
    assert_false(allows(1, 10, SIZE_MAX));
    assert_int_equal(q.refused, 2);
    charge(1, 10, 60);
    assert_true(allows(1, 10, 40) && !allows(1, 10, 41));
    assert_true(allows(2, 10, 90) && !allows(2, 10, 91)); /* a neighbour */
    assert_true(allows(1, 11, 40) && !allows(1, 11, 41)); /* from elsewhere */
    assert_true(allows(2, 11, 100));
    charge(1, 10, 40);
    assert_false(allows(1, 10, 1));
    assert_true(allows(1, 10, 0));
    release(1, 10, 60);
    assert_true(allows(1, 10, 60) && !allows(1, 10, 61));
    /* Who holds more than a limit that was lowered since is refused, whatever it asks for. */
    q.peer_max = 30;
    assert_false(allows(1, 10, 0));
}

/* No limits, and our own records count as no usage. */
static void no_limits(void **state)
{
    assert_true(allows(1, 10, SIZE_MAX));
    charge(1, 10, 1000);
    assert_true(allows(1, 10, SIZE_MAX));
    q.peer_max = q.subnet_max = 10;
    assert_false(allows(1, 10, 1));
    assert_true(allows(0, 0, 1000));
    charge(0, 0, 1000);
    assert_int_equal(q.peers.count, 1);
    release(0, 0, 1000);
    assert_int_equal(q.peers.count, 1);
    assert_int_equal(q.refused, 1);
}

/* Who replaces a value holds it: the one before is charged for nothing any more. */
static void a_value_is_its_writers(void **state)
{
    const struct dht_id key = { { 1 } };
    struct dht_store s;
    q.peer_max = q.subnet_max = 2000;
    dht_store_init(&s, DHT_STORE_MAX);
    s.quota = &q;
    for (uint64_t peer = 1; peer <= 2; peer++) {
        uint8_t value[1000] = { 0 };
        const struct dht_item item = { .value = value,
                                       .n = sizeof value,
                                       .expiration = 50 + (double)peer,
                                       .from = origin(peer, 10 * peer) };
        assert_int_equal(dht_store_put(&s, 0, &key, &item), PL_OK);
        for (uint64_t other = 1; other <= 2; other++) {
            size_t left = 2000 - (other == peer ? DHT_RECORD_COST + sizeof value : 0);
            assert_true(allows(other, 10 * other, left) && !allows(other, 10 * other, left + 1));
        }
    }
    dht_store_clear(&s);
}

#define PEERS 200
#define SUBNETS 7

/* Against plain sums: a holder that has nothing left is forgotten. */
static void sums_are_exact(void **state)
{
    static size_t of_peer[PEERS][SUBNETS];
    size_t peer[PEERS] = { 0 }, subnet[SUBNETS] = { 0 };
    struct pl_rng rng;
    pl_rng_init(&rng, 1, 0);
    q.peer_max = q.subnet_max = 1 << 20;
    for (int step = 0; step < 5000; step++) {
        const size_t p = pl_rng_below(&rng, PEERS), s = pl_rng_below(&rng, SUBNETS);
        const size_t bytes = 1 + pl_rng_below(&rng, 50);
        size_t holders = 0, nets = 0;
        if (of_peer[p][s]) { /* all of it goes */
            release(p + 1, s + 1, of_peer[p][s]);
            peer[p] -= of_peer[p][s];
            subnet[s] -= of_peer[p][s];
            of_peer[p][s] = 0;
        } else {
            charge(p + 1, s + 1, bytes);
            peer[p] += bytes;
            subnet[s] += bytes;
            of_peer[p][s] = bytes;
        }
        for (size_t i = 0; i < PEERS; i++) holders += peer[i] > 0;
        for (size_t i = 0; i < SUBNETS; i++) nets += subnet[i] > 0;
        assert_int_equal(q.peers.count, holders);
        assert_int_equal(q.subnets.count, nets);
    }
    for (size_t i = 0; i < q.peers.count; i++)
        assert_int_equal(q.peers.of[i].bytes, peer[q.peers.of[i].holder - 1]);
    for (size_t i = 0; i < q.subnets.count; i++)
        assert_int_equal(q.subnets.of[i].bytes, subnet[q.subnets.of[i].holder - 1]);
    for (size_t i = 0; i < PEERS; i++) /* each is found under its own name */
        assert_true(allows(i + 1, 1000, (1 << 20) - peer[i]) &&
                    !allows(i + 1, 1000, (1 << 20) - peer[i] + 1));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(limits_are_of_a_peer_and_of_a_subnet),
        TEST(no_limits),
        TEST(a_value_is_its_writers),
        TEST(sums_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
