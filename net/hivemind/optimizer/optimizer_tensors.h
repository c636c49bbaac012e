/* optimizer_tensors.h - a trainer over a caller's plain tensors: accumulates their
 * gradients, and takes the local optimizer's steps, ours or the caller's. All in host memory. */
#ifndef PL_OPTIMIZER_TENSORS_H
#define PL_OPTIMIZER_TENSORS_H

#include "optimizer_trainer.h"

struct collaborative_tensors;

/* be, the tensors' values and the options' pointers are borrowed. Fills *trainer, which belongs to
 * *t. PL_EUSE: tensors or options make no sense. */
int collaborative_tensors_open(struct collaborative_tensors **t,
                               struct pl_collaborative_trainer *trainer,
                               const struct pl_collaborative_tensor *tensors, size_t count,
                               const struct pl_collaborative_options *o,
                               const struct pl_backend *be, struct pl_err *err);
void collaborative_tensors_close(struct collaborative_tensors *t);

/* Accumulates the mean gradient of `samples` samples. PL_EFORMAT: it is not finite. */
int collaborative_tensors_add(struct collaborative_tensors *t, const float *const *gradient,
                              int64_t samples, struct pl_err *err);
/* Copies the parameters into the caller's tensors. */
void collaborative_tensors_publish(struct collaborative_tensors *t);

#endif
