/* gemm_bf16.c - the bfloat16 GEMM's packing, tiles and edges. The instructions are replaced by their
 * definitions, so it runs on any CPU; gemm_bf16_cpu.c runs the same with the instructions,
 * gemm_bf16_amx.c and gemm_bf16_amx_cpu.c with AMX's tiles. */
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wpsabi"
#ifndef ON_THE_INSTRUCTIONS
#define FAST_BF16_PLAIN
#endif
#ifdef ON_AMX
#include "fast/gemm_bf16_amx.c"
#include "fast/isa.c"
#else
#include "fast/gemm_bf16.c"
#endif
#include "ref/byte_order.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>
#if BY_BFMMLA
#include <sys/auxv.h>
#endif

int fast_threads(void) { return 1; }
#ifdef ON_AMX
int fast_bf16_multiply(const struct fast_bf16_gemm *g) { return fast_amx_multiply(g); }
int fast_gemm_bf16(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                   int ldb, const float *bias, int add, float *c)
{
    struct fast_bf16_gemm g = {
        .ta = ta, .tb = tb, .m = m, .n = n, .k = k, .bias = bias, .add = add, .c = c
    };
    g.a = (struct fast_bf16_matrix){ a, NULL, lda };
    g.b = (struct fast_bf16_matrix){ b, NULL, ldb };
    return fast_amx_multiply(&g);
}
#else
int isa_has_amx(void) { return 0; }
int fast_amx_multiply(const struct fast_bf16_gemm *g) { return g ? PL_EDEVICE : PL_EUSE; }
#endif

float *fast_scratch_alloc(size_t n) { return pl_alloc(n, sizeof(float)); }
void fast_scratch_free(float *p) { pl_free(p); }

/* Every second operand is read from kept panels, as a weight is. */
const uint32_t *fast_packed_weights(const struct fast_packing *packing, size_t count,
                                    void (*pack)(uint32_t *to, const void *context),
                                    const void *context)
{
    static uint32_t *kept;
    static int calls;
    pl_free(kept);
    kept = calls++ % 2 ? NULL : pl_alloc_unset(count, sizeof *kept);
    if (kept) pack(kept, context);
    return kept;
}

static void need_instructions(void)
{
#if BY_BFMMLA
    if (!(getauxval(AT_HWCAP2) & HWCAP2_BF16)) skip();
#elif defined(ON_AMX) && defined(ON_THE_INSTRUCTIONS)
    if (!isa_has_amx()) skip();
#elif defined(ON_THE_INSTRUCTIONS)
    if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl"))
        skip();
#endif
}

#if BY_BFMMLA
#define LANES 2
typedef float floats __attribute__((vector_size(8)));
typedef uint16_t words __attribute__((vector_size(8)));
TARGET static void round_pair(words *to, const floats *high, const floats *low)
{
    float x[4] = { (*low)[0], (*low)[1], (*high)[0], (*high)[1] };
    vst1_u16((uint16_t *)to,
             vreinterpret_u16_bf16(vget_low_bf16(vcvtq_low_bf16_f32(vld1q_f32(x)))));
}
#else
TARGET static void round_pair(words *to, const floats *high, const floats *low)
{
    *to = round_two(*high, *low);
}
#endif

/* Round to nearest even in 8 bits, by arithmetic instead of bits. */
static double rounded(float x)
{
    int e;
    double m = frexp(x, &e);
    return isfinite(x) ? ldexp(nearbyint(ldexp(m, 8)), e - 8) : (double)x;
}

static void rounding_is_to_nearest_even(void **state)
{
    struct pl_rng rng;
    need_instructions();
    pl_rng_init(&rng, 1, 0);
    for (int n = 0; n < 10000; n++) {
        floats low, high;
        words w;
        for (int i = 0; i < LANES; i++) {
            low[i] = (float)pl_rng_normal(&rng);
            high[i] = 1 + (float)(2 * pl_rng_below(&rng, 64) + 1) / 256; /* every one a tie */
        }
        round_pair(&w, &high, &low);
        for (int i = 0; i < 2 * LANES; i++) {
            uint32_t u = (uint32_t)w[i] << 16;
            float got;
            memcpy(&got, &u, 4);
            assert_true(got == rounded(i < LANES ? low[i] : high[i - LANES]));
        }
    }
}

static float value(const float *x, int strided, int ld, int i, int k)
{
    return strided ? x[(size_t)k * (size_t)ld + (size_t)i] : x[(size_t)i * (size_t)ld + (size_t)k];
}

/* One shape in all layouts; operands end where their memory does, so that a sanitizer sees more. */
static void check(int m, int n, int k, int ta, int tb, int add, int with_bias)
{
    int lda = ta ? m : k, ldb = tb ? k : n;
    float *a = malloc((size_t)m * (size_t)k * sizeof *a),
          *b = malloc((size_t)n * (size_t)k * sizeof *b);
    float *c = malloc((size_t)m * (size_t)n * sizeof *c),
          *before = malloc((size_t)m * (size_t)n * sizeof *c);
    float *bias = malloc((size_t)n * sizeof *bias);
    struct pl_rng rng;
    pl_rng_init(&rng, (uint64_t)(m + 1000 * n + 100000 * k), (uint64_t)(ta + 2 * tb));
    for (int i = 0; i < m * k; i++) a[i] = (float)pl_rng_normal(&rng);
    for (int i = 0; i < n * k; i++) b[i] = (float)pl_rng_normal(&rng);
    for (int i = 0; i < n; i++) bias[i] = (float)pl_rng_normal(&rng);
    for (int i = 0; i < m * n; i++) c[i] = before[i] = add ? (float)pl_rng_normal(&rng) : NAN;
    assert_int_equal(fast_gemm_bf16(ta, tb, m, n, k, a, lda, b, ldb, with_bias ? bias : NULL, add,
                                    c),
                     PL_OK);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = add ? before[i * n + j] : with_bias ? bias[j] : 0, absolute = fabs(sum);
            for (int p = 0; p < k; p++) {
                double t = rounded(value(a, ta, lda, i, p)) * rounded(value(b, !tb, ldb, j, p));
                sum += t;
                absolute += fabs(t);
            }
            assert_true(fabs(c[i * n + j] - sum) <= (k + 8) * 0x1p-24 * absolute);
        }
    free(a), free(b), free(c), free(before), free(bias);
}

static void every_border(void **state)
{
    static const int sizes[][3] = {
        { 1, 1, 1 },    { 12, 32, 32 }, { 13, 33, 33 },  { 11, 31, 2 },    { 5, 70, 65 },
        { 97, 97, 31 }, { 96, 96, 64 }, { 25, 16, 513 }, { 40, 17, 1030 }, { 17, 200, 96 },
        { 200, 5, 50 }, { 32, 32, 32 }, { 33, 65, 34 },  { 31, 48, 544 },
    };
    need_instructions();
    for (size_t s = 0; s < PL_COUNT(sizes); s++)
        for (int layout = 0; layout < 4; layout++)
            for (int start = 0; start < 3; start++)
                check(sizes[s][0], sizes[s][1], sizes[s][2], layout & 1, layout >> 1, start == 1,
                      start == 2);
}

/* Infinity and NaN get through, zeros at the borders touch nothing. */
static void what_is_not_finite_shows(void **state)
{
    float a[3 * 5], b[2 * 5], c[3 * 2];
    need_instructions();
    for (int i = 0; i < 15; i++) a[i] = 1;
    for (int i = 0; i < 10; i++) b[i] = 1;
    a[1 * 5 + 2] = INFINITY;
    b[1 * 5 + 4] = NAN;
    assert_int_equal(fast_gemm_bf16(0, 1, 3, 2, 5, a, 5, b, 5, NULL, 0, c), PL_OK);
    assert_true(c[0] == 5 && isinf(c[2]) && c[4] == 5);
    assert_true(isnan(c[1]) && isnan(c[3]) && isnan(c[5]));
}

#if !BY_BFMMLA
enum { ROWS = 29, TERMS = 37, CHANNELS = 80 };
static float x[ROWS * TERMS], W[2 * CHANNELS * TERMS], bias[2 * CHANNELS], z[ROWS * 2 * CHANNELS],
    sums[2 * CHANNELS];
static uint16_t h[ROWS * CHANNELS], dh[ROWS * CHANNELS], dz[ROWS * 2 * CHANNELS];

static void within(uint16_t half, double want)
{
    assert_true(fabs(float_of_half(half) - want) <= 0x1p-8 * fabs(want) + 1e-6);
}

/* The outputs of a gate, computed from z as the sums give it: h, z, the gradients and their
 * sums. */
static void gate_is_computed_from_a_tile(void **state)
{
    struct fast_bf16_gate gate = { .C = CHANNELS, .z = z, .h = h };
    struct fast_bf16_gemm g = { .tb = 1,
                                .m = ROWS,
                                .n = 2 * CHANNELS,
                                .k = TERMS,
                                .a = { x, NULL, TERMS },
                                .b = { W, NULL, TERMS },
                                .bias = bias,
                                .gate = &gate };
    double want[2 * CHANNELS] = { 0 };
    struct pl_rng rng;
    need_instructions();
    pl_rng_init(&rng, 2, 0);
    for (int i = 0; i < ROWS * TERMS; i++) x[i] = (float)pl_rng_normal(&rng);
    for (int i = 0; i < 2 * CHANNELS * TERMS; i++) W[i] = (float)pl_rng_normal(&rng) / 6;
    for (int i = 0; i < 2 * CHANNELS; i++) bias[i] = (float)pl_rng_normal(&rng);
    for (int i = 0; i < ROWS * CHANNELS; i++) {
        float d = (float)pl_rng_normal(&rng);
        uint32_t u;
        memcpy(&u, &d, 4);
        dh[i] = (uint16_t)(u >> 16);
    }
    assert_int_equal(fast_bf16_multiply(&g), PL_OK);
    for (int with_dh = 0; with_dh < 2; with_dh++) {
        if (with_dh) { /* once more, with the gradients */
            gate = (struct fast_bf16_gate){
                .C = CHANNELS, .dh = dh, .h = h, .dz = dz, .sums = sums
            };
            memset(h, 0, sizeof h);
            assert_int_equal(fast_bf16_multiply(&g), PL_OK);
        }
        for (int i = 0; i < ROWS * CHANNELS; i++) {
            int c = i % CHANNELS, at = i / CHANNELS * 2 * CHANNELS + c;
            double u = z[at], v = z[at + CHANNELS], cdf = (1 + erf(v / sqrt(2))) / 2,
                   d = float_of_half(dh[i]);
            double slope = cdf + v * exp(-v * v / 2) / sqrt(2 * 3.14159265358979323846);
            double sum = bias[c];
            for (int k = 0; k < TERMS; k++)
                sum += rounded(x[i / CHANNELS * TERMS + k]) * rounded(W[c * TERMS + k]);
            assert_true(fabs(u - sum) <= 1e-5);
            within(h[i], u * v * cdf);
            if (!with_dh) continue;
            within(dz[at], d * v * cdf);
            within(dz[at + CHANNELS], d * u * slope);
            want[c] += d * v * cdf;
            want[c + CHANNELS] += d * u * slope;
        }
    }
    for (int c = 0; c < 2 * CHANNELS; c++) assert_true(fabs(sums[c] - want[c]) <= 1e-4);
}

/* dh (ROWS,CHANNELS) = dy W2: rounded, or gated with a saved z, from operands in bfloat16. */
static void halves_are_operands_and_results(void **state)
{
    static float plain[ROWS * CHANNELS], exact[ROWS * CHANNELS];
    static uint16_t half[ROWS * TERMS], result[ROWS * CHANNELS], dz2[ROWS * 2 * CHANNELS];
    struct fast_bf16_gate gate = { .C = CHANNELS, .z = z, .h = h, .dz = dz2, .sums = sums };
    struct fast_bf16_gemm g = { .m = ROWS, .n = CHANNELS, .k = TERMS, .b = { W, NULL, CHANNELS } };
    need_instructions();
    /* Neighbours in a pair change places on a big-endian machine, and so does the order of sums:
     * equal bits are only the instructions' to promise, whose machines are little-endian. */
    if (PL_BIG_ENDIAN) skip();
    for (int i = 0; i < ROWS * TERMS; i++) {
        uint32_t u;
        x[i] = (float)rounded(x[i]);
        memcpy(&u, &x[i], 4);
        half[i] = (uint16_t)(u >> 16);
    }
    for (int ta = 0; ta < 2; ta++) { /* rounding what is rounded changes nothing */
        int ld = ta ? ROWS : TERMS;
        g.ta = ta;
        g.a = (struct fast_bf16_matrix){ x, NULL, ld };
        g.c = plain;
        assert_int_equal(fast_bf16_multiply(&g), PL_OK);
        g.a = (struct fast_bf16_matrix){ NULL, half, ld };
        g.c = exact;
        assert_int_equal(fast_bf16_multiply(&g), PL_OK);
        assert_memory_equal(plain, exact, sizeof exact);
    }
    g.rounded = result;
    assert_int_equal(fast_bf16_multiply(&g), PL_OK);
    for (int i = 0; i < ROWS * CHANNELS; i++)
        assert_true(float_of_half(result[i]) == (float)rounded(exact[i]));
    g.gate = &gate;
    assert_int_equal(fast_bf16_multiply(&g), PL_OK);
    for (int i = 0; i < ROWS * CHANNELS; i++) {
        double v = z[i / CHANNELS * 2 * CHANNELS + i % CHANNELS + CHANNELS];
        within(dz2[i / CHANNELS * 2 * CHANNELS + i % CHANNELS],
               exact[i] * v * (1 + erf(v / sqrt(2))) / 2);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(every_border),
        cmocka_unit_test(what_is_not_finite_shows),
#if !BY_BFMMLA
        cmocka_unit_test(gate_is_computed_from_a_tile),
        cmocka_unit_test(halves_are_operands_and_results),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
