/* trainer.h - training without input or output: accumulation of micro-batches to a target batch,
 * the schedule, the optimizer's step, and the way back when numbers go bad. [TTT 3.3] */
#ifndef PL_TRAINER_H
#define PL_TRAINER_H

#include "dalle_run.h"
#include "optimizer.h"
#include "replicas.h"
#include "../ref/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_train_options {
    struct pl_optimizer_options optimizer;
    double peak;            /* learning rate at the end of the warm-up */
    uint64_t warmup, total; /* steps; the reference run: 3125 of 31250 */
    int devices;            /* of the model's backend that share every batch; 0: one */
    double noise;           /* pl_token_noise's share at the peak; it follows the learning rate */
    uint64_t noise_seed;
};

struct pl_trainer {
    struct pl_dalle *model; /* borrowed; opened with gradients */
    struct pl_optimizer *optimizer;
    struct pl_train_options options;
    uint64_t step;            /* optimizer steps done, hivemind's local epoch */
    uint64_t samples;         /* accumulated since the last step */
    struct pl_dalle_loss sum; /* of the losses of those samples, sample by sample */
    /* private: the delayed step */
    float *delayed_value, *delayed_grad;
    uint64_t delayed_samples;
    struct pl_dalle_loss delayed_sum;
    int delayed_lost, delayed_ruined; /* the step failed; the moments are not finite */
    struct pl_replicas *replicas;     /* private; NULL: one device */
    /* private: the last good state */
    float *good_value;
    void **good_state;
    uint64_t good_step, good_steps;
};

int pl_trainer_open(struct pl_trainer **t, struct pl_dalle *model,
                    const struct pl_train_options *options, struct pl_err *err);
void pl_trainer_close(struct pl_trainer *t);

/* Adds B samples' gradients. PL_EFORMAT if the loss is not finite: then everything accumulated
 * since the last step is dropped, parameters and moments are untouched, and training may go on with
 * other samples. */
int pl_trainer_add(struct pl_trainer *t, const int32_t *text, const int32_t *codes, int B,
                   struct pl_err *err);

/* Forgets what was accumulated since the last step, on every device. */
int pl_trainer_drop(struct pl_trainer *t);

/* The mean of the accumulated gradients, in place in the parameters' gradients; a swarm averages it
 * with weight t->samples. */
int pl_trainer_mean(struct pl_trainer *t);

struct pl_train_report {
    double lr, grad_norm;
    struct pl_dalle_loss loss; /* mean over the samples of this step */
    uint64_t samples;
};
/* One optimizer step with the gradients that pl_trainer_mean (or an average of peers') left,
 * then gradients are zeroed and step is one higher. PL_EFORMAT: the gradients, or the parameters
 * after the step, are not finite; the trainer is then back at its last good state (t->step says
 * where). */
int pl_trainer_step(struct pl_trainer *t, struct pl_train_report *report, struct pl_err *err);

/* Delayed parameter updates, as in hivemind: a step overlaps with the next samples. begin copies
 * the mean gradient, and samples accumulate anew with the parameters as they are; step works on
 * a copy of the parameters; apply makes that copy the model's. What was accumulated meanwhile
 * stays.
 *
 *   mean - begin_delayed - add ... add - apply_delayed
 *                        \ step_delayed /
 *
 * step_delayed may run on another thread during pl_trainer_add, on a backend whose operations
 * may be called from two threads at once. After its PL_EFORMAT, as of pl_trainer_step, apply
 * leaves the parameters alone, or goes back to the last good state if the moments are not
 * finite. Costs two buffers of the parameters' size. */
int pl_trainer_begin_delayed(struct pl_trainer *t);
int pl_trainer_step_delayed(struct pl_trainer *t, struct pl_train_report *report,
                            struct pl_err *err);
int pl_trainer_apply_delayed(struct pl_trainer *t);
/* The copied gradient: a swarm's mean may replace it. */
float *pl_trainer_delayed_grad(struct pl_trainer *t);

/* Saves the present state as the last good one (a copy of parameters and moments). Called at
 * open; call it wherever losing less is worth the copy. */
int pl_trainer_snapshot(struct pl_trainer *t);

#ifdef __cplusplus
}
#endif
#endif
