/* bench.h - shared by the sections of `potluck bench`: each prints a table and stores its rows for
 * --json. */
#ifndef PL_CMD_BENCH_H
#define PL_CMD_BENCH_H

#include "bench_peer.h"
#include "cmd/common/compute.h"
#include "peak.h"
#include "runtime/dalle_run.h"

#include <jansson.h>

#define BENCH_SIZES 4
/* demo, small, middle, run: samples of a step, and the project's targets on two cores: ratios to
 * the peer in float32 and bfloat16, or samples a second. */
struct bench_size {
    const char *name;
    int samples;
    enum pl_activations activations;
    double aim, aim_bf16, aim_rate;
};
extern const struct bench_size bench_sizes[BENCH_SIZES];

struct bench {
    struct compute compute;
    struct pl_backend be, ref;
    struct peak peak;
    struct bench_peers peers;
    int chosen[BENCH_SIZES], named, cores, bf16; /* named: sizes were asked for by name */
    int activations;                             /* of every size; -1: each its own */
    int64_t steps, batch;                        /* batch 0: each size its own */
    int64_t images;                              /* drawn at a time */
    size_t values;                               /* floats of a buffer in section device */
    const char *filter, *json;
    int quick, section; /* index of --only; -1: all */
    json_t *rows;       /* array: an object a line that was printed */
};

/* Seconds: of the processor with one thread, so that other programs disturb less; otherwise of the
 * clock. */
double bench_now(const struct bench *b);

int bench_samples(const struct bench *b, const struct bench_size *size);
/* Keeps a row for --json; the peer's seconds join it if there are any. */
void bench_row(struct bench *b, const struct bench_peer_time *peer, json_t *row);

/* 0, or 1 after a failure that was printed. */
int bench_parts(struct bench *b); /* every operation of the table */
int bench_codes(struct bench *b); /* quantization, codes, LAMB: one thread, compared with Python */
int bench_attention(struct bench *b);
int bench_steps(struct bench *b);
int bench_drawing(struct bench *b);
int bench_pictures(struct bench *b); /* the reference run's codec, CLIP */
int bench_device(struct bench *b);   /* memory traffic, compared with a copy */

/* b->peak of a backend with memory of its own: its matrix product at the precision asked for, its
 * copy. */
int bench_device_peak(struct bench *b, struct pl_err *err);

#endif
