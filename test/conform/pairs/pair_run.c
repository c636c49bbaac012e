/* pair_run.c - runs every component's pair test over a backend: threads, repetitions, times,
 * counts. */
#include "pair_run.h"
#include "pairs.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BENCH_SECONDS 0.3
#define QUICK_WORK 2e6  /* bytes, or tenths of operations: the largest case that --quick runs */
#define OFFSET_WORK 2e5 /* bytes of cases that are run again with unaligned arguments */

static const struct {
    const char *name;
    size_t offset;
} operations[] = {
#define ENTRY(name, type) { #name, offsetof(struct pl_backend, name) },
    PL_OPERATIONS(ENTRY)
#undef ENTRY
};

static const struct {
    const char *name;
    pair_fn *run;
} components[] = {
#define ENTRY(name) { #name, pair_##name },
    PAIRS(ENTRY)
#undef ENTRY
};

static const int thread_counts[] = { 1, 2, 3 };
enum {
    STEP_REF,
    STEP_BE,
    STEP_THREADS,
    STEP_TIME_REF = STEP_THREADS + PL_COUNT(thread_counts),
    STEP_TIME_BE,
    STEP_TIME_BASELINE,
    STEP_END
};

/* ---- runs ---- */

static void remember_before(struct pair *p)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        /* no other step needs the reference's copy */
        if (p->run->large && !p->run->options->baseline) {
            b->before = b->raw[0];
            continue;
        }
        b->before = pair_must(pl_alloc(b->bytes + 2 * GUARD, 1));
        memcpy(b->before, b->raw[0], b->bytes + 2 * GUARD);
    }
}

static void restore(struct pair *p, int side)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        if (pair_push(p, b, side, b->before)) pair_fail(p->run, "put failed");
    }
}

static void remember_after(struct pair *p, int side)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        b->after[side] = pair_must(pl_alloc(b->bytes + 2 * GUARD, 1));
        if (pair_bring(p, b->after[side], b, side)) pair_fail(p->run, "get failed");
    }
}

static double now(const struct pair_run *r)
{
    struct timespec t;
    if (r->options->threads != 1 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t))
        return pl_seconds();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compare_threads(struct pair *p, int threads)
{
    for (int i = 0; i < p->run->count; i++) {
        struct buffer *b = &p->run->buffers[i];
        uint8_t *now = pair_must(pl_alloc(b->bytes + 2 * GUARD, 1));
        if (pair_bring(p, now, b, 1)) pair_fail(p->run, "get failed");
        else if (memcmp(now, b->after[1], b->bytes + 2 * GUARD))
            pair_fail(p->run, "argument %d: other bits with %d threads", i, threads);
        pl_free(now);
    }
}

static int is_timed(const struct pair_run *r)
{
    return r->options->timing && !r->misaligned &&
           fmax(r->flops / 10, r->bytes) >= r->options->at_least;
}

/* Not worth a line: the reference runs for its rate alone. */
static int is_small(const struct pair_run *r)
{
    return r->options->timing == PAIR_BENCH && !is_timed(r);
}

static int is_light(const struct pair_run *r)
{
    return !r->large && fmax(r->flops / 10, r->bytes) <= OFFSET_WORK;
}

static int is_too_much(const struct pair_run *r)
{
    if (r->misaligned && !is_light(r))
        return 1; /* shapes may be drawn: another one than the first time */
    return r->options->quick && (r->large || fmax(r->flops / 10, r->bytes) > QUICK_WORK);
}

/* Whether this case includes a step. */
static int wanted(const struct pair_run *r, int step)
{
    switch (step) {
    case STEP_REF: return !r->large;
    case STEP_BE: return r->op->native && !is_small(r);
    case STEP_TIME_REF: return is_timed(r) && !r->large && r->seconds[0] < BENCH_SECONDS;
    case STEP_TIME_BE: return is_timed(r) && r->op->native;
    case STEP_TIME_BASELINE: return is_timed(r) && r->options->baseline;
    default: /* a device's threads are not the host's; timing runs at the caller's count */
        if (r->large && step > STEP_THREADS) return 0; /* one other count will do */
        return r->op->native && !r->device && r->options->timing != PAIR_BENCH;
    }
}

/* The baseline works on the reference's buffers. */
static int side_of(int step)
{
    return step == STEP_REF || step == STEP_TIME_REF || step == STEP_TIME_BASELINE ? 0 : 1;
}

static int who(int step) { return step == STEP_TIME_BASELINE ? 2 : side_of(step); }

int pair_next(struct pair *p)
{
    struct pair_run *r = p->run;
    int side;
    if (r->step < 0) {
        if ((r->left_out = is_too_much(r))) return -1;
        remember_before(p);
        r->step = 0;
        r->ran = 0;
    }
    /* a timing step repeats until its time is spent, and at least once more than the check did */
    if (r->ran && (r->step < STEP_TIME_REF || r->spent > BENCH_SECONDS)) {
        r->step++;
        r->ran = 0;
    }
    while (r->step < STEP_END && !wanted(r, r->step)) r->step++;
    p->side[0] = r->step == STEP_TIME_BASELINE ? r->options->baseline : r->reference;
    if (r->step == STEP_END || r->why[0]) {
        p->side[0] = r->reference;
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
    r->started = now(r);
    return side;
}

void pair_ran(struct pair *p, int status)
{
    struct pair_run *r = p->run;
    int side = side_of(r->step);
    double took, *best = &r->seconds[who(r->step)];
    if (status == PL_OK) status = p->side[side]->sync();
    took = now(r) - r->started;
    r->spent += took;
    if (!(took >= *best)) *best = took; /* it starts as NaN */
    if (status) {
        const char *why = pl_backend_error(p->side[side], status);
        pair_fail(r, "%s says: %s%s%s", p->side[side]->name, pl_status_name(status),
                  *why ? ": " : "", why);
    }
    if (r->step == STEP_REF || r->step == STEP_BE) remember_after(p, side);
    else if (r->step < STEP_TIME_REF) compare_threads(p, thread_counts[r->step - STEP_THREADS]);
    r->ran = 1;
}

/* ---- cases ---- */

static void check_guards(struct pair_run *r)
{
    for (int i = 0; i < r->count; i++) {
        const struct buffer *b = &r->buffers[i];
        const uint8_t *now = b->after[1];
        if (!now) continue;
        for (int k = 0; k < GUARD; k++) {
            size_t behind = GUARD + b->bytes + (size_t)k;
            if (now[k] != POISON(k))
                pair_fail(r, "argument %d: written %d bytes before it", i, GUARD - k);
            if (now[behind] != POISON(behind))
                pair_fail(r, "argument %d: written %d bytes behind it", i, k + 1);
        }
        if (!b->compared && memcmp(now, b->before, b->bytes + 2 * GUARD))
            pair_fail(r, "argument %d: an input was changed", i);
    }
}

static void note_rate(struct pair_run *r)
{
    double work = r->flops > 0 ? r->flops : r->bytes;
    if (!isnan(r->seconds[0]) && work > 0) r->op->ref_rate = work / r->seconds[0];
}

static struct pair_outcome outcome_of(struct pair_run *r)
{
    struct pair_outcome t = { .op = r->op->name,
                              .line = r->line,
                              .why = r->why[0] ? r->why : NULL,
                              .worst_name = r->worst_name,
                              .worst = r->worst,
                              .ref = NAN,
                              .be = NAN,
                              .baseline = NAN,
                              .flops = r->flops,
                              .bytes = r->bytes };
    double work = r->flops > 0 ? r->flops : r->bytes;
    if (!is_timed(r)) return t;
    t.ref = r->seconds[0];
    t.be = r->seconds[1];
    t.baseline = r->seconds[2];
    if (isnan(t.ref) && r->op->ref_rate > 0) { /* from the latest case that ran it, by work */
        t.ref = work / r->op->ref_rate;
        t.ref_is_scaled = 1;
    }
    return t;
}

/* Rate of the side's best run, in the unit of the case's limit. */
static void print_time(const struct pair_outcome *t)
{
    const char *about = t->ref_is_scaled ? "about " : "";
    if (!isnan(t->ref)) printf("  ref %s%.3f ms", about, 1e3 * t->ref);
    if (!isnan(t->be)) printf("  be %.3f ms", 1e3 * t->be);
    if (!isnan(t->ref) && !isnan(t->be)) printf("  %s%.1fx", about, t->ref / t->be);
    if (!isnan(t->be) && t->flops > 0) printf("  %.1f GF/s", 1e-9 * t->flops / t->be);
    else if (!isnan(t->be) && t->bytes > 0) printf("  %.1f GB/s", 1e-9 * t->bytes / t->be);
}

static void print_case(const struct pair_run *r, const struct pair_outcome *t)
{
    if (r->op->native) {
        printf("%s %s %s", r->why[0] ? "FAIL" : "ok  ", r->op->name, r->line);
        if (r->why[0]) printf("  %s", r->why);
        else if (r->worst > 0) printf("  %s %.2g of its bound", r->worst_name, r->worst);
        else printf("  equal");
    } else {
        printf("ref  %s %s", r->op->name, r->line);
    }
    print_time(t);
    putchar('\n');
    fflush(stdout);
}

static void close_case(struct pair *p)
{
    struct pair_run *r = p->run;
    struct pair_outcome o;
    if (!r->op) return;
    if (r->met < CASES_MOST && !r->misaligned) r->heavy[r->met] = (uint8_t)!is_light(r);
    if (!r->left_out) {
        r->op->cases += r->op->native;
        note_rate(r);
        if (!is_small(r)) {
            check_guards(r);
            r->op->failed += r->op->native && r->why[0];
            o = outcome_of(r);
            if (!r->options->quiet || o.why) print_case(r, &o);
            if (r->options->seen) r->options->seen(r->options->context, &o);
        }
    }
    pair_forget(p);
    r->op = NULL;
}

int pair_case(struct pair *p, const char *op, const char *format, ...)
{
    struct pair_run *r = p->run;
    char line[sizeof r->line], whole[sizeof r->line + 64];
    va_list args;
    size_t i = 0;
    close_case(p);
    r->met++;
    if (r->misaligned && (r->met >= CASES_MOST || r->heavy[r->met])) return 0;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (r->misaligned) strncat(line, " misaligned", sizeof line - strlen(line) - 1);
    while (i < PAIR_OPERATIONS && strcmp(r->ops[i].name, op)) i++;
    assert(i < PAIR_OPERATIONS); /* a pair test names an operation that the table has */
    snprintf(whole, sizeof whole, "%s %s", op, line);
    if (r->options->filter && !strstr(whole, r->options->filter)) return 0;
    if (!r->ops[i].native) {
        r->ops[i].cases++;
        if (r->options->timing != PAIR_BENCH || r->device) return 0;
    }
    r->op = &r->ops[i];
    memcpy(r->line, line, sizeof line);
    r->why[0] = r->worst_name[0] = 0;
    r->worst = 0;
    r->large = r->left_out = 0;
    r->step = -1;
    r->flops = r->bytes = 0;
    r->seconds[0] = r->seconds[1] = r->seconds[2] = NAN;
    return 1;
}

void pair_work(struct pair *p, double flops, double bytes)
{
    p->run->flops = flops;
    p->run->bytes = bytes;
}

void pair_large(struct pair *p) { p->run->large = 1; }
int pair_quick(const struct pair *p) { return p->run->options->quick; }
int pair_bench(const struct pair *p) { return p->run->options->timing == PAIR_BENCH; }

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
    struct pair_run run = { .options = options, .reference = &ref };
    struct pair p = { .side = { &ref, be }, .run = &run };
    const char *name, *fault;
    long native = 0, reference = 0, failed = 0;
    pl_backend_ref(&ref);
    run.device = be->alloc != ref.alloc;
    if (run.device && (fault = pair_memory_fault(be, &name))) {
        struct pair_total total = { name, 1, 1, 1 };
        printf("FAIL %s %s\n", name, fault);
        if (options->total) options->total(options->context, &total);
        return 1; /* no case could tell what else is wrong */
    }
    for (size_t i = 0; i < PAIR_OPERATIONS; i++)
        run.ops[i] = (struct op){ .name = operations[i].name,
                                  .offset = operations[i].offset,
                                  .native = !same_entry(&ref, be, operations[i].offset) };
    for (run.misaligned = 0; run.misaligned <= (run.device && options->timing != PAIR_BENCH);
         run.misaligned++, run.met = 0)
        for (size_t i = 0; i < PL_COUNT(components); i++) {
            pl_rng_init(&p.rng, options->seed, hash(components[i].name));
            components[i].run(&p);
            close_case(&p);
        }
    for (size_t i = 0; i < PAIR_OPERATIONS; i++) {
        struct op *op = &run.ops[i];
        struct pair_total total = { op->name, op->native, op->cases, op->failed };
        if (options->filter && !op->cases) continue;
        if (!op->native) {
            if (!options->quiet) printf("     %s: reference\n", op->name);
            reference++;
        } else if (!op->cases) { /* the backend has its own version, but no case tests it */
            printf("FAIL %s: no pair test\n", op->name);
            total.failed = 1;
            failed++;
        } else if (op->failed) failed++;
        else native++;
        if (options->total) options->total(options->context, &total);
    }
    if (native + reference + failed == 0) return -1;
    if (!options->quiet)
        printf("%ld native, %ld reference, %ld failed of %ld\n", native, reference, failed,
               native + reference + failed);
    return failed;
}
