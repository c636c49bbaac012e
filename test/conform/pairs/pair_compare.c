/* pair_compare.c - compares the backend's results with the reference's. */
#include "pair_run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pair_fail(struct pair_run *r, const char *format, ...)
{
    va_list args;
    if (r->why[0]) return; /* the first difference says most */
    va_start(args, format);
    vsnprintf(r->why, sizeof r->why, format, args);
    va_end(args);
}

void pair_check(struct pair *p, int good, const char *format, ...)
{
    struct pair_run *r = p->run;
    va_list args;
    if (good || r->why[0]) return;
    va_start(args, format);
    vsnprintf(r->why, sizeof r->why, format, args);
    va_end(args);
}

/* Both results of a buffer, or 0 when the case has not got so far. */
static int results(struct pair *p, struct pair_any any, const uint8_t **want, const uint8_t **got)
{
    struct buffer *b = &p->run->buffers[any.id];
    b->compared = 1;
    if (p->run->why[0] || !b->after[0] || !b->after[1]) return 0;
    *want = b->after[0] + GUARD;
    *got = b->after[1] + GUARD;
    return 1;
}

static void note(struct pair_run *r, const char *name, double error, double allowed)
{
    double share = error == 0 ? 0 : error / allowed;
    if (share >= r->worst) {
        r->worst = share;
        snprintf(r->worst_name, sizeof r->worst_name, "%s", name);
    }
}

static void element(struct pair_run *r, const char *name, size_t i, double got, double want,
                    double allowed)
{
    double error = fabs(got - want);
    if (isnan(want) ? isnan(got) : isinf(want) ? got == want : error <= allowed) {
        if (isfinite(want)) note(r, name, error, allowed);
        return;
    }
    pair_fail(r, "%s[%zu]: %.9g, expected %.9g within %.3g", name, i, got, want, allowed);
}

void pair_exact(struct pair *p, const char *name, struct pair_any any)
{
    const struct buffer *b = &p->run->buffers[any.id];
    const uint8_t *want, *got;
    size_t at = 0;
    if (!results(p, any, &want, &got) || !memcmp(want, got, b->bytes)) return;
    while (want[at] == got[at]) at++;
    at /= b->size;
    if (b->size == 4) {
        uint32_t w, g;
        float wf, gf;
        memcpy(&w, want + 4 * at, 4), memcpy(&g, got + 4 * at, 4);
        memcpy(&wf, &w, 4), memcpy(&gf, &g, 4);
        pair_fail(p->run, "%s[%zu]: %08x (%.9g), expected %08x (%.9g)", name, at, g, gf, w, wf);
    } else {
        pair_fail(p->run, "%s[%zu]: %02x, expected %02x", name, at, got[at * b->size],
                  want[at * b->size]);
    }
}

static double value(const struct buffer *b, const uint8_t *data, size_t i)
{
    if (b->size == sizeof(double)) return ((const double *)(const void *)data)[i];
    return ((const float *)(const void *)data)[i];
}

void pair_within(struct pair *p, const char *name, struct pair_any any, double factor,
                 const float *scale)
{
    const struct buffer *b = &p->run->buffers[any.id];
    const uint8_t *want, *got;
    if (!results(p, any, &want, &got)) return;
    for (size_t i = 0; i < b->n; i++)
        element(p->run, name, i, value(b, got, i), value(b, want, i),
                scale ? factor * scale[i] : factor);
}

void pair_of_largest(struct pair *p, const char *name, struct pair_any any, double factor)
{
    const struct buffer *b = &p->run->buffers[any.id];
    const uint8_t *want, *got;
    double largest = 0;
    if (!results(p, any, &want, &got)) return;
    for (size_t i = 0; i < b->n; i++) largest = fmax(largest, fabs(value(b, want, i)));
    pair_within(p, name, any, factor * largest, NULL);
}

void pair_element(struct pair *p, const char *name, struct pair_any any, size_t i, double want,
                  double allowed)
{
    struct buffer *b = &p->run->buffers[any.id];
    b->compared = 1;
    if (p->run->why[0] || !b->after[1]) return;
    element(p->run, name, i, value(b, b->after[1] + GUARD, i), want, allowed);
}

void pair_finite(struct pair *p, const char *name, struct pair_any any)
{
    struct buffer *b = &p->run->buffers[any.id];
    b->compared = 1;
    if (p->run->why[0] || !b->after[1]) return;
    for (size_t i = 0; i < b->n; i++)
        if (!isfinite(value(b, b->after[1] + GUARD, i))) {
            pair_fail(p->run, "%s[%zu]: %.9g", name, i, value(b, b->after[1] + GUARD, i));
            return;
        }
}

const float *pair_result(struct pair *p, struct pair_any any, int side)
{
    struct buffer *b = &p->run->buffers[any.id];
    const uint8_t *data = b->after[side] ? b->after[side] : b->raw[0];
    b->compared |= side;
    return (const float *)(const void *)(data + GUARD);
}

const float *pair_before(struct pair *p, struct pair_any any)
{
    const struct buffer *b = &p->run->buffers[any.id];
    return (const float *)(const void *)((b->before ? b->before : b->raw[0]) + GUARD);
}
