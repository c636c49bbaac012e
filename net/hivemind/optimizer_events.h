/* optimizer_events.h - what the collaborative optimizer reports: where the swarm is, how a round
 * went, and the events of a training. */
#ifndef PL_COLLABORATIVE_EVENTS_H
#define PL_COLLABORATIVE_EVENTS_H

#include <stddef.h>
#include <stdint.h>

struct pl_collaborative_status {
    int64_t epoch;             /* steps applied to the values */
    int64_t global_epoch;      /* of the swarm, as far as other peers' states confirm it */
    int64_t samples;           /* accumulated by this peer for the next step */
    int64_t global_samples;    /* by all peers, as their last reports have it */
    size_t peers;              /* that have reported samples of the run; and this one, always */
    double eta_s;              /* until the next step; infinite: not known */
    double samples_per_second; /* of this peer */
};

/* How a round of averaging went. */
struct pl_collaborative_round {
    int status;        /* PL_OK: averaged; otherwise this peer keeps its own values */
    size_t peers;      /* in the group; 1: alone */
    int verified;      /* 1: by BTARD */
    int banned;        /* peers that were caught; the last one is in `caught` */
    double seconds;    /* of the all-reduce or the gather, without finding the group */
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

#endif
