/* sample.c - the filters against a full sort, and samples against their probabilities. */
#include "ref/sample.h"
#include "test/unit/unit.h"

#include <math.h>

#define MOST 200

static const float *sorting;

static int falling(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    if (sorting[i] != sorting[j]) return sorting[i] < sorting[j] ? 1 : -1;
    return i - j;
}

/* The filter's definition over a full sort. */
static void by_sorting(uint8_t *keep, const float *z, int V, int top_k, double top_p)
{
    int order[MOST], left = V;
    double sum = 0, before = 0;
    for (int i = 0; i < V; i++) {
        order[i] = i;
        keep[i] = 0;
    }
    sorting = z;
    qsort(order, (size_t)V, sizeof *order, falling);
    if (top_k > 0 && top_k < V) {
        left = top_k;
        while (left < V && z[order[left]] == z[order[top_k - 1]]) left++;
    }
    for (int i = 0; i < left; i++) sum += exp((double)z[order[i]] - z[order[0]]);
    for (int i = 0; i < left; i++) {
        if (i == 0 || top_p >= 1 || before <= top_p) keep[order[i]] = 1;
        before += exp((double)z[order[i]] - z[order[0]]) / sum;
    }
}

static void filters(void **state)
{
    static const int ks[] = { 0, 1, 2, 7, 50, MOST, 1 << 30 };
    static const double ps[] = { 0, 1e-6, 0.3, 0.75, 0.9, 0.999, 1 };
    struct pl_rng rng;
    pl_rng_init(&rng, 1, 0);
    for (int round = 0; round < 60; round++) {
        int V = round < 3 ? round + 1 : 1 + (int)pl_rng_below(&rng, MOST), coarse = round % 2;
        float z[MOST];
        for (int i = 0; i < V; i++) { /* coarse: many ties */
            z[i] = (float)(2 * pl_rng_normal(&rng));
            if (coarse) z[i] = roundf(z[i]);
            if (round % 5 == 4 && i % 3) z[i] = -3.4028235e38f; /* the other vocabulary */
        }
        for (size_t k = 0; k < PL_COUNT(ks); k++)
            for (size_t p = 0; p < PL_COUNT(ps); p++) {
                uint8_t want[MOST], got[MOST];
                by_sorting(want, z, V, ks[k], ps[p]);
                assert_int_equal(pl_sample_filter(got, z, V, ks[k], ps[p]), PL_OK);
                if (memcmp(want, got, (size_t)V))
                    fail_msg("round %d, V %d, top_k %d, top_p %g", round, V, ks[k], ps[p]);
            }
    }
}

static void fraction(void **state)
{
    static const float z[] = { 3, 1, 3, 3, 2 };
    uint8_t keep[5];
    assert_int_equal(pl_sample_filter_fraction(keep, z, 5, 0.5),
                     PL_OK); /* floor 2.5: ties don't count */
    assert_memory_equal(keep, ((uint8_t[]){ 1, 0, 1, 0, 0 }), 5);
    assert_int_equal(pl_sample_filter_fraction(keep, z, 5, 0.99), PL_OK); /* never fewer than one */
    assert_memory_equal(keep, ((uint8_t[]){ 1, 0, 0, 0, 0 }), 5);
    assert_int_equal(pl_sample_filter_fraction(keep, z, 5, 0), PL_OK);
    assert_memory_equal(keep, ((uint8_t[]){ 1, 1, 1, 1, 1 }), 5);
}

static void softmax_after_filter(void **state)
{
    float z[] = { 1, 2, 3, -3.4028235e38f }, p[4];
    static const uint8_t keep[] = { 1, 0, 1, 1 };
    pl_sample_softmax(p, z, keep, 4, 0.5); /* exp(-4) : 1 */
    assert_float_equal(p[0], exp(-4) / (1 + exp(-4)), 1e-7);
    assert_float_equal(p[2], 1 / (1 + exp(-4)), 1e-7);
    assert_true(p[1] == 0 && p[3] == 0);
    pl_sample_softmax(z, z, keep, 4, 0.5);
    assert_memory_equal(z, p, sizeof p);
}

static void draws(void **state)
{
    static const float p[] = { 0, 0.5f, 0, 0.125f, 0.375f, 0 };
    enum { N = 40000 };
    int count[6] = { 0 };
    struct pl_rng rng, same;
    pl_rng_init(&rng, 7, 3);
    same = rng;
    for (int i = 0; i < N; i++) count[pl_sample_draw(p, 6, &rng)]++;
    for (int i = 0; i < 6; i++) { /* five standard deviations */
        double expected = N * (double)p[i], spread = sqrt(expected * (1 - (double)p[i]));
        assert_true(fabs(count[i] - expected) <= 5 * spread);
    }
    for (int i = 0; i < N; i++) pl_rng_u64(&same); /* one number a draw, whatever is drawn */
    assert_memory_equal(&rng, &same, sizeof rng);
}

static void whole(void **state)
{
    static const float z[] = { 0, 4, 4, -1, 3 };
    struct pl_sampling how = { .top_k = 1, .top_p = 1, .temperature = 1 };
    struct pl_rng rng;
    int seen[5] = { 0 }, id = -1;
    pl_rng_init(&rng, 5, 0);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(pl_sample(&id, z, 5, &how, &rng), PL_OK);
        seen[id]++;
    }
    assert_true(seen[1] > 60 && seen[2] > 60 && seen[1] + seen[2] == 200); /* a tie: both stay */
    assert_int_equal(pl_sample_greedy(z, 5), 1);
}

/* A network gone wrong must not send the caller out of bounds. */
static void not_a_number(void **state)
{
    float z[9];
    uint8_t keep[9];
    struct pl_sampling how = { .top_k = 4, .top_p = 0.5, .temperature = 1 };
    struct pl_rng rng;
    int id = -1;
    pl_rng_init(&rng, 5, 0);
    for (int bad = 0; bad < 4; bad++) {
        for (int i = 0; i < 9; i++) z[i] = bad == 0 ? NAN : bad == 1 ? -INFINITY : (float)i;
        if (bad == 2) z[4] = NAN;
        if (bad == 3) z[4] = INFINITY;
        assert_int_equal(pl_sample_filter(keep, z, 9, 3, 0.5), PL_OK);
        assert_int_equal(pl_sample(&id, z, 9, &how, &rng), PL_OK);
        assert_in_range(id, 0, 8);
        assert_in_range(pl_sample_greedy(z, 9), 0, 8);
    }
}

static void guidance(void **state)
{
    float given[] = { 1, 2, -3 };
    const float blank[] = { 0, 2, 1 };
    pl_sample_guide(given, given, blank, 3, 2.5);
    assert_true(given[0] == 2.5f && given[1] == 2 && given[2] == -9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),
        cmocka_unit_test(fraction),
        cmocka_unit_test(softmax_after_filter),
        cmocka_unit_test(draws),
        cmocka_unit_test(whole),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(guidance),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
