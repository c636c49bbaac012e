/* optimizer.h - the collaborative optimizer: peers that do not know each other train one model with
 * one large batch. The twin of hivemind.Optimizer, whose peers it trains with.
 * [TTT 2.1; 3.3] [spec hivemind-protocol 8, 9, 12]
 *
 * Every peer computes gradients of its own samples and calls pl_collaborative_step after each local
 * batch. The optimizer accumulates them. As soon as all peers together have the target batch,
 *
 *   1. gradients are averaged over the peers, weighted by their samples (butterfly all-reduce);
 *   2. every peer takes the same local optimizer step with the average: the next epoch begins;
 *   3. parameters are averaged in the background, which removes what rounding has added.
 *
 * A peer that joins, or that missed a step, downloads parameters and optimizer state from another
 * peer. All peers should still begin with the same values, since peers that open at the same moment
 * find no state to download. There is no need to wait for others: a peer that is alone trains on,
 * and its first round of averaging waits up to matchmaking_time for those that have come by then.
 *
 *   #include <net/hivemind/optimizer.h>   (cc train.c $(pkg-config --cflags --libs potluck))
 *
 *   const char *address = "/ip4/1.2.3.4/tcp/31337/p2p/ID";   (pl_collaborative_address of a peer
 *                                                             in the run; the first one has none)
 *   struct pl_collaborative_run run = {
 *       .name = "digits", .initial_peers = &address, .initial_peer_count = 1
 *   };
 *   struct pl_collaborative_tensor tensors[] = {
 *       { "weight", 2, { 10, 64 }, weight }, { "bias", 1, { 10 }, bias, .no_decay = 1 }
 *   };
 *   struct pl_collaborative_options options = { .target_batch = 4096, .lr = 0.01 };
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
 * Threads: all functions are called from one thread, the caller's. The network runs on a thread of
 * its own, so fork before open; step waits for it only while gradients are averaged (see `delay`)
 * or a state is downloaded. The report function is called within open, step, discard, finish and
 * close, on the caller's thread.
 *
 * Errors: a negative status and a sentence in err.text (`struct pl_err`, both in ref/base.h); err
 * may be NULL. What other peers do is never an error: a round that fails is reported, and the step
 * is taken with this peer's own gradient. */
#ifndef PL_COLLABORATIVE_OPTIMIZER_H
#define PL_COLLABORATIVE_OPTIMIZER_H

#include "runtime/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_COLLABORATIVE_DIMS_MAX 8 /* axes of a tensor; a convolution over video has 5 */

struct pl_collaborative;

/* --- what is trained -------------------------------------------------------------------------- */

/* All peers of a run have the same tensors in the same order. */
struct pl_collaborative_tensor {
    const char *name; /* for error messages */
    int dims;
    int64_t shape[PL_COLLABORATIVE_DIMS_MAX];
    /* Borrowed until close. Only open, step, discard and finish change the values; the caller may
     * not. */
    float *value;
    int no_decay; /* 1: no weight decay (biases, norms); these are a second parameter group */
};

/* --- the swarm -------------------------------------------------------------------------------- */

/* Strings are borrowed until close. All fields but `name` may be zero. */
struct pl_collaborative_run {
    const char *name; /* hivemind's run_id */
    /* Multiaddrs of peers that are in the run: /ip4/1.2.3.4/tcp/31337/p2p/ID. None: this is the
     * first peer. */
    const char *const *initial_peers;
    size_t initial_peer_count;
    const char *const *listen; /* multiaddrs; none: /ip4/0.0.0.0/tcp/0, any free port */
    size_t listen_count;
    const char *const
        *announce; /* advertised to others in place of `listen`, for a peer behind a router */
    size_t announce_count;
    const char *identity; /* file of the private key, made if it is not there; NULL: a fresh key */
    int client_mode;      /* 1: accepts no connections, only dials */
    /* A moderated run: the authority that gives access tokens (https://NAME:PORT), a file with the
     * secret that its owner gave to this user, and its certificate (PEM; NULL: the system's are
     * trusted). Errors name them as the options of `potluck train`. All NULL: an open run. */
    const char *authority, *token_file, *authority_ca;
    /* For potluck's own programs, which have an open node and the key that signs its records: these
     * types belong to the library's inner headers. Others leave both NULL: a node and a key are
     * made. */
    struct swarm *swarm;
    const struct rsa_key *key;
};

/* --- how -------------------------------------------------------------------------------------- */

enum pl_collaborative_delay {
    PL_DELAY_NONE,
    PL_DELAY_STEP, /* the optimizer's step overlaps with the next batches: delay_optimizer_step */
    PL_DELAY_ROUND /* so does the averaging of gradients: delay_grad_averaging */
};

struct pl_collaborative_event;
struct pl_collaborative_trainer;

/* Zero means the default that the comment names. */
struct pl_collaborative_options {
    int64_t target_batch; /* samples of all peers for one step; the same for all peers; 4096 */
    /* The local optimizer: pl_lamb_options(), pl_adam_options(decay, bits), or of your making,
     * see runtime/optimizer.h; NULL: pl_lamb_options(). */
    const struct pl_optimizer_options *optimizer;
    double lr; /* learning rate, or the peak of the schedule; 0.0025 */
    /* The learning rate of an epoch; may be called on another thread. NULL: always lr. */
    double (*schedule)(void *context, int64_t epoch);
    /* A local optimizer of your own: changes the tensors' values by the averaged gradient.
     * Newcomers then get the parameters and no optimizer state. Returns PL_OK, or PL_EFORMAT if
     * it has changed nothing because numbers are not finite. NULL: `optimizer`. */
    int (*step)(void *context, const float *const *gradient, int64_t epoch, struct pl_err *err);
    /* Called at each event, see below; may be NULL. */
    void (*report)(void *context, const struct pl_collaborative_event *event);
    void *context; /* of schedule, step and report */

    enum pl_collaborative_delay delay;
    /* On the wire: "run" (8 bits for large tensors, else 16), "none", "float16", "meanstd16",
     * "uniform8", "quantile8", "blockwise8"; the same for all peers; NULL: "run". */
    const char *compression;
    double matchmaking_time;     /* s that a leader waits for its group at most; 15 */
    double averaging_timeout;    /* s for a round, matchmaking included; 180 */
    double allreduce_timeout;    /* s of it for the all-reduce; 60 */
    int64_t average_state_every; /* epochs between two rounds of the parameters; 1 */
    size_t group_size;           /* a group of so many begins at once; 0: all that come in time */
    const char *group_bits; /* zeros and ones: several groups a round; NULL: one group of all */
    /* Relative bandwidth, in a unit that all peers share: peers with more reduce a larger share;
     * 0: not reported; negative: this peer reduces nothing. */
    double bandwidth;
    /* Against Byzantine peers. clip: the radius of CenteredClip; negative: one that is
     * estimated; 0: the mean. verify 1: BTARD. */
    double clip;
    int verify;

    int64_t epoch;      /* where the given values are: after a restart from a checkpoint; 0 */
    int64_t epochs;     /* where training ends; progress beyond it is ignored; 0: it does not end */
    int fresh;          /* 1: open downloads no state, though a peer may have one */
    const char *device; /* what computes, for the dashboard; NULL: not reported */
    /* For potluck's own trainer, which keeps parameters and gradients in a device's memory: its
     * type belongs to the library's inner headers. Others leave it NULL: tensors are given. */
    const struct pl_collaborative_trainer *trainer;
};

/* --- training --------------------------------------------------------------------------------- */

/* Joins the run and, if a peer has one, downloads its state: the values may have changed. Waits
 * for both. On error *c is NULL: PL_EIO if no initial peer can be reached, or if the others
 * train another model; PL_EUSE if an argument makes no sense, or the authority does not know the
 * secret; PL_EAGAIN if it does not answer. tensors are copied, their values
 * borrowed. */
int pl_collaborative_open(struct pl_collaborative **c, const struct pl_collaborative_run *run,
                          const struct pl_collaborative_tensor *tensors, size_t count,
                          const struct pl_collaborative_options *options, struct pl_err *err);

/* After a local batch. gradient: of each tensor, the mean over `samples`; copied before step
 * returns. loss: the mean, too. If one of them is not finite, the whole accumulation is dropped,
 * and that is reported. The values may have changed when it returns: take the next gradient of
 * those. 0 samples: no batch, as a peer without data calls it to follow the others; then gradient
 * may be NULL and loss 0, and the peers do not count this one. After an error training
 * is over: call close. */
int pl_collaborative_step(struct pl_collaborative *c, const float *const *gradient, int64_t samples,
                          double loss, struct pl_err *err);

/* Drops what was accumulated, because `why`. */
int pl_collaborative_discard(struct pl_collaborative *c, const char *why, struct pl_err *err);

/* Waits until no step is delayed any more, so that the values are those of
 * pl_collaborative_epoch. */
int pl_collaborative_finish(struct pl_collaborative *c, struct pl_err *err);

/* Finishes, unless an error has ended the training, and leaves the run. NULL may be closed. */
void pl_collaborative_close(struct pl_collaborative *c);

/* The loss on held-out samples, for the dashboard. */
void pl_collaborative_held_out(struct pl_collaborative *c, double loss);

/* --- what is known ---------------------------------------------------------------------------- */

struct pl_collaborative_status {
    int64_t epoch;             /* steps applied to the values */
    int64_t global_epoch;      /* of the swarm, as far as other peers' states confirm it */
    int64_t samples;           /* accumulated by this peer */
    int64_t global_samples;    /* by all peers */
    size_t peers;              /* with samples of their own in the run, this one included */
    double eta_s;              /* until the next step; infinite: not known */
    double samples_per_second; /* of this peer */
};
void pl_collaborative_status(struct pl_collaborative *c, struct pl_collaborative_status *status);
int64_t pl_collaborative_epoch(const struct pl_collaborative *c);

/* The multiaddr that others join by, with /p2p/ID; valid until close. NULL: a client has none. */
const char *pl_collaborative_address(struct pl_collaborative *c);

/* How a round of averaging went. */
struct pl_collaborative_round {
    int status;        /* PL_OK: averaged; else this peer's own numbers stand */
    size_t peers;      /* in the group; 1: alone */
    int verified;      /* 1: by BTARD */
    int banned;        /* peers that were caught; the last one is in `caught` */
    double seconds;    /* of the all-reduce, without finding the group */
    uint8_t group[20]; /* the same for all of its peers; zeros: there was none */
    const char *why;   /* of a failure; "" if there was none */
    const char *caught;
};

enum pl_collaborative_kind {
    PL_COLLABORATIVE_READY,     /* open has joined the run */
    PL_COLLABORATIVE_LOADED,    /* a peer's state has replaced the values, also within open; text: a
                              * warning (no second donor has the same state), or NULL */
    PL_COLLABORATIVE_BATCH,     /* a local batch counts; due 1: a common step follows */
    PL_COLLABORATIVE_EPOCH,     /* a common step is in the values; round: of the gradients */
    PL_COLLABORATIVE_CORRECTED, /* parameters were averaged; round: how that went */
    PL_COLLABORATIVE_BEHIND,    /* others are ahead: their state is downloaded */
    PL_COLLABORATIVE_WARNING,   /* text: something the user should know; training goes on */
    PL_COLLABORATIVE_END        /* close leaves the run */
};
struct pl_collaborative_event {
    enum pl_collaborative_kind kind;
    struct pl_collaborative_status status;
    struct pl_collaborative_round round; /* EPOCH, CORRECTED */
    double loss;                         /* BATCH: of the batch; EPOCH: the mean over ours */
    int64_t samples;                     /* of this peer. BATCH: accumulated; EPOCH: in the step */
    int due;
    double seconds; /* LOADED: of the download; EPOCH: of the step */
    const char *text;
};

#ifdef __cplusplus
}
#endif
#endif
