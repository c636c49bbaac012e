/* collaborative_trainer.h - what the collaborative optimizer asks of a trainer that keeps parameters, gradients and
 * moments itself, in any backend's memory. collaborative_tensors.c is one, over a caller's plain tensors;
 * `potluck train --run` is another, over runtime/trainer.h.
 *
 *   undelayed   batches - take_gradient - (averaged) - step
 *   delayed     batches - take_gradient - batches, beside them: (averaged) - step - apply_delayed - batches
 *
 * All on the caller's thread but what says otherwise. */
#ifndef PL_COLLABORATIVE_TRAINER_H
#define PL_COLLABORATIVE_TRAINER_H

#include "net/hivemind/optimizer.h"
#include "net/libp2p/peer/peer_id.h"
#include "optimizer_state.h"

struct pl_collaborative_trainer {
    struct optimizer_state *state; /* the tensors, and the optimizer over them */
    float *value;                  /* flat, in the memory of state->be */
    void *context;
    /* The accumulated gradients become their mean, at *gradient, flat. delayed: in a buffer of its own, where it stays
     * until apply_delayed, and accumulation begins anew. */
    int (*take_gradient)(void *context, int delayed, float **gradient);
    /* The optimizer's step from `epoch` to the next. Undelayed: with the gradient in place, which is zero afterwards.
     * delayed: with the one that was set aside, and the result is set aside, too; on a thread of its own if `overlaps`.
     * PL_EFORMAT: numbers went bad, nothing has changed. */
    int (*step)(void *context, int64_t epoch, int delayed, struct pl_err *err);
    /* The result of a delayed step, good or not, becomes the parameters. */
    int (*apply_delayed)(void *context);
    /* Parameters and moments are another peer's now, of this epoch. */
    int (*loaded)(void *context, int64_t epoch);
    /* Forget what was accumulated. */
    void (*drop)(void *context);
    int overlaps; /* 1: a delayed step may run beside the caller's batches */

    /* For verified rounds, or NULL. Accumulates a peer's first samples of an epoch in place of ours, and takes their
     * mean; the caller puts our gradient back. While nothing else here is under way, maybe on another thread. */
    int (*recompute)(void *context, const struct peer_id *peer, int64_t epoch, uint64_t samples,
                     float **gradient);
    double validators; /* of a round, on average; see allreduce.h, as data */
    const char *data;
};

#endif
