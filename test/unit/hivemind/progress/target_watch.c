/* target_watch.c - swarms on a virtual clock: peers that step at one target are never suspected,
 * a peer with another one is. */
#include "net/hivemind/progress/target_watch.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <stddef.h>
#include <stdint.h>

#define PEERS 8
#define TICK 0.05    /* s */
#define GATHER 0.4   /* s that a group waits for more */
#define PATIENCE 2.0 /* s; then a peer without others steps alone */

/* Each peer adds batches at its own pace; a peer that sees its target waits for the others and
 * steps with those that came; a peer that is behind loads the state. Peer 0 is us. */
struct peer {
    int64_t epoch, samples, target, batch;
    double speed, next, reported; /* reported: its record's time */
    double waits;                 /* since; 0: it trains */
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
    p->reported = w->now;
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
    p->reported = w->now;
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

/* A poll of the records, which say of speeds what was measured. */
static int poll_records(struct world *w, struct pl_err *say)
{
    struct progress_record r[PEERS] = { 0 };
    for (size_t i = 0; i < w->count; i++) {
        const struct peer *p = &w->peer[i];
        r[i] = (struct progress_record){ .peer = { 2, { 0, (uint8_t)i } },
                                         .epoch = p->epoch,
                                         .samples = p->samples,
                                         .time = p->reported,
                                         .samples_per_second = p->speed * uniform(w, 0.7, 1.3),
                                         .client_mode = i == 3 };
    }
    return target_watch_update(&w->watch, r + 1, w->count - 1, r, w->peer[0].target, w->now, say);
}

/* 1: something was reported within this many seconds. */
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
        if (!fresh && (w->now < at || w->peer[0].waits > 0)) continue; /* no poll while we wait */
        if (poll_records(w, say)) return 1;
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
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct world w;
        world_open(&w, 1 + seed % PEERS, 4 << seed % 11, seed);
        assert_false(watched(&w, 300, 0.5 + 0.5 * (double)(seed % 12), &say));
    }
}

static void our_larger_target_is_reported(void **state)
{
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

static void our_smaller_target_is_reported(void **state)
{
    int reported = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct pl_err say = { "" };
        struct world w;
        world_uneven(&w, 4, seed, 0);
        reported += watched(&w, 120, 1, &say);
        if (say.text[0])
            assert_non_null(
                strstr(say.text, "no peer joined our last 3 steps at --target-batch 16"));
    }
    assert_true(reported > 90);
}

/* One newcomer steps by itself again and again, the others take its state over. */
static void smaller_target_of_one_peer_is_reported(void **state)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct pl_err say = { "" };
        struct world w;
        world_uneven(&w, 5, seed, 2);
        assert_true(watched(&w, 120, 0.5, &say));
        assert_non_null(strstr(say.text, "our --target-batch is 1024"));
    }
}

/* A half that was away comes back many epochs ahead; records that vanish; one poll in a long
 * time. */
static void epoch_jumps_are_not_another_target(void **state)
{
    struct target_watch w = { 0 };
    struct progress_record own = { .epoch = 5, .samples_per_second = 1, .time = 0 };
    struct progress_record other = { .peer = { 2, { 0, 7 } }, .epoch = 5, .samples_per_second = 1 };
    struct pl_err say;
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

/* --- by hand: one other peer, ten seconds from poll to poll -------------------------------------- */

struct hand {
    struct target_watch watch;
    struct progress_record own, other;
    double now;
    struct pl_err warning;
};

static struct hand begin_by_hand(void)
{
    return (struct hand){ .own = { .peer = { 2, { 0, 1 } } },
                          .other = { .peer = { 2, { 0, 2 } }, .samples_per_second = 10 } };
}

/* The other one has gone this many epochs on since the last poll. */
static int poll_after(struct hand *h, int64_t epochs, int64_t target)
{
    h->now += 10;
    h->other.epoch += epochs;
    h->other.time = h->now;
    return target_watch_update(&h->watch, &h->other, 1, &h->own, target, h->now, &h->warning);
}

/* The first poll that finds a step begins the count, the fourth after it may warn: 400 samples came
 * at the reported speed, 600 at 1.5 times of it, so 150 a step at most. Returns the poll that warned. */
static int polls_until_warning(struct hand *h, const int *epochs, int count, int64_t target)
{
    assert_false(poll_after(h, 0, target));
    for (int i = 0; i < count; i++)
        if (poll_after(h, epochs[i], target)) return i + 1;
    return 0;
}

static void early_steps_are_counted(void **state)
{
    static const int ones[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    struct hand h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, ones, 5, 201), 5);
    assert_non_null(
        strstr(h.warning.text, "stepped 4 times without us, at about 0 to 100 samples"));
    for (int i = 0; i < 20; i++) assert_false(poll_after(&h, 1, 201)); /* once */
    h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, ones, 5, 200), 0); /* 150 is three quarters of it */
    h = begin_by_hand();
    h.other.samples = 40; /* 40 at the first poll, and 40 of the last step not stepped yet */
    assert_int_equal(polls_until_warning(&h, ones, 5, 214), 5); /* (40 + 600) / 4 < 160.5 */
    assert_non_null(strstr(h.warning.text, "at about 40 to 100 samples"));
    h = begin_by_hand();
    h.other.samples = 40;
    assert_int_equal(polls_until_warning(&h, ones, 5, 213), 0);
    h = begin_by_hand();
    h.other.samples = 155; /* more than the speeds give: the records are a lower bound */
    assert_int_equal(polls_until_warning(&h, ones, 5, 1000), 5);
    assert_non_null(strstr(h.warning.text, "at about 155 to 155 samples"));
}

/* A leap of four times the last steps counts, of five begins anew; so do records that go back, a
 * step of our own, and a poll that finds no peer at all. A poll without a step does not. */
static void counting_begins_anew(void **state)
{
    static const int four[] = { 1, 1, 4, 4, 4 }, five[] = { 1, 1, 5, 5, 5, 5, 5 },
                     back[] = { 1, 1, -1, 1, 1, 1, 1, 1 }, none[] = { 1, 1, 0, 1, 1, 1 },
                     ones[] = { 1, 1, 1, 1, 1, 1 };
    struct hand h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, four, 5, 4096), 5);
    h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, five, 7, 4096), 7);
    h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, back, 8, 4096), 8);
    h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, none, 6, 4096), 6);
    h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, ones, 4, 4096), 0);
    target_watch_step(&h.watch, h.now, 0);
    assert_false(poll_after(&h, 1, 4096)); /* that was ours */
    for (int i = 0; i < 4; i++) assert_false(poll_after(&h, 1, 4096));
    assert_true(poll_after(&h, 1, 4096));
    h = begin_by_hand();
    assert_int_equal(polls_until_warning(&h, ones, 4, 4096), 0);
    assert_int_equal(target_watch_update(&h.watch, NULL, 0, &h.own, 4096, h.now, &h.warning), 0);
    assert_int_equal(polls_until_warning(&h, ones, 5, 4096), 4); /* known since: four steps */
}

/* Ours and every other's samples of the epoch, each as old as its record; clients lead nobody. */
static void samples_are_those_of_one_epoch(void **state)
{
    struct progress_record others[3] = { { .samples = 10, .samples_per_second = 1 },
                                         { .samples = 20, .samples_per_second = 2 },
                                         { .samples = 4000, .samples_per_second = 3 } };
    struct progress_record own = { .samples = 5, .samples_per_second = 4 };
    struct target_watch w = { 0 };
    struct pl_err warning;
    others[2].client_mode = 1;
    for (int i = 0; i < 2; i++) {
        const double now = 100 + 10 * i;
        others[0].epoch = others[1].epoch = own.epoch = 7 + i;
        others[2].epoch = 100;
        others[0].time = now - 3, others[1].time = now, others[2].time = now, own.time = now + 9;
        assert_int_equal(target_watch_update(&w, others, 3, &own, 64, now, &warning), 0);
        assert_int_equal(w.epoch, 7 + i);
    }
    assert_float_equal(w.base, 10 + 3 * 1 + 20 + 5, 1e-9);
    assert_int_equal(target_watch_update(&w, others, 3, &own, 64, 110, &warning), 0);
    assert_float_equal(w.seen, 35, 0);
    w.came = w.seen = 0;
    own.epoch = 6; /* only the others' count now */
    assert_int_equal(target_watch_update(&w, others, 3, &own, 64, 115, &warning), 0);
    assert_float_equal(w.came, 5 * (1 + 2 + 3 + 4), 1e-9);
    assert_float_equal(w.seen, 30, 0);
}

/* Our step found nobody. The others, at the epoch before it, have reported since. */
static int step_alone(struct hand *h, int64_t samples, double since, int64_t target)
{
    h->now += 10;
    h->own.epoch++;
    target_watch_step(&h->watch, h->now, 1);
    h->other.epoch = h->own.epoch - 1;
    h->other.samples = samples;
    h->other.time = h->now + since;
    return target_watch_update(&h->watch, &h->other, 1, &h->own, target, h->now, &h->warning);
}

static void steps_without_groupmates_are_counted(void **state)
{
    struct hand h = begin_by_hand();
    for (int i = 0; i < 2; i++) assert_false(step_alone(&h, 200, 1, 100)); /* just twice ours */
    assert_true(step_alone(&h, 200, 1, 100));
    assert_non_null(strstr(h.warning.text,
                           "our last 3 steps at --target-batch 100, although the others "
                           "had 200 samples"));
    for (int i = 0; i < 9; i++) assert_false(step_alone(&h, 200, 1, 100)); /* once */
    /* less than twice, a report from before, a step with groupmates: counting begins anew */
    for (int sign = 0; sign < 4; sign++) {
        h = begin_by_hand();
        for (int i = 0; i < 2; i++) assert_false(step_alone(&h, 200, 1, 100));
        if (sign == 0) assert_false(step_alone(&h, 199, 1, 100));
        if (sign == 1) assert_false(step_alone(&h, 200, 0, 100));
        if (sign == 2) target_watch_step(&h.watch, h.now, 0);
        if (sign == 3) { /* without a peer nothing is judged yet */
            target_watch_step(&h.watch, h.now, 1);
            target_watch_update(&h.watch, NULL, 0, &h.own, 100, h.now, &h.warning);
            assert_true(step_alone(&h, INT64_MAX, 1, 100));
            continue;
        }
        for (int i = 0; i < 2; i++) assert_false(step_alone(&h, 200, 1, 100));
        assert_true(step_alone(&h, INT64_MAX, 1, 100));
    }
    h = begin_by_hand(); /* a step is judged once, by the first poll after it */
    for (int i = 0; i < 2; i++) assert_false(step_alone(&h, 200, 1, 100));
    for (int i = 0; i < 5; i++) assert_false(poll_after(&h, 0, 100));
    h.other.epoch--; /* an older epoch's samples are of another step */
    target_watch_step(&h.watch, h.now, 1);
    assert_int_equal(target_watch_update(&h.watch, &h.other, 1, &h.own, 100, h.now, &h.warning), 0);
    assert_int_equal(h.watch.late, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_steps_are_counted),
        cmocka_unit_test(counting_begins_anew),
        cmocka_unit_test(samples_are_those_of_one_epoch),
        cmocka_unit_test(steps_without_groupmates_are_counted),
        cmocka_unit_test(one_target),
        cmocka_unit_test(our_larger_target_is_reported),
        cmocka_unit_test(our_smaller_target_is_reported),
        cmocka_unit_test(smaller_target_of_one_peer_is_reported),
        cmocka_unit_test(epoch_jumps_are_not_another_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
