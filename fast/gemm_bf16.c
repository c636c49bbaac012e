/* gemm_bf16.c - GEMM with operands rounded to bfloat16 and sums in float32: 128 operations per
 * cycle and core where float32 has 64. gemm_bf16_avx512.inc (AVX512-BF16) and gemm_bf16_neon.inc
 * (BFMMLA) have the packing and the tiles; the loops here serve both.
 *
 * Operands are rounded while they are packed into panels, zero-padded at the edges. Three packed
 * panels of B stay in L2 while the rows of A pass. Packing takes 96 rows or columns at a time: with
 * long rows, 32 columns would use only part of each cache line they touch. Each element is summed
 * over k in a fixed order, so the number of threads changes nothing. */
#include "gemm_bf16.h"
#include "vector_math.h"

#include <string.h>

#if defined(__aarch64__) && !defined(__AARCH64EB__) && !defined(__clang__) && \
    !defined(FAST_BF16_PLAIN)
#define BY_BFMMLA 1
#else
#define BY_BFMMLA 0
#endif

#if BY_BFMMLA || defined(FAST_BF16_PLAIN) || (defined(__x86_64__) && defined(__GNUC__))

#define PACK_WIDTH 96 /* rows or columns packed together: a multiple of both tiles */
#define KC 512        /* of k; a multiple of 32 */

/* An operand: element (i, k) at i * ld + k, or at k * ld + i if `strided`. */
struct operand {
    const float *x;
    const uint16_t *half; /* or NULL: the same in bfloat16, in place of x */
    size_t ld;
    int strided;
    int count; /* range of i */
};

static struct operand operand_of(struct fast_bf16_matrix v, int strided, int count)
{
    return (struct operand){ v.x, v.half, (size_t)v.ld, strided, count };
}

static float float_of_half(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } x = { .u = (uint32_t)h << 16 };
    return x.f;
}

FAST_INLINE float element(const struct operand *o, size_t at)
{
    return o->half ? float_of_half(o->half[at]) : o->x[at];
}

#if BY_BFMMLA
#include "gemm_bf16_neon.inc"
#else
#include "gemm_bf16_avx512.inc"
#endif

/* A gate at the end of z's tiles, whose columns are 16 of u and 16 of g. */
static int is_gate_of_z(const struct fast_bf16_gemm *g)
{
    return g->gate && (g->gate->dh || !g->gate->dz);
}

/* Rows i0..i1-1 of the result against 96 packed columns from j0. */
static void multiply_columns(const struct fast_bf16_gemm *g, int add, const uint32_t *a,
                             const uint32_t *b, int i0, int i1, int j0, int k, int panel,
                             float *sums)
{
    static const float zeros[NR];
    size_t ld = (size_t)g->n;
    int steps = (k + K_STEP - 1) / K_STEP * (K_STEP / 2);
    (void)sums; /* BFMMLA has no gate */
    for (int i = i0; i < i1; i += MR)
        for (int p = 0; p < PACK_WIDTH / NR; p++) {
            const uint32_t *rows = a + (size_t)(i / MR) * (size_t)panel * MR;
            const uint32_t *columns = b + (size_t)p * (size_t)panel * NR;
            int j = j0 + p * NR, count = i1 - i < MR ? i1 - i : MR;
            int cols = g->n - j < NR ? g->n - j : NR;
#if !BY_BFMMLA
            if (is_gate_of_z(g)) {
                j = j0 / 2 + p * LANES;
                if (j < g->gate->C)
                    tile_of_z(g->gate, g->bias, i, j, sums, rows, columns, steps, count);
                continue;
            }
#endif
            if (cols <= 0) break;
#if !BY_BFMMLA
            if (g->gate) {
                tile_of_dh(g->gate, i, j, sums, rows, columns, steps, count, cols);
                continue;
            }
            if (g->rounded) {
                micro_kernel_round(g->rounded + (size_t)i * ld + (size_t)j, ld, rows, columns,
                                   steps, count, cols);
                continue;
            }
#endif
            float *to = g->c + (size_t)i * ld + (size_t)j;
            const float *from = add ? to : g->bias ? g->bias + j : zeros;
            micro_kernel(to, ld, from, add ? ld : 0, rows, columns, steps, count, cols);
        }
}

int fast_bf16_has_gate(void) { return !BY_BFMMLA; }

/* All slabs of k; one where a tile must have the whole sum. `sums` (parts, 2C) for a gate. */
static int multiply(const struct fast_bf16_gemm *g, int parts, float *sums)
{
    int slab = g->gate || g->rounded ? (g->k + K_STEP - 1) / K_STEP * K_STEP : KC;
    int gate_of_z = is_gate_of_z(g), panel = slab / 2, failed = 0;
    int down = fast_chunk_count(g->m, PACK_WIDTH), across = fast_chunk_count(g->n, PACK_WIDTH);
    int each = fast_chunk_count(down, parts) * PACK_WIDTH;
    size_t block = (size_t)PACK_WIDTH * (size_t)panel;
    struct operand A = operand_of(g->a, g->ta, g->m), B = operand_of(g->b, !g->tb, g->n);
    uint32_t *packed = (uint32_t *)(void *)fast_scratch_alloc((size_t)down * block);
    if (!packed) return PL_ENOMEM;
#pragma omp parallel num_threads(fast_threads()) if ((double)g->m * g->n * g->k > 2e6)
    {
        uint32_t *own = (uint32_t *)(void *)fast_scratch_alloc(block);
        for (int k0 = 0; k0 < g->k; k0 += slab) {
            int k1 = g->k - k0 < slab ? g->k : k0 + slab;
#pragma omp for schedule(dynamic, 1)
            for (int i = 0; i < down; i++)
                pack_a(packed + (size_t)i * block, &A, i * PACK_WIDTH, k0, k1, panel);
#pragma omp for schedule(dynamic, 1)
            for (int t = 0; t < across * parts; t++) {
                int j0 = t / parts * PACK_WIDTH, part = t % parts, i0 = part * each;
                int i1 = i0 + each < g->m ? i0 + each : g->m;
                if (!own || i0 >= i1) continue;
                pack_b(own, &B, gate_of_z ? j0 / 2 : j0, k0, k1, panel, gate_of_z ? g->gate->C : 0);
                multiply_columns(g, k0 > 0 || g->add, packed, own, i0, i1, j0, k1 - k0, panel,
                                 sums ? sums + (size_t)part * 2 * (size_t)g->gate->C : NULL);
            }
        }
        if (!own) {
#pragma omp atomic write
            failed = 1;
        }
        fast_scratch_free((float *)(void *)own);
    }
    fast_scratch_free((float *)(void *)packed);
    return failed ? PL_ENOMEM : PL_OK;
}

int fast_bf16_multiply(const struct fast_bf16_gemm *g)
{
    int down = fast_chunk_count(g->m, PACK_WIDTH), across = fast_chunk_count(g->n, PACK_WIDTH);
    /* Rows are split only if columns alone would not occupy all threads; packing B again pays off
     * from 192 rows on. */
    int parts = (16 + across - 1) / across, rc;
    float *sums = NULL;
    size_t n = 0;
    if (parts > (down + 1) / 2) parts = (down + 1) / 2;
    if (g->gate && g->gate->dz) {
        n = 2 * (size_t)g->gate->C;
        if (!(sums = fast_scratch_alloc((size_t)parts * n))) return PL_ENOMEM;
        memset(sums, 0, (size_t)parts * n * sizeof *sums);
    }
    rc = multiply(g, parts, sums);
    for (int part = 0; sums && part < parts; part++)
        for (size_t c = 0; c < n; c++) g->gate->sums[c] += sums[(size_t)part * n + c];
    fast_scratch_free(sums);
    return rc;
}
#else
int fast_bf16_has_gate(void) { return 0; }
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
