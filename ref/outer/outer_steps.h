/* outer_steps.h - the change of every parameter by an outer step. [DiLoCo: Douillard et al. 2023]
 * [spec outer-steps 2, 5, 8, 11]
 *
 * All work on the backend's memory. Each product, sum and quotient is rounded to float32 once, in
 * the order written here, and none is fused: peers with different hardware apply the same mean and
 * must keep the same parameters, bit for bit. So every backend gives the reference's bits. */
#ifndef PL_OUTER_STEPS_H
#define PL_OUTER_STEPS_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Nesterov's momentum in the form of torch.optim.SGD(nesterov=True, dampening=0). g is a
 * pseudo-gradient: old minus new parameters.
 *
 *   b = mu b + g        phi = phi - nu (g + mu b) */
typedef int pl_outer_nesterov_fn(float *phi, float *b, const float *g, size_t n, float mu,
                                 float nu);

/* theta = alpha theta + (1 - alpha) phi: alpha weighs the local parameters. */
typedef int pl_outer_mix_fn(float *theta, const float *phi, size_t n, float alpha);

/* A step of gossip. change is a group's mean of theta - phi (new minus old), mean its mean of phi.
 *
 *   b = mu b + nu change + gamma (mean - phi)        phi = phi + b */
typedef int pl_outer_gossip_fn(float *phi, float *b, const float *change, const float *mean,
                               size_t n, float mu, float nu, float gamma);

/* x = x - rate sign(u), sign(0) = 0. */
typedef int pl_sign_step_fn(float *x, const float *u, size_t n, float rate);

pl_outer_nesterov_fn ref_outer_nesterov, fast_outer_nesterov, cuda_outer_nesterov;
pl_outer_mix_fn ref_outer_mix, fast_outer_mix, cuda_outer_mix;
pl_outer_gossip_fn ref_outer_gossip, fast_outer_gossip, cuda_outer_gossip;
pl_sign_step_fn ref_sign_step, fast_sign_step, cuda_sign_step;

#ifdef __cplusplus
}
#endif
#endif
