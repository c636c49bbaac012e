/* finetune_job.h - a language model on streamed text: steps, held-out perplexity, checkpoints,
 * log. */
#ifndef PL_CMD_FINETUNE_JOB_H
#define PL_CMD_FINETUNE_JOB_H

#include "data/text/corpus.h"
#include "ref/model/gpt2.h"
#include "runtime/optimizer.h"

struct finetune_job {
    const char *out;
    struct pl_gpt2 *model; /* borrowed, opened with gradients */
    struct pl_optimizer_options optimizer;
    double lr, warmup; /* peak; share of the steps */
    uint64_t steps;
    int batch, parts; /* windows of a step, and the number of parts in which they are computed */
    int save_every, evaluate_every; /* steps; 0: at the beginning and the end alone */
    int keep, resume, quiet;
    int held_out;        /* windows that perplexity is measured on */
    const char *offload; /* folder for optimizer state; NULL: it stays in memory */
    const char *unit;    /* name of an id: "token", "byte" */
    struct corpus_options corpus;
};

/* Prints progress, warnings, and one line on error; SIGINT and SIGTERM save and stop. */
int finetune_job_run(const struct finetune_job *job);

#endif
