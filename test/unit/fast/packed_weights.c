/* packed_weights.c - kept copies of weights: when they are packed, and that a GEMM never sees weights
 * that have been overwritten since, whichever operation wrote them. */
#include "fast/packed_weights.c"
#include "ref/outer/chunks.h"
#include "ref/rng.h"
#include "runtime/backend_open.h"
#include "test/unit/find_backends.h"
#include "test/unit/unit.h"

/* --- the owner by itself ---------------------------------------------------------------------- */

static int packed; /* calls of pack */
static void pack(uint32_t *to, const void *context)
{
    packed++;
    *to = *(const uint32_t *)context;
}

/* What a GEMM would read now. */
static const uint32_t *panels(const struct fast_packing *p, size_t count, uint32_t value)
{
    return fast_packed_weights(p, count, pack, &value);
}

static void test_packed_once_until_written(void **state)
{
    float *value = pl_alloc(100, sizeof *value);
    /* two weights of 5 x 4 floats, side by side */
    struct fast_packing one = { .W = value + 10, .ld = 4, .tb = 1, .n = 5, .k = 4, .slab = 32 };
    struct fast_packing next = one, other = one;
    next.W = value + 30;
    other.tb = 0;
    other.ld = 5;
    other.n = 5;
    assert_null(panels(&one, 8, 1)); /* not registered */
    assert_int_equal(fast_weights(value, 100), PL_OK);
    packed = 0;
    assert_int_equal(*panels(&one, 8, 1), 1);
    assert_int_equal(*panels(&one, 8, 2), 1);
    assert_int_equal(*panels(&next, 8, 3), 3);
    assert_int_equal(*panels(&other, 8, 4), 4); /* the same weights in another layout */
    assert_int_equal(packed, 3);

    fast_written(value, 10 * sizeof *value); /* ends where the first begins */
    assert_int_equal(*panels(&one, 8, 5), 1);
    fast_written(value + 29, sizeof *value); /* its last float */
    assert_int_equal(*panels(&one, 8, 6), 6);
    assert_int_equal(*panels(&other, 8, 7), 7);
    assert_int_equal(*panels(&next, 8, 8), 3);
    fast_written(value + 9, 2 * sizeof *value); /* its first float */
    assert_int_equal(*panels(&one, 8, 9), 9);
    fast_written(value, 100 * sizeof *value);
    assert_int_equal(*panels(&next, 8, 10), 10);
    fast_free(value);
    assert_int_equal(region_count, 0);
}

static void test_copies_are_bounded(void **state)
{
    float *value = pl_alloc(100, sizeof *value);
    struct fast_packing p = { .W = value, .ld = 10, .tb = 1, .n = 10, .k = 10, .slab = 32 };
    struct fast_packing half = p, beyond = p;
    half.n = 5;
    beyond.W = value + 1;
    assert_int_equal(fast_weights(value, 100), PL_OK);
    assert_null(panels(&beyond, 10, 1)); /* its last float is outside */
    assert_non_null(panels(&p, 60, 1));
    assert_null(panels(&half, 41, 1)); /* the copies would exceed the parameters' own 400 bytes */
    assert_non_null(panels(&half, 40, 1));
    assert_non_null(panels(&p, 60, 1));
    fast_free(value);
}

/* --- GEMMs of the backend --------------------------------------------------------------------- */

enum { M = 40, D = 48, C = 64, N = 2 * C, SIZE = N * D, ALL = 8 * SIZE };

struct twins {
    struct pl_backend be;
    float *kept, *plain; /* (SIZE) equal values; only `kept` is registered, at the head of (ALL) */
    float *other, *x, *y[2], *h[2], *spare;
};

static float *draw(const struct pl_backend *be, size_t n, uint64_t stream)
{
    float *x = be->alloc(n * sizeof *x);
    struct pl_rng rng;
    pl_rng_init(&rng, 1, stream);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (float)pl_rng_normal(&rng);
    return x;
}

static void begin(struct twins *t)
{
    find_backends();
    assert_int_equal(pl_backend_open(&t->be, "fast", NULL), PL_OK);
    t->be.set_threads(2);
    assert_int_equal(t->be.set_precision(PL_BF16), PL_OK);
    t->kept = draw(&t->be, ALL, 0);
    t->plain = draw(&t->be, SIZE, 0);
    t->other = draw(&t->be, SIZE, 1);
    t->x = draw(&t->be, (size_t)M * N, 2);
    t->spare = draw(&t->be, 4 * SIZE, 3);
    for (int i = 0; i < 2; i++) {
        t->y[i] = draw(&t->be, (size_t)M * N, 4);
        t->h[i] = draw(&t->be, (size_t)M * N, 5);
    }
    assert_int_equal(t->be.weights(t->kept, ALL), PL_OK);
}

static void end(struct twins *t)
{
    float *all[] = {
        t->kept, t->plain, t->other, t->x, t->spare, t->y[0], t->y[1], t->h[0], t->h[1]
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) t->be.free(all[i]);
    t->be.set_precision(PL_FLOAT32);
}

/* The twins have the same products: both layouts, and the gate's panels. */
static void assert_same_products(struct twins *t)
{
    for (int i = 0; i < 2; i++) {
        float *W = i ? t->plain : t->kept;
        struct pl_ffn layer = { W, t->other, t->other + N, t->other };
        assert_int_equal(t->be.linear(t->y[i], t->x, W, NULL, M, D, N), PL_OK);
        assert_int_equal(t->be.linear_dx(t->h[i], t->x, W, M, D, N, 0), PL_OK);
        assert_int_equal(t->be.ffn(t->h[i] + (size_t)M * D, NULL, t->x, &layer, M, D, C), PL_OK);
    }
    assert_memory_equal(t->y[0], t->y[1], (size_t)M * N * sizeof(float));
    assert_memory_equal(t->h[0], t->h[1], (size_t)M * 2 * D * sizeof(float));
}

/* A token's values are the same bits, however many pictures are drawn at a time. */
static void test_one_row_equals_one_of_many(void **state)
{
    struct twins t;
    begin(&t);
    if (!strstr(t.be.note, "bf16 by")) {
        end(&t);
        skip();
    }
    for (int m = 1; m <= 16; m += 5) {
        assert_int_equal(t.be.linear(t.y[0], t.x, t.kept, NULL, M, D, N), PL_OK);
        assert_int_equal(t.be.linear(t.y[1], t.x, t.kept, NULL, m, D, N), PL_OK);
        assert_memory_equal(t.y[0], t.y[1], (size_t)m * N * sizeof(float));
    }
    end(&t);
}

static struct pl_moments moments_in(float *m)
{
    return (struct pl_moments){ .value = { m, m + SIZE }, .block = 64 };
}

/* Each operation that parameters are written by; W (SIZE). */
static int write_by(struct twins *t, int which, float *W)
{
    const struct pl_backend *be = &t->be;
    const struct pl_lamb lamb = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .clamp = 10, .lr = 0.1, .clip = 1
    };
    const struct pl_adam adam = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .lr = 0.1, .clip = 1, .bias1 = 1, .bias2 = 1
    };
    const int64_t shape[2] = { N, D };
    struct pl_chunks chunks = pl_chunks_of(shape, 2, 16);
    struct pl_moments moments = moments_in(t->spare);
    struct pl_lamb_norms norms;
    uint8_t codes[4 + SIZE];
    switch (which) {
    case 0: return be->fill(W + SIZE - 1, 3, 1);
    case 1: return be->copy(W, t->other, SIZE);
    case 2: return be->axpy(W, 0.5f, t->other, SIZE);
    case 3: return be->scale(W, 1.5f, SIZE);
    case 4: return be->put(W, t->other, SIZE / 2 * sizeof *W);
    case 5: return be->transpose(W, N, t->other, D, 1, N, D);
    case 6:
        memset(t->spare, 0, 2 * SIZE * sizeof *W);
        return be->lamb(&norms, W, t->spare + 2 * SIZE, t->other, &moments, SIZE, &lamb);
    case 7:
        memset(t->spare, 0, 2 * SIZE * sizeof *W);
        return be->adam(W, t->other, &moments, SIZE, &adam);
    case 8:
        memset(t->spare, 0, SIZE * sizeof *W);
        return be->outer_nesterov(W, t->spare, t->other, SIZE, 0.9f, 0.1f);
    case 9: return be->outer_mix(W, t->other, SIZE, 0.25f);
    case 10:
        memset(t->spare, 0, SIZE * sizeof *W);
        return be->outer_gossip(W, t->spare, t->other, t->other, SIZE, 0.9f, 0.1f, 0.1f);
    case 11: return be->sign_step(W, t->other, SIZE, 0.1f);
    case 12:
        return be->e3m0_encode(codes, t->other, SIZE, SIZE) ||
               be->e3m0_decode(W, codes, SIZE, SIZE);
    case 13: return be->chunk_paste(W, t->spare + 2 * SIZE, &chunks, 0);
    }
    return -1;
}

static void test_written_weights_are_packed_again(void **state)
{
    struct twins t;
    begin(&t);
    assert_same_products(&t);
    for (int which = 0; which <= 13; which++) {
        float *before = draw(&t.be, SIZE, 6);
        memcpy(before, t.kept, SIZE * sizeof *before);
        assert_int_equal(write_by(&t, which, t.kept), PL_OK);
        assert_int_equal(write_by(&t, which, t.plain), PL_OK);
        assert_memory_equal(t.kept, t.plain, SIZE * sizeof(float));
        assert_memory_not_equal(t.kept, before, SIZE * sizeof(float));
        assert_same_products(&t);
        t.be.free(before);
    }
    end(&t);
}

static int product(void *context, int i)
{
    struct twins *t = context;
    return t->be.linear(t->y[i], t->x, t->kept, NULL, M, D, N);
}

static void test_threads_share_a_copy(void **state)
{
    struct twins t;
    begin(&t);
    for (int i = 0; i < 100; i++) {
        t.be.scale(t.kept, i % 2 ? 2 : 0.5f, SIZE);
        assert_int_equal(t.be.parallel_for(2, product, &t), PL_OK);
        assert_memory_equal(t.y[0], t.y[1], (size_t)M * N * sizeof(float));
    }
    t.be.scale(t.plain, 1, SIZE);
    assert_same_products(&t);
    end(&t);
}

static void test_freed_parameters_are_forgotten(void **state)
{
    struct twins t;
    begin(&t);
    assert_same_products(&t);
    t.be.free(t.kept);
    t.kept = draw(&t.be, ALL, 7); /* most likely at the same address, and not registered */
    memcpy(t.plain, t.kept, SIZE * sizeof(float));
    assert_same_products(&t);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_once_until_written),
        cmocka_unit_test(test_copies_are_bounded),
        cmocka_unit_test(test_written_weights_are_packed_again),
        cmocka_unit_test(test_one_row_equals_one_of_many),
        cmocka_unit_test(test_threads_share_a_copy),
        cmocka_unit_test(test_freed_parameters_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
