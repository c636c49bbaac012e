/* conv.c - direct convolution without im2col. Each plane is copied with padding, so that every tap
 * of the kernel reads the same run of positions at a fixed offset. The convolution is then a sum of
 * shifted runs, with 4 output channels by a few vectors of positions in registers.
 *
 * With stride s the copy is split into s*s planes, one for each remainder of row and column, and a
 * tap reads the plane of its own remainder. The gradient of the input is the same sum over the
 * padded gradient of the output, one remainder at a time. The gradient of the weights is a GEMM of
 * such runs.
 *
 * A run continues across row ends. The few positions there are computed and discarded, which is
 * cheaper than partial vectors at the end of each row. */
#include "conv_bf16.h"
#include "fast.h"
#include "isa.h"
#include "winograd.h"
#include "workspace.h"

#include <omp.h>
#include <string.h>

#define INPUTS 32          /* input planes per pass, and */
#define STRIP 48           /* positions per pass, so that the inputs of all outputs stay in L1 */
#define POSITIONS 1024     /* positions of a run at a time: the partial sums stay in L2 */
#define OUTPUTS 32         /* output channels per unit of work */
#define GROUP (256L << 10) /* floats of padded planes prepared at a time; at least one image */

struct kernels {
    void (*planes)(float *out, long out_step, const float *in, long in_step, int inputs,
                   const int *offset, int taps, const float *w, int add, long length);
    void (*products)(double *sum, const float *dy, long dy_step, const float *const *column,
                     long n);
    void (*shift)(float *to, const float *from, float add, long n);
    double (*sum)(const float *x, long n);
    int lanes, side;
};

#define SIMD_FILE "conv_simd.inc"
#include "foreach_isa.inc"

static const struct kernels *const kernels[ISA_COUNT] = ISA_TABLE(kernels);

static long round_to(long n, long step) { return (n + step - 1) / step * step; }
/* Floats behind the planes that the last block of a run may read. */
static long slack(const struct pl_conv *c) { return 128 + c->K; }
static long least(long a, long b) { return a < b ? a : b; }

/* Layout of one image's padded planes: `remainders`^2 planes per channel, of rows x step
 * positions. */
struct layout {
    int remainders, rows, step;
    long plane, channel; /* floats */
};

static struct layout lay_out(int remainders, int rows, int step)
{
    struct layout l = { remainders, rows, step, (long)rows * step, 0 };
    l.channel = l.plane * remainders * remainders;
    return l;
}

/* Copies a channel (H,W) into its planes: position [r][q] of remainders (a,b) is x[s r + a - top][s
 * q + b - left], zero outside. */
static void pad_planes(float *planes, const struct layout *l, const float *x, int H, int W, int top,
                       int left)
{
    int s = l->remainders;
    for (int a = 0; a < s; a++)
        for (int b = 0; b < s; b++)
            for (int r = 0; r < l->rows; r++, planes += l->step) {
                int row = s * r + a - top;
                if (row < 0 || row >= H) {
                    memset(planes, 0, (size_t)l->step * sizeof *planes);
                } else if (s == 1) {
                    int right = l->step - left -
                                W; /* below 0: no window reaches the last columns */
                    for (int q = 0; q < left && q < l->step; q++) planes[q] = 0;
                    memcpy(planes + left, x + (size_t)row * (size_t)W,
                           (size_t)(right < 0 ? W + right : W) * sizeof *x);
                    for (int q = left + W; q < l->step; q++) planes[q] = 0;
                } else {
                    for (int q = 0; q < l->step; q++) {
                        int col = s * q + b - left;
                        planes[q] = col >= 0 && col < W ? x[(size_t)row * (size_t)W + (size_t)col]
                                                        : 0;
                    }
                }
            }
}

/* Weights of `outs` outputs from `ins` inputs as the kernel reads them: [out / 4][in][tap][out %
 * 4]. */
static void pack_weights(float *to, const float *w, int outs, int ins, const int *tap, int taps,
                         long out_step, long in_step)
{
    for (int o4 = 0; o4 < outs; o4 += 4)
        for (int i = 0; i < ins; i++)
            for (int t = 0; t < taps; t++)
                for (int o = o4; o < o4 + 4; o++)
                    *to++ = o < outs ? w[o * out_step + i * in_step + tap[t]] : 0;
}

/* One sum of shifted runs: `rows` rows of `step` positions. */
struct sum {
    const struct kernels *k;
    int outs, ins, taps, rows, step;
    const int *offset;
    const float *w; /* packed */
    long channel;   /* floats between the planes of consecutive inputs */
};

/* Outputs o0..o1-1 of rows r0..r1-1 into buffer (outputs rounded up to 4, stride). */
static void sum_taps(float *buffer, long stride, const struct sum *s, const float *in, int o0,
                     int o1, int r0, int r1)
{
    long length = (long)(r1 - r0) * s->step, strip = round_to(STRIP, s->k->side * s->k->lanes);
    in += (long)r0 * s->step;
    for (int i0 = 0; i0 < s->ins; i0 += INPUTS)
        for (long f = 0; f < length; f += strip)
            for (int o = o0; o < o1; o += 4)
                s->k->planes(buffer + (o - o0) * stride + f, stride, in + i0 * s->channel + f,
                             s->channel, (int)least(INPUTS, s->ins - i0), s->offset, s->taps,
                             s->w + ((long)o / 4 * s->ins + i0) * s->taps * 4, i0 > 0,
                             least(strip, length - f));
}

/* Where finished rows go: y (outs,H,W) at [s r + a - top][s q + b - left] for row r, column q. */
struct target {
    int H, W, s, a, b, top, left;
    const float *bias;
};

static void store_rows(float *y, const struct target *t, const struct kernels *k,
                       const float *buffer, long stride, int step, int o0, int o1, int r0, int r1)
{
    int q0 = t->left > t->b ? (t->left - t->b + t->s - 1) / t->s : 0;
    for (int o = o0; o < o1; o++)
        for (int r = r0; r < r1; r++) {
            const float *from = buffer + (o - o0) * stride + (long)(r - r0) * step;
            int row = t->s * r + t->a - t->top;
            float *to = y + ((size_t)o * (size_t)t->H + (size_t)row) * (size_t)t->W, add;
            if (row < 0 || row >= t->H) continue;
            add = t->bias ? t->bias[o] : 0;
            if (t->s == 1) {
                k->shift(to, from + q0, add, least(t->W, step - q0));
                continue;
            }
            for (int q = q0, col = t->s * q0 + t->b - t->left; col < t->W && q < step;
                 q++, col += t->s)
                to[col] = from[q] + add;
        }
}

/* Computes one group of images, in pieces that depend on the shape alone. */
static void run_pieces(float *y, long y_image, const struct target *t, const struct sum *s,
                       const float *planes, long planes_image, int images, float *buffers,
                       long stride)
{
    int rows = s->step >= POSITIONS ? 1 : POSITIONS / s->step;
    long across = (s->rows + rows - 1) / rows, deep = (s->outs + OUTPUTS - 1) / OUTPUTS;
    float *buffer = buffers + omp_get_thread_num() * OUTPUTS * stride;
#pragma omp for schedule(dynamic)
    for (long piece = 0; piece < images * across * deep; piece++) {
        long image = piece / (across * deep);
        int r0 = (int)(piece / deep % across) * rows, r1 = (int)least(r0 + rows, s->rows);
        int o0 = (int)(piece % deep) * OUTPUTS, o1 = (int)least(o0 + OUTPUTS, s->outs);
        sum_taps(buffer, stride, s, planes + image * planes_image, o0, o1, r0, r1);
        store_rows(y + image * y_image, t, s->k, buffer, stride, s->step, o0, o1, r0, r1);
    }
}

/* Floats that one piece's run takes, and the buffers of all threads. */
static long line_capacity(int step)
{
    return round_to(step >= POSITIONS ? step : POSITIONS, 128) + 128;
}
static long buffer_capacity(int step) { return fast_threads() * OUTPUTS * line_capacity(step); }

static int direct_conv(float *y, const float *x, const float *w, const float *b,
                       const struct pl_conv *c)
{
    int s = c->stride, K = c->K, H_out = pl_conv_height(c), W_out = pl_conv_width(c);
    struct layout l = lay_out(s, H_out + (K - 1) / s, W_out + (K - 1) / s);
    struct target t = { .H = H_out, .W = W_out, .s = 1, .bias = b };
    struct sum sum = { .k = kernels[isa_chosen()],
                       .outs = c->O,
                       .ins = c->C,
                       .taps = K * K,
                       .rows = H_out,
                       .step = l.step,
                       .channel = l.channel };
    long image = l.channel * c->C, in = (long)c->C * c->H * c->W, out = (long)c->O * H_out * W_out;
    long weights = round_to(c->O, 4) * c->C * K * K, stride = line_capacity(l.step);
    int group = (int)least(c->B, GROUP / image > 1 ? GROUP / image : 1);
    float *packed = workspace(
        (size_t)(weights + group * image + slack(c) + buffer_capacity(l.step) + 2 * K * K));
    float *planes, *buffers;
    int *tap, *offset;
    if (!packed) return PL_ENOMEM;
    planes = packed + weights;
    buffers = planes + group * image + slack(c);
    tap = (int *)(buffers + buffer_capacity(l.step));
    offset = tap + K * K;
    for (int i = 0; i < K * K; i++) {
        int ky = i / K, kx = i % K;
        tap[i] = i;
        offset[i] = (int)((ky % s * s + kx % s) * l.plane) + ky / s * l.step + kx / s;
    }
    pack_weights(packed, w, c->O, c->C, tap, K * K, (long)c->C * K * K, K * K);
    sum.w = packed;
    sum.offset = offset;
#pragma omp parallel num_threads(fast_threads())
    for (int first = 0; first < c->B; first += group) {
        int images = (int)least(group, c->B - first);
#pragma omp for schedule(static)
        for (int i = 0; i < images * c->C; i++)
            pad_planes(planes + i * l.channel, &l, x + first * in + (long)i * c->H * c->W, c->H,
                       c->W, c->top, c->left);
        run_pieces(y + first * out, out, &t, &sum, planes, image, images, buffers, stride);
    }
    return PL_OK;
}

static int direct_conv_dx(float *dx, const float *dy, const float *w, const struct pl_conv *c)
{
    int s = c->stride, K = c->K, T = (K - 1) / s, H_out = pl_conv_height(c),
        W_out = pl_conv_width(c);
    int rows = (c->H - 1 + c->top) / s + 1, columns = (c->W - 1 + c->left) / s + 1;
    struct layout l = lay_out(1, rows + T, columns + T);
    struct target t = { .H = c->H, .W = c->W, .s = s, .top = c->top, .left = c->left };
    struct sum sum = { .k = kernels[isa_chosen()],
                       .outs = c->C,
                       .ins = c->O,
                       .rows = rows,
                       .step = l.step,
                       .channel = l.channel };
    long image = l.channel * c->O, in = (long)c->C * c->H * c->W, out = (long)c->O * H_out * W_out;
    long weights = round_to(c->C, 4) * c->O * K * K, stride = line_capacity(l.step);
    int group = (int)least(c->B, GROUP / image > 1 ? GROUP / image : 1);
    float *packed = workspace((size_t)(weights + group * image + slack(c) +
                                       buffer_capacity(l.step) + 2 * K * K + s * s + 1));
    float *planes, *buffers;
    int *tap, *offset, *taps, count = 0;
    if (!packed) return PL_ENOMEM;
    planes = packed + weights;
    buffers = planes + group * image + slack(c);
    tap = (int *)(buffers + buffer_capacity(l.step));
    offset = tap + K * K;
    taps = offset + K * K;
    /* the taps of each remainder, and their weights, one remainder after the other */
    for (int p = 0; p < s * s; p++) {
        taps[p] = count;
        for (int i = 0; i < K * K; i++) {
            int ky = i / K, kx = i % K;
            if (ky % s != p / s || kx % s != p % s) continue;
            tap[count] = i;
            offset[count++] = (T - ky / s) * l.step + T - kx / s;
        }
        pack_weights(packed + round_to(c->C, 4) * c->O * taps[p], w, c->C, c->O, tap + taps[p],
                     count - taps[p], K * K, (long)c->C * K * K);
    }
    taps[s * s] = count;
#pragma omp parallel num_threads(fast_threads()) firstprivate(sum, t)
    for (int first = 0; first < c->B; first += group) {
        int images = (int)least(group, c->B - first);
#pragma omp for schedule(static)
        for (int i = 0; i < images * c->O; i++)
            pad_planes(planes + i * l.channel, &l, dy + first * out + (long)i * H_out * W_out,
                       H_out, W_out, T, T);
        for (int p = 0; p < s * s; p++) {
            sum.taps = taps[p + 1] - taps[p];
            sum.offset = offset + taps[p];
            sum.w = packed + round_to(c->C, 4) * c->O * taps[p];
            t.a = p / s;
            t.b = p % s;
            run_pieces(dx + first * in, in, &t, &sum, planes, image, images, buffers, stride);
        }
    }
    return PL_OK;
}

/* A 1 x 1 convolution of stride 1 is a GEMM. */
static int is_pointwise(const struct pl_conv *c)
{
    return c->K == 1 && c->stride == 1 && !c->top && !c->left && !c->bottom && !c->right;
}

/* The same with operands rounded to bfloat16, on CPUs that multiply these. */
static int pointwise_bf16(float *y, const float *x, const float *w, const float *b,
                          const struct pl_conv *c, int transposed)
{
    int positions = c->H * c->W, outs = transposed ? c->C : c->O, ins = transposed ? c->O : c->C,
        rc = PL_OK;
    for (int image = 0; image < c->B && !rc; image++) {
        float *to = y + (long)image * outs * positions;
#pragma omp parallel for num_threads(fast_threads()) if (b != NULL)
        for (int o = 0; o < (b ? outs : 0); o++)
            for (int q = 0; q < positions; q++) to[(long)o * positions + q] = b[o];
        rc = fast_gemm_bf16(transposed, 0, outs, positions, ins, w, transposed ? outs : ins,
                            x + (long)image * ins * positions, positions, NULL, b != NULL, to);
    }
    return rc;
}

#define POINTWISE_OUTPUTS 256 /* of one unit of work */
#define POINTWISE_POSITIONS 512

/* y (outs,positions) = w x + b, image by image. transposed: w is stored (ins,outs). */
static int pointwise(float *y, const float *x, const float *w, const float *b,
                     const struct pl_conv *c, int transposed)
{
    int positions = c->H * c->W, outs = transposed ? c->C : c->O, ins = transposed ? c->O : c->C;
    int across = fast_chunk_count(positions, POINTWISE_POSITIONS),
        down = fast_chunk_count(outs, POINTWISE_OUTPUTS);
    if (fast_bf16() && fast_has_bf16()) return pointwise_bf16(y, x, w, b, c, transposed);
#pragma omp parallel for num_threads(fast_threads()) schedule(dynamic)
    for (long piece = 0; piece < (long)c->B * across * down; piece++) {
        long image = piece / (across * down);
        struct fast_range o = fast_chunk(outs, POINTWISE_OUTPUTS, 16, (int)(piece % down));
        struct fast_range q = fast_chunk(positions, POINTWISE_POSITIONS, 32,
                                         (int)(piece / down % across));
        const float *from = x + image * ins * positions + q.start;
        float *to = y + (image * outs + o.start) * positions + q.start;
        if (!o.count || !q.count) continue;
        for (int i = 0; b && i < o.count; i++)
            for (int j = 0; j < q.count; j++) to[(long)i * positions + j] = b[o.start + i];
        fast_gemm(transposed, 0, o.count, q.count, ins,
                  w + (transposed ? o.start : (long)o.start * ins), transposed ? outs : ins, from,
                  positions, NULL, b != NULL, to, positions);
    }
    return PL_OK;
}

/* Patches that do not overlap, as in the first layer of CLIP's image tower. */
static int is_patch_embedding(const struct pl_conv *c)
{
    return c->K > 1 && c->stride == c->K && !c->top && !c->left && !c->bottom && !c->right &&
           c->H % c->K == 0 && c->W % c->K == 0;
}

/* This is one GEMM, too: each value of a patch becomes a channel of its own. */
static int patch_embedding(float *y, const float *x, const float *w, const float *b,
                           const struct pl_conv *c)
{
    int K = c->K, down = c->H / K, across = c->W / K;
    struct pl_conv points = {
        .B = c->B, .C = c->C * K * K, .O = c->O, .K = 1, .stride = 1, .H = down, .W = across
    };
    float *values = fast_scratch_alloc((size_t)c->B * (size_t)c->C * (size_t)c->H * (size_t)c->W);
    int rc;
    if (!values) return PL_ENOMEM;
#pragma omp parallel for num_threads(fast_threads())
    for (int line = 0; line < c->B * c->C * K * down; line++) {
        int i = line % down, ky = line / down % K, channel = line / down / K;
        size_t row = (size_t)channel * (size_t)c->H + (size_t)(i * K + ky);
        size_t position = (size_t)(channel * K + ky) * (size_t)(K * down) + (size_t)i;
        const float *from = x + row * (size_t)c->W;
        float *to = values + position * (size_t)across;
        for (int kx = 0; kx < K; kx++, to += down * across)
            for (int j = 0; j < across; j++) to[j] = from[j * K + kx];
    }
    rc = pointwise(y, values, w, b, &points, 0);
    fast_scratch_free(values);
    return rc;
}

int fast_conv(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c)
{
    if (is_pointwise(c)) return pointwise(y, x, w, b, c, 0);
    if (is_patch_embedding(c)) return patch_embedding(y, x, w, b, c);
    if (conv_bf16_is_faster(c, 0)) return conv_bf16(y, x, w, b, c, 0);
    return winograd_is_faster(c, 0) ? winograd(y, x, w, b, c, 0) : direct_conv(y, x, w, b, c);
}

int fast_conv_dx(float *dx, const float *dy, const float *w, const struct pl_conv *c)
{
    if (is_pointwise(c)) return pointwise(dx, dy, w, NULL, c, 1);
    if (conv_bf16_is_faster(c, 1)) return conv_bf16(dx, dy, w, NULL, c, 1);
    return winograd_is_faster(c, 1) ? winograd(dx, dy, w, NULL, c, 1)
                                    : direct_conv_dx(dx, dy, w, c);
}

/* -- the gradient of the weights -------------------------------------------------------------- */

#define COLUMN_CHANNELS 16 /* input channels per unit of work */
#define SIDE_MAX 6

/* Accumulates outputs o4..o4+3 against input channels c0..c1-1 over one group of images; acc (O
 * rounded up,C,K*K). */
static void accumulate_dw(double *acc, const struct kernels *k, const float *planes,
                          const struct layout *l, long image, const float *gradients, long line,
                          int O4, int images, int C, int o4, int c0, int c1, const int *offset,
                          int taps)
{
    int columns = (c1 - c0) * taps;
    for (int i = 0; i < images; i++)
        for (long f = 0; f < line; f += POSITIONS)
            for (int first = 0; first < columns; first += k->side) {
                const float *column[SIDE_MAX];
                double sum[4 * SIDE_MAX] = { 0 };
                int count = (int)least(k->side, columns - first);
                /* a last group with fewer columns repeats one */
                for (int j = 0; j < k->side; j++) {
                    int at = first + (j < count ? j : 0);
                    column[j] = planes + i * image + (c0 + at / taps) * l->channel +
                                offset[at % taps] + f;
                }
                k->products(sum, gradients + ((long)i * O4 + o4) * line + f, line, column,
                            least(POSITIONS, line - f));
                for (int o = 0; o < 4; o++)
                    for (int j = 0; j < count; j++)
                        acc[((long)(o4 + o) * C + c0) * taps + first + j] += sum[o * k->side + j];
            }
}

int fast_conv_dw(float *dw, float *db, const float *dy, const float *x, const struct pl_conv *c)
{
    const struct kernels *k = kernels[isa_chosen()];
    int s = c->stride, K = c->K, taps = K * K, H_out = pl_conv_height(c), W_out = pl_conv_width(c);
    int O4 = (int)round_to(c->O, 4);
    struct layout l = lay_out(s, H_out + (K - 1) / s, W_out + (K - 1) / s);
    struct layout g = lay_out(1, H_out, l.step);
    long line = round_to(g.plane, k->lanes), weights = (long)O4 * c->C * taps;
    long image = l.channel * c->C, in = (long)c->C * c->H * c->W, out = (long)c->O * H_out * W_out;
    int group = (int)least(c->B, GROUP / image > 1 ? GROUP / image : 1);
    int blocks = (c->C + COLUMN_CHANNELS - 1) / COLUMN_CHANNELS;
    double *acc = (double *)(void *)workspace(
        (size_t)(2 * weights + group * image + slack(c) + group * O4 * line + taps));
    float *planes, *gradients;
    int *offset;
    if (!acc) return PL_ENOMEM;
    planes = (float *)(acc + weights);
    gradients = planes + group * image + slack(c);
    offset = (int *)(gradients + group * O4 * line);
    memset(acc, 0, (size_t)weights * sizeof *acc);
    for (int i = 0; i < taps; i++) {
        int ky = i / K, kx = i % K;
        offset[i] = (int)((ky % s * s + kx % s) * l.plane) + ky / s * l.step + kx / s;
    }
#pragma omp parallel num_threads(fast_threads())
    {
        for (int first = 0; first < c->B; first += group) {
            int images = (int)least(group, c->B - first);
#pragma omp for schedule(static) nowait
            for (int i = 0; i < images * c->C; i++)
                pad_planes(planes + i * l.channel, &l, x + first * in + (long)i * c->H * c->W, c->H,
                           c->W, c->top, c->left);
#pragma omp single nowait /* read next to the zeros, so it must not be NaN */
            memset(planes + images * image, 0, (size_t)slack(c) * sizeof *planes);
#pragma omp for schedule(static)
            for (int i = 0; i < images * O4; i++) {
                float *to = gradients + i * line;
                int o = i % O4;
                if (o < c->O) {
                    pad_planes(to, &g, dy + (first + i / O4) * out + (long)o * H_out * W_out, H_out,
                               W_out, 0, 0);
                    memset(to + g.plane, 0, (size_t)(line - g.plane) * sizeof *to);
                } else {
                    memset(to, 0, (size_t)line * sizeof *to);
                }
            }
#pragma omp for schedule(dynamic)
            for (int piece = 0; piece < O4 / 4 * blocks; piece++)
                accumulate_dw(acc, k, planes, &l, image, gradients, line, O4, images, c->C,
                              piece / blocks * 4, piece % blocks * COLUMN_CHANNELS,
                              (int)least(c->C, (piece % blocks + 1) * COLUMN_CHANNELS), offset,
                              taps);
        }
#pragma omp for schedule(static)
        for (int o = 0; o < c->O; o++) {
            double sum = 0;
            for (long j = (long)o * c->C * taps; j < (long)(o + 1) * c->C * taps; j++)
                dw[j] = (float)(dw[j] + acc[j]);
            for (int b = 0; db && b < c->B; b++)
                sum += k->sum(dy + b * out + (long)o * H_out * W_out, (long)H_out * W_out);
            if (db) db[o] = (float)(db[o] + sum);
        }
    }
    return PL_OK;
}
