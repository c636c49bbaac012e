/* devices.c - what CUDA's backend does beside its operations, on emulated devices: copies under
 * way during a step, several devices, parameters' working copy in bfloat16. All of it in every
 * order that streams allow: as early as possible, as late as somebody waits for it, and drawn at
 * random. */
#include "../../ref/beside.h"
#include "../../ref/model/train.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct pl_backend be, host;
static void (*set_streams)(long when);
static const long orders[] = { -1, -2, 1, 2, 3, 4, 5, 6 }; /* early, late, seeds */

static int open_devices(void **state)
{
    char path[PATH_MAX + 64] = "";
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash;
    void *lib;
    (void)state;
    path[n > 0 ? n : 0] = 0;
    slash = strrchr(path, '/');
    if (!slash) return -1;
    strcpy(slash, "/../libpl_cuda_on_cpu.so");
    pl_backend_ref(&host);
    if (access(path, R_OK)) return 0; /* each test says that it is skipped */
    setenv("CUDA_ON_CPU_DEVICES", "3", 1);
    if (pl_backend_open(&be, path, NULL)) return -1;
    lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&set_streams = lib ? dlsym(lib, "emu_streams") : NULL;
    return set_streams ? 0 : -1;
}

static void normal(float *x, size_t n, uint64_t seed)
{
    struct pl_rng rng;
    pl_rng_init(&rng, seed, 0);
    for (size_t i = 0; i < n; i++) x[i] = (float)(0.1 * pl_rng_normal(&rng));
}

/* --- copies beside operations ----------------------------------------------------------------- */

static void copies_keep_their_order(void **state)
{
    enum { N = 1000 };
    float *x, *y, *up, *down;
    (void)state;
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
            for (int i = 0; i < N; i++) up[i] = -5; /* it has gone */
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

/* --- offloading ------------------------------------------------------------------------------- */

/* Alone, side by side, far apart; with 8-bit moments and without; none at all. */
static const size_t sizes[] = { 5, 7000, 16, 300, 0, 4096, 9000, 1, 5120, 17 };
static const size_t gaps[] = { 0, 11, 64, 0, 0, 4, 160, 32, 15, 16 };

/* On the device with the optimizer in host memory, and in host memory: the same, bit for bit. */
static void offloaded_steps(enum pl_optimizer_kind kind, const struct pl_backend *device)
{
    struct pl_optimizer_options options =
        kind == PL_LAMB ? pl_lamb_options() : pl_adam_options(0.1, 8);
    struct pl_optimizer_tensor tensors[PL_COUNT(sizes)];
    struct pl_optimizer *a, *b;
    size_t total = 7;
    float *P, *G, *W, *V, *D;
    options.max_grad_norm = 4;
    options.min_8bit = 4096;
    options.block = 256;
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        total += gaps[i];
        tensors[i] = (struct pl_optimizer_tensor){ total, sizes[i], i % 3 ? options.decay : 0,
                                                   NULL };
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
        assert_int_equal(device->axpy(D, 1, V, total), PL_OK); /* what comes next sees new values */
        assert_int_equal(device->get(W, D, total * sizeof *W), PL_OK);
        for (size_t i = 0; i < total; i++) /* and those between as they were */
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
    (void)state;
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
    (void)state;
    assert_int_equal(pl_set_devices(&host, NULL, 0), PL_OK);
    assert_int_equal(pl_set_devices(&host, two, 2), PL_EUSE);
    assert_int_equal(pl_use_device(&host, 1), PL_EUSE);
    if (!set_streams) skip();
    assert_int_equal(pl_device_count(&be), 3);
    assert_int_equal(pl_set_devices(&be, twice, 2), PL_EUSE);
    assert_non_null(strstr(be.memory_trouble(), "device 1 twice"));
    assert_int_equal(pl_set_devices(&be, missing, 2), PL_EUSE);
    assert_non_null(strstr(be.memory_trouble(), "no device 3: this machine has 3"));
    assert_int_equal(pl_set_devices(&be, two, 2), PL_OK);
    assert_int_equal(pl_use_device(&be, 2), PL_EUSE);
    assert_int_equal(pl_use_device(&be, 1), PL_OK);
    x = be.alloc(sizeof got);
    assert_int_equal(be.fill(x, 3, 3), PL_OK);
    assert_int_equal(be.sync(), PL_OK);
    assert_int_equal(pl_use_device(&be, 0), PL_OK);
    y = be.alloc(sizeof got);
    assert_int_equal(be.fill(y, 1, 3), PL_OK);
    assert_int_equal(pl_take(&be, y, x, 1, 2, 1), PL_OK);
    assert_int_equal(pl_take(&be, y + 2, x, 1, 1, 0), PL_OK);
    assert_int_equal(be.get(got, y, sizeof got), PL_OK);
    assert_true(got[0] == 4 && got[1] == 4 && got[2] == 3);
    be.free(y);
    assert_int_equal(pl_use_device(&be, 1), PL_OK);
    be.free(x);
    assert_int_equal(pl_set_devices(&be, NULL, 0), PL_OK);
}

static struct pl_trainer *trainer(struct pl_dalle **m, int devices)
{
    struct pl_dalle_config c = { .name = "test", .T = 5, .F = 3, .D = 10, .H = 2, .d = 7, .L = 2,
                                 .V = 9, .Vi = 5, .pad = 1, .image_weight = 7 };
    struct pl_train_options options = { .optimizer = pl_lamb_options(), .peak = 0.01, .total = 100,
                                        .devices = devices };
    struct pl_trainer *t;
    struct pl_err err = { "" };
    pl_dalle_config_pattern(&c, 3, 1);
    assert_int_equal(pl_dalle_open(m, &c, &be, 1, &err), PL_OK);
    assert_int_equal(pl_dalle_init(*m, 7), PL_OK);
    assert_int_equal(pl_trainer_open(&t, *m, &options, &err), PL_OK);
    return t;
}

/* Gradients and losses of `devices` beside one's, over batches that they don't divide, and one that
 * leaves a device without work; in the second step from parameters that the first has changed. */
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
        double square = 0, apart = 0;
        for (int k = 0; k < 2; k++) {
            int B = batches[i][k];
            for (int j = 0; j < B * 5; j++) text[j] = (int32_t)pl_rng_below(&rng, 9);
            for (int j = 0; j < B * 9; j++) codes[j] = (int32_t)pl_rng_below(&rng, 5);
            assert_int_equal(pl_trainer_add(a, text, codes, B, &err), PL_OK);
            assert_int_equal(pl_trainer_add(b, text, codes, B, &err), PL_OK);
        }
        assert_true(fabs(a->sum.total - b->sum.total) <= 1e-5 * a->sum.total);
        assert_int_equal(pl_trainer_mean(a), PL_OK);
        assert_int_equal(pl_trainer_mean(b), PL_OK);
        assert_int_equal(be.get(x, one->params.grad, n * sizeof *x), PL_OK);
        assert_int_equal(be.get(y, many->params.grad, n * sizeof *y), PL_OK);
        for (size_t j = 0; j < n; j++) square += (double)x[j] * x[j];
        for (size_t j = 0; j < n; j++) apart += ((double)x[j] - y[j]) * ((double)x[j] - y[j]);
        assert_true(square > 0 && sqrt(apart) <= 1e-5 * sqrt(square)); /* sums in another order */
        assert_int_equal(pl_trainer_step(a, NULL, &err), PL_OK);
        /* The same from here on, so that what differs is this step's alone. */
        assert_int_equal(pl_trainer_step(b, NULL, &err), PL_OK);
        assert_int_equal(be.get(x, one->params.value, n * sizeof *x), PL_OK);
        assert_int_equal(be.put(many->params.value, x, n * sizeof *x), PL_OK);
    }
    text[0] = 9; /* none of the vocabulary: refused before anything is done */
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
    (void)state;
    if (!set_streams) skip();
    for (int k = 1; k < 3; k++) { /* late, a seed: the early one is no different from one stream */
        set_streams(orders[k]);
        assert_int_equal(pl_set_devices(&be, all, 4 - k), PL_OK);
        compare_devices(4 - k);
    }
    set_streams(-1);
    assert_int_equal(pl_set_devices(&be, NULL, 0), PL_OK);
}

/* --- parameters in bfloat16 ------------------------------------------------------------------- */

enum { M = 3, K = 40, N = 8 };

/* A product with W, which is parameters, and with the same values elsewhere: bit for bit the
 * same. */
static void same_product(const float *x, const float *W, float *elsewhere, float *y)
{
    float a[M * N], b[M * N];
    assert_int_equal(be.linear(y, x, W, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(a, y, sizeof a), PL_OK);
    assert_int_equal(be.copy(elsewhere, W, K * N), PL_OK);
    assert_int_equal(be.linear(y, x, elsewhere, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(b, y, sizeof b), PL_OK);
    assert_memory_equal(a, b, sizeof a);
}

static void working_copy_follows(void **state)
{
    struct pl_params p = { .count = 0 };
    const int64_t shape[] = { N, K }, more[] = { 3 };
    struct pl_optimizer_options adam = pl_adam_options(0, 32), lamb = pl_lamb_options();
    struct pl_optimizer *o;
    float *x, *y, *elsewhere, *W, values[K * N], full[M * N], rounded[M * N];
    double apart = 0, square = 0;
    uint64_t ticket;
    (void)state;
    if (!set_streams) skip();
    assert_int_equal(pl_params_add(&p, "first", 1, more, 0), PL_OK);
    assert_int_equal(pl_params_add(&p, "w", 2, shape, 1), PL_OK);
    assert_int_equal(pl_params_allocate(&p, &be, 1), PL_OK);
    W = pl_params_value(&p, 1);
    x = be.alloc(M * K * sizeof *x);
    y = be.alloc(M * N * sizeof *y);
    elsewhere = be.alloc(K * N * sizeof *y);
    normal(values, K * N, 1);
    assert_int_equal(be.put(x, values, M * K * sizeof *x), PL_OK);
    assert_int_equal(be.put(W, values, sizeof values), PL_OK);
    assert_int_equal(be.linear(y, x, W, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(full, y, sizeof full), PL_OK);
    assert_int_equal(be.set_precision(PL_BF16), PL_OK);
    assert_int_equal(be.linear(y, x, W, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(rounded, y, sizeof rounded), PL_OK);
    for (int i = 0; i < M * N; i++) {
        apart += (rounded[i] - full[i]) * (rounded[i] - full[i]);
        square += full[i] * full[i];
    }
    assert_true(apart > 0 && sqrt(apart) < 0x1p-7 * sqrt(square)); /* two roundings of 2^-9 */
    same_product(x, W, elsewhere, y);
    normal(values, K * N, 2); /* each way in which parameters change */
    assert_int_equal(be.put(W, values, sizeof values), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.axpy(W, 0.5f, x, 20), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.scale(W, 3, 20), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.copy(W, x, 20), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(pl_params_constant(&p, 1, 0.3f), PL_OK);
    same_product(x, W, elsewhere, y);
    normal(values, K * N, 3);
    assert_int_equal(pl_put_begin(&be, &ticket, W, values, sizeof values), PL_OK);
    assert_int_equal(pl_copy_join(&be), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.put(pl_params_grad(&p, 1), values, sizeof values), PL_OK);
    assert_int_equal(pl_optimizer_open_params(&o, &p, &adam, NULL), PL_OK);
    assert_int_equal(pl_optimizer_step(o, p.value, p.grad, 0.1), PL_OK);
    pl_optimizer_close(o);
    same_product(x, W, elsewhere, y);
    assert_int_equal(pl_optimizer_open_params(&o, &p, &lamb, NULL), PL_OK);
    assert_int_equal(pl_optimizer_step(o, p.value, p.grad, 0.1), PL_OK);
    pl_optimizer_close(o);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.set_precision(PL_FLOAT32), PL_OK);
    pl_params_clear(&p);
    be.free(x);
    be.free(y);
    be.free(elsewhere);
}

/* --- what products know in bfloat16 ----------------------------------------------------------- */

enum { ROWS = 6, WIDE = 16, OUT = 8 }; /* x (ROWS,WIDE), W (OUT,WIDE) */

/* A product with x, whatever is known of it, and with the same values elsewhere: the same bits. */
static void same_with(const float *x, const float *W, float *elsewhere, float *y, int line)
{
    float a[ROWS * OUT], b[ROWS * OUT];
    assert_int_equal(be.linear(y, x, W, NULL, ROWS, WIDE, OUT), PL_OK);
    assert_int_equal(be.get(a, y, sizeof a), PL_OK);
    assert_int_equal(be.copy(elsewhere, x, ROWS * WIDE), PL_OK);
    assert_int_equal(be.linear(y, elsewhere, W, NULL, ROWS, WIDE, OUT), PL_OK);
    assert_int_equal(be.get(b, y, sizeof b), PL_OK);
    if (memcmp(a, b, sizeof a)) fail_msg("after line %d a product read old values", line);
}

/* shift leaves x in bfloat16; then x changes by `how`, and a product reads it. */
#define FOLLOWS(how) \
    do { \
        assert_int_equal(be.shift(x, from, 1, ROWS, WIDE, 2, 2), PL_OK); \
        assert_int_equal(how, PL_OK); \
        same_with(x, W, elsewhere, y, __LINE__); \
    } while (0)

static int other_precision(float *x, const float *from, const float *W)
{
    struct pl_feed w = { (float *)W, (float *)W, (float *)W, (float *)W };
    int rc = be.set_precision(PL_FLOAT32);
    if (!rc) rc = be.feed(x, NULL, from, &w, ROWS, 2, 4);
    return rc ? rc : be.set_precision(PL_BF16);
}

static void roundings_follow(void **state)
{
    enum { SIZE = ROWS * WIDE, BYTES = SIZE * sizeof(float), LARGE = 1 << 22 };
    float values[3 * SIZE], *x, *from, *W, *y, *elsewhere, *dy, *again, *qkv;
    float a[SIZE], b[SIZE], *last;
    struct pl_feed layer, gradient;
    uint64_t ticket;
    (void)state;
    if (!set_streams) skip();
    be.free(be.alloc(LARGE));
    x = be.alloc(LARGE); /* and what lies here now is most likely given again when it is freed */
    from = be.alloc(2 * BYTES);
    W = be.alloc(2 * BYTES);
    y = be.alloc(BYTES);
    dy = be.alloc(BYTES);
    elsewhere = be.alloc(BYTES);
    qkv = be.alloc(3 * BYTES);
    assert_true(x && from && W && y && dy && elsewhere && qkv);
    last = x + (ROWS - 2) * WIDE;
    layer = (struct pl_feed){ W, from, W, from };
    gradient = (struct pl_feed){ dy, dy, dy, dy };
    normal(values, 3 * SIZE, 7);
    assert_int_equal(be.put(from, values, 2 * BYTES), PL_OK);
    assert_int_equal(be.put(qkv, values, 3 * BYTES), PL_OK);
    assert_int_equal(be.put(W, values + 3, OUT * WIDE * sizeof *W), PL_OK);
    assert_int_equal(be.set_precision(PL_BF16), PL_OK);
    FOLLOWS(PL_OK);
    FOLLOWS(be.put(x + 3, values, 20));
    FOLLOWS(pl_put_begin(&be, &ticket, x + 3, values, 20) || pl_copy_join(&be));
    FOLLOWS(be.scale(x, 3, 2));
    FOLLOWS(be.axpy(x, 1, from, SIZE));
    FOLLOWS(be.fill(x + SIZE - 1, 1, 1));
    FOLLOWS(be.layer_norm(x, x, from, from + WIDE, ROWS, WIDE, 1e-5f));
    /* products that know their operand, and write to other rows of it */
    FOLLOWS(be.linear(last, x, W, NULL, 2, WIDE, OUT));
    FOLLOWS(be.linear_dx(last, x, W, 2, WIDE, OUT, 0));
    FOLLOWS(be.linear_dw(last, NULL, x, from, 2, 4, 8));
    FOLLOWS(be.linear_dw(dy, last, x, from, 2, 4, 8));
    FOLLOWS(be.feed(last, NULL, x, &layer, 2, WIDE, 2));
    FOLLOWS(be.feed_backward(NULL, last, &gradient, from, NULL, x, &layer, 2, WIDE, 2));
    FOLLOWS(other_precision(x, from, W));
    /* what attention leaves, two channels at a time and one */
    for (int d = 1; d <= 8; d += 7) {
        struct pl_mask causal = { .kind = PL_MASK_FULL, .P = ROWS };
        assert_int_equal(be.attention(x, NULL, qkv, 1, ROWS, WIDE / d, d, &causal, NULL), PL_OK);
        same_with(x, W, elsewhere, y, __LINE__);
        /* other values lie where it is rounded to */
        assert_int_equal(be.linear(y, W, from, NULL, ROWS, WIDE, OUT), PL_OK);
        assert_int_equal(be.attention(x + 1, NULL, qkv, 1, ROWS, WIDE / d, d, &causal, NULL), PL_OK);
        same_with(x + 1, W, elsewhere, y, __LINE__);
    }
    /* a gradient that both products read, and one that a rotation back leaves */
    for (int back = 0; back < 2; back++) {
        assert_int_equal(be.copy(dy, from, SIZE), PL_OK);
        if (back)
            assert_int_equal(be.rotary(dy, from, from, 1, ROWS, 2, 4, 4, 1), PL_OK);
        assert_int_equal(be.copy(y, from, SIZE), PL_OK);
        assert_int_equal(be.linear_dw(y, back ? NULL : x, dy, from, ROWS, 4, OUT), PL_OK);
        assert_int_equal(be.linear_dx(elsewhere, dy, W, ROWS, WIDE, OUT, 0), PL_OK);
        assert_int_equal(be.get(a, elsewhere, BYTES), PL_OK);
        assert_int_equal(be.scale(dy, 1, SIZE), PL_OK); /* nothing is known from here on */
        assert_int_equal(be.linear_dx(elsewhere, dy, W, ROWS, WIDE, OUT, 0), PL_OK);
        assert_int_equal(be.get(b, elsewhere, BYTES), PL_OK);
        assert_memory_equal(a, b, BYTES);
    }
    /* memory that was freed, and taken again for something else */
    assert_int_equal(be.shift(x, from, 1, ROWS, WIDE, 2, 2), PL_OK);
    be.free(x);
    again = be.alloc(LARGE);
    assert_non_null(again);
    same_with(again, W, elsewhere, y, __LINE__);
    assert_int_equal(be.set_precision(PL_FLOAT32), PL_OK);
    be.free(again);
    be.free(from);
    be.free(W);
    be.free(y);
    be.free(dy);
    be.free(elsewhere);
    be.free(qkv);
}

/* --- memory that begins anywhere ------------------------------------------------------------- */

/* Every operation whose kernels move four values at a time, on a side's own memory: at[k] (FLOATS)
 * each, from any float on. */
enum { TALL = 21, BROAD = 48, FLOATS = 2 * TALL * BROAD, ANYWHERE = 8 };

static void step_through(const struct pl_backend *b, float *const at[ANYWHERE], const int32_t *ids,
                         uint8_t *code[2], float *absmax[2])
{
    struct pl_lamb lamb = { .lr = 0.1, .beta1 = 0.9, .beta2 = 0.96, .eps = 1e-6, .decay = 0.045,
                            .clamp = 1e4, .clip = 1 };
    struct pl_adam adam = { .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-3, .bias1 = 1,
                            .bias2 = 1, .clip = 1 };
    struct pl_moments coded = { .code = { code[0], code[1] }, .absmax = { absmax[0], absmax[1] },
                                .block = 64, .rule = PL_RULE_RUN };
    struct pl_moments plain = { .value = { at[6], at[7] } };
    struct pl_lamb_norms norms;
    size_t n = TALL * BROAD;
    double sum;
    float book[PL_CODES];
    pl_codebook(book, PL_MAP_SIGNED, PL_RULE_RUN);
    assert_int_equal(b->fill(at[5], 0.5f, n - 1), PL_OK);
    assert_int_equal(b->axpy(at[5], 0.3f, at[0], n - 2), PL_OK);
    assert_int_equal(b->scale(at[5], 1.5f, n - 3), PL_OK);
    assert_int_equal(b->sumsq(&sum, at[5], n), PL_OK);
    assert_int_equal(b->fill(at[5], (float)sum / (float)n, 1), PL_OK); /* compared, too */
    assert_int_equal(b->embed(at[4], at[0], ids, TALL, BROAD, TALL), PL_OK);
    assert_int_equal(b->layer_norm(at[4], at[4], at[1], at[2], TALL, BROAD, 1e-5f), PL_OK);
    assert_int_equal(b->layer_norm_backward(at[4], at[2], at[3], at[1], at[0], at[5], TALL, BROAD,
                                            1e-5f, 1), PL_OK);
    assert_int_equal(b->scale_add(at[5], at[4], at[1], TALL, BROAD, -1), PL_OK);
    assert_int_equal(b->layer_scale_backward(at[5], at[3], at[5], at[4], at[1], TALL, BROAD), PL_OK);
    assert_int_equal(b->shift(at[4], at[5], 1, TALL, BROAD, 5, 4), PL_OK);
    assert_int_equal(b->shift_backward(at[5], at[4], 1, TALL, BROAD, 5, 4), PL_OK);
    assert_int_equal(b->rotary(at[5], at[0], at[1], 1, TALL, 6, 8, 6, 1), PL_OK);
    assert_int_equal(b->linear(at[0], at[4], at[5], at[1], TALL, BROAD, 12), PL_OK);
    assert_int_equal(b->linear_dw(at[2], at[3], at[4], at[5], TALL, 8, BROAD), PL_OK);
    assert_int_equal(b->geglu(at[4], at[0], TALL, BROAD), PL_OK);
    assert_int_equal(b->geglu_backward(at[0], at[4], at[0], TALL, BROAD), PL_OK);
    assert_int_equal(b->lamb(&norms, at[2], at[3], at[1], &plain, n - 1, &lamb), PL_OK);
    assert_int_equal(b->adam(at[2], at[1], &plain, n - 1, &adam), PL_OK);
    assert_int_equal(b->quantize(code[0], absmax[0], at[6], n, 64, PL_MAP_SIGNED, PL_RULE_RUN), PL_OK);
    assert_int_equal(b->quantize(code[1], absmax[1], at[7], n, 64, PL_MAP_UNSIGNED, PL_RULE_RUN),
                     PL_OK);
    assert_int_equal(b->dequantize(at[6], code[0], absmax[0], n, 64, book), PL_OK);
    assert_int_equal(b->lamb(&norms, at[2], at[3], at[1], &coded, n - 1, &lamb), PL_OK);
    assert_int_equal(b->adam(at[2], at[1], &coded, n - 1, &adam), PL_OK);
}

static void begins_anywhere(void **state)
{
    static float mine[ANYWHERE][FLOATS + 4], theirs[FLOATS];
    static uint8_t codes[2][FLOATS];
    float scales[2][FLOATS], *at[ANYWHERE], *base[ANYWHERE], *absmax[2];
    int32_t ids[TALL], *device_ids;
    uint8_t *code[2];
    (void)state;
    if (!set_streams) skip();
    for (int i = 0; i < TALL; i++) ids[i] = i * 5 % TALL;
    device_ids = be.alloc(sizeof ids);
    assert_int_equal(be.put(device_ids, ids, sizeof ids), PL_OK);
    for (int off = 0; off <= 3; off++) { /* 0: in packs */
        for (int k = 0; k < ANYWHERE; k++) {
            normal(mine[k], FLOATS, 50 + (uint64_t)k);
            for (int i = 0; k == 7 && i < FLOATS; i++) mine[k][i] = fabsf(mine[k][i]);
            base[k] = be.alloc((FLOATS + 4) * sizeof(float));
            at[k] = base[k] + (off + k) % 4 * (off != 0);
            assert_int_equal(be.put(at[k], mine[k], FLOATS * sizeof(float)), PL_OK);
        }
        for (int k = 0; k < 2; k++) {
            code[k] = be.alloc(FLOATS + 4);
            absmax[k] = be.alloc(FLOATS * sizeof(float));
        }
        step_through(&be, at, device_ids, (uint8_t *[]){ code[0] + off, code[1] + off }, absmax);
        step_through(&host, (float *[]){ mine[0], mine[1], mine[2], mine[3], mine[4], mine[5],
                                         mine[6], mine[7] },
                     ids, (uint8_t *[]){ codes[0], codes[1] }, (float *[]){ scales[0], scales[1] });
        for (int k = 0; k < ANYWHERE; k++) {
            assert_int_equal(be.get(theirs, at[k], FLOATS * sizeof(float)), PL_OK);
            for (int i = 0; i < FLOATS; i++)
                if (!(fabsf(theirs[i] - mine[k][i]) <= 1e-3f * (1 + fabsf(mine[k][i]))))
                    fail_msg("offset %d: buffer %d, %d: %g, expected %g", off, k, i,
                             (double)theirs[i], (double)mine[k][i]);
            be.free(base[k]);
        }
        for (int k = 0; k < 2; k++) be.free(code[k]), be.free(absmax[k]);
    }
    be.free(device_ids);
}

/* Attention on the matrix units reads and writes two channels at a time where they lie so: the same
 * bits from any float on. */
static void attention_begins_anywhere(void **state)
{
    enum { PLACES = 20, HEADS = 2, D = 6, ALL = PLACES * HEADS * D };
    static float values[3 * ALL], out[2][3 * ALL], made[2][ALL];
    struct pl_mask mask = { .kind = PL_MASK_COL, .P = 5, .F = 4 };
    (void)state;
    if (!set_streams) skip();
    normal(values, 3 * ALL, 21);
    assert_int_equal(be.set_precision(PL_BF16), PL_OK);
    for (int off = 0; off < 2; off++) {
        float *memory[5], *qkv, *o, *dout, *dqkv, *lse;
        for (int k = 0; k < 5; k++) memory[k] = be.alloc((3 * ALL + 1) * sizeof(float));
        qkv = memory[0] + off, o = memory[1] + off, dout = memory[2] + off, dqkv = memory[3] + off;
        lse = memory[4];
        assert_int_equal(be.put(qkv, values, sizeof values), PL_OK);
        assert_int_equal(be.put(dout, values + ALL, ALL * sizeof(float)), PL_OK);
        assert_int_equal(be.attention(o, lse, qkv, 1, PLACES, HEADS, D, &mask, NULL), PL_OK);
        assert_int_equal(be.attention_backward(dqkv, dout, qkv, o, lse, 1, PLACES, HEADS, D, &mask,
                                               NULL), PL_OK);
        assert_int_equal(be.get(made[off], o, sizeof made[off]), PL_OK);
        assert_int_equal(be.get(out[off], dqkv, sizeof out[off]), PL_OK);
        for (int k = 0; k < 5; k++) be.free(memory[k]);
    }
    assert_int_equal(be.set_precision(PL_FLOAT32), PL_OK);
    assert_memory_equal(made[0], made[1], sizeof made[0]);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_keep_their_order),
        cmocka_unit_test(offloading_changes_nothing),
        cmocka_unit_test(devices_are_chosen),
        cmocka_unit_test(devices_are_one),
        cmocka_unit_test(working_copy_follows),
        cmocka_unit_test(roundings_follow),
        cmocka_unit_test(begins_anywhere),
        cmocka_unit_test(attention_begins_anywhere),
    };
    return cmocka_run_group_tests(tests, open_devices, NULL);
}
