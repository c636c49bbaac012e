/* gemm_bf16.c - GEMM with operands rounded to bfloat16 and sums in float32, by AVX512-BF16 or by
 * aarch64's BFMMLA: 128 operations per cycle and core where float32 has 64. AMX has 1,024:
 * gemm_bf16_amx.c. */
#include "gemm_bf16.h"
#include "isa.h"

#if defined(__aarch64__) && !defined(__AARCH64EB__) && !defined(__clang__) && \
    !defined(FAST_BF16_PLAIN)
#define BY_BFMMLA 1
#define BF16_TILE_FILE "gemm_bf16_neon.inc"
#else
#define BY_BFMMLA 0
#define BF16_TILE_FILE "gemm_bf16_avx512.inc"
#endif

int fast_bf16_has_gate(void) { return !BY_BFMMLA; }

#if BY_BFMMLA || defined(FAST_BF16_PLAIN) || (defined(__x86_64__) && defined(__GNUC__))
#include "gemm_bf16_loops.inc"
int fast_bf16_multiply(const struct fast_bf16_gemm *g)
{
    return isa_has_amx() ? fast_amx_multiply(g) : multiply_all(g);
}
#else
int fast_bf16_multiply(const struct fast_bf16_gemm *g) { return g ? PL_EDEVICE : PL_EUSE; }
#endif

int fast_gemm_bf16(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                   int ldb, const float *bias, int add, float *c)
{
    return fast_bf16_multiply(&(struct fast_bf16_gemm){ .ta = ta,
                                                        .tb = tb,
                                                        .m = m,
                                                        .n = n,
                                                        .k = k,
                                                        .a = { a, NULL, lda },
                                                        .b = { b, NULL, ldb },
                                                        .bias = bias,
                                                        .add = add,
                                                        .c = c });
}
