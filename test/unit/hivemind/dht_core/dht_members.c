/* dht_members.c - members of a moderated swarm: how long a proof lasts, how often a stranger is
 * asked for one, and which a full memory forgets. Limits of wrong tokens: rate_limit.c. */
#include "net/hivemind/dht_core/dht_members.h"
#include "test/unit/unit.h"

static struct dht_members m;

static struct peer_id numbered(int n)
{
    return (struct peer_id){ .length = 34,
                             .bytes = { 0x12, 32, [2] = (uint8_t)n, [3] = (uint8_t)(n >> 8) } };
}

static int begin(void **state)
{
    memset(&m, 0, sizeof m);
    return 0;
}

static int end(void **state)
{
    dht_members_close(&m);
    dht_members_close(&m);
    return 0;
}

static int has(int n, double now)
{
    struct peer_id peer = numbered(n);
    return dht_members_has(&m, &peer, now);
}

static int may_ask(int n, double now)
{
    struct peer_id peer = numbered(n);
    return dht_members_may_ask(&m, &peer, now);
}

static void add(int n, double until)
{
    struct peer_id peer = numbered(n);
    dht_members_add(&m, &peer, until);
}

static void refuse(int n, double now)
{
    struct peer_id peer = numbered(n);
    dht_members_refuse(&m, &peer, now);
}

/* To the end of the token that was shown last. */
static void as_long_as_the_token(void **state)
{
    assert_false(has(1, 0));
    add(1, 100);
    assert_true(has(1, 100));
    assert_false(has(1, 100.5));
    assert_false(has(2, 50));
    add(1, 200);
    assert_true(has(1, 200));
    assert_int_equal(m.count, 1);
    add(1, 150);
    assert_false(has(1, 200));
}

/* The token that expires first is forgotten. */
static void full_memory(void **state)
{
    for (int i = 0; i < DHT_MEMBERS_MAX; i++) add(i, i == 77 ? 10 : 20 + i);
    for (int i = 0; i < DHT_MEMBERS_MAX; i++) assert_true(has(i, 5));
    add(DHT_MEMBERS_MAX, 1e6);
    assert_true(has(DHT_MEMBERS_MAX, 5));
    assert_false(has(77, 5));
    assert_true(has(0, 5) && has(76, 5) && has(78, 5) && has(DHT_MEMBERS_MAX - 1, 5));
    add(DHT_MEMBERS_MAX + 1, 1e6);
    assert_false(has(0, 5));
    assert_int_equal(m.count, DHT_MEMBERS_MAX);
}

/* A peer that showed no token is not asked again at once; the others are. */
static void refused_peers_wait(void **state)
{
    assert_true(may_ask(1, 50));
    refuse(1, 50);
    assert_false(may_ask(1, 50));
    assert_false(may_ask(1, 50 + DHT_REFUSAL_TIME - 0.1));
    assert_true(may_ask(2, 50));
    assert_true(may_ask(1, 50 + DHT_REFUSAL_TIME));
    /* A ring: the oldest refusal is pushed out first. */
    for (int i = 0; i <= DHT_REFUSALS_MAX; i++) refuse(1000 + i, 100 + i * 1e-3);
    assert_true(may_ask(1000, 102));
    assert_false(may_ask(1001, 102));
    assert_false(may_ask(1000 + DHT_REFUSALS_MAX, 102));
}

/* Each question costs us a signature, so their number a second is limited for all peers together. */
static void questions_are_rationed(void **state)
{
    for (int second = 0; second < 2; second++) {
        for (int i = 0; i < DHT_PROOFS_A_SECOND; i++) assert_true(may_ask(i, 10 + second));
        assert_false(may_ask(500, 10 + second));
        assert_false(may_ask(500, 10.9 + second));
    }
    /* Those that wait for their time to be over are not counted. */
    refuse(1, 20);
    for (int i = 0; i < DHT_PROOFS_A_SECOND; i++) assert_false(may_ask(1, 20));
    assert_true(may_ask(2, 20));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(as_long_as_the_token),
        TEST(full_memory),
        TEST(refused_peers_wait),
        TEST(questions_are_rationed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
