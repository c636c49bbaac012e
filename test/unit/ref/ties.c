/* ties.c - rules that decide between equal candidates, and the order of sums and roundings: each
 * case is one rule.
 * One long file: a list of rules, with a case for each. */
#include "ref/backend.h"
#include "ref/balance.h"
#include "ref/dgc.h"
#include "ref/kmeans.h"
#include "ref/onebit.h"
#include "ref/partition.h"
#include "ref/powersgd.h"
#include "ref/rng.h"
#include "ref/sample.h"
#include "ref/model/clip.h"
#include "runtime/models.h"
#include "test/unit/unit.h"

#include <float.h>
#include <math.h>

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- the first of equals ----------------------------------------------------------------------- */

static void nearest_codes(void **state)
{
    static const float table[] = { 9, 9, 1, 2, 1, 2, 3, 4, 9, 9 };
    static const float z[] = { 1, 2, 9, /* channel 0 of three places */ 2, 3, 9 };
    int32_t code[3];
    assert_int_equal(ref_nearest_code(code, z, table, 1, 2, 3, 5), PL_OK);
    assert_true(code[0] == 1 && code[2] == 0);
    assert_int_equal(code[1], 1); /* as near to (1,2) as to (3,4) */
}

static void likeliest_codes(void **state)
{
    static const float logits[] = { 1, 5, -INFINITY, 2, 5, -INFINITY, 2, 4, -INFINITY };
    static const float noise[] = { 1, 1e-9f, 0, 0, 0, 0, 0, 1, 0 };
    int32_t code[3];
    assert_int_equal(ref_gumbel_code(code, logits, NULL, 1, 3, 3), PL_OK);
    assert_true(code[0] == 1 && code[1] == 0 && code[2] == 0);
    assert_int_equal(ref_gumbel_code(code, logits, noise, 1, 3, 3), PL_OK);
    assert_true(code[0] == 0 && code[1] == 0); /* sums are rounded before they are compared */
}

static void ranks_and_filters(void **state)
{
    static const float z[] = { 1, 3, 3, 2, 3, 2 }, low[] = { -2000, -2001, -INFINITY };
    static const int32_t want[] = { 1, 2, 4, 3, 5, 0 };
    int32_t order[6];
    float p[6], sum = 0;
    uint8_t keep[6];
    pl_clip_rank(order, p, z, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(order[i], want[i]);
    assert_int_equal(pl_sample_greedy(z, 6), 1);
    for (int k = 1; k <= 6; k++) {
        assert_int_equal(pl_sample_filter_fraction(keep, z, 6, 1 - (k + 0.01) / 6), PL_OK);
        for (int i = 0; i < 6; i++) assert_int_equal(keep[want[i]], i < k);
    }
    memset(keep, 1, sizeof keep);
    pl_sample_softmax(p, low, keep, 3, 1); /* exp(-2000) alone would be nothing */
    assert_true(fabsf(p[0] - 0.7310586f) < 1e-6f && fabsf(p[1] - 0.2689414f) < 1e-6f && !p[2]);
    pl_clip_rank(order, p, low, 2);
    assert_true(fabsf(p[0] - 0.7310586f) < 1e-6f && fabsf(p[1] - 0.2689414f) < 1e-6f);
    for (int i = 0; i < 2; i++) sum += p[i];
    assert_true(fabsf(sum - 1) < 1e-6f);
}

static void largest_gradients(void **state)
{
    double a[6] = { 1, 2, NAN, -2, 2, 0 }, u[6] = { 1, 1, 1, 1, 1, 1 }, value[3];
    uint32_t index[3];
    assert_int_equal(pl_dgc_take(index, value, a, u, 6, 3), PL_OK);
    assert_true(index[0] == 1 && index[1] == 2 && index[2] == 3); /* no number goes first */
    assert_true(value[0] == 2 && isnan(value[1]) && value[2] == -2);
    assert_int_equal(pl_dgc_count(1000, 0.999), 1);
    assert_int_equal(pl_dgc_count(10, 0.9), 1); /* 10 (1 - 0.9) is a little less than 1 */
    assert_int_equal(pl_dgc_count(100, 0.97), 3);
    assert_int_equal(pl_dgc_count(1001, 0.999), 2);
}

/* --- codes ------------------------------------------------------------------------------------- */

static void midpoints_of_the_cuda_rule(void **state)
{
    float book[PL_CODES];
    int ties = 0, differ = 0;
    struct pl_rng rng;
    pl_rng_init(&rng, 3, 0);
    pl_codebook(book, PL_MAP_SIGNED, PL_RULE_CUDA);
    for (int i = 0; i < 255; i++) {
        float middle = (book[i] + book[i + 1]) * 0.5f;
        if ((double)middle != ((double)book[i] + book[i + 1]) * 0.5) continue;
        assert_int_equal(pl_code_cuda(book, middle), i + i % 2); /* the even one of the two */
        assert_int_equal(pl_code_cuda(book, nextafterf(middle, -2)), i);
        assert_int_equal(pl_code_cuda(book, nextafterf(middle, 2)), i + 1);
        ties++;
    }
    assert_true(ties > 40);
    /* x is multiplied by 1 / absmax, rounded twice: x / absmax would be another code now and then */
    for (int i = 0; i < 200000; i++) {
        float x[2], absmax;
        uint8_t codes[2];
        int at = (int)pl_rng_below(&rng, 255);
        x[1] = (float)(1 + pl_rng_uniform(&rng));
        x[0] = (book[at] + book[at + 1]) * 0.5f * x[1];
        assert_int_equal(ref_quantize(codes, &absmax, x, 2, 2, PL_MAP_SIGNED, PL_RULE_CUDA), PL_OK);
        assert_int_equal(codes[0], pl_code_cuda(book, x[0] * (1 / x[1])));
        differ += codes[0] != pl_code_cuda(book, x[0] / x[1]);
    }
    assert_true(differ > 0);
}

/* (x - mean) / scale half way between two codes: the even one. */
static void ties_of_uniform_codes(void **state)
{
    float x[8] = { 0, 0, 3, -3, 1.5f, -1.5f, 0, 0 }, table[PL_CODES];
    uint8_t codes[8];
    int found = 0;
    for (int tie = 1; tie < 100; tie++) { /* a value whose code is `tie` and a half, by search */
        float t = (float)((tie + 0.5) * 6 * 1.5 / 256);
        for (int k = 0; k < 400; k++, t = nextafterf(t, 9)) {
            double sum = 2 * (9 + 2.25);
            x[0] = t, x[1] = -t;
            sum += 2 * (double)t * t;
            float sigma = (float)sqrt(sum) / (float)sqrt(7.0), inverse = 1 / (6 * sigma / 256);
            if (t * inverse != (float)(int)(t * inverse) + 0.5f) {
                t += (float)((int)(t * inverse) + 0.5 - t * inverse) / inverse;
                continue;
            }
            int low = (int)(t * inverse), even = low + low % 2;
            assert_int_equal(ref_uniform8_encode(codes, table, x, 8), PL_OK);
            assert_int_equal(codes[0], 128 + even > 255 ? 255 : 128 + even);
            assert_int_equal(codes[1], 128 - even < 0 ? 0 : 128 - even);
            found++;
            break;
        }
    }
    assert_true(found > 20);
}

static void chunks_of_quantiles(void **state)
{
    static const size_t want[][2] = { { 1, 1 },           { 99999, 99999 },   { 100000, 100000 },
                                      { 100001, 100001 }, { 199999, 199999 }, { 200000, 100000 },
                                      { 200001, 100001 }, { 200002, 100001 }, { 200003, 100002 },
                                      { 300003, 100001 }, { 300004, 100002 } };
    for (size_t i = 0; i < PL_COUNT(want); i++)
        assert_int_equal(pl_quantile8_chunk(want[i][0]), want[i][1]);
}

/* bfloat16: half way goes to the even one, and a NaN stays one whatever its payload is. */
static void bfloat16(void **state)
{
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t half = h << 16 | 0x8000;
        assert_int_equal(pl_bf16_from_float(of_bits(half)), h + (h & 1));
        assert_int_equal(pl_bf16_from_float(of_bits(half - 1)), h);
        assert_int_equal(pl_bf16_from_float(of_bits(half + 1)), h + 1);
        assert_int_equal(pl_bf16_from_float(of_bits(half | 0x80000000)), 0x8000 | (h + (h & 1)));
    }
    for (int bit = 0; bit < 23; bit++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            float nan = of_bits(sign << 31 | 0x7f800000 | 1u << bit);
            assert_true(isnan(pl_bf16_to_float(pl_bf16_from_float(nan))));
            assert_true(isnan(pl_half_to_float(pl_half_from_float(nan))));
        }
    assert_int_equal(pl_half_from_float(INFINITY), 0x7c00);
    assert_int_equal(pl_half_from_float(-65520), 0xfc00);
}

/* Signs, with zero among the positive ones; each server's slice is whole bytes. */
static void signs(void **state)
{
    double x[8] = { 0, -0.0, 1, -1, 1e-300, -1e-300, 5, -5 }, error[8] = { 0 }, scale;
    uint8_t bits;
    pl_onebit_compress(&bits, &scale, error, x, 8);
    assert_int_equal(bits, 0xEA);
    for (int workers = 1; workers <= 40; workers++)
        for (size_t n = 1; n < 2000; n += 37) {
            size_t all = pl_onebit_padded(n, workers), w = (size_t)workers, lcm = w;
            while (lcm % 8) lcm += w;
            assert_true(all >= n && all - n < w * lcm && all % (w * lcm) == 0);
        }
}

/* --- sums -------------------------------------------------------------------------------------- */

/* Sums are taken in double: a part of 1 survives between terms of 1e8 that cancel. */
static void sums_in_double(void **state)
{
    static const float x[3] = { 1e4f, 1, -1e4f }, W[3] = { 1e4f, 0.5f, 1e4f };
    static const float small[3] = { 1, 1, -1 };
    float y[1], v, dx[3];
    float bias = 1e8f, one = 1, minus = -1e8f;
    ref_linear(y, x, W, NULL, 1, 3, 1);
    assert_true(y[0] == 0.5f);
    v = 1;
    ref_linear(y, &one, &minus, &bias, 1, 1, 1);
    assert_true(y[0] == 0);
    ref_linear(y, (float[]){ 1, 1 }, (float[]){ 1, -1e8f }, &bias, 1, 2, 1);
    assert_true(y[0] == 1); /* from the bias on */
    ref_linear_dx(dx, small, (float[]){ 1e8f, 1, 1e8f }, 1, 1, 3, 0);
    assert_true(dx[0] == 1);
    /* a x is exact, and y + a x is rounded once */
    v = -1 - 0x1p-11f;
    ref_axpy(&v, 1 + 0x1p-12f, (float[]){ 1 + 0x1p-12f }, 1);
    assert_true(v == 0x1p-24f);
}

/* The squares of a weight norm are exact in double, so is the norm's rounding. */
static void norms_of_weights(void **state)
{
    enum { N = 200 };
    float p[N], u[N], g[N] = { 0 }, m[N] = { 0 }, v[N] = { 0 };
    struct pl_moments moments = { .value = { m, v } };
    for (size_t n = 1; n <= N; n++) {
        struct pl_lamb step = {
            .lr = 0, .beta1 = 0.9, .beta2 = 0.96, .eps = 1e-6, .clamp = 1e4, .clip = 1
        };
        struct pl_lamb_norms norms;
        double want = 0;
        for (size_t i = 0; i < n; i++) {
            p[i] = 1 + 0x1p-12f * (float)(2 * i + 1);
            want += (double)p[i] * p[i];
        }
        assert_int_equal(ref_lamb(&norms, p, u, g, &moments, n, &step), PL_OK);
        assert_true(norms.weight == (float)sqrt(want));
    }
}

/* Any decay above nothing counts, however small. */
static void small_decays(void **state)
{
    for (float decay = 0.5f; decay > 1e-7f; decay /= 8) {
        float p = 3, u, g = 0, m = 0, v = 0;
        struct pl_moments moments = { .value = { &m, &v } };
        struct pl_lamb step = {
            .lr = 0.25, .beta1 = 0.9, .beta2 = 0.96, .eps = 1e-6, .clamp = 1e4, .clip = 1
        };
        struct pl_lamb_norms norms;
        step.decay = decay;
        assert_int_equal(ref_lamb(&norms, &p, &u, &g, &moments, 1, &step), PL_OK);
        assert_true(fabsf(u - decay * 3) <= 1e-6f * u && fabsf(p - 2.25f) < 1e-6f);
    }
}

/* Scores of -2000 and less: their exponentials vanish unless the largest is subtracted first. */
static void very_low_scores(void **state)
{
    enum { n = 3, d = 3 };
    float qkv[n][3][d], o[n][d], lse[n];
    const struct pl_mask mask = { .kind = PL_MASK_FULL, .P = n };
    for (int t = 0; t < n; t++)
        for (int i = 0; i < d; i++) {
            qkv[t][0][i] = i == 0 ? 100 : 0;
            qkv[t][1][i] = i == 0 ? -100 - (float)t * 0.01f : 1;
            qkv[t][2][i] = (float)(t + i);
        }
    assert_int_equal(ref_attention(o[0], lse, qkv[0][0], 1, n, 1, d, &mask, NULL), PL_OK);
    for (int t = 0; t < n; t++) {
        double sum = 0, value = 0;
        for (int k = 0; k <= t; k++) {
            double w = exp(100 * (qkv[0][1][0] * -1.0 + qkv[k][1][0]) / sqrt(d));
            sum += w, value += w * k;
        }
        assert_true(fabs(o[t][0] - value / sum) < 1e-5);
        assert_true(lse[t] < -5000 && isfinite(lse[t]));
    }
    /* a score of 0.5 between terms of 2^24 that cancel */
    for (int t = 0; t < n; t++)
        for (int i = 0; i < d; i++) {
            qkv[t][0][i] = (float[]){ 4096, 1, -4096 }[i];
            qkv[t][1][i] = (float[]){ 4096, t ? 0 : 0.5f, 4096 }[i];
        }
    assert_int_equal(ref_attention(o[0], lse, qkv[0][0], 1, n, 1, d, &mask, NULL), PL_OK);
    double first = exp(0.5 / sqrt(d));
    assert_true(fabs(o[1][0] - 1 / (1 + first)) < 1e-6);
}

static void very_low_logits(void **state)
{
    static const float x[1] = { 1 }, b[3] = { -2000, -2000, -2001 };
    static const int32_t label[1] = { 2 };
    const struct pl_loss_segment segment = { 0, 1, 0, 3, 1 };
    float W[3] = { 0 }, logp[1];
    double loss;
    assert_int_equal(ref_loss(&loss, logp, NULL, NULL, NULL, x, W, b, label, &segment, 1, 1, 1, 1,
                              3),
                     PL_OK);
    assert_true(fabs(loss - (1 + log(2 + exp(-1)))) < 1e-6);
}

/* A caption's vector is that of its first end token: tokens after it, even a second end token,
 * change nothing. */
static void ends_of_captions(void **state)
{
    const struct pl_clip_config config = { 3, 4, 2, 64, 1, 5, 10, 64, 2 };
    static const int32_t tokens[3][5] = { { 8, 3, 9, 0, 0 }, { 8, 3, 9, 9, 1 }, { 8, 3, 9, 4, 9 } };
    struct pl_backend be;
    struct pl_clip_model m;
    struct pl_rng rng;
    float vector[3][3], other[3];
    pl_backend_ref(&be);
    assert_int_equal(pl_clip_check(&config, NULL), PL_OK);
    assert_int_equal(pl_clip_init(&m, &config, &be), PL_OK);
    pl_rng_init(&rng, 2, 0);
    for (size_t i = 0; i < m.params.total; i++)
        m.params.value[i] = (float)(0.3 * pl_rng_normal(&rng));
    assert_int_equal(pl_clip_texts(&m, vector[0], tokens[0], 3), PL_OK);
    assert_memory_equal(vector[0], vector[1], sizeof vector[0]);
    assert_memory_equal(vector[0], vector[2], sizeof vector[0]);
    assert_int_equal(pl_clip_texts(&m, other, (int32_t[]){ 8, 3, 4, 9, 0 }, 1), PL_OK);
    assert_memory_not_equal(vector[0], other, sizeof other);
    pl_clip_clear(&m);
}

/* --- image tokens ------------------------------------------------------------------------------ */

/* KL(q || uniform) with 1e-10 inside the logarithm, and its gradient: tokens whose probability is of
 * that size show both. */
static void rare_tokens(void **state)
{
    enum { N = 4 };
    static const float logits[N] = { 0, -1, -21.5f, -24 }, y[N] = { 0.25f, 0.25f, 0.25f, 0.25f };
    float zero[N] = { 0 }, got[N];
    double q[N], slope[N], sum = 0, want = 0, mean = 0, kl;
    for (int n = 0; n < N; n++) sum += exp(logits[n]);
    for (int n = 0; n < N; n++) {
        q[n] = exp(logits[n]) / sum;
        want += q[n] * log(q[n] * N + 1e-10);
        slope[n] = log(q[n] * N + 1e-10) + q[n] * N / (q[n] * N + 1e-10);
        mean += q[n] * slope[n];
    }
    assert_int_equal(ref_kl_uniform(&kl, logits, 1, N, 1), PL_OK);
    assert_true(fabs(kl - want) < 1e-14);
    assert_int_equal(ref_gumbel_backward(got, zero, y, logits, 1, 2, 1, N, 1), PL_OK);
    for (int n = 0; n < N; n++)
        assert_true(fabs(got[n] - 2 * q[n] * (slope[n] - mean)) <= 1e-6 * fabs(got[n]));
}

static void equal_pixels(void **state)
{
    static const float y[4] = { 1, 2, 3, -4 }, x[4] = { 1, 1, 5, -4 };
    float dy[4];
    double loss[2];
    assert_int_equal(ref_pixel_loss(loss, dy, y, x, 2, 4, 4), PL_OK);
    assert_true(loss[0] == 0.75 && loss[1] == 1.25);
    assert_true(dy[0] == 0 && dy[1] == 2.5f && dy[2] == -4.5f && dy[3] == 0);
}

/* --- k-means ----------------------------------------------------------------------------------- */

/* Three points and three centres: a point that is a centre already is never drawn again. */
static void centres_are_distinct(void **state)
{
    static const float point[3] = { 0, 1, 10 };
    for (uint64_t seed = 0; seed < 60; seed++) {
        float centre[3], sum = 0;
        struct pl_rng rng;
        pl_rng_init(&rng, seed, 0);
        assert_int_equal(pl_kmeans(centre, 3, point, 3, 1, 0, &rng), PL_OK);
        for (int k = 0; k < 3; k++) sum += centre[k];
        assert_true(sum == 11 && centre[0] != centre[1] && centre[1] != centre[2]);
    }
}

/* A point half way between two centres joins the first. */
static void points_half_way(void **state)
{
    static const float point[5] = { -1, 0, 1, -1, 1 };
    int seen = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        float centre[2], moved[2];
        struct pl_rng rng;
        pl_rng_init(&rng, seed, 0);
        assert_int_equal(pl_kmeans(centre, 2, point, 5, 1, 0, &rng), PL_OK);
        if (fabsf(centre[0]) != 1 || fabsf(centre[1]) != 1) continue;
        pl_rng_init(&rng, seed, 0);
        assert_int_equal(pl_kmeans(moved, 2, point, 5, 1, 1, &rng), PL_OK);
        assert_true(fabsf(moved[0] - centre[0] * 2 / 3) < 1e-6f && moved[1] == centre[1]);
        seen++;
    }
    assert_true(seen > 10);
}

/* Idle centres go where the others fit worst, the second as if the first had always been there; where
 * they lay before does not count. */
static void idle_centres(void **state)
{
    static const float point[5] = { 0, 8, -6, -6, 4 };
    static const uint8_t idle[4] = { 0, 1, 1, 0 };
    float centre[4] = { 0, 8, -6, 0 };
    assert_int_equal(pl_reseed(centre, idle, 4, point, 5, 1), PL_OK);
    assert_true(centre[0] == 0 && centre[1] == 8 && centre[2] == -6 && centre[3] == 0);
    centre[1] = centre[2] = 4;
    assert_int_equal(pl_reseed(centre, idle, 4, (float[]){ 3, -3, 1, 0, 0 }, 5, 1), PL_OK);
    assert_true(centre[1] == 3 && centre[2] == -3); /* the first of two as far */
}

/* --- shares ------------------------------------------------------------------------------------ */

static void bytes_of_parts(void **state)
{
    static const int bytes[PL_COMPRESSIONS] = {
        [PL_COMPRESS_NONE] = 4,      [PL_COMPRESS_FLOAT16] = 2,  [PL_COMPRESS_MEANSTD16] = 2,
        [PL_COMPRESS_QUANTILE8] = 1, [PL_COMPRESS_UNIFORM8] = 1, [PL_COMPRESS_BLOCKWISE8] = 1
    };
    for (int method = 0; method < PL_COMPRESSIONS; method++)
        for (size_t n = 0; n < 12; n++) {
            size_t want = n / (size_t)bytes[method];
            assert_int_equal(pl_part_values((enum pl_compression)method, n), want ? want : 1);
        }
}

/* Fractions have nine decimals, none is above 1, and one that is just large enough stays. */
static void fractions(void **state)
{
    static const double bandwidth[][4] = {
        { 100, 50, 30, 7 }, { 1e9, 1, 1, 1 }, { 3, 3, 3, 1e-3 }, { 8, 8, 8, 8 }
    };
    struct pl_err err;
    double alone; /* its share is 1, the least allowed as well */
    assert_int_equal(pl_balance_fractions(&alone, bandwidth[3], 1, 2, 2, &err), PL_OK);
    assert_true(alone == 1);
    for (size_t k = 0; k < PL_COUNT(bandwidth); k++) {
        double fraction[4], level[4];
        assert_int_equal(pl_balance_fractions(fraction, bandwidth[k], 4, 1000000, 0, &err), PL_OK);
        for (int i = 0; i < 4; i++) {
            assert_true(fraction[i] >= 0 && fraction[i] <= 1);
            assert_true(fraction[i] == rint(fraction[i] * 1e9) / 1e9);
        }
        double smallest = 1; /* a share that is just the least allowed stays, any less does not */
        for (int i = 0; i < 4; i++)
            if (fraction[i] > 0) smallest = fmin(smallest, fraction[i]);
        for (int more = 0; more < 2; more++) {
            double kept[4];
            size_t total = 1000000000, least = (size_t)llrint(smallest * 1e9) + (size_t)more;
            assert_int_equal(pl_balance_fractions(kept, bandwidth[k], 4, total, least, &err),
                             PL_OK);
            for (int i = 0; i < 4; i++)
                if (fraction[i] == smallest && k != 1)
                    assert_true(kept[i] == (more && k != 3 ? 0 : smallest));
        }
        pl_balance_level(level, bandwidth[k], 4);
        for (int i = 0; i < 4; i++) assert_true(level[i] >= 0 && level[i] <= 1);
    }
}

/* Of neighbouring axes with equal products the first two become one; a vector never pays. */
static void axes_of_matrices(void **state)
{
    const int64_t tie[4] = { 3, 2, 3, 2 };
    size_t a, b;
    float P[4][2] = { { 1e-12f, 3 }, { 0, 4 }, { 0, 0 }, { 0, 0 } };
    pl_powersgd_dims(&a, &b, tie, 4); /* 6, 3, 2 and then 6, 6 */
    assert_true(a == 6 && b == 6);
    assert_false(pl_powersgd_pays(100, 100, 1, 1, 0.5));
    assert_true(pl_powersgd_pays(100, 100, 2, 1, 0.98) && !pl_powersgd_pays(100, 100, 2, 1, 0.981));
    pl_orthogonalize(P[0], 4, 2); /* a column of next to nothing is not blown up */
    assert_true(fabsf(P[0][0] - 1e-4f) < 1e-9f);
    assert_true(fabsf(P[0][1] - 0.6f) < 1e-4f && fabsf(P[1][1] - 0.8f) < 1e-4f);
}

/* --- random numbers ---------------------------------------------------------------------------- */

/* Seeds are published with results, so the numbers that they give may not change. xoshiro256** by
 * its authors, seeded by splitmix64, written another way. */
static void random_numbers(void **state)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        for (uint64_t stream = 0; stream < 5; stream++) {
            uint64_t s[4], x = seed, z;
            struct pl_rng rng, again;
            for (int i = -1; i < 4; i++) {
                x += 0x9E3779B97F4A7C15u;
                z = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
                z = (z ^ z >> 27) * 0x94D049BB133111EBu;
                z ^= z >> 31;
                if (i >= 0) s[i] = z;
                else x = z ^ stream * 0xD1342543DE82EF95u;
            }
            pl_rng_init(&rng, seed, stream);
            for (int i = 0; i < 20; i++) {
                uint64_t product = s[1] * 5, t = s[1] << 17;
                assert_true(pl_rng_u64(&rng) == (product << 7 | product >> 57) * 9);
                s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t;
                s[3] = s[3] << 45 | s[3] >> 19;
            }
            again = rng;
            double u = pl_rng_uniform(&again), angle = 2 * acos(-1) * pl_rng_uniform(&again);
            assert_true(fabs(pl_rng_normal(&rng) - sqrt(-2 * log(1 - u)) * cos(angle)) < 1e-9);
            assert_true(pl_rng_u64(&rng) == pl_rng_u64(&again));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_codes),
        cmocka_unit_test(likeliest_codes),
        cmocka_unit_test(ranks_and_filters),
        cmocka_unit_test(largest_gradients),
        cmocka_unit_test(midpoints_of_the_cuda_rule),
        cmocka_unit_test(ties_of_uniform_codes),
        cmocka_unit_test(chunks_of_quantiles),
        cmocka_unit_test(bfloat16),
        cmocka_unit_test(signs),
        cmocka_unit_test(sums_in_double),
        cmocka_unit_test(norms_of_weights),
        cmocka_unit_test(small_decays),
        cmocka_unit_test(very_low_scores),
        cmocka_unit_test(very_low_logits),
        cmocka_unit_test(ends_of_captions),
        cmocka_unit_test(rare_tokens),
        cmocka_unit_test(equal_pixels),
        cmocka_unit_test(centres_are_distinct),
        cmocka_unit_test(points_half_way),
        cmocka_unit_test(idle_centres),
        cmocka_unit_test(bytes_of_parts),
        cmocka_unit_test(fractions),
        cmocka_unit_test(axes_of_matrices),
        cmocka_unit_test(random_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
