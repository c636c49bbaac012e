/* vqgan_block_internal.h - shared by the blocks of a VQGAN: their layers on feature maps, forward
 * and backward, and the two blocks large enough for a file of their own. Internal to vqgan_block.c
 * and its parts. [spec images-and-text 1.1] */
#ifndef PL_VQGAN_BLOCK_INTERNAL_H
#define PL_VQGAN_BLOCK_INTERNAL_H

#include "vqgan_block.h"

/* One pass over one block: everything the helpers need to know. */
struct vq_pass {
    const struct pl_backend *be;
    const struct pl_params *p;
    struct pl_scratch *scratch;
    const struct pl_vq_block *block;
};

/* Parameters and their gradients. `part` numbers a block's layers in the order of vqgan_block.c's
 * declarations: norm1, conv1, norm2, conv2 of a RES, for example. */
float *vq_weight(const struct vq_pass *s, int part);
float *vq_bias(const struct vq_pass *s, int part);
float *vq_dweight(const struct vq_pass *s, int part);
float *vq_dbias(const struct vq_pass *s, int part);

/* Feature maps (B,C,H,W) from the scratch memory. One that vq_take gives goes back by vq_give, or
 * all at once after an error. */
struct pl_maps vq_take(const struct vq_pass *s, int B, int C, int H, int W);
void vq_give(const struct vq_pass *s, const struct pl_maps *m);

/* y = W * x + b, K x K with K / 2 zeros around, so height and width stay. dx NULL: not wanted. */
struct pl_conv vq_same_size(const struct pl_maps *x, int out, int K);
int vq_conv(const struct vq_pass *s, int part, struct pl_maps *y, const struct pl_maps *x, int K);
int vq_conv_backward(const struct vq_pass *s, int part, struct pl_maps *dx,
                     const struct pl_maps *dy, const struct pl_maps *x, int K);

/* y = norm(x), and y = swish(norm(x)), where `normed` is what the forward pass had between the two:
 * d/dz (z sigmoid(z)) needs z. */
int vq_norm(const struct vq_pass *s, int part, struct pl_maps *y, const struct pl_maps *x);
int vq_norm_backward(const struct vq_pass *s, int part, struct pl_maps *dx,
                     const struct pl_maps *dy, const struct pl_maps *x);
int vq_norm_swish(const struct vq_pass *s, int part, struct pl_maps *y, const struct pl_maps *x);
int vq_norm_swish_backward(const struct vq_pass *s, int part, struct pl_maps *dx,
                           struct pl_maps *dy, const struct pl_maps *normed,
                           const struct pl_maps *x);

/* RES: y = x + conv2(swish(norm2(conv1(swish(norm1(x)))))). vqgan_res.c */
int vq_res_forward(const struct vq_pass *s, struct pl_maps *y, const struct pl_maps *x,
                   struct pl_vq_saved *saved);
int vq_res_backward(const struct vq_pass *s, struct pl_maps *dx, const struct pl_maps *dy,
                    struct pl_vq_saved *saved);

/* ATTN: y = x + proj_out(softmax(q^T k / sqrt(C)) v), one head over all places. vqgan_attn.c */
int vq_attn_forward(const struct vq_pass *s, struct pl_maps *y, const struct pl_maps *x,
                    struct pl_vq_saved *saved);
int vq_attn_backward(const struct vq_pass *s, struct pl_maps *dx, const struct pl_maps *dy,
                     struct pl_vq_saved *saved);

#endif
