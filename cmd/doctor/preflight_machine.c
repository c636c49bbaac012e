/* preflight_machine.c - checks of this machine: does the model fit into memory, and how fast would
 * it train. Speed is estimated from one matrix product and the model's operations per sample. */
#include "preflight.h"
#include "cmd/common/process_memory.h"

#include "runtime/memory.h"

#include <stdio.h>

#define SIDE 512 /* of the matrices that are multiplied to see how fast that goes */
#define TRIES 5
#define SHORT 0.1 /* s in which the last of them begins */
#define LONG 60.0
#define ALLREDUCE_BITS 8 /* as in the reference run */

/* Operations a second in products of matrices; 0: no memory. At least one, then as many as begin in
 * `limit` seconds. */
static double measure(const struct pl_backend *be, double limit)
{
    const size_t n = (size_t)SIDE * SIDE;
    float *x = be->alloc(3 * n * sizeof *x);
    double best = 0, end = pl_seconds() + limit;
    if (!x) return 0;
    for (int i = 0; i < TRIES && (!i || pl_seconds() < end); i++) {
        double began = pl_seconds(), took;
        if (be->linear(x, x + n, x + 2 * n, NULL, SIDE, SIDE, SIDE)) break;
        be->sync();
        took = pl_seconds() - began;
        if (took > 0 && 2.0 * SIDE * SIDE * SIDE / took > best)
            best = 2.0 * SIDE * SIDE * SIDE / took;
    }
    be->free(x);
    return best;
}

/* A token passes each weight once forward and twice backward, once more where layers are computed
 * again; two operations each. Attention's own products are left out: less than a tenth for the
 * run. */
static double operations(const struct pl_memory_plan *plan, const struct pl_memory_use *use)
{
    double passes = plan->layers == PL_MEMORY_STORED ? 3 : 4;
    return 2 * passes * use->unshared * plan->model.sequence;
}

static void memory(const struct pl_memory_plan *plan, double need, double have,
                   preflight_report *report, void *context)
{
    struct finding f = { .what = "memory" };
    snprintf(f.text, sizeof f.text, "training %s takes %.1f GiB, and %.1f GiB are free",
             plan->model.name, need / 0x1p30, have / 0x1p30);
    snprintf(f.brief, sizeof f.brief, "%.1f of %.1f GiB", need / 0x1p30, have / 0x1p30);
    if (have > 0 && have < need) {
        f.level = FINDING_BAD;
        snprintf(f.advice, sizeof f.advice,
                 "your side: close other programs, or take part without "
                 "training (potluck peer). potluck calc %s lists what needs memory",
                 plan->model.name);
    }
    report(context, &f);
}

static void speed(const struct pl_memory_plan *plan, const struct pl_memory_use *use,
                  const struct pl_backend *be, double limit, preflight_report *report,
                  void *context)
{
    struct finding f = { .what = "speed" };
    double rate = measure(be, limit), minutes;
    if (rate > 0) {
        minutes = operations(plan, use) / rate / 60;
        snprintf(f.text, sizeof f.text, "%.0f GFLOP/s (%s): about %.3g samples of %s a minute",
                 1e-9 * rate, be->name, 1 / minutes, plan->model.name);
        snprintf(f.brief, sizeof f.brief, "%.0f GFLOP/s", 1e-9 * rate);
        if (minutes > 10) {
            f.level = FINDING_WARNING;
            snprintf(
                f.advice, sizeof f.advice,
                "your side: too slow for this model: choose a smaller one, or contribute bandwidth "
                "(potluck peer)");
        }
    } else {
        f.level = FINDING_WARNING;
        snprintf(f.text, sizeof f.text, "not measured: no memory");
    }
    report(context, &f);
}

int preflight_machine(const char *model, const struct pl_backend *be, preflight_report *report,
                      void *context, struct pl_err *err)
{
    struct pl_memory_model m;
    struct pl_memory_plan plan;
    struct pl_memory_use use;
    int rc = pl_memory_model_named(&m, model, err);
    if (rc) return rc;
    pl_memory_plan_for(&plan, &m);
    plan.allreduce_bits = ALLREDUCE_BITS;
    if (plan.peers < 2) plan.peers = 2;
    pl_memory_estimate(&use, &plan);
    memory(&plan, use.device + use.host, proc_bytes("/proc/meminfo", "MemAvailable"), report,
           context);
    speed(&plan, &use, be, LONG, report, context);
    return PL_OK;
}

/* Tensors on a device were allocated in full, otherwise training would not have come so far. */
void preflight_plan_fits(const struct pl_memory_plan *training, const struct pl_backend *be,
                         preflight_report *report, void *context)
{
    struct pl_memory_plan plan = *training;
    struct pl_memory_use use;
    plan.allreduce_bits = ALLREDUCE_BITS;
    pl_memory_estimate(&use, &plan);
    memory(&plan, use.host + (be->host_alloc ? 0 : use.device),
           proc_bytes("/proc/meminfo", "MemAvailable") + proc_bytes("/proc/self/status", "VmRSS"),
           report, context);
    speed(&plan, &use, be, SHORT, report, context);
}
