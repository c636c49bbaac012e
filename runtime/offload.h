/* offload.h - the optimizer's step in host memory, overlapped with its copies: while the
 * processor works on one group of tensors, the next group's gradients come down and the last
 * one's new values go up, so a step takes as long as the slowest of the three. [TTT 2.1, memory:
 * offloading] For optimizer.c; which tensors there are, all use. */
#ifndef PL_OFFLOAD_H
#define PL_OFFLOAD_H

#include "../ref/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor among flat buffers of values and gradients. */
struct pl_optimizer_tensor {
    size_t offset, n;
    double decay;
    const char *name; /* for error messages of open; NULL: none */
    int rows;         /* of a matrix of a block, for Muon; 0: of no such matrix */
};

struct pl_offload;

/* Tensors in the order of their offsets; be is borrowed. PL_ENOMEM, PL_EUSE: another order. */
int pl_offload_open(struct pl_offload **o, const struct pl_backend *be,
                    const struct pl_optimizer_tensor *tensors, size_t count);
void pl_offload_close(struct pl_offload *o);

/* One tensor's step, value and grad in host memory; grad may be used up. */
typedef int pl_offload_step_fn(void *context, size_t tensor, float *value, float *grad);
/* Every tensor that has elements once, in order. value and grad are be's; when it returns, later
 * operations find the new values, and grad is unchanged. */
int pl_offload_run(struct pl_offload *o, float *value, const float *grad, pl_offload_step_fn *step,
                   void *context);
/* The values have changed on the device: the master is taken from there in the next run. So it is
 * in the first. */
void pl_offload_stale(struct pl_offload *o);

#ifdef __cplusplus
}
#endif
#endif
