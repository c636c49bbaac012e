/* grid.c - the number of group bits: groups stay small, peers with different counts soon agree
 * again, strangers' records shrink groups only by a bounded factor, and a peer that is alone finds
 * the others. */
#include "net/hivemind/matchmaking/grid.h"
#include "test/unit/unit.h"

#include <math.h>

static void groups_stay_small(void **state)
{
    for (int64_t epoch = 0; epoch < 400; epoch++) {
        for (double n = 1; n <= 45; n++) assert_int_equal(grid_bits(n, epoch), 0);
        for (double n = 91; n < 1e6; n *= 1.1) {
            double group = ldexp(n, -(int)grid_bits(n, epoch));
            assert_true(group > GRID_GROUP / 2 && group <= 2 * GRID_GROUP);
            assert_int_equal(grid_bits(n, epoch), grid_bits(n, epoch / GRID_EPOCHS * GRID_EPOCHS));
        }
    }
    assert_int_equal(grid_bits(1e300, 3), GRID_BITS_MAX);
    assert_int_equal(grid_bits(0, 3), 0);
}

/* Counts that differ by 2 % give different numbers of bits in 3 to 6 epochs of 100, and nowhere for long. */
static void counts_that_differ_agree_soon(void **state)
{
    for (double n = 50; n < 5000; n *= 1.01) {
        int apart = 0, longest = 0, in_row = 0;
        for (int64_t epoch = 0; epoch < 1000 * GRID_EPOCHS; epoch += GRID_EPOCHS) {
            int differ = grid_bits(n, epoch) != grid_bits(1.02 * n, epoch);
            apart += differ;
            in_row = differ ? in_row + 1 : 0;
            longest = longest < in_row ? in_row : longest;
        }
        assert_true(apart < 100 && longest <= 7);
    }
}

/* A peer whose groups have shown 200 peers believes in at most 800, whatever the number of
 * records. */
static void records_are_bounded_by_groups(void **state)
{
    struct grid g = { 0 };
    assert_true(grid_peers(&g, 100000) == 100000);
    assert_int_equal(grid_bound(&g, 100000), 100000);
    grid_round(&g, 25, 3);
    assert_true(g.met == 200);
    assert_true(grid_peers(&g, 210) == 210);
    assert_true(grid_peers(&g, 100000) == 800);
    assert_true(grid_peers(&g, 30) == 30);
    assert_int_equal(grid_bound(&g, 100000), 400); /* whether there are parts: parts.h */
    assert_int_equal(grid_bound(&g, 399), 399);
    for (int i = 0; i < 20; i++) grid_round(&g, 20, 4);
    assert_true(fabs(g.met - 320) < 2);
}

/* False records made it choose keys that no other peer has: it halves the count, until it is in a
 * group again. */
static void alone_it_tries_others(void **state)
{
    static const double want[] = { 1600, 800, 400, 200, 100, 1600 };
    struct grid g = { .met = 5 };
    for (size_t i = 0; i < PL_COUNT(want); i++) {
        grid_round(&g, i % 2, 6);
        assert_true(grid_peers(&g, 1600) == want[i]);
    }
    grid_round(&g, 12, 3);
    assert_true(g.met == 96 && !g.alone);
}

/* A donor's word counts until there is a group of our own, and never as more bits than any run
 * has. */
static void donors_only_hint(void **state)
{
    struct grid g = { 0 }, one = { 0 };
    grid_hint(&one, 0);
    for (int64_t epoch = 0; epoch < 400; epoch++)
        assert_int_equal(grid_bits(grid_peers(&one, 100000), epoch), 0);
    grid_hint(&g, 64);
    assert_true(g.met == 0);
    grid_hint(&g, 9);
    assert_true(grid_peers(&g, 1000000) == GRID_TRUST * GRID_GROUP * 512);
    grid_hint(&g, 2);
    assert_true(g.met == GRID_GROUP * 512);
    grid_round(&g, 0, 9);
    assert_true(grid_peers(&g, 2000) == 2000);
    grid_round(&g, 20, 5);
    assert_true(g.met == 640);
}

static void bits_keep_their_end(void **state)
{
    const struct random_source any = { 0 };
    char bits[GROUP_BITS_MAX + 1] = "0010";
    grid_fit_bits(bits, 2, &any);
    assert_string_equal(bits, "10");
    grid_fit_bits(bits, 5, &any);
    assert_string_equal(bits + 3, "10");
    assert_int_equal(strspn(bits, "01"), 5);
    grid_fit_bits(bits, GROUP_BITS_MAX + 1, &any);
    assert_int_equal(strlen(bits), 5);
    grid_fit_bits(bits, 0, &any);
    assert_string_equal(bits, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_stay_small),
        cmocka_unit_test(counts_that_differ_agree_soon),
        cmocka_unit_test(records_are_bounded_by_groups),
        cmocka_unit_test(alone_it_tries_others),
        cmocka_unit_test(donors_only_hint),
        cmocka_unit_test(bits_keep_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
