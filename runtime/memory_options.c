/* memory_options.c - the calculator's options by name, for the command line, for recorded cases and
 * for requests over HTTP. */
#include "memory.h"

#include <math.h>
#include <stddef.h>
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

/* No model comes near these limits; products of any three stay finite and are printed in full. */
static const struct {
    const char *name;
    size_t at;
    double min, max;
} numbers[] = {
#define AT(member) offsetof(struct pl_memory_plan, member)
    { "nlayers", AT(model.layers), 1, 1e5 },
    { "seqlen", AT(model.sequence), 1, 1e8 },
    { "dmodel", AT(model.width), 1, 1e7 },
    { "dhid", AT(model.hidden), 1, 1e8 },
    { "vocab-size", AT(model.vocabulary), 1, 1e9 },
    { "heads", AT(model.heads), 1, 1e6 },
    { "bsz", AT(batch), 1, 1e7 },
    { "shared-groups", AT(groups), 0, 1e6 },
    { "ngpus", AT(devices), 1, 1e6 },
    { "min-8bit", AT(min_8bit), 0, 1e12 },
    { "block", AT(block), 1, 1e9 },
    { "peers", AT(peers), 1, 1e6 },
#undef AT
};

static double *number_at(const struct pl_memory_plan *plan, size_t i)
{
    return (double *)((uintptr_t)plan + numbers[i].at);
}

int pl_memory_set(struct pl_memory_plan *plan, const char *option, const char *value,
                  struct pl_err *err)
{
    int x = 0, rc;
    if (same(option, "dmodel")) plan->model.published_width = 0; /* it is taken as given */
    for (size_t i = 0; i < PL_COUNT(numbers); i++)
        if (same(option, numbers[i].name)) return number(number_at(plan, i), option, value, err);
    if (same(option, "model")) return set_model(plan, value, err);
    if (same(option, "zero")) return set_int(&plan->zero, option, value, err);
    if (same(option, "compression-bits") || same(option, "exchange")) /* its former name */
        return set_int(&plan->allreduce_bits, option, value, err);
    if (same(option, "offload")) return word(&plan->offload, option, value, switches, err);
    if (same(option, "fused")) return word(&plan->fused, option, value, switches, err);
    if (same(option, "packed")) return word(&plan->packed, option, value, switches, err);
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

int pl_memory_check(const struct pl_memory_plan *plan, struct pl_err *err)
{
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        const double x = *number_at(plan, i);
        if (!(x >= numbers[i].min && x <= numbers[i].max && x == floor(x)))
            return pl_fail(err, PL_EUSE, "--%s is %g, expected a whole number from %g to %g",
                           numbers[i].name, x, numbers[i].min, numbers[i].max);
    }
    if (plan->zero < 0 || plan->zero > 3)
        return pl_fail(err, PL_EUSE, "--zero is %d, expected a whole number from 0 to 3",
                       plan->zero);
    if (plan->allreduce_bits && plan->allreduce_bits != 8 && plan->allreduce_bits != 16 &&
        plan->allreduce_bits != 32)
        return pl_fail(err, PL_EUSE, "--compression-bits is %d, expected 0, 8, 16 or 32 bits",
                       plan->allreduce_bits);
    return PL_OK;
}
