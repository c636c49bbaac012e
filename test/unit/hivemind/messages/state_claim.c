/* state_claim.c - which donors' states agree, and the decision that follows. */
#include "net/hivemind/messages/state_claim.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

#define TENSORS 3
static const size_t elements[TENSORS] = { 50000, 3000, 20 };
#define ALL 53020
static const uint8_t seed[STATE_SEED] = { 1, 2, 3 };
static float honest[ALL];

static struct state_claim claim(const float *values, int64_t epoch)
{
    struct state_claim c = { epoch, malloc(4 * state_samples_count(elements, TENSORS)) };
    size_t at = 0, first = 0;
    for (size_t t = 0; t < TENSORS; first += elements[t++])
        at += state_samples_take(c.samples + at, values + first, elements, TENSORS, t, seed);
    assert_int_equal(at, state_samples_count(elements, TENSORS));
    return c;
}

/* The honest values with a relative change of `part`, of those from `begin` to `end`. */
static struct state_claim changed(double part, size_t begin, size_t end, int64_t epoch)
{
    static float values[ALL];
    struct pl_rng rng;
    pl_rng_init(&rng, 7, begin);
    memcpy(values, honest, sizeof values);
    for (size_t i = begin; i < end; i++) values[i] += (float)(part * pl_rng_normal(&rng));
    return claim(values, epoch);
}

static int make(void **state)
{
    struct pl_rng rng;
    pl_rng_init(&rng, 5, 0);
    for (size_t i = 0; i < ALL; i++) honest[i] = (float)pl_rng_normal(&rng);
    return 0;
}

static enum state_match against_honest(struct state_claim c)
{
    struct state_claim h = claim(honest, 10);
    enum state_match m = state_claims_match(&h, &c, elements, TENSORS);
    assert_int_equal(state_claims_match(&c, &h, elements, TENSORS), m);
    free(h.samples);
    free(c.samples);
    return m;
}

static void matches(void **state)
{
    assert_int_equal(state_samples_count(elements, TENSORS), 1024 + 1024 + 20);
    assert_int_equal(against_honest(claim(honest, 10)), STATE_AGREES);
    assert_int_equal(against_honest(changed(0.05, 0, ALL, 10)), STATE_AGREES);
    assert_int_equal(against_honest(changed(0.05, 0, ALL, 12)), STATE_AGREES); /* it has gone on */
    assert_int_equal(against_honest(changed(1, 53000, ALL, 10)),
                     STATE_AGREES); /* noise in a small one */
    assert_int_equal(against_honest(changed(0.5, 0, ALL, 10)), STATE_DIFFERS);
    assert_int_equal(against_honest(changed(0.5, 0, ALL, 12)), STATE_OTHER_TIME);
    assert_int_equal(against_honest(changed(0.5, 0, ALL, 14)), STATE_DIFFERS);
    assert_int_equal(against_honest(claim(honest, 14)), STATE_DIFFERS); /* of no time near ours */
    assert_int_equal(against_honest(claim(honest, -1)), STATE_AGREES);
    assert_int_equal(against_honest(changed(0.6, 0, 10000, 10)), STATE_DIFFERS); /* a fifth of it */
    assert_int_equal(against_honest(changed(NAN, 100, 5000, 10)), STATE_DIFFERS);
    assert_int_equal(against_honest(changed(INFINITY, 0, ALL, 10)), STATE_DIFFERS);
}

/* kinds: a, b: two states that differ; A: a's samples of another time. */
static enum state_verdict judged(const char *kinds, size_t *agree, size_t *other)
{
    struct state_claim c[8];
    size_t n = strlen(kinds);
    enum state_verdict v;
    for (size_t i = 0; i < n; i++)
        c[i] = kinds[i] == 'a'   ? claim(honest, 10)
               : kinds[i] == 'A' ? changed(0.5, 0, ALL, 11)
                                 : changed(2, kinds[i], ALL, 10);
    v = state_claims_judge(agree, other, c, n, elements, TENSORS);
    for (size_t i = 0; i < n; i++) free(c[i].samples);
    return v;
}

static void verdicts(void **state)
{
    static const struct {
        const char *kinds;
        enum state_verdict want;
        size_t agree, other;
    } cases[] = {
        { "a", STATE_UNCONFIRMED, 1, 0 },
        { "aa", STATE_CONFIRMED, 2, 0 },
        { "ab", STATE_UNCONFIRMED, 1, 1 },
        { "baa", STATE_REFUTED, 1, 2 },
        { "aab", STATE_CONFIRMED, 2, 1 },
        { "aabb", STATE_CONFIRMED, 2, 2 }, /* as many as any other */
        { "aabbb", STATE_REFUTED, 2, 3 },
        { "abc", STATE_UNCONFIRMED, 1, 1 }, /* every donor differs from the others */
        { "aAA", STATE_UNCONFIRMED, 1, 0 }, /* they have gone on */
        { "aaAA", STATE_CONFIRMED, 2, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        size_t agree, other;
        enum state_verdict v = judged(cases[i].kinds, &agree, &other);
        if (v != cases[i].want || agree != cases[i].agree || other != cases[i].other)
            fail_msg("%s: %d, %zu, %zu", cases[i].kinds, v, agree, other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(matches), cmocka_unit_test(verdicts) };
    return cmocka_run_group_tests(tests, make, NULL);
}
