/* feedforward.c - activations, and the feed-forward layer in blocks of rows. The hidden activations
 * z are the largest buffer of a transformer block: here a block of rows of z is computed, used and
 * discarded while it is in a cache. If the weights fit in L2, one thread takes a block through the
 * whole layer; otherwise all threads work on each GEMM of a larger block.
 *
 * Weight gradients are summed in slots. The number of slots depends on the sizes alone, and slots
 * are added in order. */
#include "gemm_bf16.h"
#include "vector_math.h"

#include <stdlib.h>
#include <string.h>

#define SERIAL_ELEMENTS 16384 /* elements below which one thread does all */
#define CHUNK 4096
#define SMALL_WEIGHTS (1 << 18) /* floats of W1: 1 MiB */
#define SLOTS 8
/* of z in one thread's block: 2 MiB, because every block packs the weights again */
#define BLOCK_FLOATS (1 << 19)
#define LARGE_FLOATS (1 << 23) /* of z in a block of all threads: 32 MiB */

FAST_CLONES static void gelu(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = x[i] * fast_normal_cdf(x[i]);
}

#define TANH_A 0.797884561f /* sqrt(2/pi) */
#define TANH_B 0.044715f

/* tanh(t) = 2 sigmoid(2t) - 1, so gelu_tanh(x) = x sigmoid(2t). */
FAST_CLONES static void gelu_tanh(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float v = x[i], t = TANH_A * fast_fma(TANH_B * v * v, v, v), complement;
        y[i] = v * fast_sigmoid(2 * t, &complement);
    }
}

FAST_CLONES static void sigmoid_times(float *y, const float *x, size_t n, float a)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float complement;
        y[i] = x[i] * fast_sigmoid(a * x[i], &complement);
    }
}

FAST_CLONES static void gelu_backward(float *dx, const float *dy, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * fast_fma(x[i], fast_normal_pdf(x[i]), fast_normal_cdf(x[i]));
}

FAST_CLONES static void gelu_tanh_backward(float *dx, const float *dy, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float v = x[i], t = TANH_A * fast_fma(TANH_B * v * v, v, v), complement,
              s = fast_sigmoid(2 * t, &complement);
        float slope = TANH_A * fast_fma(3 * TANH_B * v, v, 1.0f);
        dx[i] = dy[i] * fast_fma(v * 2 * slope, s * complement, s);
    }
}

FAST_CLONES static void sigmoid_times_backward(float *dx, const float *dy, const float *x, size_t n,
                                               float a)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float complement, s = fast_sigmoid(a * x[i], &complement);
        dx[i] = dy[i] * fast_fma(a * x[i], s * complement, s);
    }
}

int fast_activation(float *y, const float *x, size_t n, enum pl_activation kind)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > SERIAL_ELEMENTS)
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t m = n - i < CHUNK ? n - i : CHUNK;
        switch (kind) {
        case PL_GELU: gelu(y + i, x + i, m); break;
        case PL_GELU_TANH: gelu_tanh(y + i, x + i, m); break;
        case PL_QUICKGELU: sigmoid_times(y + i, x + i, m, 1.702f); break;
        case PL_SWISH: sigmoid_times(y + i, x + i, m, 1); break;
        }
    }
    return PL_OK;
}

int fast_activation_backward(float *dx, const float *dy, const float *x, size_t n,
                             enum pl_activation kind)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > SERIAL_ELEMENTS)
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t m = n - i < CHUNK ? n - i : CHUNK;
        switch (kind) {
        case PL_GELU: gelu_backward(dx + i, dy + i, x + i, m); break;
        case PL_GELU_TANH: gelu_tanh_backward(dx + i, dy + i, x + i, m); break;
        case PL_QUICKGELU: sigmoid_times_backward(dx + i, dy + i, x + i, m, 1.702f); break;
        case PL_SWISH: sigmoid_times_backward(dx + i, dy + i, x + i, m, 1); break;
        }
    }
    return PL_OK;
}

FAST_CLONES static void geglu_row(float *y, const float *u, const float *g, int C)
{
#pragma omp simd
    for (int c = 0; c < C; c++) y[c] = u[c] * g[c] * fast_normal_cdf(g[c]);
}

/* du and dg may be u and g. */
FAST_CLONES static void geglu_row_backward(float *du, float *dg, const float *dy, const float *u,
                                           const float *g, int C)
{
#pragma omp simd
    for (int c = 0; c < C; c++) {
        float cdf = fast_normal_cdf(g[c]), slope = fast_fma(g[c], fast_normal_pdf(g[c]), cdf);
        float a = dy[c] * g[c] * cdf, b = dy[c] * u[c] * slope;
        du[c] = a;
        dg[c] = b;
    }
}

/* Gradient and forward value at once, because erf is the expensive part. h (C) = u gelu(g). */
FAST_CLONES static void geglu_row_both(float *h, float *u, float *g, const float *dh, int C)
{
#pragma omp simd
    for (int c = 0; c < C; c++) {
        float cdf = fast_normal_cdf(g[c]), slope = fast_fma(g[c], fast_normal_pdf(g[c]), cdf);
        float gated = g[c] * cdf, du = dh[c] * gated, dg = dh[c] * u[c] * slope;
        h[c] = u[c] * gated;
        u[c] = du;
        g[c] = dg;
    }
}

int fast_geglu(float *y, const float *z, int M, int C)
{
    size_t w = (size_t)C;
#pragma omp parallel for schedule(static) \
    num_threads(fast_threads()) if ((double)M * C > SERIAL_ELEMENTS)
    for (int m = 0; m < M; m++)
        geglu_row(y + (size_t)m * w, z + 2 * (size_t)m * w, z + (2 * (size_t)m + 1) * w, C);
    return PL_OK;
}

int fast_geglu_backward(float *dz, const float *dy, const float *z, int M, int C)
{
    size_t w = (size_t)C;
#pragma omp parallel for schedule(static) \
    num_threads(fast_threads()) if ((double)M * C > SERIAL_ELEMENTS)
    for (int m = 0; m < M; m++) {
        const float *u = z + 2 * (size_t)m * w;
        float *du = dz + 2 * (size_t)m * w;
        geglu_row_backward(du, du + w, dy + (size_t)m * w, u, u + w, C);
    }
    return PL_OK;
}

/* --- the layer with weights in L2: one thread per block -------------------------------------- */

static int block_rows(int C, int floats)
{
    int rows = floats / (2 * C) / 16 * 16;
    return rows < 16 ? 16 : rows;
}

static void small_forward(float *y, float *z, float *h, const float *x, const struct pl_ffn *w,
                          int rows, int D, int C)
{
    fast_gemm(0, 1, rows, 2 * C, D, x, D, w->W1, D, w->b1, 0, z, 2 * C);
    for (int r = 0; r < rows; r++)
        geglu_row(h + (size_t)r * (size_t)C, z + 2 * (size_t)r * (size_t)C,
                  z + (2 * (size_t)r + 1) * (size_t)C, C);
    fast_gemm(0, 1, rows, D, C, h, C, w->W2, C, w->b2, 0, y, D);
}

static int small_ffn(float *y, float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                     int C)
{
    int rows = block_rows(C, BLOCK_FLOATS), blocks = fast_chunk_count(M, rows), failed = 0;
#pragma omp parallel num_threads(fast_threads()) if ((double)M * D * C > 1e6)
    {
        float *z = fast_scratch_alloc((size_t)rows * 3 * (size_t)C);
        if (!z) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic, 1)
        for (int i = 0; i < blocks; i++) {
            struct fast_range p = fast_chunk(M, rows, 16, i);
            size_t at = (size_t)p.start * (size_t)D;
            float *own = saved_z ? saved_z + (size_t)p.start * 2 * (size_t)C : z;
            if (z && p.count)
                small_forward(y + at, own, z + (size_t)rows * 2 * (size_t)C, x + at, w, p.count, D,
                              C);
        }
        fast_scratch_free(z);
    }
    return failed ? PL_ENOMEM : PL_OK;
}

struct slot { /* one slot's sums of weight gradients */
    float *W1, *b1, *W2, *b2;
};

/* z holds the saved activations if `saved_z`; otherwise it is recomputed here. */
static void small_backward(float *y, float *dx, const struct slot *g, float *z, int saved_z,
                           float *h, float *dh, const float *dy, const float *x,
                           const struct pl_ffn *w, int rows, int D, int C)
{
    if (!saved_z) fast_gemm(0, 1, rows, 2 * C, D, x, D, w->W1, D, w->b1, 0, z, 2 * C);
    fast_gemm(0, 0, rows, C, D, dy, D, w->W2, C, NULL, 0, dh, C);
    for (int r = 0; r < rows; r++) {
        float *u = z + 2 * (size_t)r * (size_t)C;
        geglu_row_both(h + (size_t)r * (size_t)C, u, u + C, dh + (size_t)r * (size_t)C, C);
    }
    if (y) fast_gemm(0, 1, rows, D, C, h, C, w->W2, C, w->b2, 0, y, D);
    fast_gemm(1, 0, D, C, rows, dy, D, h, C, NULL, 1, g->W2, C);
    fast_gemm(1, 0, 2 * C, D, rows, z, 2 * C, x, D, NULL, 1, g->W1, D);
    fast_column_sums(g->b2, dy, rows, D);
    fast_column_sums(g->b1, z, rows, 2 * C);
    fast_gemm(0, 0, rows, D, 2 * C, z, 2 * C, w->W1, D, NULL, 0, dx,
              D); /* last, because dx may be dy */
}

/* The first slot is the gradient itself. */
static int small_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy,
                              float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                              int C)
{
    size_t c = (size_t)C, d = (size_t)D, n1 = 2 * c * d, n2 = c * d, each = n1 + 2 * c + n2 + d;
    int rows = block_rows(C, BLOCK_FLOATS), blocks = fast_chunk_count(M, rows), failed = 0;
    int slots = blocks < SLOTS ? blocks : SLOTS;
    float *sums = fast_scratch_alloc((size_t)(slots - 1) * each);
    if (!sums) return PL_ENOMEM;
#pragma omp parallel num_threads(fast_threads()) if ((double)M * D * C > 1e6)
    {
        float *z = fast_scratch_alloc((size_t)rows * 4 * c);
        if (!z) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic, 1)
        for (int s = 0; s < slots; s++) {
            struct slot g = { dw->W1, dw->b1, dw->W2, dw->b2 };
            if (s) {
                float *to = sums + (size_t)(s - 1) * each;
                g = (struct slot){ to, to + n1, to + n1 + 2 * c, to + n1 + 2 * c + n2 };
                memset(to, 0, each * sizeof *to);
            }
            for (int i = s; z && i < blocks; i += slots) {
                struct fast_range p = fast_chunk(M, rows, 16, i);
                size_t at = (size_t)p.start * d;
                float *own = saved_z ? saved_z + (size_t)p.start * 2 * c : z;
                if (p.count)
                    small_backward(y ? y + at : NULL, dx + at, &g, own, saved_z != NULL,
                                   z + (size_t)rows * 2 * c, z + (size_t)rows * 3 * c, dy + at,
                                   x + at, w, p.count, D, C);
            }
        }
        fast_scratch_free(z);
    }
    fast_add_slots(dw->W1, sums, each, n1, slots - 1);
    fast_add_slots(dw->b1, sums + n1, each, 2 * c, slots - 1);
    fast_add_slots(dw->W2, sums + n1 + 2 * c, each, n2, slots - 1);
    fast_add_slots(dw->b2, sums + n1 + 2 * c + n2, each, d, slots - 1);
    fast_scratch_free(sums);
    return failed ? PL_ENOMEM : PL_OK;
}

/* --- the layer with large weights: all threads on each GEMM ---------------------------------- */

static int large_ffn(float *y, float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                     int C)
{
    int rows = block_rows(C, LARGE_FLOATS) < M ? block_rows(C, LARGE_FLOATS) : M;
    float *z = fast_scratch_alloc((size_t)rows * (saved_z ? 1 : 3) * (size_t)C), *h = z;
    if (!z) return PL_ENOMEM;
    for (int m = 0; m < M; m += rows) {
        int n = M - m < rows ? M - m : rows;
        size_t at = (size_t)m * (size_t)D;
        z = saved_z ? saved_z + (size_t)m * 2 * (size_t)C : h + (size_t)rows * (size_t)C;
        fast_linear(z, x + at, w->W1, w->b1, n, D, 2 * C);
        fast_geglu(h, z, n, C);
        fast_linear(y + at, h, w->W2, w->b2, n, C, D);
    }
    fast_scratch_free(h);
    return PL_OK;
}

static void geglu_both(float *h, float *z, const float *dh, int M, int C)
{
    size_t w = (size_t)C;
#pragma omp parallel for schedule(static) \
    num_threads(fast_threads()) if ((double)M * C > SERIAL_ELEMENTS)
    for (int m = 0; m < M; m++) {
        float *u = z + 2 * (size_t)m * w;
        geglu_row_both(h + (size_t)m * w, u, u + w, dh + (size_t)m * w, C);
    }
}

static int large_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy,
                              float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                              int C)
{
    int rows = block_rows(C, LARGE_FLOATS) < M ? block_rows(C, LARGE_FLOATS) : M;
    size_t c = (size_t)C;
    float *h = fast_scratch_alloc((size_t)rows * (saved_z ? 2 : 4) * c), *dh;
    if (!h) return PL_ENOMEM;
    dh = h + (size_t)rows * c;
    for (int m = 0; m < M; m += rows) {
        int n = M - m < rows ? M - m : rows;
        size_t at = (size_t)m * (size_t)D;
        float *z = saved_z ? saved_z + (size_t)m * 2 * c : dh + (size_t)rows * c;
        if (!saved_z) fast_linear(z, x + at, w->W1, w->b1, n, D, 2 * C);
        fast_linear_dx(dh, dy + at, w->W2, n, C, D, 0);
        geglu_both(h, z, dh, n, C);
        if (y) fast_linear(y + at, h, w->W2, w->b2, n, C, D);
        fast_linear_dw(dw->W2, dw->b2, dy + at, h, n, C, D);
        fast_linear_dw(dw->W1, dw->b1, z, x + at, n, D, 2 * C);
        fast_linear_dx(dx + at, z, w->W1, n, D, 2 * C, 0);
    }
    fast_scratch_free(h);
    return PL_OK;
}

/* --- the layer in bfloat16: the gate at the end of a product's tiles -------------------------- */

/* Values that only the layer's own GEMMs read are stored in bfloat16: gated values, the gradients
 * of both. */

static int can_gate(int D, int C)
{
    return fast_bf16() && fast_has_bf16() && fast_bf16_has_gate() && C % 16 == 0 &&
           D <= FAST_BF16_TERMS;
}

static int multiply(struct fast_bf16_gemm g) { return fast_bf16_multiply(&g); }

static int gated_ffn(float *y, float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                     int C)
{
    int most = block_rows(C, LARGE_FLOATS) < M ? block_rows(C, LARGE_FLOATS) : M, rc = PL_OK;
    float *scratch = fast_scratch_alloc((size_t)most * (size_t)C / 2);
    if (!scratch) return PL_ENOMEM;
    for (int m = 0; m < M && rc == PL_OK; m += most) {
        int n = M - m < most ? M - m : most;
        size_t at = (size_t)m * (size_t)D;
        struct fast_bf16_gate gate = { .C = C,
                                       .z = saved_z ? saved_z + (size_t)m * 2 * (size_t)C : NULL,
                                       .h = (uint16_t *)(void *)scratch };
        rc = multiply((struct fast_bf16_gemm){ .tb = 1,
                                               .m = n,
                                               .n = 2 * C,
                                               .k = D,
                                               .a = { x + at, NULL, D },
                                               .b = { w->W1, NULL, D },
                                               .bias = w->b1,
                                               .gate = &gate });
        if (rc == PL_OK)
            rc = multiply((struct fast_bf16_gemm){ .tb = 1,
                                                   .m = n,
                                                   .n = D,
                                                   .k = C,
                                                   .a = { NULL, gate.h, C },
                                                   .b = { w->W2, NULL, C },
                                                   .bias = w->b2,
                                                   .c = y + at });
    }
    fast_scratch_free(scratch);
    return rc;
}

/* n rows: h and dz, from a saved z or from x. */
static int gated_gradients(struct fast_bf16_gate *gate, uint16_t *dh, const float *dy,
                           const float *x, const struct pl_ffn *w, int n, int D)
{
    int C = gate->C, rc;
    struct fast_bf16_gemm of_dh = {
        .m = n, .n = C, .k = D, .a = { dy, NULL, D }, .b = { w->W2, NULL, C }
    };
    if (gate->z) {
        of_dh.gate = gate;
        return multiply(of_dh);
    }
    of_dh.rounded = dh;
    if ((rc = multiply(of_dh))) return rc;
    gate->dh = dh;
    return multiply((struct fast_bf16_gemm){ .tb = 1,
                                             .m = n,
                                             .n = 2 * C,
                                             .k = D,
                                             .a = { x, NULL, D },
                                             .b = { w->W1, NULL, D },
                                             .bias = w->b1,
                                             .gate = gate });
}

static int gated_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy,
                              float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                              int C)
{
    int most = block_rows(C, LARGE_FLOATS) < M ? block_rows(C, LARGE_FLOATS) : M, rc = PL_OK;
    size_t c = (size_t)C;
    float *scratch = fast_scratch_alloc((size_t)most * c * 2);
    uint16_t *h = (uint16_t *)(void *)scratch, *dz = h + (size_t)most * c,
             *dh = dz + (size_t)most * 2 * c;
    if (!scratch) return PL_ENOMEM;
    for (int m = 0; m < M && rc == PL_OK; m += most) {
        int n = M - m < most ? M - m : most;
        size_t at = (size_t)m * (size_t)D;
        struct fast_bf16_gate gate = { .C = C,
                                       .z = saved_z ? saved_z + (size_t)m * 2 * c : NULL,
                                       .h = h,
                                       .dz = dz,
                                       .sums = dw->b1 };
        struct fast_bf16_gemm of_y = { .tb = 1,
                                       .m = n,
                                       .n = D,
                                       .k = C,
                                       .a = { NULL, h, C },
                                       .b = { w->W2, NULL, C },
                                       .bias = w->b2,
                                       .c = y ? y + at : NULL };
        struct fast_bf16_gemm of_W2 = { .ta = 1,
                                        .m = D,
                                        .n = C,
                                        .k = n,
                                        .a = { dy + at, NULL, D },
                                        .b = { NULL, h, C },
                                        .add = 1,
                                        .c = dw->W2 };
        struct fast_bf16_gemm of_W1 = { .ta = 1,
                                        .m = 2 * C,
                                        .n = D,
                                        .k = n,
                                        .a = { NULL, dz, 2 * C },
                                        .b = { x + at, NULL, D },
                                        .add = 1,
                                        .c = dw->W1 };
        struct fast_bf16_gemm of_x = { .m = n,
                                       .n = D,
                                       .k = 2 * C,
                                       .a = { NULL, dz, 2 * C },
                                       .b = { w->W1, NULL, D },
                                       .c = dx + at };
        if ((rc = gated_gradients(&gate, dh, dy + at, x + at, w, n, D)) ||
            (y && (rc = multiply(of_y))) || (rc = multiply(of_W2)) || (rc = multiply(of_W1)))
            break;
        fast_column_sums(dw->b2, dy + at, n, D);
        rc = multiply(of_x); /* last, because dx may be dy */
    }
    fast_scratch_free(scratch);
    return rc;
}

int fast_ffn(float *y, float *z, const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    if (can_gate(D, C)) return gated_ffn(y, z, x, w, M, D, C);
    if (!fast_bf16() && (size_t)C * 2 * (size_t)D <= SMALL_WEIGHTS)
        return small_ffn(y, z, x, w, M, D, C);
    return large_ffn(y, z, x, w, M, D, C);
}

int fast_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy, float *z,
                      const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    if (can_gate(D, C)) return gated_ffn_backward(y, dx, dw, dy, z, x, w, M, D, C);
    if (!fast_bf16() && (size_t)C * 2 * (size_t)D <= SMALL_WEIGHTS)
        return small_ffn_backward(y, dx, dw, dy, z, x, w, M, D, C);
    return large_ffn_backward(y, dx, dw, dy, z, x, w, M, D, C);
}
