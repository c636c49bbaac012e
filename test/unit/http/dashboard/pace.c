/* pace.c - the page's figures by wall clock, and whether a run is live, silent or ended. */
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

static char *state_after(struct dashboard *d, int port, const struct dashboard_snapshot *look)
{
    assert_int_equal(dashboard_update(d, look, NULL), PL_OK);
    return feed(port, "/api/state.json");
}

/* Two peers that compute 4 samples a second together make 40 samples in 20 s, as they count: half
 * of the time goes into averaging. What remains is told by the steps of the wall clock. */
static void the_pace_is_that_of_the_wall_clock(void **state)
{
    struct dashboard_progress p[] = { progress("aa", 7, 0, 3, 0), progress("cc", 7, 0, 1, 0) };
    struct dashboard_report r[] = { { .key = "aa", .record = { .samples = 1000 } },
                                    { .key = "cc", .record = { .samples = 500 } },
                                    { .key = "dd", .record = { .samples = 1000000000000 } } };
    struct dashboard_snapshot look = {
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
    text = state_after(d, port, &look);
    assert_true(real(text, "throughput") == -1); /* not known yet */
    assert_true(real(text, "schedule_eta") == 400);
    free(text);
    for (int i = 1; i <= 2; i++) {
        look.time += 10;
        for (int k = 0; k < 2; k++) {
            p[k].record.time = look.time;
            p[k].record.epoch++;
            r[k].record.samples += 10;
        }
        look.report_count = 1 + (size_t)i; /* one that comes later brings nothing of its past */
        text = state_after(d, port, &look);
        if (i == 1) free(text);
    }
    assert_true(real(text, "throughput") == 2);
    assert_true(real(text, "averaging_share") == 0.5);
    assert_true(real(text, "samples_per_second") == 4);
    assert_true(real(text, "schedule_eta") == 980); /* 98 steps of 10 s */
    free(text);
    /* Python peers count nothing: a step takes the target at least. */
    look.report_count = 0;
    look.time += 10;
    p[0].record.epoch = p[1].record.epoch = 19;
    p[0].record.time = p[1].record.time = look.time;
    text = state_after(d, port, &look);
    assert_true(fabs(real(text, "throughput") - (40 + 10 * 16) / 30.0) < 1e-9);
    free(text);
    dashboard_close(d);
    http_server_close(s);
}

/* A run that has ended, one whose peers have gone, and none at all. */
static void a_run_without_peers_is_not_live(void **state)
{
    struct dashboard_metrics m = metrics("aa", 40, 8, 16, 2, 1);
    struct dashboard_progress p = progress("aa", 40, 300, 3, 0);
    struct dashboard_snapshot look = {
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
        if (i == 1) look.progress_count = 0, look.time = 1200;
        if (i == 2) m.record.step = 41;
        if (i == 3) look.metrics_count = 0;
        text = state_after(d, http_server_port(s), &look);
        status = word_of(text, "status");
        assert_string_equal(status, want[i]);
        assert_true((real(text, "peers") > 0) == (i == 0));
        if (i) assert_true(real(text, "samples") == 0);
        if (i) assert_true(real(text, "schedule_eta") == -1);
        if (i == 1) assert_true(real(text, "seen") == 1000);
        free(status);
        free(text);
    }
    dashboard_close(d);
    http_server_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pace_is_that_of_the_wall_clock),
        cmocka_unit_test(a_run_without_peers_is_not_live),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
