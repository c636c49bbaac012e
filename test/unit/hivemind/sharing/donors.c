/* donors.c - which donor of a state a newcomer asks first. */
#include "net/hivemind/sharing/donors.h"
#include "net/hivemind/messages/msgpack.h"
#include "test/unit/unit.h"

#include <math.h>

static struct peer_id numbered(int n)
{
    return (struct peer_id){ .length = 34,
                             .bytes = { 0x12, 32, [2] = (uint8_t)n, [3] = (uint8_t)(n >> 8) } };
}

static void announce(struct dht_dictionary *d, const struct peer_id *peer, double priority)
{
    struct bytes subkey = { 0 }, value = { 0 };
    assert_int_equal(mp_bin(&subkey, peer->bytes, peer->length), PL_OK);
    assert_int_equal(mp_float(&value, priority), PL_OK);
    assert_int_equal(dht_dictionary_store(d, 0, bytes_at(&subkey), bytes_length(&subkey),
                                          bytes_at(&value), bytes_length(&value), 30),
                     PL_OK);
    bytes_clear(&subkey);
    bytes_clear(&value);
}

static void a_failure_is_remembered_longer_each_time(void **state)
{
    static struct donor_failures f;
    struct peer_id one = numbered(1), two = numbered(2);
    for (int i = 0; i < 8; i++) {
        double pause = fmin(DONOR_BACKOFF_LONGEST, DONOR_BACKOFF_FIRST * (1 << i));
        donor_failed(&f, 100, &one);
        assert_true(donor_has_failed(&f, 100 + pause - 0.1, &one));
        assert_false(donor_has_failed(&f, 100 + pause, &one));
    }
    assert_false(donor_has_failed(&f, 100, &two));
    donor_succeeded(&f, &two); /* nothing is known of it */
    donor_succeeded(&f, &one);
    assert_false(donor_has_failed(&f, 100, &one));
}

static void full_memory_drops_the_first_to_expire(void **state)
{
    static struct donor_failures f;
    struct peer_id peer;
    for (int i = 0; i < DONOR_FAILURES_MAX; i++) {
        peer = numbered(i);
        donor_failed(&f, i == 7 ? 0 : 1, &peer);
    }
    peer = numbered(1000);
    donor_failed(&f, 2, &peer);
    assert_true(donor_has_failed(&f, 3, &peer));
    assert_int_equal(f.count, DONOR_FAILURES_MAX);
    for (int i = 0; i < DONOR_FAILURES_MAX; i++) {
        peer = numbered(i);
        assert_int_equal(donor_has_failed(&f, 3, &peer), i != 7);
    }
}

/* Of 60 donors with the priorities 0 ... 59 the upper half comes first, in random order; the one
 * that failed lately is the last and so not among the 32. Impossible epochs are no donors. */
static void the_better_half_comes_first(void **state)
{
    static struct donor_failures f;
    struct dht_dictionary d;
    struct peer_id self = numbered(999), failed = numbered(59), bad;
    struct donor *list;
    size_t count, in_order = 0;
    dht_dictionary_init(&d);
    for (int i = 0; i < 60; i++) {
        const int k = (7 * i + 40) % 60; /* each of them once, in another order */
        struct peer_id peer = numbered(k);
        announce(&d, &peer, k);
    }
    announce(&d, &self, 59);
    for (int i = 0; i < 4; i++) {
        static const double priority[] = { -1, 0.5, DONOR_PRIORITY_MAX * 2, INFINITY };
        bad = numbered(2000 + i);
        announce(&d, &bad, priority[i]);
    }
    donor_failed(&f, 0, &failed);
    list = donors_read(&count, &d, &self, &f, 1);
    assert_non_null(list);
    assert_int_equal(count, DONORS_ASKED_MAX);
    for (size_t i = 0; i < 30; i++) assert_true(list[i].peer.bytes[2] >= 29);
    for (size_t i = 1; i < 30; i++) in_order += list[i - 1].peer.bytes[2] > list[i].peer.bytes[2];
    assert_true(in_order < 29);
    for (size_t i = 30; i < 32; i++) assert_int_equal(list[i].peer.bytes[2], 28 + 30 - i);
    free(list);
    dht_dictionary_clear(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_remembered_longer_each_time),
        cmocka_unit_test(full_memory_drops_the_first_to_expire),
        cmocka_unit_test(the_better_half_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
