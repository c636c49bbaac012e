/* pace.c - the page's figures by wall clock, and whether a run is live, silent or ended. */
#include "net/http/dashboard/pace.h"
#include "test/unit/http/feed_client.h"
#include "test/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *word_of(const char *json, const char *name)
{
    json_t *root = json_loads(json, 0, NULL);
    const char *v = json_string_value(json_object_get(root, name));
    char *copy = v ? strdup(v) : NULL;
    json_decref(root);
    return copy;
}

static char *state_after(struct dashboard *d, int port, const struct dashboard_snapshot *snapshot)
{
    assert_int_equal(dashboard_update(d, snapshot, NULL), PL_OK);
    return feed(port, "/api/state.json");
}

/* Two peers that compute 4 samples a second together make 40 samples in 20 s, by their own count:
 * half of the time goes into averaging. The time left follows from the steps by the wall clock. */
static void the_pace_is_that_of_the_wall_clock(void **state)
{
    struct dashboard_progress p[] = { progress("aa", 7, 0, 3, 0), progress("cc", 7, 0, 1, 0) };
    struct dashboard_report r[] = { { .key = "aa", .record = { .samples = 1000 } },
                                    { .key = "cc", .record = { .samples = 500 } },
                                    { .key = "dd", .record = { .samples = 1000000000000 } } };
    struct dashboard_snapshot snapshot = {
        .time = 1000, .progress = p, .progress_count = 2, .report = r, .report_count = 2
    };
    struct dashboard_options o = { .run = "r", .target_batch = 16, .total_steps = 107 };
    struct http_server *s;
    struct dashboard *d;
    char *text;
    int port;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    port = http_server_port(s);
    text = state_after(d, port, &snapshot);
    assert_true(real(text, "throughput") == -1); /* not known yet */
    assert_true(real(text, "schedule_eta") == 400);
    free(text);
    for (int i = 1; i <= 2; i++) {
        snapshot.time += 10;
        for (int k = 0; k < 2; k++) {
            p[k].record.time = snapshot.time;
            p[k].record.epoch++;
            r[k].record.samples += 10;
        }
        snapshot.report_count = 1 + (size_t)i; /* one that comes later brings nothing of its past */
        text = state_after(d, port, &snapshot);
        if (i == 1) free(text);
    }
    assert_true(real(text, "throughput") == 2);
    assert_true(real(text, "averaging_share") == 0.5);
    assert_true(real(text, "samples_per_second") == 4);
    assert_true(real(text, "schedule_eta") == 980); /* 98 steps of 10 s */
    free(text);
    /* Python peers count nothing: a step takes the target at least. */
    snapshot.report_count = 0;
    snapshot.time += 10;
    p[0].record.epoch = p[1].record.epoch = 19;
    p[0].record.time = p[1].record.time = snapshot.time;
    text = state_after(d, port, &snapshot);
    assert_true(fabs(real(text, "throughput") - 12 * 16 / 30.0) < 1e-9);
    free(text);
    dashboard_close(d);
    http_server_close(s);
}

/* A run that has ended, one whose peers have gone, and none at all. */
static void a_run_without_peers_is_not_live(void **state)
{
    struct dashboard_metrics m = metrics("aa", 40, 8, 16, 2, 1);
    struct dashboard_progress p = progress("aa", 40, 300, 3, 0);
    struct dashboard_snapshot snapshot = {
        .time = 1000, .metrics = &m, .metrics_count = 1, .progress = &p, .progress_count = 1
    };
    struct dashboard_options o = { .run = "r", .target_batch = 16, .total_steps = 41 };
    struct http_server *s;
    struct dashboard *d;
    static const char *const want[] = { "live", "silent", "ended", "empty" };
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    for (int i = 0; i < 4; i++) {
        char *text, *status;
        if (i == 1) snapshot.progress_count = 0, snapshot.time = 1200;
        if (i == 2) m.record.step = 41;
        if (i == 3) snapshot.metrics_count = 0;
        text = state_after(d, http_server_port(s), &snapshot);
        status = word_of(text, "status");
        assert_string_equal(status, want[i]);
        assert_true((real(text, "peers") > 0) == (i == 0));
        if (i) assert_true(real(text, "samples") == 0);
        if (i) assert_true(real(text, "schedule_eta") == -1);
        assert_true(real(text, "samples_per_second") == (i ? 0 : 3)); /* nobody computes */
        if (i == 1) assert_true(real(text, "seen") == 1000);
        free(status);
        free(text);
    }
    dashboard_close(d);
    http_server_close(s);
}

/* A peer that was killed leaves metrics behind: it is active no more once its progress expires, and
 * its loss counts as long as it is about as new as the others'. A clock that is ahead makes no loss
 * newer than now. */
static void the_dead_are_not_active(void **state)
{
    struct dashboard_metrics m[] = { metrics("aa", 40, 8, 16, 2, 1),
                                     metrics("cc", 38, 8, 16, 2, 1) };
    struct dashboard_progress p[] = { progress("aa", 40, 300, 3, 0),
                                      progress("cc", 38, 300, 3, 0) };
    struct dashboard_snapshot snapshot = {
        .time = 1000, .metrics = m, .metrics_count = 2, .progress = p, .progress_count = 2
    };
    struct dashboard_options o = { .run = "r", .target_batch = 16 };
    struct http_server *s;
    struct dashboard *d;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    m[0].record.loss = 1, m[1].record.loss = 3;
    for (int active = 2; active; active--) {
        char *text;
        snapshot.progress_count = (size_t)active;
        m[0].expiration = snapshot.time + METRICS_LIFE + (active == 2 ? 1e6 : 0);
        m[1].expiration = snapshot.time + METRICS_LIFE - (active == 2 ? 110 : 130);
        text = state_after(d, http_server_port(s), &snapshot);
        assert_true(real(text, "peers") == active);
        assert_true(real(text, "loss") == active);
        free(text);
    }
    dashboard_close(d);
    http_server_close(s);
}

/* What page and Prometheus say of a rate after the end is what was made, not what peers could do. */
static void the_mean_outlives_the_run(void **state)
{
    struct dashboard_metrics m = metrics("aa", 0, 100, 16, 2, 1);
    struct dashboard_progress p = progress("aa", 0, 0, 100, 0);
    struct dashboard_snapshot snapshot = {
        .time = 1000, .metrics = &m, .metrics_count = 1, .progress = &p, .progress_count = 1
    };
    struct dashboard_options o = { .run = "r", .target_batch = 16, .total_steps = 4 };
    struct http_server *s;
    struct dashboard *d;
    char *text = NULL;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    for (int i = 0; i < 6; i++) {
        m.record.step = p.record.epoch = i < 4 ? i : 4;
        p.record.time = snapshot.time;
        snapshot.progress_count = i < 4;
        free(text);
        text = state_after(d, http_server_port(s), &snapshot);
        snapshot.time += 10;
    }
    assert_true(real(text, "throughput") == -1);
    assert_true(real(text, "mean_throughput") == 64 / 40.0); /* 4 steps of 16 in 40 s, not in 50 */
    free(text);
    dashboard_close(d);
    http_server_close(s);
}

/* A training without a swarm is known by its log: its last line ages. */
static void a_log_grows_silent(void **state)
{
    struct dashboard_metrics m = metrics(DASHBOARD_THIS, 40, 8, 16, 2, 1);
    struct dashboard_snapshot snapshot = { .metrics = &m, .metrics_count = 1 };
    struct dashboard_options o = { .run = "r", .total_steps = 100 };
    static const struct {
        double age, step_s;
        int64_t step;
        const char *status;
    } want[] = {
        { 0, 1, 40, "live" },    { 119, 1, 40, "live" },  { 121, 1, 40, "silent" },
        { 121, 60, 40, "live" }, { 599, 60, 40, "live" }, { 601, 60, 40, "silent" },
        { 0, 1, 100, "live" },   { 1, 1, 100, "ended" },
    };
    struct http_server *s;
    struct dashboard *d;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    for (size_t i = 0; i < PL_COUNT(want); i++) {
        const double written = 1000 * (double)(i + 1);
        char *text, *status;
        m.expiration = written + METRICS_LIFE;
        m.record.step = want[i].step;
        snapshot.step_s = want[i].step_s;
        snapshot.time = written + want[i].age;
        text = state_after(d, http_server_port(s), &snapshot);
        status = word_of(text, "status");
        assert_string_equal(status, want[i].status);
        assert_true((real(text, "peers") == 1) == !strcmp(status, "live"));
        assert_true(real(text, "seen") == written);
        free(status);
        free(text);
    }
    dashboard_close(d);
    http_server_close(s);
}

/* --- the window of points --------------------------------------------------------------------- */

static struct pace p;

/* One peer that has counted so many samples. */
static void add(double time, int64_t step, const char *key, int64_t samples)
{
    struct dashboard_report r = { .record = { .samples = samples } };
    const struct seen s = { .report = &r, .report_count = key ? 1 : 0 };
    snprintf(r.key, sizeof r.key, "%s", key ? key : "");
    assert_int_equal(pace_add(&p, &s, time, step, 10), PL_OK);
}

static int no_points(void **state)
{
    pace_clear(&p);
    assert_true(!p.count && !p.last && !p.last_count && p.samples == 0 && p.last_time == 0);
    return 0;
}

/* Twenty seconds with a step in them. */
static void figures_need_time_and_a_step(void **state)
{
    assert_true(isnan(pace_rate(&p)) && isnan(pace_step_s(&p)));
    add(1000, 5, NULL, 0);
    add(1019.9, 6, NULL, 0);
    assert_true(isnan(pace_rate(&p)) && isnan(pace_step_s(&p)));
    add(1020, 6, NULL, 0);
    assert_true(pace_rate(&p) == 0.5 && pace_step_s(&p) == 20); /* 10 samples a step */
    no_points(NULL);
    add(1000, 5, NULL, 0);
    add(1030, 5, NULL, 0);
    assert_true(isnan(pace_rate(&p)) && isnan(pace_step_s(&p)));
}

/* A point every five seconds, for five minutes. */
static void the_window_is_bounded(void **state)
{
    add(1000, 0, NULL, 0);
    add(1001, 1, NULL, 0);
    add(1002, 2, NULL, 0);
    assert_int_equal(p.count, 2); /* the last one moves */
    assert_true(p.point[0].time == 1000 && p.point[1].time == 1002 && p.point[1].step == 2);
    add(1006.5, 3, NULL, 0);
    assert_int_equal(p.count, 2); /* it was not yet five seconds behind the first */
    add(1012, 4, NULL, 0);
    assert_int_equal(p.count, 3);
    add(1300, 5, NULL, 0);
    assert_true(p.point[0].time == 1000);
    add(1301, 6, NULL, 0);
    assert_true(p.point[0].time == 1006.5);
    no_points(NULL);
    for (int i = 0; i < 200; i++) add(1000 + 4.9 * i, i, NULL, 0);
    assert_true(p.count <= PACE_POINTS && p.point[0].time >= 1000 + 4.9 * 199 - PACE_WINDOW);
    assert_float_equal(pace_rate(&p), 10 / 4.9, 1e-6);
    assert_float_equal(pace_step_s(&p), 4.9, 1e-6);
}

static void samples_are_differences_of_counts(void **state)
{
    add(1000, 5, "a", 500);
    add(1030, 5, "a", 800);
    assert_true(p.samples == 300);
    add(1060, 5, "a", 40); /* it has begun anew */
    assert_true(p.samples == 340);
    add(1061, 5, "a", INT64_MAX); /* at most a million a second */
    assert_true(p.samples == 340 + 1e6);
    add(1071, 6, "b", 1000000); /* a new peer adds nothing */
    assert_true(p.samples == 340 + 1e6);
    add(1081, 7, "b", 1000005);
    assert_true(p.samples == 345 + 1e6);
}

/* A step is seen in one poll, the samples that were counted for it in the next one. */
static void a_step_and_its_counts_are_one(void **state)
{
    for (int i = 0; i <= 20; i++) add(1000 + 5 * i, (i + 1) / 2, "a", 12 * (i / 2));
    assert_true(pace_rate(&p) == 120 / 100.0 && pace_mean(&p) == 108 / 95.0);
    no_points(NULL);
    for (int i = 0; i <= 20; i++) add(1000 + 5 * i, (i + 1) / 2, "a", 7 * (i / 2));
    assert_true(pace_rate(&p) == 100 / 100.0); /* a step takes its target of 10 at least */
}

/* From the first poll to the last new step: waiting before and after it is not the run's. */
static void the_mean_ends_with_the_last_step(void **state)
{
    add(1000, 5, "a", 500);
    add(1019, 6, "a", 600);
    assert_true(isnan(pace_mean(&p)));
    add(1500, 7, "a", 1000);
    assert_true(pace_mean(&p) == 1);
    add(1600, 7, "a", 1050); /* of a step that never came */
    assert_true(pace_mean(&p) == 1);
    add(1610, 2, "a", 1060); /* another run */
    assert_true(isnan(pace_mean(&p)));
}

/* A clock that is set back, and a run that begins anew. */
static void what_was_measured_before_is_dropped(void **state)
{
    add(1000, 5, "a", 0);
    add(1030, 6, "a", 100);
    add(1029, 6, "a", 100);
    assert_int_equal(p.count, 1);
    add(1059, 7, "a", 200);
    assert_int_equal(p.count, 2);
    assert_true(pace_step_s(&p) == 30);
    assert_float_equal(pace_rate(&p), 100 / 30.0, 1e-9);
    add(1089, 3, "a", 300);
    assert_int_equal(p.count, 1);
    assert_true(isnan(pace_rate(&p)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pace_is_that_of_the_wall_clock),
        cmocka_unit_test(a_run_without_peers_is_not_live),
        cmocka_unit_test(the_dead_are_not_active),
        cmocka_unit_test(the_mean_outlives_the_run),
        cmocka_unit_test(a_log_grows_silent),
        cmocka_unit_test_setup_teardown(figures_need_time_and_a_step, no_points, no_points),
        cmocka_unit_test_setup_teardown(the_window_is_bounded, no_points, no_points),
        cmocka_unit_test_setup_teardown(samples_are_differences_of_counts, no_points, no_points),
        cmocka_unit_test_setup_teardown(a_step_and_its_counts_are_one, no_points, no_points),
        cmocka_unit_test_setup_teardown(the_mean_ends_with_the_last_step, no_points, no_points),
        cmocka_unit_test_setup_teardown(what_was_measured_before_is_dropped, no_points, no_points),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
