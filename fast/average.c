/* average.c - a message is decoded where it is added: halves in registers, 8-bit codes a piece at a
 * time in the first cache; a part is never widened in memory. Products and sums stay apart (no
 * fused multiply-add), so the bits are the reference's. */
#include "fast.h"

#include <string.h>

#define PIECE 2048 /* values at a time, decoded on the stack */

/* Values of a message need not be aligned. */
typedef float loose_float __attribute__((aligned(1), may_alias));
typedef uint16_t loose_half __attribute__((aligned(1), may_alias));

/* Exact for all halves; a NaN keeps its bits. Subnormal ones are made from their whole number,
 * since a product with a subnormal float takes a hundred times as long. No branches: they would
 * keep the compiler from vectors. */
FAST_INLINE float widen(uint16_t h)
{
    int32_t size = h & 0x7FFF, subnormal = -(size < 0x0400), infinite = -(size >= 0x7C00);
    union { int32_t i; float f; } small = { .f = (float)size * 0x1p-24f }, out;
    int32_t normal = (size << 13) + (112 << 23) + (infinite & 112 << 23);
    out.i = (small.i & subnormal) | (normal & ~subnormal) | (int32_t)((uint32_t)(h & 0x8000) << 16);
    return out.f;
}

FAST_CLONES static void add_floats(float *sum, const loose_float *x, float weight, int n)
{
    #pragma omp simd
    for (int i = 0; i < n; i++) sum[i] = sum[i] + weight * x[i];
}

FAST_CLONES static void add_halves(float *sum, const loose_half *x, float weight, int n)
{
    #pragma omp simd
    for (int i = 0; i < n; i++) sum[i] = sum[i] + weight * widen(x[i]);
}

FAST_CLONES static void delta_floats(float *delta, const float *sum, float weight,
                                     const loose_float *x, int n)
{
    #pragma omp simd
    for (int i = 0; i < n; i++) delta[i] = sum[i] / weight - x[i];
}

FAST_CLONES static void delta_halves(float *delta, const float *sum, float weight,
                                     const loose_half *x, int n)
{
    #pragma omp simd
    for (int i = 0; i < n; i++) delta[i] = sum[i] / weight - widen(x[i]);
}

/* Eight codes a load. */
static void look_up(float *values, const uint8_t *codes, const float *table, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t c;
        memcpy(&c, codes + i, 8);
        for (int k = 0; k < 8; k++) values[i + k] = table[c >> 8 * k & 255];
    }
    for (; i < n; i++) values[i] = table[codes[i]];
}

/* Piece p of n values: where it begins, how long it is. */
static size_t piece(size_t n, size_t p, int *count)
{
    size_t at = p * PIECE;
    *count = (int)(n - at < PIECE ? n - at : PIECE);
    return at;
}

static void add_piece(float *sum, const struct pl_coded *x, float weight, size_t at, int n)
{
    float values[PIECE];
    switch (x->method) {
    case PL_COMPRESS_UNIFORM8:
        look_up(values, (const uint8_t *)x->data + at, x->table, n);
        add_floats(sum + at, values, weight, n);
        break;
    case PL_COMPRESS_FLOAT16:
        add_halves(sum + at, (const loose_half *)x->data + at, weight, n);
        break;
    default: add_floats(sum + at, (const loose_float *)x->data + at, weight, n);
    }
}

int fast_average_add(float *sum, const struct pl_coded *x, float weight, size_t n)
{
    size_t pieces = (n + PIECE - 1) / PIECE;
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces > 32)
    for (size_t p = 0; p < pieces; p++) {
        int count;
        size_t at = piece(n, p, &count);
        add_piece(sum, x, weight, at, count);
    }
    return PL_OK;
}

static void delta_piece(float *delta, const float *sum, float weight, const struct pl_coded *x,
                        size_t at, int n)
{
    float values[PIECE];
    switch (x->method) {
    case PL_COMPRESS_UNIFORM8:
        look_up(values, (const uint8_t *)x->data + at, x->table, n);
        delta_floats(delta + at, sum + at, weight, values, n);
        break;
    case PL_COMPRESS_FLOAT16:
        delta_halves(delta + at, sum + at, weight, (const loose_half *)x->data + at, n);
        break;
    default: delta_floats(delta + at, sum + at, weight, (const loose_float *)x->data + at, n);
    }
}

int fast_average_delta(float *delta, const float *sum, float weight, const struct pl_coded *x,
                       size_t n)
{
    size_t pieces = (n + PIECE - 1) / PIECE;
    if (weight == 0) {
        memset(delta, 0, n * sizeof *delta);
        return PL_OK;
    }
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces > 32)
    for (size_t p = 0; p < pieces; p++) {
        int count;
        size_t at = piece(n, p, &count);
        delta_piece(delta, sum, weight, x, at, count);
    }
    return PL_OK;
}
