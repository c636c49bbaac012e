/* training.c - when does the swarm step? Each peer decides for itself, by everybody's
 * records. [TTT 2.1] [spec hivemind-protocol 8, 9]
 *
 *   report   after each local batch our epoch, samples and speed go into the DHT
 *   poll     everybody's records are read, more often as the step comes near
 *   decide   UPDATE    if the epoch's samples >= target batch, or now >= their estimated time
 *            CATCH_UP  if more than half of the others are at a later epoch: download a state
 *            GO_ON     otherwise, with the next local batch
 *
 * There is no coordinator. All peers compute the same estimate from the same records, so they
 * trigger their rounds at about the same time; matchmaking waits for those that are a little
 * later.
 *
 * Two threads: the state below changes on the network's thread (the loop) only. The training's
 * thread posts a request there and sleeps until it is completed, so nothing but the request
 * needs a lock. */
#include "training_internal.h"
#include "net/hivemind/messages/msgpack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERFORMANCE_ALPHA 0.1 /* as hivemind 1.1.12: about the last ten batches count */
#define LEAVE_LIMIT 2.0  /* s for withdrawing our report: some round trips; peers may be gone */
#define UPLOAD_SHARE 3.0 /* of the all-reduce's time, a third: slow uplinks send what fits */
#define STATE_WEIGHT 1.0 /* everybody's in a round of the parameters, as in hivemind */

/* --- the training's pace ---------------------------------------------------------------------- */

/* Most others report a later epoch, the pause after the last failed download is over, and at
 * least one of them can share a state. */
static int should_catch_up(const struct training *c, double now)
{
    return c->poll.lead > c->own.epoch && now >= c->load.next_try &&
           claims_can_be_shown(&c->poll.claims, c->own.epoch, now);
}

/* For the first common step; later ones do not wait: peers may have left. hivemind's peers wait for
 * no number of peers: to them this one is slow. */
static int has_enough_peers(const struct training *c)
{
    return c->own.has_begun || c->poll.others + 1 >= c->o.min_peers;
}

/* The target batch is there. Waits for min_peers, for a limited time. */
static int may_step(struct training *c, double now)
{
    struct own_progress *own = &c->own;
    char text[128];
    if (!has_enough_peers(c)) {
        if (!own->wait_until) own->wait_until = now + c->o.min_peers_timeout;
        if (now < own->wait_until) return 0;
        snprintf(text, sizeof text,
                 "only %zu of %zu peers have joined within %g s: training begins",
                 c->poll.others + 1, c->o.min_peers, c->o.min_peers_timeout);
        training_warn(c, text);
    }
    own->has_begun = 1;
    return 1;
}

/* Step 5 of an epoch, by all peers' samples, or by their estimate. */
static enum training_advice advise(struct training *c, double now)
{
    const double wait = c->poll.view.eta - now;
    int ready = c->poll.view.samples >= c->o.target_batch || wait <= 0;
    /* A peer with local steps goes by its own samples; without any it follows the others. */
    if (c->o.local_steps && c->own.samples) ready = c->own.samples >= c->o.target_batch;
    /* Without anybody's samples there is no gradient, however long the estimate has passed. */
    if (!c->own.samples && !c->poll.has_samples) ready = 0;
    /* The slowest peer of the epoch is so far from its target that no round can begin soon.
     * [spec outer-steps 4, WAIT_FOR_ALL] */
    if (c->o.local_steps && ready && c->poll.others && wait > c->o.matchmaking_time)
        return TRAINING_WAIT_SLOWER;
    if (ready && !may_step(c, now)) return TRAINING_WAIT;
    /* Matchmaking begins before the target batch is complete, so that the group stands when
     * it is. [spec hivemind-protocol 9, step 4] */
    if (ready || (has_enough_peers(c) && wait <= c->o.matchmaking_time)) training_schedule(c);
    return ready ? TRAINING_UPDATE : TRAINING_GO_ON;
}

/* After a local batch. [spec hivemind-protocol 9, steps 2 to 5] */
static void add_here(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    double now = training_now(c);
    /* Speed counts the computation of batches only: rounds and downloads do not make a peer
     * slow. */
    if (w->number && w->seconds > 0) performance_add(&c->own.speed, (double)w->number, w->seconds);
    /* Samples without a time are older than this process, or another peer's. */
    if (w->seconds > 0) training_count_batch(c, w->number, w->seconds);
    if (c->own.phase == EPOCH_OVERLAPPED) { /* these samples are the next epoch's */
        c->own.next_samples = progress_plus(c->own.next_samples, w->number);
        w->advice = TRAINING_GO_ON;
        return;
    }
    if (w->number) {
        c->own.samples = progress_plus(c->own.samples, w->number);
        c->own.last_epoch_with_samples = c->own.epoch;
        /* Our samples count at once, without another poll. [spec hivemind-protocol 8] */
        if (c->poll.view.epoch == c->own.epoch)
            c->poll.view.samples = progress_plus(c->poll.view.samples, w->number);
        training_report(c);
    }
    if (c->digests.has_diverged) {
        c->digests.has_diverged = 0;
        w->advice = TRAINING_DIVERGED;
    } else w->advice = should_catch_up(c, now) ? TRAINING_CATCH_UP : advise(c, now);
}

enum training_advice training_add(struct training *c, int64_t samples, double seconds)
{
    struct request w = { .c = c, .number = samples, .seconds = seconds }, poll = { .c = c },
                   again = { .c = c };
    /* First by the view that we have, without waiting for the network: most batches end here. */
    loop_call(c->loop, add_here, &w);
    if (w.advice != TRAINING_UPDATE) return w.advice;
    /* Before a step, poll once more: a peer that steps by an old view while the others have just
     * stepped stays one epoch behind them. [spec hivemind-protocol 8] */
    if (request_wait(&poll, training_poll_now)) return TRAINING_GO_ON;
    loop_call(c->loop, add_here, &again);
    return again.advice;
}

/* --- entering, catching up -------------------------------------------------------------------- */

static void begin_enter(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    const int is_other = w->number != c->own.epoch;
    training_drop_digests(c);
    c->own.epoch = w->number;
    c->own.samples = 0;
    /* A state replaces everything of the old epoch: samples, rounds, doubts. */
    if (c->own.phase != EPOCH_OVERLAPPED) c->own.phase = EPOCH_ACCUMULATING;
    /* A round of the parameters that is still under way averages values that we no longer have. */
    if (c->state.phase == STATE_AVERAGING) {
        c->state.phase = STATE_OUTDATED;
        /* In a group that is still to be found, the others would get the mean with values of an
         * epoch that they have left. */
        if (is_other) averager_finish(c->a[STATE]);
    } else if (c->state.phase == STATE_ENDED) c->state.phase = STATE_IDLE;
    c->load.failures = 0;
    claims_shown(&c->poll.claims, c->own.epoch);
    c->own.last_epoch_with_samples = w->number - 2; /* no report before the first samples */
    if (c->report.has_stored) { /* correct our record: its samples have been dropped */
        c->own.last_epoch_with_samples = w->number;
        training_report(c);
    }
    /* Completed by a view whose poll begins now: records read before belong to the old epoch. */
    training_poll_for(w);
}

void training_enter(struct training *c, int64_t epoch)
{
    struct request w = { .c = c, .number = epoch };
    request_wait(&w, begin_enter);
}

/* Epoch + 1 without a download: the parameters are the group's already. */
static void raise_here(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    c->own.epoch++;
    c->own.last_epoch_with_samples++;
    /* The accumulated samples stay: their gradient was taken at parameters that the round has
     * made equal to those of the peers ahead. */
    if (c->poll.view.epoch < c->own.epoch)
        c->poll.view.epoch = c->own.epoch, c->poll.view.samples = c->own.samples;
    training_report(c);
}

void training_raise_epoch(struct training *c)
{
    struct request w = { .c = c };
    loop_call(c->loop, raise_here, &w);
}

/* The snapshot is taken over by the averager, which serves it until the next one comes. */
static void share_here(void *context)
{
    struct request *w = context;
    /* Newcomers ask the donor with the highest priority, which is the epoch. [spec
     * hivemind-protocol 7] */
    averager_share(w->c->a[STATE], w->snapshot, (double)w->c->own.epoch);
}

void training_share(struct training *c, struct state_snapshot *s)
{
    struct request w = { .c = c, .snapshot = s };
    loop_call(c->loop, share_here, &w);
}

/* The group key's bits are part of a state's metadata in hivemind. [spec hivemind-protocol 4.5,
 * 7] */
static void copy_group_bits(void *context)
{
    struct request *w = context;
    snprintf(w->bits, GROUP_BITS_MAX + 1, "%s", averager_group_bits(w->c->a[STATE]));
}

void training_group_bits(struct training *c, char bits[GROUP_BITS_MAX + 1])
{
    struct request w = { .c = c, .bits = bits };
    bits[0] = 0;
    loop_call(c->loop, copy_group_bits, &w);
}

/* --- life ------------------------------------------------------------------------------------- */

/* After the last use on the loop. */
static void free_all(struct training *c)
{
    for (size_t t = 0; t < c->o.tensors; t++) {
        if (c->state.before) pl_free(c->state.before[t]);
        if (c->state.after) pl_free(c->state.after[t]);
    }
    free(c->state.before);
    free(c->state.after);
    for (size_t i = 0; i < c->gradient.message_count; i++) free(c->gradient.messages[i].data);
    free(c->gradient.messages);
    free(c->elements);
    free(c->digests.mates);
    liveness_clear(&c->poll.liveness);
    claims_clear(&c->poll.claims);
    dht_result_clear(&c->poll.proofs);
    free(c->poll.part);
    bytes_clear(&c->subkey);
    free(c);
}

static void on_averager_closed(void *context)
{
    struct request *w = context;
    if (!--w->left) loop_end(&w->wait, w->status);
}

static void close_averagers(struct request *w)
{
    struct training *c = w->c;
    /* One more than there are averagers, released by the last line: the request completes once,
     * after all of them, even if they close at once. */
    w->left = 1;
    for (int i = 0; i < AVERAGERS; i++)
        if (c->a[i]) {
            w->left++;
            averager_close(c->a[i], on_averager_closed, w);
            c->a[i] = NULL;
        }
    on_averager_closed(w);
}

/* The withdrawal is stored: now the averagers may close. */
static void on_withdrawn(void *context, int status)
{
    struct request *w = context;
    timer_stop(&w->c->report.timer);
    close_averagers(w);
}

/* Some of the peers that store our record do not answer. It expires by itself within a minute. */
static void on_withdrawal_timeout(void *context)
{
    struct request *w = context;
    dht_node_cancel(w->c->report.withdrawal);
    close_averagers(w);
}

/* Withdraws our report (a nil record), and before it the sums of parts that we lead: another leader
 * takes our place. The caller closes the DHT node next, and an unsent withdrawal would be lost: for
 * a minute others would wait for us, and a newcomer would believe that it is behind. [spec
 * hivemind-protocol 9, "Leaving"] */
static void begin_close(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    struct bytes nil = { 0 };
    c->is_closing = 1;
    timer_stop(&c->poll.timer);
    timer_stop(&c->report.timer);
    timer_stop(&c->load.pulse);
    if (c->poll.task) dht_node_cancel(c->poll.task);
    if (c->poll.proofs_task) dht_node_cancel(c->poll.proofs_task);
    training_cancel_pings(c);
    training_drop_digests(c);
    training_withdraw_sums(c);
    if (c->report.has_stored && !mp_nil(&nil))
        c->report.withdrawal = dht_node_store(c->o.node, &c->report.key[c->report.level],
                                              bytes_at(&c->subkey), bytes_length(&c->subkey),
                                              bytes_at(&nil), bytes_length(&nil),
                                              training_now(c) + PROGRESS_LIFE, on_withdrawn, w);
    bytes_clear(&nil);
    if (c->report.withdrawal)
        timer_start(c->loop, &c->report.timer, LEAVE_LIMIT, on_withdrawal_timeout, w);
    else close_averagers(w);
}

void training_close(struct training *c)
{
    struct request w = { .c = c };
    if (!c) return;
    request_wait(&w, begin_close);
    free_all(c);
}

/* Matchmaking asks both: is this peer not waited for, and does it report at all? */
static int is_absent(void *context, const struct peer_id *peer)
{
    const struct training *c = context;
    return liveness_is_absent(&c->poll.liveness, peer);
}

static int reports(void *context, const struct peer_id *peer)
{
    const struct training *c = context;
    return liveness_reports(&c->poll.liveness, peer);
}

/* The names are part of the protocol: keys "RUN_grad_averager" and "RUN_state_averager", and class
 * names inside the calls' protocol ids. A peer with other names finds no group. [spec
 * hivemind-protocol 4.1, 11] */
static int open_averager(struct training *c, int which, struct pl_err *err)
{
    static const char *const suffix[] = { "_grad_averager", "_state_averager" };
    static const char *const class_name[2][AVERAGERS] = {
        { "GradientAverager", TRAINING_STATE_CLASS },
        { "DiLoCoGradAverager", "DiLoCoStateAverager" } /* [spec outer-steps 4] */
    };
    static const char *const powersgd_name[] = {
        [FACTORS_GROUP] = "PowerSGDGradientAverager",
        /* of our own: two rules of feedback in one group diverge [spec wire-extensions A.3] */
        [FACTORS_OWN] = "PowerSGDOwnFeedbackAverager"
    };
    char prefix[GROUP_KEY_MAX], gather_name[64];
    const char *name = class_name[c->o.local_steps && !c->o.gathers][which];
    const int gathers = c->o.gathers && which == GRADIENT;
    /* Peers with local steps begin their round up to one matchmaking time apart: each goes by its
     * estimate of when the slowest will be done. [spec outer-steps 4] */
    const double skew = c->o.local_steps ? c->o.matchmaking_time : 0;
    /* Verification and factors need all values; with local steps rounds are rare, and a peer's
     * outer gradient is worth the time. */
    const int is_whole = c->o.local_steps ||
                         (which == GRADIENT && (c->o.verify || c->o.powersgd || gathers));
    struct averager_options o = {
        .prefix = prefix,
        .class_name = c->o.powersgd && which == GRADIENT ? powersgd_name[c->o.feedback] : name,
        .bits = c->o.group_bits,
        .target_size = c->o.group_size,
        .be = c->o.be,
        .tensors = c->o.tensors,
        .schema = c->o.schema,
        .method = c->o.method,
        .part_bytes = PL_PART_BYTES,
        .min_size = 2,
        /* The timeouts keep hivemind's proportions: a sender is given up after one matchmaking
         * time, a reducer after two. [spec hivemind-protocol 5.5] */
        .min_matchmaking_time = c->o.matchmaking_time,
        /* s for a leader's first answer to a join request [spec hivemind-protocol 4.4] */
        .request_timeout = 3,
        .sender_timeout = c->o.matchmaking_time + skew,
        .reducer_timeout = 2 * (c->o.matchmaking_time + skew),
        .timeouts_only = c->o.local_steps,
        .allreduce_timeout = c->o.allreduce_timeout,
        .upload_limit = is_whole ? 0 : c->o.allreduce_timeout / UPLOAD_SHARE,
        .bandwidth = c->o.bandwidth,
        /* BTARD verifies gradients. Parameters cannot be recomputed by a verifier, so
         * CenteredClip bounds what one peer changes. */
        .verify = c->o.verify && which == GRADIENT,
        .clip = c->o.verify ? PL_CLIP_USUAL : c->o.clip,
        .powersgd = c->o.powersgd && which == GRADIENT,
        .gathers = gathers,
        .feedback = c->o.feedback,
        .factor_method = { c->o.factor_method[0], c->o.factor_method[1] },
        .client_mode = c->o.client_mode,
        .auxiliary = c->o.auxiliary,
        .absent = is_absent,
        .reports = reports,
        .absent_context = c,
        .reliability = &c->reliability,
        .measured = &c->bandwidth,
        /* A weight is a claim: no peer gets more than four target batches of the mean. */
        .weight_max = which == GRADIENT ? training_weight_max(c) : STATE_WEIGHT
    };
    if (which == GRADIENT) {
        o.validation = c->o.validation;
        o.validation.samples_max = TRAINING_WEIGHT_MAX * (uint64_t)c->o.target_batch;
    }
    snprintf(prefix, sizeof prefix, "%.200s%s", c->run, suffix[which]);
    /* The algorithm is part of the name: peers of two of them never meet. */
    snprintf(gather_name, sizeof gather_name, "GatherAverager_%.40s", gathers ? c->o.gathers : "");
    if (gathers) o.class_name = gather_name;
    return averager_open(&c->a[which], c->o.host, c->o.node, &o, err);
}

/* On the loop, as all of an averager's calls. Two averagers, since gradients and parameters are
 * averaged in different groups, at different times, with different weights. */
static void begin_open(void *context)
{
    struct request *w = context;
    int rc = open_averager(w->c, GRADIENT, w->err);
    if (!rc) rc = open_averager(w->c, STATE, w->err);
    w->status = rc;
    if (rc) close_averagers(w);
    else loop_end(&w->wait, PL_OK);
}

int training_open(struct training **out, const struct training_options *o, struct pl_err *err)
{
    struct training *c = calloc(1, sizeof *c);
    struct request w = { .c = c, .err = err };
    char key[GROUP_KEY_MAX + 16];
    struct dht_id owner;
    int rc = PL_ENOMEM;
    *out = NULL;
    if (!c) return pl_fail(err, PL_ENOMEM, "training together: no memory");
    c->o = *o;
    c->o.local_steps = o->local_steps != 0;
    if (!c->o.part_peers) c->o.part_peers = PARTS_PEERS;
    c->loop = host_loop(o->host);
    c->poll.view = (struct progress_view){ .eta = INFINITY };
    c->help.last_epoch = c->poll.lead = c->digests.last_epoch = -1;
    performance_init(&c->own.speed, PERFORMANCE_ALPHA);
    c->records.totals = (struct report_record){ .version = "potluck " PL_VERSION,
                                                .held_out = NAN,
                                                .target_batch = o->target_batch };
    if (o->device) report_device(c->records.totals.device, o->device);
    if (o->own_name)
        snprintf(c->records.totals.name, sizeof c->records.totals.name, "%s", o->own_name);
    /* A dot separates a key's prefix from its group bits, so the name may not have one. [spec
     * hivemind-protocol 4.1] */
    if (snprintf(c->run, sizeof c->run, "%s", o->run) > 200 || strchr(o->run, '.') || !*o->run) {
        rc = pl_fail(err, PL_EUSE, "run \"%.60s\": a name of 1 to 200 characters without a dot",
                     o->run);
        goto done;
    }
    c->elements = calloc(o->tensors + 1, sizeof *c->elements);
    c->state.before = calloc(o->tensors + 1, sizeof *c->state.before);
    c->state.after = calloc(o->tensors + 1, sizeof *c->state.after);
    if (!c->elements || !c->state.before || !c->state.after ||
        record_own_subkey(&c->subkey, o->key)) {
        pl_fail(err, rc, "training together: no memory");
        goto done;
    }
    rc = PL_OK;
    for (size_t t = 0; !rc && t < o->tensors; t++)
        rc = pl_wire_elements(&c->elements[t], &o->schema[t].type, err);
    /* The dictionaries of the run: RUN_progress, RUN_identity, RUN_metrics, RUN_report. */
    dht_id_of(&owner, bytes_at(&c->subkey), bytes_length(&c->subkey));
    memcpy(c->report.owner, owner.bytes, sizeof c->report.owner);
    for (size_t level = 0; level < RECORD_PART_LEVELS; level++)
        record_part_key(&c->report.key[level], c->run, &owner, level);
    snprintf(key, sizeof key, "%s%s", c->run, schema_identity.suffix);
    dht_id_of_text(&c->report.identity_key, key);
    snprintf(key, sizeof key, "%s%s", c->run, schema_metrics.suffix);
    dht_id_of_text(&c->records.metrics_key, key);
    snprintf(key, sizeof key, "%s%s", c->run, schema_report.suffix);
    dht_id_of_text(&c->records.report_key, key);
    if (!rc) rc = request_wait(&w, begin_open);
done:
    if (rc) free_all(c);
    else *out = c;
    return rc;
}
