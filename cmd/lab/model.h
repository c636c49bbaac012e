/* model.h - the model of the laboratory's swarms: the text-to-image transformer, on the demo's
 * pairs. */
#ifndef PL_LAB_MODEL_H
#define PL_LAB_MODEL_H

#include "run_file.h"
#include "runtime/dalle_run.h"
#include "runtime/optimizer.h"

struct lab_trained {
    struct lab_model model; /* for the swarm */
    struct pl_dalle *dalle; /* one for all: parameters are copied in and out */
    struct pl_optimizer *inner[LAB_PEERS_MAX];
    int peers, batch;
    uint64_t seed;
    struct pl_outer_tensor *tensors;
    int32_t *text, *codes; /* all pairs: (pairs,T), (pairs,I) */
    size_t pairs;
    int32_t *held_text, *held_codes;
    int held_out;
    int is_timing; /* gradients are zero, losses NAN: only times and bytes are asked for */
    int32_t *batch_text, *batch_codes;
};

/* Reads the pairs, and draws the initial values, or loads those of the run's checkpoint:
 * lab_trained_start. be is borrowed. */
int lab_trained_open(struct lab_trained *t, const struct lab_run *run, const struct pl_backend *be,
                     int is_timing, struct pl_err *err);
void lab_trained_close(struct lab_trained *t);
/* Parameters x (n, backend memory) and the first peer's moments, to the folder's
 * checkpoint-STEPS.safetensors, which `start` and potluck generate take. */
int lab_trained_save(struct lab_trained *t, const float *x, uint64_t steps, const char *folder,
                     struct pl_err *err);
const float *lab_trained_start(const struct lab_trained *t);

#endif
