/* onebit.h - 1-bit Adam: after a warm-up the second moment is frozen, and of the first only signs
 * and one scale are sent; the error is carried over to the next step. [Tang et al. 2021, arXiv
 * 2102.02888, alg. 1] [spec numerics 13]
 *
 * Values are double, to measure faster versions by. Host memory. */
#ifndef PL_ONEBIT_H
#define PL_ONEBIT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_onebit {
    double lr, beta1, beta2, eps;
};

/* Elements after zero padding, so that every worker's slice is whole bytes: the next multiple of
 * workers * lcm(workers, 8). */
size_t pl_onebit_padded(size_t n, int workers);

/* Warm-up: plain Adam on the averaged gradient g (n), without bias correction.
 *   m = beta1 m + (1 - beta1) g    v = beta2 v + (1 - beta2) g^2    p -= lr m / (sqrt(v) + eps) */
void pl_onebit_warm_up(double *p, double *m, double *v, const double *g, size_t n,
                       const struct pl_onebit *o);

/* The step after it, v frozen: p -= lr m / (sqrt(v) + eps). */
void pl_onebit_step(double *p, const double *m, const double *v, size_t n,
                    const struct pl_onebit *o);

/* Signs and a scale for x (n, a multiple of 8), in which the error carried over is added first:
 *   x += error    scale = |x| / sqrt(n)    bit = x >= 0    error = x - scale (+1 or -1)
 * bits (n / 8), the first element in the highest bit. x keeps the sum. */
void pl_onebit_compress(uint8_t *bits, double *scale, double *error, double *x, size_t n);

/* x (n) = scale (+1 or -1). */
void pl_onebit_expand(double *x, const uint8_t *bits, double scale, size_t n);

/* A worker's message: compresses beta1 m + (1 - beta1) g, padded with zeros. m, g (n); bits and
 * error for pl_onebit_padded elements. PL_OK or PL_ENOMEM. */
int pl_onebit_worker(uint8_t *bits, double *scale, double *error, const double *m, const double *g,
                     size_t n, size_t padded, double beta1);

/* The response of the server of `slice`: the mean of all workers' signs on its slice, compressed.
 *   worker_bits (workers, padded / 8), worker_scale (workers)
 *   bits (padded / workers / 8), error (padded / workers)  */
int pl_onebit_server(uint8_t *bits, double *scale, double *error, const uint8_t *worker_bits,
                     const double *worker_scale, int workers, int slice, size_t padded);

#ifdef __cplusplus
}
#endif
#endif
