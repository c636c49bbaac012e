/* training_auxiliary.c - an auxiliary peer has bandwidth but no gradient: it reduces parts with
 * weight 0. Its tensors are ready when the search begins, so no group ever waits for its trigger.
 * [spec hivemind-protocol 5.2]
 *
 *   training_help, called every second or so:
 *   IDLE --a round is near--> AVERAGING --on_helped--> ENDED --its result is taken--> IDLE */
#include "training_internal.h"

/* The end of a round for an auxiliary peer; its view is out of date now, too. */
static void on_helped(void *context, const struct averager_result *r)
{
    struct training *c = context;
    c->help.phase = AUXILIARY_ENDED;
    training_copy_result(&c->gradient.result, r);
    if (r->group) training_note_absent(c, r);
    if (!r->status) c->help.last_epoch = c->help.epoch;
    training_poll_again(c);
}

static void begin_helping(struct training *c, float *const *tensor)
{
    struct averager_step s = { .tensor = tensor,
                               .expected = training_expected(c) - 1,
                               .claim = { .epoch = c->poll.view.epoch } };
    c->help.epoch = c->poll.view.epoch;
    c->gradient.triggered_at = training_now(c);
    if (!training_begin_round(c, GRADIENT, &s, on_helped)) c->help.phase = AUXILIARY_AVERAGING;
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
