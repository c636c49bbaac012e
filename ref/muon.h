/* muon.h - Muon, an optimizer for matrices: momentum, made orthogonal. [Muon: Jordan et al. 2024]
 * [spec outer-steps 13] */
#ifndef PL_MUON_H
#define PL_MUON_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_MUON_STEPS 5 /* Newton-Schulz iterations, as in the muon-optimizer package */

struct pl_muon {
    double lr, momentum, decay;
};

/* X (a,b) = an approximation of U V^T, where G = U S V^T. Singular values end between about 0.55
 * and 1.2, not at 1: the polynomial is chosen for speed at small ones, and only the sign of G
 * matters. X must not overlap G; both are the backend's memory. PL_OK, PL_ENOMEM or PL_EDEVICE. */
int pl_newton_schulz(float *X, const float *G, int a, int b, int steps,
                     const struct pl_backend *be);

/* One step for a matrix: W, M (a,b) in and out, M zeros at first; G (a,b).
 *
 *   M = M + (1 - momentum) (G - M)        U = G + momentum (M - G)
 *   W = (1 - lr decay) W - lr sqrt(max(1, a / b)) newton_schulz(U) */
int pl_muon_step(float *W, float *M, const float *G, int a, int b, const struct pl_muon *step,
                 const struct pl_backend *be);

#ifdef __cplusplus
}
#endif
#endif
