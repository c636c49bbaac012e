/* optimizer_diverged.c - three peers over loopback, one of whose parameters are changed in memory
 * between two steps: it downloads another peer's state, and the others name it. By the public
 * header. */
#include "test/unit/net/await.h"
#include "net/hivemind/optimizer/optimizer_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define N 64
#define PEERS 3
#define SAMPLES 8
#define INNER 2
#define CHANGED_AT 4 /* epoch */
#define EPOCHS 40    /* at most */
#define LIMIT 120.0  /* s */
#define FAR 100.0f   /* a step is below 1 */

struct peer {
    int number, is_changed, loads, named, rc;
    const char *algorithm;
    const char *join;
    float w[N];
    int64_t last;
    struct pl_collaborative *c;
    struct pl_err err;
    pthread_t thread;
};

static char address[256], changed_name[PEER_ID_TEXT_MAX];
static int known, recovered;

/* Towards other values at each peer, but slowly: no peer's step is a divergence. */
static int sgd(void *context, const float *const *gradient, int64_t number, struct pl_err *err)
{
    struct peer *p = context;
    (void)number, (void)err;
    for (int i = 0; i < N; i++) p->w[i] -= 0.01f * gradient[0][i];
    return PL_OK;
}

/* An event's text may be the library's only until it returns. */
static void report(void *context, const struct pl_collaborative_event *e)
{
    struct peer *p = context;
    if (e->kind == PL_COLLABORATIVE_LOADED) p->loads++;
    if (e->kind == PL_COLLABORATIVE_WARNING) {
        printf("peer %d: %s\n", p->number, e->text);
        if (!strstr(e->text, "have diverged from those of its group")) return;
        assert_non_null(strstr(e->text, changed_name));
        p->named++;
        note(&recovered);
    }
}

static void open_peer(struct peer *p)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const struct pl_collaborative_run run = { .name = "diverged",
                                              .listen = listen,
                                              .listen_count = 1,
                                              .initial_peers = &p->join,
                                              .initial_peer_count = p->join != NULL };
    const struct pl_collaborative_tensor tensors[] = { { "w", 1, { N }, p->w, 0 } };
    const int has_local_steps = !pl_outer_find(p->algorithm)->sends_gradients;
    const struct pl_collaborative_options o = {
        .algorithm = p->algorithm,
        .inner_steps = has_local_steps ? INNER : 0,
        .target_batch = has_local_steps ? SAMPLES : PEERS * SAMPLES,
        .average_state_every = 1000, /* a mean with the changed parameters would hide the change */
        .step = sgd,
        .compression = "float16", /* so peers differ by rounding */
        .matchmaking_time = 2,
        .averaging_timeout = 30,
        .allreduce_timeout = 10,
        .report = report,
        .context = p
    };
    for (int i = 0; i < N; i++) p->w[i] = 1 + 0.1f * (float)i;
    if (pl_collaborative_open(&p->c, &run, tensors, 1, &o, &p->err)) fail_msg("%s", p->err.text);
}

/* What a bad memory chip or a program's mistake does to the parameters that the peers have in
 * common: with local steps phi. */
static void change(struct peer *p)
{
    float *phi = p->c->outer.state ? pl_outer_get(p->c->outer.state, "phi") : NULL;
    float *x = phi ? phi : p->c->trainer.value;
    for (int i = 0; i < N; i++) x[i] += FAR * (float)(i % 3);
    p->loads = 0; /* it may have begun with a state of the others */
    p->is_changed = 1;
}

static int step(struct peer *p, int64_t samples)
{
    float g[N];
    const float *gradient[] = { g };
    for (int i = 0; i < N; i++)
        g[i] = fmaxf(-1, fminf(1, p->w[i] - 0.3f * (float)((i + p->number) % 7)));
    return pl_collaborative_step(p->c, gradient, samples, 1, &p->err);
}

static void *train(void *context)
{
    struct peer *p = context;
    const struct timespec nap = { 0, 250000000 }; /* the digests have to be there in time */
    const int changes = p->number == PEERS - 1;
    int is_known = 0;
    p->rc = step(p, 1);
    while (!p->rc && pl_collaborative_epoch(p->c) < EPOCHS && noted(&recovered) < PEERS) {
        struct pl_collaborative_status s;
        pl_collaborative_status(p->c, &s);
        if (s.peers == PEERS && !is_known) {
            is_known = 1;
            note(&known);
        }
        if (changes && s.epoch >= CHANGED_AT && !p->is_changed) change(p);
        if (p->is_changed && p->loads && p->is_changed++ == 1) note(&recovered);
        nanosleep(&nap, NULL);
        p->rc = step(p, noted(&known) < PEERS ? 0 : SAMPLES);
    }
    p->last = p->c ? pl_collaborative_epoch(p->c) : 0;
    return NULL;
}

static void changed_peer_is_named(const char *algorithm)
{
    struct peer p[PEERS];
    memset(p, 0, sizeof p);
    known = recovered = 0;
    for (int r = 0; r < PEERS; r++) {
        p[r].number = r;
        p[r].algorithm = algorithm;
        if (r) p[r].join = address;
        open_peer(&p[r]);
        if (!r) snprintf(address, sizeof address, "%s", pl_collaborative_address(p[0].c));
    }
    snprintf(changed_name, sizeof changed_name, "%s",
             strrchr(pl_collaborative_address(p[PEERS - 1].c), '/') + 1);
    for (int r = 0; r < PEERS; r++) pthread_create(&p[r].thread, NULL, train, &p[r]);
    for (int r = 0; r < PEERS; r++) pthread_join(p[r].thread, NULL);
    for (int r = 0; r < PEERS; r++)
        if (p[r].rc) fail_msg("peer %d: %s", r, p[r].err.text);
    printf("%s: epochs %lld, %lld, %lld\n", algorithm, (long long)p[0].last, (long long)p[1].last,
           (long long)p[2].last);
    assert_int_equal(recovered, PEERS);
    assert_int_equal(p[0].named, 1);
    assert_int_equal(p[1].named, 1);
    assert_int_equal(p[2].named, 0);
    /* Its state is another peer's, at most an epoch older or newer. */
    for (int i = 0; i < N; i++) assert_float_equal(p[2].w[i], p[0].w[i], FAR / 2);
    for (int r = 0; r < PEERS; r++) pl_collaborative_close(p[r].c);
}

static void of_gradients(void **state)
{
    (void)state;
    changed_peer_is_named("gradients");
}

static void of_diloco(void **state)
{
    (void)state;
    changed_peer_is_named("diloco");
}

static void of_demo(void **state)
{
    (void)state;
    changed_peer_is_named("demo");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(of_gradients), cmocka_unit_test(of_diloco),
                                        cmocka_unit_test(of_demo) };
    alarm((unsigned)(3 * LIMIT));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
