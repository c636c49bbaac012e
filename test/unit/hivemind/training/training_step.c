/* training_step.c - the decision to step, and the step, peer by peer: when the target batch counts
 * as reached, the weight of each peer's samples, the epochs that average parameters, and the values
 * that a correction does not change. */
#include "training_world.h"
#include "net/hivemind/training/training_internal.h"

static void nap(double s)
{
    nanosleep(&(struct timespec){ (time_t)s, (long)((s - (double)(time_t)s) * 1e9) }, NULL);
}

static void fill(float *const *tensor, float x)
{
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < sizes[peers[0].state.order[t]]; i++) tensor[t][i] = x;
}

/* Either is enough: the samples that were reported, or the time at which they are expected. */
static void target_is_reached_by_samples_or_by_time(void **state)
{
    struct peer *p = &peers[0];
    pl_backend_ref(&be);
    for (int i = 0; i < 2; i++) open_peer(&peers[i], i);
    /* A slow peer alone: the estimate is far away, the samples decide, at the target and not before. */
    training_enter(p->c, 0);
    assert_int_equal(training_add(p->c, 8, 1000), TRAINING_GO_ON);
    assert_int_equal(training_add(p->c, TARGET - 9, 1000), TRAINING_GO_ON);
    assert_int_equal(training_add(p->c, 1, 1000), TRAINING_UPDATE);
    /* Another peer reports 50 samples a second: after one second the target is there by the estimate. */
    training_enter(p->c, 0);
    training_enter(peers[1].c, 0);
    assert_int_equal(training_add(peers[1].c, 1, 0.02), TRAINING_GO_ON);
    assert_int_equal(training_add(p->c, 1, 1000), TRAINING_GO_ON);
    for (int i = 0; i < 200; i++) {
        struct training_view v;
        training_get_view(p->c, &v);
        if (v.peers == 2 && v.eta_s == 0) break;
        nap(0.05);
    }
    assert_int_equal(training_add(p->c, 1, 1000), TRAINING_UPDATE);
}

/* A peer so fast that its estimate has always passed: it steps by samples of its own, or follows a peer
 * that has some, but makes no epoch out of nothing. */
static void nobody_steps_without_samples(void **state)
{
    for (local_steps = 0; local_steps < 2; local_steps++) {
        struct peer *p = &peers[0];
        pl_backend_ref(&be);
        for (int i = 0; i < 2; i++) {
            open_peer(&peers[i], i);
            training_enter(peers[i].c, 0);
        }
        assert_int_equal(training_add(p->c, TARGET, 1e-9), TRAINING_UPDATE);
        training_advance(p->c, p->host_tensor);
        for (int i = 0; i < 20; i++) assert_int_equal(training_add(p->c, 0, 0), TRAINING_GO_ON);
        training_enter(peers[1].c, 1);
        training_add(peers[1].c, TARGET, 1e-9);
        for (int i = 0; i < 100 && training_add(p->c, 0, 0) != TRAINING_UPDATE; i++) nap(0.05);
        assert_int_equal(training_add(p->c, 0, 0), TRAINING_UPDATE);
        close_all(state);
    }
    local_steps = 0;
}

/* The speed that is reported: e <- 0.1 dt / n + 0.9 e, corrected for its start. Empty calls don't count. */
static void speed_is_that_of_batches(void **state)
{
    struct training_view v;
    pl_backend_ref(&be);
    open_peer(&peers[0], 0);
    training_enter(peers[0].c, 0);
    training_add(peers[0].c, 2, 0.5);
    training_get_view(peers[0].c, &v);
    assert_float_equal(v.samples_per_second, 4, 1e-5);
    training_add(peers[0].c, 0, 100);
    training_add(peers[0].c, 8, 0.5);
    training_get_view(peers[0].c, &v);
    assert_float_equal(v.samples_per_second, (1 - 0.81) / (0.1 / 16 + 0.9 * 0.1 / 4), 1e-5);
    assert_int_equal(v.samples, 10);
    assert_int_equal(v.global_samples, 10);
    assert_int_equal(v.peers, 1);
}

/* A gradient that is not finite is never given; a finite one finds nobody here. */
static void bad_gradients_stay_here(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    struct peer *p = &peers[0];
    struct training_round r;
    pl_backend_ref(&be);
    open_peer(p, 0);
    training_enter(p->c, 0);
    for (size_t i = 0; i <= PL_COUNT(bad); i++) {
        fill(p->host_tensor, 1);
        if (i < PL_COUNT(bad))
            p->host_tensor[TENSORS - 1][sizes[p->state.order[TENSORS - 1]] - 1] = bad[i];
        training_add(p->c, TARGET, 1);
        training_average(p->c, p->host_tensor, &r);
        assert_true(r.status != PL_OK);
        assert_int_equal(r.peers, 1);
        if (!strstr(r.why.text, i < PL_COUNT(bad) ? "not finite" : "alone"))
            fail_msg("%s", r.why.text);
        training_advance(p->c, p->host_tensor);
    }
}

/* The parameters' round belongs to the epochs that average_state_every divides, counted after the step. */
static void every_second_epoch_averages_parameters(void **state)
{
    struct peer *p = &peers[0];
    struct training_round r;
    pl_backend_ref(&be);
    open_peer(p, 0);
    p->c->o.average_state_every = 2;
    training_enter(p->c, 0);
    for (int epoch = 1; epoch <= 4; epoch++) {
        fill(p->host_tensor, (float)epoch);
        training_add(p->c, TARGET, 1);
        training_average(p->c, p->host_tensor, &r);
        training_advance(p->c, p->host_tensor);
        if (epoch == 1) assert_null(p->c->state.before[0]);
        else assert_float_equal(p->c->state.before[0][0], (epoch / 2 * 2), 0);
    }
}

/* x += averaged - given: changes that training has made meanwhile stay. */
static void correction_keeps_progress(void **state)
{
    struct peer *p = &peers[0];
    pl_backend_ref(&be);
    open_peer(p, 0);
    for (size_t t = 0; t < TENSORS; t++) {
        const size_t n = sizes[p->state.order[t]];
        p->c->state.before[t] = pl_alloc(n, sizeof(float));
        p->c->state.after[t] = pl_alloc(n, sizeof(float));
    }
    fill(p->c->state.before, 10);
    fill(p->c->state.after, 12);
    fill(p->host_tensor, 7); /* was 10 when the round began */
    training_correct(p->c, p->host_tensor);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < sizes[p->state.order[t]]; i++)
            assert_float_equal(p->host_tensor[t][i], 9, 0);
}

/* --- a common round ----------------------------------------------------------------------------- */

static struct training_round rounds[2];

static void *average_once(void *context)
{
    struct peer *p = context;
    training_average(p->c, p->host_tensor, &rounds[p->number]);
    return NULL;
}

/* Two peers with this many samples and these gradients: a round of both. */
static void average_two(int64_t first, float of_first, int64_t second, float of_second)
{
    const int64_t samples[2] = { first, second };
    const float gradient[2] = { of_first, of_second };
    pthread_t thread[2];
    struct training_view v;
    for (int i = 0; i < 2; i++) {
        training_enter(peers[i].c, 0);
        training_add(peers[i].c, samples[i], 1);
        fill(peers[i].host_tensor, gradient[i]);
    }
    for (int i = 0; i < 2; i++) do {
            training_enter(peers[i].c, 0); /* a fresh view */
            training_add(peers[i].c, samples[i], 1);
            training_get_view(peers[i].c, &v);
        } while (v.peers < 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, average_once, &peers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
}

/* Both have averaged, and have the same mean everywhere. */
static void assert_mean(double mean)
{
    for (int i = 0; i < 2; i++) {
        if (rounds[i].status) fail_msg("peer %d: %s", i, rounds[i].why.text);
        assert_int_equal(rounds[i].peers, 2);
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t k = 0; k < sizes[peers[i].state.order[t]]; k++)
                assert_float_equal(peers[i].host_tensor[t][k], mean, 2e-3);
    }
}

/* g = sum_k n_k g_k / sum_k n_k, and n_k is four target batches at most. */
static void samples_are_weights_up_to_four_targets(void **state)
{
    float least = 6;
    pl_backend_ref(&be);
    for (int i = 0; i < 2; i++) {
        open_peer(&peers[i], i);
        training_enter(peers[i].c, 0);
    }
    average_two(40, 1, 8, 7); /* (40 * 1 + 8 * 7) / 48 */
    assert_mean(2);
    average_two(40 * TARGET, 1, TARGET, 6); /* (4 * 1 + 1 * 6) / 5 */
    assert_mean(2);
    /* In the parts that we reduce, a peer's larger weight is not believed: 1, or its share up to
     * the limit. */
    peers[1].c->o.target_batch = 100 * TARGET;
    average_two(TARGET, 1, 40 * TARGET, 6);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t k = 0; k < sizes[peers[0].state.order[t]]; k++)
            least = fminf(least, peers[0].host_tensor[t][k]);
    assert_true(least <= 5.01f);
}

/* A peer without samples in this epoch or the one before would be waited for, so it is not reported. */
static void only_peers_with_samples_report(void **state)
{
    const struct claims *claims;
    pl_backend_ref(&be);
    for (int i = 0; i < 2; i++) open_peer(&peers[i], i);
    claims = &peers[0].c->poll.claims;
    training_enter(peers[1].c, 0);
    assert_int_equal(training_add(peers[1].c, 0, 1), TRAINING_GO_ON);
    training_enter(peers[0].c, 0);
    assert_int_equal(claims->count, 0);
    training_add(peers[1].c, 1, 1);
    for (int64_t epoch = 0; epoch <= 3; epoch++) {
        for (int i = 0; i < 100; i++) {
            training_enter(peers[0].c, 0);
            if (claims->count && claims->list[0].epoch == epoch) break;
            nap(epoch <= 1 ? 0.05 : 0.01);
        }
        assert_int_equal(claims->count, 1);
        assert_int_equal(claims->list[0].epoch, epoch <= 1 ? epoch : 1);
        training_advance(peers[1].c, peers[1].host_tensor);
    }
}

/* A state replaces the parameters of a peer that still searches for a group: the group forms without
 * it, and no peer gets a mean with values of the epoch that it has left. */
static void replaced_parameters_are_given_to_nobody(void **state)
{
    struct training_view v = { .peers = 0 };
    struct training_round r;
    pl_backend_ref(&be);
    for (int i = 0; i < 2; i++) {
        open_peer(&peers[i], i);
        training_enter(peers[i].c, 1);
        training_add(peers[i].c, BATCH, 1000);
        fill(peers[i].host_tensor, i ? 9 : 1);
    }
    for (int i = 0; i < 2; i++, v.peers = 0)
        while (v.peers < 2) {
            nap(0.05);
            training_enter(peers[i].c, 1);
            training_add(peers[i].c, BATCH, 1000);
            training_get_view(peers[i].c, &v);
        }
    training_average_parameters(peers[1].c, peers[1].host_tensor);
    training_enter(peers[1].c, 2);
    training_average_parameters(peers[0].c, peers[0].host_tensor);
    while (!training_corrected(peers[0].c, &r)) nap(0.05);
    assert_int_equal(r.peers, 1);
    assert_int_not_equal(r.status, PL_OK);
    /* The next round is one of both again. */
    fill(peers[1].host_tensor, 3);
    for (int i = 0; i < 2; i++) training_enter(peers[i].c, 2);
    for (int i = 0; i < 2; i++) training_average_parameters(peers[i].c, peers[i].host_tensor);
    while (!training_corrected(peers[0].c, &r)) nap(0.05);
    assert_int_equal(r.status, PL_OK);
    training_correct(peers[0].c, peers[0].host_tensor);
    assert_float_equal(peers[0].host_tensor[0][0], 2, 1e-3);
}

/* What the trainer learns of a round that found no group: its status and why, no ID of a group, and
 * nobody who was caught. */
static void result_without_a_group_is_alone(void **state)
{
    const struct averager_result r = { .status = PL_EAGAIN, .why = "nobody came", .seconds = 3 };
    const struct pl_err nothing = { { 0 } };
    const uint8_t no_group[DHT_ID_BYTES] = { 0 };
    struct training_round round;
    memset(&round, 0xff, sizeof round);
    training_copy_result(&round, &r);
    assert_int_equal(round.status, PL_EAGAIN);
    assert_string_equal(round.why.text, "nobody came");
    assert_true(round.seconds == 3);
    assert_int_equal(round.peers, 1);
    assert_memory_equal(round.group, no_group, sizeof no_group);
    assert_int_equal(round.verified, 0);
    assert_int_equal(round.banned, 0);
    assert_memory_equal(&round.caught, &nothing, sizeof nothing);
    assert_int_equal(round.ahead, 0);
    assert_int_equal(round.is_alone, 0);
    assert_int_equal(round.is_delivered, 0);
    assert_int_equal(round.samples, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(target_is_reached_by_samples_or_by_time, close_all),
        cmocka_unit_test_teardown(nobody_steps_without_samples, close_all),
        cmocka_unit_test_teardown(speed_is_that_of_batches, close_all),
        cmocka_unit_test_teardown(bad_gradients_stay_here, close_all),
        cmocka_unit_test_teardown(every_second_epoch_averages_parameters, close_all),
        cmocka_unit_test_teardown(correction_keeps_progress, close_all),
        cmocka_unit_test_teardown(replaced_parameters_are_given_to_nobody, close_all),
        cmocka_unit_test_teardown(only_peers_with_samples_report, close_all),
        cmocka_unit_test_teardown(samples_are_weights_up_to_four_targets, close_all),
        cmocka_unit_test(result_without_a_group_is_alone),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
