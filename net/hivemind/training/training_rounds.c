/* training_rounds.c - the two rounds of an epoch. [TTT 2.1; 3.3] [spec hivemind-protocol 9,
 * steps 4 and 5]
 *
 *   gradients   g = sum_k n_k g_k / sum_k n_k   peer k gives its mean gradient, n_k samples
 *   parameters  x = mean of x_k                 in the background, after the optimizer's step
 *
 * The first makes all peers take the same step. The second removes the differences that still
 * arise: rounding in float16, a lost part, a round that one peer missed.
 *
 *   add: eta is near     training_schedule   look for a group, without a trigger
 *   add: UPDATE          join_round               give the gradient: the all-reduce may begin
 *                        on_gradient              the mean, or the reason of the failure
 *   after the step       begin_epoch              the next epoch begins
 *                        begin_state_round        the parameters go to their round
 *   between batches      training_correct    x += x_averaged - x_given
 *
 * Neither round waits for the other before its trigger: two peers that wait in opposite orders
 * would wait for each other endlessly. [spec hivemind-protocol 12, "Two rounds"]
 *
 * More than 500 lines: the two rounds share their states, and each is explained by the other. */
#include "training_internal.h"
#include "net/hivemind/messages/msgpack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void copy_result(struct training_round *to, const struct averager_result *r)
{
    memset(to, 0, sizeof *to);
    to->status = r->status;
    to->peers = r->group ? r->group->count : 1;
    to->seconds = r->seconds;
    to->verified = r->verified;
    to->banned = r->banned;
    /* The averager's texts last as long as its callback: copies. */
    if (r->banned) pl_fail(&to->caught, PL_EPROTO, "%.500s", r->caught);
    if (r->group) memcpy(to->group, r->group->id, sizeof to->group);
    pl_fail(&to->why, r->status, "%.500s", r->why);
}

/* --- gradients -------------------------------------------------------------------------------- */

/* Own epoch + 1, with the samples that were accumulated during a delayed round. If no peer is
 * known to be ahead, this begins the global epoch as well: its estimate is unknown until the
 * next poll. [spec hivemind-protocol 8] */
static void begin_epoch(struct training *c, int64_t samples)
{
    c->own.epoch++;
    c->own.samples = samples;
    if (samples) c->own.last_epoch_with_samples = c->own.epoch;
    if (c->poll.view.epoch < c->own.epoch) {
        c->poll.view.epoch = c->own.epoch;
        c->poll.view.samples = samples;
        c->poll.view.eta = INFINITY;
    }
}

/* A delayed round has ended. Only now does the swarm see us at the next epoch: reported earlier,
 * it would show the slower peers, which the round is waiting for, that they are late. */
static void end_delayed_round(struct training *c)
{
    c->own.phase = EPOCH_BEGUN;
    /* Without the others' messages there is no step. */
    if (c->o.gathers && c->gradient.result.status && !c->gradient.is_alone)
        c->own.samples = c->own.next_samples;
    else begin_epoch(c, c->own.next_samples);
    c->own.next_samples = 0;
    training_report(c);
    training_poll_again(c);
}

/* Which of the reporting peers has not come? In a group of limited size, or under one of several
 * keys, most peers are missing for good reasons, so their absence says nothing. */
static void note_absent(struct training *c, const struct averager_result *r)
{
    const size_t digits = strlen(averager_group_bits(c->a[GRADIENT]));
    const struct liveness *all = &c->poll.liveness;
    const int limited = (c->o.group_size && c->o.group_size <= all->count + all->part_peers) ||
                        digits;
    if (c->poll.others) grid_round(&c->grid, r->group ? r->group->count : 0, digits);
    liveness_note_group(&c->poll.liveness, r->group);
    if (r->group ? !limited : r->status != PL_OK)
        liveness_round(&c->poll.liveness, r->group, c->gradient.triggered_at);
}

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
    copy_result(&c->gradient.result, r);
    c->gradient.result.is_delivered = c->o.gathers && averager_was_fetched(c->a[GRADIENT]);
    if (!c->gradient.is_alone) note_absent(c, r);
    /* Groupmates of a common round have shown that they train: their epochs weigh more
     * (claims.h). */
    if (!r->status && r->group) claims_round(&c->poll.claims, r->group);
    c->gradient.waiter = NULL;
    if (delayed) end_delayed_round(c);
    else c->own.phase = EPOCH_STEPPING;
    if (w) loop_end(&w->wait, r->status);
}

/* A leader need not wait for the end of matchmaking once this many peers have joined. */
static size_t expected_peers(const struct training *c)
{
    return c->poll.others - c->poll.paused + 1;
}

/* The averager's next key gets the number of bits that the run's present size needs. With local
 * steps, phi and the outer momentum must be equal at all peers, so these form one group. */
static void fit_grid(struct training *c, struct averager *a)
{
    if (c->o.group_bits || c->o.group_size || c->o.local_steps) return;
    averager_set_digits(a, grid_digits(grid_peers(&c->grid, c->poll.others + 1), c->own.epoch));
}

void training_schedule(struct training *c)
{
    double now = training_now(c);
    struct averager_step s = { .scheduled = now + c->o.matchmaking_time,
                               .deadline = now + c->o.averaging_timeout,
                               /* found before the gradient is complete; the all-reduce waits for
                                * join_round */
                               .untriggered = 1,
                               .claim = { .epoch = c->own.epoch },
                               .patience = TRAINING_PATIENCE };
    if (averager_is_busy(c->a[GRADIENT])) return;
    fit_grid(c, c->a[GRADIENT]);
    averager_begin(c->a[GRADIENT], &s, on_gradient, c);
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
        averager_expect(a, expected_peers(c));
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

/* In a round of the parameters each peer gathers its epoch (begin_state_round). Returns -1 if this
 * one did not. */
static int64_t gathered_epoch(const struct group_member *m)
{
    struct mp_value *v;
    int64_t epoch;
    if (mp_read(&v, m->gather.user, m->gather.user_n, NULL)) return -1;
    epoch = mp_count(v);
    mp_free(v);
    return epoch;
}

/* Was our epoch behind most of the group, and do the progress records say the same? That is
 * believed only if all peers ahead are clients, which cannot serve a state as proof; and never
 * on one peer's word. [spec hivemind-protocol 12] */
static int is_behind_clients(const struct training *c, const struct group *g)
{
    const int64_t own = gathered_epoch(&g->members[g->self]);
    size_t ahead = 0;
    for (size_t i = 0; i < g->count; i++) ahead += gathered_epoch(&g->members[i]) > own;
    return own == c->own.epoch && ahead >= 2 && 2 * ahead > g->count - 1 &&
           c->poll.lead > c->own.epoch &&
           !claims_can_be_shown(&c->poll.claims, c->own.epoch, training_now(c));
}

/* phi jumps at an outer step: a mean over two epochs of it would undo half of one. All of the group
 * see the same epochs, so all of our peers refuse the mean; hivemind's take it. */
static int is_one_epoch(const struct group *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (gathered_epoch(&g->members[i]) != gathered_epoch(&g->members[g->self])) return 0;
    return 1;
}

/* No peer of the group is at a later epoch than we are. */
static int is_latest(const struct training *c, const struct group *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (gathered_epoch(&g->members[i]) > c->own.epoch) return 0;
    return gathered_epoch(&g->members[g->self]) == c->own.epoch;
}

static int is_state_under_way(const struct training *c)
{
    return c->state.phase == STATE_AVERAGING || c->state.phase == STATE_OUTDATED;
}

static void begin_state_round(struct training *c);

/* A peer of OpenDiLoCo delays its outer step until its last round of phi ends. If that round finds
 * no group, it meets the others' next round: then they are in one group, an epoch apart, and so
 * again at each later step. The late peer begins its next round right after such a meeting, so a
 * second round of ours meets it at our own epoch. Once an epoch: each costs the bytes of a
 * model. */
static int should_repeat(const struct training *c, const struct group *g)
{
    return c->state.phase == STATE_ENDED && !c->state.is_repeated && !c->state.waiter &&
           c->own.phase == EPOCH_ACCUMULATING && !c->is_closing && is_latest(c, g);
}

static void repeat_state_round(struct training *c)
{
    for (size_t t = 0; t < c->o.tensors; t++)
        memcpy(c->state.after[t], c->state.before[t], c->elements[t] * sizeof(float));
    c->state.is_repeated = 1;
    begin_state_round(c);
}

static void on_state(void *context, const struct averager_result *r)
{
    struct training *c = context;
    struct request *w = c->state.waiter;
    int is_apart = 0;
    copy_result(&c->state.result, r);
    training_count(c, r, 0);
    /* Groups of the two kinds of rounds differ: where a swarm has come apart into parts at
     * different epochs, the smaller part mostly meets the larger one in these. */
    if (!r->status && r->group) claims_round(&c->poll.claims, r->group);
    /* Whether the group was ahead of us is judged at once, by the records of this moment. */
    c->state.result.ahead = !r->status && r->group && is_behind_clients(c, r->group);
    if (c->o.local_steps && !r->status && r->group && !is_one_epoch(r->group)) {
        c->state.result.status = pl_fail(&c->state.result.why, PL_EPROTO,
                                         "a groupmate gave parameters of another epoch");
        c->state.result.ahead = 0;
        is_apart = 1;
    }
    c->state.phase = c->state.phase == STATE_OUTDATED ? STATE_IDLE : STATE_ENDED;
    if (is_apart && should_repeat(c, r->group)) repeat_state_round(c);
    c->state.waiter = NULL;
    if (w) loop_end(&w->wait, r->status);
}

/* Gives up a round of the parameters that has found no group yet: the others are busy with their
 * gradients. A round in its all-reduce is waited for, and not tried again if it fails. */
static void finish_state_round(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    if (!is_state_under_way(c)) {
        loop_end(&w->wait, PL_OK);
        return;
    }
    c->state.waiter = w;
    /* OpenDiLoCo's peers wait for it before their outer step. If one peer did not, its next round
     * of phi would meet their last one, and so on in every epoch. The averager's patience ends the
     * wait. */
    if (!c->o.local_steps) averager_finish(c->a[STATE]);
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

/* The round's own sentence, unless the reason lies here. */
static void explain_failure(const struct training *c, struct training_round *r, int nothing)
{
    if (nothing) pl_fail(&r->why, r->status, "our own gradient is not finite");
    else if (c->gradient.is_alone) pl_fail(&r->why, r->status, "alone: no peer to average with");
}

void training_average(struct training *c, float *const *gradient, struct training_round *r)
{
    /* First the gradients, then the end of the older round of the parameters, in this order (see
     * above). */
    struct request w = { .c = c, .tensor = is_finite(c, gradient) ? gradient : NULL },
                   finish = { .c = c };
    int rc = request_wait(&w, begin_average);
    *r = c->gradient.result;
    r->samples = c->gradient.samples;
    r->status = rc;
    r->is_alone = w.tensor && c->gradient.is_alone;
    explain_failure(c, r, !w.tensor);
    request_wait(&finish, finish_state_round);
}

/* Rounds of the parameters do not go with it: there is none to wait for. */
void training_gather(struct training *c, double weight, const uint8_t *data, size_t n,
                     struct training_round *r)
{
    struct request w = { .c = c, .message = data, .message_n = n, .seconds = weight };
    int rc = request_wait(&w, begin_average);
    *r = c->gradient.result;
    r->samples = c->gradient.samples;
    r->status = rc;
    r->is_alone = c->gradient.is_alone;
    explain_failure(c, r, 0);
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

/* As finish_state_round, but without waiting: between two local batches. */
static void check_returned(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    const int averaging = training_is_averaging(c);
    if (!averaging && is_state_under_way(c)) averager_finish(c->a[STATE]);
    w->number = !averaging && !is_state_under_way(c);
}

int training_end_average(struct training *c, struct training_round *r, int wait)
{
    struct request end = { .c = c }, finish = { .c = c }, check = { .c = c };
    if (wait) {
        request_wait(&end, wait_gradient_round);
        request_wait(&finish, finish_state_round);
    } else {
        loop_call(c->loop, check_returned, &check);
        if (!check.number) return 0;
    }
    *r = c->gradient.result;
    r->samples = c->gradient.samples;
    r->is_alone = c->gradient.is_alone && !c->gradient.is_bad;
    explain_failure(c, r, c->gradient.is_bad);
    return 1;
}

/* --- an auxiliary peer ------------------------------------------------------------------------ */

/* The end of a round for an auxiliary peer; its view is out of date now, too. */
static void on_helped(void *context, const struct averager_result *r)
{
    struct training *c = context;
    c->help.phase = AUXILIARY_ENDED;
    copy_result(&c->gradient.result, r);
    if (r->group) note_absent(c, r);
    if (!r->status) c->help.last_epoch = c->help.epoch;
    training_poll_again(c);
}

/* An auxiliary peer has bandwidth but no gradient: it reduces parts with weight 0. Its tensors
 * are ready when the search begins, so no group ever waits for its trigger. [spec
 * hivemind-protocol 5.2] */
static void begin_helping(struct training *c, float *const *tensor)
{
    double now = training_now(c);
    struct averager_step s = { .scheduled = now + c->o.matchmaking_time,
                               .deadline = now + c->o.averaging_timeout,
                               .tensor = tensor,
                               .expected = expected_peers(c) - 1,
                               .claim = { .epoch = c->poll.view.epoch },
                               .patience = TRAINING_PATIENCE };
    c->help.epoch = c->poll.view.epoch;
    c->gradient.triggered_at = now;
    fit_grid(c, c->a[GRADIENT]);
    if (!averager_begin(c->a[GRADIENT], &s, on_helped, c)) c->help.phase = AUXILIARY_AVERAGING;
}

static void advance_help(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    /* The condition for UPDATE, one matchmaking time earlier; at least two trainers, or there is
     * nothing to reduce; once per epoch. */
    int soon = c->poll.view.samples >= c->o.target_batch ||
               c->poll.view.eta - training_now(c) <= c->o.matchmaking_time;
    w->number = c->help.phase == AUXILIARY_ENDED;
    if (w->number) {
        *w->round = c->gradient.result;
        c->help.phase = AUXILIARY_IDLE;
    } else if (c->help.phase == AUXILIARY_IDLE && soon && c->poll.others >= 2 &&
               c->poll.view.epoch != c->help.last_epoch)
        begin_helping(c, w->tensor);
}

int training_help(struct training *c, float *const *tensor, struct training_round *r)
{
    struct request w = { .c = c, .tensor = tensor, .round = r };
    loop_call(c->loop, advance_help, &w);
    return w.number != 0;
}

/* --- parameters ------------------------------------------------------------------------------- */

/* x_given (before) and a copy for the averager to change (after). Training keeps changing x itself;
 * the round adds the difference between the two. */
static int copy_parameters(struct training *c, float *const *parameter)
{
    for (size_t t = 0; t < c->o.tensors; t++) {
        size_t bytes = c->elements[t] * sizeof(float);
        if (!c->state.before[t] && !(c->state.before[t] = pl_alloc(c->elements[t], sizeof(float))))
            return PL_ENOMEM;
        if (!c->state.after[t] && !(c->state.after[t] = pl_alloc(c->elements[t], sizeof(float))))
            return PL_ENOMEM;
        memcpy(c->state.before[t], parameter[t], bytes);
        memcpy(c->state.after[t], parameter[t], bytes);
    }
    return PL_OK;
}

static void begin_state_round(struct training *c)
{
    double now = training_now(c);
    struct bytes gather = { 0 };
    struct averager_step s = { .scheduled = now + c->o.matchmaking_time,
                               .deadline = now + c->o.averaging_timeout,
                               /* all peers count the same, whatever they have trained */
                               .weight = 1,
                               .tensor = c->state.after,
                               .expected = expected_peers(c),
                               .patience = TRAINING_PATIENCE };
    /* Stated to the group: our epoch after the step, for is_behind_clients. */
    mp_int(&gather, c->own.epoch);
    s.gather = bytes_at(&gather);
    s.gather_n = bytes_length(&gather);
    fit_grid(c, c->a[STATE]);
    if (!gather.failed && !averager_begin(c->a[STATE], &s, on_state, c))
        c->state.phase = STATE_AVERAGING;
    bytes_clear(&gather);
}

static void begin_advance(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    /* Alone before and in this round: no other peer to average parameters with. */
    int was_alone = !c->poll.others && c->gradient.result.peers <= 1;
    target_watch_step(&c->poll.watch, c->gradient.triggered_at,
                      c->poll.others && c->gradient.result.status && c->gradient.result.peers <= 1);
    /* A delayed round has begun the epoch at its own end. */
    if (c->own.phase != EPOCH_BEGUN) begin_epoch(c, 0);
    /* This update is over: polls and reports go on. */
    c->own.phase = EPOCH_ACCUMULATING;
    /* A result that was not taken belongs to the step before. */
    if (c->state.phase == STATE_ENDED) c->state.phase = STATE_IDLE;
    training_report(c);
    c->state.is_repeated = 0;
    if (w->tensor && !was_alone) begin_state_round(c);
    /* The poll that fell due during the update comes before the next batch. Without it a peer can
     * stay one epoch behind endlessly. [spec hivemind-protocol 8] */
    training_poll_for(w);
}

void training_advance(struct training *c, float *const *parameter)
{
    struct request w = { .c = c };
    /* Every average_state_every-th epoch; without memory for the copies the round is left out. */
    int64_t next = c->own.epoch + (c->own.phase != EPOCH_BEGUN);
    if (next % c->o.average_state_every == 0 && !copy_parameters(c, parameter))
        w.tensor = parameter;
    request_wait(&w, begin_advance);
}

static void begin_late_state_round(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    c->state.is_repeated = 0;
    if (c->poll.others) begin_state_round(c);
}

void training_average_parameters(struct training *c, float *const *parameter)
{
    struct request finish = { .c = c }, begin = { .c = c };
    /* An older round holds the copies until it ends; training_set_epoch has given it up. */
    request_wait(&finish, finish_state_round);
    if (c->own.epoch % c->o.average_state_every == 0 && !copy_parameters(c, parameter))
        loop_call(c->loop, begin_late_state_round, &begin);
}

/* Takes the result of a round of the parameters, once. */
static void take_state_result(void *context)
{
    struct request *w = context;
    /* A downloaded state has replaced the parameters that the round began with: drop its result. */
    w->number = w->c->state.phase == STATE_ENDED;
    if (w->number) w->c->state.phase = STATE_IDLE;
}

int training_corrected(struct training *c, struct training_round *r)
{
    struct request w = { .c = c };
    loop_call(c->loop, take_state_result, &w);
    if (!w.number) return 0;
    *r = c->state.result;
    return 1;
}

/* x += x_averaged - x_given, not x = x_averaged: batches or steps may have changed x meanwhile,
 * and overwriting would undo them. [spec hivemind-protocol 12, "Two rounds"] */
void training_correct(const struct training *c, float *const *parameter)
{
    for (size_t t = 0; t < c->o.tensors; t++)
        for (size_t i = 0; i < c->elements[t]; i++)
            parameter[t][i] += c->state.after[t][i] - c->state.before[t][i];
}
