/* collaborative.h - a learner among others: local batches until the swarm has its target batch, then a
 * common step. `potluck train --run` and the tests' trainer are both this. */
#ifndef PL_COLLABORATIVE_H
#define PL_COLLABORATIVE_H

#include "net/hivemind/swarm/swarm.h"
#include "net/hivemind/training/collaboration.h"
#include "net/hivemind/training/optimizer_state.h"

/* What learns. All on the caller's thread. */
struct collaborative_learner {
    float *value, *grad; /* flat, backend memory */
    struct optimizer_state *state;
    void *context;
    /* A local batch: adds to the gradients. loss: mean over its samples. */
    int (*batch)(void *context, int64_t *samples, double *loss, struct pl_err *err);
    /* The gradients become a mean over what was accumulated. */
    int (*mean)(void *context);
    /* The optimizer's step from `epoch` to the next; gradients are zero afterwards. PL_EFORMAT:
     * numbers went bad, nothing has changed. */
    int (*step)(void *context, int64_t epoch, struct pl_err *err);
    void (*drop)(void *context); /* forget what was accumulated */
    /* Parameters and moments are a peer's, of this epoch. */
    int (*moved)(void *context, int64_t epoch);
    double (*rate)(void *context, int64_t epoch); /* learning rate; NULL: no schedule */
    double (*held_out)(
        void *context); /* the last loss on pairs nobody trains on, NAN: none; may be NULL */
    double peak;
    /* For delayed updates only; see pl_trainer_begin_delayed. step_aside begins when no other of these
     * is under way; with `beside` on a thread of its own, and then batch() goes on. */
    int (*set_aside)(void *context);
    float *(*aside_grad)(void *context);
    int (*step_aside)(void *context, int64_t epoch, struct pl_err *err);
    int (*take_in)(void *context);
    int beside;
    /* The mean gradient of a peer's first samples of an epoch, in place of ours, which the caller
     * puts back; for verified rounds, while nothing else here is under way, maybe on another
     * thread. */
    int (*again)(void *context, const struct peer_id *peer, int64_t epoch, uint64_t samples);
};

/* What goes on beside local batches; a round of the parameters always does. */
enum collaborative_delay {
    COLLABORATIVE_DELAY_NONE,
    COLLABORATIVE_DELAY_STEP, /* the optimizer's step, as in the run */
    COLLABORATIVE_DELAY_ROUND /* the averaging of gradients, too */
};

enum collaborative_kind {
    COLLABORATIVE_READY,
    COLLABORATIVE_LOADED,
    COLLABORATIVE_BATCH,
    COLLABORATIVE_EPOCH,
    COLLABORATIVE_CORRECTED,
    COLLABORATIVE_BEHIND,
    COLLABORATIVE_TROUBLE,
    COLLABORATIVE_END
};
struct collaborative_event {
    enum collaborative_kind kind;
    struct collaboration_view view;
    struct collaboration_round round; /* EPOCH: the gradients'; CORRECTED: the parameters' */
    double loss;                      /* mean over the epoch's local batches, or the batch's */
    int64_t samples;                  /* of ours in the epoch */
    int due;          /* BATCH: 1: the swarm's batch is there, the common step is next */
    double seconds;   /* LOADED; EPOCH: of the update */
    const char *text; /* TROUBLE; LOADED: a warning, or NULL */
};

struct collaborative_options {
    const char *run, *compression;
    const char *device; /* what computes, for the run's page; may be NULL */
    size_t threshold;
    int64_t target_batch, epochs, average_state_every;
    size_t group_size; /* these two: see collaboration.h */
    const char *group_bits;
    double matchmaking_time, averaging_timeout, allreduce_timeout, bandwidth, clip;
    enum collaborative_delay delay;
    double seconds;    /* stop after so long; 0: no limit */
    int verify;        /* see collaboration.h */
    double validators; /* see exchange.h, as data; 0 for a learner without again() */
    const char *data;
    int client_mode, load; /* load: begin with a peer's state if there is one */
    const struct rsa_key *key;
    int (*interrupted)(void *context); /* 1: stop soon; may be NULL */
    void (*tell)(void *context, const struct collaborative_event *e);
    void *context;
};

/* Until the epoch, the time, or an interruption. *epoch: in and out. A line in err on failure. */
int collaborative_run(struct swarm *s, struct collaborative_learner *l,
                      const struct collaborative_options *o, const struct pl_backend *be,
                      int64_t *epoch, struct pl_err *err);

#endif
