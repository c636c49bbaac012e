/* swarm_trainer.h - a trainer of runtime/trainer.h as the collaborative optimizer asks for it:
 * parameters, gradients and moments stay in the device's memory. */
#ifndef PL_CMD_SWARM_TRAINER_H
#define PL_CMD_SWARM_TRAINER_H

#include "averaging_time.h"
#include "swarm_settings.h"
/* An inner header of the library: plain tensors would be copied out of the device's memory and back
 * in each step. */
#include "net/hivemind/optimizer/optimizer_trainer.h"

struct swarm_trainer {
    struct train_swarm *w;
    struct pl_trainer *t;
    struct optimizer_state state;  /* the tensors as the swarm orders them */
    struct pl_train_report report; /* of the last step */
    int64_t epoch;                 /* of the parameters */
    /* With local steps: of all samples since the last outer one. */
    struct pl_dalle_loss sum;
    uint64_t samples;
    struct averaging_time time;
    /* For verified rounds, see swarm_samples.c; NULL: other peers cannot repeat our gradient. */
    const struct peer_id *me;
    int64_t shuffled_epoch;     /* of the order of our samples; -1: none yet */
    double seconds_a_sample;    /* ours, running */
    char data[TRAIN_DATA_NAME]; /* name of the data that others need for it */
};

/* Over w's trainer; me: this peer, whose id decides the order of its samples in verified rounds.
 * Close it on error, too. */
int swarm_trainer_open(struct swarm_trainer *l, struct train_swarm *w, struct pl_trainer *t,
                       const struct peer_id *me, struct pl_err *err);
void swarm_trainer_close(struct swarm_trainer *l);

/* The hooks. *l is borrowed. */
struct pl_collaborative_trainer swarm_trainer_hooks(struct swarm_trainer *l);

/* Draws a micro-batch and adds its gradient; *loss: its mean. PL_EAGAIN: interrupted while it
 * waited for data. PL_EFORMAT: the loss is not finite. */
int swarm_trainer_add_batch(struct swarm_trainer *l, double *loss, struct pl_err *err);

/* After a common step of an algorithm that has a state: the report gets the mean loss of all
 * samples since the last one. */
void swarm_trainer_end_outer_step(struct swarm_trainer *l);

/* --- swarm_samples.c */

/* Begins the order of the samples that `peer` draws in `epoch`. */
int swarm_samples_shuffle(const struct train_source *source, const struct peer_id *peer,
                          int64_t epoch, struct pl_err *err);
/* The hook of trainer_validation, see optimizer_trainer.h. context: a struct swarm_trainer. */
int swarm_samples_recompute(void *context, const struct peer_id *peer, int64_t epoch,
                            uint64_t samples, float **gradient);

#endif
