/* compress.c - float32 in 8 or 16 bits, for the way to other peers. [TTT 2.1, communication]
 * [Dettmers 2016] [spec numerics 3]
 *
 *   float16     h = round(clamp(x, +-65504))                        2 bytes a value
 *   meanstd16   h = round((x - mean) / deviation), a row at a time  2 bytes
 *   uniform8    scale = 6 sigma / 256                               1 byte
 *               code = clamp(round((x - mean) / scale) + 128, 0, 255)
 *   quantile8   code = how many of 255 quantiles lie below x        1 byte
 *
 * A code of the 8-bit methods stands for the mean of its bin. The 256 means travel along (1 KiB),
 * so a decoder needs to know nothing of how bins were chosen. Quantiles spend codes where values
 * are; uniform bins need no sort, and are what the reference run sent. */
#include "compress.h"
#include "small.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HALF_MAX 65504.0f

static float clamp(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x; /* a NaN passes */
}

/* Beyond half's range there is only infinity, which would spoil a mean. */
static void put_half(void *out, size_t i, float x)
{
    uint16_t h = pl_half_from_float(clamp(x, -HALF_MAX, HALF_MAX));
    memcpy((char *)out + i * sizeof h, &h, sizeof h);
}

int ref_float16_encode(void *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) put_half(out, i, x[i]);
    return PL_OK;
}

int ref_float16_decode(float *x, const void *in, size_t n)
{
    pl_to_float(x, PL_F16, in, n);
    return PL_OK;
}

static double sum_of(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* sum (x - mean)^2, differences in float32 as the peers take them */
static double squares_around(const float *x, size_t n, float mean)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float c = x[i] - mean;
        sum += (double)c * c;
    }
    return sum;
}

/* table[k] = the mean of all x whose code is k */
static void fill_table(float table[PL_CODES], const uint8_t *codes, const float *x, size_t n)
{
    size_t count[PL_CODES] = { 0 };
    memset(table, 0, PL_CODES * sizeof *table);
    for (size_t i = 0; i < n; i++) {
        table[codes[i]] += x[i];
        count[codes[i]]++;
    }
    for (int k = 0; k < PL_CODES; k++)
        if (count[k]) table[k] /= (float)count[k];
}

/* scale = 6 sigma / 256,  code = clamp(round((x - mean) / scale) + 128, 0, 255) */
static void uniform8_around(uint8_t *codes, float table[PL_CODES], const float *x, size_t n,
                            float mean)
{
    float norm = (float)sqrt(squares_around(x, n, mean));
    float sigma = norm / (float)sqrt((double)(n - 1));
    float inverse = 1 / (6 * sigma / PL_CODES); /* infinite or NaN: 0 * inverse is NaN, code 0 */
    for (size_t i = 0; i < n; i++) {
        float q = rintf((x[i] - mean) * inverse) + 128;     /* bin 128 is around the mean */
        codes[i] = q >= 255 ? 255 : q > 0 ? (uint8_t)q : 0; /* NaN: 0 */
    }
    fill_table(table, codes, x, n);
}

/* mean, then codes around it */
int ref_uniform8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    uniform8_around(codes, table, x, n, (float)(sum_of(x, n) / (double)n));
    return PL_OK;
}

void pl_uniform8_encode_narrow(uint8_t *codes, float table[PL_CODES], const float *x, size_t n,
                               enum pl_dtype type)
{
    float mean = (float)(sum_of(x, n) / (double)n);
    uint16_t narrow;
    /* through `type` and back: the mean as a peer rounds it */
    pl_from_float(&narrow, type, &mean, 1);
    pl_to_float(&mean, type, &narrow, 1);
    uniform8_around(codes, table, x, n, mean);
}

/* x = table[code] */
int ref_table8_decode(float *x, const uint8_t *codes, const float table[PL_CODES], size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = table[codes[i]];
    return PL_OK;
}

/* half((x - mean) / deviation), a mean and a deviation for each row */
int ref_meanstd16_encode(void *halves, float *mean, float *deviation, const float *x, size_t rows,
                         size_t D)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * D;
        /* |x - mean| / sqrt(D), and never 0: a constant row divides by FLT_EPSILON */
        mean[r] = (float)(sum_of(row, D) / (double)D);
        deviation[r] = (float)sqrt(squares_around(row, D, mean[r])) / (float)sqrt((double)D);
        if (deviation[r] < FLT_EPSILON) deviation[r] = FLT_EPSILON;
        for (size_t i = 0; i < D; i++)
            put_half(halves, r * D + i, (row[i] - mean[r]) / deviation[r]);
    }
    return PL_OK;
}

static float through_half(float x) { return pl_half_to_float(pl_half_from_float(x)); }

/* x = h deviation + mean, rounded where hivemind rounds it: in the type that is restored */
int ref_meanstd16_decode(void *out, enum pl_dtype type, const void *halves, const float *mean,
                         const float *deviation, size_t rows, size_t D)
{
    for (size_t i = 0; i < rows * D; i++) {
        float h, m = mean[i / D], s = deviation[i / D];
        pl_to_float(&h, PL_F16, (const char *)halves + 2 * i, 1);
        if (type == PL_F64) ((double *)out)[i] = (double)h * s + m;
        else if (type == PL_F32) ((float *)out)[i] = h * s + m;
        else ((uint16_t *)out)[i] = pl_half_from_float(through_half(h * s) + m);
    }
    return PL_OK;
}

/* The 257 quantiles at j/256 of m values, which are sorted on the way. */
static void quantiles(float out[PL_CODES + 1], float *x, size_t m)
{
    qsort(x, m, sizeof *x, pl_ascending_floats);
    for (int j = 0; j <= PL_CODES; j++) {
        /* position j/256 of m - 1 steps, and g of the way to the next value */
        float at = (float)(m - 1) * ((float)j / PL_CODES), g = at - floorf(at), a, b, d;
        size_t i = (size_t)at;
        a = x[i < m ? i : m - 1];
        b = x[i + 1 < m ? i + 1 : m - 1];
        d = b - a;
        /* between neighbours a and b, from the nearer end: numpy's way to round */
        out[j] = g < 0.5f ? a + d * g : b - d * (1 - g);
    }
}

/* Chunks of 100,000 values, or a little more so that no short one is left. */
size_t pl_quantile8_chunk(size_t n)
{
    size_t some = 100000, parts = n / some, rest = n % some;
    return n <= some ? n : some + (rest ? (rest - 1) / parts + 1 : 0);
}

/* code = the number of borders below x. Sorting a large tensor is dear, so its quantiles are
 * those of the quantiles of its chunks. */
int ref_quantile8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    size_t chunk = pl_quantile8_chunk(n), chunks = pl_blocks(n, chunk);
    float *copy = pl_alloc(n, sizeof *copy),
          *pool = pl_alloc(chunks * (PL_CODES + 1), sizeof *pool);
    float border[PL_CODES + 1];
    if (!copy || !pool) {
        pl_free(copy);
        pl_free(pool);
        return PL_ENOMEM;
    }
    memcpy(copy, x, n * sizeof *copy);
    for (size_t k = 0, at = 0; k < chunks; k++, at += chunk)
        quantiles(pool + k * (PL_CODES + 1), copy + at, n - at < chunk ? n - at : chunk);
    quantiles(border, pool, chunks * (PL_CODES + 1));
    for (size_t i = 0; i < n; i++) {
        int q = 0; /* the number of inner borders, border[1] to border[255], below x */
        for (int half = PL_CODES / 2; half; half /= 2)
            if (border[q + half] < x[i]) q += half;
        codes[i] = (uint8_t)q;
    }
    fill_table(table, codes, x, n);
    pl_free(copy);
    pl_free(pool);
    return PL_OK;
}
