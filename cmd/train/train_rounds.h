/* train_rounds.h - PowerSGD's error and factors, which go from round to round, in checkpoints. */
#ifndef PL_TRAIN_ROUNDS_H
#define PL_TRAIN_ROUNDS_H

#include "ref/base.h"

struct pl_collaborative;

struct train_rounds { /* zeros: nothing */
    void *data;       /* (n) bytes of a checkpoint, or after the training for the last one */
    size_t n;
    struct pl_collaborative *from; /* during the training; else NULL */
};

/* The rank of a checkpoint's bytes; 0: there are none. */
int train_rounds_rank(const struct train_rounds *r);
/* To an optimizer that has opened: a checkpoint's bytes, of this epoch. The error is of gradients
 * that this peer has not sent yet: it counts also if a newer state has replaced the parameters. */
int train_rounds_load(struct train_rounds *r, struct pl_collaborative *c, int64_t epoch,
                      struct pl_err *err);
/* Before a checkpoint: the bytes of this moment. In the middle of a round, or without memory, there
 * are none. */
void train_rounds_save(struct train_rounds *r);
/* After it: as large as the model, and of the past with the next round. */
void train_rounds_saved(struct train_rounds *r);
/* Before the optimizer closes: keeps the bytes for the last checkpoint. */
void train_rounds_end(struct train_rounds *r);

#endif
