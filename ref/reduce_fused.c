/* reduce_fused.c - the definition of four operations of a reducer that exist for speed. Each is
 * composed of add, delta (reduce.c) and the 8-bit codec, one after the other; a backend does the
 * same in one pass over memory, and must give the same bits.
 *
 *   sum       sum = sum_k w_k x_k
 *   apply     x += sum / w - x              for values that stay with their reducer
 *   delta8    codes of sum / w - x          a sender's answer
 *   reduce8   the same from the senders     all of it at once */
#include "reduce.h"

int ref_average_sum(float *sum, const struct pl_sender *from, int senders, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] = 0;
    for (int k = 0; k < senders; k++) ref_average_add(sum, &from[k].x, from[k].weight, n);
    return PL_OK;
}

/* x is written last: a sender's values may be x itself. A mean of nothing changes nothing. */
int ref_average_apply(float *x, const struct pl_sender *from, int senders, float weight, size_t n)
{
    float *sum = pl_alloc(n, sizeof *sum);
    int rc = sum ? ref_average_sum(sum, from, senders, n) : PL_ENOMEM;
    for (size_t i = 0; !rc && weight != 0 && i < n; i++) x[i] = x[i] + (sum[i] / weight - x[i]);
    pl_free(sum);
    return rc;
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

int ref_average_reduce8(uint8_t *codes, float table[PL_CODES], const struct pl_sender *from,
                        int senders, float weight, const struct pl_coded *x, size_t n)
{
    float *sum = pl_alloc(n, sizeof *sum);
    int rc = sum ? ref_average_sum(sum, from, senders, n) : PL_ENOMEM;
    if (!rc) rc = ref_average_delta8(codes, table, sum, weight, x, n);
    pl_free(sum);
    return rc;
}
