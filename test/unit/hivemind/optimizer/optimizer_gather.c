/* optimizer_gather.c - algorithms in which each peer gathers all messages of its group, over
 * loopback: peers equal, bit for bit, the result of ref/outer for the same gradients in one
 * process; a newcomer downloads the algorithm's state; the bytes on the wire are those of the
 * formula.
 *
 * More than 500 lines: exchanges that overlap with steps and such that do not have one play. */
#include "test/unit/hivemind/training/training_totals.h"
#include "test/unit/net/await.h"
#include "net/hivemind/optimizer/optimizer_internal.h"
#include "ref/outer/settings.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define W 64
#define B 64 /* as buffers are aligned: no gap is between tensors */
#define N (W + B)
#define INNER 4
#define EPOCHS 4
#define EPOCHS_MAX 24 /* where a peer comes back in between */
#define SAMPLES 8     /* of a batch, and of an inner step */
#define RATE 0.125f
#define STEPS_MAX 64 /* inner ones, where exchanges overlap with them */
#define LIMIT 120.0  /* s */

static const struct algorithm {
    const char *name, *settings;
    int is_different; /* peers are not equal by its rules */
} algorithms[] = {
    { "sparseloco", "topk=4,chunk=4", 0 },
    { "delayed_nesterov", "N=2,coding=e3m0", 0 },
    { "noloco", "gamma=0.5", 1 },
    { "partial", "share=0.25", 1 },
    { "demo", "topk=3,chunk=8,weight_decay=0.01", 0 },
    { "dgc", "share=0.3,beta=0.5", 0 },
    { "onebit_adam", "warm_up=2,beta2=0.9", 0 },
};

/* Their exchanges take as long as local steps. */
static const struct algorithm overlapped[] = {
    { "streaming", "fragments=2,tau=1,alpha=0.25", 0 },
    { "delayed", "coding=e3m0", 0 },
    { "eager", "", 1 },
    { "delayed_gradients", "", 0 },
};

struct peer {
    int number, is_local;
    const struct algorithm *algorithm;
    const char *join;
    float w[W], b[B];
    float after[EPOCHS_MAX + 1][N]; /* x right after each common step */
    size_t group[EPOCHS_MAX + 1];
    float at[STEPS_MAX + 1][N]; /* overlapped: x after each inner step, and after[] has phi */
    int64_t last;               /* of these steps */
    int loads, failed, diverged;
    int is_left_out, is_back; /* it has diverged; and has taken a state since */
    int spoils;               /* its phi, before the third outer step */
    int step_ms;              /* between inner steps */
    int64_t loaded_epoch;
    struct pl_collaborative *c;
    struct pl_err err;
    pthread_t thread;
    int rc;
};

static char address[256];
static int known, first_steps;
static _Atomic int64_t last_epoch; /* trainers stop there */

static void first_values(float x[N])
{
    for (int i = 0; i < N; i++) x[i] = (i < B ? -1.0f : 1.0f) + 0.01f * (float)(i * 37 % 23);
}

/* Noisy enough that no two entries of a chunk are equal. */
static void gradient_at(int peer, const float *x, float *g, int n, int from)
{
    for (int i = 0; i < n; i++)
        g[i] = 0.3f * x[i] - 0.011f * (float)((from + i) * (29 + 2 * peer) % 31) +
               0.02f * (float)peer;
}

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

static void report(void *context, const struct pl_collaborative_event *e)
{
    struct peer *p = context;
    if (e->kind == PL_COLLABORATIVE_EPOCH && e->status.epoch <= EPOCHS_MAX) {
        common_values(p, p->after[e->status.epoch]);
        p->group[e->status.epoch] = e->round.status ? 1 : e->round.peers;
        if (p->is_back && p->group[e->status.epoch] == 3 && last_epoch == EPOCHS_MAX)
            last_epoch = e->status.epoch;
    }
    if (e->kind == PL_COLLABORATIVE_LOADED) {
        p->loads++, p->loaded_epoch = e->status.epoch;
        p->is_back = p->is_left_out;
    }
    if (e->kind == PL_COLLABORATIVE_WARNING) {
        p->diverged += strstr(e->text, "diverged") != NULL;
        p->is_left_out |= strstr(e->text, "our parameters have diverged") != NULL;
        p->failed += strstr(e->text, "no outer step") || strstr(e->text, "no step");
        printf("peer %d: %s\n", p->number, e->text);
    }
}

static struct pl_collaborative_options options_of(struct peer *p, int peers)
{
    return (struct pl_collaborative_options){ .algorithm = p->algorithm->name,
                                              .algorithm_settings = p->algorithm->settings,
                                              .inner_steps = INNER,
                                              .target_batch = p->is_local ? SAMPLES
                                                                          : peers * SAMPLES,
                                              .lr = RATE,
                                              .step = sgd,
                                              .matchmaking_time = 2,
                                              .averaging_timeout = 30,
                                              .allreduce_timeout = 10,
                                              .report = report,
                                              .context = p };
}

static struct peer *new_peer(int number, const struct algorithm *algorithm, const char *join,
                             int peers)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct peer *p = calloc(1, sizeof *p);
    float x[N];
    const struct pl_collaborative_tensor tensors[] = { { "b", 1, { B }, p->b, 1 },
                                                       { "w", 2, { 8, 8 }, p->w, 0 } };
    struct pl_collaborative_run run = { .name = "gather", .listen = listen, .listen_count = 1 };
    struct pl_collaborative_options o;
    p->number = number;
    p->step_ms = 20;
    p->algorithm = algorithm;
    p->join = join;
    p->is_local = !pl_outer_find(algorithm->name)->sends_gradients;
    run.initial_peers = &p->join;
    run.initial_peer_count = join != NULL;
    first_values(x);
    memcpy(p->b, x, sizeof p->b);
    memcpy(p->w, x + B, sizeof p->w);
    o = options_of(p, peers);
    if (pl_collaborative_open(&p->c, &run, tensors, 2, &o, &p->err)) fail_msg("%s", p->err.text);
    return p;
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
    rc = pl_collaborative_step(p->c, gradient, samples, 1, &p->err);
    p->last = (int64_t)p->c->outer.state->counter[PL_OUTER_STEPS];
    if (p->last <= STEPS_MAX) values_of(p, p->at[p->last]);
    return rc;
}

/* --- what ref/outer makes of it, with the messages in this order ------------------------------- */

struct world {
    struct pl_outer *o[2];
    float x[2][N], g[2][N];
    int R, is_reversed;
};

/* Each peer is number 0 to its own algorithm, as over the network. */
static int apply(struct world *w, int r, const struct pl_outer_message *m, int count)
{
    struct pl_outer_message in[2];
    struct pl_outer *o = w->o[r];
    for (int i = 0; i < count; i++) {
        const int from = w->is_reversed ? count - 1 - i : i;
        in[i] = m[from];
        in[i].rank = from == r || count == 1 ? 0 : i + 1;
    }
    if (strcmp(o->algorithm->name, "onebit_adam") && o->algorithm->exchange != PL_OUTER_GROUP)
        o->setup.peers = count;
    return pl_outer_apply(o, w->x[r], w->g[r], in, count);
}

static void one_round(struct world *w)
{
    struct pl_outer_message m[2];
    uint8_t *kept[2];
    for (int r = 0; r < w->R; r++) {
        int next = PL_OUTER_GRADIENT;
        while (next != PL_OUTER_SEND) {
            gradient_at(r, w->x[r], w->g[r], B, 0);
            gradient_at(r, w->x[r] + B, w->g[r] + B, W, B);
            next = pl_outer_before_step(w->o[r], w->x[r], w->g[r], RATE);
            if (next != PL_OUTER_STEP) continue;
            for (int i = 0; i < N; i++) w->x[r][i] -= RATE * w->g[r][i];
            next = pl_outer_after_step(w->o[r], w->x[r]);
        }
        assert_int_equal(pl_outer_message(w->o[r], &m[r], w->x[r], w->g[r]), PL_OUTER_RECEIVE);
        kept[r] = malloc(m[r].bytes);
        m[r].data = memcpy(kept[r], m[r].data, m[r].bytes);
    }
    for (int r = 0; r < w->R; r++) {
        int next = apply(w, r, m, w->R);
        if (next == PL_OUTER_SEND) { /* 1-bit Adam's server */
            struct pl_outer_message own;
            assert_int_equal(pl_outer_message(w->o[r], &own, w->x[r], w->g[r]), PL_OUTER_RECEIVE);
            next = pl_outer_apply(w->o[r], w->x[r], w->g[r], &own, 1);
        }
        assert_int_equal(next, PL_OUTER_GRADIENT);
    }
    for (int r = 0; r < w->R; r++) free(kept[r]);
}

static void open_world(struct world *w, const struct algorithm *a)
{
    struct pl_outer_tensor tensors[] = { { 0, B, 1, { B }, 0 }, { B, W, 2, { 8, 8 }, 0 } };
    const struct pl_outer_algorithm *algorithm = pl_outer_find(a->name);
    static struct pl_backend be;
    struct pl_outer_setup s;
    pl_backend_ref(&be);
    pl_outer_defaults(&s);
    assert_int_equal(pl_outer_set_all(&s, a->settings, NULL), PL_OK);
    s.be = &be;
    s.tensors = tensors;
    s.count = 2;
    s.H = algorithm->sends_gradients ? 1 : INNER;
    if (algorithm->exchange == PL_OUTER_GROUP) s.peers = s.group;
    pl_outer_cut(tensors, 2, s.fragments);
    for (int r = 0; r < w->R; r++) {
        first_values(w->x[r]);
        assert_int_equal(pl_outer_open(&w->o[r], algorithm, &s, w->x[r], NULL), PL_OK);
    }
}

static void reference(const struct algorithm *a, int R, int is_reversed, float x[EPOCHS + 1][2][N])
{
    struct world w = { .R = R, .is_reversed = is_reversed };
    open_world(&w, a);
    memcpy(x[0], w.x, sizeof w.x);
    for (int t = 1; t <= EPOCHS; t++) {
        one_round(&w);
        memcpy(x[t], w.x, sizeof w.x);
    }
    for (int r = 0; r < R; r++) pl_outer_close(w.o[r]);
}

/* The same step by step, where exchanges overlap: each peer receives the exchange that it has not
 * applied yet. at[s]: x after s inner steps. */
struct exchanges {
    struct pl_outer_message m[STEPS_MAX][2];
    int sent[2], applied[2];
};

static void one_step(struct world *w, struct exchanges *e, int r)
{
    struct pl_outer_message *m;
    int next;
    gradient_at(r, w->x[r], w->g[r], B, 0);
    gradient_at(r, w->x[r] + B, w->g[r] + B, W, B);
    next = pl_outer_before_step(w->o[r], w->x[r], w->g[r], RATE);
    while (next != PL_OUTER_GRADIENT) switch (next) {
        case PL_OUTER_STEP:
            for (int i = 0; i < N; i++) w->x[r][i] -= RATE * w->g[r][i];
            next = pl_outer_after_step(w->o[r], w->x[r]);
            break;
        case PL_OUTER_SEND:
            m = &e->m[e->sent[r]++][r];
            next = pl_outer_message(w->o[r], m, w->x[r], w->g[r]);
            m->data = memcpy(malloc(m->bytes), m->data, m->bytes);
            break;
        case PL_OUTER_RECEIVE:
            assert_true(e->applied[r] < e->sent[0] && e->applied[r] < e->sent[w->R - 1]);
            next = apply(w, r, e->m[e->applied[r]++], w->R);
            break;
        default: fail();
        }
}

static void overlapped_reference(const struct algorithm *a, int R, int is_reversed,
                                 float at[STEPS_MAX + 1][2][N])
{
    struct exchanges e = { .sent = { 0 } };
    struct world w = { .R = R, .is_reversed = is_reversed };
    open_world(&w, a);
    for (int s = 1; s <= STEPS_MAX; s++) {
        for (int r = 0; r < R; r++) one_step(&w, &e, r);
        memcpy(at[s], w.x, sizeof w.x);
    }
    for (int k = 0; k < STEPS_MAX; k++)
        for (int r = 0; r < R; r++) free(e.m[k][r].data);
    for (int r = 0; r < R; r++) pl_outer_close(w.o[r]);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void alone_equals_the_reference(void **state)
{
    static float want[EPOCHS + 1][2][N];
    (void)state;
    for (size_t a = 0; a < PL_COUNT(algorithms); a++) {
        struct peer *p = new_peer(0, &algorithms[a], NULL, 1);
        reference(&algorithms[a], 1, 0, want);
        for (int i = 0; i < EPOCHS * (p->is_local ? INNER : 1); i++)
            assert_int_equal(step(p, SAMPLES), PL_OK);
        assert_int_equal(pl_collaborative_epoch(p->c), EPOCHS);
        for (int t = 1; t <= EPOCHS; t++)
            if (memcmp(p->after[t], want[t][0], sizeof want[t][0]))
                fail_msg("%s, epoch %d", algorithms[a].name, t);
        close_peer(p);
    }
}

static int follows(const struct peer *p, int r, float want[STEPS_MAX + 1][2][N])
{
    for (int64_t s = 1; s <= p->last; s++)
        if (memcmp(p->at[s], want[s][r], sizeof want[s][r])) return 0;
    return p->last > EPOCHS * (p->is_local ? INNER / 2 : 1) - 1;
}

static void overlapped_alone_equals_the_reference(void **state)
{
    static float want[STEPS_MAX + 1][2][N];
    (void)state;
    for (size_t a = 0; a < PL_COUNT(overlapped); a++) {
        struct peer *p = new_peer(0, &overlapped[a], NULL, 1);
        overlapped_reference(&overlapped[a], 1, 0, want);
        for (int i = 0; i < EPOCHS * INNER; i++) assert_int_equal(step(p, SAMPLES), PL_OK);
        assert_int_equal(p->last, EPOCHS * INNER);
        if (!follows(p, 0, want)) fail_msg("%s", overlapped[a].name);
        close_peer(p);
    }
}

/* A batch for each inner step, or for each common one; none before both know of each other. */
static void *train(void *context)
{
    struct peer *p = context;
    const struct timespec nap = { 0, p->step_ms * 1000000L };
    int64_t trained = -1;
    int is_known = 0;
    p->rc = step(p, SAMPLES);
    if (!p->is_local) trained = 0;
    while (!p->rc && pl_collaborative_epoch(p->c) < last_epoch) {
        const int64_t epoch = pl_collaborative_epoch(p->c);
        struct pl_collaborative_status s;
        int64_t samples = SAMPLES;
        pl_collaborative_status(p->c, &s);
        if (s.peers >= 2 && !is_known) {
            is_known = 1;
            note(&known);
        }
        nanosleep(&nap, NULL);
        if (p->spoils && epoch == 2) {
            pl_outer_get(p->c->outer.state, "phi")[3] += 0.5f;
            p->spoils = 0;
        }
        if ((!epoch && noted(&known) < 2) || (!p->is_local && trained == epoch)) samples = 0;
        if (samples) trained = epoch;
        p->rc = step(p, samples);
    }
    if (!p->rc) await_noted(&first_steps, 1, LIMIT);
    return NULL;
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
    if (!strcmp(p->algorithm->name, "onebit_adam"))
        bytes = 2 * sizeof(float) * N + (EPOCHS - 2) * (pl_outer_bytes_per_step(o) / 2);
    if (r.rounds < EPOCHS || r.rounds > rounds || fabs((double)r.sent - bytes - 32 * rounds) > 0.5)
        fail_msg("%s: %lld bytes in %lld rounds, expected %g", p->algorithm->name,
                 (long long)r.sent, (long long)r.rounds, bytes);
}

static int equals(struct peer *const p[2], float want[EPOCHS + 1][2][N])
{
    for (int t = 1; t <= EPOCHS; t++)
        for (int r = 0; r < 2; r++)
            if (memcmp(p[r]->after[t], want[t][r], sizeof want[t][r])) return 0;
    return 1;
}

static void two_peers_and_a_newcomer(const struct algorithm *a)
{
    static float want[EPOCHS + 1][2][N], reversed[EPOCHS + 1][2][N];
    static float steps[2][STEPS_MAX + 1][2][N];
    const int is_overlapped = pl_outer_find(a->name)->under_way != NULL;
    struct peer *p[2], *late;
    float x[N];
    known = first_steps = 0;
    last_epoch = EPOCHS;
    if (!is_overlapped) reference(a, 2, 0, want);
    if (!is_overlapped) reference(a, 2, 1, reversed);
    for (int i = 0; is_overlapped && i < 2; i++) overlapped_reference(a, 2, i, steps[i]);
    p[0] = new_peer(0, a, NULL, 2);
    snprintf(address, sizeof address, "%s", pl_collaborative_address(p[0]->c));
    p[1] = new_peer(1, a, address, 2);
    for (int r = 0; r < 2; r++) pthread_create(&p[r]->thread, NULL, train, p[r]);
    for (int r = 0; r < 2; r++)
        while (!p[r]->group[EPOCHS] && !p[r]->rc) usleep(20000);
    late = new_peer(2, a, address, 2);
    note(&first_steps);
    for (int r = 0; r < 2; r++) {
        pthread_join(p[r]->thread, NULL);
        if (p[r]->rc) fail_msg("peer %d: %s", r, p[r]->err.text);
        for (int t = 1; t <= EPOCHS; t++) assert_int_equal(p[r]->group[t], 2);
    }
    if (!(is_overlapped ? follows(p[0], 0, steps[0]) && follows(p[1], 1, steps[0])
                        : equals(p, want)) &&
        !(is_overlapped ? follows(p[0], 0, steps[1]) && follows(p[1], 1, steps[1])
                        : equals(p, reversed)))
        fail_msg("%s", a->name);
    if (!a->is_different) assert_memory_equal(p[0]->after[EPOCHS], p[1]->after[EPOCHS], sizeof x);
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

#define SWARM(list, i) \
    static void list##_##i(void **state) \
    { \
        (void)state; \
        two_peers_and_a_newcomer(&list[i]); \
    }
SWARM(algorithms, 0)
SWARM(algorithms, 1)
SWARM(algorithms, 2)
SWARM(algorithms, 3)
SWARM(algorithms, 4)
SWARM(algorithms, 5)
SWARM(algorithms, 6)
SWARM(overlapped, 0)
SWARM(overlapped, 1)
SWARM(overlapped, 2)
SWARM(overlapped, 3)

/* One bit of one peer's phi would be enough: the others name it and step without it, and it takes
 * their state over. */
static void resynchronize(const struct algorithm *a)
{
    struct peer *p[3];
    known = first_steps = 0;
    last_epoch = EPOCHS_MAX;
    p[0] = new_peer(0, a, NULL, 3);
    snprintf(address, sizeof address, "%s", pl_collaborative_address(p[0]->c));
    for (int r = 1; r < 3; r++) p[r] = new_peer(r, a, address, 3);
    p[1]->spoils = 1;
    for (int r = 0; r < 3; r++) { /* slow enough that a peer which was left out can catch up */
        p[r]->step_ms = 250;
        pthread_create(&p[r]->thread, NULL, train, p[r]);
    }
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < LIMIT / 0.02 && !p[r]->group[last_epoch] && !p[r]->rc; i++)
            usleep(20000);
    note(&first_steps);
    for (int r = 0; r < 3; r++) {
        pthread_join(p[r]->thread, NULL);
        if (p[r]->rc) fail_msg("peer %d: %s", r, p[r]->err.text);
    }
    assert_true(p[1]->is_back);
    assert_true(p[0]->diverged >= 1 || p[2]->diverged >= 1);
    /* the first step that all have made together since */
    for (int r = 0; r < 3; r++) {
        assert_int_equal(p[r]->group[last_epoch], 3);
        assert_memory_equal(p[0]->after[last_epoch], p[r]->after[last_epoch],
                            sizeof p[0]->after[0]);
    }
    for (int r = 2; r >= 0; r--) close_peer(p[r]);
}

static void a_diverged_peer_resynchronizes(void **state)
{
    (void)state;
    resynchronize(&algorithms[0]);
}

/* It comes back while an exchange of the others is under way, or has not been applied yet. */
static void a_diverged_peer_resynchronizes_overlapped(void **state)
{
    (void)state;
    resynchronize(&overlapped[1]);
}

/* A peer that reports samples and never comes: no step, and nothing of the own work is lost: the next
 * message is as if both periods had been one. */
static void failed_round_keeps_local_work(void **state)
{
    const struct algorithm *const local[] = { &algorithms[0], &algorithms[1], &algorithms[2] };
    (void)state;
    for (size_t a = 0; a < PL_COUNT(local); a++) {
        struct pl_collaborative_status s = { .peers = 0 };
        struct peer *p = new_peer(0, local[a], NULL, 1), *silent;
        float before[N], after[N];
        snprintf(address, sizeof address, "%s", pl_collaborative_address(p->c));
        silent = new_peer(1, local[a], address, 1);
        assert_int_equal(step(silent, SAMPLES), PL_OK);
        for (int h = 0; h < INNER - 1; h++) assert_int_equal(step(p, SAMPLES), PL_OK);
        for (int i = 0; i < 600 && s.peers < 2; i++) {
            usleep(50000);
            assert_int_equal(step(p, 0), PL_OK);
            pl_collaborative_status(p->c, &s);
        }
        values_of(p, before);
        assert_int_equal(step(p, SAMPLES), PL_OK);
        assert_int_equal(p->failed, 1);
        assert_int_equal(pl_collaborative_epoch(p->c), 0);
        values_of(p, after);
        /* the third step stands, and is not taken back */
        for (int i = 0; i < N; i++) {
            float g;
            if (i < B) gradient_at(0, before, &g, 1, i);
            else gradient_at(0, before + i, &g, 1, i);
            if (i >= B && fabsf(after[i] - (before[i] - RATE * g)) > 1e-6f)
                fail_msg("%s: entry %d", local[a]->name, i);
        }
        close_peer(silent);
        close_peer(p);
    }
}

/* The same while the next steps go on: at the second message there is no mean, and x goes back to
 * phi, which has not moved. */
static void failed_exchange_brings_nothing(void **state)
{
    struct pl_collaborative_status s = { .peers = 0 };
    struct peer *p = new_peer(0, &overlapped[1], NULL, 1), *silent;
    float first[N], x[N];
    (void)state;
    snprintf(address, sizeof address, "%s", pl_collaborative_address(p->c));
    silent = new_peer(1, &overlapped[1], address, 1);
    assert_int_equal(step(silent, SAMPLES), PL_OK);
    for (int i = 0; i < 600 && s.peers < 2; i++) {
        usleep(50000);
        assert_int_equal(step(p, 0), PL_OK);
        pl_collaborative_status(p->c, &s);
    }
    for (int h = 0; h < 2 * INNER; h++) assert_int_equal(step(p, SAMPLES), PL_OK);
    assert_int_equal(p->failed, 1);
    first_values(first);
    values_of(p, x);
    assert_memory_equal(x, first, sizeof x);
    close_peer(silent);
    close_peer(p);
}

static void refused_options(void **state)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct pl_collaborative_run run = { .name = "gather", .listen = listen, .listen_count = 1 };
    float value[2] = { 0 };
    const struct pl_collaborative_tensor tensor = { "x", 1, { 2 }, value, 0 };
    const struct {
        struct pl_collaborative_options o;
        const char *why;
    } bad[] = {
        { { .algorithm = "sparsely" }, "expected gradients" },
        { { .algorithm = "sparseloco", .clip = -1 }, "takes neither client_mode nor clip" },
        { { .algorithm = "demo", .verify = 1 }, "neither delay nor verify" },
        { { .algorithm = "sparseloco", .algorithm_settings = "topk=0" }, "from 1 to 4096" },
        { { .algorithm = "sparseloco", .algorithm_settings = "top=1" }, "KEY=VALUE" },
        { { .algorithm = "sparseloco", .algorithm_settings = "topk" }, "KEY=VALUE" },
        { { .algorithm = "sparseloco", .algorithm_settings = "topk=1.5" }, "whole number" },
        { { .algorithm = "sparseloco", .algorithm_settings = "topk=x" }, "a number" },
        { { .algorithm = "sparseloco", .algorithm_settings = "coding=int4" }, "e3m0" },
        { { .algorithm = "sparseloco", .algorithm_settings = "H=7" }, "options of their own" },
        { { .algorithm = "diloco", .algorithm_settings = "topk=7" }, "no further settings" },
    };
    (void)state;
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct pl_collaborative *c = NULL;
        struct pl_err err = { "" };
        assert_int_equal(pl_collaborative_open(&c, &run, &tensor, 1, &bad[i].o, &err), PL_EUSE);
        if (!strstr(err.text, bad[i].why)) fail_msg("%zu: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_equals_the_reference),
        cmocka_unit_test(algorithms_0),
        cmocka_unit_test(algorithms_1),
        cmocka_unit_test(algorithms_2),
        cmocka_unit_test(algorithms_3),
        cmocka_unit_test(algorithms_4),
        cmocka_unit_test(algorithms_5),
        cmocka_unit_test(algorithms_6),
        cmocka_unit_test(overlapped_alone_equals_the_reference),
        cmocka_unit_test(overlapped_0),
        cmocka_unit_test(overlapped_1),
        cmocka_unit_test(overlapped_2),
        cmocka_unit_test(overlapped_3),
        cmocka_unit_test(a_diverged_peer_resynchronizes),
        cmocka_unit_test(a_diverged_peer_resynchronizes_overlapped),
        cmocka_unit_test(failed_round_keeps_local_work),
        cmocka_unit_test(failed_exchange_brings_nothing),
        cmocka_unit_test(refused_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
