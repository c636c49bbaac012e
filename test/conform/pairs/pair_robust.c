/* pair_robust.c - CenteredClip and the median it starts from. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

/* Peers, coordinates: the smallest, odd ones, across blocks, a part of the reference run in a group
 * of 16. */
static const struct {
    int n;
    size_t d;
} shapes[] = { { 1, 1 }, { 3, 7 }, { 16, 2049 }, { 33, 5000 }, { 16, 131072 } };

/* Two thirds honest around 1, the rest far away and all to one side; `bad` spoils one value. */
static void fill(struct pair *p, struct pair_f32 x, int n, size_t d, float bad)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < d; k++) {
            float noise = (float)pair_int(p, -1000, 1000) / 1000;
            x.at[0][(size_t)i * d + k] = 3 * i < 2 * n ? 1 + noise : 100 + noise;
        }
    if (bad != 0) x.at[0][(size_t)(n - 1) * d] = bad;
    pair_share(p, x.any);
}

static void clip(struct pair *p, int n, size_t d, double tau, int weighted, float bad)
{
    struct pl_clip how = { tau, NULL, 5, -1, -1, 0 };
    struct pl_clip_result result;
    double *weight = NULL;
    if (!pair_case(p, "centered_clip", "n%d d%zu tau%g%s%s", n, d, tau, weighted ? " weighted" : "",
                   bad != 0 ? " with a NaN" : ""))
        return;
    struct pair_f32 x = pair_host_f32(p, (size_t)n * d);
    struct pair_f64 v = pair_host_f64(p, d);
    fill(p, x, n, d, bad);
    for (size_t k = 0; k < d; k++) v.at[0][k] = x.at[0][k];
    pair_share(p, v.any);
    if (weighted) {
        weight = (double *)pair_scratch(p, 2 * (size_t)n);
        for (int i = 0; i < n; i++) weight[i] = pair_int(p, 0, 4);
        weight[0] = 1;
    }
    pair_work(p, 0, 4.0 * 5 * (double)n * (double)d);
    PAIR(p, centered_clip, v.at[side], &result, x.at[side], weight, n, d, &how);
    pair_of_largest(p, "v", v.any, 1e-12 * sqrt((double)d));
}

/* Either limit alone ends the iteration: after the first step if it is above every step's size, and one
 * that is met exactly counts as met. Both sides report the same. */
static void stops(struct pair *p, int n, size_t d, double stop_norm, double stop_largest, float bad)
{
    struct pl_clip how = { 3, NULL, 7, stop_norm, stop_largest, 0 };
    struct pl_clip_result result[2];
    if (!pair_case(p, "centered_clip", "n%d d%zu stops at %g, %g%s", n, d, stop_norm, stop_largest,
                   bad != 0 ? " with a NaN" : ""))
        return;
    struct pair_f32 x = pair_host_f32(p, (size_t)n * d);
    struct pair_f64 v = pair_host_f64(p, d);
    fill(p, x, n, d, bad);
    for (size_t k = 0; k < d; k++) v.at[0][k] = x.at[0][k];
    pair_share(p, v.any);
    pair_work(p, 0, 4.0 * 5 * (double)n * (double)d);
    PAIR(p, centered_clip, v.at[side], &result[side], x.at[side], NULL, n, d, &how);
    pair_of_largest(p, "v", v.any, 1e-12 * sqrt((double)d));
    pair_check(p,
               result[0].iterations == result[1].iterations &&
                   result[0].clipped == result[1].clipped &&
                   fabs(result[0].step - result[1].step) <= 1e-9 * result[0].step,
               "%d iterations, %d clipped, step %g, not %d, %d, %g", (int)result[1].iterations,
               (int)result[1].clipped, result[1].step, (int)result[0].iterations,
               (int)result[0].clipped, result[0].step);
}

static void median(struct pair *p, int n, size_t d, int upper, float bad)
{
    if (!pair_case(p, "median", "n%d d%zu %s%s", n, d, upper ? "upper" : "lower",
                   bad != 0 ? " with a NaN" : ""))
        return;
    struct pair_f32 x = pair_host_f32(p, (size_t)n * d), m = pair_host_f32(p, d);
    fill(p, x, n, d, bad);
    for (size_t k = 0; k < d; k += 5) x.at[0][k] = k % 2 ? -0.0f : 0;
    pair_share(p, x.any);
    pair_work(p, 0, 4.0 * (double)n * (double)d);
    PAIR(p, median, m.at[side], x.at[side], n, d, upper);
    if (isnan(bad)) pair_within(p, "m", m.any, 0, NULL); /* any NaN for a NaN */
    else pair_exact(p, "m", m.any);
}

void pair_robust(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        int n = shapes[i].n;
        size_t d = shapes[i].d;
        clip(p, n, d, 0.5 * sqrt((double)d), 0, 0);
        clip(p, n, d, 1, 1, 0);
        for (int upper = 0; upper <= 1; upper++) median(p, n, d, upper, 0);
    }
    clip(p, 9, 100, INFINITY, 1, 0);
    clip(p, 9, 100, 1, 0, NAN);
    clip(p, 9, 100, 1, 0, INFINITY);
    for (int k = 0; k < 2; k++) { /* of one block of coordinates, of several */
        int n = k ? 9 : 16;
        size_t d = k ? 100 : 5000;
        stops(p, n, d, -1, -1, 0);
        stops(p, n, d, 1e9, -1, 0);
        stops(p, n, d, -1, 1e9, 0);
        stops(p, n, d, 1.5, -1, 0);
        stops(p, n, d, -1, 0.02, 0);
    }
    stops(p, 9, 100, -1, -1, NAN);
    stops(p, 9, 100, -1, -1, -INFINITY);
    median(p, 9, 100, 1, copysignf(NAN, -1));
    median(p, 9, 100, 0, copysignf(NAN, -1));
    median(p, 2, 100, 1, copysignf(NAN, -1));
    median(p, 9, 100, 1, NAN);
    median(p, 9, 100, 0, -INFINITY);
}
