/* conv_bf16.c - convolution as a GEMM, by im2col. Each output position has a column: the C*K*K
 * inputs in its window.
 *
 *     y (O,positions) = w (O,C*K*K) columns (C*K*K,positions)
 *
 * Each input plane is rounded to bfloat16 and padded once. Each row of the matrix of columns is
 * then copied from the plane, shifted by its place in the window. Columns are made for a few rows
 * of the output at a time, so that they stay in a cache. Winograd in float32 needs a quarter of the
 * multiplications, but AMX is so fast that this takes less time. */
#include "conv_bf16.h"
#include "fast.h"
#include "gemm_bf16.h"
#include "isa.h"
#include "vector_math.h"

#include <string.h>

#define COLUMNS (1 << 21) /* values of columns at a time: 4 MiB */
#define LEAST_TERMS 64    /* C*K*K, below which a column is not worth copying */

/* The gradient to the input is a convolution, too, if the padding of that one is not negative. */
static int is_convolution(const struct pl_conv *c)
{
    return c->stride == 1 && c->top < c->K && c->left < c->K && c->bottom < c->K && c->right < c->K;
}

int conv_bf16_is_faster(const struct pl_conv *c, int transposed)
{
    int ins = transposed ? c->O : c->C, outs = transposed ? c->C : c->O;
    return fast_bf16() && isa_has_amx() && ins * c->K * c->K >= LEAST_TERMS && outs >= 16 &&
           (!transposed || is_convolution(c));
}

/* The input of one image: planes of bfloat16 with zeros around. */
struct planes {
    uint16_t *x;
    int count, rows, columns; /* padded */
};

FAST_CLONES static void round_row(uint16_t *to, const float *from, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = (uint16_t)(fast_bf16_bits(from[i]) >> 16);
}

static void fill_planes(struct planes *p, const float *x, int H, int W, int top, int left)
{
    size_t plane = (size_t)p->rows * (size_t)p->columns;
#pragma omp parallel for schedule(static) num_threads(fast_threads())
    for (int i = 0; i < p->count * p->rows; i++) {
        int row = i % p->rows - top;
        uint16_t *to = p->x + (size_t)(i / p->rows) * plane +
                       (size_t)(i % p->rows) * (size_t)p->columns;
        memset(to, 0, (size_t)p->columns * sizeof *to);
        if (row < 0 || row >= H) continue;
        round_row(to + left, x + ((size_t)(i / p->rows) * (size_t)H + (size_t)row) * (size_t)W,
                  W < p->columns - left ? W : p->columns - left);
    }
}

/* Columns of output rows r0 to r1 - 1, `across` positions each: (C*K*K, (r1 - r0) * across). */
static void fill_columns(uint16_t *columns, const struct planes *p, int K, int s, int r0, int r1,
                         int across)
{
    size_t positions = (size_t)(r1 - r0) * (size_t)across;
#pragma omp parallel for schedule(static) num_threads(fast_threads())
    for (int term = 0; term < p->count * K * K; term++) {
        int plane = term / (K * K), ky = term / K % K, kx = term % K;
        uint16_t *to = columns + (size_t)term * positions;
        for (int r = r0; r < r1; r++, to += across) {
            const uint16_t *from = p->x +
                                   ((size_t)plane * (size_t)p->rows + (size_t)(s * r + ky)) *
                                       (size_t)p->columns +
                                   kx;
            if (s == 1) memcpy(to, from, (size_t)across * sizeof *to);
            else
                for (int q = 0; q < across; q++) to[q] = from[s * q];
        }
    }
}

/* The gradient to the input is a convolution of dy with each kernel rotated by 180 degrees, and
 * inputs and outputs swapped. */
static void rotate_weights(float *to, const float *w, const struct pl_conv *c)
{
    int taps = c->K * c->K;
    for (int o = 0; o < c->O; o++)
        for (int i = 0; i < c->C; i++)
            for (int t = 0; t < taps; t++)
                to[((size_t)i * (size_t)c->O + (size_t)o) * (size_t)taps + (size_t)t] =
                    w[((size_t)o * (size_t)c->C + (size_t)i) * (size_t)taps +
                      (size_t)(taps - 1 - t)];
}

static int convolve(float *y, const float *x, const float *w, const float *b,
                    const struct pl_conv *c, struct planes *p, uint16_t *columns, int rows)
{
    int down = pl_conv_height(c), across = pl_conv_width(c), terms = c->C * c->K * c->K, rc = PL_OK;
    size_t positions = (size_t)down * (size_t)across;
    fill_planes(p, x, c->H, c->W, c->top, c->left);
#pragma omp parallel for schedule(static) num_threads(fast_threads())
    for (int o = 0; o < c->O; o++)
        for (size_t q = 0; q < positions; q++) y[(size_t)o * positions + q] = b ? b[o] : 0;
    for (int r = 0; r < down && !rc; r += rows) {
        int r1 = r + rows < down ? r + rows : down, n = (r1 - r) * across;
        fill_columns(columns, p, c->K, c->stride, r, r1, across);
        rc = fast_bf16_multiply(&(struct fast_bf16_gemm){ .m = c->O,
                                                          .n = n,
                                                          .k = terms,
                                                          .a = { w, NULL, terms },
                                                          .b = { NULL, columns, n },
                                                          .add = 1,
                                                          .c = y + (size_t)r * (size_t)across,
                                                          .ldc = (int)positions });
    }
    return rc;
}

int conv_bf16(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c,
              int transposed)
{
    struct pl_conv to_input = { .B = c->B,
                                .C = c->O,
                                .H = pl_conv_height(c),
                                .W = pl_conv_width(c),
                                .O = c->C,
                                .K = c->K,
                                .stride = 1,
                                .top = c->K - 1 - c->top,
                                .left = c->K - 1 - c->left };
    struct planes p;
    uint16_t *columns;
    float *scratch, *rotated = NULL;
    int rows, rc = PL_OK;
    if (transposed) {
        to_input.bottom = c->H + c->K - 1 - to_input.H - to_input.top;
        to_input.right = c->W + c->K - 1 - to_input.W - to_input.left;
        rotated = fast_scratch_alloc((size_t)c->O * (size_t)c->C * (size_t)(c->K * c->K));
        if (!rotated) return PL_ENOMEM;
        rotate_weights(rotated, w, c);
        c = &to_input;
        w = rotated;
    }
    size_t row = (size_t)(c->C * c->K * c->K) * (size_t)pl_conv_width(c);
    p.count = c->C;
    p.rows = c->H + c->top + c->bottom;
    p.columns = c->W + c->left + c->right;
    size_t planes = (size_t)p.count * (size_t)p.rows * (size_t)p.columns;
    rows = COLUMNS / row > 1 ? (int)(COLUMNS / row) : 1;
    if (rows > pl_conv_height(c)) rows = pl_conv_height(c);
    if (!(scratch = fast_scratch_alloc((planes + (size_t)rows * row) / 2 + 1))) rc = PL_ENOMEM;
    p.x = (uint16_t *)(void *)scratch;
    columns = p.x + planes;
    for (int image = 0; image < c->B && !rc; image++)
        rc = convolve(y + (size_t)image * (size_t)c->O * (size_t)pl_conv_height(c) *
                              (size_t)pl_conv_width(c),
                      x + (size_t)image * (size_t)c->C * (size_t)c->H * (size_t)c->W, w, b, c, &p,
                      columns, rows);
    fast_scratch_free(scratch);
    fast_scratch_free(rotated);
    return rc;
}
