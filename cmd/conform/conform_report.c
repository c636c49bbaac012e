/* conform_report.c - collects the measurements of `potluck conform` as JSON. The page
 * (conform_page.c) shows the same report. */
#include "conform_report.h"
#include "cmd/common/outputs.h"
#include "data/files/json.h"
#include "data/files/file.h"
#include "ref/small.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

int conform_report_path(const char *path, struct pl_err *err)
{
    struct pl_err why;
    int rc;
    if (!pl_ends_with(path, ".json") && !pl_ends_with(path, ".html"))
        return pl_fail(err, PL_EUSE, "--report: '%.200s' ends neither in .json nor in .html", path);
    rc = outputs_check_file(path, &why);
    return rc ? pl_fail(err, rc, "--report: %s", why.text) : PL_OK;
}

/* The backend's name and note come from a stranger's library: JSON takes them only as valid
 * UTF-8. */
static json_t *text_of(const char *words)
{
    json_t *s = json_string(words);
    return s ? s : json_string("(not UTF-8)");
}

static json_t *seconds_of(double s) { return isnan(s) ? json_null() : json_real(s); }

/* "Intel(R) Xeon(R) ..." if the system names it, otherwise the architecture. */
static void processor(char *name, size_t size, const char *architecture)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256], found[200];
    snprintf(name, size, "%s", architecture);
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %199[^\n]", found) == 1) {
            snprintf(name, size, "%s", found);
            break;
        }
    if (f) fclose(f);
}

static json_t *machine(void)
{
    struct utsname system;
    char cpu[200], kernel[2 * sizeof system.sysname + 2];
    if (uname(&system)) memset(&system, 0, sizeof system);
    processor(cpu, sizeof cpu, system.machine);
    snprintf(kernel, sizeof kernel, "%s %s", system.sysname, system.machine);
    return json_pack("{s:o, s:I, s:o}", "processor", text_of(cpu), "cores",
                     (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "system", text_of(kernel));
}

static void today(char date[32])
{
    time_t now = time(NULL);
    struct tm utc;
    *date = 0;
    if (gmtime_r(&now, &utc)) strftime(date, 32, "%Y-%m-%d", &utc);
}

int conform_report_open(struct conform_report *r, const struct pl_backend *be,
                        const struct pair_options *options, struct pl_err *err)
{
    char date[32];
    today(date);
    r->operations = json_array();
    r->cases = json_array();
    r->golden = json_array();
    r->root = json_pack("{s:s, s:s, s:o, s:{s:o, s:o}, s:{s:I, s:b, s:o?, s:o?}, s:o, s:o, s:o}",
                        "potluck", PL_VERSION, "date", date, "machine", machine(), "backend",
                        "name", text_of(be->name), "note", text_of(be->note), "run", "seed",
                        (json_int_t)options->seed, "quick", options->quick, "filter",
                        options->filter ? text_of(options->filter) : NULL, "compared_with",
                        options->baseline ? text_of(options->baseline->note) : NULL, "operations",
                        r->operations, "golden", r->golden, "cases", r->cases);
    return r->root ? PL_OK : pl_fail(err, PL_ENOMEM, "report: out of memory");
}

/* A missing entry would go unnoticed, so if one cannot be added the whole report fails. */
static void append(struct conform_report *r, json_t *list, json_t *entry)
{
    if (!entry || json_array_append_new(list, entry)) {
        json_decref(r->root);
        r->root = NULL;
    }
}

void conform_report_case(void *context, const struct pair_outcome *o)
{
    struct conform_report *r = context;
    if (!r->root) return;
    append(r, r->cases,
           json_pack("{s:s, s:o, s:b, s:o?, s:f, s:s, s:o, s:b, s:o, s:o, s:f, s:f}", "operation",
                     o->op, "case", text_of(o->line), "ok", !o->why, "why",
                     o->why ? text_of(o->why) : NULL, "worst", o->worst, "of", o->worst_name,
                     "ref_s", seconds_of(o->ref), "ref_is_scaled", o->ref_is_scaled, "backend_s",
                     seconds_of(o->be), "fast_s", seconds_of(o->baseline), "flops", o->flops,
                     "bytes", o->bytes));
}

void conform_report_operation(void *context, const struct pair_total *t)
{
    struct conform_report *r = context;
    if (!r->root) return;
    append(r, r->operations,
           json_pack("{s:s, s:b, s:I, s:I}", "operation", t->op, "native", t->native, "cases",
                     (json_int_t)(t->native ? t->cases : 0), "failed", (json_int_t)t->failed));
}

void conform_report_golden(void *context, const struct golden_total *t)
{
    struct conform_report *r = context;
    if (!r->root) return;
    append(r, r->golden,
           json_pack("{s:s, s:I, s:I, s:f, s:o}", "area", t->area, "passed", (json_int_t)t->passed,
                     "failed", (json_int_t)t->failed, "worst", t->worst, "of",
                     text_of(t->worst_case)));
}

int conform_report_open_peer(struct conform_report *r, const char *address, const char *run,
                             const char *prefix, struct pl_err *err)
{
    char date[32];
    today(date);
    r->clauses = json_array();
    r->root = json_pack("{s:s, s:s, s:{s:o, s:o?, s:o?}, s:o}", "potluck", PL_VERSION, "date", date,
                        "peer", "address", text_of(address), "run", run ? text_of(run) : NULL,
                        "prefix", prefix ? text_of(prefix) : NULL, "clauses", r->clauses);
    return r->root ? PL_OK : pl_fail(err, PL_ENOMEM, "report: out of memory");
}

void conform_report_clause(struct conform_report *r, const char *section, const char *what,
                           const char *result, const char *why)
{
    if (!r->root) return;
    append(r, r->clauses,
           json_pack("{s:o, s:o, s:s, s:o?}", "section", text_of(section), "clause", text_of(what),
                     "result", result, "why", why ? text_of(why) : NULL));
}

int conform_report_write(const struct conform_report *r, const char *path, struct pl_err *err)
{
    char *text = NULL;
    int rc;
    if (r->root)
        text = pl_ends_with(path, ".json") ? pl_json_text(r->root, JSON_INDENT(1))
                                           : conform_page(r->root);
    rc = text ? pl_file_write(path, text, strlen(text), err)
              : pl_fail(err, PL_ENOMEM, "report: out of memory");
    free(text);
    return rc;
}

void conform_report_close(struct conform_report *r)
{
    json_decref(r->root);
    r->root = NULL;
}
