/* group_norm.c - as layer norm, but mean and variance are over a group of neighbouring channels and
 * all places of one image; the VQGAN's norm, for batches too small to average over.
 * [Wu & He 2018] [spec images-and-text 1.1] The contract is in norm.h.
 *
 *   h = (x - mean) / sqrt(var + eps)        over C/G channels and P places
 *   y = weight_c h + bias_c                 one weight and bias for each channel */
#include "norm.h"

#include <assert.h>
#include <math.h>

/* Mean and 1/sqrt(variance + eps) of n values. */
static void moments(double *mean, double *scale, const float *x, size_t n, float eps)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *scale = 1 / sqrt(squares / (double)n + eps);
}

int ref_group_norm(float *y, const float *x, const float *weight, const float *bias, int B, int C,
                   int P, int G, float eps)
{
    size_t per = (size_t)(C / G) * (size_t)P;
    assert(B >= 1 && P >= 1 && G >= 1 && C >= G && C % G == 0);
    for (int group = 0; group < B * G; group++, x += per, y += per) {
        double mean, scale;
        moments(&mean, &scale, x, per, eps);
        /* y = weight_c h + bias_c; element i is in channel i / P of the group */
        for (size_t i = 0; i < per; i++) {
            size_t c = (size_t)(group % G) * (size_t)(C / G) + i / (size_t)P;
            y[i] = (float)((x[i] - mean) * scale * weight[c] + bias[c]);
        }
    }
    return PL_OK;
}

/* As layer norm's, with g = dy weight and scale = 1 / sqrt(var + eps):
 *
 *   dweight_c = sum over places of dy h,   dbias_c = sum over places of dy
 *   dx        = scale (g - mean(g) - h mean(g h))            means over the group */
int ref_group_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                            const float *x, const float *weight, int B, int C, int P, int G,
                            float eps)
{
    int channels = C / G;
    size_t per = (size_t)channels * (size_t)P;
    double *sums = pl_alloc(2 * (size_t)C, sizeof *sums), *weight_sum = sums, *bias_sum;
    assert(B >= 1 && P >= 1 && G >= 1 && C >= G && C % G == 0);
    if (!sums) return PL_ENOMEM;
    bias_sum = sums + C;
    for (int group = 0; group < B * G; group++, x += per, dx += per, dy += per) {
        int first = group % G * channels;
        double mean, scale, sum_g = 0, sum_gh = 0;
        moments(&mean, &scale, x, per, eps);
        for (int k = 0; k < channels; k++) {
            /* sum dy and sum dy h over the places of one channel */
            double sum = 0, sum_h = 0;
            for (size_t i = (size_t)k * (size_t)P; i < (size_t)(k + 1) * (size_t)P; i++) {
                sum += dy[i];
                sum_h += dy[i] * (x[i] - mean) * scale;
            }
            bias_sum[first + k] += sum;
            weight_sum[first + k] += sum_h;
            /* a channel's weight is one number: its sums give the group's means, too */
            sum_g += weight[first + k] * sum;
            sum_gh += weight[first + k] * sum_h;
        }
        for (size_t i = 0; i < per; i++) {
            /* dx = scale (g - mean(g) - h mean(g h)) */
            double h = (x[i] - mean) * scale,
                   g = (double)dy[i] * weight[first + (int)(i / (size_t)P)];
            dx[i] = (float)(scale * (g - sum_g / (double)per - h * sum_gh / (double)per));
        }
    }
    for (int c = 0; c < C; c++) {
        dweight[c] = (float)(dweight[c] + weight_sum[c]);
        dbias[c] = (float)(dbias[c] + bias_sum[c]);
    }
    pl_free(sums);
    return PL_OK;
}
