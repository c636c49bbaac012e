/* conform.c - `potluck conform`: tests a backend against the reference and golden values, or a live
 * peer against the protocol. Made for other people's backends and peers. */
#include "cmd/cmd.h"
#include "conform_peer.h"
#include "conform_report.h"
#include "../../runtime/backend_open.h"

#include <stdio.h>
#include <string.h>

/* Below this a case is all overhead: bytes, or tenths of operations. */
#define REPORT_TIMES 1e6

static int no_case(struct pl_err *err, const char *filter)
{
    return pl_fail(err, PL_ENOTFOUND, "no case's line contains '%.80s'", filter);
}

/* Pair tests with times, goldens if asked for, and the page of both. Exit status. */
static int report(const struct pl_backend *be, struct pair_options *pair, const char *golden,
                  const char *path)
{
    struct conform_report r = { 0 };
    struct pl_backend fast;
    struct pl_err err;
    long failed;
    int rc = 1;
    if (pl_backend_open(&fast, "fast", &err)) printf("fast is left out: %s\n", err.text);
    else if (strcmp(be->name, fast.name)) pair->baseline = &fast;
    pair->timing = PAIR_CHECK_AND_TIME;
    pair->at_least = REPORT_TIMES;
    pair->seen = conform_report_case;
    pair->total = conform_report_operation;
    pair->context = &r;
    if (conform_report_open(&r, be, pair, &err)) goto say;
    failed = pair_all(be, pair);
    if (golden) {
        long more;
        int none = golden_run(be, golden, pair->filter, conform_report_golden, &r, &more, &err);
        /* a filter may be meant for the pairs alone, or for the golden values alone */
        if (none && (none != PL_ENOTFOUND || failed < 0)) goto say;
        failed = (failed < 0 ? 0 : failed) + more;
    }
    if (failed < 0) {
        no_case(&err, pair->filter);
        goto say;
    }
    if (conform_report_write(&r, path, &err)) goto say;
    printf("report: %s\n", path);
    rc = failed != 0;
    conform_report_close(&r);
    return rc;
say:
    command_failed("conform", "%s", err.text);
    conform_report_close(&r);
    return rc;
}

struct conform_options {
    struct conform_peer peer;
    const char *golden, *backend, *page;
    struct pair_options pair;
    int is_bench;
};

static const char *const backends[] = { "auto", "ref", "fast", "cuda", NULL };

#define OPTIONS struct conform_options
static const struct option_row rows[] = {
    { "backend", "B", "auto", OPT_PATH_OR(backend, backends),
      "backend to test: auto, ref, fast, cuda or a file such as ./library.so" },
    { "filter", "S", NULL, OPT_TEXT(pair.filter),
      "only cases whose line contains S; bf16 selects those with operands in bfloat16, if the "
      "backend has them" },
    { "seed", "N", "1", OPT_INTEGER(pair.seed, 0, INT64_MAX),
      "other random values and other odd shapes" },
    { "quick", NULL, NULL, OPT_FLAG(pair.quick), "leave out large shapes, for slow backends" },
    { "bench", NULL, NULL, OPT_FLAG(is_bench),
      "time each case: reference, backend, ratio, and GF/s or GB/s" },
    { "threads", "N", NULL, OPT_INTEGER(pair.threads, 1, 1024),
      "threads for --bench (default: one per core)" },
    { "golden", "DIR", NULL, OPT_PATH(golden),
      "replay the golden values in this folder, named after its area (dalle, quant, ...), or in "
      "a folder of such folders" },
    { "report", "FILE", NULL, OPT_PATH(page),
      "write a report as a page (.html) or as data (.json): machine, operations, errors and "
      "their bounds, times compared with ref and fast; with --golden also its results; with "
      "--peer the clauses" },
    { NULL, NULL, NULL, OPT_HEADING, "Testing a peer" },
    { NULL, NULL, NULL, OPT_TABLE(peer, conform_peer_rows), NULL },
    { 0 },
};

static int run_conform(int argc, char **argv)
{
    struct conform_options o = { .golden = NULL };
    struct pl_backend be;
    struct pl_err err;
    long failed;
    int status;
    if (options_parse(&command_conform, &o, argc, argv, NULL, &status)) return status;
    if (conform_peer_misused(&o.peer, o.golden != NULL)) return 2;
    if (o.is_bench) o.pair.timing = PAIR_BENCH;
    if ((o.golden || o.page) && o.is_bench) {
        command_misused("conform", "--bench cannot be combined with --golden or --report");
        return 2;
    }
    if ((o.page && (status = conform_report_path(o.page, &err))) ||
        (status = pl_backend_open(&be, o.backend, &err) ? PL_EDEVICE : PL_OK)) {
        command_failed("conform", "%s", err.text);
        return command_status(status);
    }
    if (o.peer.address) return conform_peer(&o.peer, &be, o.page);
    printf("backend %s\n", be.note);
    if (o.page) return report(&be, &o.pair, o.golden, o.page);
    if (o.golden ? golden_run(&be, o.golden, o.pair.filter, NULL, NULL, &failed, &err)
                 : (failed = pair_all(&be, &o.pair)) < 0 && no_case(&err, o.pair.filter)) {
        return command_failed("conform", "%s", err.text);
    }
    return failed != 0;
}

const struct command command_conform = {
    .name = "conform",
    .summary = "test a backend against the reference, or a peer against the protocol",
    .synopsis = "[--backend B] [--filter S] [--seed N] [--quick] [--bench]\n"
                "--golden DIR [--backend B] [--filter S]\n"
                "--report FILE [--golden DIR] [--backend B] [--filter S] [--quick]\n"
                "--peer MULTIADDR [--run ID] [--prefix P [--class NAME]] [--report FILE]",
    .about =
        "Tests a backend: runs every operation and the reference on the same random values and "
        "compares the results. With --golden it replays values recorded from the original "
        "packages instead. With --peer it tests a live peer, clause by clause.",
    .rows = rows,
    .notes =
        "Prints one line per case, and the counts in the last line. The exit status is 0 only if "
        "nothing failed.",
    .run = run_conform,
};
