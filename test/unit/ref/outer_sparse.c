/* outer_sparse.c - properties of the algorithms that compress: values that are not sent are kept,
 * and messages can be read. */
#include "outer_world.h"
#include "ref/outer/e3m0.h"
#include "ref/outer/sparse.h"

/* The others' mean is of three gradients; the spoilt one is not a zero among four. */
static void a_skipped_gradient_has_no_weight(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    float before[VALUES];
    begin(&w, &pl_outer_gradients, &s);
    memcpy(before, w.x[0], sizeof before);
    w.spoiled[2] = 1;
    step(&w);
    for (int i = 0; i < VALUES; i++) {
        double mean = 0;
        for (int k = 0; k < PEERS; k++)
            if (k != 2) mean += (before[i] - w.target[k][i]) / (double)(PEERS - 1);
        assert_true(fabs(w.x[2][i] - (before[i] - 0.1 * mean)) < 1e-6);
    }
    end(&w);
    /* and with local steps the inner optimizer is not asked at all */
    begin(&w, &pl_outer_diloco, &s);
    w.g[0][0] = INFINITY;
    assert_int_equal(pl_outer_before_step(w.o[0], w.x[0], w.g[0], 0.1), PL_OUTER_GRADIENT);
    end(&w);
    /* PowerSGD: a peer that gave nothing owes nothing */
    begin(&w, &pl_outer_powersgd, &s);
    w.spoiled[2] = 1;
    step(&w);
    for (int i = 0; i < VALUES; i++) assert_true(pl_outer_get(w.o[2], "memory")[i] == 0);
    end(&w);
}

/* The first exchange fails: the values taken for the message are back where they were. */
static void a_failed_exchange_loses_nothing(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    static float x[VALUES];
    const double *kept;
    begin(&w, &pl_outer_dgc, &s);
    w.fail = 1;
    step(&w);
    kept = (const double *)(const void *)pl_outer_get(w.o[1], "accumulated");
    for (int i = 1; i < VALUES; i++) /* the clipped gradient: all by the same factor */
        assert_true(fabs(kept[i] * w.g[1][0] - kept[0] * w.g[1][i]) < 1e-5);
    end(&w);
    s.weight_decay = 0.1;
    begin(&w, &pl_outer_demo, &s);
    memcpy(x, w.x[1], sizeof x);
    w.fail = 1;
    step(&w);
    assert_memory_equal(w.x[1], x, sizeof x); /* nor has x decayed */
    for (int i = 0; i < VALUES; i++)
        assert_float_equal(pl_outer_get(w.o[1], "momentum")[i], 0.1f * (x[i] - w.target[1][i]),
                           1e-6f);
    end(&w);
    for (int failed = 1; failed <= 2; failed++) { /* phase P, phase Q */
        begin(&w, &pl_outer_powersgd, &s);
        w.fail = failed;
        step(&w);
        for (int i = 0; i < VALUES; i++)
            assert_true(fabsf(pl_outer_get(w.o[1], "memory")[i]) < 1e-6f);
        end(&w);
    }
}

/* 1-bit Adam: values that workers and servers have not delivered are in their errors: the gradient
 * of the failed step, and nothing of the momentum, which every peer still has. */
static void onebit_gives_back_gradients_only(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    static float x[VALUES];
    for (int failed = 1; failed <= 2; failed++) { /* the workers' signs, the servers' */
        size_t slice;
        begin(&w, &pl_outer_onebit_adam, &s);
        for (int t = 0; t < s.warm_up; t++) step(&w);
        memcpy(x, w.x[0], sizeof x);
        w.fail = s.warm_up + failed;
        step(&w);
        assert_memory_equal(w.x[0], x, sizeof x);
        slice = (VALUES + 31) / 32 * 32 / PEERS;
        for (int i = 0; i < VALUES; i++) {
            double mean = 0, kept = 0;
            for (int k = 0; k < PEERS; k++) {
                mean += (x[i] - w.target[k][i]) / (double)PEERS;
                kept += ((const double *)(const void *)pl_outer_get(w.o[k], "worker error"))[i] /
                        (double)PEERS;
            }
            kept += ((const double *)(const void *)pl_outer_get(w.o[(size_t)i / slice],
                                                                "server error"))[(size_t)i % slice];
            assert_true(fabs(kept - (1 - s.adam.beta1) * mean) < 1e-6);
        }
        end(&w);
    }
}

/* A value without a gradient in the warm-up has v = 0: it stays, where eps alone would divide. */
static void onebit_leaves_unseen_values_alone(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    float before;
    begin(&w, &pl_outer_onebit_adam, &s);
    for (int k = 0; k < PEERS; k++) w.target[k][5] = w.x[k][5];
    before = w.x[0][5];
    for (int t = 0; t < 10; t++) step(&w);
    assert_true(w.x[0][5] == before && all_equal(&w));
    end(&w);
}

/* SparseLoCo: a message that only its sender has is not lost, while the others' round goes on. */
static void a_lost_message_stays_in_the_error(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    static float delta[VALUES];
    const float *e;
    begin(&w, &pl_outer_sparseloco, &s);
    w.broken = SILENT; /* peer 1's, on its way */
    for (int t = 0; t < s.H; t++) {
        if (t + 1 == s.H) /* the last inner step, as step() will take it */
            for (int i = 0; i < VALUES; i++)
                delta[i] = pl_outer_get(w.o[1], "phi")[i] -
                           (w.x[1][i] - 0.1f * (w.x[1][i] - w.target[1][i]));
        step(&w);
    }
    e = pl_outer_get(w.o[1], "error");
    for (int i = 0; i < VALUES; i++) assert_true(fabsf(e[i] - delta[i]) < 1e-5f);
    assert_memory_equal(w.x[1], pl_outer_get(w.o[1], "phi"), sizeof w.x[1]);
    end(&w);
}

/* After a round of zeros PowerSGD's Q is zero, and is drawn anew. */
static void powersgd_comes_back_from_zeros(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    double before;
    begin(&w, &pl_outer_powersgd, &s);
    for (int k = 0; k < PEERS; k++) memcpy(w.target[k], w.x[0], sizeof w.target[k]);
    step(&w);
    for (int k = 0; k < PEERS; k++)
        for (int i = 0; i < VALUES; i++) w.target[k][i] += 1;
    before = distance(&w, 0);
    for (int t = 0; t < 60; t++) step(&w);
    assert_true(distance(&w, 0) < 0.2 * before);
    assert_true(all_equal(&w));
    end(&w);
}

/* Values that are not sent are kept, and do not grow: |e| <= largest change / (1 - beta). */
static void residuals_stay_bounded(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    double largest = 0;
    s.beta = 0.9;
    begin(&w, &pl_outer_sparseloco, &s);
    for (int t = 0; t < 400; t++) {
        double e = 0;
        const float *phi = pl_outer_get(w.o[0], "phi"), *error = pl_outer_get(w.o[0], "error");
        float before[VALUES];
        memcpy(before, phi, sizeof before);
        step(&w);
        if (t % 4 == 2) { /* one step before the exchange: three of four steps of the change */
            double delta = 0;
            for (int i = 0; i < VALUES; i++) delta += (phi[i] - w.x[0][i]) * (phi[i] - w.x[0][i]);
            largest = fmax(largest, 2 * sqrt(delta));
        }
        for (int i = 0; i < VALUES; i++) e += (double)error[i] * error[i];
        assert_true(sqrt(e) <= largest / (1 - s.beta) + 1e-6);
    }
    end(&w);
}

/* A peer's published 20-bit form, out of order, with a bad index, and with one twice. */
static void published_form_is_read(void **state)
{
    const int32_t index[4] = { 9, 2, 4, 1 };
    const float table[4] = { -1, 0, 0.5f, 2 };
    const uint8_t codes[4] = { 3, 0, 2, 0 };
    uint8_t packed[6];
    int32_t at[4];
    float value[4];
    assert_int_equal(pl_pack12(packed, index, 4), PL_OK);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 4, 0.25f, 4, 16, 4),
                     PL_OK);
    assert_true(at[0] == 1 && at[1] == 2 && at[2] == 4 && at[3] == 9);
    assert_true(value[0] == -0.75f && value[1] == -0.75f && value[2] == 0.75f && value[3] == 2.25f);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 4, 0, 4, 9, 4),
                     PL_EPROTO);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 3, 0, 4, 16, 4),
                     PL_EPROTO);
    pl_pack12(packed, (const int32_t[4]){ 1, 2, 2, 3 }, 4);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 4, 0, 4, 16, 4),
                     PL_EPROTO);
}

/* 64 of 4096 entries in 14 bits: 146 times fewer than float32, but for a tensor's 16 bytes. */
static void sparseloco_sends_a_146th(void **state)
{
    const struct pl_outer_tensor big = { .n = 1024 * 1024, .axes = 2, .shape = { 1024, 1024 } };
    struct pl_outer_setup s = settings();
    float *x = pl_alloc(big.n, sizeof *x);
    struct pl_outer *o;
    s.tensors = &big;
    s.count = 1;
    s.topk = 64;
    s.chunk = 64;
    s.H = 1;
    assert_int_equal(pl_outer_open(&o, &pl_outer_sparseloco, &s, x, NULL), PL_OK);
    assert_true(pl_outer_bytes_per_step(o) == 16 + 16384 * 14 / 8);
    assert_int_equal((int)(4.0 * (double)big.n / (pl_outer_bytes_per_step(o) - 16)), 146);
    pl_outer_close(o);
    pl_free(x);
}

/* Each value is within a third of itself, down to a 64th of the largest; codes say themselves. */
static void e3m0_keeps_sizes(void **state)
{
    enum { M = 1000 };
    static float x[M], y[M], z[M];
    static uint8_t bytes[M];
    struct pl_rng rng;
    float largest = 0;
    pl_rng_init(&rng, 3, 0);
    for (int i = 0; i < M; i++) {
        x[i] = (float)pl_rng_normal(&rng);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    ref_e3m0_encode(bytes, x, M, 2048);
    ref_e3m0_decode(y, bytes, M, 2048);
    for (int i = 0; i < M; i++)
        if (fabsf(x[i]) > largest / 64)
            assert_true(fabsf(y[i] - x[i]) <= fabsf(x[i]) / 3 * 1.0001f);
    ref_e3m0_encode(bytes, y, M, 2048);
    ref_e3m0_decode(z, bytes, M, 2048);
    assert_memory_equal(y, z, sizeof y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skipped_gradient_has_no_weight),
        cmocka_unit_test(a_failed_exchange_loses_nothing),
        cmocka_unit_test(onebit_gives_back_gradients_only),
        cmocka_unit_test(onebit_leaves_unseen_values_alone),
        cmocka_unit_test(a_lost_message_stays_in_the_error),
        cmocka_unit_test(powersgd_comes_back_from_zeros),
        cmocka_unit_test(residuals_stay_bounded),
        cmocka_unit_test(published_form_is_read),
        cmocka_unit_test(sparseloco_sends_a_146th),
        cmocka_unit_test(e3m0_keeps_sizes),
    };
    pl_backend_ref(&be);
    return cmocka_run_group_tests_name("outer_sparse", tests, NULL, NULL);
}
