/* optimizer_update.c - every way in which our parameters, moments and epoch change, and the events
 * that report it to the caller. [TTT 2.1] [spec hivemind-protocol 7, 9]
 *
 *   stepped    x = optimizer(x, g): epoch + 1, and newcomers are given the new state
 *   correct    x += x_averaged - x_given, when a round of the parameters has ended
 *   load       another peer's state replaces ours as a whole, or not at all
 *   recover    bad numbers: the gradient is dropped, x stays; after many of them, load
 *
 * When each of them is due is decided above: by optimizer_step.c, and for a delayed step by
 * optimizer_delay.c. */
#include "optimizer_internal.h"

#include <string.h>
#include <time.h>

#define FAILURES_MAX 20    /* consecutive local steps; bad numbers do not improve by themselves */
#define FAILURES_PAUSE 1.0 /* s before each download of the swarm's state, after that many */

/* --- events ----------------------------------------------------------------------------------- */

void pl_collaborative_status(struct pl_collaborative *c, struct pl_collaborative_status *status)
{
    struct training_view v;
    training_get_view(c->training, &v);
    /* Two epochs may differ for a moment: with delayed updates the swarm's next epoch begins
     * before our parameters have made its step. */
    *status = (struct pl_collaborative_status){
        .epoch = c->epoch, /* epoch of the parameters; with a delayed step it lags behind the
                            * counted one */
        .global_epoch = v.global_epoch,
        .samples = c->now.samples,
        .global_samples = v.global_samples,
        .peers = v.peers,
        .eta_s = v.eta_s,
        .samples_per_second = v.samples_per_second
    };
}

/* All changes of the parameters end with one of these three events: the place to copy them into
 * the caller's tensors. */
static void publish_values(struct pl_collaborative *c, enum pl_collaborative_kind kind)
{
    if (c->tensors && (kind == PL_COLLABORATIVE_LOADED || kind == PL_COLLABORATIVE_EPOCH ||
                       kind == PL_COLLABORATIVE_CORRECTED))
        collaborative_tensors_publish(c->tensors);
}

void collaborative_report(struct pl_collaborative *c, struct pl_collaborative_event *e)
{
    publish_values(c, e->kind);
    if (!c->o.report) return;
    /* While the run is being joined there is no status yet. */
    if (c->training) pl_collaborative_status(c, &e->status);
    c->o.report(c->o.context, e);
}

/* The texts belong to r, which lives longer than the event. */
static void report_round(struct pl_collaborative *c, struct pl_collaborative_event *e,
                         const struct training_round *r)
{
    e->round = (struct pl_collaborative_round){ .status = r->status,
                                                .peers = r->peers,
                                                .verified = r->verified,
                                                .banned = r->banned,
                                                .seconds = r->seconds,
                                                .why = r->why.text,
                                                .caught = r->caught.text };
    memcpy(e->round.group, r->group, sizeof e->round.group);
    collaborative_report(c, e);
}

void collaborative_warn(struct pl_collaborative *c, const char *text)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_WARNING, .text = text };
    collaborative_report(c, &e);
}

/* --- another peer's state --------------------------------------------------------------------- */

/* Trainer and account together: the samples of a gradient that is gone must not be reported. */
static void forget_accumulated(struct pl_collaborative *c)
{
    c->trainer.change(c->trainer.context, TRAINER_DROP, c->epoch);
    memset(&c->now, 0, sizeof c->now);
    c->outer.samples = 0;
}

void collaborative_share(struct pl_collaborative *c)
{
    /* The learning rate travels inside the optimizer's state, so a newcomer steps with ours.
     * [spec hivemind-protocol 7] */
    double lr = c->o.schedule ? c->o.schedule(c->o.context, c->epoch) : c->o.lr;
    struct state_snapshot *s;
    char bits[GROUP_BITS_MAX + 1];
    /* A client accepts no connections, so no newcomer could download from it. */
    if (c->member.is_client) return;
    training_group_bits(c->training, bits);
    s = optimizer_state_snapshot(c->trainer.state, c->trainer.value, c->epoch, lr,
                                 c->o.schedule ? c->o.lr : -1, bits);
    if (s) training_share(c->training, s);
}

/* Context for checking a download: our model's shapes, and the requested epoch. */
struct wanted_state {
    struct pl_collaborative *c;
    int64_t least;
};

/* Runs on the network's thread; the load waits for it, so w may live on the caller's stack. */
static int check_state(void *context, const struct state_load *state, struct pl_err *err)
{
    struct wanted_state *w = context;
    return optimizer_state_check(w->c->trainer.state, state, w->least, err);
}

/* All downloaded states belong to another model. If more than half of the other peers share such
 * states, our configuration is wrong and training stops. One peer's state alone never ends a
 * run. */
static int explain_mismatch(struct pl_collaborative *c, const struct state_load *state,
                            struct pl_err *err)
{
    const struct pl_err mismatch = *err;
    struct training_view v;
    training_get_view(c->training, &v);
    return pl_fail(err, 2 * state->mismatches > v.peers - 1 ? PL_EUSE : PL_EIO,
                   "the other peers use another model or optimizer: %.300s; your side, if they "
                   "agree with each other: use their --config and --optimizer",
                   mismatch.text); /* one peer's word does not end the run */
}

int collaborative_load(struct pl_collaborative *c, int64_t least, struct pl_err *err)
{
    struct wanted_state w = { c, least };
    struct state_load state;
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_LOADED };
    double began = pl_seconds();
    const int64_t before = c->epoch;
    float *change = NULL;
    int unconfirmed, rc;
    /* A peer that is behind makes its last step itself; a newcomer may find that none is left.
     * Nothing is replaced before the whole state has been checked: no half of a stranger's state
     * remains. */
    rc = training_load(c->training, least > c->epoch ? c->o.epochs - 1 : c->o.epochs, check_state,
                       &w, &state, err);
    if (rc == PL_EUSE) rc = explain_mismatch(c, &state, err);
    if (!rc && c->outer.state) rc = local_keep_change(c, &change);
    if (!rc) rc = optimizer_state_take(c->trainer.state, c->trainer.value, &c->epoch, &state, err);
    if (!rc && c->outer.state) rc = local_loaded(c, c->epoch == before + 1 ? change : NULL);
    if (!rc) rc = c->trainer.change(c->trainer.context, TRAINER_LOADED, local_step_number(c));
    if (change) c->trainer.state->be->free(change);
    /* Donors confirm each other by hashes; with one donor there is no other to compare with. */
    unconfirmed = state.confirmed < 2;
    state_load_clear(&state);
    if (rc) return rc;
    /* Gradients taken at the old parameters say nothing about the new ones. */
    forget_accumulated(c);
    c->has_mixed = 1;
    training_enter(c->training, c->epoch);
    local_report_steps(c);
    e.seconds = pl_seconds() - began;
    if (unconfirmed)
        e.text = "its state comes from one donor that no other confirmed, and must be trusted: "
                 "there was one donor alone";
    collaborative_report(c, &e);
    collaborative_share(c);
    return PL_OK;
}

/* --- bad numbers ------------------------------------------------------------------------------ */

/* Bad numbers of our own end the training after 20 in a row. But once others' numbers are mixed
 * into our parameters, they may be the reason, so after the first common average a peer never gives
 * up: otherwise any peer could stop it by bad averages. */
int collaborative_has_failed(struct pl_collaborative *c)
{
    return ++c->failures >= FAILURES_MAX && !c->has_mixed;
}

/* Bad numbers: drop the gradient, and continue from the present parameters. After FAILURES_MAX
 * consecutive failures load the swarm's state, computed by others with their own gradients. */
void collaborative_recover(struct pl_collaborative *c, const char *why)
{
    const struct timespec pause = { (time_t)FAILURES_PAUSE, 0 };
    struct pl_err err;
    if (c->failures <= FAILURES_MAX) collaborative_warn(c, why);
    /* Inner steps before this one stand, and so do their samples. */
    if (c->outer.has_local_steps) local_drop(c);
    else forget_accumulated(c);
    if (c->failures >= FAILURES_MAX) {
        nanosleep(&pause, NULL);
        if (!collaborative_load(c, c->epoch, &err)) return;
    }
    if (!c->outer.has_local_steps) training_enter(c->training, c->epoch);
}

/* --- rounds and steps ------------------------------------------------------------------------- */

/* x += x_averaged - x_given: the parameters may have changed since the copy that was averaged. */
int collaborative_correct(struct pl_collaborative *c)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_CORRECTED };
    struct training_round round;
    struct optimizer_state *state = c->trainer.state;
    /* With local steps it is phi that peers have in common. */
    float *value = c->outer.state ? pl_outer_get(c->outer.state, "phi") : c->trainer.value;
    int rc = PL_OK;
    if (!training_corrected(c->training, &round)) return PL_OK;
    c->has_mixed |= !round.status;
    /* The parameters go to host memory, get the difference, and go back. */
    if (!round.status && !(rc = optimizer_state_get(state, c->host, value))) {
        training_correct(c->training, c->host);
        rc = optimizer_state_put(state, value, (const float *const *)c->host);
    }
    /* The group was an epoch ahead, by number only: the round has made our parameters equal to
     * theirs. */
    if (!rc && round.ahead) {
        c->epoch++;
        training_raise_epoch(c->training);
        rc = c->trainer.change(c->trainer.context, TRAINER_LOADED, local_step_number(c));
    }
    report_round(c, &e, &round);
    return rc;
}

/* After x = optimizer(x, g): the next epoch begins. [spec hivemind-protocol 9, step 5] */
int collaborative_stepped(struct pl_collaborative *c, const struct step_account *a,
                          const struct training_round *round)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_EPOCH,
                                        .samples = a->samples,
                                        .loss = a->samples ? a->loss / (double)a->samples : 0 };
    int rc = optimizer_state_get(c->trainer.state, c->host, c->trainer.value);
    if (rc) return rc;
    c->failures = 0;
    c->epoch++;
    /* Reports epoch + 1, and starts averaging parameters in the background. */
    training_advance(c->training, c->host);
    /* Messages that are gathered hold a digest of their own (optimizer_gather.c), which no rounding
     * may change. */
    if (!c->outer.gathers || gather_is_nearly_equal(c)) training_compare(c->training, c->host);
    collaborative_share(c);
    training_publish(c->training, a->batch_losses, a->batches, a->samples);
    e.seconds = pl_seconds() - a->began;
    e.global_samples = round->samples;
    report_round(c, &e, round);
    return PL_OK;
}
