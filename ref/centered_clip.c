/* centered_clip.c - CenteredClip: a mean in which one sender has bounded influence. [Karimireddy et
 * al. 2021, alg. 2] [TTT 2.1, security]
 *
 *   repeat:  v += sum_i w_i (x_i - v) min(1, tau / |x_i - v|) / sum_i w_i
 *
 * Within tau of v every input pulls with its distance, as in a mean; beyond it with tau, however
 * far away it claims to be. So in an iteration Byzantine peers move the result by at most tau
 * times their share of the weight. */
#include "centered_clip.h"
#include "small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* each reduces the remaining pull of the Byzantine peers on the centre; published: 1 to 50 */
#define ITERATIONS 5

/* |x - v| in float64: squares of float32 values fit without overflow. */
static double distance(const float *x, const double *v, size_t d)
{
    double sum = 0;
    for (size_t k = 0; k < d; k++) sum += (x[k] - v[k]) * (x[k] - v[k]);
    return sqrt(sum);
}

/* v in and out: where the iteration starts decides how many it takes. */
int ref_centered_clip(double *v, struct pl_clip_result *result, const float *x,
                      const double *weight, int n, size_t d, const struct pl_clip *clip)
{
    double *step = pl_alloc(d, sizeof *step), total = clip->total;
    if (!step) return PL_ENOMEM;
    for (int i = 0; i < n && clip->total == 0; i++) total += weight ? weight[i] : 1;
    *result = (struct pl_clip_result){ 0 };
    /* one iteration: the clipped pulls, summed and taken at once */
    while (total > 0 && result->iterations < clip->iterations) {
        double tau = clip->taus ? clip->taus[result->iterations] : clip->tau, sum = 0, largest = 0;
        memset(step, 0, d * sizeof *step);
        result->clipped = 0;
        for (int i = 0; i < n; i++) {
            const float *xi = x + (size_t)i * d;
            double far = distance(xi, v, d), factor = far > tau ? tau / far : 1;
            result->clipped += !(far <= tau);
            if (!isfinite(far)) continue; /* pulls nothing, but its weight counts */
            factor *= (weight ? weight[i] : 1) / total;
            for (size_t k = 0; k < d; k++) step[k] += factor * (xi[k] - v[k]);
        }
        for (size_t k = 0; k < d; k++) {
            v[k] += step[k];
            sum += step[k] * step[k];
            largest = fmax(largest, fabs(step[k]));
        }
        result->iterations++;
        result->step = sqrt(sum);
        if (result->step <= clip->stop_norm || largest <= clip->stop_largest) break;
    }
    pl_free(step);
    return PL_OK;
}

/* The median of each coordinate, from which the iteration starts: a minority cannot move it far. */
int ref_median(float *m, const float *x, int n, size_t d, int upper)
{
    float *column = pl_alloc((size_t)n, sizeof *column);
    if (!column) return PL_ENOMEM;
    for (size_t k = 0; k < d; k++) {
        for (int i = 0; i < n; i++) column[i] = x[(size_t)i * d + k];
        qsort(column, (size_t)n, sizeof *column, pl_ascending_floats);
        m[k] = column[upper ? n / 2 : (n - 1) / 2];
    }
    pl_free(column);
    return PL_OK;
}

double pl_usual_distance(double *far, const float *x, const double *v, int n, size_t d)
{
    for (int i = 0; i < n; i++) far[i] = distance(x + (size_t)i * d, v, d);
    qsort(far, (size_t)n, sizeof *far, pl_ascending);
    return far[n / 2];
}

static void cap_weights(double *weight, double *scratch, int n)
{
    memcpy(scratch, weight, (size_t)n * sizeof *scratch);
    qsort(scratch, (size_t)n, sizeof *scratch, pl_ascending);
    for (int i = 0; i < n; i++) weight[i] = fmin(weight[i], scratch[n / 2]);
}

/* The coordinate-wise median is a start that no minority can move far. From there it moves v by at
 * most about tau, whatever it sends. */
int pl_clipped_mean(double *v, double *weight, const float *x, int n, size_t d, double radius,
                    pl_centered_clip_fn *clip, pl_median_fn *median)
{
    struct pl_clip how = { .iterations = ITERATIONS, .stop_norm = -1, .stop_largest = -1 };
    struct pl_clip_result result;
    float *middle = pl_alloc(d, sizeof *middle);
    double *scratch = pl_alloc((size_t)n, sizeof *scratch);
    int rc = middle && scratch ? median(middle, x, n, d, 0) : PL_ENOMEM;
    if (!rc) {
        cap_weights(weight, scratch, n);
        for (size_t k = 0; k < d; k++) v[k] = middle[k];
        how.tau = radius > 0 ? radius : pl_usual_distance(scratch, x, v, n, d);
        rc = clip(v, &result, x, weight, n, d, &how);
    }
    pl_free(middle);
    pl_free(scratch);
    return rc;
}

/* The tau that the proof takes for a share of Byzantine peers and honest inputs of this noise, and
 * how far v may be from their mean after the iteration. */
double pl_clip_radius(double *bound2, double share, double noise)
{
    double b2 = *bound2;
    *bound2 = 6.45 * share * b2 + 5 * noise * noise;
    return 4 * sqrt((1 - share) * (b2 / 3 + noise * noise) / (sqrt(3) * share));
}
