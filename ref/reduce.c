/* reduce.c - the sum of a part and its deltas, computed directly from the senders' messages: halves
 * and 8-bit codes are widened one value at a time, so no sender's part is ever stored a second time
 * as float32. [TTT 3.3]
 *
 *   add     sum_i += w_k x_k,i             for each sender k, in the order of arrival
 *   delta   sum_i / sum_k w_k - x_k,i      sent back to sender k
 *
 * reduce_fused.c has compositions of these two. */
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
