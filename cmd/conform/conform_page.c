/* conform_page.c - a conformance report as one HTML file. It loads nothing and has no scripts; its
 * colours follow the light or dark mode of the reader's system. */
#include "conform_report.h"
#include "data/files/memory_stream.h"
#include "data/images/figure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--paper:#fbfaf6;--card:#fff;--ink:#1c1f24;--soft:#575c66;"
    "--line:#d9d5ca;--main:#0a6767;--warm:#a8431a}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#14171b;--card:#1c2026;--ink:#e9e6de;"
    "--soft:#a9adb6;--line:#363c45;--main:#62cbc4;--warm:#f49d6e}}\n"
    "body{margin:0 auto;max-width:84rem;padding:1.5rem 1.25rem 3rem;background:var(--paper);"
    "color:var(--ink);font:1rem/1.55 system-ui,sans-serif;overflow-wrap:break-word}\n"
    "h1{font-size:2rem;line-height:1.2;margin:0 0 .25rem}h2{margin:2.5rem 0 .5rem}\n"
    ".verdict{font-size:1.2rem;margin:0 0 1.5rem;color:var(--main)}\n"
    ".verdict.bad,.bad{color:var(--warm)}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.25rem;"
    "background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem}"
    "dt,.soft,p.note{color:var(--soft)}"
    "dd{margin:0;min-width:0}\n"
    ".scroll{overflow-x:auto}\n"
    "p.note{max-width:60rem}\n"
    "table{border-collapse:separate;border-spacing:0;width:100%;font-size:.9rem;" /* sticky cells */
    "font-variant-numeric:tabular-nums}\n" /* takes its lines along */
    "th,td{padding:.25rem .45rem;border-bottom:1px solid var(--line);text-align:right;"
    "white-space:nowrap}\n"
    "th:first-child,td:first-child,.words{text-align:left}td.words{white-space:normal;"
    "min-width:9rem}\n"
    /* a row's name stays in sight while the rest scrolls */
    "th:first-child,td:first-child{position:sticky;left:0;background:var(--paper)}\n"
    "th{color:var(--soft);font-weight:600}meter{width:4rem;vertical-align:-.1rem}\n"
    "summary{cursor:pointer;padding:.4rem 0}\n";

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}
static long whole(const json_t *o, const char *key)
{
    return (long)json_integer_value(json_object_get(o, key));
}
static double number(const json_t *o, const char *key) /* 0 for null: not measured */
{
    return json_number_value(json_object_get(o, key));
}
static int yes(const json_t *o, const char *key) { return json_is_true(json_object_get(o, key)); }

static void cell(FILE *f, const char *class, const char *words)
{
    fprintf(f, "<td class=\"%s\">", class);
    figure_text(f, words);
    fputs("</td>", f);
}

static void fact(FILE *f, const char *what, const char *words)
{
    fprintf(f, "<dt>%s</dt><dd>", what);
    figure_text(f, words);
    fputs("</dd>\n", f);
}

/* Three digits, without powers of ten: the table is for people. */
static void quantity(FILE *f, const char *about, double x, const char *unit)
{
    if (x > 0) fprintf(f, x < 999.5 ? "<td>%s%.3g%s</td>" : "<td>%s%.0f%s</td>", about, x, unit);
    else fputs("<td></td>", f);
}

static void milliseconds(FILE *f, double seconds, const char *about)
{
    quantity(f, about, 1e3 * seconds, "");
}

static void ratio(FILE *f, double theirs, double ours)
{
    quantity(f, "", ours > 0 ? theirs / ours : 0, "&times;");
}

static void share(FILE *f, double worst, const char *of)
{
    if (worst == 0) {
        fputs("<td>equal bits</td>", f);
        return;
    }
    fprintf(f,
            "<td><meter max=\"1\" value=\"%.3g\" aria-hidden=\"true\"></meter> %.2g "
            "<span class=\"soft\">",
            worst, worst);
    figure_text(f, of);
    fputs("</span></td>", f);
}

static double work(const json_t *c)
{
    double flops = number(c, "flops");
    return flops > 0 ? flops : number(c, "bytes");
}

/* Does the report compare with fast? fast itself is compared with ref only. */
static int compared_with_fast(const json_t *report)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(report, "cases"), i,
                       c) if (number(c, "fast_s") > 0) return 1;
    return 0;
}

/* Cells of one case: ref, fast, this backend, both ratios and the rate; four cells without fast;
 * empty ones for NULL. */
static void speed(FILE *f, const json_t *c, int with_fast)
{
    double ref, fast, be;
    if (!c) {
        for (int i = with_fast ? 6 : 4; i > 0; i--) fputs("<td></td>", f);
        return;
    }
    ref = number(c, "ref_s");
    fast = number(c, "fast_s");
    be = number(c, "backend_s");
    milliseconds(f, ref, yes(c, "ref_is_scaled") ? "about " : "");
    if (with_fast) milliseconds(f, fast, "");
    milliseconds(f, be, "");
    ratio(f, ref, be);
    if (with_fast) ratio(f, fast, be);
    quantity(f, "", be > 0 ? 1e-9 * work(c) / be : 0, number(c, "flops") > 0 ? " GF/s" : " GB/s");
}

/* A table wider than the screen: it scrolls by itself, by keyboard too, and has a name for
 * screen readers. */
#define TABLE(name) \
    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" name "\">" \
    "<table>\n<tr>"

static void speed_head(FILE *f, int with_fast)
{
    fprintf(f, "<th>ref, ms</th>%s<th>this, ms</th><th>to ref</th>%s<th>rate</th></tr>\n",
            with_fast ? "<th>fast, ms</th>" : "", with_fast ? "<th>to fast</th>" : "");
}

/* Of an operation's cases two are shown: the one nearest to its bound, and the largest that was
 * timed. */
static void representatives(const json_t *cases, const char *op, const json_t **worst,
                            const json_t **timed)
{
    size_t i;
    json_t *c;
    *worst = *timed = NULL;
    json_array_foreach((json_t *)(uintptr_t)cases, i, c)
    {
        if (strcmp(text(c, "operation"), op)) continue;
        if (!*worst || number(c, "worst") > number(*worst, "worst")) *worst = c;
        if (number(c, "backend_s") > 0 && (!*timed || work(c) > work(*timed))) *timed = c;
    }
}

static void operations(FILE *f, const json_t *report)
{
    const json_t *list = json_object_get(report, "operations"), *worst, *timed;
    int with_fast = compared_with_fast(report);
    size_t i;
    json_t *o;
    fputs("<h2>Operations</h2>\n<p class=\"note\">Errors are shares of the bound that the "
          "operation's contract "
          "argues for; the argument that came nearest is named. Times are the best run of the "
          "largest case that was timed.</p>\n" TABLE(
              "Operations") "<th>operation</th><th>version</th><th>cases</th>"
                            "<th>largest error</th><th class=\"words\">timed case</th>",
          f);
    speed_head(f, with_fast);
    json_array_foreach((json_t *)(uintptr_t)list, i, o)
    {
        int failed = whole(o, "failed") > 0;
        representatives(json_object_get(report, "cases"), text(o, "operation"), &worst, &timed);
        fputs("<tr>", f);
        cell(f, "", text(o, "operation"));
        cell(f, failed ? "bad" : "", failed ? "fails" : yes(o, "native") ? "native" : "reference");
        if (whole(o, "cases")) fprintf(f, "<td>%ld</td>", whole(o, "cases"));
        else fputs("<td></td>", f);
        if (failed || !worst) cell(f, "", "");
        else share(f, number(worst, "worst"), text(worst, "of"));
        cell(f, "words", timed ? text(timed, "case") : "");
        speed(f, timed, with_fast);
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
}

static void golden(FILE *f, const json_t *report)
{
    const json_t *list = json_object_get(report, "golden");
    size_t i;
    json_t *g;
    if (!json_array_size(list)) return;
    fputs("<h2>Golden values</h2>\n<p class=\"note\">Recorded from the original Python packages "
          "and replayed here; errors are shares of the tolerance.</p>\n" TABLE(
              "Golden values") "<th>area</th><th>passed</th><th>failed</th>"
                               "<th>largest error</th></tr>\n",
          f);
    json_array_foreach((json_t *)(uintptr_t)list, i, g)
    {
        fputs("<tr>", f);
        cell(f, "", text(g, "area"));
        fprintf(f, "<td>%ld</td><td%s>%ld</td>", whole(g, "passed"),
                whole(g, "failed") ? " class=\"bad\"" : "", whole(g, "failed"));
        share(f, number(g, "worst"), text(g, "of"));
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
}

static void all_cases(FILE *f, const json_t *report)
{
    const json_t *list = json_object_get(report, "cases");
    int with_fast = compared_with_fast(report);
    size_t i;
    json_t *c;
    fprintf(f,
            "<h2>Every case</h2>\n<details><summary>%zu cases</summary>\n" TABLE(
                "Every case") "<th>operation</th><th class=\"words\">case</th><th>error</th>",
            json_array_size(list));
    speed_head(f, with_fast);
    json_array_foreach((json_t *)(uintptr_t)list, i, c)
    {
        fputs("<tr>", f);
        cell(f, "", text(c, "operation"));
        cell(f, "words", text(c, "case"));
        if (yes(c, "ok")) share(f, number(c, "worst"), text(c, "of"));
        else cell(f, "words bad", text(c, "why"));
        speed(f, c, with_fast);
        fputs("</tr>\n", f);
    }
    fputs("</table></div></details>\n", f);
}

/* The closing line of the terminal, counted from the list. */
static void verdict(FILE *f, const json_t *report)
{
    const json_t *list = json_object_get(report, "operations");
    long native = 0, reference = 0, failed = 0, values = 0, wrong = 0;
    size_t i;
    json_t *o;
    json_array_foreach((json_t *)(uintptr_t)list, i, o)
    {
        if (whole(o, "failed")) failed++;
        else if (yes(o, "native")) native++;
        else reference++;
    }
    list = json_object_get(report, "golden");
    json_array_foreach((json_t *)(uintptr_t)list, i, o)
    {
        values += whole(o, "passed") + whole(o, "failed");
        wrong += whole(o, "failed");
    }
    fprintf(f, "<p class=\"verdict%s\">%ld native, %ld reference, %ld failed of %ld operations",
            failed || wrong ? " bad" : "", native, reference, failed, native + reference + failed);
    if (values) fprintf(f, "; %ld of %ld golden values", values - wrong, values);
    fputs("</p>\n", f);
}

static void facts(FILE *f, const json_t *report)
{
    const json_t *m = json_object_get(report, "machine"), *run = json_object_get(report, "run");
    char line[640];
    fputs("<dl>\n", f);
    fact(f, "Backend", text(json_object_get(report, "backend"), "note"));
    snprintf(line, sizeof line, "%s, %ld core%s, %s", text(m, "processor"), whole(m, "cores"),
             whole(m, "cores") == 1 ? "" : "s", text(m, "system"));
    fact(f, "Machine", line);
    fact(f, "Date", text(report, "date"));
    snprintf(line, sizeof line, "potluck %s, seed %ld%s%s%s", text(report, "potluck"),
             whole(run, "seed"), yes(run, "quick") ? ", large shapes left out" : "",
             *text(run, "filter") ? ", only cases with " : "", text(run, "filter"));
    fact(f, "Run", line);
    if (*text(run, "compared_with")) fact(f, "Compared with", text(run, "compared_with"));
    fputs("</dl>\n", f);
}

/* --- of a peer ------------------------------------------------------------------------- */

static void clauses(FILE *f, const json_t *list)
{
    long count[3] = { 0 };
    static const char *const results[] = { "passed", "failed", "skipped" };
    size_t i;
    json_t *c;
    json_array_foreach((json_t *)(uintptr_t)list, i, c) for (int k = 0; k < 3; k++)
        count[k] += !strcmp(text(c, "result"), results[k]);
    fprintf(f, "<p class=\"verdict%s\">%ld passed, %ld failed, %ld skipped</p>\n",
            count[1] ? " bad" : "", count[0], count[1], count[2]);
    fputs(TABLE("Clauses") "<th>section</th><th class=\"words\">clause</th><th>result</th>"
                           "<th class=\"words\">why</th></tr>\n",
          f);
    json_array_foreach((json_t *)(uintptr_t)list, i, c)
    {
        fputs("<tr>", f);
        cell(f, "", text(c, "section"));
        cell(f, "words", text(c, "clause"));
        cell(f, strcmp(text(c, "result"), "failed") ? "" : "bad", text(c, "result"));
        cell(f, "words", text(c, "why"));
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
}

static void peer_report(FILE *f, const json_t *report)
{
    const json_t *peer = json_object_get(report, "peer");
    fputs("<dl>\n", f);
    fact(f, "Address", text(peer, "address"));
    if (*text(peer, "run")) fact(f, "Run", text(peer, "run"));
    if (*text(peer, "prefix")) fact(f, "Prefix", text(peer, "prefix"));
    fact(f, "Date", text(report, "date"));
    fact(f, "Tested by potluck", text(report, "potluck"));
    fputs("</dl>\n", f);
    clauses(f, json_object_get(report, "clauses"));
}

char *conform_page(const json_t *report)
{
    const json_t *peer = json_object_get(report, "peer");
    const char *name = peer ? "a peer" : text(json_object_get(report, "backend"), "name");
    struct pl_memory_stream page;
    FILE *f = pl_memory_stream_open(&page);
    if (!f) return NULL;
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<title>Conformance of ",
          f);
    figure_text(f, name);
    fprintf(f, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>Conformance of ",
            style);
    figure_text(f, name);
    fputs("</h1>\n", f);
    if (peer) {
        peer_report(f, report);
    } else {
        verdict(f, report);
        facts(f, report);
        operations(f, report);
        golden(f, report);
        all_cases(f, report);
    }
    fputs("</main>\n</body>\n</html>\n", f);
    return pl_memory_stream_close(&page, f) ? NULL : page.text;
}
