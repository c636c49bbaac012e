/* target_watch.c - swarms on a virtual clock: peers that step at one target are never suspected,
 * a peer with another one is. */
#include "net/hivemind/training/target_watch.h"
#include "ref/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PEERS 8
#define TICK 0.05    /* s */
#define GATHER 0.4   /* s that a group waits for more */
#define PATIENCE 2.0 /* s; then a peer without others steps alone */

/* Each peer adds batches at its own pace; a peer that sees its target waits for the others and
 * steps with those that came; a peer that is behind loads the state. Peer 0 is us. */
struct peer {
    int64_t epoch, samples, target, batch;
    double speed, next, told; /* told: its record's time */
    double waits;             /* since; 0: it trains */
};
struct world {
    struct peer peer[PEERS];
    size_t count;
    struct pl_rng rng;
    double now;
    struct target_watch watch;
};

static double uniform(struct world *w, double from, double to)
{
    return from + (to - from) * pl_rng_uniform(&w->rng);
}

static void world_open(struct world *w, size_t count, int64_t target, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    pl_rng_init(&w->rng, seed, 1);
    w->count = count;
    w->now = 1;
    for (size_t i = 0; i < count; i++) {
        struct peer *p = &w->peer[i];
        p->target = target;
        p->batch = 1 + (int64_t)pl_rng_below(&w->rng, (uint64_t)(target / 4 + 1));
        p->speed = uniform(w, 0.02, 0.5) * (double)target;
        p->next = w->now + uniform(w, 0, (double)p->batch / p->speed);
    }
}

static int64_t sum_at(const struct world *w, int64_t epoch)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->count; i++) n += w->peer[i].epoch == epoch ? w->peer[i].samples : 0;
    return n;
}

static void begin(struct world *w, struct peer *p, int64_t epoch)
{
    p->epoch = epoch;
    p->samples = 0;
    p->waits = 0;
    p->told = w->now;
    p->next = w->now + (double)p->batch / p->speed * uniform(w, 0.7, 1.4);
}

static void batch(struct world *w, struct peer *p)
{
    int64_t newest = 0;
    for (size_t i = 0; i < w->count; i++)
        newest = w->peer[i].epoch > newest ? w->peer[i].epoch : newest;
    if (newest > p->epoch) {
        begin(w, p, newest);
        return;
    }
    p->samples += p->batch;
    p->told = w->now;
    p->next = w->now + (double)p->batch / p->speed * uniform(w, 0.7, 1.4);
    if (sum_at(w, p->epoch) >= p->target) p->waits = w->now;
}

/* The group of the peers that wait at p's epoch; 1: we were in it. */
static int step(struct world *w, struct peer *p)
{
    int64_t epoch = p->epoch;
    double triggered = w->peer[0].waits;
    size_t group = 0;
    int us = triggered > 0 && w->peer[0].epoch == epoch;
    for (size_t i = 0; i < w->count; i++)
        group += w->peer[i].epoch == epoch && w->peer[i].waits > 0;
    if (group < 2 && w->now < p->waits + PATIENCE && w->count > 1) return 0;
    for (size_t i = 0; i < w->count; i++)
        if (w->peer[i].epoch == epoch && w->peer[i].waits > 0) begin(w, &w->peer[i], epoch + 1);
    if (us) target_watch_step(&w->watch, triggered, group < 2 && w->count > 1);
    return us;
}

/* A look at the records, which say of speeds what was measured. */
static int look(struct world *w, struct pl_err *say)
{
    struct progress_record r[PEERS] = { 0 };
    for (size_t i = 0; i < w->count; i++) {
        const struct peer *p = &w->peer[i];
        r[i] = (struct progress_record){ .peer = { 2, { 0, (uint8_t)i } },
                                         .epoch = p->epoch,
                                         .samples = p->samples,
                                         .time = p->told,
                                         .samples_per_second = p->speed * uniform(w, 0.7, 1.3),
                                         .client_mode = i == 3 };
    }
    return target_watch_update(&w->watch, r + 1, w->count - 1, r, w->peer[0].target, w->now, say);
}

/* 1: something was told within so many seconds. */
static int watched(struct world *w, double seconds, double every, struct pl_err *say)
{
    double end = w->now + seconds, at = w->now;
    for (; w->now < end; w->now += TICK) {
        int fresh = 0;
        for (size_t i = 0; i < w->count; i++) {
            struct peer *p = &w->peer[i];
            if (!(p->waits > 0) && p->next <= w->now) batch(w, p);
            if (p->waits > 0 && w->now >= p->waits + GATHER) fresh |= step(w, p);
        }
        if (!fresh && (w->now < at || w->peer[0].waits > 0)) continue; /* none while we wait */
        if (look(w, say)) return 1;
        at = w->now + every * uniform(w, 0.5, 2);
    }
    return 0;
}

/* Slow enough for a target of 1024 that 16 are reached long before it; one peer has that. */
static void world_uneven(struct world *w, size_t count, uint64_t seed, size_t lesser)
{
    world_open(w, count, 1024, seed);
    for (size_t i = 0; i < count; i++) {
        w->peer[i].batch = 1 + (int64_t)pl_rng_below(&w->rng, 16);
        w->peer[i].speed = uniform(w, 8, 30);
    }
    w->peer[lesser].target = 16;
}

static void one_target(void **state)
{
    struct pl_err say = { "" };
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct world w;
        world_open(&w, 1 + seed % PEERS, 4 << seed % 11, seed);
        assert_false(watched(&w, 300, 0.5 + 0.5 * (double)(seed % 12), &say));
    }
}

static void ours_is_more(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct pl_err say = { "" };
        struct world w;
        long long about = 0;
        world_open(&w, 4, 64, seed);
        w.peer[0].target = 1024;
        assert_true(watched(&w, 300, 0.5, &say));
        assert_non_null(
            strstr(say.text, "our --target-batch is 1024; your side, if the others agree"));
        assert_int_equal(sscanf(strstr(say.text, "at about "), "at about %lld", &about), 1);
        assert_in_range(about, 16, 160);
    }
}

static void ours_is_less(void **state)
{
    int told = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct pl_err say = { "" };
        struct world w;
        world_uneven(&w, 4, seed, 0);
        told += watched(&w, 120, 1, &say);
        if (say.text[0])
            assert_non_null(
                strstr(say.text, "nobody has come to our last 3 steps, at --target-batch 16"));
    }
    assert_true(told > 90);
}

/* One newcomer steps by itself again and again, the others take its state over. */
static void one_others_is_less(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct pl_err say = { "" };
        struct world w;
        world_uneven(&w, 5, seed, 2);
        assert_true(watched(&w, 120, 0.5, &say));
        assert_non_null(strstr(say.text, "our --target-batch is 1024"));
    }
}

/* A half that was away comes back many epochs ahead; records that vanish; one look in a long
 * time. */
static void leaps(void **state)
{
    struct target_watch w = { 0 };
    struct progress_record own = { .epoch = 5, .samples_per_second = 1, .time = 0 };
    struct progress_record other = { .peer = { 2, { 0, 7 } }, .epoch = 5, .samples_per_second = 1 };
    struct pl_err say;
    (void)state;
    for (int i = 0; i < 50; i++) {
        double now = 10.0 * i;
        own.time = other.time = now;
        other.epoch = i % 4 == 3 ? 5
                                 : 1000 * (i + 1); /* back again each time before it is too much */
        assert_int_equal(target_watch_update(&w, &other, 1, &own, 4096, now, &say), 0);
    }
    assert_int_equal(target_watch_update(&w, NULL, 0, &own, 4096, 600, &say), 0);
    own.epoch = INT64_MAX;
    other.samples = INT64_MAX;
    other.epoch = INT64_MAX - 1;
    other.time = 700;
    target_watch_step(&w, 650, 1);
    assert_int_equal(target_watch_update(&w, &other, 1, &own, 4096, 701, &say), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_target),   cmocka_unit_test(ours_is_more),
        cmocka_unit_test(ours_is_less), cmocka_unit_test(one_others_is_less),
        cmocka_unit_test(leaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
