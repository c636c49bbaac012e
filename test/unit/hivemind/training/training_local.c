/* training_local.c - rounds of peers with local steps: a mean that contains no other peer's change
 * does not count, and peers whose rounds of phi are one epoch apart meet again. */
#include "training_world.h"
#include "net/hivemind/training/training_internal.h"

#define WAIT 0.05 /* s between two polls */

static void nap(void) { nanosleep(&(struct timespec){ 0, (long)(WAIT * 1e9) }, NULL); }

static void fill(struct peer *p, float x)
{
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < sizes[p->state.order[t]]; i++) p->host_tensor[t][i] = x;
}

/* They know each other. The first is ready with its inner steps; the second has made one, slowly. */
static void open_pair(int64_t first_epoch, int64_t second_epoch, int second_is_client)
{
    const int64_t epoch[] = { first_epoch, second_epoch }, samples[] = { TARGET, BATCH };
    const double seconds[] = { 0.1, 1000 };
    struct training_view v = { .peers = 0 };
    pl_backend_ref(&be);
    local_steps = 1;
    for (int i = 0; i < 2; i++) {
        clients = i && second_is_client;
        open_peer(&peers[i], i);
        training_enter(peers[i].c, epoch[i]);
        training_add(peers[i].c, samples[i], seconds[i]);
    }
    for (int i = 0; i < 2; i++, v.peers = 0)
        for (double left = LIMIT; v.peers < 2 && left > 0; left -= WAIT) {
            nap();
            training_enter(peers[i].c, epoch[i]);
            training_add(peers[i].c, samples[i], seconds[i]);
            training_get_view(peers[i].c, &v);
        }
    assert_int_equal(v.peers, 0);
}

static void *average(void *round)
{
    training_average(peers[0].c, peers[0].host_tensor, round);
    return NULL;
}

/* The second peer, which reduces nothing, joins the first one's group, but gives its change too
 * late. It gets no mean, so the first has none either. */
static void no_mean_without_the_other_change(void **state)
{
    struct training_round r;
    pthread_t thread;
    open_pair(0, 0, 1);
    fill(&peers[0], 1);
    assert_int_equal(pthread_create(&thread, NULL, average, &r), 0);
    for (int i = 0; i < 10; i++) nap(); /* the first begins to search first, and leads */
    training_add(peers[1].c, TARGET, 0.1);
    for (int i = 0; i < 100 && training_add(peers[1].c, 0, 0) != TRAINING_UPDATE; i++) nap();
    pthread_join(thread, NULL);
    assert_int_equal(r.peers, 2);
    assert_int_equal(r.status, PL_EIO);
    assert_non_null(strstr(r.why.text, "too late"));
    assert_false(r.is_alone);
}

static int await_correction(struct peer *p, struct training_round *r)
{
    for (double left = LIMIT; left > 0; left -= WAIT, nap())
        if (training_corrected(p->c, r)) return 1;
    return 0;
}

/* The second peer's round of phi meets the first one's of the next epoch: no mean is taken. The
 * first peer offers phi again, and the second one, that has made its step now, meets it there. */
static void phi_an_epoch_apart(void **state)
{
    struct training_round r;
    open_pair(1, 0, 0);
    fill(&peers[0], 4);
    fill(&peers[1], 1);
    for (int i = 0; i < 2; i++) training_average_parameters(peers[i].c, peers[i].host_tensor);
    assert_true(await_correction(&peers[1], &r));
    assert_int_equal(r.peers, 2);
    assert_int_equal(r.status, PL_EPROTO);
    fill(&peers[1], 2);
    training_enter(peers[1].c, 1);
    training_average_parameters(peers[1].c, peers[1].host_tensor);
    for (int i = 0; i < 2; i++) {
        assert_true(await_correction(&peers[i], &r));
        assert_int_equal(r.status, PL_OK);
        assert_int_equal(r.peers, 2);
        training_correct(peers[i].c, peers[i].host_tensor);
        assert_float_equal(peers[i].host_tensor[0][0], 3, 1e-3);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(no_mean_without_the_other_change, close_all),
        cmocka_unit_test_teardown(phi_an_epoch_apart, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
