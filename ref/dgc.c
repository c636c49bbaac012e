/* dgc.c - deep gradient compression: only the largest of many accumulated gradients are sent, and
 * the rest wait. [DGC: Lin et al. 2018, alg. 1 and 2] [spec numerics 14]
 *
 *   1. g = g min(1, limit / |g|)      clipping, before anything is accumulated
 *   2. u = momentum u + g             momentum correction: the momentum, not g, is accumulated
 *   3. a = a + u                      until sent
 *   4. send a_i where |a_i| is among the `count` largest, then a_i = u_i = 0
 *
 * u is cleared too (momentum factor masking): stale momentum would push where a_i has just been.
 * The paper guesses the threshold from a sample; here the selection is exact. */
#include "dgc.h"

#include <math.h>
#include <stdlib.h>

size_t pl_dgc_count(size_t n, double sparsity)
{
    /* less 1e-9, so that 1000 (1 - 0.999) is 1 and not 2 */
    double count = ceil((double)n * (1 - sparsity) - 1e-9);
    return count < 1 ? 1 : count < (double)n ? (size_t)count : n;
}

void pl_dgc_accumulate(double *u, double *a, const double *g, size_t n, double momentum,
                       double limit)
{
    double sum = 0, factor;
    for (size_t i = 0; i < n; i++) sum += g[i] * g[i];
    factor = sqrt(sum) > limit ? limit / sqrt(sum) : 1; /* 1. */
    for (size_t i = 0; i < n; i++) {
        u[i] = momentum * u[i] + g[i] * factor; /* 2. */
        a[i] += u[i];                           /* 3. */
    }
}

/* A total order, whatever others' numbers are: NaN before infinity, ties by index. Without it the
 * selection below would run past its ends. */
static int larger_first(const struct pl_entry *a, const struct pl_entry *b)
{
    const int a_nan = isnan(a->size) != 0, b_nan = isnan(b->size) != 0;
    if (a_nan != b_nan) return b_nan - a_nan;
    if (!a_nan && a->size != b->size) return a->size < b->size ? 1 : -1;
    return (a->index > b->index) - (a->index < b->index);
}

static int by_index(const void *p, const void *q)
{
    const struct pl_entry *a = p, *b = q;
    return a->index < b->index ? -1 : 1;
}

/* Moves the k largest of n to the front, in any order: Hoare's selection, which goes on in the one
 * side of the pivot that holds the k'th. Work in proportion to n, where sorting all of them took
 * longer than a gradient. */
static void select_largest(struct pl_entry *e, size_t n, size_t k)
{
    size_t low = 0, high = n; /* those before low are among the largest, from high on none is */
    while (low < k && k < high) {
        /* never the last one, so that both sides are smaller than the whole */
        const struct pl_entry pivot = e[low + (high - 1 - low) / 2];
        size_t i = low, j = high - 1;
        for (;;) {
            struct pl_entry swap;
            while (larger_first(&e[i], &pivot) < 0) i++;
            while (larger_first(&pivot, &e[j]) < 0) j--;
            if (i >= j) break;
            swap = e[i];
            e[i++] = e[j];
            e[j--] = swap;
        }
        if (k <= j + 1) high = j + 1;
        else low = j + 1;
    }
}

/* By size, ties to the lower index, since a message must be reproducible from its input; then the k
 * of them by index, as they are sent. */
void pl_largest_first(struct pl_entry *entries, size_t n, size_t k)
{
    select_largest(entries, n, k);
    qsort(entries, k, sizeof *entries, by_index);
}

/* 4. A NaN is sent first, so that it is noticed. */
int pl_dgc_take(uint32_t *index, double *value, double *a, double *u, size_t n, size_t count)
{
    struct pl_entry *entries = pl_alloc(n, sizeof *entries);
    if (!entries) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) entries[i] = (struct pl_entry){ fabs(a[i]), (uint32_t)i };
    pl_largest_first(entries, n, count);
    for (size_t k = 0; k < count; k++) {
        size_t i = entries[k].index;
        index[k] = (uint32_t)i;
        value[k] = a[i];
        a[i] = u[i] = 0;
    }
    pl_free(entries);
    return PL_OK;
}

/* The mean of all workers' messages: w -= lr * update */
void pl_dgc_add(double *update, const uint32_t *index, const double *value, size_t count,
                int workers)
{
    for (size_t k = 0; k < count; k++) update[index[k]] += value[k] / workers;
}
