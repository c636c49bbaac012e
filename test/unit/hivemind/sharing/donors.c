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
    struct dht_blacklist f = DONOR_FAILURES;
    struct peer_id one = numbered(1), two = numbered(2);
    for (int i = 0; i < 8; i++) {
        double pause = fmin(DONOR_BACKOFF_LONGEST, DONOR_BACKOFF_FIRST * (1 << i));
        dht_blacklist_failed(&f, &one, 100);
        assert_true(dht_blacklist_has(&f, &one, 100 + pause - 0.1));
        assert_false(dht_blacklist_has(&f, &one, 100 + pause));
    }
    assert_false(dht_blacklist_has(&f, &two, 100));
    dht_blacklist_answered(&f, &two); /* nothing is known of it */
    dht_blacklist_answered(&f, &one);
    assert_false(dht_blacklist_has(&f, &one, 100));
    dht_blacklist_close(&f);
}

static void full_memory_drops_the_first_to_expire(void **state)
{
    struct dht_blacklist f = DONOR_FAILURES;
    struct peer_id peer;
    for (int i = 0; i < DONOR_FAILURES_MAX; i++) {
        peer = numbered(i);
        dht_blacklist_failed(&f, &peer, i == 7 ? 0 : 1);
    }
    peer = numbered(1000);
    dht_blacklist_failed(&f, &peer, 2);
    assert_true(dht_blacklist_has(&f, &peer, 3));
    assert_int_equal(f.count, DONOR_FAILURES_MAX);
    for (int i = 0; i < DONOR_FAILURES_MAX; i++) {
        peer = numbered(i);
        assert_int_equal(dht_blacklist_has(&f, &peer, 3), i != 7);
    }
    dht_blacklist_close(&f);
}

/* What the peer of a number claims, where 60 do: each epoch once, in another order than the peers'. */
static double claimed(const struct peer_id *peer) { return (7 * peer->bytes[2] + 28) % 60; }

/* Of 60 donors with the priorities 0 ... 59 the upper half comes first, in random order; the one
 * that failed lately is the last and so not among the 32. Impossible epochs are no donors, and
 * neither are we. */
static void the_better_half_comes_first(void **state)
{
    struct dht_blacklist f = DONOR_FAILURES;
    struct dht_dictionary d;
    struct peer_id self = numbered(999), bad;
    struct donor *list;
    size_t count, in_order = 0;
    dht_dictionary_init(&d);
    for (int i = 0; i < 60; i++) {
        struct peer_id peer = numbered(i);
        announce(&d, &peer, claimed(&peer));
        if (claimed(&peer) == 59) dht_blacklist_failed(&f, &peer, 0);
    }
    announce(&d, &self, 59);
    for (int i = 0; i < 4; i++) {
        static const double priority[] = { -1, 0.5, DONOR_PRIORITY_MAX + 1, INFINITY };
        bad = numbered(2000 + i);
        announce(&d, &bad, priority[i]);
    }
    list = donors_read(&count, &d, &self, &f, 1);
    assert_non_null(list);
    assert_int_equal(count, DONORS_ASKED_MAX);
    for (size_t i = 0; i < count; i++) assert_int_equal(list[i].peer.bytes[3], 0);
    for (size_t i = 0; i < 30; i++) assert_true(claimed(&list[i].peer) >= 29);
    for (size_t i = 1; i < 30; i++) in_order += claimed(&list[i - 1].peer) > claimed(&list[i].peer);
    assert_true(in_order < 29);
    for (size_t i = 30; i < 32; i++) assert_int_equal(claimed(&list[i].peer), 28 + 30 - i);
    free(list);
    dht_dictionary_clear(&d);
    dht_blacklist_close(&f);
}

static void expect_order(const struct dht_dictionary *d, const struct dht_blacklist *f, double now,
                         int first, int second, int third)
{
    const int want[3] = { first, second, third };
    const struct peer_id self = numbered(999);
    size_t count;
    struct donor *list = donors_read(&count, d, &self, f, now);
    assert_non_null(list);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(list[i].peer.bytes[2], want[i]);
    free(list);
}

/* Donors that failed come behind one of a lower epoch, the higher epoch first, until their time is
 * over. The median counts them, too: a donor below it is not one of the better half. */
static void failed_donors_come_last(void **state)
{
    struct dht_blacklist f = DONOR_FAILURES;
    struct dht_dictionary d;
    struct peer_id low = numbered(1), middle = numbered(2), high = numbered(3);
    dht_dictionary_init(&d);
    announce(&d, &low, 1);
    announce(&d, &middle, 5);
    announce(&d, &high, DONOR_PRIORITY_MAX); /* the highest that is possible */
    dht_blacklist_failed(&f, &high, 100);
    expect_order(&d, &f, 101, 2, 1, 3);
    dht_blacklist_failed(&f, &middle, 100);
    expect_order(&d, &f, 101, 1, 3, 2);
    dht_blacklist_answered(&f, &high);
    expect_order(&d, &f, 101, 3, 1, 2);
    dht_dictionary_clear(&d);
    dht_blacklist_close(&f);
}

/* An announcement as hivemind's own is a float; an integer says the same. Anybody writes these
 * records: whatever else stands there is skipped. */
static void other_announcements(void **state)
{
    const struct dht_blacklist f = DONOR_FAILURES;
    static const struct {
        uint8_t bytes[4];
        size_t n;
        int is_donor;
    } value[] = {
        { { 7 }, 1, 1 },          /* the integer 7 */
        { { 0xff }, 1, 0 },       /* -1 */
        { { 0xc0 }, 1, 0 },       /* nil: it shares no longer */
        { { 0xc3 }, 1, 0 },       /* true */
        { { 0xa1, '7' }, 2, 0 },  /* text */
        { { 0xca, 0, 0 }, 3, 0 }, /* a float that is cut off */
        { { 0 }, 1, 1 },          /* the integer 0: a run's first epoch */
    };
    const struct peer_id self = numbered(999);
    struct dht_dictionary d;
    struct donor *list;
    size_t count;
    dht_dictionary_init(&d);
    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
        const struct peer_id peer = numbered((int)i);
        struct bytes subkey = { 0 };
        assert_int_equal(mp_bin(&subkey, peer.bytes, peer.length), PL_OK);
        assert_int_equal(dht_dictionary_store(&d, 0, bytes_at(&subkey), bytes_length(&subkey),
                                              value[i].bytes, value[i].n, 30),
                         PL_OK);
        if (i == 0) { /* text is nobody's ID */
            bytes_clear(&subkey);
            assert_int_equal(mp_str(&subkey, "12D3KooW", 8), PL_OK);
            assert_int_equal(dht_dictionary_store(&d, 0, bytes_at(&subkey), bytes_length(&subkey),
                                                  value[i].bytes, value[i].n, 30),
                             PL_OK);
        }
        bytes_clear(&subkey);
    }
    list = donors_read(&count, &d, &self, &f, 0);
    assert_non_null(list);
    assert_int_equal(count, 2); /* the median is the lower one's, so both are the better half */
    for (size_t i = 0; i < count; i++) {
        const int k = list[i].peer.bytes[2];
        assert_true(value[k].is_donor);
        assert_int_not_equal(k, list[!i].peer.bytes[2]);
    }
    free(list);
    dht_dictionary_clear(&d);
    dht_dictionary_init(&d);
    list = donors_read(&count, &d, &self, &f, 0); /* nobody announces anything */
    assert_int_equal(count, 0);
    free(list);
    dht_dictionary_clear(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_remembered_longer_each_time),
        cmocka_unit_test(full_memory_drops_the_first_to_expire),
        cmocka_unit_test(the_better_half_comes_first),
        cmocka_unit_test(failed_donors_come_last),
        cmocka_unit_test(other_announcements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
