/* models.h - memory for the models of ref/model: parameters, gradients, and a pool for the values
 * of a pass. */
#ifndef PL_MODELS_H
#define PL_MODELS_H

#include "../ref/model/clip.h"
#include "../ref/model/gpt2.h"
#include "../ref/model/vqgan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Declares the tensors and allocates them, zeroed, with gradients if `with_grad`. The config has
 * been checked; be is borrowed. PL_OK, PL_ENOMEM or PL_ELIMIT; after an error nothing is left to
 * clear. */
int pl_vqgan_init(struct pl_vqgan *m, const struct pl_vqgan_config *config,
                  const struct pl_backend *be, int with_grad);
int pl_clip_init(struct pl_clip_model *m, const struct pl_clip_config *config,
                 const struct pl_backend *be);
int pl_gpt2_init(struct pl_gpt2 *m, const struct pl_gpt2_config *config,
                 const struct pl_backend *be, int with_grad);

/* Frees the memory of init, or of declare alone. */
void pl_vqgan_clear(struct pl_vqgan *m);
void pl_clip_clear(struct pl_clip_model *m);
void pl_gpt2_clear(struct pl_gpt2 *m);

#ifdef __cplusplus
}
#endif
#endif
