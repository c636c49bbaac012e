/* compress.c - float16 by the CPU's own conversions; uniform 8-bit in three passes over pieces that
 * stay in the second cache, of which only the last, the means of the bins, is scalar: its order is
 * part of the result. It keeps sum and count of a bin side by side, so that an element costs one
 * load, one addition and one store. */
#include "quant.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define X86 1
#define F16C __attribute__((target("avx2,f16c")))
#else
#define X86 0
#endif

#define PIECE 65536 /* elements a thread takes at a time; partial sums are one a piece */
#define LANES 16    /* partial sums within a piece, whatever the vectors are */

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
    for (size_t i = 0; i < n; i += 8) { /* the operand that may be NaN comes second: it survives */
        __m256 v = _mm256_min_ps(most, _mm256_max_ps(least, _mm256_loadu_ps(x + i)));
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * i),
                         _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

F16C static void widen(float *x, const uint8_t *in, size_t n)
{
    for (size_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(x + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in +
                                                                                         2 * i))));
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

FAST_CLONES static void find_bins(uint8_t *codes, const float *x, float mean, float inverse,
                                  size_t n)
{
    int32_t code[256]; /* whole vectors first, bytes after: the compiler does both well, not both at once */
    for (size_t at = 0; at < n; at += PL_COUNT(code)) {
        size_t some = n - at < PL_COUNT(code) ? n - at : PL_COUNT(code);
        for (size_t i = 0; i < some; i++) {
            /* 1.5 * 2^23 rounds to whole numbers, ties to even, and leaves them in the lower
             * bits. */
            float q = (x[at + i] - mean) * inverse;
            q = q > -128.0f ? q : -128.0f; /* NaN too */
            q = q < 127.0f ? q : 127.0f;
            q += 12582912.0f;
            memcpy(&code[i], &q, sizeof q);
        }
        for (size_t i = 0; i < some; i++) codes[at + i] = (uint8_t)(code[i] + 128);
    }
}

#define COUNT_MAX (1u << 24) /* a float counts so far by ones */

/* Sum and count of a bin: eight bytes, one addition. */
typedef float pair __attribute__((vector_size(8)));

void fast_means_of_codes(float table[PL_CODES], const uint8_t *codes, const float *x, size_t n)
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

/* Pieces are summed by whoever takes them and added in their order. */
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

int fast_uniform8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    double sum, squares;
    float mean, sigma, inverse;
    if (sum_pieces(&sum, x, 0, 1, n)) return PL_ENOMEM;
    mean = (float)(sum / (double)n);
    if (sum_pieces(&squares, x, mean, 2, n)) return PL_ENOMEM;
    sigma = (float)sqrt(squares) / (float)sqrt((double)(n - 1));
    inverse = 1 / (6 * sigma / PL_CODES);
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > PIECE)
    for (size_t at = 0; at < n; at += PIECE)
        find_bins(codes + at, x + at, mean, inverse, n - at < PIECE ? n - at : PIECE);
    fast_means_of_codes(table, codes, x, n);
    return PL_OK;
}

int fast_table8_decode(float *x, const uint8_t *codes, const float table[PL_CODES], size_t n)
{
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > PIECE)
    for (size_t at = 0; at < n; at += PIECE)
        fast_look_up(x + at, codes + at, table, n - at < PIECE ? n - at : PIECE);
    return PL_OK;
}

/* --- float16 around a row's mean -------------------------------------------------------------- */

#define SOME 512 /* values that stay in the first cache on their way */

static int statistics(float *mean, float *deviation, const float *x, size_t D)
{
    double sum, squares;
    if (D <= PIECE) sum = sum_of(x, 0, D); /* no loop of threads for what is another's already */
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

/* Long rows are summed by all threads, short ones shared among them; then rows are cut in pieces. */
int fast_meanstd16_encode(void *halves, float *mean, float *deviation, const float *x, size_t rows,
                          size_t D)
{
    size_t pieces = pl_blocks(D, PIECE);
    int rc = PL_OK;
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) reduction(min:rc) \
        if (pieces == 1 && rows * D > PIECE)
    for (size_t r = 0; r < rows; r++) {
        int got = statistics(&mean[r], &deviation[r], x + r * D, D);
        if (got < rc) rc = got;
    }
    if (rc) return rc;
    #pragma omp parallel for schedule(static) num_threads(fast_threads()) if (rows * D > PIECE)
    for (size_t u = 0; u < rows * pieces; u++) {
        size_t r = u / pieces, at = u % pieces * PIECE, end = D - at < PIECE ? D : at + PIECE;
        for (float z[SOME]; at < end; at += SOME) {
            size_t some = end - at < SOME ? end - at : SOME, i = r * D + at;
            normalize(z, x + i, mean[r], deviation[r], some);
            encode_some((uint8_t *)halves + 2 * i, z, some);
        }
    }
    return PL_OK;
}

static void decode_row(void *out, enum pl_dtype type, const uint8_t *halves, float mean,
                       float deviation, size_t n)
{
    float z[SOME];
    if (type == PL_F16) {
        ref_meanstd16_decode(out, type, halves, &mean, &deviation, 1, n);
        return;
    }
    for (size_t at = 0; at < n; at += SOME) {
        size_t some = n - at < SOME ? n - at : SOME;
        float *narrow_out = (float *)out + at;
        double *wide_out = (double *)out + at;
        decode_some(z, halves + 2 * at, some);
        if (type == PL_F32) for (size_t i = 0; i < some; i++) narrow_out[i] = z[i] * deviation + mean;
        else for (size_t i = 0; i < some; i++) wide_out[i] = (double)z[i] * deviation + mean;
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
