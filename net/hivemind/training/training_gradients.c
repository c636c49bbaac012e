/* training_gradients.c - the round of the gradients: the mean that all peers of an epoch step by.
 * [TTT 3.3] [spec hivemind-protocol 9, steps 4 and 5]
 *
 *   undelayed   training_average        the training's thread sleeps until on_gradient has the mean
 *   delayed     training_begin_average  computes the next epoch's batches meanwhile;
 *               training_end_average    the mean, if it is there
 *
 * Algorithms whose peers exchange messages, not sums, take the same way: training_gather for
 * training_average, training_take_messages for the mean. */
#include "training_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With local steps phi and the outer momentum stay equal only where outer steps are by the same
 * mean. A sender that was given up as late gets no mean; OpenDiLoCo's peers step by their own
 * change then, and do not notice. If all of the others were late, the mean is our own change: this
 * peer makes no step, and takes over the state of those that have made one. */
static int is_own_change(const struct training *c, const struct averager_result *r)
{
    return c->o.local_steps && r->group && r->report.senders_lost + 1 == r->group->count;
}

static void drop_messages(struct training *c)
{
    for (size_t i = 0; i < c->gradient.message_count; i++) free(c->gradient.messages[i].data);
    free(c->gradient.messages);
    c->gradient.messages = NULL;
    c->gradient.message_count = 0;
}

/* A message belongs to the callback. */
static void keep_messages(struct training *c, struct averager_result *r)
{
    drop_messages(c);
    if (r->status) return;
    c->gradient.message_count = averager_take_messages(c->a[GRADIENT], &c->gradient.messages);
    if (c->gradient.message_count) return;
    r->status = PL_ENOMEM;
    r->why = "averaging: no memory";
}

/* A delayed round has ended. Only now does the swarm see us at the next epoch: reported earlier,
 * it would show the slower peers, which the round is waiting for, that they are late. */
static void end_delayed_round(struct training *c)
{
    c->own.phase = EPOCH_BEGUN;
    /* Without the others' messages there is no step. */
    if (c->o.gathers && c->gradient.result.status && !c->gradient.is_alone)
        c->own.samples = c->own.next_samples;
    else training_begin_epoch(c, c->own.next_samples);
    c->own.next_samples = 0;
    training_report(c);
    training_poll_again(c);
}

static void on_gradient(void *context, const struct averager_result *result)
{
    struct training *c = context;
    struct averager_result common = *result;
    const struct averager_result *r = &common;
    struct request *w = c->gradient.waiter;
    const int delayed = c->own.phase == EPOCH_OVERLAPPED, ours = training_is_averaging(c);
    if (!common.status && is_own_change(c, result)) {
        common.status = PL_EIO;
        common.why = "averaging: all of the others were too late for the mean";
    }
    if (c->o.gathers) keep_messages(c, &common);
    /* A round without peers counts as failed only if there were peers to come. */
    training_count(c, r, ours && !c->gradient.is_alone);
    /* Before a delayed round's end the peer computes, it does not wait. */
    if (ours && !delayed && !c->gradient.is_alone)
        training_count_wait(c, training_now(c) - c->gradient.triggered_at - r->seconds);
    if (!ours) return; /* a search that never got our gradient */
    training_copy_result(&c->gradient.result, r);
    c->gradient.result.is_delivered = c->o.gathers && averager_was_fetched(c->a[GRADIENT]);
    if (!c->gradient.is_alone) training_note_absent(c, r);
    /* Groupmates of a common round have shown that they train: their epochs weigh more
     * (claims.h). */
    if (!r->status && r->group) claims_round(&c->poll.claims, r->group);
    training_note_mates(c, r->status ? NULL : r->group);
    c->gradient.waiter = NULL;
    if (delayed) end_delayed_round(c);
    else c->own.phase = EPOCH_STEPPING;
    if (w) loop_end(&w->wait, r->status);
}

void training_schedule(struct training *c)
{
    /* Found before the gradient is complete; the all-reduce waits for join_round. */
    struct averager_step s = { .untriggered = 1, .claim = { .epoch = c->own.epoch } };
    if (!averager_is_busy(c->a[GRADIENT])) training_begin_round(c, GRADIENT, &s, on_gradient);
}

double training_weight_max(const struct training *c)
{
    return c->o.local_steps ? 1 : TRAINING_WEIGHT_MAX * (double)c->o.target_batch;
}

/* Our message, with the weight of its contents. */
static void give_message(struct training *c, const struct request *w, double most)
{
    const double count = c->o.local_steps ? 1 : fmin((double)c->own.samples, most);
    if (averager_give(c->a[GRADIENT], w->seconds * count, c->own.epoch, w->message, w->message_n))
        averager_cancel(c->a[GRADIENT]);
}

/* Triggers the round with our gradient, weighted by its samples, or with our message. Returns 0 if
 * no round is under way. */
static int join_round(struct training *c, const struct request *w, enum epoch_phase phase)
{
    float *const *gradient = w->tensor;
    struct averager *a = c->a[GRADIENT];
    const double most = training_weight_max(c);
    c->gradient.is_alone = 0;
    c->gradient.samples = c->poll.view.samples;
    training_schedule(c);
    if (!averager_is_busy(a)) {
        memset(&c->gradient.result, 0, sizeof c->gradient.result);
        c->gradient.result.status = pl_fail(&c->gradient.result.why, PL_EAGAIN,
                                            "averaging: no round could be begun");
        c->gradient.result.peers = 1;
        return 0;
    }
    c->own.phase = phase;
    if ((!gradient && !w->message) ||
        (!c->poll.others && !averager_has_group(a))) { /* no finite gradient, or no other peer */
        c->gradient.is_alone = 1;
        averager_cancel(a);
    } else {
        /* The weight is the number of samples, up to the most that groupmates accept. A verified
         * round recomputes the claim, and a capped one would not match: then our part is to
         * reduce only. */
        int too_many = c->o.verify && (double)c->own.samples > most;
        const struct verifier_claim claim = { c->own.epoch,
                                              too_many ? 0 : (uint64_t)c->own.samples };
        c->gradient.triggered_at = training_now(c);
        /* Peers may have come or gone since the search began. */
        averager_expect(a, training_expected(c));
        if (w->message) give_message(c, w, most);
        else
            averager_trigger(a, too_many ? 0 : fmin((double)c->own.samples, most), gradient,
                             &claim);
        training_report_later(c);
    }
    return 1;
}

/* Undelayed: the training's thread waits in w until on_gradient completes it. */
static void begin_average(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    /* No polls or timed fetches during an update: the view would change under the decision that
     * it caused. [spec hivemind-protocol 8] */
    timer_stop(&c->poll.timer);
    c->gradient.waiter = w;
    if (join_round(c, w, EPOCH_AVERAGING)) return;
    c->own.phase = EPOCH_STEPPING;
    c->gradient.waiter = NULL;
    loop_end(&w->wait, PL_EAGAIN);
}

/* Delayed: returns at once. Whatever is accumulated from now on belongs to the next epoch;
 * without a round that epoch begins immediately. */
static void begin_delayed_average(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    c->own.next_samples = 0;
    if (!join_round(c, w, EPOCH_OVERLAPPED)) end_delayed_round(c);
}

/* A NaN or an infinity from one peer would make everybody's mean useless, so groupmates refuse
 * it and the round would fail for them too. */
static int is_finite(const struct training *c, float *const *x)
{
    for (size_t t = 0; t < c->o.tensors; t++)
        for (size_t i = 0; i < c->elements[t]; i++)
            if (!isfinite(x[t][i])) return 0;
    return 1;
}

/* The round's result for the training's thread. Its sentence stands, unless the reason lies
 * here. */
static void take_result(const struct training *c, struct training_round *r, int is_bad)
{
    *r = c->gradient.result;
    r->samples = c->gradient.samples;
    r->is_alone = c->gradient.is_alone && !is_bad;
    if (is_bad) pl_fail(&r->why, r->status, "our own gradient is not finite");
    else if (r->is_alone) pl_fail(&r->why, r->status, "alone: no peer to average with");
}

void training_average(struct training *c, float *const *gradient, struct training_round *r)
{
    /* First the gradients, then the end of the older round of the parameters, in this order
     * (training_rounds.c). */
    struct request w = { .c = c, .tensor = is_finite(c, gradient) ? gradient : NULL },
                   finish = { .c = c };
    request_wait(&w, begin_average);
    take_result(c, r, !w.tensor);
    request_wait(&finish, training_finish_parameters);
}

/* Rounds of the parameters do not go with it: there is none to wait for. */
void training_gather(struct training *c, double weight, const uint8_t *data, size_t n,
                     struct training_round *r)
{
    struct request w = { .c = c, .message = data, .message_n = n, .seconds = weight };
    request_wait(&w, begin_average);
    take_result(c, r, 0);
}

static void take_messages(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    *w->messages = c->gradient.messages;
    w->number = (int64_t)c->gradient.message_count;
    c->gradient.messages = NULL;
    c->gradient.message_count = 0;
}

size_t training_take_messages(struct training *c, struct averager_message **messages)
{
    struct request w = { .c = c, .messages = messages };
    loop_call(c->loop, take_messages, &w);
    return (size_t)w.number;
}

void training_begin_average(struct training *c, float *const *gradient)
{
    struct request w = { .c = c, .tensor = is_finite(c, gradient) ? gradient : NULL };
    c->gradient.is_bad = !w.tensor;
    loop_call(c->loop, begin_delayed_average, &w);
}

int training_begin_gather(struct training *c, double weight, const uint8_t *data, size_t n)
{
    struct request w = { .c = c, .message = data, .message_n = n, .seconds = weight };
    c->gradient.is_bad = 0;
    loop_call(c->loop, begin_delayed_average, &w);
    return c->gradient.is_alone;
}

/* Waits for the end of a delayed round; there is nothing to wait for if it has ended. */
static void wait_gradient_round(void *context)
{
    struct request *w = context;
    if (training_is_averaging(w->c)) w->c->gradient.waiter = w;
    else loop_end(&w->wait, PL_OK);
}

/* As training_finish_parameters, but without waiting: between two local batches. */
static void check_returned(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    const int averaging = training_is_averaging(c);
    if (!averaging && training_is_in_parameters(c)) averager_finish(c->a[STATE]);
    w->number = !averaging && !training_is_in_parameters(c);
}

int training_end_average(struct training *c, struct training_round *r, int wait)
{
    struct request end = { .c = c }, finish = { .c = c }, check = { .c = c };
    if (wait) {
        request_wait(&end, wait_gradient_round);
        request_wait(&finish, training_finish_parameters);
    } else {
        loop_call(c->loop, check_returned, &check);
        if (!check.number) return 0;
    }
    take_result(c, r, c->gradient.is_bad);
    return 1;
}
