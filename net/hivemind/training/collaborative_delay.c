/* collaborative_delay.c - delayed updates: local batches go on while the last target batch's gradient is
 * averaged and the optimizer steps. [TTT 2.1, communication; 3.3] [spec hivemind-protocol 9, 10]
 *
 *       target batch           copied           round ended, looked           thread ended,
 *   NONE -----------> LEAVING --------> ROUND ------------------------> STEP -------------> NONE
 *                                             between batches                  the same
 *
 * A device's gradient comes down to the host beside the next local batch, and whoever waits for it
 * is a thread of its own; that goes up again in the step's thread. In the host's memory nothing has
 * to be waited for, and LEAVING is over at once.
 *
 * The rules:
 *  - the step is that of the gradient which left, averaged or, after a failed round, our own, from the
 *    parameters as they are when the round's end is noticed (a round of the parameters may have
 *    corrected them), with the learning rate of the epoch it left in. Its result replaces the
 *    parameters before the next local batch after it is ready.
 *  - a batch is of the next epoch from the departure on, so one is reported only after that; gradients
 *    that were taken with the old parameters stay where they are accumulated.
 *  - one at a time: the next departure waits for the last step.
 *  - whatever is no ordinary batch waits too: taking over a peer's state, dropping bad numbers, the end.
 *  - newcomers are given the parameters and moments of the last step that was put in, with its number.
 * The run delayed the step alone: with COLLABORATIVE_DELAY_STEP the round is waited for. */
#include "collaborative_internal.h"
#include "runtime/transfer.h"

#include <stdlib.h>
#include <string.h>

int delayed_open(struct loop_state *t)
{
    pthread_mutex_init(&t->delayed.lock, NULL);
    if (t->o->delay == COLLABORATIVE_DELAY_NONE) return PL_OK;
    return (t->delayed.host = optimizer_state_host(t->l->state)) ? PL_OK : PL_ENOMEM;
}

static void join(struct delayed *d)
{
    if (d->has_thread) pthread_join(d->thread, NULL);
    d->has_thread = 0;
}

void delayed_close(struct loop_state *t)
{
    struct delayed *d = &t->delayed;
    join(d);
    d->at = FLIGHT_NONE;
    optimizer_state_host_free(t->l->state, d->host);
    d->host = NULL;
    pthread_mutex_destroy(&d->lock);
}

/* When the gradient is in the host's memory, it is the round's. */
static void *leave(void *context)
{
    struct loop_state *t = context;
    struct delayed *d = &t->delayed;
    d->status = pl_copy_end(t->l->state->be, d->ticket);
    if (!d->status) collaboration_depart(t->c, d->host);
    return NULL;
}

int delayed_left(struct loop_state *t, struct pl_err *err)
{
    struct delayed *d = &t->delayed;
    if (d->at != FLIGHT_LEAVING) return PL_OK;
    join(d);
    d->at = d->status ? FLIGHT_NONE : FLIGHT_ROUND;
    return d->status ? pl_fail(err, d->status, "gradients: %s", pl_status_name(d->status)) : PL_OK;
}

int delayed_depart(struct loop_state *t, struct pl_err *err)
{
    struct collaborative_learner *l = t->l;
    struct delayed *d = &t->delayed;
    int rc;
    if ((rc = delayed_return(t, 1, err))) return rc;
    if (!t->now.samples) return PL_OK; /* the step before this one went bad, and took all with it */
    rc = l->mean(l->context);
    if (!rc) rc = l->set_aside(l->context);
    if (!rc)
        rc = optimizer_state_get_begin(l->state, d->host, l->aside_grad(l->context), &d->ticket);
    if (rc) {
        l->state->be->sync(); /* no copy is to outlive its memory */
        return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    }
    d->account = t->now;
    d->account.began = pl_seconds();
    d->epoch = t->epoch;
    memset(&t->now, 0, sizeof t->now);
    d->at = FLIGHT_LEAVING;
    d->has_thread = d->ticket && !pthread_create(&d->thread, NULL, leave, t);
    if (!d->has_thread) {
        leave(t);
        if ((rc = delayed_left(t, err))) return rc;
    }
    /* After the last step no batch would count. */
    return delayed_return(t, t->epoch + 1 >= t->o->epochs, err);
}

/* The swarm's mean goes where our gradient was put aside, and the optimizer steps with it. */
static void *work(void *context)
{
    struct loop_state *t = context;
    struct collaborative_learner *l = t->l;
    struct delayed *d = &t->delayed;
    int rc = PL_OK;
    if (!d->round.status)
        rc = optimizer_state_put(l->state, l->aside_grad(l->context),
                                 (const float *const *)d->host);
    if (rc) pl_fail(&d->why, rc, "gradients: %s", pl_status_name(rc));
    else rc = l->step_aside(l->context, d->epoch, &d->why);
    pthread_mutex_lock(&d->lock);
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

/* The round has ended: what it has come to, and the step. */
static int begin_step(struct loop_state *t)
{
    struct collaborative_learner *l = t->l;
    struct delayed *d = &t->delayed;
    int rc = collaborative_correct(t);
    if (rc) return rc;
    t->has_mixed |= !d->round.status;
    d->at = FLIGHT_STEP;
    d->is_done = 0;
    d->epoch = t->epoch; /* a groupmate may have been ahead by number */
    d->has_thread = l->beside && !pthread_create(&d->thread, NULL, work, t);
    if (!d->has_thread) work(t);
    return PL_OK;
}

static int put_in(struct loop_state *t, struct pl_err *err)
{
    struct collaborative_learner *l = t->l;
    struct delayed *d = &t->delayed;
    int rc;
    join(d);
    d->at = FLIGHT_NONE;
    if (d->status && d->status != PL_EFORMAT) {
        *err = d->why;
        return d->status;
    }
    if ((rc = l->take_in(l->context))) return pl_fail(err, rc, "step: %s", pl_status_name(rc));
    if (d->status) {
        *err = d->why;
        if (collaborative_is_hopeless(t)) return d->status;
        collaborative_trouble(t, d->why.text);
        return PL_OK;
    }
    rc = collaborative_stepped(t, &d->account, &d->round);
    return rc ? pl_fail(err, rc, "parameters: %s", pl_status_name(rc)) : PL_OK;
}

int delayed_return(struct loop_state *t, int wait, struct pl_err *err)
{
    struct delayed *d = &t->delayed;
    int rc, wait_round = wait || t->o->delay == COLLABORATIVE_DELAY_STEP;
    if (wait_round && (rc = delayed_left(t, err))) return rc;
    if (d->at == FLIGHT_ROUND && collaboration_returned(t->c, &d->round, wait_round) &&
        (rc = begin_step(t)))
        return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    if (d->at == FLIGHT_STEP && (wait || is_done(d))) return put_in(t, err);
    return PL_OK;
}
