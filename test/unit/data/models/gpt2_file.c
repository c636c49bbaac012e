/* gpt2_file.c - where a GPT-2's sizes come from, by which names its tensors are found, and what an
 * exported folder holds. */
#include "data/files/file.h"
#include "data/models/gpt2_file.h"
#include "runtime/models.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

#include <unistd.h>

static char folder[] = "/tmp/potluck-gpt2-XXXXXX", weights[80], config[80];
static struct pl_backend be;
static struct pl_err err;

/* Four layers, of which each second one is the same. */
static const struct pl_gpt2_config shared = {
    .layers = 4, .heads = 2, .width = 8, .positions = 6, .vocab = 10, .inner = 12, .groups = 2
};

static int parse(struct pl_gpt2_config *c, const char *text)
{
    json_t *root = json_loads(text, 0, NULL);
    int rc;
    assert_non_null(root);
    memset(c, 7, sizeof *c);
    rc = pl_gpt2_config_parse(c, root, "here", &err);
    json_decref(root);
    return rc;
}

#define SIZES "\"n_layer\":4,\"n_head\":2,\"n_embd\":8,\"vocab_size\":10,\"n_positions\":6"
#define SIDE "{" SIZES ",\"n_inner\":12}"

static void settings(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        { "{\"n_layer\":4,\"n_embd\":8,\"vocab_size\":10,\"n_positions\":6}", "n_head is missing" },
        { "{" SIZES ",\"n_group\":0}", "n_group is missing or no whole number from 1" },
        { "{" SIZES ",\"n_group\":5}", "n_group is 5, expected 0 to n_layer, 4" },
        { "{" SIZES ",\"n_inner\":0}", "n_inner is missing or no whole number from 1" },
        { "{\"n_layer\":4,\"n_head\":3,\"n_embd\":8,\"vocab_size\":10,\"n_positions\":6}",
          "n_embd is 8, expected a multiple of n_head, 3" },
    };
    struct pl_gpt2_config c;
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        assert_int_not_equal(parse(&c, wrong[i].text), PL_OK);
        assert_memory_equal(err.text, "here: ", 6);
        assert_non_null(strstr(err.text, wrong[i].why));
    }
    assert_int_equal(parse(&c, "{" SIZES ",\"n_inner\":12,\"n_group\":2}"), PL_OK);
    assert_memory_equal(&c, &shared, sizeof c);
    /* The smallest model there is. */
    assert_int_equal(parse(&c, "{\"n_layer\":1,\"n_head\":1,\"n_embd\":1,\"vocab_size\":1,"
                               "\"n_positions\":1,\"n_inner\":1,\"n_group\":1}"),
                     PL_OK);
    /* The hub writes null for the usual inner width, which is four times the width. */
    assert_int_equal(parse(&c, "{" SIZES ",\"n_inner\":null}"), PL_OK);
    assert_int_equal(c.inner, 32);
    assert_int_equal(c.groups, 0);
    assert_int_equal(parse(&c, "{" SIZES "}"), PL_OK);
    assert_int_equal(c.inner, 32);
}

static void model(struct pl_gpt2 *m)
{
    assert_int_equal(pl_gpt2_init(m, &shared, &be, 0), PL_OK);
    assert_int_equal(pl_gpt2_reset(m, 3), PL_OK);
}

static void names(void **state)
{
    static const char *const unknown[] = { "", "wte", "h.0.attn.bias", "lm_head.weight",
                                           "transformer.transformer.wte.weight" };
    char text[PL_NAME_MAX + 1];
    struct pl_gpt2 m;
    model(&m);
    for (size_t i = 0; i < m.params.count; i++) {
        const char *name = m.params.list[i].name;
        assert_int_equal(pl_gpt2_find(&m.params, name), i);
        assert_memory_equal(name, "transformer.", 12);
        assert_int_equal(pl_gpt2_find(&m.params, name + 12), i);
    }
    for (size_t i = 0; i < PL_COUNT(unknown); i++)
        assert_int_equal(pl_gpt2_find(&m.params, unknown[i]), -1);
    memset(text, 'w', PL_NAME_MAX);
    text[PL_NAME_MAX] = 0;
    assert_int_equal(pl_gpt2_find(&m.params, text), -1);
    pl_gpt2_clear(&m);
}

/* A file of the model, with this text as its metadata "config". */
static void save(const struct pl_gpt2 *m, const char *text)
{
    struct pl_checkpoint c = { .params = &m->params, .transposed = pl_gpt2_is_transposed };
    c.config = text ? json_loads(text, 0, NULL) : NULL;
    assert_true(c.config || !text);
    assert_int_equal(pl_checkpoint_save(&c, weights, &err), PL_OK);
    json_decref(c.config);
}

static int heads_of(const char *path)
{
    struct pl_gpt2 m;
    int rc = pl_gpt2_open(&m, path, &be, 0, &err), heads = m.config.heads;
    if (rc) return rc;
    pl_gpt2_clear(&m);
    return heads;
}

/* From the metadata, else from config.json in the same folder, else from the shapes, which do not show the number of heads. */
static void where_sizes_come_from(void **state)
{
    struct pl_gpt2_config plain = shared;
    struct pl_gpt2 m;
    plain.groups = 0;
    assert_int_equal(pl_gpt2_init(&m, &plain, &be, 0), PL_OK);
    save(&m, "{" SIZES ",\"n_inner\":12}");
    assert_int_equal(heads_of(weights), 2);
    save(&m, "{\"model\":{" SIZES ",\"n_inner\":12},\"dim\":3}"); /* of a training program */
    assert_int_equal(heads_of(weights), 2);
    save(&m, "{\"another\":1}");
    assert_int_equal(heads_of(weights), 1);
    save(&m, NULL);
    assert_int_equal(heads_of(weights), 1);
    assert_int_equal(pl_file_write(config, SIDE, strlen(SIDE), &err), PL_OK);
    assert_int_equal(heads_of(weights), 2);
    assert_int_equal(pl_file_write(config, "{\"n_layer\":4}", 13, &err), PL_OK);
    assert_true(heads_of(weights) < 0);
    assert_memory_equal(err.text, config, strlen(config)); /* names the file at fault */
    save(&m, "{" SIZES ",\"n_inner\":13}");
    assert_true(heads_of(weights) < 0);
    assert_non_null(strstr(err.text, "has another shape"));
    unlink(config);
    pl_gpt2_clear(&m);
}

/* Shared layers are written for each layer that uses them, so that transformers needs no word for
 * them: the exported model has no groups and computes the same. */
static void exported(void **state)
{
    static const int32_t ids[] = { 1, 9, 0, 4 };
    float want[40], got[40];
    for (int end = -1; end < 10; end += 10) {
        struct pl_gpt2 m, again;
        json_t *root, *token;
        model(&m);
        assert_int_equal(pl_gpt2_logits(&m, want, ids, NULL, 1, 4), PL_OK);
        assert_int_equal(pl_gpt2_export(&m, end, folder, &err), PL_OK);
        assert_int_equal(m.config.groups, 2);
        pl_gpt2_clear(&m);
        assert_int_equal(pl_gpt2_open(&again, weights, &be, 0, &err), PL_OK);
        assert_int_equal(again.config.groups, 0);
        assert_int_equal(again.config.layers, 4);
        assert_int_equal(pl_gpt2_logits(&again, got, ids, NULL, 1, 4), PL_OK);
        for (size_t i = 0; i < PL_COUNT(want); i++) assert_true(got[i] == want[i]);
        pl_gpt2_clear(&again);
        root = json_load_file(config, 0, NULL);
        assert_non_null(root);
        assert_string_equal(json_string_value(json_object_get(root, "model_type")), "gpt2");
        assert_string_equal(json_string_value(
                                json_array_get(json_object_get(root, "architectures"), 0)),
                            "GPT2LMHeadModel");
        assert_string_equal(json_string_value(json_object_get(root, "activation_function")),
                            "gelu_new");
        assert_true(json_real_value(json_object_get(root, "layer_norm_epsilon")) == 1e-5);
        assert_true(json_is_true(json_object_get(root, "tie_word_embeddings")));
        assert_int_equal(json_integer_value(json_object_get(root, "n_inner")), 12);
        assert_null(json_object_get(root, "n_group"));
        token = json_object_get(root, "eos_token_id");
        assert_true(end < 0 ? json_is_null(token) : json_integer_value(token) == end);
        token = json_object_get(root, "bos_token_id");
        assert_true(end < 0 ? json_is_null(token) : json_integer_value(token) == end);
        json_decref(root);
        unlink(config);
    }
}

static int setup(void **state)
{
    pl_backend_ref(&be);
    if (!mkdtemp(folder)) return -1;
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(weights);
    unlink(config);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings),
        cmocka_unit_test(names),
        cmocka_unit_test(where_sizes_come_from),
        cmocka_unit_test(exported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
