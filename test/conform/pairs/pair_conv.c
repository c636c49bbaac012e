/* pair_conv.c - convolution, its two gradients, and 2x upsampling. The bound is linear's: a sum of
 * n terms costs (n + 8) * 2^-24 of their absolute values, which the reference itself adds up here;
 * in bfloat16, of the root of their squares. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

#define EPS 0x1p-24

static const struct pl_conv shapes[] = {
    /* B, C, H, W, O, K, stride, top, left, bottom, right */
    { 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0 },
    { 2, 3, 6, 8, 32, 3, 1, 1, 1, 1, 1 },
    { 2, 32, 7, 5, 32, 3, 2, 0, 0, 1, 1 }, /* VQGAN's halving of an odd map */
    { 1, 5, 9, 7, 6, 5, 3, 1, 2, 0, 3 },   /* odd everywhere, other padding on each side */
    { 3, 7, 5, 6, 9, 2, 3, 0, 1, 0, 0 },   /* a stride larger than the kernel */
    { 2, 4, 33, 33, 5, 4, 2, 1, 1, 1, 1 },
    { 3, 33, 8, 8, 70, 3, 1, 1, 1, 1, 1 },  /* one more than a block of channels */
    { 1, 3, 2, 3, 4, 3, 1, 2, 2, 2, 2 },    /* more padding than picture */
    { 1, 2, 3, 1100, 3, 3, 1, 1, 1, 1, 1 }, /* long rows */
    { 1, 130, 5, 5, 2, 1, 2, 0, 0, 0, 0 },
    { 40, 16, 8, 8, 16, 3, 1, 1, 1, 1, 1 }, /* many small pictures */
    { 2, 32, 64, 64, 32, 3, 1, 1, 1, 1, 1 },
    { 3, 16, 4, 4, 16, 3, 1, 2, 2, 2, 2 },    /* all padding a 3 x 3 kernel can see */
    { 2, 17, 13, 22, 19, 3, 1, 1, 1, 1, 1 },  /* tiles of 4 x 4 cut off at every side */
    { 1, 70, 9, 17, 67, 3, 1, 0, 1, 1, 0 },   /* more channels than a block, uneven padding */
    { 5, 18, 7, 3, 16, 3, 1, 0, 0, 0, 0 },    /* one tile a row, none padded */
    { 1, 16, 3, 1100, 20, 3, 1, 1, 1, 1, 1 }, /* long rows, deep enough for tiles */
    { 1, 16, 5, 6, 18, 3, 1, 3, 4, 0, 5 },    /* padding that no window reaches out of */
    { 1, 64, 61, 62, 33, 3, 1, 1, 1, 1, 1 },  /* more columns than im2col takes at a time */
    { 2, 13, 9, 11, 7, 1, 1, 0, 0, 0, 0 },    /* one GEMM, */
    { 3, 40, 23, 31, 300, 1, 1, 0, 0, 0, 0 }, /* in several pieces, */
    { 1, 6, 5, 4, 3, 1, 1, 1, 0, 0, 1 },      /* padded, so not one GEMM */
    { 2, 3, 12, 20, 21, 4, 4, 0, 0, 0, 0 },   /* patches without overlap, */
    { 1, 3, 12, 22, 5, 4, 4, 0, 0, 0, 0 },    /* and such that leave some out */
};
static const struct pl_conv timed[] = {
    /* the reference run's VQGAN: its middle, its largest image, */
    { 1, 512, 32, 32, 512, 3, 1, 1, 1, 1, 1 },   { 1, 128, 256, 256, 128, 3, 1, 1, 1, 1, 1 },
    { 1, 128, 256, 256, 128, 3, 2, 0, 0, 1, 1 }, /* its first halving */
    { 1, 256, 32, 32, 8192, 1, 1, 0, 0, 0, 0 },  /* and its logits */
    { 8, 16, 64, 64, 16, 3, 1, 1, 1, 1, 1 },     /* the demo's codec, in training */
};

/* Sizes of a convolution's arrays. */
struct sizes {
    size_t x, y, w;
    double flops;
};

static struct sizes sizes_of(const struct pl_conv *c)
{
    struct sizes s;
    s.x = (size_t)c->B * (size_t)c->C * (size_t)c->H * (size_t)c->W;
    s.y = (size_t)c->B * (size_t)c->O * (size_t)pl_conv_height(c) * (size_t)pl_conv_width(c);
    s.w = (size_t)c->O * (size_t)c->C * (size_t)c->K * (size_t)c->K;
    s.flops = 2.0 * (double)s.y * c->C * c->K * c->K;
    return s;
}

static int begin(struct pair *p, const char *op, const struct pl_conv *c, const char *more)
{
    return pair_case(p, op, "B%d C%d %dx%d O%d K%d stride%d%s", c->B, c->C, c->H, c->W, c->O, c->K,
                     c->stride, more);
}

static float *squares(struct pair *p, const float *x, size_t n)
{
    float *out = pair_scratch(p, n);
    for (size_t i = 0; i < n; i++) out[i] = x[i] * x[i];
    return out;
}

/* bound = max(2^-24 (terms + 8) bound, 2^-6 of the root of `of_squares`): linear.h's for
 * bfloat16. */
static void rounded(float *bound, const float *of_squares, size_t n, int terms)
{
    for (size_t i = 0; i < n; i++)
        bound[i] = fmaxf((float)(EPS * (terms + 8)) * bound[i], 0x1p-6f * sqrtf(of_squares[i]));
}

static float *absolute(struct pair *p, const float *x, size_t n)
{
    float *out = pair_scratch(p, n);
    for (size_t i = 0; i < n; i++) out[i] = fabsf(x[i]);
    return out;
}

/* If outputs are computed in tiles, each bound becomes the largest within 3 positions: see
 * conv.h. */
static float *loosen(struct pair *p, const float *bound, const struct pl_conv *c, size_t planes,
                     int H, int W)
{
    float *out = pair_scratch(p, planes * (size_t)H * (size_t)W);
    int reach = c->K == 3 && c->stride == 1 ? 3 : 0;
    for (size_t plane = 0; plane < planes; plane++, bound += (size_t)H * (size_t)W)
        for (int i = 0; i < H; i++)
            for (int j = 0; j < W; j++) {
                float *to = out + (plane * (size_t)H + (size_t)i) * (size_t)W + (size_t)j;
                *to = 0;
                for (int y = i < reach ? 0 : i - reach; y <= i + reach && y < H; y++)
                    for (int x = j < reach ? 0 : j - reach; x <= j + reach && x < W; x++)
                        *to = fmaxf(*to, bound[y * W + x]);
            }
    return out;
}

/* Only the operation itself runs in bfloat16; other operations contribute to the bound. */
static void precision(struct pair *p, int bf16)
{
    p->side[1]->set_precision(bf16 ? PL_BF16 : PL_FLOAT32);
}

/* `large`: timed, and compared with nothing; the goldens of the official size go through these. */
static void forward(struct pair *p, const struct pl_conv *c, int with_bias, int bf16, int large)
{
    struct sizes s = sizes_of(c);
    float *none[2] = { NULL, NULL };
    const char *const more[2][2] = { { "", " bf16" }, { " bias", " bias bf16" } };
    if (!begin(p, "conv", c, more[with_bias][bf16])) return;
    struct pair_f32 x = pair_normal(p, s.x, 1), w = pair_normal(p, s.w, 1), y = pair_poison(p, s.y);
    struct pair_f32 b = pair_normal(p, (size_t)c->O, 1);
    float **bias = with_bias ? b.at : none;
    pair_work(p, s.flops, 0);
    if (large) pair_large(p);
    precision(p, bf16);
    PAIR(p, conv, y.at[side], x.at[side], w.at[side], bias[side], c);
    precision(p, 0);
    if (large) {
        pair_finite(p, "y", y.any);
        return;
    }
    float *bound = pair_scratch(p, s.y);
    p->side[0]->conv(bound, absolute(p, x.at[0], s.x), absolute(p, w.at[0], s.w),
                     with_bias ? absolute(p, b.at[0], (size_t)c->O) : NULL, c);
    if (bf16) {
        float *root = pair_scratch(p, s.y);
        p->side[0]->conv(root, squares(p, x.at[0], s.x), squares(p, w.at[0], s.w), NULL, c);
        rounded(bound, root, s.y, c->C * c->K * c->K);
    }
    bound = loosen(p, bound, c, (size_t)c->B * (size_t)c->O, pl_conv_height(c), pl_conv_width(c));
    pair_within(p, "y", y.any, bf16 ? 1 : (c->C * c->K * c->K + 8) * EPS, bound);
}

static void to_input(struct pair *p, const struct pl_conv *c, int bf16, int large)
{
    struct sizes s = sizes_of(c);
    if (!begin(p, "conv_dx", c, bf16 ? " bf16" : "")) return;
    struct pair_f32 dy = pair_normal(p, s.y, 1), w = pair_normal(p, s.w, 1),
                    dx = pair_poison(p, s.x);
    pair_work(p, s.flops, 0);
    if (large) pair_large(p);
    precision(p, bf16);
    PAIR(p, conv_dx, dx.at[side], dy.at[side], w.at[side], c);
    precision(p, 0);
    if (large) {
        pair_finite(p, "dx", dx.any);
        return;
    }
    float *bound = pair_scratch(p, s.x);
    p->side[0]->conv_dx(bound, absolute(p, dy.at[0], s.y), absolute(p, w.at[0], s.w), c);
    if (bf16) {
        float *root = pair_scratch(p, s.x);
        p->side[0]->conv_dx(root, squares(p, dy.at[0], s.y), squares(p, w.at[0], s.w), c);
        rounded(bound, root, s.x, c->O * c->K * c->K);
    }
    bound = loosen(p, bound, c, (size_t)c->B * (size_t)c->C, c->H, c->W);
    pair_within(p, "dx", dx.any, bf16 ? 1 : (c->O * c->K * c->K + 8) * EPS, bound);
}

static void to_weights(struct pair *p, const struct pl_conv *c, int with_bias, int large)
{
    struct sizes s = sizes_of(c);
    float *none[2] = { NULL, NULL };
    size_t terms = s.y / (size_t)c->O;
    if (!begin(p, "conv_dw", c, with_bias ? " bias" : "")) return;
    struct pair_f32 dy = pair_normal(p, s.y, 1), x = pair_normal(p, s.x, 1),
                    dw = pair_normal(p, s.w, 1);
    struct pair_f32 db = pair_normal(p, (size_t)c->O, 1);
    float **bias = with_bias ? db.at : none;
    pair_work(p, s.flops, 0);
    if (large) pair_large(p);
    float *of_dw = absolute(p, dw.at[0], s.w), *of_db = absolute(p, db.at[0], (size_t)c->O);
    PAIR(p, conv_dw, dw.at[side], bias[side], dy.at[side], x.at[side], c);
    if (large) {
        pair_finite(p, "dw", dw.any);
        pair_finite(p, "db", db.any);
        return;
    }
    p->side[0]->conv_dw(of_dw, of_db, absolute(p, dy.at[0], s.y), absolute(p, x.at[0], s.x), c);
    pair_within(p, "dw", dw.any, ((double)terms + 8) * EPS, of_dw);
    if (with_bias) pair_within(p, "db", db.any, ((double)terms + 8) * EPS, of_db);
}

static void upsample(struct pair *p, int N, int H, int W)
{
    size_t n = (size_t)N * (size_t)H * (size_t)W;
    if (pair_case(p, "upsample", "N%d %dx%d", N, H, W)) {
        struct pair_f32 x = pair_normal(p, n, 1), y = pair_poison(p, 4 * n);
        pair_work(p, 0, 20.0 * (double)n);
        PAIR(p, upsample, y.at[side], x.at[side], N, H, W);
        pair_exact(p, "y", y.any);
    }
    if (pair_case(p, "upsample_backward", "N%d %dx%d", N, H, W)) {
        struct pair_f32 dy = pair_normal(p, 4 * n, 1), dx = pair_poison(p, n);
        float *bound = pair_scratch(p, n);
        pair_work(p, 0, 20.0 * (double)n);
        PAIR(p, upsample_backward, dx.at[side], dy.at[side], N, H, W);
        p->side[0]->upsample_backward(bound, absolute(p, dy.at[0], 4 * n), N, H, W);
        pair_within(p, "dx", dx.any, 4 * EPS, bound);
    }
}

static void transpose(struct pair *p, int y_step, int x_step, int B, int R, int C)
{
    size_t nx = (size_t)B * (size_t)R * (size_t)x_step, ny = (size_t)B * (size_t)C * (size_t)y_step;
    if (!pair_case(p, "transpose", "B%d %dx%d of %d to %d", B, R, C, x_step, y_step)) return;
    struct pair_f32 x = pair_normal(p, nx, 1),
                    y = pair_normal(p, ny, 1); /* elements beyond stay unchanged */
    pair_work(p, 0, 8.0 * B * R * C);
    PAIR(p, transpose, y.at[side], y_step, x.at[side], x_step, B, R, C);
    pair_exact(p, "y", y.any);
}

void pair_conv(struct pair *p)
{
    int precisions = p->side[1]->set_precision(PL_BF16) == PL_OK ? 2 : 1;
    precision(p, 0);
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        for (int bf16 = 0; bf16 < precisions; bf16++) {
            forward(p, &shapes[i], (int)(i % 2), bf16, 0);
            to_input(p, &shapes[i], bf16, 0);
        }
        to_weights(p, &shapes[i], (int)(i % 2), 0);
    }
    for (size_t i = 0; pair_bench(p) && i < PL_COUNT(timed); i++) {
        for (int bf16 = 0; bf16 < precisions; bf16++) {
            forward(p, &timed[i], 1, bf16, 1);
            to_input(p, &timed[i], bf16, 1);
        }
        to_weights(p, &timed[i], 1, 1);
    }
    upsample(p, 1, 1, 1);
    upsample(p, 3, 5, 7);
    upsample(p, 64, 32, 32);
    transpose(p, 1, 1, 1, 1, 1);
    transpose(p, 9, 11, 3, 7, 5);
    transpose(p, 3 * 64, 100, 2, 64, 100);
    transpose(p, 1024, 3 * 512, 1, 1024, 512);
}
