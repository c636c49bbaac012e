/* product.c - float32 products on AVX2. With the demo's sizes, operands not in the caches: 81 to 89 of
 * 100 GF/s where OpenBLAS gets 69 to 81, because less is copied.
 *
 * A tile of the result is 6 x 16: 12 registers of sums, 2 of B, one number of A at a time. B is
 * packed into panels of 16 columns, [k][16], a slab of 256 k at a time, so a panel (16 KiB) stays in
 * the first cache while rows of A pass. A is read where it lies, its next rows fetched meanwhile,
 * unless it is stored transposed: then 24 rows at a time are packed as [k][6]. Bias or older values
 * join a tile when it is stored, so there is no pass over the result before or after.
 *
 * Each element is summed over k in one order, by the sizes alone. */
#include "fast.h"
#include "isa.h"

#include <cblas.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
#define ROWS 6
#define COLS 16
#define SLAB 256
#define WIDE 256 /* columns of B that are packed at a time: 256 KiB, half of a second cache */
#define GROUP 64 /* columns of B that are packed together where its lines are long */
#define PITCH (ROWS * SLAB + 16) /* between packed tiles; a register carries two floats over */
#define BLOCK 24 /* rows of A that go through all panels together: 24 KiB */

/* `rows` of the result, against one panel: c = from + products. from_ld 0: every row begins alike. */
TARGET FAST_INLINE void tile(int rows, int packed, float *c, size_t ldc, const float *from,
                             size_t from_ld, const float *a, size_t row, const float *b, int k)
{
    __m256 sum[ROWS][2];
    const float *a3 = a + 3 * row; /* two pointers reach six rows by scaled offsets */
    _Pragma("GCC unroll 6")
    for (int r = 0; r < rows; r++) {
        sum[r][0] = sum[r][1] = _mm256_setzero_ps();
        __builtin_prefetch(c + (size_t)r * ldc, 1); /* wanted behind the loop */
        __builtin_prefetch(c + (size_t)r * ldc + COLS - 1, 1);
    }
    for (int i = 0; i < k; i++, b += COLS, a += packed ? ROWS : 1, a3 += 1) {
        __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
        _Pragma("GCC unroll 6")
        for (int r = 0; r < rows; r++) {
            const float *p = packed  ? a + r
                             : r < 3 ? a + (size_t)r * row
                                     : a3 + (size_t)(r - 3) * row;
            __m256 x = _mm256_broadcast_ss(p);
            sum[r][0] = _mm256_fmadd_ps(x, b0, sum[r][0]);
            sum[r][1] = _mm256_fmadd_ps(x, b1, sum[r][1]);
        }
    }
    _Pragma("GCC unroll 6")
    for (int r = 0; r < rows; r++) {
        const float *f = from + (size_t)r * from_ld;
        _mm256_storeu_ps(c + (size_t)r * ldc, _mm256_add_ps(sum[r][0], _mm256_loadu_ps(f)));
        _mm256_storeu_ps(c + (size_t)r * ldc + 8, _mm256_add_ps(sum[r][1], _mm256_loadu_ps(f + 8)));
    }
}

/* Any number of rows up to six. */
TARGET FAST_INLINE void tiles(int rows, int packed, float *c, size_t ldc, const float *from,
                              size_t from_ld, const float *a, size_t row, const float *b, int k)
{
    switch (rows) {
    case 1: tile(1, packed, c, ldc, from, from_ld, a, row, b, k); break;
    case 2: tile(2, packed, c, ldc, from, from_ld, a, row, b, k); break;
    case 3: tile(3, packed, c, ldc, from, from_ld, a, row, b, k); break;
    case 4: tile(4, packed, c, ldc, from, from_ld, a, row, b, k); break;
    case 5: tile(5, packed, c, ldc, from, from_ld, a, row, b, k); break;
    case 6: tile(6, packed, c, ldc, from, from_ld, a, row, b, k); break;
    }
}

TARGET static void direct_tiles(int rows, float *c, size_t ldc, const float *from, size_t from_ld,
                                const float *a, size_t row, const float *b, int k)
{
    tiles(rows, 0, c, ldc, from, from_ld, a, row, b, k);
}

TARGET static void packed_tiles(int rows, float *c, size_t ldc, const float *from, size_t from_ld,
                                const float *a, const float *b, int k)
{
    tiles(rows, 1, c, ldc, from, from_ld, a, 0, b, k);
}

TARGET FAST_INLINE __m256 both(__m128 low, __m128 high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}

/* 8 x 8: to[i * COLS + j] = from[j * ld + i]. */
TARGET FAST_INLINE void transpose(float *to, const float *from, size_t ld)
{
    __m256 r[8], s[8];
    _Pragma("GCC unroll 4")
    for (int i = 0; i < 4; i++) { /* rows i and i+4 share a register: the halves need no exchange */
        const float *low = from + (size_t)i * ld, *high = from + (size_t)(i + 4) * ld;
        r[i] = both(_mm_loadu_ps(low), _mm_loadu_ps(high));
        r[i + 4] = both(_mm_loadu_ps(low + 4), _mm_loadu_ps(high + 4));
    }
    _Pragma("GCC unroll 2")
    for (int h = 0; h < 8; h += 4) {
        s[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
        s[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
        s[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
        s[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
        _mm256_store_ps(to + (h + 0) * COLS, _mm256_shuffle_ps(s[h], s[h + 2], 0x44));
        _mm256_store_ps(to + (h + 1) * COLS, _mm256_shuffle_ps(s[h], s[h + 2], 0xEE));
        _mm256_store_ps(to + (h + 2) * COLS, _mm256_shuffle_ps(s[h + 1], s[h + 3], 0x44));
        _mm256_store_ps(to + (h + 3) * COLS, _mm256_shuffle_ps(s[h + 1], s[h + 3], 0xEE));
    }
}

/* B's columns 0..n-1, k rows, as panels SLAB * 16 apart, zeros behind the last column. */
TARGET static void pack_lines(float *to, const float *b, size_t ld, int n, int k)
{
    for (int j0 = 0; j0 < n; j0 += GROUP) {
        int end = n - j0 < GROUP ? n : j0 + GROUP;
        for (int q = 0; q < k; q++) {
            const float *line = b + (size_t)q * ld;
            for (int j = j0; j < end; j += COLS) {
                float *at = to + (size_t)j * SLAB + q * COLS;
                if (j + COLS <= n) {
                    _mm256_store_ps(at, _mm256_loadu_ps(line + j));
                    _mm256_store_ps(at + 8, _mm256_loadu_ps(line + j + 8));
                } else
                    for (int c = 0; c < COLS; c++) at[c] = j + c < n ? line[j + c] : 0;
            }
        }
    }
}

/* The same of a B that is stored with a line per column, as the weights of y = x W^T are. */
TARGET static void pack_turned(float *to, const float *b, size_t ld, int n, int k)
{
    for (int j = 0; j < n; j += 8) {
        const float *line = b + (size_t)j * ld;
        float *at = to + (size_t)(j / COLS) * COLS * SLAB + j % COLS;
        int q = 0;
        if (j + 8 <= n)
            for (; q + 8 <= k; q += 8) transpose(at + q * COLS, line + q, ld);
        for (; q < k; q++)
            for (int c = 0; c < 8; c++)
                at[q * COLS + c] = j + c < n ? line[(size_t)c * ld + (size_t)q] : 0;
        if (n - j <= 8 && j % COLS == 0) /* the other half of the last panel */
            for (q = 0; q < k; q++) memset(at + q * COLS + 8, 0, 8 * sizeof *at);
    }
}

/* Rows that a tile takes when `left` are left: never one alone if it can be helped, for a tile of few
 * rows waits for its own sums. */
static int take_rows(int left)
{
    int count = (left + ROWS - 1) / ROWS;
    return (left + count - 1) / count;
}

/* `rows` <= 48 of A, which is stored with a line per k: tile after tile as [k][6]. All tiles of one k
 * before the next k, for a long line's neighbours are worth having only once. A register carries two
 * floats too many, which the next k's overwrite; `spare`: there are two to be read behind the rows. */
TARGET static void pack_rows(float *to, const float *a, size_t ld, int rows, int k, int spare)
{
    for (int q = 0; q < k; q++, a += ld) {
        float *at = to + q * ROWS;
        int i = 0;
        __builtin_prefetch(a + BLOCK); /* the next block's */
        __builtin_prefetch(a + 2 * BLOCK - 1);
        if (rows == BLOCK && spare)
            _Pragma("GCC unroll 8")
            for (; i < BLOCK; i += ROWS, at += PITCH) _mm256_storeu_ps(at, _mm256_loadu_ps(a + i));
        for (int count; i < rows; i += count, at += PITCH) {
            count = take_rows(rows - i);
            for (int r = 0; r < count; r++) at[r] = a[i + r];
        }
    }
}

struct result {
    float *c;
    size_t ldc;
    const float *bias; /* or NULL */
    int add;           /* to what c holds */
};

/* One panel's columns of one tile, cut off at the border where there is one. */
static void one_tile(const struct result *y, int i, int j, int rows, int cols, const float *a,
                     size_t row, int packed, const float *panel, int k)
{
    static const float zeros[COLS];
    float *c = y->c + (size_t)i * y->ldc + (size_t)j, *to = c, edge[ROWS * COLS];
    const float *from = y->add ? c : y->bias ? y->bias + j : zeros;
    size_t from_ld = y->add ? y->ldc : 0, to_ld = y->ldc;
    if (cols < COLS) {
        for (int r = 0; r < rows; r++)
            for (int q = 0; q < COLS; q++)
                edge[r * COLS + q] = q < cols ? from[(size_t)r * from_ld + (size_t)q] : 0;
        from = to = edge;
        from_ld = to_ld = COLS;
    }
    if (packed) packed_tiles(rows, to, to_ld, from, from_ld, a, panel, k);
    else direct_tiles(rows, to, to_ld, from, from_ld, a, row, panel, k);
    for (int r = 0; to != c && r < rows; r++)
        memcpy(c + (size_t)r * y->ldc, edge + r * COLS, (size_t)cols * sizeof *c);
}

/* Share `part` of `parts` of fetching `rows` rows of A from i on: their first use is not far. */
static void fetch_share(const float *a, size_t lda, int i, int rows, int k, int part, int parts)
{
    int lines = (k + 15) / 16, from = rows * part / parts, to = rows * (part + 1) / parts;
    for (const float *row = a + (size_t)(i + from) * lda; from < to; from++, row += lda)
        for (int x = 0; x < lines; x++) __builtin_prefetch(row + x * 16);
}

/* One slab of k, some columns, all rows. */
static void slab_product(int ta, int tb, int m, int n, int k, const float *a, size_t lda,
                         const float *b, size_t ldb, const struct result *y, float *panels,
                         float *six)
{
    if (tb) pack_turned(panels, b, ldb, n, k);
    else pack_lines(panels, b, ldb, n, k);
    for (int i0 = 0; i0 < m; i0 += BLOCK) {
        int end = m - i0 < BLOCK ? m : i0 + BLOCK, next = m - end < BLOCK ? m - end : BLOCK;
        if (ta) pack_rows(six, a + i0, lda, end - i0, k, end + 2 <= m);
        for (int j = 0; j < n; j += COLS) {
            const float *panel = panels + (size_t)j * SLAB;
            if (!ta) fetch_share(a, lda, end, next, k, j / COLS, (n + COLS - 1) / COLS);
            for (int i = i0, t = 0, rows; i < end; i += rows, t++) {
                const float *from = ta ? six + t * PITCH : a + (size_t)i * lda;
                rows = take_rows(end - i);
                one_tile(y, i, j, rows, n - j < COLS ? n - j : COLS, from, lda, ta, panel, k);
            }
        }
    }
}

static void product_avx2(int ta, int tb, int m, int n, int k, const float *a, size_t lda,
                         const float *b, size_t ldb, const struct result *whole, float *panels,
                         float *six)
{
    int groups = fast_pieces(n, WIDE), slabs = fast_pieces(k, SLAB);
    for (int g = 0; g < groups; g++) {
        struct fast_piece q = fast_piece(n, WIDE, COLS, g);
        struct result y = *whole;
        y.c += q.start;
        if (y.bias) y.bias += q.start;
        for (int s = 0; s < slabs && q.count; s++, y.add = 1) {
            struct fast_piece p = fast_piece(k, SLAB, 8, s);
            size_t at = (size_t)p.start, j = (size_t)q.start;
            if (p.count)
                slab_product(ta, tb, m, q.count, p.count, a + (ta ? at * lda : at), lda,
                             b + (tb ? j * ldb + at : at * ldb + j), ldb, &y, panels, six);
        }
    }
}
#endif

static void product_blas(int ta, int tb, int m, int n, int k, const float *a, int lda,
                         const float *b, int ldb, const struct result *y)
{
    for (int i = 0; y->bias && i < m; i++)
        memcpy(y->c + (size_t)i * y->ldc, y->bias, (size_t)n * sizeof *y->c);
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n,
                k, 1, a, lda, b, ldb, y->bias || y->add ? 1 : 0, y->c, (int)y->ldc);
}

void fast_product(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                  int ldb, const float *bias, int add, float *c, int ldc)
{
    struct result y = { c, (size_t)ldc, bias, add };
#if defined(__x86_64__) && defined(__GNUC__)
    /* On AVX-512 OpenBLAS' kernels reach 85 to 90 % of the peak: nothing to gain. */
    if (isa_chosen() == ISA_AVX2) {
        size_t wide = (size_t)(n < WIDE ? (n + COLS - 1) / COLS * COLS : WIDE) * SLAB;
        float *panels = fast_take(wide + (ta ? BLOCK / ROWS * PITCH : 0));
        if (panels) {
            product_avx2(ta, tb, m, n, k, a, (size_t)lda, b, (size_t)ldb, &y, panels,
                         panels + wide);
            fast_give(panels);
            return;
        }
    }
#endif
    product_blas(ta, tb, m, n, k, a, lda, b, ldb, &y);
}
