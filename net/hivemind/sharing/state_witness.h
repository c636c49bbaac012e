/* state_witness.h - a state that has arrived is compared with samples of other donors' states. Only
 * potluck's peers have this call, hivemind's do not. state_claim.h says what it proves.
 *
 *   request   8 bytes, a seed
 *   answer    the epoch, 8 bytes; then the samples that the seed picks, float32; little-endian */
#ifndef PL_STATE_WITNESS_H
#define PL_STATE_WITNESS_H

#include "net/hivemind/messages/state_claim.h"
#include "net/libp2p/rpc/rpc.h"
#include "donors.h"
#include "state_peer.h"

#define STATE_WITNESSES 5       /* other donors that are asked whether theirs is the same */
#define STATE_WITNESS_LIMIT 5.0 /* s for their answer, 64 KiB */

/* The answer of a donor whose state begins with these tensors. PL_ENOMEM. */
int state_answer_write(struct bytes *out, const struct state_peer *p,
                       const struct state_tensor *tensors, uint64_t epoch,
                       const uint8_t seed[STATE_SEED]);

/* The claim of a whole state that fits our model. NULL samples: no memory. */
struct state_claim state_claim_of(const struct state_peer *p, const struct state_load *l,
                                  const uint8_t seed[STATE_SEED]);

/* A donor that is asked whether its state is the one that we were given. */
struct witness {
    struct state_witnesses *all;
    struct peer_id peer;
    struct dht_task *proof;
    struct rpc_request *request;
    struct state_claim claim; /* samples NULL: no answer yet */
    int is_silent;            /* none in time */
};
struct state_witnesses {
    const struct state_peer *peer;
    struct witness *asked;
    size_t count, left;
    void (*answered)(void *context); /* once no witness is left */
    void *context;
    uint8_t seed[STATE_SEED];
};
/* Asks the first of the donors that are neither the one that gave the state nor have failed; ends
 * with `answered`, which may come from inside this function. */
void witnesses_ask(struct state_witnesses *w, const struct donor *donors, size_t count,
                   const struct peer_id *giver, const struct dht_blacklist *failed,
                   void (*answered)(void *context), void *context);
void witnesses_clear(struct state_witnesses *w);

#endif
