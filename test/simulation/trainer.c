/* trainer.c - an honest peer: trains a quadratic by the public collaborative optimizer and saves
 * checkpoints, as a program of a user would.
 *
 *   loss = |x - optimum|^2 / 2, of which each batch sees a gradient with noise of its own
 */
#include "disk.h"
#include "plan.h"
#include "threads.h"

#include "data/files/file.h"
#include "data/files/json.h"
#include "data/models/checkpoint.h"
#include "net/hivemind/optimizer/optimizer_internal.h"
#include "net/hivemind/records/rsa_key.h"
#include "net/libp2p/peer/identity.h"
#include "runtime/backend_open.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDENTITY DISK_ROOT "identity"
#define NOISE 0.5f  /* of a batch's gradient */
#define KEYS 50     /* RSA keys: of peers' records, and of two authorities */
#define OWN_KEYS 48 /* of peers' records: given out in turn, one each time a peer starts */
#define SECRET DISK_ROOT "secret"
#define OUTER_MOMENTUM 0.3 /* with more, the loss still oscillates after twelve epochs */

struct trainer trainers[SIM_PEERS_MAX];

struct trainer *trainer_here(void)
{
    struct sim_peer *p = sim_peer_here();
    return p && p->index < plan.honest ? &trainers[p->index] : NULL;
}

int is_byzantine(const struct trainer *t) { return t->peer->index >= plan.honest; }

/* --- keys ------------------------------------------------------------------------------------- */

/* Making an RSA key takes a hundred times as long as all else a peer does to join. So they are made
 * once, by the same random numbers each time, and stay in a file. */
static struct bytes keys[KEYS];
int __real_rsa_key_make(struct rsa_key *k, struct pl_err *err);
int __wrap_rsa_key_make(struct rsa_key *k, struct pl_err *err);

int __wrap_rsa_key_make(struct rsa_key *k, struct pl_err *err)
{
    const struct sim_peer *p = sim_peer_here();
    const struct bytes *pem =
        &keys[((unsigned)p->index + p->boots * (unsigned)sim_peer_count) % OWN_KEYS];
    int rc;
    if (!bytes_length(pem)) sim_fail("no keys");
    rc = rsa_key_parse(k, bytes_at(pem), bytes_length(pem), err);
    return rc ? pl_fail(err, rc, "no memory for a key") : PL_OK;
}

int trainers_authority_key(struct rsa_key *key, int which)
{
    const struct bytes *pem = &keys[OWN_KEYS + which];
    return rsa_key_parse(key, bytes_at(pem), bytes_length(pem), NULL);
}

void trainers_make_keys(const char *path)
{
    FILE *f = fopen(path, "r");
    for (int i = 0; i < KEYS; i++) {
        struct rsa_key k;
        char line[128];
        while (f && fgets(line, sizeof line, f)) {
            bytes_add(&keys[i], line, strlen(line));
            if (strstr(line, "END")) break;
        }
        if (f) continue;
        if (__real_rsa_key_make(&k, NULL) || rsa_key_write(&keys[i], &k)) abort();
        rsa_key_clear(&k);
    }
    if (f || !(f = fopen(path, "w"))) return;
    for (int i = 0; i < KEYS; i++) fwrite(bytes_at(&keys[i]), 1, bytes_length(&keys[i]), f);
    fclose(f);
}

/* Averages are computed by the reference backend: no threads, no libraries of the machine. */
int __wrap_pl_backend_open(struct pl_backend *be, const char *name, struct pl_err *err);
int __wrap_pl_backend_open(struct pl_backend *be, const char *name, struct pl_err *err)
{
    (void)be;
    return pl_fail(err, PL_ENOTFOUND, "no backend %s", name);
}

static void *make_identity(void *argument)
{
    struct trainer *t = argument;
    struct identity me;
    char id[PEER_ID_TEXT_MAX];
    uint32_t ip = sim_address(t->peer);
    if (identity_file(&me, IDENTITY, NULL)) sim_fail("no identity");
    if (pl_file_write(SECRET, "secret", 6, NULL)) sim_fail("no secret");
    peer_id_text(id, &me.id);
    t->id = me.id;
    identity_clear(&me);
    snprintf(t->address, sizeof t->address, "/ip4/%u.%u.%u.%u/tcp/%d/p2p/%s", ip >> 24,
             ip >> 16 & 255, ip >> 8 & 255, ip & 255, PLAN_PORT, id);
    return NULL;
}

void trainer_prepare(struct trainer *t, struct sim_peer *p)
{
    t->peer = p;
    /* Byzantine peers accept connections: else nobody would ask them for a state or a mean. */
    t->is_client = p->index >= plan.honest - plan.clients && p->index < plan.honest;
    sim_thread_new(p, make_identity, t);
}

/* --- training --------------------------------------------------------------------------------- */

struct session {
    struct trainer *t;
    struct pl_backend be;
    struct pl_params params;
    struct pl_collaborative *c;
};

static int declare(struct session *s)
{
    static const char *const names[PLAN_TENSORS] = { "weight", "bias", "scale" };
    pl_backend_ref(&s->be);
    for (int i = 0; i < PLAN_TENSORS; i++) {
        int64_t shape[2] = { plan.rows[i], plan.columns[i] };
        int rc = pl_params_add(&s->params, names[i], 2, shape, 1);
        if (rc) return rc;
    }
    return pl_params_allocate(&s->params, &s->be, 1);
}

/* *epoch is that of the newest checkpoint; 0: there is none. A file that was complete once is
 * complete forever. */
static int load_newest(struct session *s, int64_t *epoch, struct pl_err *err)
{
    char *path;
    struct st_file *f;
    json_t *training;
    int rc = pl_checkpoint_newest(&path, DISK_ROOT, err);
    *epoch = 0;
    if (rc || !path) return rc;
    if (!(rc = pl_safetensors_open(&f, path, err))) {
        rc = pl_checkpoint_load_params(&s->params, f, pl_checkpoint_exact, err);
        if (!rc && (training = pl_checkpoint_json(f, "training", err))) {
            *epoch = json_integer_value(json_object_get(training, "step"));
            json_decref(training);
        } else if (!rc) rc = pl_json_status();
        pl_safetensors_close(f);
    }
    free(path);
    return rc;
}

static void save(struct session *s, int64_t epoch)
{
    char path[64];
    struct pl_err err = { "" };
    struct pl_checkpoint c = { .params = &s->params,
                               .training = json_pack("{s:I}", "step", (json_int_t)epoch) };
    int rc;
    snprintf(path, sizeof path, DISK_ROOT "checkpoint-%lld.safetensors", (long long)epoch);
    rc = c.training ? pl_checkpoint_save(&c, path, &err) : PL_ENOMEM;
    if (!rc) rc = pl_checkpoint_prune(DISK_ROOT, 2, &err);
    json_decref(c.training);
    sim_log("peer %d saves epoch %lld: %d %s", s->t->peer->index, (long long)epoch, rc, err.text);
    if (!rc) s->t->saved = epoch;
}

/* The values that peers share: with outer steps phi, not what our inner steps have made of it. */
static const float *shared_values(struct session *s, size_t i)
{
    if (!s->c || !s->c->outer.state) return pl_params_value(&s->params, i);
    return pl_outer_get(s->c->outer.state, "phi") + s->c->trainer.state->tensors[i].offset;
}

static void measure_distance(struct session *s)
{
    double sum = 0;
    size_t at = 0;
    for (size_t i = 0; i < s->params.count; i++) {
        const float *x = shared_values(s, i);
        for (size_t k = 0; k < s->params.list[i].n; k++, at++) {
            s->t->shared[at] = x[k];
            sum += ((double)x[k] - plan.optimum[at]) * ((double)x[k] - plan.optimum[at]);
        }
    }
    s->t->distance = sqrt(sum);
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    struct session *s = context;
    measure_distance(s);
    checks_event(s->t, e);
    if (e->kind == PL_COLLABORATIVE_EPOCH && e->status.epoch % plan.checkpoint_every == 0)
        save(s, e->status.epoch);
}

/* x -= lr * g */
static int take_own_step(void *context, const float *const *gradient, int64_t epoch,
                         struct pl_err *err)
{
    struct session *s = context;
    (void)epoch, (void)err;
    for (size_t i = 0; i < s->params.count; i++) {
        float *x = pl_params_value(&s->params, i);
        for (size_t k = 0; k < s->params.list[i].n; k++) x[k] -= 0.2f * gradient[i][k];
    }
    return PL_OK;
}

static double compute_gradient(struct session *s, const float **gradient)
{
    struct sim_random *r = &s->t->peer->random;
    const float factor = byzantine_gradient();
    double loss = 0;
    size_t at = 0;
    for (size_t i = 0; i < s->params.count; i++) {
        const float *x = pl_params_value(&s->params, i);
        float *g = pl_params_grad(&s->params, i);
        gradient[i] = g;
        for (size_t k = 0; k < s->params.list[i].n; k++, at++) {
            float d = x[k] - plan.optimum[at];
            loss += 0.5 * d * d;
            g[k] = factor * (d + NOISE * (float)(2 * sim_random_uniform(r) - 1));
        }
    }
    return loss;
}

static void sleep_for(double s)
{
    struct timespec t = { (time_t)s, (long)((s - floor(s)) * 1e9) };
    nanosleep(&t, NULL);
}

/* Peers go on until all honest ones have made the last epoch: a late one needs the others. */
static int is_over(void)
{
    for (int i = 0; i < plan.honest; i++)
        if (!trainers[i].is_done && (!plan.goal || trainers[i].epoch < plan.goal)) return 0;
    return 1;
}

static int train(struct session *s, struct pl_err *err)
{
    const float *gradient[PLAN_TENSORS];
    struct trainer *t = s->t;
    int rc = PL_OK;
    while (!rc && !is_over()) {
        double loss = compute_gradient(s, gradient);
        double pause = plan.batch_seconds * t->peer->slowness *
                       sim_random_between(&t->peer->random, 0.8, 1.2);
        sleep_for(pause);
        rc = pl_collaborative_step(s->c, gradient, byzantine_samples(), loss, err);
    }
    return rc;
}

static void *run_session(void *argument)
{
    struct trainer *t = argument;
    struct session *s = __real_calloc(1, sizeof *s);
    struct pl_collaborative_tensor tensors[PLAN_TENSORS];
    struct pl_optimizer_options adam = pl_adam_options(0, 32);
    struct pl_collaborative_options o = { .target_batch = plan.target_batch,
                                          .optimizer = &adam,
                                          .lr = 0.1,
                                          .report = report,
                                          .context = s,
                                          .delay = plan.delay,
                                          .compression = plan.compression,
                                          .algorithm = plan.algorithm,
                                          .inner_steps = plan.inner_steps,
                                          .outer_momentum = OUTER_MOMENTUM,
                                          .group_size = plan.group_size,
                                          .group_bits = plan.group_bits,
                                          .matchmaking_time = plan.matchmaking_time,
                                          .averaging_timeout = plan.averaging_timeout,
                                          .allreduce_timeout = plan.allreduce_timeout,
                                          .clip = plan.clip,
                                          .verify = plan.verify };
    const char *others[SIM_PEERS_MAX], *listen = "/ip4/0.0.0.0/tcp/4001";
    struct pl_collaborative_run run = { .name = "sim",
                                        .initial_peers = others,
                                        .listen = &listen,
                                        .listen_count = 1,
                                        .identity = IDENTITY,
                                        .authority = plan.moderated ? "https://authority" : NULL,
                                        .token_file = plan.moderated ? SECRET : NULL,
                                        .client_mode = t->is_client,
                                        .no_port_mapping = 1 };
    struct pl_err err = { "" };
    int rc;
    s->t = t;
    /* Up to three that accept connections. The first peer begins the run, and does it again if it
     * has found nobody: else peers that all start at once could wait for each other. */
    for (int i = 0; i < plan.honest && run.initial_peer_count < 3; i++)
        if (&trainers[i] != t && !trainers[i].is_client && (t->peer->index || t->has_joined))
            others[run.initial_peer_count++] = trainers[i].address;
    if (plan.method == METHOD_OWN_STEP) o.step = take_own_step;
    rc = declare(s);
    if (!rc) rc = load_newest(s, &o.epoch, &err);
    if (!rc) measure_distance(s);
    if (!plan.first_distance) plan.first_distance = t->distance;
    checks_boot(t, rc ? -1 : o.epoch);
    if (rc && rc != PL_ENOMEM && !is_byzantine(t))
        sim_fail("peer %d: the newest checkpoint cannot be loaded: %s", t->peer->index, err.text);
    for (size_t i = 0; !rc && i < PLAN_TENSORS; i++)
        tensors[i] = (struct pl_collaborative_tensor){ .name = s->params.list[i].name,
                                                       .dims = 2,
                                                       .shape = { plan.rows[i], plan.columns[i] },
                                                       .value = pl_params_value(&s->params, i) };
    if (!rc) rc = pl_collaborative_open(&s->c, &run, tensors, PLAN_TENSORS, &o, &err);
    if (!rc) rc = train(s, &err);
    if (!rc) rc = pl_collaborative_finish(s->c, &err);
    if (!rc) {
        save(s, pl_collaborative_epoch(s->c));
        t->is_done = 1;
    } else checks_error(t, rc, err.text);
    pl_collaborative_close(s->c);
    pl_params_clear(&s->params);
    __real_free(s);
    t->is_running = 0;
    sim_log("peer %d has ended", t->peer->index);
    if (rc) faults_boot_after(t, sim_random_between(&sim_order, 1, 15));
    return NULL;
}

void trainer_boot(struct trainer *t)
{
    t->peer->is_on = 1;
    t->boot++;
    t->is_running = 1;
    t->failures_at_boot = t->peer->malloc_failures;
    sim_log("peer %d boots", t->peer->index);
    sim_thread_new(t->peer, run_session, t);
}
