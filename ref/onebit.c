/* onebit.c - 1-bit Adam: after a warm-up the second moments are frozen, so Adam is momentum SGD
 * with fixed rates, and momentum bears being sent as signs. [1-bit Adam: Tang et al. 2021, alg. 1]
 * [spec numerics 13]
 *
 *   1. warm-up   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
 *   2. worker    x = beta1 m + (1 - beta1) g + error
 *                sent: sign(x) and scale = |x| / sqrt(n);   error = x - scale sign(x)
 *   3. server    the same of the workers' mean, with an error of its own, for its slice
 *   4. all       p -= lr m / (sqrt(v) + eps),   m what the servers sent
 *
 * Error feedback: what a round rounds away is added to the next, so over time nothing is lost. A
 * value takes one bit each way, 32 times less than float32. */
#include "onebit.h"

#include <math.h>

/* n rounded up so that every server's slice is whole bytes of signs. */
size_t pl_onebit_padded(size_t n, int workers)
{
    size_t w = (size_t)workers, lcm = w * 8, unit;
    while (lcm % 2 == 0 && lcm / 2 % w == 0 && lcm / 2 % 8 == 0)
        lcm /= 2; /* 8 has no other factor */
    unit = w * lcm;
    return (n + unit - 1) / unit * unit;
}

/* 1., 4. */
void pl_onebit_warm_up(double *p, double *m, double *v, const double *g, size_t n,
                       const struct pl_onebit *o)
{
    for (size_t i = 0; i < n; i++) {
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * g[i] * g[i];
    }
    pl_onebit_step(p, m, v, n, o);
}

/* 4. */
void pl_onebit_step(double *p, const double *m, const double *v, size_t n,
                    const struct pl_onebit *o)
{
    for (size_t i = 0; i < n; i++) p[i] -= o->lr * m[i] / (sqrt(v[i]) + o->eps);
}

/* 2., 3. x += error;  sign(x), scale;  error = x - scale sign(x) */
void pl_onebit_compress(uint8_t *bits, double *scale, double *error, double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] += error[i];
        sum += x[i] * x[i];
    }
    *scale = sqrt(sum) / sqrt((double)n);
    for (size_t i = 0; i < n; i++) {
        int bit = x[i] >= 0;
        if (i % 8 == 0) bits[i / 8] = 0;
        bits[i / 8] |= (uint8_t)(bit << (7 - i % 8));
        error[i] = x[i] - (bit ? *scale : -*scale);
    }
}

/* scale sign(x), from eight signs a byte, the first in the high bit */
void pl_onebit_expand(double *x, const uint8_t *bits, double scale, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = bits[i / 8] >> (7 - i % 8) & 1 ? scale : -scale;
}

/* 2. */
int pl_onebit_worker(uint8_t *bits, double *scale, double *error, const double *m, const double *g,
                     size_t n, size_t padded, double beta1)
{
    double *x = pl_alloc(padded, sizeof *x);
    if (!x) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) x[i] = beta1 * m[i] + (1 - beta1) * g[i];
    pl_onebit_compress(bits, scale, error, x, padded);
    pl_free(x);
    return PL_OK;
}

/* 3. */
int pl_onebit_server(uint8_t *bits, double *scale, double *error, const uint8_t *worker_bits,
                     const double *worker_scale, int workers, int slice, size_t padded)
{
    size_t n = padded / (size_t)workers, first = (size_t)slice * n;
    double *mean = pl_alloc(n, sizeof *mean), *one = pl_alloc(n, sizeof *one);
    int rc = mean && one ? PL_OK : PL_ENOMEM;
    for (int k = 0; !rc && k < workers; k++) {
        pl_onebit_expand(one, worker_bits + ((size_t)k * padded + first) / 8, worker_scale[k], n);
        for (size_t i = 0; i < n; i++) mean[i] += one[i];
    }
    for (size_t i = 0; !rc && i < n; i++) mean[i] /= workers;
    if (!rc) pl_onebit_compress(bits, scale, error, mean, n);
    pl_free(mean);
    pl_free(one);
    return rc;
}
