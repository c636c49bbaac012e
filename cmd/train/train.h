/* train.h - `potluck train` after its options are parsed, for `potluck join`: the same training,
 * whose common options come from the run's manifest. */
#ifndef PL_CMD_TRAIN_H
#define PL_CMD_TRAIN_H

#include "train_requests.h"

/* Rows of a struct train_requests: each peer's own, alone and in a swarm. */
extern const struct option_row train_own_rows[], train_peer_rows[];
/* The options that all peers of a run agree on, except compression; `potluck new-run` has them,
 * too. */
extern const struct option_row train_model_rows[], train_algorithm_rows[];
/* clang-format off */
#define TRAIN_ROWS(its_rows) \
    { NULL, NULL, NULL, { .kind = OPTION_TABLE, .rows = its_rows }, NULL }
/* clang-format on */

/* Before the options are read; cmd is for messages. w->data is the caller's to close. */
void train_requests_init(struct train_requests *w, const char *cmd);
/* Trains; the exit status. */
int train_run(struct train_requests *w);
/* An algorithm with inner steps makes whole outer ones: rounds job.steps up. */
void train_round_steps(struct train_requests *w);
/* --data for an OPT_CALL of a struct train_requests. */
option_take_fn train_take_data;

#endif
