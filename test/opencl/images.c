/* images.c - the operations of the image codec. */
#include "device.h"

static struct ocl_conv conv_of(const struct pl_conv *c)
{
    return (struct ocl_conv){ c->C,
                              c->H,
                              c->W,
                              c->O,
                              c->K,
                              c->stride,
                              c->top,
                              c->left,
                              pl_conv_height(c),
                              pl_conv_width(c) };
}

static size_t outputs(const struct pl_conv *c)
{
    return (size_t)c->B * (size_t)c->O * (size_t)pl_conv_height(c) * (size_t)pl_conv_width(c);
}

int ocl_conv(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c)
{
    struct ocl_conv s = conv_of(c);
    return ocl_run("conv", outputs(c), "ppppis", y, x, w, b, b != NULL, &s);
}

int ocl_conv_dx(float *dx, const float *dy, const float *w, const struct pl_conv *c)
{
    struct ocl_conv s = conv_of(c);
    return ocl_run("conv_dx", (size_t)c->B * (size_t)c->C * (size_t)c->H * (size_t)c->W, "ppps", dx,
                   dy, w, &s);
}

int ocl_conv_dw(float *dw, float *db, const float *dy, const float *x, const struct pl_conv *c)
{
    struct ocl_conv s = conv_of(c);
    int rc = ocl_run("conv_dw", (size_t)c->O * (size_t)c->C * (size_t)c->K * (size_t)c->K, "pppsi",
                     dw, dy, x, &s, c->B);
    return rc == PL_OK && db
               ? ocl_run("channel_sums", (size_t)c->O, "ppii", db, dy, c->B, s.H_out * s.W_out)
               : rc;
}

int ocl_upsample(float *y, const float *x, int N, int H, int W)
{
    return ocl_run("upsample_positions", 4 * (size_t)N * (size_t)H * (size_t)W, "ppii", y, x, H, W);
}

int ocl_upsample_backward(float *dx, const float *dy, int N, int H, int W)
{
    return ocl_run("upsample_backward", (size_t)N * (size_t)H * (size_t)W, "ppii", dx, dy, H, W);
}

int ocl_group_norm(float *y, const float *x, const float *weight, const float *bias, int B, int C,
                   int P, int G, float eps)
{
    return ocl_run("group_norm", (size_t)B * (size_t)G, "ppppiiif", y, x, weight, bias, C / G, P, G,
                   eps);
}

int ocl_group_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                            const float *x, const float *weight, int B, int C, int P, int G,
                            float eps)
{
    size_t groups = (size_t)B * (size_t)G, per = (size_t)(C / G) * (size_t)P;
    int rc;
    double *s = ocl_scratch(&rc, OCL_SUMS, 2 * groups * sizeof *s);
    if (rc == PL_OK) rc = ocl_run("group_statistics", groups, "ppzf", s, x, per, eps);
    if (rc == PL_OK)
        rc = ocl_run("group_norm_param_grads", (size_t)C, "pppppiiii", dweight, dbias, dy, x, s, B,
                     C / G, P, G);
    if (rc == PL_OK)
        rc = ocl_run("group_norm_dx", groups, "pppppiii", dx, dy, x, weight, s, C / G, P, G);
    return rc;
}

int ocl_nearest_code(int32_t *code, const float *z, const float *table, int B, int D, int P, int N)
{
    return ocl_run("nearest_code", (size_t)B * (size_t)P, "pppiii", code, z, table, D, P, N);
}

int ocl_code_rows(float *z, const float *table, const int32_t *code, int B, int D, int P, int N)
{
    (void)N;
    return ocl_run("code_rows", (size_t)B * (size_t)D * (size_t)P, "pppii", z, table, code, D, P);
}

int ocl_code_rows_backward(float *dtable, const float *dz, float scale, const int32_t *code, int B,
                           int D, int P, int N)
{
    (void)N;
    return ocl_run("code_rows_backward", (size_t)D, "ppfpii", dtable, dz, scale, code, B, P);
}

int ocl_gumbel_code(int32_t *code, const float *logits, const float *noise, int B, int N, int P)
{
    return ocl_run("gumbel_code", (size_t)B * (size_t)P, "pppiii", code, logits, noise,
                   noise != NULL, N, P);
}

int ocl_gumbel_soft(float *y, const float *logits, const float *noise, float temperature, int B,
                    int N, int P)
{
    return ocl_run("gumbel_soft", (size_t)B * (size_t)P, "pppifii", y, logits, noise, noise != NULL,
                   temperature, N, P);
}

int ocl_kl_uniform(double *kl, const float *logits, int B, int N, int P)
{
    size_t positions = (size_t)B * (size_t)P, folded = OCL_PARTS;
    double host[OCL_PARTS];
    int rc;
    double *sum = ocl_scratch(&rc, OCL_SUMS, positions * sizeof *sum);
    if (rc == PL_OK) rc = ocl_run("kl_uniform", positions, "ppii", sum, logits, N, P);
    *kl = 0;
    for (size_t at = 0; rc == PL_OK && at < positions; at += folded) {
        size_t some = positions - at < folded ? positions - at : folded;
        rc = ocl_get(host, sum + at, some * sizeof *host);
        for (size_t i = 0; rc == PL_OK && i < some; i++) *kl += host[i] / (double)positions;
    }
    return rc;
}

int ocl_gumbel_backward(float *dlogits, const float *a, const float *y, const float *logits,
                        float temperature, float kl_weight, int B, int N, int P)
{
    return ocl_run("gumbel_backward", (size_t)B * (size_t)P, "ppppffii", dlogits, a, y, logits,
                   temperature, kl_weight, N, P);
}

int ocl_pixel_loss(double loss[2], float *dy, const float *y, const float *x, float l1, float l2,
                   size_t n)
{
    int rc;
    double *part = ocl_scratch(&rc, OCL_SUMS, 2 * OCL_PARTS * sizeof *part);
    if (rc == PL_OK)
        rc = ocl_run("pixel_loss", OCL_PARTS, "ppippffz", part, dy, dy != NULL, y, x, l1, l2, n);
    for (int i = 0; rc == PL_OK && i < 2; i++) {
        rc = ocl_sum_parts(&loss[i], part + i * OCL_PARTS);
        loss[i] /= (double)n;
    }
    return rc;
}
