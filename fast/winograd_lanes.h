/* winograd_lanes.h - the transforms of winograd.c, LANES tiles or outputs at a time, and its
 * products. Six numbers along a row or a column of a tile become six at the points 0, a, -a, b, -b,
 * infinity, where a is POINT_A and b is POINT_B. */

#include "product_tile_lanes.h"

#define from_points ISA(from_points)
#define to_points ISA(to_points)
#define weights_at_points ISA(weights_at_points)

/* Six inputs times the matrix whose line of a point p holds the coefficients of the product of
 * (t - q) over the other points q; infinity's, of all five. */
LANE void to_points(vec x[6])
{
    const vec a = all(POINT_A), minus_aa = all(-POINT_A * POINT_A);
    const vec b = all(POINT_B), minus_bb = all(-POINT_B * POINT_B);
    vec even_a = fma(minus_bb, x[2], x[4]), odd_a = fma(minus_bb, x[1], x[3]);
    vec even_b = fma(minus_aa, x[2], x[4]), odd_b = fma(minus_aa, x[1], x[3]);
    x[0] = fma(minus_aa * minus_bb, x[0], fma(minus_aa + minus_bb, x[2], x[4]));
    x[5] = fma(minus_aa * minus_bb, x[1], fma(minus_aa + minus_bb, x[3], x[5]));
    x[1] = fma(a, odd_a, even_a);
    x[2] = fma(-a, odd_a, even_a);
    x[3] = fma(b, odd_b, even_b);
    x[4] = fma(-b, odd_b, even_b);
}

/* Four outputs from six products: y[i] = sum of q^i m(q) over the points q. */
LANE void from_points(vec y[4], const vec m[6])
{
    const vec a = all(POINT_A), b = all(POINT_B), aa = a * a, bb = b * b;
    vec sum_a = m[1] + m[2], off_a = a * (m[1] - m[2]);
    vec sum_b = m[3] + m[4], off_b = b * (m[3] - m[4]);
    y[0] = m[0] + sum_a + sum_b;
    y[1] = off_a + off_b;
    y[2] = fma(aa, sum_a, bb * sum_b);
    y[3] = fma(aa, off_a, fma(bb, off_b, m[5]));
}

/* Three weights at the points, each divided by the product of its differences from the others. */
LANE void weights_at_points(vec y[6], vec x0, vec x1, vec x2)
{
    vec even_a = all(AT_A) * fma(all(POINT_A * POINT_A), x2, x0), odd_a = all(AT_A * POINT_A) * x1;
    vec even_b = all(AT_B) * fma(all(POINT_B * POINT_B), x2, x0), odd_b = all(AT_B * POINT_B) * x1;
    y[0] = all(AT_0) * x0;
    y[1] = even_a + odd_a;
    y[2] = even_a - odd_a;
    y[3] = even_b + odd_b;
    y[4] = even_b - odd_b;
    y[5] = x2;
}

/* Weights of `rows` outputs from one input at all points: to[point * step + output]. w: (output,
 * w_step) with taps from 0 to 8, or from 8 to 0 if turned. */
static void ISA(weights)(float *to, size_t step, int rows, const float *w, size_t w_step,
                         int turned)
{
    for (int r = 0; r < rows; r += LANES) {
        int n = rows - r < LANES ? rows - r : LANES;
        float tap[9][LANES] = { { 0 } };
        vec half[3][6];
        for (int i = 0; i < n; i++)
            for (int t = 0; t < 9; t++)
                tap[turned ? 8 - t : t][i] = w[(size_t)(r + i) * w_step + (size_t)t];
        _Pragma("GCC unroll 3") for (int j = 0; j < 3; j++)
            weights_at_points(half[j], load(tap[j]), load(tap[3 + j]), load(tap[6 + j]));
        for (int i = 0; i < 6; i++) {
            vec y[6];
            weights_at_points(y, half[0][i], half[1][i], half[2][i]);
            for (int j = 0; j < 6; j++) {
                float *at = to + (size_t)(i * 6 + j) * step + r;
                if (n == LANES) store(at, y[j]);
                else store_part(at, y[j], n);
            }
        }
    }
}

/* Six rows of n pixels, the columns of tiles that lie beside each other, to six lines. */
static void ISA(columns)(float *to, size_t line, const float *const *row, int n)
{
    for (int i = 0; i < n; i += LANES) {
        vec x[6];
        if (n - i >= LANES) {
            _Pragma("GCC unroll 6") for (int k = 0; k < 6; k++) x[k] = load(row[k] + i);
            to_points(x);
            _Pragma("GCC unroll 6") for (int k = 0; k < 6; k++)
                store(to + (size_t)k * line + i, x[k]);
        } else {
            for (int k = 0; k < 6; k++) x[k] = load_part(row[k] + i, n - i);
            to_points(x);
            for (int k = 0; k < 6; k++) store_part(to + (size_t)k * line + i, x[k], n - i);
        }
    }
}

/* The rows of `tiles` tiles, each of which begins at tile[.] of the first line: to[point][tile] in
 * panels, a point's numbers `step` and a panel's `panel` floats apart. */
static void ISA(rows)(float *to, size_t step, size_t panel, const float *const *tile, int tiles,
                      int line)
{
    for (int t = 0; t < tiles; t += LANES) {
        float *at = to + (size_t)(t / PANEL) * panel + t % PANEL;
        for (int i = 0; i < 6; i++) {
            vec x[8];
            turned_quads(x, tile + t, i * line);
            turned_quads(x + 4, tile + t, i * line + 4);
            to_points(x);
            _Pragma("GCC unroll 6") for (int j = 0; j < 6; j++)
                store(at + (size_t)(i * 6 + j) * step, x[j]);
        }
    }
}

/* One point's products: m (outs, m_step) = or += w (outs,ins) v (ins,tiles), packed as above. */
static void ISA(multiply)(float *m, int m_step, const float *w, const float *v, size_t panel,
                          int tiles, int outs, int ins, int in0, int count, int add)
{
    for (int t = 0; t < tiles; t += PANEL, v += panel)
        for (int o = 0; o < outs; o += TILE) {
            int rows = outs - o < TILE ? outs - o : TILE;
            product_tile(rows, 2, m + (size_t)o * (size_t)m_step + t, m_step,
                       w + (size_t)o * (size_t)ins + in0 * rows, 1, rows, v, PANEL, count, add);
        }
}

/* Four rows of LANES tiles of one output from its products, `step` floats from point to point:
 * to[row][tile][column]. */
static void ISA(outputs)(float *to, const float *m, size_t step, float bias)
{
    vec half[4][6];
    for (int j = 0; j < 6; j++) {
        vec x[6], y[4];
        _Pragma("GCC unroll 6") for (int i = 0; i < 6; i++)
            x[i] = load(m + (size_t)(i * 6 + j) * step);
        from_points(y, x);
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) half[i][j] = y[i];
    }
    for (int i = 0; i < 4; i++, to += 4 * LANES) {
        vec y[4];
        from_points(y, half[i]);
        _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) y[j] += all(bias);
        transpose4(y); /* tile 4 q + k is now quarter q of register k */
        _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++)
            for (int q = 0; q < LANES / 4; q++)
                memcpy(to + 4 * (4 * q + k), (const char *)&y[k] + 16 * q, 16);
    }
}

static const struct kernels ISA(kernels) = { ISA(weights),  ISA(columns), ISA(rows), ISA(multiply),
                                             ISA(outputs), LANES,        PANEL,     TILE };
