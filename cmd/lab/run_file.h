/* run_file.h - a run of the laboratory as a file: YAML, of which JSON is a part. README.md lists
 * the keys. */
#ifndef PL_LAB_RUN_FILE_H
#define PL_LAB_RUN_FILE_H

#include "runtime/lab/lab_swarm.h"
#include "runtime/optimizer.h"

#include <jansson.h>

#define LAB_NAME_MAX 64

struct lab_run {
    char name[LAB_NAME_MAX]; /* "name", otherwise the file's name without its ending */
    char model[256];         /* a configuration as `potluck train --config` takes it */
    char start[256];         /* a checkpoint whose parameters all peers begin with; "": random */
    enum pl_optimizer_kind inner;
    double decay;
    int64_t pairs, held_out, batch;
    struct lab_setup setup;
    char *text; /* everything that decides the result, as JSON in one order; free() */
};

/* PL_EFORMAT or PL_EUSE with a sentence that names the file and the key. On error nothing is left
 * to clear. */
int lab_run_read(struct lab_run *run, const char *path, struct pl_err *err);
void lab_run_clear(struct lab_run *run);

#endif
