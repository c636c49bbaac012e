/* dalle_names.h - the official names: what checkpoints call the tensors, and in which order the
 * optimizer takes them. [spec dalle 13] */
#ifndef PL_DALLE_NAMES_H
#define PL_DALLE_NAMES_H

#include "../../ref/model/dalle.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Not a parameter, but in every checkpoint: `transformer.pos_emb` (1,S+1,R), each angle twice. */
#define PL_DALLE_POS_EMB (-1L)
#define PL_DALLE_NO_TENSOR (-2L)

/* One name of the official state dict. A shared tensor has several. */
struct pl_dalle_entry {
    char name[PL_NAME_MAX]; /* as training checkpoints have it, "model." in front */
    long param;             /* index, or PL_DALLE_POS_EMB */
    long first; /* the earliest entry of the same tensor; itself if there is none before */
};
/* All of them in the official order (the run: 841); free with free(). NULL: no memory. */
struct pl_dalle_entry *pl_dalle_state_dict(const struct pl_dalle *m, size_t *count);

/* The tensor of a name out of a training or an inference checkpoint, with or without "model." and
 * "transformer." in front. PL_DALLE_POS_EMB, or PL_DALLE_NO_TENSOR for no name of this model. */
long pl_dalle_find(const struct pl_dalle *m, const char *name);

/* The same for what has no model at hand: the index of the parameter that is listed under this
 * tensor's training name, -1 for pos_emb, unknown names and the repetitions of a shared tensor. */
long pl_dalle_find_param(const struct pl_params *params, const char *name);

/* The name that the inference branch (and DALLE-pytorch 1.6.6) has for a training name: it wraps
 * the layers once or twice more. PL_ELIMIT if `size` is too small. */
int pl_dalle_inference_name(char *out, size_t size, const char *training);

/* Values between a checkpoint's pos_emb (S+1,R) and the model; PL_EFORMAT if two neighbouring
 * channels differ or an angle is not finite. */
int pl_dalle_set_pos_emb(struct pl_dalle *m, const float *pos_emb, struct pl_err *err);
void pl_dalle_get_pos_emb(const struct pl_dalle *m, float *pos_emb);

/* The optimizer's order: first what decays, then the rest, each in model order; order (count).
 * Returns how many decay. */
size_t pl_params_optimizer_order(const struct pl_params *p, size_t *order);

#ifdef __cplusplus
}
#endif
#endif
