/* optimizer_trainer.h - the interface of a trainer that keeps parameters, gradients and moments
 * itself, in any backend's memory. optimizer_tensors.c is one, over a caller's plain tensors;
 * `potluck train --run` is another, over runtime/trainer.h.
 *
 *   undelayed   batches - take_gradient - (averaged) - step
 *   delayed     batches - take_gradient - batches, overlapping with: (averaged) - step
 *               - TRAINER_APPLY - batches
 *
 * All on the caller's thread, unless a comment says otherwise. */
#ifndef PL_OPTIMIZER_TRAINER_H
#define PL_OPTIMIZER_TRAINER_H

#include "net/hivemind/optimizer.h"
#include "net/libp2p/peer/peer_id.h"
#include "optimizer_state.h"

struct swarm;
struct rsa_key;
struct bytes;

/* An open node of the caller's, and the key that signs its records. Both are borrowed, and outlive
 * the training. swarm NULL: a node is made, whose records this key signs. */
struct pl_collaborative_node {
    struct swarm *swarm;
    const struct rsa_key *key;
};

/* How options.algorithm is opened, but for tensors and backend: for a trainer that opens its state
 * itself. PL_EUSE with a sentence: settings that make no sense. */
int collaborative_outer_setup(struct pl_outer_setup *setup,
                              const struct pl_collaborative_options *o, struct pl_err *err);

/* What PowerSGD keeps from round to round, the error and the factors Q, for a checkpoint; into
 * *out. PL_EUSE: the algorithm is another one. PL_EAGAIN: not during a round. */
int collaborative_save_factors(struct pl_collaborative *c, struct bytes *out);
/* Right after opening. behind: epochs between these bytes and the state of the others that has
 * replaced ours (factors_load). PL_EUSE with a sentence: of another model or rank. */
int collaborative_load_factors(struct pl_collaborative *c, const uint8_t *data, size_t n,
                               int64_t behind, struct pl_err *err);

/* What the optimizer does to a trainer between its steps. */
enum trainer_change {
    TRAINER_APPLY,  /* the result of a delayed step, good or not, becomes the parameters */
    TRAINER_LOADED, /* a peer's state of this epoch has replaced parameters and moments */
    TRAINER_DROP    /* what is accumulated is forgotten */
};

/* For verified rounds: groupmates compute each other's gradients again. Zeros: nobody does. */
struct trainer_validation {
    /* Accumulates a peer's first samples of an epoch in place of ours, and takes their mean; the
     * caller puts our gradient back. Called while nothing else here is under way, perhaps on
     * another thread. */
    int (*recompute)(void *context, const struct peer_id *peer, int64_t epoch, uint64_t samples,
                     float **gradient);
    double validators; /* of a round, on average; see allreduce.h, as data */
    const char *data;
};

struct pl_collaborative_trainer {
    struct optimizer_state *state; /* the tensors, and the optimizer over them */
    float *value;                  /* flat, in the memory of state->be */
    void *context;
    /* *gradient becomes the mean of the accumulated gradients, flat. delayed: in a buffer of its
     * own, where it stays until TRAINER_APPLY, while accumulation begins anew. */
    int (*take_gradient)(void *context, int delayed, float **gradient);
    /* The optimizer's step from `epoch` to the next. delayed 0: it uses the accumulated gradient,
     * which is zero afterwards, and changes the values. delayed 1: it uses the gradient that
     * take_gradient has put into a buffer, and writes the result into another one; it runs on a
     * thread of its own if `overlaps`. PL_EFORMAT: the numbers are not finite, and nothing has
     * changed. */
    int (*step)(void *context, int64_t epoch, int delayed, struct pl_err *err);
    int (*change)(void *context, enum trainer_change change, int64_t epoch);
    /* 1: the user wants to stop, so a wait for other peers ends at once, without a step; may be
     * NULL. */
    int (*is_interrupted)(void *context);
    int overlaps; /* 1: a delayed step may overlap with the caller's batches */
    struct trainer_validation validation;
    /* The state of options.algorithm over `value`, of which `state` gives newcomers a copy; NULL:
     * the optimizer makes it. */
    struct pl_outer *outer;
};

#endif
