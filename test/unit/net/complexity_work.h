/* complexity_work.h - measures that a parser takes time in proportion to its input, with n and with
 * 2n bytes. Quadratic work takes four times as long for twice the input; the limit here is three
 * times. */
#ifndef COMPLEXITY_WORK_H
#define COMPLEXITY_WORK_H

#include "net/bytes.h"
#include "test/unit/unit.h"

#include <math.h>
#include <stddef.h>
#include <time.h>

#define MESSAGE (4u << 20) /* bytes of the longest message */
#define TRIES 5
#define ENOUGH 2e-3 /* s; shorter ones are measured many at a time */
#ifdef __SANITIZE_ADDRESS__
#define LIMIT 10.0 /* s of processor time for the longest message */
#else
#define LIMIT 1.0
#endif

struct work {
    const char *name;
    void (*make)(struct bytes *b, size_t n);
    void (*run)(const uint8_t *data, size_t n);
    size_t most; /* bytes that the parser takes at once; 0: MESSAGE */
};

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The shortest of some tries: other programs on the machine only make them longer. */
static double measure(const struct work *w, size_t n, int times, int tries)
{
    struct bytes b = { 0 };
    double best = INFINITY;
    w->make(&b, n);
    assert_int_equal(b.failed, PL_OK);
    for (int i = 0; i < tries; i++) {
        double begun = processor_time();
        for (int k = 0; k < times; k++) w->run(bytes_at(&b), bytes_length(&b));
        best = fmin(best, processor_time() - begun);
    }
    bytes_clear(&b);
    return best;
}

static void is_linear(const struct work *w)
{
    size_t most = w->most ? w->most : MESSAGE, n = most / 16;
    double once, twice = 0;
    int times = 1;
    while ((once = measure(w, n, times, TRIES)) < ENOUGH && times < 1 << 16)
        if (n < most / 2) n *= 2;
        else times *= 2;
    for (int again = 0; again < 4; again++) { /* a machine that stands still may spoil a few */
        twice = measure(w, 2 * n, times, TRIES);
        if (twice < 3 * once + 2e-4) break;
        once = measure(w, n, times, TRIES);
    }
    print_message("%-40s %8zu bytes, %5d times: %7.3f ms, of twice as many: %7.3f ms\n", w->name, n,
                  times, 1e3 * once, 1e3 * twice);
    if (!(twice < 3 * once + 2e-4)) fail_msg("%s: more than linear", w->name);
}

static void is_quick(const struct work *w)
{
    double took = measure(w, w->most ? w->most : MESSAGE, 1, 2);
    if (!(took < LIMIT)) fail_msg("%s: %.1f s for the longest message", w->name, took);
}

#endif
