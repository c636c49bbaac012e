/* progress.c - the estimate of the next common step from all peers' records, a peer's own speed,
 * and the sums of all peers' metrics: each formula at its bounds. [spec hivemind-protocol 8, 10] */
#include "net/hivemind/progress/metrics.h"
#include "net/hivemind/progress/progress.h"
#include "net/hivemind/messages/msgpack.h"
#include "test/unit/unit.h"

#include <math.h>
#include <stddef.h>

#define NOW 1000.0
#define TARGET 100.0

static struct progress_record record(uint8_t number, int64_t epoch, int64_t samples, double speed,
                                     double age)
{
    const struct peer_id peer = { .length = 34, .bytes = { 0x12, 0x20, number } };
    return (struct progress_record){ .peer = peer,
                                     .epoch = epoch,
                                     .samples = samples,
                                     .samples_per_second = speed,
                                     .time = NOW - age };
}

static struct progress_view view_of(const struct progress_record *records, size_t count, int any)
{
    const struct progress_local mine = { 5, 7, 2, 0 };
    struct progress_view v;
    progress_update(&v, records, count, any, &mine, TARGET, NOW);
    return v;
}

/* Our own samples and speed, and a poll every three seconds. */
static void without_records_the_swarm_is_this_peer(void **state)
{
    const struct progress_local done = { 5, 101, 2, 0 };
    struct progress_view v = view_of(NULL, 0, 0);
    assert_int_equal(v.epoch, 5);
    assert_int_equal(v.samples, 7);
    assert_int_equal(v.peers, 0);
    assert_float_equal(v.eta, NOW + (TARGET - 7) / 2, 1e-9);
    assert_float_equal(v.next_fetch, NOW + 3, 1e-9);
    progress_update(&v, NULL, 0, 0, &done, TARGET, NOW);
    assert_float_equal(v.eta, NOW, 1e-9); /* never before now */
    /* all have left: nothing is added up, and no number is infinite */
    v = view_of(NULL, 0, 1);
    assert_int_equal(v.samples, 0);
    assert_float_equal(v.next_fetch, NOW + PROGRESS_FETCH_MIN, 1e-9);
}

/* samples and estimate of the global epoch's peers, speed of all; a client does not raise the epoch. */
static void samples_of_one_epoch_speeds_of_all(void **state)
{
    struct progress_record r[] = { record(1, 6, 20, 1, 0), record(2, 6, 30, 2, 4),
                                   record(3, 5, 1000, 4, 0), record(4, 9, 1000, 3, 0) };
    struct progress_view v;
    r[3].client_mode = 1;
    v = view_of(r, 4, 1);
    assert_int_equal(v.epoch, 6);
    assert_int_equal(v.samples, 50);
    assert_int_equal(v.peers, 4);
    assert_int_equal(v.clients, 1);
    assert_float_equal(v.eta, NOW + (TARGET - (20 + 30 + 4 * 2)) / (1 + 2 + 4 + 3), 1e-9);
    r[3].client_mode = 0;
    v = view_of(r, 4, 1);
    assert_int_equal(v.epoch, 9);
    assert_int_equal(v.samples, 1000);
    assert_float_equal(v.eta, NOW, 1e-9);
    v = view_of(r, 2, 1);
    assert_int_equal(v.epoch, 6);
    r[1].epoch = 5;
    v = view_of(r, 2, 1); /* the first record alone is ahead */
    assert_int_equal(v.epoch, 6);
    r[0].client_mode = r[1].client_mode = 1;
    assert_int_equal(view_of(r, 4, 1).clients, 2);
    r[0].epoch = r[1].epoch = 4; /* behind us: ours is the global epoch, without a record in it */
    v = view_of(r, 2, 1);
    assert_int_equal(v.epoch, 5);
    assert_int_equal(v.samples, 0);
    assert_float_equal(v.eta, NOW + TARGET / 3, 1e-9);
}

/* At most as many samples and as much speed as the others have: the step is never by claims of new
 * peers alone. Half of the others' if `newcomers` is one half. */
static void new_peers_double_a_sum_at_most(void **state)
{
    struct progress_record r[] = { record(1, 5, 20, 2, 5), record(2, 5, INT64_MAX, 1e9, 0),
                                   record(3, 5, 90, 1e9, 60) };
    struct progress_local mine = { 5, 7, 2, 1 };
    struct progress_view v;
    r[1].is_new = r[2].is_new = 1;
    progress_update(&v, r, 3, 1, &mine, TARGET, NOW);
    assert_int_equal(v.samples, 2 * 20);
    assert_int_equal(v.peers, 3);
    assert_float_equal(v.eta, NOW + (TARGET - 2 * 30) / 4, 1e-9);
    mine.newcomers = 0.5;
    progress_update(&v, r, 3, 1, &mine, TARGET, NOW);
    assert_int_equal(v.samples, 30);
    assert_float_equal(v.eta, NOW + (TARGET - 1.5 * 30) / 3, 1e-9);
    r[1] = record(2, 5, 4, 1, 0); /* below the bound they count as they are */
    r[2] = record(3, 5, 1, 0.5, 10);
    r[1].is_new = r[2].is_new = 1;
    mine.newcomers = 1;
    progress_update(&v, r, 3, 1, &mine, TARGET, NOW);
    assert_int_equal(v.samples, 25);
    assert_float_equal(v.eta, NOW + (TARGET - 40) / 3.5, 1e-9);
}

/* (now - time) * speed, for the 60 s that a record lives; 0 if its clock is ahead. */
static void age_of_a_record_is_clipped(void **state)
{
    static const struct {
        double age, counted;
    } ages[] = { { -10, 0 }, { 0, 0 }, { 5, 5 }, { 60, 60 }, { 61, 60 }, { 1e9, 60 } };
    for (size_t i = 0; i < PL_COUNT(ages); i++) {
        struct progress_record r = record(1, 5, 10, 0.5, ages[i].age);
        assert_float_equal(view_of(&r, 1, 1).eta, NOW + (TARGET - 10 - 0.5 * ages[i].counted) / 0.5,
                           1e-6);
    }
}

/* After (eta - now) * n / max(n + 3, 1.2 n), at least 0.5 s and at most 10 s. */
static void next_poll(void **state)
{
    static const struct {
        size_t n;
        double share;
    } shares[] = { { 1, 0.25 },       { 3, 0.5 },      { 14, 14 / 17.0 },
                   { 15, 15 / 18.0 }, { 16, 1 / 1.2 }, { 30, 1 / 1.2 } };
    struct progress_record r[30];
    for (size_t i = 0; i < PL_COUNT(shares); i++) {
        const size_t n = shares[i].n;
        for (size_t k = 0; k < n; k++) r[k] = record((uint8_t)k, 5, 0, TARGET / 6 / (double)n, 0);
        assert_float_equal(view_of(r, n, 1).eta, NOW + 6, 1e-9);
        assert_float_equal(view_of(r, n, 1).next_fetch, NOW + 6 * shares[i].share, 1e-9);
    }
    r[0] = record(1, 5, 0, 1e6, 0);
    assert_float_equal(view_of(r, 1, 1).next_fetch, NOW + 0.5, 1e-9);
    r[0] = record(1, 5, 0, 1e-6, 0);
    assert_float_equal(view_of(r, 1, 1).next_fetch, NOW + 10, 1e-9);
}

/* The more peers there are, the less often each polls: both limits grow in proportion, up to a
 * record's life and to the time that a search for a group can wait. */
static void crowds_poll_seldom(void **state)
{
    static const struct {
        size_t n;
        double least, most;
    } cases[] = { { 100, 0.5, 10 }, { 200, 1, 20 }, { 600, 3, 60 }, { 2000, 3, 60 } };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        const size_t n = cases[i].n;
        struct progress_record *r = calloc(n, sizeof *r);
        assert_non_null(r);
        for (size_t k = 0; k < n; k++) r[k] = record((uint8_t)k, 5, 0, 1e6, 0);
        assert_float_equal(view_of(r, n, 1).next_fetch, NOW + cases[i].least, 1e-9);
        for (size_t k = 0; k < n; k++) r[k] = record((uint8_t)k, 5, 0, 1e-6, 0);
        assert_float_equal(view_of(r, n, 1).next_fetch, NOW + cases[i].most, 1e-9);
        free(r);
    }
}

/* Sums of strangers' claims saturate at the largest number. */
static void sums_stop_at_the_largest_number(void **state)
{
    struct progress_record r[] = { record(1, 5, INT64_MAX, 0, 0), record(2, 5, INT64_MAX, 0, 0) };
    struct metrics_record m[] = { { .samples = INT64_MAX }, { .samples = 1 } };
    struct metrics_sums s;
    assert_true(view_of(r, 2, 1).samples == INT64_MAX);
    r[1].samples = 0;
    assert_true(view_of(r, 2, 1).samples == INT64_MAX);
    metrics_sum(&s, m, 2);
    assert_true(s.samples == INT64_MAX);
    m[0].samples--;
    metrics_sum(&s, m, 2);
    assert_true(s.samples == INT64_MAX);
}

/* e <- 0.1 dt / n + 0.9 e, divided by 1 - 0.9^k: the first batch's own speed, then their average. */
static void speed_is_a_corrected_average(void **state)
{
    struct performance p;
    double e = 0;
    performance_init(&p, 0.1);
    assert_true(performance_get(&p) == 1e-20);
    performance_add(&p, 8, 2);
    assert_float_equal(performance_get(&p), 4, 1e-12);
    e = 0.1 * 2 / 8;
    performance_add(&p, 32, 2); /* a larger batch weighs as one batch */
    e = 0.1 * 2 / 32 + 0.9 * e;
    assert_float_equal(performance_get(&p), (1 - 0.81) / e, 1e-12);
    for (int i = 0; i < 400; i++) performance_add(&p, 10, 1);
    assert_float_equal(performance_get(&p), 10, 1e-9);
    performance_init(&p, 0.1);
    performance_add(&p, 1, 0); /* no time at all */
    assert_float_equal(performance_get(&p) / 1e20, 1, 1e-9);
}

/* --- records ---------------------------------------------------------------------------------- */

static void progress_there_and_back(void **state)
{
    struct progress_record r = record(7, INT64_MAX, 12, 0.5, -3), back;
    struct bytes b = { 0 };
    r.client_mode = 1;
    assert_int_equal(progress_write(&b, &r), PL_OK);
    assert_int_equal(progress_read(&back, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
    assert_memory_equal(&back, &r, sizeof r);
    bytes_clear(&b);
    r.epoch = r.samples = 0; /* a peer that has just begun */
    assert_int_equal(progress_write(&b, &r), PL_OK);
    assert_int_equal(progress_read(&back, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
    assert_int_equal(back.epoch, 0);
    bytes_clear(&b);
    mp_nil(&b);
    assert_int_equal(progress_read(&back, bytes_at(&b), bytes_length(&b), NULL), PL_ENOTFOUND);
    bytes_clear(&b);
    assert_int_equal(progress_read(&back, (const uint8_t *)"\xc1", 1, NULL), PL_EFORMAT);
    assert_int_equal(progress_read(&back, (const uint8_t *)"\x07", 1, NULL), PL_EPROTO);
}

/* msgpack's integers reach 2^64 - 1, its floats NaN: neither gets into a sum. */
static void numbers_out_of_range_are_refused(void **state)
{
    static const double bad[] = { NAN, INFINITY, -INFINITY };
    struct bytes b = { 0 };
    struct progress_record r, back;
    struct pl_err err;
    for (size_t i = 0; i < PL_COUNT(bad); i++)
        for (int k = 0; k < 2; k++) {
            r = record(7, 1, 2, 3, 4);
            *(k ? &r.time : &r.samples_per_second) = bad[i];
            assert_int_equal(progress_write(&b, &r), PL_OK);
            assert_int_equal(progress_read(&back, bytes_at(&b), bytes_length(&b), &err), PL_EPROTO);
            if (!strstr(err.text, "_progress")) fail_msg("%s", err.text);
            bytes_clear(&b);
        }
    for (int k = 0; k < 2; k++) { /* 2^63, as epoch and as samples */
        static const uint8_t large[] = { 0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0 };
        const struct schema_field *f = schema_progress.fields;
        r = record(7, 1, 2, 3, 4);
        mp_map(&b, schema_progress.count);
        mp_text(&b, f[0].name), mp_bin(&b, r.peer.bytes, r.peer.length);
        for (int i = 0; i < 2; i++) {
            mp_text(&b, f[1 + i].name);
            if (i == k) bytes_add(&b, large, sizeof large);
            else mp_int(&b, 1);
        }
        mp_text(&b, f[3].name), mp_float(&b, 1);
        mp_text(&b, f[4].name), mp_float(&b, 1);
        mp_text(&b, f[5].name), mp_bool(&b, 0);
        assert_int_equal(progress_read(&back, bytes_at(&b), bytes_length(&b), &err), PL_EPROTO);
        assert_non_null(strstr(err.text, "2^63"));
        bytes_clear(&b);
    }
}

/* loss = sum loss / sum mini_steps over all records of any epoch; the newest step. */
static void metrics_are_summed(void **state)
{
    const struct metrics_record r[] = {
        { .step = 3, .samples_per_second = 2, .samples = 10, .loss = 12, .mini_steps = 4 },
        { .step = 7, .samples_per_second = 3, .samples = 20, .loss = 2, .mini_steps = 1 },
        { .step = 5, .samples_per_second = 0.5, .samples = 30, .loss = 1, .mini_steps = 0 }
    };
    struct metrics_sums s;
    struct metrics_record back;
    struct bytes b = { 0 };
    metrics_sum(&s, r, 3);
    assert_int_equal(s.step, 7);
    assert_int_equal(s.peers, 3);
    assert_int_equal(s.samples, 60);
    assert_float_equal(s.samples_per_second, 5.5, 1e-12);
    assert_float_equal(s.loss, 15 / 5.0, 1e-12);
    metrics_sum(&s, r + 2, 1); /* no mini-steps: nothing is divided by zero */
    assert_float_equal(s.loss, 0, 0);
    metrics_sum(&s, NULL, 0);
    assert_int_equal(s.step, -1);
    assert_int_equal(s.peers, 0);
    assert_int_equal(metrics_write(&b, &r[1]), PL_OK);
    assert_int_equal(metrics_read(&back, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
    assert_memory_equal(&back, &r[1], sizeof back);
    bytes_clear(&b);
    assert_int_equal(metrics_read(&back, (const uint8_t *)"\xc0", 1, NULL), PL_EPROTO);
    assert_int_equal(metrics_read(&back, (const uint8_t *)"\xc1", 1, NULL), PL_EFORMAT);
    {
        const struct metrics_record zeros = { .step = 0 };
        assert_int_equal(metrics_write(&b, &zeros), PL_OK);
        assert_int_equal(metrics_read(&back, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
        bytes_clear(&b);
    }
    for (int k = 0; k < 3; k++) { /* 2^63 as one of the counts */
        static const uint8_t large[] = { 0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0 };
        static const int counts[] = { 0, 2, 4 };
        mp_map(&b, schema_metrics.count);
        for (int i = 0; i < 5; i++) {
            mp_text(&b, schema_metrics.fields[i].name);
            if (i == counts[k]) bytes_add(&b, large, sizeof large);
            else if (i % 2) mp_float(&b, 1);
            else mp_int(&b, 1);
        }
        assert_int_equal(metrics_read(&back, bytes_at(&b), bytes_length(&b), NULL), PL_EPROTO);
        bytes_clear(&b);
    }
}

/* Each has the target to itself, and the slowest of the epoch decides. */
static void each_peer_has_its_own_target(void **state)
{
    const struct progress_local mine = { 5, 70, 2, 0 }, waiting = { 5, 70, 2, 1 };
    struct progress_record r[] = { record(1, 5, 70, 2, 0), record(2, 5, 40, 3, 10),
                                   record(3, 5, 20, 16, 0), record(4, 4, 0, 1e-9, 0) };
    struct progress_view v;
    (void)state;
    progress_update_each(&v, r, 4, &mine, TARGET, NOW);
    assert_int_equal(v.epoch, 5);
    assert_int_equal(v.samples, 70);
    assert_int_equal(v.peers, 4);
    assert_float_equal(v.eta, NOW + 15, 1e-9); /* ours: 30 samples at 2 a second */
    assert_float_equal(v.next_fetch, NOW + PROGRESS_FETCH_EACH_MAX, 1e-9);
    r[1].is_new = 1; /* 30 samples at 3 a second, waited for or not */
    r[0].samples = 95;
    progress_update_each(&v, r, 4, &mine, TARGET, NOW);
    assert_float_equal(v.eta, NOW + 5, 1e-9);
    r[1].samples = 0;
    progress_update_each(&v, r, 4, &waiting, TARGET, NOW);
    assert_float_equal(v.eta, NOW + 70 / 3.0, 1e-9);
    r[2].samples_per_second = 0; /* never: the wait has its own limit */
    progress_update_each(&v, r, 4, &mine, TARGET, NOW);
    assert_true(v.eta > NOW + 1e9 && !isnan(v.next_fetch));
    progress_update_each(&v, NULL, 0, &mine, TARGET, NOW);
    assert_true(isinf(v.eta));
    assert_float_equal(v.next_fetch, NOW + PROGRESS_FETCH_EACH_MAX, 1e-9);
    r[1].epoch = 6; /* we are behind: our samples are of another epoch */
    progress_update_each(&v, r, 2, &mine, TARGET, NOW);
    assert_int_equal(v.epoch, 6);
    assert_int_equal(v.samples, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_peer_has_its_own_target),
                                        cmocka_unit_test(without_records_the_swarm_is_this_peer),
                                        cmocka_unit_test(samples_of_one_epoch_speeds_of_all),
                                        cmocka_unit_test(new_peers_double_a_sum_at_most),
                                        cmocka_unit_test(age_of_a_record_is_clipped),
                                        cmocka_unit_test(next_poll),
                                        cmocka_unit_test(crowds_poll_seldom),
                                        cmocka_unit_test(sums_stop_at_the_largest_number),
                                        cmocka_unit_test(speed_is_a_corrected_average),
                                        cmocka_unit_test(progress_there_and_back),
                                        cmocka_unit_test(numbers_out_of_range_are_refused),
                                        cmocka_unit_test(metrics_are_summed) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
