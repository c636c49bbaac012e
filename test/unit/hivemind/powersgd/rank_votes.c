/* rank_votes.c - the run's rank and its factors, by the states of a few peers of which some are
 * false. */
#include "factors_world.h"
#include "net/hivemind/powersgd/rank_votes.h"

#include <math.h>

/* A state with factors of these shapes. */
static int rank_by(int *rank, const int64_t (*shape)[2], size_t count)
{
    struct tensor_message message[8] = { 0 };
    struct state_load state = { .tensors = message, .count = count };
    for (size_t i = 0; i < count; i++)
        message[i].type = (struct pl_wire_type){ .dtype = PL_F32,
                                                 .dims = 2,
                                                 .size = { shape[i][0], shape[i][1] } };
    return rank_of_state(rank, &state, schema, RECORDED, NULL);
}

static void rank_by_shapes(void **state)
{
    static const int64_t four[][2] = { { 30, 4 }, { 64, 4 }, { 12, 4 } },
                         mixed[][2] = { { 30, 4 }, { 64, 4 }, { 12, 8 } },
                         other[][2] = { { 30, 4 }, { 64, 4 }, { 13, 4 } },
                         none[][2] = { { 30, 0 }, { 64, 0 }, { 12, 0 } },
                         huge[][2] = { { 30, 1ll << 40 }, { 64, 1ll << 40 }, { 12, 1ll << 40 } };
    int rank;
    assert_int_equal(rank_by(&rank, four, 3), PL_OK);
    assert_int_equal(rank, 4);
    assert_int_equal(rank_by(&rank, four, 0), PL_OK);
    assert_int_equal(rank, 0);
    assert_int_equal(rank_by(&rank, four, 2), PL_EUSE);
    assert_int_equal(rank_by(&rank, mixed, 3), PL_EUSE);
    assert_int_equal(rank_by(&rank, other, 3), PL_EUSE);
    assert_int_equal(rank_by(&rank, none, 3), PL_EUSE);
    assert_int_equal(rank_by(&rank, huge, 3), PL_EUSE);
}

/* Two strangers of five do not choose the rank. */
static void votes(void **state)
{
    struct rank_votes v = { .count = 0 };
    size_t n;
    rank_votes_most(&v, &n);
    assert_int_equal(n, 0);
    rank_votes_add(&v, 9, NULL, 0);
    rank_votes_add(&v, 4, NULL, 0);
    assert_int_equal(rank_votes_most(&v, &n), 9);
    rank_votes_add(&v, 4, NULL, 0);
    rank_votes_add(&v, 9, NULL, 0);
    assert_false(rank_votes_decided(&v));
    rank_votes_add(&v, 4, NULL, 0);
    assert_true(rank_votes_decided(&v));
    assert_int_equal(rank_votes_most(&v, &n), 4);
    assert_int_equal(n, 3);
    for (int i = 0; i < 5; i++) rank_votes_add(&v, 9, NULL, 0); /* too late */
    assert_int_equal(rank_votes_most(&v, &n), 4);
    v = (struct rank_votes){ .rank = { 8, 8, 8 }, .count = 3 };
    assert_true(rank_votes_decided(&v));
}

static float *factors_of(float x)
{
    float *Q = pl_alloc(3, sizeof *Q);
    assert_non_null(Q);
    for (int i = 0; i < 3; i++) Q[i] = x + (float)i;
    return Q;
}

/* Peers' factors differ by rounding. A false one among three, or one of another rank, is not taken. */
static void nearest_factors(void **state)
{
    struct rank_votes v = { .count = 0 };
    const float *Q;
    size_t n;
    assert_null(rank_votes_factors(&v, 4, &n));
    rank_votes_add(&v, 4, factors_of(1e15f), 3);
    assert_true(rank_votes_factors(&v, 4, &n)[0] == 1e15f); /* the only one */
    rank_votes_add(&v, 4, factors_of(1), 3);
    rank_votes_add(&v, 9, factors_of(-1), 3);
    rank_votes_add(&v, 4, factors_of(1.5f), 3);
    Q = rank_votes_factors(&v, 4, &n);
    assert_int_equal(n, 3);
    assert_true(Q[0] == 1 || Q[0] == 1.5f);
    assert_true(rank_votes_factors(&v, 9, &n)[0] == -1);
    rank_votes_add(&v, 4, factors_of(0), 3); /* too late: freed */
    rank_votes_clear(&v);
    assert_int_equal(v.count, 0);
}

/* A state of one matrix with these values. */
static int read_factors(float **Q, size_t *n, float *four)
{
    const struct pl_wire_type type = { .dtype = PL_F32, .dims = 2, .size = { 2, 2 } };
    struct tensor_message message = { .type = type,
                                      .method = PL_COMPRESS_NONE,
                                      .buffer = (uint8_t *)four,
                                      .bytes = 4 * sizeof *four };
    const struct state_load state = { .tensors = &message, .count = 1 };
    struct pl_err err;
    return factors_of_state(Q, n, &state, &be, &err);
}

static void bad_factors_are_refused(void **state)
{
    float good[4] = { 1, -2, 3, 4 }, nan[4] = { 1, NAN, 3, 4 }, large[4] = { 1, 2, -2e15f, 4 };
    float *Q;
    size_t n;
    assert_int_equal(read_factors(&Q, &n, good), PL_OK);
    assert_int_equal(n, 4);
    assert_memory_equal(Q, good, sizeof good);
    pl_free(Q);
    assert_int_equal(read_factors(&Q, &n, nan), PL_EFORMAT);
    assert_int_equal(read_factors(&Q, &n, large), PL_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rank_by_shapes), cmocka_unit_test(votes),
                                        cmocka_unit_test(nearest_factors),
                                        cmocka_unit_test(bad_factors_are_refused) };
    pl_backend_ref(&be);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
