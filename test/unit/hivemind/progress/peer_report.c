/* peer_report.c - the report of a potluck peer: written, read, refused; and the page's totals from
 * it, which outlive their peers, also in files of the previous version. */
#include "net/http/dashboard/dashboard.h"
#include "net/http/dashboard/feeds.h"
#include "net/hivemind/records/validate.h"
#include "test/unit/unit.h"

#include <math.h>
#include <sqlite3.h>
#include <unistd.h>

static const struct report_record sample = { .version = "potluck 0.1.0",
                                             .device = "cuda: some card, sm_90",
                                             .name = "Anna's laptop",
                                             .banned = 3,
                                             .target_batch = 4096,
                                             .samples = 123456,
                                             .computed_ms = 789,
                                             .waited_ms = 55,
                                             .averaged_ms = 66,
                                             .shared_ms = 77,
                                             .reachability = REPORT_RELAYED,
                                             .rounds = 12,
                                             .failed = 2,
                                             .retried = 1,
                                             .sent = 1000,
                                             .received = 900,
                                             .uncompressed = 3900,
                                             .held_out = 2.5 };

static void there_and_back(void **state)
{
    struct bytes b = { 0 }, more = { 0 };
    struct report_record r;
    struct pl_err err;
    assert_int_equal(report_write(&b, &sample), PL_OK);
    assert_int_equal(report_read(&r, bytes_at(&b), bytes_length(&b), &err), PL_OK);
    assert_memory_equal(&r, &sample, sizeof r);
    /* A field of a later version is nobody's trouble; one that is missing is. */
    mp_map(&more, schema_report.count + 10);                  /* nine came later than the schema */
    bytes_add(&more, bytes_at(&b) + 3, bytes_length(&b) - 3); /* behind the map's head */
    mp_text(&more, "new");
    mp_nil(&more);
    assert_int_equal(report_read(&r, bytes_at(&more), bytes_length(&more), &err), PL_OK);
    assert_int_equal(r.failed, 2);
    bytes_clear(&more);
    /* The page does without the later ones, and with nonsense in them. */
    mp_map(&more, schema_report.count + 4);
    mp_text(&more, "name");
    mp_int(&more, 3);
    mp_text(&more, "target_batch");
    mp_text(&more, "many");
    mp_text(&more, "device");
    mp_int(&more, 7);
    mp_text(&more, "banned");
    mp_int(&more, -1);
    mp_text(&more, "version");
    mp_bin(&more, "x", 1);
    for (size_t i = 1; i + 1 < schema_report.count; i++) {
        mp_text(&more, schema_report.fields[i].name);
        mp_int(&more, 1);
    }
    mp_text(&more, schema_report.fields[schema_report.count - 1].name);
    mp_float(&more, 1);
    assert_int_equal(report_read(&r, bytes_at(&more), bytes_length(&more), &err), PL_OK);
    assert_string_equal(r.device, "");
    assert_string_equal(r.name, "");
    assert_int_equal(r.banned, 0);
    assert_int_equal(r.target_batch, 0);
    bytes_clear(&more);
    mp_map(&more, 1);
    mp_text(&more, "version");
    mp_bin(&more, "x", 1);
    assert_int_equal(report_read(&r, bytes_at(&more), bytes_length(&more), &err), PL_EPROTO);
    assert_non_null(strstr(err.text, "reach"));
    bytes_clear(&more);
    bytes_clear(&b);
}

static void invalid_report_fields_are_replaced(void **state)
{
    struct report_record r = sample, back;
    struct bytes b = { 0 };
    memcpy(r.version, "\xff<b>\n", 6);
    memset(r.name, '\x80', sizeof r.name - 1);
    r.reachability = (enum report_reachability)
        REPORT_REACHABILITIES; /* the first that there is not */
    r.held_out = NAN;
    assert_int_equal(report_write(&b, &r), PL_OK);
    assert_int_equal(report_read(&back, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
    assert_string_equal(back.version, "?<b>?");
    assert_string_equal(back.name, "????????????????????????");
    assert_int_equal(back.reachability, REPORT_UNKNOWN);
    assert_true(isnan(back.held_out));
    bytes_clear(&b);
}

/* Under its key only signed ones are taken: the page would believe anybody otherwise. */
static void devices_are_cut_between_clauses(void **state)
{
    char device[REPORT_DEVICE_MAX + 1];
    (void)state;
    report_device(device, "AVX-512, 8 threads");
    assert_string_equal(device, "AVX-512, 8 threads");
    report_device(device, "a processor with forty-two letters in its name, and 128 threads, and 9");
    assert_string_equal(device, "a processor with forty-two letters in its name");
    report_device(device,
                  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    assert_int_equal(strlen(device), REPORT_DEVICE_MAX);
}

static void unsigned_ones_are_refused(void **state)
{
    struct validators v = { 0 };
    struct bytes value = { 0 }, subkey = { 0 }, full = { 0 };
    struct rsa_key key = { 0 };
    struct record r;
    struct dht_id id;
    struct pl_err err;
    assert_int_equal(validators_add_run(&v, "run"), PL_OK);
    assert_int_equal(rsa_key_make(&key, &err), PL_OK);
    assert_int_equal(dht_id_of_text(&id, "run_report"), PL_OK);
    assert_int_equal(report_write(&value, &sample), PL_OK);
    mp_text(&subkey, "somebody");
    r = (struct record){ id.bytes,
                         bytes_at(&subkey),
                         bytes_at(&value),
                         sizeof id.bytes,
                         bytes_length(&subkey),
                         bytes_length(&value),
                         1e9 };
    assert_int_equal(record_check(&v, &r, &err), PL_EPROTO);
    bytes_clear(&subkey);
    assert_int_equal(record_own_subkey(&subkey, &key), PL_OK);
    r.subkey = bytes_at(&subkey);
    r.subkey_n = bytes_length(&subkey);
    assert_int_equal(record_check(&v, &r, &err), PL_EPROTO); /* the tag without a signature */
    v.key = &key;
    assert_int_equal(record_sign(&full, &v, &r), PL_OK);
    r.value = bytes_at(&full);
    r.n = bytes_length(&full);
    assert_int_equal(record_check(&v, &r, &err), PL_OK);
    bytes_clear(&full);
    bytes_clear(&subkey);
    bytes_clear(&value);
    rsa_key_clear(&key);
}

/* --- history ---------------------------------------------------------------------------------- */

static void counts_outlive_their_peers(void **state)
{
    int64_t first[HISTORY_COUNTS] = { 5, 1, 0, 100, 90, 400 }, total[HISTORY_COUNTS];
    struct history *h;
    assert_int_equal(history_open(&h, NULL, "r", NULL), PL_OK);
    assert_int_equal(history_tally(h, "a", first, NULL), PL_OK);
    assert_int_equal(history_tally(h, "b", first, NULL), PL_OK);
    first[COUNT_SENT] = 150;
    assert_int_equal(history_tally(h, "a", first, NULL), PL_OK); /* 50 more */
    assert_int_equal(history_totals(h, total, NULL), PL_OK);
    assert_int_equal(total[COUNT_SENT], 250);
    assert_int_equal(total[COUNT_ROUNDS], 10);
    first[COUNT_SENT] = 30; /* begun anew */
    assert_int_equal(history_tally(h, "a", first, NULL), PL_OK);
    assert_int_equal(history_totals(h, total, NULL), PL_OK);
    assert_int_equal(total[COUNT_SENT], 280);
    assert_int_equal(total[COUNT_FAILED], 2);
    assert_int_equal(history_prune(h, NULL), PL_OK);
    history_close(h);
}

static struct history_account account(struct history *h)
{
    struct history_account a[2];
    size_t n;
    assert_int_equal(history_board(h, a, 2, &n, NULL), PL_OK);
    assert_int_equal(n, 1);
    return a[0];
}

/* The board shows the samples that a peer counts itself, however few of its steps the page has
 * seen; a page that begins again with the same file, and a peer that begins again, lose nothing and
 * count nothing twice. */
static void a_peers_own_count_is_its_account(void **state)
{
    char path[] = "/tmp/potluck-count-XXXXXX";
    struct history *h;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(history_open(&h, path, "r", NULL), PL_OK);
    assert_int_equal(history_report(h, "a", "", 100, 5, 16, 2, NULL), PL_OK);
    assert_int_equal(account(h).samples, 16);
    assert_int_equal(history_count(h, "a", 80, 40, NULL), PL_OK); /* five steps, one of them seen */
    assert_int_equal(account(h).samples, 80);
    assert_true(account(h).seconds == 40);
    assert_int_equal(history_report(h, "a", "", 110, 9, 16, 2, NULL), PL_OK);
    assert_int_equal(history_count(h, "a", 144, 72, NULL), PL_OK);
    assert_int_equal(history_count(h, "a", 144, 72, NULL), PL_OK);
    assert_int_equal(account(h).samples, 144);
    history_close(h);
    assert_int_equal(history_open(&h, path, "r", NULL), PL_OK); /* the page begins again */
    assert_int_equal(history_report(h, "a", "", 120, 12, 16, 2, NULL), PL_OK);
    assert_int_equal(history_count(h, "a", 192, 96, NULL), PL_OK);
    assert_int_equal(account(h).samples, 192);
    assert_true(account(h).seconds == 96);
    assert_int_equal(history_count(h, "a", 16, 8, NULL), PL_OK); /* the peer has begun again */
    assert_int_equal(account(h).samples, 208);
    assert_int_equal(history_count(h, "a", 32, 16, NULL), PL_OK);
    assert_int_equal(account(h).samples, 224);
    assert_true(account(h).seconds == 112);
    history_close(h);
    unlink(path);
}

static void version_1_is_taken_over(void **state)
{
    char path[] = "/tmp/potluck-report-XXXXXX";
    struct history_point p[2];
    struct history *h;
    sqlite3 *db;
    size_t n;
    int64_t total[HISTORY_COUNTS], count[HISTORY_COUNTS] = { 1, 1, 1, 1, 1, 1 };
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TABLE run (name TEXT NOT NULL); INSERT INTO run VALUES "
                                  "('r');"
                                  "CREATE TABLE point (time REAL NOT NULL, step INTEGER NOT NULL, "
                                  "peers INTEGER NOT NULL,"
                                  " samples INTEGER NOT NULL, loss REAL, rate REAL); INSERT INTO "
                                  "point VALUES (1, 2, 3, 4, 5, 6);"
                                  "CREATE TABLE account (key TEXT PRIMARY KEY, peer TEXT NOT NULL, "
                                  "samples INTEGER NOT NULL, steps INTEGER NOT NULL,"
                                  " last_step INTEGER NOT NULL, seconds REAL NOT NULL, first REAL "
                                  "NOT NULL, last REAL NOT NULL, part INTEGER NOT NULL,"
                                  " part_s REAL NOT NULL) WITHOUT ROWID; PRAGMA application_id = "
                                  "1886352492; PRAGMA user_version = 1;",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(history_open(&h, path, "r", NULL), PL_OK);
        assert_int_equal(history_points(h, p, 2, &n, NULL), PL_OK);
        assert_int_equal(n, 1);
        assert_true(p[0].loss == 5 && isnan(p[0].held_out));
        assert_int_equal(history_tally(h, "a", count, NULL), PL_OK);
        assert_int_equal(history_report(h, "a", "", 1, 1, 4, 1, NULL), PL_OK);
        assert_int_equal(history_count(h, "a", 9, 1, NULL), PL_OK);
        assert_int_equal(account(h).samples, 9);
        assert_string_equal(account(h).name, again ? "Anna" : "");
        assert_int_equal(history_name(h, "a", "Anna", NULL), PL_OK);
        history_close(h);
    }
    assert_int_equal(history_open(&h, path, "r", NULL), PL_OK);
    assert_int_equal(history_totals(h, total, NULL), PL_OK);
    assert_int_equal(total[0], 1);
    history_close(h);
    unlink(path);
}

/* --- the page --------------------------------------------------------------------------------- */

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static void dashboard_shows_reports(void **state)
{
    struct dashboard_metrics m[] = { { .key = "aa", .record = { 3, 2, 10, 4, 2 } },
                                     { .key = "bb", .record = { 3, 1, 10, 4, 2 } } };
    struct dashboard_report r[] = { { "bb", sample }, { "nobody", sample } };
    struct dashboard_snapshot snapshot = { .time = 1000,
                                           .metrics = m,
                                           .metrics_count = 2,
                                           .report = r,
                                           .report_count = 2,
                                           .searching = 2 };
    struct dashboard_options o = { .run = "r", .target_batch = 100 };
    char folder[] = "/tmp/potluck-report-XXXXXX", path[100], command[100];
    struct dashboard *d;
    json_t *now, *peers, *rounds;
    m[0].expiration = m[1].expiration = 1600;
    r[1].record.sent = INT64_MAX; /* no peer of this run: does not count */
    assert_non_null(mkdtemp(folder));
    assert_int_equal(dashboard_open(&d, NULL, &o, NULL), PL_OK);
    assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    r[0].record.sent = INT64_MAX; /* a claim is bounded */
    snapshot.time += 20;
    assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    r[0].record.sent = 1000;
    snapshot.time += 20;
    assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    assert_int_equal(dashboard_export(d, folder, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/api/state.json", folder);
    now = json_load_file(path, 0, NULL);
    assert_true(number(now, "held_out") == 2.5 && number(now, "banned") == 3 &&
                number(now, "searching") == 2);
    assert_string_equal(json_string_value(json_object_get(now, "phase")), "matching");
    rounds = json_object_get(now, "rounds");
    assert_true(number(rounds, "good") == 12 && number(rounds, "failed") == 2 &&
                number(rounds, "retried") == 1);
    assert_true(number(rounds, "sent") >= 1000 &&
                number(rounds, "sent") <= 2.0 * HISTORY_COUNT_MAX);
    json_decref(now);
    snprintf(path, sizeof path, "%s/api/peers.json", folder);
    peers = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(peers), 2);
    assert_true(
        json_is_null(json_object_get(json_array_get(peers, 0), "version"))); /* aa is faster */
    assert_string_equal(json_string_value(
                            json_object_get(json_array_get(peers, 1), "reachability")),
                        "relayed");
    assert_string_equal(json_string_value(json_object_get(json_array_get(peers, 1), "device")),
                        sample.device);
    assert_string_equal(json_string_value(json_object_get(json_array_get(peers, 1), "called")),
                        sample.name);
    assert_true(json_is_null(json_object_get(json_array_get(peers, 0), "called")));
    assert_true(fabs(number(json_array_get(peers, 1), "compression") - 3.9) < 1e-9);
    json_decref(peers);
    snprintf(path, sizeof path, "%s/api/board.json", folder); /* also of those who have left */
    peers = json_load_file(path, 0, NULL);
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(peers, i);
        const char *called = json_string_value(json_object_get(one, "called"));
        if (strcmp(json_string_value(json_object_get(one, "key")), "bb")) assert_null(called);
        else assert_string_equal(called, sample.name);
    }
    json_decref(peers);
    dashboard_close(d);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(invalid_report_fields_are_replaced),
        cmocka_unit_test(devices_are_cut_between_clauses),
        cmocka_unit_test(unsigned_ones_are_refused),
        cmocka_unit_test(counts_outlive_their_peers),
        cmocka_unit_test(a_peers_own_count_is_its_account),
        cmocka_unit_test(version_1_is_taken_over),
        cmocka_unit_test(dashboard_shows_reports),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
