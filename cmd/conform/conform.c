/* conform.c - `potluck conform`: is a backend right? Strangers run it on theirs. */
#include "cmd/cmd.h"
#include "conform_peer.h"
#include "conform_report.h"
#include "../../runtime/backend_open.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: potluck conform [--backend B] [--filter S] [--seed N] [--quick]\n"
    "                       [--bench [--threads N]]\n"
    "       potluck conform --golden DIR [--backend B] [--filter S]\n"
    "       potluck conform --report FILE [--golden DIR] [--backend B] [--filter S] [--quick]\n" CONFORM_PEER_SYNOPSIS
    "\n"
    "Is a backend right? Runs every operation beside the reference on the same random values; with\n"
    "--golden, replays values recorded from the original packages. And is a peer right? See --peer.\n"
    "\n"
    "  --backend B    ref, fast, auto or ./library.so (default: auto)\n"
    "  --filter S     only cases whose line contains S (bf16: those with operands in bfloat16, which a\n"
    "                 backend that offers it is asked for; else and in --golden, float32)\n"
    "  --seed N       other values and other odd shapes (default: 1)\n"
    "  --quick        leaves out the large shapes, for backends that are slow on purpose\n"
    "  --bench        times each case: reference, backend, ratio, GF/s or GB/s\n"
    "  --threads N    threads for --bench (default: one a core)\n"
    "  --golden DIR   a folder named after its area (dalle, quant, ...), or a folder of such folders\n"
    "  --report FILE  a page to publish (.html) or to work with (.json): machine, operations, errors\n"
    "                 against their bounds, times beside ref and fast; with --golden, that too\n" CONFORM_PEER_USAGE
    "\n"
    "One line a case; the last line counts them. Exit status 0 only without failures.\n";

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
    int rc;
    if ((rc = conform_report_path(path, &err))) {
        rc = rc == PL_EUSE ? 2 : 1;
        goto say;
    }
    rc = 1;
    if (pl_backend_open(&fast, "fast", &err)) printf("fast is left out: %s\n", err.text);
    else if (strcmp(be->name, fast.name)) pair->beside = &fast;
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
    fprintf(stderr, "potluck conform: %s\n", err.text);
    conform_report_close(&r);
    return rc;
}

int cmd_conform(int argc, char **argv)
{
    static const struct option options[] = {
        { "golden", required_argument, NULL, 'g' },
        { "backend", required_argument, NULL, 'b' },
        { "filter", required_argument, NULL, 'f' },
        { "seed", required_argument, NULL, 's' },
        { "threads", required_argument, NULL, 't' },
        { "quick", no_argument, NULL, 'q' },
        { "bench", no_argument, NULL, 'B' },
        { "report", required_argument, NULL, 'r' },
        CONFORM_PEER_OPTIONS,
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    struct conform_peer peer = CONFORM_PEER_USUAL;
    const char *golden = NULL, *backend = "auto", *page = NULL;
    struct pair_options pair = { .seed = 1 };
    int64_t seed, threads;
    struct pl_backend be;
    struct pl_err err;
    long failed;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'g': golden = optarg; break;
        case 'b': backend = optarg; break;
        case 'f': pair.filter = optarg; break;
        case 's':
            if (cmd_integer(&seed, "conform", "--seed", optarg, 0, INT64_MAX)) return 2;
            pair.seed = (uint64_t)seed;
            break;
        case 't':
            if (cmd_integer(&threads, "conform", "--threads", optarg, 1, 1024)) return 2;
            pair.threads = (int)threads;
            break;
        case 'q': pair.quick = 1; break;
        case 'B': pair.timing = PAIR_BENCH; break;
        case 'r': page = optarg; break;
        case 'h': fputs(usage, stdout); return 0;
        default:
            if (conform_peer_option(&peer, c, optarg)) break;
            return 2;
        }
    }
    if (cmd_no_more("conform", argc, argv) || conform_peer_misused(&peer, golden || page)) return 2;
    if ((golden || page) && pair.timing) {
        cmd_misused("conform", "--bench goes with neither --golden nor --report");
        return 2;
    }
    if (pl_backend_open(&be, backend, &err)) {
        fprintf(stderr, "potluck conform: %s\n", err.text);
        return 1;
    }
    if (peer.address) return conform_peer(&peer, &be);
    printf("backend %s\n", be.note);
    if (page) return report(&be, &pair, golden, page);
    if (golden ? golden_run(&be, golden, pair.filter, NULL, NULL, &failed, &err)
               : (failed = pair_all(&be, &pair)) < 0 && no_case(&err, pair.filter)) {
        fprintf(stderr, "potluck conform: %s\n", err.text);
        return 1;
    }
    return failed != 0;
}
