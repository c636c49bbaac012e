/* gemm.c - matrix products on every instruction set: borders of tiles, panels, slabs and groups in
 * all layouts, operands that end at the end of their memory, and strides longer than rows. */
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>
#include <sys/auxv.h>

#include "fast/gemm.c" /* last: its short names would meet those of math.h */

static enum isa chosen;
enum isa isa_chosen(void) { return chosen; }
float *fast_scratch_alloc(size_t n) { return pl_alloc(n, sizeof(float)); }
void fast_scratch_free(float *p) { pl_free(p); }

/* Never wanted here. */
void cblas_sgemm(CBLAS_LAYOUT layout, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                 float *c, int ldc)
{
    fail();
}

/* rows x columns, `ld` apart, in memory that ends with the last element. */
static float *random_matrix(struct pl_rng *rng, int rows, int columns, int ld)
{
    size_t n = (size_t)(rows - 1) * (size_t)ld + (size_t)columns;
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)pl_rng_normal(rng);
    return x;
}

static double at(const float *x, int transposed, int ld, int i, int k)
{
    return transposed ? x[(size_t)k * (size_t)ld + (size_t)i]
                      : x[(size_t)i * (size_t)ld + (size_t)k];
}

static void need(enum isa isa)
{
    chosen = isa;
#if defined(__x86_64__) && defined(__GNUC__)
    if (isa == ISA_AVX2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return;
    if (isa == ISA_AVX512 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return;
#elif defined(__aarch64__)
    if (isa == ISA_NEON) return;
#elif FAST_HAS_RVV
    if (isa == ISA_RVV && (getauxval(AT_HWCAP) & 1ul << ('v' - 'a') || getenv("PL_FAST_ISA")))
        return;
#endif
    skip();
}

enum start { FROM_ZERO, FROM_C, FROM_BIAS };

static void check(int m, int n, int k, int ta, int tb, enum start start, int gap)
{
    int lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
    struct pl_rng rng;
    float *a, *b, *c, *before, *bias;
    pl_rng_init(&rng, (uint64_t)(m + 1000 * n + 1000000 * k), (uint64_t)(ta + 2 * tb));
    a = random_matrix(&rng, ta ? k : m, ta ? m : k, lda);
    b = random_matrix(&rng, tb ? n : k, tb ? k : n, ldb);
    c = random_matrix(&rng, m, n, ldc);
    bias = random_matrix(&rng, 1, n, n);
    before = malloc(((size_t)(m - 1) * (size_t)ldc + (size_t)n) * sizeof *before);
    memcpy(before, c, ((size_t)(m - 1) * (size_t)ldc + (size_t)n) * sizeof *before);
    fast_gemm(ta, tb, m, n, k, a, lda, b, ldb, start == FROM_BIAS ? bias : NULL, start == FROM_C, c,
              ldc);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < ldc; j++) {
            size_t p = (size_t)i * (size_t)ldc + (size_t)j;
            double sum, absolute;
            if (j >= n) {
                if (i + 1 < m)
                    assert_true(c[p] == before[p]); /* between the rows nothing changes */
                continue;
            }
            sum = start == FROM_C ? before[p] : start == FROM_BIAS ? bias[j] : 0;
            absolute = fabs(sum);
            for (int q = 0; q < k; q++) {
                double t = at(a, ta, lda, i, q) * at(b, !tb, ldb, j, q);
                sum += t;
                absolute += fabs(t);
            }
            assert_true(fabs(c[p] - sum) <= (k + 8) * 0x1p-24 * absolute);
        }
    free(a), free(b), free(c), free(before), free(bias);
}

static void every_border(enum isa isa)
{
    static const int sizes[][3] = {
        { 1, 1, 1 },      { 6, 16, 8 },    { 7, 17, 9 },    { 5, 15, 3 },    { 24, 16, 256 },
        { 25, 33, 257 },  { 48, 8, 256 },  { 49, 24, 300 }, { 13, 70, 65 },  { 31, 257, 40 },
        { 24, 260, 513 }, { 2, 1, 600 },   { 96, 40, 256 }, { 12, 32, 512 }, { 13, 33, 1024 },
        { 23, 31, 510 },  { 25, 525, 30 }, { 11, 5, 1030 },
    };
    need(isa);
    for (size_t s = 0; s < PL_COUNT(sizes); s++)
        for (int layout = 0; layout < 4; layout++)
            for (int start = 0; start < 3; start++)
                for (int gap = 0; gap < 6; gap += 5)
                    check(sizes[s][0], sizes[s][1], sizes[s][2], layout & 1, layout >> 1,
                          (enum start)start, gap);
}

/* Infinity and NaN stay where they belong: the padding of zeros behind the last column is not
 * multiplied with them. */
static void infinity_stays_in_its_row(enum isa isa)
{
    float a[7 * 3], b[3 * 2], c[7 * 2];
    need(isa);
    for (int i = 0; i < 21; i++) a[i] = 1;
    for (int i = 0; i < 6; i++) b[i] = 1;
    a[4 * 3] = INFINITY;
    b[1 * 2 + 1] = NAN;
    fast_gemm(0, 0, 7, 2, 3, a, 3, b, 2, NULL, 0, c, 2);
    for (int i = 0; i < 7; i++) {
        assert_true(i == 4 ? isinf(c[2 * i]) : c[2 * i] == 3);
        assert_true(isnan(c[2 * i + 1]));
    }
}

static void every_border_avx2(void **state) { (void)state, every_border(ISA_AVX2); }
static void every_border_avx512(void **state) { (void)state, every_border(ISA_AVX512); }
static void every_border_neon(void **state) { (void)state, every_border(ISA_NEON); }
static void every_border_rvv(void **state) { (void)state, every_border(ISA_RVV); }
static void infinity_neon(void **state) { (void)state, infinity_stays_in_its_row(ISA_NEON); }
static void infinity_rvv(void **state) { (void)state, infinity_stays_in_its_row(ISA_RVV); }
static void infinity_avx2(void **state) { (void)state, infinity_stays_in_its_row(ISA_AVX2); }
static void infinity_avx512(void **state) { (void)state, infinity_stays_in_its_row(ISA_AVX512); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_border_avx2), cmocka_unit_test(every_border_avx512),
        cmocka_unit_test(infinity_avx2),     cmocka_unit_test(infinity_avx512),
        cmocka_unit_test(every_border_neon), cmocka_unit_test(infinity_neon),
        cmocka_unit_test(every_border_rvv),  cmocka_unit_test(infinity_rvv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
