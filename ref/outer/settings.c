/* settings.c - what can be set of an algorithm, with its limits.
 *
 *   H, N, fragments, tau       when peers exchange   [spec outer-steps 3, 5, 7, 8]
 *   nu, mu, gamma, alpha       the outer step        nu: its rate, mu: its momentum
 *   topk, chunk, share, rank   how little is sent
 *   beta, limit, own_feedback  what becomes of the rest: momentum, clipping, error feedback
 *   beta1, beta2, eps          Adam, where the algorithm contains it
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
    { "H", WHOLE(H), 1, 1e9 },
    { "mu", REAL(mu), 0, 1 },
    { "nu", REAL(nu), 0, 100 },
    { "gamma", REAL(gamma), 0, 100 },
    { "group", WHOLE(group), 1, PL_OUTER_PEERS_MAX },
    { "N", WHOLE(N), 1, 1e6 },
    { "fragments", WHOLE(fragments), 1, PL_OUTER_FRAGMENTS_MAX },
    { "tau", WHOLE(tau), 0, 1e9 },
    { "alpha", REAL(alpha), 0, 1 },
    { "topk", WHOLE(topk), 1, 4096 },
    { "chunk", WHOLE(chunk), 1, 4096 },
    { "beta", REAL(beta), 0, 1 },
    { "weight_decay", REAL(weight_decay), 0, 1 },
    { "mean_over_all", WHOLE(mean_over_all), 0, 1 },
    { "share", REAL(share), 0, 1 },
    { "rank", WHOLE(powersgd_rank), 1, 4096 },
    { "own_feedback", WHOLE(own_feedback), 0, 1 },
    { "limit", REAL(limit), 0, 1e9 },
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
