/* gumbel.c - image tokens by the Gumbel softmax, a quantizer that has a gradient. Its contract is
 * in codebook.h. [Jang et al. 2017] [spec images-and-text 1.6]
 *
 *   token = argmax_n (l_n + noise_n)                      noise = -log(-log u), u uniform
 *   y_n   = softmax((l_n + noise_n) / temperature)        decoded in training
 *   KL(q || uniform) = sum_n q_n log(q_n N),  q = softmax(l)
 *
 * Logits l are (B,N,P): N tokens at each of P places. The largest of l + noise is a sample of
 * softmax(l), and y has a gradient where the argmax has none; the lower the temperature, the nearer
 * y is to the argmax. The KL term keeps all tokens in use. */
#include "codebook.h"

#include <assert.h>
#include <math.h>

/* Element of a map (B,D,P). */
static size_t at(int b, int d, int p, int D, int P)
{
    return ((size_t)b * (size_t)D + (size_t)d) * (size_t)P + (size_t)p;
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
    for (int n = 0; n < N; n++) {
        double x = noisy(logits, noise, at(b, n, p, N, P));
        if (x > *largest) *largest = x; /* fmax here crashes gcc 12.2 for aarch64 */
    }
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

/* High at first, so that every code gets gradients; low at last, so that y is nearly one code. */
double pl_temperature_at(const struct pl_temperature *t, int64_t step)
{
    double part;
    if (step < t->warm_up)
        return t->start + (t->max - t->start) / (double)t->warm_up * (double)step;
    part = fmin(1, (double)(step - t->warm_up) / (double)(t->decay - t->warm_up));
    return t->min + (t->max - t->min) * (1 + cos(part * acos(-1))) / 2;
}
