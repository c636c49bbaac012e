/* linear.c - the linear layer: a GEMM in tiles of the result, one thread each. Tiles of about 640 x
 * 512 occupy many cores; an even number of them divides evenly. Each tile packs its columns of B,
 * so with few threads tiles are taller; no boundary of a tile enters a sum. A weight gradient has
 * few rows and columns but a long sum, so the sum is split too (split-k), and the parts are added
 * in order: their boundaries depend on the sizes alone.
 *
 * With a few rows (generation) the GEMM only reads W once, and packing W would cost more than
 * multiplying: these go to gemm_skinny.c. In bfloat16 the panels that packed_weights.c keeps have
 * half as many bytes. */
#include "fast.h"
#include "vector_math.h"

#define ROWS 640
#define COLS 512
#define TILES 4            /* tiles for each thread, at least, before they become taller */
#define TASKS 8            /* tiles or parts per GEMM, at least, if its sum is long enough */
#define TERMS 256          /* terms in a part of a sum, at least */
#define SLOT_MAX (1 << 19) /* floats of a result that may be held several times */
#define ROUND 65536        /* floats rounded at a time */
#define SMALL 100000.0     /* multiply-adds below which waking threads costs more than it saves */

/* The address of row i of an operand, or of column i if it is stored transposed. */
static const float *operand_at(const float *x, int transposed, int row, int i)
{
    return x + (transposed ? (size_t)i : (size_t)i * (size_t)row);
}

static int even(int n) { return n > 1 ? n + n % 2 : n; }

/* Tiles of a result. */
struct grid {
    int down, across;
};

static struct grid grid_of(int m, int n)
{
    return (struct grid){ even(fast_chunk_count(m, ROWS)), even(fast_chunk_count(n, COLS)) };
}

/* Fewer and taller tiles, as far as they occupy this many threads. */
static struct grid taller(struct grid g, int threads)
{
    int least = threads > 1 ? TILES * threads : 1;
    while (g.down % 2 == 0 && g.down / 2 * g.across >= least) g.down /= 2;
    return g;
}

/* The whole GEMM (m,n) in tiles. bias (n) or NULL; add is ignored if there is a bias. */
static void gemm_float32(int ta, int tb, int m, int n, int k, const float *a, int lda,
                         const float *b, int ldb, const float *bias, int add, float *c)
{
    struct grid g = taller(grid_of(m, n), fast_threads());
#pragma omp parallel for schedule(dynamic, 1) \
    num_threads(fast_threads()) if ((double)m * n * k > SMALL)
    for (int i = 0; i < g.down * g.across; i++) {
        struct fast_range r = fast_split(m, g.down, 16, i % g.down);
        struct fast_range q = fast_split(n, g.across, 32, i / g.down);
        float *to = c + (size_t)r.start * (size_t)n + (size_t)q.start;
        if (!r.count || !q.count) continue;
        fast_gemm(ta, tb, r.count, q.count, k, operand_at(a, ta, lda, r.start), lda,
                  operand_at(b, !tb, ldb, q.start), ldb, bias ? bias + q.start : NULL, add, to, n);
    }
}

void fast_add_slots(float *to, const float *slots, size_t stride, size_t n, int count)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > ROUND / 4)
    for (size_t i = 0; i < n; i += TERMS)
        for (int s = 0; s < count; s++) {
            const float *from = slots + (size_t)s * stride;
            for (size_t k = i; k < n && k < i + TERMS; k++) to[k] += from[k];
        }
}

/* c (m,n) += A^T B, a (k,m), b (k,n), with the sum over k in parts. */
static int gemm_split_k(int m, int n, int k, const float *a, const float *b, float *c)
{
    struct grid g = grid_of(m, n);
    size_t size = (size_t)m * (size_t)n;
    int tiles = g.down * g.across, slots = size > SLOT_MAX ? 1 : TASKS / tiles, most = k / TERMS;
    float *sums = NULL;
    if (slots > most) slots = most;
    if (slots < 2) {
        gemm_float32(1, 0, m, n, k, a, m, b, n, NULL, 1, c);
        return PL_OK;
    }
    if (!(sums = fast_scratch_alloc((size_t)(slots - 1) * size))) return PL_ENOMEM;
#pragma omp parallel for schedule(dynamic, 1) num_threads(fast_threads())
    for (int i = 0; i < tiles * slots; i++) {
        int tile = i % tiles, slot = i / tiles;
        struct fast_range r = fast_split(m, g.down, 16, tile % g.down);
        struct fast_range q = fast_split(n, g.across, 32, tile / g.down),
                          t = fast_split(k, slots, 16, slot);
        float *to = slot ? sums + (size_t)(slot - 1) * size : c;
        if (r.count && q.count) /* the first part adds to c directly */
            fast_gemm(1, 0, r.count, q.count, t.count, a + (size_t)t.start * (size_t)m + r.start, m,
                      b + (size_t)t.start * (size_t)n + q.start, n, NULL, slot == 0,
                      to + (size_t)r.start * (size_t)n + q.start, n);
    }
    fast_add_slots(c, sums, size, size, slots - 1);
    fast_scratch_free(sums);
    return PL_OK;
}

/* To bfloat16 and back. */
FAST_CLONES static void round_some(float *to, const float *from, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = fast_bits((int32_t)fast_bf16_bits(from[i]));
}

static void round_all(float *to, const float *from, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > 4 * ROUND)
    for (size_t i = 0; i < n; i += ROUND)
        round_some(to + i, from + i, n - i < ROUND ? n - i : ROUND);
}

/* bfloat16 GEMM on a CPU without the instruction: no faster, but the same numbers. */
static int gemm_rounded(int ta, int tb, int m, int n, int k, const float *a, int lda,
                        const float *b, int ldb, const float *bias, int add, float *c)
{
    size_t mk = (size_t)m * (size_t)k, nk = (size_t)n * (size_t)k;
    float *ra = fast_scratch_alloc(mk), *rb = fast_scratch_alloc(nk);
    int rc = ra && rb ? PL_OK : PL_ENOMEM;
    if (rc == PL_OK) {
        round_all(ra, a, mk);
        round_all(rb, b, nk);
        gemm_float32(ta, tb, m, n, k, ra, lda, rb, ldb, bias, add, c);
    }
    fast_scratch_free(ra);
    fast_scratch_free(rb);
    return rc;
}

static int gemm(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                int ldb, const float *bias, int add, float *c)
{
    if (fast_bf16())
        return (fast_has_bf16() ? fast_gemm_bf16 : gemm_rounded)(ta, tb, m, n, k, a, lda, b, ldb,
                                                                 bias, add, c);
    gemm_float32(ta, tb, m, n, k, a, lda, b, ldb, bias, add, c);
    return PL_OK;
}

int fast_linear(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    int by_bf16 = fast_bf16() && fast_has_bf16();
    if (M <= FAST_SKINNY_ROWS && !by_bf16 && fast_gemm_skinny(y, x, W, b, M, K, N)) return PL_OK;
    return gemm(0, 1, M, N, K, x, K, W, K, b, 0, y);
}

int fast_linear_dx(float *dx, const float *dy, const float *W, int M, int K, int N, int add)
{
    return gemm(0, 0, M, K, N, dy, N, W, K, NULL, add, dx);
}

#define SUM_COLS 256
#define SUM_ROWS 64 /* rows summed in float32 before the sum continues in double */

/* db[n] += sum over rows of dy[m][n], for `count` neighbouring columns. */
FAST_CLONES static void column_sums(float *restrict db, const float *restrict dy, int M, int N,
                                    int count)
{
    double total[SUM_COLS] = { 0 };
    for (int m0 = 0; m0 < M; m0 += SUM_ROWS) {
        float sum[SUM_COLS] = { 0 };
        for (int m = m0; m < M && m < m0 + SUM_ROWS; m++) {
            const float *row = dy + (size_t)m * (size_t)N;
#pragma omp simd
            for (int n = 0; n < count; n++) sum[n] += row[n];
        }
        for (int n = 0; n < count; n++) total[n] += sum[n];
    }
    for (int n = 0; n < count; n++) db[n] = (float)(db[n] + total[n]);
}

void fast_column_sums(float *db, const float *dy, int M, int N)
{
#pragma omp parallel for schedule(dynamic, 1) num_threads(fast_threads()) if ((double)M * N > SMALL)
    for (int n = 0; n < N; n += SUM_COLS)
        column_sums(db + n, dy + n, M, N, N - n < SUM_COLS ? N - n : SUM_COLS);
}

int fast_linear_dw(float *dW, float *db, const float *dy, const float *x, int M, int K, int N)
{
    if (db) fast_column_sums(db, dy, M, N);
    if (!fast_bf16()) return gemm_split_k(N, K, M, dy, x, dW);
    return gemm(1, 0, N, K, M, dy, N, x, K, NULL, 1, dW);
}
