/* digest.h - have the parameters of a peer diverged from those of its group? A digest of the
 * parameters in a signed record, and the comparison of a group's digests. Pure functions.
 *
 * Peers that average do not have equal bits: an all-reduce rounds to float16 or 8 bits. So the
 * digest is no hash but a sketch that keeps distances [Alon, Matias & Szegedy 1996]:
 *
 *   s_j = sum_i sigma(i) x_i      over the i with i mod 32 = j;  sigma(i): random signs, +1 or -1
 *   E sum_j (s_j - t_j)^2 = |x - y|^2      with a standard error of at most sqrt(2 / 32)
 *
 * Each peer stores the digest of the parameters after a common step under a key of the group that
 * made the step. hivemind's progress record may have no further field; its peers store and forward
 * this one like any signed record and never read it.
 *
 * When two digests may be compared
 *   same step    both are of the group whose mean made the step (its ID is in the key), and of the
 *                same epoch. Peers of other groups took other means.
 *   known causes the parameters of healthy peers differ by rounding, by corrections that one has
 *                applied and another not yet, and by steps that a peer took alone because its round
 *                failed. Each peer knows its own such steps. They widen its limit (`alone`), until
 *                a round of the parameters or a state makes its parameters common again. A peer
 *                with many of them stores no digest: others do not know the reason.
 *   majority     only what more than half of the whole group have in common counts. If a group
 *                falls into halves nobody is judged: a mean of the parameters joins them again.
 *
 * What a false digest can do: nothing, while Byzantine peers are up to half of the group. More than
 * half, who own the mean anyway, can make the others download a state, checked like any other, at
 * most once in two epochs, and more rarely if it does not help. */
#ifndef PL_DIGEST_H
#define PL_DIGEST_H

#include "net/libp2p/peer/peer_id.h"
#include "net/hivemind/records/dht_id.h"
#include "net/hivemind/records/schema.h"

#define DIGEST_SUMS 32
#define DIGEST_LIFE 60.0 /* s, as a progress record */
/* Parameters that differ by less than so many steps have not diverged: corrections and the moments
 * of the optimizer differ a little between peers. */
#define DIGEST_STEPS 8
/* Nor those that differ by less than this share of their norm: a round of the parameters rounds,
 * whatever the step. uniform8 has 256 codes for six standard deviations, so two peers differ by
 * sqrt(2) * 6 / 256 / sqrt(12) = 0.01 of one, and each peer chooses how it compresses. Twice as
 * much and more, since a sketch shows a norm to an eighth. */
#define DIGEST_SHARE 0.025

struct digest {
    float sum[DIGEST_SUMS];
};
/* x: (tensors) host memory, elements[t] values each. One pass over the parameters. */
void digest_take(struct digest *d, float *const *x, const size_t *elements, size_t tensors);
/* About |x - y|; NaN if one of them has numbers that are not finite. y NULL: |x|. */
double digest_distance(const struct digest *x, const struct digest *y);

struct digest_record {
    struct peer_id peer;
    int64_t epoch;
    double step;  /* |x(epoch) - x(epoch - 1)|, which this peer measured at itself */
    double alone; /* how far its steps without a mean may have led it; not sent: 0 of others */
    struct digest x;
    uint8_t owner[DHT_ID_BYTES]; /* of a record that was read: hash of the key that signed it */
    int has_diverged;            /* by digest_judge */
};

/* The key of the digests of the group that made the step. */
int digest_key(struct dht_id *key, const char *run, const uint8_t group[DHT_ID_BYTES]);
/* Appends the record's value. */
int digest_write(struct bytes *out, const struct digest_record *r);
/* PL_EPROTO with a sentence: a value that is no such record. */
int digest_read(struct digest_record *r, const uint8_t *data, size_t n, struct pl_err *err);

/* Marks the records of peers whose parameters have diverged from those that more than half of
 * `peers` have in common. 0: there is no such majority, and nothing is marked. records: one of each
 * peer of the group, of one epoch. PL_ENOMEM < 0. */
int digest_judge(struct digest_record *records, size_t count, size_t peers);

#endif
