/* codebook.c - vector quantization: nearest code, and Gumbel-softmax. 64 neighbouring positions are
 * processed together: channels are the outer loop, so memory is read in order and each step of the
 * inner loop is a whole vector.
 *
 * The divergence from the uniform distribution needs one logarithm per position, not one per code:
 * p log(p N + 1e-10) equals p (x - lse + log N) to within 1e-10 / N, and likewise its gradient p (x
 * - sum p x). */
#include "vector_math.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define STRIP 64

/* One strip of an image: positions first..first+count-1. */
struct strip {
    size_t image; /* index of the map's first element */
    size_t code;  /* index of the strip's first position among all codes */
    int first, count;
};

static int strips(int B, int P) { return B * ((P + STRIP - 1) / STRIP); }
static struct strip strip(int i, int channels, int P)
{
    int each = (P + STRIP - 1) / STRIP, b = i / each, first = i % each * STRIP;
    return (struct strip){ (size_t)b * (size_t)channels * (size_t)P,
                           (size_t)b * (size_t)P + (size_t)first, first,
                           P - first < STRIP ? P - first : STRIP };
}

/* Updates the nearest code so far with the squared distances to one codebook vector. z
 * (D,STRIP). */
FAST_CLONES static void update_nearest(float *nearest, int32_t *best, const float *z,
                                       const float *row, int D, int32_t n)
{
    float distance[STRIP] = { 0 };
    for (int d = 0; d < D; d++) {
#pragma omp simd
        for (int p = 0; p < STRIP; p++) {
            float difference = z[d * STRIP + p] - row[d];
            distance[p] = fast_fma(difference, difference, distance[p]);
        }
    }
#pragma omp simd
    for (int p = 0; p < STRIP; p++) {
        int nearer = distance[p] < nearest[p];
        nearest[p] = nearer ? distance[p] : nearest[p];
        best[p] = nearer ? n : best[p];
    }
}

int fast_nearest_code(int32_t *code, const float *z, const float *table, int B, int D, int P, int N)
{
    float *all = pl_alloc((size_t)fast_threads() * (size_t)D * STRIP, sizeof *all);
    if (!all) return PL_ENOMEM;
#pragma omp parallel num_threads(fast_threads())
    {
        float *here = all + (size_t)omp_get_thread_num() * (size_t)D * STRIP, nearest[STRIP];
        int32_t best[STRIP];
#pragma omp for schedule(static)
        for (int i = 0; i < strips(B, P); i++) {
            struct strip s = strip(i, D, P);
            for (int d = 0; d < D; d++)
                memcpy(here + d * STRIP, z + s.image + (size_t)d * (size_t)P + (size_t)s.first,
                       (size_t)s.count * sizeof *z);
            for (int p = 0; p < STRIP; p++) {
                nearest[p] = INFINITY;
                best[p] = 0;
            }
            for (int n = 0; n < N; n++)
                update_nearest(nearest, best, here, table + (size_t)n * (size_t)D, D, n);
            memcpy(code + s.code, best, (size_t)s.count * sizeof *code);
        }
    }
    pl_free(all);
    return PL_OK;
}

/* -- Gumbel codes: x is the strip's first logit, noise may be NULL
 * --------------------------------- */

FAST_CLONES static void argmax_code(int32_t *code, const float *x, const float *noise, int N,
                                    size_t P, int count)
{
    float row_max[STRIP];
    int32_t best[STRIP];
    for (int p = 0; p < count; p++) {
        row_max[p] = -INFINITY;
        best[p] = 0;
    }
    for (int n = 0; n < N; n++) {
        const float *at = x + (size_t)n * P, *by = noise ? noise + (size_t)n * P : NULL;
#pragma omp simd
        for (int p = 0; p < count; p++) {
            float v = by ? at[p] + by[p] : at[p];
            int more = v > row_max[p];
            row_max[p] = more ? v : row_max[p];
            best[p] = more ? n : best[p];
        }
    }
    memcpy(code, best, (size_t)count * sizeof *code);
}

/* y = exp((x + noise - max) * by); returns the sum and the maximum of x + noise. y may be x or
 * noise. */
FAST_CLONES static void exponentials(float *y, double *sum, float *row_max, const float *x,
                                     const float *noise, float by, int N, size_t P, int count)
{
    for (int p = 0; p < count; p++) {
        row_max[p] = -INFINITY;
        sum[p] = 0;
    }
    for (int n = 0; n < N; n++) {
        const float *at = x + (size_t)n * P, *add = noise ? noise + (size_t)n * P : NULL;
#pragma omp simd
        for (int p = 0; p < count; p++) {
            float v = add ? at[p] + add[p] : at[p];
            row_max[p] = v > row_max[p] ? v : row_max[p];
        }
    }
    for (int n = 0; n < N; n++) {
        const float *at = x + (size_t)n * P, *add = noise ? noise + (size_t)n * P : NULL;
        float *to = y ? y + (size_t)n * P : NULL;
#pragma omp simd
        for (int p = 0; p < count; p++) {
            float v = add ? at[p] + add[p] : at[p], e = fast_exp((v - row_max[p]) * by);
            if (to) to[p] = e;
            sum[p] += (double)e;
        }
    }
}

FAST_CLONES static void normalize(float *y, const double *sum, int N, size_t P, int count)
{
    float by[STRIP];
    for (int p = 0; p < count; p++) by[p] = (float)(1 / sum[p]);
    for (int n = 0; n < N; n++) {
        float *at = y + (size_t)n * P;
#pragma omp simd
        for (int p = 0; p < count; p++) at[p] *= by[p];
    }
}

/* mean[p] = sum over n of softmax(x) * (x - max). With log(sum) this gives the divergence and its
 * gradient. */
FAST_CLONES static void mean_logit(double *mean, const double *sum, const float *row_max,
                                   const float *x, int N, size_t P, int count)
{
    for (int p = 0; p < count; p++) mean[p] = 0;
    for (int n = 0; n < N; n++) {
        const float *at = x + (size_t)n * P;
#pragma omp simd
        for (int p = 0; p < count; p++) {
            float above = at[p] - row_max[p];
            mean[p] += (double)(fast_exp(above) * above);
        }
    }
    for (int p = 0; p < count; p++) mean[p] /= sum[p];
}

int fast_gumbel_code(int32_t *code, const float *logits, const float *noise, int B, int N, int P)
{
#pragma omp parallel for num_threads(fast_threads()) schedule(static)
    for (int i = 0; i < strips(B, P); i++) {
        struct strip s = strip(i, N, P);
        size_t at = s.image + (size_t)s.first;
        argmax_code(code + s.code, logits + at, noise ? noise + at : NULL, N, (size_t)P, s.count);
    }
    return PL_OK;
}

int fast_gumbel_soft(float *y, const float *logits, const float *noise, float temperature, int B,
                     int N, int P)
{
#pragma omp parallel for num_threads(fast_threads()) schedule(static)
    for (int i = 0; i < strips(B, P); i++) {
        struct strip s = strip(i, N, P);
        size_t at = s.image + (size_t)s.first;
        double sum[STRIP];
        float row_max[STRIP];
        exponentials(y + at, sum, row_max, logits + at, noise ? noise + at : NULL, 1 / temperature,
                     N, (size_t)P, s.count);
        normalize(y + at, sum, N, (size_t)P, s.count);
    }
    return PL_OK;
}

int fast_kl_uniform(double *kl, const float *logits, int B, int N, int P)
{
    size_t positions = (size_t)B * (size_t)P;
    double *each = pl_alloc(positions, sizeof *each), total = 0;
    if (!each) return PL_ENOMEM;
#pragma omp parallel for num_threads(fast_threads()) schedule(static)
    for (int i = 0; i < strips(B, P); i++) {
        struct strip s = strip(i, N, P);
        const float *x = logits + s.image + (size_t)s.first;
        double sum[STRIP], mean[STRIP];
        float row_max[STRIP];
        exponentials(NULL, sum, row_max, x, NULL, 1, N, (size_t)P, s.count);
        mean_logit(mean, sum, row_max, x, N, (size_t)P, s.count);
        for (int p = 0; p < s.count; p++) each[s.code + (size_t)p] = mean[p] - log(sum[p]) + log(N);
    }
    for (size_t i = 0; i < positions; i++) total += each[i];
    *kl = total / (double)positions;
    pl_free(each);
    return PL_OK;
}

/* dlogits = y (a - ay) / temperature + q (x - max - mean) * scale */
FAST_CLONES static void gumbel_gradient(float *dlogits, const float *a, const float *y,
                                        const float *x, const float *row_max, const double *sum,
                                        const double *mean, float per_t, float scale, int N,
                                        size_t P, int count)
{
    double ay[STRIP] = { 0 };
    float mean_a[STRIP], mean_x[STRIP], per_sum[STRIP];
    for (int n = 0; n < N; n++) {
        const float *an = a + (size_t)n * P, *yn = y + (size_t)n * P;
#pragma omp simd
        for (int p = 0; p < count; p++) ay[p] += (double)(an[p] * yn[p]);
    }
    for (int p = 0; p < count; p++) {
        mean_a[p] = (float)ay[p];
        mean_x[p] = (float)mean[p];
        per_sum[p] = (float)(scale / sum[p]);
    }
    for (int n = 0; n < N; n++) {
        const float *an = a + (size_t)n * P, *yn = y + (size_t)n * P, *xn = x + (size_t)n * P;
        float *to = dlogits + (size_t)n * P;
#pragma omp simd
        for (int p = 0; p < count; p++) {
            float above = xn[p] - row_max[p];
            to[p] = fast_fma(yn[p] * per_t, an[p] - mean_a[p],
                             fast_exp(above) * per_sum[p] * (above - mean_x[p]));
        }
    }
}

int fast_gumbel_backward(float *dlogits, const float *a, const float *y, const float *logits,
                         float temperature, float kl_weight, int B, int N, int P)
{
    float scale = (float)(kl_weight / ((double)B * P));
#pragma omp parallel for num_threads(fast_threads()) schedule(static)
    for (int i = 0; i < strips(B, P); i++) {
        struct strip s = strip(i, N, P);
        size_t at = s.image + (size_t)s.first;
        double sum[STRIP], mean[STRIP];
        float row_max[STRIP];
        exponentials(NULL, sum, row_max, logits + at, NULL, 1, N, (size_t)P, s.count);
        mean_logit(mean, sum, row_max, logits + at, N, (size_t)P, s.count);
        gumbel_gradient(dlogits + at, a + at, y + at, logits + at, row_max, sum, mean,
                        1 / temperature, scale, N, (size_t)P, s.count);
    }
    return PL_OK;
}
