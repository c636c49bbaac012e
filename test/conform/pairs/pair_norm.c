/* pair_norm.c - layer norm, LayerScale and their gradients. The bounds are the contract's; where it
 * gives none, they follow from it: every sum of n terms costs (n + 8) * 2^-24 of the terms. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

#define EPS 0x1p-24
#define NORM_EPS 1e-5f

static const struct {
    int M, D;
    double mean;
} shapes[] = {
    { 1, 1, 0 },       { 3, 7, 0 },       { 5, 33, 100 }, /* a mean a hundred times the deviation */
    { 130, 65, 0 },    { 17000, 3, 0 },                   /* many rows */
    { 2, 20011, 0 },                                      /* long rows */
    { 9, 36, 3 }, /* fours: fewer than a warp has threads, and more, and not as many each; */
    { 77, 200, 0 },    { 35, 388, 1 },    { 130, 772, 0 },
    { 3, 4099, 1000 }, /* sums that need more than a float */
    { 19, 1028, 0 },   /* and more than a warp may want to hold */
    { 5120, 128, 0 },  { 1280, 1024, 0 },
};

/* One row's statistics in double: mean, 1/sqrt(var + eps), root of the mean square. */
static void moments(double *mean, double *inverse, double *rms, const float *x, int D)
{
    double sum = 0, var = 0;
    for (int i = 0; i < D; i++) sum += x[i];
    *mean = sum / D;
    for (int i = 0; i < D; i++) var += (x[i] - *mean) * (x[i] - *mean);
    *inverse = 1 / sqrt(var / D + NORM_EPS);
    *rms = sqrt(var / D + *mean * *mean);
}

static struct pair_f32 values(struct pair *p, size_t n, double mean)
{
    struct pair_f32 x = pair_normal(p, n, 1);
    for (size_t i = 0; i < n; i++) x.at[0][i] += (float)mean;
    pair_share(p, x.any);
    return x;
}

static void norm(struct pair *p, int M, int D, double around, int in_place)
{
    size_t n = (size_t)M * (size_t)D;
    if (!pair_case(p, "layer_norm", "M%d D%d mean%g%s", M, D, around, in_place ? " in place" : ""))
        return;
    struct pair_f32 x = values(p, n, around), weight = pair_normal(p, (size_t)D, 1);
    struct pair_f32 bias = pair_normal(p, (size_t)D, 1), y = in_place ? x : pair_poison(p, n);
    float *bound = pair_scratch(p, n);
    for (int m = 0; m < M; m++) {
        const float *row = x.at[0] + (size_t)m * (size_t)D;
        double mean, inverse, rms;
        moments(&mean, &inverse, &rms, row, D);
        for (int i = 0; i < D; i++)
            bound[(size_t)m * (size_t)D + (size_t)i] = (float)(fabs(weight.at[0][i]) *
                                                                   (fabs(row[i] - mean) + rms) *
                                                                   inverse +
                                                               fabs(bias.at[0][i]));
    }
    pair_work(p, 0, 8.0 * (double)n);
    PAIR(p, layer_norm, y.at[side], x.at[side], weight.at[side], bias.at[side], M, D, NORM_EPS);
    pair_within(p, "y", y.any, 16 * EPS, bound);
}

/* With h = (x - mean) * inverse, whose error is 16 EPS of size = |h| + rms * inverse, and g = dy *
 * weight: dx = inverse * (g - mean(g) - h * mean(g h)). */
static void norm_backward(struct pair *p, int M, int D, double around, int add, int in_place)
{
    size_t n = (size_t)M * (size_t)D;
    if (!pair_case(p, "layer_norm_backward", "M%d D%d mean%g%s%s", M, D, around, add ? " add" : "",
                   in_place ? " in place" : ""))
        return;
    struct pair_f32 x = values(p, n, around), weight = pair_normal(p, (size_t)D, 1);
    struct pair_f32 dy = pair_normal(p, n, 1), dx = dy;
    if (!in_place) dx = add ? pair_normal(p, n, 1) : pair_poison(p, n);
    struct pair_f32 dweight = pair_normal(p, (size_t)D, 1), dbias = pair_normal(p, (size_t)D, 1);
    float *bound = pair_scratch(p, n), *of_weight = pair_scratch(p, (size_t)D);
    float *of_offset = pair_scratch(p, (size_t)D);
    for (int i = 0; i < D; i++) {
        of_weight[i] = fabsf(dweight.at[0][i]);
        of_offset[i] = fabsf(dbias.at[0][i]);
    }
    for (int m = 0; m < M; m++) {
        size_t row = (size_t)m * (size_t)D;
        double mean, inverse, rms, g_mean = 0, gh_mean = 0;
        moments(&mean, &inverse, &rms, x.at[0] + row, D);
        for (int i = 0; i < D; i++) {
            double h = fabs(x.at[0][row + (size_t)i] - mean) * inverse,
                   dyi = dy.at[0][row + (size_t)i];
            double size = h + rms * inverse;
            g_mean += fabs(dyi * weight.at[0][i]) / D;
            gh_mean += fabs(dyi * weight.at[0][i]) * size / D;
            of_weight[i] += (float)(fabs(dyi) * size);
            of_offset[i] += (float)fabs(dyi);
        }
        for (int i = 0; i < D; i++) {
            double h = fabs(x.at[0][row + (size_t)i] - mean) * inverse, size = h + rms * inverse;
            double g = fabs((double)dy.at[0][row + (size_t)i] * weight.at[0][i]);
            double d = inverse * (g + g_mean + size * gh_mean);
            bound[row + (size_t)i] = (float)(d + (add ? fabsf(dx.at[0][row + (size_t)i]) : 0));
        }
    }
    pair_work(p, 0, 12.0 * (double)n);
    PAIR(p, layer_norm_backward, dx.at[side], dweight.at[side], dbias.at[side], dy.at[side],
         x.at[side], weight.at[side], M, D, NORM_EPS, add);
    pair_within(p, "dx", dx.any, 32 * EPS,
                bound); /* twice the error of h, of inverse, of the sums */
    pair_within(p, "dgain", dweight.any, (M + 24) * EPS, of_weight);
    pair_within(p, "doffset", dbias.any, (M + 8) * EPS, of_offset);
}

static void scale_add(struct pair *p, int M, int D, float sign)
{
    size_t n = (size_t)M * (size_t)D;
    if (!pair_case(p, "scale_add", "M%d D%d sign%+g", M, D, sign)) return;
    struct pair_f32 x = pair_normal(p, n, 1), y = pair_normal(p, n, 1),
                    weight = pair_normal(p, (size_t)D, 1);
    float *terms = pair_scratch(p, n);
    for (size_t i = 0; i < n; i++)
        terms[i] = fabsf(y.at[0][i]) + fabsf(weight.at[0][i % (size_t)D] * x.at[0][i]);
    pair_work(p, 0, 12.0 * (double)n);
    PAIR(p, scale_add, y.at[side], x.at[side], weight.at[side], M, D, sign);
    pair_within(p, "y", y.any, 2 * 0x1p-23, terms);
}

static void scale_backward(struct pair *p, int M, int D, int in_place)
{
    size_t n = (size_t)M * (size_t)D;
    if (!pair_case(p, "layer_scale_backward", "M%d D%d%s", M, D, in_place ? " in place" : ""))
        return;
    struct pair_f32 x = pair_normal(p, n, 1), dy = pair_normal(p, n, 1);
    struct pair_f32 dx = in_place ? dy : pair_poison(p, n);
    struct pair_f32 weight = pair_normal(p, (size_t)D, 1), ds = pair_normal(p, (size_t)D, 1);
    float *terms = pair_scratch(p, (size_t)D);
    for (size_t i = 0; i < (size_t)D; i++) terms[i] = fabsf(ds.at[0][i]);
    for (size_t i = 0; i < n; i++) terms[i % (size_t)D] += fabsf(dy.at[0][i] * x.at[0][i]);
    pair_work(p, 0, 12.0 * (double)n);
    PAIR(p, layer_scale_backward, dx.at[side], ds.at[side], dy.at[side], x.at[side],
         weight.at[side], M, D);
    pair_exact(p, "dx", dx.any); /* one multiplication */
    pair_within(p, "ds", ds.any, (M + 8) * EPS, terms);
}

static void all(struct pair *p, int M, int D, double mean)
{
    for (int flag = 0; flag <= 1; flag++) {
        norm(p, M, D, mean, flag);
        norm_backward(p, M, D, mean, flag, 0);
        norm_backward(p, M, D, mean, flag, 1);
        scale_add(p, M, D, flag ? -1.0f : 1.0f);
        scale_backward(p, M, D, flag);
    }
}

void pair_norm(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) all(p, shapes[i].M, shapes[i].D, shapes[i].mean);
    for (int i = 0; i < 3; i++) {
        int M = pair_int(p, 1, 100), D = pair_int(p, 1, 300);
        all(p, M, D, 1);
    }
}
