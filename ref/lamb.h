/* lamb.h - one step of LAMB for one tensor. [LAMB alg. 2] [TTT 3.3] */
#ifndef PL_LAMB_H
#define PL_LAMB_H

#include "moments.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_lamb {
    double lr; /* times the bias correction, if any */
    double beta1, beta2, eps;
    double decay; /* 0 for biases and norms */
    double clamp; /* the weight norm counts at most this much */
    float clip;   /* multiplies the gradient: below 1 when the global norm is too large */
    size_t chunk; /* 8-bit moments decoded at a time, a multiple of their block; 0: all */
};

struct pl_lamb_norms {
    float weight, step, trust;
};

/*   g' = clip g         m = beta1 m + (1 - beta1) g'          v = beta2 v + (1 - beta2) g'^2
 *   u = m / (sqrt(v) + eps) + decay p
 *   trust = min(|p|, clamp) / |u|, or 1 if either is zero     p -= lr trust u
 *
 * p (n) in and out; g (n) in; u (n) out, scratch for the caller: may be g itself, which saves the
 * run a copy of its gradients. u uses m and v as they are before they are rounded to codes. Norms
 * span the whole tensor whatever the chunk, so the chunk changes no bit. *norms is host memory.
 *
 * Tolerance: m, v, u, codes and absmax equal bit for bit (two fused multiply-adds, as the reference
 * shows); norms relative 1e-6; p 4 ulp of |p| + |lr trust u|. Returns PL_OK, PL_ENOMEM or
 * PL_EDEVICE; n >= 1. */
typedef int pl_lamb_fn(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
                       const struct pl_moments *moments, size_t n, const struct pl_lamb *step);

pl_lamb_fn ref_lamb, fast_lamb, cuda_lamb;

#ifdef __cplusplus
}
#endif
#endif
