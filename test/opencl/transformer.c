/* transformer.c - the layers of the network: which kernels each one runs, in which order. */
#include "device.h"

#include <stdlib.h>

int ocl_fill(float *x, float value, size_t n) { return ocl_run("fill", n, "pf", x, value); }
int ocl_axpy(float *y, float a, const float *x, size_t n)
{
    return ocl_run("axpy", n, "pfp", y, a, x);
}
int ocl_scale(float *x, float a, size_t n) { return ocl_run("scale", n, "pf", x, a); }

int ocl_sumsq(double *sum, const float *x, size_t n)
{
    int rc;
    double *part = ocl_scratch(&rc, OCL_SUMS, OCL_PARTS * sizeof *part);
    if (rc == PL_OK) rc = ocl_run("squares", OCL_PARTS, "ppz", part, x, n);
    return rc == PL_OK ? ocl_sum_parts(sum, part) : rc;
}

int ocl_transpose(float *y, int y_step, const float *x, int x_step, int B, int R, int C)
{
    return ocl_run("transpose", (size_t)B * (size_t)R * (size_t)C, "pipiii", y, y_step, x, x_step,
                   R, C);
}

/* ---- GEMM ---- */

static int gemm(float *C, const float *A, int a_transposed, const float *B, int b_transposed, int M,
                int N, int K, int add)
{
    return ocl_run_tiles("gemm", (N + 31) / 32, (M + 31) / 32, 8, "pipipiiiii", C, N, A,
                         a_transposed, B, b_transposed, M, N, K, add);
}

int ocl_linear(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    int rc = b ? ocl_run("spread_bias", (size_t)M * (size_t)N, "ppi", y, b, N) : PL_OK;
    return rc == PL_OK ? gemm(y, x, 0, W, 1, M, N, K, b != NULL) : rc;
}

int ocl_linear_dx(float *dx, const float *dy, const float *W, int M, int K, int N, int add)
{
    return gemm(dx, dy, 0, W, 0, M, K, N, add);
}

int ocl_linear_dw(float *dW, float *db, const float *dy, const float *x, int M, int K, int N)
{
    int rc = gemm(dW, dy, 1, x, 0, N, K, M, 1);
    return rc == PL_OK && db ? ocl_run("column_sums", (size_t)N, "ppi", db, dy, M) : rc;
}

/* ---- rows ---- */

int ocl_layer_norm(float *y, const float *x, const float *weight, const float *bias, int M, int D,
                   float eps)
{
    return ocl_run("layer_norm", (size_t)M, "ppppif", y, x, weight, bias, D, eps);
}

int ocl_layer_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                            const float *x, const float *weight, int M, int D, float eps, int add)
{
    int rc;
    double *s = ocl_scratch(&rc, OCL_SUMS, 2 * (size_t)M * sizeof *s);
    if (rc == PL_OK) rc = ocl_run("row_statistics", (size_t)M, "ppif", s, x, D, eps);
    /* parameter gradients first, because dx may be dy */
    if (rc == PL_OK)
        rc = ocl_run("layer_norm_param_grads", (size_t)D, "pppppi", dweight, dbias, dy, x, s, M);
    if (rc == PL_OK)
        rc = ocl_run("layer_norm_dx", (size_t)M, "pppppii", dx, dy, x, weight, s, D, add);
    return rc;
}

int ocl_scale_add(float *y, const float *x, const float *s, int M, int D, float sign)
{
    return ocl_run("scale_add", (size_t)M * (size_t)D, "pppif", y, x, s, D, sign);
}

int ocl_layer_scale_backward(float *dx, float *ds, const float *dy, const float *x, const float *s,
                             int M, int D)
{
    int rc = ocl_run("layer_scale_grads", (size_t)D, "pppi", ds, dy, x, M);
    return rc == PL_OK ? ocl_run("scale_rows", (size_t)M * (size_t)D, "pppi", dx, dy, s, D) : rc;
}

int ocl_embed(float *y, const float *table, const int32_t *ids, int M, int D, int rows)
{
    (void)rows;
    return ocl_run("embed", (size_t)M * (size_t)D, "pppi", y, table, ids, D);
}

int ocl_embed_backward(float *dtable, const float *dy, const int32_t *ids, int M, int D, int rows)
{
    (void)rows;
    return ocl_run("embed_backward", (size_t)D, "pppi", dtable, dy, ids, M);
}

int ocl_shift(float *y, const float *x, int B, int n, int D, int P, int F)
{
    return ocl_run("shift", (size_t)B * (size_t)n * (size_t)D, "ppiiii", y, x, n, D, P, F);
}

int ocl_shift_backward(float *dx, const float *dy, int B, int n, int D, int P, int F)
{
    return ocl_run("unshift", (size_t)B * (size_t)n * (size_t)D, "ppiiii", dx, dy, n, D, P, F);
}

int ocl_rotary(float *x, const float *cosine, const float *sine, int B, int n, int G, int d, int R,
               int inverse)
{
    return ocl_run("rotary", (size_t)B * (size_t)n * (size_t)G * (size_t)(R / 2), "pppiiiif", x,
                   cosine, sine, n, G, d, R / 2, inverse ? -1.0 : 1.0);
}

/* ---- feed-forward ---- */

int ocl_activation(float *y, const float *x, size_t n, enum pl_activation kind)
{
    return ocl_run("activation", n, "ppi", y, x, (int)kind);
}

int ocl_activation_backward(float *dx, const float *dy, const float *x, size_t n,
                            enum pl_activation kind)
{
    return ocl_run("activation_backward", n, "pppi", dx, dy, x, (int)kind);
}

int ocl_geglu(float *y, const float *z, int M, int C)
{
    return ocl_run("geglu", (size_t)M * (size_t)C, "ppi", y, z, C);
}

int ocl_geglu_backward(float *dz, const float *dy, const float *z, int M, int C)
{
    return ocl_run("geglu_backward", (size_t)M * (size_t)C, "pppi", dz, dy, z, C);
}

#define ROWS 2048 /* rows of z at a time: 64 MiB at the reference run's width */

int ocl_ffn(float *y, float *saved_z, const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    int rc, some = M < ROWS ? M : ROWS;
    float *h = ocl_scratch(&rc, OCL_LAYER, 3 * (size_t)some * (size_t)C * sizeof *h),
          *z = h + (size_t)some * (size_t)C;
    for (int m = 0; rc == PL_OK && m < M; m += some) {
        int rows = M - m < some ? M - m : some;
        if (saved_z) z = saved_z + 2 * (size_t)m * (size_t)C;
        rc = ocl_linear(z, x + (size_t)m * (size_t)D, w->W1, w->b1, rows, D, 2 * C);
        if (rc == PL_OK) rc = ocl_geglu(h, z, rows, C);
        if (rc == PL_OK) rc = ocl_linear(y + (size_t)m * (size_t)D, h, w->W2, w->b2, rows, C, D);
    }
    return rc;
}

int ocl_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy, float *saved_z,
                     const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    int rc, some = M < ROWS ? M : ROWS;
    size_t hidden = (size_t)some * (size_t)C;
    float *h = ocl_scratch(&rc, OCL_LAYER, 4 * hidden * sizeof *h), *dh = h + hidden,
          *z = dh + hidden;
    for (int m = 0; rc == PL_OK && m < M; m += some) {
        int rows = M - m < some ? M - m : some;
        size_t at = (size_t)m * (size_t)D;
        if (saved_z) z = saved_z + 2 * (size_t)m * (size_t)C;
        else rc = ocl_linear(z, x + at, w->W1, w->b1, rows, D, 2 * C);
        if (rc == PL_OK) rc = ocl_geglu(h, z, rows, C);
        if (rc == PL_OK && y) rc = ocl_linear(y + at, h, w->W2, w->b2, rows, C, D);
        if (rc == PL_OK) rc = ocl_linear_dw(dw->W2, dw->b2, dy + at, h, rows, C, D);
        if (rc == PL_OK) rc = ocl_linear_dx(dh, dy + at, w->W2, rows, C, D, 0);
        if (rc == PL_OK) rc = ocl_geglu_backward(z, dh, z, rows, C); /* z is dz from here on */
        if (rc == PL_OK) rc = ocl_linear_dw(dw->W1, dw->b1, z, x + at, rows, D, 2 * C);
        if (rc == PL_OK) rc = ocl_linear_dx(dx + at, z, w->W1, rows, D, 2 * C, 0);
    }
    return rc;
}

/* ---- attention ---- */

#define MASK(m) (int)(m)->kind, (m)->P, (m)->F, (m)->kernel, (m)->dilation

int ocl_attention(float *o, float *lse, const float *qkv, int B, int n, int H, int d,
                  const struct pl_mask *mask, const uint8_t *key_mask)
{
    return ocl_run("attention", (size_t)B * (size_t)n * (size_t)H, "ppipiiiiiiiipi", o, lse,
                   lse != NULL, qkv, n, H, d, MASK(mask), key_mask, key_mask != NULL);
}

int ocl_attention_backward(float *dqkv, const float *dout, const float *qkv, const float *o,
                           const float *lse, int B, int n, int H, int d, const struct pl_mask *mask,
                           const uint8_t *key_mask)
{
    size_t vectors = (size_t)B * (size_t)n * (size_t)H;
    static const char *const kernels[] = { "attention_dq", "attention_dkv" };
    int rc;
    float *delta = ocl_scratch(&rc, OCL_SUMS, vectors * sizeof *delta);
    if (rc == PL_OK) rc = ocl_run("attention_delta", vectors, "pppiii", delta, dout, o, n, H, d);
    for (size_t i = 0; rc == PL_OK && i < PL_COUNT(kernels); i++)
        rc = ocl_run(kernels[i], vectors, "pppppiiiiiiiipi", dqkv, dout, qkv, lse, delta, n, H, d,
                     MASK(mask), key_mask, key_mask != NULL);
    return rc;
}

int ocl_attention_step(float *o, float *k_cache, float *v_cache, const float *qkv, int B, int S,
                       int H, int d, int p, const struct pl_mask *mask)
{
    return ocl_run("attention_step", (size_t)B * (size_t)H, "ppppiiiiiiiii", o, k_cache, v_cache,
                   qkv, S, H, d, p, MASK(mask));
}

/* ---- loss ---- */

#define LOGITS ((size_t)16 << 20) /* floats of logits at a time */

/* Labels of a segment, over the whole batch. */
static double count_labels(const int32_t *label, const struct pl_loss_segment *s, int B, int S)
{
    double count = 0;
    for (int b = 0; b < B; b++)
        for (int p = s->row0; p < s->row1; p++)
            count += label[(size_t)b * (size_t)S + (size_t)p] >= 0;
    return count;
}

int ocl_loss(double *loss, float *logp, float *dx, float *dW, float *db, const float *x,
             const float *W, const float *b, const int32_t *label,
             const struct pl_loss_segment *segment, int segments, int B, int S, int D, int V)
{
    size_t all = (size_t)B * (size_t)S, most = LOGITS / (size_t)V ? LOGITS / (size_t)V : 1;
    int rc, some = most < (size_t)S ? (int)most : S;
    int32_t *host_label = malloc(all * sizeof *host_label);
    double *row_loss = ocl_scratch(&rc, OCL_SUMS, all * sizeof *row_loss),
           *host_loss = malloc(all * sizeof *host_loss);
    float *z = rc == PL_OK ? ocl_scratch(&rc, OCL_LAYER, (size_t)some * (size_t)V * sizeof *z)
                           : NULL;
    if (!host_label || !host_loss) rc = PL_ENOMEM;
    if (rc == PL_OK) rc = ocl_get(host_label, label, all * sizeof *host_label);
    for (int i = 0; rc == PL_OK && i < segments; i++) {
        const struct pl_loss_segment *s = &segment[i];
        int columns = s->col1 - s->col0;
        double count = count_labels(host_label, s, B, S);
        size_t head = (size_t)s->col0 * (size_t)D;
        loss[i] = 0;
        for (int seq = 0; seq < B; seq++)
            for (int p = s->row0; rc == PL_OK && p < s->row1; p += some) {
                int rows = s->row1 - p < some ? s->row1 - p : some;
                size_t at = (size_t)seq * (size_t)S + (size_t)p, row = at * (size_t)D;
                rc = ocl_linear(z, x + row, W + head, b + s->col0, rows, D, columns);
                if (rc == PL_OK)
                    rc = ocl_run("softmax_rows", (size_t)rows, "ppippfii", z,
                                 logp ? logp + at : NULL, logp != NULL, row_loss + at, label + at,
                                 count > 0 ? s->weight / count : 0, columns, s->col0);
                if (rc == PL_OK && dx)
                    rc = ocl_linear_dx(dx + row, z, W + head, rows, D, columns, 0);
                if (rc == PL_OK && dx)
                    rc = ocl_linear_dw(dW + head, db + s->col0, z, x + row, rows, D, columns);
            }
        if (rc == PL_OK) rc = ocl_get(host_loss, row_loss, all * sizeof *host_loss);
        for (int seq = 0; rc == PL_OK && count > 0 && seq < B; seq++)
            for (int p = s->row0; p < s->row1; p++)
                loss[i] += host_loss[(size_t)seq * (size_t)S + (size_t)p] / count;
    }
    free(host_label);
    free(host_loss);
    return rc;
}
