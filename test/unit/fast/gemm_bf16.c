/* gemm_bf16.c - the bfloat16 GEMM's packing, tiles and edges. The two instructions are replaced by
 * their definitions, so it runs on any CPU; gemm_bf16_cpu.c runs the same with the instructions. */
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wpsabi"
#ifndef ON_THE_INSTRUCTIONS
#define FAST_BF16_PLAIN
#endif
#include "fast/gemm_bf16.c"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>
#if BY_BFMMLA
#include <sys/auxv.h>
#endif

int fast_threads(void) { return 1; }
float *fast_scratch_alloc(size_t n) { return pl_alloc(n, sizeof(float)); }
void fast_scratch_free(float *p) { pl_free(p); }

static void need_instructions(void)
{
#if BY_BFMMLA
    if (!(getauxval(AT_HWCAP2) & HWCAP2_BF16)) skip();
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
        { 1, 1, 1 },      { 12, 32, 32 },  { 13, 33, 33 }, { 11, 31, 2 },
        { 5, 70, 65 },    { 97, 97, 31 },  { 96, 96, 64 }, { 25, 16, 513 },
        { 40, 17, 1030 }, { 17, 200, 96 }, { 200, 5, 50 },
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(every_border),
        cmocka_unit_test(what_is_not_finite_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
