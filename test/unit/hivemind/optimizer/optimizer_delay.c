/* optimizer_delay.c - delayed updates: two peers in one process over loopback. One continues with
 * local batches while its gradient is averaged or while the optimizer steps; the other waits for
 * both. The test records each peer's actions and repeats them in one thread by the rule: the
 * parameters have to be the same, bit for bit. It waits for events, never for times. It runs in
 * host memory and on an emulated device, whose copies run only when somebody waits for them. */
#include "optimizer_world.h"

/* --- the same in one thread ------------------------------------------------------------------- */

struct again {
    const struct peer *p;
    size_t at;
    struct pl_optimizer *optimizer;
    float *value, *grad, *away; /* away: the gradient that has left, or its mean */
    int64_t samples, batches, away_samples;
    int with_old; /* batches between a departure and its new parameters */
};

static void put_in(struct again *a)
{
    assert_int_equal(take_step(a->optimizer, a->value, a->away), PL_OK);
}

/* Until the next departure, or the end. */
static void go_on(struct again *a)
{
    int is_away = a->at > 0;
    for (; a->at < a->p->entries; a->at++) {
        const struct entry *e = &a->p->log[a->at];
        if (e->what == 'b') {
            assert_int_equal(add_gradient(a->grad, a->value, a->p->number, a->batches++,
                                          e->samples),
                             PL_OK);
            a->samples += e->samples;
            a->with_old += is_away;
        } else if (e->what == 'i') {
            put_in(a);
            is_away = 0;
        } else {
            be.scale(a->grad, 1 / (float)a->samples, N);
            be.copy(a->away, a->grad, N);
            be.fill(a->grad, 0, N);
            a->away_samples = a->samples < SAMPLES_MAX ? a->samples : SAMPLES_MAX;
            a->samples = 0;
            a->at++;
            return;
        }
    }
}

/* Averages both peers' gradients, as a round does. */
static void average(struct again *a, struct again *b)
{
    float sum[N] = { 0 }, delta[N], ours[PEERS][N];
    struct again *both[PEERS] = { a, b };
    float weight = (float)(a->away_samples + b->away_samples);
    for (int i = 0; i < PEERS; i++) {
        struct pl_coded x = { .method = PL_COMPRESS_NONE, .data = ours[i] };
        assert_int_equal(be.get(ours[i], both[i]->away, sizeof ours[i]), PL_OK);
        host.average_add(sum, &x, (float)both[i]->away_samples, N);
    }
    for (int i = 0; i < PEERS; i++) {
        struct pl_coded x = { .method = PL_COMPRESS_NONE, .data = ours[i] };
        host.average_delta(delta, sum, weight, &x, N);
        for (int k = 0; k < N; k++) ours[i][k] += delta[k];
        assert_int_equal(be.put(both[i]->away, ours[i], sizeof ours[i]), PL_OK);
    }
}

static struct again again[PEERS];

static void compare(void)
{
    struct pl_optimizer_options lamb = pl_lamb_options();
    float values[PEERS][N], own[N];
    struct pl_err err;
    lamb.min_8bit = 0;
    memset(again, 0, sizeof again);
    for (int i = 0; i < PEERS; i++) {
        again[i].p = &peers[i];
        again[i].value = new_values();
        again[i].grad = new_zeros();
        again[i].away = new_zeros();
        assert_int_equal(pl_optimizer_open(&again[i].optimizer, &be, &lamb, tensors, 2, &err),
                         PL_OK);
    }
    for (int e = 0; e < EPOCHS; e++) {
        for (int i = 0; i < PEERS; i++) go_on(&again[i]);
        assert_int_equal(peers[0].status[e], peers[1].status[e]);
        if (!peers[0].status[e]) average(&again[0], &again[1]);
    }
    for (int i = 0; i < PEERS; i++) {
        go_on(&again[i]);
        assert_int_equal(again[i].at, peers[i].entries);
        assert_int_equal(be.get(values[i], again[i].value, sizeof values[i]), PL_OK);
        assert_int_equal(be.get(own, peers[i].value, sizeof own), PL_OK);
        assert_memory_equal(values[i], own, sizeof own);
        pl_optimizer_close(again[i].optimizer);
        be.free(again[i].value);
        be.free(again[i].grad);
        be.free(again[i].away);
    }
    /* x + (mean - x) is the mean but for its last bit, and that is another one for each x */
    for (int i = 0; i < N; i++) assert_float_equal(values[0][i], values[1][i], 1e-5);
}

static void train(int steps_alone, int batches_in_a_round)
{
    hold_steps = steps_alone;
    extra = batches_in_a_round;
    known = departures = batches = stepping = copies_held = 0;
    for (int i = 0; i < PEERS; i++) open_peer(&peers[i], i);
    for (int i = 0; i < PEERS; i++)
        assert_int_equal(pthread_create(&peers[i].thread, NULL, train_loop, &peers[i]), 0);
    for (int i = 0; i < PEERS; i++) pthread_join(peers[i].thread, NULL);
    for (int i = 0; i < PEERS; i++) {
        if (peers[i].rc) fail_msg("peer %d: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].epoch, EPOCHS);
        assert_int_equal(peers[i].steps, EPOCHS);
        for (int e = 0; e < EPOCHS; e++) {
            assert_int_equal(peers[i].status[e], PL_OK);
            assert_int_equal(peers[i].group[e], PEERS);
        }
    }
}

/* After each test, failed or not: the networks' threads still use peers that a failed test left. */
static int end(void **state)
{
    (void)state;
    for (int i = PEERS; i-- > 0;) close_peer(&peers[i]);
    hold_copies = verified = 0;
    be = host;
    return 0;
}

/* The other peer brings its gradient to a round only after this many batches: so they were made
 * during the round, and with the parameters from before. */
static void rounds_overlap_batches(void **state)
{
    (void)state;
    train(0, 3);
    compare();
    assert_int_equal(departures, EPOCHS);
    for (int e = 0; e + 1 < EPOCHS; e++) assert_true(waiter_batches_at[e] >= batches_at[e] + 3);
    assert_true(again[DELAYED].with_old >= 3 * (EPOCHS - 1));
}

/* A step ends only after a batch has been made meanwhile. */
static void steps_overlap_batches(void **state)
{
    (void)state;
    train(1, 0);
    compare();
    assert_int_equal(stepping, EPOCHS - 1);
    assert_true(again[DELAYED].with_old >= EPOCHS - 1);
    assert_int_equal(again[WAITING].with_old, 0);
}

/* Nothing of a peer counts in a verified round if it has more samples than groupmates accept: during
 * a round that takes long it makes fewer batches than that. */
static void verified_rounds_bound_batches(void **state)
{
    int64_t samples = 0, most = 0;
    (void)state;
    verified = 1;
    train(0, 3);
    for (size_t i = 0; i < peers[DELAYED].entries; i++) {
        const struct entry *e = &peers[DELAYED].log[i];
        samples = e->what == 'b' ? samples + e->samples : e->what == 'd' ? 0 : samples;
        if (samples > most) most = samples;
    }
    assert_int_equal(most, SAMPLES_MAX);
}

/* --- on a device ------------------------------------------------------------------------------- */

static int open_device(void)
{
    char path[PATH_MAX + 64] = "";
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash;
    path[n > 0 ? n : 0] = 0;
    if (!(slash = strrchr(path, '/'))) return 0;
    strcpy(slash, "/../libpl_cuda_on_cpu.so");
    if (access(path, R_OK)) return 0;
    setenv("CUDA_ON_CPU_STREAMS", "late", 1);
    assert_int_equal(pl_backend_open(&be, path, NULL), PL_OK);
    assert_true(be.many_threads);
    device_copy_end = be.copy_end;
    be.copy_end = held_copy_end;
    return 1;
}

/* The gradient's way down, the round, its way up again and the step all overlap with batches. */
static void device_overlaps_batches(void **state)
{
    (void)state;
    if (!open_device()) skip();
    hold_copies = 1;
    train(0, 3);
    compare();
    assert_int_equal(copies_held, EPOCHS - 1);
    assert_true(again[DELAYED].with_old >= 3 * (EPOCHS - 1));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(rounds_overlap_batches, end),
                                        cmocka_unit_test_teardown(steps_overlap_batches, end),
                                        cmocka_unit_test_teardown(verified_rounds_bound_batches,
                                                                  end),
                                        cmocka_unit_test_teardown(device_overlaps_batches, end) };
    pl_backend_ref(&host);
    be = host;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
