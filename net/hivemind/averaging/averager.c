/* averager.c - the steps of an averager: search, all-reduce, and again if the group falls apart.
 *
 *            found                 trigger                  all parts
 *   search ---------> a group ----------------> all-reduce -----------> done
 *     ^                                             |
 *     +---------------------------------------------+ fell apart, and there is time
 *
 * The search may begin before the caller has its values (hivemind's pre-scheduling): a trigger
 * gives them when they are ready, and groupmates' parts wait meanwhile. A step ends in one of two
 * ways: all tensors hold the mean, or none has changed.
 *
 * Everything is driven from on_turn(), which the loop calls: no engine is called from inside
 * another one's callback. */
#include "averager_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *averager_group_key(const struct averager *a) { return a->names.key; }
const char *averager_group_bits(const struct averager *a) { return a->names.bits; }
const uint8_t *averager_schema_hash(const struct averager *a) { return a->tensors.schema_hash; }
int averager_is_busy(const struct averager *a) { return a->call.phase != AVERAGER_IDLE; }
int averager_has_group(const struct averager *a)
{
    return a->call.phase != AVERAGER_IDLE && a->round.group.count > 0;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Every step ends here, exactly once, with the sentences that its rounds have left. */
static void finish(struct averager *a, int status)
{
    /* IDLE before the callback: it may begin the next step from inside. */
    averager_done *done = a->call.done;
    a->call.result.status = status;
    a->call.result.why = a->call.why.text;
    a->call.result.caught = a->call.caught.text;
    a->call.result.differs = a->call.differs.text;
    a->call.result.left_out = a->call.left_out.text;
    a->call.result.group = a->round.group.count ? &a->round.group : NULL;
    a->call.phase = AVERAGER_IDLE;
    averager_gather_stop(a);
    averager_admit_cancel(a);
    averager_refuse_parked(a);
    done(a->call.context, &a->call.result);
    if (a->call.phase == AVERAGER_IDLE)
        group_clear(&a->round.group); /* the callback may have begun the next */
}

static int write_gather(struct averager *a, const struct averager_step *s);

static int may_verify(const struct averager *a, const struct averager_step *s)
{
    /* A caller that sends user data of its own uses the place where the terms of
     * verification go. */
    return a->o.verify && !a->o.client_mode && !s->gather;
}

/* Each search that may be verified has a number of its own. */
static int draw_search_number(struct averager *a)
{
    uint8_t number[sizeof a->search.number];
    if (random_source_bytes(&a->o.random, number, sizeof number)) return PL_ENOMEM;
    /* Signed messages name their round by all gather messages of the group. With a fresh
     * number in ours, no message that we have signed in an earlier round is valid in a later
     * one. */
    memcpy(&a->search.number, number, sizeof number);
    return PL_OK;
}

/* Another search with the same trigger: the group fell apart, but the values are still ours,
 * as they were. hivemind retries the same way. [spec hivemind-protocol 4.4] */
static void search_again(struct averager *a)
{
    averager_admit_cancel(a);
    averager_expect_group_again(a);
    group_clear(&a->round.group);
    /* Without memory for another number it keeps the last one, which no honest leader minds. */
    if (a->search.number && !draw_search_number(a)) write_gather(a, &a->call.step);
    averager_search(a);
}

/* Without a proof: the peer has cost a verified round, and is left out for a while. */
static void back_off(struct averager *a, const struct peer_id *peer)
{
    double time = reliability_charged(a->reliability, loop_now(a->loop), a->round.began, peer);
    struct pl_err why = a->call.why;
    char name[PEER_ID_TEXT_MAX];
    peer_id_text(name, peer);
    pl_fail(&a->call.why, PL_EIO, "%.300s; %s is left out for %.0f s", why.text, name, time);
}

static void ban_proven(struct averager *a)
{
    for (size_t i = 0; i < a->round.group.count; i++) {
        const struct peer_id *peer = &a->round.group.members[i].peer;
        /* A proof takes precedence over a charge, which is only a suspicion. */
        const char *proof = allreduce_proof(a->round.x, i);
        if (!proof && allreduce_is_charged(a->round.x, i)) back_off(a, peer);
        if (proof) averager_ban(a, peer, proof);
    }
}

/* Why the search found no group, as far as it can tell. */
static void no_group(struct averager *a)
{
    static const char *const reason[] = {
        [MATCHMAKING_SEEN_NONE] = "no other peer was looking for a group",
        [MATCHMAKING_SEEN_REFUSAL] =
            "the peers found refuse us (PROTOCOL_VIOLATION); your side, if others can join: they "
            "banned us for a while for false messages, or they do not speak our version of the "
            "protocol",
        [MATCHMAKING_SEEN_INCOMPATIBLE] =
            "the peers found average other tensors; your side, if they agree with each other: "
            "your model or your options differ from theirs",
    };
    const char *why = reason[a->search.mm.seen];
    if (!why) why = a->search.ask.why.text;
    pl_fail(&a->call.why, a->search.status, "averaging: found no group for %.100s in time%s%s",
            a->names.key, why[0] ? ": " : "", why);
}

/* A round without a result leaves everything as it was, so trying again costs time only. */
static void end_attempt(struct averager *a, int status)
{
    if (!status) averager_round_succeeded(a);
    if (status && a->call.ending == ENDING_IN_TIME && averager_now(a) < a->call.step.deadline)
        search_again(a);
    else finish(a, status);
}

/* Acts on the end of a search or of a round; called from the loop, never from inside an engine. */
static void on_turn(void *context)
{
    struct averager *a = context;
    if (a->end.closed) return;
    /* 1. An all-reduce has ended, well or not: read what it reports, then free it. */
    if (a->call.phase == AVERAGER_REDUCED) {
        allreduce_report(a->round.x, &a->call.result.report);
        a->call.result.seconds = loop_now(a->loop) - a->round.began;
        /* Bans and charges first: a peer that is charged is not counted as failed, too. */
        ban_proven(a);
        averager_note_outcomes(a);
        bandwidth_end_round(a->bandwidth, &a->round.uplink);
        pl_fail(&a->call.left_out, PL_OK, "%s",
                allreduce_left_out(a->round.x) ? allreduce_left_out(a->round.x) : "");
        pl_fail(&a->call.differs, PL_OK, "%s",
                allreduce_differs(a->round.x) ? allreduce_differs(a->round.x) : "");
        averager_round_clear(a);
        if (a->round.status == PL_OK && averager_powersgd_reduced(a)) return;
        end_attempt(a, a->round.status);
        return;
    }
    if (a->call.phase == AVERAGER_GATHERED) {
        a->call.result.seconds = loop_now(a->loop) - a->gather.began;
        end_attempt(a, a->gather.status);
        return;
    }
    if (a->call.phase == AVERAGER_COMPUTED) {
        if (!averager_powersgd_computed(a)) finish(a, a->powersgd.status);
        return;
    }
    /* 2. A cancelled step ends here; one with a round waits for that round's end above. */
    if (a->call.ending == ENDING_NOW && a->call.phase != AVERAGER_IDLE &&
        a->call.phase != AVERAGER_REDUCING && a->call.phase != AVERAGER_COMPUTING) {
        averager_search_cancel(a);
        pl_fail(&a->call.why, PL_EAGAIN, "averaging: cancelled");
        finish(a, PL_EAGAIN);
        return;
    }
    /* 3. A search has ended: with a group, or without one at the deadline. */
    if (a->call.phase == AVERAGER_SEARCHED) {
        if (a->search.status) {
            /* After a group that fell apart its reason says more than that no second one was
             * found. */
            if (a->call.result.attempts == 0 || !a->call.why.text[0]) no_group(a);
            finish(a, a->search.status);
            return;
        }
        group_clear(&a->round.group);
        a->round.group = a->search.mm.group;
        /* The group changes hands: the engine may search again without it. */
        memset(&a->search.mm.group, 0, sizeof a->search.mm.group);
        a->call.phase = AVERAGER_GROUPED;
        a->call.result.attempts++;
        averager_group_formed(a);
        averager_admit_group(a);
    }
    /* 4. A group, the caller's values, and every groupmate's token: the all-reduce begins.
     * Whichever of the three comes last starts it. */
    if (a->call.phase != AVERAGER_GROUPED || !a->call.triggered || a->admission.left) return;
    if (a->o.gathers) averager_gather_begin(a);
    else if (a->powersgd.factors) averager_powersgd_begin(a);
    else averager_round_begin(a);
}

/* The message about ourselves that every groupmate receives. */
static int write_gather(struct averager *a, const struct averager_step *s)
{
    /* msgpack's nil, as hivemind's gradient averager sends it. [spec hivemind-protocol 4.3] */
    static const uint8_t nil[] = { 0xc0 };
    struct gather gather = { .bandwidth = averager_stated_bandwidth(a),
                             .user = s->gather ? s->gather : nil,
                             .user_n = s->gather ? s->gather_n : sizeof nil };
    struct bytes verifies = { 0 };
    int rc = PL_OK;
    if (may_verify(a, s)) {
        /* hivemind's peers do not read this field of other peers, so the terms do no harm there. */
        rc = averager_write_terms(&verifies, a, s->claim.epoch);
        gather.user = bytes_at(&verifies);
        gather.user_n = bytes_length(&verifies);
    }
    gather.mode = a->o.auxiliary ? GROUP_AUXILIARY : a->o.client_mode ? GROUP_CLIENT : GROUP_FULL;
    bytes_clear(&a->search.gather);
    if (!rc) rc = gather_write(&a->search.gather, &gather);
    bytes_clear(&verifies);
    return rc;
}

int averager_begin(struct averager *a, const struct averager_step *s, averager_done *done,
                   void *context)
{
    /* The clock is the DHT's: deadlines are compared with other peers' declarations. */
    if (a->call.phase != AVERAGER_IDLE || a->end.closed || s->deadline <= averager_now(a))
        return PL_EUSE;
    if (a->o.powersgd && !a->powersgd.factors) return PL_EUSE;
    a->search.behind_nat = averager_is_behind_nat(a);
    a->search.number = 0;
    if (may_verify(a, s) && draw_search_number(a)) return PL_ENOMEM;
    if (write_gather(a, s)) return PL_ENOMEM;
    a->call.step = *s;
    a->call.expected = s->expected;
    a->call.step.gather = NULL;
    a->call.done = done;
    a->call.context = context;
    a->call.ending = ENDING_IN_TIME;
    /* Untriggered: matchmaking takes seconds, in which the caller still accumulates
     * gradients. The group then only waits for the last trigger.
     * [spec hivemind-protocol 4.4] */
    a->call.triggered = !s->untriggered;
    memset(&a->call.result, 0, sizeof a->call.result);
    a->call.caught.text[0] = a->call.differs.text[0] = a->call.left_out.text[0] = 0;
    a->call.why.text[0] = a->search.ask.why.text[0] = 0;
    group_clear(&a->round.group);
    averager_search(a);
    return PL_OK;
}

void averager_trigger(struct averager *a, double weight, float *const *tensor,
                      const struct verifier_claim *claim)
{
    /* Weight and tensors together: the weight is the number of samples that the tensors are
     * over. */
    assert(a->call.phase != AVERAGER_IDLE && !a->call.triggered);
    a->call.triggered = 1;
    a->call.step.weight = weight;
    a->call.step.tensor = tensor;
    if (claim) {
        /* The terms of verification hold the epoch. If the values belong to a later epoch than the
         * gather message states, the groupmates must get the new epoch before the group forms. */
        int moved = claim->epoch != a->call.step.claim.epoch;
        a->call.step.claim = *claim;
        if (moved) { /* for leaders that this search asks from now on, and for another search */
            write_gather(a, &a->call.step);
            averager_search_gather(a);
        }
    }
    /* Until now others may just not have begun; from now on a window without anybody means
     * something. */
    matchmaking_patience(&a->search.mm, a->call.step.patience);
    if (a->call.step.expected) averager_expect(a, a->call.step.expected);
    averager_turn(a);
}

int averager_give(struct averager *a, double weight, int64_t epoch, const uint8_t *data, size_t n)
{
    int rc = averager_gather_set(a, weight, epoch, data, n);
    if (!rc) averager_trigger(a, weight, NULL, NULL);
    return rc;
}

/* Before the trigger no groupmate is hurried: the group waits for us. */
void averager_expect(struct averager *a, size_t peers)
{
    a->call.expected = a->call.step.expected = peers;
    if (a->call.phase != AVERAGER_IDLE && a->call.triggered)
        matchmaking_expect(&a->search.mm, averager_now(a), peers);
}

void averager_cancel(struct averager *a)
{
    if (a->call.phase == AVERAGER_IDLE) return;
    a->call.ending = ENDING_NOW;
    /* Its reducers and senders get CANCELLED, and do not count us as silent. */
    if (a->round.x) allreduce_cancel(a->round.x, loop_now(a->loop));
    averager_turn(a);
}

void averager_finish(struct averager *a)
{
    /* For parameters: a round that is under way is worth its end, another search is not. */
    if (!averager_has_group(a)) averager_cancel(a);
    else if (a->call.ending == ENDING_IN_TIME) a->call.ending = ENDING_AFTER_GROUP;
}

/* --- life ------------------------------------------------------------------------------------- */

/* The caller's texts and arrays may end with the call, so all of them are copied. */
static int copy_options(struct averager *a, const struct averager_options *o, struct pl_err *err)
{
    double bytes = 0;
    int rc;
    snprintf(a->names.prefix, sizeof a->names.prefix, "%s", o->prefix);
    snprintf(a->names.bits, sizeof a->names.bits, "%s", o->bits ? o->bits : "");
    rc = group_key(a->names.key, o->prefix, o->bits ? o->bits : "", err);
    a->o = *o;
    if (!rc && o->powersgd && (o->clip != 0 || o->verify))
        rc = pl_fail(err, PL_EUSE, "averaging: a factor of PowerSGD can't be clipped or verified");
    /* A group of one averages nothing. */
    if (!rc && (o->min_size < 2 || (o->target_size && o->target_size < o->min_size)))
        rc = pl_fail(err, PL_EUSE, "averaging: a group of %zu to %zu peers", o->min_size,
                     o->target_size);
    /* Two of the calls only potluck's peers serve. libp2p lets a peer ask for a protocol that the
     * other one does not know, so hivemind's peers are not disturbed by them. */
    for (int i = 0; !rc && i < AVERAGER_ALL_RPCS; i++)
        rc = group_rpc_name(a->names.rpc[i], o->prefix, o->class_name, (enum averager_rpc)i, err);
    if (rc) return rc;
    if (snprintf(a->state.key, sizeof a->state.key, "%s.all_averagers", o->prefix) >=
        (int)sizeof a->state.key)
        return pl_fail(err, PL_EUSE, "averaging: prefix \"%.60s\" is too long", o->prefix);
    a->tensors.elements = pl_alloc(o->tensors, sizeof *a->tensors.elements);
    a->tensors.method = pl_alloc(o->tensors, sizeof *a->tensors.method);
    a->tensors.schema = pl_alloc(o->tensors, sizeof *a->tensors.schema);
    if (!a->tensors.elements || !a->tensors.method || !a->tensors.schema ||
        group_schema_hash(a->tensors.schema_hash, o->schema, o->tensors) ||
        dht_id_of_text(&a->names.key_id, a->names.key) ||
        dht_id_of_text(&a->state.id, a->state.key) ||
        mp_bin(&a->state.subkey, host_id(a->host)->bytes, host_id(a->host)->length))
        return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    for (size_t t = 0; t < o->tensors; t++) {
        size_t n;
        a->tensors.method[t] = o->method[t];
        a->tensors.schema[t] = o->schema[t];
        /* hivemind averages float32 in the CPU's memory alone. [spec hivemind-protocol 4.2] */
        if (o->schema[t].type.dtype != PL_F32)
            return pl_fail(err, PL_EUSE, "averaging: tensor %zu is not float32", t);
        if ((rc = pl_wire_elements(&a->tensors.elements[t], &o->schema[t].type, err))) return rc;
        if (!pl_wire_bytes(&n, o->method[t], &o->schema[t].type, NULL)) bytes += (double)n;
    }
    if (o->upload_limit > 0) a->slow = bytes / o->upload_limit / BANDWIDTH_MBIT;
    a->o.schema = a->tensors.schema;
    a->o.method = a->tensors.method;
    return PL_OK;
}

/* A donor may keep us waiting between messages as long as a groupmate between parts. */
static void set_state_peer(struct averager *a)
{
    struct state_peer *p = &a->state;
    p->host = a->host;
    p->node = a->node;
    p->loop = a->loop;
    p->be = a->o.be;
    p->download = a->names.rpc[AVERAGER_DOWNLOAD];
    p->samples = a->names.rpc[AVERAGER_SAMPLES];
    p->tensors = a->o.tensors;
    p->elements = a->tensors.elements;
    p->schema = a->tensors.schema;
    if (a->o.powersgd && a->tensors.elements) {
        /* Its state is the factors Q of a rank that is not known yet: less than half of a tensor
         * each. */
        p->tensors = 0;
        p->any_tensors = a->o.tensors;
        for (size_t t = 0; t < a->o.tensors; t++)
            p->any_bytes += a->tensors.elements[t] * sizeof(float) / 2;
    }
    p->client_mode = a->o.client_mode;
    p->auxiliary = a->o.auxiliary;
    p->silence_max = a->o.sender_timeout > 0 ? a->o.sender_timeout : a->o.request_timeout;
    p->donor_failed = a->o.donor_failed;
    p->donor_context = a->o.donor_context;
}

static void free_averager(struct averager *a)
{
    timer_stop(&a->call.turn);
    timer_stop(&a->search.timer);
    timer_stop(&a->search.reach_timer);
    timer_stop(&a->round.timer);
    matchmaking_clear(&a->search.mm);
    group_clear(&a->round.group);
    bytes_clear(&a->state.subkey);
    bytes_clear(&a->search.gather);
    bytes_clear(&a->search.ask.request);
    allreduce_memory_clear(&a->round.memory);
    pl_free(a->tensors.elements);
    pl_free(a->tensors.method);
    pl_free(a->tensors.schema);
    free(a->own_reliability);
    free(a);
}

int averager_open(struct averager **out, struct host *h, struct dht_node *n,
                  const struct averager_options *o, struct pl_err *err)
{
    struct averager *a = calloc(1, sizeof *a);
    int rc;
    *out = NULL;
    if (!a) return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    a->host = h;
    a->node = n;
    a->loop = host_loop(h);
    a->call.on_turn = on_turn;
    rc = copy_options(a, o, err);
    set_state_peer(a);
    state_download_init(&a->download, &a->state);
    /* Averagers of one run share the reliability of peers: a peer that fails in gradient rounds is
     * not waited for in parameter rounds. */
    a->reliability = o->reliability;
    a->bandwidth = o->measured ? o->measured : &a->own_bandwidth;
    if (!rc && !a->reliability) {
        a->reliability = a->own_reliability = calloc(1, sizeof *a->own_reliability);
        if (!a->reliability) rc = pl_fail(err, PL_ENOMEM, "averaging: no memory");
        else a->reliability->random = o->random;
    }
    /* Calls are served from here on. Before the first step, peers that ask to join get
     * NOT_LOOKING_FOR_GROUP. */
    if (!rc) rc = averager_join_open(a, err);
    if (!rc && (rc = averager_round_open(a, err))) averager_join_close(a);
    if (!rc && (rc = averager_gather_open(a, err))) {
        averager_round_close(a);
        averager_join_close(a);
    }
    if (!rc && (rc = state_share_open(&a->share, &a->state, err))) {
        averager_gather_close(a);
        averager_round_close(a);
        averager_join_close(a);
    }
    if (rc) free_averager(a);
    else *out = a;
    return rc;
}

/* --- state ------------------------------------------------------------------------------------ */

/* Newcomers ask the donor with the highest priority first: with the epoch as priority, the state of
 * the peer that is furthest. [spec hivemind-protocol 7] */
void averager_share(struct averager *a, struct state_snapshot *s, double priority)
{
    state_share_set(&a->share, s, priority);
}

double averager_shared(const struct averager *a) { return state_share_seconds(&a->share); }

int averager_load(struct averager *a, state_check *check, state_downloaded *downloaded,
                  void *context)
{
    return a->end.closed ? PL_EUSE : state_download_begin(&a->download, check, downloaded, context);
}

/* Helper threads may still compute for a cancelled round. */
static void on_closing(void *context)
{
    struct averager *a = context;
    loop_fn *closed = a->end.closed;
    if (a->call.phase == AVERAGER_REDUCING || a->call.phase == AVERAGER_COMPUTING) {
        /* Threads cannot be stopped, and memory that they read must not be freed. Polling is
         * enough, since this happens once. */
        timer_start(a->loop, &a->end.timer, 0.005, on_closing, a);
        return;
    }
    if (a->round.x) averager_round_clear(a);
    averager_protect(a, NULL);
    averager_gather_close(a);
    averager_round_close(a);
    averager_powersgd_close(a);
    context = a->end.context;
    free_averager(a);
    closed(context);
}

void averager_close(struct averager *a, loop_fn *closed, void *context)
{
    assert(!a->end.closed);
    /* From here on nothing of the caller's is called but `closed`: turns, searches and state
     * end first, the all-reduce when its helper threads are back. */
    a->end.closed = closed;
    a->end.context = context;
    timer_stop(&a->call.turn);
    averager_search_cancel(a);
    averager_admit_cancel(a);
    averager_join_close(a);
    state_share_close(&a->share);
    state_download_clear(&a->download);
    if (a->round.x) allreduce_cancel(a->round.x, loop_now(a->loop));
    timer_start(a->loop, &a->end.timer, 0, on_closing, a);
}
