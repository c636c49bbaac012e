/* optimizer_local.c - local steps, then a common one: DiLoCo and local SGD over the network.
 * The algorithms are ref/outer/diloco.c. [Local SGD: Stich 2019] [DiLoCo: Douillard et al. 2023]
 * [spec outer-steps 3, 4]
 *
 *   local batch    accumulate; with target_batch samples of our own: an inner step of x
 *   H inner steps  wait until the others are nearly there, too
 *   round          Delta_r = phi - x is averaged, each peer's with weight 1
 *   outer step     phi = Nesterov step along the mean,  x = phi:  epoch + 1
 *                  in the background phi is averaged, and the difference is added before the next
 *                  outer step
 *
 * The rules are those of OpenDiLoCo's peers, which may be in the same run. They differ in the
 * handling of failures:
 *
 *   - A round that fails ends their training. Here no outer step is made, since phi has to stay
 *     what the others have, and local steps go on: the next Delta_r holds these steps as well.
 *   - If the round has failed for us alone, the others are an epoch ahead: we take their phi over,
 *     and x = phi + our change.
 *   - A peer that is alone makes the outer step along its own Delta_r. */
#include "optimizer_internal.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* The longest wait for slower peers, as OpenDiLoCo's: s, and times of our own inner steps. Peers
 * slower than a third of our speed come to a later round: one of them, or one that pretends to be,
 * must not hold up all the others. */
#define WAIT_MAX 600.0
#define WAIT_SHARE 2.0
#define WAIT_POLL 0.25 /* s; the records are polled in intervals of 0.5 s and more */

/* The largest entry of a mean that is a change of parameters. Momentum adds up to 10 of them, so
 * phi and b stay finite, whatever others send. */
#define CHANGE_MAX 1e30f

/* --- inner steps ------------------------------------------------------------------------------ */

/* x = phi: what was trained since the last outer step is lost. */
static int restart(struct pl_collaborative *c)
{
    struct pl_outer *o = c->outer.state;
    int rc = o->setup.be->copy(c->trainer.value, pl_outer_get(o, "phi"), o->n);
    pl_outer_restart(o);
    if (c->trainer.state->optimizer)
        pl_optimizer_written(c->trainer.state->optimizer, c->trainer.value);
    return rc;
}

/* x = optimizer(x, g). Bad numbers cost this step; if x itself has them, all since the last outer
 * step: the trainer goes back to a state that may be older than phi, and the way back must not
 * become our change. */
static int take_inner_step(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct pl_outer *o = c->outer.state;
    float *gradient;
    int next, rc = t->take_gradient(t->context, 0, &gradient);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    next = pl_outer_before_step(o, t->value, gradient, 0);
    if (next < 0) return pl_fail(err, next, "inner step: %s", pl_status_name(next));
    if (next == PL_OUTER_STEP) {
        rc = t->step(t->context, local_step_number(c), 0, err);
        if (rc == PL_EFORMAT && (rc = restart(c)))
            return pl_fail(err, rc, "inner step: %s", pl_status_name(rc));
        else if (rc) return rc;
        next = PL_OUTER_STEP;
        c->failures = 0;
    } else {
        if (collaborative_has_failed(c))
            return pl_fail(err, PL_EFORMAT, "%lld gradients in a row are not finite",
                           (long long)c->failures);
        collaborative_warn(c, "the gradient is not finite: this inner step is left out");
    }
    local_drop(c);
    c->outer.inner++;
    c->outer.is_new = 0;
    if (c->outer.overlaps) {
        if (next == PL_OUTER_STEP) next = pl_outer_after_step(o, c->trainer.value);
        if ((rc = overlap_follow(c, next, err))) return rc;
    }
    if (c->tensors) collaborative_tensors_publish(c->tensors);
    return PL_OK;
}

int local_add_batch(struct pl_collaborative *c, int64_t samples, struct pl_err *err)
{
    c->outer.samples += samples;
    return c->outer.samples >= c->o.target_batch ? take_inner_step(c, err) : PL_OK;
}

/* --- the round -------------------------------------------------------------------------------- */

enum training_advice local_wait(struct pl_collaborative *c)
{
    const struct timespec pause = { 0, (long)(WAIT_POLL * 1e9) };
    const double now = pl_seconds();
    const double until = now + fmin(WAIT_MAX, WAIT_SHARE * (now - c->outer.began));
    enum training_advice advice;
    do {
        nanosleep(&pause, NULL);
        advice = training_add(c->training, 0, 0);
        if (collaborative_is_interrupted(c)) return TRAINING_GO_ON;
    } while ((advice == TRAINING_WAIT_SLOWER && pl_seconds() < until) || advice == TRAINING_WAIT);
    return advice == TRAINING_WAIT_SLOWER ? TRAINING_UPDATE : advice;
}

/* Between a message, flat in the optimizer's order, and the tensors of the round. */
static void copy_message(struct pl_collaborative *c, float *flat, int to_round)
{
    const struct optimizer_state *s = c->trainer.state;
    for (size_t i = 0; i < s->count; i++) {
        const struct pl_optimizer_tensor *t = &s->tensors[s->order[i]];
        if (to_round) memcpy(c->host[i], flat + t->offset, t->n * sizeof *flat);
        else memcpy(flat + t->offset, c->host[i], t->n * sizeof *flat);
    }
}

/* The mean as others made it may be any numbers. */
static int is_change(const float *mean, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(mean[i]) <= CHANGE_MAX)) return 0;
    return 1;
}

/* No outer step: local steps continue from x, and phi stays equal to the others'. */
static int fail_round(struct pl_collaborative *c, const struct training_round *round)
{
    struct pl_err why;
    pl_fail(&why, PL_OK, "no outer step %lld: %.300s; our local steps are kept for the next one",
            (long long)c->epoch, round->why.text);
    collaborative_warn(c, why.text);
    /* If the others have stepped after all, our message was among theirs. */
    c->outer.is_undelivered = !round->is_delivered;
    c->outer.is_delivered |= round->is_delivered;
    memset(&c->now, 0, sizeof c->now);
    c->outer.began = pl_seconds();
    local_count_steps(c);
    training_enter(c->training, c->epoch);
    return PL_OK;
}

void local_join_state_round(struct pl_collaborative *c)
{
    const float *phi = pl_outer_get(c->outer.state, "phi");
    /* Without it only a round is missed. */
    if (!optimizer_state_get(c->trainer.state, c->host, phi))
        training_average_parameters(c->training, c->host);
}

/* The mean change goes to the algorithm in place of our own. *is_mean: there is one. */
static int average_change(struct pl_collaborative *c, struct pl_outer_message *m, int *is_mean,
                          struct training_round *round)
{
    struct pl_outer *o = c->outer.state;
    float *delta = (float *)(void *)m->data;
    int rc;
    copy_message(c, delta, 1);
    /* Without an inner step there is no change: weight 0, as that of a peer without samples. */
    if (m->weight == 0) training_enter(c->training, c->epoch);
    training_average(c->training, c->host, round);
    *is_mean = !round->status;
    c->has_mixed |= *is_mean;
    if (*is_mean) copy_message(c, delta, 0);
    if (*is_mean && !is_change(delta, o->n))
        round->status = pl_fail(&round->why, PL_EPROTO, "the mean change is not finite");
    if (*is_mean) m->weight = !round->status;
    /* A round of phi that has ended belongs before this step, as at the other peers. */
    if ((rc = collaborative_correct(c))) return rc;
    return pl_outer_apply(o, c->trainer.value, NULL, m, *is_mean || round->is_alone);
}

int local_take_outer_step(struct pl_collaborative *c, struct pl_err *err)
{
    struct pl_outer *o = c->outer.state;
    struct training_round round;
    struct pl_outer_message m;
    struct step_account account;
    uint64_t rounds = o->counter[PL_OUTER_ROUNDS];
    float *x = c->trainer.value;
    int is_good, rc;
    if (c->outer.overlaps) return overlap_send(c, err);
    /* Samples of an inner step that is not complete: they have been reported for this round. */
    if (c->outer.samples && (rc = take_inner_step(c, err))) return rc;
    account = c->now;
    account.began = pl_seconds();
    rc = pl_outer_message(o, &m, x, NULL);
    if (rc < 0) return pl_fail(err, rc, "outer step: %s", pl_status_name(rc));
    if (c->outer.gathers) {
        rc = gather_exchange(c, NULL, &m, &round);
        is_good = !round.status || round.is_alone;
    } else {
        rc = average_change(c, &m, &is_good, &round);
        is_good = o->counter[PL_OUTER_ROUNDS] != rounds;
    }
    if (rc < 0) return pl_fail(err, rc, "outer step: %s", pl_status_name(rc));
    if (c->trainer.state->optimizer) pl_optimizer_written(c->trainer.state->optimizer, x);
    if (!is_good) return fail_round(c, &round);
    c->outer.inner = 0;
    c->outer.is_undelivered = c->outer.is_delivered = 0;
    memset(&c->now, 0, sizeof c->now);
    /* Before the event, which is where trainers save. */
    o->counter[PL_OUTER_ROUNDS] = (uint64_t)c->epoch + 1;
    o->counter[PL_OUTER_STEPS] = (uint64_t)((c->epoch + 1) * c->o.inner_steps);
    rc = collaborative_stepped(c, &account, &round);
    c->outer.began = pl_seconds();
    return rc ? pl_fail(err, rc, "outer step: %s", pl_status_name(rc)) : PL_OK;
}
