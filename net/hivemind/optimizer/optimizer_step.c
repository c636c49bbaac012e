/* optimizer_step.c - one step of the collaborative optimizer. [TTT 2.1; 3.3] [spec
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
 * Failures among peers never end this peer's training: if a round fails, it steps with its own
 * gradient; if no state can be downloaded, it continues with its own parameters. Only errors of
 * this machine end the training, and numbers that stay bad although no other peer's numbers are in
 * them. */
#include "optimizer_internal.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define PEERS_PAUSE 200000000 /* ns between two looks for min_peers; polls come twice a second */

/* Most of our group have other parameters than ours. Without their state we go on with ours, and
 * ask again if that is reported again. */
static void resynchronize(struct pl_collaborative *c)
{
    struct pl_err err = { "" }, warning;
    if (!collaborative_load(c, c->epoch, &err)) return;
    pl_fail(&warning, PL_OK, "no state could be downloaded (%.300s): continuing with our own",
            err.text);
    collaborative_warn(c, warning.text);
}

/* Most others report a later epoch; a state of theirs is the proof. Without such a state we
 * continue at our epoch, with our accumulation: false reports cost one attempted download, not our
 * work. */
static void catch_up(struct pl_collaborative *c)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_BEHIND };
    struct pl_err err = { "" }, warning;
    struct training_view v;
    if (c->behind == BEHIND_NOT_REPORTED) {
        collaborative_report(c, &e);
        c->behind = BEHIND_REPORTED;
    }
    if (!collaborative_load(c, c->epoch + 1, &err)) {
        c->behind = BEHIND_NOT_REPORTED;
        if (c->outer.state && !c->outer.gathers) local_join_state_round(c);
        return;
    }
    training_get_view(c->training, &v);
    if (!v.is_unshown || c->behind == BEHIND_DOUBTED) return; /* it is tried again */
    c->behind = BEHIND_DOUBTED;
    pl_fail(&warning, PL_OK,
            "other peers claim to be ahead, but none of their states shows it (%.300s): continuing "
            "from step %lld",
            err.text, (long long)c->epoch);
    collaborative_warn(c, warning.text);
}

/* --- the common step -------------------------------------------------------------------------- */

/* The common step without delay: training waits for the round, then the optimizer steps. */
static int take_common_step(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct training_round round;
    struct step_account account = c->now;
    float *gradient;
    /* g_k = (sum over our samples) / n_k */
    int rc = t->take_gradient(t->context, 0, &gradient);
    account.began = pl_seconds();
    if (!rc) rc = optimizer_state_get(t->state, c->host, gradient);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    /* g = sum_k n_k g_k / sum_k n_k; if the round fails, c->host still holds g_k */
    training_average(c->training, c->host, &round);
    c->has_mixed |= !round.status;
    if (!round.status) rc = optimizer_state_put(t->state, gradient, (const float *const *)c->host);
    /* A round of the parameters that ended meanwhile is applied before this step: the others step
     * from the averaged x. */
    if (!rc) rc = collaborative_correct(c);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    /* x = optimizer(x, g), with the learning rate of the old epoch */
    rc = t->step(t->context, c->epoch, 0, err);
    if (rc == PL_EFORMAT && !collaborative_has_failed(c)) {
        collaborative_recover(c, err->text);
        return PL_OK;
    }
    memset(&c->now, 0, sizeof c->now);
    return rc ? rc : collaborative_stepped(c, &account, &round);
}

/* Waits for whatever has been sent: a delayed step, or an exchange that overlaps with steps. */
static int finish_pending(struct pl_collaborative *c, struct pl_err *err)
{
    int rc = delayed_advance(c, 1, err);
    return rc ? rc : overlap_end(c, 1, err);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Steps 3 to 5 of an epoch: count the samples, report them, and step if the target batch is there.
 * [spec hivemind-protocol 9] */
static int add_batch(struct pl_collaborative *c, int64_t samples, double loss, struct pl_err *err)
{
    struct pl_collaborative_event e = { .kind = PL_COLLABORATIVE_BATCH, .loss = loss };
    const struct timespec pause = { .tv_nsec = PEERS_PAUSE };
    enum training_advice advice;
    struct pl_err warning;
    /* A delayed gradient must have been copied first: samples after it count for the next epoch. */
    int rc = delayed_wait_copied(c, err);
    /* A state that was taken just when the message was due. */
    if (!rc && c->outer.overlap.is_due) rc = overlap_send(c, err);
    if (rc) return rc;
    if (samples) {
        c->now.samples += samples;
        c->now.batches++;
        c->now.loss += loss * (double)samples;
        c->now.batch_losses += loss;
        if (c->outer.has_local_steps && (rc = local_add_batch(c, samples, err))) return rc;
    }
    advice = training_add(c->training, samples, pl_seconds() - c->batch_began);
    /* The seconds are the batch's own: waiting for rounds does not make this peer look slow. */
    while (advice == TRAINING_WAIT && !collaborative_is_interrupted(c)) {
        nanosleep(&pause, NULL);
        advice = training_add(c->training, 0, 0);
    }
    while (training_take_warning(c->training, &warning)) collaborative_warn(c, warning.text);
    if (advice == TRAINING_WAIT_SLOWER) advice = local_wait(c);
    if (advice == TRAINING_CATCH_UP || advice == TRAINING_DIVERGED) {
        /* A step on its way must not come after the state that replaces its parameters. */
        if ((rc = finish_pending(c, err))) return rc;
        if (advice == TRAINING_CATCH_UP) catch_up(c);
        else resynchronize(c);
        return PL_OK;
    }
    /* The algorithm counts steps, the swarm samples. */
    if (c->outer.overlap.is_due && advice != TRAINING_WAIT) advice = TRAINING_UPDATE;
    e.due = advice == TRAINING_UPDATE;
    e.samples = c->now.samples;
    collaborative_report(c, &e);
    if (!e.due) return PL_OK;
    if (c->outer.has_local_steps) return local_take_outer_step(c, err);
    if (c->outer.overlaps) return overlap_take_step(c, err);
    if (c->outer.gathers) return gather_take_step(c, err);
    return c->o.delay == PL_DELAY_NONE ? take_common_step(c, err) : delayed_begin(c, err);
}

/* In a moderated run a member whose token expires is shut out, so the next token is fetched a
 * minute before. If that fails, training continues and the next batch tries again. */
static void renew_token(struct pl_collaborative *c)
{
    struct pl_err why;
    if (membership_renew(&c->member.membership, c->member.swarm, &why))
        collaborative_warn(c, why.text);
}

/* A verified round accepts nothing of a peer that has more samples than TRAINING_WEIGHT_MAX allows
 * (join_round). With a round that takes long, everybody would have too many for the next one: it
 * fails for lack of values that count, takes as long, and so on. So there are no more batches
 * during a round than leave space for the one with which the gradient departs. */
static int must_wait(const struct pl_collaborative *c)
{
    const struct step_account *now = &c->now;
    return c->o.verify && now->batches &&
           now->samples + 2 * now->samples / now->batches > TRAINING_WEIGHT_MAX * c->o.target_batch;
}

/* Between two batches: apply the delayed step or the parameters' correction, whichever has come
 * back. */
static int end_step(struct pl_collaborative *c, int rc, struct pl_err *err)
{
    if (!rc) rc = delayed_advance(c, must_wait(c), err);
    if (!rc) rc = overlap_end(c, 0, err);
    /* Local steps go on from where they are: phi is corrected before its next outer step. */
    if (!rc && c->delayed.state != DELAYED_COPYING && !c->outer.state &&
        (rc = collaborative_correct(c)))
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
    if (collaborative_has_failed(c)) return pl_fail(err, PL_EFORMAT, "%s", text);
    if ((rc = finish_pending(c, err))) return rc;
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
    return end_step(c, finish_pending(c, err), err);
}

int collaborative_save_factors(struct pl_collaborative *c, struct bytes *out)
{
    return training_save_factors(c->training, out);
}

int collaborative_load_factors(struct pl_collaborative *c, const uint8_t *data, size_t n,
                               int64_t behind, struct pl_err *err)
{
    return training_load_factors(c->training, data, n, behind, err);
}

int64_t pl_collaborative_epoch(const struct pl_collaborative *c) { return c->epoch; }

void pl_collaborative_held_out(struct pl_collaborative *c, double loss)
{
    training_held_out(c->training, loss);
}
