/* replicas.c - one model on several devices, here threads that share the reference backend: together
 * they take the step that one device takes alone, whatever the batch. */
#include "runtime/replicas.h"
#include "small_run.h"

#include <math.h>

enum { MOST = 5, DEVICES = 4 };

static int32_t text[MOST * T], codes[MOST * F * F];
static int failing = -1;

static int use_device(int index) { return index == failing ? PL_EDEVICE : PL_OK; }
static int peer_copy(float *y, const float *x, int index, size_t n, int add)
{
    assert_in_range(index, 0, DEVICES - 1);
    return add ? be.axpy(y, 1, x, n) : be.copy(y, x, n);
}

static void several(struct pl_backend *table)
{
    table->use_device = use_device;
    table->peer_copy = peer_copy;
}

static void is_near(const float *got, const float *want, size_t n)
{
    double most = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)want[i] - got[i]));
    }
    assert_true(most > 0 && worst <= 2e-6 * most);
}

/* The gradient of a batch is the mean of its samples', in shares of any size, also of none. Noise
 * goes by the number of the sample in the batch. */
static void together_as_alone(void **state)
{
    const struct pl_train_options o = { .optimizer = pl_lamb_options(), .peak = 1, .total = 10 };
    struct run r;
    change = several;
    r = open_run(&o);
    size_t n = r.m->params.total;
    float *grad = r.m->params.grad, *want = malloc(n * sizeof *want),
          *twice = malloc(n * sizeof *want);
    draw_tokens(text, MOST * T, codes, MOST * F * F, 3);
    r.m->noise = (struct pl_token_noise){ .share = 0.5, .seed = 3, .first = 11 };
    for (int B = 1; B <= MOST; B++) {
        struct pl_dalle_loss alone, loss;
        memset(grad, 0, n * sizeof *grad);
        assert_int_equal(pl_dalle_step(r.m, text, codes, B, 2, &alone, NULL), PL_OK);
        memcpy(want, grad, n * sizeof *want);
        for (size_t i = 0; i < n; i++) twice[i] = 2 * want[i];
        for (int count = 1; count <= DEVICES; count++) {
            struct pl_replicas *all;
            assert_int_equal(pl_replicas_open(&all, r.m, count, NULL), PL_OK);
            memset(grad, 0, n * sizeof *grad);
            assert_int_equal(pl_replicas_step(all, text, codes, B, 2, &loss, NULL), PL_OK);
            assert_int_equal(pl_replicas_sum(all), PL_OK);
            is_near(grad, want, n);
            assert_true(fabs(loss.total - alone.total) < 1e-6 * alone.total);
            assert_true(fabs(loss.text - alone.text) < 1e-6 * alone.text);
            assert_true(fabs(loss.image - alone.image) < 1e-6 * alone.image);
            /* The others' gradients are zero now: a second step adds its own, once. */
            assert_int_equal(pl_replicas_step(all, text, codes, B, 2, &loss, NULL), PL_OK);
            assert_int_equal(pl_replicas_sum(all), PL_OK);
            is_near(grad, twice, n);
            /* What is dropped is not summed: the first device keeps its own share. */
            memset(grad, 0, n * sizeof *grad);
            assert_int_equal(pl_replicas_step(all, text, codes, B, 2, &loss, NULL), PL_OK);
            memset(grad, 0, n * sizeof *grad);
            assert_int_equal(pl_replicas_drop(all), PL_OK);
            assert_int_equal(pl_replicas_sum(all), PL_OK);
            for (size_t i = 0; i < n; i++) assert_true(grad[i] == 0);
            pl_replicas_close(all);
        }
    }
    free(want);
    free(twice);
    end(&r);
}

/* The others take the first model's parameters as they are at the step. */
static void parameters_are_the_first_ones(void **state)
{
    const struct pl_train_options o = { .optimizer = pl_lamb_options(), .peak = 1, .total = 10 };
    struct pl_dalle_loss alone, loss;
    struct pl_replicas *all;
    struct run r;
    change = several;
    r = open_run(&o);
    draw_tokens(text, MOST * T, codes, MOST * F * F, 3);
    assert_int_equal(pl_replicas_open(&all, r.m, 2, NULL), PL_OK);
    for (int seed = 4; seed < 7; seed++) {
        assert_int_equal(pl_dalle_init(r.m, (uint64_t)seed), PL_OK);
        assert_int_equal(pl_dalle_step(r.m, text, codes, 2, 1, &alone, NULL), PL_OK);
        assert_int_equal(pl_replicas_step(all, text, codes, 2, 1, &loss, NULL), PL_OK);
        assert_true(fabs(loss.total - alone.total) < 1e-6 * alone.total);
    }
    pl_replicas_close(all);
    end(&r);
}

/* The device that fails is named, in each phase; tokens are checked before any device begins. */
static void failures(void **state)
{
    const struct pl_train_options o = { .optimizer = pl_lamb_options(), .peak = 1, .total = 10 };
    struct pl_dalle_loss loss;
    struct pl_replicas *all;
    struct pl_err err;
    struct run r;
    change = several;
    r = open_run(&o);
    draw_tokens(text, MOST * T, codes, MOST * F * F, 3);
    failing = 2;
    assert_int_equal(pl_replicas_open(&all, r.m, DEVICES, &err), PL_EDEVICE);
    assert_null(all);
    assert_non_null(strstr(err.text, "device number 3 of 4"));
    failing = -1;
    assert_int_equal(pl_replicas_open(&all, r.m, DEVICES, &err), PL_OK);
    failing = 1;
    assert_int_equal(pl_replicas_step(all, text, codes, MOST, 1, &loss, &err), PL_EDEVICE);
    assert_non_null(strstr(err.text, "device number 2 of 4"));
    assert_int_equal(pl_replicas_sum(all), PL_EDEVICE);
    assert_int_equal(pl_replicas_drop(all), PL_EDEVICE);
    failing = -1;
    codes[1] = VI;
    assert_int_equal(pl_replicas_step(all, text, codes, MOST, 1, &loss, &err), PL_EUSE);
    codes[1] = VI - 1;
    assert_int_equal(pl_replicas_step(all, text, codes, MOST, 1, &loss, &err), PL_OK);
    pl_replicas_close(all);
    pl_replicas_close(NULL);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_as_alone),
        cmocka_unit_test(parameters_are_the_first_ones),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
