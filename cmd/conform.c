/* conform.c - `potluck conform`: is a backend right? Strangers run it on theirs. */
#include "cmd.h"
#include "../ref/backend.h"
#include "../test/conform/golden.h"
#include "../test/conform/pair.h"

#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "usage: potluck conform [--backend B] [--filter S] [--seed N] [--quick]\n"
    "                       [--bench [--threads N]]\n"
    "       potluck conform --golden DIR [--backend B] [--filter S]\n"
    "\n"
    "Is a backend right? Runs every operation beside the reference on the same random values; with\n"
    "--golden, replays values recorded from the original packages.\n"
    "\n"
    "  --backend B    ref, fast, auto or ./library.so (default: auto)\n"
    "  --filter S     only cases whose line contains S\n"
    "  --seed N       other values and other odd shapes (default: 1)\n"
    "  --quick        leaves out the large shapes, for backends that are slow on purpose\n"
    "  --bench        times each case: reference, backend, ratio, GF/s or GB/s\n"
    "  --threads N    threads for --bench (default: one a core)\n"
    "  --golden DIR   a folder named after its area (dalle, quant, ...), or a folder of such folders\n"
    "\n"
    "One line a case; the last line counts them. Exit status 0 only without failures.\n";

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
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *golden = NULL, *backend = "auto";
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
        case 'B': pair.bench = 1; break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (optind < argc || (golden && pair.bench)) {
        fputs(usage, stderr);
        return 2;
    }
    if (pl_backend_open(&be, backend, &err)) {
        fprintf(stderr, "potluck conform: %s\n", err.text);
        return 1;
    }
    printf("backend %s\n", be.note);
    if (!golden) return pair_all(&be, &pair) != 0;
    failed = golden_run(&be, golden, pair.filter, &err);
    if (failed < 0) {
        fprintf(stderr, "potluck conform: %s\n", err.text);
        return 1;
    }
    return failed != 0;
}
