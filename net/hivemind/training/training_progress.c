/* training_progress.c - the records by which the peers of a run know of each other's progress.
 * [TTT 2.1] [spec hivemind-protocol 8]
 *
 *   report   our epoch, samples and speed, signed, under the run's key in the DHT
 *   poll     the others' records: from those that count (claims.h) follow the lead, the samples of
 *            all and the time of the next step */
#include "training_internal.h"
#include "net/hivemind/records/owner_proof.h"

#include <math.h>
#include <stdlib.h>

#define PROOFS_PAUSE 5.0 /* s: half of PROGRESS_FETCH_MAX, so at most one for each such poll */

/* The record of spec section 8: the six fields that hivemind 1.1.12 reads from every peer. */
static struct progress_record own_record(const struct training *c)
{
    return (struct progress_record){ .peer = *host_id(c->o.host),
                                     .epoch = c->own.epoch,
                                     .samples = c->own.samples,
                                     .samples_per_second = performance_get(&c->own.speed),
                                     .time = training_now(c),
                                     .client_mode = c->o.client_mode };
}

/* Until it expires, anybody can tell our reports from those that others write in our name. */
static void store_proof(struct training *c)
{
    struct bytes value = { 0 };
    if (training_now(c) < c->report.proof_due) return;
    if (!identity_record_write(&value, &c->subkey, host_identity(c->o.host))) {
        training_store(c, &c->report.identity_key, &value, IDENTITY_LIFE);
        c->report.proof_due = training_now(c) + IDENTITY_RENEW;
    }
    bytes_clear(&value);
}

static void report_again(void *context) { training_report(context); }

/* Only a peer that trains reports: one without samples in this epoch or the one before would
 * count in everybody's number of peers, and groups would wait for it. [spec hivemind-protocol 8] */
void training_report(struct training *c)
{
    struct progress_record r = own_record(c);
    struct bytes value = { 0 };
    if (c->is_closing) return; /* the report has been withdrawn */
    if (c->own.last_epoch_with_samples >= c->own.epoch - 1 && !progress_write(&value, &r)) {
        store_proof(c);
        training_store(c, &c->report.key, &value, PROGRESS_LIFE);
        c->report.has_stored = 1;
    }
    bytes_clear(&value);
    training_report_later(c);
}

/* A peer that waits in a round reports more often: a group may have begun without it, and a new
 * report makes the others wait for it next time (liveness.h). */
void training_report_later(struct training *c)
{
    double pause = training_is_averaging(c) ? fmin(c->o.matchmaking_time, PROGRESS_REPORT_EVERY)
                                            : PROGRESS_REPORT_EVERY;
    timer_start(c->loop, &c->report.timer, pause, report_again, c);
}

/* How many of these peers are on back-off after failed rounds: they report, but no group of ours
 * takes them for now. */
static size_t count_paused(const struct training *c, const struct progress_record *records,
                           size_t count)
{
    const double now = loop_now(c->loop);
    size_t paused = 0;
    for (size_t i = 0; i < count; i++)
        paused += (size_t)reliability_is_paused(&c->reliability, now, &records[i].peer, 1);
    return paused;
}

/* Keeps the records of other peers, moved to the front. Returns how many there are. */
static size_t drop_own(struct progress_record *records, size_t count, const struct peer_id *self)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!peer_id_equal(&records[i].peer, self)) records[kept++] = records[i];
    return kept;
}

/* Keeps the records of peers at this epoch or an earlier one. */
static size_t drop_beyond(struct progress_record *records, size_t count, int64_t epoch)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (records[i].epoch <= epoch) records[kept++] = records[i];
    return kept;
}

void training_update_lead(struct training *c)
{
    /* The epoch of the majority decides, never the highest claim. Only an auxiliary peer takes
     * the lead over as it is. */
    c->poll.lead = claims_lead(&c->poll.claims, c->own.epoch, training_now(c));
    c->poll.displayed = claims_displayed(&c->poll.claims, c->poll.lead, training_now(c));
    if (c->o.auxiliary)
        c->own.epoch = c->poll.lead < 0 ? 0 : c->poll.lead; /* it has no model: it follows */
}

/* One view of the swarm. The records pass four filters, each with its own question, before their
 * samples are added up:
 *
 *   claims      is it the peer's own record, and is its epoch believed?
 *   drop_beyond an epoch beyond the lead does not count at all
 *   liveness    is the peer alive, and does it come to rounds?
 *   drop_beyond peers ahead of us may come to our round, but their samples belong to another step
 *
 * Our own record counts as it is now, not as it lies in the DHT: a newcomer that does not count
 * itself sees one peer, believes that it is alone and steps at once. [spec hivemind-protocol 12] */
static void update_view(struct training *c, const struct dht_result *r)
{
    size_t n = r ? r->dictionary.count : 0, count;
    struct progress_record *records = malloc((n + 1) * sizeof *records), own;
    struct progress_local mine;
    struct pl_err warning;
    if (!records) return;
    /* 1. Which records are readable, not ours, and each peer's own? */
    count = n ? claims_read(records, r->dictionary.items, n) : 0;
    count = drop_own(records, count, host_id(c->o.host));
    claims_prove(records, count, c->poll.proofs.dictionary.items, c->poll.proofs.dictionary.count);
    dht_result_clear(&c->poll.proofs);
    /* Epoch 0 may be a newcomer's: it says nothing about others before a download has failed. */
    c->poll.claims.own = c->own.epoch || c->load.failures ? c->own.epoch : -1;
    claims_update(&c->poll.claims, records, count, (double)c->o.target_batch, training_now(c),
                  &count);
    training_update_lead(c);
    own = own_record(c);
    mine = (struct progress_local){ c->own.epoch, c->own.samples, own.samples_per_second };
    /* 2. Which epochs are believed? */
    count = drop_beyond(records, count, c->poll.lead > c->own.epoch ? c->poll.lead : c->own.epoch);
    /* A peer with another target batch would step alone, without any error: warn the user. */
    if (!c->o.auxiliary && !c->o.local_steps &&
        target_watch_update(&c->poll.watch, records, count, &own, c->o.target_batch,
                            training_now(c), &warning))
        training_warn(c, warning.text);
    /* 3. Which peers are alive and come to rounds? A round expects these. */
    liveness_update(&c->poll.liveness, records, count, training_now(c), &count);
    c->poll.others = count; /* without ourselves: our first record may not be stored yet */
    c->poll.paused = count_paused(c, records, count);
    /* 4. Which peers' samples belong to this step? With our own they give samples, speed and
     * eta. */
    count = drop_beyond(records, count, c->own.epoch);
    if (c->own.samples || c->report.has_stored) records[count++] = own;
    if (c->o.local_steps)
        progress_update_each(&c->poll.view, records, count, &mine, (double)c->o.target_batch,
                             training_now(c));
    else
        progress_update(&c->poll.view, records, count, n > 0, &mine, (double)c->o.target_batch,
                        training_now(c));
    free(records);
}

static void on_proofs(void *context, int status, const struct dht_result *r)
{
    struct training *c = context;
    c->poll.proofs_task = NULL;
    if (status || dht_result_copy(&c->poll.proofs, r)) return;
    training_poll_again(c);
}

/* Several keys write for one peer. Where nothing is proven, as for peers of hivemind, a while
 * passes before they are asked for again. */
static void ask_for_proofs(struct training *c)
{
    const double now = training_now(c);
    if (!c->poll.claims.wants_proofs || c->poll.proofs_task || now < c->poll.proofs_due) return;
    c->poll.proofs_due = now + PROOFS_PAUSE;
    c->poll.proofs_task = dht_node_get(c->o.node, &c->report.identity_key, 1, on_proofs, c);
}

static void on_fetched(void *context, int status, const struct dht_result *r)
{
    struct training *c = context;
    struct request *w = c->poll.waiter;
    c->poll.task = NULL;
    /* A poll that failed is a poll without records: the peer goes on by its own speed until the
     * next. */
    update_view(c, !status && r->type == DHT_FOUND_DICTIONARY ? r : NULL);
    c->poll.waiter = NULL;
    if (w) loop_end(&w->wait, PL_OK);
    if (!c->is_closing) ask_for_proofs(c);
    if (!c->is_closing)
        timer_start(c->loop, &c->poll.timer,
                    /* The nearer the estimated time of the step, the sooner. */
                    fmax(PROGRESS_FETCH_MIN, c->poll.view.next_fetch - training_now(c)),
                    training_begin_poll, c);
}

void training_begin_poll(void *context)
{
    struct training *c = context;
    struct request *w = c->poll.waiter;
    timer_stop(&c->poll.timer);
    /* One poll at a time; a request that waits is completed by the one under way. */
    if (c->poll.task || c->is_closing) return;
    /* No timed polls during an update: training_advance begins the next. A request is always
     * polled for: the training's thread sleeps until then, and asks only before or after an update,
     * or to load a state in its place. */
    if ((c->own.phase == EPOCH_AVERAGING || c->own.phase == EPOCH_STEPPING) && !w) return;
    if ((c->poll.task = dht_node_get(c->o.node, &c->report.key, 1, on_fetched, c))) return;
    c->poll.waiter = NULL;
    if (w) loop_end(&w->wait, PL_ENOMEM);
}

void training_poll_again(struct training *c)
{
    if (c->poll.task) dht_node_cancel(c->poll.task); /* it may have begun before our report */
    c->poll.task = NULL;
    training_begin_poll(c);
}

/* Completes w with a view whose poll begins now. */
void training_poll_for(struct request *w)
{
    w->c->poll.waiter = w;
    training_poll_again(w->c);
}

void training_poll_now(void *context) { training_poll_for(context); }
