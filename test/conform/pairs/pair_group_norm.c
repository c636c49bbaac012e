/* pair_group_norm.c - group norm. The bounds are layer norm's, over a group instead of a row. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

#define EPS 0x1p-24
#define NORM_EPS 1e-6f

static const struct {
    int B, C, P, G;
    double mean;
} shapes[] = {
    { 1, 1, 1, 1, 0 },          { 2, 6, 5, 3, 0 },
    { 3, 32, 33, 32, 10 }, /* a channel a group, and a mean ten times the deviation */
    { 2, 96, 48, 32, -1 },      { 1, 64, 1027, 4, 0 },
    { 4, 16, 4096, 4, 0 },      /* the demo's codec */
    { 1, 128, 65536, 32, 0.5 }, /* the reference run's VQGAN, its largest image */
};

/* Mean, 1/sqrt(var + eps) and root of the mean square of n values. */
static void moments(double *mean, double *inverse, double *rms, const float *x, size_t n)
{
    double sum = 0, var = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) var += (x[i] - *mean) * (x[i] - *mean);
    *inverse = 1 / sqrt(var / (double)n + NORM_EPS);
    *rms = sqrt(var / (double)n + *mean * *mean);
}

static struct pair_f32 values(struct pair *p, size_t n, double mean)
{
    struct pair_f32 x = pair_normal(p, n, 1);
    for (size_t i = 0; i < n; i++) x.at[0][i] += (float)mean;
    pair_share(p, x.any);
    return x;
}

static void forward(struct pair *p, int B, int C, int P, int G, double around, int in_place)
{
    size_t n = (size_t)B * (size_t)C * (size_t)P, per = (size_t)(C / G) * (size_t)P;
    if (!pair_case(p, "group_norm", "B%d C%d P%d G%d mean%g%s", B, C, P, G, around,
                   in_place ? " in place" : ""))
        return;
    struct pair_f32 x = values(p, n, around), weight = pair_normal(p, (size_t)C, 1);
    struct pair_f32 bias = pair_normal(p, (size_t)C, 1), y = in_place ? x : pair_poison(p, n);
    float *bound = pair_scratch(p, n);
    for (size_t group = 0; group < n / per; group++) {
        double mean, inverse, rms;
        moments(&mean, &inverse, &rms, x.at[0] + group * per, per);
        for (size_t i = group * per; i < (group + 1) * per; i++) {
            size_t c = i / (size_t)P % (size_t)C;
            bound[i] = (float)(fabs(weight.at[0][c]) * (fabs(x.at[0][i] - mean) + rms) * inverse +
                               fabs(bias.at[0][c]));
        }
    }
    pair_work(p, 0, 8.0 * (double)n);
    PAIR(p, group_norm, y.at[side], x.at[side], weight.at[side], bias.at[side], B, C, P, G,
         NORM_EPS);
    pair_within(p, "y", y.any, 16 * EPS, bound);
}

static void backward(struct pair *p, int B, int C, int P, int G, double around)
{
    size_t n = (size_t)B * (size_t)C * (size_t)P, per = (size_t)(C / G) * (size_t)P;
    if (!pair_case(p, "group_norm_backward", "B%d C%d P%d G%d mean%g", B, C, P, G, around)) return;
    struct pair_f32 x = values(p, n, around), weight = pair_normal(p, (size_t)C, 1);
    struct pair_f32 dy = pair_normal(p, n, 1), dx = pair_poison(p, n);
    struct pair_f32 dweight = pair_normal(p, (size_t)C, 1), dbias = pair_normal(p, (size_t)C, 1);
    float *bound = pair_scratch(p, n), *of_weight = pair_scratch(p, (size_t)C);
    float *of_offset = pair_scratch(p, (size_t)C);
    for (int c = 0; c < C; c++) {
        of_weight[c] = fabsf(dweight.at[0][c]);
        of_offset[c] = fabsf(dbias.at[0][c]);
    }
    for (size_t group = 0; group < n / per; group++) {
        double mean, inverse, rms, g_mean = 0, gh_mean = 0;
        moments(&mean, &inverse, &rms, x.at[0] + group * per, per);
        for (size_t i = group * per; i < (group + 1) * per; i++) {
            size_t c = i / (size_t)P % (size_t)C;
            double g = fabs((double)dy.at[0][i] * weight.at[0][c]);
            double size = fabs(x.at[0][i] - mean) * inverse + rms * inverse;
            g_mean += g / (double)per;
            gh_mean += g * size / (double)per;
            of_weight[c] += (float)(fabs((double)dy.at[0][i]) * size);
            of_offset[c] += fabsf(dy.at[0][i]);
        }
        for (size_t i = group * per; i < (group + 1) * per; i++) {
            size_t c = i / (size_t)P % (size_t)C;
            double size = fabs(x.at[0][i] - mean) * inverse + rms * inverse;
            bound[i] = (float)(inverse * (fabs((double)dy.at[0][i] * weight.at[0][c]) + g_mean +
                                          size * gh_mean));
        }
    }
    pair_work(p, 0, 12.0 * (double)n);
    PAIR(p, group_norm_backward, dx.at[side], dweight.at[side], dbias.at[side], dy.at[side],
         x.at[side], weight.at[side], B, C, P, G, NORM_EPS);
    pair_within(p, "dx", dx.any, 32 * EPS, bound);
    pair_within(p, "dgain", dweight.any, 32 * EPS,
                of_weight); /* sums go on in double after 1024 terms */
    pair_within(p, "doffset", dbias.any, 32 * EPS, of_offset);
}

void pair_group_norm(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        forward(p, shapes[i].B, shapes[i].C, shapes[i].P, shapes[i].G, shapes[i].mean,
                (int)(i % 2));
        backward(p, shapes[i].B, shapes[i].C, shapes[i].P, shapes[i].G, shapes[i].mean);
    }
}
