/* gemm_bf16.c - GEMM with operands rounded to bfloat16 and sums in float32, by AVX512-BF16: 128
 * operations per cycle and core where float32 has 64. On aarch64 gemm_bf16_neon.inc has the packing
 * and the tile; the loops at the end are the same.
 *
 * A tile of the result is 12 x 32, 24 registers of sums. One step multiplies a pair of k with 2
 * loads, 12 broadcasts and 24 instructions. Operands are rounded while they are packed into panels,
 * A as [k/2][12][2], B as [k/2][32][2], zero-padded at the edges. A panel of B (32 KiB for a slab
 * of 512 k) stays in L1 while all of A streams past. Packing takes 96 rows or columns at a time:
 * with long rows, 32 columns would use only part of each cache line they touch. Each element is
 * summed over k in a fixed order, so the number of threads changes nothing.
 *
 * FAST_BF16_PLAIN replaces the two instructions by their definitions: the unit test runs on any
 * CPU. */
#include "fast.h"

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
#define PAIRS (KC / 2)

/* An operand: element (i, k) at i * ld + k, or at k * ld + i if `strided`. */
struct operand {
    const float *x;
    size_t ld;
    int strided;
    int count; /* range of i */
};

#if BY_BFMMLA
#include "gemm_bf16_neon.inc"
#else
#define MR 12
#define NR 32
#define LANES 16

/* may_alias and aligned: loads of any type from any address. */
typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t pairs __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t words __attribute__((vector_size(64), aligned(4), may_alias));

#ifdef FAST_BF16_PLAIN
#define TARGET
/* Words 0..15 from `low`, 16..31 from `high`, rounded to nearest even; NaN stays NaN. */
static words round_two(floats high, floats low)
{
    words w;
    for (int i = 0; i < 2 * LANES; i++) {
        float f = i < LANES ? low[i] : high[i - LANES];
        uint32_t u;
        memcpy(&u, &f, 4);
        w[i] = f != f ? 0x7FC0 : (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
    }
    return w;
}
static floats add_dots(floats sum, pairs a, pairs b)
{
    for (int i = 0; i < LANES; i++)
        for (int half = 1; half >= 0; half--) { /* the instruction adds the odd element first */
            uint32_t u = half ? a[i] & 0xFFFF0000u : a[i] << 16,
                     v = half ? b[i] & 0xFFFF0000u : b[i] << 16;
            float x, y;
            memcpy(&x, &u, 4);
            memcpy(&y, &v, 4);
            sum[i] = __builtin_fmaf(x, y, sum[i]);
        }
    return sum;
}
#else
#include <immintrin.h>
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
TARGET FAST_INLINE words round_two(floats high, floats low)
{
    return (words)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}
TARGET FAST_INLINE floats add_dots(floats sum, pairs a, pairs b)
{
    return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#endif

/* ---- packing: 16 rows or columns of one panel at a time ---- */

/* Swaps blocks of d lanes between vectors that are d apart: one step of a transpose. */
TARGET FAST_INLINE void exchange_lanes(pairs r[LANES], int d)
{
    pairs low, high; /* lanes of both vectors, the second's count from 16 */
    _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
    {
        low[l] = (uint32_t)(l & d ? LANES + l - d : l);
        high[l] = (uint32_t)(l & d ? LANES + l : l + d);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (!(i & d))
    {
        pairs a = r[i], b = r[i + d];
        r[i] = __builtin_shuffle(a, b, low);
        r[i + d] = __builtin_shuffle(a, b, high);
    }
}

/* r[i] lane j becomes r[j] lane i. */
TARGET FAST_INLINE void transpose(pairs r[LANES])
{
    exchange_lanes(r, 8);
    exchange_lanes(r, 4);
    exchange_lanes(r, 2);
    exchange_lanes(r, 1);
}

/* Lanes 0..n-1, n = 12 or 16. */
TARGET FAST_INLINE void store_pairs(uint32_t *to, pairs v, int n)
{
    if (n == LANES) *(pairs *)to = v;
    else memcpy(to, &v, MR * sizeof *to);
}

/* 32 k of 16 neighbours where k is contiguous, to 16 pairs `width` apart. */
TARGET FAST_INLINE void pack_k_contiguous(uint32_t *to, const float *x, size_t ld, int width,
                                          int lanes)
{
    pairs r[LANES];
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
    {
        const float *row = x + (size_t)i * ld;
        if (i < lanes)
            r[i] = (pairs)round_two(*(const floats *)(row + LANES), *(const floats *)row);
        else r[i] = (pairs){ 0 };
    }
    transpose(r);
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
        store_pairs(to + i * width, r[i], lanes);
}

/* 2 k of 16 neighbours where the neighbours are contiguous, to one pair. */
TARGET FAST_INLINE void pack_k_strided(uint32_t *to, const float *even, const float *odd, int lanes)
{
    static const words weave = { 0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
    words w = round_two(*(const floats *)odd, *(const floats *)even);
    store_pairs(to, (pairs)__builtin_shuffle(w, weave), lanes);
}

/* At the edges: copies the block out with zeros around it, in the operand's own order. */
static void copy_edge(float *to, const struct operand *o, int i0, int k0, int k1, int lanes, int ks)
{
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < ks; k++) {
            int inside = i < lanes && i0 + i < o->count && k0 + k < k1;
            size_t at = o->strided ? (size_t)(k0 + k) * o->ld + (size_t)(i0 + i)
                                   : (size_t)(i0 + i) * o->ld + (size_t)(k0 + k);
            to[o->strided ? k * LANES + i : i * ks + k] = inside ? o->x[at] : 0;
        }
}

/* One group of 16 (or 12) neighbours, all k of the slab k0..k1-1, rounded up to 32. */
TARGET FAST_INLINE void pack_group(uint32_t *to, const struct operand *o, int i0, int k0, int k1,
                                   int width, int lanes)
{
    float edge[2 * LANES * LANES];
    int whole = i0 + lanes <= o->count;
    for (int k = k0; k < k1; k += 2 * LANES, to += LANES * width) {
        const float *x = o->x + (size_t)k * (o->strided ? o->ld : 1) +
                         (size_t)i0 * (o->strided ? 1 : o->ld);
        size_t ld = o->ld;
        /* a vector of 16 must not read past the last of 12 either */
        if (!whole || k + 2 * LANES > k1 || (o->strided && i0 + LANES > o->count)) {
            copy_edge(edge, o, i0, k, k1, lanes, 2 * LANES);
            x = edge;
            ld = o->strided ? LANES : 2 * LANES;
        }
        if (!o->strided) pack_k_contiguous(to, x, ld, width, lanes);
        else
            for (int p = 0; p < LANES; p++) {
                const float *even = x + 2 * (size_t)p * ld;
                if (x != edge && k + 2 * p + 32 < k1) __builtin_prefetch(even + 32 * ld);
                if (x != edge && k + 2 * p + 33 < k1) __builtin_prefetch(even + 33 * ld);
                pack_k_strided(to + p * width, even, even + ld, lanes);
            }
    }
}

/* 96 of A: 8 panels of 12, PAIRS * 12 apart. */
TARGET static void pack_a(uint32_t *to, const struct operand *o, int i0, int k0, int k1)
{
    if (!o->strided)
        for (int j = 0; j < PACK_WIDTH / MR; j++)
            pack_group(to + j * PAIRS * MR, o, i0 + j * MR, k0, k1, MR, MR);
    else /* 32 k of all panels, then the next 32, so that each cache line is used completely */
        for (int k = k0; k < k1; k += 2 * LANES)
            for (int j = 0; j < PACK_WIDTH / MR; j++)
                pack_group(to + j * PAIRS * MR + (k - k0) / 2 * MR, o, i0 + j * MR, k,
                           k + 2 * LANES < k1 ? k + 2 * LANES : k1, MR, MR);
}

/* 96 of B: 3 panels of 32, PAIRS * 32 apart. */
TARGET static void pack_b(uint32_t *to, const struct operand *o, int i0, int k0, int k1)
{
    int step = o->strided ? 2 * LANES : k1 - k0;
    for (int k = k0; k < k1; k += step)
        for (int j = 0; j < PACK_WIDTH / LANES; j++)
            pack_group(to + j / 2 * PAIRS * NR + (k - k0) / 2 * NR + j % 2 * LANES, o,
                       i0 + j * LANES, k, k + step < k1 ? k + step : k1, NR, LANES);
}

/* ---- the tile ---- */

/* c = from + the GEMM. `from` is the bias or zeros (from_ld 0: the same for every row), or c
 * itself. */
TARGET static void micro_kernel(float *c, size_t ldc, const float *from, size_t from_ld,
                                const uint32_t *a, const uint32_t *b, int steps, int rows, int cols)
{
    floats sum[MR][2];
    float edge[MR][NR];
    int whole = rows == MR && cols == NR;
    _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++)
    {
        sum[i][0] = sum[i][1] = (floats){ 0 };
        __builtin_prefetch(c + (size_t)i * ldc, 1); /* needed after the loop */
        __builtin_prefetch(c + (size_t)i * ldc + LANES, 1);
    }
    for (int p = 0; p < steps; p++, a += MR, b += NR) {
        pairs b0 = *(const pairs *)b, b1 = *(const pairs *)(b + LANES);
        _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++)
        {
            pairs x = a[i] + (pairs){ 0 };
            sum[i][0] = add_dots(sum[i][0], x, b0);
            sum[i][1] = add_dots(sum[i][1], x, b1);
        }
    }
    if (whole) {
        _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++, c += ldc, from += from_ld)
        {
            *(floats *)c = *(const floats *)from + sum[i][0];
            *(floats *)(c + LANES) = *(const floats *)(from + LANES) + sum[i][1];
        }
        return;
    }
    memcpy(edge, sum, sizeof edge);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            c[(size_t)i * ldc + (size_t)j] = from[(size_t)i * from_ld + (size_t)j] + edge[i][j];
}
#define K_STEP (2 * LANES)
#endif

/* Rows i0..i1-1 of the result against 96 packed columns from j0. */
static void multiply_columns(float *c, int n, const float *bias, int add, const uint32_t *a,
                             const uint32_t *b, int i0, int i1, int j0, int k)
{
    static const float zeros[NR];
    size_t ld = (size_t)n;
    int steps = (k + K_STEP - 1) / K_STEP * (K_STEP / 2), tiles = (i1 - i0 + MR - 1) / MR;
    for (int j = j0; j < j0 + PACK_WIDTH && j < n; j += NR) {
        const uint32_t *panel = b + (size_t)((j - j0) / NR) * PAIRS * NR;
        int line = 0, ahead = j + NR < j0 + PACK_WIDTH ? 2 * steps : 0;
        for (int t = 0; t < tiles; t++) {
            int i = i0 + t * MR;
            float *to = c + (size_t)i * ld + (size_t)j;
            const float *from = add ? to : bias ? bias + j : zeros;
            /* prefetch the next panel into L2, spread over this panel's tiles */
            for (; line < (t + 1) * ahead / tiles; line++)
                __builtin_prefetch(panel + (size_t)PAIRS * NR + (size_t)line * 16);
            micro_kernel(to, ld, from, add ? ld : 0, a + (size_t)(i / MR) * PAIRS * MR, panel,
                         steps, i1 - i < MR ? i1 - i : MR, n - j < NR ? n - j : NR);
        }
    }
}

int fast_gemm_bf16(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                   int ldb, const float *bias, int add, float *c)
{
    struct operand A = { a, (size_t)lda, ta, m }, B = { b, (size_t)ldb, !tb, n };
    int down = (m + PACK_WIDTH - 1) / PACK_WIDTH, across = (n + PACK_WIDTH - 1) / PACK_WIDTH,
        failed = 0;
    int parts = (16 + across - 1) /
                across; /* rows are split only if columns alone would not occupy all threads */
    uint32_t *packed = (uint32_t *)(void *)fast_scratch_alloc((size_t)down * PACK_WIDTH * PAIRS);
    /* packing B again pays off from 192 rows on */
    if (parts > (down + 1) / 2) parts = (down + 1) / 2;
    if (!packed) return PL_ENOMEM;
#pragma omp parallel num_threads(fast_threads()) if ((double)m * n * k > 2e6)
    {
        uint32_t *own = (uint32_t *)(void *)fast_scratch_alloc((size_t)PACK_WIDTH * PAIRS);
        for (int k0 = 0; k0 < k; k0 += KC) {
            int k1 = k - k0 < KC ? k : k0 + KC;
#pragma omp for schedule(dynamic, 1)
            for (int i = 0; i < down; i++)
                pack_a(packed + (size_t)i * PACK_WIDTH * PAIRS, &A, i * PACK_WIDTH, k0, k1);
#pragma omp for schedule(dynamic, 1)
            for (int t = 0; t < across * parts; t++) {
                int unit = t / parts, part = t % parts, each = (down + parts - 1) / parts;
                int i0 = part * each * PACK_WIDTH,
                    i1 = i0 + each * PACK_WIDTH < m ? i0 + each * PACK_WIDTH : m;
                if (!own || i0 >= i1) continue;
                pack_b(own, &B, unit * PACK_WIDTH, k0, k1);
                multiply_columns(c, n, bias, k0 > 0 || add, packed, own, i0, i1, unit * PACK_WIDTH,
                                 k1 - k0);
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
#else
int fast_gemm_bf16(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                   int ldb, const float *bias, int add, float *c)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb;
    (void)bias, (void)add, (void)c;
    return PL_EDEVICE;
}
#endif
