/* compute.h - the options that say what computes: shared by every command that runs a model. */
#ifndef PL_CMD_COMPUTE_H
#define PL_CMD_COMPUTE_H

#include "ref/backend.h"

#include <getopt.h>

struct compute {
    const char *backend; /* NULL: auto */
    const char *precision;
    int64_t threads;   /* 0: one a core */
    double gpu_memory; /* GiB; 0: all */
    const char *gpus;  /* as the user wrote it; NULL: the first */
    int devices;       /* compute_open: how many that are */
};

/* Rows for a command's getopt_long table; values from COMPUTE_FIRST up are compute_option's. */
#define COMPUTE_FIRST 1000
#define COMPUTE_OPTIONS \
    { "backend", required_argument, NULL, COMPUTE_FIRST }, \
        { "precision", required_argument, NULL, COMPUTE_FIRST + 1 }, \
        { "threads", required_argument, NULL, COMPUTE_FIRST + 2 }, \
        { "gpu-memory", required_argument, NULL, COMPUTE_FIRST + 3 }, \
    { \
        "gpus", required_argument, NULL, COMPUTE_FIRST + 4 \
    }

#define COMPUTE_USAGE \
    "  --backend B      ref, fast, auto or ./library.so (default: auto)\n" \
    "  --precision P    float32, or bf16 for matrix products (default: float32)\n" \
    "  --threads N      threads to compute with (default: one a core)\n" \
    "  --gpu-memory G   GiB of the device's memory to take at most (default: all)\n" \
    "  --gpus N|LIST    train on the first N devices (all: on every one), or on those named, as in 0,2;\n" \
    "                   what does not train takes the first of them (default: 1)\n"

/* 1: it was one of ours and is stored; 0: not ours; negative: a line was printed. */
int compute_option(struct compute *c, const char *cmd, int option, const char *value);
/* Opens the backend; prints one line on failure. */
int compute_open(struct pl_backend *be, struct compute *c, const char *cmd);

/* What computes best in the host's own memory. */
void compute_open_host(struct pl_backend *host, const struct compute *c);

/* Of a failure for want of memory: adds to its sentence what the backend held and what would take
 * less: a part of `batch`, the samples at a time (0: none), else the option (NULL: none), else
 * another model. Of a device that failed: what it said. Any other failure keeps its sentence. */
void compute_explain(struct pl_err *err, int rc, const struct pl_backend *be, int64_t batch,
                     const char *option);

#endif
