/* attention.h - masked attention, its gradients, and one cached step for generation.
 * [TTT 3.1] [Vaswani et al. 2017, eq. 1] [Child et al. 2019: axial and local patterns] */
#ifndef PL_ATTENTION_H
#define PL_ATTENTION_H

#include "mask.h"

#ifdef __cplusplus
extern "C" {
#endif

/* o = softmax(q k^T / sqrt(d)) v over the keys that the mask allows.
 *   qkv       (B,n,3,H,d)  q, k, v as the linear layer leaves them, already rotated
 *   o         (B,n,H,d)
 *   lse       (B,H,n)      log of the softmax's denominator, for the backward pass; NULL: not saved
 *   key_mask  NULL, or bytes over keys, 0 = hidden: (B,n) for FULL and NONE, where it hides keys
 *             from every query; (B,P) for the other kinds, where it hides text keys from image
 *             queries only. A query with no key left gets the mean of v over all n keys,
 *             its lse is log n, and its gradient reaches v alone.
 * No backend stores an (n,n) matrix for ROW, COL or CONV.
 * Tolerance: 2e-6 of max |v|. With --precision bf16 operands of the products may be rounded as in
 * linear.h, 2^-6 of the root of the sum of squares of a product's terms: of a score, and with it of
 * its weight, relative; of o as the weighted sum of v, with each weight's own error times v - o; of
 * lse the scores' errors by weight, for those of a query have its rounding in common.
 * PL_OK, PL_ENOMEM or PL_EDEVICE. */
typedef int pl_attention_fn(float *o, float *lse, const float *qkv, int B, int n, int H, int d,
                            const struct pl_mask *mask, const uint8_t *key_mask);

/* dqkv (B,n,3,H,d) is overwritten, from do_ (B,n,H,d) and the values saved by the forward pass.
 * Tolerance: 1e-5 of the largest gradient; with --precision bf16 the same of each product on the
 * way to it, with the weights' errors. dqkv must not be qkv. */
typedef int pl_attention_backward_fn(float *dqkv, const float *do_, const float *qkv,
                                     const float *o, const float *lse, int B, int n, int H, int d,
                                     const struct pl_mask *mask, const uint8_t *key_mask);

/* One new token at position p < S: stores its k and v in the caches (B,H,S,d), which hold
 * positions 0..p-1, and gives its o (B,H,d). qkv (B,3,H,d), already rotated.
 * The same tolerance as the whole pass. */
typedef int pl_attention_step_fn(float *o, float *k_cache, float *v_cache, const float *qkv, int B,
                                 int S, int H, int d, int p, const struct pl_mask *mask);

pl_attention_fn ref_attention, fast_attention, cuda_attention;
pl_attention_backward_fn ref_attention_backward, fast_attention_backward, cuda_attention_backward;
pl_attention_step_fn ref_attention_step, fast_attention_step, cuda_attention_step;

#ifdef __cplusplus
}
#endif
#endif
