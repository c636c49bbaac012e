/* seen.c - a poll of the DHT for the page: every claim has a bound, and the records of one key are one peer. */
#include "net/http/dashboard/dashboard_seen.h"
#include "test/unit/http/feed_client.h"

#include <math.h>

#define NOW 1000.0

static struct dashboard_report report(const char *key, int64_t each, double held_out)
{
    struct dashboard_report r = { .record = { .rounds = each,
                                              .failed = each,
                                              .retried = each,
                                              .banned = each,
                                              .sent = each,
                                              .received = each,
                                              .uncompressed = each,
                                              .samples = each,
                                              .computed_ms = each,
                                              .waited_ms = each,
                                              .averaged_ms = each,
                                              .shared_ms = each,
                                              .held_out = held_out } };
    snprintf(r.key, sizeof r.key, "%s", key);
    return r;
}

/* At each bound and one above. */
static void claims_are_bounded(void **state)
{
    static const struct {
        double rate, rate_is, loss, loss_is;
        int64_t count, count_is, steps_are;
    } c[] = {
        { 1e6, 1e6, 1e12, 1e12, 1000000000, 1000000000, 1000000000 },
        { 2e6, 1e6, -1e12, -1e12, 1000000001, 1000000000, 1000000000 },
        { -1, 0, 2e12, 0, INT64_MAX, 1000000000, 0 },
        { NAN, 0, NAN, 0, 5, 5, 0 },
        { INFINITY, 1e6, -INFINITY, 0, 5, 5, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(c); i++) {
        struct dashboard_metrics m = metrics("a", 1, c[i].rate, c[i].count, c[i].loss, c[i].count);
        struct dashboard_progress p = progress("a", 1, c[i].count, c[i].rate, 0);
        struct dashboard_snapshot snapshot = {
            .time = NOW, .metrics = &m, .metrics_count = 1, .progress = &p, .progress_count = 1
        };
        struct seen s = { 0 };
        assert_int_equal(seen_take(&s, &snapshot), PL_OK);
        assert_int_equal(s.count, 1);
        assert_int_equal(s.metrics->record.samples, c[i].count_is);
        assert_int_equal(s.metrics->record.mini_steps, c[i].steps_are);
        assert_true(s.metrics->record.loss == c[i].loss_is);
        assert_true(s.metrics->record.samples_per_second == c[i].rate_is);
        assert_int_equal(s.progress->record.samples, c[i].count_is);
        assert_true(s.progress->record.samples_per_second == c[i].rate_is);
        seen_clear(&s);
    }
}

static void reports_are_bounded(void **state)
{
    const struct dashboard_metrics m[] = { metrics("a", 1, 1, 1, 1, 1), metrics("b", 1, 1, 1, 1, 1),
                                           metrics("c", 1, 1, 1, 1, 1),
                                           metrics("d", 1, 1, 1, 1, 1) };
    const struct dashboard_report r[] = { report("a", INT64_MAX, 1e12),
                                          report("b", HISTORY_COUNT_MAX - 1, 2e12),
                                          report("c", 2, NAN), report("d", 3, 4),
                                          report("alone", 100, 100) };
    struct dashboard_snapshot snapshot = {
        .time = NOW, .metrics = m, .metrics_count = 4, .report = r, .report_count = 5
    };
    struct seen s = { 0 };
    assert_true(isnan(seen_held_out(&s)));
    assert_int_equal(seen_take(&s, &snapshot), PL_OK);
    assert_int_equal(s.count, 4); /* a key with only a report does not count */
    for (size_t i = 0; i < 2; i++) {
        const struct report_record *b =
            &s.report[i ? 2 : 0].record; /* "a" and "b" around "alone" */
        const int64_t want = i ? HISTORY_COUNT_MAX - 1 : HISTORY_COUNT_MAX;
        const int64_t counts[] = { b->rounds,      b->failed,    b->retried,      b->banned,
                                   b->sent,        b->received,  b->uncompressed, b->samples,
                                   b->computed_ms, b->waited_ms, b->averaged_ms,  b->shared_ms };
        for (size_t k = 0; k < PL_COUNT(counts); k++) assert_true(counts[k] == want);
    }
    assert_true(s.report[0].record.held_out == 1e12 && isnan(s.report[2].record.held_out));
    assert_true(seen_held_out(&s) == (1e12 + 4) / 2); /* of those that report one */
    assert_true(seen_banned(&s) == 2 * HISTORY_COUNT_MAX - 1 + 2 + 3);
    seen_clear(&s);
}

/* Sorted lists meet by key; a peer was seen when its latest record was made, and never in the future. */
static void records_of_one_key_are_one_peer(void **state)
{
    struct dashboard_metrics m[] = { metrics("m", 1, 7, 1, 1, 1), metrics("both", 1, 90, 1, 1, 1),
                                     metrics("late", 1, 4, 1, 1, 1) };
    struct dashboard_progress p[] = { progress("pr", 1, 1, 9, 0), progress("both", 1, 1, 8, 0),
                                      progress("late", 1, 1, 7, 0) };
    const struct dashboard_report r = report("both", 5, 1);
    const struct distance distance = { .peer = p[1].record.peer };
    struct dashboard_snapshot snapshot = { .time = NOW,
                                           .metrics = m,
                                           .metrics_count = 3,
                                           .progress = p,
                                           .progress_count = 3,
                                           .report = &r,
                                           .report_count = 1,
                                           .distance = &distance,
                                           .distance_count = 1 };
    /* The fastest first, by their progress if they have one; equal ones by key. */
    static const char *const order[] = { "pr", "both", "late", "m" };
    static const double at[] = { NOW - 40, NOW - 10, NOW, NOW - 30 };
    struct seen s = { 0 };
    m[0].expiration = NOW - 30 + METRICS_LIFE;
    m[1].expiration = NOW - 20 + METRICS_LIFE;
    m[2].expiration = NOW + 1e9;
    p[0].record.time = NOW - 40;
    p[1].record.time = NOW - 10;
    p[2].record.time = NOW - 50;
    assert_int_equal(seen_take(&s, &snapshot), PL_OK);
    assert_int_equal(s.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct feed_peer *q = &s.peers[i];
        assert_string_equal(q->key, order[i]);
        assert_true(q->seen == at[i]);
        assert_int_equal(q->metrics != NULL, i != 0);
        assert_int_equal(q->progress != NULL, i != 3);
        assert_int_equal(q->report != NULL, i == 1);
        assert_int_equal(q->distance != NULL, i == 1);
    }
    seen_clear(&s);
    m[1].expiration = NOW - 5 + METRICS_LIFE; /* now its metrics are the later record */
    memset(&s, 0, sizeof s);
    assert_int_equal(seen_take(&s, &snapshot), PL_OK);
    assert_true(s.peers[1].seen == NOW - 5);
    seen_clear(&s);
}

static void records_have_a_largest_number(void **state)
{
    struct dashboard_metrics *m = calloc(DASHBOARD_RECORDS_MAX + 1, sizeof *m);
    struct dashboard_progress *p = calloc(DASHBOARD_RECORDS_MAX + 1, sizeof *p);
    struct dashboard_report *r = calloc(DASHBOARD_RECORDS_MAX + 1, sizeof *r);
    struct dashboard_snapshot snapshot = { .time = NOW, .metrics = m, .progress = p, .report = r };
    struct seen s = { 0 };
    for (int i = 0; i <= DASHBOARD_RECORDS_MAX; i++) {
        snprintf(m[i].key, sizeof m->key, "%08d", i);
        snprintf(p[i].key, sizeof p->key, "%08d", i);
        snprintf(r[i].key, sizeof r->key, "%08d", i);
    }
    snapshot.metrics_count = snapshot.progress_count = snapshot.report_count =
        DASHBOARD_RECORDS_MAX + 1;
    assert_int_equal(seen_take(&s, &snapshot), PL_OK);
    assert_int_equal(s.metrics_count, DASHBOARD_RECORDS_MAX);
    assert_int_equal(s.progress_count, DASHBOARD_RECORDS_MAX);
    assert_int_equal(s.report_count, DASHBOARD_RECORDS_MAX);
    assert_int_equal(s.count, DASHBOARD_RECORDS_MAX);
    seen_clear(&s);
    free(m);
    free(p);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_are_bounded),
        cmocka_unit_test(reports_are_bounded),
        cmocka_unit_test(records_of_one_key_are_one_peer),
        cmocka_unit_test(records_have_a_largest_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
