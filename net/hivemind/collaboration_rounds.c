/* collaboration_rounds.c - the round that averages the gradients, which training waits for, and the one
 * that averages the parameters beside it. */
#include "collaboration_inside.h"
#include "msgpack.h"

#include <math.h>
#include <string.h>

/* --- gradients -------------------------------------------------------------------------------- */

static void on_gradient(void *context, const struct averager_result *r)
{
    struct collaboration *c = context;
    struct wish *w = c->gradient_waits;
    c->gradient.status = r->status;
    c->gradient.peers = r->group ? r->group->count : 1;
    c->gradient.seconds = r->seconds;
    c->gradient.verified = r->verified;
    if (w && r->status && !r->group && !c->alone) c->alone_at = c->triggered_at;
    collaboration_count(c, r, w && !c->alone);
    pl_fail(&c->gradient.why, r->status, "%.500s", r->why);
    c->gradient_waits = NULL;
    if (w) wish_fulfil(w, r->status);
}

void collaboration_schedule(struct collaboration *c)
{
    double now = collaboration_now(c);
    struct averager_step s = { .scheduled = now + c->o.matchmaking_time,
                               .deadline = now + c->o.averaging_timeout, .untriggered = 1,
                               .patience = COLLABORATION_PATIENCE };
    if (!averager_is_busy(c->a[GRADIENT])) averager_begin(c->a[GRADIENT], &s, on_gradient, c);
}

static void begin_average(void *context)
{
    struct wish *w = context;
    struct collaboration *c = w->c;
    struct averager *a = c->a[GRADIENT];
    c->updating = 1;
    c->alone = 0;
    timer_stop(&c->fetch_timer);
    c->gradient_waits = w;
    collaboration_schedule(c);
    if (!averager_is_busy(a)) {
        c->gradient_waits = NULL;
        c->gradient.status = pl_fail(&c->gradient.why, PL_EAGAIN,
                                     "averaging: no round could be begun");
        c->gradient.peers = 1;
        wish_fulfil(w, PL_EAGAIN);
    } else if (!w->tensor || (!c->others && !averager_has_group(a))) { /* nothing to give, or nobody to wait for */
        c->alone = 1;
        averager_cancel(a);
    } else {
        c->triggered_at = collaboration_now(c);
        averager_expect(a, c->others + 1);
        averager_trigger(a, (double)c->samples, w->tensor);
    }
}

/* How far the first of the group was before us: everybody tells its epoch. */
static int64_t epochs_ahead(const struct group *g)
{
    int64_t own = -1, most = -1;
    for (size_t i = 0; i < g->count; i++) {
        struct mp_value *v;
        int64_t epoch;
        if (mp_read(&v, g->members[i].gather.user, g->members[i].gather.user_n, NULL)) continue;
        epoch = mp_count(v);
        mp_free(v);
        if (epoch > most) most = epoch;
        if (i == g->self) own = epoch;
    }
    return own >= 0 && most > own ? most - own : 0;
}

static void on_state(void *context, const struct averager_result *r)
{
    struct collaboration *c = context;
    struct wish *w = c->state_waits;
    c->state.status = r->status;
    c->state.peers = r->group ? r->group->count : 1;
    c->state.seconds = r->seconds;
    collaboration_count(c, r, 0);
    c->state.ahead = !r->status && r->group ? epochs_ahead(r->group) : 0;
    pl_fail(&c->state.why, r->status, "%.500s", r->why);
    c->state_running = 0;
    c->state_ended = 1;
    c->state_waits = NULL;
    if (w) wish_fulfil(w, r->status);
}

/* A round of the parameters that has found no group yet is given up: the others are at their gradients.
 * One that is in its exchange is waited for. */
static void begin_settle(void *context)
{
    struct wish *w = context;
    struct collaboration *c = w->c;
    if (!c->state_running) {
        wish_fulfil(w, PL_OK);
        return;
    }
    c->state_waits = w;
    if (!averager_has_group(c->a[STATE])) averager_cancel(c->a[STATE]);
}

/* Others refuse what is no number, and the round would fail for them too. */
static int is_finite(const struct collaboration *c, float *const *x)
{
    for (size_t t = 0; t < c->o.tensors; t++)
        for (size_t i = 0; i < c->elements[t]; i++)
            if (!isfinite(x[t][i])) return 0;
    return 1;
}

void collaboration_average(struct collaboration *c, float *const *gradient,
                           struct collaboration_round *r)
{
    struct wish w = { .c = c, .tensor = is_finite(c, gradient) ? gradient : NULL },
                settle = { .c = c };
    int rc = wish_await(&w, begin_average);
    *r = c->gradient;
    r->status = rc;
    if (!w.tensor) pl_fail(&r->why, rc, "our own gradient is not finite");
    else if (c->alone) pl_fail(&r->why, rc, "alone: nobody to average with");
    wish_await(&settle, begin_settle);
}

/* --- parameters ------------------------------------------------------------------------------- */

static int keep_copies(struct collaboration *c, float *const *parameter)
{
    for (size_t t = 0; t < c->o.tensors; t++) {
        size_t bytes = c->elements[t] * sizeof(float);
        if (!c->before[t] && !(c->before[t] = pl_alloc(c->elements[t], sizeof(float))))
            return PL_ENOMEM;
        if (!c->after[t] && !(c->after[t] = pl_alloc(c->elements[t], sizeof(float))))
            return PL_ENOMEM;
        memcpy(c->before[t], parameter[t], bytes);
        memcpy(c->after[t], parameter[t], bytes);
    }
    return PL_OK;
}

static void begin_state(struct collaboration *c)
{
    double now = collaboration_now(c);
    struct bytes gather = { 0 };
    struct averager_step s = { .scheduled = now + c->o.matchmaking_time,
                               .deadline = now + c->o.averaging_timeout,
                               .weight = 1,
                               .tensor = c->after,
                               .expected = c->others + 1,
                               .patience = COLLABORATION_PATIENCE };
    mp_int(&gather, c->epoch);
    s.gather = bytes_at(&gather);
    s.gather_n = bytes_length(&gather);
    c->state_void = 0;
    c->state_running = !gather.failed && !averager_begin(c->a[STATE], &s, on_state, c);
    bytes_clear(&gather);
}

static void begin_advance(void *context)
{
    struct wish *w = context;
    struct collaboration *c = w->c;
    int was_alone = !c->others && c->gradient.peers <= 1;
    c->epoch++;
    c->samples = 0;
    c->updating = 0;
    c->state_ended = 0;
    if (c->view.epoch < c->epoch) {
        c->view.epoch = c->epoch;
        c->view.samples = 0;
        c->view.eta = INFINITY;
    }
    collaboration_report(c);
    if (w->tensor && !was_alone) begin_state(c);
    collaboration_fresh(w);
}

void collaboration_advance(struct collaboration *c, float *const *parameter)
{
    struct wish w = { .c = c };
    if ((c->epoch + 1) % c->o.average_state_every == 0 && !keep_copies(c, parameter))
        w.tensor = parameter;
    wish_await(&w, begin_advance);
}

static void take_state(void *context)
{
    struct wish *w = context;
    w->number = w->c->state_ended && !w->c->state_void;
    w->c->state_ended = 0;
    wish_fulfil(w, PL_OK);
}

int collaboration_correct(struct collaboration *c, float *const *parameter,
                          struct collaboration_round *r)
{
    struct wish w = { .c = c };
    if (wish_await(&w, take_state) || !w.number) return 0;
    *r = c->state;
    for (size_t t = 0; !r->status && t < c->o.tensors; t++)
        for (size_t i = 0; i < c->elements[t]; i++)
            parameter[t][i] += c->after[t][i] - c->before[t][i];
    return 1;
}

