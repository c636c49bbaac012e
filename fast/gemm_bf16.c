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
#define MR 12
#define NR 32
#define LANES 16

/* may_alias and aligned: loads of any type from any address. */
typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t pairs __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t words __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));

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

/* 32 neighbours in bfloat16, from element `at` on. */
TARGET FAST_INLINE words load_words(const float *x, const uint16_t *half, size_t at)
{
    if (half) return *(const words *)(half + at);
    return round_two(*(const floats *)(x + at + LANES), *(const floats *)(x + at));
}

/* 32 k of 16 neighbours where k is contiguous, to 16 pairs `width` apart. */
TARGET FAST_INLINE void pack_k_contiguous(uint32_t *to, const float *x, const uint16_t *half,
                                          size_t ld, int width, int lanes)
{
    pairs r[LANES];
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
    {
        if (i < lanes) r[i] = (pairs)load_words(x, half, (size_t)i * ld);
        else r[i] = (pairs){ 0 };
    }
    transpose(r);
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
        store_pairs(to + i * width, r[i], lanes);
}

/* 2 k of 16 neighbours where the neighbours are contiguous, to one pair. */
TARGET FAST_INLINE void pack_k_strided(uint32_t *to, const float *x, const uint16_t *half,
                                       size_t ld, int lanes)
{
    static const words weave = { 0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
    if (half) {
        pairs even = __builtin_convertvector(*(const halves *)half, pairs);
        pairs odd = __builtin_convertvector(*(const halves *)(half + ld), pairs);
        store_pairs(to, even | odd << 16, lanes);
    } else {
        words w = round_two(*(const floats *)(x + ld), *(const floats *)x);
        store_pairs(to, (pairs)__builtin_shuffle(w, weave), lanes);
    }
}

/* At the edges: copies the block out with zeros around it, in the operand's own order. */
static void copy_edge(float *to, const struct operand *o, int i0, int k0, int k1, int lanes, int ks)
{
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < ks; k++) {
            int inside = i < lanes && i0 + i < o->count && k0 + k < k1;
            size_t at = o->strided ? (size_t)(k0 + k) * o->ld + (size_t)(i0 + i)
                                   : (size_t)(i0 + i) * o->ld + (size_t)(k0 + k);
            to[o->strided ? k * LANES + i : i * ks + k] = inside ? element(o, at) : 0;
        }
}

/* One group of 16 (or 12) neighbours, all k of the slab k0..k1-1, rounded up to 32. */
TARGET FAST_INLINE void pack_group_of(uint32_t *to, const struct operand *o, int i0, int k0, int k1,
                                      int width, int lanes, int is_half)
{
    float edge[2 * LANES * LANES];
    int whole = i0 + lanes <= o->count;
    for (int k = k0; k < k1; k += 2 * LANES, to += LANES * width) {
        size_t at = (size_t)k * (o->strided ? o->ld : 1) + (size_t)i0 * (o->strided ? 1 : o->ld);
        size_t ld = o->ld;
        const float *x = is_half ? NULL : o->x + at;
        const uint16_t *half = is_half ? o->half + at : NULL;
        /* a vector of 16 must not read past the last of 12 either */
        if (!whole || k + 2 * LANES > k1 || (o->strided && i0 + LANES > o->count)) {
            copy_edge(edge, o, i0, k, k1, lanes, 2 * LANES);
            x = edge;
            half = NULL;
            ld = o->strided ? LANES : 2 * LANES;
        }
        if (!o->strided) {
            if (half) pack_k_contiguous(to, NULL, half, ld, width, lanes);
            else pack_k_contiguous(to, x, NULL, ld, width, lanes);
            continue;
        }
        for (int p = 0; p < LANES; p++) {
            size_t even = 2 * (size_t)p * ld;
            const char *ahead = half ? (const char *)(half + even + 32 * ld)
                                     : (const char *)(x + even + 32 * ld);
            size_t row = ld * (half ? sizeof *half : sizeof *x);
            if (x != edge && k + 2 * p + 32 < k1) __builtin_prefetch(ahead);
            if (x != edge && k + 2 * p + 33 < k1) __builtin_prefetch(ahead + row);
            if (half) pack_k_strided(to + p * width, NULL, half + even, ld, lanes);
            else pack_k_strided(to + p * width, x + even, NULL, ld, lanes);
        }
    }
}

TARGET FAST_INLINE void pack_group(uint32_t *to, const struct operand *o, int i0, int k0, int k1,
                                   int width, int lanes)
{
    if (o->half) pack_group_of(to, o, i0, k0, k1, width, lanes, 1);
    else pack_group_of(to, o, i0, k0, k1, width, lanes, 0);
}

/* 96 of A: 8 panels of 12, `panel` pairs * 12 apart. */
TARGET static void pack_a(uint32_t *to, const struct operand *o, int i0, int k0, int k1, int panel)
{
    if (!o->strided)
        for (int j = 0; j < PACK_WIDTH / MR; j++)
            pack_group(to + j * panel * MR, o, i0 + j * MR, k0, k1, MR, MR);
    else /* 32 k of all panels, then the next 32, so that each cache line is used completely */
        for (int k = k0; k < k1; k += 2 * LANES)
            for (int j = 0; j < PACK_WIDTH / MR; j++)
                pack_group(to + j * panel * MR + (k - k0) / 2 * MR, o, i0 + j * MR, k,
                           k + 2 * LANES < k1 ? k + 2 * LANES : k1, MR, MR);
}

/* 96 of B: 3 panels of 32, `panel` pairs * 32 apart. apart: from the first 16 columns of a panel to
 * the second, and each panel begins 16 columns behind the last one's; or 0: 32 neighbours. */
TARGET static void pack_b(uint32_t *to, const struct operand *o, int i0, int k0, int k1, int panel,
                          int apart)
{
    int step = o->strided ? 2 * LANES : k1 - k0;
    for (int k = k0; k < k1; k += step)
        for (int j = 0; j < PACK_WIDTH / LANES; j++) {
            int column = apart ? i0 + j / 2 * LANES + j % 2 * apart : i0 + j * LANES;
            pack_group(to + j / 2 * panel * NR + (k - k0) / 2 * NR + j % 2 * LANES, o, column, k,
                       k + step < k1 ? k + step : k1, NR, LANES);
        }
}

/* ---- the tile ---- */

/* Sums of all products of 12 rows and 32 columns. */
TARGET FAST_INLINE void sum_tile(floats sum[MR][2], const uint32_t *a, const uint32_t *b, int steps)
{
    _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++) sum[i][0] = sum[i][1] = (floats){ 0 };
    for (int p = 0; p < steps; p++, a += MR, b += NR) {
        pairs b0 = *(const pairs *)b, b1 = *(const pairs *)(b + LANES);
        _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++)
        {
            pairs x = a[i] + (pairs){ 0 };
            sum[i][0] = add_dots(sum[i][0], x, b0);
            sum[i][1] = add_dots(sum[i][1], x, b1);
        }
    }
}

/* c = from + the GEMM. `from` is the bias or zeros (from_ld 0: the same for every row), or c
 * itself. */
TARGET static void micro_kernel(float *c, size_t ldc, const float *from, size_t from_ld,
                                const uint32_t *a, const uint32_t *b, int steps, int rows, int cols)
{
    floats sum[MR][2];
    float edge[MR][NR];
    _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++) /* needed after the loop */
    {
        __builtin_prefetch(c + (size_t)i * ldc, 1);
        __builtin_prefetch(c + (size_t)i * ldc + LANES, 1);
    }
    sum_tile(sum, a, b, steps);
    if (rows == MR && cols == NR) {
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

/* c = the GEMM, rounded; cols a multiple of 16. */
TARGET static void micro_kernel_round(uint16_t *c, size_t ldc, const uint32_t *a, const uint32_t *b,
                                      int steps, int rows, int cols)
{
    floats sum[MR][2];
    words to[MR];
    sum_tile(sum, a, b, steps);
    _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++) to[i] = round_two(sum[i][1], sum[i][0]);
    for (int i = 0; i < rows; i++, c += ldc) memcpy(c, &to[i], (size_t)cols * sizeof *c);
}

/* 16 floats to bfloat16. */
TARGET FAST_INLINE void store_rounded(uint16_t *to, const float *from)
{
    words w = round_two(*(const floats *)from, *(const floats *)from);
    memcpy(to, &w, LANES * sizeof *to);
}

/* h = u gelu(g) of 16 channels. */
TARGET FAST_INLINE void gate_forward(uint16_t *h, const float *u, const float *g)
{
    float y[LANES];
#pragma omp simd
    for (int c = 0; c < LANES; c++) y[c] = u[c] * g[c] * fast_normal_cdf(g[c]);
    store_rounded(h, y);
}

/* The same with the gradients at dh: du = dh gelu(g), dg = dh u gelu'(g), also added to their
 * sums. */
TARGET FAST_INLINE void gate_backward(uint16_t *h, uint16_t *du, uint16_t *dg, float *sum_u,
                                      float *sum_g, const float *dh, const float *u, const float *g)
{
    float y[LANES], yu[LANES], yg[LANES];
#pragma omp simd
    for (int c = 0; c < LANES; c++) {
        float cdf = fast_normal_cdf(g[c]), slope = fast_fma(g[c], fast_normal_pdf(g[c]), cdf);
        float gated = g[c] * cdf;
        y[c] = u[c] * gated;
        yu[c] = dh[c] * gated;
        yg[c] = dh[c] * u[c] * slope;
        sum_u[c] += yu[c];
        sum_g[c] += yg[c];
    }
    store_rounded(h, y);
    store_rounded(du, yu);
    store_rounded(dg, yg);
}

/* The gate as a tile's end. The tile's columns are 16 channels of u and the same of g (z's gate),
 * or 32 channels of dh where z was saved (dh's gate). `row` and `channel` are the tile's first;
 * sums: where this part of the rows adds up dz. */
TARGET static void tile_of_z(const struct fast_bf16_gate *e, const float *bias, int row,
                             int channel, float *sums, const uint32_t *a, const uint32_t *b,
                             int steps, int rows)
{
    floats sum[MR][2];
    size_t C = (size_t)e->C, at = (size_t)row * C + (size_t)channel;
    size_t at_z = at + (size_t)row * C;
    floats bias_u = *(const floats *)(bias + channel);
    floats bias_g = *(const floats *)(bias + e->C + channel);
    float z[MR][2][LANES];
    for (int i = 0; e->dh && i < MR; i++) __builtin_prefetch(e->dh + at + (size_t)i * C);
    sum_tile(sum, a, b, steps);
    _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++)
    {
        *(floats *)z[i][0] = sum[i][0] + bias_u;
        *(floats *)z[i][1] = sum[i][1] + bias_g;
    }
    for (int i = 0; i < rows; i++, at += C, at_z += 2 * C) {
        if (e->dh) {
            float dh[LANES];
            *(pairs *)dh = __builtin_convertvector(*(const halves *)(e->dh + at), pairs) << 16;
            gate_backward(e->h + at, e->dz + at_z, e->dz + at_z + C, sums + channel,
                          sums + e->C + channel, dh, z[i][0], z[i][1]);
            continue;
        }
        gate_forward(e->h + at, z[i][0], z[i][1]);
        if (e->z) {
            memcpy(e->z + at_z, z[i][0], sizeof z[i][0]);
            memcpy(e->z + at_z + C, z[i][1], sizeof z[i][1]);
        }
    }
}

TARGET static void tile_of_dh(const struct fast_bf16_gate *e, int row, int channel, float *sums,
                              const uint32_t *a, const uint32_t *b, int steps, int rows, int cols)
{
    floats sum[MR][2];
    size_t C = (size_t)e->C, at = (size_t)row * C + (size_t)channel;
    size_t at_z = at + (size_t)row * C;
    float dh[MR][NR];
    for (int i = 0; i < MR * 2; i++)
        for (int j = 0; j < NR; j += LANES)
            __builtin_prefetch(e->z + at_z + (size_t)i * C + (size_t)j);
    sum_tile(sum, a, b, steps);
    memcpy(dh, sum, sizeof dh);
    for (int i = 0; i < rows; i++, at += C, at_z += 2 * C)
        for (int j = 0; j < cols; j += LANES)
            gate_backward(e->h + at + j, e->dz + at_z + j, e->dz + at_z + C + j, sums + channel + j,
                          sums + e->C + channel + j, dh[i] + j, e->z + at_z + j,
                          e->z + at_z + C + j);
}
#define K_STEP (2 * LANES)
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
