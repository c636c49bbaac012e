/* group_norm.c - a group's values stay in L1 or L2 between the passes over them. Scale and bias are
 * folded into one multiply-add per value. One thread computes a group. */
#include "fast.h"
#include "isa.h"
#include "workspace.h"

#include <math.h>
#include <string.h>

#define STRETCH 1024 /* values summed in float32 before the sum continues in double */

struct kernels {
    double (*sum)(const float *x, size_t n);
    double (*sum_of_squares)(const float *x, size_t n, float mean);
    void (*apply)(float *y, const float *x, size_t n, float mean, float a, float b);
    void (*sums)(double out[2], const float *dy, const float *x, size_t n, float mean);
    void (*apply_back)(float *dx, const float *dy, const float *x, size_t n, float mean, float a,
                       float b, float c);
};

#define SIMD_FILE "group_norm_simd.inc"
#include "foreach_isa.inc"

static const struct kernels *const kernels[ISA_COUNT] = ISA_TABLE(kernels);

/* Mean, rounded to float32, and scale = 1 / sqrt(variance + eps). Differences are taken from the
 * rounded mean, and the variance is corrected by the square of what rounding changed. */
static float statistics(double *scale, const struct kernels *k, const float *x, size_t n, float eps)
{
    double mean = k->sum(x, n) / (double)n, off;
    float rounded = (float)mean;
    off = mean - rounded;
    *scale = 1 / sqrt(fmax(0, k->sum_of_squares(x, n, rounded) / (double)n - off * off) + eps);
    return rounded;
}

int fast_group_norm(float *y, const float *x, const float *weight, const float *bias, int B, int C,
                    int P, int G, float eps)
{
    const struct kernels *k = kernels[isa_chosen()];
    int channels = C / G;
    size_t per = (size_t)channels * (size_t)P;
#pragma omp parallel for num_threads(fast_threads()) schedule(static)
    for (int group = 0; group < B * G; group++) {
        const float *from = x + (size_t)group * per;
        double scale;
        float mean = statistics(&scale, k, from, per, eps);
        for (int c = 0; c < channels; c++) {
            int channel = group % G * channels + c;
            size_t at = (size_t)c * (size_t)P;
            k->apply(y + (size_t)group * per + at, from + at, (size_t)P, mean,
                     (float)(scale * weight[channel]), bias[channel]);
        }
    }
    return PL_OK;
}

int fast_group_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                             const float *x, const float *weight, int B, int C, int P, int G,
                             float eps)
{
    const struct kernels *k = kernels[isa_chosen()];
    int channels = C / G;
    size_t per = (size_t)channels * (size_t)P;
    /* per image and channel: sum of dy, sum of dy * normalized x */
    double(*sums)[2] = (double(*)[2])(void *)workspace(4 * (size_t)B * (size_t)C);
    if (!sums) return PL_ENOMEM;
#pragma omp parallel for num_threads(fast_threads()) schedule(static)
    for (int group = 0; group < B * G; group++) {
        size_t start = (size_t)group * per;
        int first = group % G * channels, image = group / G;
        double scale, sum = 0, sum_h = 0;
        float mean = statistics(&scale, k, x + start, per, eps);
        for (int c = 0; c < channels; c++) {
            double *s = sums[(size_t)image * (size_t)C + (size_t)(first + c)];
            size_t at = start + (size_t)c * (size_t)P;
            k->sums(s, dy + at, x + at, (size_t)P, mean);
            s[1] *= scale;
            sum += weight[first + c] * s[0];
            sum_h += weight[first + c] * s[1];
        }
        for (int c = 0; c < channels; c++) {
            size_t at = start + (size_t)c * (size_t)P;
            k->apply_back(dx + at, dy + at, x + at, (size_t)P, mean,
                          (float)(scale * weight[first + c]),
                          (float)(scale * scale * sum_h / (double)per),
                          (float)(scale * sum / (double)per));
        }
    }
    for (int c = 0; c < C; c++) {
        double sum = dbias[c], sum_h = dweight[c];
        for (int b = 0; b < B; b++) {
            sum += sums[(size_t)b * (size_t)C + (size_t)c][0];
            sum_h += sums[(size_t)b * (size_t)C + (size_t)c][1];
        }
        dbias[c] = (float)sum;
        dweight[c] = (float)sum_h;
    }
    return PL_OK;
}
