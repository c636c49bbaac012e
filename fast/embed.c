/* embed.c - embedding lookup and its gradient. Rows are copied in parallel. Gradients are added by
 * columns, one thread for each range of columns, so each element receives its rows in ascending
 * order for any number of threads. */
#include "fast.h"

#include <assert.h>
#include <string.h>

#define COLUMNS 64  /* four cache lines: long enough that reading the ids again costs little */
#define SMALL 16384 /* elements below which waking threads costs more than it saves */

int fast_embed(float *y, const float *table, const int32_t *ids, int M, int D, int rows)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int m = 0; m < M; m++) {
        assert(0 <= ids[m] && ids[m] < rows);
        memcpy(y + (size_t)m * (size_t)D, table + (size_t)ids[m] * (size_t)D,
               (size_t)D * sizeof *y);
    }
    return PL_OK;
}

FAST_CLONES static void add_columns(float *to, const float *from, const int32_t *ids, int M, int D,
                                    int columns)
{
    for (int m = 0; m < M; m++, from += D) {
        float *row = to + (size_t)ids[m] * (size_t)D;
#pragma omp simd
        for (int i = 0; i < columns; i++) row[i] += from[i];
    }
}

int fast_embed_backward(float *dtable, const float *dy, const int32_t *ids, int M, int D, int rows)
{
    for (int m = 0; m < M; m++) assert(0 <= ids[m] && ids[m] < rows);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((long)M * D > SMALL)
    for (int i = 0; i < D; i += COLUMNS)
        add_columns(dtable + i, dy + i, ids, M, D, D - i < COLUMNS ? D - i : COLUMNS);
    return PL_OK;
}
