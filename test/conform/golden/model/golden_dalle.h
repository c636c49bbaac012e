/* golden_dalle.h - the transformer's golden files: their kinds, distinguished by what they contain,
 * and the buffers that one file's replay holds. */
#ifndef PL_GOLDEN_DALLE_H
#define PL_GOLDEN_DALLE_H

#include "test/conform/golden/golden.h"

#define REPLAY_BUFFERS 64
#define REPLAY_SIZE 32768 /* of one dimension: four of them still multiply without overflow */
#define REPLAY_FLOATS ((size_t)1 << 28) /* of one buffer that no tensor of the file vouches for */

/* One file's replay. Trouble is printed where it happens and remembered in `bad`; every function
 * below does nothing once it is set, so that a replay is checked once, before it computes. */
struct replay {
    struct golden *g;
    const struct st_file *f;
    json_t *config;
    void *held[REPLAY_BUFFERS]; /* backend memory */
    int count, bad;
};

void replay_open(struct replay *r, struct golden *g, const struct st_file *f);
void replay_close(struct replay *r);

/* A size from the configuration, 1..REPLAY_SIZE; 1 after an error. A string; "" after an error. */
int replay_size(struct replay *r, const char *key);
const char *replay_text(struct replay *r, const char *key);
/* One dimension of a tensor; 1 after an error. */
int replay_dim(struct replay *r, const char *tensor, int dim);

/* Backend memory, given back by replay_close: a tensor that must have n elements, zeros, host
 * bytes. */
float *replay_in(struct replay *r, const char *tensor, size_t n);
float *replay_zeros(struct replay *r, size_t n);
void *replay_bytes(struct replay *r, const void *host, size_t bytes);
/* Host memory, freed with pl_free: n zeros; a tensor that must have n elements; a copy of the
 * backend's values. */
float *replay_host_zeros(struct replay *r, size_t n);
float *replay_host(struct replay *r, const char *tensor, size_t n);
float *replay_out(struct replay *r, const float *device, size_t n);

/* Cosines and sines (n, R/2) on the backend, from the first n rows of a table (rows,R) in the file,
 * which repeats every angle for both channels of a pair. */
void replay_rotary(struct replay *r, float **cosine, float **sine, const char *tensor, size_t rows,
                   size_t n, size_t R);

/* Takes the status of operations. */
void replay_did(struct replay *r, int status);
/* One line: compares the backend's n values with a tensor, relative to its largest; named after the
 * tensor or `what`. */
void replay_same_as(struct replay *r, const char *what, const char *tensor, const float *device,
                    size_t n, double allowed);
void replay_same(struct replay *r, const char *tensor, const float *device, size_t n,
                 double allowed);

/* One kind of file each. */
typedef void golden_dalle_fn(struct golden *g, const struct st_file *f);
golden_dalle_fn golden_dalle_masks, golden_dalle_rotary, golden_dalle_attention, golden_dalle_part,
    golden_dalle_filters;

/* Networks: reversible stacks, whole models, training, generation, and the reference run's facts (f
 * NULL: run_facts.json in g->folder). Returns 0 for another kind of file. */
int golden_dalle_model(struct golden *g, const struct st_file *f, const char *stem);

#endif
