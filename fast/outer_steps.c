/* outer_steps.c - outer steps in one pass over memory, in pieces of one thread each. Products and
 * sums are rounded one by one, as in the reference: no fused multiply-add. */
#include "fast.h"

#define PIECE 65536 /* elements: long enough for a thread, short enough to share them out evenly */

static int pieces(size_t n) { return (int)((n + PIECE - 1) / PIECE); }
static size_t count_of(size_t n, int k)
{
    size_t at = (size_t)k * PIECE;
    return n - at < PIECE ? n - at : PIECE;
}

FAST_CLONES static void nesterov(float *phi, float *b, const float *g, size_t n, float mu, float nu)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float m = mu * b[i] + g[i];
        b[i] = m;
        phi[i] -= nu * (g[i] + mu * m);
    }
}

FAST_CLONES static void mix(float *theta, const float *phi, size_t n, float alpha, float rest)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) theta[i] = alpha * theta[i] + rest * phi[i];
}

FAST_CLONES static void gossip(float *phi, float *b, const float *change, const float *mean,
                               size_t n, float mu, float nu, float gamma)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float m = mu * b[i] + nu * change[i] + gamma * (mean[i] - phi[i]);
        b[i] = m;
        phi[i] += m;
    }
}

FAST_CLONES static void sign(float *x, const float *u, size_t n, float rate)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] -= rate * (u[i] > 0 ? 1.0f : u[i] < 0 ? -1.0f : 0.0f);
}

int fast_outer_nesterov(float *phi, float *b, const float *g, size_t n, float mu, float nu)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        size_t at = (size_t)k * PIECE;
        nesterov(phi + at, b + at, g + at, count_of(n, k), mu, nu);
    }
    fast_written(phi, n * sizeof *phi);
    return PL_OK;
}

int fast_outer_mix(float *theta, const float *phi, size_t n, float alpha)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        size_t at = (size_t)k * PIECE;
        mix(theta + at, phi + at, count_of(n, k), alpha, 1 - alpha);
    }
    fast_written(theta, n * sizeof *theta);
    return PL_OK;
}

int fast_outer_gossip(float *phi, float *b, const float *change, const float *mean, size_t n,
                      float mu, float nu, float gamma)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        size_t at = (size_t)k * PIECE;
        gossip(phi + at, b + at, change + at, mean + at, count_of(n, k), mu, nu, gamma);
    }
    fast_written(phi, n * sizeof *phi);
    return PL_OK;
}

int fast_sign_step(float *x, const float *u, size_t n, float rate)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces(n) > 1)
    for (int k = 0; k < pieces(n); k++) {
        size_t at = (size_t)k * PIECE;
        sign(x + at, u + at, count_of(n, k), rate);
    }
    fast_written(x, n * sizeof *x);
    return PL_OK;
}
