/* training_world.h - peers that train a toy model together in one process over loopback, each with
 * its own thread, for the tests of training.h. Included by one file of each test program. */
#ifndef PL_TEST_TRAINING_WORLD_H
#define PL_TEST_TRAINING_WORLD_H

#include "test/unit/net/await.h"
#include "net/hivemind/progress/liveness.h"
#include "net/hivemind/training/training.h"
#include "net/hivemind/optimizer/optimizer_state.h"
#include "net/libp2p/libp2p.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#define TRAINERS 3
#define PEERS (TRAINERS + 1) /* and one that only reports that it trains */
#define TENSORS 2
#define SIZES \
    { \
        600, 40 \
    }
#define TOTAL 672 /* padded to 16 */
#define TARGET 48
#define BATCH 8
#define LIMIT 120.0 /* s for anything */

static const size_t sizes[TENSORS] = SIZES;

struct peer {
    struct loop *loop;
    struct identity me;
    struct host *host;
    struct dht_node *dht;
    struct rsa_key key;
    struct validators validators;
    char address[MULTIADDR_TEXT_MAX];
    const char *join;
    int tries, stored;
    struct progress_record claim;
    struct pl_err err;

    struct training *c;
    struct pl_optimizer *optimizer;
    struct optimizer_state state;
    float value[TOTAL], grad[TOTAL], *host_tensor[TENSORS];
    pthread_t thread;
    int trains, leaves;
    int number, joins_late;
    int64_t caught_up; /* how often it was advised to */
    int64_t epoch, epochs, begun_at;
    int common; /* steps by a mean, noted */
    double nap;
};

static struct pl_backend be;
static int local_steps, clients; /* of the next peers */
static size_t part_peers;        /* the same */
static struct peer peers[PEERS];

static void on_joined(void *context, int status, const struct pl_err *err)
{
    struct peer *p = context;
    note(&p->tries);
}

static void open_dht(void *context)
{
    struct peer *p = context;
    struct dht_node_options o = { .join = &p->join,
                                  .join_count = p->join != NULL,
                                  .validators = &p->validators,
                                  .call_limit_s = LIMIT / 4 };
    struct multiaddr a;
    if (host_addresses(p->host, &a, 1)) multiaddr_text(p->address, &a);
    if (dht_node_open(&p->dht, p->host, &o, on_joined, p, &p->err)) p->dht = NULL;
}

static void close_dht(void *context)
{
    struct peer *p = context;
    dht_node_close(p->dht);
}

static void open_peer_for(struct peer *p, int number, size_t group_size)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct host_options o = { .me = &p->me, .listen = listen, .listen_count = 1 };
    struct pl_optimizer_options lamb = pl_lamb_options();
    const struct pl_optimizer_tensor tensors[TENSORS] = { { 0, 600, 0, NULL, 0 },
                                                          { 608, 40, 0.045, NULL, 0 } };
    const struct pl_wire_type types[TENSORS] = { { .dtype = PL_F32, .dims = 2, .size = { 20, 30 } },
                                                 { .dtype = PL_F32, .dims = 1, .size = { 40 } } };
    static const enum pl_compression method[TENSORS] = { PL_COMPRESS_FLOAT16, PL_COMPRESS_FLOAT16 };
    struct training_options c = { .run = "toy",
                                  .be = &be,
                                  .tensors = TENSORS,
                                  .method = method,
                                  .target_batch = TARGET,
                                  .local_steps = local_steps,
                                  .client_mode = clients,
                                  .part_peers = part_peers,
                                  .matchmaking_time = 2,
                                  .averaging_timeout = 40,
                                  .allreduce_timeout = 30,
                                  .average_state_every = 1,
                                  .group_size = group_size,
                                  .bandwidth = PL_BANDWIDTH_UNKNOWN };
    memset(p, 0, sizeof *p);
    p->number = number;
    p->join = number ? peers[0].address : NULL;
    lamb.min_8bit = 0;
    assert_int_equal(loop_open(&p->loop, &p->err), PL_OK);
    assert_int_equal(identity_make(&p->me, KEY_ED25519, &p->err), PL_OK);
    assert_int_equal(rsa_key_make(&p->key, &p->err), PL_OK);
    p->validators.key = &p->key;
    assert_int_equal(validators_add_run(&p->validators, "toy"), PL_OK);
    if (libp2p_open(&p->host, p->loop, &o, &p->err)) fail_msg("%s", p->err.text);
    loop_call(p->loop, open_dht, p);
    if (!p->dht) fail_msg("%s", p->err.text);
    assert_true(await_noted(&p->tries, 1, LIMIT));
    for (size_t i = 0; i < TOTAL; i++)
        p->value[i] = i < 600 || (i >= 608 && i < 648) ? 1 + 0.01f * (float)i : 0;
    assert_int_equal(pl_optimizer_open(&p->optimizer, &be, &lamb, tensors, TENSORS, &p->err),
                     PL_OK);
    assert_int_equal(optimizer_state_open(&p->state, p->optimizer, &lamb, &be, tensors, types,
                                          TENSORS, &p->err),
                     PL_OK);
    for (size_t t = 0; t < TENSORS; t++) {
        p->host_tensor[t] = pl_alloc(sizes[p->state.order[t]], sizeof(float));
        assert_non_null(p->host_tensor[t]);
    }
    c.host = p->host;
    c.node = p->dht;
    c.key = &p->key;
    c.schema = p->state.schema;
    if (training_open(&p->c, &c, &p->err)) fail_msg("%s", p->err.text);
}

static void open_peer(struct peer *p, int number) { open_peer_for(p, number, 0); }

static void join_trainer(struct peer *p)
{
    if (p->trains) pthread_join(p->thread, NULL);
    p->trains = 0;
}

/* As far as it was opened: a test that fails ends with its message, its threads stopped. */
static void close_peer(struct peer *p)
{
    if (!p->loop) return;
    join_trainer(p);
    training_close(p->c);
    if (p->dht) loop_call(p->loop, close_dht, p);
    if (p->host) host_close(p->host);
    loop_close(p->loop);
    identity_clear(&p->me);
    rsa_key_clear(&p->key);
    pl_optimizer_close(p->optimizer);
    optimizer_state_close(&p->state);
    for (size_t t = 0; t < TENSORS; t++) pl_free(p->host_tensor[t]);
    memset(p, 0, sizeof *p);
}

static int close_all(void **state)
{
    for (int i = 0; i < PEERS; i++) note(&peers[i].leaves);
    for (int i = PEERS; i-- > 0;) close_peer(&peers[i]);
    return 0;
}

/* --- a trainer -------------------------------------------------------------------------------- */

static int check(void *context, const struct state_load *l, struct pl_err *err)
{
    struct peer *p = context;
    return optimizer_state_check(&p->state, l, p->epoch, err);
}

static int take_over(struct peer *p)
{
    struct state_load l;
    struct pl_err err;
    int rc = training_load(p->c, INT64_MAX, check, p, &l, &err);
    if (!rc) rc = optimizer_state_take(&p->state, p->value, &p->epoch, &l, &err);
    state_load_clear(&l);
    return rc;
}

static void share(struct peer *p)
{
    struct state_snapshot *s = optimizer_state_snapshot(&p->state, p->value, p->epoch, 0.01, -1,
                                                        "");
    if (s) training_share(p->c, s);
}

static void correct(struct peer *p)
{
    struct training_round r;
    if (!training_corrected(p->c, &r) || r.status) return;
    optimizer_state_get(&p->state, p->host_tensor, p->value);
    training_correct(p->c, p->host_tensor);
    optimizer_state_put(&p->state, p->value, (const float *const *)p->host_tensor);
}

static void update(struct peer *p, int64_t samples)
{
    struct training_round r;
    be.scale(p->grad, 1 / (float)samples, TOTAL);
    optimizer_state_get(&p->state, p->host_tensor, p->grad);
    training_average(p->c, p->host_tensor, &r);
    if (!r.status) optimizer_state_put(&p->state, p->grad, (const float *const *)p->host_tensor);
    if (!r.status) note(&p->common);
    correct(p);
    pl_optimizer_step(p->optimizer, p->value, p->grad, 0.01);
    memset(p->grad, 0, sizeof p->grad);
    p->epoch++;
    optimizer_state_get(&p->state, p->host_tensor, p->value);
    training_advance(p->c, p->host_tensor);
    share(p);
    training_publish(p->c, 1.5, samples / BATCH, samples);
}

static void *train_loop(void *context)
{
    struct peer *p = context;
    struct timespec nap = { 0, (long)(p->nap * 1e9) };
    const double until = pl_seconds() + LIMIT;
    int64_t samples = 0;
    training_enter(p->c, p->epoch);
    do { /* a donor may be too slow to answer in time */
        if (!take_over(p)) training_enter(p->c, p->epoch);
    } while (p->joins_late && !p->epoch && pl_seconds() < until && !noted(&p->leaves));
    p->begun_at = p->epoch;
    share(p);
    while (p->epoch < p->epochs && !noted(&p->leaves)) {
        correct(p);
        for (size_t i = 0; i < TOTAL; i++) /* towards 0, and each a little somewhere else */
            if (p->value[i] != 0)
                p->grad[i] += BATCH * (p->value[i] + (i % 3 == (size_t)p->number ? 2 : 0));
        samples += BATCH;
        nanosleep(&nap, NULL);
        switch (training_add(p->c, BATCH, p->nap)) {
        case TRAINING_UPDATE:
            update(p, samples);
            samples = 0;
            break;
        case TRAINING_DIVERGED: /* not without digests (training_compare) */
        case TRAINING_CATCH_UP:
            p->caught_up++;
            memset(p->grad, 0, sizeof p->grad);
            samples = 0;
            if (!take_over(p)) training_enter(p->c, p->epoch);
            break;
        case TRAINING_WAIT:        /* not without min_peers */
        case TRAINING_WAIT_SLOWER: /* not without local_steps */
        case TRAINING_GO_ON: break;
        }
    }
    correct(p);
    return NULL;
}

static inline void begin_training(struct peer *p)
{
    assert_int_equal(pthread_create(&p->thread, NULL, train_loop, p), 0);
    p->trains = 1;
}

#endif
