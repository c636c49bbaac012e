/* pair_compress.c - compression of messages against the reference's. */
#include "pair.h"
#include "pairs.h"

#include <math.h>
#include <string.h>

/* Smallest, odd, parts of the all-reduce of float32 in 16 and in 8 bits. */
static const size_t sizes[] = { 1, 7, 255, 4097, 262144, 524288, 2 * 524288 + 5 };

/* Messages are in host memory. */
static struct pair_f32 host_normal(struct pair *p, size_t n, double mean, double deviation)
{
    struct pair_f32 x = pair_host_f32(p, n);
    for (size_t i = 0; i < n; i++) x.at[0][i] = (float)(mean + deviation * pl_rng_normal(&p->rng));
    pair_share(p, x.any);
    return x;
}

static struct pair_u8 host_codes(struct pair *p, size_t n)
{
    struct pair_u8 codes = pair_host_u8(p, n);
    for (size_t i = 0; i < n; i++) codes.at[0][i] = (uint8_t)pl_rng_u64(&p->rng);
    pair_share(p, codes.any);
    return codes;
}

static void float16(struct pair *p, size_t n, int bits)
{
    if (!pair_case(p, "float16_encode", "n%zu%s", n, bits ? " any bits" : "")) return;
    struct pair_f32 x = host_normal(p, n, 0, 1000);
    struct pair_u8 h = pair_host_u8(p, 2 * n);
    for (size_t i = 0; bits && i < n; i++) {
        uint32_t b = (uint32_t)pl_rng_u64(&p->rng);
        memcpy(&x.at[0][i], &b, sizeof b);
        if (isnan(x.at[0][i])) x.at[0][i] = 0.1f; /* which NaN is free */
    }
    pair_share(p, x.any);
    pair_work(p, 0, 6.0 * (double)n);
    PAIR(p, float16_encode, h.at[side], x.at[side], n);
    pair_exact(p, "halves", h.any);
}

static void float16_back(struct pair *p, size_t n)
{
    if (!pair_case(p, "float16_decode", "n%zu", n)) return;
    struct pair_f32 x = pair_host_f32(p, n);
    struct pair_u8 in = pair_host_u8(p, 2 * n);
    for (size_t i = 0; i < n; i++) {
        uint16_t h = (uint16_t)(n > 60000 ? i
                                          : pl_rng_u64(&p->rng)); /* large: every half there is */
        if ((h & 0x7c00) == 0x7c00 && h & 0x3ff) h = 0x7c00;
        memcpy(in.at[0] + 2 * i, &h, sizeof h);
    }
    pair_share(p, in.any);
    pair_work(p, 0, 6.0 * (double)n);
    PAIR(p, float16_decode, x.at[side], in.at[side], n);
    pair_exact(p, "x", x.any);
}

/* Codes may be one off if the scaled value is within 1e-4 of a boundary; then the means of both
 * bins change with them. */
static void uniform8(struct pair *p, size_t n, double mean, double deviation, float bad)
{
    size_t wrong = 0, worst = 0;
    if (!pair_case(p, "uniform8_encode", "n%zu mean%g deviation%g%s", n, mean, deviation,
                   bad == 0          ? ""
                   : isnan(bad)      ? " nan"
                   : bad == INFINITY ? " inf"
                                     : " far"))
        return;
    struct pair_f32 x = host_normal(p, n, mean, deviation), table = pair_host_f32(p, PL_CODES);
    struct pair_u8 codes = pair_host_u8(p, n);
    if (bad != 0) x.at[0][n / 2] = bad;
    pair_share(p, x.any);
    pair_work(p, 0, 5.0 * (double)n);
    PAIR(p, uniform8_encode, codes.at[side], table.at[side], x.at[side], n);
    {
        const uint8_t *a = (const uint8_t *)pair_result(p, codes.any, 0);
        const uint8_t *b = (const uint8_t *)pair_result(p, codes.any, 1);
        const float *t = pair_result(p, table.any, 0), *u = pair_result(p, table.any, 1);
        int touched[PL_CODES] = { 0 };
        for (size_t i = 0; i < n; i++) {
            size_t d = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
            wrong += d > 0;
            if (d > worst) worst = d;
            if (d) touched[a[i]] = touched[b[i]] = 1;
        }
        pair_check(p, worst <= 1 && (double)wrong <= 1 + 1e-4 * (double)n,
                   "%zu codes differ, by up to %zu", wrong, worst);
        for (int k = 0; k < PL_CODES; k++)
            if (!touched[k])
                pair_check(p, t[k] == u[k] || (isnan(t[k]) && isnan(u[k])),
                           "table entry %d is %.9g, not %.9g", k, u[k], t[k]);
    }
}

static void table8(struct pair *p, size_t n)
{
    if (!pair_case(p, "table8_decode", "n%zu", n)) return;
    struct pair_f32 x = pair_host_f32(p, n), table = host_normal(p, PL_CODES, 0, 1);
    struct pair_u8 codes = host_codes(p, n);
    pair_work(p, 0, 5.0 * (double)n);
    PAIR(p, table8_decode, x.at[side], codes.at[side], table.at[side], n);
    pair_exact(p, "x", x.any);
}

static float half_back(const uint8_t *halves, size_t i)
{
    uint16_t h;
    memcpy(&h, halves + 2 * i, sizeof h);
    return pl_half_to_float(h);
}

/* The float16 values follow from the mean and deviation that came out, which may be off by one unit
 * in the last place. */
static void meanstd16(struct pair *p, size_t rows, size_t D, double mean, double deviation,
                      float bad)
{
    if (!pair_case(p, "meanstd16_encode", "rows%zu D%zu mean%g%s", rows, D, mean,
                   bad == 0     ? ""
                   : isnan(bad) ? " nan"
                                : " inf"))
        return;
    struct pair_f32 x = host_normal(p, rows * D, mean, deviation);
    struct pair_f32 mu = pair_host_f32(p, rows), sigma = pair_host_f32(p, rows);
    struct pair_u8 halves = pair_host_u8(p, 2 * rows * D);
    float *slack = pair_scratch(p, rows), *wide = pair_scratch(p, rows);
    if (bad != 0) x.at[0][rows * D / 2] = bad;
    pair_share(p, x.any);
    pair_work(p, 0, 6.0 * (double)(rows * D));
    PAIR(p, meanstd16_encode, halves.at[side], mu.at[side], sigma.at[side], x.at[side], rows, D);
    {
        const float *m = pair_result(p, mu.any, 1), *s = pair_result(p, sigma.any, 1);
        const float *m0 = pair_result(p, mu.any, 0), *s0 = pair_result(p, sigma.any, 0);
        const uint8_t *h = (const uint8_t *)pair_result(p, halves.any, 1);
        size_t wrong = 0, first = 0;
        for (size_t r = 0; r < rows; r++) {
            slack[r] = fabsf(m0[r]) * 0x1p-23f;
            wide[r] = s0[r] * 0x1p-22f;
        }
        pair_within(p, "mean", mu.any, 1, slack);
        pair_within(p, "deviation", sigma.any, 1, wide);
        for (size_t i = 0; i < rows * D; i++) {
            float z = (x.at[0][i] - m[i / D]) / s[i / D], got = half_back(h, i);
            float want = z < -65504 ? -65504 : z > 65504 ? 65504 : z;
            want = pl_half_to_float(pl_half_from_float(want));
            if (memcmp(&got, &want, sizeof got) && !(isnan(got) && isnan(want)) && !wrong++)
                first = i;
        }
        pair_check(p, !wrong, "%zu halves are not those of mean and deviation, the first at %zu",
                   wrong, first);
    }
}

static void meanstd16_back(struct pair *p, size_t rows, size_t D, enum pl_dtype type)
{
    size_t n = rows * D, size = pl_dtype_size(type);
    if (!pair_case(p, "meanstd16_decode", "rows%zu D%zu %s", rows, D,
                   type == PL_F64   ? "float64"
                   : type == PL_F32 ? "float32"
                                    : "float16"))
        return;
    struct pair_f32 mu = host_normal(p, rows, 0, 3), sigma = host_normal(p, rows, 1, 0.2);
    struct pair_u8 in = pair_host_u8(p, 2 * n);
    /* as its type's elements: alignment */
    struct pair_f64 wide = pair_host_f64(p, type == PL_F64 ? n : 1);
    struct pair_f32 out = pair_host_f32(p, type == PL_F64 ? 1 : (n * size + 3) / 4);
    for (size_t i = 0; i < n; i++) {
        uint16_t h = (uint16_t)pl_rng_u64(&p->rng);
        if ((h & 0x7c00) == 0x7c00) h = (uint16_t)(h & ~0x4000); /* no infinity: those become NaN */
        memcpy(in.at[0] + 2 * i, &h, sizeof h);
    }
    pair_share(p, in.any);
    pair_work(p, 0, (2.0 + (double)size) * (double)n);
    PAIR(p, meanstd16_decode, type == PL_F64 ? (void *)wide.at[side] : (void *)out.at[side], type,
         in.at[side], mu.at[side], sigma.at[side], rows, D);
    if (type == PL_F64) pair_exact(p, "out", wide.any);
    else pair_exact(p, "out", out.any);
}

/* Values that rise from the first to the last: the deviation lies between the pieces that a large
 * tensor is cut into, hardly within them. */
static void uniform8_ramp(struct pair *p, size_t n)
{
    if (!pair_case(p, "uniform8_encode", "n%zu ramp", n)) return;
    struct pair_f32 x = pair_host_f32(p, n), table = pair_host_f32(p, PL_CODES);
    struct pair_u8 codes = pair_host_u8(p, n);
    size_t worst = 0;
    for (size_t i = 0; i < n; i++) x.at[0][i] = (float)i / (float)n;
    pair_share(p, x.any);
    pair_work(p, 0, 5.0 * (double)n);
    PAIR(p, uniform8_encode, codes.at[side], table.at[side], x.at[side], n);
    const uint8_t *a = (const uint8_t *)pair_result(p, codes.any, 0);
    const uint8_t *b = (const uint8_t *)pair_result(p, codes.any, 1);
    for (size_t i = 0; i < n; i++) {
        size_t d = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
        if (d > worst) worst = d;
    }
    pair_check(p, worst <= 1, "codes differ by up to %zu", worst);
    pair_within(p, "table", table.any, 2.0 / PL_CODES, NULL);
}

/* ties: a fifth of the values, and zeros of either sign. */
static void quantile8(struct pair *p, size_t n, int ties, float bad)
{
    if (!pair_case(p, "quantile8_encode", "n%zu%s%s", n, ties ? " ties" : "",
                   bad == 0     ? ""
                   : isnan(bad) ? " nan"
                                : " inf"))
        return;
    struct pair_f32 x = host_normal(p, n, 0, 1e-3), table = pair_host_f32(p, PL_CODES);
    struct pair_u8 codes = pair_host_u8(p, n);
    for (size_t i = 0; ties && i < n; i++)
        if (i % 5 == 0) x.at[0][i] = i % 3 ? 0 : i % 2 ? -0.0f : 5e-4f;
    if (bad != 0) x.at[0][n / 2] = bad;
    pair_share(p, x.any);
    pair_work(p, 0, 5.0 * (double)n);
    PAIR(p, quantile8_encode, codes.at[side], table.at[side], x.at[side], n);
    pair_exact(p, "codes", codes.any);
    pair_within(p, "table", table.any, 0, NULL); /* any NaN for a NaN */
}

static void quantiles_and_rows(struct pair *p)
{
    static const struct {
        size_t rows, D;
    } shapes[] = { { 1, 1 }, { 3, 7 }, { 700, 1 }, { 64, 1024 }, { 2, 70001 }, { 512, 1024 } };
    static const enum pl_dtype types[] = { PL_F32, PL_F64, PL_F16 };
    static const size_t large[] = { 1, 2, 257, 4097, 100000, 100001, 524288, 2 * 524288 + 5 };
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        meanstd16(p, shapes[i].rows, shapes[i].D, 0, 1e-3, 0);
        meanstd16(p, shapes[i].rows, shapes[i].D, -1000, 1e-2, 0);
        for (size_t k = 0; k < PL_COUNT(types); k++)
            meanstd16_back(p, shapes[i].rows, shapes[i].D, types[k]);
    }
    meanstd16(p, 3, 4097, 0, 1e-9, 0); /* below the least deviation */
    meanstd16(p, 3, 4097, 0, 1, NAN);
    meanstd16(p, 3, 4097, 0, 1, INFINITY);
    for (size_t i = 0; i < PL_COUNT(large); i++) quantile8(p, large[i], 0, 0);
    quantile8(p, 4097, 1, 0);
    quantile8(p, 100001, 1, 0);
    quantile8(p, 4097, 0, NAN);
    quantile8(p, 4097, 0, -INFINITY);
}

void pair_compress(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        float16(p, sizes[i], 0);
        float16(p, sizes[i], 1);
        float16_back(p, sizes[i]);
        uniform8(p, sizes[i], 0, 1e-3, 0);
        uniform8(p, sizes[i], -0.25, 1e-3, 0);
        table8(p, sizes[i]);
    }
    uniform8(p, 4097, 0, 1e-3, NAN);
    uniform8(p, 70000, 0, 1e-3, INFINITY);
    /* squares that float32 can't hold, values that are all equal, or far from one, or from zero */
    uniform8(p, 70000, 0, 1e-25, 0);
    uniform8(p, 70000, 0, 1e-17, 0);
    uniform8(p, 70000, 0, 1e17, 0);
    uniform8(p, 70000, 0, 1e25, 0);
    uniform8(p, 70000, 3.7, 0, 0);
    uniform8(p, 70000, 3.7, 0, 1e6f);
    uniform8(p, 70000, 0, 1e-3, 1e12f);
    uniform8(p, 70000, 1e4, 1, 0);
    uniform8_ramp(p, 4097);
    uniform8_ramp(p, 3 * 524288);
    for (int i = 0; i < 4; i++) uniform8(p, (size_t)pair_int(p, 2, 300000), 0.1, 1, 0);
    quantiles_and_rows(p);
}
