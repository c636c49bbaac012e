/* plan.h - what a seed decides: the swarm, its settings, and which faults it meets. */
#ifndef PL_SIMULATION_PLAN_H
#define PL_SIMULATION_PLAN_H

#include "simulation.h"

#include "net/hivemind/optimizer.h"
#include "net/hivemind/records/rsa_key.h"
#include "net/libp2p/peer/multiaddr.h"

#define PLAN_TENSORS 3
#define PLAN_VALUES 4096 /* for all tensors of the model */
#define PLAN_PORT 4001   /* every peer listens there */

enum plan_method { METHOD_ADAM, METHOD_OWN_STEP };

enum fault {
    FAULT_CUT,   /* a partition, or one direction of it */
    FAULT_BREAK, /* a connection is reset, or passes nothing any more */
    FAULT_KILL,
    FAULT_POWER,
    FAULT_STOP,
    FAULT_SLOW,
    FAULT_CLOCK,
    FAULT_DISK,
    FAULT_MEMORY,
    FAULT_KINDS
};

enum byzantine {
    BYZANTINE_NOT,
    BYZANTINE_EPOCH_FAR,      /* reports an epoch that no peer can have reached, */
    BYZANTINE_EPOCH_NEAR,     /* or one that is a few ahead */
    BYZANTINE_SAMPLES,        /* reports more samples than there are */
    BYZANTINE_FOR_EVER,       /* records that never expire */
    BYZANTINE_FLOOD,          /* records without end, under any key */
    BYZANTINE_NESTED,         /* records that take long to parse */
    BYZANTINE_OVERWRITE,      /* writes over others' records */
    BYZANTINE_UNREAD,         /* requests without end, and reads no answer */
    BYZANTINE_SILENT,         /* joins groups, and ignores all messages of the all-reduce, */
    BYZANTINE_SILENT_REDUCER, /* or those to be reduced */
    BYZANTINE_FALSE_SUM,      /* replies wrong means */
    BYZANTINE_NAN,            /* sends values that are not numbers */
    BYZANTINE_AHEAD,          /* says in rounds that it is ahead */
    BYZANTINE_STATE,          /* shares a false state with the first priority, */
    BYZANTINE_STATE_ENDLESS,  /* or one without end */
    BYZANTINE_GRADIENT,       /* gives gradients that point elsewhere */
    BYZANTINE_WEIGHT,         /* gives few samples the weight of many */
    BYZANTINE_ACCUSER,        /* denies and accuses everybody in verified rounds, */
    BYZANTINE_HASHES,         /* commits to wrong hashes, differently to each, */
    BYZANTINE_GARBLER,        /* or changes its messages in any place */
    BYZANTINE_STRANGER,       /* has a token of another authority, */
    BYZANTINE_EXPELLED,       /* or one that is not renewed, in a moderated run */
    BYZANTINE_KINDS
};

struct plan {
    uint64_t seed;
    int honest, byzantine; /* peers; Byzantine ones have the last indices */
    int64_t
        goal; /* the run is over when everybody has made this many epochs; known once it is calm */
    int64_t furthest;      /* epoch of all that there have been */
    double first_distance; /* of the first parameters from the optimum */
    int64_t target_batch, batch;
    double batch_seconds, matchmaking_time, averaging_timeout, allreduce_timeout;
    const char *compression;
    const char *algorithm;
    int64_t inner_steps;    /* of diloco and local_sgd */
    size_t group_size;      /* 0: all */
    const char *group_bits; /* NULL: one key for all; else two keys */
    enum pl_collaborative_delay delay;
    enum plan_method method;
    double clip;
    int verify, moderated;
    int clients;              /* the last `clients` honest peers only dial */
    int64_t checkpoint_every; /* epochs */
    double calm_at, end_at;   /* s: faults end; the run must be over */
    enum byzantine kinds[SIM_PEERS_MAX];
    int faults[FAULT_KINDS]; /* how many of each kind */
    int64_t rows[PLAN_TENSORS], columns[PLAN_TENSORS];
    float optimum[PLAN_VALUES];
};
extern struct plan plan;
extern const char *const plan_faults[FAULT_KINDS];
extern const char *const plan_kinds[BYZANTINE_KINDS];
extern int plan_only; /* the one kind of faults that seeds have now; -1: as they are drawn */
extern int plan_kind; /* the one Byzantine peer of all seeds; -1: as they are drawn */
extern const char *plan_algorithm; /* of all seeds; NULL: as they are drawn */
int plan_has_outer_steps(void);    /* changes of the parameters are averaged, not gradients */
void plan_draw(uint64_t seed);
void plan_describe(char *text, size_t n);

/* --- trainer.c: an honest peer ---------------------------------------------------------------- */

#define PLAN_GIVEN 3

struct trainer {
    struct sim_peer *peer;
    struct peer_id id;
    char address[MULTIADDR_TEXT_MAX];
    int is_client, is_running, is_done; /* done: has made plan.goal epochs */
    unsigned boot;
    int64_t saved;             /* epoch of the newest checkpoint that was reported as saved */
    float shared[PLAN_VALUES]; /* the parameters, or phi, that peers have in common */
    double distance;           /* of these from the optimum */
    /* checks.c */
    int has_joined, is_behind, alone;
    int64_t epoch;
    double was;               /* its distance at the event before this one */
    double given[PLAN_GIVEN]; /* and at its last steps: what it gave to rounds of the parameters */
    double set_back;          /* how many times farther off such rounds have put it */
    uint64_t failures_at_boot;
    float *const *taking; /* the gradient of a delayed round */
    float before[PLAN_VALUES];
};
extern struct trainer trainers[SIM_PEERS_MAX];
struct trainer *trainer_here(void); /* NULL: none, or a Byzantine one */
int is_byzantine(const struct trainer *t);
/* The RSA keys of all peers: from the file, or made and stored there. */
void trainers_make_keys(const char *path);
/* Of the run's authority (0), or of a foreign one (1). */
int trainers_authority_key(struct rsa_key *key, int which);
/* Draws its keys; boots it: opens the newest checkpoint, joins, trains, saves, leaves. */
void trainer_prepare(struct trainer *t, struct sim_peer *p);
void trainer_boot(struct trainer *t);

/* --- faults.c --------------------------------------------------------------------------------- */

/* Schedules everything that will go wrong, all of it before plan.calm_at. */
void faults_schedule(void);
void faults_boot_after(struct trainer *t, double pause); /* unless it runs by then */

/* --- byzantine.c ------------------------------------------------------------------------------- */

float byzantine_gradient(void);  /* factor of the running peer's gradient */
int64_t byzantine_samples(void); /* that it says are in a batch */

/* --- divergence.c ----------------------------------------------------------------------------- */

/* An honest peer's: if it says that somebody has diverged, is that so? */
void divergence_event(const struct trainer *t, const struct pl_collaborative_event *e);

/* --- checks.c: the invariants ----------------------------------------------------------------- */

void checks_event(struct trainer *t, const struct pl_collaborative_event *e);
void checks_boot(struct trainer *t, int64_t epoch);
void checks_error(struct trainer *t, int status, const char *why);
void checks_crash(struct trainer *t);
void checks_begin(void); /* every second of virtual time from now on */
void checks_end(void);   /* the run is over */

#endif
