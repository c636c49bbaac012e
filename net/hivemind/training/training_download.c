/* training_download.c - how a newcomer or a straggler gets the swarm's parameters and moments.
 * [TTT 2.1] [spec hivemind-protocol 7, 12]
 *
 *   poll - download from the donor of highest priority - check - adopt, or try the next donor
 *
 * Any stranger can serve a state of any epoch. So the epoch must not be beyond the lead, the epoch
 * that more than half of the others report (claims.h). But the lead may lag behind the living
 * peers: records arrive after the steps that they report, and those of dead peers stay for a
 * minute. So a state beyond the lead is not refused before two things have happened: newer records
 * were polled, and each peer with a lower claim was pinged. A claim whose peer does not answer no
 * longer counts. */
#include "training_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOADS_MAX 3   /* downloads in one try: the swarm may step while one is under way */
#define LEAD_WAIT 3.5 /* s in one try, all donors together: a ping's limit and a poll after it */
#define TRY_PAUSE 0.5 /* s after a download that failed, twice as long after each other one */
#define TRY_PAUSE_MAX 30.0 /* s: a peer that is really behind must not wait longer */
#define TRY_SHARE 4.0      /* train four times as long as a download took: it costs 1/5 at most */
#define PULSE 1.0          /* s: of a process that stands still, twice as much counts as spent */

/* The highest epoch that a state may have: the lead, since a peer beyond it would train alone.
 * With fewer than two others, the donor and the lead may be the same peer's word, which counts
 * up to `most`. */
static int64_t highest_epoch(const struct training *c, int64_t most)
{
    const int64_t highest = c->poll.lead < 0 ? most : c->poll.lead;
    return c->poll.others < 2 && highest > most ? most : highest;
}

/* --- pings: is a peer with a lower claim still alive? ----------------------------------------- */

static void on_answer(void *context, int status, const struct dht_pong *pong)
{
    struct claimant_ping *p = context;
    p->task = NULL;
    /* Only silence says something: a living peer's claim stands. */
    if (!status) return;
    claims_silent(&p->c->poll.claims, &p->peer, p->began);
    training_update_lead(p->c);
}

static int is_pinging(const struct training *c)
{
    for (size_t i = 0; i < CLAIMS_PINGS; i++)
        if (c->load.pings[i].task) return 1;
    return 0;
}

static void begin_pings(struct training *c, int64_t epoch)
{
    struct peer_id peers[CLAIMS_PINGS];
    const double now = training_now(c);
    size_t count, n = 0;
    if (is_pinging(c)) return; /* one batch of pings at a time */
    count = claims_to_ping(&c->poll.claims, peers, epoch, now);
    for (; n < count; n++) {
        c->load.pings[n] = (struct claimant_ping){ .c = c, .peer = peers[n], .began = now };
        c->load.pings[n].task = dht_node_ping(c->o.node, &peers[n], 0, on_answer,
                                              &c->load.pings[n]);
    }
}

void training_cancel_pings(struct training *c)
{
    for (size_t i = 0; i < CLAIMS_PINGS; i++)
        if (c->load.pings[i].task) dht_node_cancel(c->load.pings[i].task);
}

/* May pings or polls still raise the lead to this epoch? A gap of more than two epochs can only
 * come from dead peers' records, so it ends with the pings; a smaller one may be a step whose
 * records are on their way. */
static int may_be_confirmed(struct request *w, int64_t epoch, int64_t most)
{
    struct training *c = w->c;
    const double now = training_now(c);
    if (w->wait_until == 0) w->wait_until = now + LEAD_WAIT;
    if (now >= w->wait_until) return 0;
    begin_pings(c, epoch);
    training_begin_poll(c);
    return is_pinging(c) || epoch - most <= CLAIMS_SLACK;
}

/* Called for each download. The caller's check comes first: a state of another model is refused
 * as such, whatever its epoch. PL_EAGAIN asks to be called again with the same state. */
static int on_check(void *context, const struct state_load *state, struct pl_err *err)
{
    struct request *w = context;
    struct training_state t;
    int64_t epoch, most;
    int rc = w->check && !w->is_waiting ? w->check(w->check_context, state, err) : PL_OK;
    w->is_waiting = 0;
    if (!rc) rc = training_state_read(&t, state->metadata, state->metadata_n, err);
    if (rc) return rc;
    epoch = t.epoch;
    grid_hint(&w->c->grid, strlen(t.group_bits));
    training_state_clear(&t);
    most = highest_epoch(w->c, w->number);
    if (epoch <= most) return PL_OK;
    w->is_waiting = may_be_confirmed(w, epoch, most);
    w->is_beyond |= !w->is_waiting;
    return pl_fail(err, w->is_waiting ? PL_EAGAIN : PL_EPROTO,
                   "state: epoch %lld, expected at most %lld by the others' reports",
                   (long long)epoch, (long long)most);
}

/* --- downloads -------------------------------------------------------------------------------- */

/* The seconds of a download in which this process ran. A computer that slept through the night
 * while a download was under way has not spent that night on it: otherwise it would not ask again
 * for four nights. */
static void count_spent(struct training *c)
{
    const double now = training_now(c);
    c->load.spent += fmin(fmax(now - c->load.counted, 0), 2 * PULSE);
    c->load.counted = now;
}

static void on_pulse(void *context)
{
    struct training *c = context;
    count_spent(c);
    timer_start(c->loop, &c->load.pulse, PULSE, on_pulse, c);
}

/* A download has ended. After five that have not shown the lead, its claimants are doubted for a
 * while. The pause grows with the time spent: donors that keep us waiting must not stop our
 * training. After a good download only its own time counts, so that a peer still behind can ask
 * again soon. */
static void count_try(struct training *c, int status, const struct state_load *state)
{
    const double now = training_now(c);
    double pause = TRY_PAUSE, spent;
    timer_stop(&c->load.pulse);
    count_spent(c);
    spent = status ? c->load.spent : fmin(state->seconds, c->load.spent);
    if (c->load.began > c->load.next_try + CLAIMS_DOUBT_MAX) c->load.failures = 0; /* long ago */
    for (int i = 0; i < c->load.failures && pause < TRY_PAUSE_MAX; i++) pause *= 2;
    c->load.next_try = now + fmax(fmin(pause, TRY_PAUSE_MAX), TRY_SHARE * spent);
    if (!status || c->poll.lead <= c->own.epoch) return;
    if (c->load.failures < LOAD_FAILURES_MAX) c->load.failures++;
    if (c->load.failures < LOAD_FAILURES_MAX) return;
    claims_doubt(&c->poll.claims, c->own.epoch, now);
    training_update_lead(c);
}

static void on_loaded(void *context, int status, const struct peer_id *donor,
                      struct state_load *state, const struct pl_err *err)
{
    struct request *w = context;
    *w->state = *state;
    memset(state, 0, sizeof *state);
    if (status) *w->err = *err;
    else w->c->bandwidth.has_come = 1;
    count_try(w->c, status, w->state);
    loop_end(&w->wait, status);
}

/* A peer that changes its epoch takes no part in rounds of the old one: a group that already
 * waits for it gets its tensors with weight 0. [spec hivemind-protocol 9, step 2] */
static void begin_load(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    int rc;
    averager_cancel(c->a[GRADIENT]);
    rc = averager_load(c->a[STATE], on_check, on_loaded, w);
    c->load.began = c->load.counted = training_now(c);
    c->load.spent = 0;
    if (!rc) timer_start(c->loop, &c->load.pulse, PULSE, on_pulse, c);
    else loop_end(&w->wait, pl_fail(w->err, rc, "state: a download is under way"));
}

int training_load(struct training *c, int64_t most, state_check *check, void *context,
                  struct state_load *state, struct pl_err *err)
{
    int rc = PL_EIO, is_beyond = 1;
    for (int i = 0; i < LOADS_MAX && is_beyond; i++) { /* the others may have stepped meanwhile */
        struct request poll = { .c = c };
        struct request w = { .c = c,
                             .number = most,
                             .check = check,
                             .check_context = context,
                             .state = state,
                             .err = err };
        memset(state, 0, sizeof *state);
        /* Check the state against a lead that is as new as possible. */
        request_wait(&poll, training_poll_now);
        rc = request_wait(&w, begin_load);
        is_beyond = rc && w.is_beyond;
    }
    return rc;
}
