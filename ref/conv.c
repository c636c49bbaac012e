/* conv.c - a convolution is a matrix product over patches, the kernel's windows (im2col). [VQGAN]
 * [spec images-and-text 1.1]
 *
 *   y[o][p]  = b[o] + sum_k w[o][k] patch_p[k]       k over channels and the K x K window
 *   dx[c][p] = sum_k w'[c][k] dpatch_p[k]            the windows that p takes part in
 *   dw[o][k] += sum_p dy[o][p] patch_p[k],           db[o] += sum_p dy[o][p]
 *
 * x is (C,H,W), y (O,H',W'), w (O,C,K,K), and p a place, row by row. As everywhere in deep learning
 * the kernel is not mirrored: this is a cross-correlation.
 *
 * Patches of 8 neighbouring places are gathered together, as doubles with zeros for the padding, so
 * that the sums are plain loops. */
#include "conv.h"

#include <assert.h>
#define PLACES 8 /* doubles of one cache line */

/* At least one window: the padded input is no smaller than the kernel. */
static int is_sane(const struct pl_conv *c)
{
    return c->B >= 1 && c->C >= 1 && c->H >= 1 && c->W >= 1 && c->O >= 1 && c->K >= 1 &&
           c->stride >= 1 && c->top >= 0 && c->left >= 0 && c->bottom >= 0 && c->right >= 0 &&
           c->H + c->top + c->bottom >= c->K && c->W + c->left + c->right >= c->K;
}

/* patch (C*K*K, PLACES): the inputs that output places first..first+count-1 of one image meet. */
static void gather_inputs(double *patch, const float *x, const struct pl_conv *c, int first,
                          int count)
{
    int W_out = pl_conv_width(c), top[PLACES], left[PLACES];
    /* place p = (i, j) sees rows i stride - top .. + K - 1, and columns likewise */
    for (int p = 0; p < PLACES; p++) {
        top[p] = (first + p) / W_out * c->stride - c->top;
        left[p] = (first + p) % W_out * c->stride - c->left;
    }
    for (int ch = 0; ch < c->C; ch++, x += (size_t)c->H * (size_t)c->W)
        for (int ky = 0; ky < c->K; ky++)
            for (int kx = 0; kx < c->K; kx++)
                for (int p = 0; p < PLACES; p++, patch++) {
                    int row = top[p] + ky, col = left[p] + kx;
                    int inside = p < count && row >= 0 && row < c->H && col >= 0 && col < c->W;
                    *patch = inside ? x[(size_t)row * (size_t)c->W + (size_t)col] : 0;
                }
}

/* patch (O*K*K, PLACES): for each of the input places first..first+count-1 and each weight, the
 * gradient of the output that this weight led the input to. In a window at (row, col), weight
 * (ky, kx) reads input (row * stride - top + ky, col * stride - left + kx): solved for row and col,
 * which must be whole. */
static void gather_gradients(double *patch, const float *dy, const struct pl_conv *c, int first,
                             int count)
{
    int H_out = pl_conv_height(c), W_out = pl_conv_width(c), s = c->stride;
    for (int o = 0; o < c->O; o++)
        for (int ky = 0; ky < c->K; ky++)
            for (int kx = 0; kx < c->K; kx++)
                for (int p = 0; p < PLACES; p++, patch++) {
                    int down = (first + p) / c->W + c->top - ky,
                        across = (first + p) % c->W + c->left - kx;
                    /* -1 / 2 is 0 in C, so a negative numerator is refused first */
                    int row = down / s, col = across / s;
                    int inside = p < count && down >= 0 && across >= 0 && row * s == down &&
                                 col * s == across && row < H_out && col < W_out;
                    size_t at = ((size_t)o * (size_t)H_out + (size_t)row) * (size_t)W_out +
                                (size_t)col;
                    *patch = inside ? dy[at] : 0;
                }
}

/* y[o][p] = b[o] + sum_k w[o][k] patch_p[k] */
int ref_conv(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c)
{
    size_t terms = (size_t)c->C * (size_t)c->K * (size_t)c->K;
    int places = pl_conv_height(c) * pl_conv_width(c);
    double *patch = pl_alloc(terms * PLACES, sizeof *patch);
    assert(is_sane(c));
    if (!patch) return PL_ENOMEM;
    for (int image = 0; image < c->B; image++, x += (size_t)c->C * (size_t)c->H * (size_t)c->W)
        for (int first = 0; first < places; first += PLACES) {
            int count = places - first < PLACES ? places - first : PLACES;
            const float *w_o = w;
            float *y_o = y + (size_t)image * (size_t)c->O * (size_t)places + (size_t)first;
            gather_inputs(patch, x, c, first, count);
            for (int o = 0; o < c->O; o++, w_o += terms, y_o += places) {
                double sum[PLACES];
                /* y = b + sum_k w_k patch_k: a row of weights times a column of the patch */
                for (int p = 0; p < PLACES; p++) sum[p] = b ? b[o] : 0;
                for (size_t k = 0; k < terms; k++)
                    for (int p = 0; p < PLACES; p++)
                        sum[p] += (double)w_o[k] * patch[k * PLACES + (size_t)p];
                for (int p = 0; p < count; p++) y_o[p] = (float)sum[p];
            }
        }
    pl_free(patch);
    return PL_OK;
}

/* dx[c][p] = sum over the windows that contain p of w dy */
int ref_conv_dx(float *dx, const float *dy, const float *w, const struct pl_conv *c)
{
    size_t window = (size_t)c->K * (size_t)c->K;
    int places = c->H * c->W;
    size_t out = (size_t)c->O * (size_t)pl_conv_height(c) * (size_t)pl_conv_width(c);
    double *patch = pl_alloc((size_t)c->O * window * PLACES, sizeof *patch);
    assert(is_sane(c));
    if (!patch) return PL_ENOMEM;
    for (int image = 0; image < c->B; image++, dy += out)
        for (int first = 0; first < places; first += PLACES) {
            int count = places - first < PLACES ? places - first : PLACES;
            gather_gradients(patch, dy, c, first, count);
            for (int ch = 0; ch < c->C; ch++) { /* one input channel at 8 places */
                double sum[PLACES] = { 0 };
                const double *at = patch;
                /* sum over output channels and the window's weights */
                for (int o = 0; o < c->O; o++) {
                    const float *wo = w + ((size_t)o * (size_t)c->C + (size_t)ch) * window;
                    for (size_t k = 0; k < window; k++, at += PLACES)
                        for (int p = 0; p < PLACES; p++) sum[p] += (double)wo[k] * at[p];
                }
                for (int p = 0; p < count; p++)
                    dx[((size_t)image * (size_t)c->C + (size_t)ch) * (size_t)places +
                       (size_t)(first + p)] = (float)sum[p];
            }
        }
    pl_free(patch);
    return PL_OK;
}

/* dw[o][k] += sum_p dy[o][p] patch_p[k],  db[o] += sum_p dy[o][p] */
int ref_conv_dw(float *dw, float *db, const float *dy, const float *x, const struct pl_conv *c)
{
    size_t terms = (size_t)c->C * (size_t)c->K * (size_t)c->K, total = (size_t)c->O * terms;
    int places = pl_conv_height(c) * pl_conv_width(c);
    double *patch = pl_alloc(terms * PLACES, sizeof *patch), *sum = pl_alloc(total, sizeof *sum);
    assert(is_sane(c));
    if (!patch || !sum) {
        pl_free(patch);
        pl_free(sum);
        return PL_ENOMEM;
    }
    /* sums over the whole batch in double, rounded once */
    for (size_t i = 0; i < total; i++) sum[i] = dw[i];
    for (int image = 0; image < c->B; image++, x += (size_t)c->C * (size_t)c->H * (size_t)c->W)
        for (int first = 0; first < places; first += PLACES) {
            int count = places - first < PLACES ? places - first : PLACES;
            gather_inputs(patch, x, c, first, count);
            for (int o = 0; o < c->O; o++) {
                const float *from = dy +
                                    ((size_t)image * (size_t)c->O + (size_t)o) * (size_t)places;
                double g[PLACES] = { 0 };
                for (int p = 0; p < count; p++) g[p] = from[first + p];
                /* dw_k += sum_p dy_p patch_pk: an outer product, summed over places */
                for (size_t k = 0; k < terms; k++) {
                    double s = 0;
                    for (int p = 0; p < PLACES; p++) s += g[p] * patch[k * PLACES + (size_t)p];
                    sum[(size_t)o * terms + k] += s;
                }
            }
        }
    for (size_t i = 0; i < total; i++) dw[i] = (float)sum[i];
    /* db: a bias is added at every place, so its gradient is the sum over all */
    for (int o = 0; db && o < c->O; o++) {
        double s = db[o];
        for (int image = 0; image < c->B; image++)
            for (int p = 0; p < places; p++)
                s += dy[((size_t)image * (size_t)c->O + (size_t)o) * (size_t)places + (size_t)p];
        db[o] = (float)s;
    }
    pl_free(patch);
    pl_free(sum);
    return PL_OK;
}

/* y[2i][2j] = y[2i][2j+1] = y[2i+1][2j] = y[2i+1][2j+1] = x[i][j] */
int ref_upsample(float *y, const float *x, int N, int H, int W)
{
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 2 * H; i++)
            for (int j = 0; j < 2 * W; j++)
                *y++ = x[((size_t)n * (size_t)H + (size_t)(i / 2)) * (size_t)W + (size_t)(j / 2)];
    return PL_OK;
}

/* dx[i][j] = the sum of the four dy */
int ref_upsample_backward(float *dx, const float *dy, int N, int H, int W)
{
    size_t row = 2 * (size_t)W;
    for (size_t i = 0; i < (size_t)N * (size_t)H; i++)
        for (size_t j = 0; j < (size_t)W; j++) {
            const float *at = dy + 2 * i * row + 2 * j;
            *dx++ = (float)((double)at[0] + at[1] + at[row] + at[row + 1]);
        }
    return PL_OK;
}
