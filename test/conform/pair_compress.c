/* pair_compress.c - what travels, against the reference's. */
#include "pairs.h"

#include <math.h>
#include <string.h>

/* Smallest, odd, parts of the all-reduce of float32 in 16 and in 8 bits. */
static const size_t sizes[] = { 1, 7, 255, 4097, 262144, 524288, 2 * 524288 + 5 };

/* What travels lies in host memory. */
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
        uint16_t h = (uint16_t)(n > 60000 ? i : pl_rng_u64(&p->rng)); /* large: every half there is */
        if ((h & 0x7c00) == 0x7c00 && h & 0x3ff) h = 0x7c00;
        memcpy(in.at[0] + 2 * i, &h, sizeof h);
    }
    pair_share(p, in.any);
    pair_work(p, 0, 6.0 * (double)n);
    PAIR(p, float16_decode, x.at[side], in.at[side], n);
    pair_exact(p, "x", x.any);
}

/* Codes may be one off where the scaled value is within 1e-4 of a border; then the means of the two
 * bins move with them. */
static void uniform8(struct pair *p, size_t n, double mean, float bad)
{
    size_t wrong = 0, worst = 0;
    if (!pair_case(p, "uniform8_encode", "n%zu mean%g%s", n, mean,
                   bad == 0     ? ""
                   : isnan(bad) ? " nan"
                                : " inf"))
        return;
    struct pair_f32 x = host_normal(p, n, mean, 1e-3), table = pair_host_f32(p, PL_CODES);
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

void pair_compress(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        float16(p, sizes[i], 0);
        float16(p, sizes[i], 1);
        float16_back(p, sizes[i]);
        uniform8(p, sizes[i], 0, 0);
        uniform8(p, sizes[i], -0.25, 0);
        table8(p, sizes[i]);
    }
    uniform8(p, 4097, 0, NAN);
    uniform8(p, 70000, 0, INFINITY);
}
