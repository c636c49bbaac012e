/* optimizer_gather.c - algorithms in which each peer gathers all messages of its group, over
 * loopback: peers equal, bit for bit, the result of ref/outer for the same gradients in one
 * process; a newcomer downloads the algorithm's state; the bytes on the wire are those of the
 * formula. */
#include "test/unit/hivemind/optimizer/gather_world.h"

#define LOCAL 4 /* the first algorithms have local steps */

static const struct algorithm algorithms[] = {
    { "sparseloco", "topk=4,chunk=4", 0 },
    { "delayed_nesterov", "N=2,coding=e3m0", 0 },
    { "delayed_nesterov", "N=2,coding=uniform8", 0 },
    { "noloco", "gamma=0.5", 1 },
    { "partial", "share=0.25", 1 },
    { "demo", "topk=3,chunk=8,weight_decay=0.01", 0 },
    { "dgc", "share=0.3,beta=0.5", 0 },
    { "onebit_adam", "warm_up=2,beta2=0.9", 0 },
};

static void alone_equals_the_reference(void **state)
{
    static float want[EPOCHS + 1][2][N];
    (void)state;
    for (size_t a = 0; a < PL_COUNT(algorithms); a++) {
        struct play w = { .algorithm = &algorithms[a], .peers = 1 };
        struct peer *p = new_peer(&w, 0);
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

static void two_peers_equal_the_reference(void **state)
{
    (void)state;
    two_peers_and_a_newcomer(algorithms, PL_COUNT(algorithms));
}

static void a_diverged_peer_resynchronizes(void **state)
{
    (void)state;
    resynchronize(&algorithms[0]);
}

/* Values are about 1. A third of a huge gradient's step is more than 1e3. */
static void a_huge_message_moves_little(void **state)
{
    const struct algorithm partial = { "partial", "share=1", 1 };
    (void)state;
    assert_true(attacked(&partial, 0) > 1e3f);
    assert_true(attacked(&partial, PL_CLIP_USUAL) < 2);
}

/* Three peers, groups of two. */
static void a_run_of_several_groups_is_reported(void **state)
{
    struct play w = { .algorithm = &algorithms[0], .peers = 3, .group_size = 2, .last_epoch = 3 };
    int reports = 0;
    (void)state;
    for (int r = 0; r < 3; r++) new_peer(&w, r);
    note(&w.first_steps);
    for (int r = 0; r < 3; r++) pthread_create(&w.p[r]->thread, NULL, train, w.p[r]);
    for (int r = 0; r < 3; r++) {
        pthread_join(w.p[r]->thread, NULL);
        assert_true(w.p[r]->split <= 1);
        reports += w.p[r]->split;
    }
    assert_true(reports >= 1);
    for (int r = 2; r >= 0; r--) close_peer(w.p[r]);
}

static void *make_step(void *context)
{
    struct peer *p = context;
    p->rc = step(p, SAMPLES);
    return NULL;
}

/* No step, and nothing of the own work is lost: the next message is as if both periods had been
 * one. */
static void failed_round_keeps_local_work(void **state)
{
    struct play w[LOCAL] = { { .peers = 0 } };
    struct peer *p[LOCAL];
    float before[LOCAL][N], after[N];
    (void)state;
    for (size_t a = 0; a < LOCAL; a++) {
        p[a] = with_a_silent_peer(&w[a], &algorithms[a], INNER - 1);
        values_of(p[a], before[a]);
        pthread_create(&p[a]->thread, NULL, make_step, p[a]);
    }
    for (size_t a = 0; a < LOCAL; a++) {
        pthread_join(p[a]->thread, NULL);
        assert_int_equal(p[a]->rc, PL_OK);
        assert_int_equal(p[a]->failed, 1);
        assert_int_equal(pl_collaborative_epoch(p[a]->c), 0);
        values_of(p[a], after);
        /* the third step stands, and is not taken back */
        for (int i = B; i < N; i++) {
            float g;
            gradient_at(0, before[a] + i, &g, 1, i);
            if (fabsf(after[i] - (before[a][i] - RATE * g)) > 1e-6f)
                fail_msg("%s: entry %d", algorithms[a].name, i);
        }
        close_peer(w[a].p[1]);
        close_peer(p[a]);
    }
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
        { { .algorithm = "sparseloco", .clip = -1 }, "takes no centered-clip" },
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
        cmocka_unit_test(two_peers_equal_the_reference),
        cmocka_unit_test(a_diverged_peer_resynchronizes),
        cmocka_unit_test(a_huge_message_moves_little),
        cmocka_unit_test(a_run_of_several_groups_is_reported),
        cmocka_unit_test(failed_round_keeps_local_work),
        cmocka_unit_test(refused_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
