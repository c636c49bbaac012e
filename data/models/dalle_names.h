/* dalle_names.h - the official names of tensors in checkpoints. [spec dalle 13] */
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
    char name[PL_NAME_MAX]; /* as in training checkpoints, starting with "model." */
    long param;             /* index, or PL_DALLE_POS_EMB */
    long first; /* the first entry of the same tensor; its own index if it is the first */
};
/* All entries in the official order (the reference run has 841); free with free(). NULL: no
 * memory. */
struct pl_dalle_entry *pl_dalle_state_dict(const struct pl_dalle *m, size_t *count);

/* The tensor of a name from a training or inference checkpoint, with or without "model." and
 * "transformer." in front. PL_DALLE_POS_EMB, or PL_DALLE_NO_TENSOR for an unknown name. */
long pl_dalle_find(const struct pl_dalle *m, const char *name);

/* The same without a model: the index of the parameter listed under this training name; -1 for
 * pos_emb, unknown names and repetitions of a shared tensor. */
long pl_dalle_find_param(const struct pl_params *params, const char *name);

/* Copies a checkpoint's pos_emb (S+1,R) to the model; PL_EFORMAT if two neighbouring
 * channels differ or an angle is not finite. */
int pl_dalle_set_pos_emb(struct pl_dalle *m, const float *pos_emb, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
