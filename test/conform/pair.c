/* pair.c - buffers, runs, comparisons and the count of the pair test. See pair.h. */
#include "pair.h"
#include "pairs.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64         /* bytes on either side; keeps the alignment */
/* Around buffers and in pure outputs, read as floats: a signalling NaN, so that arithmetic on it
 * shows too (it turns quiet); as an id: far out of range. */
static const uint8_t poison[4] = { 0x5A, 0x5A, 0xA5, 0x7F };
#define BUFFERS_MAX 64   /* arguments of one operation; the widest has 14 */
#define BENCH_SECONDS 0.3

struct buffer {
    int live, host_only, compared;
    size_t n, size;   /* elements, bytes of one */
    size_t bytes;     /* n * size, without guards */
    uint8_t *raw[2];  /* both sides, guards included; raw[1] is the backend's memory */
    uint8_t *before;  /* what both sides held before the first run, guards included */
    uint8_t *after[2]; /* host copies after the first run of each side, guards included */
};

/* How an operation fared over all its cases. */
struct op {
    const char *name;
    size_t offset; /* of the member in struct pl_backend */
    int native;
    long cases, failed;
    double ref_rate; /* work a second of the reference in the latest case that ran it */
};

static const struct { const char *name; size_t offset; } operations[] = {
#define ENTRY(name, type) { #name, offsetof(struct pl_backend, name) },
    PL_OPERATIONS(ENTRY)
#undef ENTRY
};
#define OPERATIONS PL_COUNT(operations)

static const struct { const char *name; pair_fn *run; } components[] = {
#define ENTRY(name) { #name, pair_##name },
    PAIRS(ENTRY)
#undef ENTRY
};

struct pair_run {
    const struct pair_options *options;
    struct op ops[OPERATIONS];
    int device; /* the backend has memory of its own */

    /* the case at hand */
    struct op *op;
    char line[256];
    char why[400]; /* empty: good so far */
    struct buffer buffers[BUFFERS_MAX];
    int count;
    void *scratch[BUFFERS_MAX];
    int scratches;
    int large, step, ran;
    double flops, bytes;
    double started, seconds[2], spent;
    double worst; /* largest error as a share of its bound */
    char worst_name[40];
};

static const int thread_counts[] = { 1, 2, 3 };
enum { STEP_REF, STEP_BE, STEP_THREADS, STEP_TIME_REF = STEP_THREADS + PL_COUNT(thread_counts),
       STEP_TIME_BE, STEP_END };

static void fail(struct pair_run *r, const char *format, ...)
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

/* ---- buffers ---- */

static int bring(struct pair *p, uint8_t *to, const struct buffer *b, int side)
{
    size_t whole = b->bytes + 2 * GUARD;
    if (side == 0 || b->host_only) {
        memcpy(to, b->raw[side], whole);
        return PL_OK;
    }
    return p->side[1]->get(to, b->raw[1], whole);
}

static int push(struct pair *p, struct buffer *b, int side, const uint8_t *from)
{
    size_t whole = b->bytes + 2 * GUARD;
    if (side == 0 || b->host_only) {
        memcpy(b->raw[side], from, whole);
        return PL_OK;
    }
    return p->side[1]->put(b->raw[1], from, whole);
}

/* Running out of memory here is no verdict on the backend: the program stops with a sentence. */
static void *must(void *memory)
{
    if (memory) return memory;
    fputs("conform: out of memory\n", stderr);
    exit(1);
}

static struct buffer *new_buffer(struct pair *p, struct pair_any *any, size_t n, size_t size,
                                 int host_only)
{
    struct pair_run *r = p->run;
    struct buffer *b = &r->buffers[r->count];
    size_t bytes = n * size;
    assert(r->count < BUFFERS_MAX);
    *any = (struct pair_any){ .id = r->count++, .n = n };
    *b = (struct buffer){ .live = 1, .n = n, .size = size, .bytes = bytes, .host_only = host_only };
    b->raw[0] = must(pl_alloc(bytes + 2 * GUARD, 1));
    b->raw[1] = must(host_only ? pl_alloc(bytes + 2 * GUARD, 1)
                               : p->side[1]->alloc(bytes + 2 * GUARD));
    for (size_t i = 0; i < bytes + 2 * GUARD; i++) b->raw[0][i] = poison[i % 4];
    return b;
}

static void share(struct pair *p, struct buffer *b)
{
    if (push(p, b, 1, b->raw[0])) fail(p->run, "put failed");
}

void pair_share(struct pair *p, struct pair_any any)
{
    share(p, &p->run->buffers[any.id]);
}

void pair_take(struct pair *p, struct pair_any any)
{
    struct buffer *b = &p->run->buffers[any.id];
    if (bring(p, b->raw[0], b, 1)) fail(p->run, "get failed");
}

#define DEFINE_BUFFER(name, type, host_only)                                                     \
    static struct pair_##name new_##name(struct pair *p, size_t n, int host)                     \
    {                                                                                            \
        struct pair_##name x;                                                                    \
        struct buffer *b = new_buffer(p, &x.any, n, sizeof(type), host);                         \
        for (int s = 0; s < 2; s++) x.at[s] = (type *)(void *)(b->raw[s] + GUARD);               \
        share(p, b); /* poison, until values come */                                               \
        return x;                                                                                \
    }
DEFINE_BUFFER(f32, float, 0)
DEFINE_BUFFER(f64, double, 1)
DEFINE_BUFFER(i32, int32_t, 0)
DEFINE_BUFFER(u8, uint8_t, 0)

struct pair_f32 pair_poison(struct pair *p, size_t n) { return new_f32(p, n, 0); }
struct pair_u8 pair_u8_poison(struct pair *p, size_t n) { return new_u8(p, n, 0); }
struct pair_f32 pair_host_f32(struct pair *p, size_t n) { return new_f32(p, n, 1); }
struct pair_f64 pair_host_f64(struct pair *p, size_t n) { return new_f64(p, n, 1); }
struct pair_u8 pair_host_u8(struct pair *p, size_t n) { return new_u8(p, n, 1); }

struct pair_f32 pair_normal(struct pair *p, size_t n, double deviation)
{
    struct pair_f32 x = new_f32(p, n, 0);
    for (size_t i = 0; i < n; i++) x.at[0][i] = (float)(deviation * pl_rng_normal(&p->rng));
    pair_share(p, x.any);
    return x;
}

struct pair_f32 pair_uniform(struct pair *p, size_t n, double low, double high)
{
    struct pair_f32 x = new_f32(p, n, 0);
    for (size_t i = 0; i < n; i++)
        x.at[0][i] = (float)(low + (high - low) * pl_rng_uniform(&p->rng));
    pair_share(p, x.any);
    return x;
}

struct pair_f32 pair_values(struct pair *p, const float *values, size_t n)
{
    struct pair_f32 x = new_f32(p, n, 0);
    if (n) memcpy(x.at[0], values, n * sizeof *values);
    pair_share(p, x.any);
    return x;
}

struct pair_i32 pair_ids(struct pair *p, size_t n, int32_t low, int32_t high)
{
    struct pair_i32 x = new_i32(p, n, 0);
    for (size_t i = 0; i < n; i++) x.at[0][i] = pair_int(p, low, high);
    pair_share(p, x.any);
    return x;
}

struct pair_i32 pair_i32_values(struct pair *p, const int32_t *values, size_t n)
{
    struct pair_i32 x = new_i32(p, n, 0);
    if (n) memcpy(x.at[0], values, n * sizeof *values);
    pair_share(p, x.any);
    return x;
}

struct pair_u8 pair_u8_values(struct pair *p, const uint8_t *values, size_t n)
{
    struct pair_u8 x = new_u8(p, n, 0);
    if (n) memcpy(x.at[0], values, n);
    pair_share(p, x.any);
    return x;
}

int pair_int(struct pair *p, int low, int high)
{
    return low + (int)pl_rng_below(&p->rng, (uint64_t)((int64_t)high - low + 1));
}

float *pair_scratch(struct pair *p, size_t n)
{
    struct pair_run *r = p->run;
    assert(r->scratches < BUFFERS_MAX);
    return r->scratch[r->scratches++] = must(pl_alloc(n, sizeof(float)));
}

static void forget_buffers(struct pair *p)
{
    struct pair_run *r = p->run;
    for (int i = 0; i < r->count; i++) {
        struct buffer *b = &r->buffers[i];
        pl_free(b->raw[0]);
        if (b->host_only) pl_free(b->raw[1]);
        else p->side[1]->free(b->raw[1]);
        pl_free(b->before);
        pl_free(b->after[0]);
        pl_free(b->after[1]);
    }
    for (int i = 0; i < r->scratches; i++) pl_free(r->scratch[i]);
    r->count = r->scratches = 0;
}

/* ---- runs ---- */

static void remember_before(struct pair *p)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        b->before = must(pl_alloc(b->bytes + 2 * GUARD, 1));
        memcpy(b->before, b->raw[0], b->bytes + 2 * GUARD);
    }
}

static void restore(struct pair *p, int side)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        if (push(p, b, side, b->before)) fail(p->run, "put failed");
    }
}

static void remember_after(struct pair *p, int side)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        b->after[side] = must(pl_alloc(b->bytes + 2 * GUARD, 1));
        if (bring(p, b->after[side], b, side)) fail(p->run, "get failed");
    }
}

static void compare_threads(struct pair *p, int threads)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        uint8_t *now = must(pl_alloc(b->bytes + 2 * GUARD, 1));
        if (bring(p, now, b, 1)) fail(p->run, "get failed");
        else if (memcmp(now, b->after[1], b->bytes + 2 * GUARD))
            fail(p->run, "argument %d: other bits with %d threads", i, threads);
        pl_free(now);
    }
}

/* Which steps this case takes. */
static int wanted(const struct pair_run *r, int step)
{
    switch (step) {
    case STEP_REF: return !r->large;
    case STEP_BE: return r->op->native;
    case STEP_TIME_REF: return r->options->bench && !r->large && r->seconds[0] < BENCH_SECONDS;
    case STEP_TIME_BE: return r->options->bench && r->op->native;
    default: /* a device's threads are not the host's; timing runs at the caller's count */
        return r->op->native && !r->device && !r->options->bench;
    }
}

static int side_of(int step)
{
    return step == STEP_REF || step == STEP_TIME_REF ? 0 : 1;
}

int pair_next(struct pair *p)
{
    struct pair_run *r = p->run;
    int side;
    if (r->step < 0) {
        remember_before(p);
        r->step = 0;
        r->ran = 0;
    }
    /* a timing step is taken until its time is spent, and at least once more than the check did */
    if (r->ran && (r->step < STEP_TIME_REF || r->spent > BENCH_SECONDS)) {
        r->step++;
        r->ran = 0;
    }
    while (r->step < STEP_END && !wanted(r, r->step)) r->step++;
    if (r->step == STEP_END || r->why[0]) {
        p->side[1]->set_threads(0);
        return -1;
    }
    side = side_of(r->step);
    if (!r->ran) {
        int t = r->step - STEP_THREADS;
        p->side[1]->set_threads(t >= 0 && t < (int)PL_COUNT(thread_counts) ? thread_counts[t]
                                                                            : r->options->threads);
        r->spent = 0;
        restore(p, side);
    }
    r->started = pl_seconds();
    return side;
}

void pair_ran(struct pair *p, int status)
{
    struct pair_run *r = p->run;
    int side = side_of(r->step);
    double took;
    if (status == PL_OK) status = p->side[side]->sync();
    took = pl_seconds() - r->started;
    r->spent += took;
    if (!(took >= r->seconds[side])) r->seconds[side] = took; /* the best; it starts as NaN */
    if (status) fail(r, "%s says: %s", p->side[side]->name, pl_status_name(status));
    if (r->step == STEP_REF || r->step == STEP_BE) remember_after(p, side);
    else if (r->step < STEP_TIME_REF) compare_threads(p, thread_counts[r->step - STEP_THREADS]);
    r->ran = 1;
}

/* ---- comparisons ---- */

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
    fail(r, "%s[%zu]: %.9g, expected %.9g within %.3g", name, i, got, want, allowed);
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
        fail(p->run, "%s[%zu]: %08x (%.9g), expected %08x (%.9g)", name, at, g, gf, w, wf);
    } else {
        fail(p->run, "%s[%zu]: %02x, expected %02x", name, at, got[at * b->size], want[at * b->size]);
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
        element(p->run, name, i, value(b, got, i), value(b, want, i), scale ? factor * scale[i] : factor);
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
            fail(p->run, "%s[%zu]: %.9g", name, i, value(b, b->after[1] + GUARD, i));
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

static void check_guards(struct pair_run *r)
{
    for (int i = 0; i < r->count; i++) {
        const struct buffer *b = &r->buffers[i];
        const uint8_t *now = b->after[1];
        if (!now) continue;
        for (int k = 0; k < GUARD; k++) {
            size_t behind = GUARD + b->bytes + (size_t)k;
            if (now[k] != poison[k % 4])
                fail(r, "argument %d: written %d bytes before it", i, GUARD - k);
            if (now[behind] != poison[behind % 4])
                fail(r, "argument %d: written %d bytes behind it", i, k + 1);
        }
        if (!b->compared && memcmp(now, b->before, b->bytes + 2 * GUARD))
            fail(r, "argument %d: an input was changed", i);
    }
}

/* ---- cases ---- */

/* Rate of the side's best run, in the unit of what the case says limits it. */
static void print_times(struct pair_run *r)
{
    double work = r->flops > 0 ? r->flops : r->bytes, ref = r->seconds[0], be = r->seconds[1];
    const char *about = "";
    if (!isnan(ref) && work > 0) r->op->ref_rate = work / ref;
    if (isnan(ref) && r->op->ref_rate > 0) { /* from the latest case that ran it, by work */
        ref = work / r->op->ref_rate;
        about = "about ";
    }
    if (!isnan(ref)) printf("  ref %s%.3f ms", about, 1e3 * ref);
    if (!isnan(be)) printf("  %s %.3f ms", "be", 1e3 * be);
    if (!isnan(ref) && !isnan(be)) printf("  %s%.1fx", about, ref / be);
    if (!isnan(be) && work > 0) printf("  %.1f %s", 1e-9 * work / be, r->flops > 0 ? "GF/s" : "GB/s");
}

static void close_case(struct pair *p)
{
    struct pair_run *r = p->run;
    if (!r->op) return;
    check_guards(r);
    if (r->op->native) {
        r->op->cases++;
        r->op->failed += r->why[0] != 0;
        printf("%s %s %s", r->why[0] ? "FAIL" : "ok  ", r->op->name, r->line);
        if (r->why[0]) printf("  %s", r->why);
        else if (r->worst > 0) printf("  %s %.2g of its bound", r->worst_name, r->worst);
        else printf("  equal");
    } else {
        printf("ref  %s %s", r->op->name, r->line);
    }
    if (r->options->bench) print_times(r);
    putchar('\n');
    fflush(stdout);
    forget_buffers(p);
    r->op = NULL;
}

int pair_case(struct pair *p, const char *op, const char *format, ...)
{
    struct pair_run *r = p->run;
    char line[sizeof r->line], whole[sizeof r->line + 64];
    va_list args;
    size_t i = 0;
    close_case(p);
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    while (i < OPERATIONS && strcmp(r->ops[i].name, op)) i++;
    assert(i < OPERATIONS); /* a pair test names an operation that the table has */
    snprintf(whole, sizeof whole, "%s %s", op, line);
    if (r->options->filter && !strstr(whole, r->options->filter)) return 0;
    if (!r->ops[i].native) {
        r->ops[i].cases++;
        if (!r->options->bench || r->device) return 0;
    }
    r->op = &r->ops[i];
    memcpy(r->line, line, sizeof line);
    r->why[0] = r->worst_name[0] = 0;
    r->worst = 0;
    r->large = 0;
    r->step = -1;
    r->flops = r->bytes = 0;
    r->seconds[0] = r->seconds[1] = NAN;
    return 1;
}

void pair_work(struct pair *p, double flops, double bytes)
{
    p->run->flops = flops;
    p->run->bytes = bytes;
}

void pair_large(struct pair *p) { p->run->large = 1; }
int pair_bench(const struct pair *p) { return p->run->options->bench; }

static uint64_t hash(const char *name)
{
    uint64_t h = 0xCBF29CE484222325u; /* FNV-1a */
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 0x100000001B3u;
    return h;
}

static int same_entry(const struct pl_backend *a, const struct pl_backend *b, size_t offset)
{
    return !memcmp((const char *)a + offset, (const char *)b + offset, sizeof(void (*)(void)));
}

long pair_all(const struct pl_backend *be, const struct pair_options *options)
{
    struct pl_backend ref;
    struct pair_run run = { .options = options };
    struct pair p = { .side = { &ref, be }, .run = &run };
    long native = 0, reference = 0, failed = 0;
    pl_backend_ref(&ref);
    run.device = be->alloc != ref.alloc;
    for (size_t i = 0; i < OPERATIONS; i++)
        run.ops[i] = (struct op){ .name = operations[i].name, .offset = operations[i].offset,
                                  .native = !same_entry(&ref, be, operations[i].offset) };
    for (size_t i = 0; i < PL_COUNT(components); i++) {
        pl_rng_init(&p.rng, options->seed, hash(components[i].name));
        components[i].run(&p);
        close_case(&p);
    }
    for (size_t i = 0; i < OPERATIONS; i++) {
        struct op *op = &run.ops[i];
        if (options->filter && !op->cases) continue;
        if (!op->native) {
            printf("     %s: reference\n", op->name);
            reference++;
        } else if (!op->cases) { /* its own version, and nobody looks at it */
            printf("FAIL %s: no pair test\n", op->name);
            failed++;
        } else if (op->failed) failed++;
        else native++;
    }
    printf("%ld native, %ld reference, %ld failed of %ld\n", native, reference, failed,
           native + reference + failed);
    return failed;
}
