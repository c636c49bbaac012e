/* compressors.c - PowerSGD, 1-bit Adam, Deep Gradient Compression: nothing is lost, only late. */
#include "ref/dgc.h"
#include "ref/onebit.h"
#include "ref/powersgd.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

static struct pl_rng rng;
static struct pl_backend be;

static int seeded(void **state)
{
    pl_rng_init(&rng, 12, 0);
    pl_backend_ref(&be);
    return 0;
}

/* --- PowerSGD --------------------------------------------------------------------------------- */

static void matrices_of_tensors(void **state)
{
    const int64_t shape[4] = { 24, 6, 5, 7 }, tie[3] = { 2, 2, 2 }, one[1] = { 9 };
    size_t a, b;
    pl_powersgd_dims(&a, &b, shape, 4);
    assert_true(a == 24 && b == 210);
    pl_powersgd_dims(&a, &b, tie, 3);
    assert_true(a == 4 && b == 2);
    pl_powersgd_dims(&a, &b, one, 1);
    assert_true(a == 9 && b == 1);
    assert_false(pl_powersgd_pays(9, 1, 1, 1, 0));
    assert_true(pl_powersgd_pays(100, 100, 2, 25, 0.5));
    assert_false(pl_powersgd_pays(100, 100, 2, 26, 0.5));
}

static void columns_become_orthonormal(void **state)
{
    enum { A = 50, R = 6 };
    float P[A][R];
    for (int i = 0; i < A; i++)
        for (int j = 0; j < R; j++) P[i][j] = (float)pl_rng_normal(&rng) + 1;
    for (int i = 0; i < A; i++) P[i][3] = 0; /* stays zero */
    pl_orthogonalize(P[0], A, R);
    for (int i = 0; i < R; i++)
        for (int j = 0; j < R; j++) {
            double product = 0;
            for (int k = 0; k < A; k++) product += (double)P[k][i] * P[k][j];
            assert_true(fabs(product - (i == j && i != 3)) < 1e-5);
        }
}

/* The restored values and those kept at home add up to the gradients; a matrix of exactly that rank
 * is transmitted at once. */
static void nothing_is_lost(void **state)
{
    enum { A = 20, B = 30, R = 2 };
    struct pl_powersgd s;
    float Q[B * R], G[A][B], left[A][R], right[B][R];
    double sum[A][B] = { { 0 } };
    for (int i = 0; i < B * R; i++) Q[i] = (float)pl_rng_uniform(&rng);
    assert_int_equal(pl_powersgd_init(&s, &be, A, B, R, Q), PL_OK);
    for (int round = 0; round < 5; round++) {
        for (int k = 0; k < R; k++) {
            for (int i = 0; i < A; i++) left[i][k] = (float)pl_rng_normal(&rng);
            for (int j = 0; j < B; j++) right[j][k] = (float)pl_rng_normal(&rng);
        }
        for (int i = 0; i < A; i++)
            for (int j = 0; j < B; j++) {
                G[i][j] = round ? (float)pl_rng_normal(&rng)
                                : left[i][0] * right[j][0] + left[i][1] * right[j][1];
                sum[i][j] += G[i][j];
            }
        assert_int_equal(pl_powersgd_p(&s, G[0]), PL_OK);
        assert_int_equal(pl_powersgd_q(&s), PL_OK);
        assert_int_equal(pl_powersgd_restore(G[0], &s), PL_OK);
        for (int i = 0; i < A; i++)
            for (int j = 0; j < B; j++) {
                sum[i][j] -= G[i][j];
                assert_true(fabs(sum[i][j] - s.M[i * B + j]) < 1e-4);
                assert_true(round || fabs(sum[i][j]) < 1e-4);
            }
    }
    pl_powersgd_clear(&s);
}

/* --- 1-bit Adam ------------------------------------------------------------------------------- */

static void signs_and_errors(void **state)
{
    double x[16], error[16] = { 0 }, before[16], back[16], scale;
    uint8_t bits[2];
    for (int i = 0; i < 16; i++) x[i] = before[i] = i == 5 ? 0 : pl_rng_normal(&rng);
    pl_onebit_compress(bits, &scale, error, x, 16);
    pl_onebit_expand(back, bits, scale, 16);
    for (int i = 0; i < 16; i++) {
        assert_true(fabs(back[i] + error[i] - before[i]) < 1e-15);
        assert_true((back[i] > 0) == (before[i] >= 0));
    }
    assert_int_equal(bits[0] >> 7, before[0] >= 0); /* the first in the highest bit */
    memset(x, 0, sizeof x);
    memset(error, 0, sizeof error);
    pl_onebit_compress(bits, &scale, error, x, 16); /* nothing at all: no NaN */
    assert_true(scale == 0 && error[3] == 0);
}

static void paddings(void **state)
{
    assert_int_equal(pl_onebit_padded(128, 4), 128); /* 4 lcm(4, 8) = 32 */
    assert_int_equal(pl_onebit_padded(72, 3), 72);   /* 3 lcm(3, 8) = 72 */
    assert_int_equal(pl_onebit_padded(73, 3), 144);
    assert_int_equal(pl_onebit_padded(1, 12), 288); /* 12 * 24 */
    assert_int_equal(pl_onebit_padded(1, 16), 256);
    assert_int_equal(pl_onebit_padded(5, 1), 8);
}

/* --- Deep Gradient Compression ---------------------------------------------------------------- */

static void largest_go_first(void **state)
{
    double a[6] = { 1, -3, 3, 0.5, -3, 2 }, u[6] = { 1, 1, 1, 1, 1, 1 }, value[3];
    uint32_t index[3];
    assert_int_equal(pl_dgc_take(index, value, a, u, 6, 2), PL_OK);
    assert_true(index[0] == 1 && index[1] == 2); /* three are as large: the lower ones */
    assert_true(value[0] == -3 && value[1] == 3);
    assert_true(a[1] == 0 && u[1] == 0 && a[2] == 0 && u[2] == 0 && a[4] == -3 && u[4] == 1);
}

/* NaN come first, then infinity, ties by index; for every count, and where all are NaN. */
static void nan_have_an_order(void **state)
{
    const double size[6] = { 1, NAN, INFINITY, NAN, 2, 1 };
    const uint32_t order[6] = { 1, 3, 2, 4, 0, 5 };
    for (size_t k = 0; k <= 6; k++) {
        struct pl_entry e[6];
        unsigned seen = 0, expected = 0;
        for (uint32_t i = 0; i < 6; i++) e[i] = (struct pl_entry){ size[i], i };
        pl_largest_first(e, 6, k);
        for (size_t i = 0; i < k; i++) {
            seen |= 1u << e[i].index;
            expected |= 1u << order[i];
            assert_true(!i || e[i - 1].index < e[i].index);
        }
        assert_int_equal(seen, expected);
    }
    for (size_t n = 1; n < 40; n++) {
        struct pl_entry *e = malloc(n * sizeof *e); /* of the exact size: a step beyond it shows */
        for (uint32_t i = 0; i < n; i++) e[i] = (struct pl_entry){ NAN, i };
        pl_largest_first(e, n, (n + 1) / 2);
        for (uint32_t i = 0; i < (n + 1) / 2; i++) assert_int_equal(e[i].index, i);
        free(e);
    }
}

static void sent_and_kept_is_all(void **state)
{
    enum { N = 300 };
    double u[N] = { 0 }, a[N] = { 0 }, g[N], want[N], value[N];
    uint32_t index[N];
    for (int step = 0; step < 6; step++) {
        size_t count = pl_dgc_count(N, step ? 0.9375 : 0.75);
        double norm = 0;
        for (int i = 0; i < N; i++) g[i] = pl_rng_normal(&rng);
        pl_dgc_accumulate(u, a, g, N, 0.9, 4);
        if (step == 0)
            for (int i = 0; i < N; i++) norm += u[i] * u[i];
        assert_true(step || fabs(norm - 16) < 1e-9); /* clipped to length 4 */
        memcpy(want, a, sizeof a);
        assert_int_equal(pl_dgc_take(index, value, a, u, N, count), PL_OK);
        for (size_t k = 0; k < count; k++) a[index[k]] += value[k];
        assert_memory_equal(want, a, sizeof a);
        for (size_t k = 0; k < count; k++) a[index[k]] = 0;
    }
}

static void counts(void **state)
{
    assert_int_equal(pl_dgc_count(400, 0.75), 100);
    assert_int_equal(pl_dgc_count(1000, 0.999), 1); /* and not 2, whatever 1 - 0.999 is */
    assert_int_equal(pl_dgc_count(10, 0.999), 1);
    assert_int_equal(pl_dgc_count(1, 0.75), 1);
    assert_int_equal(pl_dgc_count(7, 0), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_tensors),
        cmocka_unit_test(columns_become_orthonormal),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(signs_and_errors),
        cmocka_unit_test(paddings),
        cmocka_unit_test(largest_go_first),
        cmocka_unit_test(nan_have_an_order),
        cmocka_unit_test(sent_and_kept_is_all),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, seeded, NULL);
}
