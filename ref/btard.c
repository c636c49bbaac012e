/* btard.c - the mathematics of BTARD-SGD: a round of averaging in which every peer can check the
 * reducers. [BTARD: Gorbunov 2021, arXiv 2106.11257, 3 and appendix] [TTT 2.1, security]
 *
 *   1. commit      peers publish hashes of the values that they will send, before they see any
 *   2. aggregate   each reducer averages its part by CenteredClip
 *   3. lot         a random direction z_j for each part j, from seeds that all peers committed to,
 *                  so that no peer could choose it
 *   4. report      s_ij = <z_j, clip(x_ij - v_j)>, and the norm |x_ij - v_j|
 *   5. check       at CenteredClip's fixed point sum_i s_ij = 0: a reducer that sent anything else
 *                  is found out, unless its error is orthogonal to a direction it could not know
 *   6. vote        a part is computed again where more than half report norms beyond delta_max
 *   7. validate    random peers repeat the gradients of random others */
#include "btard.h"
#include "byte_order.h"
#include "small.h"

#include <math.h>
#include <string.h>

#define WORDS (PL_HASH_BYTES / 4)

static void put_le32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> 8 * i);
}

/* 1. h_ij = hash(part j of peer i): sent to all before any part is */
void pl_btard_commit(uint8_t hash[PL_HASH_BYTES], const struct pl_btard *b, const float *part,
                     size_t d)
{
    /* without memory for the copy, a hash that holds nowhere */
    float *copy = PL_BIG_ENDIAN ? pl_alloc(d, sizeof *copy) : NULL;
    if (copy) pl_copy_little(copy, part, sizeof *copy, d);
    b->hash(hash, copy ? copy : part, d * sizeof *part);
    pl_free(copy);
}

/* 2. from the median, whose error a minority cannot choose */
int pl_btard_aggregate(float *aggregate, const struct pl_btard *b, pl_centered_clip_fn *clip,
                       pl_median_fn *median, const float *x, int n, size_t d)
{
    struct pl_clip how = { b->tau, NULL, b->iterations, -1, -1, 0 };
    struct pl_clip_result result;
    double *v = pl_alloc(d, sizeof *v);
    int rc = v ? median(aggregate, x, n, d, 0) : PL_ENOMEM;
    /* v <- v + mean_i clip(x_i - v), from v = the median */
    for (size_t k = 0; !rc && k < d; k++) v[k] = aggregate[k];
    if (!rc) rc = clip(v, &result, x, NULL, n, d, &how);
    for (size_t k = 0; !rc && k < d; k++) aggregate[k] = (float)v[k];
    pl_free(v);
    return rc;
}

/* 3. h = hash(peer, x, salt); the lot is the exclusive or of all x, once all are revealed */
void pl_btard_lot_commit(uint8_t hash[PL_HASH_BYTES], const struct pl_btard *b, uint32_t peer,
                         const uint8_t x[PL_HASH_BYTES], const uint8_t salt[PL_HASH_BYTES])
{
    uint8_t message[4 + 2 * PL_HASH_BYTES];
    put_le32(message, peer);
    memcpy(message + 4, x, PL_HASH_BYTES);
    memcpy(message + 4 + PL_HASH_BYTES, salt, PL_HASH_BYTES);
    b->hash(hash, message, sizeof message);
}

/* Revealed x and salt must be those that were committed to. */
int pl_btard_lot_holds(const struct pl_btard *b, const uint8_t hash[PL_HASH_BYTES], uint32_t peer,
                       const uint8_t x[PL_HASH_BYTES], const uint8_t salt[PL_HASH_BYTES])
{
    uint8_t own[PL_HASH_BYTES];
    pl_btard_lot_commit(own, b, peer, x, salt);
    return !memcmp(own, hash, PL_HASH_BYTES);
}

/* One honest x makes the exclusive or of all unpredictable. */
void pl_btard_seed(uint8_t seed[PL_HASH_BYTES], const uint8_t *x, int n)
{
    memset(seed, 0, PL_HASH_BYTES);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < PL_HASH_BYTES; k++) seed[k] ^= x[i * PL_HASH_BYTES + k];
}

/* Seeds for other purposes: hash(seed, number) */
void pl_btard_derive(uint8_t derived[PL_HASH_BYTES], const struct pl_btard *b,
                     const uint8_t seed[PL_HASH_BYTES], uint32_t number)
{
    uint8_t message[PL_HASH_BYTES + 4];
    memcpy(message, seed, PL_HASH_BYTES);
    put_le32(message + PL_HASH_BYTES, number);
    b->hash(derived, message, sizeof message);
}

/* z uniform in [-1,1]^d from a hash in counter mode, then of length 1 */
void pl_btard_direction(double *z, size_t d, const struct pl_btard *b,
                        const uint8_t seed[PL_HASH_BYTES], uint32_t part)
{
    uint8_t message[PL_HASH_BYTES + 8], block[PL_HASH_BYTES];
    double sum = 0;
    memcpy(message, seed, PL_HASH_BYTES);
    put_le32(message + PL_HASH_BYTES, part);
    for (size_t k = 0; k < d; k++) {
        if (k % WORDS == 0) {
            put_le32(message + PL_HASH_BYTES + 4, (uint32_t)(k / WORDS));
            b->hash(block, message, sizeof message);
        }
        z[k] = pl_le32(block + 4 * (k % WORDS)) / 0x1p31 - 1;
        sum += z[k] * z[k];
    }
    for (size_t k = 0; k < d; k++) z[k] /= sqrt(sum);
}

/* 4. s = <z, clip(x - v)>,  clip(y) = y min(1, tau / |y|) */
void pl_btard_report(double *s, double *norm, const struct pl_btard *b, const double *z,
                     const float *x, const float *aggregate, size_t d)
{
    double product = 0, squares = 0;
    for (size_t k = 0; k < d; k++) {
        double difference = (double)x[k] - aggregate[k];
        product += z[k] * difference;
        squares += difference * difference;
    }
    *norm = sqrt(squares);
    *s = *norm > b->tau ? product * (b->tau / *norm) : product;
}

/* Verification 1, by the aggregator, who has x. The tolerance is for sums of floats in another
 * order; beyond it a report is false. NaN never is within it. */
static int report_holds(const struct pl_btard *b, double s, double norm, double reported_s,
                        double reported_norm)
{
    return fabs(s - reported_s) <= b->tolerance && fabs(norm - reported_norm) <= b->tolerance;
}

/* 5. sum_i s_ij = 0 at the fixed point of CenteredClip, up to its tolerance */
int pl_btard_sum_holds(const struct pl_btard *b, double sum) { return fabs(sum) <= b->tolerance; }

/* 6. Inputs far from v are clipped, and say nothing about v: if most are, the part is repeated. A
 * NaN is far. */
int pl_btard_votes(int *recompute, const struct pl_btard *b, const double *norms, int n, int part)
{
    int votes = 0;
    for (int i = 0; i < n; i++)
        votes += !(norms[(size_t)i * (size_t)n + (size_t)part] <= b->delta_max);
    *recompute = 2 * votes > n;
    return votes;
}

/* 7. the peers sorted by a random number each */
int pl_btard_validators(int *order, uint8_t round_seed[PL_HASH_BYTES], const struct pl_btard *b,
                        const uint8_t seed[PL_HASH_BYTES], uint32_t round, const int *alive, int n)
{
    double *z = pl_alloc((size_t)n, sizeof *z);
    if (!z) return PL_ENOMEM;
    pl_btard_derive(round_seed, b, seed, round);
    pl_btard_direction(z, (size_t)n, b, round_seed, PL_BTARD_VALIDATION);
    for (int i = 0; i < n; i++) { /* insertion keeps ties in their order */
        double key = z[i];
        int at = i;
        for (; at > 0 && z[at - 1] > key; at--) {
            z[at] = z[at - 1];
            order[at] = order[at - 1];
        }
        z[at] = key;
        order[at] = alive[i];
    }
    pl_free(z);
    return PL_OK;
}

/* 4. to 6. as a verifier repeats them from everything that was sent. */
int pl_btard_judge(struct pl_btard_verdict *verdict, const struct pl_btard *b,
                   const struct pl_btard_round *r)
{
    size_t n = (size_t)r->n;
    double *z = pl_alloc(r->d, sizeof *z);
    if (!z) return PL_ENOMEM;
    for (size_t j = 0; j < n; j++) {
        double corrected = 0;
        int recompute;
        verdict->sums[j] = 0;
        /* 4. every peer's s_ij and norm once more, from the values that it sent */
        pl_btard_direction(z, r->d, b, r->seed, (uint32_t)j);
        for (size_t i = 0; i < n; i++) {
            double s, norm;
            size_t at = i * n + j;
            pl_btard_report(&s, &norm, b, z, r->sent + at * r->d, r->aggregate + j * r->d, r->d);
            verdict->false_reports[at] = !report_holds(b, s, norm, r->reported_s[at],
                                                       r->reported_norm[at]);
            /* a false report is replaced by the true one, so that it cannot cover a shifted
             * aggregate */
            verdict->sums[j] += r->reported_s[at];
            corrected += verdict->false_reports[at] ? s : r->reported_s[at];
        }
        /* 5. sum_i s_ij = 0, and 6. the vote, over the true reports */
        verdict->shifted[j] = !pl_btard_sum_holds(b, corrected);
        pl_btard_votes(&recompute, b, r->reported_norm, r->n, (int)j);
        verdict->recompute[j] = (uint8_t)recompute;
    }
    pl_free(z);
    return PL_OK;
}
