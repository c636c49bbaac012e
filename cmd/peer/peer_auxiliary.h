/* peer_auxiliary.h - `potluck peer --auxiliary`: a peer without data takes its share of a run's
 * sums: whenever the others average their gradients, it reduces a part of them, and so their
 * connections carry less. */
#ifndef PL_CMD_PEER_AUXILIARY_H
#define PL_CMD_PEER_AUXILIARY_H

#include "peer_model.h"
#include "cmd/options/averaging_options.h"
#include "net/hivemind/swarm/swarm.h"

struct peer_auxiliary_options {
    int wanted;
    int64_t target_batch;
    struct averaging_options averaging;
};
/* --auxiliary, and options that the run's trainers have, too. */
extern const struct option_row peer_auxiliary_rows[];

struct peer_auxiliary;

/* model and s are borrowed; json: print events as lines of JSON. */
int peer_auxiliary_open(struct peer_auxiliary **p, const struct peer_auxiliary_options *o,
                        const struct peer_model *model, struct swarm *s, const struct rsa_key *key,
                        const char *run, int json, struct pl_err *err);
/* To be called every second or so, once the swarm has been joined. */
void peer_auxiliary_turn(struct peer_auxiliary *p);
/* Before swarm_close; leaves a round that is under way. NULL may be closed. */
void peer_auxiliary_close(struct peer_auxiliary *p);

#endif
