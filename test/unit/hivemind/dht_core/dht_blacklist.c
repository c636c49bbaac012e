/* dht_blacklist.c - nodes that did not answer are left alone, longer each time; one answer clears
 * that; a full list forgets who would be asked again first. */
#include "net/hivemind/dht_core/dht_blacklist.h"
#include "test/unit/unit.h"

static struct dht_blacklist list;

static int begin(void **state)
{
    list = (struct dht_blacklist){ .first = BLACKLIST_FIRST,
                                   .longest = BLACKLIST_LONGEST,
                                   .max = BLACKLIST_MAX };
    return 0;
}

static int end(void **state)
{
    dht_blacklist_close(&list);
    assert_null(list.entries);
    return 0;
}

static struct peer_id numbered(size_t n)
{
    return (struct peer_id){ .length = 34,
                             .bytes = { 0x12, 32, [2] = (uint8_t)n, [3] = (uint8_t)(n >> 8) } };
}

/* 5 s, 10 s, 20 s ... five minutes, also after a pause is over. */
static void pauses_double(void **state)
{
    static const double pause[] = { 5, 10, 20, 40, 80, 160, 300, 300, 300 };
    const struct peer_id one = numbered(1), two = numbered(2);
    double now = 1000;
    assert_false(dht_blacklist_has(&list, &one, now));
    for (size_t i = 0; i < sizeof pause / sizeof *pause; i++) {
        dht_blacklist_failed(&list, &one, now);
        assert_true(dht_blacklist_has(&list, &one, now));
        assert_true(dht_blacklist_has(&list, &one, now + pause[i] - 0.01));
        assert_false(dht_blacklist_has(&list, &one, now + pause[i]));
        now += i % 2 ? 1 : 400; /* within the pause, or after it */
    }
    for (int i = 0; i < 1000; i++) dht_blacklist_failed(&list, &one, now); /* for months */
    assert_true(dht_blacklist_has(&list, &one, now + 299));
    assert_false(dht_blacklist_has(&list, &one, now + 300));
    assert_false(dht_blacklist_has(&list, &two, now));
    assert_int_equal(list.count, 1);
}

static void an_answer_clears(void **state)
{
    struct peer_id peer[3];
    for (size_t i = 0; i < 3; i++) {
        peer[i] = numbered(i);
        for (size_t k = 0; k <= i; k++) dht_blacklist_failed(&list, &peer[i], 100);
    }
    dht_blacklist_answered(&list, &peer[0]);
    dht_blacklist_answered(&list, &peer[0]); /* nothing is left to clear */
    assert_int_equal(list.count, 2);
    assert_false(dht_blacklist_has(&list, &peer[0], 100));
    assert_true(dht_blacklist_has(&list, &peer[1], 109.9) &&
                !dht_blacklist_has(&list, &peer[1], 110));
    assert_true(dht_blacklist_has(&list, &peer[2], 119.9) &&
                !dht_blacklist_has(&list, &peer[2], 120));
    dht_blacklist_failed(&list, &peer[0], 200); /* from the beginning again */
    assert_false(dht_blacklist_has(&list, &peer[0], 205));
}

static void a_full_list_forgets_the_first_to_return(void **state)
{
    struct peer_id peer;
    for (size_t i = 0; i < BLACKLIST_MAX; i++) {
        peer = numbered(i);
        dht_blacklist_failed(&list, &peer, i == 7 ? 99 : 100);
    }
    assert_int_equal(list.count, BLACKLIST_MAX);
    peer = numbered(BLACKLIST_MAX);
    dht_blacklist_failed(&list, &peer, 101);
    assert_int_equal(list.count, BLACKLIST_MAX);
    assert_true(dht_blacklist_has(&list, &peer, 105.9));
    for (size_t i = 0; i < BLACKLIST_MAX; i++) {
        peer = numbered(i);
        assert_int_equal(dht_blacklist_has(&list, &peer, 103), i != 7);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pauses_double),
        TEST(an_answer_clears),
        TEST(a_full_list_forgets_the_first_to_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
