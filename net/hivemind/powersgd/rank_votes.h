/* rank_votes.h - which rank does a run's PowerSGD have? The schema hash does not include the rank,
 * so peers of different ranks form groups, and all rounds of such groups fail. So a newcomer reads
 * the rank from the states that other peers give: their factors Q, of shape (b,r).
 * [spec wire-extensions A.4, A.5]
 *
 * Anybody can give a state. Each of a few peers has one vote, and the rank with the most counts.
 * Nothing but the rank is taken from such a state. */
#ifndef PL_RANK_VOTES_H
#define PL_RANK_VOTES_H

#include "factors.h"
#include "net/hivemind/messages/state_message.h"

#define RANK_VOTES_MAX 5 /* peers that are asked, as of a state's witnesses */

struct rank_votes { /* zeros: none */
    int rank[RANK_VOTES_MAX];
    size_t count;
};

/* The rank of a whole state's factors; 0: that peer compresses none of these tensors. PL_EUSE with
 * a sentence: the state's tensors are not factors of these tensors. */
int rank_of_state(int *rank, const struct state_load *state, const struct schema_tensor *schema,
                  size_t tensors, struct pl_err *err);

/* Beyond RANK_VOTES_MAX votes are dropped. */
void rank_votes_add(struct rank_votes *v, int rank);
/* 1: no further vote can change which rank has the most. */
int rank_votes_decided(const struct rank_votes *v);
/* The rank with the most votes, of equal ones the first; *votes: how many it has, 0: none. */
int rank_votes_most(const struct rank_votes *v, size_t *votes);

#endif
