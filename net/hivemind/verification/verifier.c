/* verifier.c - the order of the stages, and our own message of each. [BTARD 3]
 *
 *   SENT -> COMMIT -> REVEAL -> REPORT -> ACCUSE -> OPEN -> AGREE -> over, the round holds
 *     |        |         |        |         |        |        |
 *     +--------+---------+--------+---------+--------+--------+--> over, the round is void
 *
 * One loop (verifier_step) does everything: take packets, let the broadcast answer them, and if the
 * stage is common to all, judge it and send the next stage's message. The judgement is a function
 * of messages that all honest peers hold, so all of them come to the same. A stage without progress
 * for one time limit voids the round.
 *
 * Why this order: values and aggregates are committed to (COMMIT) before the random direction z of
 * the check is known (REVEAL, REPORT), so no peer can adapt its values to the check. */
#include "verifier_internal.h"
#include "ref/byte_order.h"
#include "ref/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CODEC_BYTES \
    (1 + PL_CODES * sizeof(float)) /* of a part that travels, in addition to its values */
/* time limits that COMMIT may take: the slowest peer may end its all-reduce one limit after the
 * fastest, and then wait one limit for a SENT that is missing */
#define COMMIT_LIMITS 2.0

/* --- messages --------------------------------------------------------------------------------- */

/* Every stage but OPEN has one length, which follows from the group alone: nothing longer is
 * stored. */
static size_t shortest(const struct verifier *r, int phase)
{
    switch (phase) {
    case VERIFIER_SENT: return SENT_BYTES;
    case VERIFIER_COMMIT: return COMMIT_BYTES(r->v.count);
    case VERIFIER_REVEAL: return 2 * PL_HASH_BYTES;
    case VERIFIER_REPORT: return r->v.part_count * REPORT_BYTES;
    case VERIFIER_ACCUSE: return r->v.count * ACCUSATION_BYTES + 1;
    case VERIFIER_OPEN: return r->v.count;
    default: return PL_HASH_BYTES;
    }
}

static int fits(void *context, int phase, size_t n)
{
    const struct verifier *r = context;
    size_t least = shortest(r, phase);
    if (phase != VERIFIER_OPEN) return n == least;
    /* OPEN also holds hashes and the values of one part, which may have travelled in any
     * compression. */
    return n >= least && n <= least + r->v.part_count * PL_HASH_BYTES + r->longest_sent;
}

/* --- life ------------------------------------------------------------------------------------- */

/* All that honest peers of a round agree on. Each peer's gather message holds a
 * number drawn for that search, so a message of another round is never valid in this one. */
static int hash_round(uint8_t hash[PL_HASH_BYTES], const struct verifier_view *v)
{
    struct bytes all = { 0 };
    /* Group, members, their gather messages, and the parts with their reducers: a peer that
     * differs in any of these is in another round, and none of its messages counts here. */
    bytes_add(&all, v->group->id, DHT_ID_BYTES);
    bytes_be32(&all, (uint32_t)v->count);
    for (size_t i = 0; i < v->count; i++) {
        const struct group_member *m = &v->group->members[i];
        bytes_u8(&all, m->peer.length);
        bytes_add(&all, m->peer.bytes, m->peer.length);
        bytes_be32(&all, (uint32_t)m->gathered_n);
        bytes_add(&all, m->gathered, m->gathered_n);
    }
    for (size_t p = 0; p < v->part_count; p++) {
        const struct pl_part *part = &v->parts[p];
        bytes_be32(&all, (uint32_t)part->reducer);
        bytes_be64(&all, part->tensor);
        bytes_be64(&all, part->start);
        bytes_be64(&all, part->length);
    }
    if (!all.failed) signed_hash(hash, bytes_at(&all), bytes_length(&all));
    bytes_clear(&all);
    return all.failed;
}

static int reserve(struct verifier *r)
{
    const struct verifier_view *v = &r->v;
    struct broadcast_options o = {
        .group = v->group, .me = v->me, .rules = &verifier_rules, .fits = fits, .context = r
    };
    /* All at once, so that no stage can fail for lack of memory halfway, apart from scratch. */
    r->waiting = calloc(v->count, sizeof *r->waiting);
    r->own_hash = calloc(v->count, PL_HASH_BYTES);
    r->sent_digest = calloc(v->count, PL_HASH_BYTES);
    r->sent_hash = calloc(v->part_count + 1, PL_HASH_BYTES);
    r->banned = calloc(v->count, 1);
    r->charged = calloc(v->count, 1);
    r->opinion = calloc(v->count, 1);
    r->order = pl_alloc(v->count, sizeof *r->order);
    if (!r->waiting || !r->own_hash || !r->sent_digest || !r->sent_hash || !r->banned ||
        !r->charged || !r->opinion || !r->order || hash_round(o.round, v) ||
        random_source_bytes(&v->random, r->nonce, sizeof r->nonce) ||
        random_source_bytes(&v->random, r->salt, sizeof r->salt))
        return PL_ENOMEM;
    return broadcast_open(&r->b, &o);
}

int verifier_open(struct verifier **out, const struct verifier_view *v, struct pl_err *err)
{
    struct verifier *r = NULL;
    size_t longest = 0, longest_sent;
    *out = NULL;
    /* A round that can't be verified is refused before it begins: later it would only be
     * void. */
    if (v->count > VERIFIER_PEERS_MAX || v->part_count > VERIFIER_PARTS_MAX)
        return pl_fail(err, PL_ELIMIT, "verification: %zu peers, %zu parts are too many", v->count,
                       v->part_count);
    for (size_t p = 0; p < v->part_count; p++)
        if (v->parts[p].length > longest) longest = v->parts[p].length;
    /* The longest that any method makes of a part: its table, and four bytes a value. */
    longest_sent = CODEC_BYTES + longest * sizeof(float);
    if (longest_sent + v->part_count * PL_HASH_BYTES > VERIFIER_SHOWN_MAX)
        return pl_fail(err, PL_ELIMIT,
                       "verification: of %zu parts one of %zu values is too long to be shown",
                       v->part_count, longest);
    if (!(r = calloc(1, sizeof *r))) return pl_fail(err, PL_ENOMEM, "verification: no memory");
    r->v = *v;
    r->longest = longest;
    r->longest_sent = longest_sent;
    r->phase = -1;
    r->inbox_end = &r->inbox;
    if (reserve(r)) {
        verifier_close(r);
        return pl_fail(err, PL_ENOMEM, "verification: no memory");
    }
    *out = r;
    return PL_OK;
}

void verifier_close(struct verifier *r)
{
    if (!r) return;
    broadcast_close(&r->b);
    packets_free(r->inbox);
    packets_free(r->batch);
    bytes_clear(&r->body);
    free(r->waiting);
    free(r->own_hash);
    free(r->sent_hash);
    free(r->sent_digest);
    free(r->opinion);
    free(r->charged);
    free(r->banned);
    pl_free(r->order);
    free(r);
}

int verifier_receive(struct verifier *r, size_t peer, const uint8_t *data, size_t n)
{
    struct packet *l;
    /* Packets wait while a helper thread works, maybe on a gradient. Each peer has its own
     * allowance, so a peer that floods us loses only its own packets. */
    size_t most = VERIFIER_WAITING_MAX + 4 * (r->longest_sent + r->v.part_count * PL_HASH_BYTES);
    if (peer >= r->v.count || peer == r->v.self || !n) return PL_EPROTO;
    if (r->waiting[peer] + n > most) return PL_ELIMIT;
    if (!(l = calloc(1, sizeof *l)) || bytes_add(&l->data, data, n)) {
        free(l);
        return PL_ENOMEM;
    }
    l->to = peer;
    r->waiting[peer] += n;
    *r->inbox_end = l;
    r->inbox_end = &l->next;
    return PL_OK;
}

void verifier_take(struct verifier *r, double now)
{
    /* A step sees one moment and one set of packets, so it needs no lock. */
    r->now = now;
    r->phase_before = r->phase;
    r->batch = r->inbox;
    r->inbox = NULL;
    r->inbox_end = &r->inbox;
    memset(r->waiting, 0, r->v.count * sizeof *r->waiting);
}

void verifier_stepped(struct verifier *r, double now)
{
    /* A new stage begins when its message leaves, which is now: the step may have computed
     * for long. */
    if (r->phase != r->phase_before) r->b.since = r->b.asked = now;
}

int verifier_is_slow(const struct verifier *r)
{
    /* Validators compute a gradient before ACCUSE, voters before OPEN: silence means work
     * there. */
    return !r->over && r->drawn && (r->phase == VERIFIER_ACCUSE || r->phase == VERIFIER_OPEN);
}

static double limit_of(const struct verifier *r)
{
    return r->v.limit * (r->phase == VERIFIER_COMMIT ? COMMIT_LIMITS : 1);
}

/* Two reasons to wake without a packet: the stage's limit, and a quarter of it for NEED. A
 * stage in which others compute gradients has no limit of its own. */
double verifier_wake(const struct verifier *r)
{
    double limit = limit_of(r);
    if (r->over) return INFINITY;
    if (r->phase < 0 || r->inbox) return 0;
    if (!(limit > 0)) return INFINITY;
    limit = verifier_is_slow(r) ? INFINITY : r->b.since + limit;
    return fmin(limit, r->b.asked + BROADCAST_ASK * r->v.limit);
}

/* --- REVEAL and REPORT ------------------------------------------------------------------------ */

/* REVEAL: the random number (`nonce`), and the salt that hid it in COMMIT's hash. */
static void reveal(struct verifier *r, struct bytes *out)
{
    /* H(i | x_i | s_i) was committed to. The salt s_i hides x_i there, even if x_i could be
     * guessed. [BTARD 3] */
    bytes_add(out, r->nonce, sizeof r->nonce);
    bytes_add(out, r->salt, sizeof r->salt);
}

/* The seed of all random choices is a hash over everybody's numbers, so it is random if one peer is
 * honest. */
static void judge_lots(struct verifier *r)
{
    const struct pl_btard hashing = { .hash = signed_hash };
    uint8_t *lots = malloc(r->v.count * PL_HASH_BYTES + 1);
    if (!lots) verifier_give_up(r, PL_ENOMEM, "no memory");
    for (size_t i = 0; lots && i < r->v.count; i++) {
        const uint8_t *x = verifier_message(r, VERIFIER_REVEAL, i);
        /* All have committed before the first reveals, so no peer can choose its number by the
         * others'. A peer that wants another outcome can only fall silent, and is charged for
         * it. */
        if (!pl_btard_lot_holds(&hashing, verifier_message(r, VERIFIER_COMMIT, i) + COMMIT_LOT,
                                (uint32_t)i, x, x + PL_HASH_BYTES))
            verifier_ban(r, i, "a peer has revealed another number than it was committed to");
        memcpy(lots + i * PL_HASH_BYTES, x, PL_HASH_BYTES);
    }
    if (!r->over) {
        /* From here on everything random is a function of the seed, the same for all:
         * directions, validators, the part to open. */
        pl_btard_seed(r->seed, lots, (int)r->v.count);
        verifier_draw(r);
    }
    free(lots);
}

/* REPORT: of each part s, |x - a| and |x|, computed from the values sent. */
static void report(struct verifier *r, struct bytes *out)
{
    struct bytes own = { 0 };
    double *z = pl_alloc(r->longest, sizeof *z);
    float *decoded = pl_alloc(r->longest, sizeof *decoded);
    if (!z || !decoded) verifier_give_up(r, PL_ENOMEM, "no memory");
    for (size_t p = 0; !r->over && p < r->v.part_count; p++) {
        double tau;
        const float *a = verifier_part(r, p, z, &tau), *x = NULL;
        struct part_report t;
        int rc;
        bytes_take(&own, bytes_length(&own));
        rc = r->v.sent(r->v.context, p, &own);
        /* The values after compression count, as the reducer decoded them. */
        if (rc == 1) x = r->v.decode(r->v.context, p, bytes_at(&own), bytes_length(&own), decoded);
        if (rc < 0 || (rc && !x)) verifier_give_up(r, PL_ENOMEM, "no memory");
        t = verifier_measure(x, a, tau, z, r->v.parts[p].length);
        pl_little_endian(&t, sizeof(double), sizeof t / sizeof(double));
        bytes_add(out, &t, sizeof t);
    }
    bytes_clear(&own);
    pl_free(z);
    pl_free(decoded);
}

/* --- OPEN and AGREE --------------------------------------------------------------------------- */

/* OPEN: votes; the hashes of all that we have sent to this reducer, which give COMMIT's digest;
 * and our values of the opened part, whose hash is one of them. */
static void open_part(struct verifier *r, struct bytes *out)
{
    verifier_vote(r);
    bytes_add(out, r->opinion, r->v.count);
    if (!r->v.part_count) return;
    for (size_t p = 0; p < r->v.part_count; p++)
        /* The digest of COMMIT was over these hashes: with all of them shown, one part's
         * values can be checked against it without the other parts. */
        if (r->v.parts[p].reducer == r->v.parts[r->opened].reducer)
            bytes_add(out, r->sent_hash + p * PL_HASH_BYTES, PL_HASH_BYTES);
    /* Each peer shows one part of its values in each round, so those are not private. */
    if (r->v.sent(r->v.context, r->opened, out) < 0) verifier_give_up(r, PL_ENOMEM, "no memory");
}

/* A hash over all messages of the stage before it. */
static void agree(struct verifier *r, struct bytes *out)
{
    uint8_t hash[PL_HASH_BYTES];
    struct bytes all = { 0 };
    for (size_t i = 0; i < r->v.count; i++)
        /* Equal AGREE messages mean equal OPEN messages, so also equal verdicts. */
        bytes_add(&all, r->b.cell[VERIFIER_OPEN * r->v.count + i].hash, PL_HASH_BYTES);
    signed_hash(hash, bytes_at(&all), bytes_length(&all));
    if (all.failed) verifier_give_up(r, PL_ENOMEM, "no memory");
    bytes_clear(&all);
    bytes_add(out, hash, sizeof hash);
}

/* AGREE has no lists: its messages are all equal, and a stage of lists would again need an
 * end that all agree on. */
static void judge_agreement(struct verifier *r)
{
    broadcast_push(&r->b, VERIFIER_AGREE); /* a peer that lacks some is about to give up */
    r->over = 1;
    r->status = PL_OK;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* All messages of a stage are there. The findings are a function of them and of the earlier stages'
 * messages, which are the same for all honest peers. */
static void judge(struct verifier *r)
{
    switch (r->phase) {
    /* SENT is judged with COMMIT: only together can they contradict each other. */
    case VERIFIER_COMMIT: verifier_judge_commitments(r); break;
    case VERIFIER_REVEAL: judge_lots(r); break;
    case VERIFIER_REPORT: verifier_check_claims(r); break;
    case VERIFIER_ACCUSE: verifier_receive_accusations(r); break;
    case VERIFIER_OPEN: verifier_judge(r); break;
    default: judge_agreement(r); break;
    }
}

static void send_next(struct verifier *r)
{
    struct bytes *out = &r->body;
    bytes_take(out, bytes_length(out));
    /* The phase moves on with our own message: from here this stage's limit runs. */
    r->phase++;
    switch (r->phase) {
    case VERIFIER_SENT: verifier_send_pairs(r); return;
    case VERIFIER_COMMIT: verifier_commit(r, out); break;
    case VERIFIER_REVEAL: reveal(r, out); break;
    case VERIFIER_REPORT: report(r, out); break;
    case VERIFIER_ACCUSE: verifier_accuse(r, out); break;
    case VERIFIER_OPEN: open_part(r, out); break;
    default: agree(r, out); break;
    }
    if (out->failed) verifier_give_up(r, PL_ENOMEM, "no memory");
    if (!r->over) broadcast_send(&r->b, r->now, r->phase, bytes_at(out), bytes_length(out));
}

/* A peer that has agreed waits for the others: they may have applied the round already, before a
 * proof has come. So from then on a proof bans its author, but the round may still hold. */
static void ban_proven(struct verifier *r)
{
    for (size_t i = 0; i < r->v.count; i++) {
        if (!r->b.guilty[i] || i == r->v.self) continue;
        /* A proof bans in any stage; the round is void unless others may have applied it
         * already. */
        r->banned[i] = 1;
        if (r->phase < VERIFIER_AGREE)
            verifier_give_up(r, PL_EIO,
                             "a peer has signed two messages that contradict each other");
    }
}

void verifier_expire(struct verifier *r, double now)
{
    r->now = now;
    /* Before COMMIT there are no commitments, and a silent peer cannot be distinguished from a slow
     * one. */
    if (r->over || r->phase < VERIFIER_COMMIT) return;
    ban_proven(r);
    /* All messages are there, but not all lists: a proof in them is valid, since their authors have
     * had our lists of the earlier stages. */
    if (!r->over && r->phase < VERIFIER_AGREE && broadcast_is_full(&r->b, r->phase)) judge(r);
    if (!r->over) verifier_charge_silent(r);
}

void verifier_step(struct verifier *r)
{
    int goes_on = 1;
    if (r->phase < 0) send_next(r);
    r->b.is_patient = verifier_is_slow(r);
    for (struct packet *l = r->batch; l; l = l->next)
        broadcast_receive(&r->b, r->now, limit_of(r), l->to, bytes_at(&l->data),
                          bytes_length(&l->data));
    packets_free(r->batch);
    r->batch = NULL;
    /* Each turn ends at most one stage; several may be complete already. */
    while (goes_on && !r->over) {
        /* `since` moves with every message that brings the stage on, so a limit is one of
         * silence. */
        double end = limit_of(r) > 0 ? r->b.since + limit_of(r) : INFINITY;
        broadcast_tick(&r->b, r->now, BROADCAST_ASK * r->v.limit);
        verifier_compare_commitments(r);
        ban_proven(r);
        if (r->b.failed) verifier_give_up(r, PL_ENOMEM, "no memory");
        if (r->over) break;
        /* SENT needs no agreement: a message missing at its limit is denied in COMMIT, to all. */
        if (r->phase == VERIFIER_SENT) {
            if ((goes_on = verifier_has_all_pairs(r) || r->now >= end)) send_next(r);
        } else if (r->phase == VERIFIER_AGREE ? broadcast_is_full(&r->b, r->phase)
                                              : broadcast_is_common(&r->b, r->phase)) {
            judge(r);
            if (!r->over) send_next(r);
        } else {
            goes_on = 0;
            if (r->now >= end && !verifier_is_slow(r)) verifier_expire(r, r->now);
        }
    }
}
