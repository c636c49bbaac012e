/* optimizer_delay.c - delayed updates: local batches go on while the last target batch's
 * gradient is averaged and the optimizer steps. [TTT 2.1, communication; 3.3] [spec
 * hivemind-protocol 9, 10]
 *
 *        target batch            copied          round ended              step ended
 *   IDLE ------------> COPYING ---------> ROUND ----------------> STEP ------------------> IDLE
 *                                           noticed between two local batches
 *
 * The price is staleness of one step: batches that overlap with a round see the parameters from
 * before its step. This saves the time of the round, which over the internet may be as long as the
 * batches.
 *
 * A device's gradient is copied to the host in the background, and a thread of its own waits for
 * it. The averaged gradient is copied back by the step's thread. In host memory nothing has to
 * be copied, and COPYING is over at once.
 *
 * The rules:
 *   - The step uses the round's averaged gradient, or our own if the round has failed. It starts
 *     from the parameters at the time when the end of the round is noticed: a round of the
 *     parameters may have corrected them. The new parameters are used from the next local batch on.
 *   - Batches that begin after the gradient was taken (IDLE -> COPYING) belong to the next epoch.
 *     They are reported once the copy is complete. Their gradients accumulate as usual, although
 *     they were computed with the old parameters.
 *   - Only one step is pending: the next gradient is taken after that step has ended.
 *   - Loading a peer's state, dropping gradients that are not finite, and close wait for it, too.
 *   - Newcomers get the parameters and moments of the last step that was applied.
 * The reference run delayed only the step: with PL_DELAY_STEP this peer waits for the round. */
#include "optimizer_internal.h"
#include "runtime/transfer.h"

#include <stdlib.h>
#include <string.h>

int delayed_open(struct pl_collaborative *c)
{
    /* A buffer of its own: the round reads it while c->host serves the parameters. */
    if (c->o.delay == PL_DELAY_NONE) return PL_OK;
    return (c->delayed.host = optimizer_state_host(c->trainer.state)) ? PL_OK : PL_ENOMEM;
}

static void join_thread(struct delayed *d)
{
    if (d->has_thread) pthread_join(d->thread, NULL);
    d->has_thread = 0;
}

void delayed_close(struct pl_collaborative *c)
{
    struct delayed *d = &c->delayed;
    join_thread(d);
    d->state = DELAYED_IDLE;
    if (c->trainer.state) optimizer_state_host_free(c->trainer.state, d->host);
    d->host = NULL;
    pthread_mutex_destroy(&d->lock);
}

/* The copy's thread: as soon as the gradient is in host memory, its round begins. */
static void *send_gradient(void *context)
{
    struct pl_collaborative *c = context;
    struct delayed *d = &c->delayed;
    d->status = pl_copy_end(c->trainer.state->be, d->ticket);
    if (!d->status) training_begin_average(c->training, d->host);
    return NULL;
}

int delayed_wait_copied(struct pl_collaborative *c, struct pl_err *err)
{
    struct delayed *d = &c->delayed;
    /* COPYING -> ROUND, or back to IDLE if the copy failed. */
    if (d->state != DELAYED_COPYING) return PL_OK;
    join_thread(d);
    d->state = d->status ? DELAYED_IDLE : DELAYED_ROUND;
    return d->status ? pl_fail(err, d->status, "gradients: %s", pl_status_name(d->status)) : PL_OK;
}

int delayed_begin(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct delayed *d = &c->delayed;
    int rc;
    /* One step at a time: staleness stays at one step. */
    if ((rc = delayed_advance(c, 1, err))) return rc;
    if (!c->now.samples) return PL_OK; /* the last step failed, and dropped everything */
    /* IDLE -> COPYING. The trainer puts the mean gradient into a buffer of its own, so that batches
     * can accumulate the next one. */
    rc = t->take_gradient(t->context, 1, &d->gradient);
    if (!rc) rc = optimizer_state_get_begin(t->state, d->host, d->gradient, &d->ticket);
    if (rc) {
        t->state->be->sync(); /* no copy may outlive its memory */
        return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    }
    d->account = c->now;
    d->account.began = pl_seconds();
    /* From here on batches count for the next epoch. */
    d->epoch = c->epoch;
    memset(&c->now, 0, sizeof c->now);
    d->state = DELAYED_COPYING;
    /* Without a thread (host memory, or none left) the copy is waited for: slower, never wrong. */
    d->has_thread = d->ticket && !pthread_create(&d->thread, NULL, send_gradient, c);
    if (!d->has_thread) {
        send_gradient(c);
        if ((rc = delayed_wait_copied(c, err))) return rc;
    }
    /* The last epoch: there is no next batch to overlap with, so wait for the step. */
    return delayed_advance(c, c->epoch + 1 >= c->o.epochs, err);
}

/* The step's thread: x' = optimizer(x, g). If the round has failed, g is our own gradient, which
 * is still in its buffer. */
static void *take_step(void *context)
{
    struct pl_collaborative *c = context;
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct delayed *d = &c->delayed;
    int rc = PL_OK;
    if (!d->round.status)
        rc = optimizer_state_put(t->state, d->gradient, (const float *const *)d->host);
    if (rc) pl_fail(&d->why, rc, "gradients: %s", pl_status_name(rc));
    else rc = t->step(t->context, d->epoch, 1, &d->why);
    pthread_mutex_lock(&d->lock);
    /* The training's thread polls is_done; the lock makes the step's memory visible to it. */
    d->status = rc;
    d->is_done = 1;
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static int is_done(struct delayed *d)
{
    int done;
    pthread_mutex_lock(&d->lock);
    done = d->is_done;
    pthread_mutex_unlock(&d->lock);
    return done;
}

/* ROUND -> STEP. First the correction by an older round of the parameters, so that x is the
 * swarm's when the step reads it. */
static int begin_step(struct pl_collaborative *c)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct delayed *d = &c->delayed;
    int rc = collaborative_correct(c);
    if (rc) return rc;
    c->has_mixed |= !d->round.status;
    d->state = DELAYED_STEP;
    d->is_done = 0;
    d->epoch = c->epoch; /* a groupmate may have been ahead by number */
    d->has_thread = t->overlaps && !pthread_create(&d->thread, NULL, take_step, c);
    if (!d->has_thread) take_step(c);
    return PL_OK;
}

/* STEP -> IDLE: the result of the step becomes the parameters, and the epoch ends. */
static int apply_step(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct delayed *d = &c->delayed;
    int rc;
    join_thread(d);
    d->state = DELAYED_IDLE;
    /* An error of the machine ends training; bad numbers only cost this step. */
    if (d->status && d->status != PL_EFORMAT) {
        *err = d->why;
        return d->status;
    }
    if ((rc = t->change(t->context, TRAINER_APPLY, c->epoch)))
        return pl_fail(err, rc, "step: %s", pl_status_name(rc));
    if (d->status) {
        *err = d->why;
        if (collaborative_has_failed(c)) return d->status;
        collaborative_recover(c, d->why.text);
        return PL_OK;
    }
    rc = collaborative_stepped(c, &d->account, &d->round);
    return rc ? pl_fail(err, rc, "parameters: %s", pl_status_name(rc)) : PL_OK;
}

/* Each state is left when what it waits for has come; with `wait`, all of them in turn. */
int delayed_advance(struct pl_collaborative *c, int wait, struct pl_err *err)
{
    struct delayed *d = &c->delayed;
    int rc, wait_round = wait || c->o.delay == PL_DELAY_STEP;
    if (wait_round && (rc = delayed_wait_copied(c, err))) return rc;
    if (d->state == DELAYED_ROUND && training_end_average(c->training, &d->round, wait_round) &&
        (rc = begin_step(c)))
        return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    if (d->state == DELAYED_STEP && (wait || is_done(d))) return apply_step(c, err);
    return PL_OK;
}
