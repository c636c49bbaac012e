/* settings.c - what can be set of an algorithm, with its limits.
 *
 * One table gives each setting its name, its place in struct pl_outer_setup and its limits. Command
 * lines, files of the laboratory, and the manifest that a stranger has published all go through it,
 * so each value is checked in one place. Limits keep the arithmetic defined; whether values suit
 * each other, the algorithm's own open decides.
 *
 * Runs publish these names in their manifest, so they are part of what peers agree on. */
#include "settings.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 32
/* A row's place in the setup, and its type: every whole number is an int, every other a double. */
#define WHOLE(field) offsetof(struct pl_outer_setup, field), 0
#define REAL(field) offsetof(struct pl_outer_setup, field), 1

static const struct {
    const char *key;
    size_t at;
    int is_real;
    double low, high;
} rows[] = {
    /* The outer step, every H inner steps: b = mu b + g, phi = phi - nu (g + mu b).
     * [spec outer-steps 2, 3] */
    { "H", WHOLE(H), 1, 1e9 },
    { "mu", REAL(mu), 0, 1 },
    { "nu", REAL(nu), 0, 100 },
    /* NoLoCo: gamma (mean of the group's phi - phi_r) in groups of this many.
     * [spec outer-steps 11] */
    { "gamma", REAL(gamma), 0, 100 },
    { "group", WHOLE(group), 1, PL_OUTER_PEERS_MAX },
    /* Delayed Nesterov: the momentum moves once in N changes. [spec outer-steps 7] */
    { "N", WHOLE(N), 1, 1e6 },
    /* Streaming DiLoCo: a fragment sent now is applied tau steps later,
     * theta = alpha theta + (1 - alpha) phi. [spec outer-steps 5] */
    { "fragments", WHOLE(fragments), 1, PL_OUTER_FRAGMENTS_MAX },
    { "tau", WHOLE(tau), 0, 1e9 },
    { "alpha", REAL(alpha), 0, 1 },
    /* DeMo, SparseLoCo: topk entries of each chunk x chunk are sent; the rest is kept, times beta
     * from exchange to exchange. [spec outer-steps 8, 10] */
    { "topk", WHOLE(topk), 1, 4096 },
    { "chunk", WHOLE(chunk), 1, 4096 },
    { "beta", REAL(beta), 0, 1 },
    { "weight_decay", REAL(weight_decay), 0, 1 },
    { "mean_over_all", WHOLE(mean_over_all), 0, 1 },
    /* CenteredClip of this radius in place of the mean; -1: the usual distance. */
    { "clip", REAL(clip), -1, 1e9 },
    /* The share of entries that partial averaging and DGC send. [spec outer-steps 12] */
    { "share", REAL(share), 0, 1 },
    /* PowerSGD: columns of P and Q in W ~ P Q^T, and whose Q the error feedback subtracts. */
    { "rank", WHOLE(powersgd_rank), 1, 4096 },
    { "own_feedback", WHOLE(own_feedback), 0, 1 },
    /* DGC: |g_r| is clipped to this norm before it is added up. */
    { "limit", REAL(limit), 0, 1e9 },
    /* 1-bit Adam: steps of plain Adam until its second moment is frozen, and Adam's own. */
    { "warm_up", WHOLE(warm_up), 1, 1e9 },
    { "beta1", REAL(adam.beta1), 0, 1 },
    { "beta2", REAL(adam.beta2), 0, 1 },
    { "eps", REAL(adam.eps), 0, 1 },
};

int pl_outer_set(struct pl_outer_setup *setup, const char *key, double value, struct pl_err *err)
{
    char *base = (char *)setup;
    for (size_t i = 0; i < PL_COUNT(rows); i++) {
        if (strcmp(rows[i].key, key)) continue;
        /* Written so that NaN fails, too. */
        if (!(value >= rows[i].low && value <= rows[i].high))
            return pl_fail(err, PL_EUSE, "a number from %g to %g", rows[i].low, rows[i].high);
        if (!rows[i].is_real && value != floor(value))
            return pl_fail(err, PL_EUSE, "a whole number");
        if (rows[i].is_real) memcpy(base + rows[i].at, &value, sizeof value);
        else *(int *)(void *)(base + rows[i].at) = (int)value;
        return PL_OK;
    }
    return PL_ENOTFOUND;
}

/* Bits of a value where a message is a vector: 32, 8 or 4. [spec outer-steps 6] */
int pl_outer_set_coding(struct pl_outer_setup *setup, const char *name, struct pl_err *err)
{
    static const char *const names[] = { "float32", "uniform8", "e3m0" };
    for (size_t i = 0; i < PL_COUNT(names); i++)
        if (!strcmp(names[i], name)) {
            setup->coding = (enum pl_outer_coding)i;
            return PL_OK;
        }
    return pl_fail(err, PL_EUSE, "float32, uniform8 or e3m0");
}

/* One "key=value" of n characters. Text in place of a number becomes NaN, which no limits contain:
 * so the refusal names them. */
static int set_one(struct pl_outer_setup *setup, const char *text, size_t n, struct pl_err *err)
{
    const char *equals = memchr(text, '=', n);
    char key[KEY_MAX] = "", value[KEY_MAX] = "", *end = value;
    struct pl_err expected = { "" };
    double number = 0;
    int rc = PL_ENOTFOUND;
    if (equals && equals - text < KEY_MAX && n - (size_t)(equals - text) <= KEY_MAX) {
        memcpy(key, text, (size_t)(equals - text));
        memcpy(value, equals + 1, n - (size_t)(equals - text) - 1);
        number = strtod(value, &end);
    }
    if (*key && !strcmp(key, "coding")) rc = pl_outer_set_coding(setup, value, &expected);
    else if (*key) rc = pl_outer_set(setup, key, *value && !*end ? number : NAN, &expected);
    if (!rc) return PL_OK;
    return pl_fail(err, PL_EUSE, "setting '%.*s': expected %s", n < KEY_MAX ? (int)n : KEY_MAX,
                   text,
                   rc == PL_ENOTFOUND ? "KEY=VALUE with a key of paper/algorithms.md"
                                      : expected.text);
}

int pl_outer_set_all(struct pl_outer_setup *setup, const char *text, struct pl_err *err)
{
    int rc = PL_OK;
    while (!rc && *text) {
        const size_t n = strcspn(text, ",");
        rc = set_one(setup, text, n, err);
        text += n + (text[n] == ','); /* past the comma, or to the end */
    }
    return rc;
}
