/* bans.c - how long a peer is left out: after a proof, and after what may be nobody's fault. */
#include "net/hivemind/moderation/bans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct peer_id numbered(int n)
{
    return (struct peer_id){ .length = 4, .bytes = { (uint8_t)n, (uint8_t)(n >> 8) } };
}

static struct bans b;

static int anew(void **state)
{
    (void)state;
    memset(&b, 0, sizeof b);
    return 0;
}

static void a_ban_ends(void **state)
{
    struct peer_id one = numbered(1), two = numbered(2);
    (void)state;
    bans_add(&b, 100, &one);
    assert_true(bans_has(&b, 100, &one) && bans_has(&b, 100 + BANS_TIME - 1, &one));
    assert_false(bans_has(&b, 100 + BANS_TIME, &one));
    assert_false(bans_has(&b, 100, &two));
}

static void a_back_off_doubles(void **state)
{
    struct peer_id one = numbered(1), two = numbered(2);
    double now = 0, time = BANS_BACK_OFF;
    (void)state;
    for (int i = 0; i < 8; i++, time *= 2) {
        double expected = time < BANS_TIME ? time : BANS_TIME;
        assert_true(bans_back_off(&b, now, &one) == expected);
        assert_true(bans_has(&b, now + expected - 1, &one));
        now += expected;
        assert_false(bans_has(&b, now, &one));
    }
    assert_true(bans_back_off(&b, now, &two) == BANS_BACK_OFF);
    /* and is forgotten */
    assert_true(bans_back_off(&b, now + BANS_MEMORY + 1, &one) == BANS_BACK_OFF);
}

static void a_back_off_shortens_no_ban(void **state)
{
    struct peer_id one = numbered(1);
    (void)state;
    bans_add(&b, 0, &one);
    assert_true(bans_back_off(&b, 100, &one) == BANS_TIME - 100);
    assert_true(bans_has(&b, BANS_TIME - 1, &one));
    assert_true(bans_back_off(&b, BANS_TIME + 1, &one) == BANS_BACK_OFF);
}

/* The one that ends first makes way: that many short ones end no ban. */
static void the_first_to_end_makes_way(void **state)
{
    struct peer_id banned = numbered(0);
    (void)state;
    bans_add(&b, 0, &banned);
    for (int i = 1; i < 3 * BANS_MAX; i++) {
        struct peer_id other = numbered(i);
        bans_back_off(&b, i * 0.1, &other);
    }
    assert_true(b.count == BANS_MAX && bans_has(&b, 3 * BANS_MAX * 0.1, &banned));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_ban_ends, anew),
        cmocka_unit_test_setup(a_back_off_doubles, anew),
        cmocka_unit_test_setup(a_back_off_shortens_no_ban, anew),
        cmocka_unit_test_setup(the_first_to_end_makes_way, anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
