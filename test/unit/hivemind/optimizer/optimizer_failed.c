/* optimizer_failed.c - a round that fails for one peer, over loopback, and the next round: the peer
 * has lost nothing, and the result is, bit for bit, that of ref/outer with the same failures. Every
 * algorithm that gathers messages, but for Streaming DiLoCo: its failed fragment begins again at phi,
 * as torchft's does. */
#include "test/unit/hivemind/optimizer/gather_world.h"

/* --- algorithms whose rounds end with the step ------------------------------------------------- */

static const struct algorithm algorithms[] = {
    { "sparseloco", "topk=4,chunk=4", 0 },
    { "delayed_nesterov", "N=2", 0 },
    { "noloco", "gamma=0.5", 1 },
    { "partial", "share=0.25", 1 },
    { "demo", "topk=3,chunk=8,weight_decay=0.01", 0 },
    { "dgc", "share=0.3,beta=0.5", 0 },
    { "onebit_adam", "warm_up=1,beta2=0.9", 0 },
};

/* A batch that has taken so long that nobody looks for a group ahead of time. */
static void slow_step(struct peer *p)
{
    p->c->batch_began -= 6;
    assert_int_equal(step(p, SAMPLES), PL_OK);
}

/* An epoch alone, for momenta and error feedback, and 1-bit Adam's warm-up. Then a newcomer reports
 * samples and does not come: the second round fails for one of them. */
static void *fail_one(void *context)
{
    struct play *w = context;
    struct peer *p = w->p[0];
    for (int i = 0; i < (p->is_local ? INNER : 2); i++) slow_step(p);
    slow_step(new_peer(w, 1));
    await_silent_peer(p);
    for (int i = 0; i < (p->is_local ? INNER : 1); i++) slow_step(p);
    return NULL;
}

/* Where gradients travel: another batch of each, and of one whose round has failed again. */
static void *end_second_epoch(void *context)
{
    struct peer *p = context;
    int given = -1;
    while (!p->rc && pl_collaborative_epoch(p->c) < 2) {
        const int gives = p->is_local || given != p->failed;
        given = p->failed;
        p->rc = step(p, gives ? SAMPLES : 0);
        usleep(20000);
    }
    return NULL;
}

/* One process: peer r's steps until `taken`, with the failures of p in between. */
static void replay_until(struct world *w, int r, const struct peer *p, uint64_t taken)
{
    struct pl_outer *o = w->o[r];
    struct pl_outer_message own;
    int failed = 0;
    while (o->counter[PL_OUTER_TAKEN] < taken) {
        gradient_at(r, w->x[r], w->g[r], B, 0);
        gradient_at(r, w->x[r] + B, w->g[r] + B, W, B);
        if (pl_outer_before_step(o, w->x[r], w->g[r], RATE) == PL_OUTER_STEP)
            for (int i = 0; i < N; i++) w->x[r][i] -= RATE * w->g[r][i];
        if (failed == p->failed || o->counter[PL_OUTER_TAKEN] != p->failed_at[failed]) continue;
        failed++;
        pl_outer_message(o, &own, w->x[r], w->g[r]);
        assert_int_equal(pl_outer_apply(o, w->x[r], w->g[r], NULL, 0), PL_OUTER_GRADIENT);
        /* the epoch stays */
        o->counter[PL_OUTER_ROUNDS] = 1;
        if (o->algorithm->sends_gradients) o->counter[PL_OUTER_STEPS] = 1;
    }
    assert_int_equal(failed, p->failed);
}

static void send_and_apply(struct world *w, int from, int count)
{
    struct pl_outer_message m[2];
    uint8_t *kept[2];
    for (int r = 0; r < count; r++) {
        pl_outer_message(w->o[r], &m[r], w->x[r], w->g[r]);
        m[r].data = kept[r] = memcpy(malloc(m[r].bytes), m[r].data, m[r].bytes);
    }
    for (int r = from; r < count; r++)
        if (apply(w, r, m, count) == PL_OUTER_SEND) { /* 1-bit Adam's server */
            struct pl_outer_message own;
            pl_outer_message(w->o[r], &own, w->x[r], w->g[r]);
            pl_outer_apply(w->o[r], w->x[r], w->g[r], &own, 1);
        }
    for (int r = 0; r < count; r++) free(kept[r]);
}

/* 1: so both peers have ended the second epoch. */
static int equals_replay(const struct play *w, const uint64_t taken[2], int is_reversed)
{
    struct world v = { .R = 2, .is_reversed = is_reversed };
    const int first = w->p[0]->is_local ? INNER : 1;
    const struct peer none = { .failed = 0 };
    uint8_t *shared;
    int same;
    open_world(&v, w->algorithm);
    replay_until(&v, 0, &none, (uint64_t)first);
    send_and_apply(&v, 0, 1);
    for (int r = 0; r < 2; r++) v.o[r]->counter[PL_OUTER_ROUNDS] = 1;
    shared = malloc(pl_outer_shared_bytes(v.o[0]));
    assert_int_equal(pl_outer_save_shared(v.o[0], shared), PL_OK);
    assert_int_equal(pl_outer_load_shared(v.o[1], shared, NULL), PL_OK);
    free(shared);
    memcpy(v.x[1], v.x[0], sizeof v.x[0]);
    for (int r = 0; r < 2; r++) replay_until(&v, r, w->p[r], taken[r]);
    send_and_apply(&v, 0, 2);
    same = !memcmp(w->p[0]->after[2], v.x[0], sizeof v.x[0]) &&
           !memcmp(w->p[1]->after[2], v.x[1], sizeof v.x[1]);
    for (int r = 0; r < 2; r++) pl_outer_close(v.o[r]);
    return same;
}

static void the_next_round_has_everything(void **state)
{
    static struct play w[PL_COUNT(algorithms)];
    pthread_t thread[PL_COUNT(algorithms)];
    (void)state;
    for (size_t a = 0; a < PL_COUNT(algorithms); a++) {
        w[a].algorithm = &algorithms[a];
        w[a].peers = pl_outer_find(algorithms[a].name)->sends_gradients ? 2 : 1;
        w[a].matchmaking_time = 2;
        new_peer(&w[a], 0);
        pthread_create(&thread[a], NULL, fail_one, &w[a]);
    }
    for (size_t a = 0; a < PL_COUNT(algorithms); a++) {
        pthread_join(thread[a], NULL);
        /* Where the samples of the first are overestimated, the second one's round has failed. */
        if (w[a].p[0]->failed + w[a].p[1]->failed != 1)
            fail_msg("%s: %d and %d rounds have failed", algorithms[a].name, w[a].p[0]->failed,
                     w[a].p[1]->failed);
        for (int r = 0; r < 2; r++) {
            const struct pl_collaborative *c = w[a].p[r]->c;
            assert_int_equal(c->epoch, 1);
            /* The failed round does not count: a checkpoint knows its epoch by these two. */
            assert_int_equal(c->outer.state->counter[PL_OUTER_ROUNDS], 1);
            assert_int_equal(c->outer.state->counter[PL_OUTER_STEPS], local_step_number(c));
        }
    }
    for (size_t a = 0; a < PL_COUNT(algorithms); a++)
        for (int r = 0; r < 2; r++)
            pthread_create(&w[a].p[r]->thread, NULL, end_second_epoch, w[a].p[r]);
    for (size_t a = 0; a < PL_COUNT(algorithms); a++) {
        uint64_t taken[2];
        for (int r = 0; r < 2; r++) {
            pthread_join(w[a].p[r]->thread, NULL);
            taken[r] = w[a].p[r]->c->outer.state->counter[PL_OUTER_TAKEN];
            assert_int_equal(w[a].p[r]->group[2], 2);
        }
        if (!equals_replay(&w[a], taken, 0) && !equals_replay(&w[a], taken, 1))
            fail_msg("%s", algorithms[a].name);
        if (!algorithms[a].is_different)
            assert_memory_equal(w[a].p[0]->after[2], w[a].p[1]->after[2], sizeof(float[N]));
        for (int r = 2; r-- > 0;) close_peer(w[a].p[r]);
    }
}

/* --- exchanges that overlap with steps ---------------------------------------------------------- */

static const struct algorithm overlapped[] = {
    { "delayed", "coding=e3m0", 0 },
    { "eager", "", 1 },
    { "delayed_gradients", "", 0 },
};

static uint64_t taken_by(const struct peer *p)
{
    return p->c->outer.state->counter[PL_OUTER_TAKEN];
}

/* The other reports samples and does not come: the first exchange fails, in the middle of a period. */
static void *fail_first_exchange(void *context)
{
    struct play *w = context;
    struct peer *p = w->p[0];
    slow_step(new_peer(w, 1));
    await_silent_peer(p);
    for (int i = 0; i < (p->is_local ? INNER : 1); i++) slow_step(p);
    while (!p->failed) {
        usleep(20000);
        assert_int_equal(step(p, 0), PL_OK);
    }
    return NULL;
}

/* To the step after which the first exchange with the other is applied. */
static void *end_first_exchange(void *context)
{
    struct peer *p = context;
    float first[N], x[N];
    int given = p->number ? 0 : -1; /* the second one's first batch counts */
    first_values(first);
    values_of(p, x);
    await_silent_peer(p); /* one that does not come is forgotten until it reports again */
    while (!p->rc && (p->is_local ? taken_by(p) < (uint64_t)(2 + p->failed) * INNER
                                  : !memcmp(x, first, sizeof x))) {
        const int at = p->failed + (int)pl_collaborative_epoch(p->c);
        p->rc = step(p, p->is_local || given != at ? SAMPLES : 0);
        given = at;
        usleep(20000);
        values_of(p, x);
    }
    return NULL;
}

/* 1: so both have applied their first common exchange. Gradients are the same at each try. */
static int equals_late_replay(const struct play *w, int is_reversed)
{
    struct world v = { .R = 2, .is_reversed = is_reversed };
    struct exchanges e = { .sent = { 0 } };
    float x[N];
    int same = 1, steps[2];
    open_world(&v, w->algorithm);
    for (int r = 0; r < 2; r++) {
        if (w->p[0]->is_local) e.lost[r] = w->p[r]->failed;
        steps[r] = w->p[0]->is_local ? (2 + e.lost[r]) * INNER : 2;
    }
    /* a message is sent before any peer receives it */
    for (int back = INNER; back >= 0; back -= INNER)
        for (int r = 0; r < 2; r++) {
            const int until = w->p[0]->is_local ? steps[r] - back : back ? 1 : 2;
            while ((int)v.o[r]->counter[PL_OUTER_TAKEN] < until) one_step(&v, &e, r);
        }
    for (int r = 0; r < 2; r++) {
        values_of(w->p[r], x);
        same &= !memcmp(x, v.x[r], sizeof x);
        pl_outer_close(v.o[r]);
    }
    for (int k = 0; k < STEPS_MAX; k++)
        for (int r = 0; r < 2; r++) free(e.m[k][r].data);
    return same;
}

static void the_next_exchange_has_everything(void **state)
{
    static struct play w[PL_COUNT(overlapped)];
    pthread_t thread[PL_COUNT(overlapped)];
    (void)state;
    for (size_t a = 0; a < PL_COUNT(overlapped); a++) {
        w[a].algorithm = &overlapped[a];
        w[a].peers = pl_outer_find(overlapped[a].name)->sends_gradients ? 2 : 1;
        w[a].matchmaking_time = 2;
        new_peer(&w[a], 0);
        pthread_create(&thread[a], NULL, fail_first_exchange, &w[a]);
    }
    for (size_t a = 0; a < PL_COUNT(overlapped); a++) {
        pthread_join(thread[a], NULL);
        for (int r = 0; r < 2; r++)
            pthread_create(&w[a].p[r]->thread, NULL, end_first_exchange, w[a].p[r]);
    }
    for (size_t a = 0; a < PL_COUNT(overlapped); a++) {
        for (int r = 0; r < 2; r++) pthread_join(w[a].p[r]->thread, NULL);
        if (!equals_late_replay(&w[a], 0) && !equals_late_replay(&w[a], 1))
            fail_msg("%s", overlapped[a].name);
        for (int r = 2; r-- > 0;) close_peer(w[a].p[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_round_has_everything),
        cmocka_unit_test(the_next_exchange_has_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
