/* codebook.c - from a map of vectors to image tokens and back, two ways, with their losses.
 * [VQ-VAE: van den Oord et al. 2017] [Jang et al. 2017] [spec images-and-text 1.4, 1.6, 1.7]
 *
 *   nearest   token = argmin_n |z - e_n|^2
 *   Gumbel    token = argmax_n (l_n + noise_n)
 *             y_n   = softmax((l_n + noise_n) / temperature)      what training decodes
 *             KL(q || uniform) = sum_n q_n log(q_n N),  q = softmax(l)
 *
 * Maps are (B,D,P): D channels (N for logits) over the P places of an image; every place is on its
 * own. With Gumbel noise the largest of l + noise is a sample of softmax(l), and y has a gradient
 * where the argmax has none; the lower the temperature, the nearer y is to the argmax. */
#include "codebook.h"

#include <assert.h>
#include <math.h>

/* Element of a map (B,D,P). */
static size_t at(int b, int d, int p, int D, int P)
{
    return ((size_t)b * (size_t)D + (size_t)d) * (size_t)P + (size_t)p;
}

/* token = argmin_n |z - e_n|^2, the first of equals */
int ref_nearest_code(int32_t *code, const float *z, const float *table, int B, int D, int P, int N)
{
    assert(B >= 1 && D >= 1 && P >= 1 && N >= 1);
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            double least = INFINITY;
            int32_t best = 0;
            for (int n = 0; n < N; n++) {
                const float *e = table + (size_t)n * (size_t)D;
                double distance = 0; /* |z - e_n|^2 */
                for (int d = 0; d < D; d++) {
                    double difference = (double)z[at(b, d, p, D, P)] - e[d];
                    distance += difference * difference;
                }
                if (distance < least) {
                    least = distance;
                    best = n;
                }
            }
            code[(size_t)b * (size_t)P + (size_t)p] = best;
        }
    return PL_OK;
}

/* zq = e[token] */
int ref_code_rows(float *z, const float *table, const int32_t *code, int B, int D, int P, int N)
{
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            int32_t n = code[(size_t)b * (size_t)P + (size_t)p];
            assert(n >= 0 && n < N);
            for (int d = 0; d < D; d++)
                z[at(b, d, p, D, P)] = table[(size_t)n * (size_t)D + (size_t)d];
        }
    (void)N;
    return PL_OK;
}

/* de[token] += scale dz, summed in double over all places that chose the token */
int ref_code_rows_backward(float *dtable, const float *dz, float scale, const int32_t *code, int B,
                           int D, int P, int N)
{
    double *sum = pl_alloc((size_t)N * (size_t)D, sizeof *sum);
    if (!sum) return PL_ENOMEM;
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            int32_t n = code[(size_t)b * (size_t)P + (size_t)p];
            assert(n >= 0 && n < N);
            for (int d = 0; d < D; d++)
                sum[(size_t)n * (size_t)D + (size_t)d] += dz[at(b, d, p, D, P)];
        }
    for (size_t i = 0; i < (size_t)N * (size_t)D; i++)
        dtable[i] = (float)(dtable[i] + scale * sum[i]);
    pl_free(sum);
    return PL_OK;
}

/* l_n + noise_n */
static float noisy(const float *logits, const float *noise, size_t i)
{
    return noise ? logits[i] + noise[i] : logits[i];
}

/* token = argmax_n (l_n + noise_n) */
int ref_gumbel_code(int32_t *code, const float *logits, const float *noise, int B, int N, int P)
{
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            int32_t best = 0;
            for (int n = 1; n < N; n++)
                if (noisy(logits, noise, at(b, n, p, N, P)) >
                    noisy(logits, noise, at(b, best, p, N, P)))
                    best = n;
            code[(size_t)b * (size_t)P + (size_t)p] = best;
        }
    return PL_OK;
}

/* The softmax's denominator at a place: the largest of l + noise, which is subtracted so that no
 * exponential overflows, and log sum_n exp((l_n + noise_n - largest) / temperature). */
static void denominator(double *largest, double *log_sum, const float *logits, const float *noise,
                        double temperature, int b, int p, int N, int P)
{
    double sum = 0;
    *largest = -INFINITY;
    for (int n = 0; n < N; n++) *largest = fmax(*largest, noisy(logits, noise, at(b, n, p, N, P)));
    for (int n = 0; n < N; n++)
        sum += exp((noisy(logits, noise, at(b, n, p, N, P)) - *largest) / temperature);
    *log_sum = log(sum);
}

/* y = softmax((l + noise) / temperature) */
int ref_gumbel_soft(float *y, const float *logits, const float *noise, float temperature, int B,
                    int N, int P)
{
    assert(temperature > 0);
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            double largest, log_sum;
            denominator(&largest, &log_sum, logits, noise, temperature, b, p, N, P);
            for (int n = 0; n < N; n++) {
                size_t i = at(b, n, p, N, P);
                y[i] = (float)exp((noisy(logits, noise, i) - largest) / temperature - log_sum);
            }
        }
    return PL_OK;
}

/* mean over places of sum_n q_n log(q_n N); 1e-10 as taming-transformers, for q_n = 0 */
int ref_kl_uniform(double *kl, const float *logits, int B, int N, int P)
{
    double sum = 0;
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            double largest, log_sum;
            denominator(&largest, &log_sum, logits, NULL, 1, b, p, N, P);
            for (int n = 0; n < N; n++) {
                double q = exp(logits[at(b, n, p, N, P)] - largest -
                               log_sum); /* q_n = softmax(l)_n */
                sum += q * log(q * N + 1e-10);
            }
        }
    *kl = sum / ((double)B * P);
    return PL_OK;
}

/* Through the softmax y, with a = dloss/dy:   dl_n = y_n (a_n - sum_k a_k y_k) / temperature
 * and of the KL term, with r = log(qN + 1e-10) + qN / (qN + 1e-10):
 *                                             dl_n = q_n (r_n - sum_k q_k r_k) / (B P) */
int ref_gumbel_backward(float *dlogits, const float *a, const float *y, const float *logits,
                        float temperature, float kl_weight, int B, int N, int P)
{
    double *slope = pl_alloc((size_t)N, sizeof *slope);
    if (!slope) return PL_ENOMEM;
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            double largest, log_sum, ay = 0, qr = 0;
            denominator(&largest, &log_sum, logits, NULL, 1, b, p, N, P);
            /* the two sums, sum_k a_k y_k and sum_k q_k r_k */
            for (int n = 0; n < N; n++) {
                size_t i = at(b, n, p, N, P);
                double q = exp(logits[i] - largest - log_sum), qN = q * N;
                slope[n] = log(qN + 1e-10) + qN / (qN + 1e-10);
                ay += (double)a[i] * y[i];
                qr += q * slope[n];
            }
            /* both terms of dl_n */
            for (int n = 0; n < N; n++) {
                size_t i = at(b, n, p, N, P);
                double q = exp(logits[i] - largest - log_sum);
                dlogits[i] = (float)(y[i] * (a[i] - ay) / temperature +
                                     kl_weight * q * (slope[n] - qr) / ((double)B * P));
            }
        }
    pl_free(slope);
    return PL_OK;
}

/* mean |y - x|, mean (y - x)^2, and dy = l1 sign(y - x) / n + 2 l2 (y - x) / n */
int ref_pixel_loss(double loss[2], float *dy, const float *y, const float *x, float l1, float l2,
                   size_t n)
{
    double absolute = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)y[i] - x[i];
        absolute += fabs(d);
        squares += d * d;
        if (dy)
            dy[i] = (float)(((d > 0) - (d < 0)) * (double)l1 / (double)n + 2 * l2 * d / (double)n);
    }
    loss[0] = absolute / (double)n;
    loss[1] = squares / (double)n;
    return PL_OK;
}

/* High at first, so that every code gets gradients; low at last, so that y is nearly one code. */
double pl_temperature_at(const struct pl_temperature *t, int64_t step)
{
    double part;
    if (step < t->warm_up)
        return t->start + (t->max - t->start) / (double)t->warm_up * (double)step;
    part = fmin(1, (double)(step - t->warm_up) / (double)(t->decay - t->warm_up));
    return t->min + (t->max - t->min) * (1 + cos(part * acos(-1))) / 2;
}

/* -sum_k p_k log2 p_k, in bits: 2 to its power is how many tokens are really used. */
double pl_code_entropy(const uint64_t *uses, size_t N)
{
    double total = 0, bits = 0;
    for (size_t n = 0; n < N; n++) total += (double)uses[n];
    for (size_t n = 0; n < N; n++)
        if (uses[n]) bits -= (double)uses[n] / total * log2((double)uses[n] / total);
    return bits;
}
