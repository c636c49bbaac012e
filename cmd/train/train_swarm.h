/* train_swarm.h - `potluck train --run`: the trainer's steps are the swarm's. */
#ifndef PL_CMD_TRAIN_SWARM_H
#define PL_CMD_TRAIN_SWARM_H

#include "net/hivemind/swarm/membership.h"
#include "cmd/dash/own_page.h"
#include "train_job.h"

#define TRAIN_ADDRESSES_MAX 64

struct train_swarm {
    const char *run; /* NULL: train alone */
    const char *join[TRAIN_ADDRESSES_MAX], *listen[TRAIN_ADDRESSES_MAX];
    const char *announce[TRAIN_ADDRESSES_MAX];
    size_t join_count, listen_count, announce_count;
    const char *identity, *compression;
    struct membership membership;
    struct own_page page;
    int client_mode, json, no_check;
    double matchmaking_time, averaging_timeout, allreduce_timeout;
    int64_t average_state_every, group_size;
    const char *group_bits;
    double bandwidth;  /* told to groupmates; PL_BANDWIDTH_UNKNOWN: nothing */
    double clip;       /* against Byzantine peers: see allreduce.h */
    int verify;        /* see averager.h */
    double validators; /* of a verified round, on average */
    int delay;         /* enum pl_collaborative_delay */
    double slow;       /* seconds that each local batch takes at least; for demonstrations */
    /* private */
    struct pl_trainer *trainer;
    const struct train_job *job;
    const struct train_hooks *hooks;
};

/* A train_together_fn; context is the struct. Prints what a user has to know to stderr, with json
 * lines of JSON to stdout. */
int train_swarm_run(void *context, struct pl_trainer *trainer, const struct train_job *job,
                    const struct train_hooks *hooks, struct pl_err *err);

#endif
