/* btard.h - Byzantine-tolerant all-reduce: commitments, random choices, checks and bans, as pure
 * functions. A protocol sends the messages between them. [TTT 2.1, security] [BTARD: Gorbunov 2021,
 * arXiv 2106.11257, 3 and appendix] [spec numerics 12]
 *
 * n peers; peer j aggregates part j of all gradients with CenteredClip, run to convergence.
 * Matrices over (sender i, aggregator j) are n x n, row i. All is host memory. */
#ifndef PL_BTARD_H
#define PL_BTARD_H

#include "centered_clip.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_HASH_BYTES 32

/* A collision-resistant hash of 32 bytes; the swarm's is SHA-256. The caller brings it, since the
 * reference needs libc only. */
typedef void pl_hash_fn(uint8_t hash[PL_HASH_BYTES], const void *data, size_t bytes);

/* Settings that all peers agreed on. */
struct pl_btard {
    pl_hash_fn *hash;
    double tau;       /* CenteredClip's radius */
    double delta_max; /* a difference longer than this is worth a vote for recomputing the part */
    double tolerance; /* largest difference of reported and recomputed numbers */
    int iterations;   /* of CenteredClip */
};

/* --- commitments --- */

/* The hash of a part, as little-endian float32. */
void pl_btard_commit(uint8_t hash[PL_HASH_BYTES], const struct pl_btard *b, const float *part,
                     size_t d);

/* The aggregate of a part: CenteredClip from the lower median of x (n,d), then rounded to float32;
 * this value is committed to and sent. */
int pl_btard_aggregate(float *aggregate, const struct pl_btard *b, pl_centered_clip_fn *clip,
                       pl_median_fn *median, const float *x, int n, size_t d);

/* --- common randomness: commit, reveal, combine --- */

/* H(le32(peer) | x | salt). */
void pl_btard_lot_commit(uint8_t hash[PL_HASH_BYTES], const struct pl_btard *b, uint32_t peer,
                         const uint8_t x[PL_HASH_BYTES], const uint8_t salt[PL_HASH_BYTES]);
/* Whether a revealed lot is the one committed to. */
int pl_btard_lot_holds(const struct pl_btard *b, const uint8_t hash[PL_HASH_BYTES], uint32_t peer,
                       const uint8_t x[PL_HASH_BYTES], const uint8_t salt[PL_HASH_BYTES]);
/* The exclusive or of all peers' x (n,32). */
void pl_btard_seed(uint8_t seed[PL_HASH_BYTES], const uint8_t *x, int n);
/* H(seed | le32(number)): the seed of a validators' round, or of a peer's next batch, so that
 * anyone can recompute that peer's gradient. */
void pl_btard_derive(uint8_t derived[PL_HASH_BYTES], const struct pl_btard *b,
                     const uint8_t seed[PL_HASH_BYTES], uint32_t number);
/* z (d): the words of H(seed | le32(part) | le32(0)), H(... le32(1)), ... as numbers u / 2^31 - 1,
 * together of length 1. */
void pl_btard_direction(double *z, size_t d, const struct pl_btard *b,
                        const uint8_t seed[PL_HASH_BYTES], uint32_t part);

/* --- verifications --- */

/* Sender i's report about part j: with the difference D = x - aggregate,
 * *s = <z, D> min(1, tau / |D|) and *norm = |D|. */
void pl_btard_report(double *s, double *norm, const struct pl_btard *b, const double *z,
                     const float *x, const float *aggregate, size_t d);

/* Verification 2, by all peers: the column's s sum to 0 exactly at CenteredClip's fixed point. Give
 * it the sum after verification 1 has replaced false reports. */
int pl_btard_sum_holds(const struct pl_btard *b, double sum);

/* Verification 3: do more than half of a column's norms exceed delta_max? Then all peers recompute
 * that part. Returns the votes. */
int pl_btard_votes(int *recompute, const struct pl_btard *b, const double *norms, int n, int part);

/* --- validators --- */

#define PL_BTARD_VALIDATION 0xFFFFFFFFu /* the "part" whose direction orders the peers */

/* `order` (n) receives the alive peers sorted by the direction drawn from the round's own seed,
 * pl_btard_derive(seed, round); ties keep their order. The first half validate the second, one to
 * one: order[k] checks order[n / 2 + k] for k < n / 2; with odd n the last one rests. A validator
 * recomputes its target's gradient and compares commitments.
 * `round_seed` receives the round's seed. Returns PL_OK or PL_ENOMEM. */
int pl_btard_validators(int *order, uint8_t round_seed[PL_HASH_BYTES], const struct pl_btard *b,
                        const uint8_t seed[PL_HASH_BYTES], uint32_t round, const int *alive, int n);

/* --- the verdict over a whole round, as every honest peer reaches it --- */

struct pl_btard_round {
    int n;
    size_t d; /* elements of a part */
    /* (n, n d): the values that the aggregators received, and to which the hashes commit */
    const float *sent;
    const float *aggregate;                   /* (n, d): as published */
    const double *reported_s, *reported_norm; /* (n, n) */
    const uint8_t *seed;
};
struct pl_btard_verdict {
    uint8_t *false_reports; /* (n, n): sender i's report about part j was false; i is banned */
    double *sums;           /* (n): of the reports as they came */
    uint8_t *shifted;       /* (n): part j's sum is not 0 after correction; j is banned */
    uint8_t *recompute;     /* (n): more than half voted for it */
};
/* Fills the verdict's buffers, which are the caller's. PL_OK or PL_ENOMEM. */
int pl_btard_judge(struct pl_btard_verdict *verdict, const struct pl_btard *b,
                   const struct pl_btard_round *round);

#ifdef __cplusplus
}
#endif
#endif
