/* centered_clip.c - robust aggregation. CenteredClip reads its inputs once per iteration instead of
 * twice: while a block of coordinates is in cache, it applies the step and computes the new
 * distances, which the next iteration needs. The median sorts many columns at once with a sorting
 * network. */
#include "fast.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define BLOCK 512 /* coordinates: a group's rows of them stay in L2 */

/* --- CenteredClip ----------------------------------------------------------------------------- */

typedef double double4 __attribute__((vector_size(32)));
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double4 unaligned_double4 __attribute__((aligned(8), may_alias));

/* A macro, because a function would return a vector in registers that not every CPU has. */
#define DIFFERENCE(x, v) \
    (__builtin_convertvector(*(const float4 *)(x), double4) - *(const unaligned_double4 *)(v))

/* Four accumulators of four, so that additions overlap; the order is the same on every instruction
 * set. */
FAST_CLONES static double squares(const float *x, const double *v, int n)
{
    double4 a = { 0 }, b = a, c = a, e = a;
    double sum;
    int k = 0;
    for (; k + 16 <= n; k += 16) {
        double4 p = DIFFERENCE(x + k, v + k), q = DIFFERENCE(x + k + 4, v + k + 4);
        double4 r = DIFFERENCE(x + k + 8, v + k + 8), s = DIFFERENCE(x + k + 12, v + k + 12);
        a += p * p, b += q * q, c += r * r, e += s * s;
    }
    a = (a + b) + (c + e);
    sum = (a[0] + a[1]) + (a[2] + a[3]);
    for (; k < n; k++) sum += (x[k] - v[k]) * (x[k] - v[k]);
    return sum;
}

FAST_CLONES static void add_clipped(double *step, const float *x, const double *v, double factor,
                                    int n)
{
#pragma omp simd
    for (int k = 0; k < n; k++) step[k] += factor * (x[k] - v[k]);
}

FAST_CLONES static void add_step(double *v, const double *step, int n)
{
#pragma omp simd
    for (int k = 0; k < n; k++) v[k] += step[k];
}

/* The result of one block. */
struct moved {
    double step, largest; /* of the step: sum of squares, largest magnitude */
};

/* Applies the step to one block, then sums the squares of the new differences. Rows are copied to
 * scratch on the way: a part's length is a power of two, so its rows conflict in every cache, and
 * reading 16 of them again would go to memory. */
static struct moved step_block(double *v, double *distance, float *rows, const float *x,
                               const double *factor, int n, size_t d, int count)
{
    double step[BLOCK];
    struct moved moved = { 0, 0 };
    memset(step, 0, sizeof step);
    for (int i = 0; i < n; i++) {
        float *row = rows + (size_t)i * BLOCK;
        memcpy(row, x + (size_t)i * d, (size_t)count * sizeof *row);
        if (factor[i] != 0) add_clipped(step, row, v, factor[i], count);
    }
    add_step(v, step, count);
    for (int k = 0; k < count; k++) {
        double size = fabs(step[k]);
        moved.step += size * size;
        if (size > moved.largest) moved.largest = size;
    }
    for (int i = 0; i < n; i++) distance[i] = squares(rows + (size_t)i * BLOCK, v, count);
    return moved;
}

/* Sums of all blocks, added in order; n values each. */
static void sum_blocks(double *sum, const double *parts, size_t blocks, int n)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (size_t b = 0; b < blocks; b++)
        for (int i = 0; i < n; i++) sum[i] += parts[b * (size_t)n + (size_t)i];
}

struct scratch {
    double *parts;             /* (blocks, n) */
    double *distance, *factor; /* (n): squared distance; weight times clipping over the total */
    struct moved *moved;       /* (blocks) */
    float *rows;               /* (threads, n, BLOCK) */
};

static int iterate(double *v, struct pl_clip_result *result, const float *x, const double *weight,
                   int n, size_t d, const struct pl_clip *clip, double total,
                   const struct scratch *w)
{
    size_t blocks = (d + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (blocks > 4)
    for (size_t b = 0; b < blocks; b++)
        for (int i = 0; i < n; i++)
            w->parts[b * (size_t)n + (size_t)i] =
                squares(x + (size_t)i * d + b * BLOCK, v + b * BLOCK,
                        (int)(d - b * BLOCK < BLOCK ? d - b * BLOCK : BLOCK));
    while (result->iterations < clip->iterations) {
        double tau = clip->taus ? clip->taus[result->iterations] : clip->tau, sum = 0, largest = 0;
        sum_blocks(w->distance, w->parts, blocks, n);
        result->clipped = 0;
        for (int i = 0; i < n; i++) {
            double distance = sqrt(w->distance[i]), factor = distance > tau ? tau / distance : 1;
            result->clipped += !(distance <= tau);
            w->factor[i] = isfinite(distance) ? factor * (weight ? weight[i] : 1) / total : 0;
        }
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (blocks > 4)
        for (size_t b = 0; b < blocks; b++)
            w->moved[b] = step_block(v + b * BLOCK, w->parts + b * (size_t)n,
                                     w->rows + (size_t)omp_get_thread_num() * (size_t)n * BLOCK,
                                     x + b * BLOCK, w->factor, n, d,
                                     (int)(d - b * BLOCK < BLOCK ? d - b * BLOCK : BLOCK));
        for (size_t b = 0; b < blocks; b++) {
            sum += w->moved[b].step;
            largest = fmax(largest, w->moved[b].largest);
        }
        result->iterations++;
        result->step = sqrt(sum);
        if (result->step <= clip->stop_norm || largest <= clip->stop_largest) break;
    }
    return PL_OK;
}

int fast_centered_clip(double *v, struct pl_clip_result *result, const float *x,
                       const double *weight, int n, size_t d, const struct pl_clip *clip)
{
    size_t blocks = (d + BLOCK - 1) / BLOCK;
    double total = clip->total;
    struct scratch w = {
        .parts = pl_alloc(blocks * (size_t)n, sizeof *w.parts),
        .distance = pl_alloc((size_t)n, sizeof *w.distance),
        .factor = pl_alloc((size_t)n, sizeof *w.factor),
        .moved = pl_alloc(blocks, sizeof *w.moved),
        .rows = pl_alloc((size_t)fast_threads() * (size_t)n, BLOCK * sizeof *w.rows),
    };
    int rc = w.parts && w.distance && w.factor && w.moved && w.rows ? PL_OK : PL_ENOMEM;
    for (int i = 0; i < n && clip->total == 0; i++) total += weight ? weight[i] : 1;
    *result = (struct pl_clip_result){ 0 };
    if (!rc && total > 0) rc = iterate(v, result, x, weight, n, d, clip, total, &w);
    pl_free(w.parts);
    pl_free(w.distance);
    pl_free(w.factor);
    pl_free(w.moved);
    pl_free(w.rows);
    return rc;
}

/* --- median ----------------------------------------------------------------------------------- */

#define COLUMNS 64 /* adjacent columns: at least one vector of integers per row */

/* A float as an integer that orders like it: -0 before 0, NaN last; and back. */
FAST_INLINE int32_t key_of(float f)
{
    union {
        float f;
        int32_t i;
        uint32_t u;
    } x = { f };
    x.i = (x.u & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC00000 : x.i;
    return x.i ^ ((x.i >> 31) & 0x7FFFFFFF);
}

FAST_INLINE float of_key(int32_t key)
{
    union {
        int32_t i;
        float f;
    } x = { key ^ ((key >> 31) & 0x7FFFFFFF) };
    return x.f;
}

FAST_CLONES static void compare_exchange(int32_t *low, int32_t *high)
{
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
        int32_t a = low[c], b = high[c];
        low[c] = a < b ? a : b;
        high[c] = a < b ? b : a;
    }
}

/* Batcher's odd-even merge sort of n rows [Knuth 5.2.2, algorithm M's network for any n]. */
static void sort_rows(int32_t (*row)[COLUMNS], int n)
{
    for (int p = 1; p < n; p *= 2)
        for (int k = p; k >= 1; k /= 2)
            for (int j = k % p; j + k < n; j += 2 * k)
                for (int i = j; i < j + k && i + k < n; i++)
                    if (i / (2 * p) == (i + k) / (2 * p)) compare_exchange(row[i], row[i + k]);
}

FAST_CLONES static void load_rows(int32_t (*row)[COLUMNS], const float *x, int n, size_t d,
                                  int count)
{
    for (int i = 0; i < n; i++) {
        const float *from = x + (size_t)i * d;
#pragma omp simd
        for (int c = 0; c < count; c++) row[i][c] = key_of(from[c]);
    }
}

int fast_median(float *m, const float *x, int n, size_t d, int upper)
{
    int threads = fast_threads(), which = upper ? n / 2 : (n - 1) / 2;
    int32_t *rows = pl_alloc((size_t)threads * (size_t)n, COLUMNS * sizeof *rows);
    size_t blocks = (d + COLUMNS - 1) / COLUMNS;
    if (!rows) return PL_ENOMEM;
#pragma omp parallel num_threads(threads) if (blocks > 64)
    {
        int32_t(*row)[COLUMNS] = (int32_t(*)[COLUMNS])rows +
                                 (size_t)omp_get_thread_num() * (size_t)n;
#pragma omp for schedule(static)
        for (size_t b = 0; b < blocks; b++) {
            size_t at = b * COLUMNS;
            int count = (int)(d - at < COLUMNS ? d - at : COLUMNS);
            load_rows(row, x + at, n, d, count);
            sort_rows(row, n);
            for (int c = 0; c < count; c++) m[at + (size_t)c] = of_key(row[which][c]);
        }
    }
    pl_free(rows);
    return PL_OK;
}
