/* outer_steps.c - the outer optimizer. Peers train alone for H steps, from phi to theta_r; the mean
 * of their changes phi - theta_r is then treated like a gradient of phi, as if H steps were one.
 * [DiLoCo: Douillard et al. 2023] [spec outer-steps 2]
 *
 * Momentum makes up for the rare steps: with a constant g, phi moves by nu g / (1 - mu) a step in
 * the limit, 7 g for DiLoCo's mu = 0.9 and nu = 0.7. With mu = 0 and nu = 1 the new phi is the mean
 * of the theta_r: local SGD, and federated averaging. */
#include "outer_steps.h"

/* PyTorch's form of Nesterov: no look-ahead point, but the gradient plus mu times the already
 * updated momentum. b = 0 before the first step equals PyTorch's b = g in it. */
int ref_outer_nesterov(float *phi, float *b, const float *g, size_t n, float mu, float nu)
{
    for (size_t i = 0; i < n; i++) {
        b[i] = mu * b[i] + g[i];
        phi[i] -= nu * (g[i] + mu * b[i]);
    }
    return PL_OK;
}

/* Streaming DiLoCo: the answer is tau steps late, and the local steps made meanwhile are kept in
 * part. [Streaming DiLoCo: Douillard et al. 2025] */
int ref_outer_mix(float *theta, const float *phi, size_t n, float alpha)
{
    float rest = 1 - alpha;
    for (size_t i = 0; i < n; i++) theta[i] = alpha * theta[i] + rest * phi[i];
    return PL_OK;
}

/* NoLoCo: heavy-ball momentum, and a pull of each peer's own phi towards the group's mean, which
 * holds the swarm together without any all-reduce. [NoLoCo: Kolehmainen et al. 2025] */
int ref_outer_gossip(float *phi, float *b, const float *change, const float *mean, size_t n,
                     float mu, float nu, float gamma)
{
    for (size_t i = 0; i < n; i++) {
        b[i] = mu * b[i] + nu * change[i] + gamma * (mean[i] - phi[i]);
        phi[i] += b[i];
    }
    return PL_OK;
}

/* DeMo: every entry moves by the rate or not at all, as in signSGD. */
int ref_sign_step(float *x, const float *u, size_t n, float rate)
{
    for (size_t i = 0; i < n; i++) x[i] -= rate * (float)((u[i] > 0) - (u[i] < 0));
    return PL_OK;
}
