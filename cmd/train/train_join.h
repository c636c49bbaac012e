/* train_join.h - a trainer's place in the swarm: its node, its page, the run's manifest. */
#ifndef PL_CMD_TRAIN_JOIN_H
#define PL_CMD_TRAIN_JOIN_H

#include "cmd/common/train_manifest.h"
#include "cmd/doctor/preflight.h"
#include "swarm_settings.h"
/* An inner header of the library: preflight checks, page and manifest use the node before the
 * optimizer does, so it is opened here. */
#include "net/hivemind/swarm/swarm.h"

struct train_join {
    struct swarm swarm;
    struct rsa_key key; /* signs this peer's records */
    /* private */
    struct train_swarm *w;
    struct validators validators;
    struct swarm_options options;
    struct preflight_join *check;
    struct train_manifest *manifest;
    int is_open;
};

/* Joins by w->join. Prints the address that others join by, checks clock, version, settings and
 * reachability against the run's before it trains, starts w->page, and publishes w->manifest. j
 * stays where it is until it is closed, also on error. */
int train_join_open(struct train_join *j, struct train_swarm *w, const struct pl_trainer *trainer,
                    struct pl_err *err);
void train_join_close(struct train_join *j);

#endif
