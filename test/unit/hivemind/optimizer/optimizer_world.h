/* optimizer_world.h - two peers of the collaborative optimizer in one process, one with delayed updates, and gates that order
 * their batches, rounds and steps. Included by one file of each test program. */
#ifndef PL_TEST_OPTIMIZER_WORLD_H
#define PL_TEST_OPTIMIZER_WORLD_H

#include "test/unit/net/await.h"
#include "net/hivemind/swarm/swarm.h"
#include "net/hivemind/training/training.h"
#include "net/hivemind/optimizer/optimizer_trainer.h"
#include "runtime/backend_open.h"

#include <dlfcn.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define N 640 /* two tensors, one after the other */
#define EPOCHS 4
#define SAMPLES 2048 /* of a batch: two are the target */
#define TARGET 4096
#define SAMPLES_MAX (TRAINING_WEIGHT_MAX * TARGET) /* of one peer in a round */
#define KNOWN 8 /* of the first one, with which a peer becomes known: far from any target */
#define LOG_MAX 20000
#define LIMIT 120.0 /* s that a gate may stay shut */
#define RATE 0.01

enum { DELAYED, WAITING, PEERS };

struct entry {
    char what;
    int64_t samples;
}; /* 'b' batch, 'd' departure, 'i' new parameters are in */

struct peer {
    struct swarm swarm;
    struct rsa_key key;
    struct validators validators;
    char address[MULTIADDR_TEXT_MAX];
    struct pl_optimizer *optimizer;
    struct optimizer_state state;
    float *value, *grad, *delayed_value, *delayed_grad;
    int number, is_known, steps;
    int64_t samples, batches, epoch;
    struct entry log[LOG_MAX];
    size_t entries;
    int status[EPOCHS + 1]; /* of each epoch's round */
    size_t group[EPOCHS + 1];
    pthread_t thread;
    int rc;
    struct pl_err err;
};

static struct pl_backend be; /* the models' */
static struct pl_backend host;
static struct peer peers[PEERS];
/* Events noted so far, under await.h's lock. */
static int known, departures, batches, stepping, batches_at[EPOCHS + 1],
    waiter_batches_at[EPOCHS + 1];
static int
    extra; /* batches that the delayed peer makes in its round before the other comes to it */
static int verified;    /* rounds are, by BTARD */
static int hold_steps;  /* its step ends only after the batch that follows its departure */
static int hold_copies; /* its gradient's copy to the host waits for a batch */
static int copies_held;
static _Thread_local int is_training;

static const struct pl_optimizer_tensor tensors[] = { { 0, 600, 0.045, NULL, 0 },
                                                      { 608, 32, 0.045, NULL, 0 } };
static const struct pl_wire_type types[] = { { .dtype = PL_F32, .dims = 2, .size = { 20, 30 } },
                                             { .dtype = PL_F32, .dims = 1, .size = { 32 } } };

/* --- the toy, the same for the peers and for the replay -------------------------- */

/* grad and value: be's memory, as all buffers below except those that `host` averages. */
static int add_gradient(float *grad, const float *value, int peer, int64_t batch, int64_t samples)
{
    float g[N], v[N];
    int rc = be.get(g, grad, sizeof g);
    if (!rc) rc = be.get(v, value, sizeof v);
    for (int i = 0; i < N; i++)
        if (v[i] != 0)
            g[i] += (float)samples *
                    (v[i] - 0.01f * (float)((i * 7 + peer * 13 + batch * 5) % 101));
    return rc ? rc : be.put(grad, g, sizeof g);
}

static float *new_values(void)
{
    float *value = be.alloc(N * sizeof *value), v[N];
    assert_non_null(value);
    for (int i = 0; i < N; i++) v[i] = i < 600 || i >= 608 ? 1 + 0.001f * (float)i : 0;
    assert_int_equal(be.put(value, v, sizeof v), PL_OK);
    return value;
}

static float *new_zeros(void)
{
    float *x = be.alloc(N * sizeof *x);
    assert_non_null(x);
    return x;
}

static int take_step(struct pl_optimizer *o, float *value, float *grad)
{
    return pl_optimizer_step(o, value, grad, RATE);
}

static void put_down(struct peer *p, char what, int64_t samples)
{
    assert_true(p->entries < LOG_MAX);
    p->log[p->entries++] = (struct entry){ what, samples };
}

/* --- a trainer -------------------------------------------------------------------------------- */

static int gate(const int *flag, int n, struct pl_err *err)
{
    return await_noted(flag, n, LIMIT)
               ? PL_OK
               : pl_fail(err, PL_EIO, "%d of %d after %g s", *flag, n, LIMIT);
}

/* The delayed one begins; the other comes to the round when the first has made this many batches
 * more. */
static int wait_for_departure(const struct peer *p, struct pl_err *err)
{
    int rc = gate(&departures, p->steps + 1, err), more = p->steps + 1 < EPOCHS ? extra : 0;
    if (!rc) rc = gate(&batches, batches_at[p->steps] + more, err);
    /* In a verified round the first one has to stop by itself, before it has too many samples. */
    if (!rc && verified) await_noted(&batches, batches_at[p->steps] + SAMPLES_MAX / SAMPLES, 1);
    if (!rc) waiter_batches_at[p->steps] = noted(&batches);
    return rc;
}

static int batch(struct peer *p, int64_t *samples, double *loss, struct pl_err *err)
{
    struct timespec nap = { 0, 20000000 };
    int rc;
    *loss = 1;
    *samples = p->batches ? SAMPLES : KNOWN;
    if (p->batches && noted(&known) < PEERS) *samples = 0;
    else if (p->batches && p->number == WAITING && (rc = wait_for_departure(p, err))) return rc;
    nanosleep(&nap,
              NULL); /* not infinitely fast: when the target will be reached is estimated, too */
    if (!*samples) return PL_OK;
    if ((rc = add_gradient(p->grad, p->value, p->number, p->batches, *samples))) return rc;
    put_down(p, 'b', *samples);
    p->samples += *samples;
    p->batches++;
    if (p->number == DELAYED) note(&batches);
    return PL_OK;
}

static void drop(struct peer *p)
{
    assert_int_equal(be.fill(p->grad, 0, N), PL_OK);
    p->samples = 0;
}

static int step_delayed(struct peer *p, int64_t epoch, struct pl_err *err);
static int step(void *context, int64_t epoch, int delayed, struct pl_err *err)
{
    struct peer *p = context;
    int rc;
    if (delayed) return step_delayed(p, epoch, err);
    rc = take_step(p->optimizer, p->value, p->grad);
    put_down(p, 'd', 0);
    put_down(p, 'i', 0);
    drop(p);
    p->steps++;
    return rc;
}

static int take_gradient(void *context, int delayed, float **gradient)
{
    struct peer *p = context;
    int rc = be.scale(p->grad, 1 / (float)p->samples, N);
    *gradient = delayed ? p->delayed_grad : p->grad;
    if (rc || !delayed) return rc;
    rc = be.copy(p->delayed_grad, p->grad, N);
    put_down(p, 'd', 0);
    drop(p);
    if (departures <= EPOCHS) batches_at[departures] = noted(&batches);
    note(&departures);
    return rc;
}

/* On the device: a thread that waits for the gradient's way down gets it only after a batch that was
 * begun since, so that must be another thread than the batches'. */
static int (*device_copy_end)(uint64_t ticket);
static int held_copy_end(uint64_t ticket)
{
    int away = noted(&departures);
    if (hold_copies && !is_training && copies_held < away && away < EPOCHS) {
        copies_held = away;
        if (!await_noted(&batches, batches_at[away - 1] + 1, LIMIT)) return PL_EIO;
    }
    return device_copy_end(ticket);
}

/* With PL_DELAY_STEP the gradient departs and its step begins within one call of
 * pl_collaborative_step, so the next batch always overlaps with the step. The wait counts from the
 * departure, not from this thread's start: a thread that starts late would wait for a second batch,
 * while the next departure waits for this step. */
static int step_delayed(struct peer *p, int64_t epoch, struct pl_err *err)
{
    int rc = be.copy(p->delayed_value, p->value, N);
    if (!rc) rc = take_step(p->optimizer, p->delayed_value, p->delayed_grad);
    if (!rc && hold_steps && epoch + 1 < EPOCHS) {
        rc = gate(&batches, batches_at[p->steps] + 1, err);
        if (!rc) note(&stepping);
    }
    return rc;
}

static int change(void *context, enum trainer_change change, int64_t epoch)
{
    struct peer *p = context;
    if (change == TRAINER_DROP) drop(p);
    if (change != TRAINER_APPLY) return PL_OK;
    put_down(p, 'i', 0);
    p->steps++;
    return be.copy(p->value, p->delayed_value, N);
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    struct peer *p = context;
    if (!p->is_known && e->status.peers == PEERS) {
        p->is_known = 1;
        note(&known);
    }
    if (e->kind == PL_COLLABORATIVE_EPOCH && p->steps <= EPOCHS) {
        p->status[p->steps - 1] = e->round.status;
        p->group[p->steps - 1] = e->round.peers;
        if (e->round.status) printf("peer %d, epoch %d: %s\n", p->number, p->steps, e->round.why);
    }
    if (e->kind == PL_COLLABORATIVE_WARNING) printf("peer %d: %s\n", p->number, e->text);
}

static void *train_loop(void *context)
{
    struct peer *p = context;
    struct pl_collaborative_trainer trainer = { .state = &p->state,
                                                .value = p->value,
                                                .context = p,
                                                .take_gradient = take_gradient,
                                                .step = step,
                                                .change = change,
                                                .overlaps = 1 };
    const struct pl_collaborative_node node = { &p->swarm, &p->key };
    struct pl_collaborative_run run = { .name = "delay", .node = &node };
    struct pl_collaborative_options o = { .compression = "none",
                                          .target_batch = TARGET,
                                          .lr = RATE,
                                          .epochs = EPOCHS,
                                          .average_state_every = 1000,
                                          .verify = verified,
                                          .matchmaking_time = 5,
                                          .averaging_timeout = 60,
                                          .allreduce_timeout = 60,
                                          .fresh = 1,
                                          .report = report,
                                          .context = p,
                                          .trainer = &trainer };
    struct pl_collaborative *c = NULL;
    if (p->number == DELAYED) o.delay = hold_steps ? PL_DELAY_STEP : PL_DELAY_ROUND;
    is_training = 1;
    p->rc = pl_collaborative_open(&c, &run, NULL, 0, &o, &p->err);
    while (!p->rc && pl_collaborative_epoch(c) < EPOCHS) {
        int64_t samples;
        double loss;
        p->rc = batch(p, &samples, &loss, &p->err);
        if (!p->rc) p->rc = pl_collaborative_step(c, NULL, samples, loss, &p->err);
    }
    if (!p->rc) p->rc = pl_collaborative_finish(c, &p->err);
    if (c) p->epoch = pl_collaborative_epoch(c);
    pl_collaborative_close(c);
    return NULL;
}

static void open_peer(struct peer *p, int number)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const char *join = peers[0].address;
    struct pl_optimizer_options lamb = pl_lamb_options();
    struct swarm_options o = { .cmd = "test",
                               .listen = listen,
                               .listen_count = 1,
                               .join = &join,
                               .join_count = number > 0,
                               .validators = &p->validators };
    memset(p, 0, sizeof *p);
    p->number = number;
    lamb.min_8bit = 0;
    assert_int_equal(rsa_key_make(&p->key, &p->err), PL_OK);
    p->validators.key = &p->key;
    assert_int_equal(validators_add_run(&p->validators, "delay"), PL_OK);
    if (swarm_open(&p->swarm, &o, &p->err) || swarm_wait_joined(&p->swarm, 0, &p->err))
        fail_msg("%s", p->err.text);
    assert_int_equal(swarm_address_for_others(&p->swarm, p->address), PL_OK);
    p->value = new_values();
    p->grad = new_zeros();
    p->delayed_value = new_zeros();
    p->delayed_grad = new_zeros();
    assert_int_equal(pl_optimizer_open(&p->optimizer, &be, &lamb, tensors, 2, &p->err), PL_OK);
    assert_int_equal(optimizer_state_open(&p->state, p->optimizer, &lamb, &be, tensors, types, 2,
                                          &p->err),
                     PL_OK);
}

/* A peer that was never opened, or is closed already, may be closed. */
static void close_peer(struct peer *p)
{
    if (p->swarm.host) swarm_close(&p->swarm);
    rsa_key_clear(&p->key);
    optimizer_state_close(&p->state);
    pl_optimizer_close(p->optimizer);
    be.free(p->value);
    be.free(p->grad);
    be.free(p->delayed_value);
    be.free(p->delayed_grad);
    memset(p, 0, sizeof *p);
}

#endif
