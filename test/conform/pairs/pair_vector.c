/* pair_vector.c - element-wise operations on whole buffers against the reference's. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

/* The smallest, an odd one, one more than a multiple of any chunk, the reference run's text
 * embedding. */
static const size_t sizes[] = { 1, 17, 4097, 65536 + 3, 4u << 20 };

static void fill(struct pair *p, size_t n)
{
    if (!pair_case(p, "fill", "n%zu", n)) return;
    struct pair_f32 x = pair_poison(p, n);
    pair_work(p, 0, 4.0 * (double)n);
    PAIR(p, fill, x.at[side], -0.3f, n);
    pair_exact(p, "x", x.any);
}

static void copy(struct pair *p, size_t n)
{
    if (!pair_case(p, "copy", "n%zu", n)) return;
    struct pair_f32 x = pair_normal(p, n, 1), y = pair_poison(p, n);
    pair_work(p, 0, 8.0 * (double)n);
    PAIR(p, copy, y.at[side], x.at[side], n);
    pair_exact(p, "y", y.any);
}

static void axpy(struct pair *p, size_t n)
{
    const float a = 0.7f;
    if (!pair_case(p, "axpy", "n%zu", n)) return;
    struct pair_f32 x = pair_normal(p, n, 1), y = pair_normal(p, n, 1);
    float *terms = pair_scratch(p, n);
    for (size_t i = 0; i < n; i++) terms[i] = fabsf(a * x.at[0][i]) + fabsf(y.at[0][i]);
    pair_work(p, 0, 12.0 * (double)n);
    PAIR(p, axpy, y.at[side], a, x.at[side], n);
    pair_within(p, "y", y.any, 0x1p-23,
                terms); /* two roundings of half an ulp each, of either term */
}

static void scale(struct pair *p, size_t n)
{
    if (!pair_case(p, "scale", "n%zu", n)) return;
    struct pair_f32 x = pair_normal(p, n, 1);
    pair_work(p, 0, 8.0 * (double)n);
    PAIR(p, scale, x.at[side], 0.7f, n);
    /* one multiplication, rounded once: there is only one correct result */
    pair_exact(p, "x", x.any);
}

/* `bad`: infinity or NaN, which has to show in the sum; 0: none. */
static void sumsq(struct pair *p, size_t n, float bad)
{
    if (!pair_case(p, "sumsq", "n%zu%s", n, bad == 0 ? "" : isnan(bad) ? " nan" : " inf")) return;
    struct pair_f32 x = pair_normal(p, n, 1);
    struct pair_f64 sum = pair_host_f64(p, 1);
    if (bad != 0) {
        x.at[0][n / 2] = bad;
        pair_share(p, x.any);
    }
    pair_work(p, 0, 4.0 * (double)n);
    PAIR(p, sumsq, sum.at[side], x.at[side], n);
    pair_of_largest(p, "sum", sum.any, 1e-12 * fmax(1, log2((double)n)));
}

void pair_vector(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(sizes) + 2; i++) {
        size_t n = i < PL_COUNT(sizes) ? sizes[i] : (size_t)pair_int(p, 2, 100000);
        fill(p, n);
        copy(p, n);
        axpy(p, n);
        scale(p, n);
        sumsq(p, n, 0);
    }
    sumsq(p, 5000, INFINITY);
    sumsq(p, 5000, NAN);
}
