/* quant.c - block-wise 8-bit quantization with dynamic code books. [8-bit optimizers 2.1, 2.2]
 * [8-bit approximations: dynamic tree quantization]
 *
 *   block    a_b    = max |x_i| over a block of neighbours
 *   code     c_i    = the entry of the code book that is nearest to x_i / a_b
 *   back     x_i'   = book[c_i] a_b
 *
 * Moments span many orders of magnitude, and evenly spaced codes would round the small ones to
 * zero. So the code book has seven decades, 1e-7 to 1, each with twice the entries of the decade
 * below: a relative error of a few percent at the top, coarser the smaller a value is. Blocks
 * confine an outlier: it coarsens its neighbours, not the tensor. */
#include "quant.h"
#include "small.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define DECADES 7

void pl_codebook(float book[PL_CODES], enum pl_map map, enum pl_rule rule)
{
    int n = 0;
    book[n++] = 0;
    book[n++] = 1; /* there is no -1, but by PL_RULE_RUN */
    for (int e = 0; e < DECADES; e++) {
        /* Decade e reaches from 0.1 to 1 times 10^(e-6): 2^e equal cells (twice as many without
         * signs), and an entry is the middle of a cell. The edges are computed from both ends, each
         * with a single rounding, as the libraries do: no other order of operations gives the same
         * last bits. */
        int cells = map == PL_MAP_SIGNED ? 1 << e : 2 << e, edges = cells + 1;
        float step = (1 - 0.1f) / (float)cells, scale = (float)pow(10, e - 6), edge[130];
        for (int i = 0; i < edges; i++)
            edge[i] = i < edges / 2 ? fmaf(step, (float)i, 0.1f)
                                    : fmaf(-step, (float)(edges - 1 - i), 1.0f);
        for (int i = 0; i < cells; i++) {
            float entry = (edge[i] + edge[i + 1]) / 2 * scale;
            book[n++] = entry;
            if (map == PL_MAP_SIGNED) book[n++] = -entry;
        }
    }
    assert(n == PL_CODES);
    qsort(book, PL_CODES, sizeof *book, pl_ascending_floats);
    if (rule == PL_RULE_RUN) book[0] = -1;
}

/* Three ways to the nearest entry, each by halving, for the book is sorted; see enum pl_rule. */
uint8_t pl_code_run(const float book[PL_CODES], float z)
{
    int i = 0;
    for (int half = PL_CODES / 2; half; half /= 2) /* the last i with book[i] <= z */
        if (book[i + half] <= z) i += half;
    if (i < PL_CODES - 1 && fabsf(z - book[i + 1]) < fabsf(z - book[i])) i++;
    return (uint8_t)i;
}

uint8_t pl_code_lut(const float book[PL_CODES], float v)
{
    float h, at, grid;
    int i = 0;
    if (!isfinite(v)) return 0;
    h = (fminf(fmaxf(v, -1), 1) + 1) * 0.5f; /* the library's table has 65536 rows over [-1, 1] */
    at = floorf((float)(h * 65535.0 + 0.5));
    grid = -1 + 2 * at / 65535;
    for (int half = PL_CODES / 2; half; half /= 2) /* how many midpoints lie below */
        if (0.5f * (book[i + half - 1] + book[i + half]) < grid) i += half;
    return (uint8_t)i;
}

uint8_t pl_code_cuda(const float book[PL_CODES], float v)
{
    int i = 127, lower = 0, upper = 255;
    for (int half = 64; half; half /= 2) {
        if (v > book[i]) lower = i, i += half;
        else upper = i, i -= half;
    }
    if (v > book[i]) return (uint8_t)(v > (book[upper] + book[i]) * 0.5f ? upper : i);
    return (uint8_t)(v < (book[lower] + book[i]) * 0.5f ? lower : i);
}

size_t pl_blocks(size_t n, size_t block) { return n / block + (n % block != 0); }

int ref_quantize(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                 enum pl_map map, enum pl_rule rule)
{
    float book[PL_CODES];
    pl_codebook(book, map, rule);
    assert(block >= 1);
    for (size_t b = 0, begin = 0; begin < n; b++, begin += block) {
        size_t end = n - begin > block ? begin + block : n;
        float largest = -FLT_MAX, scale;
        for (size_t i = begin; i < end; i++) /* no fmaxf: a signaling NaN would win */
            if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
        absmax[b] = largest;
        scale = 1 / largest;
        for (size_t i = begin; i < end; i++)
            codes[i] = rule == PL_RULE_RUN   ? pl_code_run(book, x[i] / largest)
                       : rule == PL_RULE_LUT ? pl_code_lut(book, x[i] * scale)
                                             : pl_code_cuda(book, x[i] * scale);
    }
    return PL_OK;
}

int ref_dequantize(float *y, const uint8_t *codes, const float *absmax, size_t n, size_t block,
                   const float book[PL_CODES])
{
    assert(block >= 1);
    for (size_t i = 0; i < n; i++) y[i] = book[codes[i]] * absmax[i / block];
    return PL_OK;
}
