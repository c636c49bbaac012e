/* history.c - what a run's page remembers: points of the curve, accounts of keys, totals, and the file that holds them. */
#include "net/http/dashboard/history.h"
#include "data/files/file.h"
#include "test/unit/unit.h"

#include <math.h>
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
    assert_int_equal(a.steps, 1);
    assert_string_equal(a.peer, "Qm");
    history_report(h, "k", "", 130, 4, 1000, 2, NULL); /* an older one */
    history_report(h, "k", "", 140, 6, 10, 0, NULL);   /* no speed: no time */
    a = account_of(h, "k");
    assert_int_equal(a.samples, 60);
    assert_true(a.seconds == 25);
    assert_int_equal(a.steps, 2);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts_count_a_step_once),
        cmocka_unit_test(points_are_means_of_their_time),
        cmocka_unit_test(history_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
