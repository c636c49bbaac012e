/* optimizer.h - LAMB, Adam or Muon over all tensors of a model: moments, global clipping, the step
 * counter, and every bit of it as named tensors for checkpoints and for peers that join. */
#ifndef PL_OPTIMIZER_H
#define PL_OPTIMIZER_H

#include "../ref/model/params.h"
#include "offload.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pl_optimizer_kind { PL_LAMB, PL_ADAM, PL_MUON };

struct pl_optimizer_options {
    enum pl_optimizer_kind kind;
    double beta1, beta2, eps;
    double decay;         /* of the tensors that have any */
    double max_grad_norm; /* of all gradients together; 0: no clipping */
    double clamp;         /* LAMB: largest weight norm in the trust ratio */
    double momentum;      /* Muon: of the matrices; the other tensors have beta1, beta2, eps */
    int bias_correction;
    size_t min_8bit; /* elements from which moments are 8-bit codes; 0: never */
    size_t block;    /* of those codes; smaller tensors are never quantized */
    enum pl_rule rule;
    size_t chunk;  /* LAMB, 8-bit moments: elements decoded at a time; 0: whole tensors */
    int keep_grad; /* LAMB: 1 leaves gradients as they were, for the price of a buffer */
    /* Offloading: moments and a float32 master of the parameters are in the host's memory, and this
     * table (ref's or fast's, borrowed) steps there, while gradients and parameters travel
     * (offload.h). NULL: everything is in the backend's memory. */
    const struct pl_backend *host;
};

/* The reference run's optimizer: LAMB, beta 0.9 and 0.96, eps 1e-6, decay 0.045, clipping at 4,
 * trust clamp 1e4, 8-bit moments from 65536 elements on in blocks of 4096. [TTT 3.3] */
struct pl_optimizer_options pl_lamb_options(void);
/* AdamW of today's libraries: beta 0.9 and 0.999, eps 1e-8, bias correction, no clipping; `bits` 8:
 * 8-bit moments from 4096 elements on in blocks of 256, or 32. */
struct pl_optimizer_options pl_adam_options(double decay, int bits);
/* Muon for the blocks' matrices, momentum 0.95; AdamW for embeddings, the output layer and
 * vectors, beta 0.9 and 0.95, eps 1e-10, as in the muon-optimizer package. Both take one learning
 * rate: Muon's steps are scaled to the size of AdamW's. All moments have 32 bits. [Muon: Jordan et
 * al. 2024] [Muon is scalable: Liu et al. 2025] */
struct pl_optimizer_options pl_muon_options(double decay);

struct pl_optimizer;

/* The tensors are copied; their moments are be->alloc'ed and zero. be is borrowed. On error *o is
 * NULL; PL_EUSE for options that make no sense. */
int pl_optimizer_open(struct pl_optimizer **o, const struct pl_backend *be,
                      const struct pl_optimizer_options *options,
                      const struct pl_optimizer_tensor *tensors, size_t count, struct pl_err *err);
/* The same over a model's parameters: decay where they want it. */
int pl_optimizer_open_params(struct pl_optimizer **o, const struct pl_params *params,
                             const struct pl_optimizer_options *options, struct pl_err *err);
void pl_optimizer_close(struct pl_optimizer *o);
/* A model's parameter as a tensor of its optimizer. */
struct pl_optimizer_tensor pl_optimizer_tensor_of(const struct pl_param *p, double decay);

/* The norm of all gradients together; infinite or NaN as soon as one of them is. */
int pl_optimizer_grad_norm(const struct pl_optimizer *o, const float *grad, double *norm);
/* One step over the flat buffers (backend memory), at this learning rate. LAMB uses up the
 * gradients unless keep_grad. Nothing in here looks for NaN. */
int pl_optimizer_step(struct pl_optimizer *o, float *value, float *grad, double lr);
/* The same for a caller that has the gradients' norm already, because it has checked that the norm
 * is finite, or because the swarm agreed on one norm. */
int pl_optimizer_step_normed(struct pl_optimizer *o, float *value, float *grad, double norm,
                             double lr);

/* Call this after another function has written to the flat buffer p: a state was loaded, parameters
 * or gradients were averaged. Otherwise an offloaded step continues from its old master copy. */
void pl_optimizer_written(struct pl_optimizer *o, const float *p);

/* Steps taken; set when a state is loaded. A state may come from a peer whose library made a
 * start-up step with zero gradients: its counter is one ahead, and is kept so. */
uint64_t pl_optimizer_steps(const struct pl_optimizer *o);
void pl_optimizer_set_steps(struct pl_optimizer *o, uint64_t steps);

/* LAMB: norms and trust ratio of a tensor in the last step (zeros before the first). */
struct pl_lamb_norms pl_optimizer_norms(const struct pl_optimizer *o, size_t tensor);

/* The state as a list of arrays, tensor by tensor, by the reference run's names in the order of the
 * alphabet: float moments are "state1" and "state2", Muon's momentum "state1" alone; 8-bit ones are
 * "absmax1", "absmax2" (floats, one a block) and "state1", "state2" (codes). */
struct pl_optimizer_state {
    size_t tensor; /* index of the tensor it belongs to */
    const char *name;
    size_t n;            /* elements */
    size_t element_size; /* 4: float32, 1: uint8 */
};
size_t pl_optimizer_state_count(const struct pl_optimizer *o);
struct pl_optimizer_state pl_optimizer_state_at(const struct pl_optimizer *o, size_t index);
/* Moves one array to or from host memory, n * element_size bytes. */
int pl_optimizer_state_get(const struct pl_optimizer *o, size_t index, void *host);
int pl_optimizer_state_put(struct pl_optimizer *o, size_t index, const void *host);

#ifdef __cplusplus
}
#endif
#endif
