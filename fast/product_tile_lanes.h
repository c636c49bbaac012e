/* product_tile_lanes.h - one tile of a product whose operands lie in the caches.
 *
 * A tile of C, TILE rows by two registers, stays in registers over the whole inner dimension: each
 * step loads two registers of B and spreads TILE numbers of A. */

#undef TILE
#if LANES == 16
#define TILE 8 /* 16 sums of 32 registers: 8 would hide the latency of the multiply-add */
#else
#define TILE 6 /* 12 sums, two of B and one of A fill 16 registers */
#endif
#define PANEL (2 * LANES)
#define one_size_tile ISA(one_size_tile)
#define product_tile ISA(product_tile)

/* `rows` and `registers` are constants where this is inlined. */
LANE void one_size_tile(int rows, int registers, float *c, ptrdiff_t c_row, const float *a,
                        ptrdiff_t a_row, ptrdiff_t a_step, const float *b, ptrdiff_t b_step, int k,
                        int add)
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
LANE void product_tile(int rows, int registers, float *c, ptrdiff_t c_row, const float *a,
                       ptrdiff_t a_row, ptrdiff_t a_step, const float *b, ptrdiff_t b_step, int k,
                       int add)
{
#define CASE(r)                                                                       \
    case r:                                                                           \
        if (registers > 1) one_size_tile(r, 2, c, c_row, a, a_row, a_step, b, b_step, k, add); \
        else one_size_tile(r, 1, c, c_row, a, a_row, a_step, b, b_step, k, add);               \
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
