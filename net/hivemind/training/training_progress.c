/* training_progress.c - the records by which the peers of a run know of each other's progress.
 * [TTT 2.1] [spec hivemind-protocol 8]
 *
 *   report   our epoch, samples and speed, signed, under the run's key in the DHT; in a large run
 *            under that of our part, whose leader adds it to the others' (parts.h)
 *   poll     first our part's records, if there are parts; if we lead it, its sum is stored, and we
 *            read the part above it, too; last the run's key: from the records that count
 *            (claims.h) follow the lead, the samples of all and the time of the next step */
#include "training_internal.h"
#include "net/hivemind/records/owner_proof.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROOFS_PAUSE 5.0 /* s: half of PROGRESS_FETCH_MAX, so at most one for each such poll */

/* The record of spec section 8: the six fields that hivemind 1.1.12 reads from every peer. */
static struct progress_record own_record(const struct training *c)
{
    struct progress_record r = { .peer = *host_id(c->o.host),
                                 .epoch = c->own.epoch,
                                 .samples = c->own.samples,
                                 .samples_per_second = performance_get(&c->own.speed),
                                 .time = training_now(c),
                                 .client_mode = c->o.client_mode };
    memcpy(r.owner, c->report.owner, sizeof r.owner);
    return r;
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

/* r NULL: takes back what is there. */
static void store(struct training *c, size_t level, const struct progress_record *r)
{
    struct bytes value = { 0 };
    if (r ? !progress_write(&value, r) : !mp_nil(&value))
        training_store(c, &c->report.key[level], &value, PROGRESS_LIFE);
    bytes_clear(&value);
}

void training_withdraw_sums(struct training *c)
{
    for (size_t level = 1; level < RECORD_PART_LEVELS; level++) {
        if (c->report.sum[level].peers) store(c, level - 1, NULL);
        c->report.sum[level].peers = 0;
    }
}

/* During a round nothing is polled, so a leader's sums are stored again as they were: readers let
 * them go on at their speed. */
static void report_again(void *context)
{
    struct training *c = context;
    for (size_t level = 1; level < RECORD_PART_LEVELS; level++)
        if (c->report.sum[level].peers) store(c, level - 1, &c->report.sum[level]);
    training_report(c);
}

/* Only a peer that trains reports: one without samples in this epoch or the one before would
 * count in everybody's number of peers, and groups would wait for it. [spec hivemind-protocol 8] */
void training_report(struct training *c)
{
    struct progress_record r = own_record(c);
    if (c->is_closing) return; /* the report has been withdrawn */
    if (c->own.last_epoch_with_samples >= c->own.epoch - 1) {
        store_proof(c);
        store(c, c->report.level, &r);
        c->report.has_stored = 1;
    }
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

/* --- parts ------------------------------------------------------------------------------------ */

/* A run that our groups show to be small is not in parts, whatever sums anybody signs. The smallest
 * one that is has half as many peers as one key may have. */
static int may_be_in_parts(const struct training *c)
{
    return 2 * grid_bound(&c->grid, c->o.part_peers) >= c->o.part_peers;
}

/* The run has grown or shrunk: our record moves to another part. One whose target each peer has to
 * itself is never in parts: a sum does not show the slowest. Returns 1 if it has moved. */
static int change_level(struct training *c)
{
    const size_t before = c->report.level, peers = grid_bound(&c->grid, c->poll.others + 1),
                 level = parts_level(before, peers, c->o.part_peers);
    if (level == before || !c->report.has_stored || c->o.local_steps) return 0;
    c->report.level = level;
    /* Under this key our record replaces our sum; no sums are needed of levels below it. */
    for (size_t i = level + 1; i < RECORD_PART_LEVELS; i++) c->report.sum[i].peers = 0;
    store(c, before, NULL);
    training_report(c);
    return 1;
}

/* Reads our part on one level; NULL: the poll has failed, and the leader stays. Returns the level
 * that is to be read next. */
static size_t read_part(struct training *c, const struct dht_result *r)
{
    const size_t level = c->poll.level;
    const double now = training_now(c), fastest = (double)c->o.target_batch / PROGRESS_FETCH_MIN;
    const int is_lowest = level == c->report.level;
    const struct progress_record own = is_lowest ? own_record(c) : c->report.sum[level + 1];
    struct progress_record *records, *sum = c->report.sum;
    size_t count;
    if (!r || !(records = malloc((r->dictionary.count + 1) * sizeof *records)))
        return sum[level].peers ? level - 1 : 0;
    count = claims_read(records, r->dictionary.items, r->dictionary.count);
    count = parts_take(records, count, &own, 1, level, c->own.epoch, now);
    if (parts_leads(records, count, &own, c->own.epoch, now)) {
        sum[level] = parts_sum(records, count, &own, level, fastest, now);
        store(c, level - 1, &sum[level]);
    } else /* Another peer leads now; what we led above was led as this part's leader. */
        for (size_t i = level; i && sum[i].peers; i--) {
            store(c, i - 1, NULL);
            sum[i].peers = 0;
        }
    if (is_lowest) {
        c->poll.part = records;
        c->poll.part_count = count;
    } else free(records);
    return sum[level].peers ? level - 1 : 0;
}

/* Until our part's sum is under the run's key, the part's records count one by one. Returns the
 * number of records then. */
static size_t add_part(const struct training *c, struct progress_record *records, size_t count)
{
    for (size_t i = 0; i < c->poll.part_count; i++) records[count++] = c->poll.part[i];
    return count;
}

/* --- a view ----------------------------------------------------------------------------------- */

/* How many of these peers no group waits for, although they report: those on back-off after failed
 * rounds, and new ones for some rounds after one that has waited for them in vain. */
static size_t count_paused(struct training *c, const struct progress_record *records, size_t count)
{
    const double now = loop_now(c->loop);
    size_t paused = 0;
    for (size_t i = 0; i < count; i++) {
        const int is_paused = records[i].is_new && c->poll.liveness.new_pause;
        if (is_paused || reliability_is_paused(&c->reliability, now, &records[i].peer, 1))
            paused += progress_peers(&records[i]);
        c->poll.liveness.has_waited |= records[i].is_new && !is_paused;
    }
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

/* Sums of parts do not count in a run that is small by our own groups. Where it may be in parts,
 * but we are in none, they are as new as a peer that has come to no round. */
static size_t judge_sums(const struct training *c, struct progress_record *records, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        records[i].is_new = records[i].peers && !c->report.level;
        if (!records[i].peers || may_be_in_parts(c)) records[kept++] = records[i];
    }
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
    size_t n = r ? r->dictionary.count : 0, count, others = 0;
    struct progress_record *records = malloc((n + c->poll.part_count + 2) * sizeof *records), own;
    const struct progress_record *sum = &c->report.sum[1];
    struct progress_local mine;
    struct pl_err warning;
    int is_covered;
    if (!records) return;
    own = own_record(c);
    /* 1. Which records are readable, not ours, and each peer's own? */
    count = n ? claims_read(records, r->dictionary.items, n) : 0;
    count = judge_sums(c, records, count);
    count = parts_take(records, count, sum->peers ? sum : &own, sum->peers > 0, 0, c->own.epoch,
                       training_now(c));
    is_covered = c->report.level && parts_cover(records, count, &own);
    if (!is_covered) count = add_part(c, records, count);
    count = drop_own(records, count, host_id(c->o.host));
    claims_prove(records, count, c->poll.proofs.dictionary.items, c->poll.proofs.dictionary.count);
    dht_result_clear(&c->poll.proofs);
    /* Epoch 0 may be a newcomer's: it says nothing about others before a download has failed. */
    c->poll.claims.own = c->own.epoch || c->load.failures ? c->own.epoch : -1;
    claims_update(&c->poll.claims, records, count, (double)c->o.target_batch, training_now(c),
                  &count);
    training_update_lead(c);
    /* 2. Which epochs are believed? */
    count = drop_beyond(records, count, c->poll.lead > c->own.epoch ? c->poll.lead : c->own.epoch);
    /* A peer with another target batch would step alone, without any error: warn the user. */
    if (!c->o.auxiliary && !c->o.local_steps &&
        target_watch_update(&c->poll.watch, records, count, &own, c->o.target_batch,
                            training_now(c), &warning))
        training_warn(c, warning.text);
    /* 3. Which peers are alive and come to rounds? A round expects these. */
    liveness_update(&c->poll.liveness, records, count, training_now(c), &count);
    for (size_t i = 0; i < count; i++) others += progress_peers(&records[i]);
    /* Without ourselves: our first record may not be stored yet. A part's sum has us in it. */
    c->poll.others = others > 0 && is_covered ? others - 1 : others;
    c->poll.paused = count_paused(c, records, count);
    mine = (struct progress_local){ c->own.epoch, c->own.samples, own.samples_per_second,
                                    liveness_newcomers(&c->poll.liveness, c->o.local_steps) };
    /* 4. Which peers' samples belong to this step? With our own they give samples, speed and
     * eta. */
    count = drop_beyond(records, count, c->own.epoch);
    c->poll.has_samples = 0;
    for (size_t i = 0; i < count; i++)
        c->poll.has_samples |= records[i].epoch == c->own.epoch && records[i].samples > 0;
    if (!is_covered && (c->own.samples || c->report.has_stored)) records[count++] = own;
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

static void on_fetched(void *context, int status, const struct dht_result *r);

static int fetch(struct training *c)
{
    const struct dht_id *key = &c->report.key[c->poll.level];
    return (c->poll.task = dht_node_get(c->o.node, key, 1, on_fetched, c)) != NULL;
}

static void on_fetched(void *context, int status, const struct dht_result *r)
{
    struct training *c = context;
    struct request *w = c->poll.waiter;
    /* A poll that failed is a poll without records: the peer goes on by its own speed until the
     * next. */
    const struct dht_result *found = !status && r->type == DHT_FOUND_DICTIONARY ? r : NULL;
    int has_moved;
    double pause;
    c->poll.task = NULL;
    if (c->poll.level && !c->is_closing) {
        c->poll.level = read_part(c, found);
        if (fetch(c)) return;
    }
    update_view(c, found);
    has_moved = found && change_level(c);
    c->poll.waiter = NULL;
    if (w) loop_end(&w->wait, PL_OK);
    if (!c->is_closing) ask_for_proofs(c);
    /* The nearer the estimated time of the step, the sooner. */
    pause = fmax(PROGRESS_FETCH_MIN, c->poll.view.next_fetch - training_now(c));
    /* A leader's sum is what all the others go by. */
    if (c->report.sum[c->report.level].peers) pause = fmin(pause, PROGRESS_FETCH_MAX);
    if (has_moved) pause = PROGRESS_FETCH_ALONE; /* the new part has a leader once it is read */
    if (!c->is_closing) timer_start(c->loop, &c->poll.timer, pause, training_begin_poll, c);
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
    free(c->poll.part);
    c->poll.part = NULL;
    c->poll.part_count = 0;
    c->poll.level = c->report.has_stored ? c->report.level : 0;
    if (fetch(c)) return;
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
