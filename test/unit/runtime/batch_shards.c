/* batch_shards.c - a batch that is computed in parallel shards: the same numbers for any number
 * of threads, and the same gradient as in one part. */
#include "runtime/batch_shards.h"
#include "runtime/dalle_run.h"
#include "runtime/workspace.h"
#include "runtime/backend_open.h"
#include "test/unit/find_backends.h"
#include "test/unit/unit.h"

#include <math.h>

#define B_MAX 21

static struct pl_backend be;
static struct pl_dalle *m;
static int32_t text[B_MAX * 16], codes[B_MAX * 64];

static int setup(void **state)
{
    struct pl_dalle_config c;
    struct pl_rng rng;
    struct pl_err err = { "" };
    find_backends();
    pl_rng_init(&rng, 3, 0);
    if (pl_backend_open(&be, "fast", &err) || pl_dalle_config_named(&c, "demo", &err) ||
        pl_dalle_open(&m, &c, &be, 1, &err) || pl_dalle_init(m, 1))
        return -1;
    m->activations = PL_STORED;
    for (size_t i = 0; i < PL_COUNT(text); i++)
        text[i] = (int32_t)pl_rng_below(&rng, (uint64_t)c.V);
    for (size_t i = 0; i < PL_COUNT(codes); i++)
        codes[i] = (int32_t)pl_rng_below(&rng, (uint64_t)c.Vi);
    return 0;
}

static int teardown(void **state)
{
    pl_dalle_close(m);
    return 0;
}

/* The gradient of B sequences on top of what `begun` says is there already; free with pl_free. */
static float *gradient(int shards, int threads, int B, float begun, struct pl_dalle_loss *loss)
{
    size_t n = m->params.total;
    float *copy = pl_alloc(n, sizeof *copy);
    struct pl_err err = { "" };
    assert_non_null(copy);
    for (size_t i = 0; i < n; i++) m->params.grad[i] = begun;
    m->shards = shards;
    be.set_threads(threads);
    assert_int_equal(pl_dalle_step(m, text, codes, B, B, loss, &err), PL_OK);
    memcpy(copy, m->params.grad, n * sizeof *copy);
    return copy;
}

static void threads_change_nothing(void **state)
{
    static const int sizes[] = { 8, 16, B_MAX }, threads[] = { 2, 3, 9 };
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        struct pl_dalle_loss first, loss;
        float *want = gradient(0, 1, sizes[i], 0, &first);
        for (size_t k = 0; k < PL_COUNT(threads); k++) {
            float *got = gradient(0, threads[k], sizes[i], 0, &loss);
            assert_memory_equal(got, want, m->params.total * sizeof *got);
            assert_memory_equal(&loss, &first, sizeof loss);
            pl_free(got);
        }
        pl_free(want);
    }
}

static void shards_add_up_to_the_batch(void **state)
{
    for (int B = 1; B <= B_MAX; B += 10) {
        struct pl_dalle_loss whole, loss;
        float *want;
        m->noise = (struct pl_token_noise){ .share = 0.5, .seed = 9 };
        want = gradient(1, 2, B, 1, &whole);
        for (int shards = 2; shards <= PL_SHARDS_MAX; shards++) {
            float *got = gradient(shards, 2, B, 1, &loss);
            assert_float_equal(loss.total, whole.total, 1e-5);
            assert_float_equal(loss.text, whole.text, 1e-5);
            assert_float_equal(loss.image, whole.image, 1e-5);
            for (size_t i = 0; i < m->params.count; i++) {
                const struct pl_param *p = &m->params.list[i];
                double worst = 0, most = 1;
                for (size_t k = p->offset; k < p->offset + p->n; k++) {
                    worst = fmax(worst, fabs((double)got[k] - want[k]));
                    most = fmax(most, fabs((double)want[k]));
                }
                if (worst > 2e-5 * most) fail_msg("%s: %g of %g", p->name, worst, most);
            }
            pl_free(got);
        }
        pl_free(want);
        m->noise.share = 0;
    }
}

/* A change of the model between steps is seen by every shard. */
static void shards_follow_the_model(void **state)
{
    struct pl_dalle_loss before, after;
    float *a = gradient(4, 2, B_MAX, 0, &before), *b;
    m->activations = PL_REVERSIBLE;
    m->samples = 3;
    b = gradient(4, 2, B_MAX, 0, &after);
    assert_float_equal(after.total, before.total, 1e-5);
    m->activations = PL_STORED;
    m->samples = 0;
    pl_free(b);
    for (size_t i = 0; i < m->params.total; i++) m->params.value[i] *= 0.5f;
    b = gradient(4, 2, B_MAX, 0, &after);
    assert_true(fabs(after.total - before.total) > 1e-3);
    assert_memory_not_equal(a, b, m->params.total * sizeof *a);
    for (size_t i = 0; i < m->params.total; i++) m->params.value[i] *= 2;
    pl_free(b);
    b = gradient(4, 2, B_MAX, 0, &after);
    assert_memory_equal(a, b, m->params.total * sizeof *a);
    pl_free(a);
    pl_free(b);
}

static int fails_at(void *context, int i)
{
    int *done = context;
    done[i] = 1;
    return i == 2 ? PL_ENOMEM : i == 5 ? PL_EDEVICE : PL_OK;
}

static void first_failure_is_reported(void **state)
{
    for (int threads = 1; threads <= 8; threads++) {
        int done[7] = { 0 };
        be.set_threads(threads);
        assert_int_equal(be.parallel_for(7, fails_at, done), PL_ENOMEM);
        for (int i = 0; i < 7; i++) assert_int_equal(done[i], 1);
    }
}

static void cut_follows_from_sizes(void **state)
{
    assert_int_equal(pl_batch_shards(1000, 1), 1);
    assert_int_equal(pl_batch_shards(1000, 11), 1);
    assert_int_equal(pl_batch_shards(1000, 12), 2);
    assert_int_equal(pl_batch_shards(1000, 23), 2);
    assert_int_equal(pl_batch_shards(1000, 24), 4);
    assert_int_equal(pl_batch_shards(1000, 1000), PL_SHARDS_MAX);
    assert_int_equal(pl_batch_shards(PL_SHARD_PARAMETERS, 64), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),  cmocka_unit_test(shards_add_up_to_the_batch),
        cmocka_unit_test(shards_follow_the_model), cmocka_unit_test(first_failure_is_reported),
        cmocka_unit_test(cut_follows_from_sizes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
