/* optimizer_tensors.c - the collaborative optimizer by its public header alone, over plain tensors:
 * the arguments of a caller's optimizer, the effect of a step on values, the state that a newcomer
 * downloads, and arguments that are refused. */
#include "net/hivemind/optimizer.h"
#include "net/hivemind/optimizer/optimizer_trainer.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define W 6       /* of the first tensor, (2,3) */
#define B 3       /* of the second */
#define LIMIT 120 /* s for 21 steps of one peer: they take about two */

struct model {
    float w[W], b[B], gw[W], gb[B];
    float given[W]; /* the gradient in our optimizer's last call */
    float at_event; /* w[0] when the last step was reported */
    int steps, warnings, loads;
    size_t peers; /* in the last step's round */
    int64_t global_samples;
    int bad_steps; /* this many of our optimizer's next steps fail */
    char warning[512];
};

static int sgd(void *context, const float *const *gradient, int64_t epoch, struct pl_err *err)
{
    struct model *m = context;
    if (m->bad_steps) {
        m->bad_steps--;
        return pl_fail(err, PL_EFORMAT, "step %lld: not finite", (long long)epoch);
    }
    memcpy(m->given, gradient[0], sizeof m->given);
    for (int i = 0; i < W; i++) m->w[i] -= 0.5f * gradient[0][i];
    for (int i = 0; i < B; i++) m->b[i] -= 0.5f * gradient[1][i];
    m->steps++;
    return PL_OK;
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    struct model *m = context;
    if (e->kind == PL_COLLABORATIVE_EPOCH) {
        m->at_event = m->w[0];
        m->peers = e->round.peers;
        m->global_samples = e->global_samples;
    }
    if (e->kind == PL_COLLABORATIVE_LOADED) m->loads++;
    if (e->kind == PL_COLLABORATIVE_WARNING) {
        m->warnings++;
        snprintf(m->warning, sizeof m->warning, "%s", e->text);
    }
}

static void fill(struct model *m, float from)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < W; i++) m->w[i] = from + (float)i;
    for (int i = 0; i < B; i++) m->b[i] = from - (float)i;
}

static void set_gradient(struct model *m, float g)
{
    for (int i = 0; i < W; i++) m->gw[i] = g * (float)(i + 1);
    for (int i = 0; i < B; i++) m->gb[i] = g;
}

static int open_model(struct pl_collaborative **c, struct model *m, const char *join,
                      struct pl_collaborative_options o, struct pl_err *err)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const struct pl_collaborative_run run = { .name = "tensors",
                                              .listen = listen,
                                              .listen_count = 1,
                                              .initial_peers = &join,
                                              .initial_peer_count = join != NULL };
    const struct pl_collaborative_tensor tensors[] = { { "w", 2, { 2, 3 }, m->w, 0 },
                                                       { "b", 1, { B }, m->b, 1 } };
    o.target_batch = 4;
    if (!o.matchmaking_time) o.matchmaking_time = 1;
    o.report = report;
    o.context = m;
    return pl_collaborative_open(c, &run, tensors, 2, &o, err);
}

/* A model filled from `from`, under an optimizer of its own. */
static struct pl_collaborative *open_filled(struct model *m, float from, const char *join,
                                            struct pl_collaborative_options o)
{
    struct pl_collaborative *c;
    struct pl_err err;
    fill(m, from);
    if (open_model(&c, m, join, o, &err)) fail_msg("%s", err.text);
    return c;
}

static int step(struct pl_collaborative *c, struct model *m, int64_t samples, double loss)
{
    const float *gradient[] = { m->gw, m->gb };
    return pl_collaborative_step(c, gradient, samples, loss, NULL);
}

struct waiting_peer {
    struct pl_collaborative *c;
    struct model *m;
    int rc;
};

/* g = (1 g1 + 3 g2) / 4: the mean over samples, not over batches. */
static void caller_steps_with_the_mean(void **state)
{
    struct pl_collaborative_options o = { .step = sgd };
    struct model m;
    struct pl_collaborative *c = open_filled(&m, 1, NULL, o);
    (void)state;
    set_gradient(&m, 2);
    assert_int_equal(step(c, &m, 1, 1), PL_OK);
    assert_int_equal(pl_collaborative_epoch(c), 0);
    assert_float_equal(m.w[0], 1, 0);
    set_gradient(&m, 6);
    assert_int_equal(step(c, &m, 3, 1), PL_OK);
    assert_int_equal(pl_collaborative_epoch(c), 1);
    assert_int_equal(m.steps, 1);
    for (int i = 0; i < W; i++) assert_float_equal(m.given[i], 5 * (i + 1), 1e-5);
    assert_float_equal(m.w[0], 1 - 2.5, 1e-5);
    assert_float_equal(m.at_event, m.w[0], 0);
    pl_collaborative_close(c);
}

/* A gradient that is not finite discards the gradients accumulated before it, and nothing else. */
static void bad_numbers_are_dropped(void **state)
{
    struct pl_collaborative_options o = { .step = sgd };
    struct model m;
    struct pl_collaborative *c = open_filled(&m, 1, NULL, o);
    (void)state;
    set_gradient(&m, 100);
    assert_int_equal(step(c, &m, 2, 1), PL_OK);
    set_gradient(&m, 1);
    m.gb[1] = NAN;
    assert_int_equal(step(c, &m, 2, 1), PL_OK);
    assert_int_equal(m.warnings, 1);
    assert_non_null(strstr(m.warning, "gradient of b is not finite at 1"));
    assert_int_equal(step(c, &m, 2, INFINITY), PL_OK);
    assert_non_null(strstr(m.warning, "loss is not finite"));
    assert_int_equal(pl_collaborative_epoch(c), 0);
    set_gradient(&m, 3);
    assert_int_equal(step(c, &m, 4, 1), PL_OK);
    assert_int_equal(pl_collaborative_epoch(c), 1);
    assert_float_equal(m.given[0], 3, 1e-6);
    pl_collaborative_close(c);
}

/* The second peer begins elsewhere, and goes on from the first one's values. */
static void newcomer_takes_over(struct pl_collaborative_options o)
{
    struct model a, b;
    struct pl_collaborative *first = open_filled(&a, 1, NULL, o), *second;
    set_gradient(&a, 2);
    assert_int_equal(step(first, &a, 4, 1), PL_OK);
    assert_int_equal(pl_collaborative_epoch(first), 1);
    assert_true(a.w[0] != 1 && a.at_event == a.w[0]);
    second = open_filled(&b, 50, pl_collaborative_address(first), o);
    assert_int_equal(b.loads, 1);
    assert_int_equal(pl_collaborative_epoch(second), 1);
    assert_memory_equal(a.w, b.w, sizeof a.w);
    assert_memory_equal(a.b, b.b, sizeof a.b);
    pl_collaborative_close(second);
    pl_collaborative_close(first);
}

static void newcomer_with_ours(void **state)
{
    struct pl_optimizer_options adam = pl_adam_options(0.01, 32);
    (void)state;
    newcomer_takes_over((struct pl_collaborative_options){ .optimizer = &adam, .lr = 0.1 });
}

static void newcomer_with_the_callers(void **state)
{
    (void)state;
    newcomer_takes_over((struct pl_collaborative_options){ .step = sgd });
}

/* Others' numbers may be the reason why steps fail, so a peer that has taken over a state goes on,
 * however often. From the 20th failure in a row on it asks for a state, within the common step. */
static void bad_steps_do_not_stop(void **state)
{
    struct pl_collaborative_options o = { .step = sgd };
    struct model a, b;
    struct pl_collaborative *first = open_filled(&a, 1, NULL, o), *second;
    (void)state;
    second = open_filled(&b, 50, pl_collaborative_address(first), o);
    assert_int_equal(b.loads, 1);
    pl_collaborative_close(first);
    set_gradient(&b, 2);
    b.bad_steps = 20;
    alarm(LIMIT); /* a step that never returns ends the program */
    for (int i = 0; i < 20; i++) assert_int_equal(step(second, &b, 4, 1), PL_OK);
    assert_int_equal(b.bad_steps, 0);
    assert_int_equal(pl_collaborative_epoch(second), 0);
    assert_int_equal(step(second, &b, 4, 1), PL_OK);
    assert_int_equal(pl_collaborative_epoch(second), 1);
    assert_int_equal(b.steps, 1);
    alarm(0);
    pl_collaborative_close(second);
}

/* With min_peers 2 the first step waits for the second peer; both count the samples of both. The
 * next one waits for no peer. */
static void *step_first(void *context)
{
    struct waiting_peer *p = context;
    p->rc = step(p->c, p->m, 4, 1);
    return NULL;
}

static void first_step_waits_for_peers(void **state)
{
    /* The first peer hears of the second one up to a second after that has begun its search. */
    struct pl_collaborative_options o = {
        .lr = 0.1, .min_peers = 2, .min_peers_timeout = LIMIT, .matchmaking_time = 5
    };
    struct model a, b;
    struct pl_collaborative *first = open_filled(&a, 1, NULL, o), *second;
    struct waiting_peer p = { first, &a, -1 };
    pthread_t thread;
    (void)state;
    set_gradient(&a, 1);
    assert_int_equal(pthread_create(&thread, NULL, step_first, &p), 0);
    second = open_filled(&b, 1, pl_collaborative_address(first), o);
    set_gradient(&b, 3);
    assert_int_equal(step(second, &b, 4, 1), PL_OK);
    pthread_join(thread, NULL);
    assert_int_equal(p.rc, PL_OK);
    assert_int_equal(a.peers, 2);
    assert_int_equal(b.peers, 2);
    assert_int_equal(a.global_samples, 8);
    assert_int_equal(b.global_samples, 8);
    pl_collaborative_close(second);
    assert_int_equal(step(first, &a, 4, 1), PL_OK);
    assert_int_equal(pl_collaborative_epoch(first), 2);
    assert_int_equal(a.warnings, 0);
    pl_collaborative_close(first);
}

/* No other peer comes: the peer says so, and begins alone. */
static void wait_for_peers_ends(void **state)
{
    struct pl_collaborative_options o = { .min_peers = 2, .min_peers_timeout = 1 };
    struct model m;
    struct pl_collaborative *c = open_filled(&m, 1, NULL, o);
    double began = pl_seconds();
    (void)state;
    set_gradient(&m, 1);
    assert_int_equal(step(c, &m, 4, 1), PL_OK);
    assert_true(pl_seconds() - began >= 1);
    assert_int_equal(pl_collaborative_epoch(c), 1);
    assert_int_equal(m.peers, 1);
    assert_int_equal(m.global_samples, 4);
    assert_non_null(strstr(m.warning, "only 1 of 2 peers have joined within 1 s"));
    pl_collaborative_close(c);
}

/* A delayed step comes some batches later; finish waits for it. */
static void delayed_step_is_finished(void **state)
{
    struct pl_collaborative_options o = { .delay = PL_DELAY_ROUND, .lr = 0.1 };
    struct model m;
    struct pl_collaborative *c = open_filled(&m, 1, NULL, o);
    (void)state;
    set_gradient(&m, 1);
    assert_int_equal(step(c, &m, 4, 1), PL_OK);
    assert_int_equal(pl_collaborative_finish(c, NULL), PL_OK);
    assert_int_equal(pl_collaborative_epoch(c), 1);
    assert_true(m.w[0] != 1 && m.at_event == m.w[0]);
    pl_collaborative_close(c);
}

static void refuses(const char *words, const struct pl_collaborative_run *run,
                    const struct pl_collaborative_tensor *t, size_t count,
                    const struct pl_collaborative_options *o)
{
    struct pl_collaborative *c = (struct pl_collaborative *)&c;
    struct pl_err err = { "" };
    assert_int_equal(pl_collaborative_open(&c, run, t, count, o, &err), PL_EUSE);
    assert_null(c);
    if (!strstr(err.text, words)) fail_msg("'%s' has no '%s'", err.text, words);
}

static void arguments_are_checked(void **state)
{
    float value[4] = { 0 };
    const struct pl_collaborative_node unsigned_node = { (struct swarm *)value, NULL };
    const struct pl_collaborative_run good = { .name = "r" }, nameless = { .name = "" },
                                      alone = { .name = "r", .client_mode = 1 },
                                      keyless = { .name = "r", .node = &unsigned_node };
    const struct pl_collaborative_tensor one = { "x", 1, { 4 }, value, 0 },
                                         empty = { "x", 2, { 4, 0 }, value, 0 },
                                         deep = { "x", 9, { 1 }, value, 0 },
                                         nowhere = { "x", 1, { 4 }, NULL, 0 };
    const struct pl_collaborative_options usual = { .target_batch = 4 },
                                          method = { .compression = "zip" },
                                          bits = { .group_bits = "012" }, past = { .epoch = -1 };
    (void)state;
    refuses("no name", &nameless, &one, 1, &usual);
    refuses("needs an initial peer", &alone, &one, 1, &usual);
    refuses("without the key", &keyless, &one, 1, &usual);
    refuses("no tensors", &good, NULL, 0, &usual);
    refuses("x: 0 elements along axis 1", &good, &empty, 1, &usual);
    refuses("x: 9 axes", &good, &deep, 1, &usual);
    refuses("x: no values", &good, &nowhere, 1, &usual);
    refuses("compression 'zip'", &good, &one, 1, &method);
    refuses("group bits '012'", &good, &one, 1, &bits);
    refuses("negative", &good, &one, 1, &past);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caller_steps_with_the_mean), cmocka_unit_test(bad_numbers_are_dropped),
        cmocka_unit_test(newcomer_with_ours),         cmocka_unit_test(newcomer_with_the_callers),
        cmocka_unit_test(delayed_step_is_finished),   cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(bad_steps_do_not_stop),      cmocka_unit_test(first_step_waits_for_peers),
        cmocka_unit_test(wait_for_peers_ends)
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
