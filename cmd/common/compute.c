/* compute.c - opens the backend that the options describe, and tells the user how to avoid a lack
 * of memory. */
#include "compute.h"
#include "runtime/transfer.h"
#include "../../runtime/backend_open.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX 64 /* more than any machine has, so that a wrong list ends */

/* "3": devices 0 to 2. "0,2", or "2," for one: their numbers. Returns how many; 0: neither. */
static int read_gpus(int number[GPUS_MAX], const char *text)
{
    int count = 0;
    if (!strchr(text, ',')) {
        long n = strtol(text, NULL, 10);
        if (n > GPUS_MAX) return 0;
        for (; count < n; count++) number[count] = count;
        return count;
    }
    while (*text) {
        char *end;
        long n = strtol(text, &end, 10);
        if (end == text || n > INT_MAX || count == GPUS_MAX) return 0;
        number[count++] = (int)n;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

static int take_gpus(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct compute *c = options;
    int number[GPUS_MAX];
    c->gpus = value;
    if (!strcmp(value, "all") || (!value[strspn(value, "0123456789,")] && read_gpus(number, value)))
        return PL_OK;
    return pl_fail(err, PL_EUSE,
                   "'%.40s' is neither a number from 1 to %d, nor all, nor a list such as 0,2",
                   value, GPUS_MAX);
}

static const char *const backends[] = { "auto", "ref", "fast", "cuda", NULL };
static const char *const precisions[] = { "float32", "bf16", NULL };

#define OPTIONS struct compute
const struct option_row compute_rows[] = {
    { NULL, NULL, NULL, OPT_HEADING, "Backend and devices" },
    { "backend", "B", "auto", OPT_PATH_OR(backend, backends),
      "backend to compute with: auto, ref, fast, cuda or a file such as ./library.so" },
    { "precision", "P", "float32", OPT_NAME(precision, precisions), "operands of matrix products" },
    { "threads", "N", NULL, OPT_INTEGER(threads, 1, 1024),
      "threads to compute with (default: one per core)" },
    { "gpu-memory", "GIB", NULL, OPT_REAL(gpu_memory, 0.001, 1e6),
      "use at most this much of the device's memory (default: all)" },
    { "gpus", "N|LIST", NULL, OPT_CALL(take_gpus),
      "devices to train on: the first N, all, or a list of numbers such as 0,2. Everything but "
      "training uses the first of them (default: 1)" },
    { 0 },
};

static int choose_gpus(const struct pl_backend *be, struct compute *c, struct pl_err *err)
{
    int number[GPUS_MAX], count = 0;
    if (strcmp(c->gpus, "all")) count = read_gpus(number, c->gpus);
    else
        for (; count < pl_device_count(be) && count < GPUS_MAX; count++) number[count] = count;
    c->devices = count;
    if (count && !pl_set_devices(be, number, count)) return PL_OK;
    return pl_fail(err, PL_EDEVICE, "--gpus %.40s: backend %s: %s", c->gpus, be->name,
                   be->memory_error()[0] ? be->memory_error() : "has no devices to choose from");
}

int compute_open(struct pl_backend *be, struct compute *c, const char *cmd)
{
    int bf16 = c->precision && !strcmp(c->precision, "bf16");
    struct pl_err err;
    int rc = pl_backend_open(be, c->backend ? c->backend : "auto", &err);
    if (!rc && (rc = be->set_threads((int)c->threads)))
        pl_fail(&err, rc, "backend %s does not run on %d threads", be->name, (int)c->threads);
    if (!rc && c->gpu_memory > 0 && (rc = be->set_memory((size_t)(c->gpu_memory * 0x1p30))))
        pl_fail(&err, rc, "--gpu-memory: backend %s works in the machine's memory", be->name);
    c->devices = 1;
    if (!rc && c->gpus) rc = choose_gpus(be, c, &err);
    /* of the devices that were chosen */
    if (!rc && bf16 && (rc = be->set_precision(PL_BF16)))
        pl_fail(&err, rc, "backend %s offers no bf16", be->name);
    if (rc) command_failed(cmd, "%s", err.text);
    return rc;
}

void compute_open_host(struct pl_backend *host, const struct compute *c)
{
    if (pl_backend_open(host, "fast", NULL)) pl_backend_ref(host);
    host->set_threads((int)c->threads);
}

/* Half of it, or a little less: a divisor of the batch divides the target batch too. */
static int64_t smaller_batch(int64_t batch)
{
    int64_t less = batch / 2;
    while (less > 1 && batch % less) less--;
    return less;
}

void compute_explain(struct pl_err *err, int rc, const struct pl_backend *be, int64_t batch,
                     const char *option)
{
    const char *trouble = pl_backend_error(be, rc);
    int64_t less = smaller_batch(batch);
    size_t used;
    if (rc != PL_ENOMEM && rc != PL_EDEVICE) return;
    used = strlen(err->text);
    if (*trouble) {
        snprintf(err->text + used, sizeof err->text - used, " (%s: %s)", be->name, trouble);
        used = strlen(err->text);
    }
    if (rc != PL_ENOMEM) return;
    if (less >= 1)
        snprintf(err->text + used, sizeof err->text - used, "; try --batch %lld", (long long)less);
    else if (option) snprintf(err->text + used, sizeof err->text - used, "; try %s", option);
    else snprintf(err->text + used, sizeof err->text - used, "; a smaller model would fit");
}
