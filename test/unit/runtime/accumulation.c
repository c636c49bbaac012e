/* accumulation.c - batches of unequal size are one large batch: losses and gradients sample by sample;
 * and the settings of the reference run, which every peer must share. */
#include "small_run.h"

#include <math.h>

enum { MOST = 16 };

static int32_t text[MOST * T], codes[MOST * F * F];

static struct run begin(const struct pl_optimizer_options *optimizer)
{
    struct pl_train_options o = { .optimizer = optimizer ? *optimizer : pl_lamb_options(),
                                  .peak = 0.01,
                                  .warmup = 4,
                                  .total = 14 };
    draw_tokens(text, PL_COUNT(text), codes, PL_COUNT(codes), 0);
    return open_run(&o);
}

static int add(struct run *r, int first, int B)
{
    return pl_trainer_add(r->t, text + first * T, codes + first * F * F, B, NULL);
}

static float *copy_of(const struct run *r, const float *x)
{
    size_t bytes = r->m->params.total * sizeof(float);
    return memcpy(malloc(bytes), x, bytes);
}

static void check_near(const float *got, const float *want, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(want[i]));
    assert_true(largest > 0);
    for (size_t i = 0; i < n; i++) assert_true(fabsf(got[i] - want[i]) <= 2e-5f * largest);
}

/* --- sums and means ---------------------------------------------------------------------------- */

/* Batches of each list have 6 samples together: the sums of losses are those of single samples, and
 * the mean gradient is that of one batch of 6. */
static void batches_of_unequal_size(void **state)
{
    static const int sizes[][4] = {
        { 1, 3, 2, 0 }, { 5, 1, 0, 0 }, { 6, 0, 0, 0 }, { 1, 1, 1, 3 }
    };
    struct pl_dalle_loss sum = { 0 }, one;
    struct pl_err err;
    struct run whole = begin(NULL);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pl_dalle_evaluate(whole.m, text + i * T, codes + i * F * F, 1, &one, NULL,
                                           &err),
                         PL_OK);
        sum.total += one.total, sum.text += one.text, sum.image += one.image;
        assert_true(fabs(one.total - (one.text + 7 * one.image) / 8) < 1e-12 * one.total);
    }
    /* the gradient of the mean loss of 6 samples */
    assert_int_equal(pl_dalle_step(whole.m, text, codes, 6, 1, &one, &err), PL_OK);
    assert_true(fabs(6 * one.total - sum.total) < 1e-5 * sum.total);
    float *want = copy_of(&whole, whole.m->params.grad);
    for (size_t k = 0; k < PL_COUNT(sizes); k++) {
        struct run r = begin(NULL);
        struct pl_train_report report;
        int done = 0;
        double norm = 0;
        for (int i = 0; i < 4 && sizes[k][i]; done += sizes[k][i++]) {
            assert_int_equal(add(&r, done, sizes[k][i]), PL_OK);
            assert_int_equal(r.t->samples, done + sizes[k][i]);
        }
        assert_true(fabs(r.t->sum.total - sum.total) < 1e-5 * sum.total);
        assert_true(fabs(r.t->sum.text - sum.text) < 1e-5 * sum.text);
        assert_true(fabs(r.t->sum.image - sum.image) < 1e-5 * sum.image);
        assert_int_equal(pl_trainer_mean(r.t), PL_OK);
        check_near(r.m->params.grad, want, r.m->params.total);
        for (size_t i = 0; i < r.m->params.total; i++)
            norm += (double)r.m->params.grad[i] * r.m->params.grad[i];
        assert_int_equal(pl_trainer_step(r.t, &report, NULL), PL_OK);
        assert_int_equal(report.samples, 6);
        assert_true(fabs(report.loss.total - sum.total / 6) < 1e-5 * sum.total);
        assert_true(fabs(report.loss.text - sum.text / 6) < 1e-5 * sum.text);
        assert_true(fabs(report.loss.image - sum.image / 6) < 1e-5 * sum.image);
        assert_true(fabs(report.grad_norm - sqrt(norm)) < 1e-9 * report.grad_norm);
        assert_true(report.lr == 0); /* the warm-up begins at nothing */
        assert_true(r.t->samples == 0 && r.t->sum.total == 0 && r.t->sum.text == 0);
        for (size_t i = 0; i < r.m->params.total; i++) assert_true(r.m->params.grad[i] == 0);
        end(&r);
    }
    free(want);
    end(&whole);
}

/* The mean of one sample is that sample's gradient; without samples the mean stays as it was. */
static void means_of_one_and_of_none(void **state)
{
    struct run r = begin(NULL), single = begin(NULL);
    struct pl_dalle_loss loss;
    assert_int_equal(pl_trainer_mean(r.t), PL_OK);
    assert_int_equal(add(&r, 0, 1), PL_OK);
    float *sum = copy_of(&r, r.m->params.grad);
    assert_int_equal(pl_trainer_mean(r.t), PL_OK);
    assert_memory_equal(sum, r.m->params.grad, r.m->params.total * sizeof(float));
    assert_int_equal(pl_dalle_step(single.m, text, codes, 1, 1, &loss, NULL), PL_OK);
    check_near(r.m->params.grad, single.m->params.grad, r.m->params.total);
    free(sum);
    end(&r);
    end(&single);
}

/* The schedule follows the steps: 4 of warm-up to 0.01, then down to nothing at 14. */
static void rates_of_steps(void **state)
{
    struct run r = begin(NULL);
    for (int step = 0; step <= 15; step++) {
        struct pl_train_report report;
        double want = step <= 4 ? 0.01 * step / 4 : step < 14 ? 0.01 * (14 - step) / 10 : 0;
        assert_int_equal(add(&r, step % 8, 1 + step % 3), PL_OK);
        assert_int_equal(pl_trainer_mean(r.t), PL_OK);
        assert_int_equal(pl_trainer_step(r.t, &report, NULL), PL_OK);
        assert_true(fabs(report.lr - want) < 1e-15);
        assert_int_equal(report.samples, 1 + step % 3);
        assert_int_equal(r.t->step, step + 1);
    }
    end(&r);
}

/* A loss that is infinite is no more use than a NaN. */
static void infinite_losses(void **state)
{
    struct run r = begin(NULL);
    struct pl_err err = { "" };
    float *bias = pl_params_value(&r.m->params, r.m->output_bias);
    for (int i = 0; i < VI; i++) codes[i] = 0; /* the first sample's image: code 0 */
    assert_int_equal(add(&r, 2, 3), PL_OK);
    bias[pl_dalle_text_rows(&r.m->config)] = -INFINITY; /* code 0 can't be drawn: its loss */
    assert_int_equal(pl_trainer_add(r.t, text, codes, 1, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "4 samples dropped"));
    assert_true(r.t->samples == 0 && r.t->sum.total == 0);
    for (size_t i = 0; i < r.m->params.total; i++) assert_true(r.m->params.grad[i] == 0);
    end(&r);
}

/* --- delayed steps ----------------------------------------------------------------------------- */

static void check_same(const struct run *a, const struct run *b)
{
    assert_memory_equal(a->m->params.value, b->m->params.value, a->m->params.total * sizeof(float));
    assert_int_equal(a->t->step, b->t->step);
    assert_int_equal(pl_optimizer_steps(a->t->optimizer), pl_optimizer_steps(b->t->optimizer));
}

/* With nothing meanwhile a delayed step is the step itself; samples that came meanwhile stay. */
static void delayed_steps(void **state)
{
    struct run r = begin(NULL), direct = begin(NULL);
    for (int i = 0; i < 4; i++) {
        struct pl_train_report report, want;
        assert_int_equal(add(&r, i, 2 + i), PL_OK);
        assert_int_equal(add(&direct, i, 2 + i), PL_OK);
        assert_int_equal(pl_trainer_mean(r.t), PL_OK);
        assert_int_equal(pl_trainer_mean(direct.t), PL_OK);
        assert_int_equal(pl_trainer_begin_delayed(r.t), PL_OK);
        assert_memory_equal(pl_trainer_delayed_grad(r.t), direct.m->params.grad,
                            r.m->params.total * sizeof(float));
        assert_true(r.t->samples == 0 && r.t->sum.total == 0);
        float *before = copy_of(&r, r.m->params.value);
        assert_int_equal(pl_trainer_step_delayed(r.t, &report, NULL), PL_OK);
        assert_memory_equal(before, r.m->params.value, r.m->params.total * sizeof(float));
        assert_int_equal(r.t->step, i);
        assert_int_equal(pl_trainer_step(direct.t, &want, NULL), PL_OK);
        assert_memory_equal(&report, &want, sizeof report);
        if (i == 3) assert_int_equal(add(&r, 7, 5), PL_OK);
        assert_int_equal(pl_trainer_apply_delayed(r.t), PL_OK);
        check_same(&r, &direct);
        free(before);
    }
    assert_int_equal(r.t->samples, 5);
    end(&r);
    end(&direct);
}

/* A delayed step that failed changes nothing when it is applied, and is forgotten by the next. */
static void delayed_steps_that_fail(void **state)
{
    struct run r = begin(NULL), without = begin(NULL);
    struct pl_train_report report;
    struct pl_err err = { "" };
    for (int i = 0; i < 2; i++) {
        struct run *both[] = { &r, &without };
        for (int k = 0; k < 2; k++) {
            assert_int_equal(add(both[k], 0, 2), PL_OK);
            assert_int_equal(pl_trainer_mean(both[k]->t), PL_OK);
            assert_int_equal(pl_trainer_begin_delayed(both[k]->t), PL_OK);
            assert_int_equal(pl_trainer_step_delayed(both[k]->t, &report, NULL), PL_OK);
            assert_int_equal(pl_trainer_apply_delayed(both[k]->t), PL_OK);
        }
        check_same(&r, &without);
        assert_int_equal(add(&r, 3, 3), PL_OK);
        assert_int_equal(pl_trainer_mean(r.t), PL_OK);
        assert_int_equal(pl_trainer_begin_delayed(r.t), PL_OK);
        pl_trainer_delayed_grad(r.t)[3] = NAN;
        assert_int_equal(pl_trainer_step_delayed(r.t, &report, &err), PL_EFORMAT);
        assert_non_null(strstr(err.text, "3 samples dropped"));
        r.m->params.value[0] += 1; /* parameters were averaged meanwhile */
        assert_int_equal(pl_trainer_apply_delayed(r.t), PL_OK);
        r.m->params.value[0] -= 1;
        assert_int_equal(r.t->step, i + 1);
        without.m->params.value[0] += 1;
        without.m->params.value[0] -= 1;
        check_same(&r, &without);
    }
    end(&r);
    end(&without);
}

/* --- settings ---------------------------------------------------------------------------------- */

static void settings_of_the_run(void **state)
{
    struct pl_optimizer_options o = pl_lamb_options();
    struct pl_dalle_config c;
    assert_true(o.kind == PL_LAMB && o.beta1 == 0.9 && o.beta2 == 0.96 && o.eps == 1e-6);
    assert_true(o.decay == 0.045 && o.max_grad_norm == 4 && o.clamp == 1e4);
    assert_true(o.min_8bit == 65536 && o.block == 4096 && o.rule == PL_RULE_RUN);
    assert_true(!o.bias_correction && !o.keep_grad && !o.host && o.chunk == 1 << 24);
    for (int bits = 8; bits <= 32; bits += 24) {
        o = pl_adam_options(0.125, bits);
        assert_true(o.kind == PL_ADAM && o.beta1 == 0.9 && o.beta2 == 0.999 && o.eps == 1e-8);
        assert_true(o.decay == 0.125 && o.max_grad_norm == 0 && o.bias_correction == 1);
        assert_true(o.min_8bit == (bits == 8 ? 4096 : 0) && o.block == 256);
        assert_true(o.rule == PL_RULE_LUT && !o.keep_grad && !o.host && !o.chunk);
    }
    assert_int_equal(pl_dalle_config_named(&c, "run", NULL), PL_OK);
    assert_true(c.T == 256 && c.F == 32 && c.D == 1024 && c.H == 16 && c.d == 64 && c.L == 64);
    assert_true(c.V == 32100 && c.Vi == 8192 && c.pad == 1 && c.image_weight == 7);
}

/* With zero gradients LAMB's update is the decay alone: it shrinks what decays by the rate, and leaves
 * biases and scales as they are. */
static void biases_and_scales_do_not_decay(void **state)
{
    struct run r = begin(NULL);
    struct pl_params *p = &r.m->params;
    int decayed = 0;
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < p->list[i].n; k++) p->value[p->list[i].offset + k] = 1;
    assert_int_equal(pl_optimizer_step(r.t->optimizer, p->value, p->grad, 0.25), PL_OK);
    for (size_t i = 0; i < p->count; i++) {
        const struct pl_param *t = &p->list[i];
        size_t n = strlen(t->name);
        int is_bias = n > 5 && !strcmp(t->name + n - 5, ".bias");
        if (is_bias) assert_int_equal(t->decay, 0);
        for (size_t k = 0; k < t->n; k++) {
            float got = p->value[t->offset + k];
            if (t->decay) assert_true(fabsf(got - 0.75f) < 1e-6f);
            else assert_true(got == 1);
        }
        decayed += t->decay;
    }
    assert_true(decayed > 0 && (size_t)decayed < p->count);
    end(&r);
}

/* A gradient shorter than the limit is not stretched to it; one at the limit is left, too. */
static void short_gradients_are_not_clipped(void **state)
{
    for (int k = 0; k < 3; k++) {
        struct pl_optimizer_options o = pl_adam_options(0, 32), clipped = o;
        double norm;
        o.eps = clipped.eps = 1; /* without it Adam would not see a factor */
        struct run a = begin(&o);
        assert_int_equal(add(&a, 0, 3), PL_OK);
        assert_int_equal(pl_optimizer_grad_norm(a.t->optimizer, a.m->params.grad, &norm), PL_OK);
        clipped.max_grad_norm = norm * (k == 0 ? 100 : k == 1 ? 1.001 : 0.5);
        struct run b = begin(&clipped);
        assert_int_equal(add(&b, 0, 3), PL_OK);
        assert_int_equal(pl_optimizer_step(a.t->optimizer, a.m->params.value, a.m->params.grad, 1),
                         PL_OK);
        assert_int_equal(pl_optimizer_step(b.t->optimizer, b.m->params.value, b.m->params.grad, 1),
                         PL_OK);
        assert_true(!memcmp(a.m->params.value, b.m->params.value,
                            a.m->params.total * sizeof(float)) == (k < 2));
        end(&a);
        end(&b);
    }
}

/* An offloaded optimizer that is given another buffer of values takes them from there. */
static void moved_values_are_offloaded_from_their_new_place(void **state)
{
    enum { N = 100 };
    static const struct pl_optimizer_tensor tensor = { .n = N, .decay = 0.01 };
    struct pl_optimizer_options o = pl_adam_options(0.01, 32), offloaded;
    struct pl_optimizer *a, *b;
    float x[3][2][N], g[2][N];
    pl_backend_ref(&be);
    offloaded = o;
    offloaded.host = &be;
    assert_int_equal(pl_optimizer_open(&a, &be, &o, &tensor, 1, NULL), PL_OK);
    assert_int_equal(pl_optimizer_open(&b, &be, &offloaded, &tensor, 1, NULL), PL_OK);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++) x[k][0][i] = x[k][1][i] = (float)(k + 1) * (float)(i - 40);
    for (int step = 0; step < 7; step++) {
        int k = step % 3; /* three buffers in turn */
        for (int i = 0; i < N; i++) g[0][i] = g[1][i] = (float)(i % 7 - 3 + step);
        assert_int_equal(pl_optimizer_step(a, x[k][0], g[0], 0.1), PL_OK);
        assert_int_equal(pl_optimizer_step(b, x[k][1], g[1], 0.1), PL_OK);
        assert_memory_equal(x[k][0], x[k][1], sizeof x[k][0]);
        if (step == 4) { /* written by others: it has to be reported */
            for (int c = 0; c < 2; c++) x[k][c][5] = 77;
            pl_optimizer_written(b, x[k][1]);
        }
    }
    pl_optimizer_close(a);
    pl_optimizer_close(b);
}

/* --- ids --------------------------------------------------------------------------------------- */

/* Every id of the vocabulary is one, and the next on either side is none. */
static void ids_at_the_border(void **state)
{
    struct run r = begin(NULL);
    const struct pl_dalle_config *c = &r.m->config;
    static const int32_t ids[] = { -1, 0, VI - 1, VI, V - 1, V };
    struct pl_err err;
    for (size_t i = 0; i < PL_COUNT(ids); i++)
        for (int at = 0; at < 2 * T + 2 * F * F; at++) {
            int32_t t[2 * T] = { 0 }, q[2 * F * F] = { 0 };
            int is_text = at < 2 * T, most = is_text ? V : VI;
            *(is_text ? &t[at] : &q[at - 2 * T]) = ids[i];
            assert_int_equal(pl_dalle_check_ids(c, t, q, F * F, 2, &err),
                             ids[i] >= 0 && ids[i] < most ? PL_OK : PL_EUSE);
        }
    end(&r);
}

/* The sequence is the start token, the text and all codes but the last: nothing behind it. */
static void sequences(void **state)
{
    struct run r = begin(NULL);
    const struct pl_dalle_config *c = &r.m->config;
    static const int32_t t[T] = { 3, 0, 4 }, q[F * F] = { 4, 0, 2, 1 };
    int32_t ids[1 + T + F * F + 2];
    for (int count = 0; count <= F * F; count++) {
        int used = count < F * F ? count : F * F - 1, rows = V + T;
        for (size_t i = 0; i < PL_COUNT(ids); i++) ids[i] = -77;
        pl_dalle_ids(c, ids, t, q, count);
        assert_true(ids[0] == 0 && ids[1] == 3 && ids[2] == V + 1 && ids[3] == 4);
        for (int i = 0; i < used; i++) assert_int_equal(ids[1 + T + i], rows + q[i]);
        for (size_t i = 1 + T + (size_t)used; i < PL_COUNT(ids); i++) assert_int_equal(ids[i], -77);
    }
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_of_unequal_size),
        cmocka_unit_test(means_of_one_and_of_none),
        cmocka_unit_test(rates_of_steps),
        cmocka_unit_test(infinite_losses),
        cmocka_unit_test(delayed_steps),
        cmocka_unit_test(delayed_steps_that_fail),
        cmocka_unit_test(settings_of_the_run),
        cmocka_unit_test(biases_and_scales_do_not_decay),
        cmocka_unit_test(short_gradients_are_not_clipped),
        cmocka_unit_test(moved_values_are_offloaded_from_their_new_place),
        cmocka_unit_test(ids_at_the_border),
        cmocka_unit_test(sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
