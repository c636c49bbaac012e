/* optimizer.h - the collaborative optimizer: peers that do not know each other train one model with
 * one large batch. The twin of hivemind.Optimizer, whose peers it trains with.
 * [TTT 2.1; 3.3] [spec hivemind-protocol 8, 9, 12]
 *
 * Every peer computes gradients of its own samples and calls pl_collaborative_step after each local
 * batch. The optimizer accumulates them. When all peers together are expected to have the target
 * batch,
 *
 *   1. gradients are averaged over the peers, weighted by their samples (butterfly all-reduce);
 *   2. every peer takes the same local optimizer step with the average: the next epoch begins;
 *   3. parameters are averaged in the background, which removes small differences between peers.
 *
 * A peer that joins, or that missed a step, downloads parameters and optimizer state from another
 * peer. All peers begin with the same values: those that open at the same moment find no state to
 * download. A peer that knows of no other steps alone.
 *
 *   #include <net/hivemind/optimizer.h>   (cc train.c $(pkg-config --cflags --libs potluck) -lm)
 *
 *   const char *address = "/ip4/1.2.3.4/tcp/31337/p2p/ID";   (pl_collaborative_address of a peer
 *                                                             in the run; the first one has none)
 *   struct pl_collaborative_run run = {
 *       .name = "digits", .initial_peers = &address, .initial_peer_count = 1
 *   };
 *   struct pl_collaborative_tensor tensors[] = {
 *       { .name = "weight", .dims = 2, .shape = { 10, 64 }, .value = weight },
 *       { .name = "bias", .dims = 1, .shape = { 10 }, .value = bias, .no_decay = 1 }
 *   };
 *   struct pl_optimizer_options adam = pl_adam_options(0, 32);   (weight decay, bits of moments)
 *   struct pl_collaborative_options options = {
 *       .target_batch = 4096, .optimizer = &adam, .lr = 0.01
 *   };
 *   const float *gradients[] = { weight_gradient, bias_gradient };
 *   struct pl_collaborative *c;
 *   struct pl_err err;
 *   if (pl_collaborative_open(&c, &run, tensors, 2, &options, &err)) return puts(err.text), 1;
 *   for (int rc = 0; !rc && pl_collaborative_epoch(c) < 100;) {
 *       double loss = forward_and_backward();   (your model: means over 32 samples)
 *       rc = pl_collaborative_step(c, gradients, 32, loss, &err);
 *   }
 *   pl_collaborative_close(c);
 *
 * A whole program is test/example/classifier.c in the sources.
 *
 * Options to begin with. optimizer_options.h has the others, among them DiLoCo and PowerSGD, and
 * all fields of the run:
 *
 *   target_batch       samples of all peers for one step; the same for all peers
 *   lr, schedule       the learning rate, or a function of the epoch
 *   optimizer          NULL is LAMB, which hardly moves weights that begin at zero; others are in
 *                      runtime/optimizer.h
 *   min_peers          to begin together: the first step waits for so many
 *   matchmaking_time   seconds that a round waits for its peers
 *   report             called at each event of optimizer_events.h: the run is joined, a state is
 *                      loaded, a batch counts, a step is taken, or there is a warning for the user
 *
 * Threads: all functions are called from one thread, the caller's. The network runs on a thread of
 * its own, so fork before open. The report function is called within open, step, discard, finish
 * and close.
 *
 * Errors: a negative status and a sentence in err.text (`struct pl_err`, both in ref/base.h); err
 * may be NULL. What other peers do is never an error: a round that fails is reported, and the step
 * is taken with this peer's own gradient. */
#ifndef PL_COLLABORATIVE_OPTIMIZER_H
#define PL_COLLABORATIVE_OPTIMIZER_H

#include "optimizer_events.h"
#include "optimizer_options.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_COLLABORATIVE_DIMS_MAX 8 /* axes of a tensor; a convolution over video has 5 */

struct pl_collaborative;

/* What is trained. All peers of a run have the same tensors in the same order. */
struct pl_collaborative_tensor {
    const char *name; /* for error messages */
    int dims;         /* 0: a single number */
    int64_t shape[PL_COLLABORATIVE_DIMS_MAX];
    /* Borrowed until close. Only open, step, discard and finish change the values; the caller may
     * not. */
    float *value;
    int no_decay; /* 1: no weight decay (biases, norms); these are a second parameter group */
};

/* Joins the run and, if a peer has one, downloads its state: the values may have changed. Waits
 * for both. On error *c is NULL: PL_EIO if no initial peer can be reached, or if the others
 * train another model; PL_EUSE if an argument makes no sense, or the authority does not know the
 * secret; PL_EAGAIN if it does not answer. tensors are copied, their values borrowed. options NULL:
 * all defaults. */
int pl_collaborative_open(struct pl_collaborative **c, const struct pl_collaborative_run *run,
                          const struct pl_collaborative_tensor *tensors, size_t count,
                          const struct pl_collaborative_options *options, struct pl_err *err);

/* After a local batch. gradient: of each tensor, the mean over `samples`; copied before step
 * returns. loss: the mean, too. If one of them is not finite, the whole accumulation is dropped,
 * and that is reported. The values may have changed when it returns: take the next gradient of
 * those. samples 0: a peer without data calls it so to follow the others; then gradient may be NULL
 * and loss 0, and the other peers do not count this one. After an error training is over: call
 * close. */
int pl_collaborative_step(struct pl_collaborative *c, const float *const *gradient, int64_t samples,
                          double loss, struct pl_err *err);

/* Drops the accumulated gradients; `why` is reported. */
int pl_collaborative_discard(struct pl_collaborative *c, const char *why, struct pl_err *err);

/* Waits until no delayed step is pending, so that the values belong to pl_collaborative_epoch. */
int pl_collaborative_finish(struct pl_collaborative *c, struct pl_err *err);

/* Calls finish, unless an error has ended the training, and leaves the run: withdraws this peer's
 * report, which takes up to 2 s, and ends other peers' downloads from this one; they look for
 * another donor. NULL may be closed. */
void pl_collaborative_close(struct pl_collaborative *c);

/* The loss on held-out samples, for the dashboard. */
void pl_collaborative_held_out(struct pl_collaborative *c, double loss);

/* Steps applied to the values; where the whole swarm is. */
int64_t pl_collaborative_epoch(const struct pl_collaborative *c);
void pl_collaborative_status(struct pl_collaborative *c, struct pl_collaborative_status *status);

/* The multiaddr that others join by, with /p2p/ID; valid until close. If there are several, the one
 * with the widest reachability: public, then of the local network, then 127.0.0.1. NULL: a client
 * has none. */
const char *pl_collaborative_address(struct pl_collaborative *c);

#ifdef __cplusplus
}
#endif

#endif
