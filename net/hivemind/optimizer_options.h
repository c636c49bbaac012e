/* optimizer_options.h - the run that a peer joins, and all options of the collaborative optimizer;
 * optimizer.h names those to begin with. The defaults are the settings of the paper's run: a peer
 * that sets nothing fits into such a swarm. [TTT 3.3] [spec hivemind-protocol 10] */
#ifndef PL_COLLABORATIVE_OPTIONS_H
#define PL_COLLABORATIVE_OPTIONS_H

#include "runtime/optimizer.h"

struct pl_collaborative_node;
struct pl_collaborative_event;
struct pl_collaborative_trainer;

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
    /* Advertised to others in place of `listen`, for a peer behind a router. */
    const char *const *announce;
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

/* --- how peers train -------------------------------------------------------------------------- */

enum pl_collaborative_delay {
    PL_DELAY_NONE,
    PL_DELAY_STEP, /* the optimizer's step overlaps with the next batches: delay_optimizer_step */
    PL_DELAY_ROUND /* so does the averaging of gradients: delay_grad_averaging */
};

/* Zero means the default that the comment names. */
struct pl_collaborative_options {
    /* Samples of all peers for one step; the same for all peers; 4096. Each peer adds up the
     * others' last reports, which are up to some seconds old, and assumes that they have continued
     * at their reported speed. So if a target batch takes much less time than that, a step may
     * count far fewer samples (`global_samples` of its event); batches of seconds, as in real
     * trainings, come close to the target. */
    int64_t target_batch;
    /* Before its first common step this peer waits, within pl_collaborative_step, until this many
     * peers, itself included, have reported samples of this run. It waits for min_peers_timeout s
     * at most; then a WARNING is reported, and it begins with the peers that are there. Later steps
     * do not wait. 1: no wait, so a short training of one peer may be over before the next one has
     * joined; 300 s. */
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
     * local_sgd and diloco; clip and verify with powersgd and powersgd_own; delay and verify with
     * the other names. Of these, streaming, delayed, delayed_gradients and partial take a clip. */
    const char *algorithm;
    const char *algorithm_settings; /* of such a one: "topk=64,chunk=32"; NULL: its defaults; the
                                       same for all peers, as `clip` of such a one is */
    int powersgd_rank;              /* of powersgd; 0: the run's, or 4 for its first peer */
    int64_t inner_steps;            /* of algorithms that exchange changes of the parameters; 50 */
    double outer_lr;                /* of these; 0.7 */
    double outer_momentum;          /* of these; 0.9; negative: none */

    enum pl_collaborative_delay delay;
    /* On the wire: "run" (8 bits for large tensors, else 16), "none", "float16", "meanstd16",
     * "uniform8", "quantile8", "blockwise8"; the same for all peers; NULL: "run". Peers are equal
     * up to its rounding, some 1e-4 of a value with "float16"; with "none" they are equal bit for
     * bit after a round of the parameters. */
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

#endif
