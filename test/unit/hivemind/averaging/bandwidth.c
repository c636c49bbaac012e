/* bandwidth.c - the uplink's bandwidth, estimated from windows of a round; the bandwidth that a
 * peer states; and groupmates that share the reduction by it although no user has configured a
 * bandwidth. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/averaging/averager_internal.h"

#include <math.h>

#define MB 1e6

/* Bytes leave at `rate` for `seconds`, sampled every 0.1 s; more wait until the last sample. */
static void send_at(struct bandwidth_meter *m, double *now, double *sent, double rate,
                    double seconds)
{
    bandwidth_sample(m, *now, *sent, 1);
    for (int i = 1; i <= (int)rint(10 * seconds); i++) {
        *now += 0.1;
        *sent += 0.1 * rate;
        bandwidth_sample(m, *now, *sent, i < (int)rint(10 * seconds));
    }
}

static void idle_time_does_not_count(void **state)
{
    struct bandwidth_meter m = { 0 };
    double now = 100, sent = 0;
    send_at(&m, &now, &sent, 3 * MB, 5);
    now += 50;
    assert_true(fabs(m.best - 3 * MB) < 0.01 * MB);
    send_at(&m, &now, &sent, 2 * MB, 5); /* a groupmate was slow */
    assert_true(fabs(m.best - 3 * MB) < 0.01 * MB);
    now += 50;
    send_at(&m, &now, &sent, 8 * MB, 2);
    assert_true(fabs(m.best - 8 * MB) < 0.01 * MB);
}

/* What buffers take at once is no rate: neither few bytes nor a moment count, nor what has left
 * before any byte had to wait. */
static void short_windows_do_not_count(void **state)
{
    struct bandwidth_meter m = { 0 };
    struct bandwidth b = { 0 };
    double now = 0, sent = 0;
    send_at(&m, &now, &sent, 1 * MB, 4);
    assert_true(m.best == 0);
    bandwidth_sample(&m, now + 10, sent, 1);
    bandwidth_sample(&m, now + 10.2, sent + 100 * MB, 0);
    assert_true(m.best == 0);
    bandwidth_end_round(&b, &m);
    assert_true(b.rate == 0);
    sent += 100 * MB;
    bandwidth_sample(&m, now + 30, sent, 0);
    sent += 100 * MB;
    send_at(&m, &now, &sent, 5 * MB, 1);
    assert_true(fabs(m.best - 5 * MB) < 0.01 * MB);
}

/* Up at once, down by halves. */
static void rounds_move_the_rate(void **state)
{
    struct bandwidth b = { 0 };
    bandwidth_end_round(&b, &(struct bandwidth_meter){ .best = 4 * MB });
    assert_true(b.rate == 4 * MB);
    bandwidth_end_round(&b, &(struct bandwidth_meter){ .best = 2 * MB });
    assert_true(b.rate == 3 * MB);
    bandwidth_end_round(&b, &(struct bandwidth_meter){ 0 });
    assert_true(b.rate == 3 * MB);
    bandwidth_end_round(&b, &(struct bandwidth_meter){ .best = 10 * MB });
    assert_true(b.rate == 10 * MB);
}

static void megabits_in_two_digits(void **state)
{
    static const double cases[][2] = { { 25.4, 25 },    { 25.6, 26 },  { 101, 100 },
                                       { 937, 940 },    { 2.34, 2.3 }, { 0.456, 0.46 },
                                       { 12345, 12000 } };
    struct bandwidth b = { 0 };
    assert_true(bandwidth_stated(&b) == PL_BANDWIDTH_UNKNOWN);
    b.has_come = 1;
    assert_true(bandwidth_stated(&b) == BANDWIDTH_ASSUMED);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        b.rate = cases[i][0] * 125000;
        assert_true(fabs(bandwidth_stated(&b) - cases[i][1]) < 1e-9 * cases[i][1]);
    }
}

static struct bandwidth known[3];

static size_t share_of(const struct peer *seen_by, size_t which)
{
    for (size_t i = 0; i < seen_by->group; i++)
        if (peer_id_equal(&seen_by->member[i], host_id(peers[which].host)))
            return seen_by->share[i];
    fail_msg("peer %zu is in no group", which);
    return 0;
}

static void one_round(void)
{
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        assert_int_equal(peers[i].group, 3);
    }
}

/* No peer has the option: the measured bandwidths decide, and each search states them anew. */
static void groupmates_share_by_it(void **state)
{
    for (size_t i = 0; i < 3; i++) add(0, 0);
    for (size_t i = 0; i < 3; i++) peers[i].options.measured = &known[i];
    expect(3);
    open_all();
    one_round();
    for (size_t i = 0; i < 3; i++) assert_in_range(share_of(&peers[i], i), 1600, 1700);
    known[0].rate = known[1].rate = 100 * 125000;
    known[2].rate = 10 * 125000;
    one_round();
    for (size_t i = 0; i < 3; i++) {
        assert_in_range(share_of(&peers[i], 0), 2000, 3000);
        assert_true(share_of(&peers[i], 2) < 500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_time_does_not_count),
        cmocka_unit_test(short_windows_do_not_count),
        cmocka_unit_test(rounds_move_the_rate),
        cmocka_unit_test(megabits_in_two_digits),
        cmocka_unit_test_setup_teardown(groupmates_share_by_it, begin_test, end_test),
    };
    return cmocka_run_group_tests_name("bandwidth", tests, NULL, NULL);
}
