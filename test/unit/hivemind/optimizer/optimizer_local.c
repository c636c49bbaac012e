/* optimizer_local.c - DiLoCo and local SGD by the public header, over loopback: peers equal the
 * result of ref/outer for the same gradients in one process, a late peer downloads phi and the
 * momentum, and a failed round loses no local step. */
#include "loopback_run.h"
#include "net/hivemind/optimizer/optimizer_internal.h"
#include "test/unit/hivemind/training/training_totals.h"
#include "ref/outer/outer.h"

#include <math.h>

#define W 6
#define B 3
#define N (W + B)
#define BIG 20000 /* its gradient is 0, but its bytes are sent */
#define INNER 4
#define EPOCHS 4
#define SAMPLES 8 /* of a batch, and of an inner step */
#define PEERS 3

struct peer {
    struct loopback_peer base;
    const char *algorithm;
    float w[W], b[B], big[BIG], zeros[BIG];
    int64_t steps;              /* inner ones */
    int64_t number_of_last;     /* as the local optimizer was given it */
    float after[EPOCHS + 2][N]; /* x right after each outer step */
    size_t group[EPOCHS + 2];
    int loads, warnings, failed_rounds;
    int64_t loaded_epoch;
};

static int known, first_steps;

/* b lies before w here: tensors without decay come first, which must not change their order. */
static void values_of(const struct peer *p, float x[N])
{
    memcpy(x, p->b, sizeof p->b);
    memcpy(x + B, p->w, sizeof p->w);
}

static void gradient_at(int peer, const float *x, float *g, int n, int from)
{
    for (int i = 0; i < n; i++) g[i] = 0.3f * x[i] - 0.01f * (float)((from + i) * 7 % 5 + 3 * peer);
}

/* A caller's own local optimizer: plain SGD. */
static int sgd(void *context, const float *const *gradient, int64_t number, struct pl_err *err)
{
    struct peer *p = context;
    (void)err;
    for (int i = 0; i < B; i++) p->b[i] -= 0.5f * gradient[0][i];
    for (int i = 0; i < W; i++) p->w[i] -= 0.5f * gradient[1][i];
    p->number_of_last = number;
    p->steps++;
    return PL_OK;
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    struct peer *p = context;
    if (e->kind == PL_COLLABORATIVE_EPOCH && e->status.epoch <= EPOCHS) {
        values_of(p, p->after[e->status.epoch]);
        p->group[e->status.epoch] = e->round.status ? 1 : e->round.peers;
    }
    if (e->kind == PL_COLLABORATIVE_LOADED) p->loads++, p->loaded_epoch = e->status.epoch;
    if (e->kind == PL_COLLABORATIVE_WARNING) {
        p->warnings++;
        p->failed_rounds += strstr(e->text, "no outer step") != NULL;
        printf("peer %d: %s\n", p->base.number, e->text);
    }
}

static void open_peer(struct peer *p)
{
    const struct pl_collaborative_tensor tensors[] = { { "b", 1, { B }, p->b, 1 },
                                                       { "w", 2, { 2, 3 }, p->w, 0 },
                                                       { "big", 1, { BIG }, p->big, 0 } };
    struct pl_collaborative_options o = loopback_options(p->algorithm);
    o.inner_steps = INNER;
    o.target_batch = SAMPLES;
    o.average_state_every = 1000; /* rounds of outer steps only */
    o.step = sgd;
    o.report = report;
    o.context = p;
    for (int i = 0; i < W; i++) p->w[i] = 1 + 0.1f * (float)i;
    for (int i = 0; i < B; i++) p->b[i] = -1 - 0.1f * (float)i;
    loopback_open(&p->base, "local", tensors, 3, &o);
}

static int step(struct peer *p, int64_t samples)
{
    float gw[W], gb[B];
    const float *gradient[] = { gb, gw, p->zeros };
    gradient_at(p->base.number, p->b, gb, B, 0);
    gradient_at(p->base.number, p->w, gw, W, B);
    return pl_collaborative_step(p->base.c, gradient, samples, 1, &p->base.err);
}

static struct peer *new_peer(int number, const char *algorithm)
{
    struct peer *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->base.number = number;
    p->algorithm = algorithm;
    open_peer(p);
    return p;
}

static void close_peer(struct peer *p)
{
    pl_collaborative_close(p->base.c);
    free(p);
}

/* --- what ref/outer makes of it --------------------------------------------------------------- */

/* R peers in one process: H steps of each from the same phi, the mean, the outer step. */
static void reference(const char *algorithm, int R, float phi[EPOCHS + 1][N])
{
    const struct pl_outer_tensor tensor = { 0, N, 1, { N }, 0 };
    struct pl_outer *o[PEERS];
    struct pl_outer_setup s;
    struct pl_backend be;
    float x[PEERS][N], g[N];
    pl_backend_ref(&be);
    pl_outer_defaults(&s);
    s.be = &be;
    s.tensors = &tensor;
    s.count = 1;
    s.peers = R;
    s.H = INNER;
    for (int r = 0; r < R; r++) {
        for (int i = 0; i < B; i++) x[r][i] = -1 - 0.1f * (float)i;
        for (int i = 0; i < W; i++) x[r][B + i] = 1 + 0.1f * (float)i;
        s.rank = r;
        assert_int_equal(pl_outer_open(&o[r], pl_outer_find(algorithm), &s, x[r], NULL), PL_OK);
    }
    memcpy(phi[0], x[0], sizeof x[0]);
    for (int t = 1; t <= EPOCHS; t++) {
        struct pl_outer_message m[PEERS];
        for (int r = 0; r < R; r++) {
            int next = PL_OUTER_GRADIENT;
            while (next != PL_OUTER_SEND) {
                gradient_at(r, x[r], g, B, 0);
                gradient_at(r, x[r] + B, g + B, W, B);
                assert_int_equal(pl_outer_before_step(o[r], x[r], g, 0), PL_OUTER_STEP);
                for (int i = 0; i < N; i++) x[r][i] -= 0.5f * g[i];
                next = pl_outer_after_step(o[r], x[r]);
            }
            assert_int_equal(pl_outer_message(o[r], &m[r], x[r], g), PL_OUTER_RECEIVE);
        }
        for (int r = 0; r < R; r++)
            assert_int_equal(pl_outer_apply(o[r], x[r], g, m, R), PL_OUTER_GRADIENT);
        memcpy(phi[t], x[0], sizeof x[0]);
    }
    for (int r = 0; r < R; r++) pl_outer_close(o[r]);
}

static void assert_near(const float *a, const float *b, double tolerance)
{
    for (int i = 0; i < N; i++) assert_float_equal(a[i], b[i], tolerance);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Bit for bit: no network is in it. */
static void alone_equals_the_reference(void **state)
{
    static const char *const algorithms[] = { "diloco", "local_sgd" };
    (void)state;
    for (size_t a = 0; a < 2; a++) {
        float phi[EPOCHS + 1][N];
        struct peer *p = new_peer(0, algorithms[a]);
        reference(algorithms[a], 1, phi);
        for (int t = 1; t <= EPOCHS; t++) {
            for (int h = 0; h < INNER; h++) {
                assert_int_equal(pl_collaborative_epoch(p->base.c), t - 1);
                assert_int_equal(step(p, SAMPLES), PL_OK);
                assert_int_equal(p->number_of_last, (t - 1) * INNER + h);
            }
            assert_int_equal(pl_collaborative_epoch(p->base.c), t);
            assert_memory_equal(p->after[t], phi[t], sizeof phi[t]);
        }
        close_peer(p);
    }
}

/* A batch of several, or a part of one: an inner step as soon as its samples are there. */
static void batches_make_inner_steps(void **state)
{
    struct peer *p = new_peer(0, "diloco");
    (void)state;
    for (int i = 0; i < 3; i++) assert_int_equal(step(p, SAMPLES / 4), PL_OK);
    assert_int_equal(p->steps, 0);
    assert_int_equal(step(p, SAMPLES / 4), PL_OK);
    assert_int_equal(p->steps, 1);
    assert_int_equal(pl_collaborative_epoch(p->base.c), 0);
    assert_int_equal(step(p, SAMPLES * INNER), PL_OK); /* the target of the outer step is reached */
    assert_int_equal(p->steps, 2);
    assert_int_equal(pl_collaborative_epoch(p->base.c), 1);
    close_peer(p);
}

/* Bad numbers cost their batch, not the steps before it. */
static void bad_numbers_cost_a_batch(void **state)
{
    struct peer *p = new_peer(0, "diloco");
    float gw[W] = { 0 }, gb[B] = { NAN }, before;
    const float *gradient[] = { gb, gw, p->zeros };
    (void)state;
    assert_int_equal(step(p, SAMPLES), PL_OK);
    before = p->w[0];
    assert_int_equal(pl_collaborative_step(p->base.c, gradient, SAMPLES, 1, &p->base.err), PL_OK);
    assert_int_equal(p->warnings, 1);
    assert_int_equal(p->steps, 1);
    assert_float_equal(p->w[0], before, 0);
    for (int h = 1; h < INNER; h++) assert_int_equal(step(p, SAMPLES), PL_OK);
    assert_int_equal(pl_collaborative_epoch(p->base.c), 1);
    assert_int_equal(p->steps, INNER);
    close_peer(p);
}

/* Known to each other after a first batch, then at their own pace. */
static void *train(void *context)
{
    struct peer *p = context;
    const struct timespec nap = { 0, 20000000 };
    int is_known = 0;
    p->base.rc = step(p, SAMPLES);
    while (!p->base.rc && pl_collaborative_epoch(p->base.c) < EPOCHS) {
        struct pl_collaborative_status s;
        pl_collaborative_status(p->base.c, &s);
        if (s.peers >= 2 && !is_known) {
            is_known = 1;
            note(&known);
        }
        nanosleep(&nap, NULL);
        p->base.rc = step(p, noted(&known) < 2 ? 0 : SAMPLES);
    }
    if (!p->base.rc)
        await_noted(&first_steps, 1, LIMIT); /* not gone before the newcomer has come */
    return NULL;
}

/* One round an outer step. Of two peers each sends half of its values, and its half's means: 4 bytes
 * a value and outer step. Everything else that is sent is below a twentieth. */
static void assert_bytes(const struct peer *p)
{
    const double values = 4.0 * (N + BIG);
    const struct report_record r = totals_of(p->base.c->training);
    assert_int_equal(r.rounds, EPOCHS);
    assert_true((double)r.sent >= values * EPOCHS);
    assert_true((double)r.sent <= 1.05 * values * (double)(EPOCHS + r.failed));
}

static void peers_equal_the_reference(const char *algorithm)
{
    float phi[EPOCHS + 1][N];
    struct peer *p[2], *late;
    struct pl_collaborative_status s;
    int whole = 1;
    known = first_steps = 0;
    reference(algorithm, 2, phi);
    p[0] = new_peer(0, algorithm);
    p[1] = new_peer(1, algorithm);
    for (int r = 0; r < 2; r++) loopback_start(&p[r]->base, train);
    for (int r = 0; r < 2; r++)
        while (!p[r]->group[EPOCHS] && !p[r]->base.rc) usleep(20000);
    /* phi, and the momentum: the newcomer's next outer step is the one that both would make. */
    late = new_peer(2, algorithm);
    assert_int_equal(late->loads, 1);
    assert_int_equal(late->loaded_epoch, EPOCHS);
    values_of(late, late->after[0]);
    note(&first_steps);
    for (int r = 0; r < 2; r++) {
        loopback_wait(&p[r]->base);
        for (int t = 1; t <= EPOCHS; t++) whole &= p[r]->group[t] == 2;
    }
    assert_true(whole);
    for (int t = 1; t <= EPOCHS; t++)
        for (int r = 0; r < 2; r++) assert_near(p[r]->after[t], phi[t], 2e-6);
    assert_near(late->after[0], phi[EPOCHS], 2e-6);
    for (int r = 0; r < 2; r++) assert_bytes(p[r]);
    pl_collaborative_status(late->base.c, &s);
    assert_int_equal(s.epoch, EPOCHS);
    close_peer(p[1]);
    close_peer(p[0]);
    close_peer(late);
}

static void two_peers_and_a_newcomer(void **state)
{
    (void)state;
    peers_equal_the_reference("diloco");
}

static void two_peers_of_local_sgd(void **state)
{
    (void)state;
    peers_equal_the_reference("local_sgd");
}

/* A peer that reports samples and never comes: no outer step, no local step is lost, and once it is
 * gone, the outer step holds the steps of both tries. */
static void failed_round_keeps_local_steps(void **state)
{
    struct pl_collaborative_status s = { .peers = 0 };
    struct peer *p = new_peer(0, "local_sgd"), *silent;
    float before[N], after[N];
    (void)state;
    silent = new_peer(1, "local_sgd");
    assert_int_equal(step(silent, SAMPLES), PL_OK);
    for (int h = 0; h < INNER - 1; h++) assert_int_equal(step(p, SAMPLES), PL_OK);
    for (int i = 0; i < 600 && s.peers < 2; i++) {
        usleep(50000);
        assert_int_equal(step(p, 0), PL_OK);
        pl_collaborative_status(p->base.c, &s);
    }
    assert_int_equal(s.peers, 2);
    assert_int_equal(step(p, SAMPLES), PL_OK);
    assert_int_equal(p->failed_rounds, 1);
    assert_int_equal(pl_collaborative_epoch(p->base.c), 0);
    assert_int_equal(p->steps, INNER);
    values_of(p, before);
    assert_true(before[B] != 1); /* trained, and not taken back */
    close_peer(silent);
    for (int i = 0; i < 1000 && !pl_collaborative_epoch(p->base.c); i++) {
        usleep(20000);
        assert_int_equal(step(p, SAMPLES), PL_OK);
    }
    assert_int_equal(pl_collaborative_epoch(p->base.c), 1);
    assert_true(p->steps >= 2 * INNER);
    /* nu = 1, mu = 0 and one peer: the outer step changes nothing. */
    {
        float x[N];
        for (int i = 0; i < N; i++) x[i] = i < B ? -1 - 0.1f * (float)i : 1 + 0.1f * (float)(i - B);
        for (int64_t k = 0; k < p->steps; k++) {
            float g[N];
            gradient_at(0, x, g, B, 0);
            gradient_at(0, x + B, g + B, W, B);
            for (int i = 0; i < N; i++) x[i] -= 0.5f * g[i];
        }
        values_of(p, after);
        assert_near(after, x, 1e-5);
    }
    close_peer(p);
}

static void refused_options(void **state)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const struct pl_collaborative_run run = { .name = "local",
                                              .listen = listen,
                                              .listen_count = 1 };
    float value[2] = { 0 };
    const struct pl_collaborative_tensor tensor = { "x", 1, { 2 }, value, 0 };
    const struct pl_collaborative_options bad[] = {
        { .algorithm = "diloco", .inner_steps = -1 },
        { .algorithm = "diloco", .outer_lr = -1 },
        { .algorithm = "diloco", .outer_lr = NAN },
        { .algorithm = "diloco", .outer_momentum = 1 },
        { .algorithm = "diloco", .delay = PL_DELAY_STEP },
        { .algorithm = "diloco", .verify = 1 },
        { .algorithm = "diloco", .target_batch = INT64_MAX },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pl_collaborative *c;
        struct pl_err err = { "" };
        assert_int_equal(pl_collaborative_open(&c, &run, &tensor, 1, &bad[i], &err), PL_EUSE);
        assert_null(c);
        assert_true(err.text[0] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_equals_the_reference),
        cmocka_unit_test(batches_make_inner_steps),
        cmocka_unit_test(bad_numbers_cost_a_batch),
        cmocka_unit_test(two_peers_and_a_newcomer),
        cmocka_unit_test(two_peers_of_local_sgd),
        cmocka_unit_test(failed_round_keeps_local_steps),
        cmocka_unit_test(refused_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
