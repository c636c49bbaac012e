/* devices.c - the CUDA backend's copies and devices, on emulated devices: copies that overlap a
 * step, several devices. Each test runs in every order that streams permit: as early as possible,
 * only when something waits, and at random. */
#include "runtime/transfer.h"
#include "runtime/trainer.h"
#include "test/unit/unit.h"

#include <math.h>

#include "devices.h"

static const long orders[] = { -1, -2, 1, 2, 3, 4, 5, 6 }; /* early, late, seeds */

/* --- copies that overlap operations ----------------------------------------------------------- */

static void copies_keep_their_order(void **state)
{
    enum { N = 1000 };
    float *x, *y, *up, *down;
    if (!set_streams) skip();
    x = be.alloc(N * sizeof *x);
    y = be.alloc(N * sizeof *y);
    up = pl_host_alloc(&be, N * sizeof *up);
    down = pl_host_alloc(&be, N * sizeof *down);
    assert_true(x && y && up && down);
    for (int i = 0; i < N; i++) assert_true(up[i] == 0);
    for (size_t k = 0; k < PL_COUNT(orders); k++) {
        uint64_t ticket, other;
        set_streams(orders[k]);
        for (int round = 0; round < 80; round++) { /* more than there are events */
            for (int i = 0; i < N; i++) up[i] = (float)(round + i);
            assert_int_equal(be.fill(x, -1, N), PL_OK);
            assert_int_equal(pl_put_begin(&be, &ticket, x, up, N * sizeof *x), PL_OK);
            assert_int_equal(pl_copy_join(&be), PL_OK);
            assert_int_equal(be.copy(y, x, N), PL_OK);
            assert_int_equal(be.scale(y, 2, N), PL_OK);
            assert_int_equal(pl_get_begin(&be, &other, down, y, N * sizeof *y), PL_OK);
            assert_int_equal(pl_copy_join(&be), PL_OK);
            assert_int_equal(be.fill(y, 0, N), PL_OK); /* after it has been read */
            assert_int_equal(pl_copy_end(&be, ticket), PL_OK);
            for (int i = 0; i < N; i++) up[i] = -5; /* it has been uploaded */
            assert_int_equal(pl_copy_end(&be, other), PL_OK);
            for (int i = 0; i < N; i++) assert_true(down[i] == (float)(2 * (round + i)));
        }
    }
    set_streams(-1);
    be.free(x);
    be.free(y);
    pl_host_free(&be, up);
    pl_host_free(&be, down);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* With little memory allowed a convolution goes over its places in pieces, of which the last is
 * shorter. Small whole numbers: every sum is exact, so the pieces change nothing. */
static void convolutions_in_pieces(void **state)
{
    const struct pl_conv c = { .B = 2,
                               .C = 3,
                               .H = 7,
                               .W = 9,
                               .O = 5,
                               .K = 3,
                               .stride = 1,
                               .top = 1,
                               .left = 1,
                               .bottom = 1,
                               .right = 1 };
    enum { X = 2 * 3 * 7 * 9, Y = 2 * 5 * 7 * 9, KERNEL = 5 * 3 * 3 * 3 };
    static float x[X], y[2 * Y], kernel[KERNEL], want[2][Y];
    float *on[4];
    if (!set_streams) skip();
    for (int i = 0; i < X; i++) x[i] = (float)(i * 7 % 11 - 5);
    for (int i = 0; i < KERNEL; i++) kernel[i] = (float)(i * 5 % 7 - 3);
    assert_int_equal(host.conv(want[0], x, kernel, NULL, &c), PL_OK);
    assert_int_equal(host.conv_dx(want[1], want[0], kernel, &c), PL_OK);
    for (int k = 0; k < 4; k++) assert_non_null(on[k] = be.alloc(2 * sizeof y));
    be.put(on[0], x, sizeof x);
    be.put(on[1], kernel, sizeof kernel);
    for (size_t places = 1; places <= 63; places += 4) { /* in a piece; of 27 and of 45 terms */
        assert_int_equal(be.set_memory(8 * places * 45 * sizeof(float)), PL_OK);
        if (places * 45 * 8 < 8 * Y + 2 * 45 * 63) continue; /* less than the test itself needs */
        be.fill(on[2], 77, 2 * Y);
        be.fill(on[3], 77, 2 * Y);
        assert_int_equal(be.conv(on[2], on[0], on[1], NULL, &c), PL_OK);
        assert_int_equal(be.conv_dx(on[3], on[2], on[1], &c), PL_OK);
        be.get(y, on[2], sizeof y);
        assert_memory_equal(y, want[0], sizeof want[0]);
        for (int i = Y; i < 2 * Y; i++) assert_true(y[i] == 77); /* nothing is written behind it */
        be.get(y, on[3], sizeof y);
        assert_memory_equal(y, want[1], sizeof x);
        for (int i = X; i < 2 * Y; i++) assert_true(y[i] == 77);
    }
    assert_int_equal(be.set_memory(0), PL_OK);
    for (int k = 0; k < 4; k++) be.free(on[k]);
}

/* --- offloading ------------------------------------------------------------------------------- */

/* Single, adjacent and distant sizes; with 8-bit moments and without; empty. */
static const size_t sizes[] = { 5, 7000, 16, 300, 0, 4096, 9000, 1, 5120, 17 };
static const size_t gaps[] = { 0, 11, 64, 0, 0, 4, 160, 32, 15, 16 };

/* Optimizer steps on the device with its state in host memory equal steps in host memory, bit for
 * bit. */
static void offloaded_steps(enum pl_optimizer_kind kind, const struct pl_backend *device)
{
    struct pl_optimizer_options options = kind == PL_LAMB ? pl_lamb_options()
                                                          : pl_adam_options(0.1, 8);
    struct pl_optimizer_tensor tensors[PL_COUNT(sizes)];
    struct pl_optimizer *a, *b;
    size_t total = 7;
    float *P, *G, *W, *V, *D;
    options.max_grad_norm = 4;
    options.min_8bit = 4096;
    options.block = 256;
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        total += gaps[i];
        tensors[i] = (struct pl_optimizer_tensor){ total, sizes[i], i % 3 ? options.decay : 0, NULL,
                                                   0 };
        total += sizes[i];
    }
    P = pl_alloc(total, sizeof *P);
    G = pl_alloc(total, sizeof *G);
    W = pl_alloc(total, sizeof *W);
    V = device->alloc(total * sizeof *V);
    D = device->alloc(total * sizeof *D);
    assert_true(P && G && W && V && D);
    normal(P, total, 1);
    assert_int_equal(device->put(V, P, total * sizeof *P), PL_OK);
    assert_int_equal(pl_optimizer_open(&a, &host, &options, tensors, PL_COUNT(sizes), NULL), PL_OK);
    options.host = &host;
    assert_int_equal(pl_optimizer_open(&b, device, &options, tensors, PL_COUNT(sizes), NULL),
                     PL_OK);
    for (uint64_t t = 1; t <= 4; t++) {
        normal(G, total, 100 + t);
        assert_int_equal(device->put(D, G, total * sizeof *G), PL_OK);
        if (t == 3) { /* a state was loaded */
            normal(P, total, 50);
            assert_int_equal(device->put(V, P, total * sizeof *P), PL_OK);
            pl_optimizer_written(b, V);
        }
        assert_int_equal(pl_optimizer_step_normed(a, P, G, 5, 0.01), PL_OK);
        assert_int_equal(pl_optimizer_step_normed(b, V, D, 5, 0.01), PL_OK);
        assert_int_equal(device->fill(D, 0, total), PL_OK);
        /* later operations see the new values */
        assert_int_equal(device->axpy(D, 1, V, total), PL_OK);
        assert_int_equal(device->get(W, D, total * sizeof *W), PL_OK);
        for (size_t i = 0; i < total; i++) /* and elements in between are unchanged */
            assert_true(W[i] == P[i]);
        for (size_t i = 0; i < PL_COUNT(sizes); i++)
            assert_true(pl_optimizer_norms(a, i).trust == pl_optimizer_norms(b, i).trust);
    }
    for (size_t i = 0; i < pl_optimizer_state_count(a); i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(a, i);
        size_t bytes = s.n * s.element_size;
        assert_int_equal(pl_optimizer_state_get(a, i, G), PL_OK);
        assert_int_equal(pl_optimizer_state_get(b, i, W), PL_OK);
        assert_memory_equal(G, W, bytes);
    }
    pl_optimizer_close(a);
    pl_optimizer_close(b);
    device->free(V);
    device->free(D);
    pl_free(P);
    pl_free(G);
    pl_free(W);
}

static void offloading_changes_nothing(void **state)
{
    offloaded_steps(PL_LAMB, &host); /* a backend without copies of its own */
    if (!set_streams) skip();
    for (size_t k = 0; k < PL_COUNT(orders); k++) {
        set_streams(orders[k]);
        offloaded_steps(k % 2 ? PL_LAMB : PL_ADAM, &be);
    }
    set_streams(-1);
}

/* --- several devices -------------------------------------------------------------------------- */

static void devices_are_chosen(void **state)
{
    static const int twice[] = { 1, 1 }, missing[] = { 0, 3 }, two[] = { 2, 0 };
    float *x, *y, got[3];
    assert_int_equal(pl_set_devices(&host, NULL, 0), PL_OK);
    assert_int_equal(pl_set_devices(&host, two, 2), PL_EUSE);
    assert_int_equal(pl_use_device(&host, 1), PL_EUSE);
    if (!set_streams) skip();
    assert_int_equal(pl_device_count(&be), 3);
    assert_int_equal(pl_set_devices(&be, twice, 2), PL_EUSE);
    assert_non_null(strstr(be.memory_error(), "device 1 twice"));
    assert_int_equal(pl_set_devices(&be, missing, 2), PL_EUSE);
    assert_non_null(strstr(be.memory_error(), "no device 3: this machine has 3"));
    assert_int_equal(pl_set_devices(&be, two, 2), PL_OK);
    assert_int_equal(pl_use_device(&be, 2), PL_EUSE);
    assert_int_equal(pl_use_device(&be, 1), PL_OK);
    x = be.alloc(sizeof got);
    assert_int_equal(be.fill(x, 3, 3), PL_OK);
    assert_int_equal(be.sync(), PL_OK);
    assert_int_equal(pl_use_device(&be, 0), PL_OK);
    y = be.alloc(sizeof got);
    assert_int_equal(be.fill(y, 1, 3), PL_OK);
    assert_int_equal(pl_peer_copy(&be, y, x, 1, 2, 1), PL_OK);
    assert_int_equal(pl_peer_copy(&be, y + 2, x, 1, 1, 0), PL_OK);
    assert_int_equal(be.get(got, y, sizeof got), PL_OK);
    assert_true(got[0] == 4 && got[1] == 4 && got[2] == 3);
    be.free(y);
    assert_int_equal(pl_use_device(&be, 1), PL_OK);
    be.free(x);
    assert_int_equal(pl_set_devices(&be, NULL, 0), PL_OK);
}

static struct pl_trainer *trainer(struct pl_dalle **m, int devices)
{
    struct pl_dalle_config c = { .name = "test",
                                 .T = 5,
                                 .F = 3,
                                 .D = 10,
                                 .H = 2,
                                 .d = 7,
                                 .L = 2,
                                 .V = 9,
                                 .Vi = 5,
                                 .pad = 1,
                                 .image_weight = 7 };
    struct pl_train_options options = {
        .optimizer = pl_lamb_options(), .peak = 0.01, .total = 100, .devices = devices
    };
    struct pl_trainer *t;
    struct pl_err err = { "" };
    pl_dalle_config_pattern(&c, 3, 1);
    assert_int_equal(pl_dalle_open(m, &c, &be, 1, &err), PL_OK);
    assert_int_equal(pl_dalle_init(*m, 7), PL_OK);
    assert_int_equal(pl_trainer_open(&t, *m, &options, &err), PL_OK);
    return t;
}

/* Gradients and losses of `devices` devices against one device's, over batches that do not divide
 * evenly and one that leaves a device idle; the second step starts from parameters that the first
 * has changed. */
static void compare_devices(int devices)
{
    static const int batches[][2] = { { 4, 1 }, { 2, 1 } };
    struct pl_dalle *one, *many;
    struct pl_trainer *a = trainer(&one, 1), *b = trainer(&many, devices);
    size_t n = one->params.total;
    float *x = pl_alloc(n, sizeof *x), *y = pl_alloc(n, sizeof *y);
    int32_t text[64], codes[128];
    struct pl_rng rng;
    struct pl_err err = { "" };
    pl_rng_init(&rng, 5, 1);
    for (size_t i = 0; i < PL_COUNT(batches); i++) {
        double square = 0, difference = 0;
        for (int k = -1; k < 2; k++) {
            int B = k < 0 ? 4 : batches[i][k];
            for (int j = 0; j < B * 5; j++) text[j] = (int32_t)pl_rng_below(&rng, 9);
            for (int j = 0; j < B * 9; j++) codes[j] = (int32_t)pl_rng_below(&rng, 5);
            if (k < 0) { /* what is dropped leaves nothing behind on any device */
                assert_int_equal(pl_trainer_add(b, text, codes, B, &err), PL_OK);
                assert_int_equal(pl_trainer_drop(b), PL_OK);
                continue;
            }
            assert_int_equal(pl_trainer_add(a, text, codes, B, &err), PL_OK);
            assert_int_equal(pl_trainer_add(b, text, codes, B, &err), PL_OK);
        }
        assert_true(fabs(a->sum.total - b->sum.total) <= 1e-5 * a->sum.total);
        assert_int_equal(pl_trainer_mean(a), PL_OK);
        assert_int_equal(pl_trainer_mean(b), PL_OK);
        assert_int_equal(be.get(x, one->params.grad, n * sizeof *x), PL_OK);
        assert_int_equal(be.get(y, many->params.grad, n * sizeof *y), PL_OK);
        for (size_t j = 0; j < n; j++) square += (double)x[j] * x[j];
        for (size_t j = 0; j < n; j++) difference += ((double)x[j] - y[j]) * ((double)x[j] - y[j]);
        /* sums are in another order */
        assert_true(square > 0 && sqrt(difference) <= 1e-5 * sqrt(square));
        assert_int_equal(pl_trainer_step(a, NULL, &err), PL_OK);
        /* Equal from here on, so that only this step's differences count. */
        assert_int_equal(pl_trainer_step(b, NULL, &err), PL_OK);
        assert_int_equal(be.get(x, one->params.value, n * sizeof *x), PL_OK);
        assert_int_equal(be.put(many->params.value, x, n * sizeof *x), PL_OK);
    }
    text[0] = 9; /* outside the vocabulary: refused before anything runs */
    assert_int_equal(pl_trainer_add(b, text, codes, 4, &err), PL_EUSE);
    assert_int_equal(b->samples, 0);
    pl_trainer_close(a);
    pl_trainer_close(b);
    pl_dalle_close(one);
    pl_dalle_close(many);
    pl_free(x);
    pl_free(y);
}

static void devices_are_one(void **state)
{
    static const int all[] = { 0, 1, 2 };
    if (!set_streams) skip();
    for (int k = 1; k < 3; k++) { /* late, and a seed; early behaves like a single stream */
        set_streams(orders[k]);
        assert_int_equal(pl_set_devices(&be, all, 4 - k), PL_OK);
        compare_devices(4 - k);
    }
    set_streams(-1);
    assert_int_equal(pl_set_devices(&be, NULL, 0), PL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_keep_their_order),
        cmocka_unit_test(convolutions_in_pieces),
        cmocka_unit_test(offloading_changes_nothing),
        cmocka_unit_test(devices_are_chosen),
        cmocka_unit_test(devices_are_one),
    };
    return cmocka_run_group_tests(tests, open_devices, NULL);
}
