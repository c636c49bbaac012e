/* optimizer_open.c - a peer's way into a run and out of it. [spec hivemind-protocol 7, 12]
 *
 *   join the DHT by the initial peers - open the averagers of gradients and parameters
 *   - read everybody's progress - download a state - share ours - (steps)
 *   - withdraw our progress - leave the DHT
 *
 * The order matters. Progress before the state: it says which epoch to expect. The state before
 * the first batch: samples of an untrained model would count for everybody's step. Withdrawal
 * before leaving: without it the others wait for a minute, a record's life. */
#include "optimizer_internal.h"
#include "net/hivemind/swarm/averaging.h"
#include "runtime/backend_open.h"

#include <stdlib.h>
#include <string.h>

/* --- the swarm -------------------------------------------------------------------------------- */

static void report_wait(void *context, const char *text) { collaborative_warn(context, text); }

/* A DHT node of our own; a caller that has one passes it instead. */
static int open_own_swarm(struct pl_collaborative *c, const struct pl_collaborative_run *run,
                          struct pl_err *err)
{
    struct collaborative_member *m = &c->member;
    static const char *const any[] = { "/ip4/0.0.0.0/tcp/0" };
    struct swarm_options o = { .listen = run->listen,
                               .listen_count = run->listen_count,
                               .announce = run->announce,
                               .announce_count = run->announce_count,
                               .join = run->initial_peers,
                               .join_count = run->initial_peer_count,
                               .identity = run->identity,
                               .no_port_mapping = run->no_port_mapping,
                               .validators = &m->validators };
    int rc;
    /* Any free port by default; others learn it from the DHT. A client does not listen at all: it
     * only dials. */
    if (!o.listen_count) o.listen = any, o.listen_count = 1;
    if (run->client_mode) o.listen_count = o.announce_count = 0;
    /* Records are signed by the caller's key, or by one of our own. */
    if (!m->key && (rc = rsa_key_make(&m->own_key, err))) return rc;
    if (!m->key) m->key = &m->own_key;
    m->validators.key = m->key;
    /* Validators refuse records of the run that are not signed, or do not fit their schemas.
     * [spec hivemind-protocol 2] */
    if ((rc = validators_add_run(&m->validators, run->name)))
        return pl_fail(err, rc, "the run's name '%.60s' is too long", run->name);
    /* Before anything else is sent to peers: those of a moderated run refuse every message without
     * a token. [spec hivemind-protocol 3] */
    m->membership = (struct membership){ .authority = run->authority,
                                         .token_file = run->token_file,
                                         .ca_file = run->authority_ca,
                                         .report = report_wait,
                                         .context = c };
    if ((rc = membership_open(&m->membership, &o.auth, err))) return rc;
    if ((rc = swarm_open(&m->own, &o, err))) return rc;
    m->swarm = &m->own;
    /* A peer that no initial peer accepts must not begin a run of its own by mistake. */
    return swarm_wait_joined(m->swarm, 0, err);
}

/* Also finds the address that others can join by, to show it to the user. */
static int join_swarm(struct pl_collaborative *c, const struct pl_collaborative_run *run,
                      struct pl_err *err)
{
    struct collaborative_member *m = &c->member;
    int rc = PL_OK;
    m->is_client = run->client_mode;
    if (run->node) m->swarm = run->node->swarm, m->key = run->node->key;
    if (!m->swarm) rc = open_own_swarm(c, run, err);
    if (!rc && swarm_address_for_others(m->swarm, m->address)) m->address[0] = 0;
    return rc;
}

/* Closes only what is ours: a caller's node keeps running. */
static void leave_swarm(struct collaborative_member *m)
{
    if (m->swarm == &m->own) swarm_close(&m->own);
    membership_close(&m->membership);
    rsa_key_clear(&m->own_key);
}

const char *pl_collaborative_address(struct pl_collaborative *c)
{
    return c->member.address[0] ? c->member.address : NULL;
}

/* --- the averagers ---------------------------------------------------------------------------- */

/* A validator's part in BTARD: computes a groupmate's gradient from its samples. The trainer
 * accumulates into its only gradient buffer, so ours is put back afterwards; c->host keeps it
 * until the round has been verified. */
static int recompute(void *context, const struct peer_id *peer, const struct verifier_claim *claim,
                     float *const *tensor)
{
    struct pl_collaborative *c = context;
    const struct pl_collaborative_trainer *t = &c->trainer;
    float *gradient;
    int rc = t->validation.recompute(t->context, peer, claim->epoch, claim->samples, &gradient);
    int back;
    if (!rc) rc = optimizer_state_get(t->state, tensor, gradient);
    back = optimizer_state_put(t->state, gradient, (const float *const *)c->host);
    return rc ? rc : back;
}

static int open_averagers(struct pl_collaborative *c, const char *run, struct pl_err *err)
{
    const struct optimizer_state *state = c->trainer.state;
    const struct trainer_validation *validation = &c->trainer.validation;
    const struct pl_collaborative_options *o = &c->o;
    struct training_options options = {
        .run = run,
        .host = c->member.swarm->host,
        .node = c->member.swarm->node,
        .key = c->member.key,
        .be = &c->be,
        .device = o->device,
        .own_name = o->own_name,
        .tensors = state->count,
        .schema = state->schema,
        /* From here on as hivemind.Optimizer names them. [spec hivemind-protocol 10] */
        /* OpenDiLoCo's target is that of an outer step. */
        .target_batch = c->outer.has_local_steps ? o->target_batch * o->inner_steps
                                                 : o->target_batch,
        .local_steps = c->outer.has_local_steps,
        .gathers = c->outer.gathers ? o->algorithm : NULL,
        .drawn_group = gather_drawn_group(c),
        .powersgd = collaborative_is_powersgd(o),
        .feedback = strcmp(o->algorithm, "powersgd_own") ? FACTORS_GROUP : FACTORS_OWN,
        .min_peers = o->min_peers,
        .min_peers_timeout = o->min_peers_timeout,
        .matchmaking_time = o->matchmaking_time,
        .averaging_timeout = o->averaging_timeout,
        .allreduce_timeout = o->allreduce_timeout,
        .average_state_every = o->average_state_every,
        .group_size = gather_group_size(c),
        .group_bits = o->group_bits,
        .bandwidth = o->bandwidth,
        .clip = c->outer.gathers ? 0 : o->clip,
        .verify = o->verify,
        .client_mode = c->member.is_client,
        .validation = { .validators = validation->validators,
                        .data = validation->data,
                        /* With delayed updates the trainer is busy with the next batches. */
                        .recompute = validation->recompute && !o->delay ? recompute : NULL,
                        .context = c }
    };
    enum pl_compression *method = calloc(state->count + 1, sizeof *method);
    /* A gradient and a parameter of the same tensor travel in the same form. */
    int rc = method ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t i = 0; !rc && i < state->count; i++)
        /* One method for each tensor: "run" takes 8 bits for large ones, float16 for the others,
         * by the size of the whole tensor. */
        rc = compression_named(&method[i], o->compression, state->tensors[state->order[i]].n,
                               PL_WIRE_ADAPTIVE);
    /* A factor by its own size. */
    if (!rc) rc = compression_named(&options.factor_method[0], o->compression, 1, PL_WIRE_ADAPTIVE);
    if (!rc)
        rc = compression_named(&options.factor_method[1], o->compression, PL_WIRE_ADAPTIVE,
                               PL_WIRE_ADAPTIVE);
    if (!rc && (!(c->host = optimizer_state_host(state)) || delayed_open(c)))
        rc = pl_fail(err, PL_ENOMEM, "no memory");
    options.method = method;
    if (!rc) rc = training_open(&c->training, &options, err);
    free(method);
    return rc;
}

/* --- open, close ------------------------------------------------------------------------------ */

/* Rounds average in host memory, whatever device computes: the fast backend if there is one. */
static void choose_backend(struct pl_collaborative *c)
{
    const struct pl_collaborative_trainer *t = c->o.trainer;
    if (t && !strcmp(t->state->be->name, "fast")) c->be = *t->state->be;
    else if (t || pl_backend_open(&c->be, "fast", NULL)) pl_backend_ref(&c->be);
}

/* Enters the run: a first view of the swarm, then its state. A peer that finds no other trains
 * from its own values, and a swarm of one is a swarm. */
static int enter_run(struct pl_collaborative *c, struct pl_err *err)
{
    struct pl_collaborative_event ready = { .kind = PL_COLLABORATIVE_READY };
    struct pl_err why = { "" };
    int loaded;
    /* Reads everybody's progress once, before anything of ours is reported. */
    training_enter(c->training, c->epoch);
    collaborative_report(c, &ready);
    if (collaborative_is_powersgd(&c->o) &&
        training_compress(c->training, &c->o.powersgd_rank, err))
        return PL_EIO;
    /* A state of the swarm replaces our values; PL_ENOTFOUND: no peer shares one, so we are the
     * first. */
    loaded = c->o.fresh ? PL_OK : collaborative_load(c, c->epoch, &why);
    /* A peer with another model would count in all peers' samples, while no peer could use its
     * gradients: it must not join. */
    if (loaded == PL_EUSE) return pl_fail(err, PL_EIO, "%s", why.text);
    if (loaded == PL_EIO) collaborative_warn(c, why.text);
    collaborative_share(c);
    /* Local steps from before a restart count for the round that they belong to. */
    if (c->o.fresh || loaded) local_report_steps(c);
    return PL_OK;
}

int pl_collaborative_open(struct pl_collaborative **out, const struct pl_collaborative_run *run,
                          const struct pl_collaborative_tensor *tensors, size_t count,
                          const struct pl_collaborative_options *options, struct pl_err *err)
{
    struct pl_collaborative *c = calloc(1, sizeof *c);
    struct pl_err own;
    int rc;
    if (!err) err = &own;
    *out = NULL;
    if (!c) return pl_fail(err, PL_ENOMEM, "no memory");
    pthread_mutex_init(&c->delayed.lock, NULL);
    if (options) c->o = *options;
    collaborative_set_defaults(&c->o);
    c->epoch = c->o.epoch;
    rc = collaborative_check_options(run, &c->o, err);
    if (!rc) choose_backend(c);
    /* A caller's trainer, or ours over the caller's plain tensors. */
    if (!rc && c->o.trainer) c->trainer = *c->o.trainer;
    else if (!rc)
        rc = collaborative_tensors_open(&c->tensors, &c->trainer, tensors, count, &c->o, &c->be,
                                        err);
    if (!rc) rc = local_open(c, err);
    if (!rc) rc = join_swarm(c, run, err);
    if (!rc) rc = open_averagers(c, run->name, err);
    if (!rc) rc = enter_run(c, err);
    /* close undoes whatever was opened, in reverse order. */
    if (rc) {
        c->failed = rc;
        pl_collaborative_close(c);
        return rc;
    }
    c->batch_began = pl_seconds();
    *out = c;
    return PL_OK;
}

void pl_collaborative_close(struct pl_collaborative *c)
{
    struct pl_collaborative_event end = { .kind = PL_COLLABORATIVE_END };
    struct pl_err why;
    if (!c) return;
    if (c->training) {
        /* A step on its way is finished: its samples have been counted by all. */
        if (!c->failed) pl_collaborative_finish(c, &why);
        delayed_wait_copied(c, &why); /* its thread uses c->training */
        collaborative_report(c, &end);
    }
    /* Withdraws our record, so that the others do not wait for us for a minute. */
    training_close(c->training);
    /* All rounds have ended, so no thread reads the buffers. */
    delayed_close(c);
    if (c->trainer.state) optimizer_state_host_free(c->trainer.state, c->host);
    leave_swarm(&c->member);
    overlap_close(c);
    local_close(c);
    collaborative_tensors_close(c->tensors);
    free(c);
}
