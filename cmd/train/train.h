/* train.h - what `potluck train` does with its options, for `potluck join`: the same training,
 * whose common options come from the run's manifest. */
#ifndef PL_CMD_TRAIN_H
#define PL_CMD_TRAIN_H

#include "cmd/common/averaging_options.h"
#include "cmd/common/compute.h"
#include "cmd/common/join_options.h"
#include "net/hivemind/records/run_manifest.h"
#include "train_data.h"
#include "train_job.h"
#include "train_swarm.h"

/* What the command line says. */
struct train_requests {
    struct compute compute;
    struct train_data data;
    const char *given[OPTION_LIST_MAX]; /* --data, as it was written */
    size_t given_count;
    int64_t part, parts; /* from 1; parts 0: all */
    const char *config, *tokenizer, *optimizer, *cache;
    int64_t cache_mb, evaluate_every, limit, seed, data_seed;
    int offload;
    enum pl_activations activations;
    double lr, warmup;
    struct train_held_out held_out;
    struct train_job job;
    struct join_options join;
    struct averaging_options averaging;
    struct train_swarm swarm;
    const char *manifest;              /* a file; NULL: none */
    const struct run_manifest *agreed; /* borrowed; has the model if config is NULL. Or NULL */
};

/* Rows of a struct train_requests: each peer's own, alone and in a swarm. */
extern const struct option_row train_own_rows[], train_peer_rows[];
/* What all peers of a run agree on, but compression: `potluck new-run` has them, too. */
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

/* What others have to agree with. */
int train_describe(struct run_manifest *m, const struct train_requests *w,
                   const struct pl_dalle_config *config, struct pl_err *err);

#endif
