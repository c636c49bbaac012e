/* dashboard.c - one update of the run's page, from a poll of the DHT to the data sent to browsers.
 * [TTT 2.1]
 *
 *   snapshot - bound and join the records (dashboard_seen.c) - sum up, as hivemind's monitor does
 *            - remember in the history (SQLite) - publish JSON, events, Prometheus
 *
 * All numbers are claims of the peers that signed them. Live values are pushed to open pages as
 * server-sent events; the history, which is long, is published less often the older it gets. */
#include "dashboard.h"
#include "dashboard_seen.h"
#include "pace.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "data/models/memory_json.h"
#include "net/http/www.h"
#include "ref/small.h"

#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRUNE_EVERY 360     /* updates: an hour */
#define DRAW_AT_LEAST 300.0 /* s */
/* s; a peer reports its progress every 30 s, and its metrics with each step */
#define FRESH 120.0
#define FRESH_STEPS 10 /* a log's last line is at most as old as so many steps take */

struct dashboard {
    struct http_server *server;
    struct history *history;
    char *run;
    double target;
    int64_t total_steps, total[HISTORY_COUNTS];
    struct history_point last; /* written */
    int64_t rows;
    int64_t history_version, files_version; /* of the published data */
    struct pace pace;
    unsigned updates;
    double first, drawn; /* times of the history's first point, and of its last drawing */
    json_t *state, *peers, *points, *board, *files; /* as published */
};

void dashboard_key(char out[33], const void *subkey, size_t n)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    SHA256(subkey, n, hash);
    pl_hex(out, hash, 16);
}

/* --- publishing ----------------------------------------------------------------------- */

static const char *type_of(const char *name)
{
    const char *end = strrchr(name, '.');
    if (end && !strcmp(end, ".html")) return "text/html; charset=utf-8";
    if (end && !strcmp(end, ".css")) return "text/css; charset=utf-8";
    if (end && !strcmp(end, ".js")) return "text/javascript; charset=utf-8";
    if (end && !strcmp(end, ".json")) return "application/json";
    return "text/plain; version=0.0.4; charset=utf-8";
}

static char *dump(const json_t *o)
{
    return pl_json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(13));
}

static int put(struct dashboard *d, const char *path, const json_t *o, struct pl_err *err)
{
    char *text;
    int rc = PL_ENOMEM;
    if (!d->server) return PL_OK;
    if ((text = dump(o)))
        rc = http_server_put(d->server, path, "application/json", text, strlen(text));
    free(text);
    return rc ? pl_fail(err, rc, "%s: %s", path, pl_status_name(rc)) : PL_OK;
}

/* Data that the scripts have before their first request. live 0: all data, for an exported page. */
static char *data_script(const struct dashboard *d, int live)
{
    json_t *root;
    char *json, *script = NULL;
    pl_json_begin();
    root = json_pack("{s:b, s:o}", "live", live, "calculator", pl_memory_models_to_json());
    if (!live)
        json_object_update_new(root, json_pack("{s:O?, s:O?, s:O?, s:O?, s:O?}", "state", d->state,
                                               "peers", d->peers, "history", d->points, "board",
                                               d->board, "files", d->files));
    json = dump(root);
    if (json && asprintf(&script, "globalThis.potluckData = %s;\n", json) < 0) script = NULL;
    free(json);
    json_decref(root);
    return script;
}

static int put_files(struct dashboard *d, struct pl_err *err)
{
    char path[HTTP_PATH_MAX], *script = data_script(d, 1);
    int rc = script ? http_server_put(d->server, "/data.js", type_of(".js"), script, strlen(script))
                    : PL_ENOMEM;
    for (const struct www_file *f = www_files; f->name && !rc; f++) {
        snprintf(path, sizeof path, "/%s", f->name);
        rc = http_server_put(d->server, path, type_of(f->name), f->data, f->bytes);
        if (!rc && !strcmp(f->name, "index.html"))
            rc = http_server_put(d->server, "/", type_of(f->name), f->data, f->bytes);
    }
    if (!rc) rc = http_server_events(d->server, "/api/events");
    free(script);
    return rc ? pl_fail(err, rc, "page: %s", pl_status_name(rc)) : PL_OK;
}

/* Is the curve due for drawing again? After a month each of its points covers an hour: then
 * every five minutes is enough. */
static int history_is_due(const struct dashboard *d, double now)
{
    double each = (now - d->first) / DASHBOARD_POINTS / 4;
    return now < d->drawn || now - d->drawn >= (each < DRAW_AT_LEAST ? each : DRAW_AT_LEAST);
}

static int publish_history(struct dashboard *d, double now, struct pl_err *err)
{
    struct history_point *points = calloc(DASHBOARD_POINTS, sizeof *points);
    struct history_account *accounts = calloc(DASHBOARD_ROWS, sizeof *accounts);
    struct history_span_point *spans = calloc(HISTORY_SPAN_KEYS * HISTORY_SPAN_POINTS,
                                              sizeof *spans);
    size_t n = 0, m = 0, k = 0;
    int rc = points && accounts && spans ? PL_OK : pl_fail(err, PL_ENOMEM, "page: out of memory");
    if (!rc) rc = history_points(d->history, points, DASHBOARD_POINTS, &n, err);
    if (!rc) rc = history_board(d->history, accounts, DASHBOARD_ROWS, &m, err);
    if (!rc)
        rc = history_spans(d->history, spans, HISTORY_SPAN_KEYS * HISTORY_SPAN_POINTS, &k, err);
    if (!rc) {
        d->first = n ? points[0].time : now;
        d->drawn = now;
        d->history_version++;
        json_decref(d->points);
        json_decref(d->board);
        pl_json_begin();
        d->points = feed_history_json(points, n);
        d->board = feed_board_json(accounts, m, spans, k);
        if (pl_json_failed()) rc = pl_fail(err, PL_ENOMEM, "page: out of memory");
    }
    free(points);
    free(accounts);
    free(spans);
    if (!rc) rc = put(d, "/api/history.json", d->points, err);
    return rc ? rc : put(d, "/api/board.json", d->board, err);
}

static int publish_state(struct dashboard *d, const struct feed_state *s,
                         const struct feed_peer *peers, size_t count, struct pl_err *err)
{
    char *text, *prometheus;
    int rc = PL_OK;
    json_decref(d->state);
    json_decref(d->peers);
    pl_json_begin();
    d->state = feed_state_json(s);
    d->peers = feed_peers_json(peers, count);
    if (pl_json_failed()) return pl_fail(err, PL_ENOMEM, "page: out of memory");
    if (!d->server) return PL_OK;
    if ((rc = put(d, "/api/state.json", d->state, err)) ||
        (rc = put(d, "/api/peers.json", d->peers, err)))
        return rc;
    text = dump(d->state);
    prometheus = feed_prometheus(s, http_server_watchers(d->server));
    if (!text || !prometheus) rc = PL_ENOMEM;
    if (!rc) rc = http_server_push(d->server, "state", text, strlen(text));
    if (!rc)
        rc = http_server_put(d->server, "/metrics", type_of(""), prometheus, strlen(prometheus));
    free(text);
    free(prometheus);
    return rc ? pl_fail(err, rc, "page: %s", pl_status_name(rc)) : PL_OK;
}

/* --- an update ----------------------------------------------------------------------- */

/* A training without a swarm, known by its log. */
static int is_log(const struct seen *s)
{
    return s->count && !strcmp(s->peers[0].key, DASHBOARD_THIS);
}

/* Ended: at the last step of the schedule, and no peer trains. Silent: there are records, but none
 * is new. A log on the page's machine is as old as its last line; step_s is what its steps take. */
static enum feed_status status_of(const struct feed_state *s, const struct seen *seen,
                                  double step_s)
{
    const double age = s->time - s->seen;
    if (!seen->count) return FEED_EMPTY;
    /* A line of the log is reported once as of its own time: then the training was alive. */
    if (seen->progress_count || (is_log(seen) && age < 1e-3)) return FEED_LIVE;
    if (s->total_steps && s->step >= s->total_steps) return FEED_ENDED;
    return age < fmax(FRESH, FRESH_STEPS * step_s) ? FEED_LIVE : FEED_SILENT;
}

/* By wall clock, once it is known; before that the schedule's end is a guess from speeds. */
static void add_pace(struct feed_state *to, const struct pace *p)
{
    const double step_s = pace_step_s(p);
    to->throughput = pace_rate(p);
    to->averaging_share = to->samples_per_second > 0
                              ? fmin(1, fmax(0, 1 - to->throughput / to->samples_per_second))
                              : (double)NAN;
    if (isnan(to->throughput)) to->averaging_share = NAN;
    if (isfinite(step_s) && to->total_steps > to->step)
        to->schedule_eta = (double)(to->total_steps - to->step) * step_s;
    to->mean_throughput = pace_mean(p);
    if (to->status == FEED_LIVE) return;
    to->eta = to->schedule_eta = to->throughput = to->averaging_share = NAN;
    to->samples_per_second = 0; /* nobody computes */
}

/* The training loss. Metrics outlive a peer that was killed by ten minutes, in which the others
 * learn: its loss stops counting when it is much older than the newest. */
static double loss_of(struct metrics_record *fresh, const struct seen *s, double step_s, double now)
{
    const double window = fmax(FRESH, isfinite(step_s) ? FRESH_STEPS * step_s : 0);
    struct metrics_sums sums;
    double newest = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->metrics_count; i++)
        newest = fmax(newest, fmin(s->metrics[i].expiration, now + METRICS_LIFE));
    for (size_t i = 0; i < s->metrics_count; i++)
        if (s->metrics[i].expiration >= newest - window) fresh[n++] = s->metrics[i].record;
    metrics_sum(&sums, fresh, n);
    return n ? sums.loss : (double)NAN;
}

static int sum_up(struct feed_state *to, const struct dashboard *d, const struct seen *s,
                  const struct dashboard_snapshot *snapshot)
{
    double now = snapshot->time;
    size_t searching = snapshot->searching;
    struct metrics_record *m = calloc(s->metrics_count + 1, sizeof *m);
    struct progress_record *p = calloc(s->progress_count + 1, sizeof *p);
    struct progress_local none = { .epoch = 0 };
    struct metrics_sums sums;
    struct progress_view view;
    double loss, rate = 0;
    if (!m || !p) {
        free(m);
        free(p);
        return PL_ENOMEM;
    }
    for (size_t i = 0; i < s->metrics_count; i++) m[i] = s->metrics[i].record;
    for (size_t i = 0; i < s->progress_count; i++) {
        p[i] = s->progress[i].record;
        rate += p[i].samples_per_second;
    }
    /* The same functions as in training (metrics.c, progress.c): so the page shows the same as
     * peers compute. */
    metrics_sum(&sums, m, s->metrics_count);
    loss = loss_of(m, s, pace_step_s(&d->pace), now);
    progress_update(&view, p, s->progress_count, s->progress_count > 0, &none, d->target, now);
    *to = (struct feed_state){
        .run = d->run,
        .time = now,
        .target = d->target,
        .total_steps = d->total_steps,
        .loss = loss,
        .step = sums.step > 0 ? sums.step : 0,
        .peers = sums.peers,
        .samples = sums.samples,
        .samples_per_second = sums.samples_per_second,
        .eta = NAN,
        .schedule_eta = NAN,
        .rows = d->rows,
        .held_out = seen_held_out(s),
        .phase = searching ? FEED_MATCHING : FEED_ACCUMULATING,
        .searching = searching,
        .banned = seen_banned(s),
    };
    memcpy(to->total, d->total, sizeof to->total);
    if (s->progress_count) { /* fresher than the report at the last step */
        to->step = view.epoch > to->step ? view.epoch : to->step;
        to->samples = view.samples;
        to->samples_per_second = rate;
        to->peers = view.peers; /* metrics outlive a peer that was killed by ten minutes */
        to->clients = view.clients;
        to->eta = view.eta - now;
        if (!searching && (double)view.samples >= d->target) to->phase = FEED_AVERAGING;
    }
    /* Remaining steps * samples per step / samples per second. */
    if (d->total_steps > to->step && rate > 0)
        to->schedule_eta = (double)(d->total_steps - to->step) * d->target / rate;
    else if (d->total_steps > to->step && snapshot->step_s > 0)
        to->schedule_eta = (double)(d->total_steps - to->step) * snapshot->step_s;
    for (size_t i = 0; i < s->count; i++) to->seen = fmax(to->seen, s->peers[i].seen);
    to->status = status_of(to, s, snapshot->step_s);
    if (to->status != FEED_LIVE) to->peers = to->clients = 0, to->samples = 0;
    free(m);
    free(p);
    return PL_OK;
}

static int remember(struct dashboard *d, struct feed_state *now, const struct seen *s,
                    struct pl_err *err)
{
    struct history_point p = { .time = now->time,
                               .step = now->step,
                               .peers = (int64_t)now->peers,
                               .samples = now->samples,
                               .loss = now->loss,
                               /* In a swarm by wall clock, as the figure above the curve. */
                               .samples_per_second = now->target > 0 ? now->throughput
                                                                     : now->samples_per_second,
                               .held_out = now->held_out };
    /* One transaction for each update: the history has all of it or nothing. */
    int rc = history_begin(d->history, err);
    if (rc) return rc;
    for (size_t i = 0; i < s->count && !rc; i++) {
        const struct report_record *r = s->peers[i].report;
        if (!r) continue;
        int64_t counts[HISTORY_COUNTS] = {
            [COUNT_ROUNDS] = r->rounds,     [COUNT_FAILED] = r->failed,
            [COUNT_RETRIED] = r->retried,   [COUNT_SENT] = r->sent,
            [COUNT_RECEIVED] = r->received, [COUNT_UNCOMPRESSED] = r->uncompressed
        };
        rc = history_tally(d->history, s->peers[i].key, counts, err);
    }
    if (!rc) rc = history_totals(d->history, d->total, err);
    memcpy(now->total, d->total, sizeof now->total);
    p.sent = (double)d->total[COUNT_SENT];
    p.failed = (double)d->total[COUNT_FAILED];
    if (!rc && now->peers) rc = history_add(d->history, &p, err);
    for (size_t i = 0; i < s->count && !rc; i++) {
        const struct feed_peer *f = &s->peers[i];
        char id[PEER_ID_TEXT_MAX] = "";
        if (!f->metrics) continue;
        if (f->progress && f->progress->peer.length) peer_id_text(id, &f->progress->peer);
        rc = history_report(d->history, f->key, id, f->seen, f->metrics->step, f->metrics->samples,
                            f->metrics->samples_per_second, err);
        if (!rc && f->report && f->report->samples)
            rc = history_count(d->history, f->key, f->report->samples,
                               1e-3 * (double)f->report->computed_ms, err);
        if (!rc && f->report) rc = history_name(d->history, f->key, f->report->name, err);
        if (!rc && f->report && f->report->computed_ms) {
            const int64_t ms[HISTORY_SPANS] = { [SPAN_COMPUTED] = f->report->computed_ms,
                                                [SPAN_WAITED] = f->report->waited_ms,
                                                [SPAN_AVERAGED] = f->report->averaged_ms,
                                                [SPAN_SHARED] = f->report->shared_ms };
            rc = history_spend(d->history, f->key, now->time, ms, err);
        }
    }
    if (!rc) rc = history_commit(d->history, err);
    else history_commit(d->history, NULL);
    if (!rc) {
        d->last = p;
        d->rows += now->peers > 0;
    }
    return rc;
}

int dashboard_files(struct dashboard *d, json_t *files, struct pl_err *err)
{
    if (!files) return pl_fail(err, PL_ENOMEM, "page: out of memory");
    if (json_equal(d->files, files)) {
        json_decref(files);
        return PL_OK;
    }
    json_decref(d->files);
    d->files = files;
    d->files_version++;
    return put(d, "/api/files.json", files, err);
}

void dashboard_schedule(struct dashboard *d, int64_t total_steps) { d->total_steps = total_steps; }

int dashboard_update(struct dashboard *d, const struct dashboard_snapshot *snapshot,
                     struct pl_err *err)
{
    struct seen s = { 0 };
    struct feed_state now;
    int rc = seen_take(&s, snapshot), same;
    if (!rc) rc = sum_up(&now, d, &s, snapshot);
    /* Between two lines of a log nothing is known of its pace, and there is nothing to remember. */
    same = is_log(&s) && now.step == d->last.step;
    if (!rc && !same) rc = pace_add(&d->pace, &s, now.time, now.step, d->target);
    if (rc) {
        seen_clear(&s);
        return pl_fail(err, rc, "page: %s", pl_status_name(rc));
    }
    add_pace(&now, &d->pace);
    now.problem = snapshot->problem;
    now.resources = snapshot->resources;
    now.files_version = d->files_version;
    if (!same && (now.step != d->last.step || now.time - d->last.time >= DASHBOARD_EVERY * 0.9)) {
        rc = remember(d, &now, &s, err);
        now.rows = d->rows;
        if (!rc && d->updates++ % PRUNE_EVERY == 0) rc = history_prune(d->history, err);
        if (!rc && history_is_due(d, now.time)) rc = publish_history(d, now.time, err);
    }
    now.history_version = d->history_version;
    if (!rc)
        rc = publish_state(d, &now, s.peers, s.count < DASHBOARD_ROWS ? s.count : DASHBOARD_ROWS,
                           err);
    seen_clear(&s);
    return rc;
}

/* --- beginning, end, export ------------------------------------------------------------------- */

int dashboard_open(struct dashboard **out, struct http_server *server,
                   const struct dashboard_options *o, struct pl_err *err)
{
    struct dashboard *d = calloc(1, sizeof *d);
    int64_t keys;
    int rc;
    *out = NULL;
    if (!d) return pl_fail(err, PL_ENOMEM, "page: out of memory");
    d->server = server;
    d->target = o->target_batch;
    d->total_steps = o->total_steps;
    d->last.step = -1;
    d->run = strdup(o->run);
    rc = d->run ? history_open(&d->history, o->database, o->run, err)
                : pl_fail(err, PL_ENOMEM, "page: out of memory");
    if (!rc) rc = history_sizes(d->history, &d->rows, &keys, err);
    if (!rc) rc = history_totals(d->history, d->total, err);
    if (!rc && server) rc = put_files(d, err);
    if (!rc) rc = publish_history(d, 0, err);
    if (!rc)
        rc = dashboard_files(d,
                             json_pack("{s:[], s:[], s:[]}", "checkpoints", "samples", "captions"),
                             err);
    if (rc) dashboard_close(d);
    else *out = d;
    return rc;
}

void dashboard_close(struct dashboard *d)
{
    if (!d) return;
    history_close(d->history);
    pace_clear(&d->pace);
    json_decref(d->state);
    json_decref(d->peers);
    json_decref(d->points);
    json_decref(d->board);
    json_decref(d->files);
    free(d->run);
    free(d);
}

static int write_into(const char *folder, const char *name, const void *data, size_t n,
                      struct pl_err *err)
{
    char *path = pl_path_join(folder, name);
    int rc = path ? pl_file_write(path, data, n, err)
                  : pl_fail(err, PL_ENOMEM, "page: out of memory");
    free(path);
    return rc;
}

int dashboard_export(struct dashboard *d, const char *folder, struct pl_err *err)
{
    int drawn = publish_history(d, d->last.time, err);
    const struct {
        const char *name;
        const json_t *value;
    } feeds[] = {
        /* as just drawn */
        { "api/state.json", d->state },    { "api/peers.json", d->peers },
        { "api/history.json", d->points }, { "api/board.json", d->board },
        { "api/files.json", d->files },
    };
    char *script = data_script(d, 0), *api = pl_path_join(folder, "api");
    int rc = drawn ? drawn : script && api ? PL_OK : pl_fail(err, PL_ENOMEM, "page: out of memory");
    if (!rc) rc = pl_folder_make(api, err);
    for (const struct www_file *f = www_files; f->name && !rc; f++)
        rc = write_into(folder, f->name, f->data, f->bytes, err);
    if (!rc) rc = write_into(folder, "data.js", script, strlen(script), err);
    for (size_t i = 0; i < PL_COUNT(feeds) && !rc; i++) {
        char *text = feeds[i].value ? dump(feeds[i].value) : NULL;
        if (text) rc = write_into(folder, feeds[i].name, text, strlen(text), err);
        free(text);
    }
    free(script);
    free(api);
    return rc;
}
