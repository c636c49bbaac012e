/* lab_swarm.c - peers, their loop, and the moments at which something happens.
 *
 *                 gradient computed           all arrived
 *   COMPUTES ---------------------> (loop) <------------- WAITS
 *      ^  ^                          |  |                   ^
 *      |  +--------- GRADIENT -------+  +---- RECEIVE ------+
 *      |
 *   DOWNLOADS <--- AWAY <--- any state, when the peer leaves
 *
 * (loop) is the trainer's loop of ref/outer/outer.h, and takes no virtual time. */
#include "lab_swarm.h"

#include "ref/schedule.h"
#include "lab_swarm_internal.h"

#include <math.h>

/* --- events ----------------------------------------------------------------------------------- */

/* The peer's present activity ends, and another one begins. */
static int change_activity(struct lab_swarm *s, int k, enum lab_activity activity,
                           struct pl_err *err)
{
    struct peer_clock *p = &s->peer[k].clock;
    struct lab_event e = {
        .kind = LAB_SPENT, .from = p->since, .time = s->net.now, .peer = k, .activity = p->activity
    };
    double seconds = e.time - e.from;
    if (p->activity == LAB_COMPUTES) p->computed += seconds;
    if (p->activity != LAB_AWAY) p->present += seconds;
    p->activity = activity;
    p->since = e.time;
    return seconds > 0 ? lab_swarm_report(s, &e, err) : PL_OK;
}

static int first_active(const struct lab_swarm *s)
{
    for (int k = 0; k < s->setup->peers; k++)
        if (lab_is_active(s, k)) return k;
    return -1;
}

static int evaluate(struct lab_swarm *s, struct pl_err *err)
{
    struct lab_event e = { .kind = LAB_EVALUATED,
                           .time = s->net.now,
                           .samples = s->count.gradients * (uint64_t)s->model->samples };
    double computed = 0, present = 0, loss = 0;
    int rc, n = 0;
    for (int k = 0; k < s->setup->peers; k++) {
        const struct peer_clock *p = &s->peer[k].clock;
        double seconds = s->net.now - p->since;
        computed += p->computed + (p->activity == LAB_COMPUTES ? seconds : 0);
        present += p->present + (p->activity == LAB_AWAY ? 0 : seconds);
        e.bytes += s->net.traffic[k].sent + s->net.traffic[k].cancelled;
        if (p->steps) loss += p->loss, n++;
    }
    e.utilization = present > 0 ? computed / present : 1;
    e.train_loss = n ? loss / n : NAN;
    rc = s->model->held_out(s->model->context, &e.loss, lab_swarm_common(s), err);
    return rc ? rc : lab_swarm_report(s, &e, err);
}

/* --- the trainer's loop ----------------------------------------------------------------------- */

static int begin_gradient(struct lab_swarm *s, int k, struct pl_err *err)
{
    const struct lab_setup *setup = s->setup;
    struct peer_clock *p = &s->peer[k].clock;
    double seconds = setup->sample_s[k] * s->model->samples;
    if (lab_draw(s, LAB_RNG_STRAGGLE, (uint64_t)k, p->steps) < setup->straggle_share)
        seconds *= setup->straggle_factor;
    p->until = s->net.now + seconds;
    return change_activity(s, k, LAB_COMPUTES, err);
}

/* The inner optimizer's moments are the same on all peers where gradients travel. After local steps
 * they are each peer's own: a newcomer begins with zeros. [spec outer-steps 3] */
static size_t inner_bytes(const struct lab_swarm *s, int donor)
{
    const struct lab_model *m = s->model;
    return s->setup->algorithm->sends_gradients ? m->state_bytes(m->context, donor) : 0;
}

static int take_inner(struct lab_swarm *s, int newcomer, int donor)
{
    const struct lab_model *m = s->model;
    uint8_t *state = pl_alloc(m->state_bytes(m->context, donor), 1); /* zeros */
    int rc = state ? PL_OK : PL_ENOMEM;
    if (!rc && inner_bytes(s, donor)) rc = m->save(m->context, donor, state);
    if (!rc) rc = m->load(m->context, newcomer, state);
    pl_free(state);
    return rc;
}

/* Copies the shared state: parameters, the algorithm's state, and the donor's place in the order of
 * the exchanges. */
static int take_over(struct lab_swarm *s, int newcomer, int donor, struct pl_err *err)
{
    struct peer *to = &s->peer[newcomer], *from = &s->peer[donor];
    const struct lab_model *m = s->model;
    size_t outer = pl_outer_state_bytes(from->outer);
    uint8_t *state = pl_alloc(outer, 1);
    int rc = state ? pl_outer_save(from->outer, state) : PL_ENOMEM;
    if (!rc) rc = pl_outer_load(to->outer, state, outer, err);
    if (!rc) rc = pl_outer_join(to->outer);
    if (!rc) rc = take_inner(s, newcomer, donor);
    if (!rc) rc = m->be->copy(to->x, from->x, m->n);
    if (!rc) rc = m->be->copy(to->g, from->g, m->n);
    pl_free(state);
    to->clock.steps = from->clock.steps;
    to->clock.sent = from->clock.sent;
    to->clock.applied = from->clock.applied;
    to->clock.own = from->clock.own;
    to->clock.has_state = 0;
    return rc ? pl_fail(err, rc, "a newcomer's state: %s", pl_status_name(rc))
              : begin_gradient(s, newcomer, err);
}

/* A donor between two steps hands its state to those that have downloaded it. */
static int welcome(struct lab_swarm *s, int donor, struct pl_err *err)
{
    int rc = PL_OK;
    for (int k = 0; k < s->setup->peers && !rc; k++) {
        const struct peer_clock *p = &s->peer[k].clock;
        if (p->activity == LAB_DOWNLOADS && p->has_state && p->donor == donor)
            rc = take_over(s, k, donor, err);
    }
    return rc;
}

/* The loop from `next` on, until virtual time has to pass. */
static int proceed(struct lab_swarm *s, int k, int next, struct pl_err *err)
{
    struct peer *p = &s->peer[k];
    const struct lab_setup *setup = s->setup;
    for (;;) {
        if (next < 0)
            return pl_fail(err, next, "peer %d, step %llu: %s", k,
                           (unsigned long long)p->clock.steps, pl_status_name(next));
        switch ((enum pl_outer_next)next) {
        case PL_OUTER_GRADIENT:
            if ((next = begin_gradient(s, k, err)) || (next = welcome(s, k, err))) return next;
            return PL_OK;
        case PL_OUTER_STEP: {
            uint64_t last = setup->steps - 1, t = p->clock.steps < last ? p->clock.steps : last;
            double lr = pl_schedule_linear(setup->lr, setup->warmup, setup->steps, t);
            next = s->model->step(s->model->context, k, p->x, p->g, lr);
            if (!next) next = pl_outer_after_step(p->outer, p->x);
            break;
        }
        case PL_OUTER_SEND: next = lab_exchange_send(s, k, err); break;
        case PL_OUTER_RECEIVE:
            if (!lab_exchange_is_here(s, k)) return change_activity(s, k, LAB_WAITS, err);
            next = lab_exchange_apply(s, k);
            break;
        }
    }
}

static int gradient_computed(struct lab_swarm *s, int k, struct pl_err *err)
{
    struct peer *p = &s->peer[k];
    const struct lab_setup *setup = s->setup;
    uint64_t last = setup->steps - 1;
    double lr = pl_schedule_linear(setup->lr, setup->warmup, setup->steps,
                                   p->clock.steps < last ? p->clock.steps : last);
    int rc = s->model->gradient(s->model->context, p->g, &p->clock.loss, p->x, k, p->clock.steps,
                                err);
    if (rc) return rc;
    p->clock.steps++;
    s->count.gradients++;
    rc = proceed(s, k, pl_outer_before_step(p->outer, p->x, p->g, lr), err);
    if (!rc && s->count.gradients % setup->evaluate == 0) rc = evaluate(s, err);
    return rc;
}

/* One peer's message may complete an exchange that others wait for, and so on. */
static int wake(struct lab_swarm *s, struct pl_err *err)
{
    int rc = PL_OK, has_changed = 1;
    while (has_changed && !rc) {
        has_changed = 0;
        for (int k = 0; k < s->setup->peers && !rc; k++) {
            if (s->peer[k].clock.activity != LAB_WAITS || !lab_exchange_is_here(s, k)) continue;
            rc = proceed(s, k, PL_OUTER_RECEIVE, err);
            has_changed = 1;
        }
    }
    return rc;
}

/* --- peers that leave and come back ----------------------------------------------------------- */

/* Parameters and the optimizers' state that all peers share, from the first peer present. */
static int begin_download(struct lab_swarm *s, int k, struct pl_err *err)
{
    struct peer_clock *p = &s->peer[k].clock;
    int donor = first_active(s), rc;
    double bytes;
    if (donor < 0)
        return pl_fail(err, PL_EUSE,
                       "peer %d returns, but no other peer is left to "
                       "download the state from",
                       k);
    bytes = (double)(s->model->n * sizeof(float) + pl_outer_state_bytes(s->peer[donor].outer) +
                     inner_bytes(s, donor));
    p->donor = donor;
    p->has_state = 0;
    rc = lab_net_send(&s->net, donor, k, bytes, LAB_TAG_STATE);
    return rc ? rc : change_activity(s, k, LAB_DOWNLOADS, err);
}

static int leave(struct lab_swarm *s, int k, struct pl_err *err)
{
    int rc = change_activity(s, k, LAB_AWAY, err);
    lab_net_cut_peer(&s->net, k);
    if (!rc) rc = lab_exchange_without(s, k, err);
    for (int i = 0; i < s->setup->peers && !rc; i++)
        if (s->peer[i].clock.activity == LAB_DOWNLOADS && s->peer[i].clock.donor == k)
            rc = begin_download(s, i, err);
    return rc;
}

static double next_change(const struct lab_swarm *s)
{
    double next = INFINITY;
    for (int i = 0; i < s->setup->leaves; i++) {
        const struct lab_leave *l = &s->setup->leave[i];
        if (s->count.left[i] < 2) next = fmin(next, s->count.left[i] ? l->back : l->at);
    }
    return next;
}

static int change_members(struct lab_swarm *s, struct pl_err *err)
{
    int rc = PL_OK;
    for (int i = 0; i < s->setup->leaves && !rc; i++) {
        const struct lab_leave *l = &s->setup->leave[i];
        enum lab_activity a = s->peer[l->peer].clock.activity;
        if (s->count.left[i] == 0 && l->at <= s->net.now) {
            s->count.left[i] = 1;
            if (a != LAB_AWAY) rc = leave(s, l->peer, err);
        } else if (s->count.left[i] == 1 && l->back <= s->net.now) {
            s->count.left[i] = 2;
            if (a == LAB_AWAY) rc = begin_download(s, l->peer, err);
        }
    }
    return rc;
}

/* --- time ------------------------------------------------------------------------------------- */

static int deliver(struct lab_swarm *s, struct pl_err *err)
{
    struct lab_transfer t;
    int rc = PL_OK;
    while (!rc && lab_net_take(&s->net, &t)) {
        if (t.tag != LAB_TAG_STATE) rc = lab_exchange_arrived(s, &t, err);
        else s->peer[t.to].clock.has_state = 1;
    }
    return rc;
}

int lab_swarm_advance(struct lab_swarm *s, struct pl_err *err)
{
    uint64_t all = s->setup->steps * (uint64_t)s->setup->peers;
    double time = fmin(lab_net_next(&s->net), next_change(s));
    int rc = PL_OK;
    if (!s->count.has_begun) {
        s->count.has_begun = 1;
        for (int k = 0; k < s->setup->peers && !rc; k++) rc = begin_gradient(s, k, err);
        rc = rc ? rc : evaluate(s, err);
        return rc ? rc : PL_EAGAIN;
    }
    for (int k = 0; k < s->setup->peers; k++)
        if (s->peer[k].clock.activity == LAB_COMPUTES) time = fmin(time, s->peer[k].clock.until);
    if (!isfinite(time)) return pl_fail(err, PL_EUSE, "every peer has left the swarm");
    lab_net_advance(&s->net, time);
    if ((rc = deliver(s, err)) || (rc = change_members(s, err))) return rc;
    for (int k = 0; k < s->setup->peers && !rc && s->count.gradients < all; k++) {
        const struct peer_clock *p = &s->peer[k].clock;
        if (p->activity == LAB_COMPUTES && p->until <= time) rc = gradient_computed(s, k, err);
    }
    if (!rc) rc = wake(s, err);
    if (rc || s->count.gradients < all) return rc ? rc : PL_EAGAIN;
    for (int k = 0; k < s->setup->peers && !rc; k++)
        rc = change_activity(s, k, s->peer[k].clock.activity, err);
    if (!rc && s->count.gradients % s->setup->evaluate) rc = evaluate(s, err);
    return rc;
}

/* --- open, close, look ------------------------------------------------------------------------ */

int lab_swarm_open(struct lab_swarm **out, const struct lab_setup *setup,
                   const struct lab_model *model, const float *x, lab_event_fn *event,
                   void *context, struct pl_err *err)
{
    struct pl_outer_setup outer = setup->outer;
    struct lab_swarm *s;
    int rc;
    *out = NULL;
    if (setup->groups > 1 && (!setup->algorithm->sends_gradients || !setup->algorithm->takes_clip))
        return pl_fail(err, PL_EUSE, "groups average gradients; %s sends something else",
                       setup->algorithm->name);
    if (setup->groups > 1 && (setup->peers % setup->groups || setup->peers == setup->groups))
        return pl_fail(err, PL_EUSE,
                       "%d groups of %d peers: expected groups of one size, 2 or more",
                       setup->groups, setup->peers);
    s = pl_alloc(1, sizeof *s);
    rc = s ? lab_net_open(&s->net, setup->link, setup->peers) : PL_ENOMEM;
    if (rc) {
        pl_free(s);
        return pl_fail(err, rc, "no memory for %d peers", setup->peers);
    }
    s->setup = setup;
    s->model = model;
    s->event = event;
    s->context = context;
    outer.be = model->be;
    outer.tensors = model->tensors;
    outer.count = model->count;
    outer.peers = setup->peers;
    for (int k = 0; k < setup->peers && !rc; k++) {
        struct peer *p = &s->peer[k];
        outer.rank = k;
        p->x = model->be->alloc(model->n * sizeof *p->x);
        p->g = model->be->alloc(model->n * sizeof *p->g);
        rc = p->x && p->g ? model->be->copy(p->x, x, model->n) : PL_ENOMEM;
        if (!rc) rc = model->be->fill(p->g, 0, model->n);
        if (rc) pl_fail(err, rc, "no memory for peer %d of %d", k, setup->peers);
        if (!rc) rc = pl_outer_open(&p->outer, setup->algorithm, &outer, p->x, err);
    }
    if (rc) lab_swarm_close(s);
    else *out = s;
    return rc;
}

void lab_swarm_close(struct lab_swarm *s)
{
    if (!s) return;
    lab_exchange_clear(s);
    for (int k = 0; k < s->setup->peers; k++) {
        pl_outer_close(s->peer[k].outer);
        s->model->be->free(s->peer[k].x);
        s->model->be->free(s->peer[k].g);
    }
    lab_net_close(&s->net);
    pl_free(s);
}

double lab_swarm_time(const struct lab_swarm *s) { return s->net.now; }
uint64_t lab_swarm_gradients(const struct lab_swarm *s) { return s->count.gradients; }
const struct lab_traffic *lab_swarm_traffic(const struct lab_swarm *s, int peer)
{
    return &s->net.traffic[peer];
}

const float *lab_swarm_agreed(const struct lab_swarm *s, int peer)
{
    const float *phi = pl_outer_get(s->peer[peer].outer, "phi");
    return phi ? phi : s->peer[peer].x;
}

const float *lab_swarm_common(const struct lab_swarm *s)
{
    int k = first_active(s);
    return lab_swarm_agreed(s, k < 0 ? 0 : k);
}
