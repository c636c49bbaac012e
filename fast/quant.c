/* quant.c - 8-bit block quantization without a search. The leading bits of a float (sign, exponent,
 * first bits of the mantissa) select a bucket so narrow that at most one decision boundary of the
 * code book is in it. The bucket's table entry holds the lower code and, complemented, the
 * boundary's trailing bits. So
 *
 *     code = (entry[leading bits] + trailing bits) >> number of trailing bits
 *
 * The carry of the addition is the comparison: one lookup, one addition, and the code is exact.
 * Boundaries are found once by bisection with the reference's scalar rule, so ties, the rounding of
 * distances and the -1 of the reference run are all included. NaN has buckets like any other float.
 * The table is large (128 or 256 KiB), but the part in use, twenty exponents of one or two signs,
 * stays in L1.
 *
 * Everything but the lookup is vectorized. Decoding scales the code book by absmax once per block
 * and then copies floats, eight codes per load, or permutes registers (AVX-512). Blocks are
 * independent, so threads share them. */
#include "quant.h"
#include "ref/byte_order.h"

#include <float.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define X86 1
#else
#define X86 0
#endif

#define INFINITE 0x7f800000u
#define STEP 32 /* elements per kernel step */

struct fast_coder {
    int trailing;           /* bits: 17 for a signed map, 16 for an unsigned one, twice as dense */
    uint32_t *entry;        /* one per bucket; for negative values codes are complemented */
    int reciprocal;         /* the rule multiplies by 1 / absmax instead of dividing */
    int ranked;             /* the rule never uses some codes: entries number those in use... */
    uint8_t code[PL_CODES]; /* ...and this maps the number to the code */
};

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- the tables ------------------------------------------------------------------------------- */

struct rule {
    uint8_t (*code)(const float book[PL_CODES], float z);
    float book[PL_CODES];
    uint8_t rank[PL_CODES]; /* of each code among those in use */
};

static uint32_t rank(const struct rule *r, uint32_t bits)
{
    return r->rank[r->code(r->book, of_bits(bits))];
}

/* First and last float of a bucket. Beyond infinity there are only NaN's buckets: the rules treat
 * infinity as NaN, or never see it. */
static void bounds(int trailing, uint32_t key, uint32_t *first, uint32_t *last)
{
    *first = key << trailing;
    *last = *first + (1u << trailing) - 1;
    if ((*first & 0x7fffffff) >= INFINITE) *first = *last = INFINITE + 1;
}

/* The entry of one bucket; 0 if it holds more than one boundary. Complemented codes ascend with the
 * magnitude below zero too. */
static int build_entry(uint32_t *entry, int trailing, const struct rule *r, uint32_t key)
{
    uint32_t first, last, one = 1u << trailing, flip = key << trailing >> 31 ? 255 : 0, a, b;
    bounds(trailing, key, &first, &last);
    a = rank(r, first) ^ flip;
    b = rank(r, last) ^ flip;
    *entry = a << trailing;
    if (a == b) return 1;
    if (b != a + 1) return 0;
    while (last - first > 1) {
        uint32_t middle = first + (last - first) / 2;
        if ((rank(r, middle) ^ flip) == a) first = middle;
        else last = middle;
    }
    *entry += one - (last & (one - 1));
    return 1;
}

/* Which codes the rule uses. The ends of the buckets show all of them if no bucket holds more than
 * one boundary; otherwise there is no coder. */
static void count_codes(struct fast_coder *c, struct rule *r)
{
    uint8_t used[PL_CODES] = { 0 };
    int n = 0;
    for (uint32_t key = 0; key >> (32 - c->trailing) == 0; key++) {
        uint32_t first, last;
        bounds(c->trailing, key, &first, &last);
        used[r->code(r->book, of_bits(first))] = used[r->code(r->book, of_bits(last))] = 1;
    }
    for (int k = 0; k < PL_CODES; k++) {
        r->rank[k] = (uint8_t)n;
        c->code[n] = (uint8_t)k;
        n += used[k];
    }
    c->ranked = n < PL_CODES;
}

static struct fast_coder *build(enum pl_map map, enum pl_rule which)
{
    struct fast_coder *c = calloc(1, sizeof *c);
    struct rule r = { .code = which == PL_RULE_RUN ? pl_code_run : pl_code_lut };
    int good = 1;
    if (!c) return NULL;
    pl_codebook(r.book, map, which);
    c->reciprocal = which == PL_RULE_LUT;
    c->trailing = map == PL_MAP_SIGNED ? 17 : 16;
    c->entry = malloc(((size_t)1 << (32 - c->trailing)) * sizeof *c->entry);
    if (!c->entry) {
        free(c);
        return NULL;
    }
    count_codes(c, &r);
    for (uint32_t key = 0; good && key >> (32 - c->trailing) == 0; key++)
        good = build_entry(&c->entry[key], c->trailing, &r, key);
    if (good) return c;
    free(c->entry);
    free(c);
    return NULL;
}

static struct fast_coder *coders[2][2];
static pthread_once_t coders_once[2][2] = {
    { PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT },
    { PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT },
};
static void build00(void) { coders[0][0] = build(PL_MAP_SIGNED, PL_RULE_RUN); }
static void build01(void) { coders[0][1] = build(PL_MAP_SIGNED, PL_RULE_LUT); }
static void build10(void) { coders[1][0] = build(PL_MAP_UNSIGNED, PL_RULE_RUN); }
static void build11(void) { coders[1][1] = build(PL_MAP_UNSIGNED, PL_RULE_LUT); }

const struct fast_coder *fast_coder(enum pl_map map, enum pl_rule rule)
{
    static void (*const builders[2][2])(void) = { { build00, build01 }, { build10, build11 } };
    if (rule == PL_RULE_CUDA) return NULL;
    pthread_once(&coders_once[map][rule], builders[map][rule]);
    return coders[map][rule];
}

/* --- kernels ---------------------------------------------------------------------------------- */

FAST_CLONES float fast_absmax(const float *x, size_t n)
{
    int32_t largest = -1;
#pragma omp simd reduction(max : largest)
    for (size_t i = 0; i < n; i++) { /* magnitudes order like their bits as integers */
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        bits = bits > (int32_t)INFINITE ? -1 : bits;
        largest = largest > bits ? largest : bits;
    }
    return largest < 0 ? -FLT_MAX : of_bits((uint32_t)largest);
}

FAST_INLINE uint8_t encode_one(const struct fast_coder *c, float z)
{
    uint32_t bits, rest, flip;
    memcpy(&bits, &z, sizeof bits);
    rest = bits & ((1u << c->trailing) - 1);
    flip = 0 - (bits >> 31);
    return (uint8_t)((c->entry[bits >> c->trailing] + rest) >> c->trailing ^ flip);
}

/* scale: absmax, or its reciprocal where the rule multiplies. */
static void encode_plain(const struct fast_coder *c, uint8_t *codes, const float *x, float scale,
                         size_t n)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = encode_one(c, c->reciprocal ? x[i] * scale : x[i] / scale);
}

#if X86

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

/* A gather by hand: the instruction is slow microcode on the CPUs measured, and slower still with
 * mitigations against data leaks. Two chains of four are 15 % faster than one of eight. */
AVX2 FAST_INLINE __m256i gather8(const uint32_t *entry, const uint32_t *key)
{
    __m128i a = _mm_cvtsi32_si128((int)entry[key[0]]), b = _mm_cvtsi32_si128((int)entry[key[4]]);
    a = _mm_insert_epi32(a, (int)entry[key[1]], 1);
    b = _mm_insert_epi32(b, (int)entry[key[5]], 1);
    a = _mm_insert_epi32(a, (int)entry[key[2]], 2);
    b = _mm_insert_epi32(b, (int)entry[key[6]], 2);
    a = _mm_insert_epi32(a, (int)entry[key[3]], 3);
    b = _mm_insert_epi32(b, (int)entry[key[7]], 3);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* n is a multiple of STEP; `trailing` and `reciprocal` are constants where this is inlined. */
AVX2 FAST_INLINE void encode8(const struct fast_coder *c, uint8_t *codes, const float *x,
                              float scale, size_t n, int trailing, int reciprocal)
{
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256i rest_mask = _mm256_set1_epi32((1 << trailing) - 1);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (size_t i = 0; i < n; i += STEP) {
        uint32_t at[STEP];
        __m256i code[4], sign[4], rest[4], all, flip;
        for (int k = 0; k < 4; k++) {
            __m256 v = _mm256_loadu_ps(x + i + 8 * k);
            __m256i z = _mm256_castps_si256(reciprocal ? _mm256_mul_ps(v, factor)
                                                       : _mm256_div_ps(v, factor));
            sign[k] = _mm256_srai_epi32(z, 31);
            rest[k] = _mm256_and_si256(z, rest_mask);
            _mm256_storeu_si256((__m256i *)(void *)(at + 8 * k), _mm256_srli_epi32(z, trailing));
        }
        for (int k = 0; k < 4; k++)
            code[k] = _mm256_srli_epi32(_mm256_add_epi32(gather8(c->entry, at + 8 * k), rest[k]),
                                        trailing);
        all = _mm256_packus_epi16(_mm256_packus_epi32(code[0], code[1]),
                                  _mm256_packus_epi32(code[2], code[3]));
        flip = _mm256_packs_epi16(_mm256_packs_epi32(sign[0], sign[1]),
                                  _mm256_packs_epi32(sign[2], sign[3]));
        all = _mm256_permutevar8x32_epi32(_mm256_xor_si256(all, flip),
                                          order); /* vpack works in 128-bit halves */
        _mm256_storeu_si256((__m256i *)(void *)(codes + i), all);
    }
}

AVX2 static void encode_avx2(const struct fast_coder *c, uint8_t *codes, const float *x,
                             float scale, size_t n)
{
    if (c->reciprocal && c->trailing == 17) encode8(c, codes, x, scale, n, 17, 1);
    else if (c->reciprocal) encode8(c, codes, x, scale, n, 16, 1);
    else if (c->trailing == 17) encode8(c, codes, x, scale, n, 17, 0);
    else encode8(c, codes, x, scale, n, 16, 0);
}

/* The table is in sixteen registers. A lookup is eight permutations of two registers each, then
 * three levels of blends by the upper bits of the code. n is a multiple of 16. */
AVX512 static void table_lookup_avx512(float *y, const uint8_t *codes, const float table[PL_CODES],
                                       size_t n)
{
    __m512 t[16];
    for (int k = 0; k < 16; k++) t[k] = _mm512_loadu_ps(table + 16 * k);
    for (size_t i = 0; i < n; i += 16) {
        __m512i q = _mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)(codes + i)));
        __mmask16 b5 = _mm512_test_epi32_mask(q, _mm512_set1_epi32(32));
        __mmask16 b6 = _mm512_test_epi32_mask(q, _mm512_set1_epi32(64));
        __mmask16 b7 = _mm512_test_epi32_mask(q, _mm512_set1_epi32(128));
        __m512 r[8];
        for (int k = 0; k < 8; k++) r[k] = _mm512_permutex2var_ps(t[2 * k], q, t[2 * k + 1]);
        for (int k = 0; k < 4; k++) r[k] = _mm512_mask_blend_ps(b5, r[2 * k], r[2 * k + 1]);
        for (int k = 0; k < 2; k++) r[k] = _mm512_mask_blend_ps(b6, r[2 * k], r[2 * k + 1]);
        _mm512_storeu_ps(y + i, _mm512_mask_blend_ps(b7, r[0], r[1]));
    }
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static int has_avx512(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

void fast_block_encode(const struct fast_coder *c, uint8_t *codes, const float *x, float absmax,
                       size_t n)
{
    float scale = c->reciprocal ? 1 / absmax : absmax;
    size_t done = 0;
#if X86
    if (has_avx2()) encode_avx2(c, codes, x, scale, done = n / STEP * STEP);
#endif
    encode_plain(c, codes + done, x + done, scale, n - done);
    if (c->ranked)
        for (size_t i = 0; i < n; i++) codes[i] = c->code[codes[i]];
}

void fast_table_lookup(float *y, const uint8_t *codes, const float table[PL_CODES], size_t n)
{
    size_t i = 0;
#if X86
    if (has_avx512()) table_lookup_avx512(y, codes, table, i = n / 16 * 16);
#endif
    for (; i + 8 <= n; i += 8) {
        uint64_t eight;
        pl_copy_little(&eight, codes + i, sizeof eight, 1);
        for (int k = 0; k < 8; k++) y[i + (size_t)k] = table[eight >> 8 * k & 255];
    }
    for (; i < n; i++) y[i] = table[codes[i]];
}

void fast_block_decode(float *y, const uint8_t *codes, float absmax, size_t n,
                       const float book[PL_CODES])
{
    float table[PL_CODES];
    if (n < PL_CODES / 2) { /* too short to pay for a table */
        for (size_t i = 0; i < n; i++) y[i] = book[codes[i]] * absmax;
        return;
    }
    for (int k = 0; k < PL_CODES; k++) table[k] = book[k] * absmax;
    fast_table_lookup(y, codes, table, n);
}

/* --- the operations --------------------------------------------------------------------------- */

#define PIECE 65536 /* elements per unit of work; one block if that is more */

int fast_quantize(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                  enum pl_map map, enum pl_rule rule)
{
    const struct fast_coder *c = fast_coder(map, rule);
    size_t blocks = pl_blocks(n, block), each = block < PIECE ? PIECE / block : 1;
    if (!c) return ref_quantize(codes, absmax, x, n, block, map, rule);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (blocks > each)
    for (size_t piece = 0; piece < blocks; piece += each) {
        for (size_t b = piece; b < blocks && b < piece + each; b++) {
            size_t at = b * block, some = n - at < block ? n - at : block;
            absmax[b] = fast_absmax(x + at, some);
            fast_block_encode(c, codes + at, x + at, absmax[b], some);
        }
    }
    return PL_OK;
}

int fast_dequantize(float *y, const uint8_t *codes, const float *absmax, size_t n, size_t block,
                    const float book[PL_CODES])
{
    size_t blocks = pl_blocks(n, block), each = block < PIECE ? PIECE / block : 1;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (blocks > each)
    for (size_t piece = 0; piece < blocks; piece += each) {
        for (size_t b = piece; b < blocks && b < piece + each; b++) {
            size_t at = b * block, some = n - at < block ? n - at : block;
            fast_block_decode(y + at, codes + at, absmax[b], some, book);
        }
    }
    return PL_OK;
}
