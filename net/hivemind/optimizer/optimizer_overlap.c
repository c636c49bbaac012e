/* optimizer_overlap.c - algorithms whose exchanges take as long as local steps do: Streaming
 * DiLoCo, delayed and eager DiLoCo, delayed gradients. [spec outer-steps 5, 7]
 *
 *   SEND      our message leaves, and the next steps begin; the group gathers on the network's
 *             thread
 *   arrival   noticed between two batches: the mean of all messages becomes state, and the epoch
 *             ends. Newcomers and checkpoints get this state, in which nothing is under way
 *   RECEIVE   at the step that the algorithm says, the mean is applied; if it has not arrived, this
 *             peer waits for it
 *
 * So x, and phi, change at steps that the network's speed does not change, and peers that have the
 * same messages have the same bits. A newcomer takes the mean that the others have not applied yet,
 * and the number of steps that they have made since.
 *
 * An exchange that fails has no mean: the algorithm goes on without the others' messages, and the
 * epoch stays. If others have the mean, they are an epoch ahead, and their state replaces ours. */
#include "optimizer_internal.h"

#include <stdlib.h>
#include <string.h>

void overlap_close(struct pl_collaborative *c)
{
    free(c->outer.overlap.data);
    c->outer.overlap.data = NULL;
}

/* No mean. Whatever was trained since the message left is of the same epoch. */
static void fail_exchange(struct pl_collaborative *c, const struct training_round *round)
{
    struct pl_err why;
    pl_fail(&why, PL_OK, "no step %lld: %.300s; it brings nothing from the others",
            (long long)c->epoch, round->why.text);
    collaborative_warn(c, why.text);
    training_enter(c->training, c->epoch);
    if (c->now.samples) training_add(c->training, c->now.samples, 0);
}

/* 1: the exchange under way has ended, and its mean is state; 0: not yet, or it has failed. */
static int take_arrival(struct pl_collaborative *c, int wait, struct training_round *round,
                        struct pl_err *err)
{
    struct overlapped *v = &c->outer.overlap;
    int rc;
    if (!v->is_under_way || !training_end_average(c->training, round, wait)) return 0;
    v->is_under_way = 0;
    rc = gather_end(c, NULL, v->data, &v->own, round);
    if (rc < 0) return pl_fail(err, rc, "step: %s", pl_status_name(rc));
    if (!rc) fail_exchange(c, round);
    return rc;
}

/* The counters first: a checkpoint of this event has them. */
static int end_epoch(struct pl_collaborative *c, const struct training_round *round,
                     struct pl_err *err)
{
    struct pl_outer *o = c->outer.state;
    int rc;
    if (c->outer.has_local_steps) c->outer.inner -= c->o.inner_steps;
    o->counter[PL_OUTER_ROUNDS] = (uint64_t)c->epoch + 1;
    o->counter[PL_OUTER_STEPS] = (uint64_t)(local_step_number(c) + c->o.inner_steps);
    rc = collaborative_stepped(c, &c->outer.overlap.account, round);
    return rc ? pl_fail(err, rc, "step: %s", pl_status_name(rc)) : PL_OK;
}

int overlap_end(struct pl_collaborative *c, int wait, struct pl_err *err)
{
    struct training_round round;
    int has_mean = take_arrival(c, wait, &round, err);
    return has_mean > 0 ? end_epoch(c, &round, err) : has_mean;
}

/* The message as it travels, until its exchange has ended. */
static int keep_message(struct pl_collaborative *c, const struct pl_outer_message *own)
{
    struct overlapped *v = &c->outer.overlap;
    overlap_close(c);
    v->own = *own;
    return (v->data = gather_message(c, own)) ? PL_OK : PL_ENOMEM;
}

/* From here on batches count for the next epoch. Alone there is nothing to wait for. */
static int begin_exchange(struct pl_collaborative *c, struct pl_err *err)
{
    struct overlapped *v = &c->outer.overlap;
    v->account = c->now;
    v->account.began = c->outer.began = pl_seconds();
    memset(&c->now, 0, sizeof c->now);
    v->is_under_way = 1;
    return training_begin_gather(c->training, v->own.weight, v->data,
                                 GATHER_DIGEST_BYTES + v->own.bytes)
               ? overlap_end(c, 1, err)
               : PL_OK;
}

int overlap_follow(struct pl_collaborative *c, int next, struct pl_err *err)
{
    struct training_round round;
    int has_mean, rc = PL_OK;
    while (!rc && next == PL_OUTER_RECEIVE) {
        if ((has_mean = take_arrival(c, 1, &round, err)) < 0) return has_mean;
        next = pl_outer_apply(c->outer.state, c->trainer.value, NULL, NULL, 0);
        if (c->trainer.state->optimizer)
            pl_optimizer_written(c->trainer.state->optimizer, c->trainer.value);
        /* So late a mean is applied before newcomers get the state: they begin after it. */
        if (has_mean && next >= 0) rc = end_epoch(c, &round, err);
    }
    if (rc) return rc;
    if (next < 0) return pl_fail(err, next, "outer step: %s", pl_status_name(next));
    c->outer.overlap.is_due = next == PL_OUTER_SEND;
    local_count_steps(c);
    return PL_OK;
}

int overlap_send(struct pl_collaborative *c, struct pl_err *err)
{
    struct pl_outer_message own;
    int next, rc;
    if (!c->outer.overlap.is_due) return PL_OK; /* the others are ready, we are not */
    /* After a failed exchange this period has begun anew. */
    c->outer.inner = c->o.inner_steps;
    local_count_steps(c);
    next = pl_outer_message(c->outer.state, &own, c->trainer.value, NULL);
    /* Another peer's state, and no step since: we take part, but have nothing to say. */
    if (c->outer.is_new) own.weight = 0;
    rc = next < 0 ? next : keep_message(c, &own);
    if (rc) return pl_fail(err, rc, "outer step: %s", pl_status_name(rc));
    rc = begin_exchange(c, err);
    return rc ? rc : overlap_follow(c, next, err);
}

int overlap_take_step(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct pl_outer *o = c->outer.state;
    struct pl_outer_message own;
    float *gradient;
    int next, rc;
    if ((rc = overlap_end(c, 1, err)) || (rc = gather_gradient(c, &gradient, err))) return rc;
    next = pl_outer_before_step(o, t->value, gradient, 0);
    if (next == PL_OUTER_SEND) next = pl_outer_message(o, &own, t->value, gradient);
    rc = next < 0 ? next : keep_message(c, &own);
    /* The mean of the step before takes the place of our gradient. */
    if (!rc && next == PL_OUTER_RECEIVE)
        rc = (next = pl_outer_apply(o, t->value, gradient, NULL, 0)) < 0 ? next : PL_OK;
    if (rc) return pl_fail(err, rc, "step: %s", pl_status_name(rc));
    if (next != PL_OUTER_STEP) t->change(t->context, TRAINER_DROP, c->epoch);
    else if ((rc = t->step(t->context, c->epoch - 1, 0, err)) != PL_OK) {
        if (rc != PL_EFORMAT || collaborative_has_failed(c)) return rc;
        collaborative_recover(c, err->text);
        return PL_OK;
    }
    return begin_exchange(c, err);
}
