/* e3m0.c - E3M0 by comparison in float32 where that is exact: a float32 reaches a threshold exactly
 * if it reaches the smallest float32 that is not below it, so each block rounds its seven
 * thresholds up once, and its values are then compared as vectors. Blocks do not meet: any number
 * of threads gives the same bytes. */
#include "../ref/byte_order.h"
#include "fast.h"

#include <math.h>
#include <string.h>

#define LEVELS 7
#define STRIP 256 /* values at a time, on the stack: even, so that a strip ends with a whole byte */

FAST_CLONES static float largest_of(const float *x, size_t n)
{
    float s = 0;
#pragma omp simd reduction(max : s)
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        s = size > s ? size : s;
    }
    return s;
}

static void thresholds_of(float limit[LEVELS], float s)
{
    for (int c = 0; c < LEVELS; c++) {
        double exact = c ? 3 * ldexp((double)s, c - 8) : (double)s / 128;
        limit[c] = (float)exact;
        if ((double)limit[c] < exact) limit[c] = nextafterf(limit[c], INFINITY);
    }
}

FAST_CLONES static void codes_of(uint8_t *code, const float *x, size_t n, const float *limit)
{
    float l0 = limit[0], l1 = limit[1], l2 = limit[2], l3 = limit[3];
    float l4 = limit[4], l5 = limit[5], l6 = limit[6];
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        int c = (size >= l0) + (size >= l1) + (size >= l2) + (size >= l3) + (size >= l4) +
                (size >= l5) + (size >= l6);
        code[i] = (uint8_t)(x[i] < 0 && c ? c | 8 : c);
    }
}

static void encode_block(uint8_t *out, const float *x, size_t n)
{
    float s = largest_of(x, n), limit[LEVELS];
    uint8_t code[STRIP + 1];
    pl_copy_little(out, &s, 4, 1);
    out += 4;
    if (s == 0) {
        memset(out, 0, (n + 1) / 2);
        return;
    }
    thresholds_of(limit, s);
    for (size_t at = 0; at < n; at += STRIP) {
        size_t count = n - at < STRIP ? n - at : STRIP;
        codes_of(code, x + at, count, limit);
        code[count] = 0; /* the other half of an odd block's last byte */
        for (size_t i = 0; i < count; i += 2) *out++ = (uint8_t)(code[i] | code[i + 1] << 4);
    }
}

static void decode_block(float *x, const uint8_t *in, size_t n)
{
    float value[16], s;
    pl_copy_little(&s, in, 4, 1);
    in += 4;
    for (int c = 0; c < 8; c++) {
        value[c] = c ? (float)ldexp((double)s, c - LEVELS) : 0;
        value[c | 8] = -value[c];
    }
    for (size_t i = 0; i < n; i++) x[i] = value[in[i / 2] >> (i % 2 ? 4 : 0) & 15];
}

int fast_e3m0_encode(uint8_t *out, const float *x, size_t n, size_t block)
{
    size_t blocks = (n + block - 1) / block, bytes = 4 + (block + 1) / 2;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > 65536)
    for (size_t k = 0; k < blocks; k++) {
        size_t at = k * block;
        encode_block(out + k * bytes, x + at, n - at < block ? n - at : block);
    }
    return PL_OK;
}

int fast_e3m0_decode(float *x, const uint8_t *in, size_t n, size_t block)
{
    size_t blocks = (n + block - 1) / block, bytes = 4 + (block + 1) / 2;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > 65536)
    for (size_t k = 0; k < blocks; k++) {
        size_t at = k * block;
        decode_block(x + at, in + k * bytes, n - at < block ? n - at : block);
    }
    fast_written(x, n * sizeof *x);
    return PL_OK;
}
