/* gpt2.c - GPT-2 beyond its golden values: stored and recomputed activations give the same
 * gradient, and a checkpoint restores everything. */
#include "data/models/gpt2_file.h"
#include "ref/rng.h"
#include "runtime/models.h"
#include "test/unit/unit.h"

#include <unistd.h>

static const struct pl_gpt2_config config = { 3, 2, 24, 12, 40, 72, 0 };
static struct pl_backend be;
static struct pl_gpt2 m;
static int32_t ids[24];

static int setup(void **state)
{
    struct pl_rng rng;
    pl_backend_ref(&be);
    pl_rng_init(&rng, 4, 0);
    for (size_t i = 0; i < PL_COUNT(ids); i++) ids[i] = (int32_t)pl_rng_below(&rng, 40);
    return pl_gpt2_init(&m, &config, &be, 1) || pl_gpt2_reset(&m, 3);
}

static int teardown(void **state)
{
    pl_gpt2_clear(&m);
    return 0;
}

static void initial_values(void **state)
{
    const struct pl_params *p = &m.params;
    double sum;
    be.sumsq(&sum, pl_params_value(p, m.tokens), 40 * 24);
    assert_true(sum > 0.7 * 960 * 0.0004 && sum < 1.3 * 960 * 0.0004);
    be.sumsq(&sum, pl_params_value(p, m.stack.part[1][PL_PROJ_W]),
             24 * 72); /* 2 x 3 sums in the stream */
    assert_true(sum > 0.7 * 1728 * 0.0004 / 6 && sum < 1.3 * 1728 * 0.0004 / 6);
    be.sumsq(&sum, pl_params_value(p, m.norm_weight), 24);
    assert_true(sum == 24);
    be.sumsq(&sum, pl_params_value(p, m.stack.part[0][PL_FC_B]), 72);
    assert_true(sum == 0);
}

/* As many tokens as there are positions, and not one more. */
static void positions_are_a_limit(void **state)
{
    int n = config.positions;
    float *logits = malloc((size_t)(n + 1) * 40 * sizeof *logits);
    int32_t *row = calloc((size_t)n + 1, sizeof *row);
    double loss;
    assert_int_equal(pl_gpt2_logits(&m, logits, row, NULL, 1, n), PL_OK);
    assert_int_equal(pl_gpt2_logits(&m, logits, row, NULL, 1, n + 1), PL_EUSE);
    assert_int_equal(pl_gpt2_loss(&m, &loss, row, row, NULL, 1, n, 1), PL_OK);
    assert_int_equal(pl_gpt2_loss(&m, &loss, row, row, NULL, 1, n + 1, 1), PL_EUSE);
    for (int bad = -1; bad <= 40; bad += 41) {
        row[n - 1] = bad;
        assert_int_equal(pl_gpt2_logits(&m, logits, row, NULL, 1, n), PL_EUSE);
    }
    row[n - 1] = 39;
    assert_int_equal(pl_gpt2_logits(&m, logits, row, NULL, 1, n), PL_OK);
    free(logits);
    free(row);
}

static void stored_is_recomputed(void **state)
{
    size_t n = m.params.total;
    float *first = malloc(n * sizeof *first);
    double losses[2];
    assert_non_null(first);
    for (int stored = 0; stored <= 1; stored++) {
        m.stack.stored = stored;
        be.fill(m.params.grad, 0, n);
        assert_int_equal(pl_gpt2_loss(&m, &losses[stored], ids, ids, NULL, 2, 12, 1), PL_OK);
        if (!stored) memcpy(first, m.params.grad, n * sizeof *first);
        assert_null(m.stack.made);
    }
    assert_memory_equal(first, m.params.grad, n * sizeof *first);
    assert_true(losses[0] == losses[1] && losses[0] > 3.5 && losses[0] < 3.9); /* ln 40 = 3.69 */
    m.stack.stored = 0;
    free(first);
}

static void a_checkpoint(void **state)
{
    struct pl_optimizer_options options = pl_adam_options(0.01, 8);
    struct pl_optimizer *o, *p;
    struct pl_gpt2 other;
    struct st_file *f;
    struct pl_err err = { "" };
    char path[] = "/tmp/potluck-gpt2-XXXXXX";
    json_t *training = json_pack("{s:i}", "step", 1);
    uint8_t code[960], again[960];
    int fd = mkstemp(path);
    double loss;
    close(fd);
    options.min_8bit = 960; /* the token table alone */
    assert_int_equal(pl_optimizer_open_params(&o, &m.params, &options, &err), PL_OK);
    assert_int_equal(pl_gpt2_loss(&m, &loss, ids, ids, NULL, 2, 12, 1), PL_OK);
    assert_int_equal(pl_optimizer_step(o, m.params.value, m.params.grad, 0.01), PL_OK);
    assert_int_equal(pl_gpt2_save(&m, o, training, path, &err), PL_OK);
    assert_int_equal(pl_gpt2_open(&other, path, &be, 0, &err), PL_OK);
    assert_int_equal(other.config.heads, 2);
    assert_memory_equal(other.params.value, m.params.value, m.params.total * sizeof(float));
    assert_int_equal(pl_safetensors_open(&f, path, &err), PL_OK);
    assert_int_equal(pl_safetensors_find(f, "transformer.h.0.mlp.c_fc.weight")->shape[0],
                     24); /* as the peer has it */
    assert_int_equal(pl_optimizer_open_params(&p, &m.params, &options, &err), PL_OK);
    assert_int_equal(pl_checkpoint_load_optimizer(&m.params, p, f, &err), PL_OK);
    assert_string_equal(pl_optimizer_state_at(o, 2).name, "state1");
    assert_int_equal(pl_optimizer_state_get(o, 2, code), PL_OK);
    assert_int_equal(pl_optimizer_state_get(p, 2, again), PL_OK);
    assert_memory_equal(code, again, sizeof code);
    pl_safetensors_close(f);
    pl_optimizer_close(o);
    pl_optimizer_close(p);
    pl_gpt2_clear(&other);
    json_decref(training);
    unlink(path);
}

/* Blocks 0 and 2 share one set: the gradient of a shared matrix is the sum of both, and the export
 * for a program that shares nothing computes the same. */
static void shared_layers(void **state)
{
    struct pl_gpt2_config shared = config;
    struct pl_gpt2 a, b;
    struct pl_err err = { "" };
    char folder[] = "/tmp/potluck-gpt2-XXXXXX", path[80];
    double one, other;
    const float *sum, *x, *y;
    shared.groups = 2;
    assert_int_equal(pl_gpt2_init(&a, &shared, &be, 1), PL_OK);
    assert_int_equal(pl_gpt2_reset(&a, 5), PL_OK);
    assert_int_equal(a.params.count, m.params.count - 8);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pl_gpt2_export(&a, -1, folder, &err), PL_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(pl_gpt2_open(&b, path, &be, 1, &err), PL_OK);
    assert_int_equal(b.config.groups, 0);
    assert_int_equal(pl_gpt2_loss(&a, &one, ids, ids, NULL, 2, 12, 1), PL_OK);
    assert_int_equal(pl_gpt2_loss(&b, &other, ids, ids, NULL, 2, 12, 1), PL_OK);
    assert_true(one == other);
    sum = pl_params_grad(&a.params, a.stack.part[2][PL_FC_W]);
    x = pl_params_grad(&b.params, b.stack.part[0][PL_FC_W]);
    y = pl_params_grad(&b.params, b.stack.part[2][PL_FC_W]);
    for (size_t i = 0; i < 24 * 72; i++)
        assert_true(sum[i] - (x[i] + y[i]) < 1e-6f && x[i] + y[i] - sum[i] < 1e-6f);
    assert_true(a.stack.part[0][PL_LN1_WEIGHT] != a.stack.part[2][PL_LN1_WEIGHT]);
    pl_gpt2_clear(&a);
    pl_gpt2_clear(&b);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
}

/* Each size is 1 at least; and the published sizes are what they are. */
static void sizes_are_checked(void **state)
{
    static const struct {
        const char *name;
        int layers, heads, width;
    } published[] = { { "gpt2", 12, 12, 768 },
                      { "gpt2-medium", 24, 16, 1024 },
                      { "gpt2-large", 36, 20, 1280 },
                      { "gpt2-xl", 48, 25, 1600 } };
    struct pl_gpt2_config bad[6];
    struct pl_err err;
    for (int i = 0; i < 6; i++) bad[i] = config;
    bad[0].layers = bad[1].heads = bad[2].width = 0;
    bad[3].positions = bad[4].vocab = bad[5].inner = 0;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pl_gpt2_check(&bad[i], &err), PL_EUSE);
        assert_non_null(strstr(err.text, "GPT-2 configuration"));
    }
    for (size_t i = 0; i < PL_COUNT(published); i++) {
        struct pl_gpt2_config c;
        assert_int_equal(pl_gpt2_named(&c, published[i].name, &err), PL_OK);
        assert_int_equal(c.layers, published[i].layers);
        assert_int_equal(c.heads, published[i].heads);
        assert_int_equal(c.width, published[i].width);
        assert_int_equal(c.positions, 1024);
        assert_int_equal(c.vocab, 50257);
        assert_int_equal(c.inner, 4 * published[i].width);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values),       cmocka_unit_test(positions_are_a_limit),
        cmocka_unit_test(stored_is_recomputed), cmocka_unit_test(a_checkpoint),
        cmocka_unit_test(shared_layers),        cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
