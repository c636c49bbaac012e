/* history.c - the run's history in SQLite: a curve, and the contributions of each key, for the
 * leaderboard.
 *
 *   point     one row for each update: time, step, loss, speed, ...; the oldest rows go first
 *   account   one row for each signing key: samples, seconds
 *             (counted: the peer's own count when it was last seen)
 *   tally     one row for each key: counts, which restart at 0 with the peer, as growing totals
 *   lane      rows for the keys with the most samples: the spans of time that each has spent
 *
 * A counter that a peer reports falls back to 0 when it restarts. So a total grows by the
 * difference to the last report, or by the whole new value if that is smaller:
 *
 *   n += x >= last ? x - last : x;  last = x
 *
 * Every value is bound as a parameter: no text of a peer ever becomes SQL. */
#include "history.h"

#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define APPLICATION 0x706f746c /* "potl": in the file's header, so that others' files are known */
#define VERSION 6

enum statement {
    ADD,
    REPORT,
    COUNT,
    NAME,
    TALLY,
    TOTALS,
    POINTS,
    BOARD,
    SIZES,
    SPEND,
    SPANS,
    PRUNE_SPANS,
    PRUNE_POINTS,
    PRUNE_KEYS,
    PRUNE_TALLIES,
    STATEMENTS
};

/* n += x >= last ? x - last : x; last = x. See above. */
#define GROWS(i) \
    "n" #i " = n" #i " + CASE WHEN ?" #i " >= l" #i " THEN ?" #i " - l" #i " ELSE ?" #i \
    " END, l" #i " = ?" #i

static const char *const sql[STATEMENTS] = {
    [ADD] = "INSERT INTO point (time, step, peers, samples, loss, rate, held_out, sent, failed) "
            "VALUES (?,?,?,?,?,?,?,?,?)",
    [TALLY] = "INSERT INTO tally VALUES (?7, ?1, ?2, ?3, ?4, ?5, ?6, ?1, ?2, ?3, ?4, ?5, ?6) "
              "ON CONFLICT (key) DO UPDATE SET " GROWS(1) ", " GROWS(2) ", " GROWS(3) ", " GROWS(
                  4) ", " GROWS(5) ", " GROWS(6),
    /* As reals: sums of integers that overflow are errors. */
    [TOTALS] = "SELECT total(n1), total(n2), total(n3), total(n4), total(n5), total(n6) FROM tally",
    /* The largest report of a step counts; `part` holds the samples already counted for the present
     * step. */
    [REPORT] =
        "INSERT INTO account (key, peer, samples, last_step, seconds, first, last, part, "
        "part_s) VALUES (?1, ?2, ?5, ?4, ?6, ?3, ?3, ?5, ?6) ON CONFLICT (key) DO UPDATE SET "
        "peer = CASE WHEN ?2 = '' THEN peer ELSE ?2 END, "
        "samples = samples + CASE WHEN counted > 0 THEN 0 WHEN ?4 > last_step THEN ?5 "
        "WHEN ?4 = last_step AND ?5 > part THEN ?5 - part ELSE 0 END, "
        "seconds = seconds + CASE WHEN counted > 0 THEN 0 WHEN ?4 > last_step THEN ?6 "
        "WHEN ?4 = last_step AND ?5 > part THEN max(0, ?6 - part_s) ELSE 0 END, "
        "part = CASE WHEN ?4 > last_step THEN ?5 WHEN ?4 = last_step THEN max(part, ?5) "
        "ELSE part END, "
        "part_s = CASE WHEN ?4 > last_step THEN ?6 WHEN ?4 = last_step THEN max(part_s, ?6) "
        "ELSE part_s END, last_step = max(last_step, ?4), last = max(last, ?3)",
    /* The first count of an account is all that the peer has done, seen by us or not. */
    [COUNT] = "UPDATE account SET "
              "samples = CASE WHEN counted = 0 THEN max(samples, ?2) "
              "WHEN ?2 >= counted THEN samples + ?2 - counted ELSE samples + ?2 END, "
              "seconds = CASE WHEN counted = 0 THEN ?3 "
              "WHEN ?2 >= counted THEN seconds + max(0, ?3 - counted_s) ELSE seconds + ?3 END, "
              "counted = ?2, counted_s = ?3 WHERE key = ?1",
    [NAME] = "UPDATE account SET name = ?2 WHERE key = ?1 AND name <> ?2",
    /* Buckets of equal time between the first and the last point, one row for each: a curve of
     * at most ?1 points, however long the run. */
    [POINTS] = "SELECT avg(time), max(step), avg(peers), max(samples), avg(loss), avg(rate), "
               "avg(held_out), max(sent), max(failed) FROM point, "
               "(SELECT min(time) AS t0, max(time) AS t1 FROM point) "
               "GROUP BY min(?1 - 1, CAST((time - t0) * ?1 / max(t1 - t0, 1e-9) AS INTEGER)) "
               "ORDER BY 1 LIMIT ?1",
    [BOARD] = "SELECT key, peer, samples, last_step, seconds, first, last, name FROM account "
              "ORDER BY samples DESC, key LIMIT ?",
    [SIZES] = "SELECT (SELECT count(*) FROM point), (SELECT count(*) FROM account)",
    [SPEND] = "INSERT INTO lane SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE ?1 IN "
              "(SELECT key FROM account ORDER BY samples DESC LIMIT ?7) AND NOT EXISTS "
              "(SELECT 1 FROM (SELECT * FROM lane WHERE key = ?1 ORDER BY time DESC LIMIT 1) "
              "WHERE computed = ?3 AND waited = ?4 AND averaged = ?5 AND shared = ?6)",
    /* Of each key's part of the whole time its last row: with max(), SQLite takes the other columns
     * from the row that has it. */
    [SPANS] = "SELECT key, max(time), computed, waited, averaged, shared FROM lane, "
              "(SELECT min(time) AS t0, max(time) AS t1 FROM lane) WHERE key IN "
              "(SELECT key FROM account ORDER BY samples DESC LIMIT ?2) "
              "GROUP BY key, min(?1 - 1, CAST((time - t0) * ?1 / max(t1 - t0, 1e-9) AS INTEGER)) "
              "ORDER BY 1, 2 LIMIT ?3",
    [PRUNE_SPANS] = "DELETE FROM lane WHERE rowid <= (SELECT max(rowid) FROM lane) - ?",
    [PRUNE_POINTS] = "DELETE FROM point WHERE rowid <= (SELECT max(rowid) FROM point) - ?",
    /* The least deserving first: few samples, seen long ago. */
    [PRUNE_KEYS] =
        "DELETE FROM account WHERE key IN (SELECT key FROM account ORDER BY samples DESC, "
        "last DESC LIMIT -1 OFFSET ?)",
    /* Tallies of keys without an account, so that there are never many: the samples that these keys
     * sent are removed with them. */
    [PRUNE_TALLIES] = "DELETE FROM tally WHERE key NOT IN (SELECT key FROM account) AND "
                      "(SELECT count(*) FROM tally) > ?",
};
/* What each version adds to the one before: a new file gets all of them. */
static const char *const schema[VERSION] = {
    "CREATE TABLE run (name TEXT NOT NULL);"
    "CREATE TABLE point (time REAL NOT NULL, step INTEGER NOT NULL, peers INTEGER NOT NULL,"
    " samples INTEGER NOT NULL, loss REAL, rate REAL);"
    "CREATE TABLE account (key TEXT PRIMARY KEY, peer TEXT NOT NULL, samples INTEGER NOT NULL,"
    " steps INTEGER NOT NULL, last_step INTEGER NOT NULL, seconds REAL NOT NULL, first REAL NOT "
    "NULL, last REAL NOT NULL, part INTEGER NOT NULL, part_s REAL NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX account_samples ON account (samples);",
    "ALTER TABLE point ADD COLUMN held_out REAL;ALTER TABLE point ADD COLUMN sent REAL;"
    "ALTER TABLE point ADD COLUMN failed REAL;"
    "CREATE TABLE tally (key TEXT PRIMARY KEY, n1 INTEGER NOT NULL, n2 INTEGER NOT NULL,"
    " n3 INTEGER NOT NULL, n4 INTEGER NOT NULL, n5 INTEGER NOT NULL, n6 INTEGER NOT NULL,"
    " l1 INTEGER NOT NULL, l2 INTEGER NOT NULL, l3 INTEGER NOT NULL, l4 INTEGER NOT NULL,"
    " l5 INTEGER NOT NULL, l6 INTEGER NOT NULL) WITHOUT ROWID;",
    "ALTER TABLE account ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE account ADD COLUMN counted_s REAL NOT NULL DEFAULT 0;",
    "ALTER TABLE account ADD COLUMN name TEXT NOT NULL DEFAULT '';",
    "CREATE TABLE lane (key TEXT NOT NULL, time REAL NOT NULL, computed INTEGER NOT NULL,"
    " waited INTEGER NOT NULL, averaged INTEGER NOT NULL, shared INTEGER NOT NULL);"
    "CREATE INDEX lane_time ON lane (key, time);",
    "ALTER TABLE account DROP COLUMN steps;", /* those that a poll has seen: no count of anything */
};

struct history {
    sqlite3 *db;
    sqlite3_stmt *statement[STATEMENTS];
    char *name; /* of the file, for sentences */
};

static int trouble(const struct history *h, struct pl_err *err)
{
    int code = sqlite3_errcode(h->db);
    int status = code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? PL_EFORMAT
                 : code == SQLITE_NOMEM                          ? PL_ENOMEM
                                                                 : PL_EIO;
    return pl_fail(err, status, "%s: %s", h->name, sqlite3_errmsg(h->db));
}

static int run(const struct history *h, const char *text, struct pl_err *err)
{
    return sqlite3_exec(h->db, text, NULL, NULL, NULL) == SQLITE_OK ? PL_OK : trouble(h, err);
}

/* One integer of a pragma; -1: it could not be asked. */
static int64_t pragma(const struct history *h, const char *text)
{
    sqlite3_stmt *s;
    int64_t value = -1;
    if (sqlite3_prepare_v2(h->db, text, -1, &s, NULL) != SQLITE_OK) return -1;
    if (sqlite3_step(s) == SQLITE_ROW) value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return value;
}

/* From version `from` to the present one, all or nothing; 0: a new file, of this run. */
static int upgrade(const struct history *h, int64_t from, const char *run_name, struct pl_err *err)
{
    char *name = sqlite3_mprintf("INSERT INTO run VALUES (%Q); PRAGMA application_id = %d;",
                                 run_name, APPLICATION),
         *version = sqlite3_mprintf("PRAGMA user_version = %d; COMMIT;", VERSION);
    int rc = name && version ? run(h, "BEGIN;", err)
                             : pl_fail(err, PL_ENOMEM, "%s: out of memory", h->name);
    for (int64_t i = from; !rc && i < VERSION; i++) rc = run(h, schema[i], err);
    if (!rc && !from) rc = run(h, name, err);
    if (!rc) rc = run(h, version, err);
    sqlite3_free(name);
    sqlite3_free(version);
    return rc;
}

static int same_run(const struct history *h, const char *run_name, struct pl_err *err)
{
    sqlite3_stmt *s;
    const char *there;
    int rc;
    if (sqlite3_prepare_v2(h->db, "SELECT name FROM run", -1, &s, NULL) != SQLITE_OK)
        return trouble(h, err);
    there = sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    rc = there && !strcmp(there, run_name)
             ? PL_OK
             : pl_fail(err, PL_EUSE, "%s: holds the history of run '%.60s', not of '%.60s'",
                       h->name, there ? there : "", run_name);
    sqlite3_finalize(s);
    return rc;
}

/* A new file, ours, or a refusal. */
static int prepare_file(const struct history *h, const char *run_name, struct pl_err *err)
{
    int64_t application = pragma(h, "PRAGMA application_id"),
            version = pragma(h, "PRAGMA user_version");
    int64_t tables = pragma(h, "SELECT count(*) FROM sqlite_schema");
    int rc;
    if (application < 0 || tables < 0) return trouble(h, err);
    if (!tables) return upgrade(h, 0, run_name, err);
    if (application != APPLICATION)
        return pl_fail(err, PL_EFORMAT, "%s: not a history database of a run", h->name);
    if (version < 1 || version > VERSION)
        return pl_fail(err, PL_EFORMAT, "%s: history of version %lld, expected %d", h->name,
                       (long long)version, VERSION);
    if ((rc = same_run(h, run_name, err))) return rc;
    return version < VERSION ? upgrade(h, version, run_name, err) : PL_OK;
}

int history_open(struct history **out, const char *path, const char *run_name, struct pl_err *err)
{
    struct history *h = calloc(1, sizeof *h);
    int rc = PL_OK;
    *out = NULL;
    if (!h || !(h->name = strdup(path ? path : "history"))) {
        free(h);
        return pl_fail(err, PL_ENOMEM, "history: out of memory");
    }
    if (sqlite3_open(path ? path : ":memory:", &h->db) != SQLITE_OK)
        rc = h->db ? trouble(h, err) : pl_fail(err, PL_ENOMEM, "history: out of memory");
    if (!rc) sqlite3_busy_timeout(h->db, 2000);
    if (!rc) rc = prepare_file(h, run_name, err);
    /* A point lost in a power cut does no harm; a page that waits for the disk does. */
    if (!rc)
        rc = run(
            h, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -4000;",
            err);
    for (int i = 0; !rc && i < STATEMENTS; i++)
        if (sqlite3_prepare_v2(h->db, sql[i], -1, &h->statement[i], NULL) != SQLITE_OK)
            rc = trouble(h, err);
    if (rc) history_close(h);
    else *out = h;
    return rc;
}

void history_close(struct history *h)
{
    if (!h) return;
    for (int i = 0; i < STATEMENTS; i++) sqlite3_finalize(h->statement[i]);
    sqlite3_close(h->db);
    free(h->name);
    free(h);
}

int history_begin(struct history *h, struct pl_err *err) { return run(h, "BEGIN", err); }

int history_commit(struct history *h, struct pl_err *err)
{
    int rc = run(h, "COMMIT", err);
    if (rc) run(h, "ROLLBACK", NULL);
    return rc;
}

/* Runs a statement that returns no rows. format: one letter for each parameter, t text, i int64_t,
 * r double. SQLite stores NaN as NULL. */
static int put(struct history *h, enum statement which, struct pl_err *err, const char *format, ...)
{
    sqlite3_stmt *s = h->statement[which];
    va_list list;
    int rc;
    va_start(list, format);
    for (int i = 0; format[i]; i++)
        if (format[i] == 't')
            sqlite3_bind_text(s, i + 1, va_arg(list, const char *), -1, SQLITE_STATIC);
        else if (format[i] == 'i') sqlite3_bind_int64(s, i + 1, va_arg(list, int64_t));
        else sqlite3_bind_double(s, i + 1, va_arg(list, double));
    va_end(list);
    rc = sqlite3_step(s) == SQLITE_DONE ? PL_OK : trouble(h, err);
    sqlite3_reset(s);
    return rc;
}

int history_add(struct history *h, const struct history_point *p, struct pl_err *err)
{
    return put(h, ADD, err, "riiirrrrr", p->time, p->step, p->peers, p->samples, p->loss,
               p->samples_per_second, p->held_out, p->sent, p->failed);
}

int history_tally(struct history *h, const char *key, const int64_t count[HISTORY_COUNTS],
                  struct pl_err *err)
{
    return put(h, TALLY, err, "iiiiiit", count[0], count[1], count[2], count[3], count[4], count[5],
               key);
}

int history_totals(struct history *h, int64_t total[HISTORY_COUNTS], struct pl_err *err)
{
    sqlite3_stmt *s = h->statement[TOTALS];
    int rc = sqlite3_step(s) == SQLITE_ROW ? PL_OK : trouble(h, err);
    for (int i = 0; i < HISTORY_COUNTS; i++) {
        double x = rc ? 0 : sqlite3_column_double(s, i);
        total[i] = x < 9e18 ? (int64_t)x : INT64_MAX;
    }
    sqlite3_reset(s);
    return rc;
}

int history_report(struct history *h, const char *key, const char *peer, double time, int64_t step,
                   int64_t samples, double samples_per_second, struct pl_err *err)
{
    double seconds = samples_per_second > 0 ? (double)samples / samples_per_second : 0;
    return put(h, REPORT, err, "ttriir", key, peer, time, step, samples, seconds);
}

int history_count(struct history *h, const char *key, int64_t samples, double seconds,
                  struct pl_err *err)
{
    return put(h, COUNT, err, "tir", key, samples, seconds);
}

int history_name(struct history *h, const char *key, const char *name, struct pl_err *err)
{
    return put(h, NAME, err, "tt", key, name);
}

int history_prune(struct history *h, struct pl_err *err)
{
    int rc = put(h, PRUNE_POINTS, err, "i", (int64_t)HISTORY_POINTS_MAX);
    if (!rc) rc = put(h, PRUNE_SPANS, err, "i", (int64_t)HISTORY_SPANS_MAX);
    if (!rc) rc = put(h, PRUNE_KEYS, err, "i", (int64_t)HISTORY_KEYS_MAX);
    return rc ? rc : put(h, PRUNE_TALLIES, err, "i", (int64_t)HISTORY_KEYS_MAX);
}

/* step: of the last one. */
static int end_rows(const struct history *h, sqlite3_stmt *s, int step, struct pl_err *err)
{
    int rc = step == SQLITE_DONE || step == SQLITE_ROW ? PL_OK : trouble(h, err);
    sqlite3_reset(s);
    return rc;
}

static double real_or_nan(sqlite3_stmt *s, int column)
{
    return sqlite3_column_type(s, column) == SQLITE_NULL ? (double)NAN
                                                         : sqlite3_column_double(s, column);
}

int history_points(struct history *h, struct history_point *out, size_t capacity, size_t *count,
                   struct pl_err *err)
{
    sqlite3_stmt *s = h->statement[POINTS];
    int step = SQLITE_DONE;
    *count = 0;
    sqlite3_bind_int64(s, 1, (sqlite3_int64)capacity);
    while (*count < capacity && (step = sqlite3_step(s)) == SQLITE_ROW)
        out[(*count)++] = (struct history_point){
            .time = sqlite3_column_double(s, 0),
            .step = sqlite3_column_int64(s, 1),
            .peers = (int64_t)(sqlite3_column_double(s, 2) + 0.5),
            .samples = sqlite3_column_int64(s, 3),
            .loss = real_or_nan(s, 4),
            .samples_per_second = real_or_nan(s, 5),
            .held_out = real_or_nan(s, 6),
            .sent = real_or_nan(s, 7),
            .failed = real_or_nan(s, 8),
        };
    return end_rows(h, s, step, err);
}

static void text(char out[HISTORY_KEY_MAX + 1], sqlite3_stmt *s, int column)
{
    const char *t = (const char *)sqlite3_column_text(s, column);
    size_t n = t ? strnlen(t, HISTORY_KEY_MAX) : 0;
    if (n) memcpy(out, t, n);
    out[n] = 0;
}

int history_board(struct history *h, struct history_account *out, size_t capacity, size_t *count,
                  struct pl_err *err)
{
    sqlite3_stmt *s = h->statement[BOARD];
    int step = SQLITE_DONE;
    *count = 0;
    sqlite3_bind_int64(s, 1, (sqlite3_int64)capacity);
    while (*count < capacity && (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct history_account *a = &out[(*count)++];
        text(a->key, s, 0);
        text(a->peer, s, 1);
        a->samples = sqlite3_column_int64(s, 2);
        a->last_step = sqlite3_column_int64(s, 3);
        a->seconds = sqlite3_column_double(s, 4);
        a->first = sqlite3_column_double(s, 5);
        a->last = sqlite3_column_double(s, 6);
        text(a->name, s, 7);
    }
    return end_rows(h, s, step, err);
}

int history_spend(struct history *h, const char *key, double time, const int64_t ms[HISTORY_SPANS],
                  struct pl_err *err)
{
    return put(h, SPEND, err, "triiiii", key, time, ms[0], ms[1], ms[2], ms[3],
               (int64_t)HISTORY_SPAN_KEYS);
}

int history_spans(struct history *h, struct history_span_point *out, size_t capacity, size_t *count,
                  struct pl_err *err)
{
    sqlite3_stmt *s = h->statement[SPANS];
    int step = SQLITE_DONE;
    *count = 0;
    sqlite3_bind_int64(s, 1, HISTORY_SPAN_POINTS);
    sqlite3_bind_int64(s, 2, HISTORY_SPAN_KEYS);
    sqlite3_bind_int64(s, 3, (sqlite3_int64)capacity);
    while (*count < capacity && (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct history_span_point *p = &out[(*count)++];
        text(p->key, s, 0);
        p->time = sqlite3_column_double(s, 1);
        for (int i = 0; i < HISTORY_SPANS; i++) p->ms[i] = sqlite3_column_int64(s, 2 + i);
    }
    return end_rows(h, s, step, err);
}

int history_sizes(struct history *h, int64_t *points, int64_t *keys, struct pl_err *err)
{
    sqlite3_stmt *s = h->statement[SIZES];
    int rc = sqlite3_step(s) == SQLITE_ROW ? PL_OK : trouble(h, err);
    *points = rc ? 0 : sqlite3_column_int64(s, 0);
    *keys = rc ? 0 : sqlite3_column_int64(s, 1);
    sqlite3_reset(s);
    return rc;
}
