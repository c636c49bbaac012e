/* kmeans.c - a first codebook: centres among the vectors that an encoder gives.
 *
 *   k-means++  the next centre is point i with probability d_i^2 / sum_j d_j^2, d the distance to
 *              the nearest centre so far: far apart, but few outliers [Arthur & Vassilvitskii 2007]
 *   Lloyd      repeat: centre_k = mean of the points nearest to it [Lloyd 1982]
 *
 * A codebook drawn at random has most codes far from all vectors, and a code that nothing chooses
 * gets no gradient. */
#include "kmeans.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* |a - b|^2 */
static float distance2(const float *a, const float *b, int D)
{
    float sum = 0;
    for (int d = 0; d < D; d++) sum += (a[d] - b[d]) * (a[d] - b[d]);
    return sum;
}

/* least_i = min(least_i, |point_i - centre|^2) */
static void update_least(float *least, const float *centre, const float *point, size_t n, int D)
{
    for (size_t i = 0; i < n; i++) {
        float distance = distance2(centre, point + i * (size_t)D, D);
        if (distance < least[i]) least[i] = distance;
    }
}

/* k-means++: a point becomes the next centre with probability proportional to its squared distance
 * from those chosen before. */
static void choose_centres(float *centre, int K, float *least, const float *point, size_t n, int D,
                           struct pl_rng *rng)
{
    for (size_t i = 0; i < n; i++) least[i] = INFINITY;
    for (int k = 0; k < K; k++) {
        size_t chosen = (size_t)pl_rng_below(rng, n);
        double total = 0, at;
        for (size_t i = 0; k > 0 && i < n; i++)
            total += least[i]; /* sum d^2; the first centre is any point */
        /* the point at which the running sum of d^2 exceeds u * total */
        at = pl_rng_uniform(rng) * total;
        for (size_t i = 0; total > 0 && i < n; i++) {
            chosen = i;
            at -= least[i];
            if (at < 0) break;
        }
        memcpy(centre + (size_t)k * (size_t)D, point + chosen * (size_t)D,
               (size_t)D * sizeof *centre);
        update_least(least, centre + (size_t)k * (size_t)D, point, n, D);
    }
}

/* One of Lloyd's rounds. A centre without points stays. */
static void move_centres(float *centre, int K, double *sum, const float *point, size_t n, int D)
{
    double *count = sum + (size_t)K * (size_t)D;
    memset(sum, 0, (size_t)K * (size_t)(D + 1) * sizeof *sum);
    for (size_t i = 0; i < n; i++) {
        const float *p = point + i * (size_t)D;
        float least = INFINITY;
        int best = 0;
        for (int k = 0; k < K; k++) {
            float distance = distance2(centre + (size_t)k * (size_t)D, p, D);
            if (distance < least) {
                least = distance;
                best = k;
            }
        }
        for (int d = 0; d < D; d++)
            sum[(size_t)best * (size_t)D + (size_t)d] += p[d]; /* joins its nearest centre */
        count[best]++;
    }
    /* centre = mean */
    for (int k = 0; k < K; k++)
        for (int d = 0; count[k] > 0 && d < D; d++) {
            size_t at = (size_t)k * (size_t)D + (size_t)d;
            centre[at] = (float)(sum[at] / count[k]);
        }
}

int pl_kmeans(float *centre, int K, const float *point, size_t n, int D, int rounds,
              struct pl_rng *rng)
{
    float *least = pl_alloc(n, sizeof *least);
    double *sum = pl_alloc((size_t)K * (size_t)(D + 1), sizeof *sum);
    assert(n >= 1 && K >= 1 && D >= 1);
    if (least && sum) {
        choose_centres(centre, K, least, point, n, D, rng);
        for (int r = 0; r < rounds; r++) move_centres(centre, K, sum, point, n, D);
    }
    pl_free(least);
    pl_free(sum);
    return least && sum ? PL_OK : PL_ENOMEM;
}

/* Codes that nothing has chosen for a while move to where the codebook fits worst: each to the
 * point farthest from all other centres. */
int pl_reseed(float *centre, const uint8_t *idle, int K, const float *point, size_t n, int D)
{
    float *least = pl_alloc(n, sizeof *least);
    if (!least) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) least[i] = INFINITY;
    for (int k = 0; k < K; k++)
        if (!idle[k]) update_least(least, centre + (size_t)k * (size_t)D, point, n, D);
    for (int k = 0; k < K; k++) {
        size_t farthest = 0;
        if (!idle[k]) continue;
        /* argmax_i min over centres of |point_i - centre|^2; it counts for the next idle code,
         * too */
        for (size_t i = 1; i < n; i++)
            if (least[i] > least[farthest]) farthest = i;
        memcpy(centre + (size_t)k * (size_t)D, point + farthest * (size_t)D,
               (size_t)D * sizeof *centre);
        update_least(least, centre + (size_t)k * (size_t)D, point, n, D);
    }
    pl_free(least);
    return PL_OK;
}
