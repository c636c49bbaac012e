/* linear.c - the matrix product that is most of the time of a step (GEMM), and its two gradients.
 * [spec dalle 5, 6]
 *
 *   y_mn  = sum_k x_mk W_nk + b_n                 x (M,K), W (N,K), y (M,N); W: PyTorch's [out,in]
 *   dx_mk = sum_n dy_mn W_nk
 *   dW_nk = sum_m dy_mn x_mk,   db_n = sum_m dy_mn
 *
 * Each sum is in double and rounded once. */
#include "linear.h"

#include <assert.h>

/* y = x W^T + b */
int ref_linear(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    assert(M >= 1 && K >= 1 && N >= 1);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            const float *xm = x + (size_t)m * (size_t)K, *Wn = W + (size_t)n * (size_t)K;
            double sum = b ? b[n] : 0;
            for (int k = 0; k < K; k++) sum += (double)xm[k] * Wn[k];
            y[(size_t)m * (size_t)N + (size_t)n] = (float)sum;
        }
    return PL_OK;
}

/* dx = dy W, or dx += dy W where another branch has left its gradient */
int ref_linear_dx(float *dx, const float *dy, const float *W, int M, int K, int N, int add)
{
    assert(M >= 1 && K >= 1 && N >= 1);
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++) {
            size_t at = (size_t)m * (size_t)K + (size_t)k;
            double sum = add ? dx[at] : 0;
            for (int n = 0; n < N; n++)
                sum += (double)dy[(size_t)m * (size_t)N + (size_t)n] *
                       W[(size_t)n * (size_t)K + (size_t)k];
            dx[at] = (float)sum;
        }
    return PL_OK;
}

/* dW += dy^T x: gradients of several batches, and of shared layers, add up */
int ref_linear_dw(float *dW, float *db, const float *dy, const float *x, int M, int K, int N)
{
    assert(M >= 1 && K >= 1 && N >= 1);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            size_t at = (size_t)n * (size_t)K + (size_t)k;
            double sum = dW[at];
            for (int m = 0; m < M; m++)
                sum += (double)dy[(size_t)m * (size_t)N + (size_t)n] *
                       x[(size_t)m * (size_t)K + (size_t)k];
            dW[at] = (float)sum;
        }
    for (int n = 0; db && n < N; n++) {
        double sum = db[n];
        for (int m = 0; m < M; m++) sum += dy[(size_t)m * (size_t)N + (size_t)n];
        db[n] = (float)sum;
    }
    return PL_OK;
}
