/* demo_swarm.h - the demo's training as a swarm of processes over loopback: a bootstrap peer and
 * four that train, of uneven speed; one joins late, one is killed half-way, one is a client. */
#ifndef PL_CMD_DEMO_SWARM_H
#define PL_CMD_DEMO_SWARM_H

#include "cmd/common/compute.h"
#include "cmd/train/train_job.h"

struct demo_swarm {
    const char *out;               /* a folder that is there; each other peer gets one in it */
    const struct compute *compute; /* borrowed; threads and memory are shared among the trainers */
    int page;                      /* 1: serves the swarm's page, and leaves it in out/page */
    const char *algorithm;         /* as potluck train --algorithm */
    int64_t inner_steps; /* of each peer alone between two rounds; 1 where gradients travel */
    int64_t steps, target_batch, limit, seed;
    double peak;        /* learning rate */
    double token_noise; /* as potluck train --token-noise */
};

/* The swarm's results, counted from its peers' events. */
struct demo_swarm_result {
    enum train_end end;
    int64_t samples; /* of all peers, in completed rounds */
    int64_t rounds;
    double averaging; /* share of the first trainer's time */
};

/* Trains; the first trainer leaves its log and checkpoint in `out` itself. Prints the swarm to
 * stderr: redrawn on a terminal, a line now and then elsewhere. */
int demo_swarm_train(struct demo_swarm_result *result, const struct demo_swarm *d,
                     struct pl_err *err);

#endif
