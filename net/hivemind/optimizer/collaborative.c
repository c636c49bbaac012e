/* collaborative.c - one step of the collaborative optimizer. [TTT 2.1; 3.3] [spec
 * hivemind-protocol 8, 9]
 *
 *   local batch -> add: count its samples, report them
 *                    | target batch reached: common step     | others are ahead: catch up
 *                    v                                       v
 *                  g = (sum over our samples) / n          download parameters and moments
 *                  g = sum_k n_k g_k / sum_k n_k           from a peer of their epoch;
 *                      (all-reduce)                        forget what was accumulated
 *                  x = local optimizer(x, g)
 *                  epoch + 1; in the background x is averaged,
 *                  and the difference that this makes is added later
 *
 * Whatever goes wrong among peers leaves this peer training: a round that fails means a step
 * with our own gradient, a state that cannot be had means going on with our own parameters. Only
 * errors of this machine end the training, and numbers that stay bad although no other peer's
 * numbers are in them. */
#include "collaborative_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAILURES_MAX 20    /* local ones in a row: numbers do not get better by themselves */
#define FAILURES_PAUSE 1.0 /* s after so many, while others may help */

/* --- events ----------------------------------------------------------------------------------- */

void pl_collaborative_status(struct pl_collaborative *c, struct pl_collaborative_status *status)
{
    struct collaboration_view v;
    collaboration_get_view(c->collaboration, &v);
    /* Two epochs may differ for a moment: with delayed updates the swarm's next epoch begins
     * before our parameters have made its step. */
    *status = (struct pl_collaborative_status){
        .epoch = c->epoch, /* of our parameters: a delayed step's epoch has begun before it */
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
    if (c->collaboration) pl_collaborative_status(c, &e->status);
    c->o.report(c->o.context, e);
}

/* The texts belong to r, which lives longer than the event. */
static void report_round(struct pl_collaborative *c, struct pl_collaborative_event *e,
                         const struct collaboration_round *r)
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
    c->trainer.drop(c->trainer.context);
    memset(&c->now, 0, sizeof c->now);
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
    collaboration_group_bits(c->collaboration, bits);
    s = optimizer_state_snapshot(c->trainer.state, c->trainer.value, c->epoch, lr,
                                 c->o.schedule ? c->o.lr : -1, bits);
    if (s) collaboration_share(c->collaboration, s);
}

/* What the check of a download needs: our model's shapes, and the epoch that we ask for. */
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

/* Every state so far was of another model. Whose mistake is that? If more than half of the
 * others share such states, ours; then training cannot go on. One peer's state alone never ends
 * a run. */
static int explain_mismatch(struct pl_collaborative *c, const struct state_load *state,
                            struct pl_err *err)
{
    const struct pl_err misfit = *err;
    struct collaboration_view v;
    collaboration_get_view(c->collaboration, &v);
    return pl_fail(err, 2 * state->misfits > v.peers - 1 ? PL_EUSE : PL_EIO,
                   "the others have another model or optimizer: %.300s; "
                   "your side, if they agree with one another: --config and --optimizer have to be "
                   "theirs",
                   misfit.text); /* one peer's word does not end the run */
}

int collaborative_load(struct pl_collaborative *c, int64_t least, struct pl_err *err)
{
    struct wanted_state w = { c, least };
    struct state_load state;
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_LOADED };
    double began = pl_seconds();
    int unconfirmed, rc;
    /* A peer that is behind makes its last step itself; a newcomer may find that none is left.
     * Nothing is replaced before the whole state has been checked: no half of a stranger's state
     * remains. */
    rc = collaboration_load(c->collaboration, least > c->epoch ? c->o.epochs - 1 : c->o.epochs,
                            check_state, &w, &state, err);
    if (rc == PL_EUSE) rc = explain_mismatch(c, &state, err);
    if (!rc) rc = optimizer_state_take(c->trainer.state, c->trainer.value, &c->epoch, &state, err);
    if (!rc) rc = c->trainer.loaded(c->trainer.context, c->epoch);
    /* Donors confirm each other by hashes; with one donor there is no other to compare with. */
    unconfirmed = state.confirmed < 2;
    state_load_clear(&state);
    if (rc) return rc;
    /* Gradients taken at the old parameters say nothing about the new ones. */
    forget_accumulated(c);
    c->has_mixed = 1;
    collaboration_set_epoch(c->collaboration, c->epoch);
    e.seconds = pl_seconds() - began;
    if (unconfirmed)
        e.text = "its state comes from one donor that no other confirmed: with one donor alone, "
                 "it has to be trusted";
    collaborative_report(c, &e);
    collaborative_share(c);
    return PL_OK;
}

/* Most others report a later epoch; a state of theirs is the proof. Without one we go on where
 * we are, with what was accumulated: false reports cost a try to download, not our work. */
static void catch_up(struct pl_collaborative *c)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_BEHIND };
    struct pl_err err = { "" }, warning;
    struct collaboration_view v;
    if (c->behind == BEHIND_NOT_REPORTED) {
        collaborative_report(c, &e);
        c->behind = BEHIND_REPORTED;
    }
    if (!collaborative_load(c, c->epoch + 1, &err)) {
        c->behind = BEHIND_NOT_REPORTED;
        return;
    }
    collaboration_get_view(c->collaboration, &v);
    if (!v.is_unshown || c->behind == BEHIND_DOUBTED) return; /* it is tried again */
    c->behind = BEHIND_DOUBTED;
    pl_fail(&warning, PL_OK,
            "others claim to be ahead, and no state of theirs shows it (%.300s): we go "
            "on from step %lld",
            err.text, (long long)c->epoch);
    collaborative_warn(c, warning.text);
}

/* --- bad numbers ------------------------------------------------------------------------------ */

/* Bad numbers of our own end the training after 20 in a row. But once others' numbers are mixed
 * into our parameters, they may be the reason, and a peer that can be stopped by bad averages
 * could be stopped by anyone: then it never gives up. */
int collaborative_is_hopeless(struct pl_collaborative *c)
{
    return ++c->failures >= FAILURES_MAX && !c->has_mixed;
}

/* Bad numbers: drop the gradient, and go on from the parameters as they are. After many failures
 * in a row load the swarm's state, which others have computed with their own gradients. */
void collaborative_recover(struct pl_collaborative *c, const char *why)
{
    const struct timespec pause = { (time_t)FAILURES_PAUSE, 0 };
    struct pl_err err;
    if (c->failures <= FAILURES_MAX) collaborative_warn(c, why);
    forget_accumulated(c);
    if (c->failures >= FAILURES_MAX) {
        nanosleep(&pause, NULL);
        if (!collaborative_load(c, c->epoch, &err)) return;
    }
    collaboration_set_epoch(c->collaboration, c->epoch);
}

/* --- the common step -------------------------------------------------------------------------- */

/* x += x_averaged - x_given: the parameters may have changed since the copy that was averaged. */
int collaborative_correct(struct pl_collaborative *c)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_CORRECTED };
    struct collaboration_round round;
    struct optimizer_state *state = c->trainer.state;
    int rc = PL_OK;
    if (!collaboration_corrected(c->collaboration, &round)) return PL_OK;
    c->has_mixed |= !round.status;
    /* The parameters go to host memory, get the difference, and go back. */
    if (!round.status && !(rc = optimizer_state_get(state, c->host, c->trainer.value))) {
        collaboration_correct(c->collaboration, c->host);
        rc = optimizer_state_put(state, c->trainer.value, (const float *const *)c->host);
    }
    /* The group was an epoch ahead, by number only: the round has made our parameters equal to
     * theirs. */
    if (!rc && round.ahead) {
        c->epoch++;
        collaboration_raise_epoch(c->collaboration);
        rc = c->trainer.loaded(c->trainer.context, c->epoch);
    }
    report_round(c, &e, &round);
    return rc;
}

/* After x = optimizer(x, g): the next epoch begins. [spec hivemind-protocol 9, step 5] */
int collaborative_stepped(struct pl_collaborative *c, const struct step_account *a,
                          const struct collaboration_round *round)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_EPOCH,
                                        .samples = a->samples,
                                        .loss = a->samples ? a->loss / (double)a->samples : 0 };
    int rc = optimizer_state_get(c->trainer.state, c->host, c->trainer.value);
    if (rc) return rc;
    c->failures = 0;
    c->epoch++;
    /* Reports epoch + 1, and starts averaging parameters in the background. */
    collaboration_advance(c->collaboration, c->host);
    collaborative_share(c);
    collaboration_publish(c->collaboration, a->batch_losses, a->batches, a->samples);
    e.seconds = pl_seconds() - a->began;
    report_round(c, &e, round);
    return PL_OK;
}

/* The common step without delay: training waits for the round, then the optimizer steps. */
static int take_common_step(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct collaboration_round round;
    struct step_account account = c->now;
    float *gradient;
    /* g_k = (sum over our samples) / n_k */
    int rc = t->take_gradient(t->context, 0, &gradient);
    account.began = pl_seconds();
    if (!rc) rc = optimizer_state_get(t->state, c->host, gradient);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    /* g = sum_k n_k g_k / sum_k n_k; if the round fails, c->host still holds g_k */
    collaboration_average(c->collaboration, c->host, &round);
    c->has_mixed |= !round.status;
    if (!round.status) rc = optimizer_state_put(t->state, gradient, (const float *const *)c->host);
    /* A round of the parameters that ended meanwhile belongs before this step: x is what the
     * others step from. */
    if (!rc) rc = collaborative_correct(c);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    /* x = optimizer(x, g), with the learning rate of the old epoch */
    rc = t->step(t->context, c->epoch, 0, err);
    if (rc == PL_EFORMAT && !collaborative_is_hopeless(c)) {
        collaborative_recover(c, err->text);
        return PL_OK;
    }
    memset(&c->now, 0, sizeof c->now);
    return rc ? rc : collaborative_stepped(c, &account, &round);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Steps 3 to 5 of an epoch: count the samples, report them, and step if the target batch is there.
 * [spec hivemind-protocol 9] */
static int add_batch(struct pl_collaborative *c, int64_t samples, double loss, struct pl_err *err)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_BATCH, .loss = loss };
    enum collaboration_advice advice;
    struct pl_err warning;
    /* A departing gradient must have left first: from then on samples count for the next epoch. */
    int rc = delayed_wait_copied(c, err);
    if (rc) return rc;
    if (samples) {
        c->now.samples += samples;
        c->now.batches++;
        c->now.loss += loss * (double)samples;
        c->now.batch_losses += loss;
    }
    advice = collaboration_add(c->collaboration, samples, pl_seconds() - c->batch_began);
    /* The seconds are the batch's own: waiting for rounds does not make this peer look slow. */
    while (collaboration_take_warning(c->collaboration, &warning))
        collaborative_warn(c, warning.text);
    if (advice == COLLABORATION_CATCH_UP) {
        /* A step on its way must not come after the state that replaces its parameters. */
        if ((rc = delayed_advance(c, 1, err))) return rc;
        catch_up(c);
        return PL_OK;
    }
    e.due = advice == COLLABORATION_UPDATE;
    e.samples = c->now.samples;
    collaborative_report(c, &e);
    if (!e.due) return PL_OK;
    return c->o.delay == PL_DELAY_NONE ? take_common_step(c, err) : delayed_begin(c, err);
}

/* A member of a moderated run whose token expires is shut out, so the next one is fetched a minute
 * before. Without one training goes on: the next batch tries again. */
static void renew_token(struct pl_collaborative *c)
{
    struct pl_err why;
    if (membership_renew(&c->member.membership, c->member.swarm, &why))
        collaborative_warn(c, why.text);
}

/* Between two batches: apply the delayed step or the parameters' correction, whichever has come
 * back. */
static int end_step(struct pl_collaborative *c, int rc, struct pl_err *err)
{
    if (!rc) rc = delayed_advance(c, 0, err);
    if (!rc && c->delayed.state != DELAYED_COPYING && (rc = collaborative_correct(c)))
        pl_fail(err, rc, "parameters: %s", pl_status_name(rc));
    if (!rc) renew_token(c);
    /* An error of the machine is final: every later call returns it. */
    c->failed = rc;
    c->batch_began = pl_seconds();
    return rc;
}

static int discard(struct pl_collaborative *c, const char *why, struct pl_err *err)
{
    char text[sizeof err->text];
    int rc;
    /* `why` may be err->text itself, which the next call overwrites. */
    memcpy(text, why, strnlen(why, sizeof text - 1) + 1);
    text[sizeof text - 1] = 0;
    if (collaborative_is_hopeless(c)) return pl_fail(err, PL_EFORMAT, "%s", text);
    if ((rc = delayed_advance(c, 1, err))) return rc;
    collaborative_recover(c, text);
    return PL_OK;
}

static int is_over(const struct pl_collaborative *c, struct pl_err *err)
{
    return c->failed ? pl_fail(err, c->failed, "the training has ended by an earlier error") : 0;
}

int pl_collaborative_step(struct pl_collaborative *c, const float *const *gradient, int64_t samples,
                          double loss, struct pl_err *err)
{
    struct pl_err own;
    int rc;
    if (!err) err = &own;
    if (is_over(c, err)) return c->failed;
    if (samples < 0 || (samples && c->tensors && !gradient))
        return pl_fail(err, PL_EUSE, "a step of %lld samples%s", (long long)samples,
                       gradient ? "" : " without gradients");
    rc = isfinite(loss) ? PL_OK : pl_fail(err, PL_EFORMAT, "the loss is not finite");
    if (!rc && samples && c->tensors)
        rc = collaborative_tensors_add(c->tensors, gradient, samples, err);
    /* A loss or gradient that is not finite is dropped, and training goes on. */
    if (rc == PL_EFORMAT) rc = discard(c, err->text, err);
    else rc = add_batch(c, samples, loss, err);
    return end_step(c, rc, err);
}

int pl_collaborative_discard(struct pl_collaborative *c, const char *why, struct pl_err *err)
{
    struct pl_err own;
    if (!err) err = &own;
    if (is_over(c, err)) return c->failed;
    return end_step(c, discard(c, why, err), err);
}

int pl_collaborative_finish(struct pl_collaborative *c, struct pl_err *err)
{
    struct pl_err own;
    if (!err) err = &own;
    if (is_over(c, err)) return c->failed;
    return end_step(c, delayed_advance(c, 1, err), err);
}

int64_t pl_collaborative_epoch(const struct pl_collaborative *c) { return c->epoch; }

void pl_collaborative_held_out(struct pl_collaborative *c, double loss)
{
    collaboration_held_out(c->collaboration, loss);
}
