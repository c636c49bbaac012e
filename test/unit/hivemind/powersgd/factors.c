/* factors.c - PowerSGD's factors over several rounds, against recordings of hivemind's and node0's
 * averagers; rounds that fail; errors and starts that are spoilt. */
#include "factors_world.h"
#include "data/files/safetensors.h"

#include <math.h>

#define PEERS 3
#define ROUNDS 4

static struct factors *open_rank(int rank, enum factors_feedback feedback)
{
    const struct factors_options o = { .be = &be,
                                       .tensors = RECORDED,
                                       .schema = schema,
                                       .method = method,
                                       .rank = rank,
                                       .feedback = feedback };
    struct factors *f;
    assert_int_equal(factors_open(&f, &o, NULL), PL_OK);
    return f;
}

/* --- recordings ------------------------------------------------------------------------------- */

static const struct st_tensor *find(const struct st_file *file, const char *form, int r, int p,
                                    size_t t)
{
    char name[64];
    const struct st_tensor *found;
    if (r < 0) snprintf(name, sizeof name, form, p, t);
    else if (p < 0) snprintf(name, sizeof name, form, r, t);
    else snprintf(name, sizeof name, form, r, p, t);
    if (!(found = pl_safetensors_find(file, name))) fail_msg("no %s", name);
    return found;
}

static void same(const float *x, const struct st_tensor *recorded, const char *what, int r)
{
    float *want = pl_alloc(recorded->n, sizeof *want);
    double worst = 0, largest = 0;
    pl_safetensors_to_float(want, recorded);
    for (size_t i = 0; i < recorded->n; i++) {
        worst = fmax(worst, fabs((double)x[i] - want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    if (!(worst <= 1e-5 * largest)) fail_msg("round %d, %s: %g of %g", r, what, worst, largest);
    pl_free(want);
}

/* Every peer's result and error after each of four rounds; weights change between them. */
static void recorded(const char *path, enum factors_feedback feedback)
{
    static const double weight[ROUNDS][PEERS] = {
        { 3, 1, 2 }, { 3, 1, 2 }, { 1, 0.5, 4 }, { 2, 5, 1 }
    };
    struct st_file *file, *gradients;
    struct factors *f[PEERS];
    float *tensor[PEERS][RECORDED];
    float *const *gradient[PEERS] = { tensor[0], tensor[1], tensor[2] };
    assert_int_equal(pl_safetensors_open(&file, path, NULL), PL_OK);
    assert_int_equal(pl_safetensors_open(&gradients,
                                         "test/golden/outer/powersgd_wire_hivemind.safetensors",
                                         NULL),
                     PL_OK);
    for (int p = 0; p < PEERS; p++) {
        f[p] = open_rank(RANK, feedback);
        assert_int_equal(f[p]->count, 3);
        for (size_t i = 0; i < f[p]->count; i++)
            pl_safetensors_to_float(f[p]->matrix[i].Q,
                                    find(file, "p%d.q_init%zu", -1, p, f[p]->matrix[i].index));
        for (size_t t = 0; t < RECORDED; t++)
            tensor[p][t] = pl_alloc(find(gradients, "r%d.p%d.grad%zu", 0, p, t)->n, sizeof(float));
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int p = 0; p < PEERS; p++)
            for (size_t t = 0; t < RECORDED; t++)
                pl_safetensors_to_float(tensor[p][t], find(gradients, "r%d.p%d.grad%zu", r, p, t));
        play(f, gradient, PEERS, weight[r]);
        for (int p = 0; p < PEERS; p++) {
            for (size_t t = 0; t < RECORDED; t++)
                same(tensor[p][t], find(file, "r%d.out%zu", r, -1, t), "gradient", r);
            for (size_t i = 0; i < f[p]->count; i++)
                same(f[p]->matrix[i].M, find(file, "r%d.p%d.m%zu", r, p, f[p]->matrix[i].index),
                     "error", r);
        }
    }
    for (int p = 0; p < PEERS; p++) {
        factors_close(f[p]);
        for (size_t t = 0; t < RECORDED; t++) pl_free(tensor[p][t]);
    }
    pl_safetensors_close(file);
    pl_safetensors_close(gradients);
}

static void as_hivemind(void **state)
{
    recorded("test/golden/outer/powersgd_wire_hivemind.safetensors", FACTORS_GROUP);
}

static void as_node0(void **state)
{
    recorded("test/golden/outer/powersgd_wire_own.safetensors", FACTORS_OWN);
}

/* --- what goes wrong -------------------------------------------------------------------------- */

enum { A = 20, B = 24 };
static float values[A * B];
static float *tensors[] = { values };
static const struct schema_tensor one[] = {
    { .type = { .dtype = PL_F32, .dims = 2, .size = { A, B } } }
};

static struct factors *open_one(int rank)
{
    const struct factors_options o = {
        .be = &be, .tensors = 1, .schema = one, .method = method, .rank = rank
    };
    struct factors *f;
    assert_int_equal(factors_open(&f, &o, NULL), PL_OK);
    return f;
}

static void fill(float scale)
{
    for (int i = 0; i < A * B; i++) values[i] = scale * (float)((i * 37 + i / B * 11) % 53 - 26);
}

static int step(struct factors *f)
{
    int rc = factors_begin(f, tensors);
    if (!rc) rc = factors_project(f, tensors);
    return rc ? rc : factors_finish(f, tensors);
}

/* A gradient that is tried in two groups counts once. */
static void failed_rounds_change_nothing(void **state)
{
    struct factors *f = open_one(2);
    struct factors_matrix *m = &f->matrix[0];
    float M[A * B], Q[B * 2], P[A * 2], next[B * 2];
    fill(1);
    assert_int_equal(step(f), PL_OK);
    memcpy(M, m->M, sizeof M);
    memcpy(Q, m->Q, sizeof Q);
    fill(0.5f);
    for (int try = 0; try < 3; try++) {
        assert_int_equal(factors_begin(f, tensors), PL_OK);
        if (try) assert_memory_equal(m->P, P, sizeof P);
        memcpy(P, m->P, sizeof P);
        assert_int_equal(factors_project(f, tensors), PL_OK);
        if (try) assert_memory_equal(m->next, next, sizeof next);
        memcpy(next, m->next, sizeof next);
        assert_memory_equal(m->M, M, sizeof M);
        assert_memory_equal(m->Q, Q, sizeof Q);
    }
    factors_close(f);
}

/* Columns that are all positive would be nearly parallel. */
static void first_columns_have_both_signs(void **state)
{
    struct factors *f = open_rank(RANK, FACTORS_GROUP);
    double sum = 0, square = 0, n = 0;
    for (size_t i = 0; i < f->count; i++)
        for (int k = 0; k < f->matrix[i].b * RANK; k++, n++) {
            const double q = (double)f->matrix[i].Q[k];
            assert_true(fabs(q) <= 1);
            sum += q;
            square += q * q;
        }
    assert_float_equal(sum / n, 0, 0.2); /* 424 values: seven standard errors */
    assert_float_equal(square / n, 1 / 3., 0.1);
    factors_close(f);
}

/* A peer that is stopped after two rounds makes the third as if it had not been. */
static void saved_state_goes_on(void **state)
{
    struct factors *f = open_one(2), *g = open_one(2), *other = open_one(3);
    const size_t n = factors_state_bytes(f);
    uint8_t *data = malloc(n);
    float third[A * B];
    struct pl_err err;
    assert_non_null(data);
    for (int round = 0; round < 2; round++) {
        fill(1 + 0.3f * (float)round);
        values[0] = 50 * (float)round; /* not of the others' direction: an error remains */
        assert_int_equal(step(f), PL_OK);
    }
    factors_save(f, data);
    fill(0.5f);
    assert_int_equal(step(f), PL_OK);
    memcpy(third, values, sizeof third);
    assert_int_equal(factors_saved_rank(data, n), 2);
    assert_int_equal(factors_load(g, data, n, 0, &err), PL_OK);
    fill(0.5f);
    assert_int_equal(step(g), PL_OK);
    assert_memory_equal(third, values, sizeof third);
    assert_memory_equal(f->matrix[0].M, g->matrix[0].M, A * B * sizeof(float));
    assert_true(f->largest == g->largest);
    /* Of another rank, cut short, of something else, damaged: refused, and nothing changes. */
    assert_int_equal(factors_load(other, data, n, 0, &err), PL_EUSE);
    assert_int_equal(factors_load(g, data, n - 4, 0, &err), PL_EUSE);
    assert_int_equal(factors_load(g, data, 3, 0, &err), PL_EUSE);
    data[n - 1] = 0x7f, data[n - 2] = 0x80;
    assert_int_equal(factors_load(g, data, n, 0, &err), PL_EFORMAT);
    data[0] = 'x';
    assert_int_equal(factors_saved_rank(data, n), 0);
    assert_int_equal(factors_load(g, data, n, 0, &err), PL_EUSE);
    assert_memory_equal(f->matrix[0].M, g->matrix[0].M, A * B * sizeof(float));
    /* Behind the others: the factors are theirs, and the error is this peer's for a while. */
    factors_save(f, data);
    for (int64_t behind = 1; behind <= FACTORS_BEHIND_MAX + 1; behind += FACTORS_BEHIND_MAX / 2) {
        const float theirs = g->matrix[0].Q[0] = 3;
        memset(g->matrix[0].M, 0, A * B * sizeof(float));
        assert_int_equal(factors_load(g, data, n, behind, &err), PL_OK);
        assert_true(g->matrix[0].Q[0] == theirs);
        assert_int_equal(!memcmp(f->matrix[0].M, g->matrix[0].M, A * B * sizeof(float)),
                         behind <= FACTORS_BEHIND_MAX);
    }
    g->feedback = FACTORS_OWN;
    assert_int_equal(factors_load(g, data, n, 1000, &err), PL_OK);
    assert_memory_equal(f->matrix[0].M, g->matrix[0].M, A * B * sizeof(float));
    factors_close(f);
    factors_close(g);
    factors_close(other);
    free(data);
}

/* hivemind's Q is zero for good after a round without gradients [spec wire-extensions A.4]. */
static void zero_start_recovers(void **state)
{
    struct factors *f = open_one(2);
    double sum = 0;
    fill(0);
    assert_int_equal(step(f), PL_OK);
    fill(1);
    assert_int_equal(step(f), PL_OK);
    for (int i = 0; i < A * B; i++) sum += fabs((double)values[i]);
    assert_true(sum > 100);
    factors_close(f);
}

/* One column of Q alone is zero, as a groupmate's false factors may make it. */
static void zero_column_recovers(void **state)
{
    struct factors *f = open_one(2);
    int any = 0;
    for (int k = 0; k < B; k++) f->matrix[0].Q[2 * k + 1] = 0;
    fill(1);
    assert_int_equal(factors_begin(f, tensors), PL_OK);
    for (int i = 0; i < A; i++) any |= f->matrix[0].P[2 * i + 1] != 0;
    assert_true(any);
    factors_close(f);
}

/* A value that is not finite would stay in M forever. */
static void spoilt_error_is_dropped(void **state)
{
    static const float spoilt[] = { NAN, INFINITY, 3e38f };
    for (size_t i = 0; i < PL_COUNT(spoilt); i++) {
        struct factors *f = open_one(2);
        fill(1);
        assert_int_equal(step(f), PL_OK);
        f->matrix[0].M[5] = spoilt[i];
        f->matrix[0].Q[5] = i == 2 ? 3e38f : 1;
        fill(1);
        assert_int_equal(step(f), PL_OK);
        assert_non_null(f->note);
        for (int k = 0; k < A * B; k++) {
            assert_true(fabsf(f->matrix[0].M[k]) < 1e3f);
            assert_true(fabsf(values[k]) < 1e3f);
        }
        fill(1);
        assert_int_equal(step(f), PL_OK);
        assert_null(f->note);
        factors_close(f);
    }
}

/* A reducer answers with numbers that no gradient has. They are in this round's result, but not in
 * later ones nor in this peer's messages to others. */
static void false_mean_is_forgotten(void **state)
{
    struct factors *f = open_one(2);
    double sent = 0;
    fill(1);
    assert_int_equal(factors_begin(f, tensors), PL_OK);
    assert_int_equal(factors_project(f, tensors), PL_OK);
    for (int k = 0; k < B * 2; k++) f->matrix[0].next[k] = 1e18f;
    assert_int_equal(factors_finish(f, tensors), PL_OK);
    assert_non_null(f->note);
    fill(1);
    assert_int_equal(factors_begin(f, tensors), PL_OK);
    assert_int_equal(factors_project(f, tensors), PL_OK);
    for (int k = 0; k < B * 2; k++) sent = fmax(sent, fabs((double)f->matrix[0].next[k]));
    assert_true(sent < 1e3);
    factors_close(f);
}

/* Refused here, before it costs a group a round. */
static void gradient_too_large(void **state)
{
    struct factors *f = open_one(2);
    fill(1e30f);
    assert_int_equal(step(f), PL_EFORMAT);
    fill(1);
    assert_int_equal(step(f), PL_OK);
    factors_close(f);
}

static void ranks(void **state)
{
    const struct factors_options none = { .be = &be, .rank = 0 },
                                 most = { .be = &be, .rank = FACTORS_RANK_MAX + 1 };
    struct factors *f;
    struct pl_err err;
    assert_int_equal(factors_open(&f, &none, &err), PL_EUSE);
    assert_int_equal(factors_open(&f, &most, &err), PL_EUSE);
    assert_int_equal(factors_count(schema, RECORDED, 4), 3);
    assert_int_equal(factors_count(schema, RECORDED, 8), 2);
    assert_int_equal(factors_count(schema, RECORDED, 1000), 0);
    f = open_rank(1000, FACTORS_GROUP); /* two phases, the first one empty */
    assert_int_equal(f->phase[FACTORS_P].tensors, 0);
    assert_int_equal(f->phase[FACTORS_Q].tensors, RECORDED);
    factors_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_hivemind),
                                        cmocka_unit_test(as_node0),
                                        cmocka_unit_test(failed_rounds_change_nothing),
                                        cmocka_unit_test(first_columns_have_both_signs),
                                        cmocka_unit_test(saved_state_goes_on),
                                        cmocka_unit_test(zero_start_recovers),
                                        cmocka_unit_test(zero_column_recovers),
                                        cmocka_unit_test(spoilt_error_is_dropped),
                                        cmocka_unit_test(false_mean_is_forgotten),
                                        cmocka_unit_test(gradient_too_large),
                                        cmocka_unit_test(ranks) };
    pl_backend_ref(&be);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
