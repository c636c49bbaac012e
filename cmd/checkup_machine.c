/* checkup_machine.c - this machine's half of checkup.h: does the model fit, how fast would it
 * go. */
#include "checkup.h"

#include "../ref/model/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 512          /* of the matrices that are multiplied to see how fast that goes */
#define TRIES 5
#define EXCHANGE_BITS 8   /* as the run's */

/* Bytes that programs may still take; 0: unknown. */
static double available(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    double kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1) break;
    if (f) fclose(f);
    return 1024 * kib;
}

/* Operations a second in products of matrices; 0: no memory. */
static double measure(const struct pl_backend *be)
{
    float *x = calloc(3 * SIDE, SIDE * sizeof *x);
    double best = 0;
    if (!x) return 0;
    for (int i = 0; i < TRIES; i++) {
        double began = pl_seconds(), took;
        if (be->linear(x, x + SIDE * SIDE, x + 2 * SIDE * SIDE, NULL, SIDE, SIDE, SIDE)) break;
        be->sync();
        took = pl_seconds() - began;
        if (took > 0 && 2.0 * SIDE * SIDE * SIDE / took > best)
            best = 2.0 * SIDE * SIDE * SIDE / took;
    }
    free(x);
    return best;
}

/* A token passes each weight once forward and twice backward, once more where layers are computed
 * again; two operations each. Attention's own products are left out: less than a tenth for the run. */
static double operations(const struct pl_memory_plan *plan, const struct pl_memory_use *use)
{
    double passes = plan->layers == PL_MEMORY_STORED ? 3 : 4;
    return 2 * passes * use->unshared * plan->model.sequence;
}

int checkup_machine(const char *model, const struct pl_backend *be, checkup_tell *tell,
                    void *context, struct pl_err *err)
{
    struct pl_memory_model m;
    struct pl_memory_plan plan;
    struct pl_memory_use use;
    struct finding f = { .what = "memory" };
    double have = available(), need, rate;
    int rc = pl_memory_model_named(&m, model, err);
    if (rc) return rc;
    pl_memory_plan_for(&plan, &m);
    plan.exchange = EXCHANGE_BITS;
    if (plan.peers < 2) plan.peers = 2;
    pl_memory_estimate(&use, &plan);
    need = use.device + use.host;
    snprintf(f.text, sizeof f.text, "training %s takes %.1f GiB, %.1f GiB are free", m.name,
             need / 0x1p30, have / 0x1p30);
    if (have > 0 && have < need) {
        f.level = FINDING_BAD;
        snprintf(f.advice, sizeof f.advice, "close other programs, or take part without training: "
                 "potluck peer; what takes how much: potluck calc %s", m.name);
    }
    tell(context, &f);
    f = (struct finding){ .what = "speed" };
    rate = measure(be);
    if (rate > 0) {
        double minutes = operations(&plan, &use) / rate / 60;
        snprintf(f.text, sizeof f.text, "%.0f GFLOP/s (%s): about %.3g samples of %s a minute",
                 1e-9 * rate, be->name, 1 / minutes, m.name);
        if (minutes > 10) {
            f.level = FINDING_WARNING;
            snprintf(f.advice, sizeof f.advice,
                     "too slow to be of use in training: lend bandwidth instead "
                     "(potluck peer), or choose a smaller model");
        }
    } else {
        f.level = FINDING_WARNING;
        snprintf(f.text, sizeof f.text, "not measured: no memory");
    }
    tell(context, &f);
    return PL_OK;
}
