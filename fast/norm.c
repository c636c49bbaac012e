/* norm.c - layer norm and LayerScale. A row is loaded into L1 once and read there several times.
 * Gradients of the parameters are summed over chunks of rows, and then over the chunks in order. */
#include "fast.h"
#include "workspace.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Kernels of norm_simd.inc, over some rows of D. */
struct norm_ops {
    void (*norm)(float *y, const float *x, const float *weight, const float *bias, int rows, int D,
                 float eps);
    void (*norm_backward)(float *dx, float *sum_dyh, float *sum_dy, const float *dy, const float *x,
                          const float *weight, int rows, int D, float eps, int add);
    void (*scale_add)(float *y, const float *x, const float *s, int rows, int D, float sign);
    void (*layer_scale)(float *dx, float *sum, const float *dy, const float *x, const float *s,
                        int rows, int D);
};

#define SIMD_FILE "norm_simd.inc"
#include "foreach_isa.inc"

#define PIECE_ROWS 64  /* rows of a partial sum, */
#define PIECES_MAX 256 /* or more, so that there are no more chunks than this */
#define STRIP 256      /* columns whose double sums are on the stack */
#define SMALL 16384    /* elements below which waking threads costs more than it saves */

static const struct norm_ops *const ops[ISA_COUNT] = ISA_TABLE(ops);

/* Rows per chunk; depends on the number of rows alone. */
static int piece_rows(int M)
{
    int rows = (M + PIECES_MAX - 1) / PIECES_MAX;
    return rows > PIECE_ROWS ? rows : PIECE_ROWS;
}

/* to (D) += the sum of `pieces` rows of D, `stride` apart. */
static void add_pieces(float *to, const float *from, int pieces, size_t stride, int D)
{
    double sum[STRIP];
    for (int at = 0; at < D; at += STRIP) {
        int n = D - at < STRIP ? D - at : STRIP;
        for (int i = 0; i < n; i++) sum[i] = to[at + i];
        for (int k = 0; k < pieces; k++) {
            const float *row = from + (size_t)k * stride + at;
            for (int i = 0; i < n; i++) sum[i] += row[i];
        }
        for (int i = 0; i < n; i++) to[at + i] = (float)sum[i];
    }
}

int fast_layer_norm(float *y, const float *x, const float *weight, const float *bias, int M, int D,
                    float eps)
{
    const struct norm_ops *op = ops[isa_chosen()];
    int each = piece_rows(M), pieces = (M + each - 1) / each;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        op->norm(y + at, x + at, weight, bias, M - k * each < each ? M - k * each : each, D, eps);
    }
    return PL_OK;
}

int fast_layer_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                             const float *x, const float *weight, int M, int D, float eps, int add)
{
    const struct norm_ops *op = ops[isa_chosen()];
    int each = piece_rows(M), pieces = (M + each - 1) / each;
    size_t width = (size_t)(D + 15) / 16 * 16, stride = 2 * width;
    /* (pieces, stride): partial dweight, then dbias */
    float *sums = workspace((size_t)pieces * stride);
    assert(dx != x);
    if (!sums) return PL_ENOMEM;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        float *sum = sums + (size_t)k * stride;
        op->norm_backward(dx + at, sum, sum + width, dy + at, x + at, weight,
                          M - k * each < each ? M - k * each : each, D, eps, add);
    }
    add_pieces(dweight, sums, pieces, stride, D);
    add_pieces(dbias, sums + width, pieces, stride, D);
    return PL_OK;
}

int fast_scale_add(float *y, const float *x, const float *s, int M, int D, float sign)
{
    const struct norm_ops *op = ops[isa_chosen()];
    int each = piece_rows(M), pieces = (M + each - 1) / each;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        op->scale_add(y + at, x + at, s, M - k * each < each ? M - k * each : each, D, sign);
    }
    return PL_OK;
}

int fast_layer_scale_backward(float *dx, float *ds, const float *dy, const float *x, const float *s,
                              int M, int D)
{
    const struct norm_ops *op = ops[isa_chosen()];
    int each = piece_rows(M), pieces = (M + each - 1) / each;
    size_t width = (size_t)(D + 15) / 16 * 16;
    float *sums = workspace((size_t)pieces * width);
    if (!sums) return PL_ENOMEM;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        op->layer_scale(dx + at, sums + (size_t)k * width, dy + at, x + at, s,
                        M - k * each < each ? M - k * each : each, D);
    }
    add_pieces(ds, sums, pieces, width, D);
    return PL_OK;
}
