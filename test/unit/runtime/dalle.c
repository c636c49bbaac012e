/* dalle.c - the transformer against itself: three ways to the same gradients, a batch against its
 * parts, gradients against differences, sampling with and without a cache. */
#include "runtime/generate.h"
#include "test/unit/unit.h"

#include <math.h>

/* --- small networks of odd shapes ------------------------------------------------------------- */

static const struct {
    int T, F, D, H, d, L, V, Vi;
    int untied, separate;
    enum pl_mask_kind last; /* of the last block; the others follow the run's pattern */
} shapes[] = {
    { 1, 1, 4, 1, 1, 1, 2, 1, 0, 0, PL_MASK_CONV },          /* the smallest; nothing turns */
    { 5, 3, 10, 2, 7, 6, 9, 5, 0, 0, PL_MASK_CONV },         /* H d > D; D no multiple of 4 */
    { 4, 4, 16, 3, 4, 5, 11, 7, 1, 0, PL_MASK_FULL },        /* H d < D; nothing shared */
    { 7, 2, 12, 1, 20, 3, 6, 8, 0, 1, PL_MASK_CONV_CORNER }, /* embeddings of their own */
};

static struct pl_backend be;

static struct pl_dalle *network(size_t i, uint64_t seed)
{
    struct pl_dalle_config c = { .name = "test",
                                 .T = shapes[i].T,
                                 .F = shapes[i].F,
                                 .D = shapes[i].D,
                                 .H = shapes[i].H,
                                 .d = shapes[i].d,
                                 .L = shapes[i].L,
                                 .V = shapes[i].V,
                                 .Vi = shapes[i].Vi,
                                 .pad = 1,
                                 .image_weight = 7,
                                 .separate_embedding = shapes[i].separate };
    struct pl_dalle *m;
    struct pl_rng rng;
    pl_backend_ref(&be);
    pl_dalle_config_pattern(&c, 3, 1);
    c.block[c.L - 1].kind = shapes[i].last;
    if (shapes[i].untied) pl_dalle_config_untie(&c);
    assert_int_equal(pl_dalle_open(&m, &c, &be, 1, NULL), PL_OK);
    assert_int_equal(pl_dalle_init(m, seed), PL_OK);
    /* Norms and scales away from 1, 0 and 0.1, so that a mistake in any of them shows. */
    pl_rng_init(&rng, seed, 99);
    for (size_t k = 0; k < m->params.total; k++)
        m->params.value[k] += (float)(0.2 * pl_rng_normal(&rng));
    return m;
}

struct batch {
    int32_t text[64], codes[128];
};

static struct batch random_batch(const struct pl_dalle *m, int B, uint64_t seed)
{
    const struct pl_dalle_config *c = &m->config;
    struct batch b;
    struct pl_rng rng;
    pl_rng_init(&rng, seed, 1);
    for (int i = 0; i < B * c->T; i++) b.text[i] = (int32_t)pl_rng_below(&rng, (uint64_t)c->V);
    for (int i = 0; i < B * c->F * c->F; i++)
        b.codes[i] = (int32_t)pl_rng_below(&rng, (uint64_t)c->Vi);
    return b;
}

/* A copy of the gradients after one step over the batch; free with pl_free. */
static float *gradient(struct pl_dalle *m, const struct batch *b, int B, struct pl_dalle_loss *loss)
{
    float *copy = pl_alloc(m->params.total, sizeof *copy);
    struct pl_err err = { "" };
    assert_non_null(copy);
    memset(m->params.grad, 0, m->params.total * sizeof(float));
    assert_int_equal(pl_dalle_step(m, b->text, b->codes, B, 1, loss, &err), PL_OK);
    memcpy(copy, m->params.grad, m->params.total * sizeof *copy);
    return copy;
}

/* Tensor by tensor, relative to the largest of the first. */
static void assert_same_gradient(const struct pl_dalle *m, const float *a, const float *b,
                                 double allowed)
{
    for (size_t i = 0; i < m->params.count; i++) {
        const struct pl_param *p = &m->params.list[i];
        double worst = 0, most = 1e-6;
        for (size_t k = p->offset; k < p->offset + p->n; k++) {
            worst = fmax(worst, fabs((double)a[k] - b[k]));
            most = fmax(most, fabs((double)a[k]));
        }
        if (worst > allowed * most) fail_msg("%s: %g of %g", p->name, worst, most);
    }
}

/* --- gradients -------------------------------------------------------------------------------- */

static double largest_of(const struct pl_dalle *m, const char *end)
{
    double largest = 0;
    for (size_t i = 0; i < m->params.count; i++) {
        const struct pl_param *t = &m->params.list[i];
        size_t n = strlen(t->name), k = strlen(end);
        if (n < k || strcmp(t->name + n - k, end)) continue;
        for (size_t j = 0; j < t->n; j++)
            largest = fmax(largest, fabs((double)m->params.value[t->offset + j]));
    }
    return largest;
}

/* PyTorch draws a layer's weight and bias from +-1/sqrt(inputs): D, H d or 4 D. Among that many
 * values some are near the bound. */
static void initial_values(void **state)
{
    struct pl_dalle_config c = { .name = "test",
                                 .T = 60,
                                 .F = 3,
                                 .D = 16,
                                 .H = 4,
                                 .d = 25,
                                 .L = 3,
                                 .V = 200,
                                 .Vi = 100,
                                 .pad = 1,
                                 .image_weight = 7 };
    struct pl_dalle *m;
    int checked = 0;
    pl_backend_ref(&be);
    pl_dalle_config_pattern(&c, 3, 1);
    assert_int_equal(pl_dalle_open(&m, &c, &be, 0, NULL), PL_OK);
    assert_int_equal(pl_dalle_init(m, 5), PL_OK);
    for (size_t i = 0; i < m->params.count; i++) {
        const struct pl_param *t = &m->params.list[i];
        size_t n = strlen(t->name);
        if (t->dims != 2) continue;
        char bias[PL_NAME_MAX];
        double bound = 1 / sqrt((double)t->shape[1]), most = largest_of(m, t->name);
        assert_true(most <= bound * 1.000001 && most > 0.95 * bound);
        snprintf(bias, sizeof bias, "%.*sbias", (int)(n - strlen("weight")), t->name);
        if (strcmp(t->name + n - 6, "weight") || pl_params_find(&m->params, bias) < 0) continue;
        most = largest_of(m, bias);
        assert_true(most <= bound * 1.000001 && most > 0.7 * bound);
        checked++;
    }
    assert_true(checked >= 4);
    pl_dalle_close(m);
}

static void three_modes_agree(void **state)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        struct pl_dalle *m = network(i, 1);
        struct batch b = random_batch(m, 3, i);
        struct pl_dalle_loss first, loss;
        float *want = gradient(m, &b, 3, &first), *got;
        for (int mode = PL_RECOMPUTED; mode <= PL_STORED; mode++) {
            m->activations = (enum pl_activations)mode;
            got = gradient(m, &b, 3, &loss);
            assert_true(loss.total == first.total);
            assert_same_gradient(m, want, got, 2e-5);
            pl_free(got);
        }
        pl_free(want);
        pl_dalle_close(m);
    }
}

static void parts_add_up_to_the_batch(void **state)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        struct pl_dalle *m = network(i, 2);
        struct batch b = random_batch(m, 5, i + 10);
        int T = m->config.T, I = m->config.F * m->config.F;
        struct pl_dalle_loss whole, loss, part[2];
        float *want, *got;
        m->noise = (struct pl_token_noise){ .share = 0.5, .seed = i, .first = 7 };
        want = gradient(m, &b, 5, &whole);
        m->samples = 2; /* parts inside of the step */
        got = gradient(m, &b, 5, &loss);
        assert_float_equal(loss.total, whole.total, 1e-6);
        assert_same_gradient(m, want, got, 1e-5);
        memset(m->params.grad, 0, m->params.total * sizeof(float)); /* parts outside of it */
        assert_int_equal(pl_dalle_step(m, b.text, b.codes, 2, 0.4, &part[0], NULL), PL_OK);
        m->noise.first += 2;
        assert_int_equal(pl_dalle_step(m, b.text + 2 * T, b.codes + 2 * I, 3, 0.6, &part[1], NULL),
                         PL_OK);
        assert_float_equal(0.4 * part[0].image + 0.6 * part[1].image, whole.image, 1e-6);
        assert_same_gradient(m, want, m->params.grad, 1e-5);
        pl_free(want);
        pl_free(got);
        pl_dalle_close(m);
    }
}

/* Noise replaces tokens that the model sees, and none of those that it predicts: without weights
 * the output's bias alone decides the loss. */
static void noise_leaves_the_labels(void **state)
{
    for (size_t i = 1; i < PL_COUNT(shapes); i++) {
        struct pl_dalle *m = network(i, 5);
        struct batch b = random_batch(m, 4, i);
        struct pl_dalle_loss clean, noisy, again;
        float *plain, *replaced;
        plain = gradient(m, &b, 4, &clean);
        m->noise = (struct pl_token_noise){ .share = 0.9, .seed = 3 };
        replaced = gradient(m, &b, 4, &noisy);
        assert_true(fabs(noisy.image - clean.image) > 1e-4);
        assert_float_equal(noisy.text, clean.text, 1e-6); /* text comes before the image */
        assert_int_equal(pl_dalle_evaluate(m, b.text, b.codes, 4, &again, NULL, NULL), PL_OK);
        assert_float_equal(again.image, clean.image, 1e-6);
        pl_free(plain);
        pl_free(replaced);
        for (size_t k = 0; k < m->params.count; k++)
            if (k != m->output_bias)
                memset(pl_params_value(&m->params, k), 0, m->params.list[k].n * sizeof(float));
        pl_free(gradient(m, &b, 4, &noisy));
        m->noise.share = 0;
        pl_free(gradient(m, &b, 4, &clean));
        assert_memory_equal(&noisy, &clean, sizeof clean);
        pl_dalle_close(m);
    }
}

/* The slope along a random direction, by the gradient and by a difference. */
static void gradient_is_the_slope(void **state)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        struct pl_dalle *m = network(i, 3);
        struct batch b = random_batch(m, 2, i + 20);
        size_t n = m->params.total;
        float *direction = pl_alloc(n, sizeof *direction), *start = pl_alloc(n, sizeof *start),
              *grad;
        struct pl_dalle_loss loss, up, down;
        struct pl_rng rng;
        double slope = 0, size = 0, step = 1e-3;
        assert_true(direction && start);
        grad = gradient(m, &b, 2, &loss);
        memcpy(start, m->params.value, n * sizeof *start);
        pl_rng_init(&rng, 4, i);
        for (size_t k = 0; k < n; k++) {
            direction[k] = (float)pl_rng_normal(&rng);
            slope += (double)direction[k] * grad[k];
            size += (double)grad[k] * grad[k];
        }
        for (size_t k = 0; k < n; k++) m->params.value[k] = start[k] + (float)step * direction[k];
        assert_int_equal(pl_dalle_evaluate(m, b.text, b.codes, 2, &up, NULL, NULL), PL_OK);
        for (size_t k = 0; k < n; k++) m->params.value[k] = start[k] - (float)step * direction[k];
        assert_int_equal(pl_dalle_evaluate(m, b.text, b.codes, 2, &down, NULL, NULL), PL_OK);
        assert_true(fabs((up.total - down.total) / (2 * step) - slope) < 5e-3 * sqrt(size));
        pl_free(grad);
        pl_free(direction);
        pl_free(start);
        pl_dalle_close(m);
    }
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void cache_agrees_with_whole_passes(void **state)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        struct pl_dalle *m = network(i, 5);
        struct batch b = random_batch(m, 4, i + 30);
        int T = m->config.T, I = m->config.F * m->config.F, Vi = m->config.Vi;
        struct pl_kv_cache *cache;
        float want[4 * 8], got[4 * 8];
        int32_t given[128], last[4];
        memcpy(b.text + T, b.text,
               (size_t)T * sizeof *b.text); /* two equal captions side by side */
        assert_int_equal(pl_kv_cache_open(&cache, m, 5, NULL),
                         PL_OK);                  /* more capacity than needed */
        for (int again = 0; again < 2; again++) { /* remains of an earlier sampling must not
                                                   * matter */
            for (int cell = 0; cell < I; cell++) {
                for (int k = 0; k < 4; k++) {
                    memcpy(given + k * cell, b.codes + k * I, (size_t)cell * sizeof *given);
                    last[k] = cell ? b.codes[k * I + cell - 1] : 0;
                }
                assert_int_equal(pl_dalle_next(m, want, b.text, given, cell, 4, NULL), PL_OK);
                assert_int_equal(cell ? pl_kv_cache_step(cache, got, last, NULL)
                                      : pl_kv_cache_begin(cache, got, b.text, 4, NULL),
                                 PL_OK);
                for (int k = 0; k < 4 * Vi; k++) assert_float_equal(got[k], want[k], 2e-5);
            }
        }
        pl_kv_cache_close(cache);
        pl_dalle_close(m);
    }
}

static int stop_at(void *context, int64_t done, int64_t total)
{
    assert_true(done <= total);
    return done >= *(int64_t *)context;
}

static void draws_depend_on_the_seed_alone(void **state)
{
    struct pl_dalle *m = network(2, 6);
    struct batch b = random_batch(m, 5, 40);
    int T = m->config.T, I = m->config.F * m->config.F;
    struct pl_generate_options o = pl_generate_options();
    int32_t want[128], got[128];
    size_t bytes = (size_t)(5 * I) * sizeof *got;
    int64_t limit = 7;
    o.seed = 3;
    o.sampling.top_k = 5;
    o.guidance = 1.7;
    assert_int_equal(pl_generate(m, want, b.text, 5, &o, NULL), PL_OK);
    o.batch = 2; /* other batches */
    assert_int_equal(pl_generate(m, got, b.text, 5, &o, NULL), PL_OK);
    assert_memory_equal(got, want, bytes);
    o.uncached = 1; /* no cache */
    assert_int_equal(pl_generate(m, got, b.text, 5, &o, NULL), PL_OK);
    assert_memory_equal(got, want, bytes);
    o.uncached = 0; /* the last two alone */
    o.first_image = 3;
    assert_int_equal(pl_generate(m, got, b.text + 3 * T, 2, &o, NULL), PL_OK);
    assert_memory_equal(got, want + 3 * I, 2 * bytes / 5);
    o.seed = 4; /* another seed */
    assert_int_equal(pl_generate(m, got, b.text + 3 * T, 2, &o, NULL), PL_OK);
    assert_memory_not_equal(got, want + 3 * I, 2 * bytes / 5);
    o.progress = stop_at;
    o.context = &limit;
    assert_int_equal(pl_generate(m, got, b.text, 5, &o, NULL), PL_EAGAIN);
    pl_dalle_close(m);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refuses_ids_out_of_range(void **state)
{
    struct pl_dalle *m = network(1, 7);
    struct batch b = random_batch(m, 2, 50);
    struct pl_generate_options o = pl_generate_options();
    struct pl_dalle_loss loss;
    struct pl_err err;
    int32_t out[32], codes[2] = { 0 };
    struct pl_kv_cache *cache;
    float logits[2 * 8];
    m->samples = 1; /* the second sequence is refused before the first has left gradients */
    memset(m->params.grad, 0, m->params.total * sizeof(float));
    b.text[7] = m->config.V;
    assert_int_equal(pl_dalle_step(m, b.text, b.codes, 2, 1, &loss, &err), PL_EUSE);
    assert_string_equal(err.text, "sequence 1, text position 2: id 9, expected 0 to 8");
    for (size_t i = 0; i < m->params.total; i++) assert_true(m->params.grad[i] == 0);
    b.text[7] = 0;
    b.codes[4] = -1;
    assert_int_equal(pl_dalle_evaluate(m, b.text, b.codes, 2, &loss, NULL, &err), PL_EUSE);
    assert_string_equal(err.text, "sequence 0, image position 4: code -1, expected 0 to 4");
    o.sampling.temperature = 0;
    assert_int_equal(pl_generate(m, out, b.text, 2, &o, &err), PL_EUSE);
    assert_int_equal(pl_kv_cache_open(&cache, m, 2, NULL), PL_OK);
    assert_int_equal(pl_kv_cache_begin(cache, logits, b.text, 2, NULL), PL_OK);
    for (int i = 0; i < 2; i++) { /* one below and one above the range */
        codes[1] = i ? m->config.Vi : -1;
        assert_int_equal(pl_kv_cache_step(cache, logits, codes, &err), PL_EUSE);
        assert_string_equal(err.text, i ? "sequence 1, image position 0: code 5, expected 0 to 4"
                                        : "sequence 1, image position 0: code -1, expected 0 to 4");
    }
    codes[1] = m->config.Vi - 1;
    assert_int_equal(pl_kv_cache_step(cache, logits, codes, &err), PL_OK);
    pl_kv_cache_close(cache);
    pl_dalle_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values),
        cmocka_unit_test(three_modes_agree),
        cmocka_unit_test(parts_add_up_to_the_batch),
        cmocka_unit_test(noise_leaves_the_labels),
        cmocka_unit_test(gradient_is_the_slope),
        cmocka_unit_test(cache_agrees_with_whole_passes),
        cmocka_unit_test(draws_depend_on_the_seed_alone),
        cmocka_unit_test(refuses_ids_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
