/* compute.h - the options that choose a backend, its devices and its threads: for every command
 * that runs a model. */
#ifndef PL_CMD_COMPUTE_H
#define PL_CMD_COMPUTE_H

#include "cmd/options/options.h"
#include "ref/backend.h"

struct compute {
    const char *backend; /* NULL: auto */
    const char *precision;
    int64_t threads;   /* 0: one per core */
    double gpu_memory; /* GiB; 0: all */
    const char *gpus;  /* as the user wrote it; NULL: the first */
    int devices;       /* compute_open: how many that are */
};

/* --backend, --precision, --threads, --gpu-memory, --gpus. */
extern const struct option_row compute_rows[];

/* Opens the backend; prints one line on failure. */
int compute_open(struct pl_backend *be, struct compute *c, const char *cmd);

/* The best backend that computes in the host's memory. */
void compute_open_host(struct pl_backend *host, const struct compute *c);

/* Explains a failure. Out of memory: appends the bytes that the backend held and ways to need
 * fewer: a smaller `batch` (samples at a time; 0: none), the option (NULL: none) or another model.
 * A failed device: appends its own message. Other errors keep their text. */
void compute_explain(struct pl_err *err, int rc, const struct pl_backend *be, int64_t batch,
                     const char *option);

#endif
