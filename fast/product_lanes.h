/* product_lanes.h - small matrix products whose operands lie in the caches, for attention: a BLAS
 * would spend longer on packing them than on multiplying.
 *
 * A tile of C, TILE rows by two registers, stays in registers over the whole inner dimension: each
 * step loads two registers of B and spreads TILE numbers of A. */

#if LANES == 16
#define TILE 8 /* 16 sums of 32 registers: 8 would hide the latency of the multiply-add */
#else
#define TILE 6 /* 12 sums, two of B and one of A fill 16 registers */
#endif
#define PANEL (2 * LANES)
#define product ISA(product)
#define product_transposed ISA(product_transposed)
#define tile ISA(tile)
#define tiles ISA(tiles)
#define matrix ISA(matrix)

/* B in panels of PANEL columns: `step` floats from row to row, `panel` floats from panel to panel.
 * Rows of plain storage have panel = PANEL. */
struct ISA(matrix) {
    const float *at;
    ptrdiff_t step, panel;
};

LANE void tile(int rows, int registers, float *c, ptrdiff_t c_row, const float *a, ptrdiff_t a_row,
               ptrdiff_t a_step, const float *b, ptrdiff_t b_step, int k, int add)
{
    vec sum[TILE][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < registers; v++) sum[r][v] = all(0);
    for (int i = 0; i < k; i++, a += a_step, b += b_step) {
        vec b0 = load(b), b1 = registers > 1 ? load(b + LANES) : b0;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vec x = all(a[r * a_row]);
            sum[r][0] = fma(x, b0, sum[r][0]);
            if (registers > 1) sum[r][1] = fma(x, b1, sum[r][1]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < registers; v++) {
            float *p = c + r * c_row + v * LANES;
            store(p, add ? load(p) + sum[r][v] : sum[r][v]);
        }
}

/* One tile with as many rows and registers as are left. */
LANE void tiles(int rows, int registers, float *c, ptrdiff_t c_row, const float *a, ptrdiff_t a_row,
                ptrdiff_t a_step, const float *b, ptrdiff_t b_step, int k, int add)
{
#define CASE(r)                                                                       \
    case r:                                                                           \
        if (registers > 1) tile(r, 2, c, c_row, a, a_row, a_step, b, b_step, k, add); \
        else tile(r, 1, c, c_row, a, a_row, a_step, b, b_step, k, add);               \
        break;
    switch (rows) {
        CASE(1)
        CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if TILE == 8
            CASE(7) CASE(8)
#endif
    }
#undef CASE
}

/* C (m,n) = A (m,k) B (k,n), or with `add` C += A B; n is a multiple of LANES. Panels outside: one
 * panel of B stays in the first cache while A passes. Rows are dealt out evenly, because tiles of
 * few rows wait for their own sums. */
static void product(float *c, ptrdiff_t c_row, const float *a, ptrdiff_t a_row, struct matrix b,
                    int m, int n, int k, int add)
{
    int count = (m + TILE - 1) / TILE;
    for (int j = 0; j < n; j += PANEL)
        for (int x = 0, i = 0; x < count; x++) {
            int rows = (m - i + count - x - 1) / (count - x);
            tiles(rows, (n - j) / LANES, c + i * c_row + j, c_row, a + i * a_row, a_row, 1,
                  b.at + j / PANEL * b.panel, b.step, k, add);
            i += rows;
        }
}

/* C (m,n) += A^T B with A (k,m). Rows of C outside: a few columns of A stay in the cache. */
static void product_transposed(float *c, ptrdiff_t c_row, const float *a, ptrdiff_t a_row,
                               struct matrix b, int m, int n, int k)
{
    int count = (m + TILE - 1) / TILE;
    for (int x = 0, i = 0; x < count; x++) {
        int rows = (m - i + count - x - 1) / (count - x);
        for (int j = 0; j < n; j += PANEL)
            tiles(rows, (n - j) / LANES, c + i * c_row + j, c_row, a + i, 1, a_row,
                  b.at + j / PANEL * b.panel, b.step, k, 1);
        i += rows;
    }
}
#undef TILE
