/* dht_clock.c - what other nodes may move: our DHT time, by samples of their clocks; and our processor, by records
 * whose signatures have to be checked. Each limit at its bound. */
#include "net/hivemind/kademlia/dht_checks.h"
#include "net/hivemind/kademlia/dht_clock.h"
#include "test/unit/unit.h"

#include <math.h>

/* Samples | the median, the correction. */
static void corrections(void **state)
{
    static const struct {
        double errors[5];
        size_t n;
        double median, correction;
    } cases[] = {
        { { 1 }, 1, 1, 0 }, /* latency and drift */
        { { -1.25 }, 1, -1.25, -1.25 },
        { { 5.5 }, 1, 5.5, 5 }, /* one sample alone: 5 s at most */
        { { -900 }, 1, -900, -5 },
        { { 900, 901 }, 2, 900.5, 900.5 }, /* two that agree */
        { { 3600, 3602 }, 2, 3601, 3600 }, /* an hour at most */
        { { 10, 13 }, 2, 11.5, 11.5 },
        { { 10, 13.5 }, 2, 10, 5 }, /* they do not agree: the one nearer to us */
        { { -13.5, -10 }, 2, -10, -5 },
        { { 100, -2, -2.5 }, 3, -2, -2 },
        { { 0, 50, 100 }, 3, 50, 5 },
        { { 50, 53, 100, 200 }, 4, 53, 5 },     /* two of four are no majority */
        { { 50, 53, 47, 200, 300 }, 5, 53, 5 }, /* two agree with 53, of five */
        { { 50, 53, 47, 47, 300 }, 5, 50, 50 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        double errors[5], median = 0;
        memcpy(errors, cases[i].errors, sizeof errors);
        assert_true(dht_clock_correction(&median, errors, cases[i].n) == cases[i].correction);
        assert_true(median == cases[i].median);
    }
    {
        double median = 0;
        assert_true(dht_clock_correction(&median, NULL, 0) == 0);
        assert_true(isnan(median));
    }
}

/* A record of this many characters of key. */
static struct record record_of(char *subkey, size_t key_n)
{
    struct record r = { .key = (const uint8_t *)"k", .key_n = 1 };
    const size_t start = strlen("[owner:");
    memcpy(subkey, "[owner:", start);
    memset(subkey + start, 'A', key_n);
    subkey[start + key_n] = ']';
    r.subkey = (const uint8_t *)subkey;
    r.subkey_n = start + key_n + 1;
    return r;
}

static size_t take_all(struct dht_checks *c, double now, uint8_t peer, uint64_t subnet,
                       const struct record *r)
{
    const struct peer_id id = { .length = 34, .bytes = { 0x12, 0x20, peer } };
    size_t n = 0;
    while (n < 100000 && dht_checks_take(c, now, &id, subnet, r)) n++;
    return n;
}

/* 4,096 checks at once, 20 a second; four times and ten times that for a subnet. */
static void allowances_of_checks(void **state)
{
    static struct dht_checks c; /* large */
    char subkey[800];
    const struct record owned = record_of(subkey, 372),
                        plain = { .subkey = (const uint8_t *)"\xc0", .subkey_n = 1 };
    dht_checks_init(&c);
    assert_int_equal(take_all(&c, 0, 1, 7, &owned), DHT_CHECKS_BURST);
    assert_int_equal(take_all(&c, 1, 1, 7, &owned), DHT_CHECKS_A_SECOND);
    assert_int_equal(take_all(&c, 1, 1, 8, &owned), 0); /* wherever it comes from */
    assert_int_equal(take_all(&c, 1, 1, 7, &plain), 100000);
    /* The subnet's is whole again after that second; it lasts for four peers. */
    for (uint8_t peer = 2; peer < 6; peer++) {
        const size_t left = peer < 5 ? DHT_CHECKS_BURST
                                     : DHT_SUBNET_BURSTS * DHT_CHECKS_BURST - 3 * DHT_CHECKS_BURST -
                                           (DHT_CHECKS_BURST + DHT_CHECKS_A_SECOND -
                                            DHT_SUBNET_RATES * DHT_CHECKS_A_SECOND);
        assert_int_equal(take_all(&c, 1, peer, 7, &owned), left);
    }
    /* A peer whose subnet has none left keeps its own. */
    assert_int_equal(take_all(&c, 1, 9, 7, &owned), 0);
    assert_int_equal(take_all(&c, 1, 9, 10, &owned), DHT_CHECKS_BURST);
    assert_int_equal(take_all(&c, 2, 9, 7, &owned), DHT_CHECKS_A_SECOND);
    assert_int_equal(take_all(&c, 2, 10, 7, &owned),
                     DHT_SUBNET_RATES * DHT_CHECKS_A_SECOND - DHT_CHECKS_A_SECOND);
}

/* Twice the key, four times the work. */
static void longer_keys_cost_more(void **state)
{
    static struct dht_checks c;
    char subkey[800];
    const struct record owned = record_of(subkey, 744);
    dht_checks_init(&c);
    assert_int_equal(take_all(&c, 0, 1, 7, &owned), DHT_CHECKS_BURST / 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(corrections),
                                        cmocka_unit_test(allowances_of_checks),
                                        cmocka_unit_test(longer_keys_cost_more) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
