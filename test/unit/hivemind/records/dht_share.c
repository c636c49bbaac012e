/* dht_share.c - which records a full store gives up: those of the subnet that holds most, in it
 * those of the caller that holds most; the latest expirations first, and our own last. */
#include "net/hivemind/records/dht_share.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#define MOST 400

static struct dht_origin origins[MOST];
static struct dht_candidate candidates[MOST];
static size_t count;

static int begin(void **state)
{
    count = 0;
    memset(candidates, 0, sizeof candidates);
    return 0;
}

/* So many records of this size; each lives a second longer than the one before. */
static void hold(uint64_t subnet, uint64_t caller, size_t records, size_t bytes)
{
    for (size_t i = 0; i < records; i++, count++) {
        origins[count] = (struct dht_origin){ .subnet = subnet, .caller = caller };
        candidates[count] = (struct dht_candidate){ .from = &origins[count],
                                                    .expiration = 100 + (double)count,
                                                    .bytes = bytes };
    }
}

/* What a subnet, or one of its callers, is left with. */
static size_t left(uint64_t subnet, uint64_t caller)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (candidates[i].from->subnet == subnet &&
            (!caller || candidates[i].from->caller == caller))
            bytes += candidates[i].evicted ? 0 : candidates[i].bytes;
    return bytes;
}

/* 60, 30 and 10 bytes of which 70 may stay: the level is 30. Then 12 of each stay where 34 may. */
static void the_largest_subnets_are_cut_to_a_level(void **state)
{
    static const struct {
        size_t excess, left[3];
    } cases[] = { { 0, { 60, 30, 10 } },  { 30, { 30, 30, 10 } }, { 31, { 29, 30, 10 } },
                  { 60, { 15, 15, 10 } }, { 70, { 10, 10, 10 } }, { 100, { 0, 0, 0 } },
                  { 500, { 0, 0, 0 } } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        begin(NULL);
        hold(3, 1, 10, 1);
        hold(1, 2, 60, 1);
        hold(2, 3, 30, 1);
        assert_int_equal(dht_share_shed(candidates, count, cases[k].excess), PL_OK);
        for (uint64_t s = 1; s <= 3; s++) {
            const size_t want = cases[k].left[s - 1], is = left(s, 0);
            /* Where a level is no whole number, one of them keeps a byte more. */
            if (is != want && is != want + 1)
                fail_msg("excess %zu: subnet %d has %zu", cases[k].excess, (int)s, is);
        }
        assert_int_equal(left(1, 0) + left(2, 0) + left(3, 0),
                         cases[k].excess < 100 ? 100 - cases[k].excess : 0);
    }
}

/* A subnet's callers share what it keeps: a flood of one displaces its own records. */
static void callers_share_a_subnet(void **state)
{
    hold(1, 1, 50, 1);
    hold(1, 2, 5, 1);
    hold(1, 3, 15, 1);
    hold(2, 1, 40, 1); /* the same caller elsewhere is another holder */
    assert_int_equal(dht_share_shed(candidates, count, 40), PL_OK);
    assert_int_equal(left(1, 0), 35);
    assert_int_equal(left(2, 0), 35);
    assert_int_equal(left(1, 1), 15);
    assert_int_equal(left(1, 2), 5);
    assert_int_equal(left(1, 3), 15);
}

/* Of one holder those go first that would live longest. */
static void the_latest_goes_first(void **state)
{
    hold(1, 1, 10, 4);
    for (size_t i = 0; i < count; i++) candidates[i].expiration = 100 + (double)(7 * i % 10);
    assert_int_equal(dht_share_shed(candidates, count, 9), PL_OK); /* three of them */
    for (size_t i = 0; i < count; i++)
        assert_int_equal(candidates[i].evicted, candidates[i].expiration >= 107);
}

/* Others cannot push our own records out: these go when nobody else has any. */
static void our_own_go_last(void **state)
{
    hold(0, 0, 100, 1);
    hold(1, 1, 30, 1);
    hold(2, 0, 5, 1); /* without a caller, and still not ours */
    assert_int_equal(dht_share_shed(candidates, count, 35), PL_OK);
    assert_int_equal(left(0, 0), 100);
    assert_int_equal(left(1, 0) + left(2, 0), 0);
    begin(NULL);
    hold(0, 0, 100, 1);
    hold(1, 1, 30, 1);
    assert_int_equal(dht_share_shed(candidates, count, 50), PL_OK);
    assert_int_equal(left(0, 0), 80);
    assert_int_equal(left(1, 0), 0);
    begin(NULL);
    hold(0, 0, 10, 1);
    assert_int_equal(dht_share_shed(candidates, count, 3), PL_OK);
    assert_int_equal(left(0, 0), 7);
    begin(NULL);
    hold(0, 0, 10, 1);
    assert_int_equal(dht_share_shed(candidates, count, 10), PL_OK);
    assert_int_equal(left(0, 0), 0);
    assert_int_equal(dht_share_shed(candidates, 0, 3), PL_OK); /* nothing to give up */
}

/* Max-min fairness: a peer that has lost anything keeps as much as any other, but for a record of each: levels are
 * whole numbers. */
static void nobody_who_lost_has_less(void **state)
{
    enum { SUBNETS = 5, CALLERS = 4 };
    struct pl_rng rng;
    pl_rng_init(&rng, 2, 0);
    for (int round = 0; round < 100; round++) {
        size_t before[SUBNETS + 1], of[SUBNETS + 1][CALLERS + 1], excess, rest = 0;
        begin(NULL);
        for (uint64_t s = 1; s <= SUBNETS; s++)
            for (uint64_t c = 1; c <= CALLERS; c++) hold(s, c, pl_rng_below(&rng, 20), 1);
        for (uint64_t s = 1; s <= SUBNETS; s++) {
            before[s] = left(s, 0);
            for (uint64_t c = 1; c <= CALLERS; c++) of[s][c] = left(s, c);
        }
        excess = pl_rng_below(&rng, (uint32_t)count + 1);
        assert_int_equal(dht_share_shed(candidates, count, excess), PL_OK);
        for (uint64_t s = 1; s <= SUBNETS; s++) rest += left(s, 0);
        assert_int_equal(rest, count - excess);
        for (uint64_t s = 1; s <= SUBNETS; s++)
            for (uint64_t t = 1; t <= SUBNETS; t++)
                if (left(s, 0) < before[s]) assert_true(left(s, 0) + SUBNETS > left(t, 0));
        for (uint64_t s = 1; s <= SUBNETS; s++)
            for (uint64_t c = 1; c <= CALLERS; c++)
                for (uint64_t d = 1; d <= CALLERS; d++)
                    if (left(s, c) < of[s][c])
                        assert_true(left(s, c) + SUBNETS + CALLERS > left(s, d));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_largest_subnets_are_cut_to_a_level, begin),
        cmocka_unit_test_setup(callers_share_a_subnet, begin),
        cmocka_unit_test_setup(the_latest_goes_first, begin),
        cmocka_unit_test_setup(our_own_go_last, begin),
        cmocka_unit_test_setup(nobody_who_lost_has_less, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
