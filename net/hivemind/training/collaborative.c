/* collaborative.c - see collaborative.h. */
#include "collaborative_internal.h"
#include "net/hivemind/swarm/averaging.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TROUBLES_MAX 20   /* local failures in a row: numbers do not get better by themselves */
#define TROUBLE_PAUSE 1.0 /* s after so many, while others may help */

static void tell(struct loop_state *t, struct collaborative_event *e)
{
    collaboration_look(t->c, &e->view);
    e->view.epoch = t->epoch; /* of our parameters: a delayed step's epoch has begun before it */
    if (t->o->tell) t->o->tell(t->o->context, e);
}

static void trouble(struct loop_state *t, const char *text)
{
    struct collaborative_event e = { .kind = COLLABORATIVE_TROUBLE, .text = text };
    tell(t, &e);
}

static int is_interrupted(const struct loop_state *t)
{
    return t->o->interrupted && t->o->interrupted(t->o->context);
}

static int stopped(const struct loop_state *t, double began)
{
    return is_interrupted(t) || t->epoch >= t->o->epochs ||
           (t->o->seconds > 0 && pl_seconds() - began > t->o->seconds);
}

static void forget(struct loop_state *t)
{
    t->l->drop(t->l->context);
    memset(&t->now, 0, sizeof t->now);
}

static void share(struct loop_state *t)
{
    double lr = t->l->rate ? t->l->rate(t->l->context, t->epoch) : t->l->peak;
    struct state_snapshot *s;
    char bits[GROUP_BITS_MAX + 1];
    if (t->o->client_mode) return;
    collaboration_group_bits(t->c, bits);
    s = optimizer_state_snapshot(t->l->state, t->l->value, t->epoch, lr,
                                 t->l->rate ? t->l->peak : -1, bits);
    if (s) collaboration_share(t->c, s);
}

/* --- a peer's state --------------------------------------------------------------------------- */

struct wanted {
    struct loop_state *t;
    int64_t least;
};

/* On the network's thread, which is done with it when the load has ended. */
static int check(void *context, const struct state_load *state, struct pl_err *err)
{
    struct wanted *w = context;
    return optimizer_state_check(w->t->l->state, state, w->least, err);
}

/* PL_EUSE: nobody has one for our model, and most of the others have one for another. */
static int load(struct loop_state *t, int64_t least, struct pl_err *err)
{
    struct wanted w = { t, least };
    struct collaboration_view v;
    struct state_load state;
    struct collaborative_event e = { .kind = COLLABORATIVE_LOADED };
    double began = pl_seconds();
    /* One peer's word does not end the run. */
    int unconfirmed, rc = collaboration_load(t->c, t->o->epochs - 1, check, &w, &state, err);
    collaboration_look(t->c, &v);
    if (rc == PL_EUSE) {
        const struct pl_err misfit = *err;
        int most = 2 * state.misfits > v.peers - 1;
        rc = pl_fail(
            err, most ? PL_EUSE : PL_EIO,
            "the others have another model or optimizer: %.300s; "
            "your side, if they agree with one another: --config and --optimizer have to be "
            "theirs",
            misfit.text);
    }
    if (!rc) rc = optimizer_state_take(t->l->state, t->l->value, &t->epoch, &state, err);
    if (!rc) rc = t->l->moved(t->l->context, t->epoch);
    unconfirmed = state.confirmed < 2;
    state_load_clear(&state);
    if (rc) return rc;
    forget(t);
    t->has_mixed = 1;
    collaboration_set_epoch(t->c, t->epoch);
    e.seconds = pl_seconds() - began;
    e.text = unconfirmed
                 ? "its state comes from one donor that no other confirmed: with one donor alone, "
                   "it has to be trusted"
                 : NULL;
    tell(t, &e);
    share(t);
    return PL_OK;
}

/* The others say that they are ahead. Only a state of theirs proves it: without one we go on where
 * we are, with what has been accumulated. */
static void catch_up(struct loop_state *t)
{
    struct collaborative_event e = { .kind = COLLABORATIVE_BEHIND };
    struct pl_err err = { "" }, say;
    struct collaboration_view v;
    if (!t->told_behind) tell(t, &e);
    t->told_behind = 1;
    if (!load(t, t->epoch + 1, &err)) {
        t->told_behind = t->told_unshown = 0;
        return;
    }
    collaboration_look(t->c, &v);
    if (!v.is_unshown || t->told_unshown) return; /* it is tried again */
    t->told_unshown = 1;
    pl_fail(&say, PL_OK,
            "others claim to be ahead, and no state of theirs shows it (%.300s): we go "
            "on from step %lld",
            err.text, (long long)t->epoch);
    trouble(t, say.text);
}

/* --- steps ------------------------------------------------------------------------------------ */

/* What a round of the parameters has changed since they were copied is added to what they are
 * now. */
int collaborative_correct(struct loop_state *t)
{
    struct collaborative_event e = { .kind = COLLABORATIVE_CORRECTED };
    struct optimizer_state *state = t->l->state;
    int rc = PL_OK;
    if (!collaboration_corrected(t->c, &e.round)) return PL_OK;
    t->has_mixed |= !e.round.status;
    if (!e.round.status && !(rc = optimizer_state_get(state, t->host, t->l->value))) {
        collaboration_correct(t->c, t->host);
        rc = optimizer_state_put(state, t->l->value, (const float *const *)t->host);
    }
    if (!rc && e.round.ahead) {
        t->epoch++;
        collaboration_raise_epoch(t->c);
        rc = t->l->moved(t->l->context, t->epoch);
    }
    tell(t, &e);
    return rc;
}

/* What others have sent may have spoilt our numbers: that ends nobody's training but our own. */
int collaborative_is_hopeless(struct loop_state *t)
{
    return ++t->troubles >= TROUBLES_MAX && !t->has_mixed;
}

/* The others have stepped with the same gradient, or with theirs: their state is the cure. */
void collaborative_trouble(struct loop_state *t, const char *text)
{
    const struct timespec pause = { (time_t)TROUBLE_PAUSE, 0 };
    struct pl_err err;
    if (t->troubles <= TROUBLES_MAX) trouble(t, text);
    forget(t);
    if (t->troubles >= TROUBLES_MAX) {
        nanosleep(&pause, NULL);
        if (!load(t, t->epoch, &err)) return;
    }
    collaboration_set_epoch(t->c, t->epoch);
}

int collaborative_stepped(struct loop_state *t, const struct step_account *a,
                          const struct collaboration_round *round)
{
    struct collaborative_event e = { .kind = COLLABORATIVE_EPOCH,
                                     .samples = a->samples,
                                     .round = *round,
                                     .loss = a->samples ? a->loss / (double)a->samples : 0 };
    int rc = optimizer_state_get(t->l->state, t->host, t->l->value);
    if (rc) return rc;
    t->troubles = 0;
    t->epoch++;
    collaboration_advance(t->c, t->host);
    share(t);
    if (t->l->held_out) collaboration_held_out(t->c, t->l->held_out(t->l->context));
    collaboration_tell(t->c, a->batch_losses, a->batches, a->samples);
    e.seconds = pl_seconds() - a->began;
    tell(t, &e);
    return PL_OK;
}

static int update(struct loop_state *t, struct pl_err *err)
{
    struct optimizer_state *state = t->l->state;
    struct collaboration_round round;
    struct step_account account = t->now;
    int rc = t->l->mean(t->l->context);
    account.began = pl_seconds();
    if (!rc) rc = optimizer_state_get(state, t->host, t->l->grad);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    collaboration_average(t->c, t->host, &round);
    t->has_mixed |= !round.status;
    if (!round.status) rc = optimizer_state_put(state, t->l->grad, (const float *const *)t->host);
    if (!rc) rc = collaborative_correct(t);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    rc = t->l->step(t->l->context, t->epoch, err);
    if (rc == PL_EFORMAT && !collaborative_is_hopeless(t)) {
        collaborative_trouble(t, err->text);
        return PL_OK;
    }
    memset(&t->now, 0, sizeof t->now);
    return rc ? rc : collaborative_stepped(t, &account, &round);
}

static int one_batch(struct loop_state *t, struct pl_err *err)
{
    struct collaborative_event e = { .kind = COLLABORATIVE_BATCH };
    double began = pl_seconds(), loss = 0;
    int64_t samples = 0;
    enum collaboration_advice advice;
    struct pl_err remark;
    int rc = delayed_return(t, 0, err);
    if (!rc && t->delayed.at != FLIGHT_LEAVING) rc = collaborative_correct(t);
    if (!rc) rc = t->l->batch(t->l->context, &samples, &loss, err);
    if (rc == PL_EAGAIN && is_interrupted(t)) return PL_OK; /* it did not wait for its data */
    if (rc == PL_EFORMAT && !collaborative_is_hopeless(t)) {
        char text[sizeof err->text];
        memcpy(text, err->text, sizeof text);
        if ((rc = delayed_return(t, 1, err))) return rc;
        collaborative_trouble(t, text);
        return PL_OK;
    }
    if (!rc) rc = delayed_left(t, err);
    if (rc) return rc;
    t->now.samples += samples;
    t->now.batches++;
    t->now.loss += loss * (double)samples;
    t->now.batch_losses += loss;
    advice = collaboration_add(t->c, samples, pl_seconds() - began);
    while (collaboration_remarked(t->c, &remark)) trouble(t, remark.text);
    if (advice == COLLABORATION_CATCH_UP) {
        if ((rc = delayed_return(t, 1, err))) return rc;
        catch_up(t);
        return PL_OK;
    }
    e.due = advice == COLLABORATION_UPDATE;
    e.loss = loss;
    e.samples = t->now.samples;
    tell(t, &e);
    if (!e.due) return PL_OK;
    return t->o->delay == COLLABORATIVE_DELAY_NONE ? update(t, err) : delayed_depart(t, err);
}

/* --- life ------------------------------------------------------------------------------------- */

/* A groupmate's gradient; ours lies in t->host, which no round changes before it has been
 * verified. */
static int recompute(void *context, const struct peer_id *peer, const struct verifier_claim *claim,
                     float *const *tensor)
{
    struct loop_state *t = context;
    struct optimizer_state *state = t->l->state;
    int rc = t->l->again(t->l->context, peer, claim->epoch, claim->samples);
    int back;
    if (!rc) rc = optimizer_state_get(state, tensor, t->l->grad);
    back = optimizer_state_put(state, t->l->grad, (const float *const *)t->host);
    return rc ? rc : back;
}

static int open_collaboration(struct loop_state *t, const struct pl_backend *be, struct pl_err *err)
{
    const struct optimizer_state *state = t->l->state;
    const struct collaborative_options *o = t->o;
    struct collaboration_options options = {
        .run = o->run,
        .host = t->s->host,
        .node = t->s->node,
        .key = o->key,
        .be = be,
        .device = o->device,
        .tensors = state->count,
        .schema = state->schema,
        .target_batch = o->target_batch,
        .matchmaking_time = o->matchmaking_time,
        .averaging_timeout = o->averaging_timeout,
        .allreduce_timeout = o->allreduce_timeout,
        .average_state_every = o->average_state_every,
        .group_size = o->group_size,
        .group_bits = o->group_bits,
        .bandwidth = o->bandwidth,
        .clip = o->clip,
        .verify = o->verify,
        .client_mode = o->client_mode,
        .validation = { .validators = o->validators,
                        .data = o->data,
                        .recompute = t->l->again && !o->delay ? recompute : NULL,
                        .context = t }
    };
    enum pl_compression *method = calloc(state->count + 1, sizeof *method);
    int rc = method ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t i = 0; !rc && i < state->count; i++) {
        size_t n = state->tensors[state->order[i]].n;
        if (compression_named(&method[i], o->compression, n, o->threshold))
            rc = pl_fail(err, PL_EUSE, "compression '%.40s': there is no such method",
                         o->compression);
    }
    if (!rc && !(t->host = optimizer_state_host(state))) rc = pl_fail(err, PL_ENOMEM, "no memory");
    options.method = method;
    if (delayed_open(t) && !rc) rc = pl_fail(err, PL_ENOMEM, "no memory");
    if (!rc) rc = collaboration_open(&t->c, &options, err);
    free(method);
    return rc;
}

int collaborative_run(struct swarm *s, struct collaborative_learner *l,
                      const struct collaborative_options *o, const struct pl_backend *be,
                      int64_t *epoch, struct pl_err *err)
{
    struct loop_state t = { .s = s, .l = l, .o = o, .epoch = *epoch };
    struct collaborative_event ready = { .kind = COLLABORATIVE_READY },
                               end = { .kind = COLLABORATIVE_END };
    struct pl_err why = { "" };
    double began = pl_seconds();
    int loaded, rc = open_collaboration(&t, be, err);
    if (!rc) {
        collaboration_enter(t.c, t.epoch);
        tell(&t, &ready);
        loaded = o->load ? load(&t, t.epoch, &why) : PL_OK;
        if (loaded == PL_EIO) trouble(&t, why.text);
        /* Samples of another model would count for their steps, its gradients for nobody's. */
        if (loaded == PL_EUSE) rc = pl_fail(err, PL_EIO, "%s", why.text);
        else share(&t);
    }
    while (!rc && !stopped(&t, began)) rc = one_batch(&t, err);
    if (!rc) rc = delayed_return(&t, 1, err);
    if (!rc) rc = collaborative_correct(&t);
    delayed_left(&t, &why); /* its thread asks the collaboration; rc says what went wrong before */
    if (t.c) tell(&t, &end);
    collaboration_close(t.c);
    delayed_close(&t);
    optimizer_state_host_free(l->state, t.host);
    *epoch = t.epoch;
    return rc;
}
