/* verifier_judge.c - REPORT to OPEN: the checks and their consequences. [BTARD 3, verifications 1
 * to 3]
 *
 *   1  a report is true         the reducer recomputes s = <z, x - a> min(1, tau / |x - a|) of each
 *                               sender, and accuses the sender in ACCUSE if it differs
 *   2  an aggregate is true     over all peers, sum_i s_i = 0 at CenteredClip's fixed point; a
 *                               reducer whose sum is another one, or whose tau is far off, is
 *                               banned
 *   3  an aggregate is near     if more than half of the peers find it too far, the part is opened
 *   4  values follow from data  validators drawn by lot compute their target's gradient again
 *
 * One part is opened in each round, an accused one first. All its values are shown, so every peer
 * checks reports, accusations and the aggregate of that part without trusting anybody. */
#include "verifier_internal.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums and differences are computed in float64. The tolerance is 100 times the difference that
 * another summation order or compiler can cause. An honest sum differs from 0 by the remainder of
 * CenteredClip's last step (allreduce_robust.c: a ten-millionth of the radius) and the rounding of
 * the aggregate to float32. A false report within its tolerance adds a fifth of the sum's
 * tolerance, so senders cannot make an honest reducer's sum false. */
#define REPORT_TOLERANCE 1e-7
#define SUM_TOLERANCE 1e-6
/* An honest peer accuses only above twice the threshold at which judges convict, so rounding on
 * their machines cannot turn the accusation against it. The same holds for validators. */
#define ACCUSER_FACTOR 2.0
#define ROUNDING 0x1p-23
/* The reducer chooses the radius near the median of the distances. With a much larger one
 * CenteredClip clips no peer; with a much smaller one the sum shows nothing. */
#define WIDEST 2.0
#define CLOSEST 0.25
/* [BTARD verification 3] An honest aggregate is no longer than the median of its inputs. A peer
 * calls it too far if its distance from the peer's own values exceeds this multiple of their
 * length. */
#define FAR 3.0
/* A peer's values may differ from those recomputed from its data by this share of their length.
 * Another processor's roundings and parameters that came back from a compressed round make some
 * hundredths of the length (paper/security.md); an attack within the share has far less effect than
 * a gradient's own noise. */
#define FALSE_SHARE 0.125 /* above it, a vote against; a validator accuses above ACCUSER_FACTOR x */
/* index of the seed's number that decides how many peers validate, and which part is opened */
#define LOTS 0xFFFFFFFEu

static struct pl_btard checks(double tau, double tolerance)
{
    return (struct pl_btard){ .hash = signed_hash, .tau = tau, .tolerance = tolerance };
}

/* Buffers for judging one part at a time. */
struct scratch {
    double *z, *norm;
    float *decoded;
    struct bytes raw;
};

static int scratch_open(struct scratch *d, struct verifier *r)
{
    memset(d, 0, sizeof *d);
    d->z = pl_alloc(r->longest, sizeof *d->z);
    d->norm = pl_alloc(r->v.count, sizeof *d->norm);
    d->decoded = pl_alloc(r->longest, sizeof *d->decoded);
    if (!d->z || !d->norm || !d->decoded) verifier_give_up(r, PL_ENOMEM, "no memory");
    return !r->over;
}

static void scratch_close(struct scratch *d)
{
    bytes_clear(&d->raw);
    pl_free(d->z);
    pl_free(d->norm);
    pl_free(d->decoded);
}

/* --- random choices --------------------------------------------------------------------------- */

void verifier_draw(struct verifier *r)
{
    const struct pl_btard b = checks(0, 0);
    uint8_t lots[PL_HASH_BYTES], round_seed[PL_HASH_BYTES];
    int n = 0, *alive = pl_alloc(r->v.count, sizeof *alive);
    /* An auxiliary peer contributes no gradient: it is not validated and cannot validate. */
    for (size_t i = 0; alive && i < r->v.count; i++)
        if (verifier_claim_of(r, i).samples) alive[n++] = (int)i;
    if (!alive || pl_btard_validators(r->order, round_seed, &b, r->seed, 0, alive, n))
        verifier_give_up(r, PL_ENOMEM, "no memory");
    pl_free(alive);
    pl_btard_derive(lots, &b, r->seed, LOTS);
    /* v validators on average: floor(v + u), u uniform in [0, 1). 0.25 means one in every
     * fourth round. */
    r->drawn = (size_t)fmax(0, floor(r->v.validators + pl_le32(lots) / 0x1p32));
    r->drawable = (size_t)n;
    /* The first half of the random order validates the second, so no peer is both. */
    if (r->drawn > r->drawable / 2) r->drawn = r->drawable / 2;
    if (r->v.part_count) r->opened = pl_le32(lots + 4) % r->v.part_count;
}

/* --- validators ------------------------------------------------------------------------------- */

/* [verification 4] Recomputes the peer's values and compares them with its reports on the values
 * that it has sent; its reducers have checked these reports. Hashes would be equal on equal
 * machines only. The projection of a difference on a random unit vector in d dimensions has on
 * average 1/d of its squared length. By the triangle inequality, two distances to the same point
 * differ by at most the distance between their other ends. */
static enum verifier_opinion computed(struct verifier *r, size_t peer, double share)
{
    struct verifier_claim claim = verifier_claim_of(r, peer);
    float *const *tensor;
    double far = 0, squares = 0;
    struct scratch d;
    if (!claim.samples || !r->v.recompute || !scratch_open(&d, r)) return VERIFIER_UNKNOWN;
    if (r->v.recompute(r->v.context, peer, &claim, &tensor)) {
        scratch_close(&d);
        return VERIFIER_UNKNOWN;
    }
    for (size_t p = 0; p < r->v.part_count; p++) {
        const struct pl_part *part = &r->v.parts[p];
        struct part_report reported = verifier_report(r, peer, p), own;
        double tau, along;
        const float *a = verifier_part(r, p, d.z, &tau), *x = tensor[part->tensor] + part->start;
        if (reported.norm == VERIFIER_ABSENT) continue;
        /* Its own part did not travel. */
        if (part->reducer != (int)peer) x = r->v.travel(r->v.context, p, x, d.decoded);
        if (!x) return scratch_close(&d), VERIFIER_UNKNOWN;
        own = verifier_measure(x, a, tau, d.z, part->length);
        /* s is clipped by tau / |x - a|; multiplied back it is the plain inner product <z, x
         * - a>. */
        along = tau > 0
                    ? reported.s * fmax(1, reported.norm / tau) - own.s * fmax(1, own.norm / tau)
                    : 0;
        /* E <z, e>^2 = |e|^2 / d for a random unit z, so d times its square estimates the
         * squared distance; ||x - a| - |y - a|| <= |x - y| bounds it from below. */
        far += fmax((double)part->length * along * along, pow(reported.norm - own.norm, 2));
        squares += own.length * own.length;
    }
    scratch_close(&d);
    return far <= share * share * squares ? VERIFIER_HOLDS : VERIFIER_FALSE;
}

static size_t target_of(const struct verifier *r, size_t k)
{
    return (size_t)r->order[r->drawable / 2 + k];
}

/* 1: the k-th validator reports that its target's values are false. */
static int is_doubted(const struct verifier *r, size_t k)
{
    const uint8_t *message = verifier_message(r, VERIFIER_ACCUSE, (size_t)r->order[k]);
    return message[r->v.count * ACCUSATION_BYTES] == VERIFIER_FALSE;
}

/* --- accusing --------------------------------------------------------------------------------- */

static double share_of(double difference, double allowed)
{
    if (!isfinite(difference)) return INFINITY;
    return difference > 0 ? difference / allowed : 0;
}

/* [BTARD verification 1] The deviation of a report from its true value, in units of the tolerance:
 * an honest report's is at most 1. s is clipped: it is no longer than the radius, however long the
 * values are. */
static double report_error(struct part_report reported, struct part_report own, double tau)
{
    double norm = fmax(0, own.norm), length = fmax(norm, own.length);
    double e = share_of(fabs(reported.s - own.s), REPORT_TOLERANCE * fmin(norm, tau));
    e = fmax(e, share_of(fabs(reported.norm - own.norm), REPORT_TOLERANCE * length));
    return fmax(e, share_of(fabs(reported.length - own.length), REPORT_TOLERANCE * length));
}

/* Only for a part that we have reduced. */
static enum accusation check_sender(struct verifier *r, struct scratch *d, size_t part, size_t peer,
                                    const float *a, double tau)
{
    struct part_report own;
    const float *x = NULL;
    int rc;
    bytes_take(&d->raw, bytes_length(&d->raw));
    rc = r->v.received(r->v.context, part, peer, &d->raw);
    if (rc < 0) {
        verifier_give_up(r, PL_ENOMEM, "no memory");
        return ACCUSES_NOBODY;
    }
    /* [BTARD 3, verification 1] The reducer holds its senders' values, so it computes their reports
     * itself. */
    if (rc)
        x = r->v.decode(r->v.context, part, bytes_at(&d->raw), bytes_length(&d->raw), d->decoded);
    own = verifier_measure(x, a, tau, d->z, r->v.parts[part].length);
    return report_error(verifier_report(r, peer, part), own, tau) <= ACCUSER_FACTOR
               ? ACCUSES_NOBODY
               : ACCUSES_REPORT;
}

void verifier_accuse(struct verifier *r, struct bytes *out)
{
    enum verifier_opinion found = VERIFIER_UNKNOWN;
    struct scratch d;
    uint8_t *what = calloc(r->v.count, 1);
    size_t *part = pl_alloc(r->v.count, sizeof *part);
    if (!what || !part) verifier_give_up(r, PL_ENOMEM, "no memory");
    scratch_open(&d, r);
    for (size_t p = 0; !r->over && p < r->v.part_count; p++) {
        double tau;
        const float *a;
        if (r->v.parts[p].reducer != (int)r->v.self) continue;
        a = verifier_part(r, p, d.z, &tau);
        for (size_t i = 0; i < r->v.count; i++) {
            /* One accusation a sender is enough: the part is opened, and all peers see it. */
            if (i == r->v.self || what[i]) continue;
            what[i] = (uint8_t)check_sender(r, &d, p, i, a, tau);
            part[i] = p;
        }
    }
    for (size_t k = 0; !r->over && k < r->drawn; k++)
        if (r->order[k] == (int)r->v.self)
            /* [BTARD 3, verification 4] Twice the share that a vote allows, see
             * ACCUSER_FACTOR. */
            found = computed(r, target_of(r, k), ACCUSER_FACTOR * FALSE_SHARE);
    for (size_t i = 0; !r->over && i < r->v.count; i++) {
        bytes_u8(out, what[i]);
        bytes_be32(out, what[i] ? (uint32_t)part[i] : 0);
    }
    bytes_u8(out, (uint8_t)found);
    scratch_close(&d);
    free(what);
    pl_free(part);
}

/* [BTARD verification 3] The first part that more than half find too far away; otherwise the one
 * drawn. */
static void vote_for_parts(struct verifier *r)
{
    const struct pl_btard b = { .delta_max = FAR };
    size_t n = r->v.count;
    double *ratio = pl_alloc(n * n, sizeof *ratio); /* its first column */
    int recompute = 0;
    if (!ratio) verifier_give_up(r, PL_ENOMEM, "no memory");
    for (size_t p = 0; !r->over && !recompute && p < r->v.part_count; p++) {
        for (size_t i = 0; i < n; i++) {
            struct part_report t = verifier_report(r, i, p);
            /* |x - a| / |x|: an aggregate that more than half find farther than FAR times
             * their own length away has been moved by its reducer. [BTARD 3, verification 3] */
            ratio[i * n] = t.norm > 0 ? t.norm / t.length : 0;
        }
        /* More than n / 2 of the peers: a Byzantine minority can't choose the part that is
         * opened. */
        pl_btard_votes(&recompute, &b, ratio, (int)n, 0);
        if (recompute) r->opened = p;
    }
    pl_free(ratio);
}

/* A peer that sends values but claims no samples is banned: its values cannot be recomputed from
 * its data, and it may have chosen the claim for that reason. */
void verifier_check_claims(struct verifier *r)
{
    for (size_t i = 0; i < r->v.count; i++)
        for (size_t p = 0; !verifier_claim_of(r, i).samples && p < r->v.part_count; p++)
            if (verifier_report(r, i, p).norm != VERIFIER_ABSENT) {
                verifier_ban(r, i, "a peer has sent values, of no samples");
                break;
            }
}

void verifier_receive_accusations(struct verifier *r)
{
    int has_part = 0;
    for (size_t j = 0; j < r->v.count; j++)
        for (size_t i = 0; i < r->v.count; i++) {
            size_t part;
            if (verifier_accusation(r, j, i, &part) == ACCUSES_NOBODY) continue;
            if (part >= r->v.part_count || r->v.parts[part].reducer != (int)j)
                verifier_ban(r, j, "a peer accuses another about a part that it has not reduced");
            else if (!has_part) r->opened = part;
            has_part = 1;
        }
    if (!r->over && !has_part) vote_for_parts(r);
}

/* A validator has sent its opinion already, and a peer does not judge its own values. */
void verifier_vote(struct verifier *r)
{
    for (size_t k = 0; !r->over && k < r->drawn; k++) {
        size_t target = target_of(r, k);
        if (target == r->v.self || r->order[k] == (int)r->v.self || !is_doubted(r, k)) continue;
        r->opinion[target] = (uint8_t)computed(r, target, FALSE_SHARE);
    }
}

/* --- judging ---------------------------------------------------------------------------------- */

/* How far a sum over n clipped differences may be from 0. */
static double sum_tolerance(const float *a, size_t d, double tau, size_t n)
{
    double squares = 0;
    for (size_t k = 0; k < d; k++) squares += (double)a[k] * a[k];
    return (double)n * (SUM_TOLERANCE * tau + ROUNDING * sqrt(squares));
}

/* [BTARD verification 2] The sum of a part's reports, and its radius against the distances. */
static void judge_part(struct verifier *r, size_t p, double *norm)
{
    const struct pl_part *part = &r->v.parts[p];
    double tau, sum = 0, middle;
    const float *a = r->v.aggregate(r->v.context, p, &tau);
    struct pl_btard b;
    size_t n = 0;
    for (size_t i = 0; i < r->v.count; i++) {
        struct part_report t = verifier_report(r, i, p);
        if (t.norm == VERIFIER_ABSENT) continue;
        /* sum_i s_i = <z, sum_i (x_i - a) min(1, tau / |x_i - a|)>, and the inner sum is 0
         * at the fixed point. Any other a gives another sum for almost every z. */
        sum += t.s;
        norm[n++] = t.norm;
    }
    if (!n) return;
    qsort(norm, n, sizeof *norm, pl_ascending);
    middle = norm[n / 2];
    b = checks(tau, sum_tolerance(a, part->length, tau, n));
    if (!pl_btard_sum_holds(&b, sum))
        verifier_ban(r, (size_t)part->reducer,
                     "a reducer's aggregate differs from the one computed from its group's values");
    else if (middle > 0 && !(tau >= CLOSEST * middle && tau <= WIDEST * middle))
        verifier_ban(r, (size_t)part->reducer,
                     "a reducer's radius is far from its group's distances");
}

/* The opened part's values as a peer shows them now, with the hashes of all parts that it has sent
 * to this reducer, which must match its commitment. NULL: it has sent none (*bad = 0), or what it
 * shows does not match (*bad = 1). */
static const float *shown(const struct verifier *r, size_t peer, float *decoded, int *bad)
{
    static const uint8_t nothing[PL_HASH_BYTES];
    size_t of, place = verifier_place(r, r->opened, &of), n;
    size_t reducer = (size_t)r->v.parts[r->opened].reducer;
    const uint8_t *hashes = broadcast_body(&r->b, VERIFIER_OPEN, peer, &n) + r->v.count,
                  *raw = hashes + of * PL_HASH_BYTES,
                  *promised = verifier_message(r, VERIFIER_COMMIT, peer) +
                              COMMIT_DIGESTS(r->v.count) + reducer * PL_HASH_BYTES;
    uint8_t hash[PL_HASH_BYTES];
    const float *x;
    *bad = 1;
    if (n < r->v.count + of * PL_HASH_BYTES) return NULL;
    n -= r->v.count + of * PL_HASH_BYTES;
    signed_hash(hash, hashes, of * PL_HASH_BYTES);
    /* 1. The hashes shown give the digest that was committed to. 2. The values shown have
     * the part's hash. */
    if (memcmp(hash, promised, sizeof hash)) return NULL;
    hashes += place * PL_HASH_BYTES;
    if (!n && !memcmp(hashes, nothing, sizeof nothing)) {
        *bad = 0;
        return NULL;
    }
    signed_hash(hash, raw, n);
    if (memcmp(hash, hashes, sizeof hash)) return NULL;
    x = r->v.decode(r->v.context, r->opened, raw, n, decoded);
    *bad = !x;
    return x;
}

/* Checks one peer's values of the opened part against its report and its reducer's accusation, and
 * adds its pull to the sum. Returns 0 if the values shown do not match the peer's commitment. */
static int judge_shown(struct verifier *r, struct scratch *d, size_t peer, const float *a,
                       double tau, double *pull)
{
    size_t reducer = (size_t)r->v.parts[r->opened].reducer, length = r->v.parts[r->opened].length,
           part;
    struct part_report t;
    int bad;
    const float *x = shown(r, peer, d->decoded, &bad);
    if (bad) {
        verifier_ban(r, peer, "a peer shows other values than it was committed to");
        return 0;
    }
    /* The values that a peer shows are compared with its report; if they agree, and its reducer has
     * accused it of that part, the reducer was wrong. */
    t = verifier_measure(x, a, tau, d->z, length);
    if (!(report_error(verifier_report(r, peer, r->opened), t, tau) <= 1))
        verifier_ban(r, peer, "a peer has reported false measures of the values that it sent");
    else if (verifier_accusation(r, reducer, peer, &part) == ACCUSES_REPORT && part == r->opened)
        verifier_ban(r, reducer, "a reducer accuses a peer falsely");
    for (size_t k = 0; x && k < length; k++)
        /* Of this one part the whole vector is summed, not only its shadow along z. */
        pull[k] += ((double)x[k] - a[k]) * (t.norm > tau ? tau / t.norm : 1);
    return 1;
}

static void judge_opened(struct verifier *r, struct scratch *d)
{
    const struct pl_part *part = &r->v.parts[r->opened];
    double tau, squares = 0, *pull = pl_alloc(part->length, sizeof *pull);
    const float *a = verifier_part(r, r->opened, d->z, &tau);
    int all = pull != NULL;
    if (!pull) verifier_give_up(r, PL_ENOMEM, "no memory");
    for (size_t k = 0; pull && k < part->length; k++) pull[k] = 0;
    for (size_t i = 0; pull && i < r->v.count; i++) all &= judge_shown(r, d, i, a, tau, pull);
    for (size_t k = 0; all && k < part->length; k++) squares += pull[k] * pull[k];
    if (all && !(sqrt(squares) <= sum_tolerance(a, part->length, tau, r->v.count)))
        verifier_ban(r, (size_t)part->reducer,
                     "a reducer's aggregate differs from the one computed from the values shown");
    pl_free(pull);
}

/* [BTARD, accuse] Settles a validator's accusation of its target by all votes. f is the largest
 * number of Byzantine peers: more than f votes convict a peer if at most f votes support it. If too
 * few peers can recompute the values, accuser and accused are both charged. */
static void judge_doubt(struct verifier *r, size_t k)
{
    /* The two parties count as one vote each. */
    size_t validator = (size_t)r->order[k], target = target_of(r, k), against = 1, for_it = 1,
           faults = verifier_faults(r);
    if (!is_doubted(r, k)) return;
    for (size_t i = 0; i < r->v.count; i++) {
        uint8_t vote = verifier_message(r, VERIFIER_OPEN, i)[target];
        if (i == validator || i == target) continue;
        against += vote == VERIFIER_FALSE;
        for_it += vote == VERIFIER_HOLDS;
    }
    /* With at most f Byzantine peers, f + 1 votes hold an honest one's; and f or fewer on
     * the other side may all be Byzantine. */
    if (against > faults && for_it <= faults)
        verifier_ban(r, target, "a peer's values are not those of its data");
    else if (for_it > faults && against <= faults)
        verifier_ban(r, validator, "a validator accuses a peer falsely");
    else {
        verifier_charge(r, validator, "too few peers can check the accusation");
        verifier_charge(r, target, "too few peers can check the accusation");
    }
}

void verifier_judge(struct verifier *r)
{
    int reports_doubted = 0;
    struct scratch d;
    if (!scratch_open(&d, r)) {
        scratch_close(&d);
        return;
    }
    if (r->v.part_count) judge_opened(r, &d);
    for (size_t k = 0; k < r->drawn; k++) judge_doubt(r, k);
    for (size_t j = 0; j < r->v.count; j++)
        for (size_t i = 0; i < r->v.count; i++) {
            size_t part;
            reports_doubted |= verifier_accusation(r, j, i, &part) == ACCUSES_REPORT;
        }
    /* A false report makes its reducer's sum false too, which is not that reducer's fault. The
     * round is void anyway: the opened part has already banned either the first accused peer or its
     * accuser. */
    for (size_t p = 0; !reports_doubted && p < r->v.part_count; p++) judge_part(r, p, d.norm);
    scratch_close(&d);
}
