/* train_swarm.h - `potluck train --run`: the trainer's steps are the swarm's. */
#ifndef PL_CMD_TRAIN_SWARM_H
#define PL_CMD_TRAIN_SWARM_H

#include "swarm_settings.h"

/* A train_swarm_fn; context is the struct. Prints what a user has to know to stderr, with json
 * lines of JSON to stdout. */
int train_swarm_run(void *context, struct pl_trainer *trainer, const struct train_job *job,
                    const struct train_hooks *hooks, struct pl_err *err);

#endif
