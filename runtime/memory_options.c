/* memory_options.c - the calculator's options by name, for the command line, for recorded cases and
 * for requests over HTTP. */
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct word {
    const char *name;
    int value;
};
static const struct word optimizers[] = {
    { "32-bit", PL_MEMORY_32BIT },
    { "16-bit", PL_MEMORY_16BIT },
    { "8-bit", PL_MEMORY_8BIT },
    { "factorized", PL_MEMORY_FACTORED },
    { "factorized-alone", PL_MEMORY_FACTORED_ALONE },
    /* as the published command line calls them */
    { "adam", PL_MEMORY_32BIT },
    { "16-bit-adam", PL_MEMORY_16BIT },
    { "8-bit-adam", PL_MEMORY_8BIT },
    { "adafactor", PL_MEMORY_FACTORED },
    { "adafactor-fac-only", PL_MEMORY_FACTORED_ALONE },
    { NULL, 0 },
};
static const struct word precisions[] = {
    { "full", PL_MEMORY_FULL }, { "mixed", PL_MEMORY_MIXED },
    { "half", PL_MEMORY_HALF }, { "O0", PL_MEMORY_FULL },
    { "O1", PL_MEMORY_MIXED },  { "O2", PL_MEMORY_MIXED },
    { "O3", PL_MEMORY_HALF },   { NULL, 0 },
};
static const struct word layers[] = {
    { "stored", PL_MEMORY_STORED },
    { "checkpoint", PL_MEMORY_CHECKPOINT },
    { "reversible", PL_MEMORY_REVERSIBLE },
    { NULL, 0 },
};
static const struct word switches[] = { { "on", 1 },    { "off", 0 }, { "true", 1 },
                                        { "false", 0 }, { "yes", 1 }, { "no", 0 },
                                        { "1", 1 },     { "0", 0 },   { NULL, 0 } };

static int same(const char *a, const char *b)
{
    while (*a && (*a == *b || (*a == '_' && *b == '-'))) a++, b++;
    return !*a && !*b;
}

static int word(int *out, const char *option, const char *value, const struct word *words,
                struct pl_err *err)
{
    char all[200] = "";
    for (const struct word *w = words; w->name; w++) {
        if (!strcmp(w->name, value)) {
            *out = w->value;
            return PL_OK;
        }
        if (strlen(all) + strlen(w->name) + 3 < sizeof all) {
            if (*all) strcat(all, ", ");
            strcat(all, w->name);
        }
    }
    return pl_fail(err, PL_EUSE, "--%s: '%.40s' is not one of %s", option, value, all);
}

static int number(double *out, const char *option, const char *value, struct pl_err *err)
{
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !isfinite(x))
        return pl_fail(err, PL_EUSE, "--%s: '%.40s' is not a number", option, value);
    *out = x;
    return PL_OK;
}

static int set_model(struct pl_memory_plan *plan, const char *name, struct pl_err *err)
{
    struct pl_memory_model m;
    int rc = pl_memory_model_named(&m, name, err);
    if (!rc) pl_memory_plan_for(plan, &m);
    return rc;
}

static int set_int(int *out, const char *option, const char *value, struct pl_err *err)
{
    double x = 0;
    int rc = number(&x, option, value, err);
    if (rc) return rc;
    if (x < 0 || x > 1000 || x != floor(x))
        return pl_fail(err, PL_EUSE, "--%s: '%.40s' is not a whole number from 0 to 1000", option,
                       value);
    *out = (int)x;
    return PL_OK;
}

int pl_memory_set(struct pl_memory_plan *plan, const char *option, const char *value,
                  struct pl_err *err)
{
    struct pl_memory_model *m = &plan->model;
    const struct {
        const char *name;
        double *at;
    } numbers[] = {
        { "nlayers", &m->layers },
        { "seqlen", &m->sequence },
        { "dhid", &m->hidden },
        { "vocab-size", &m->vocabulary },
        { "heads", &m->heads },
        { "bsz", &plan->batch },
        { "shared-groups", &plan->groups },
        { "ngpus", &plan->devices },
        { "min-8bit", &plan->min_8bit },
        { "block", &plan->block },
        { "peers", &plan->peers },
    };
    int x = 0, rc;
    for (size_t i = 0; i < PL_COUNT(numbers); i++)
        if (same(option, numbers[i].name)) return number(numbers[i].at, option, value, err);
    if (same(option, "model")) return set_model(plan, value, err);
    if (same(option, "dmodel")) {
        m->published_width = 0; /* an explicit width is taken as given */
        return number(&m->width, option, value, err);
    }
    if (same(option, "zero")) return set_int(&plan->zero, option, value, err);
    if (same(option, "compression-bits") || same(option, "exchange")) /* its former name */
        return set_int(&plan->allreduce_bits, option, value, err);
    if (same(option, "offload")) return word(&plan->offload, option, value, switches, err);
    if (same(option, "fused")) return word(&plan->fused, option, value, switches, err);
    if (same(option, "dropout")) return word(&plan->dropout, option, value, switches, err);
    if (same(option, "checkpoint")) {
        if (!(rc = word(&x, option, value, switches, err)))
            plan->layers = x ? PL_MEMORY_CHECKPOINT : PL_MEMORY_STORED;
        return rc;
    }
    if (same(option, "optimizer")) {
        if (!(rc = word(&x, option, value, optimizers, err)))
            plan->optimizer = (enum pl_memory_optimizer)x;
        return rc;
    }
    if (same(option, "fp16-level") || same(option, "precision")) {
        if (!(rc = word(&x, option, value, precisions, err)))
            plan->precision = (enum pl_memory_precision)x;
        return rc;
    }
    if (same(option, "layers")) {
        if (!(rc = word(&x, option, value, layers, err))) plan->layers = (enum pl_memory_layers)x;
        return rc;
    }
    return pl_fail(err, PL_ENOTFOUND, "no option is called '%.40s'", option);
}
