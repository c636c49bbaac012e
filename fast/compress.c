/* compress.c - compression of messages. float16 uses the CPU's conversion instructions. Uniform
 * 8-bit takes two passes over memory: the first computes mean and deviation together and runs from
 * the end to the beginning, so that the second pass finds its first values in the cache. The second
 * pass makes codes and sums the mean of each bin. These sums are scalar, because their order is
 * part of the result; sum and count of a bin are adjacent, so an element costs one load, one
 * addition, one store. */
#include "isa.h"
#include "quant.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define X86 1
#define F16C __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define X86 0
#endif

#define PIECE 65536   /* elements per unit of work; each has one partial sum */
#define LANES 16      /* partial sums within a piece, the same for vectors of any width */
#define L1_BLOCK 4096 /* elements that are read twice, the second time from L1 */
#define RUN 16        /* vectors added up in float32 before the sum continues in double */

/* --- float16 ---------------------------------------------------------------------------------- */

#if X86
static int has_f16c(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

/* n is a multiple of 8. */
F16C static void narrow(uint8_t *out, const float *x, size_t n)
{
    const __m256 most = _mm256_set1_ps(65504), least = _mm256_set1_ps(-65504);
    /* max returns its second operand if one is NaN: a NaN survives */
    for (size_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_min_ps(most, _mm256_max_ps(least, _mm256_loadu_ps(x + i)));
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * i),
                         _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

F16C static void widen(float *x, const uint8_t *in, size_t n)
{
    for (size_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(
                                    _mm_loadu_si128((const __m128i *)(const void *)(in + 2 * i))));
}
#endif

static void encode_some(uint8_t *out, const float *x, size_t n)
{
    size_t done = 0;
#if X86
    if (has_f16c()) narrow(out, x, done = n / 8 * 8);
#endif
    ref_float16_encode(out + 2 * done, x + done, n - done);
}

static void decode_some(float *x, const uint8_t *in, size_t n)
{
    size_t done = 0;
#if X86
    if (has_f16c()) widen(x, in, done = n / 8 * 8);
#endif
    ref_float16_decode(x + done, in + 2 * done, n - done);
}

int fast_float16_encode(void *out, const float *x, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > PIECE)
    for (size_t at = 0; at < n; at += PIECE)
        encode_some((uint8_t *)out + 2 * at, x + at, n - at < PIECE ? n - at : PIECE);
    return PL_OK;
}

int fast_float16_decode(float *x, const void *in, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > PIECE)
    for (size_t at = 0; at < n; at += PIECE)
        decode_some(x + at, (const uint8_t *)in + 2 * at, n - at < PIECE ? n - at : PIECE);
    return PL_OK;
}

/* --- uniform 8-bit ---------------------------------------------------------------------------- */

/* Sum of (x - mean)^power, power 1 or 2. */
FAST_INLINE double sum_piece(const float *x, float mean, int power, size_t n)
{
    double lane[LANES] = { 0 }, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float c = x[i + (size_t)k] - mean;
            lane[k] += power == 1 ? (double)x[i + (size_t)k] : (double)c * (double)c;
        }
    for (; i < n; i++) {
        float c = x[i] - mean;
        lane[i % LANES] += power == 1 ? (double)x[i] : (double)c * (double)c;
    }
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

FAST_CLONES static double sum_of(const float *x, float mean, size_t n)
{
    return sum_piece(x, mean, 1, n);
}

FAST_CLONES static double squares_around(const float *x, float mean, size_t n)
{
    return sum_piece(x, mean, 2, n);
}

/* Moments of n values; `squares` is the sum of squared differences from their mean. */
struct moments {
    double n, mean, squares;
};

static void merge_moments(struct moments *all, const struct moments *more)
{
    double n = all->n + more->n, off = more->mean - all->mean;
    all->squares += more->squares + off * off * (all->n * more->n / n);
    all->mean += off * (more->n / n);
    all->n = n;
}

static struct moments exact_moments(const float *x, size_t n)
{
    struct moments m = { (double)n, 0, 0 };
    for (size_t i = 0; i < n; i++) m.mean += x[i];
    m.mean /= (double)n;
    for (size_t i = 0; i < n; i++) m.squares += (x[i] - m.mean) * (x[i] - m.mean);
    return m;
}

typedef float row __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Moments of L1_BLOCK values in float32. Differences are taken from the block's own mean, so that
 * they keep their digits; the block is small enough that the sums do too. */
FAST_CLONES static void block_moments(struct moments *m, const float *x_)
{
    const row *x = (const row *)x_;
    row sum[4] = { { 0 } };
    float about = 0;
    double first[LANES] = { 0 }, second[LANES] = { 0 }, a = 0, b = 0;
    for (int i = 0; i < L1_BLOCK / LANES; i += 4)
        for (int k = 0; k < 4; k++) {
            __builtin_prefetch(&x[i + k + FAST_PREFETCH_FLOATS / LANES]);
            sum[k] += x[i + k];
        }
    sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (int k = 0; k < LANES; k++) about += sum[0][k];
    about /= L1_BLOCK;
    for (int i = 0; i < L1_BLOCK / LANES; i += RUN) {
        row c, d, one[2] = { { 0 } }, two[2] = { { 0 } };
        for (int k = 0; k < RUN; k += 2) {
            c = x[i + k] - about;
            d = x[i + k + 1] - about;
            one[0] += c;
            one[1] += d;
            two[0] += c * c;
            two[1] += d * d;
        }
        one[0] += one[1];
        two[0] += two[1];
        for (int k = 0; k < LANES; k++) {
            first[k] += one[0][k];
            second[k] += two[0][k];
        }
    }
    for (int k = 0; k < LANES; k++) {
        a += first[k];
        b += second[k];
    }
    *m = (struct moments){ L1_BLOCK, about + a / L1_BLOCK, b - a * (a / L1_BLOCK) };
}

/* The input: values that exist, or that make() computes chunk by chunk. */
struct values {
    float *x;
    size_t n;
    void (*make)(const void *context, float *x, size_t at, size_t n);
    const void *context;
};

static struct moments moments_of(const struct values *v, size_t at, size_t end)
{
    struct moments all = { 0, 0, 0 }, m;
    const float *x = v->x;
    for (; at < end; at += L1_BLOCK) {
        size_t some = end - at < L1_BLOCK ? end - at : L1_BLOCK;
        if (v->make) v->make(v->context, v->x + at, at, some);
        m.squares = 0;
        if (some == L1_BLOCK) block_moments(&m, x + at);
        /* squares outside float32's range, or NaN */
        if (!(m.squares > 1e-24 && m.squares < 1e30)) m = exact_moments(x + at, some);
        merge_moments(&all, &m);
    }
    return all;
}

/* Threads compute pieces in any order, the last pieces first; results are combined in piece
 * order. */
static int moments_of_all(struct moments *all, const struct values *v)
{
    size_t pieces = pl_blocks(v->n, PIECE);
    struct moments one, *part = pieces == 1 ? &one : malloc(pieces * sizeof *part);
    if (!part) return PL_ENOMEM;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces > 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t p = pieces - 1 - i, at = p * PIECE;
        part[p] = moments_of(v, at, v->n - at < PIECE ? v->n : at + PIECE);
    }
    *all = part[0];
    for (size_t p = 1; p < pieces; p++) merge_moments(all, &part[p]);
    if (part != &one) free(part);
    return PL_OK;
}

FAST_CLONES static void find_bins_plain(uint8_t *codes, const float *x, float mean, float inverse,
                                        size_t n)
{
    /* First whole vectors of integers, then bytes: the compiler vectorizes each loop, but not both
     * in one. */
    int32_t code[L1_BLOCK];
    for (size_t i = 0; i < n; i++) {
        /* adding 1.5 * 2^23 rounds to an integer, ties to even, held in the low bits */
        float q = (x[i] - mean) * inverse;
        q = q > -128.0f ? q : -128.0f; /* also for NaN */
        q = q < 127.0f ? q : 127.0f;
        q += 12582912.0f;
        memcpy(&code[i], &q, sizeof q);
    }
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)(code[i] + 128);
}

#if X86
/* n is a multiple of 16. */
AVX512 static void find_bins_avx512(uint8_t *codes, const float *x, float mean, float inverse,
                                    size_t n)
{
    const __m512 middle = _mm512_set1_ps(mean), factor = _mm512_set1_ps(inverse);
    const __m512 least = _mm512_set1_ps(-128), most = _mm512_set1_ps(127);
    for (size_t i = 0; i < n; i += 16) {
        __builtin_prefetch(x + i + L1_BLOCK); /* for the next call */
        __m512 q = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), middle), factor);
        /* max returns its second operand for NaN: the least code */
        q = _mm512_min_ps(_mm512_max_ps(q, least), most);
        __m128i code = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(q));
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm_xor_si128(code, _mm_set1_epi8(-128)));
    }
}
#endif

static void find_bins(uint8_t *codes, const float *x, float mean, float inverse, size_t n)
{
    size_t done = 0;
#if X86
    if (isa_chosen() == ISA_AVX512) find_bins_avx512(codes, x, mean, inverse, done = n / 16 * 16);
#endif
    find_bins_plain(codes + done, x + done, mean, inverse, n - done);
}

#define COUNT_MAX (1u << 24) /* float32 counts exactly up to here */

/* Sum and count of a bin in eight bytes: one addition updates both. */
typedef float pair __attribute__((vector_size(8)));

void fast_code_means(float table[PL_CODES], const uint8_t *codes, const float *x, size_t n)
{
    pair bin[PL_CODES] = { { 0 } };
    double count[PL_CODES] = { 0 };
    for (size_t at = 0; at < n; at += COUNT_MAX) {
        size_t end = n - at < COUNT_MAX ? n : at + COUNT_MAX;
        for (size_t i = at; i < end; i++) bin[codes[i]] += (pair){ x[i], 1 };
        for (int k = 0; k < PL_CODES; k++) {
            count[k] += (double)bin[k][1];
            bin[k][1] = 0;
        }
    }
    for (int k = 0; k < PL_CODES; k++) table[k] = count[k] > 0 ? bin[k][0] / (float)count[k] : 0;
}

/* Threads sum pieces in any order; the partial sums are added in piece order. */
static int sum_pieces(double *sum, const float *x, float mean, int power, size_t n)
{
    size_t pieces = pl_blocks(n, PIECE);
    double one = 0, *part = pieces == 1 ? &one : malloc(pieces * sizeof *part);
    if (!part) return PL_ENOMEM;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (pieces > 1)
    for (size_t p = 0; p < pieces; p++) {
        size_t at = p * PIECE, some = n - at < PIECE ? n - at : PIECE;
        part[p] = power == 1 ? sum_of(x + at, 0, some) : squares_around(x + at, mean, some);
    }
    *sum = 0;
    for (size_t p = 0; p < pieces; p++) *sum += part[p];
    if (part != &one) free(part);
    return PL_OK;
}

FAST_INLINE void add_eight(pair bin[PL_CODES], const uint8_t *codes, const float *x)
{
    _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) bin[codes[k]] += (pair){ x[k], 1 };
}

static int encode(uint8_t *codes, float table[PL_CODES], const struct values *v)
{
    const float *x = v->x;
    size_t n = v->n;
    pair bin[PL_CODES] = { { 0 } };
    double count[PL_CODES] = { 0 };
    struct moments m;
    float mean, sigma, inverse;
    if (moments_of_all(&m, v)) return PL_ENOMEM;
    mean = (float)m.mean;
    /* the definition squares differences from the rounded mean */
    m.squares += (mean - m.mean) * (mean - m.mean) * m.n;
    sigma = (float)sqrt(m.squares) / (float)sqrt((double)(n - 1));
    inverse = 1 / (6 * sigma / PL_CODES);
    for (size_t at = 0; at < n; at += COUNT_MAX) {
        size_t end = n - at < COUNT_MAX ? n : at + COUNT_MAX;
        for (size_t i = at; i < end; i += L1_BLOCK) {
            size_t some = end - i < L1_BLOCK ? end - i : L1_BLOCK, k = 0;
            find_bins(codes + i, x + i, mean, inverse, some);
            for (; k + 8 <= some; k += 8) add_eight(bin, codes + i + k, x + i + k);
            for (; k < some; k++) bin[codes[i + k]] += (pair){ x[i + k], 1 };
        }
        for (int k = 0; k < PL_CODES; k++) {
            count[k] += (double)bin[k][1];
            bin[k][1] = 0;
        }
    }
    for (int k = 0; k < PL_CODES; k++) table[k] = count[k] > 0 ? bin[k][0] / (float)count[k] : 0;
    return PL_OK;
}

int fast_uniform8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    const struct values v = { .x = (float *)(uintptr_t)x, .n = n }; /* only read */
    return encode(codes, table, &v);
}

int fast_uniform8_encode_made(uint8_t *codes, float table[PL_CODES], float *x, size_t n,
                              void (*make)(const void *context, float *x, size_t at, size_t n),
                              const void *context)
{
    const struct values v = { x, n, make, context };
    return encode(codes, table, &v);
}

int fast_table8_decode(float *x, const uint8_t *codes, const float table[PL_CODES], size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > PIECE)
    for (size_t at = 0; at < n; at += PIECE)
        fast_table_lookup(x + at, codes + at, table, n - at < PIECE ? n - at : PIECE);
    return PL_OK;
}

/* --- float16 around a row's mean (mean-std)
 * ---------------------------------------------------- */

#define L1_ROW 512 /* values that stay in L1 between the passes */

static int statistics(float *mean, float *deviation, const float *x, size_t D)
{
    double sum, squares;
    /* a short row belongs to one thread, so no parallel loop */
    if (D <= PIECE) sum = sum_of(x, 0, D);
    else if (sum_pieces(&sum, x, 0, 1, D)) return PL_ENOMEM;
    *mean = (float)(sum / (double)D);
    if (D <= PIECE) squares = squares_around(x, *mean, D);
    else if (sum_pieces(&squares, x, *mean, 2, D)) return PL_ENOMEM;
    *deviation = (float)sqrt(squares) / (float)sqrt((double)D);
    if (*deviation < FLT_EPSILON) *deviation = FLT_EPSILON;
    return PL_OK;
}

FAST_CLONES static void normalize(float *z, const float *x, float mean, float deviation, size_t n)
{
    for (size_t i = 0; i < n; i++) z[i] = (x[i] - mean) / deviation;
}

/* Long rows are summed by all threads, short ones one thread each. Then the values are encoded in
 * pieces. */
int fast_meanstd16_encode(void *halves, float *mean, float *deviation, const float *x, size_t rows,
                          size_t D)
{
    size_t pieces = pl_blocks(D, PIECE);
    int rc = PL_OK;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) \
    reduction(min \
              : rc) if (pieces == 1 && rows * D > PIECE)
    for (size_t r = 0; r < rows; r++) {
        int got = statistics(&mean[r], &deviation[r], x + r * D, D);
        if (got < rc) rc = got;
    }
    if (rc) return rc;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (rows * D > PIECE)
    for (size_t u = 0; u < rows * pieces; u++) {
        size_t r = u / pieces, at = u % pieces * PIECE, end = D - at < PIECE ? D : at + PIECE;
        for (float z[L1_ROW]; at < end; at += L1_ROW) {
            size_t some = end - at < L1_ROW ? end - at : L1_ROW, i = r * D + at;
            normalize(z, x + i, mean[r], deviation[r], some);
            encode_some((uint8_t *)halves + 2 * i, z, some);
        }
    }
    return PL_OK;
}

static void decode_row(void *out, enum pl_dtype type, const uint8_t *halves, float mean,
                       float deviation, size_t n)
{
    float z[L1_ROW];
    if (type == PL_F16) {
        ref_meanstd16_decode(out, type, halves, &mean, &deviation, 1, n);
        return;
    }
    for (size_t at = 0; at < n; at += L1_ROW) {
        size_t some = n - at < L1_ROW ? n - at : L1_ROW;
        float *narrow_out = (float *)out + at;
        double *wide_out = (double *)out + at;
        decode_some(z, halves + 2 * at, some);
        if (type == PL_F32)
            for (size_t i = 0; i < some; i++) narrow_out[i] = z[i] * deviation + mean;
        else
            for (size_t i = 0; i < some; i++) wide_out[i] = (double)z[i] * deviation + mean;
    }
}

int fast_meanstd16_decode(void *out, enum pl_dtype type, const void *halves, const float *mean,
                          const float *deviation, size_t rows, size_t D)
{
    size_t pieces = pl_blocks(D, PIECE), size = pl_dtype_size(type);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (rows * D > PIECE)
    for (size_t u = 0; u < rows * pieces; u++) {
        size_t r = u / pieces, at = u % pieces * PIECE, some = D - at < PIECE ? D - at : PIECE;
        decode_row((char *)out + (r * D + at) * size, type,
                   (const uint8_t *)halves + 2 * (r * D + at), mean[r], deviation[r], some);
    }
    return PL_OK;
}
