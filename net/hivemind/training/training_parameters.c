/* training_parameters.c - the round of the parameters, in the background: x = mean of x_k.
 * [TTT 2.1] [spec hivemind-protocol 12, "Two rounds"]
 *
 *   training_advance             the optimizer has stepped: x_given is copied, a round begins
 *   on_state                     it has ended; groupmates' epochs show whether we are late
 *   training_corrected           once, between batches: its result
 *   training_correct             x += x_averaged - x_given
 *   training_finish_parameters   the next step is due: a round without a group is given up */
#include "training_internal.h"
#include "net/hivemind/messages/msgpack.h"

#include <string.h>

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
    training_copy_result(&c->state.result, r);
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

static void begin_state_round(struct training *c)
{
    struct bytes gather = { 0 };
    /* All peers count the same, whatever they have trained. */
    struct averager_step s = { .weight = 1,
                               .tensor = c->state.after,
                               .expected = training_expected(c) };
    /* Stated to the group: our epoch after the step, for is_behind_clients. */
    mp_int(&gather, c->own.epoch);
    s.gather = bytes_at(&gather);
    s.gather_n = bytes_length(&gather);
    if (!gather.failed && !training_begin_round(c, STATE, &s, on_state))
        c->state.phase = STATE_AVERAGING;
    bytes_clear(&gather);
}

void training_finish_parameters(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    if (!training_is_in_parameters(c)) {
        loop_end(&w->wait, PL_OK);
        return;
    }
    c->state.waiter = w;
    /* OpenDiLoCo's peers wait for it before their outer step. If one peer did not, its next round
     * of phi would meet their last one, and so on in every epoch. The averager's patience ends the
     * wait. */
    if (!c->o.local_steps) averager_finish(c->a[STATE]);
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
    if (c->own.phase != EPOCH_BEGUN) training_begin_epoch(c, 0);
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
    /* An older round holds the copies until it ends; training_enter has given it up. */
    request_wait(&finish, training_finish_parameters);
    if (c->own.epoch % c->o.average_state_every == 0 && !copy_parameters(c, parameter))
        loop_call(c->loop, begin_late_state_round, &begin);
}

/* Takes the result of a round of the parameters, once. */
static void take_state_result(void *context)
{
    struct request *w = context;
    /* A downloaded state has replaced the parameters that the round began with: drop its result. */
    w->number = w->c->state.phase == STATE_ENDED;
    if (!w->number) return;
    w->c->state.phase = STATE_IDLE;
    if (!w->c->state.result.status) training_note_corrected(w->c, w->c->state.result.peers);
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
