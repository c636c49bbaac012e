/* codebook.h - from feature maps to codes and back: nearest code, Gumbel code, and their gradients.
 * [van den Oord et al. 2017] [Esser et al. 2021] [Jang et al. 2017] [spec images-and-text 1.4-1.7]
 *
 * Maps are (B,D,P): D channels over the P places of an image; codes are (B,P), in 0..N-1. The
 * logits of the Gumbel code are a 1x1 convolution, and so are its products with the table: both
 * are conv.h's. */
#ifndef PL_CODEBOOK_H
#define PL_CODEBOOK_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* code = the first row of table (N,D) with the smallest |z|^2 + |e|^2 - 2 z.e, z (B,D,P).
 * Two backends may differ where the two smallest are within 1e-5 of |z|^2 + |e|^2. */
typedef int pl_nearest_code_fn(int32_t *code, const float *z, const float *table, int B, int D,
                               int P, int N);

/* z (B,D,P) = table[code]. Exact. The caller has checked the codes. */
typedef int pl_code_rows_fn(float *z, const float *table, const int32_t *code, int B, int D, int P,
                            int N);
/* dtable[code] += scale * dz (B,D,P): every row's sum is taken in rising order of place. */
typedef int pl_code_rows_backward_fn(float *dtable, const float *dz, float scale,
                                     const int32_t *code, int B, int D, int P, int N);

/* code = the first largest of logits + noise over N; both (B,N,P), noise NULL: none. The sum is
 * rounded to float32. Gumbel noise -log(-log u) makes it a sample of softmax(logits). Exact. */
typedef int pl_gumbel_code_fn(int32_t *code, const float *logits, const float *noise, int B, int N,
                              int P);
/* y (B,N,P) = softmax((logits + noise) / temperature) over N; y may be logits or noise.
 * Tolerance: 2e-6 relative to the largest of a place. */
typedef int pl_gumbel_soft_fn(float *y, const float *logits, const float *noise, float temperature,
                              int B, int N, int P);
/* *kl (HOST memory) = mean over images and places of sum_n p log(p N + 1e-10), p = softmax(logits)
 * without noise: 0 for uniform p, log N for a certain one. Tolerance: 1e-6 of log N. */
typedef int pl_kl_uniform_fn(double *kl, const float *logits, int B, int N, int P);
/* Both terms at once: dlogits (B,N,P) = y (a - sum_n a y) / temperature + kl_weight * d kl, where
 * a (B,N,P) is the gradient at y; dlogits may be a. Tolerance: 1e-5 of the largest gradient. */
typedef int pl_gumbel_backward_fn(float *dlogits, const float *a, const float *y,
                                  const float *logits, float temperature, float kl_weight, int B,
                                  int N, int P);

/* loss (HOST memory) = { mean |y - x|, mean (y - x)^2 } over n elements; dy, unless NULL, receives
 * the gradient of l1 * loss[0] + l2 * loss[1]; equal elements have none. dy may be y. */
typedef int pl_pixel_loss_fn(double loss[2], float *dy, const float *y, const float *x, float l1,
                             float l2, size_t n);

/* The Gumbel code's temperature at a step: linear from `start` to `max` over `warm_up` steps, then
 * half a cosine down to `min` at step `decay`. */
struct pl_temperature {
    double start, max, min;
    int64_t warm_up, decay;
};
double pl_temperature_at(const struct pl_temperature *t, int64_t step);

/* Entropy of how often each code was used, in bits: log2 N when all are used alike. Host memory. */
double pl_code_entropy(const uint64_t *uses, size_t N);

pl_nearest_code_fn ref_nearest_code, fast_nearest_code, cuda_nearest_code;
pl_code_rows_fn ref_code_rows, fast_code_rows, cuda_code_rows;
pl_code_rows_backward_fn ref_code_rows_backward, fast_code_rows_backward, cuda_code_rows_backward;
pl_gumbel_code_fn ref_gumbel_code, fast_gumbel_code, cuda_gumbel_code;
pl_gumbel_soft_fn ref_gumbel_soft, fast_gumbel_soft, cuda_gumbel_soft;
pl_kl_uniform_fn ref_kl_uniform, fast_kl_uniform, cuda_kl_uniform;
pl_gumbel_backward_fn ref_gumbel_backward, fast_gumbel_backward, cuda_gumbel_backward;
pl_pixel_loss_fn ref_pixel_loss, fast_pixel_loss, cuda_pixel_loss;

#ifdef __cplusplus
}
#endif
#endif
