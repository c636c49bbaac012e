/* lamb.c - LAMB, Adam, Muon and the optimizer around them: the equations in double, the corner cases, and
 * optimizer state that is offloaded and loaded again. */
#include "runtime/optimizer.h"
#include "ref/muon.h"
#include "ref/schedule.h"
#include "test/unit/unit.h"

#include <math.h>

static struct pl_backend be;

static int open_ref(void **state)
{
    pl_backend_ref(&be);
    return 0;
}

static void normal(float *x, size_t n, double deviation, uint64_t seed)
{
    struct pl_rng rng;
    pl_rng_init(&rng, seed, 0);
    for (size_t i = 0; i < n; i++) x[i] = (float)(deviation * pl_rng_normal(&rng));
}

/* Three steps of the equations in double against float moments. */
static void lamb_equations(void **state)
{
    enum { N = 1000 };
    static float p[N], g[N], u[N], m[N], v[N];
    static double P[N], M[N], V[N], U[N];
    struct pl_moments moments = { .value = { m, v } };
    normal(p, N, 0.05, 1);
    for (int i = 0; i < N; i++) P[i] = p[i];
    for (int t = 1; t <= 3; t++) {
        struct pl_lamb step = { .lr = 0.01,
                                .beta1 = 0.9,
                                .beta2 = 0.96,
                                .eps = 1e-6,
                                .decay = 0.045,
                                .clamp = 1e4,
                                .clip = 0.5f };
        struct pl_lamb_norms norms;
        double pp = 0, uu = 0;
        normal(g, N, 0.01, (uint64_t)t + 10);
        for (int i = 0; i < N; i++) {
            M[i] = 0.9 * M[i] + 0.1 * (0.5 * g[i]);
            V[i] = 0.96 * V[i] + 0.04 * (0.25 * g[i] * g[i]);
            U[i] = M[i] / (sqrt(V[i]) + 1e-6) + 0.045 * P[i];
            pp += P[i] * P[i], uu += U[i] * U[i];
        }
        for (int i = 0; i < N; i++) P[i] -= 0.01 * sqrt(pp / uu) * U[i];
        assert_int_equal(ref_lamb(&norms, p, u, g, &moments, N, &step), PL_OK);
        assert_true(fabs(norms.trust - sqrt(pp / uu)) < 1e-6 * norms.trust);
        for (int i = 0; i < N; i++) assert_true(fabs(p[i] - P[i]) < 1e-7);
    }
}

static void lamb_corners(void **state)
{
    float p[4] = { 0 }, g[4] = { 1, 2, -3, 0 }, m[4] = { 0 }, v[4] = { 0 };
    struct pl_moments moments = { .value = { m, v } };
    struct pl_lamb step = {
        .lr = 0.1, .beta1 = 0.9, .beta2 = 0.96, .eps = 1e-6, .clamp = 10, .clip = 1
    };
    struct pl_lamb_norms norms;
    ref_lamb(&norms, p, g, g, &moments, 4, &step); /* zero weights: trust 1 */
    assert_true(norms.weight == 0 && norms.trust == 1 && p[0] < 0 && p[3] == 0);
    for (int i = 0; i < 4; i++) p[i] = 100, g[i] = m[i] = v[i] = 0;
    ref_lamb(&norms, p, g, g, &moments, 4, &step); /* nothing ever came: nothing moves */
    assert_true(norms.step == 0 && norms.trust == 1 && norms.weight == 10 && p[0] == 100);
    /* The start-up step of other libraries: a zero gradient shrinks decayed tensors by 1 - lr. */
    step.decay = 0.045;
    step.clamp = 1e4;
    ref_lamb(&norms, p, g, g, &moments, 4, &step);
    assert_true(fabsf(p[0] - 90) < 1e-4f && m[0] == 0 && v[0] == 0);
    g[1] = NAN; /* not hidden */
    ref_lamb(&norms, p, g, g, &moments, 4, &step);
    assert_true(isnan(p[0]) && isnan(norms.trust));
}

static void adam_equations(void **state)
{
    enum { N = 500 };
    static float p[N], g[N], m[N], v[N];
    static double P[N], M[N], V[N];
    struct pl_moments moments = { .value = { m, v } };
    normal(p, N, 0.1, 5);
    for (int i = 0; i < N; i++) P[i] = p[i];
    for (int t = 1; t <= 4; t++) {
        double c1 = 1 - pow(0.9, t), c2 = 1 - pow(0.999, t);
        struct pl_adam step = { .lr = 1e-3,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .decay = 0.1,
                                .bias1 = c1,
                                .bias2 = c2,
                                .clip = 1 };
        normal(g, N, 0.01, (uint64_t)t + 20);
        for (int i = 0; i < N; i++) {
            M[i] = 0.9 * M[i] + 0.1 * g[i];
            V[i] = 0.999 * V[i] + 0.001 * g[i] * g[i];
            P[i] = P[i] * (1 - 1e-4) - 1e-3 / c1 * M[i] / (sqrt(V[i] / c2) + 1e-8);
        }
        assert_int_equal(ref_adam(p, g, &moments, N, &step), PL_OK);
        for (int i = 0; i < N; i++) assert_true(fabs(p[i] - P[i]) < 1e-7);
    }
}

/* A matrix by Muon, as ref/muon.c steps it at the rate that makes its steps as large as AdamW's; a
 * vector by AdamW. */
static void muon_and_adam(void **state)
{
    enum { A = 24, B = 16, N = A * B, V = 8 };
    static const struct pl_optimizer_tensor tensors[] = {
        { .offset = 0, .n = N, .decay = 0.1, .rows = A }, { .offset = N, .n = V }
    };
    static float p[N + V], g[N + V], before[N], want[N + V], M[N], m[V], v[V];
    struct pl_optimizer_options options = pl_muon_options(0.1);
    struct pl_moments moments = { .value = { m, v } };
    const double lr = 0.01, scale = 0.2 * sqrt(B);
    struct pl_optimizer *o;
    assert_int_equal(pl_optimizer_open(&o, &be, &options, tensors, 2, NULL), PL_OK);
    assert_int_equal(pl_optimizer_state_count(o), 1 + 2);
    normal(p, N + V, 0.05, 1);
    memcpy(want, p, sizeof want);
    for (int t = 1; t <= 4; t++) {
        const struct pl_muon matrix = { lr * scale, 0.95, 0.1 / scale };
        const struct pl_adam vector = { .lr = lr,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .eps = 1e-10,
                                        .bias1 = 1 - pow(0.9, t),
                                        .bias2 = 1 - pow(0.95, t),
                                        .clip = 1 };
        double squares = 0;
        normal(g, N + V, 0.01, (uint64_t)t + 30);
        memcpy(before, p, sizeof before);
        assert_int_equal(pl_muon_step(want, M, g, A, B, &matrix, &be), PL_OK);
        assert_int_equal(ref_adam(want + N, g + N, &moments, V, &vector), PL_OK);
        assert_int_equal(pl_optimizer_step(o, p, g, lr), PL_OK);
        assert_memory_equal(p, want, sizeof p);
        /* about 0.2 lr; singular values are not all 1, and the decay adds little */
        for (int i = 0; i < N; i++) squares += pow((double)p[i] - (double)before[i], 2);
        assert_true(fabs(sqrt(squares / N) / (0.2 * lr) - 1) < 0.2);
    }
    pl_optimizer_close(o);
}

static void muon_needs_a_matrix(void **state)
{
    const struct pl_optimizer_tensor vector = { .n = 8 }, matrix = { .n = 8, .rows = 2 };
    struct pl_optimizer_options bad[] = { pl_muon_options(0), pl_muon_options(0),
                                          pl_muon_options(0) };
    struct pl_optimizer_options good = pl_muon_options(0);
    struct pl_optimizer *o;
    struct pl_err err;
    bad[0].momentum = 1;
    bad[1].max_grad_norm = 1;
    bad[2].min_8bit = 4096;
    bad[2].block = 256;
    for (size_t i = 0; i < PL_COUNT(bad); i++)
        assert_int_equal(pl_optimizer_open(&o, &be, &bad[i], &matrix, 1, &err), PL_EUSE);
    assert_int_equal(pl_optimizer_open(&o, &be, &good, &vector, 1, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "0 matrices"));
    assert_int_equal(pl_optimizer_open(&o, &be, &good, &matrix, 1, &err), PL_OK);
    pl_optimizer_close(o);
}

/* --- the optimizer ---------------------------------------------------------------------------- */

#define TENSORS 3
static const struct pl_optimizer_tensor tensors[TENSORS] = {
    { .offset = 0, .n = 5, .decay = 0 },
    { .offset = 16, .n = 10000, .decay = 0.045, .rows = 100 },
    { .offset = 10016, .n = 8193, .decay = 0.045 },
};
enum { TOTAL = 10016 + 8193 };

static struct pl_optimizer *opened(struct pl_optimizer_options o)
{
    struct pl_optimizer *opt;
    o.min_8bit = o.min_8bit ? 4096 : 0;
    assert_int_equal(pl_optimizer_open(&opt, &be, &o, tensors, TENSORS, NULL), PL_OK);
    return opt;
}

static void steps(struct pl_optimizer *o, float *p, int from, int to)
{
    static float g[TOTAL];
    for (int t = from; t < to; t++) {
        normal(g, TOTAL, 0.02, (uint64_t)t + 100);
        assert_int_equal(pl_optimizer_step(o, p, g, 0.01 * t), PL_OK);
    }
}

/* Six steps at once, or three, everything through host memory into a new optimizer, and three
 * more. */
static void state_travels(void **state)
{
    struct pl_optimizer_options kinds[] = { pl_lamb_options(), pl_adam_options(0.01, 8),
                                            pl_adam_options(0, 32), pl_muon_options(0.01) };
    for (size_t k = 0; k < PL_COUNT(kinds); k++) {
        static float p[TOTAL], q[TOTAL];
        struct pl_optimizer *a = opened(kinds[k]), *b = opened(kinds[k]), *c = opened(kinds[k]);
        normal(p, TOTAL, 0.05, 2);
        memcpy(q, p, sizeof p);
        steps(a, p, 0, 6);
        steps(b, q, 0, 3);
        for (size_t i = 0; i < pl_optimizer_state_count(b); i++) {
            struct pl_optimizer_state s = pl_optimizer_state_at(b, i);
            void *host = malloc(s.n * s.element_size);
            assert_int_equal(pl_optimizer_state_get(b, i, host), PL_OK);
            assert_int_equal(pl_optimizer_state_put(c, i, host), PL_OK);
            free(host);
        }
        assert_int_equal(pl_optimizer_steps(b), 3);
        pl_optimizer_set_steps(c, pl_optimizer_steps(b));
        steps(c, q, 3, 6);
        assert_memory_equal(p, q, sizeof p);
        pl_optimizer_close(a);
        pl_optimizer_close(b);
        pl_optimizer_close(c);
    }
}

static void state_names(void **state)
{
    static const struct {
        size_t tensor;
        const char *name;
        size_t n, size;
    } want[] = {
        { 0, "state1", 5, 4 },    { 0, "state2", 5, 4 },     { 1, "absmax1", 3, 4 },
        { 1, "absmax2", 3, 4 },   { 1, "state1", 10000, 1 }, { 1, "state2", 10000, 1 },
        { 2, "absmax1", 3, 4 },   { 2, "absmax2", 3, 4 },    { 2, "state1", 8193, 1 },
        { 2, "state2", 8193, 1 },
    };
    struct pl_optimizer *o = opened(pl_lamb_options());
    assert_int_equal(pl_optimizer_state_count(o), PL_COUNT(want));
    for (size_t i = 0; i < PL_COUNT(want); i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(o, i);
        assert_int_equal(s.tensor, want[i].tensor);
        assert_string_equal(s.name, want[i].name);
        assert_int_equal(s.n, want[i].n);
        assert_int_equal(s.element_size, want[i].size);
    }
    pl_optimizer_close(o);
}

/* Chunks and saved gradients change no bit; padding between tensors is not touched. */
static void options_change_nothing(void **state)
{
    static float p[3][TOTAL], g[TOTAL], before[TOTAL];
    for (int k = 0; k < 3; k++) {
        struct pl_optimizer_options o = pl_lamb_options();
        struct pl_optimizer *opt;
        o.chunk = k == 1 ? 4096 : k == 2 ? 8192 : 0;
        o.keep_grad = k == 2;
        opt = opened(o);
        normal(p[k], TOTAL, 0.05, 2);
        p[k][7] = 42;
        normal(before, TOTAL, 0.02, 99);
        for (int t = 0; t < 2; t++) {
            memcpy(g, before, sizeof g);
            assert_int_equal(pl_optimizer_step(opt, p[k], g, 0.01), PL_OK);
        }
        assert_true((memcmp(g, before, sizeof g) == 0) == (k == 2));
        assert_true(p[k][7] == 42 && pl_optimizer_norms(opt, 1).trust > 0);
        pl_optimizer_close(opt);
    }
    assert_memory_equal(p[0], p[1], sizeof p[0]);
    assert_memory_equal(p[0], p[2], sizeof p[0]);
}

static void clipping(void **state)
{
    static float p[TOTAL], g[TOTAL], q[TOTAL], h[TOTAL];
    struct pl_optimizer_options o = pl_adam_options(0,
                                                    32); /* Adam would hide a scale but for eps */
    struct pl_optimizer *a, *b;
    double norm;
    o.eps = 1;
    b = opened(o);
    o.max_grad_norm = 0.25;
    a = opened(o);
    normal(g, TOTAL, 0.02, 1);
    assert_int_equal(pl_optimizer_grad_norm(a, g, &norm), PL_OK);
    assert_true(norm > 2.6 && norm < 2.8); /* 0.02 sqrt(18198) */
    for (int i = 0; i < TOTAL; i++) h[i] = (float)(0.25 / (norm + 1e-6)) * g[i];
    pl_optimizer_step(a, p, g, 0.1);
    pl_optimizer_step(b, q, h, 0.1);
    assert_memory_equal(p, q, sizeof p);
    pl_optimizer_close(a);
    pl_optimizer_close(b);
}

/* Of a gradient that stays the same, both corrected moments are that gradient's own from the first
 * step on, so each step is lr times its sign. Without correction the first step is
 * lr (1 - beta1) / sqrt(1 - beta2) times it, here 3.16 times. [Adam 3] */
static void adam_corrects_its_moments(void **state)
{
    for (int corrects = 0; corrects <= 1; corrects++) {
        static float p[TOTAL], g[TOTAL];
        struct pl_optimizer_options o = pl_adam_options(0, 32);
        struct pl_optimizer *a;
        o.bias_correction = corrects;
        a = opened(o);
        memset(p, 0, sizeof p);
        for (int t = 1; t <= 4; t++) {
            for (int i = 0; i < TOTAL; i++) g[i] = i % 2 ? 0.5f : -0.25f;
            assert_int_equal(pl_optimizer_step(a, p, g, 0.125), PL_OK);
            if (corrects)
                assert_true(fabs(p[1] + 0.125 * t) < 1e-5 && fabs(p[0] - 0.125 * t) < 1e-5);
            else if (t == 1) assert_true(fabs(p[1] + 0.125 * 0.1 / sqrt(0.001)) < 1e-4);
        }
        pl_optimizer_close(a);
    }
}

/* Parameters that are all equal, under a gradient that stays the same: LAMB's step is then their own
 * size times lr sqrt(1 - beta2^t) / (1 - beta1^t), since the trust ratio cancels the update's length. */
static void lamb_corrects_its_rate(void **state)
{
    static float p[TOTAL], g[TOTAL];
    struct pl_optimizer_options o = pl_lamb_options();
    struct pl_optimizer *a;
    double want = 1;
    o.bias_correction = 1;
    o.min_8bit = 0;
    o.max_grad_norm = 0;
    a = opened(o);
    for (int i = 0; i < TOTAL; i++) p[i] = 1;
    for (int t = 1; t <= 4; t++) {
        for (int i = 0; i < TOTAL; i++) g[i] = 0.5f;
        assert_int_equal(pl_optimizer_step(a, p, g, 0.01), PL_OK);
        want *= 1 - 0.01 * sqrt(1 - pow(0.96, t)) / (1 - pow(0.9, t));
        assert_true(fabs(p[0] - want) < 1e-5); /* of the tensor without decay */
    }
    pl_optimizer_close(a);
}

static void refused(void **state)
{
    struct pl_optimizer *o;
    struct pl_err err;
    for (int k = 0; k < 6; k++) {
        struct pl_optimizer_options bad = pl_lamb_options();
        if (k == 0) bad.beta1 = 1;
        if (k == 1) bad.beta2 = NAN;
        if (k == 2) bad.eps = 0;
        if (k == 3) bad.chunk = 5000;
        if (k == 4) bad.clamp = -1;
        if (k == 5) bad.decay = -1;
        assert_int_equal(pl_optimizer_open(&o, &be, &bad, tensors, TENSORS, &err), PL_EUSE);
        assert_null(o);
        assert_non_null(strstr(err.text, "expected"));
    }
}

static int allocations; /* that succeed */
static void *few(size_t bytes) { return allocations-- > 0 ? pl_alloc(bytes, 1) : NULL; }

/* The error says what there is no memory for: two moments a tensor, then, if gradients are kept, the
 * largest tensor's update. */
static void memory_that_is_missing(void **state)
{
    const struct pl_optimizer_tensor named[] = { { 0, 16, 0, "first", 0 },
                                                 { 16, 32, 0, "second", 0 } };
    struct pl_optimizer_options o = pl_lamb_options();
    struct pl_backend poor = be;
    struct pl_optimizer *opened;
    struct pl_err err;
    poor.alloc = few;
    o.keep_grad = 1;
    for (int i = 0; i <= 5; i++) {
        static const char *const why[] = {
            "no memory for the moments of first, the 1. of 2 tensors",
            "no memory for the moments of first, the 1. of 2 tensors",
            "no memory for the moments of second, the 2. of 2 tensors",
            "no memory for the moments of second, the 2. of 2 tensors",
            "no memory for the largest tensor's update",
        };
        allocations = i;
        assert_int_equal(pl_optimizer_open(&opened, &poor, &o, named, 2, &err),
                         i < 5 ? PL_ENOMEM : PL_OK);
        if (i < 5) {
            assert_null(opened);
            assert_non_null(strstr(err.text, why[i]));
        }
    }
    pl_optimizer_close(opened);
}

static void schedule(void **state)
{
    assert_true(pl_schedule_linear(2.5e-3, 3125, 31250, 0) == 0);
    assert_true(pl_schedule_linear(2.5e-3, 3125, 31250, 3125) == 2.5e-3);
    assert_true(pl_schedule_linear(2.5e-3, 3125, 31250, 31250) == 0);
    assert_true(pl_schedule_linear(2.5e-3, 3125, 31250, UINT64_MAX) == 0);
    assert_true(pl_schedule_linear(1, 0, 10, 0) == 1 && pl_schedule_linear(1, 0, 10, 5) == 0.5);
    assert_true(pl_schedule_linear(1, 5, 5, 4) == 0.8 && pl_schedule_linear(1, 5, 5, 5) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lamb_equations),
        cmocka_unit_test(lamb_corners),
        cmocka_unit_test(adam_equations),
        cmocka_unit_test(muon_and_adam),
        cmocka_unit_test(muon_needs_a_matrix),
        cmocka_unit_test(state_travels),
        cmocka_unit_test(state_names),
        cmocka_unit_test(options_change_nothing),
        cmocka_unit_test(adam_corrects_its_moments),
        cmocka_unit_test(lamb_corrects_its_rate),
        cmocka_unit_test(clipping),
        cmocka_unit_test(refused),
        cmocka_unit_test(memory_that_is_missing),
        cmocka_unit_test(schedule),
    };
    return cmocka_run_group_tests(tests, open_ref, NULL);
}
