/* muon.c - Muon: a step along all singular directions of the momentum at once. SGD's step on a
 * matrix is dominated by a few large singular values; Muon sets all of them to about 1, so rare
 * directions are learnt as fast as frequent ones. [Muon: Jordan et al. 2024] Inside DiLoCo it is
 * MuLoCo. [spec outer-steps 13]
 *
 * No singular value decomposition is needed: an odd polynomial p of the matrix changes its singular
 * values s to p(s) and nothing else, because (X X^T) X = U S^3 V^T. p(s) = a s + b s^3 + c s^5,
 * applied five times, brings all s in (0, 1] near 1. The products are linear's forward and its
 * gradient, so every backend has Muon. */
#include "muon.h"

#include <math.h>

#define LEAST_NORM 1e-7 /* as in the muon-optimizer package: a zero gradient stays zero */

/* X = a X + (b A + c A^2) X,  A = X X^T: the coefficients maximize p'(0) as long as p^5 stays near
 * 1 X (m,n) with m <= n; A, B (m,m) and Y (m,n) are scratch. */
static int iterate(float *X, float *Y, float *A, float *B, int m, int n,
                   const struct pl_backend *be)
{
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    size_t mm = (size_t)m * (size_t)m, mn = (size_t)m * (size_t)n;
    int rc = be->linear(A, X, X, NULL, m, n, m);      /* A = X X^T */
    if (!rc) rc = be->linear(B, A, A, NULL, m, m, m); /* A A^T = A^2: A is symmetric */
    if (!rc) rc = be->scale(B, c, mm);
    if (!rc) rc = be->axpy(B, b, A, mm);
    if (!rc) rc = be->copy(Y, X, mn);
    if (!rc) rc = be->scale(X, a, mn);
    return rc ? rc : be->linear_dx(X, B, Y, m, n, m, 1); /* X = a X + B Y */
}

int pl_newton_schulz(float *X, const float *G, int a, int b, int steps, const struct pl_backend *be)
{
    /* the short side first, so that X X^T is small */
    int m = a < b ? a : b, n = a < b ? b : a, rc = PL_OK;
    size_t mm = (size_t)m * (size_t)m, mn = (size_t)m * (size_t)n;
    float *scratch = be->alloc((2 * mm + 2 * mn) * sizeof(float));
    float *A = scratch, *B = A + mm, *Y = B + mm, *Z = Y + mn;
    double squares;
    if (!scratch) return PL_ENOMEM;
    rc = a > b ? be->transpose(Z, a, G, b, 1, a, b) : be->copy(Z, G, mn);
    if (!rc) rc = be->sumsq(&squares, Z, mn);
    /* the Frobenius norm is at least the largest singular value */
    if (!rc) rc = be->scale(Z, (float)(1 / (sqrt(squares) + LEAST_NORM)), mn);
    for (int i = 0; !rc && i < steps; i++) rc = iterate(Z, Y, A, B, m, n, be);
    if (!rc) rc = a > b ? be->transpose(X, b, Z, a, 1, b, a) : be->copy(X, Z, mn);
    be->free(scratch);
    return rc;
}

int pl_muon_step(float *W, float *M, const float *G, int a, int b, const struct pl_muon *step,
                 const struct pl_backend *be)
{
    size_t n = (size_t)a * (size_t)b;
    float beta = (float)step->momentum, rest = (float)(1 - step->momentum);
    float *U = be->alloc(2 * n * sizeof(float)), *X = U + n;
    double rate = step->lr * sqrt(fmax(1, (double)a / b));
    int rc = U ? PL_OK : PL_ENOMEM;
    /* M = M + (1 - beta) (G - M);  U = G + beta (M - G), Nesterov's form */
    if (!rc) rc = be->scale(M, beta, n);
    if (!rc) rc = be->axpy(M, rest, G, n);
    if (!rc) rc = be->copy(U, G, n);
    if (!rc) rc = be->scale(U, rest, n);
    if (!rc) rc = be->axpy(U, beta, M, n);
    if (!rc) rc = pl_newton_schulz(X, U, a, b, PL_MUON_STEPS, be);
    /* W = (1 - lr decay) W - rate X */
    if (!rc && step->decay != 0) rc = be->scale(W, (float)(1 - step->lr * step->decay), n);
    if (!rc) rc = be->axpy(W, (float)-rate, X, n);
    be->free(U);
    return rc;
}
