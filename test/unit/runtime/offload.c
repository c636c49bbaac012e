/* offload.c - a step in the host's memory whose copies end as late as they may: nothing is used
 * before its copy has ended, and every tensor is stepped once, in order. */
#include "runtime/offload.h"
#include "test/unit/unit.h"

#include <math.h>

/* --- a device whose copies wait until somebody needs them ------------------------------------- */

static struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int down, done;
} copies[128];
static uint64_t begun;

static int begin_copy(uint64_t *ticket, void *to, const void *from, size_t bytes, int down)
{
    assert_true(begun < PL_COUNT(copies));
    copies[begun] = (struct copy){ to, from, bytes, down, 0 };
    for (size_t i = 0; i < bytes / sizeof(float); i++) ((float *)to)[i] = NAN; /* not there yet */
    *ticket = ++begun;
    return PL_OK;
}

static int get_begin(uint64_t *ticket, void *host, const void *device, size_t bytes)
{
    return begin_copy(ticket, host, device, bytes, 1);
}

static int put_begin(uint64_t *ticket, void *device, const void *host, size_t bytes)
{
    return begin_copy(ticket, device, host, bytes, 0);
}

/* Copies of one direction follow each other, and those of the other do not wait for them. */
static int copy_end(uint64_t ticket)
{
    assert_true(ticket <= begun);
    for (uint64_t i = 0; i < ticket; i++)
        if (!copies[i].done && copies[i].down == copies[ticket - 1].down) {
            memcpy(copies[i].to, copies[i].from, copies[i].bytes);
            copies[i].done = 1;
        }
    return PL_OK;
}

/* The device's later operations wait, and the host does not. */
static int copy_join(void) { return PL_OK; }

/* Such an operation. */
static void device_reads(void)
{
    for (uint64_t i = begun; i > 0; i--) copy_end(i);
}

/* --- the optimizer ---------------------------------------------------------------------------- */

#define TENSORS 6
#define TOTAL 400

/* The second lies right behind the first, the others apart; one has no elements. */
static const struct pl_optimizer_tensor tensors[TENSORS] = {
    { .offset = 0, .n = 5 },   { .offset = 8, .n = 10 },   { .offset = 100, .n = 7 },
    { .offset = 150, .n = 0 }, { .offset = 200, .n = 30 }, { .offset = 300, .n = 64 },
};
static struct pl_backend be;
static float value[TOTAL], grad[TOTAL];
static size_t order[32], stepped;

/* value -= grad, and the gradient is used up. */
static int step(void *context, size_t tensor, float *v, float *g)
{
    order[stepped++] = tensor;
    for (uint64_t i = 0; i < begun; i++) /* what still goes up is not changed */
        if (!copies[i].done && !copies[i].down)
            assert_true(v < (const float *)copies[i].from ||
                        v >= (const float *)copies[i].from + copies[i].bytes / sizeof *v);
    for (size_t i = 0; i < tensors[tensor].n; i++) {
        v[i] -= g[i];
        g[i] = 1e9f;
    }
    return *(int *)context == (int)tensor ? PL_EIO : PL_OK;
}

static int begin(void **state)
{
    pl_backend_ref(&be);
    be.get_begin = get_begin;
    be.put_begin = put_begin;
    be.copy_end = copy_end;
    be.copy_join = copy_join;
    begun = 0;
    for (size_t i = 0; i < TOTAL; i++) {
        value[i] = 1000 + (float)i;
        grad[i] = (float)(i % 7) + 0.5f;
    }
    return 0;
}

static void values_are(double steps)
{
    device_reads();
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].n; i++) {
            assert_true(value[i] == (float)(1000 + (double)i - steps * ((double)(i % 7) + 0.5)));
            assert_true(grad[i] == (float)(i % 7) + 0.5f);
        }
}

static void copies_are_waited_for(void **state)
{
    static const size_t all[] = { 0, 1, 2, 4, 5 };
    struct pl_offload *o;
    int fails = -1;
    assert_int_equal(pl_offload_open(&o, &be, tensors, TENSORS), PL_OK);
    for (int k = 1; k <= 3; k++) {
        stepped = 0;
        assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_OK);
        assert_int_equal(stepped, PL_COUNT(all));
        for (size_t i = 0; i < stepped; i++) assert_int_equal(order[i], all[i]);
        values_are(k);
    }
    pl_offload_close(o);
}

/* The master goes on from its own values, until it is notified that the device's are other ones. */
static void the_master_is_taken_when_it_is_old(void **state)
{
    struct pl_offload *o;
    int fails = -1;
    assert_int_equal(pl_offload_open(&o, &be, tensors, TENSORS), PL_OK);
    assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_OK);
    device_reads();
    for (size_t i = 0; i < TOTAL; i++) value[i] = 0; /* nobody tells it */
    stepped = 0;
    assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_OK);
    values_are(2);
    for (size_t i = 0; i < TOTAL; i++) value[i] = 1000 + (float)i;
    pl_offload_stale(o);
    assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_OK);
    values_are(1);
    stepped = 0;
    assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_OK);
    values_are(2);
    pl_offload_close(o);
}

/* A step that fails ends the run; the next one takes the values from the device again. */
static void a_failed_step_ends_the_run(void **state)
{
    struct pl_offload *o;
    int fails = 2;
    assert_int_equal(pl_offload_open(&o, &be, tensors, TENSORS), PL_OK);
    stepped = 0;
    assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_EIO);
    assert_int_equal(stepped, 3);
    device_reads();
    for (size_t i = 0; i < TOTAL; i++) value[i] = 1000 + (float)i;
    fails = -1;
    assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_OK);
    values_are(1);
    pl_offload_close(o);
}

static void tensors_come_in_order(void **state)
{
    static const struct pl_optimizer_tensor overlap[] = { { .offset = 0, .n = 5 },
                                                          { .offset = 4, .n = 5 } };
    static const struct pl_optimizer_tensor none[1];
    struct pl_offload *o;
    int fails = -1;
    assert_int_equal(pl_offload_open(&o, &be, overlap, 2), PL_EUSE);
    assert_null(o);
    assert_int_equal(pl_offload_open(&o, &be, none, 0), PL_OK); /* no tensors: nothing to do */
    stepped = 0;
    assert_int_equal(pl_offload_run(o, value, grad, step, &fails), PL_OK);
    assert_int_equal(stepped, 0);
    pl_offload_close(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(copies_are_waited_for, begin),
        cmocka_unit_test_setup(the_master_is_taken_when_it_is_old, begin),
        cmocka_unit_test_setup(a_failed_step_ends_the_run, begin),
        cmocka_unit_test_setup(tensors_come_in_order, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
