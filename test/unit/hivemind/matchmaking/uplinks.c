/* uplinks.c - slow uplinks reduce nothing where the others are sooner done without them, and send
 * as much of their values as takes no longer than the others. */
#include "net/hivemind/matchmaking/uplinks.h"
#include "test/unit/unit.h"

#include <math.h>

#define MOST 24
#define VALUES 1000000

static void make(struct group *g, const double *bandwidth, const enum group_mode *mode, size_t n)
{
    memset(g, 0, sizeof *g);
    for (size_t i = 0; i < n; i++) {
        const struct gather gather = { .bandwidth = bandwidth[i], .mode = mode ? mode[i] : 0 };
        struct peer_id id = { .length = 34, .bytes = { 0x12, 0x20, (uint8_t)i } };
        struct bytes out = { 0 };
        assert_int_equal(gather_write(&out, &gather), PL_OK);
        assert_int_equal(group_add(g, &id, bytes_at(&out), bytes_length(&out), NULL), PL_OK);
        bytes_clear(&out);
    }
}

/* The time of a group, in vectors at 1 Mbit/s, by the shares that its members compute. */
static double time_of(const struct group *g)
{
    size_t share[MOST];
    double longest = 0;
    assert_int_equal(group_shares(share, g, VALUES, NULL), PL_OK);
    for (size_t i = 0; i < g->count; i++)
        if (share[i])
            longest = fmax(longest, (1 + ((double)g->count - 2) * (double)share[i] / VALUES) /
                                        g->members[i].gather.bandwidth);
    return longest;
}

static void who_is_relieved(void **state)
{
    static const struct {
        double stated[5], slow, want[5];
        enum group_mode mode[5];
    } cases[] = {
        /* equals, too; a client and an unreachable peer are none of the reducers */
        { { 500, 20, 20, 500, 0 }, 50, { 500, 0, 0, 500, 0 }, { 0 } },
        { { 500, 20, 20, 500, 30 }, 50, { 500, 0, 0, 500, 30 }, { 0, 0, 0, 0, GROUP_CLIENT } },
        /* nobody below the limit; no limit */
        { { 500, 20, 20, 500, 500 }, 20, { 500, 20, 20, 500, 500 }, { 0 } },
        { { 500, 20, 20, 500, 500 }, 0, { 500, 20, 20, 500, 500 }, { 0 } },
        /* all are slow: they are needed */
        { { 20, 20, 20, 20, 20 }, 50, { 20, 20, 20, 20, 20 }, { 0 } },
        /* the slowest only: (5 - 2 + 4) / 160 < 1 / 10, but (5 - 2 + 3) / 120 > 1 / 40 */
        { { 40, 40, 40, 40, 10 }, 50, { 40, 40, 40, 40, 0 }, { 0 } },
        /* who states nothing counts as the mean, 260; none is known */
        { { 500, 20, -1, -1, -1 }, 50, { 500, 0, -1, -1, -1 }, { 0 } },
        { { -1, -1, -1, -1, -1 }, 50, { -1, -1, -1, -1, -1 }, { 0 } },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct group g;
        make(&g, cases[i].stated, cases[i].mode, 5);
        assert_int_equal(uplinks_relieve(&g, cases[i].slow), PL_OK);
        for (size_t k = 0; k < 5; k++)
            if (g.members[k].gather.bandwidth != cases[i].want[k])
                fail_msg("case %zu, member %zu: %g", i, k, g.members[k].gather.bandwidth);
        group_clear(&g);
    }
}

/* With any uplinks: no group becomes slower, and those left below the limit are needed. */
static void no_group_becomes_slower(void **state)
{
    uint32_t seed = 1;
    int faster = 0;
    for (int n = 2; n <= MOST; n++)
        for (int i = 0; i < 20; i++) {
            double b[MOST], before, after, slowest = INFINITY;
            struct group g;
            for (int k = 0; k < n; k++) {
                seed = seed * 1664525u + 1013904223u;
                b[k] = rint(20 * pow(50, (seed >> 8) / 0x1p24));
            }
            make(&g, b, NULL, (size_t)n);
            before = time_of(&g);
            assert_int_equal(uplinks_relieve(&g, 60), PL_OK);
            after = time_of(&g);
            faster += after < 0.9 * before;
            assert_true(after <= before * (1 + 1e-6));
            for (int k = 0; k < n; k++) {
                if (g.members[k].gather.bandwidth > 0)
                    slowest = fmin(slowest, g.members[k].gather.bandwidth);
                else assert_true(b[k] < 60);
            }
            for (int k = 0; slowest < 60 && k < n; k++)
                if (g.members[k].gather.bandwidth == slowest) {
                    assert_int_equal(group_set_bandwidth(&g.members[k], 0), PL_OK);
                    break;
                }
            if (slowest < 60) assert_true(time_of(&g) >= 1 / slowest * (1 - 1e-6));
            group_clear(&g);
        }
    assert_true(faster > 100);
}

/* Two reducers of 200, two members without a share: the round takes (1 + 2 / 2) / 200 at least, or what
 * is allowed to an uplink at the limit. */
static void how_much_is_sent(void **state)
{
    static const double stated[] = { 200, 200, 0, 0 };
    static const size_t share[] = { VALUES / 2, VALUES / 2, 0, 0 };
    struct group g;
    make(&g, stated, NULL, 4);
    assert_true(fabs(uplinks_fraction(&g, share, 25, 50) - 0.5) < 1e-12);
    assert_true(fabs(uplinks_fraction(&g, share, 10, 50) - 0.2) < 1e-12);
    assert_true(fabs(uplinks_fraction(&g, share, 10, 200) - 0.1) < 1e-12); /* with the others */
    assert_true(uplinks_fraction(&g, share, 60, 50) == 1);
    assert_true(uplinks_fraction(&g, share, 25, 0) == 1);
    assert_true(uplinks_fraction(&g, share, PL_BANDWIDTH_UNKNOWN, 50) == 1);
    group_clear(&g);
}

/* Reducers without values of their own leave a mean to those that send some. */
static void every_part_needs_values(void **state)
{
    static const double stated[] = { 200, 200, 0, 0 };
    static const size_t both[] = { VALUES / 2, VALUES / 2, 0, 0 }, one[] = { VALUES, 0, 0, 0 };
    static const enum group_mode helps[] = { GROUP_FULL, GROUP_AUXILIARY, GROUP_FULL, GROUP_FULL };
    struct group g;
    make(&g, stated, helps, 4);
    assert_true(uplinks_fraction(&g, both, 25, 50) == 1);
    group_clear(&g);
    make(&g, stated, NULL, 4);
    assert_true(uplinks_fraction(&g, one, 25, 50) == 1);
    assert_true(uplinks_fraction(&g, both, 25, 50) < 1);
    group_clear(&g);
}

/* Where the reducers are slow themselves, or have not measured anything, nobody needs to hurry. */
static void slow_reducers_are_waited_for(void **state)
{
    static const double slow[] = { 20, 20, 0, 0 }, unknown[] = { -1, -1, -1, -1 };
    static const size_t share[] = { VALUES / 2, VALUES / 2, 0, 0 };
    struct group g;
    make(&g, slow, NULL, 4); /* (1 + 2 / 2) / 20 */
    assert_true(uplinks_fraction(&g, share, 10, 50) == 1);
    assert_true(fabs(uplinks_fraction(&g, share, 5, 50) - 0.5) < 1e-12);
    assert_true(uplinks_are_known(&g));
    group_clear(&g);
    make(&g, unknown, NULL, 4);
    assert_false(uplinks_are_known(&g));
    assert_true(uplinks_fraction(&g, share, 5, 50) == 1);
    group_clear(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_relieved),
        cmocka_unit_test(no_group_becomes_slower),
        cmocka_unit_test(how_much_is_sent),
        cmocka_unit_test(every_part_needs_values),
        cmocka_unit_test(slow_reducers_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
