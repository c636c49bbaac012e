/* average.c - properties of partition, load balancing and all-reduce for any values. */
#include "ref/average.h"
#include "ref/backend.h"
#include "ref/balance.h"
#include "ref/rng.h"
#include "runtime/reducer.h"
#include "test/unit/unit.h"

#include <math.h>

static struct pl_backend be;
static struct pl_err err;

static int open_ref(void **state)
{
    pl_backend_ref(&be);
    return 0;
}

/* --- partition -------------------------------------------------------------------------------- */

/* Parts cover every tensor once, in order, and owners never go back. */
static void parts_cover_everything(void **state)
{
    const size_t elements[] = { 0, 1, 70000, 131072, 5, 0, 300001 };
    const double fraction[] = { 0.2, 0, 0.5, 0.3, 0 };
    enum pl_compression method[7];
    struct pl_part *part;
    size_t count, t = 0, at = 0;
    for (size_t i = 0; i < 7; i++) method[i] = pl_wire_adaptive(elements[i]);
    assert_int_equal(pl_partition(&part, &count, elements, method, 7, fraction, 5, 4096, &err),
                     PL_OK);
    for (size_t p = 0; p < count; p++) {
        while (part[p].tensor > t) {
            assert_int_equal(at, elements[t++]);
            at = 0;
        }
        assert_int_equal(part[p].start, at);
        assert_true(part[p].length || !elements[t]);
        assert_true(p == 0 || part[p].reducer >= part[p - 1].reducer);
        assert_true(fraction[part[p].reducer] > 0 || !part[p].length);
        at += part[p].length;
    }
    assert_int_equal(t, 6);
    assert_int_equal(at, elements[6]);
    pl_free(part);
}

static void partition_refuses(void **state)
{
    const size_t elements[] = { 10 }, huge[] = { SIZE_MAX / 2, SIZE_MAX / 2 + 2 };
    const enum pl_compression method[] = { PL_COMPRESS_NONE, PL_COMPRESS_NONE };
    const double none[] = { 0, 0 }, negative[] = { 1, -1 }, nan[] = { 1, NAN }, fine[] = { 1, 1 };
    struct pl_part *part;
    size_t count;
    assert_int_equal(pl_partition(&part, &count, elements, method, 1, none, 2, 4096, &err),
                     PL_EUSE);
    assert_int_equal(pl_partition(&part, &count, elements, method, 1, negative, 2, 4096, &err),
                     PL_EUSE);
    assert_int_equal(pl_partition(&part, &count, elements, method, 1, nan, 2, 4096, &err), PL_EUSE);
    assert_int_equal(pl_partition(&part, &count, elements, method, 1, fine, 0, 4096, &err),
                     PL_EUSE);
    assert_int_equal(pl_partition(&part, &count, huge, method, 2, fine, 2, 4096, &err), PL_ELIMIT);
    assert_null(part);
    assert_int_equal(pl_part_values(PL_COMPRESS_FLOAT16, 1), 1); /* never a part of nothing */
}

/* --- load balancing --------------------------------------------------------------------------- */

static void balance_levels(void **state)
{
    const double bandwidth[] = { 100, 50, 0, PL_BANDWIDTH_UNKNOWN, 80 };
    double w[5], sum = 0, ends = 0;
    size_t share[5], total = 0;
    assert_int_equal(pl_balance_fractions(w, bandwidth, 5, 1000000, 0, &err), PL_OK);
    assert_true(w[2] == 0);
    for (int i = 0; i < 5; i++) {
        double b = bandwidth[i] == PL_BANDWIDTH_UNKNOWN ? (100 + 50 + 80) / 3.0 : bandwidth[i], end;
        sum += w[i];
        if (w[i] == 0) continue;
        end = (3 * w[i] + 1) / b; /* all who reduce end together */
        assert_true(ends == 0 || fabs(end - ends) < 1e-9);
        ends = end;
    }
    assert_true(fabs(sum - 1) < 1e-8);
    assert_int_equal(pl_balance(share, bandwidth, 5, 1000003, 0, &err), PL_OK);
    for (int i = 0; i < 5; i++) total += share[i];
    assert_int_equal(total, 1000003);
}

/* Where the optimum is not unique a group agrees on where the original's solver ends: recorded from
 * SciPy 1.10.1. */
static void balance_ends_as_the_original(void **state)
{
    static const struct {
        int n;
        size_t total;
        double bandwidth[6], fraction[6];
        size_t share[6];
    } rows[] = {
        { 3,
          1000,
          { 1, 2, PL_BANDWIDTH_UNKNOWN },
          { 0, 0.785401316, 0.361946706 },
          { 0, 685, 315 } },
        { 2, 1000, { 100, 50 }, { 0.652284432, 0.652284432 }, { 500, 500 } },
        { 4,
          125894244,
          { 100, 50, 25, 10 },
          { 0.513195825, 0.489263643, 0.39411994, 0 },
          { 46261888, 44104529, 35527827, 0 } },
        { 6,
          1000000,
          { 1000, 10, 10, 0, 300, 20 },
          { 0.569624291, 0, 0, 0, 0.550836098, 0.159653426 },
          { 444979, 0, 0, 0, 430303, 124718 } },
    };
    double w[6];
    size_t share[6];
    for (size_t r = 0; r < PL_COUNT(rows); r++) {
        assert_int_equal(pl_balance_fractions(w, rows[r].bandwidth, rows[r].n, rows[r].total, 0,
                                              &err),
                         PL_OK);
        assert_int_equal(pl_balance(share, rows[r].bandwidth, rows[r].n, rows[r].total, 0, &err),
                         PL_OK);
        for (int i = 0; i < rows[r].n; i++) {
            assert_true(fabs(w[i] - rows[r].fraction[i]) < 2.5e-9);
            assert_true((share[i] > rows[r].share[i] ? share[i] - rows[r].share[i]
                                                     : rows[r].share[i] - share[i]) <= 1);
        }
    }
}

/* Nothing that a groupmate may say of itself is too much for it; and large groups fall back to the
 * level. */
static void balance_of_anything(void **state)
{
    static double bandwidth[600], w[600], level[600];
    struct pl_rng rng;
    pl_rng_init(&rng, 5, 0);
    for (int n = 2; n <= 40; n++)
        for (int i = 0; i < 3; i++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                bandwidth[k] = exp(pl_rng_normal(&rng) * (i == 2 ? 200 : 1));
            assert_int_equal(pl_balance_fractions(w, bandwidth, n, 1000000, 0, &err), PL_OK);
            for (int k = 0; k < n; k++) {
                assert_true(w[k] >= 0 && w[k] <= 1 + 1e-6);
                sum += w[k];
            }
            assert_true(sum >= 1 - 1e-6);
        }
    for (int k = 0; k < 600; k++) bandwidth[k] = 1 + k;
    assert_int_equal(pl_balance_fractions(w, bandwidth, 600, 1000000, 0, &err), PL_OK);
    pl_balance_level(level, bandwidth, 600);
    for (int k = 0; k < 600; k++) assert_true(fabs(w[k] - level[k]) <= 1e-9);
}

static void balance_refuses(void **state)
{
    const double none[] = { 0, 0, 0 }, negative[] = { 1, -2, 1 }, infinite[] = { 1, INFINITY };
    size_t share[3];
    assert_int_equal(pl_balance(share, none, 3, 10, 0, &err), PL_EUSE);
    assert_int_equal(pl_balance(share, negative, 3, 10, 0, &err), PL_EUSE);
    assert_int_equal(pl_balance(share, infinite, 2, 10, 0, &err), PL_EUSE);
    assert_int_equal(pl_balance(share, none, 0, 10, 0, &err), PL_EUSE);
}

/* --- groups ----------------------------------------------------------------------------------- */

#define MEMBERS 4
#define N 1000

struct fixture {
    float x[MEMBERS][2][N], before[MEMBERS][2][N];
    float *tensor[MEMBERS][2];
    struct pl_member member[MEMBERS];
    size_t elements[2];
    enum pl_compression method[2];
    struct pl_group group;
};

static struct fixture *group(enum pl_compression method)
{
    static struct fixture f;
    struct pl_rng rng;
    pl_rng_init(&rng, 7, 0);
    memset(&f, 0, sizeof f);
    for (int i = 0; i < MEMBERS; i++)
        for (int t = 0; t < 2; t++) {
            f.elements[t] = t ? 77 : N;
            f.method[t] = method;
            f.tensor[i][t] = f.x[i][t];
            for (int k = 0; k < N; k++) f.x[i][t][k] = (float)pl_rng_normal(&rng);
        }
    memcpy(f.before, f.x, sizeof f.x);
    for (int i = 0; i < MEMBERS; i++)
        f.member[i] = (struct pl_member){ PL_NODE, i + 1, i == 1 ? 0.1 : 0.3, f.tensor[i] };
    f.group = (struct pl_group){ f.member, MEMBERS, 2, f.elements, f.method, 300, NULL };
    return &f;
}

static double mean(const struct fixture *f, int t, int k)
{
    double sum = 0, weight = 0;
    for (int i = 0; i < MEMBERS; i++) {
        if (f->member[i].role == PL_AUXILIARY) continue;
        sum += f->member[i].weight * f->before[i][t][k];
        weight += f->member[i].weight;
    }
    return sum / weight;
}

static void expect_mean(const struct fixture *f, double allowed)
{
    for (int i = 0; i < MEMBERS; i++)
        for (int t = 0; t < 2; t++)
            for (int k = 0; f->member[i].role != PL_AUXILIARY && k < (int)f->elements[t]; k++)
                if (!(fabs(f->x[i][t][k] - mean(f, t, k)) <= allowed))
                    fail_msg("member %d tensor %d value %d: %g, want %g", i, t, k,
                             (double)f->x[i][t][k], mean(f, t, k));
}

static void group_gets_the_mean(void **state)
{
    struct fixture *f = group(PL_COMPRESS_NONE);
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
    expect_mean(f, 1e-6);
    f = group(PL_COMPRESS_FLOAT16); /* a half of the values, then one of the differences */
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
    expect_mean(f, 4 * 0x1p-11 * 2);
}

static void clients_and_auxiliaries(void **state)
{
    struct fixture *f = group(PL_COMPRESS_NONE);
    f->member[0].role = PL_CLIENT;
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_EUSE); /* it was to reduce */
    f->member[0].fraction = 0;
    f->member[2] = (struct pl_member){ PL_AUXILIARY, 0, 0.5, NULL };
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
    expect_mean(f, 1e-6);
}

static void zero_weights_change_nothing(void **state)
{
    for (int method = PL_COMPRESS_NONE; method < PL_COMPRESSIONS; method++) {
        struct fixture *f = group((enum pl_compression)method);
        for (int i = 0; i < MEMBERS; i++) f->member[i].weight = 0;
        assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
        assert_memory_equal(f->x, f->before, sizeof f->x);
    }
}

static void equal_values_stay(void **state)
{
    struct fixture *f = group(PL_COMPRESS_UNIFORM8);
    for (int i = 1; i < MEMBERS; i++) memcpy(f->x[i], f->x[0], sizeof f->x[0]);
    for (int i = 0; i < MEMBERS; i++) f->member[i].weight = 1;
    memcpy(f->before, f->x, sizeof f->x);
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
    /* only the codes' errors remain: bins, and the tails that they cut */
    for (int i = 0; i < MEMBERS; i++)
        for (int k = 0; k < N; k++) assert_true(fabsf(f->x[i][0][k] - f->before[i][0][k]) < 1);
}

/* The order of arrival shows in the last bits; the same order gives the same bits. */
static void order_is_repeatable(void **state)
{
    static const int order[MEMBERS] = { 2, 0, 3, 1 };
    static float first[MEMBERS][2][N];
    struct fixture *f = group(PL_COMPRESS_NONE);
    f->group.order = order;
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
    memcpy(first, f->x, sizeof first);
    expect_mean(f, 1e-6);
    f = group(PL_COMPRESS_NONE);
    f->group.order = order;
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
    assert_memory_equal(first, f->x, sizeof first);
    f = group(PL_COMPRESS_NONE);
    assert_int_equal(pl_average_group(&f->group, &be, &err), PL_OK);
    assert_true(memcmp(first, f->x, sizeof first) != 0);
}

/* --- one reducer ------------------------------------------------------------------------------ */

static void reducer_refuses(void **state)
{
    struct pl_reducer r = { 0 };
    const float x[4] = { 1, 2, 3, 4 };
    uint8_t half[8] = { 0 };
    assert_int_equal(pl_reducer_begin(&r, &be, 4), PL_OK);
    assert_int_equal(pl_reducer_add(&r, x, -1, &err), PL_EUSE);
    assert_int_equal(pl_reducer_add(&r, x, NAN, &err), PL_EUSE);
    assert_int_equal(pl_reducer_add(&r, x, INFINITY, &err), PL_EUSE);
    assert_int_equal(pl_reducer_add(&r, x, -INFINITY, &err), PL_EUSE);
    assert_int_equal(pl_reducer_add_message(&r, PL_COMPRESS_FLOAT16, half, 7, 1, &err), PL_EFORMAT);
    assert_int_equal(pl_reducer_add_message(&r, PL_COMPRESS_UNIFORM8, half, 8, 1, &err),
                     PL_EFORMAT);
    assert_int_equal(pl_reducer_add_message(&r, (enum pl_compression)99, half, 8, 1, &err),
                     PL_EFORMAT);
    assert_int_equal(r.senders, 0);
    assert_int_equal(pl_reducer_add_message(&r, PL_COMPRESS_FLOAT16, half, 8, 1, &err), PL_OK);
    assert_int_equal(pl_reducer_add(&r, x, 3, &err), PL_OK);
    assert_int_equal(r.senders, 2);
    pl_reducer_clear(&r);
}

/* A part that is smaller than the one before begins from zero again. */
static void reducer_is_reused(void **state)
{
    struct pl_reducer r = { 0 };
    const float x[4] = { 1, 2, 3, 4 };
    float delta[2];
    assert_int_equal(pl_reducer_begin(&r, &be, 4), PL_OK);
    assert_int_equal(pl_reducer_add(&r, x, 2, &err), PL_OK);
    assert_int_equal(pl_reducer_begin(&r, &be, 2), PL_OK);
    assert_int_equal(pl_reducer_add(&r, x, 1, &err), PL_OK);
    assert_int_equal(pl_reducer_add(&r, x + 2, 3, &err), PL_OK);
    assert_int_equal(pl_reducer_delta(delta, &r, x), PL_OK);
    assert_true(delta[0] == 1.5f && delta[1] == 1.5f); /* (1 + 9) / 4 - 1, (2 + 12) / 4 - 2 */
    pl_reducer_clear(&r);
}

#define LATE 10000 /* several pieces and a bit */

/* Parts are added up when the sum is asked for, by pieces, in the order of arrival: bit for bit the
 * result of adding each whole sender at once, also where some need scratch memory to be decoded. */
static void reducer_adds_up_late(void **state)
{
    static const enum pl_compression methods[] = { PL_COMPRESS_UNIFORM8, PL_COMPRESS_BLOCKWISE8,
                                                   PL_COMPRESS_FLOAT16,  PL_COMPRESS_MEANSTD16,
                                                   PL_COMPRESS_NONE,     PL_COMPRESS_QUANTILE8 };
    static float own[LATE], sum[LATE], decoded[LATE], delta[LATE], got[LATE];
    const struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { LATE } };
    uint8_t *message[PL_COUNT(methods)];
    size_t bytes[PL_COUNT(methods)];
    struct pl_reducer r = { 0 };
    struct pl_rng rng;
    float weight;
    pl_rng_init(&rng, 5, 0);
    for (int i = 0; i < LATE; i++) own[i] = (float)pl_rng_normal(&rng);
    for (int i = 0; i < LATE; i++) sum[i] = 0 + 0.7f * own[i];
    assert_int_equal(pl_reducer_begin(&r, &be, LATE), PL_OK);
    assert_int_equal(pl_reducer_add(&r, own, 0.7f, &err), PL_OK);
    for (size_t m = 0; m < PL_COUNT(methods); m++) {
        float w = 0.3f + (float)m;
        for (int i = 0; i < LATE; i++) decoded[i] = (float)pl_rng_normal(&rng);
        assert_int_equal(pl_wire_bytes(&bytes[m], methods[m], &type, &err), PL_OK);
        assert_non_null(message[m] = malloc(bytes[m]));
        assert_int_equal(pl_wire_encode(message[m], &be, methods[m], &type, decoded, &err), PL_OK);
        assert_int_equal(pl_wire_decode(decoded, &be, methods[m], &type, message[m], bytes[m],
                                        &err),
                         PL_OK);
        for (int i = 0; i < LATE; i++) sum[i] = sum[i] + w * decoded[i];
        assert_int_equal(pl_reducer_add_message(&r, methods[m], message[m], bytes[m], w, &err),
                         PL_OK);
    }
    weight = (float)r.weight;
    assert_memory_equal(pl_reducer_sum(&r), sum, sizeof sum);
    for (int i = 0; i < LATE; i++) delta[i] = sum[i] / weight - own[i];
    assert_int_equal(pl_reducer_delta(got, &r, own), PL_OK);
    assert_memory_equal(got, delta, sizeof got);
    for (size_t k = 0; k < 2; k++) { /* with all of them, and with those that need no scratch */
        memcpy(got, own, sizeof own);
        if (k) {
            assert_int_equal(pl_reducer_begin(&r, &be, LATE), PL_OK);
            assert_int_equal(pl_reducer_add(&r, got, 0.7f, &err), PL_OK);
            assert_int_equal(pl_reducer_add_message(&r, methods[0], message[0], bytes[0], 2.5,
                                                    &err),
                             PL_OK);
            assert_int_equal(pl_reducer_delta(delta, &r, got), PL_OK);
            assert_int_equal(pl_reducer_begin(&r, &be, LATE), PL_OK);
            assert_int_equal(pl_reducer_add(&r, got, 0.7f, &err), PL_OK);
            assert_int_equal(pl_reducer_add_message(&r, methods[0], message[0], bytes[0], 2.5,
                                                    &err),
                             PL_OK);
        }
        assert_int_equal(pl_reducer_apply(got, &r), PL_OK);
        for (int i = 0; i < LATE; i++) assert_true(got[i] == own[i] + delta[i]);
    }
    for (size_t m = 0; m < PL_COUNT(methods); m++) free(message[m]);
    pl_reducer_clear(&r);
}

/* Of two senders nobody keeps the sum: answers are the same before it is asked for as after. */
static void reducer_answers_a_pair(void **state)
{
    static float own[LATE], values[LATE];
    const struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { LATE } };
    uint8_t *message[2], *early[2], *late;
    struct pl_reducer r = { 0 };
    struct pl_rng rng;
    size_t bytes;
    pl_rng_init(&rng, 6, 0);
    for (int i = 0; i < LATE; i++) own[i] = (float)pl_rng_normal(&rng);
    assert_int_equal(pl_wire_bytes(&bytes, PL_COMPRESS_UNIFORM8, &type, &err), PL_OK);
    assert_non_null(late = malloc(bytes));
    for (int m = 0; m < 2; m++) {
        assert_non_null(message[m] = malloc(bytes));
        assert_non_null(early[m] = malloc(bytes));
        for (int i = 0; i < LATE; i++) values[i] = (float)pl_rng_normal(&rng);
        assert_int_equal(pl_wire_encode(message[m], &be, PL_COMPRESS_UNIFORM8, &type, values, &err),
                         PL_OK);
    }
    for (int codes = 1; codes <= 2; codes++) { /* with our own values; of one that only helps */
        assert_int_equal(pl_reducer_begin(&r, &be, LATE), PL_OK);
        if (codes == 1) assert_int_equal(pl_reducer_add(&r, own, 0.7, &err), PL_OK);
        for (int m = 0; m < codes; m++)
            assert_int_equal(pl_reducer_add_message(&r, PL_COMPRESS_UNIFORM8, message[m], bytes,
                                                    2.5 + m, &err),
                             PL_OK);
        assert_int_equal(pl_reducer_reply(late, &r, PL_COMPRESS_UNIFORM8, message[0], bytes - 1,
                                          &err),
                         PL_EFORMAT);
        for (int m = 0; m < codes; m++)
            assert_int_equal(pl_reducer_reply(early[m], &r, PL_COMPRESS_UNIFORM8, message[m], bytes,
                                              &err),
                             PL_OK);
        assert_non_null(pl_reducer_sum(&r));
        for (int m = 0; m < codes; m++) {
            assert_int_equal(pl_reducer_reply(late, &r, PL_COMPRESS_UNIFORM8, message[m], bytes,
                                              &err),
                             PL_OK);
            assert_memory_equal(early[m], late, bytes);
        }
    }
    for (int m = 0; m < 2; m++) {
        free(message[m]);
        free(early[m]);
    }
    free(late);
    pl_reducer_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_everything),
        cmocka_unit_test(partition_refuses),
        cmocka_unit_test(balance_levels),
        cmocka_unit_test(balance_ends_as_the_original),
        cmocka_unit_test(balance_of_anything),
        cmocka_unit_test(balance_refuses),
        cmocka_unit_test(group_gets_the_mean),
        cmocka_unit_test(clients_and_auxiliaries),
        cmocka_unit_test(zero_weights_change_nothing),
        cmocka_unit_test(equal_values_stay),
        cmocka_unit_test(order_is_repeatable),
        cmocka_unit_test(reducer_refuses),
        cmocka_unit_test(reducer_is_reused),
        cmocka_unit_test(reducer_adds_up_late),
        cmocka_unit_test(reducer_answers_a_pair),
    };
    return cmocka_run_group_tests(tests, open_ref, NULL);
}
