/* train_requests.h - what the command line, or a run's manifest, says of a training. */
#ifndef PL_CMD_TRAIN_REQUESTS_H
#define PL_CMD_TRAIN_REQUESTS_H

#include "cmd/options/averaging_options.h"
#include "cmd/common/compute.h"
#include "cmd/options/join_options.h"
#include "net/hivemind/records/run_manifest.h"
#include "train_data.h"
#include "train_job.h"
#include "train_swarm.h"

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
    double lr, warmup, token_noise;
    struct train_held_out held_out;
    struct train_job job;
    struct join_options join;
    struct averaging_options averaging;
    struct train_swarm swarm;
    const char *manifest;              /* a file; NULL: none */
    const struct run_manifest *agreed; /* borrowed; has the model if config is NULL. Or NULL */
};

#endif
