/* bench_parts.c - every operation of a backend, compared with the reference and with the
 * machine's peak: the cases of the pair tests that are large enough to time. */
#include "bench.h"
#include "test/conform/pairs/pair.h"

#include <math.h>
#include <stdio.h>

#define AT_LEAST 1e7 /* bytes, or tenths of operations: about a millisecond */

static void print_row(void *context, const struct pair_outcome *t)
{
    struct bench *b = context;
    double work = t->flops > 0 ? t->flops : t->bytes, rate = work / t->be;
    double peak = t->flops > 0 ? b->peak.float32 : b->peak.memory;
    char name[64];
    json_t *row;
    if (t->why || isnan(t->be) || work <= 0) return;
    snprintf(name, sizeof name, "%s %s", t->op, t->line);
    printf("%-60.60s %s%8.2f %9.3f %7.0fx %7.1f %s %4.0f %%\n", name, t->ref_is_scaled ? "~" : " ",
           1e3 * t->ref, 1e3 * t->be, t->ref / t->be, 1e-9 * rate, t->flops > 0 ? "GF/s" : "GB/s",
           100 * rate / peak);
    fflush(stdout);
    row = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "section", "part", "operation", t->op,
                    "case", t->line, "be_s", t->be, "flops", t->flops, "bytes", t->bytes, "of_peak",
                    rate / peak);
    if (!isnan(t->ref))
        json_object_set_new(row, t->ref_is_scaled ? "ref_scaled_s" : "ref_s", json_real(t->ref));
    bench_row(b, NULL, row);
}

int bench_parts(struct bench *b)
{
    struct pair_options o = { .filter = b->filter,
                              .seed = 1,
                              .timing = PAIR_BENCH,
                              .at_least = AT_LEAST,
                              .threads = (int)b->compute.threads,
                              .seen = print_row,
                              .quiet = 1,
                              .context = b };
    long failed;
    printf("\n%-60s %9s %9s %8s %12s %6s\n", "part", "ref ms", "ms", "ratio", "rate", "peak");
    failed = pair_all(&b->be, &o);
    if (failed < 0) command_failed("bench", "no part's line contains '%.80s'", b->filter);
    return failed != 0;
}
