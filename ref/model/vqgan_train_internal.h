/* vqgan_train_internal.h - from maps to codes and back while a VQGAN is trained, and the gradients
 * of that. Internal to vqgan_train.c. [spec images-and-text 1.4, 1.6, 1.7] */
#ifndef PL_VQGAN_TRAIN_INTERNAL_H
#define PL_VQGAN_TRAIN_INTERNAL_H

#include "vqgan_train.h"

/* Everything one step keeps between its forward and its backward pass. */
struct vq_step {
    struct pl_vqgan *m;
    const struct pl_backend *be;
    const struct pl_vqgan_task *task;
    struct pl_vq_saved encoder[PL_VQ_BLOCKS_MAX], decoder[PL_VQ_BLOCKS_MAX];
    struct pl_vq_saved quant_conv, post_quant_conv, proj;
    struct pl_maps z, zq, difference; /* zq - z */
    struct pl_maps logits, soft;
    int32_t *code; /* backend memory */
};

/* A scratch buffer for a map of the same places with other channels; and back. */
struct pl_maps vq_take_like(struct vq_step *s, const struct pl_maps *other, int channels);
void vq_give_maps(struct vq_step *s, const struct pl_maps *m);

/* s->z to s->code and s->zq, *loss the quantizer's; backward: dz from dzq, the gradient at s->zq,
 * and the codebook's gradient. dz->at is a scratch buffer of the caller's. */
int vq_nearest_forward(struct vq_step *s, double *loss);
int vq_nearest_backward(struct vq_step *s, struct pl_maps *dz, const struct pl_maps *dzq);
int vq_gumbel_forward(struct vq_step *s, double *loss, const float *noise);
int vq_gumbel_backward(struct vq_step *s, struct pl_maps *dz, const struct pl_maps *dzq);

#endif
