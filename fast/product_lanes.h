/* product_lanes.h - small matrix products whose operands lie in the caches, for attention: a BLAS
 * would spend longer on packing them than on multiplying. */

#include "product_tile_lanes.h"

#define matrix ISA(matrix)
#define product ISA(product)
#define product_transposed ISA(product_transposed)

/* B in panels of PANEL columns: `step` floats from row to row, `panel` floats from panel to panel.
 * Rows of plain storage have panel = PANEL. */
struct ISA(matrix) {
    const float *at;
    ptrdiff_t step, panel;
};

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
            product_tile(rows, (n - j) / LANES, c + i * c_row + j, c_row, a + i * a_row, a_row, 1,
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
            product_tile(rows, (n - j) / LANES, c + i * c_row + j, c_row, a + i, 1, a_row,
                         b.at + j / PANEL * b.panel, b.step, k, 1);
        i += rows;
    }
}
