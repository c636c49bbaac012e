/* vqgan_block.h - the kinds of layers a VQGAN is built from, each with its backward pass.
 * [Esser et al. 2021, table 7] [spec images-and-text 1.1] */
#ifndef PL_VQGAN_BLOCK_H
#define PL_VQGAN_BLOCK_H

#include "params.h"
#include "scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_VQ_GROUPS 32 /* of a norm, in every published model */
#define PL_VQ_EPS 1e-6f

/* A feature map (B,C,H,W) in the backend's memory. */
struct pl_maps {
    float *at;
    int B, C, H, W;
};
size_t pl_maps_floats(const struct pl_maps *m);

enum pl_vq_kind {
    PL_VQ_CONV, /* K x K, stride 1, the size stays */
    PL_VQ_RES,  /* x + conv2(swish(norm2(conv1(swish(norm1(x)))))), a 1x1 conv if in != out */
    PL_VQ_ATTN, /* x + proj_out(attention over places of norm(x)), one head */
    PL_VQ_DOWN, /* zeros at the right and bottom, then 3x3 with stride 2 */
    PL_VQ_UP,   /* every place four times, then 3x3 */
    PL_VQ_NORM, /* group norm */
    PL_VQ_SWISH /* x sigmoid(x) */
};

struct pl_vq_block {
    enum pl_vq_kind kind;
    int in, out, K;  /* channels; K for CONV, otherwise ignored */
    int groups;      /* of its norms; 0: PL_VQ_GROUPS */
    char name[64];   /* "encoder.down.0.block.1": its parameters' prefix; "" has none */
    size_t param[5]; /* index of each part's weight, as declared; its bias follows */
};

/* Appends the block's tensors to `p` under their official names. */
int pl_vq_declare(struct pl_vq_block *block, struct pl_params *p);

/* Values saved by a forward pass for the backward pass. */
struct pl_vq_saved {
    struct pl_maps x;            /* the input: borrowed, must stay */
    float *middle;               /* RES: the input of norm2; UP: the doubled map */
    float *qkv, *attended, *lse; /* ATTN */
};

/* y from x; y->at is a scratch buffer that the caller gives back. saved NULL: forward only.
 * On an error buffers may stay taken: pl_scratch_give_all. */
int pl_vq_forward(const struct pl_vq_block *block, const struct pl_params *p,
                  struct pl_scratch *scratch, struct pl_maps *y, const struct pl_maps *x,
                  struct pl_vq_saved *saved);
/* Adds parameter gradients to p->grad and returns the buffers in `saved`. dx (NULL: not wanted)
 * comes from the scratch buffers. dy is only read. */
int pl_vq_backward(const struct pl_vq_block *block, const struct pl_params *p,
                   struct pl_scratch *scratch, struct pl_maps *dx, const struct pl_maps *dy,
                   struct pl_vq_saved *saved);

#ifdef __cplusplus
}
#endif
#endif
