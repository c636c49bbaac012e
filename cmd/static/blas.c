/* blas.c - fast/'s calls of OpenBLAS, whose kernels for all processors would take 30 MB of a static
 * program. They are used only on processors without AVX2, NEON or RVV, and without memory for
 * packing. */
#include <cblas.h>
#include <stddef.h>
#include <stdint.h>

/* C = alpha op(A) op(B) + beta C, row by row of B, so that the inner loop is a vector's. */
void cblas_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta,
                 const enum CBLAS_TRANSPOSE tb, const blasint m, const blasint n, const blasint k,
                 const float alpha, const float *a, const blasint lda, const float *b,
                 const blasint ldb, const float beta, float *c, const blasint ldc)
{
    (void)order; /* of rows, in fast/ */
    for (ptrdiff_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        for (ptrdiff_t j = 0; j < n; j++) row[j] = beta == 0 ? 0 : beta * row[j];
        for (ptrdiff_t p = 0; p < k; p++) {
            const float x = alpha * (ta == CblasTrans ? a[p * lda + i] : a[i * lda + p]);
            for (ptrdiff_t j = 0; j < n; j++)
                row[j] += x * (tb == CblasTrans ? b[j * ldb + p] : b[p * ldb + j]);
        }
    }
}

void openblas_set_num_threads(int threads) {}

char *openblas_get_corename(void) { return (char *)(uintptr_t) "no BLAS"; }
