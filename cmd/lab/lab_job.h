/* lab_job.h - one run of the laboratory into a folder: log, saved state, progress.
 *
 *   FOLDER/run.json    the run, as far as it decides the result
 *   FOLDER/log.jsonl   a line of JSON for each evaluation, activity, exchange; the totals
 *   FOLDER/state.bin   the swarm, to go on from; gone once the run is complete
 *   FOLDER/checkpoint-STEPS.safetensors   the trained model, for another run's `start` */
#ifndef PL_LAB_JOB_H
#define PL_LAB_JOB_H

#include "run_file.h"

#define LAB_LOG "log.jsonl"
#define LAB_RUN "run.json"

struct lab_job {
    const struct lab_run *run;
    const struct pl_backend *be;
    const char *out;
    uint64_t stop; /* gradients after which to save and stop; 0: none */
    int resume, quiet;
    int is_timing; /* no gradients, only times and bytes */
};

/* Prints progress; Ctrl-C saves and stops. *is_complete: the run has come to its end. */
int lab_job_run(const struct lab_job *job, int *is_complete, struct pl_err *err);

#endif
