/* quantile8.c - 8-bit codes by quantiles. The reference sorts by comparison; here each chunk is
 * radix-sorted, three digits of 11 bits, and chunks are sorted in parallel. */
#include "quant.h"

#include <math.h>
#include <string.h>

#define DIGIT 11 /* three digits hold 32 bits; the counters of one digit stay in L1 */
#define PIECE 65536

/* A float's bits as an integer that orders like the float, NaN last; and back. */
static uint32_t key_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) bits = 0x7fc00000;
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

static float value_of(uint32_t key)
{
    uint32_t bits = key >> 31 ? key & 0x7fffffff : ~key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Least-significant-digit radix sort of n keys, three stable passes. The result is in `other`. */
static void sort(uint32_t *key, uint32_t *other, size_t n)
{
    for (int pass = 0; pass < 3; pass++) {
        size_t before[1 << DIGIT] = { 0 }, sum = 0;
        uint32_t *swap = key;
        int shift = pass * DIGIT;
        for (size_t i = 0; i < n; i++) before[key[i] >> shift & ((1 << DIGIT) - 1)]++;
        for (size_t d = 0; d < PL_COUNT(before); d++) {
            size_t count = before[d];
            before[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            other[before[key[i] >> shift & ((1 << DIGIT) - 1)]++] = key[i];
        key = other;
        other = swap;
    }
}

/* The 257 quantiles of m values, with the reference's own arithmetic. key and other (m) are
 * scratch. */
static void quantiles(float out[PL_CODES + 1], const float *x, uint32_t *key, uint32_t *other,
                      size_t m)
{
    for (size_t i = 0; i < m; i++) key[i] = key_of(x[i]);
    sort(key, other, m);
    for (int j = 0; j <= PL_CODES; j++) {
        float at = (float)(m - 1) * ((float)j / PL_CODES), g = at - floorf(at), a, b, d;
        size_t i = (size_t)at;
        a = value_of(other[i < m ? i : m - 1]);
        b = value_of(other[i + 1 < m ? i + 1 : m - 1]);
        d = b - a;
        out[j] = g < 0.5f ? a + d * g : b - d * (1 - g);
    }
}

/* The number of inner boundaries, boundary[1] to boundary[255], below x. */
FAST_CLONES static void find_codes(uint8_t *codes, const float *x, const float *boundary, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int q = 0;
        for (int half = PL_CODES / 2; half; half /= 2) q += boundary[q + half] < x[i] ? half : 0;
        codes[i] = (uint8_t)q;
    }
}

int fast_quantile8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    size_t chunk = pl_quantile8_chunk(n), chunks = pl_blocks(n, chunk);
    size_t m = chunks * (PL_CODES + 1), capacity = n > m ? n : m;
    uint32_t *key = pl_alloc(capacity, sizeof *key), *other = pl_alloc(capacity, sizeof *other);
    float *pool = pl_alloc(m, sizeof *pool), boundary[PL_CODES + 1];
    int rc = key && other && pool ? PL_OK : PL_ENOMEM;
    if (rc == PL_OK) {
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (chunks > 1)
        for (size_t k = 0; k < chunks; k++) {
            size_t at = k * chunk;
            quantiles(pool + k * (PL_CODES + 1), x + at, key + at, other + at,
                      n - at < chunk ? n - at : chunk);
        }
        quantiles(boundary, pool, key, other, m);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > PIECE)
        for (size_t at = 0; at < n; at += PIECE)
            find_codes(codes + at, x + at, boundary, n - at < PIECE ? n - at : PIECE);
        fast_code_means(table, codes, x, n);
    }
    pl_free(key);
    pl_free(other);
    pl_free(pool);
    return rc;
}
