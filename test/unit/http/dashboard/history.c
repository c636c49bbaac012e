/* history.c - the history of a run's page: points of the curve, accounts of keys, totals, and the
 * file that stores them. */
#include "net/http/dashboard/history.h"
#include "data/files/file.h"
#include "test/unit/unit.h"

#include <math.h>
#include <sqlite3.h>
#include <unistd.h>

static struct history_account account_of(struct history *h, const char *key)
{
    struct history_account all[10], none = { .samples = -1 };
    size_t n;
    assert_int_equal(history_board(h, all, 10, &n, NULL), PL_OK);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(all[i].key, key)) return all[i];
    return none;
}

static void accounts_count_a_step_once(void **state)
{
    struct history *h;
    struct history_account a;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    history_report(h, "k", "", 100, 5, 30, 2, NULL);
    history_report(h, "k", "", 110, 5, 30, 2, NULL); /* the same again */
    assert_int_equal(account_of(h, "k").samples, 30);
    history_report(h, "k", "Qm", 120, 5, 50, 2, NULL); /* more of the same step */
    a = account_of(h, "k");
    assert_int_equal(a.samples, 50);
    assert_true(a.seconds == 25);
    assert_string_equal(a.peer, "Qm");
    history_report(h, "k", "", 130, 4, 1000, 2, NULL); /* an older one */
    history_report(h, "k", "", 140, 6, 10, 0, NULL);   /* no speed: no time */
    a = account_of(h, "k");
    assert_int_equal(a.samples, 60);
    assert_true(a.seconds == 25);
    assert_int_equal(a.last_step, 6);
    assert_string_equal(a.peer, "Qm");
    assert_true(a.first == 100 && a.last == 140);
    history_report(h, "'; DROP TABLE account; --", "", 1, 1, 1, 1,
                   NULL); /* a name like any other */
    assert_int_equal(account_of(h, "'; DROP TABLE account; --").samples, 1);
    history_close(h);
}

static void points_are_means_of_their_time(void **state)
{
    struct history *h;
    struct history_point out[10];
    size_t n;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    assert_int_equal(history_points(h, out, 10, &n, NULL), PL_OK);
    assert_int_equal(n, 0);
    history_begin(h, NULL);
    for (int i = 0; i < 1000; i++) {
        struct history_point p = {
            .time = i, .step = i / 10, .peers = 4, .loss = i < 500 ? 2 : 1, .samples_per_second = 3
        };
        assert_int_equal(history_add(h, &p, NULL), PL_OK);
    }
    assert_int_equal(history_commit(h, NULL), PL_OK);
    assert_int_equal(history_points(h, out, 10, &n, NULL), PL_OK);
    assert_int_equal(n, 10);
    for (size_t i = 1; i < n; i++) assert_true(out[i].time > out[i - 1].time);
    assert_true(out[0].loss == 2 && out[9].loss == 1 && out[9].step == 99 && out[3].peers == 4);
    history_close(h);
}

static void history_survives(void **state)
{
    char folder[] = "/tmp/potluck-history-XXXXXX", *path, *other;
    struct history_point p = { .time = 1, .loss = NAN }, out;
    struct history *h;
    struct pl_err err;
    size_t n;
    FILE *f;
    assert_non_null(mkdtemp(folder));
    path = pl_path_join(folder, "h.db");
    other = pl_path_join(folder, "text");
    assert_int_equal(history_open(&h, path, "a run", NULL), PL_OK);
    assert_int_equal(history_add(h, &p, NULL), PL_OK);
    assert_int_equal(history_prune(h, NULL), PL_OK);
    history_close(h);
    assert_int_equal(history_open(&h, path, "a run", NULL), PL_OK);
    assert_int_equal(history_points(h, &out, 1, &n, NULL), PL_OK);
    assert_int_equal(n, 1);
    assert_true(isnan(out.loss));
    history_close(h);
    assert_int_equal(history_open(&h, path, "another", &err), PL_EUSE);
    assert_non_null(strstr(err.text, "'a run', not of 'another'"));
    f = fopen(other, "w");
    for (int i = 0; i < 100; i++) fputs("this is no database at all; ", f);
    fclose(f);
    assert_int_equal(history_open(&h, other, "a run", &err), PL_EFORMAT);
    assert_null(h);
    assert_int_equal(history_open(&h, "/no/such/folder/h.db", "r", &err), PL_EIO);
    unlink(path);
    unlink(other);
    rmdir(folder);
    free(path);
    free(other);
}

/* A count that begins anew adds all that it shows: n += x >= last ? x - last : x. */
static void accounts_grow_by_the_peers_own_counts(void **state)
{
    struct history *h;
    struct history_account a;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    assert_int_equal(history_report(h, "k", "", 100, 5, 30, 2, NULL), PL_OK);
    assert_int_equal(history_count(h, "k", 20, 4, NULL), PL_OK); /* fewer than were reported */
    a = account_of(h, "k");
    assert_int_equal(a.samples, 30);
    assert_true(a.seconds == 4);
    history_count(h, "k", 20, 4, NULL); /* the same again */
    assert_int_equal(account_of(h, "k").samples, 30);
    history_count(h, "k", 50, 3, NULL); /* more; a time that runs backwards counts nothing */
    a = account_of(h, "k");
    assert_int_equal(a.samples, 60);
    assert_true(a.seconds == 4);
    history_count(h, "k", 8, 1, NULL); /* it has begun anew */
    a = account_of(h, "k");
    assert_int_equal(a.samples, 68);
    assert_true(a.seconds == 5);
    history_report(h, "k", "", 110, 6, 1000, 2, NULL); /* reports count no samples any more */
    a = account_of(h, "k");
    assert_int_equal(a.samples, 68);
    assert_true(a.seconds == 5);
    history_count(h, "unknown", 8, 1, NULL);
    assert_int_equal(account_of(h, "unknown").samples, -1);
    history_report(h, "late", "", 100, 5, 30, 2, NULL);
    history_count(h, "late", 900, 90, NULL); /* its work before we saw it */
    assert_int_equal(account_of(h, "late").samples, 900);
    history_close(h);
}

static void totals_outlive_the_peers(void **state)
{
    const int64_t first[] = { 1, 2, 3, 4, 5, 6 }, more[] = { 11, 22, 33, 44, 55, 66 },
                  anew[] = { 10, 22, 34, 1, 55, 67 }, other[] = { 100, 200, 300, 400, 500, 600 },
                  sum[] = { 11 + 10, 22, 34, 44 + 1, 55, 67 },
                  huge[] = { INT64_MAX, 0, 0, 0, 0, 0 };
    int64_t total[HISTORY_COUNTS];
    struct history *h;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    assert_int_equal(history_totals(h, total, NULL), PL_OK);
    for (int i = 0; i < HISTORY_COUNTS; i++) assert_int_equal(total[i], 0);
    assert_int_equal(history_tally(h, "k", first, NULL), PL_OK);
    assert_int_equal(history_tally(h, "k", more, NULL), PL_OK);
    assert_int_equal(history_totals(h, total, NULL), PL_OK);
    for (int i = 0; i < HISTORY_COUNTS; i++) assert_int_equal(total[i], more[i]);
    history_tally(h, "k", anew, NULL); /* the first and the fourth have begun anew */
    history_tally(h, "other", other, NULL);
    history_totals(h, total, NULL);
    for (int i = 0; i < HISTORY_COUNTS; i++) assert_int_equal(total[i], sum[i] + other[i]);
    history_tally(h, "wild", huge, NULL);
    assert_int_equal(history_totals(h, total, NULL), PL_OK);
    assert_int_equal(total[0], INT64_MAX);
    assert_int_equal(total[1], sum[1] + other[1]);
    history_close(h);
}

/* Means of measured values, the latest of values that only grow. */
static void a_point_has_all_columns(void **state)
{
    const struct history_point p[] = { { 10, 1, 1, 100, 4, 2, 8, 1000, 1 },
                                       { 20, 2, 2, 200, 2, NAN, 6, 3000, 2 } };
    struct history_point out[2];
    struct history *h;
    size_t n;
    int64_t points, keys;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(history_add(h, &p[i], NULL), PL_OK);
    assert_int_equal(history_points(h, out, 2, &n, NULL), PL_OK);
    assert_int_equal(n, 2);
    assert_memory_equal(&out[0], &p[0], sizeof p[0]);
    assert_true(isnan(out[1].samples_per_second) && out[1].held_out == 6 && out[1].sent == 3000);
    assert_int_equal(history_points(h, out, 1, &n, NULL), PL_OK);
    assert_int_equal(n, 1);
    assert_true(out->time == 15 && out->loss == 3 && out->held_out == 7);
    assert_true(out->samples_per_second == 2); /* of those that have one */
    assert_int_equal(out->peers, 2);           /* 1.5 */
    assert_true(out->step == 2 && out->samples == 200 && out->sent == 3000 && out->failed == 2);
    history_report(h, "k", "", 1, 1, 1, 1, NULL);
    assert_int_equal(history_sizes(h, &points, &keys, NULL), PL_OK);
    assert_int_equal(points, 2);
    assert_int_equal(keys, 1);
    history_close(h);
}

/* The most samples first, equal ones by key; a name has at most HISTORY_KEY_MAX characters. */
static void leaderboard_is_sorted(void **state)
{
    char name[HISTORY_KEY_MAX + 3];
    struct history_account out[3];
    struct history *h;
    size_t n;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    history_report(h, "b", "", 7, 1, 5, 1, NULL);
    history_report(h, "a", "", 7, 1, 5, 1, NULL);
    history_report(h, name, name, 7, 1, 6, 2, NULL);
    history_report(h, "less", "", 7, 1, 4, 1, NULL);
    assert_int_equal(history_board(h, out, 3, &n, NULL), PL_OK);
    assert_int_equal(n, 3);
    assert_int_equal(strlen(out[0].key), HISTORY_KEY_MAX);
    assert_int_equal(strlen(out[0].peer), HISTORY_KEY_MAX);
    assert_true(out[0].seconds == 3);
    assert_string_equal(out[1].key, "a");
    assert_string_equal(out[2].key, "b");
    assert_int_equal(history_board(h, out, 1, &n, NULL), PL_OK); /* each question begins anew */
    assert_int_equal(strlen(out[0].key), HISTORY_KEY_MAX);
    history_close(h);
}

/* The oldest points go; of the keys, those with the fewest samples, and among those the ones that were seen longest ago. */
static void what_is_too_much_goes(void **state)
{
    const int64_t one[HISTORY_COUNTS] = { 1 };
    struct history_point p = { .peers = 1 };
    struct history_span_point point;
    struct history *h;
    char key[16];
    int64_t points, keys, total[HISTORY_COUNTS];
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    history_begin(h, NULL);
    for (int i = 0; i < HISTORY_POINTS_MAX + 2; i++) {
        p.time = p.step = i;
        history_add(h, &p, NULL);
    }
    for (int i = 0; i < HISTORY_SPANS_MAX + 2; i++)
        if (!i) history_report(h, "0", "", 9, 1, 5, 1, NULL);
        else history_spend(h, "0", i, (int64_t[HISTORY_SPANS]){ i }, NULL);
    for (int i = 0; i < HISTORY_KEYS_MAX + 2; i++) { /* key 1 has fewer samples; key 2 is older */
        snprintf(key, sizeof key, "%d", i);
        history_report(h, key, "", i == 2 ? 5 : 9, 1, i == 1 ? 3 : 4, 1, NULL);
        history_tally(h, key, one, NULL);
    }
    assert_int_equal(history_commit(h, NULL), PL_OK);
    assert_int_equal(history_prune(h, NULL), PL_OK);
    history_sizes(h, &points, &keys, NULL);
    assert_int_equal(points, HISTORY_POINTS_MAX);
    assert_int_equal(keys, HISTORY_KEYS_MAX);
    history_points(h, &p, 1, &(size_t){ 0 }, NULL);
    assert_float_equal(p.time, 2 + (HISTORY_POINTS_MAX - 1) / 2.0,
                       1e-6); /* the mean of those left */
    history_spans(h, &point, 1, &(size_t){ 0 }, NULL);
    assert_true(point.time == HISTORY_SPANS_MAX / HISTORY_SPAN_POINTS + 2); /* 2 is the first */
    assert_int_equal(history_count(h, "1", 1000000, 1, NULL), PL_OK);
    assert_int_equal(history_count(h, "2", 1000000, 1, NULL), PL_OK);
    history_count(h, "3", 500000, 1, NULL);
    assert_int_equal(account_of(h, "1").samples, -1);
    assert_int_equal(account_of(h, "2").samples, -1);
    assert_int_equal(account_of(h, "3").samples, 500000);
    history_totals(h, total, NULL);
    assert_int_equal(total[0], HISTORY_KEYS_MAX);
    history_close(h);
}

/* Of the keys with the most samples; a row for each change; the last one of its part of the time. */
static void spans_are_of_the_first_keys(void **state)
{
    struct history_span_point out[100];
    struct history *h;
    char key[16];
    size_t n;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    for (int i = 0; i <= HISTORY_SPAN_KEYS; i++) {
        snprintf(key, sizeof key, "k%02d", i);
        history_report(h, key, "", 1, 1, 100 - i, 1, NULL);
    }
    for (int t = 0; t < 600; t++) {
        const int64_t ms[HISTORY_SPANS] = { t, 2 * t, 3 * t, 4 * (t / 300) };
        assert_int_equal(history_spend(h, "k03", t, ms, NULL), PL_OK);
        assert_int_equal(history_spend(h, "k24", t, ms, NULL), PL_OK); /* one too many */
        assert_int_equal(history_spend(h, "k05", t, (int64_t[HISTORY_SPANS]){ t >= 300 }, NULL),
                         PL_OK);
    }
    assert_int_equal(history_spans(h, out, 100, &n, NULL), PL_OK);
    assert_int_equal(n, HISTORY_SPAN_POINTS + 2);
    for (size_t i = 0; i < HISTORY_SPAN_POINTS; i++) {
        const int64_t *ms = out[i].ms;
        assert_string_equal(out[i].key, "k03");
        assert_true(!i || out[i].time > out[i - 1].time);
        assert_true((double)ms[SPAN_COMPUTED] == out[i].time);
        assert_int_equal(ms[SPAN_WAITED], 2 * ms[SPAN_COMPUTED]);
        assert_int_equal(ms[SPAN_AVERAGED], 3 * ms[SPAN_COMPUTED]);
        assert_int_equal(ms[SPAN_SHARED], 4 * (ms[SPAN_COMPUTED] / 300));
    }
    assert_true(out[HISTORY_SPAN_POINTS - 1].time == 599);
    assert_true(out[HISTORY_SPAN_POINTS].time == 0 && out[HISTORY_SPAN_POINTS + 1].time == 300);
    assert_string_equal(out[HISTORY_SPAN_POINTS + 1].key, "k05");
    assert_int_equal(history_spans(h, out, 3, &n, NULL), PL_OK);
    assert_int_equal(n, 3);
    history_close(h);
}

/* --- files of other versions ------------------------------------------------------------------ */

/* Changes the file as another program would. */
static void change(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void files_of_other_versions(void **state)
{
    static const char v5[] = "ALTER TABLE account ADD COLUMN steps INTEGER NOT NULL DEFAULT 0;"
                             "PRAGMA user_version = 5;";
    static const char v4[] = "DROP TABLE lane; PRAGMA user_version = 4;";
    static const char v3[] = "ALTER TABLE account DROP COLUMN name; PRAGMA user_version = 3;";
    static const char v2[] = "ALTER TABLE account DROP COLUMN counted;"
                             "ALTER TABLE account DROP COLUMN counted_s; PRAGMA user_version = 2;";
    static const char v1[] =
        "DROP TABLE tally; ALTER TABLE point DROP COLUMN held_out;"
        "ALTER TABLE point DROP COLUMN sent; ALTER TABLE point DROP COLUMN failed;"
        "PRAGMA user_version = 1;";
    static const char *const older[][5] = { { v5, "", "", "", "" },
                                            { v5, v4, "", "", "" },
                                            { v5, v4, v3, "", "" },
                                            { v5, v4, v3, v2, "" },
                                            { v5, v4, v3, v2, v1 } };
    char folder[] = "/tmp/potluck-history-XXXXXX", *path;
    const struct history_point p = { .time = 1, .loss = 3 };
    struct history *h;
    struct pl_err err;
    assert_non_null(mkdtemp(folder));
    path = pl_path_join(folder, "h.db");
    assert_int_equal(history_open(&h, path, "a run", NULL), PL_OK);
    assert_int_equal(history_report(h, "k", "", 1, 1, 7, 1, NULL), PL_OK);
    history_close(h);
    for (size_t i = 0; i < PL_COUNT(older); i++) {
        for (int k = 0; k < 5; k++) change(path, older[i][k]);
        assert_int_equal(history_open(&h, path, "a run", &err), PL_OK);
        assert_int_equal(account_of(h, "k").samples, 7); /* accounts of the old file stay */
        assert_int_equal(history_add(h, &p, NULL), PL_OK);
        assert_int_equal(history_count(h, "k", 7, 7, NULL), PL_OK);
        assert_int_equal(history_spend(h, "k", 7, (int64_t[HISTORY_SPANS]){ 7 }, NULL), PL_OK);
        history_close(h);
        assert_int_equal(history_open(&h, path, "a run", &err), PL_OK); /* once is enough */
        history_close(h);
    }
    change(path, "PRAGMA user_version = 7");
    assert_int_equal(history_open(&h, path, "a run", &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "version 7, expected 6"));
    change(path, "PRAGMA user_version = 0");
    assert_int_equal(history_open(&h, path, "a run", &err), PL_EFORMAT);
    change(path, "PRAGMA user_version = 6; PRAGMA application_id = 7");
    assert_int_equal(history_open(&h, path, "a run", &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "not a history database of a run"));
    unlink(path);
    rmdir(folder);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts_count_a_step_once),
        cmocka_unit_test(accounts_grow_by_the_peers_own_counts),
        cmocka_unit_test(totals_outlive_the_peers),
        cmocka_unit_test(points_are_means_of_their_time),
        cmocka_unit_test(a_point_has_all_columns),
        cmocka_unit_test(leaderboard_is_sorted),
        cmocka_unit_test(what_is_too_much_goes),
        cmocka_unit_test(spans_are_of_the_first_keys),
        cmocka_unit_test(history_survives),
        cmocka_unit_test(files_of_other_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
