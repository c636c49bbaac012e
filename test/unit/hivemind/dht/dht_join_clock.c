/* dht_join_clock.c - the time of a swarm, as a node that joins learns it from those that are there: an hour off in
 * either direction, nobody's word alone, and a second question where the first one had too few answers. */
#include "dht_world.h"

static void put_clock(void *context)
{
    struct node *n = context;
    n->dht->core.clock_offset = n->clock;
}

/* A swarm whose clocks, relative to ours, are at `clock`, except the last node's. Returns the
 * correction that a joining node adds to its own clock. */
static double joins_with(int count, double clock, double last)
{
    struct node n[6], late = { .dht = NULL };
    double offset;
    open_nodes(n, count, loop);
    for (int i = 0; i < count; i++) {
        n[i].clock = i == count - 1 ? last : clock;
        loop_call(loop, put_clock, &n[i]);
    }
    open_node(&late, loop, n[count - 1].address);
    assert_true(late.joined);
    offset = read_status(&late).clock_offset;
    if (clock == last) {
        assert_int_equal(store(&late, "on time", NULL, 1, 60), PL_OK);
        assert_int_equal(get_number(&n[0], "on time", 1), 1);
    }
    close_node(&late);
    for (int i = 0; i < count; i++) close_node(&n[i]);
    return offset;
}

/* A node with a wrong clock follows the others' clocks; a single one of them cannot mislead it. */
static void clocks(void **state)
{
    assert_true(fabs(joins_with(3, 100, 100) - 100) <
                10); /* what a call took may be what it is off by */
    assert_true(joins_with(1, 0, 1e6) == DHT_CLOCK_ALONE);
    assert_true(joins_with(1, 0, -1e300) == -DHT_CLOCK_ALONE);
    assert_true(fabs(joins_with(4, 0, 1e6)) <= DHT_CLOCK_TOLERANCE);
}

/* The second node of a swarm has one peer to ask, which alone may correct some seconds. It asks again
 * once there are more: then a majority decides, whether that peer was right or lied. */
static void clock_is_asked_again(void **state)
{
    (void)state;
    for (int lies = 0; lies <= 1; lies++) {
        const double clock = lies ? 0 : 100;
        double alone, later, until;
        struct node n[4];
        memset(n, 0, sizeof n);
        n[0].clock = 100;
        open_node(&n[0], loop, NULL);
        open_node(&n[1], loop, n[0].address);
        alone = read_status(&n[1]).clock_offset;
        for (int i = 2; i < 4; i++) {
            open_node(&n[i], loop, n[0].address);
            n[i].clock = clock;
            loop_call(loop, put_clock, &n[i]);
        }
        until = pl_seconds() + LIMIT / 4;
        do {
            loop_call(loop, maintenance_now, &n[1]);
            nap(0.1);
            later = read_status(&n[1]).clock_offset;
        } while (fabs(later - clock) > DHT_CLOCK_AGREE && pl_seconds() < until);
        for (int i = 0; i < 4; i++) close_node(&n[i]);
        assert_true(alone == DHT_CLOCK_ALONE);
        assert_true(fabs(later - clock) <= DHT_CLOCK_AGREE);
    }
}

static void clock_follows_a_majority(void **state)
{
    static const struct {
        size_t n;
        double error[6], want;
    } cases[] = {
        { 0, { 0 }, 0 },
        { 1, { 0.9 }, 0 },
        { 1, { -4 }, -4 },
        { 1, { 90 }, DHT_CLOCK_ALONE },
        { 2, { 90, 1e9 }, DHT_CLOCK_ALONE }, /* nobody knows which */
        { 2, { 0.1, 1e9 }, 0 },
        { 2, { 90, 91 }, 90.5 },
        { 3, { 1e9, 90, 91 }, 91 }, /* a majority of two */
        { 3, { -1e9, 90, 91 }, 90 },
        { 4, { 90, 90, -500, 1e9 }, DHT_CLOCK_ALONE }, /* half is none */
        { 5, { 0.2, -0.1, 0, 1e9, 1e9 }, 0 },
        { 3, { 1e9, 1e9, 1e9 }, DHT_CLOCK_MAX },
        { 3, { -1e9, -1e9, -1e9 }, -DHT_CLOCK_MAX },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double errors[6], median, got;
        memcpy(errors, cases[i].error, sizeof errors);
        got = dht_clock_correction(&median, errors, cases[i].n);
        if (got != cases[i].want) fail_msg("case %zu: %g, not %g", i, got, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks),
        cmocka_unit_test(clock_is_asked_again),
        cmocka_unit_test(clock_follows_a_majority),
    };
    return cmocka_run_group_tests(tests, open_loop, close_loop);
}
