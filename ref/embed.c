/* embed.c - a token is a row of the embedding E (rows,D), and a row's gradient is the sum over all
 * positions where its token stood. [spec dalle 2]
 *
 *   y_m = E[id_m]          dE[id_m] += dy_m            m over the M positions of a batch */
#include "embed.h"

#include <assert.h>
#include <string.h>

int ref_embed(float *y, const float *table, const int32_t *ids, int M, int D, int rows)
{
    for (int m = 0; m < M; m++) {
        assert(0 <= ids[m] && ids[m] < rows);
        /* y_m = E[id_m]: a product of E with a one-hot row, without the zeros */
        memcpy(y + (size_t)m * (size_t)D, table + (size_t)ids[m] * (size_t)D,
               (size_t)D * sizeof *y);
    }
    return PL_OK;
}

int ref_embed_backward(float *dtable, const float *dy, const int32_t *ids, int M, int D, int rows)
{
    for (int m = 0; m < M; m++) {
        float *row = dtable + (size_t)ids[m] * (size_t)D;
        assert(0 <= ids[m] && ids[m] < rows);
        /* dE[id_m] += dy_m, in the order of m: equal ids add to the same row */
        for (int i = 0; i < D; i++) row[i] += dy[(size_t)m * (size_t)D + (size_t)i];
    }
    return PL_OK;
}
