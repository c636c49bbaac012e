/* conv.cu - convolution as im2col and a cuBLAS GEMM: patches are copied into the columns of a
 * matrix, some positions at a time. A 1x1 convolution needs no copy. */
#include "../ref/conv.h"

#include "launch.cuh"

/* Limit of the patch matrix: a 256 x 256 image of 128 channels takes three passes. */
#define PATCH_BYTES ((size_t)128 << 20)

static int is_plain(const struct pl_conv *c)
{
    return c->K == 1 && c->stride == 1 && !c->top && !c->left && !c->bottom && !c->right;
}

static size_t terms_of(const struct pl_conv *c)
{
    return (size_t)c->C * (size_t)c->K * (size_t)c->K;
}

static int positions_at_once(int positions, size_t terms)
{
    size_t some = cuda_scratch_share(PATCH_BYTES) / (terms * sizeof(float));
    return some < 1 ? 1 : some < (size_t)positions ? (int)some : positions;
}

/* patch (C*K*K, count): the inputs of output positions first.. of one image. */
__global__ void gather_inputs(float *patch, const float *x, struct pl_conv c, int W_out, int first,
                              int count)
{
    size_t n = (size_t)c.C * (size_t)c.K * (size_t)c.K * (size_t)count;
    CUDA_EACH (i, n) {
        int p = first + (int)(i % (size_t)count), k = (int)(i / (size_t)count);
        int ch = k / (c.K * c.K), ky = k / c.K % c.K, kx = k % c.K;
        int row = p / W_out * c.stride - c.top + ky, col = p % W_out * c.stride - c.left + kx;
        patch[i] = row >= 0 && row < c.H && col >= 0 && col < c.W
                       ? x[((size_t)ch * (size_t)c.H + (size_t)row) * (size_t)c.W + (size_t)col]
                       : 0.0f;
    }
}

/* patch (O*K*K, count): the output gradients that depend on input positions first.. */
__global__ void gather_gradients(float *patch, const float *dy, struct pl_conv c, int H_out,
                                 int W_out, int first, int count)
{
    size_t n = (size_t)c.O * (size_t)c.K * (size_t)c.K * (size_t)count;
    CUDA_EACH (i, n) {
        int p = first + (int)(i % (size_t)count), k = (int)(i / (size_t)count);
        int o = k / (c.K * c.K), ky = k / c.K % c.K, kx = k % c.K;
        int down = p / c.W + c.top - ky, across = p % c.W + c.left - kx;
        int row = down / c.stride, col = across / c.stride;
        patch[i] = down >= 0 && across >= 0 && row * c.stride == down && col * c.stride == across &&
                           row < H_out && col < W_out
                       ? dy[((size_t)o * (size_t)H_out + (size_t)row) * (size_t)W_out + (size_t)col]
                       : 0.0f;
    }
}

__global__ void spread_bias(float *y, const float *b, size_t n, int O, int positions)
{
    CUDA_EACH (i, n) y[i] = b[i / (size_t)positions % (size_t)O];
}

int cuda_conv(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c)
{
    int W_out = pl_conv_width(c), positions = pl_conv_height(c) * W_out, rc = PL_OK;
    size_t terms = terms_of(c), n = (size_t)c->B * (size_t)c->O * (size_t)positions;
    int some = is_plain(c) ? positions : positions_at_once(positions, terms);
    float *patch = NULL;
    if (!is_plain(c))
        patch = (float *)cuda_scratch(&rc, CUDA_SLOT_PATCHES, terms * (size_t)some * sizeof *patch);
    if (rc == PL_OK && b)
        rc = PL_LAUNCH(spread_bias, cuda_blocks(n), CUDA_THREADS, y, b, n, c->O, positions);
    for (int image = 0; image < c->B; image++) {
        const float *from = x + (size_t)image * (size_t)c->C * (size_t)c->H * (size_t)c->W;
        float *to = y + (size_t)image * (size_t)c->O * (size_t)positions;
        for (int p = 0; rc == PL_OK && p < positions; p += some) {
            int count = positions - p < some ? positions - p : some;
            if (patch)
                rc = PL_LAUNCH(gather_inputs, cuda_blocks(terms * (size_t)count), CUDA_THREADS,
                               patch, from, *c, W_out, p, count);
            if (rc == PL_OK)
                rc = cuda_gemm(to + p, positions, w, 0, patch ? patch : from, 0, c->O, count,
                               (int)terms, b != NULL);
        }
    }
    return rc;
}

/* (C,O,K,K) of (O,C,K,K) */
__global__ void swap_channels(float *to, const float *w, struct pl_conv c)
{
    size_t window = (size_t)c.K * (size_t)c.K, n = (size_t)c.O * (size_t)c.C * window;
    CUDA_EACH (i, n) {
        size_t k = i % window, o = i / window % (size_t)c.O, ch = i / window / (size_t)c.O;
        to[i] = w[(o * (size_t)c.C + ch) * window + k];
    }
}

int cuda_conv_dx(float *dx, const float *dy, const float *w, const struct pl_conv *c)
{
    int H_out = pl_conv_height(c), W_out = pl_conv_width(c), positions = c->H * c->W, rc;
    size_t terms = (size_t)c->O * (size_t)c->K * (size_t)c->K, weights = terms * (size_t)c->C;
    int some = positions_at_once(positions, terms);
    float *transposed = (float *)cuda_scratch(&rc, CUDA_SLOT_PATCHES,
                                              (weights + terms * (size_t)some) *
                                                  sizeof *transposed);
    float *patch = transposed + weights;
    if (rc == PL_OK)
        rc = PL_LAUNCH(swap_channels, cuda_blocks(weights), CUDA_THREADS, transposed, w, *c);
    for (int image = 0; image < c->B; image++) {
        const float *from = dy + (size_t)image * (size_t)c->O * (size_t)H_out * (size_t)W_out;
        float *to = dx + (size_t)image * (size_t)c->C * (size_t)positions;
        for (int p = 0; rc == PL_OK && p < positions; p += some) {
            int count = positions - p < some ? positions - p : some;
            rc = PL_LAUNCH(gather_gradients, cuda_blocks(terms * (size_t)count), CUDA_THREADS,
                           patch, from, *c, H_out, W_out, p, count);
            if (rc == PL_OK)
                rc = cuda_gemm(to + p, positions, transposed, 0, patch, 0, c->C, count, (int)terms,
                               0);
        }
    }
    return rc;
}

/* One block per output channel: sums all positions of all images. */
__global__ void bias_gradient(float *db, const float *dy, int B, int O, int positions)
{
    double s = 0;
    for (int b = 0; b < B; b++) {
        const float *from = dy + ((size_t)b * (size_t)O + blockIdx.x) * (size_t)positions;
        for (int p = (int)threadIdx.x; p < positions; p += CUDA_THREADS) s += from[p];
    }
    s = cuda_block_sum(s);
    if (threadIdx.x == 0) db[blockIdx.x] = (float)(db[blockIdx.x] + s);
}

int cuda_conv_dw(float *dw, float *db, const float *dy, const float *x, const struct pl_conv *c)
{
    int W_out = pl_conv_width(c), positions = pl_conv_height(c) * W_out, rc = PL_OK;
    size_t terms = terms_of(c),
           n = terms * (size_t)positions; /* whole images, because a row of dy is one image long */
    float *patch = NULL;
    if (!is_plain(c)) patch = (float *)cuda_scratch(&rc, CUDA_SLOT_PATCHES, n * sizeof *patch);
    for (int image = 0; rc == PL_OK && image < c->B; image++) {
        const float *from = x + (size_t)image * (size_t)c->C * (size_t)c->H * (size_t)c->W;
        if (patch)
            rc = PL_LAUNCH(gather_inputs, cuda_blocks(n), CUDA_THREADS, patch, from, *c, W_out, 0,
                           positions);
        if (rc == PL_OK)
            rc = cuda_gemm(dw, (int)terms, dy + (size_t)image * (size_t)c->O * (size_t)positions, 0,
                           patch ? patch : from, 1, c->O, (int)terms, positions, 1);
    }
    if (rc == PL_OK && db)
        rc = PL_LAUNCH(bias_gradient, (unsigned)c->O, CUDA_THREADS, db, dy, c->B, c->O, positions);
    return rc;
}

__global__ void upsample(float *y, const float *x, size_t n, int W)
{
    size_t row = 2 * (size_t)W;
    CUDA_EACH (i, n) y[i] = x[i / row / 2 * (size_t)W + i % row / 2];
}

int cuda_upsample(float *y, const float *x, int N, int H, int W)
{
    size_t n = 4 * (size_t)N * (size_t)H * (size_t)W;
    return PL_LAUNCH(upsample, cuda_blocks(n), CUDA_THREADS, y, x, n, W);
}

__global__ void upsample_backward(float *dx, const float *dy, size_t n, int W)
{
    size_t row = 2 * (size_t)W;
    CUDA_EACH (i, n) {
        const float *at = dy + 2 * (i / (size_t)W) * row + 2 * (i % (size_t)W);
        dx[i] = (float)((double)at[0] + at[1] + at[row] + at[row + 1]);
    }
}

int cuda_upsample_backward(float *dx, const float *dy, int N, int H, int W)
{
    size_t n = (size_t)N * (size_t)H * (size_t)W;
    return PL_LAUNCH(upsample_backward, cuda_blocks(n), CUDA_THREADS, dx, dy, n, W);
}
