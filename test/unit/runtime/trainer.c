/* trainer.c - losses, gradients and parameters that are not finite: which state is kept, which is
 * dropped, and that training then continues, bit for bit, as if they had not occurred. */
#include "small_run.h"

#include <math.h>

enum { B = 2 };

static struct run begin(int bits)
{
    struct pl_train_options o = { .optimizer = pl_lamb_options(), .peak = 0.01, .total = 100 };
    o.optimizer.min_8bit = bits == 8 ? 64 : 0;
    o.optimizer.block = 64;
    o.optimizer.chunk = 128;
    return open_run(&o);
}

/* The batch with this number, the same for every run. */
static int add(struct run *r, uint64_t number, struct pl_err *err)
{
    int32_t text[B * T], codes[B * F * F];
    draw_tokens(text, PL_COUNT(text), codes, PL_COUNT(codes), number);
    return pl_trainer_add(r->t, text, codes, B, err);
}

static void step(struct run *r, uint64_t number)
{
    assert_int_equal(add(r, number, NULL), PL_OK);
    assert_int_equal(pl_trainer_mean(r->t), PL_OK);
    assert_int_equal(pl_trainer_step(r->t, NULL, NULL), PL_OK);
}

static void assert_same(const struct run *a, const struct run *b)
{
    const struct pl_optimizer *x = a->t->optimizer, *y = b->t->optimizer;
    assert_int_equal(a->t->step, b->t->step);
    assert_int_equal(a->t->samples, b->t->samples);
    assert_int_equal(pl_optimizer_steps(x), pl_optimizer_steps(y));
    assert_memory_equal(a->m->params.value, b->m->params.value, a->m->params.total * sizeof(float));
    for (size_t i = 0; i < pl_optimizer_state_count(x); i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(x, i);
        void *p = pl_alloc(s.n, s.element_size), *q = pl_alloc(s.n, s.element_size);
        assert_int_equal(pl_optimizer_state_get(x, i, p), PL_OK);
        assert_int_equal(pl_optimizer_state_get(y, i, q), PL_OK);
        assert_memory_equal(p, q, s.n * s.element_size);
        pl_free(p);
        pl_free(q);
    }
}

/* A loss that is not finite: its samples are dropped, with those accumulated before them, and
 * nothing else. */
static void bad_loss(void **state)
{
    struct run r = begin(32), without = begin(32);
    struct pl_err err = { "" };
    float *value = r.m->params.value, good;
    step(&r, 1);
    step(&without, 1);
    assert_int_equal(add(&r, 2, NULL), PL_OK);
    good = value[0];
    value[0] = NAN;
    assert_int_equal(add(&r, 3, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "loss is not finite; 4 samples dropped"));
    value[0] = good;
    assert_int_equal(r.t->samples, 0);
    step(&r, 4);
    step(&without, 4);
    assert_same(&r, &without);
    end(&r);
    end(&without);
}

/* A gradient that is not finite: no step is taken, parameters and moments stay. */
static void bad_gradient(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct run r = begin(8), without = begin(8);
        struct pl_err err = { "" };
        step(&r, 1);
        step(&without, 1);
        assert_int_equal(add(&r, 2, NULL), PL_OK);
        r.m->params.grad[7] = bad[i];
        assert_int_equal(pl_trainer_mean(r.t), PL_OK);
        assert_int_equal(pl_trainer_step(r.t, NULL, &err), PL_EFORMAT);
        assert_non_null(strstr(err.text, "step 1: the gradient is not finite; 2 samples dropped"));
        assert_same(&r, &without);
        step(&r, 3);
        step(&without, 3);
        assert_same(&r, &without);
        end(&r);
        end(&without);
    }
}

/* Parameters that are not finite after a step: everything goes back to the last saved state,
 * moments, step and all, with 8-bit moments and with others. */
static void bad_parameters(void **state)
{
    for (int bits = 8; bits <= 32; bits += 24) {
        struct run r = begin(bits), without = begin(bits);
        struct pl_err err = { "" };
        for (uint64_t i = 1; i <= 2; i++) {
            step(&r, i);
            step(&without, i);
        }
        assert_int_equal(pl_trainer_snapshot(r.t), PL_OK);
        step(&r, 3); /* after what was kept: lost with the step that fails */
        assert_int_equal(add(&r, 4, NULL), PL_OK);
        assert_int_equal(pl_trainer_mean(r.t), PL_OK);
        r.m->params.value[5] = INFINITY;
        assert_int_equal(pl_trainer_step(r.t, NULL, &err), PL_EFORMAT);
        assert_non_null(strstr(err.text, "step 3: a parameter is not finite; back at step 2"));
        assert_same(&r, &without);
        for (uint64_t i = 5; i <= 7; i++) {
            step(&r, i);
            step(&without, i);
        }
        assert_same(&r, &without);
        end(&r);
        end(&without);
    }
}

/* Bytes that a table's calls moved, and how often the square sum was asked for. */
static struct {
    struct pl_backend of;
    size_t up, down, floats, sums;
} seen;

static int counted_put(void *device, const void *host, size_t bytes)
{
    seen.up += bytes;
    return seen.of.put(device, host, bytes);
}

static int counted_get(void *host, const void *device, size_t bytes)
{
    seen.down += bytes;
    return seen.of.get(host, device, bytes);
}

static int counted_sumsq(double *sum, const float *x, size_t n)
{
    seen.sums++;
    seen.floats += n;
    return seen.of.sumsq(sum, x, n);
}

static void count(struct pl_backend *table)
{
    seen.of = *table;
    table->put = counted_put;
    table->get = counted_get;
    table->sumsq = counted_sumsq;
}

/* Samples bring their ids and labels up, and nothing else crosses the bus in either direction; a
 * step reads the gradient once for its norm and the parameters once to find values that are not
 * finite. */
static void training_data_stay_on_the_device(void **state)
{
    struct run r;
    size_t ids = sizeof(int32_t) * B * (T + F * F);
    change = count;
    r = begin(8);
    change = NULL;
    for (uint64_t k = 0; k < 2; k++) {
        seen.up = seen.down = seen.sums = seen.floats = 0;
        assert_int_equal(add(&r, k, NULL), PL_OK);
        assert_in_range(seen.up, ids, 3 * ids);
        assert_int_equal(pl_trainer_mean(r.t), PL_OK);
        assert_in_range(seen.up, ids, 3 * ids);
        assert_int_equal(pl_trainer_step(r.t, NULL, NULL), PL_OK);
        assert_in_range(seen.up, ids, 3 * ids);
        assert_int_equal(seen.down, 0);
        assert_int_equal(seen.sums, 1 + r.m->params.count);
        assert_in_range(seen.floats, 1, 2 * r.m->params.total);
    }
    end(&r);
}

/* Noise follows the learning rate, and draws anew for each sequence of each step; after a resume at
 * that step, too. */
static void noise_follows_the_schedule(void **state)
{
    struct pl_train_options o = { .optimizer = pl_lamb_options(),
                                  .peak = 0.01,
                                  .warmup = 10,
                                  .total = 100,
                                  .noise = 0.4,
                                  .noise_seed = 6 };
    struct run r = open_run(&o);
    uint64_t last;
    r.t->step = 55;
    assert_int_equal(add(&r, 1, NULL), PL_OK);
    assert_float_equal(r.m->noise.share, 0.2, 1e-12);
    assert_int_equal(r.m->noise.seed, 6);
    last = r.m->noise.first + B - 1;
    assert_int_equal(add(&r, 2, NULL), PL_OK);
    assert_int_equal(r.m->noise.first, last + 1);
    last = r.m->noise.first + B - 1;
    assert_int_equal(pl_trainer_mean(r.t), PL_OK);
    assert_int_equal(pl_trainer_step(r.t, NULL, NULL), PL_OK);
    assert_int_equal(add(&r, 3, NULL), PL_OK);
    assert_true(r.m->noise.first > last);
    assert_true(r.m->noise.share < 0.2);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_data_stay_on_the_device),
        cmocka_unit_test(noise_follows_the_schedule),
        cmocka_unit_test(bad_loss),
        cmocka_unit_test(bad_gradient),
        cmocka_unit_test(bad_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
