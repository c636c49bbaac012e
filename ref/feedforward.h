/* feedforward.h - gated and plain activations, and the feed-forward layer.
 * [TTT 3.1] [GLU variants: Shazeer 2020] [GELU: Hendrycks & Gimpel 2016] */
#ifndef PL_FEEDFORWARD_H
#define PL_FEEDFORWARD_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pl_activation {
    PL_GELU,      /* x (1 + erf(x/sqrt 2)) / 2: the exact one (the reference run) */
    PL_GELU_TANH, /* its tanh form (GPT-2) */
    PL_QUICKGELU, /* x sigmoid(1.702 x) (CLIP) */
    PL_SWISH      /* x sigmoid(x) (VQGAN) */
};

/* y = act(x), n elements; y may be x. Tolerance: 4e-7 * max(|x|, 1e-30). */
typedef int pl_activation_fn(float *y, const float *x, size_t n, enum pl_activation kind);
/* dx = dy * act'(x); dx may be dy. Tolerance: 1e-6 * |dy|. */
typedef int pl_activation_backward_fn(float *dx, const float *dy, const float *x, size_t n,
                                      enum pl_activation kind);

/* GEGLU: z (M,2C) holds u, then g; y (M,C) = u * gelu(g), the exact gelu. */
typedef int pl_geglu_fn(float *y, const float *z, int M, int C);
/* dz (M,2C); dz may be z. */
typedef int pl_geglu_backward_fn(float *dz, const float *dy, const float *z, int M, int C);

/* The weights of one feed-forward layer, or the gradients of one. */
struct pl_ffn {
    float *W1, *b1; /* (2C,D), (2C) */
    float *W2, *b2; /* (D,C), (D) */
};

/* The reference run's feed-forward layer: y (M,D) = W2 geglu(z) + b2, z = W1 x + b1. [TTT 3.1] One
 * operation, because z (M,2C) is the largest buffer of a block: a backend may hold only some rows
 * of it at a time, and use them while they are in its caches. z NULL: not wanted. With --precision
 * bf16, values that only its own products read may be stored in bfloat16: a z that is not wanted,
 * the gated values, the gradients of both. */
typedef int pl_ffn_fn(float *y, float *z, const float *x, const struct pl_ffn *w, int M, int D,
                      int C);
/* dx (M,D) is overwritten, gradients in dw are added to; y (M,D), when not NULL, receives the
 * layer's output, which a reversible block subtracts. z: from the forward pass, overwritten here,
 * or NULL: then it is computed again. dx may be dy. */
typedef int pl_ffn_backward_fn(float *y, float *dx, const struct pl_ffn *dw, const float *dy,
                               float *z, const float *x, const struct pl_ffn *w, int M, int D,
                               int C);

pl_activation_fn ref_activation, fast_activation, cuda_activation;
pl_activation_backward_fn ref_activation_backward, fast_activation_backward,
    cuda_activation_backward;
pl_geglu_fn ref_geglu, fast_geglu, cuda_geglu;
pl_geglu_backward_fn ref_geglu_backward, fast_geglu_backward, cuda_geglu_backward;
pl_ffn_fn ref_ffn, fast_ffn, cuda_ffn;
pl_ffn_backward_fn ref_ffn_backward, fast_ffn_backward, cuda_ffn_backward;

#ifdef __cplusplus
}
#endif
#endif
