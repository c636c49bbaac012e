/* norm.c - a row passes through the first cache once, however often it is read there; the sums for
 * parameters are taken over pieces of rows and then over the pieces, in their order. */
#include "fast.h"
#include "workspace.h"

#include <assert.h>
#include <math.h>

#define BLOCK 512      /* elements that are summed in float32 */
#define PIECE_ROWS 64  /* rows of a partial sum, */
#define PIECES_MAX 256 /* unless there would be more pieces than this */
#define SMALL 16384    /* elements for which waking threads does not pay */

struct moments {
    float mean, inverse; /* inverse = 1 / sqrt(var + eps) */
};

/* Sums run over BLOCK elements in float32, then over the blocks in double: so their error does not
 * grow with the width. */
FAST_INLINE struct moments moments(const float *x, int D, float eps)
{
    double sum = 0, squares = 0;
    float mean;
    for (int from = 0; from < D; from += BLOCK) {
        int to = D - from < BLOCK ? D : from + BLOCK;
        float part = 0;
        #pragma omp simd reduction(+ : part)
        for (int i = from; i < to; i++) part += x[i];
        sum += part;
    }
    mean = (float)(sum / D);
    for (int from = 0; from < D; from += BLOCK) {
        int to = D - from < BLOCK ? D : from + BLOCK;
        float part = 0;
        #pragma omp simd reduction(+ : part)
        for (int i = from; i < to; i++) part += (x[i] - mean) * (x[i] - mean);
        squares += part;
    }
    return (struct moments){ mean, (float)(1 / sqrt(squares / D + eps)) };
}

FAST_CLONES static void norm_rows(float *y, const float *x, const float *gain, const float *offset,
                                  int rows, int D, float eps)
{
    for (int m = 0; m < rows; m++, x += D, y += D) {
        struct moments s = moments(x, D, eps);
        #pragma omp simd
        for (int i = 0; i < D; i++)
            y[i] = fast_fma((x[i] - s.mean) * s.inverse, gain[i], offset[i]);
    }
}

/* sum_dy and sum_dyh (D) are overwritten with this piece's share of doffset and dgain. */
FAST_CLONES static void norm_rows_backward(float *dx, float *sum_dyh, float *sum_dy,
                                           const float *dy, const float *x, const float *gain,
                                           int rows, int D, float eps, int add)
{
    for (int i = 0; i < D; i++) sum_dy[i] = sum_dyh[i] = 0;
    for (int m = 0; m < rows; m++, x += D, dy += D, dx += D) {
        struct moments s = moments(x, D, eps);
        double sum_g = 0, sum_gh = 0;
        float k, b;
        for (int from = 0; from < D; from += BLOCK) {
            int to = D - from < BLOCK ? D : from + BLOCK;
            float part_g = 0, part_gh = 0;
            #pragma omp simd reduction(+ : part_g, part_gh)
            for (int i = from; i < to; i++) {
                float h = (x[i] - s.mean) * s.inverse, g = dy[i] * gain[i];
                part_g += g;
                part_gh += g * h;
                sum_dy[i] += dy[i];
                sum_dyh[i] = fast_fma(dy[i], h, sum_dyh[i]);
            }
            sum_g += part_g;
            sum_gh += part_gh;
        }
        k = (float)(sum_gh / D) * s.inverse;
        b = (float)(sum_g / D);
        if (add) {
            #pragma omp simd
            for (int i = 0; i < D; i++)
                dx[i] += s.inverse * (dy[i] * gain[i] - b - (x[i] - s.mean) * k);
        } else {
            #pragma omp simd
            for (int i = 0; i < D; i++)
                dx[i] = s.inverse * (dy[i] * gain[i] - b - (x[i] - s.mean) * k);
        }
    }
}

FAST_CLONES static void scale_add_rows(float *y, const float *x, const float *s, int rows, int D,
                                       float sign)
{
    for (int m = 0; m < rows; m++, x += D, y += D) {
        #pragma omp simd
        for (int i = 0; i < D; i++) y[i] = fast_fma(sign * s[i], x[i], y[i]);
    }
}

FAST_CLONES static void layer_scale_rows_backward(float *dx, float *sum, const float *dy,
                                                  const float *x, const float *s, int rows, int D)
{
    for (int i = 0; i < D; i++) sum[i] = 0;
    for (int m = 0; m < rows; m++, x += D, dy += D, dx += D) {
        #pragma omp simd
        for (int i = 0; i < D; i++) {
            float g = dy[i];
            sum[i] = fast_fma(g, x[i], sum[i]);
            dx[i] = s[i] * g;
        }
    }
}

/* Rows of a piece, by the number of rows alone. */
static int piece_rows(int M)
{
    int rows = (M + PIECES_MAX - 1) / PIECES_MAX;
    return rows > PIECE_ROWS ? rows : PIECE_ROWS;
}

/* to (D) += the sum of `pieces` rows of D, `pitch` apart. */
static void add_pieces(float *to, const float *from, int pieces, size_t pitch, int D)
{
    for (int i = 0; i < D; i++) {
        double sum = to[i];
        for (int k = 0; k < pieces; k++) sum += from[(size_t)k * pitch + (size_t)i];
        to[i] = (float)sum;
    }
}

int fast_layer_norm(float *y, const float *x, const float *gain, const float *offset, int M, int D,
                    float eps)
{
    int each = piece_rows(M), pieces = (M + each - 1) / each;
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        norm_rows(y + at, x + at, gain, offset, M - k * each < each ? M - k * each : each, D, eps);
    }
    return PL_OK;
}

int fast_layer_norm_backward(float *dx, float *dgain, float *doffset, const float *dy,
                             const float *x, const float *gain, int M, int D, float eps, int add)
{
    int each = piece_rows(M), pieces = (M + each - 1) / each;
    size_t pitch = 2 * (size_t)D;
    float *sums = workspace((size_t)pieces * pitch); /* (pieces, dgain beside doffset) */
    assert(dx != x);
    if (!sums) return PL_ENOMEM;
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        float *sum = sums + (size_t)k * pitch;
        norm_rows_backward(dx + at, sum, sum + D, dy + at, x + at, gain,
                           M - k * each < each ? M - k * each : each, D, eps, add);
    }
    add_pieces(dgain, sums, pieces, pitch, D);
    add_pieces(doffset, sums + D, pieces, pitch, D);
    return PL_OK;
}

int fast_scale_add(float *y, const float *x, const float *s, int M, int D, float sign)
{
    int each = piece_rows(M), pieces = (M + each - 1) / each;
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        scale_add_rows(y + at, x + at, s, M - k * each < each ? M - k * each : each, D, sign);
    }
    return PL_OK;
}

int fast_layer_scale_backward(float *dx, float *ds, const float *dy, const float *x, const float *s,
                              int M, int D)
{
    int each = piece_rows(M), pieces = (M + each - 1) / each;
    float *sums = workspace((size_t)pieces * (size_t)D);
    if (!sums) return PL_ENOMEM;
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int k = 0; k < pieces; k++) {
        size_t at = (size_t)k * (size_t)each * (size_t)D;
        layer_scale_rows_backward(dx + at, sums + (size_t)k * (size_t)D, dy + at, x + at, s,
                                  M - k * each < each ? M - k * each : each, D);
    }
    add_pieces(ds, sums, pieces, (size_t)D, D);
    return PL_OK;
}
