/* outer_local.c - properties of the algorithms with local steps: local SGD, DiLoCo and related
 * ones. */
#include "outer_world.h"

/* A NaN in a peer's parameters, from its inner optimizer, costs that peer one round. */
static void nan_parameters_last_one_round(void **state)
{
    static const struct pl_outer_algorithm *const local[] = {
        &pl_outer_local_sgd, &pl_outer_diloco,           &pl_outer_streaming,  &pl_outer_delayed,
        &pl_outer_eager,     &pl_outer_delayed_nesterov, &pl_outer_sparseloco, &pl_outer_noloco,
    };
    for (size_t a = 0; a < PL_COUNT(local); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        for (int failed = 0; failed <= 3; failed += 3) { /* of the exchanges after it, too */
            begin(&w, local[a], &s);
            w.fail = failed;
            for (int t = 0; t < 24; t++) {
                if (t == 9) w.x[1][0] = w.x[1][VALUES - 1] = NAN;
                step(&w);
                /* local_sgd, diloco: starts again from phi, even if the exchange has failed */
                if (t == 11 && a < 2) assert_true(isfinite(w.x[1][0]));
            }
            if (!all_finite(&w)) fail_msg("%s", w.algorithm->name);
            if (keeps_peers_equal(w.algorithm) && !all_equal(&w)) fail_msg("%s", w.algorithm->name);
            end(&w);
        }
    }
}

/* Peer 1 trains before a failed exchange, then only skips: its next message still has weight 1,
 * because its work was not received; the one after has not. Peer 2 trains after both only. */
static void steps_before_a_failed_exchange_have_weight(void **state)
{
    static const struct pl_outer_algorithm *const local[] = { &pl_outer_local_sgd, &pl_outer_diloco,
                                                              &pl_outer_delayed_nesterov,
                                                              &pl_outer_sparseloco };
    for (size_t a = 0; a < PL_COUNT(local); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        begin(&w, local[a], &s);
        w.fail = 1;
        for (int t = 0; t < 3 * s.H; t++) {
            w.spoiled[1] = t >= s.H;
            w.spoiled[2] = t < 2 * s.H;
            step(&w);
        }
        if (w.queue[0][1].weight != 1 || w.queue[0][2].weight != 0 || w.queue[1][1].weight != 1 ||
            w.queue[1][2].weight != 0 || w.queue[2][1].weight != 0 || w.queue[2][2].weight != 1)
            fail_msg("%s", w.algorithm->name);
        assert_true(all_equal(&w) && all_finite(&w));
        end(&w);
    }
}

/* After a failed exchange a peer keeps its local steps: its next message is as if the two periods
 * had been one. */
static void a_failed_exchange_keeps_local_work(void **state)
{
    static const struct pl_outer_algorithm *const local[] = { &pl_outer_local_sgd, &pl_outer_diloco,
                                                              &pl_outer_delayed_nesterov,
                                                              &pl_outer_noloco,
                                                              &pl_outer_sparseloco };
    for (size_t a = 0; a < PL_COUNT(local); a++) {
        struct pl_outer_setup s = settings(), longer = settings();
        static struct world failed, whole;
        double difference = 0;
        longer.H = 2 * s.H;
        begin(&failed, local[a], &s);
        begin(&whole, local[a], &longer);
        failed.fail = 1;
        for (int t = 0; t < longer.H; t++) {
            step(&failed);
            step(&whole);
            for (int i = 0; t + 1 == s.H && i < VALUES; i++) /* the exchange has failed */
                if (failed.x[1][i] != whole.x[1][i]) fail_msg("%s: x", local[a]->name);
        }
        for (int i = 0; i < VALUES; i++) difference += fabs((double)failed.x[1][i] - whole.x[1][i]);
        if (!(difference < 1e-3)) fail_msg("%s: %g", local[a]->name, difference);
        end(&failed);
        end(&whole);
    }
}

/* Delayed Nesterov: a change that did not count is kept, and counts with the next message. */
static void a_lost_change_is_sent_again(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    static float trained[VALUES];
    begin(&w, &pl_outer_delayed_nesterov, &s);
    for (int t = 0; t < 2 * s.H; t++) {
        w.broken = t < s.H ? SILENT : WHOLE; /* peer 1's */
        w.spoiled[1] = t >= s.H;
        for (int i = 0; t + 1 == s.H && i < VALUES; i++)
            trained[i] = w.x[1][i] - 0.1f * (w.x[1][i] - w.target[1][i]);
        step(&w);
        if (t + 1 == s.H) assert_memory_equal(w.x[1], trained, sizeof trained);
    }
    assert_true(w.queue[1][1].weight == 1);
    assert_memory_equal(w.x[1], pl_outer_get(w.o[1], "start"), sizeof trained);
    assert_true(all_equal(&w));
    end(&w);
}

/* Where an exchange takes H steps: the message after a failed one holds the changes of both. */
static void a_lost_exchange_is_sent_again(void **state)
{
    static const struct pl_outer_algorithm *const late[] = { &pl_outer_delayed, &pl_outer_eager };
    for (size_t a = 0; a < PL_COUNT(late); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        float phi[VALUES], trained[VALUES], first[VALUES], second[VALUES];
        begin(&w, late[a], &s);
        w.fail = 1;
        for (int t = 0; t < 2 * s.H; t++) {
            memcpy(phi, pl_outer_get(w.o[1], "phi"), sizeof phi);
            for (int i = 0; i < VALUES; i++)
                trained[i] = w.x[1][i] - 0.1f * (w.x[1][i] - w.target[1][i]);
            step(&w);
        }
        memcpy(first, w.queue[0][1].data, sizeof first);
        memcpy(second, w.queue[1][1].data, sizeof second);
        for (int i = 0; i < VALUES; i++)
            assert_float_equal(second[i], first[i] + phi[i] - trained[i], 1e-6f);
        assert_true(w.queue[1][1].weight == 1);
        end(&w);
    }
}

/* A newcomer takes a state over whose message is due. The donor sends that change, and keeps it if the
 * exchange fails; the newcomer, whose exchange fails, too, sends its own steps alone. */
static void a_newcomer_keeps_no_change_of_its_donor(void **state)
{
    static const struct pl_outer_algorithm *const late[] = { &pl_outer_delayed, &pl_outer_eager };
    for (size_t a = 0; a < PL_COUNT(late); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        struct pl_outer_message m = { .weight = 0 };
        float phi[VALUES];
        uint8_t *shared;
        int next = PL_OUTER_SEND;
        begin(&w, late[a], &s);
        for (int t = 0; t < s.H; t++) {
            pl_outer_before_step(w.o[0], w.x[0], w.g[0], 0.1);
            for (int i = 0; i < VALUES; i++) w.x[0][i] += 0.01f * (float)(t + i % 5);
            next = pl_outer_after_step(w.o[0], w.x[0]);
        }
        assert_int_equal(next, PL_OUTER_SEND);
        shared = malloc(pl_outer_shared_bytes(w.o[0]));
        assert_int_equal(pl_outer_save_shared(w.o[0], shared), PL_OK);
        assert_int_equal(pl_outer_load_shared(w.o[1], shared, NULL), PL_OK);
        free(shared);
        memcpy(phi, pl_outer_get(w.o[1], "phi"), sizeof phi);
        memcpy(w.x[1], phi, sizeof phi);
        assert_int_equal(pl_outer_message(w.o[1], &m, w.x[1], NULL), PL_OUTER_GRADIENT);
        for (int t = 0; t < s.H; t++) {
            pl_outer_before_step(w.o[1], w.x[1], w.g[1], 0.1);
            w.x[1][0] += 0.25f;
            next = pl_outer_after_step(w.o[1], w.x[1]);
        }
        assert_int_equal(next, PL_OUTER_RECEIVE);
        assert_int_equal(pl_outer_apply(w.o[1], w.x[1], NULL, NULL, 0), PL_OUTER_SEND);
        pl_outer_message(w.o[1], &m, w.x[1], NULL);
        assert_true(m.weight == 1);
        for (int i = 0; i < VALUES; i++)
            assert_float_equal(((float *)(void *)m.data)[i], i ? 0 : -0.25f * (float)s.H, 1e-6f);
        end(&w);
    }
}

/* H = 1, mu = 0, nu = 1 is the mean of the parameters. */
static void diloco_can_be_the_mean(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    s.H = 1;
    s.mu = 0;
    s.nu = 1;
    begin(&w, &pl_outer_diloco, &s);
    for (int t = 0; t < 10; t++) {
        float mean[VALUES];
        for (int i = 0; i < VALUES; i++) {
            double sum = 0;
            for (int k = 0; k < PEERS; k++) /* of what SGD will make of them */
                sum += w.x[k][i] - 0.1 * (w.x[k][i] - w.target[k][i]);
            mean[i] = (float)(sum / PEERS);
        }
        step(&w);
        for (int i = 0; i < VALUES; i++) assert_true(fabsf(w.x[3][i] - mean[i]) < 1e-6f);
    }
    end(&w);
}

/* H = 1 with SGD of rate eta inside is Nesterov SGD of rate nu eta. */
static void one_step_is_nesterov(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    double x[VALUES], b[VALUES] = { 0 };
    s.H = 1;
    begin(&w, &pl_outer_diloco, &s);
    for (int i = 0; i < VALUES; i++) x[i] = w.x[0][i];
    for (int t = 0; t < 20; t++) {
        for (int i = 0; i < VALUES; i++) {
            double g = 0;
            for (int k = 0; k < PEERS; k++) g += (x[i] - w.target[k][i]) / PEERS;
            b[i] = s.mu * b[i] + g;
            x[i] -= s.nu * 0.1 * (g + s.mu * b[i]);
        }
        step(&w);
        for (int i = 0; i < VALUES; i++) assert_true(fabs(w.x[1][i] - x[i]) < 1e-5);
    }
    end(&w);
}

/* The specification's vector, in float32. */
static void nesterov_as_torch_has_it(void **state)
{
    const float g[5] = { 0.1f, 0.2f, -0.05f, 0, 0.3f };
    const double phi[5] = { 0.867, 0.5443, 0.44637, 0.326733, -0.1799403 };
    const double b[5] = { 0.1, 0.29, 0.211, 0.1899, 0.47091 };
    float x = 1, m = 0;
    for (int t = 0; t < 5; t++) {
        ref_outer_nesterov(&x, &m, &g[t], 1, 0.9f, 0.7f);
        assert_true(fabs(x - phi[t]) < 1e-6 && fabs(m - b[t]) < 1e-6);
    }
}

/* torchft's fixtures: two fragments of one value, start 1, each inner step -2, rate 2 outside. */
static void streaming_is_torchfts(void **state)
{
    static const struct {
        int tau;
        double alpha;
        float x[2][16];
    } rows[] = {
        { 0,
          0,
          { { 1, -1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59 },
            { 1, -1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47, -49, -51, -53 } } },
        { 0,
          0.5,
          { { 1, -1, -3, -8, -10, -12, -14, -16, -18, -24.5f, -26.5f, -28.5f, -30.5f, -32.5f,
              -34.5f, -40.25f },
            { 1, -1, -3, -5, -7, -9, -17, -19, -21, -23, -25, -27, -32, -34, -36, -38 } } },
        { 1,
          0,
          { { 1, -1, -3, -7, -9, -11, -13, -15, -17, -27, -29, -31, -33, -35, -37, -47 },
            { 1, -1, -3, -5, -7, -9, -19, -21, -23, -25, -27, -29, -39, -41, -43, -45 } } },
        { 1,
          0.5,
          { { 1, -1, -3, -6, -8, -10, -12, -14, -16, -21.5f, -23.5f, -25.5f, -27.5f, -29.5f, -31.5f,
              -35.75f },
            { 1, -1, -3, -5, -7, -9, -15, -17, -19, -21, -23, -25, -29, -31, -33, -35 } } },
        { 1,
          1,
          { { 1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29 },
            { 1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29 } } },
    };
    const struct pl_outer_tensor two[2] = {
        { .offset = 0, .n = 1, .axes = 1, .shape = { 1 } },
        { .offset = 1, .n = 1, .axes = 1, .shape = { 1 }, .fragment = 1 }
    };
    for (size_t r = 0; r < PL_COUNT(rows); r++) {
        struct pl_outer_setup s = settings();
        struct pl_outer *o;
        struct pl_outer_message m = { NULL, 0, 0, 0 };
        uint8_t kept[8];
        float x[2] = { 1, 1 }, g[2] = { 2, 2 };
        s.tensors = two;
        s.count = 2;
        s.peers = 1;
        s.H = 6;
        s.mu = 0;
        s.nu = 2;
        s.tau = rows[r].tau;
        s.alpha = rows[r].alpha;
        assert_int_equal(pl_outer_open(&o, &pl_outer_streaming, &s, x, NULL), PL_OK);
        for (int t = 1; t < 16; t++) {
            int next;
            assert_int_equal(pl_outer_before_step(o, x, g, 1), PL_OUTER_STEP);
            x[0] -= 2;
            x[1] -= 2;
            next = pl_outer_after_step(o, x);
            while (next != PL_OUTER_GRADIENT) {
                if (next == PL_OUTER_SEND) {
                    next = pl_outer_message(o, &m, x, g);
                    memcpy(kept, m.data, m.bytes);
                    m.data = kept;
                } else next = pl_outer_apply(o, x, g, &m, 1);
            }
            assert_true(x[0] == rows[r].x[0][t] && x[1] == rows[r].x[1][t]);
        }
        pl_outer_close(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_parameters_last_one_round),
        cmocka_unit_test(steps_before_a_failed_exchange_have_weight),
        cmocka_unit_test(a_failed_exchange_keeps_local_work),
        cmocka_unit_test(a_lost_change_is_sent_again),
        cmocka_unit_test(a_lost_exchange_is_sent_again),
        cmocka_unit_test(a_newcomer_keeps_no_change_of_its_donor),
        cmocka_unit_test(diloco_can_be_the_mean),
        cmocka_unit_test(one_step_is_nesterov),
        cmocka_unit_test(nesterov_as_torch_has_it),
        cmocka_unit_test(streaming_is_torchfts),
    };
    pl_backend_ref(&be);
    return cmocka_run_group_tests_name("outer_local", tests, NULL, NULL);
}
