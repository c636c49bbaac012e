/* verifier_evidence.c - the evidence for a verdict: the statements in each peer's messages, and the
 * comparison of a part's values with its aggregate. [BTARD 3]
 *
 *   stated     COMMIT's claim, REPORT's three numbers, ACCUSE's accusations: read from the
 *              broadcast
 *   measured   s = <z, x - a> min(1, tau / |x - a|), and the two norms that bound it
 *
 * A report is checked by measuring the same values again: z and a are the same for everybody, so an
 * honest report and its check agree up to rounding. Nothing here judges, and nothing changes. */
#include "verifier_internal.h"
#include "ref/byte_order.h"

#include <math.h>
#include <string.h>

const uint8_t *verifier_message(const struct verifier *r, int phase, size_t peer)
{
    return broadcast_body(&r->b, phase, peer, NULL);
}

static uint64_t be64(const uint8_t *p)
{
    struct cursor c = { p, 8 };
    uint64_t x = 0;
    get_be64(&c, &x);
    return x;
}

struct verifier_claim verifier_claim_of(const struct verifier *r, size_t peer)
{
    /* Commitments hold for the rest of the round: the epoch of the parameters, and the number of
     * samples. */
    const uint8_t *p = verifier_message(r, VERIFIER_COMMIT, peer) + COMMIT_CLAIM;
    return (struct verifier_claim){ (int64_t)be64(p), be64(p + 8) };
}

struct part_report verifier_report(const struct verifier *r, size_t peer, size_t part)
{
    struct part_report t;
    /* three float64 */
    pl_copy_little(&t, verifier_message(r, VERIFIER_REPORT, peer) + part * REPORT_BYTES,
                   sizeof(double), sizeof t / sizeof(double));
    return t;
}

enum accusation verifier_accusation(const struct verifier *r, size_t by, size_t of, size_t *part)
{
    const uint8_t *p = verifier_message(r, VERIFIER_ACCUSE, by) + of * ACCUSATION_BYTES;
    /* One byte for the kind, four for the part, big-endian. */
    *part = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    return by == of || p[0] != ACCUSES_REPORT ? ACCUSES_NOBODY : ACCUSES_REPORT;
}

/* s = <z, x - a> min(1, tau / |x - a|): the peer's pull on the aggregate, along z. At the
 * fixed point all pulls cancel, so their s do, along any z. [BTARD 3, verification 2] */
struct part_report verifier_measure(const float *x, const float *a, double tau, const double *z,
                                    size_t d)
{
    const struct pl_btard b = { .tau = tau };
    struct part_report t = { 0, VERIFIER_ABSENT, 0 };
    if (!x) return t;
    pl_btard_report(&t.s, &t.norm, &b, z, x, a, d);
    /* |x| is not the paper's; it says how exact s can be, since roundings grow with it. */
    for (size_t k = 0; k < d; k++) t.length += (double)x[k] * x[k];
    t.length = sqrt(t.length);
    return t;
}

/* The direction depends on seed and part alone, so each peer computes the same z for itself. */
const float *verifier_part(const struct verifier *r, size_t part, double *z, double *tau)
{
    const struct pl_btard hashing = { .hash = signed_hash };
    /* z is a random unit vector, unknown while values and aggregates could still be chosen. */
    pl_btard_direction(z, r->v.parts[part].length, &hashing, r->seed, (uint32_t)part);
    return r->v.aggregate(r->v.context, part, tau);
}

size_t verifier_place(const struct verifier *r, size_t part, size_t *of)
{
    /* A peer commits to one digest for each reducer, over the hashes of that reducer's parts
     * in order. */
    size_t place = 0;
    *of = 0;
    for (size_t p = 0; p < r->v.part_count; p++) {
        if (r->v.parts[p].reducer != r->v.parts[part].reducer) continue;
        place += p < part;
        ++*of;
    }
    return place;
}
