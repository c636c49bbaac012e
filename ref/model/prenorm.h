/* prenorm.h - a plain stack of transformer blocks, as GPT-2 and both towers of CLIP have it:
 *
 *   x += out(attention(qkv(ln_1(x))))      x += proj(act(fc(ln_2(x))))
 *
 * [GPT-2: Radford et al. 2019, 2.3] [CLIP: Radford et al. 2021, 2.4] [spec images-and-text 2.1,
 * 6] */
#ifndef PL_PRENORM_H
#define PL_PRENORM_H

#include "params.h"
#include "scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_PRENORM_EPS 1e-5f
#define PL_PRENORM_TENSORS 12
#define PL_PRENORM_LAYERS_MAX 256

enum pl_prenorm_part { /* of a block; W is [out,in] */
                       PL_LN1_WEIGHT,
                       PL_LN1_BIAS,
                       PL_QKV_W,
                       PL_QKV_B,
                       PL_OUT_W,
                       PL_OUT_B,
                       PL_LN2_WEIGHT,
                       PL_LN2_BIAS,
                       PL_FC_W,
                       PL_FC_B,
                       PL_PROJ_W,
                       PL_PROJ_B
};

/* The names of a block's tensors, in the order in which their model lists them. */
struct pl_prenorm_name {
    const char *name; /* after the block's prefix */
    enum pl_prenorm_part part;
};

/* The values of one block, M = B n positions. */
struct pl_prenorm_made {
    float *ln_1, *qkv, *o, *lse; /* (M,D) (M,3D) (M,D) (B,H,n) of attention */
    float *y;                    /* (M,D) a branch's output */
    float *middle;               /* (M,D) the sum after attention */
    float *ln_2, *fc, *act;      /* (M,D) (M,hidden) (M,hidden) of feed-forward */
};

struct pl_prenorm {
    struct pl_params *params;   /* borrowed */
    struct pl_scratch *scratch; /* borrowed */
    int layers, D, H, hidden;   /* width, heads, inner width of the feed-forward layer */
    int groups; /* block l shares the layers of block l % groups, not its norms; 0: shares none */
    enum pl_activation activation;
    enum pl_mask_kind mask; /* FULL: causal; NONE: every position sees every other one */
    int stored;             /* 1: activations are stored for backward, instead of computed again */
    struct pl_prenorm_made *made; /* (layers) of such a pass; scratch buffers, pl_prenorm_forget */
    size_t part[PL_PRENORM_LAYERS_MAX][PL_PRENORM_TENSORS]; /* indices of parameters */
    /* Called, unless NULL, with the values of a forward pass: "block0.ln_1", "block0.qkv",
     * "block0.attn" (after out), "block0.ln_2", "block0.fc", "block0.act", "block0.mlp",
     * "block0.out" (the sum). */
    void (*watch)(void *context, const char *name, const float *at, size_t n);
    void *context;
};

/* Declares the tensors of all blocks, "<prefix><block>.<name>"; shared ones once, by their first
 * block. Sizes are set and checked. */
int pl_prenorm_declare(struct pl_prenorm *s, const char *prefix,
                       const struct pl_prenorm_name names[PL_PRENORM_TENSORS]);

/* x (B,n,D), backend memory, in and out. key_mask as in attention.h. inputs, if not NULL, receives
 * the input of every block (layers,B,n,D): all that a backward pass needs. */
int pl_prenorm_forward(struct pl_prenorm *s, float *x, float *inputs, int B, int n,
                       const uint8_t *key_mask);
/* dx (B,n,D) becomes the gradient of the stack's input; parameters' gradients are added to. Each
 * block runs once more from its input, so that activations of one block alone are in memory, unless
 * they are stored: both ways give the same bits. */
int pl_prenorm_backward(struct pl_prenorm *s, float *dx, const float *inputs, int B, int n,
                        const uint8_t *key_mask);
/* Frees values that a forward pass has stored and no backward pass has used. */
void pl_prenorm_forget(struct pl_prenorm *s);

#ifdef __cplusplus
}
#endif
#endif
