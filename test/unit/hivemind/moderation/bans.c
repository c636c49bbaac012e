/* bans.c - how long a peer is excluded: after a proof, and after a failure that may not be its
 * fault. */
#include "net/hivemind/moderation/bans.h"
#include "test/unit/unit.h"

#include <stddef.h>

static struct peer_id numbered(int n)
{
    return (struct peer_id){ .length = 4, .bytes = { (uint8_t)n, (uint8_t)(n >> 8) } };
}

static struct bans b;

static int anew(void **state)
{
    memset(&b, 0, sizeof b);
    return 0;
}

static void a_ban_ends(void **state)
{
    struct peer_id one = numbered(1), two = numbered(2);
    assert_float_equal(BANS_TIME, 600, 0);
    bans_add(&b, 100, &one);
    assert_true(bans_has(&b, 100, &one) && bans_has(&b, 100 + BANS_TIME - 1, &one));
    assert_false(bans_has(&b, 100 + BANS_TIME, &one));
    assert_false(bans_has(&b, 100, &two));
}

static void a_ban_counts_once(void **state)
{
    struct peer_id one = numbered(1);
    assert_true(bans_add(&b, 0, &one));
    assert_false(bans_add(&b, BANS_TIME - 1, &one));
    assert_true(bans_has(&b, 2 * BANS_TIME - 2, &one)); /* a new proof begins it anew */
    assert_true(bans_add(&b, 2 * BANS_TIME - 1, &one));
    assert_int_equal(b.count, 1);
}

static void the_first_to_end_is_forgotten(void **state)
{
    struct peer_id first = numbered(0), last = numbered(BANS_MAX);
    for (int i = 0; i < BANS_MAX; i++) {
        struct peer_id other = numbered(i);
        bans_add(&b, 300 + i, &other);
    }
    bans_add(&b, 300 + BANS_MAX, &last);
    assert_false(bans_has(&b, 300, &first));
    memset(&b, 0, sizeof b);
    for (int i = 0; i <= BANS_MAX; i++) {
        struct peer_id other = numbered(i);
        bans_add(&b, 300 - i, &other);
    }
    assert_int_equal(b.count, BANS_MAX);
    for (int i = 0; i <= BANS_MAX; i++) {
        struct peer_id other = numbered(i);
        assert_int_equal(bans_has(&b, 300, &other), i != BANS_MAX - 1);
    }
    for (int at = 0; at < BANS_MAX; at++) { /* wherever it is in the table */
        memset(&b, 0, sizeof b);
        for (int i = 0; i < BANS_MAX; i++) {
            struct peer_id other = numbered(i);
            bans_add(&b, i == at ? 299 : 300, &other);
        }
        bans_add(&b, 300, &last);
        for (int i = 0; i <= BANS_MAX; i++) {
            struct peer_id other = numbered(i);
            assert_int_equal(bans_has(&b, 300, &other), i != at);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_ban_ends, anew),
        cmocka_unit_test_setup(a_ban_counts_once, anew),
        cmocka_unit_test_setup(the_first_to_end_is_forgotten, anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
