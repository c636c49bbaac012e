/* vqgan_fit.c - training of a small codec: pixels, the rate over the steps, unused codes, and the weight
 * of the quantizer's loss. */
#include "runtime/vqgan_fit.h"
#include "runtime/models.h"
#include "test/unit/unit.h"

#include <math.h>

enum { SIDE = 4, PICTURES = 12, BYTES = 3 * SIDE * SIDE, CODES = 6 };

static struct pl_backend be;
static uint8_t pictures[PICTURES * BYTES];

static void open_model(struct pl_vqgan *m, int gumbel)
{
    const struct pl_vqgan_config config = { 4,    { 1, 1 }, 2, 1,     { 0 },  0,
                                            SIDE, 4,        4, CODES, gumbel, gumbel ? 0.5f : 0,
                                            2 };
    struct pl_err err;
    struct pl_rng rng;
    pl_backend_ref(&be);
    assert_int_equal(pl_vqgan_check(&config, &err), PL_OK);
    assert_int_equal(pl_vqgan_init(m, &config, &be, 1), PL_OK);
    assert_int_equal(pl_vqgan_reset(m, 3), PL_OK);
    pl_rng_init(&rng, 5, 0);
    for (size_t i = 0; i < sizeof pictures; i++) pictures[i] = (uint8_t)pl_rng_below(&rng, 256);
}

/* A byte is the nearest to its value, half way upwards; values outside are cut off. */
static void pixels_are_rounded(void **state)
{
    uint8_t all[256], back[256];
    float x[256];
    for (int i = 0; i < 256; i++) all[i] = (uint8_t)i;
    pl_pixels_in(x, all, 256);
    assert_true(x[0] == -1 && x[255] == 1);
    pl_pixels_out(back, x, 256);
    assert_memory_equal(back, all, 256);
    for (int part = -4; part <= 4; part++) { /* tenths of a byte up or down */
        for (int i = 0; i < 256; i++) x[i] = ((float)i + (float)part / 10) / 127.5f - 1;
        pl_pixels_out(back, x, 256);
        assert_memory_equal(back, all, 256);
    }
    x[0] = -5, x[1] = 5, x[2] = NAN, x[3] = INFINITY, x[4] = 0;
    pl_pixels_out(back, x, 5);
    assert_true(back[0] == 0 && back[1] == 255 && back[2] == 0 && back[3] == 255 && back[4] == 128);
}

/* The longest way that a parameter goes in a step is Adam's rate, more or less: it rises for 100 steps,
 * and at the end it is 2 % of the largest. */
static void rates(void **state)
{
    enum { STEPS = 220 };
    struct pl_vqgan_fit_options o = pl_vqgan_fit_defaults(STEPS);
    struct pl_vqgan_loss loss;
    struct pl_vqgan_fit *f;
    struct pl_vqgan m;
    double longest[STEPS] = { 0 };
    assert_true(o.lr == 1e-3 && o.batch == 8 && o.task.l1 == 1 && o.task.l2 == 2);
    assert_true(o.task.beta == 0.25f && o.task.quantizer == 1 && o.free_part == 0.1);
    open_model(&m, 0);
    o.batch = 2;
    o.reseeds = 0;
    assert_int_equal(pl_vqgan_fit_open(&f, &m, &o, pictures, PICTURES, SIDE, NULL), PL_OK);
    size_t n = m.params.total;
    float *before = malloc(n * sizeof *before);
    for (int i = 0; i < STEPS; i++) {
        size_t table = m.params.list[m.table].offset, end = table + m.params.list[m.table].n;
        memcpy(before, m.params.value, n * sizeof *before);
        assert_int_equal(pl_vqgan_fit_step(f, &loss), PL_OK);
        for (size_t k = 0; k < n; k++)
            if (k < table || k >= end) /* which k-means makes, once */
                longest[i] = fmax(longest[i], fabs((double)m.params.value[k] - before[k]));
        assert_int_equal(pl_vqgan_fit_steps(f), i + 1);
    }
    assert_true(longest[0] > 0.9e-5 && longest[0] < 1.1e-5); /* the first of Adam's is the rate */
    for (int i = 1; i < STEPS; i++) {
        double done = (double)i / STEPS, warm = fmin(1, (i + 1) / 100.0);
        double rate = 1e-3 * warm * (0.02 + 0.98 * (1 + cos(acos(-1) * done)) / 2);
        assert_true(longest[i] > 0.3 * rate && longest[i] < 4 * rate);
    }
    free(before);
    pl_vqgan_fit_close(f);
    pl_vqgan_clear(&m);
}

/* Codes that nothing chooses move, and those in use stay: two of them are put where no map comes. */
static void unused_codes_move(void **state)
{
    struct pl_vqgan_fit_options o = pl_vqgan_fit_defaults(40);
    struct pl_vqgan_loss loss;
    struct pl_vqgan_fit *f;
    struct pl_vqgan m;
    float table[CODES][4];
    int used[CODES], in_use = 0;
    open_model(&m, 0);
    o.batch = 4;
    o.lr = 1e-9; /* nothing else moves them */
    assert_int_equal(pl_vqgan_fit_open(&f, &m, &o, pictures, PICTURES, SIDE, NULL), PL_OK);
    for (int i = 0; i < 16; i++) { /* 4 without codes, then a table by k-means */
        assert_int_equal(pl_vqgan_fit_step(f, &loss), PL_OK);
        if (i != 4) continue;
        assert_int_equal(pl_params_get(&m.params, m.table, table[0]), PL_OK);
        for (int c = 0; c < CODES; c++) /* a mean of the encoder's maps, none of which is zero */
            assert_true(table[c][0] != 0 || table[c][1] != 0);
        for (int k = 0; k < 4; k++) table[1][k] = table[4][k] = 1e3f;
        assert_int_equal(pl_params_put(&m.params, m.table, table[0]), PL_OK);
    }
    float now[CODES][4]; /* mended at 10 and 16; the fifth step had used the old ones */
    for (int mended = 0; mended < 2; mended++) {
        assert_int_equal(pl_params_get(&m.params, m.table, now[0]), PL_OK);
        for (int c = 0; c < CODES; c++) {
            int far = fabsf(now[c][0]) > 900;
            assert_int_equal(far, !mended && (c == 1 || c == 4));
            for (int k = 0; k < 4 && mended && used[c]; k++)
                assert_true(fabsf(now[c][k] - table[c][k]) < 1e-6f);
            if (!mended) used[c] = pl_vqgan_fit_place(f).uses[c] > 0, in_use += used[c];
        }
        assert_true(in_use > 0);
        memcpy(table, now, sizeof table);
        assert_int_equal(pl_vqgan_fit_step(f, &loss), PL_OK);
    }
    pl_vqgan_fit_close(f);
    pl_vqgan_clear(&m);
}

/* Each round is in an order of its own, which the seed decides. A picture may keep its place: one in a
 * round does, on average. */
static void orders_are_drawn(void **state)
{
    enum { ROUNDS = 10 };
    size_t order[2][ROUNDS][PICTURES], kept = 0;
    for (size_t seed = 0; seed < 2; seed++) {
        struct pl_vqgan_fit_options o = pl_vqgan_fit_defaults(ROUNDS);
        struct pl_vqgan_loss loss;
        struct pl_vqgan_fit *f;
        struct pl_vqgan m;
        open_model(&m, 0);
        o.batch = PICTURES;
        o.seed = seed;
        o.reseeds = 0;
        assert_int_equal(pl_vqgan_fit_open(&f, &m, &o, pictures, PICTURES, SIDE, NULL), PL_OK);
        for (int r = 0; r < ROUNDS; r++) {
            assert_int_equal(pl_vqgan_fit_step(f, &loss), PL_OK);
            memcpy(order[seed][r], pl_vqgan_fit_place(f).order, sizeof order[seed][r]);
            for (int k = 0; r > 2 && k < PICTURES; k++) /* codes by k-means draw, too */
                kept += order[seed][r][k] == order[seed][r - 1][k];
        }
        pl_vqgan_fit_close(f);
        pl_vqgan_clear(&m);
    }
    assert_true(kept > 0 && kept < 2 * ROUNDS * PICTURES / 4);
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
}

/* Makes `more` steps after those that were made elsewhere: from its parameters, moments and place. */
static void go_on(struct pl_vqgan *to, const struct pl_vqgan *from, struct pl_vqgan_fit *f,
                  int more)
{
    struct pl_vqgan_fit_options o = pl_vqgan_fit_defaults(40);
    struct pl_vqgan_fit_place at = pl_vqgan_fit_place(f);
    struct pl_optimizer *old = pl_vqgan_fit_optimizer(f), *new;
    struct pl_vqgan_loss loss;
    struct pl_vqgan_fit *g;
    o.batch = 5; /* does not divide the pictures: the order is in the middle of a round */
    assert_int_equal(pl_vqgan_fit_open(&g, to, &o, pictures, PICTURES, SIDE, NULL), PL_OK);
    memcpy(to->params.value, from->params.value, to->params.total * sizeof(float));
    new = pl_vqgan_fit_optimizer(g);
    for (size_t i = 0; i < pl_optimizer_state_count(old); i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(old, i);
        char *copy = malloc(s.n * s.element_size);
        assert_int_equal(pl_optimizer_state_get(old, i, copy), PL_OK);
        assert_int_equal(pl_optimizer_state_put(new, i, copy), PL_OK);
        free(copy);
    }
    pl_optimizer_set_steps(new, pl_optimizer_steps(old));
    assert_int_equal(pl_vqgan_fit_set_place(g, &at), PL_OK);
    for (int i = 0; i < more; i++) assert_int_equal(pl_vqgan_fit_step(g, &loss), PL_OK);
    pl_vqgan_fit_close(g);
}

/* Stopped before the table is made, before it is mended, and after: the end has the same bits. */
static void stopped_and_gone_on(void **state)
{
    static const int stops[] = { 2, 7, 13 };
    for (size_t k = 0; k < PL_COUNT(stops); k++) {
        struct pl_vqgan_fit_options o = pl_vqgan_fit_defaults(40);
        struct pl_vqgan_fit_place at;
        struct pl_vqgan_loss loss;
        struct pl_vqgan_fit *f;
        struct pl_vqgan m, other;
        size_t order[PICTURES];
        open_model(&m, 0);
        open_model(&other, 0);
        o.batch = 5;
        assert_int_equal(pl_vqgan_fit_open(&f, &m, &o, pictures, PICTURES, SIDE, NULL), PL_OK);
        for (int i = 0; i < stops[k]; i++) assert_int_equal(pl_vqgan_fit_step(f, &loss), PL_OK);
        go_on(&other, &m, f, 20 - stops[k]);
        for (int i = stops[k]; i < 20; i++) assert_int_equal(pl_vqgan_fit_step(f, &loss), PL_OK);
        assert_memory_equal(m.params.value, other.params.value, m.params.total * sizeof(float));
        /* No place of this training. */
        at = pl_vqgan_fit_place(f);
        memcpy(order, at.order, sizeof order);
        order[0] = order[1];
        at.order = order;
        assert_int_equal(pl_vqgan_fit_set_place(f, &at), PL_EFORMAT);
        order[0] = PICTURES;
        assert_int_equal(pl_vqgan_fit_set_place(f, &at), PL_EFORMAT);
        at = pl_vqgan_fit_place(f);
        at.next = PICTURES + 1;
        assert_int_equal(pl_vqgan_fit_set_place(f, &at), PL_EFORMAT);
        at.next = 0;
        at.step = 41;
        assert_int_equal(pl_vqgan_fit_set_place(f, &at), PL_EFORMAT);
        assert_int_equal(pl_vqgan_fit_steps(f), 20);
        pl_vqgan_fit_close(f);
        pl_vqgan_clear(&m);
        pl_vqgan_clear(&other);
    }
}

/* The gradient is linear in the weight of the quantizer's loss, for both kinds of codes. */
static void weights_of_the_quantizer(void **state)
{
    for (int gumbel = 0; gumbel < 2; gumbel++) {
        struct pl_vqgan m;
        struct pl_vqgan_task task = pl_vqgan_published_task();
        struct pl_vqgan_loss loss[3];
        float *grad[3], x[2 * BYTES];
        double largest = 0;
        open_model(&m, gumbel);
        pl_pixels_in(x, pictures, 2 * BYTES);
        size_t n = m.params.total;
        for (int k = 0; k < 3; k++) {
            task.quantizer = (float)(4 * k);
            assert_int_equal(be.fill(m.params.grad, 0, n), PL_OK);
            assert_int_equal(pl_vqgan_gradient(&m, &loss[k], NULL, NULL, &task, x, NULL, 2, SIDE,
                                               SIDE),
                             PL_OK);
            grad[k] = malloc(n * sizeof *grad[k]);
            memcpy(grad[k], m.params.grad, n * sizeof *grad[k]);
        }
        for (size_t i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)grad[2][i] - grad[0][i]));
        assert_true(largest > 1e-6);
        for (size_t i = 0; i < n; i++) {
            double whole = (double)grad[2][i] - grad[0][i], half = (double)grad[1][i] - grad[0][i];
            assert_true(fabs(whole - 2 * half) < 1e-3 * largest);
        }
        assert_true(fabs(loss[1].total - loss[0].total - 4 * loss[1].quantizer) < 1e-6);
        for (int k = 0; k < 3; k++) free(grad[k]);
        pl_vqgan_clear(&m);
    }
}

static void refusals(void **state)
{
    struct pl_vqgan_fit_options o = pl_vqgan_fit_defaults(10);
    struct pl_vqgan_fit *f;
    struct pl_vqgan m;
    struct pl_err err;
    open_model(&m, 0);
    for (int k = 0; k < 6; k++) { /* as many pictures as a batch are enough, and not one fewer */
        o.batch = k == 0 ? 0 : k == 1 ? 4 : k == 2 ? 5 : 1;
        int side = k == 3 ? 3 : SIDE, good = k == 1 || k >= 4;
        size_t count = k == 5 ? 1 : 4;
        assert_int_equal(pl_vqgan_fit_open(&f, &m, &o, pictures, count, side, &err),
                         good ? PL_OK : PL_EUSE);
        if (good) pl_vqgan_fit_close(f);
        else assert_null(f);
    }
    pl_vqgan_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_rounded),
        cmocka_unit_test(rates),
        cmocka_unit_test(unused_codes_move),
        cmocka_unit_test(orders_are_drawn),
        cmocka_unit_test(stopped_and_gone_on),
        cmocka_unit_test(weights_of_the_quantizer),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
