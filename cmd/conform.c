/* conform.c - `potluck conform`: is a backend right? Strangers run it on theirs. */
#include "cmd.h"
#include "../ref/backend.h"
#include "../test/conform/golden.h"

#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "usage: potluck conform --golden DIR [--backend B] [--filter S]\n"
    "\n"
    "Replays golden values recorded from the original packages.\n"
    "\n"
    "  --golden DIR   a folder named after its area (dalle, quant, ...), or a folder of such folders\n"
    "  --backend B    ref, fast, auto or ./library.so (default: auto)\n"
    "  --filter S     only cases whose line contains S\n"
    "\n"
    "One line a case; the last line counts them. Exit status 0 only without failures.\n";

int cmd_conform(int argc, char **argv)
{
    static const struct option options[] = {
        { "golden", required_argument, NULL, 'g' },
        { "backend", required_argument, NULL, 'b' },
        { "filter", required_argument, NULL, 'f' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *golden = NULL, *backend = "auto", *filter = NULL;
    struct pl_backend be;
    struct pl_err err;
    long failed;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'g': golden = optarg; break;
        case 'b': backend = optarg; break;
        case 'f': filter = optarg; break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (!golden || optind < argc) {
        fputs(usage, stderr);
        return 2;
    }
    if (pl_backend_open(&be, backend, &err)) {
        fprintf(stderr, "potluck conform: %s\n", err.text);
        return 1;
    }
    printf("backend %s\n", be.note);
    failed = golden_run(&be, golden, filter, &err);
    if (failed < 0) {
        fprintf(stderr, "potluck conform: %s\n", err.text);
        return 1;
    }
    return failed != 0;
}
