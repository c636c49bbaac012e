/* reduce.c - what the reducer of a part does with the values that reach it, straight from their
 * messages: halves and 8-bit codes are widened one value at a time, so no sender's part is ever
 * stored a second time as float32. [TTT 3.3]
 *
 *   add     sum_i += w_k x_k,i             for each sender k, in the order of arrival
 *   delta   sum_i / sum_k w_k - x_k,i      what sender k is sent back
 *
 * The other four are compositions of these two. */
#include "reduce.h"

#include <string.h>

/* x_i, from whatever encoding the message has */
static float value(const struct pl_coded *x, size_t i)
{
    float f;
    uint16_t half;
    switch (x->method) {
    case PL_COMPRESS_UNIFORM8: return x->table[((const uint8_t *)x->data)[i]];
    case PL_COMPRESS_FLOAT16:
        memcpy(&half, (const char *)x->data + i * sizeof half, sizeof half);
        return pl_half_to_float(half);
    default: memcpy(&f, (const char *)x->data + i * sizeof f, sizeof f); return f;
    }
}

/* sum += w x */
int ref_average_add(float *sum, const struct pl_coded *x, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] = sum[i] + weight * value(x, i);
    return PL_OK;
}

/* delta = sum / w - x; a mean of nothing changes nothing */
int ref_average_delta(float *delta, const float *sum, float weight, const struct pl_coded *x,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) delta[i] = weight != 0 ? sum[i] / weight - value(x, i) : 0;
    return PL_OK;
}

/* sum = sum_k w_k x_k */
int ref_average_sum(float *sum, const struct pl_sender *from, int senders, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] = 0;
    for (int k = 0; k < senders; k++) ref_average_add(sum, &from[k].x, from[k].weight, n);
    return PL_OK;
}

/* x += sum / w - x, for values that stay with their reducer */
int ref_average_apply(float *x, const struct pl_sender *from, int senders, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < senders; k++) sum = sum + from[k].weight * value(&from[k].x, i);
        x[i] = x[i] + (weight != 0 ? sum / weight - x[i] : 0);
    }
    return PL_OK;
}

int ref_average_delta8(uint8_t *codes, float table[PL_CODES], const float *sum, float weight,
                       const struct pl_coded *x, size_t n)
{
    float *delta = pl_alloc(n, sizeof *delta);
    int rc = delta ? PL_OK : PL_ENOMEM;
    if (!rc) rc = ref_average_delta(delta, sum, weight, x, n);
    if (!rc) rc = ref_uniform8_encode(codes, table, delta, n);
    pl_free(delta);
    return rc;
}

/* all of it: what a sender of 8-bit codes is sent back */
int ref_average_reduce8(uint8_t *codes, float table[PL_CODES], const struct pl_sender *from,
                        int senders, float weight, const struct pl_coded *x, size_t n)
{
    float *sum = pl_alloc(n, sizeof *sum);
    int rc = sum ? ref_average_sum(sum, from, senders, n) : PL_ENOMEM;
    if (!rc) rc = ref_average_delta8(codes, table, sum, weight, x, n);
    pl_free(sum);
    return rc;
}
