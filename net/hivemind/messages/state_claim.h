/* state_claim.h - is a state that one donor gave the swarm's? Other donors are asked for some of
 * their parameters, at places that are chosen after the download has ended.
 *
 * Honest peers' parameters are not equal bit for bit: each keeps the rounding of lossy rounds, and
 * each trains while we ask. So digests differ; samples agree within a tolerance. A random seed
 * picks them, equally many from each tensor, after the donor has sent its state. A donor that
 * changed a share f of the values is missed by k samples with probability (1 - f)^k.
 *
 * It proves that donors agree, not that they are right: a newcomer believes a party that
 * controls most of them. A change of few parameters, or of less than the tolerance, is not
 * found. */
#ifndef PL_STATE_CLAIM_H
#define PL_STATE_CLAIM_H

#include "ref/base.h"

#define STATE_SAMPLES_EACH \
    1024 /* of a tensor: misses a change of a hundredth of it once in 30,000 */
#define STATE_SAMPLES_MAX 16384 /* of all tensors: 64 KiB for each donor that is asked */
#define STATE_SEED 8            /* bytes */

#define STATE_APART \
    0.2 /* relative distance of states that agree; after rounds it is 1e-4 to 6e-3 */
#define STATE_TENSOR_APART 0.5 /* relative distance of a tensor that differs, */
#define STATE_PART_APART \
    0.1 /* which this share of all parameters may: there are tensors that are noise alone */
#define STATE_EPOCHS_APART 3 /* epochs later a donor's samples may have become others */

struct state_claim {
    int64_t epoch;  /* -1: not known */
    float *samples; /* free() */
};

/* The number of samples taken of tensors with these numbers of elements. */
size_t state_samples_count(const size_t *elements, size_t tensors);
/* Of tensor t, `values`; appends at `out` and returns how many. */
size_t state_samples_take(float *out, const float *values, const size_t *elements, size_t tensors,
                          size_t t, const uint8_t seed[STATE_SEED]);

enum state_match { STATE_AGREES, STATE_DIFFERS, STATE_OTHER_TIME };
enum state_match state_claims_match(const struct state_claim *a, const struct state_claim *b,
                                    const size_t *elements, size_t tensors);

enum state_verdict { STATE_CONFIRMED, STATE_UNCONFIRMED, STATE_REFUTED };
/* Judges the first claim. Confirmed: at least one other claim agrees with it, and no other set of
 * agreeing claims is larger. Refuted: a larger set, of two claims at least, agrees on another
 * state. *agree: the number of claims that agree, the first included; *other: the size of the
 * largest other set. */
enum state_verdict state_claims_judge(size_t *agree, size_t *other,
                                      const struct state_claim *claims, size_t count,
                                      const size_t *elements, size_t tensors);

#endif
