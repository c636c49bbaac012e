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
 *   3. parameters are averaged in the background, which removes differences that have come between
 *      peers (rounding, a round that one of them missed).
 *
 * Expected: each peer adds up the others' last reports and assumes that they have continued at
 * their reported speed. Reports are up to some seconds old. So if a target batch takes much less
 * time than that, a step may count far fewer samples (`global_samples` of its event); batches of
 * seconds, as in real trainings, come close to the target.
 *
 * Peers are equal up to the rounding of `compression`, some 1e-4 of a value with float16; with
 * "none" they are equal bit for bit after a round of the parameters.
 *
 * A peer that joins, or that missed a step, downloads parameters and optimizer state from another
 * peer. All peers should still begin with the same values, since peers that open at the same moment
 * find no state to download.
 *
 * A peer that knows of no other steps alone, at once. Others count as soon as they have reported
 * samples, and then a round waits up to matchmaking_time for them. To begin together, set
 * `min_peers`: a short training of one peer may else be over before the next one has joined.
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
 * A whole program is test/example/classifier.c in the sources. If the library lies where the system
 * does not search, run `ldconfig` after `make install`, or set LD_LIBRARY_PATH to its folder.
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
struct pl_collaborative_node;

/* --- what is trained -------------------------------------------------------------------------- */

/* All peers of a run have the same tensors in the same order. */
struct pl_collaborative_tensor {
    const char *name; /* for error messages */
    int dims;         /* 0: a single number */
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
    int no_port_mapping;  /* 1: the router is not asked to forward our port (NAT-PMP, UPnP) */
    /* A moderated run: the authority that gives access tokens (https://NAME:PORT), a file with the
     * secret that its owner gave to this user, and its certificate (PEM; NULL: the system's are
     * trusted). Errors name them as the options of `potluck train`. All NULL: an open run. */
    const char *authority, *token_file, *authority_ca;
    /* For potluck's own programs, which have an open node already; its type belongs to the
     * library's inner headers. Others leave it NULL: a node and a key are made. */
    const struct pl_collaborative_node *node;
};

/* --- how -------------------------------------------------------------------------------------- */

enum pl_collaborative_delay {
    PL_DELAY_NONE,
    PL_DELAY_STEP, /* the optimizer's step overlaps with the next batches: delay_optimizer_step */
    PL_DELAY_ROUND /* so does the averaging of gradients: delay_grad_averaging */
};

struct pl_collaborative_event;
struct pl_collaborative_trainer;

/* Zero means the default that the comment names; NULL in place of the struct: all defaults. */
struct pl_collaborative_options {
    /* Samples of all peers for one step, as far as reports tell; the same for all peers; 4096. */
    int64_t target_batch;
    /* Before its first common step this peer waits, within pl_collaborative_step, until this many
     * peers, itself included, have reported samples of this run. It waits for min_peers_timeout s
     * at most; then a WARNING is reported, and it begins with the peers that are there. Later steps
     * do not wait. 1: no wait; 300 s. */
    size_t min_peers;
    double min_peers_timeout;
    /* The local optimizer: a struct that pl_lamb_options() or pl_adam_options(weight decay, bits of
     * the moments: 8 or 32) of runtime/optimizer.h has returned. NULL: pl_lamb_options(). LAMB's
     * step of a tensor is proportional to the tensor's norm, so weights that begin at zero hardly
     * move: take Adam for those. */
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

    /* How peers agree; the same for all of them.
     *
     *   NULL, "gradients"   as above: one averaged gradient a step
     *   "local_sgd"         each peer makes inner_steps steps of the local optimizer alone, each of
     *                       target_batch samples of its own. The common step takes the mean of the
     *                       peers' parameters. Peers exchange data inner_steps times less often
     *   "diloco"            as "local_sgd", but the common step is an outer step with Nesterov's
     *                       momentum, along the mean of the changes. OpenDiLoCo's peers may be in
     *                       the run
     *   "powersgd"          as "gradients", but each matrix travels as two thin factors. What they
     *                       miss is added to the next gradient (error feedback) by hivemind's rule,
     *                       so its peers with PowerSGDGradientAverager may be in the run
     *   "powersgd_own"      the same by the textbook's rule, which keeps the error bounded when
     *                       peers come and go; for runs of potluck's peers only
     *   any other name      an algorithm of paper/algorithms.md: each peer gathers the messages of
     *                       its whole group. For up to 32 of potluck's peers, all of which accept
     *                       connections. onebit_adam, dgc and demo replace the local optimizer;
     *                       compression has no effect. streaming, delayed, eager and
     *                       delayed_gradients exchange while local steps go on; streaming has an
     *                       epoch for each of its fragments, of inner_steps / fragments steps
     *
     * With local steps, epochs count outer steps; schedule and step get the number of the inner
     * step, counted from epoch * inner_steps. What does not go together: delay and verify with
     * local_sgd and diloco; clip and verify with powersgd and powersgd_own; delay, clip and verify
     * with the other names. */
    const char *algorithm;
    const char *algorithm_settings; /* of such a one: "topk=64,chunk=32"; NULL: its defaults */
    int powersgd_rank;              /* of powersgd; 0: the run's, or 4 for its first peer */
    int64_t inner_steps;            /* of algorithms that exchange changes of the parameters; 50 */
    double outer_lr;                /* of these; 0.7 */
    double outer_momentum;          /* of these; 0.9; negative: none */

    enum pl_collaborative_delay delay;
    /* On the wire: "run" (8 bits for large tensors, else 16), "none", "float16", "meanstd16",
     * "uniform8", "quantile8", "blockwise8"; the same for all peers; NULL: "run". */
    const char *compression;
    double matchmaking_time;     /* s that a leader waits for its group at most; 15 */
    double averaging_timeout;    /* s for a round, matchmaking included; 180 */
    double allreduce_timeout;    /* s of it for the all-reduce; 60 */
    int64_t average_state_every; /* epochs between two rounds of the parameters; 1 */
    size_t group_size; /* a group of this size begins at once; 0: wait for all that join in time */
    /* Zeros and ones: several groups a round; "": one group of all; NULL: one up to about 64 peers,
     * then as many groups as leave 12 to 48 peers to each. */
    const char *group_bits;
    /* Mbit/s: peers with more reduce a larger share; 0: as measured in our own rounds; negative:
     * this peer reduces nothing. */
    double bandwidth;
    /* Against Byzantine peers. clip: the radius of CenteredClip; negative: one that is
     * estimated; 0: the mean. verify 1: BTARD. */
    double clip;
    int verify;

    int64_t epoch;      /* where the given values are: after a restart from a checkpoint; 0 */
    int64_t epochs;     /* where training ends; progress beyond it is ignored; 0: it does not end */
    int fresh;          /* 1: open downloads no state, though a peer may have one */
    const char *device; /* name of the processor or GPU, for the dashboard; NULL: not reported */
    const char *own_name; /* what the dashboard calls this peer; NULL: its key alone */
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

/* --- what is known ---------------------------------------------------------------------------- */

struct pl_collaborative_status {
    int64_t epoch;             /* steps applied to the values */
    int64_t global_epoch;      /* of the swarm, as far as other peers' states confirm it */
    int64_t samples;           /* accumulated by this peer for the next step */
    int64_t global_samples;    /* by all peers, as their last reports have it */
    size_t peers;              /* that have reported samples of the run; and this one, always */
    double eta_s;              /* until the next step; infinite: not known */
    double samples_per_second; /* of this peer */
};
void pl_collaborative_status(struct pl_collaborative *c, struct pl_collaborative_status *status);
int64_t pl_collaborative_epoch(const struct pl_collaborative *c);

/* The multiaddr that others join by, with /p2p/ID; valid until close. If there are several, the one
 * with the widest reachability: public, then of the local network, then 127.0.0.1. NULL: a client
 * has none. */
const char *pl_collaborative_address(struct pl_collaborative *c);

/* How a round of averaging went. */
struct pl_collaborative_round {
    int status;        /* PL_OK: averaged; otherwise this peer keeps its own values */
    size_t peers;      /* in the group; 1: alone */
    int verified;      /* 1: by BTARD */
    int banned;        /* peers that were caught; the last one is in `caught` */
    double seconds;    /* of the all-reduce, without finding the group */
    uint8_t group[20]; /* the same for all of its peers; zeros: there was none */
    const char *why;   /* the reason of a failure; "" if there was none */
    const char *caught;
};

enum pl_collaborative_kind {
    PL_COLLABORATIVE_READY,  /* open has joined the run */
    PL_COLLABORATIVE_LOADED, /* a peer's state has replaced the values, also within open; text: a
                              * warning (no second donor has the same state), or NULL */
    PL_COLLABORATIVE_BATCH,  /* a local batch counts; due 1: a common step follows */
    PL_COLLABORATIVE_EPOCH,  /* a common step is in the values; round: of the gradients */
    /* A round of the parameters has ended; round: how that went. Status PL_OK: the values have
     * changed. Otherwise they are unchanged, and the next epoch's round makes up for it: status -8
     * (PL_EAGAIN), "cancelled", is usual and means that the next gradients were ready before a
     * group was found. The epoch is the present one; samples and loss are 0. */
    PL_COLLABORATIVE_CORRECTED,
    PL_COLLABORATIVE_BEHIND,  /* others are ahead: their state is downloaded */
    PL_COLLABORATIVE_WARNING, /* text: something the user should know; training goes on */
    PL_COLLABORATIVE_END      /* close leaves the run */
};
struct pl_collaborative_event {
    enum pl_collaborative_kind kind;
    struct pl_collaborative_status status;
    struct pl_collaborative_round round; /* EPOCH, CORRECTED */
    double loss;                         /* BATCH: of the batch; EPOCH: the mean over ours */
    int64_t samples;                     /* of this peer. BATCH: accumulated; EPOCH: in the step */
    /* EPOCH: of all peers, as far as reported when this peer decided to step. */
    int64_t global_samples;
    int due;
    double seconds;   /* LOADED: of the download; EPOCH: of the step */
    const char *text; /* LOADED, WARNING; a round's reason is round.why */
};

#ifdef __cplusplus
}
#endif
#endif
