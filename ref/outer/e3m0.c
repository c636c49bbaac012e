/* e3m0.c - pseudo-gradients in four bits. Differences between parameters are small and their sizes
 * vary over many powers of two, so an exponent says more than a mantissa: eight levels, each twice
 * the one below, reach from the block's largest value down to a 64th of it, with a relative error
 * of at most a third. Sums are made in float32. [Streaming DiLoCo: Douillard et al. 2025]
 * [spec outer-steps 6] */
#include "e3m0.h"
#include "../byte_order.h"

#include <math.h>
#include <string.h>

#define LEVELS 7 /* and zero */

size_t pl_e3m0_bytes(size_t n, size_t block)
{
    size_t whole = n / block, rest = n % block;
    return whole * (4 + (block + 1) / 2) + (rest ? 4 + (rest + 1) / 2 : 0);
}

/* c counts the thresholds that |x| reaches: halfway between neighbours of 0, s/64, s/32, ..., s. In
 * double they are exact, whatever the scale. */
static unsigned code_of(float x, double s)
{
    double size = fabs((double)x);
    unsigned c = 0;
    if (s > 0) {
        c = size >= s / 128;
        for (int level = 2; level <= LEVELS; level++) c += size >= 3 * ldexp(s, level - 9);
    }
    return x < 0 && c ? c | 8 : c;
}

/* For each block: s = max |x| as float32, then two codes a byte, the first in the low half. A code
 * is a sign and c: 0 is zero, and c stands for s 2^(c - 7), so 7 is s itself. */
int ref_e3m0_encode(uint8_t *out, const float *x, size_t n, size_t block)
{
    for (size_t at = 0; at < n; at += block) {
        size_t count = n - at < block ? n - at : block;
        float s = 0;
        for (size_t i = 0; i < count; i++) s = fmaxf(s, fabsf(x[at + i]));
        pl_copy_little(out, &s, 4, 1);
        out += 4;
        for (size_t i = 0; i < count; i += 2) {
            unsigned low = code_of(x[at + i], s);
            unsigned high = i + 1 < count ? code_of(x[at + i + 1], s) : 0;
            *out++ = (uint8_t)(low | high << 4);
        }
    }
    return PL_OK;
}

/* x = +- s 2^(c - 7), exact but for underflow */
int ref_e3m0_decode(float *x, const uint8_t *in, size_t n, size_t block)
{
    for (size_t at = 0; at < n; at += block) {
        size_t count = n - at < block ? n - at : block;
        float s;
        pl_copy_little(&s, in, 4, 1);
        in += 4;
        for (size_t i = 0; i < count; i++) {
            unsigned code = in[i / 2] >> (i % 2 ? 4 : 0) & 15, c = code & 7;
            float size = c ? (float)ldexp((double)s, (int)c - LEVELS) : 0;
            x[at + i] = code & 8 ? -size : size;
        }
        in += (count + 1) / 2;
    }
    return PL_OK;
}
