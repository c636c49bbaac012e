/* feeds.c - the run's state as JSON for the page, and as text for Prometheus.
 *
 * One struct, several readers: the page's script, other programs, and monitoring must show the
 * same numbers, so all are written from struct feed_state. JSON knows no NaN: an unmeasured
 * number is null. */
#include "feeds.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not a number and infinity are null: JSON has neither. */
static json_t *number_of(double x) { return isfinite(x) ? json_real(x) : json_null(); }

double feed_rate(const struct feed_peer *p)
{
    return p->progress  ? p->progress->samples_per_second
           : p->metrics ? p->metrics->samples_per_second
                        : 0;
}

/* How many times less was sent than four bytes a value would have been; NAN: nothing was. */
static double saved_by(double uncompressed, double sent)
{
    return sent > 0 && uncompressed > 0 ? uncompressed / sent : (double)NAN;
}

/* The full id, and a short form for the eye: the first 4 and the last 6 characters. */
static void names(char id[PEER_ID_TEXT_MAX], char name[20], const char *key,
                  const struct peer_id *peer)
{
    size_t n;
    if (peer && peer->length) peer_id_text(id, peer);
    else snprintf(id, PEER_ID_TEXT_MAX, "%s", key);
    n = strlen(id);
    if (n <= 12) snprintf(name, 20, "%s", id);
    else snprintf(name, 20, "%.4s\xe2\x80\xa6%s", id, id + n - 6);
}

static json_t *totals_json(const int64_t total[HISTORY_COUNTS])
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "good", (json_int_t)total[COUNT_ROUNDS],
                     "failed", (json_int_t)total[COUNT_FAILED], "retried",
                     (json_int_t)total[COUNT_RETRIED], "sent", (json_int_t)total[COUNT_SENT],
                     "received", (json_int_t)total[COUNT_RECEIVED], "compression",
                     number_of(
                         saved_by((double)total[COUNT_UNCOMPRESSED], (double)total[COUNT_SENT])));
}

static json_t *by_resource(const size_t n[RESOURCES])
{
    json_t *o = json_object();
    for (enum resource k = 0; k < RESOURCES; k++)
        json_object_set_new(o, resource_name(k), json_integer((json_int_t)n[k]));
    return o;
}

json_t *feed_resources_json(const struct resources *r)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:{s:o, s:o, s:o}}", "limited", (json_int_t)r->limited,
                     "system", by_resource(r->system.used), "reserved",
                     by_resource(r->reserved.used), "transient", by_resource(r->transient.used),
                     "limits", "system", by_resource(r->limits[SCOPE_SYSTEM]), "subnet",
                     by_resource(r->limits[SCOPE_SUBNET]), "peer",
                     by_resource(r->limits[SCOPE_PEER]));
}

json_t *feed_state_json(const struct feed_state *s)
{
    static const char *const phase[] = { "accumulating", "matching", "averaging" };
    static const char *const status[] = { "empty", "live", "silent", "ended" };
    json_t *problem = s->problem ? json_string(s->problem) : json_null();
    json_t *o = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:I, s:I, s:I, s:s}", "run",
        s->run, "problem", problem, "time", number_of(s->time), "target", number_of(s->target),
        "loss", number_of(s->loss), "samples_per_second", number_of(s->samples_per_second), "eta",
        number_of(s->eta), "schedule_eta", number_of(s->schedule_eta), "step", (json_int_t)s->step,
        "total_steps", s->total_steps ? json_integer(s->total_steps) : json_null(), "samples",
        (json_int_t)s->samples, "peers", (json_int_t)s->peers, "clients", (json_int_t)s->clients,
        "rows", (json_int_t)s->rows, "phase", phase[s->phase]);
    json_object_update_new(
        o, json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "held_out",
                     number_of(s->held_out), "status", status[s->status], "seen",
                     s->seen > 0 ? json_real(s->seen) : json_null(), "throughput",
                     number_of(s->throughput), "mean_throughput", number_of(s->mean_throughput),
                     "averaging_share", number_of(s->averaging_share), "history_version",
                     (json_int_t)s->history_version, "files_version", (json_int_t)s->files_version,
                     "searching", (json_int_t)s->searching, "banned", (json_int_t)s->banned,
                     "resources", s->resources ? feed_resources_json(s->resources) : json_null(),
                     "rounds", totals_json(s->total)));
    return o;
}

/* Fields of RUN_report, which only peers of this implementation store; null for others. */
static json_t *report_json(const struct report_record *r)
{
    static const char *const words[] = { "unknown", "direct", "relayed", "none" };
    return r ? json_pack("{s:s?, s:s, s:s?, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "called",
                         *r->name ? r->name : NULL, "version", r->version, "device",
                         *r->device ? r->device : NULL, "banned", (json_int_t)r->banned,
                         "reachability", words[r->reachability], "rounds", (json_int_t)r->rounds,
                         "failed", (json_int_t)r->failed, "retried", (json_int_t)r->retried, "sent",
                         (json_int_t)r->sent, "received", (json_int_t)r->received, "compression",
                         number_of(saved_by((double)r->uncompressed, (double)r->sent)), "held_out",
                         number_of(r->held_out))
             : json_pack("{s:n, s:n, s:n, s:n}", "called", "version", "device", "reachability");
}

/* Round-trip time from the dashboard's machine; null if it was not measured. */
static json_t *distance_json(const struct distance *d)
{
    return d ? json_pack("{s:b, s:b, s:o}", "answers", isfinite(d->rtt_s), "relayed", d->relayed,
                         "round_trip_ms", number_of(1e3 * d->rtt_s))
             : json_pack("{s:n, s:n, s:n}", "answers", "relayed", "round_trip_ms");
}

json_t *feed_peers_json(const struct feed_peer *peers, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct feed_peer *p = &peers[i];
        const struct progress_record *g = p->progress;
        const struct metrics_record *m = p->metrics;
        char id[PEER_ID_TEXT_MAX], name[20];
        json_t *o;
        names(id, name, p->key, g ? &g->peer : NULL);
        o = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "name", name, "id", id,
                      "key", p->key, "state",
                      !strcmp(p->key, DASHBOARD_THIS) ? "local"
                      : !g                            ? "quiet"
                      : g->client_mode                ? "client"
                                                      : "reachable",
                      "step",
                      g   ? json_integer(g->epoch)
                      : m ? json_integer(m->step)
                          : json_null(),
                      "samples_per_second", number_of(feed_rate(p)), "samples",
                      g ? json_integer(g->samples) : json_null(), "loss",
                      m && m->mini_steps > 0 ? number_of(m->loss / (double)m->mini_steps)
                                             : json_null(),
                      "seen", number_of(p->seen));
        json_object_update_new(o, report_json(p->report));
        json_object_update_new(o, distance_json(p->distance));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *feed_history_json(const struct history_point *points, size_t count)
{
    static const char *const columns[] = { "time",     "step", "peers",
                                           "samples",  "loss", "samples_per_second",
                                           "held_out", "sent", "failed" };
    json_t *root = json_object();
    for (size_t c = 0; c < PL_COUNT(columns); c++) {
        /* By columns, not by points: each name appears once, not once for each point. */
        json_t *list = json_array();
        for (size_t i = 0; i < count; i++) {
            const struct history_point *p = &points[i];
            const double values[] = { p->time,          (double)p->step,
                                      (double)p->peers, (double)p->samples,
                                      p->loss,          p->samples_per_second,
                                      p->held_out,      p->sent,
                                      p->failed };
            json_array_append_new(list, number_of(values[c]));
        }
        json_object_set_new(root, columns[c], list);
    }
    return root;
}

/* How a key has spent its time, by columns; null: not known. */
static json_t *span_json(const char *key, const struct history_span_point *points, size_t count)
{
    static const char *const columns[HISTORY_SPANS] = { "computed", "waited", "averaged",
                                                        "shared" };
    json_t *span = json_pack("{s:[]}", "time");
    for (int k = 0; k < HISTORY_SPANS; k++) json_object_set_new(span, columns[k], json_array());
    for (size_t i = 0; i < count; i++) {
        if (strcmp(points[i].key, key)) continue;
        json_array_append_new(json_object_get(span, "time"), json_real(points[i].time));
        for (int k = 0; k < HISTORY_SPANS; k++)
            json_array_append_new(json_object_get(span, columns[k]),
                                  json_integer((json_int_t)points[i].ms[k]));
    }
    if (json_array_size(json_object_get(span, "time"))) return span;
    json_decref(span);
    return json_null();
}

json_t *feed_board_json(const struct history_account *accounts, size_t count,
                        const struct history_span_point *points, size_t point_count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct history_account *a = &accounts[i];
        struct peer_id peer = { 0 };
        char id[PEER_ID_TEXT_MAX], name[20];
        if (*a->peer) peer_id_from_text(&peer, a->peer, strlen(a->peer));
        names(id, name, a->key, &peer);
        json_array_append_new(list, json_pack("{s:i, s:s, s:s?, s:s, s:s, s:I, s:o, s:o, s:o, s:o}",
                                              "rank", (int)i + 1, "name", name, "called",
                                              *a->name ? a->name : NULL, "id", id, "key", a->key,
                                              "samples", (json_int_t)a->samples, "seconds",
                                              number_of(a->seconds), "first", number_of(a->first),
                                              "last", number_of(a->last), "span",
                                              span_json(a->key, points, point_count)));
    }
    return list;
}

/* --- Prometheus ----------------------------------------------------------------------- */

#define PROMETHEUS_MAX 16384 /* 23 metrics, each with a line of help and a run's name */

/* Appends to the text; the rest is cut if it does not fit, and *at is then at the end. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t *at, const char *format,
                                                         ...)
{
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(text + *at, PROMETHEUS_MAX - *at, format, args);
    va_end(args);
    *at = n < 0 || (size_t)n >= PROMETHEUS_MAX - *at ? PROMETHEUS_MAX - 1 : *at + (size_t)n;
}

/* A label's value: backslash, quote and line end are escaped. */
static void label(char out[256], const char *value)
{
    size_t n = 0;
    for (; *value && n < 250; value++) {
        if (strchr("\\\"\n", *value)) out[n++] = '\\';
        out[n++] = *value == '\n' ? 'n' : *value;
    }
    out[n] = 0;
}

char *feed_prometheus(const struct feed_state *s, size_t watchers)
{
    const struct {
        const char *name, *help;
        double value;
    } all[] = {
        { "loss", "Training loss, mean over the mini-steps that were reported lately", s->loss },
        { "peers", "Peers that reported within their record's lifetime", (double)s->peers },
        { "clients", "Peers among them that cannot be called", (double)s->clients },
        { "searching", "Peers that are looking for a group", (double)s->searching },
        { "banned", "Groupmates caught lying, as present peers count", (double)s->banned },
        { "samples_per_second", "Sum of the peers' speeds of computing", s->samples_per_second },
        { "throughput", "Samples a second by wall clock", s->throughput },
        { "mean_throughput", "The same, from the first poll to the last step", s->mean_throughput },
        { "averaging_share", "Share of the time in which peers do not compute",
          s->averaging_share },
        { "live", "1 while peers report their progress", s->status == FEED_LIVE },
        { "last_record_seconds", "Time of the newest record, since 1970", s->seen },
        { "step", "Common optimizer steps", (double)s->step },
        { "samples", "Samples accumulated towards the next step", (double)s->samples },
        { "target_batch_size", "Samples that a step takes", s->target },
        { "eta_seconds", "Time until the target batch is reached", s->eta },
        { "watchers", "Pages that are open", (double)watchers },
        { "held_out_loss", "Loss on pairs excluded from training", s->held_out },
        { "rounds_good", "Rounds that gave a mean, of all peers", (double)s->total[COUNT_ROUNDS] },
        { "rounds_failed", "Rounds that should have given one", (double)s->total[COUNT_FAILED] },
        { "rounds_retried", "Groups that fell apart and were followed by another try",
          (double)s->total[COUNT_RETRIED] },
        { "sent_bytes", "Messages of averaging, of all peers", (double)s->total[COUNT_SENT] },
        { "received_bytes", "Messages of averaging, of all peers",
          (double)s->total[COUNT_RECEIVED] },
        { "compression_ratio", "Ratio of float32 bytes to the bytes sent",
          saved_by((double)s->total[COUNT_UNCOMPRESSED], (double)s->total[COUNT_SENT]) },
    };
    char *text = malloc(PROMETHEUS_MAX), run[256];
    size_t at = 0;
    if (!text) return NULL;
    label(run, s->run);
    for (size_t i = 0; i < PL_COUNT(all); i++) {
        append(text, &at, "# HELP potluck_%s %s\n# TYPE potluck_%s gauge\n", all[i].name,
               all[i].help, all[i].name);
        if (isfinite(all[i].value))
            append(text, &at, "potluck_%s{run=\"%s\"} %.17g\n", all[i].name, run, all[i].value);
        else append(text, &at, "potluck_%s{run=\"%s\"} NaN\n", all[i].name, run);
    }
    return text;
}
