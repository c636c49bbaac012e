/* lab.c - `potluck lab`: swarms on a virtual clock, to compare ways of training together. */
#include "cmd/cmd.h"
#include "cmd/common/compute.h"
#include "cmd/common/outputs.h"
#include "lab_job.h"
#include "lab_report.h"

#include <stdio.h>
#include <string.h>

#define RUNS_MAX 16 /* curves in one figure that an eye tells apart */

struct requests {
    struct compute compute;
    const char *out, *figures;
    int64_t stop_after;
    int resume, quiet, timing;
};

#define OPTIONS struct requests
static const struct option_row rows[] = {
    { "out", "PATH", NULL, OPT_PATH(out),
      "run: the folder for log and saved state (default: out/lab/NAME); compare: the report "
      "(default: out/lab/report.html)" },
    { "figures", "FOLDER", NULL, OPT_PATH(figures),
      "compare: write each figure also as a file of its own, in SVG and, with librsvg, in PNG" },
    { "resume", NULL, NULL, OPT_FLAG(resume), "run: continue from the saved state in the folder" },
    { "stop", "N", "0", OPT_INTEGER(stop_after, 0, INT64_MAX / 2),
      "run: save and stop after N gradients of all peers together; 0: at the end" },
    { "timing", NULL, NULL, OPT_FLAG(timing),
      "run: times and bytes only; gradients are zero, and no loss is computed" },
    { "quiet", NULL, NULL, OPT_FLAG(quiet), "no progress, only the result" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

static int run_lab(int argc, char **argv);
const struct command command_lab = {
    .name = "lab",
    .summary = "compare ways of training together, in one process on a virtual clock",
    .synopsis = "run FILE [OPTION ...]\n"
                "compare FOLDER ... [--out FILE]",
    .about =
        "`lab run` trains a swarm of 2 to 64 simulated peers: gradients, algorithms and the sizes "
        "of messages are real; the time that computing and sending take is simulated. FILE (YAML "
        "or JSON) names the algorithm, the peers, their links and the faults. The same file gives "
        "the same result, bit for bit. `lab compare` reads the folders of runs and writes a "
        "report, one HTML file that needs nothing else: loss against samples, bytes and virtual "
        "time, use of the processors and of the links, and a timeline of every peer.",
    .rows = rows,
    .notes = "cmd/lab/README.md lists the keys of a run's file and describes the simulation; "
             "paper/algorithms.md describes the algorithms.",
    .run = run_lab,
};

static int fail(const struct pl_err *err) { return command_failed("lab", "%s", err->text); }

static int run_file(struct requests *r, const char *path)
{
    struct lab_job job = { .stop = (uint64_t)r->stop_after,
                           .resume = r->resume,
                           .is_timing = r->timing,
                           .quiet = r->quiet };
    static struct lab_run run; /* large: every peer that may leave */
    struct pl_backend be;
    struct pl_err err = { "" };
    char folder[LAB_NAME_MAX + 16];
    int is_complete = 0, rc = lab_run_read(&run, path, &err);
    if (rc) return fail(&err);
    if (compute_open(&be, &r->compute, "lab")) {
        lab_run_clear(&run);
        return 1;
    }
    snprintf(folder, sizeof folder, "out/lab/%s", run.name);
    job.run = &run;
    job.be = &be;
    job.out = r->out ? r->out : folder;
    rc = lab_job_run(&job, &is_complete, &err);
    if (rc) fail(&err);
    else if (is_complete)
        printf("%s: complete; potluck lab compare %s draws it\n", run.name, job.out);
    else printf("%s: stopped and saved; --resume continues\n", run.name);
    lab_run_clear(&run);
    return rc ? 1 : 0;
}

static int compare(struct requests *r, char **folder, int count)
{
    struct pl_err err = { "" };
    const char *out = r->out ? r->out : "out/lab/report.html";
    int png;
    if (outputs_check_file(out, &err) || (r->figures && outputs_check_folder(r->figures, &err)))
        return fail(&err);
    if (lab_report(out, r->figures, (const char *const *)folder, count, &png, &err))
        return fail(&err);
    if (!png && !r->quiet) fprintf(stderr, "potluck lab: %s\n", err.text);
    if (!r->quiet) printf("%s\n", out);
    return 0;
}

static int run_lab(int argc, char **argv)
{
    static const char *const verbs[] = { "run", "compare", NULL };
    struct requests r = { 0 };
    int words, status, verb;
    if (options_parse(&command_lab, &r, argc, argv, &words, &status)) return status;
    if (words == 2 && !strcmp(argv[1], "run")) return run_file(&r, argv[2]);
    if (words >= 2 && !strcmp(argv[1], "compare") && words - 1 <= RUNS_MAX)
        return compare(&r, argv + 2, words - 1);
    if ((verb = command_verb("lab", verbs, words ? argv[1] : NULL)) == 0)
        command_misused("lab", "run: one file is needed");
    else if (verb == 1)
        command_misused("lab", "compare: 1 to %d folders of runs are needed", RUNS_MAX);
    return 2;
}
