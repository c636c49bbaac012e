/* adam.h - one step of Adam with decoupled weight decay (AdamW) for one tensor. [Adam alg. 1]
 * [AdamW alg. 2] [8-bit optimizers] */
#ifndef PL_ADAM_H
#define PL_ADAM_H

#include "moments.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_adam {
    double lr, beta1, beta2, eps;
    double decay;        /* 0 makes it Adam */
    double bias1, bias2; /* 1 - beta^t of this step; 1 without bias correction */
    float clip;          /* multiplies the gradient */
};

/*   g' = clip g      m = beta1 m + (1 - beta1) g'      v = beta2 v + (1 - beta2) g'^2
 *   p = (1 - lr decay) p - lr / bias1 * m / (sqrt(v / bias2) + eps)
 *
 * p (n) in and out, g (n). The update uses m and v as they are before they are rounded to codes.
 * Tolerance: m, v, codes and absmax equal bit for bit; p 4 ulp of |p| + |update|. Returns PL_OK,
 * PL_ENOMEM or PL_EDEVICE; n >= 1. */
typedef int pl_adam_fn(float *p, const float *g, const struct pl_moments *moments, size_t n,
                       const struct pl_adam *step);

pl_adam_fn ref_adam, fast_adam, cuda_adam;

#ifdef __cplusplus
}
#endif
#endif
