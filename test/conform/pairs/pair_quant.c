/* pair_quant.c - 8-bit block quantization against the reference's, bit for bit: values of all
 * magnitudes, the neighbourhood of every boundary between codes, and arbitrary bit patterns. */
#include "pair.h"
#include "pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum what { NORMAL, DECADES, BORDERS, QUOTIENTS, BITS, STRANGE, NANS };
static const char *const names[] = { "normal", "decades", "borders", "quotients",
                                     "bits",   "strange", "nans" };

#define A_LARGEST 256 /* quotients by one */

static float draw(struct pair *p, enum what what, size_t i, const float book[PL_CODES],
                  float *largest)
{
    static const float strange[] = { 0,         -0.0f,     NAN,        INFINITY,
                                     -INFINITY, 0x1p-149f, -0x1p-140f, 3e38f };
    uint32_t bits = (uint32_t)pl_rng_u64(&p->rng);
    float x;
    int k;
    switch (what) {
    case DECADES: return (float)(pl_rng_normal(&p->rng) * pow(10, -9 * pl_rng_uniform(&p->rng)));
    case BORDERS: /* 1, then midpoints of neighbouring entries and four floats to both sides */
        if (i == 0) return 1;
        x = 0.5f * (book[i / 9 % 255] + book[i / 9 % 255 + 1]);
        for (k = 0; k < abs((int)(i % 9) - 4); k++) x = nextafterf(x, i % 9 < 4 ? -2 : 2);
        return x;
    case QUOTIENTS: /* a largest of any size, then what has one of those as its share of it */
        if (i % A_LARGEST == 0) {
            k = (int)(i / A_LARGEST % 14) * 20 - 133;
            return *largest = ldexpf((float)(1 + pl_rng_uniform(&p->rng)), k);
        }
        x = 0.5f * (book[i % 255] + book[i % 255 + 1]) * *largest;
        k = (int)pl_rng_below(&p->rng, 3) - 1;
        return k ? nextafterf(x, k < 0 ? -*largest : *largest) : x;
    case BITS: memcpy(&x, &bits, sizeof x); return x;
    case STRANGE:
        return bits % 4 ? (float)pl_rng_normal(&p->rng) : strange[bits / 4 % PL_COUNT(strange)];
    case NANS: /* blocks of 64 without a number, of either sign, between others */
        if (i / 64 % 3 < 2) return copysignf(NAN, bits % 2 || i / 64 % 3 ? -1 : 1);
        return (float)pl_rng_normal(&p->rng);
    default: return (float)(0.02 * pl_rng_normal(&p->rng));
    }
}

static const struct {
    size_t n, block;
    enum what what;
} cases[] = {
    { 1, 4096, NORMAL },
    { 3, 1, NORMAL },
    { 4095, 64, DECADES },
    { 70001, 4096, NORMAL },
    { 12345, 256, DECADES },
    { 9 * 255, 4096, BORDERS },
    { 100 * A_LARGEST, A_LARGEST, QUOTIENTS },
    { 100003, 1000, BITS },
    { 20000, 37, STRANGE },
    { 4003, 64, NANS },
    { 8192, 100000, NORMAL },
    { 1024 * 4096, 4096, NORMAL }, /* the reference run's largest matrices [TTT 3.1] */
};

static void one(struct pair *p, size_t k, enum pl_map map, enum pl_rule rule)
{
    static const char *const rules[] = { "run", "lut", "cuda" };
    size_t n = cases[k].n, block = cases[k].block;
    float book[PL_CODES], largest = 0;
    pl_codebook(book, map, rule);
    if (!pair_case(p, "quantize", "n%zu block%zu %s %s %s", n, block, map ? "unsigned" : "signed",
                   rules[rule], names[cases[k].what]))
        return;
    struct pair_f32 x = pair_poison(p, n), absmax = pair_poison(p, pl_blocks(n, block));
    struct pair_u8 codes = pair_u8_poison(p, n);
    for (size_t i = 0; i < n; i++) x.at[0][i] = draw(p, cases[k].what, i, book, &largest);
    pair_share(p, x.any);
    pair_work(p, 0, 5.0 * (double)n);
    PAIR(p, quantize, codes.at[side], absmax.at[side], x.at[side], n, block, map, rule);
    pair_exact(p, "codes", codes.any);
    pair_exact(p, "absmax", absmax.any);
}

static void back(struct pair *p, size_t k)
{
    size_t n = cases[k].n, block = cases[k].block;
    float book[PL_CODES];
    uint8_t *draws;
    if (!pair_case(p, "dequantize", "n%zu block%zu", n, block)) return;
    struct pair_f32 y = pair_poison(p, n), absmax = pair_normal(p, pl_blocks(n, block), 1);
    draws = (uint8_t *)pair_scratch(p, (n + 3) / 4);
    for (size_t i = 0; i < n; i++) draws[i] = (uint8_t)pl_rng_u64(&p->rng);
    struct pair_u8 codes = pair_u8_values(p, draws, n);
    for (int i = 0; i < PL_CODES; i++) book[i] = (float)pl_rng_normal(&p->rng); /* a stranger's */
    pair_work(p, 0, 5.0 * (double)n);
    PAIR(p, dequantize, y.at[side], codes.at[side], absmax.at[side], n, block, book);
    pair_exact(p, "y", y.any);
}

void pair_quant(struct pair *p)
{
    for (size_t k = 0; k < PL_COUNT(cases); k++) {
        for (int map = 0; map < 2; map++)
            for (int rule = PL_RULE_RUN; rule <= PL_RULE_LUT; rule++)
                one(p, k, (enum pl_map)map, (enum pl_rule)rule);
        back(p, k);
    }
}
