/* reliability.c - back-off of groupmates that do not deliver: how long, for which peers, and for
 * how many names at once. */
#include "net/hivemind/averaging/reliability.h"
#include "test/unit/unit.h"

static struct reliability r;

static struct peer_id id_of(uint32_t i)
{
    struct peer_id id = { .length = 34, .bytes = { 0x12, 0x20 } };
    memcpy(id.bytes + 2, &i, sizeof i);
    return id;
}

/* s of back-off that a failure now leads to. */
static double pause_after_failure(double now, uint32_t i)
{
    struct peer_id id = id_of(i);
    double s = 0;
    reliability_failed(&r, now, now - 1, &id);
    while (reliability_is_paused(&r, now + s, &id, 1)) s += 0.25;
    return s;
}

static void deliver(double now, uint32_t i, double latest)
{
    struct peer_id id = id_of(i);
    reliability_delivered(&r, now, &id, latest);
}

static int is_paused(double now, uint32_t i)
{
    struct peer_id id = id_of(i);
    return reliability_is_paused(&r, now, &id, 1);
}

/* As an unproven peer that does not report progress. */
static int is_held_back(double now, uint32_t i)
{
    struct peer_id id = id_of(i);
    return reliability_is_paused(&r, now, &id, 0);
}

static void see(double now, uint32_t i, int reports)
{
    struct peer_id id = id_of(i);
    reliability_see(&r, now, &id, reports);
}

static void fail_at(double now, uint32_t i)
{
    struct peer_id id = id_of(i);
    reliability_failed(&r, now, now - 1, &id);
}

static int is_proven(uint32_t i)
{
    struct peer_id id = id_of(i);
    return reliability_is_proven(&r, &id);
}

static int begin(void **state)
{
    memset(&r, 0, sizeof r);
    return 0;
}

static void twice_as_long_each_time(void **state)
{
    double now = 100, wanted = RELIABILITY_BASE;
    deliver(now, 1, 0);
    for (int i = 0; i < 40;
         i++, wanted = wanted < RELIABILITY_MAX / 2 ? 2 * wanted : RELIABILITY_MAX) {
        double s = pause_after_failure(now, 1);
        assert_true(s >= wanted && s <= 1.25 * wanted + 0.25);
        now += s;
        assert_false(is_proven(1));
    }
}

/* One failure among good rounds is one short pause, whenever it is. */
static void delivered_rounds_shorten_back_off(void **state)
{
    for (int i = 0; i < 8; i++) {
        assert_true(pause_after_failure(100.0 * i, 1) <= 1.25 * RELIABILITY_BASE + 0.25);
        for (int k = 0; k < 4; k++) deliver(100.0 * i + 50, 1, 0);
        assert_true(is_proven(1));
        assert_false(is_paused(100.0 * i + 50, 1));
    }
}

/* A peer that alternates loses more by each failure than it wins back. */
static void alternating(void **state)
{
    double now = 0, last = 0;
    for (int i = 0; i < 12; i++) {
        deliver(now, 1, 0);
        last = pause_after_failure(now, 1);
        now += last;
    }
    assert_true(last >= RELIABILITY_MAX);
}

/* Each failure under a new name makes the next new name wait, and longer each time, up to a bound;
 * proven peers do not wait. */
static void new_names(void **state)
{
    double now = 0, last = 0;
    deliver(now, 0, 0);
    for (uint32_t i = 1; i < 12; i++) {
        assert_false(is_paused(now, i));
        last = pause_after_failure(now, i);
        assert_true(is_paused(now + 1, i + 1));
        assert_false(is_paused(now + 1, 0));
        now += 1.25 * RELIABILITY_REPORTER_MAX;
    }
    assert_true(last >= RELIABILITY_REPORTER_MAX); /* it waits for its own failure, too */
}

/* Where other new ones deliver, one that fails is alone to blame. */
static void honest_newcomers(void **state)
{
    struct peer_id there_before = id_of(4);
    pause_after_failure(10, 1);
    assert_false(is_paused(11, 2)); /* no peer is proven: then there are no others */
    reliability_see(&r, 5, &there_before, 1);
    see(11, 5, 1);
    deliver(11, 5, 0);
    pause_after_failure(100, 6);
    assert_true(is_paused(101, 2));
    assert_false(is_paused(101, 4));
    see(101, 3, 1);
    deliver(101, 3, 0);
    assert_false(is_paused(101, 2));
    assert_true(is_paused(101, 6));
}

/* Strangers that report no progress hold back each other, before any peer is proven, too. A
 * newcomer that reports does not wait for them. */
static void strangers_and_newcomers(void **state)
{
    for (uint32_t i = 1; i < 12; i++) {
        see(100, i, 0);
        fail_at(100 + i, i);
        assert_true(is_held_back(101 + i, 50));
        assert_false(is_paused(101 + i, 51));
    }
    deliver(112, 0, 0);
    assert_true(is_held_back(113, 50));
    assert_false(is_paused(113, 51));
    assert_true(is_held_back(111 + RELIABILITY_UNPROVEN_MAX, 50));
    assert_false(is_held_back(112 + 1.25 * RELIABILITY_UNPROVEN_MAX, 50)); /* but not forever */
}

/* Strangers that report hold newcomers back, but for half a minute at most; those that don't report
 * wait as long as ever. */
static void strangers_that_report(void **state)
{
    see(100, 1, 1);
    fail_at(101, 1);
    assert_true(is_held_back(102, 50));
    assert_false(is_paused(102, 51)); /* no peer is proven: then all are new */
    deliver(102, 0, 0);
    assert_true(is_paused(103, 51));
    for (uint32_t i = 2; i < 12; i++) {
        see(110, i, 1);
        fail_at(110 + i, i);
    }
    assert_true(is_paused(120 + RELIABILITY_REPORTER_MAX, 51));
    assert_false(is_paused(121 + 1.25 * RELIABILITY_REPORTER_MAX, 51));
    assert_true(is_held_back(120 + RELIABILITY_UNPROVEN_MAX, 50)); /* one that doesn't report */
    see(122, 20, 0);
    deliver(122, 20, 0); /* a stranger's good round is none of a reporter's */
    assert_true(is_paused(123, 51));
}

/* A peer that reports, is taken for that, and withdraws its report fails as one that reports; so
 * does one that other names have pushed out meanwhile. */
static void withdrawn_reports(void **state)
{
    deliver(1, 0, 0);
    see(100, 1, 1);
    see(101, 1, 0);
    fail_at(102, 1);
    assert_true(is_paused(103, 51));
    begin(state);
    deliver(1, 0, 0);
    fail_at(102, 1);
    assert_true(is_paused(103, 51));
}

/* As many new names as there are push out neither proven peers, nor those that were there
 * before. */
static void bounded(void **state)
{
    struct peer_id old = id_of(50);
    for (uint32_t i = 0; i < 20; i++) deliver(i, i, 0);
    reliability_see(&r, 30, &old, 1);
    for (uint32_t i = 100; i < 100 + 2 * RELIABILITY_PEERS_MAX; i++) {
        struct peer_id id = id_of(i);
        reliability_failed(&r, 100 + i, 100 + i, &id);
        assert_true(r.count <= RELIABILITY_PEERS_MAX);
    }
    for (uint32_t i = 0; i < 20; i++) assert_true(is_proven(i));
    assert_false(is_paused(3000, 50));
    old = id_of(100);
    assert_true(reliability_silence(&r, &old, 15) > 7); /* its failure is not forgotten */
    for (uint32_t i = 0; i < RELIABILITY_PEERS_MAX; i++) deliver(1e5 + i, 5000 + i, 0);
    assert_false(is_proven(0)); /* the longest ago */
    assert_true(is_proven(5000 + RELIABILITY_PEERS_MAX - 1));
}

static void silence(void **state)
{
    struct peer_id id = id_of(1);
    assert_true(reliability_silence(&r, &id, 15) == 3.75); /* a quarter of the timeout, */
    assert_true(reliability_silence(&r, &id, 6) == RELIABILITY_SILENCE);
    assert_true(reliability_silence(&r, &id, 2) == 2); /* never beyond it */
    deliver(0, 1, 2);
    assert_true(reliability_silence(&r, &id, 15) == 9.75); /* as slow as it is known to be */
    for (int i = 0; i < 100; i++) deliver(0, 1, 0);
    assert_true(reliability_silence(&r, &id, 15) < 4);
    reliability_failed(&r, 0, 0, &id);
    assert_true(reliability_silence(&r, &id, 15) >= 7.5); /* it may have been too little */
}

/* A charge is a back-off during which no group with the peer is joined either. It doubles, has the
 * same end as any back-off, and a failure that comes meanwhile does not shorten it. */
static void charges(void **state)
{
    struct peer_id id = id_of(1), other = id_of(2);
    double now = 100, wanted = 2 * RELIABILITY_BASE;
    deliver(now, 1, 0);
    for (int i = 0; i < 8; i++, wanted *= 2) {
        double most = wanted < RELIABILITY_MAX ? wanted : RELIABILITY_MAX;
        double s = reliability_charged(&r, now, now - 1, &id);
        assert_true(s >= most && s <= 1.25 * most);
        assert_true(is_paused(now + s - 0.1, 1) && reliability_is_refused(&r, now + s - 0.1, &id));
        now += s;
        assert_false(is_paused(now, 1) || reliability_is_refused(&r, now, &id));
    }
    reliability_failed(&r, now, now - 1, &other);
    assert_false(reliability_is_refused(&r, now, &other));
    reliability_charged(&r, now, now - 1, &other);
    reliability_failed(&r, now, now - 1, &other);
    assert_true(reliability_is_refused(&r, now + 2 * RELIABILITY_BASE - 1, &other));
}

/* A proven peer's first failure is excused by a connection that comes after its round began, once in
 * RELIABILITY_EXCUSED. */
static void new_connections_excuse(void **state)
{
    struct peer_id id = id_of(1);
    double now = 100;
    (void)state;
    reliability_connected(&r, now, &id); /* nobody's: takes no place */
    assert_int_equal(r.count, 0);
    deliver(now, 1, 0);
    reliability_connected(&r, now, &id); /* before the round */
    fail_at(now += 10, 1);
    assert_true(is_paused(now, 1));
    reliability_connected(&r, now + 2, &id);
    assert_false(is_paused(now + 2, 1));
    assert_false(is_proven(1)); /* it has to deliver again */

    for (int k = 0; k < 4; k++) deliver(now, 1, 0);
    fail_at(now += 20, 1); /* the next one is not excused, */
    reliability_connected(&r, now + 1, &id);
    assert_true(is_paused(now + 2, 1));
    for (int k = 0; k < 4; k++) deliver(now, 1, 0);
    now += RELIABILITY_EXCUSED; /* until this has passed, */
    reliability_connected(&r, now, &id);
    reliability_failed(&r, now + 1, now - 1, &id); /* also in the round that failed */
    assert_false(is_paused(now + 1, 1));

    now += RELIABILITY_EXCUSED;
    for (int k = 0; k < 3; k++) deliver(now, 1, 0); /* a quarter of its failure is left */
    fail_at(now, 1);
    reliability_connected(&r, now + 1, &id);
    assert_true(is_paused(now + 1, 1));
}

/* A new connection excuses neither a stranger's failure nor a charge. */
static void connections_that_excuse_nothing(void **state)
{
    struct peer_id id = id_of(1), other = id_of(2);
    (void)state;
    see(100, 1, 1);
    fail_at(101, 1);
    reliability_connected(&r, 102, &id);
    assert_true(is_paused(103, 1));
    deliver(100, 2, 0);
    reliability_connected(&r, 100.5, &other);
    reliability_charged(&r, 101, 100, &other);
    reliability_connected(&r, 102, &other);
    assert_true(is_paused(103, 2) && reliability_is_refused(&r, 103, &other));
}

/* A name that fails again and again holds back itself. Others that are as new as it was wait for its
 * first failure alone. */
static void repeated_failures_hold_back_one_name(void **state)
{
    double now = 100;
    (void)state;
    deliver(now, 1, 0); /* there is a proven peer */
    see(now, 2, 1);
    fail_at(now + 10, 2);
    see(now + 11, 3, 1);
    assert_true(is_paused(now + 11, 3));
    for (int k = 1; k < 6; k++) {
        now += 100;
        fail_at(now, 2);
        assert_true(is_paused(now + 1, 2));
        assert_false(is_paused(now + 1, 3));
        see(now + 1, (uint32_t)(10 + k), 1);
        assert_false(is_paused(now + 1, (uint32_t)(10 + k)));
    }
    see(now + 1, 4, 1); /* a second name, that fails for the first time */
    fail_at(now + 2, 4);
    see(now + 3, 5, 1);
    assert_true(is_paused(now + 3, 5));
}

/* Every third group that it disbands is a failure; a round that it delivers in begins the count
 * anew. */
static void disbanded_groups(void **state)
{
    struct peer_id id = id_of(1);
    double now = 100;
    (void)state;
    for (int round = 1; round <= 9; round++, now += 1000) {
        reliability_disbanded(&r, now, now - 1, &id);
        assert_int_equal(is_paused(now + 1, 1), round % 3 == 0);
    }
    deliver(now, 1, 0);
    reliability_disbanded(&r, now, now - 1, &id);
    reliability_disbanded(&r, now, now - 1, &id);
    assert_true(is_proven(1));
    deliver(now, 1, 0);
    reliability_disbanded(&r, now, now - 1, &id);
    assert_true(is_proven(1));
    assert_false(is_paused(now + 1, 1));
}

static void leave(double now, uint32_t i)
{
    struct peer_id id = id_of(i);
    reliability_left(&r, now, now - 1, &id);
}

/* Leaving a group costs nothing once in a while; again within that time it is a failure. */
static void leaving_a_group(void **state)
{
    double now = 100;
    (void)state;
    see(now - 50, 1, 1);
    leave(now, 1);
    assert_false(is_paused(now, 1));
    leave(now + RELIABILITY_EXCUSED - 1, 1);
    assert_true(is_paused(now + RELIABILITY_EXCUSED, 1));
    deliver(now, 2, 0);
    leave(now, 2);
    assert_true(is_proven(2));
    assert_false(is_paused(now, 2));
    leave(now + RELIABILITY_EXCUSED + 1, 2);
    assert_true(is_proven(2));
    leave(now + RELIABILITY_EXCUSED + 2, 2);
    assert_false(is_proven(2));
    assert_true(is_paused(now + RELIABILITY_EXCUSED + 3, 2));
}

/* New names gain nothing by it: one after the other leaves, and the next are held back. */
static void leaving_under_new_names(void **state)
{
    (void)state;
    deliver(50, 9, 0);
    see(100, 1, 1);
    leave(101, 1);
    see(102, 2, 1);
    assert_true(is_paused(102, 2));
    assert_false(is_paused(102, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(twice_as_long_each_time, begin),
        cmocka_unit_test_setup(delivered_rounds_shorten_back_off, begin),
        cmocka_unit_test_setup(alternating, begin),
        cmocka_unit_test_setup(new_names, begin),
        cmocka_unit_test_setup(honest_newcomers, begin),
        cmocka_unit_test_setup(strangers_and_newcomers, begin),
        cmocka_unit_test_setup(strangers_that_report, begin),
        cmocka_unit_test_setup(withdrawn_reports, begin),
        cmocka_unit_test_setup(bounded, begin),
        cmocka_unit_test_setup(silence, begin),
        cmocka_unit_test_setup(charges, begin),
        cmocka_unit_test_setup(repeated_failures_hold_back_one_name, begin),
        cmocka_unit_test_setup(disbanded_groups, begin),
        cmocka_unit_test_setup(leaving_a_group, begin),
        cmocka_unit_test_setup(leaving_under_new_names, begin),
        cmocka_unit_test_setup(new_connections_excuse, begin),
        cmocka_unit_test_setup(connections_that_excuse_nothing, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
