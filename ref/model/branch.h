/* branch.h - the two branches of a block, layer(shift(norm(x))), and their gradients. LayerScale
 * and the sum with the other stream are reversible.h's. [TTT 3.1] [spec dalle 3 to 6] */
#ifndef PL_BRANCH_H
#define PL_BRANCH_H

#include "blocks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values saved by a forward pass for the backward pass, all backend memory, M = B n positions. */
struct pl_attention_saved {
    float *h;   /* (M,D) what the layer got: normalised and shifted */
    float *qkv; /* (M,3E) rotated */
    float *o;   /* (M,E) */
    float *lse; /* (M,H) */
    float *y;   /* (M,D) the branch's output */
};
struct pl_ffn_saved {
    float *h, *y; /* (M,D) as above */
    float *z;     /* (M,8D) before the gate; NULL: not saved, the backward pass computes it again */
};

/* For the moment only, shared by all branches. */
struct pl_branch_scratch {
    float *norm; /* (M,D) */
    float *dy;   /* (M,D) */
    float *wide; /* (M,4E), for backward passes alone */
};

/* k->y = the branch of block l at x (B,n,D). */
int pl_attention_branch(const struct pl_blocks *s, int l, const struct pl_attention_saved *k,
                        const struct pl_branch_scratch *w, const float *x, int B, int n);
int pl_ffn_branch(const struct pl_blocks *s, int l, const struct pl_ffn_saved *k,
                  const struct pl_branch_scratch *w, const float *x, int B, int n);

/* dx += gradient of (scale * y) at dy, parameters' gradients likewise. The attention branch wants
 * everything saved. The feed-forward branch wants it if z is; otherwise it starts from x and leaves
 * k->y, so that a reversible block need not run the layer twice. dx is neither dy nor x. */
int pl_attention_branch_backward(const struct pl_blocks *s, int l,
                                 const struct pl_attention_saved *k,
                                 const struct pl_branch_scratch *w, float *dx, const float *dy,
                                 const float *x, int B, int n);
int pl_ffn_branch_backward(const struct pl_blocks *s, int l, const struct pl_ffn_saved *k,
                           const struct pl_branch_scratch *w, float *dx, const float *dy,
                           const float *x, int B, int n);

#define PL_NORM_EPS 1e-5f

#ifdef __cplusplus
}
#endif
#endif
