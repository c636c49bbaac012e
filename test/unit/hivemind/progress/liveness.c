/* liveness.c - which progress reports still count, by the rounds that their peers come to. */
#include "net/hivemind/progress/liveness.h"
#include "test/unit/unit.h"

#define TARGET 48

static struct progress_record report_of(uint8_t number, double time)
{
    const struct peer_id peer = { .length = 34, .bytes = { 0x12, 0x20, number } };
    return (struct progress_record){ .peer = peer, .time = time };
}

static void absent_peer_does_not_count(void **state)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct progress_record r[3] = { report_of(9, 100), report_of(5, 101), report_of(7, 102) };
    struct liveness a = { 0 };
    struct group g = { 0 };
    size_t n;
    liveness_round(&a, NULL, 103); /* no peer is known yet */
    assert_int_equal(liveness_update(&a, r, 3, 103, &n), PL_OK);
    assert_int_equal(n, 3);
    assert_int_equal(group_add(&g, &r[1].peer, gather, sizeof gather, NULL), PL_OK);
    liveness_round(&a, &g, 101.5); /* the third has reported since, the first has not */
    assert_int_equal(liveness_update(&a, r, 3, 104, &n), PL_OK);
    assert_int_equal(n, 2);
    assert_int_equal(r[0].peer.bytes[2], 5);
    assert_int_equal(r[1].peer.bytes[2], 7);
    liveness_round(&a, NULL, 105);
    r[0] = report_of(9, 100), r[1] = report_of(5, 105), r[2] = report_of(7, 105.5);
    assert_int_equal(liveness_update(&a, r, 3, 106, &n), PL_OK);
    assert_int_equal(n, 1);
    assert_int_equal(r[0].peer.bytes[2], 7);
    r[0] = report_of(9, 106.5); /* it lives; of the others this poll finds nothing */
    assert_int_equal(liveness_update(&a, r, 1, 107, &n), PL_OK);
    assert_int_equal(n, 1);
    r[0] = report_of(5, 90);
    assert_int_equal(liveness_update(&a, r, 1, 108, &n), PL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(liveness_update(&a, r, 0, 109 + PROGRESS_LIFE, &n), PL_OK);
    assert_int_equal(a.count, 0);
    r[0] = report_of(5, 90); /* forgotten: as new */
    assert_int_equal(liveness_update(&a, r, 1, 110 + PROGRESS_LIFE, &n), PL_OK);
    assert_int_equal(n, 1);
    group_clear(&g);
    liveness_clear(&a);
}

/* It reports, and does not come: after three rounds in a row it does not count any more, until it has
 * been in one, or for every sixteenth. Rounds without a group say nothing about it. */
static void peer_that_never_comes_is_absent(void **state)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct liveness a = { 0 };
    struct group with = { 0 }, without = { 0 };
    const struct peer_id talker = report_of(9, 0).peer, other = report_of(5, 0).peer;
    int counted = 0;
    for (uint8_t number = 5; number <= 9; number += 2) {
        const struct progress_record r = report_of(number, 0);
        assert_int_equal(group_add(&with, &r.peer, gather, sizeof gather, NULL), PL_OK);
        if (number < 9)
            assert_int_equal(group_add(&without, &r.peer, gather, sizeof gather, NULL), PL_OK);
    }
    for (int round = 0; round < 60; round++) {
        const int alone = round == 1, comes = round == 40;
        const double now = 100 + 10 * round;
        struct progress_record r[3] = { report_of(9, now), report_of(5, now), report_of(7, now) };
        size_t n;
        assert_int_equal(liveness_update(&a, r, 3, now + 1, &n), PL_OK);
        assert_int_equal(liveness_is_absent(&a, &talker), n == 2);
        assert_false(liveness_is_absent(&a, &other));
        counted += n == 3;
        /* one round was without a group: 0 to 3; 3 + 13, and once more after as many; 41 to 43 */
        assert_int_equal(n, round <= 3 || round == 17 || round == 33 ||
                                    (round >= 41 && round <= 43) || round == 57
                                ? 3
                                : 2);
        liveness_round(&a, alone ? NULL : comes ? &with : &without, now + 5);
    }
    assert_int_equal(counted, 4 + 1 + 1 + 3 + 1);
    group_clear(&with);
    group_clear(&without);
    liveness_clear(&a);
}

/* A peer's claims count until we should have met it three times, and again once we have: in groups
 * of two among six that takes five times as many rounds. */
static void unmet_peer_has_no_samples(void **state)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct liveness a = { 0 };
    struct group pair = { 0 }, with = { 0 };
    struct progress_record r[5] = { report_of(1, 0), report_of(2, 0), report_of(9, 0) };
    size_t n;
    for (int i = 0; i < 2; i++)
        assert_int_equal(group_add(&pair, &r[i].peer, gather, sizeof gather, NULL), PL_OK);
    assert_int_equal(group_add(&with, &r[2].peer, gather, sizeof gather, NULL), PL_OK);
    for (int limited = 0; limited <= 1; limited++) {
        for (int round = 0; round < 140; round++) {
            const int due = limited ? round / 5 : round;
            for (uint8_t i = 0; i < 5; i++) {
                r[i] = report_of(i < 4 ? i + 2 : 9, 100 + round);
                r[i].samples = TARGET;
                r[i].samples_per_second = 5;
            }
            assert_int_equal(liveness_update(&a, r, 5, 100 + round, &n), PL_OK);
            assert_int_equal(n, 5);         /* it is waited for */
            if (!limited || round % 5 == 2) /* a fifth is no binary number */
                assert_int_equal(r[4].samples, due < 3 || due % LIVENESS_AGAIN == 0 ? TARGET : 0);
            assert_int_equal(r[4].samples > 0, r[4].samples_per_second > 0);
            if (limited && round)
                assert_int_equal(r[0].samples, TARGET); /* it was in each of them */
            liveness_note_group(&a, limited ? &pair : NULL);
        }
        liveness_note_group(&a, &with);
        r[0] = r[4];
        r[0].samples = TARGET;
        assert_int_equal(liveness_update(&a, r, 1, 300, &n), PL_OK);
        assert_int_equal(r[0].samples, TARGET);
        liveness_clear(&a);
    }
    group_clear(&pair);
    group_clear(&with);
}

/* A part comes to no round, and counts. Another peer was due in the share of rounds where we meet
 * it in, among all of the part's peers. */
static void parts_count_as_they_are(void **state)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    const struct peer_id mate = report_of(5, 0).peer;
    struct liveness a = { 0 };
    struct group g = { 0 };
    for (int round = 0; round < 5; round++) {
        struct progress_record r[2] = { report_of(1, 1 + round), report_of(2, 1 + round) };
        size_t n;
        r[0].samples = r[1].samples = 7;
        r[1].peers = 9;
        assert_int_equal(liveness_update(&a, r, 2, round, &n), PL_OK);
        assert_int_equal(n, 2);
        assert_true(r[0].samples == 7 && r[1].samples == 7);
        assert_float_equal(a.list[0].due, round * 0.1, 1e-9);
        if (!round) {
            group_add(&g, &r[1].peer, gather, sizeof gather, NULL);
            group_add(&g, &mate, gather, sizeof gather, NULL);
        }
        liveness_note_group(&a, &g); /* one other of ten */
    }
    assert_int_equal(a.count, 1);
    group_clear(&g);
    liveness_clear(&a);
}

/* At the bounds: a record as old as a miss, a record's life, a peer that is unknown. */
static void reports_count_until_they_are_missed(void **state)
{
    static const uint8_t gathered[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct progress_record r[2] = { report_of(1, 100), report_of(2, 100) };
    const struct peer_id first = r[0].peer, second = r[1].peer, unknown = report_of(3, 0).peer;
    struct liveness a = { 0 };
    struct group g = { 0 };
    size_t n;
    assert_false(liveness_reports(&a, &first));
    liveness_update(&a, r, 2, 100, &n);
    assert_true(liveness_reports(&a, &first) && liveness_reports(&a, &second));
    assert_false(liveness_reports(&a, &unknown) || liveness_is_absent(&a, &unknown));
    assert_int_equal(group_add(&g, &second, gathered, sizeof gathered, NULL), PL_OK);
    liveness_note_group(&a, &g);
    assert_false(a.list[0].is_met);
    assert_true(a.list[1].is_met);
    liveness_round(&a, &g, 100); /* triggered at the very time of its report */
    assert_int_equal(a.list[0].misses, 1);
    liveness_round(&a, &g, 101); /* it has reported nothing since: no second miss */
    assert_int_equal(a.list[0].misses, 1);
    r[0] = report_of(1, 101); /* as old as the miss */
    liveness_update(&a, r, 1, 102, &n);
    assert_int_equal(n, 0);
    for (int i = 2; i <= LIVENESS_MISSES; i++) {
        r[0] = report_of(1, 100 + 2 * i);
        liveness_update(&a, r, 1, 100 + 2 * i, &n);
        assert_int_equal(n, 1);
        assert_true(liveness_reports(&a, &first));
        liveness_round(&a, &g, 101 + 2 * i);
    }
    assert_true(liveness_is_absent(&a, &first));
    assert_false(liveness_reports(&a, &first));
    liveness_clear(&a);
    r[0] = report_of(1, 100);
    liveness_update(&a, r, 1, 100, &n);
    liveness_update(&a, r, 0, 100 + PROGRESS_LIFE - 1, &n);
    assert_int_equal(a.count, 1);
    liveness_update(&a, r, 0, 100 + PROGRESS_LIFE, &n);
    assert_int_equal(a.count, 0);
    group_clear(&g);
    liveness_clear(&a);
}

/* Who appears after our first round with others is new until it comes to one. What the last group
 * showed bounds how much new peers count. A round that waits for them in vain ends the waiting for
 * three. */
static void newcomers_have_shown_nothing(void **state)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct liveness a = { 0 };
    struct group g = { 0 };
    struct progress_record r[16];
    size_t n;
    for (uint8_t k = 0; k < 16; k++) r[k] = report_of(k, 100);
    assert_int_equal(liveness_update(&a, r, 1, 100, &n), PL_OK);
    assert_int_equal(group_add(&g, &r[15].peer, gather, sizeof gather, NULL),
                     PL_OK);     /* ourselves */
    liveness_note_group(&a, &g); /* alone: nobody has been met */
    assert_int_equal(liveness_update(&a, r, 2, 101, &n), PL_OK);
    assert_false(r[0].is_new || r[1].is_new);
    assert_int_equal(group_add(&g, &r[0].peer, gather, sizeof gather, NULL), PL_OK);
    liveness_note_group(&a, &g);
    for (int round = 0; round < 8; round++) {
        const int waits = round % 4 == 0; /* in vain in rounds 0 and 4 */
        assert_int_equal(liveness_update(&a, r, 3, 102 + round, &n), PL_OK);
        assert_int_equal(n, 3);
        assert_false(r[0].is_new || r[1].is_new);
        assert_true(r[2].is_new);
        assert_float_equal(liveness_newcomers(&a, 0), 1, 0);
        assert_float_equal(liveness_newcomers(&a, 1), waits, 0);
        a.has_waited = waits;
        liveness_note_group(&a, round == 6 ? NULL : &g); /* one without a group counts, too */
    }
    a.has_waited = 1;
    assert_int_equal(liveness_update(&a, r, 15, 110, &n), PL_OK);
    for (int k = 3; k < 15; k++)
        assert_int_equal(group_add(&g, &r[k].peer, gather, sizeof gather, NULL), PL_OK);
    liveness_note_group(&a, &g); /* twelve that are new, and two that are not */
    assert_float_equal(liveness_newcomers(&a, 0), 6, 0);
    assert_float_equal(liveness_newcomers(&a, 1), 1, 0);
    assert_int_equal(liveness_update(&a, r, 15, 111, &n), PL_OK);
    for (int k = 0; k < 15; k++) assert_int_equal(r[k].is_new, k == 2);
    liveness_note_group(&a, &g);
    assert_float_equal(liveness_newcomers(&a, 0), 1, 0);
    group_clear(&g);
    liveness_clear(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_peer_does_not_count),
        cmocka_unit_test(peer_that_never_comes_is_absent),
        cmocka_unit_test(unmet_peer_has_no_samples),
        cmocka_unit_test(reports_count_until_they_are_missed),
        cmocka_unit_test(parts_count_as_they_are),
        cmocka_unit_test(newcomers_have_shown_nothing),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
