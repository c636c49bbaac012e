/* rank_votes.h - which rank does a run's PowerSGD have, and which factors Q? The schema hash does
 * not include the rank, so peers of different ranks form groups, and all rounds of such groups
 * fail. So a newcomer reads both from the states that other peers give: their Q, of shape (b,r).
 * [spec wire-extensions A.4, A.5]
 *
 * Anybody can give a state. Each of a few peers has one vote, and the rank with the most counts. Of
 * their Q, which differ by rounding, the one nearest to the others is taken: one false one among
 * three is not. */
#ifndef PL_RANK_VOTES_H
#define PL_RANK_VOTES_H

#include "factors.h"
#include "net/hivemind/messages/state_message.h"

#define RANK_VOTES_MAX 5 /* peers that are asked, as of a state's witnesses */

struct rank_votes { /* zeros: none */
    int rank[RANK_VOTES_MAX];
    float *Q[RANK_VOTES_MAX]; /* (n) of all matrices, one after the other */
    size_t n[RANK_VOTES_MAX], count;
};

/* The rank of a whole state's factors; 0: that peer compresses none of these tensors. PL_EUSE with
 * a sentence: the state's tensors are not factors of these tensors. */
int rank_of_state(int *rank, const struct state_load *state, const struct schema_tensor *schema,
                  size_t tensors, struct pl_err *err);

/* The values of a state that rank_of_state accepts, n in all; the caller frees *Q (pl_free).
 * PL_ENOMEM; PL_EFORMAT with a sentence: they cannot be decoded, or are beyond FACTORS_VALUE_MAX or
 * NaN. */
int factors_of_state(float **Q, size_t *n, const struct state_load *state,
                     const struct pl_backend *be, struct pl_err *err);

/* Q (n): taken over by the votes; NULL: none. Beyond RANK_VOTES_MAX votes are dropped. */
void rank_votes_add(struct rank_votes *v, int rank, float *Q, size_t n);
void rank_votes_clear(struct rank_votes *v);
/* 1: no further vote can change which rank has the most. */
int rank_votes_decided(const struct rank_votes *v);
/* The rank with the most votes, of equal ones the first; *votes: how many it has, 0: none. */
int rank_votes_most(const struct rank_votes *v, size_t *votes);
/* The Q of this rank with the least sum of distances to the others of this rank, (*n); NULL: there
 * is none. */
const float *rank_votes_factors(const struct rank_votes *v, int rank, size_t *n);

#endif
