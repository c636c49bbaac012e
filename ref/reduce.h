/* reduce.h - the weighted mean of one part at its reducer, from values as they travel.
 * [TTT 2.1, communication; 3.3] [spec numerics 8] */
#ifndef PL_REDUCE_H
#define PL_REDUCE_H

#include "compress.h"
#include "wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Encoded values, without a copy: a reducer keeps the message of a part. */
struct pl_coded {
    enum pl_compression method; /* NONE: float32; FLOAT16: halves; UNIFORM8: codes into the table */
    const void *data;      /* n values of it in the machine's order; float32 may be unaligned */
    float table[PL_CODES]; /* of UNIFORM8 */
};

/* Both work in host memory, and every backend gives the same bits: a group whose members have
 * different hardware must agree on the values that were sent.
 *
 * sum[i] = sum[i] + weight * x[i], the product and the sum each rounded once. */
typedef int pl_average_add_fn(float *sum, const struct pl_coded *x, float weight, size_t n);

/* delta[i] = sum[i] / weight - x[i], each rounded once; all 0 if the weight is 0, since a mean of
 * nothing changes nothing. */
typedef int pl_average_delta_fn(float *delta, const float *sum, float weight,
                                const struct pl_coded *x, size_t n);

pl_average_add_fn ref_average_add, fast_average_add, cuda_average_add;
pl_average_delta_fn ref_average_delta, fast_average_delta, cuda_average_delta;

/* Values of a sender and how much they count. */
struct pl_sender {
    struct pl_coded x;
    float weight;
};

/* Compositions of the two, one pass over memory instead of several; same bits. A backend with
 * host_alloc is not asked for them: its memory is not behind the processor's caches.
 *
 * sum = 0, then average_add of each sender in turn. */
typedef int pl_average_sum_fn(float *sum, const struct pl_sender *from, int senders, size_t n);
/* x += 1 * the delta of such a sum from x; x may be a sender's own data. */
typedef int pl_average_apply_fn(float *x, const struct pl_sender *from, int senders, float weight,
                                size_t n);
/* uniform8_encode of the delta (n >= 1): codes (n) and their table. */
typedef int pl_average_delta8_fn(uint8_t *codes, float table[PL_CODES], const float *sum,
                                 float weight, const struct pl_coded *x, size_t n);
/* The same from the senders themselves: the sum is made on the way and not stored. */
typedef int pl_average_reduce8_fn(uint8_t *codes, float table[PL_CODES],
                                  const struct pl_sender *from, int senders, float weight,
                                  const struct pl_coded *x, size_t n);

pl_average_sum_fn ref_average_sum, fast_average_sum;
pl_average_apply_fn ref_average_apply, fast_average_apply;
pl_average_delta8_fn ref_average_delta8, fast_average_delta8;
pl_average_reduce8_fn ref_average_reduce8, fast_average_reduce8;

#ifdef __cplusplus
}
#endif
#endif
