/* lab_report.c - reads the logs of runs, and writes a report: the curves of all runs in one
 * diagram, a table, and each run's timeline. */
#include "lab_report.h"

#include "data/files/file.h"
#include "data/files/memory_stream.h"
#include "data/files/json.h"
#include "data/images/figure.h"
#include "lab_job.h"
#include "png.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOG_MAX ((size_t)1 << 30)
#define BARS_MAX ((size_t)1 << 22)
/* A timeline shows at most this many gradients of a peer: more bars would be thinner than a
 * pixel. */
#define GRADIENTS_SHOWN 40

struct total {
    double sent, received, peak_up, peak_down;
};

struct run {
    char name[LAB_NAME_MAX];
    const char *algorithm; /* of json */
    json_t *json;
    double *time, *samples, *bytes, *loss, *utilization;
    double *uplink, *busy; /* Mbit/s of a peer, % of its time: since the evaluation before */
    size_t points, capacity;
    struct figure_bar *bar;
    size_t bars, bar_capacity;
    int peers;
    double end; /* s; NAN: the run is not complete */
    struct total total[LAB_PEERS_MAX];
};

/* --- reading ---------------------------------------------------------------------------------- */

static double real_of(const json_t *o, const char *key)
{
    const json_t *j = json_object_get(o, key);
    return json_is_number(j) ? json_number_value(j) : NAN;
}

static int add_point(struct run *r, const json_t *o)
{
    double **columns[] = { &r->time, &r->samples, &r->bytes, &r->loss, &r->utilization };
    static const char *const keys[] = { "time", "samples", "bytes", "loss", "utilization" };
    size_t capacity = 0;
    for (size_t i = 0; i < PL_COUNT(columns); i++) {
        capacity = r->capacity;
        if (pl_grow(columns[i], r->points, &capacity, 64)) return PL_ENOMEM;
    }
    r->capacity = capacity;
    for (size_t i = 0; i < PL_COUNT(columns); i++) (*columns[i])[r->points] = real_of(o, keys[i]);
    r->points++;
    return PL_OK;
}

static const char *const kinds[] = { "computes", "waits", "downloads", "away", "sends", NULL };
#define SENDS 4

static int add_bar(struct run *r, int row, int kind, const json_t *o)
{
    struct figure_bar bar = { row, kind, real_of(o, "from"), real_of(o, "to") };
    if (r->bars == BARS_MAX || !isfinite(bar.from) || !isfinite(bar.to)) return PL_OK;
    if (pl_grow(&r->bar, r->bars, &r->bar_capacity, 256)) return PL_ENOMEM;
    r->bar[r->bars++] = bar;
    return PL_OK;
}

static int add_spent(struct run *r, const json_t *o)
{
    const char *state = json_string_value(json_object_get(o, "state"));
    double peer = real_of(o, "peer");
    if (!state || !(peer >= 0 && peer < LAB_PEERS_MAX)) return PL_OK;
    if (peer >= r->peers) r->peers = (int)peer + 1;
    for (int k = 0; k < SENDS; k++)
        if (!strcmp(state, kinds[k])) return add_bar(r, (int)peer, k, o);
    return PL_OK;
}

static void take_totals(struct run *r, const json_t *o)
{
    const json_t *peers = json_object_get(o, "peers"), *p;
    size_t k;
    r->end = real_of(o, "time");
    json_array_foreach(peers, k, p)
    {
        if (k >= LAB_PEERS_MAX) break;
        r->total[k] = (struct total){ real_of(p, "sent") + real_of(p, "cancelled"),
                                      real_of(p, "received"), real_of(p, "peak_up"),
                                      real_of(p, "peak_down") };
    }
}

static int take_line(struct run *r, const json_t *o)
{
    const char *event = json_string_value(json_object_get(o, "event"));
    if (!event) return PL_OK;
    if (!strcmp(event, "evaluated")) return add_point(r, o);
    if (!strcmp(event, "spent")) return add_spent(r, o);
    /* exchanges have the row below the peers' */
    if (!strcmp(event, "exchanged")) return add_bar(r, LAB_PEERS_MAX, SENDS, o);
    if (!strcmp(event, "ended")) take_totals(r, o);
    return PL_OK;
}

static int read_log(struct run *r, const char *path, struct pl_err *err)
{
    char *text, *save = NULL;
    int rc = pl_file_read_text(&text, path, LOG_MAX, err), number = 0;
    if (rc) return rc;
    for (char *line = strtok_r(text, "\n", &save); line && !rc;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *o = pl_json_load(line, strlen(line), 0, NULL);
        number++;
        if (!o) rc = pl_fail(err, PL_EFORMAT, "%s: line %d is not JSON", path, number);
        else if ((rc = take_line(r, o))) pl_fail(err, rc, "%s: no memory", path);
        json_decref(o);
    }
    free(text);
    if (!rc && !r->points) rc = pl_fail(err, PL_EFORMAT, "%s: nothing was evaluated", path);
    for (size_t i = 0; i < r->bars; i++)
        if (r->bar[i].row == LAB_PEERS_MAX) r->bar[i].row = r->peers;
    return rc;
}

static int read_run(struct run *r, const char *folder, struct pl_err *err)
{
    char *log = pl_path_join(folder, LAB_LOG), *file = pl_path_join(folder, LAB_RUN), *text = NULL;
    const char *name;
    int rc = log && file ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    r->end = NAN;
    if (!rc) rc = pl_file_read_text(&text, file, 1 << 20, err);
    if (!rc && !(r->json = pl_json_load(text, strlen(text), 0, NULL)))
        rc = pl_fail(err, pl_json_status(), "%s: not JSON", file);
    if (!rc) rc = read_log(r, log, err);
    name = json_string_value(json_object_get(r->json, "name"));
    snprintf(r->name, sizeof r->name, "%s", name ? name : folder);
    r->algorithm = json_string_value(json_object_get(r->json, "algorithm"));
    free(text);
    free(log);
    free(file);
    return rc;
}

static void clear_run(struct run *r)
{
    json_decref(r->json);
    pl_free(r->time);
    pl_free(r->samples);
    pl_free(r->bytes);
    pl_free(r->loss);
    pl_free(r->utilization);
    pl_free(r->uplink);
    pl_free(r->busy);
    pl_free(r->bar);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Uplink and utilization between two evaluations, from their counts since the start. */
static int add_rates(struct run *r)
{
    r->uplink = pl_alloc(r->points, sizeof *r->uplink);
    r->busy = pl_alloc(r->points, sizeof *r->busy);
    if (!r->uplink || !r->busy) return PL_ENOMEM;
    r->uplink[0] = r->busy[0] = NAN;
    for (size_t i = 1; i < r->points; i++) {
        double from = r->time[i - 1], to = r->time[i], seconds = to - from;
        r->uplink[i] = (r->bytes[i] - r->bytes[i - 1]) * 8e-6 / seconds / r->peers;
        r->busy[i] = 100 * (r->utilization[i] * to - r->utilization[i - 1] * from) / seconds;
    }
    return PL_OK;
}

/* The figures of all runs; `timeline` has those of one. */
static const struct curve {
    const char *name, *title, *x_label, *y_label;
    size_t x, y; /* columns of struct run */
    int log_x;
} curves[] = {
#define RUN(column) offsetof(struct run, column)
    { "samples", "Loss against samples", "samples of all peers", "held-out loss, nats a token",
      RUN(samples), RUN(loss), 0 },
    { "bytes", "Loss against bytes", "bytes sent by all peers", "held-out loss, nats a token",
      RUN(bytes), RUN(loss), 1 },
    { "time", "Loss against virtual time", "virtual time, s", "held-out loss, nats a token",
      RUN(time), RUN(loss), 1 },
    { "uplink", "Uplink of a peer, mean between two evaluations", "virtual time, s", "Mbit/s",
      RUN(time), RUN(uplink), 1 },
    { "computing", "Time spent computing, between two evaluations", "virtual time, s", "%",
      RUN(time), RUN(busy), 1 },
#undef RUN
};

static const double *column(const struct run *r, size_t at)
{
    return *(const double *const *)(const void *)((const char *)r + at);
}

static void draw(FILE *f, const struct run *run, int count, const struct curve *c)
{
    struct figure figure = { c->title, c->x_label, c->y_label, c->log_x, 0 };
    struct figure_line *line = pl_alloc((size_t)count, sizeof *line);
    for (int i = 0; line && i < count; i++)
        line[i] = (struct figure_line){ run[i].name, column(&run[i], c->x), column(&run[i], c->y),
                                        run[i].points };
    if (line) figure_lines(f, &figure, line, count);
    pl_free(line);
}

static void table(FILE *f, const struct run *run, int count)
{
    fputs("<table><tr><th>run<th>algorithm<th>peers<th>samples<th>virtual time, s<th>MB sent, all "
          "peers<th>held-out loss<th>compute, % of time<th>uplink of a peer, mean Mbit/s<th>peak"
          "</tr>\n",
          f);
    for (int i = 0; i < count; i++) {
        const struct run *r = &run[i];
        size_t last = r->points - 1;
        double peak = 0, time = r->time[last];
        for (int k = 0; k < r->peers; k++) peak = fmax(peak, r->total[k].peak_up);
        fputs("<tr><td>", f);
        figure_text(f, r->name);
        fputs("<td>", f);
        figure_text(f, r->algorithm ? r->algorithm : "");
        fprintf(f, "<td>%d<td>%.0f<td>%.1f<td>%.2f<td>%.4f<td>%.1f<td>%.2f<td>", r->peers,
                r->samples[last], time, r->bytes[last] / 1e6, r->loss[last],
                100 * r->utilization[last],
                time > 0 && r->peers ? r->bytes[last] * 8e-6 / time / r->peers : 0);
        if (isfinite(r->end)) fprintf(f, "%.2f</tr>\n", peak * 8e-6);
        else fputs("not complete</tr>\n", f);
    }
    fputs("</table>\n", f);
}

/* The first gradients of the first peer set the window. */
static double window_of(const struct run *r)
{
    double end = 0;
    int gradients = 0;
    for (size_t i = 0; i < r->bars && gradients < GRADIENTS_SHOWN; i++)
        if (r->bar[i].row == 0) {
            gradients += r->bar[i].kind == 0;
            end = r->bar[i].to;
        }
    return end > 0 ? end : r->time[r->points - 1];
}

static void timeline(FILE *f, const struct run *r)
{
    static const char exchanges[] = "exchange";
    char label[LAB_PEERS_MAX][24], title[LAB_NAME_MAX + 32];
    const char *labels[LAB_PEERS_MAX + 1];
    for (int k = 0; k < r->peers; k++) {
        snprintf(label[k], sizeof label[k], "peer %d", k);
        labels[k] = label[k];
    }
    labels[r->peers] = exchanges;
    snprintf(title, sizeof title, "%s: timeline of the peers", r->name);
    figure_bars(f, title, r->bar, r->bars, labels, r->peers + 1, kinds, 0, window_of(r));
}

static void write_report(FILE *f, const struct run *run, int count)
{
    fputs(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\">"
        "<title>Ways of training together</title>\n<style>"
        "body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}"
        "table{border-collapse:collapse;font-size:14px}td,th{border:1px solid #ccc;padding:4px 8px;"
        "text-align:right}td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}"
        "svg{width:100%;height:auto;margin:1rem 0}pre{background:#f5f5f5;padding:.5rem;"
        "white-space:pre-wrap}</style></head><body>\n<h1>Ways of training together</h1>\n"
        "<p>Gradients, algorithms and sizes of messages are real. The time that computing and "
        "sending take is simulated.</p>\n",
        f);
    table(f, run, count);
    for (size_t i = 0; i < PL_COUNT(curves); i++) draw(f, run, count, &curves[i]);
    fputs("<h2>Timelines</h2>\n<p>The beginning of each run. The last row shows the exchanges that "
          "are under way.</p>\n",
          f);
    for (int i = 0; i < count; i++) timeline(f, &run[i]);
    fputs("<h2>The runs</h2>\n", f);
    for (int i = 0; i < count; i++) {
        char *text = pl_json_text(run[i].json, JSON_INDENT(1) | JSON_SORT_KEYS);
        fputs("<pre>", f);
        figure_text(f, text ? text : "");
        fputs("</pre>\n", f);
        free(text);
    }
    fputs("</body></html>\n", f);
}

/* One figure as NAME.svg, and as NAME.png while *png says that there is a library for it. */
static int write_figure(const char *folder, const char *name, const char *svg, size_t bytes,
                        int *png, struct pl_err *err)
{
    char file[32];
    char *path;
    int rc;
    snprintf(file, sizeof file, "%s.svg", name);
    if (!(path = pl_path_join(folder, file))) return pl_fail(err, PL_ENOMEM, "no memory");
    rc = pl_file_write(path, svg, bytes, err);
    if (!rc && *png) {
        strcpy(path + strlen(path) - 3, "png");
        rc = lab_png_write(path, svg, bytes, err);
        *png = !rc;
        if (rc == PL_ENOTFOUND) rc = PL_OK;
    }
    free(path);
    return rc;
}

static int write_figures(const char *folder, const struct run *run, int count, int *png,
                         struct pl_err *err)
{
    int figures = (int)PL_COUNT(curves), rc = pl_folder_make(folder, err);
    for (int i = 0; i < figures + count && !rc; i++) {
        struct pl_memory_stream svg;
        char name[24];
        FILE *f = pl_memory_stream_open(&svg);
        if (i < figures) snprintf(name, sizeof name, "%s", curves[i].name);
        else snprintf(name, sizeof name, "timeline_%d", i - figures);
        if (f && i < figures) draw(f, run, count, &curves[i]);
        else if (f) timeline(f, &run[i - figures]);
        if (pl_memory_stream_close(&svg, f)) rc = pl_fail(err, PL_ENOMEM, "no memory for a figure");
        if (!rc) rc = write_figure(folder, name, svg.text, svg.bytes, png, err);
        free(svg.text);
    }
    return rc;
}

int lab_report(const char *out, const char *figures, const char *const *folder, int count, int *png,
               struct pl_err *err)
{
    struct run *run = pl_alloc((size_t)count, sizeof *run);
    struct pl_memory_stream html = { 0 };
    FILE *f;
    int rc = run ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    for (int i = 0; i < count && !rc; i++) rc = read_run(&run[i], folder[i], err);
    for (int i = 0; i < count && !rc; i++)
        if ((rc = add_rates(&run[i]))) pl_fail(err, rc, "no memory");
    if (!rc) {
        if ((f = pl_memory_stream_open(&html))) write_report(f, run, count);
        if (pl_memory_stream_close(&html, f))
            rc = pl_fail(err, PL_ENOMEM, "no memory for the report");
    }
    if (!rc) rc = pl_file_write(out, html.text, html.bytes, err);
    *png = 1;
    if (!rc && figures) rc = write_figures(figures, run, count, png, err);
    free(html.text);
    for (int i = 0; run && i < count; i++) clear_run(&run[i]);
    pl_free(run);
    return rc;
}
