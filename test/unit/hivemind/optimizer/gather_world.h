/* gather_world.h - peers of one algorithm over loopback, by the public header: two that train and a
 * newcomer, or three of which one diverges. Several such swarms train at the same time. Included by
 * one file of each test program. */
#ifndef PL_TEST_GATHER_WORLD_H
#define PL_TEST_GATHER_WORLD_H

#include "test/unit/unit.h"
#include "test/unit/hivemind/training/training_totals.h"
#include "test/unit/net/await.h"
#include "net/hivemind/optimizer/optimizer_internal.h"

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "test/unit/hivemind/optimizer/gather_reference.h" /* last, for its short names */

#define FAILURES_MAX 8 /* of a peer's rounds, that are noted */

struct peer {
    int number, is_local;
    struct play *play;
    float w[W], b[B];
    float after[EPOCHS_MAX + 1][N]; /* x, or phi of an overlapped one, after each common step */
    _Atomic size_t group[EPOCHS_MAX + 1];
    float at[STEPS_MAX + 1][N], phi[STEPS_MAX + 1][N]; /* overlapped: after each inner step */
    int64_t last;                                      /* of these steps */
    int loads, failed, diverged, split;
    uint64_t failed_at[FAILURES_MAX]; /* inner steps taken, or gradients sent, until then */
    int is_left_out, is_back;         /* it has diverged; and has taken a state since */
    int spoils;                       /* its phi, before the third outer step */
    float lies; /* its gradients are so many times too large; 0: they are not */
    int64_t loaded_epoch;
    struct pl_collaborative *c;
    struct pl_err err;
    pthread_t thread;
    int rc;
};

/* A swarm. */
struct play {
    const struct algorithm *algorithm;
    int peers;               /* that the target batch is for */
    double matchmaking_time; /* s; 0: 2 */
    int step_ms;             /* between inner steps; 0: 20 */
    size_t group_size;       /* most peers of a group; 0: the usual */
    size_t min_peers;        /* of the first common step */
    double clip;
    char address[256];
    int known, first_steps;
    _Atomic int64_t last_epoch; /* trainers stop there */
    struct peer *p[3];
};

static int sgd(void *context, const float *const *gradient, int64_t number, struct pl_err *err)
{
    struct peer *p = context;
    (void)number, (void)err;
    for (int i = 0; i < B; i++) p->b[i] -= RATE * gradient[0][i];
    for (int i = 0; i < W; i++) p->w[i] -= RATE * gradient[1][i];
    return PL_OK;
}

static void values_of(const struct peer *p, float x[N])
{
    memcpy(x, p->b, sizeof p->b);
    memcpy(x + B, p->w, sizeof p->w);
}

/* What all peers have in common. */
static void common_values(const struct peer *p, float x[N])
{
    const struct pl_outer *o = p->c->outer.state;
    const float *phi = pl_outer_get(o, "phi");
    if (o->algorithm->under_way && phi) memcpy(x, phi, N * sizeof *x);
    else values_of(p, x);
}

/* The first step that all three have made together, once the one that was left out is back. A peer
 * whose round has failed although the others' has not takes their state instead of this step. */
static void end_at_common_step(struct play *w, int64_t epoch)
{
    int64_t unset = EPOCHS_MAX;
    if (w->peers < 3 || !w->p[1]->is_back) return;
    for (int r = 0; r < 3; r++)
        if (w->p[r]->group[epoch] != 3) return;
    atomic_compare_exchange_strong(&w->last_epoch, &unset, epoch);
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    struct peer *p = context;
    if (e->kind == PL_COLLABORATIVE_EPOCH && e->status.epoch <= EPOCHS_MAX) {
        common_values(p, p->after[e->status.epoch]);
        p->group[e->status.epoch] = e->round.status ? 1 : e->round.peers;
        end_at_common_step(p->play, e->status.epoch);
    }
    if (e->kind == PL_COLLABORATIVE_LOADED) {
        p->loads++, p->loaded_epoch = e->status.epoch;
        p->is_back = p->is_left_out;
    }
    if (e->kind == PL_COLLABORATIVE_WARNING) {
        p->diverged += strstr(e->text, "diverged") != NULL;
        p->split += strstr(e->text, "drift apart") != NULL;
        p->is_left_out |= strstr(e->text, "our parameters have diverged") != NULL;
        if ((strstr(e->text, "no outer step") || strstr(e->text, "no step")) &&
            p->failed < FAILURES_MAX)
            p->failed_at[p->failed++] = p->c->outer.state->counter[PL_OUTER_TAKEN];
        printf("peer %d: %s\n", p->number, e->text);
    }
}

static struct peer *new_peer(struct play *w, int number)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const char *join = w->address;
    struct peer *p = calloc(1, sizeof *p);
    float x[N];
    const struct pl_collaborative_tensor tensors[] = { { "b", 1, { B }, p->b, 1 },
                                                       { "w", 2, { 8, 8 }, p->w, 0 } };
    const struct pl_collaborative_run run = { .name = "gather",
                                              .listen = listen,
                                              .listen_count = 1,
                                              .initial_peers = &join,
                                              .initial_peer_count = number > 0 };
    struct pl_collaborative_options o = { .algorithm = w->algorithm->name,
                                          .algorithm_settings = w->algorithm->settings,
                                          .inner_steps = INNER,
                                          .target_batch = w->peers * SAMPLES,
                                          .group_size = w->group_size,
                                          .min_peers = w->min_peers,
                                          .clip = w->clip,
                                          .lr = RATE,
                                          .step = sgd,
                                          .matchmaking_time = w->matchmaking_time,
                                          .averaging_timeout = 30,
                                          .allreduce_timeout = 10,
                                          .report = report,
                                          .context = p };
    p->number = number;
    p->play = w;
    p->is_local = !pl_outer_find(w->algorithm->name)->sends_gradients;
    if (p->is_local) o.target_batch = SAMPLES;
    if (!o.matchmaking_time) o.matchmaking_time = 2;
    first_values(x);
    memcpy(p->b, x, sizeof p->b);
    memcpy(p->w, x + B, sizeof p->w);
    if (pl_collaborative_open(&p->c, &run, tensors, 2, &o, &p->err)) fail_msg("%s", p->err.text);
    if (!number) snprintf(w->address, sizeof w->address, "%s", pl_collaborative_address(p->c));
    return w->p[number] = p;
}

static void close_peer(struct peer *p)
{
    pl_collaborative_close(p->c);
    free(p);
}

static int step(struct peer *p, int64_t samples)
{
    float gw[W], gb[B];
    const float *gradient[] = { gb, gw };
    int rc;
    gradient_at(p->number, p->b, gb, B, 0);
    gradient_at(p->number, p->w, gw, W, B);
    for (int i = 0; p->lies != 0 && i < B; i++) gb[i] *= p->lies;
    for (int i = 0; p->lies != 0 && i < W; i++) gw[i] *= p->lies;
    rc = pl_collaborative_step(p->c, gradient, samples, 1, &p->err);
    p->last = (int64_t)p->c->outer.state->counter[PL_OUTER_STEPS];
    if (p->last > STEPS_MAX) return rc;
    values_of(p, p->at[p->last]);
    common_values(p, p->phi[p->last]);
    return rc;
}

/* A batch for each inner step, or for each common one; none before both know of each other. */
static void *train(void *context)
{
    struct peer *p = context;
    struct play *w = p->play;
    const struct timespec nap = { 0, (w->step_ms ? w->step_ms : 20) * 1000000L };
    int64_t trained = -1;
    int is_known = 0;
    p->rc = step(p, SAMPLES);
    if (!p->is_local) trained = 0;
    while (!p->rc && pl_collaborative_epoch(p->c) < w->last_epoch) {
        const int64_t epoch = pl_collaborative_epoch(p->c);
        struct pl_collaborative_status s;
        int64_t samples = SAMPLES;
        pl_collaborative_status(p->c, &s);
        if (s.peers >= 2 && !is_known) {
            is_known = 1;
            note(&w->known);
        }
        nanosleep(&nap, NULL);
        if (p->spoils && epoch == 2) {
            pl_outer_get(p->c->outer.state, "phi")[3] += 0.5f;
            p->spoils = 0;
        }
        if ((!epoch && noted(&w->known) < 2) || (!p->is_local && trained == epoch)) samples = 0;
        if (samples) trained = epoch;
        p->rc = step(p, samples);
    }
    if (!p->rc) await_noted(&w->first_steps, 1, LIMIT);
    return NULL;
}

static int follows(const struct peer *p, int r, float want[STEPS_MAX + 1][2][N])
{
    for (int64_t s = 1; s <= p->last; s++)
        if (memcmp(p->at[s], want[s][r], sizeof want[s][r])) return 0;
    return p->last > EPOCHS * (p->is_local ? INNER / 2 : 1) - 1;
}

/* A message of the formula's length to the other peer in each round; in front of it a piece's head of
 * 24 bytes, and a digest of 8. */
static void assert_bytes(const struct peer *p)
{
    const struct pl_outer *o = p->c->outer.state;
    const struct report_record r = totals_of(p->c->training);
    /* One that overlaps with steps may have been followed by the next. */
    const double rounds = o->algorithm->under_way ? (double)r.rounds : EPOCHS;
    double bytes = pl_outer_bytes_per_step(o) * pl_outer_period(o->algorithm, &o->setup) * rounds;
    /* 1-bit Adam warms up with whole gradients, and here sends nothing to a server */
    if (!strcmp(p->play->algorithm->name, "onebit_adam"))
        bytes = 2 * sizeof(float) * N + (EPOCHS - 2) * (pl_outer_bytes_per_step(o) / 2);
    if (r.rounds < EPOCHS || r.rounds > rounds || fabs((double)r.sent - bytes - 32 * rounds) > 0.5)
        fail_msg("%s: %lld bytes in %lld rounds, expected %g", p->play->algorithm->name,
                 (long long)r.sent, (long long)r.rounds, bytes);
}

static int equals(struct peer *const p[2], float want[EPOCHS + 1][2][N])
{
    for (int t = 1; t <= EPOCHS; t++)
        for (int r = 0; r < 2; r++)
            if (memcmp(p[r]->after[t], want[t][r], sizeof want[t][r])) return 0;
    return 1;
}

/* What is common to peers at step s does not depend on when a mean has arrived; after[] does. */
static void assert_same_phi(struct peer *const *p, int count)
{
    int64_t s = p[0]->last;
    for (int r = 1; r < count; r++)
        if (p[r]->last < s) s = p[r]->last;
    for (int r = 1; r < count; r++)
        assert_memory_equal(p[0]->phi[s], p[r]->phi[s], sizeof p[r]->phi[s]);
}

static void begin_two(struct play *w, const struct algorithm *a)
{
    w->algorithm = a;
    w->peers = 2;
    w->last_epoch = EPOCHS;
    for (int r = 0; r < 2; r++) new_peer(w, r);
    for (int r = 0; r < 2; r++) pthread_create(&w->p[r]->thread, NULL, train, w->p[r]);
}

/* The trainers go on to EPOCHS, then wait until a newcomer has their state. */
static void end_two(struct play *w)
{
    static float want[EPOCHS + 1][2][N], reversed[EPOCHS + 1][2][N];
    static float steps[2][STEPS_MAX + 1][2][N];
    const struct algorithm *a = w->algorithm;
    const int is_overlapped = pl_outer_find(a->name)->under_way != NULL;
    struct peer *const *p = w->p, *late;
    float x[N];
    if (!is_overlapped) reference(a, 2, 0, want);
    if (!is_overlapped) reference(a, 2, 1, reversed);
    for (int i = 0; is_overlapped && i < 2; i++) overlapped_reference(a, 2, i, steps[i]);
    for (int r = 0; r < 2; r++)
        while (!p[r]->group[EPOCHS] && !p[r]->rc) usleep(20000);
    late = new_peer(w, 2);
    note(&w->first_steps);
    for (int r = 0; r < 2; r++) {
        pthread_join(p[r]->thread, NULL);
        if (p[r]->rc) fail_msg("%s, peer %d: %s", a->name, r, p[r]->err.text);
        for (int t = 1; t <= EPOCHS; t++) assert_int_equal(p[r]->group[t], 2);
    }
    if (!(is_overlapped ? follows(p[0], 0, steps[0]) && follows(p[1], 1, steps[0])
                        : equals(p, want)) &&
        !(is_overlapped ? follows(p[0], 0, steps[1]) && follows(p[1], 1, steps[1])
                        : equals(p, reversed)))
        fail_msg("%s", a->name);
    if (!a->is_different && is_overlapped) assert_same_phi(p, 2);
    else if (!a->is_different)
        assert_memory_equal(p[0]->after[EPOCHS], p[1]->after[EPOCHS], sizeof x);
    assert_int_equal(late->loads, 1);
    assert_int_equal(late->loaded_epoch, EPOCHS);
    values_of(late, x);
    assert_true(!memcmp(x, p[0]->after[EPOCHS], sizeof x) ||
                !memcmp(x, p[1]->after[EPOCHS], sizeof x));
    assert_true(!is_overlapped || late->c->outer.inner == p[0]->c->outer.inner ||
                late->c->outer.inner == p[1]->c->outer.inner);
    { /* all that peers share of the algorithm's state, too */
        const size_t n = pl_outer_shared_bytes(late->c->outer.state);
        uint8_t *mine = malloc(n), *theirs[2] = { malloc(n), malloc(n) };
        const size_t counters = sizeof late->c->outer.state->counter;
        pl_outer_save_shared(late->c->outer.state, mine);
        for (int r = 0; r < 2; r++) pl_outer_save_shared(p[r]->c->outer.state, theirs[r]);
        assert_true(!memcmp(mine + counters, theirs[0] + counters, n - counters) ||
                    !memcmp(mine + counters, theirs[1] + counters, n - counters));
        free(mine), free(theirs[0]), free(theirs[1]);
    }
    for (int r = 0; r < 2; r++) assert_bytes(p[r]);
    close_peer(p[1]);
    close_peer(p[0]);
    close_peer(late);
}

/* All at the same time, since they wait more than they compute. */
static inline void two_peers_and_a_newcomer(const struct algorithm *list, size_t count)
{
    struct play *w = calloc(count, sizeof *w);
    for (size_t a = 0; a < count; a++) begin_two(&w[a], &list[a]);
    for (size_t a = 0; a < count; a++) end_two(&w[a]);
    free(w);
}

/* One bit of one peer's phi would be enough: the others name it and step without it, and it takes
 * their state over. */
static inline void resynchronize(const struct algorithm *a)
{
    /* slow enough that a peer which was left out can catch up */
    struct play w = { .algorithm = a, .peers = 3, .step_ms = 250, .last_epoch = EPOCHS_MAX };
    struct peer *const *p = w.p;
    for (int r = 0; r < 3; r++) new_peer(&w, r);
    p[1]->spoils = 1;
    for (int r = 0; r < 3; r++) pthread_create(&p[r]->thread, NULL, train, p[r]);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < LIMIT / 0.02 && !p[r]->group[w.last_epoch] && !p[r]->rc; i++)
            usleep(20000);
    note(&w.first_steps);
    for (int r = 0; r < 3; r++) {
        pthread_join(p[r]->thread, NULL);
        if (p[r]->rc) fail_msg("peer %d: %s", r, p[r]->err.text);
    }
    assert_true(p[1]->is_back);
    assert_true(p[0]->diverged >= 1 || p[2]->diverged >= 1);
    /* the first step that all have made together since */
    for (int r = 0; r < 3; r++) assert_int_equal(p[r]->group[w.last_epoch], 3);
    if (pl_outer_find(a->name)->under_way) assert_same_phi(p, 3);
    else
        for (int r = 1; r < 3; r++)
            assert_memory_equal(p[0]->after[w.last_epoch], p[r]->after[w.last_epoch],
                                sizeof p[0]->after[0]);
    for (int r = 2; r >= 0; r--) close_peer(p[r]);
}

/* The largest value of two honest peers after two exchanges with a third, whose messages are huge.
 * An overlapped algorithm applies the first of them after the second has begun. */
static inline float attacked(const struct algorithm *a, double clip)
{
    struct play w = { .algorithm = a,
                      .peers = 3,
                      .matchmaking_time = 10,
                      .group_size = 3,
                      .min_peers = 3,
                      .clip = clip,
                      .last_epoch = 2 };
    struct peer *const *p = w.p;
    float largest = 0;
    for (int r = 0; r < 3; r++) new_peer(&w, r);
    p[2]->lies = 1e6f;
    for (int r = 0; r < 3; r++) pthread_create(&p[r]->thread, NULL, train, p[r]);
    note(&w.first_steps);
    for (int r = 0; r < 3; r++) {
        pthread_join(p[r]->thread, NULL);
        if (p[r]->rc) fail_msg("peer %d: %s", r, p[r]->err.text);
        for (int t = 1; t <= 2; t++) assert_int_equal(p[r]->group[t], 3);
    }
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < N; i++) {
            const float x = fabsf(p[r]->after[2][i]);
            largest = x > largest ? x : largest;
        }
    for (int r = 2; r >= 0; r--) close_peer(w.p[r]);
    return largest;
}

static void await_silent_peer(struct peer *p)
{
    struct pl_collaborative_status s = { .peers = 0 };
    for (int i = 0; i < 600 && s.peers < 2; i++) {
        usleep(50000);
        pl_collaborative_status(p->c, &s);
    }
}

/* A peer that reports samples and never comes; the other knows of it after `steps` of its own. */
static inline struct peer *with_a_silent_peer(struct play *w, const struct algorithm *a, int steps)
{
    struct peer *p;
    w->algorithm = a;
    w->peers = 1;
    w->matchmaking_time = 1;
    p = new_peer(w, 0);
    assert_int_equal(step(new_peer(w, 1), SAMPLES), PL_OK);
    for (int h = 0; h < steps; h++) assert_int_equal(step(p, SAMPLES), PL_OK);
    await_silent_peer(p);
    return p;
}

#endif
