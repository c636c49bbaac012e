/* codebook.c - vector quantization: from a map of vectors to image tokens and back. gumbel.c is the
 * other way to choose tokens. [VQ-VAE: van den Oord et al. 2017] [spec images-and-text 1.4, 1.7]
 *
 *   token = argmin_n |z - e_n|^2          zq = e[token]
 *
 * Maps are (B,D,P): D channels over the P places of an image; every place is on its own. */
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
                /* |z - e_n|^2, summed over channels */
                double distance = 0;
                for (int d = 0; d < D; d++) {
                    double difference = (double)z[at(b, d, p, D, P)] - e[d];
                    distance += difference * difference;
                }
                /* < and not <=: of equally near codes the first one, on every backend */
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
            /* one row of the codebook becomes one column of the map */
            for (int d = 0; d < D; d++)
                z[at(b, d, p, D, P)] = table[(size_t)n * (size_t)D + (size_t)d];
        }
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
            /* every place that chose token n adds to row n */
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

/* The losses in pixels: mean |y - x|, mean (y - x)^2, and their gradient dy = l1 sign(y - x) / n +
 * 2 l2 (y - x) / n */
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

/* -sum_k p_k log2 p_k, in bits. 2 to this power is the perplexity: how many tokens are really
 * used. */
double pl_code_entropy(const uint64_t *uses, size_t N)
{
    double total = 0, bits = 0;
    for (size_t n = 0; n < N; n++) total += (double)uses[n];
    for (size_t n = 0; n < N; n++)
        if (uses[n]) bits -= (double)uses[n] / total * log2((double)uses[n] / total);
    return bits;
}
