/* gemm_skinny.c - y = x W^T + b for a few rows of x, as in generation. Each row of W is read once,
 * in place, and multiplied with all rows of x while it is in L1. This is bound by memory bandwidth
 * up to about 4 rows; beyond, 3 x 4 accumulators keep both FMA units busy. */
#include "fast.h"

#include <string.h>

#define PIECE 64 /* rows of W; a multiple of 4 */

struct skinny_ops {
    int fused; /* 0: there is no fused multiply-add, and OpenBLAS is better */
    void (*columns)(float *y, const float *x, const float *W, const float *b, int M, int count,
                    size_t K, size_t N);
};

#define SIMD_FILE "gemm_skinny_simd.inc"
#include "foreach_isa.inc"

static const struct skinny_ops *const ops[ISA_COUNT] = ISA_TABLE(skinny_ops);

/* AVX-512 gains nothing here, because memory is the limit. */
static const struct skinny_ops *choose(void)
{
    return ops[isa_chosen() == ISA_AVX512 ? ISA_AVX2 : isa_chosen()];
}

int fast_gemm_skinny(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    const struct skinny_ops *op = choose();
    if (!op->fused) return 0;
#pragma omp parallel for schedule(static) \
    num_threads(fast_threads()) if ((double)M * K * N > 100000.0)
    for (int n = 0; n < N; n += PIECE)
        op->columns(y + n, x, W + (size_t)n * (size_t)K, b ? b + n : NULL, M,
                    N - n < PIECE ? N - n : PIECE, (size_t)K, (size_t)N);
    return 1;
}
