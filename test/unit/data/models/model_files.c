/* model_files.c - files of a VQGAN and a GPT-2: values as they were saved, sizes from metadata or
 * from shapes, and the error for a file of another model. */
#include "data/files/file.h"
#include "data/models/checkpoint.h"
#include "data/models/gpt2_file.h"
#include "data/models/vqgan_file.h"
#include "data/models/weights.h"
#include "runtime/models.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

#include <unistd.h>

static char folder[] = "/tmp/potluck-models-XXXXXX", path[80];
static struct pl_backend be;
static struct pl_err err;

#define CONFIG \
    "{'embed_dim': 4, 'n_embed': 16, %s 'ddconfig': {'ch': 4, 'ch_mult': [1, 2], %s" \
    "'num_res_blocks': 1, 'attn_resolutions': [8], 'resolution': 16, 'z_channels': 4, 'norm_groups': 2}}"

/* Single quotes, which need no escape in C, become JSON's. */
static json_t *json_of(const char *text)
{
    char *copy = strdup(text);
    json_t *root;
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    root = json_loads(copy, 0, NULL);
    free(copy);
    assert_non_null(root);
    return root;
}

static int parse(struct pl_vqgan_config *c, const char *more, const char *inner)
{
    char text[600];
    json_t *root;
    int rc;
    snprintf(text, sizeof text, CONFIG, more, inner);
    root = json_of(text);
    rc = pl_vqgan_config_parse(c, root, "here", &err);
    json_decref(root);
    return rc;
}

static void vqgan_settings(void **state)
{
    static const struct {
        const char *more, *inner, *why;
    } wrong[] = {
        { "", "'double_z': true,", "double_z models have no codes" },
        { "", "'double_z': 1,", "double_z is neither true nor false" },
        { "", "'resamp_with_conv': false,", "resamp_with_conv must be true" },
        { "", "'attn_type': 'linear',", "attn_type must be vanilla" },
        { "", "'in_channels': 4,", "in_channels is 4, expected 3" },
        { "", "'out_ch': 1,", "out_ch is 1, expected 3" },
        { "'remap': 'x.npy',", "", "remap" },
        { "'kl_weight': 'much',", "", "kl_weight is not a number" },
    };
    struct pl_vqgan_config c, again;
    json_t *root;
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        assert_true(parse(&c, wrong[i].more, wrong[i].inner) < 0);
        assert_non_null(strstr(err.text, wrong[i].why));
        assert_memory_equal(err.text, "here: ", 6);
    }
    assert_int_equal(parse(&c, "'kl_weight': 0.5,", "'in_channels': 3, 'double_z': false,"), PL_OK);
    assert_int_equal(c.gumbel, 1);
    root = pl_vqgan_config_json(&c);
    assert_int_equal(pl_vqgan_config_parse(&again, root, "", &err), PL_OK);
    json_decref(root);
    assert_memory_equal(&again, &c, sizeof c);
    root = json_of("{'ddconfig': {}}");
    assert_int_equal(pl_vqgan_config_parse(&c, root, "here", &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "embed_dim is missing"));
    json_decref(root);
}

/* Round to nearest even, by hand: values near a tie, ties both ways, subnormal numbers. */
static void halves_are_rounded(void **state)
{
    static const float cases[][2] = {
        { 1.0f / 3, 0.333251953125f },
        { -0.1f, -0.0999755859375f },
        { 65519.996f, 65504 },
        { 1 + 0x1p-11f, 1 },
        { 1 + 3 * 0x1p-11f, 1 + 0x1p-9f },
        { 1 + 0x1.8p-11f, 1 + 0x1p-10f },
        { 0x1p-25f, 0 },
        { 3 * 0x1p-25f, 0x1p-23f },
        { -0x1p-14f, -0x1p-14f },
        { 0x1.ff8p-15f, 0x1.ff8p-15f },
    };
    struct pl_vqgan_config c;
    struct pl_vqgan m, again;
    float *x, *y;
    size_t n, largest = 0;
    assert_int_equal(parse(&c, "", ""), PL_OK);
    assert_int_equal(pl_vqgan_init(&m, &c, &be, 0), PL_OK);
    for (size_t i = 0; i < m.params.count; i++)
        if (m.params.list[i].n > m.params.list[largest].n) largest = i;
    n = m.params.list[largest].n;
    x = calloc(n, sizeof *x);
    y = calloc(n, sizeof *y);
    assert_true(n >= PL_COUNT(cases));
    for (size_t i = 0; i < PL_COUNT(cases); i++) x[i] = cases[i][0];
    assert_int_equal(pl_params_put(&m.params, largest, x), PL_OK);
    for (int half = 0; half <= 1; half++) {
        assert_int_equal(pl_vqgan_save(&m, path, half, &err), PL_OK);
        assert_int_equal(pl_vqgan_open(&again, path, &be, 0, &err), PL_OK);
        assert_memory_equal(&again.config, &c, sizeof c);
        assert_int_equal(pl_params_get(&again.params, largest, y), PL_OK);
        for (size_t i = 0; i < PL_COUNT(cases); i++) assert_true(y[i] == cases[i][half]);
        pl_vqgan_clear(&again);
    }
    x[3] = 65520; /* the first that rounds to infinity */
    assert_int_equal(pl_params_put(&m.params, largest, x), PL_OK);
    assert_int_equal(pl_vqgan_save(&m, path, 1, &err), PL_ELIMIT);
    assert_non_null(strstr(err.text, "holds 65520, which float16 does not"));
    assert_int_equal(pl_vqgan_save(&m, path, 0, &err), PL_OK);
    free(x);
    free(y);
    pl_vqgan_clear(&m);
}

static char *path_in(const char *name) { return pl_path_join(folder, name); }

/* Weights that say nothing of their configuration: it is in a file of their name, whatever its kind,
 * else in one called config or model; YAML before JSON. Only a configuration of a VQGAN counts. */
static void configurations_in_the_folder(void **state)
{
    static const char *const names[] = { /* the later ones come first */
                                         "model.json",    "model.yml",    "model.yaml",
                                         "config.json",   "config.yml",   "config.yaml",
                                         "a.config.json", "a.config.yml", "a.config.yaml",
                                         "a.model.json",  "a.model.yml",  "a.model.yaml"
    };
    struct pl_checkpoint c = { 0 };
    struct pl_vqgan_config config;
    struct pl_vqgan m;
    struct st_file *f;
    char *weights = path_in("a.model.safetensors");
    assert_int_equal(parse(&config, "", ""), PL_OK);
    assert_int_equal(pl_vqgan_init(&m, &config, &be, 0), PL_OK);
    c.params = &m.params;
    assert_int_equal(pl_checkpoint_save(&c, weights, &err), PL_OK);
    assert_int_equal(pl_weights_open(&f, weights, &err), PL_OK);
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        char text[600], *path_of = path_in(names[i]);
        snprintf(text, sizeof text,
                 "{\"embed_dim\": 4, \"n_embed\": 16, \"kl_weight\": %zu, "
                 "\"ddconfig\": {\"ch\": 4, \"ch_mult\": [1, 2], "
                 "\"num_res_blocks\": 1, \"attn_resolutions\": [8], "
                 "\"resolution\": 16, \"z_channels\": 4, \"norm_groups\": 2}}",
                 i + 1);
        assert_int_equal(pl_file_write(path_of, text, strlen(text), &err), PL_OK);
        assert_int_equal(pl_vqgan_config_find(&config, f, &err), PL_OK);
        assert_true(config.kl_weight == (float)(i + 1));
        free(path_of);
    }
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        char *path_of = path_in(names[i]);
        assert_int_equal(unlink(path_of), 0);
        free(path_of);
    }
    char *other = path_in(
        "config.json"); /* another program's: the shapes decide, which say 32 groups */
    assert_int_equal(pl_file_write(other, "{\"ch\": 4}", 9, &err), PL_OK);
    assert_int_not_equal(pl_vqgan_config_find(&config, f, &err), PL_OK);
    assert_non_null(strstr(err.text, "32"));
    pl_safetensors_close(f);
    pl_vqgan_clear(&m);
    unlink(other);
    unlink(weights);
    free(other);
    free(weights);
}

/* CRC-32 of the file's bytes, of which the check value is published with the polynomial. */
static void the_identity_of_a_file(void **state)
{
    char text[VQGAN_IDENTITY_SIZE];
    assert_int_equal(pl_file_write(path, "123456789", 9, &err), PL_OK);
    assert_int_equal(pl_vqgan_identity(text, path, &err), PL_OK);
    assert_string_equal(text, "cbf43926");
    assert_int_equal(pl_vqgan_identity(text, "/no/such/file", &err), PL_EIO);
}

static const struct pl_gpt2_config small = {
    .layers = 2, .heads = 2, .width = 8, .positions = 6, .vocab = 10, .inner = 12
};

static void gpt2_sizes_from_shapes(void **state)
{
    struct pl_gpt2_config c;
    struct pl_gpt2 m;
    struct st_file *f;
    assert_int_equal(pl_gpt2_init(&m, &small, &be, 0), PL_OK);
    assert_int_equal(pl_gpt2_save(&m, NULL, NULL, path, &err), PL_OK);
    pl_gpt2_clear(&m);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    assert_int_equal(pl_gpt2_config_find(&c, f, 2, &err), PL_OK);
    assert_memory_equal(&c, &small, sizeof c);
    assert_int_equal(pl_gpt2_config_find(&c, f, 0, &err), PL_OK);
    assert_int_equal(c.heads, 1); /* 8 is no multiple of 64 */
    assert_int_equal(pl_gpt2_config_find(&c, f, 3, &err), PL_EUSE);
    pl_safetensors_close(f);
    assert_int_equal(pl_weights_open(&f, "test/golden/vqgan/vq_f16_small.weights.safetensors",
                                     &err),
                     PL_OK);
    assert_int_equal(pl_gpt2_config_find(&c, f, 0, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "not a GPT-2: wte.weight"));
    pl_safetensors_close(f);
}

static void gpt2_of_other_sizes(void **state)
{
    struct pl_gpt2_config other = small;
    struct pl_gpt2 m;
    struct st_file *f;
    assert_int_equal(pl_gpt2_init(&m, &small, &be, 0), PL_OK);
    assert_int_equal(pl_gpt2_save(&m, NULL, NULL, path, &err), PL_OK);
    pl_gpt2_clear(&m);
    other.vocab = 11;
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    assert_int_equal(pl_gpt2_init(&m, &other, &be, 0), PL_OK);
    assert_int_equal(pl_gpt2_load(&m, f, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "wte.weight has another shape than the model's [11,"));
    pl_gpt2_clear(&m);
    other = small;
    other.layers = 3;
    assert_int_equal(pl_gpt2_init(&m, &other, &be, 0), PL_OK);
    assert_int_equal(pl_gpt2_load(&m, f, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "no tensor transformer.h.2."));
    pl_gpt2_clear(&m);
    pl_safetensors_close(f);
}

/* A checkpoint of a wider model, and of another optimizer. */
static void checkpoint_of_another_model(void **state)
{
    struct pl_gpt2_config wide = small;
    struct pl_optimizer_options full = pl_adam_options(0, 32), few = pl_adam_options(0, 8);
    struct pl_checkpoint c = { 0 };
    struct pl_optimizer *o;
    struct pl_gpt2 m;
    struct st_file *f;
    wide.width = 32;
    few.min_8bit = 1; /* small tensors, too */
    assert_int_equal(pl_gpt2_init(&m, &wide, &be, 1), PL_OK);
    assert_int_equal(pl_optimizer_open_params(&o, &m.params, &full, &err), PL_OK);
    c.params = &m.params;
    c.optimizer = o;
    assert_int_equal(pl_checkpoint_save(&c, path, &err), PL_OK);
    pl_optimizer_close(o);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    assert_int_equal(pl_checkpoint_load_params(&m.params, f, pl_checkpoint_exact, &err), PL_OK);
    assert_int_equal(pl_optimizer_open_params(&o, &m.params, &few, &err), PL_OK);
    assert_int_equal(pl_checkpoint_load_optimizer(&m.params, o, f, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "no tensor optimizer.transformer.wte.weight.absmax1"));
    pl_optimizer_close(o);
    assert_null(pl_checkpoint_json(f, "training", &err));
    assert_non_null(strstr(err.text, "no metadata entry 'training'"));
    pl_gpt2_clear(&m);
    assert_int_equal(pl_gpt2_init(&m, &small, &be, 0), PL_OK);
    assert_int_equal(pl_checkpoint_load_params(&m.params, f, pl_checkpoint_exact, &err),
                     PL_EFORMAT);
    assert_non_null(strstr(err.text, " has shape [96], expected [24]"));
    pl_gpt2_clear(&m);
    pl_safetensors_close(f);
}

/* Outer state that peers share is a tensor of its own; a file without it, of a training alone, leaves
 * phi as the parameters. */
static void checkpoint_with_outer_state(void **state)
{
    struct pl_optimizer_options lamb = pl_lamb_options();
    struct pl_outer_setup s;
    struct pl_checkpoint c = { 0 };
    struct pl_optimizer *o;
    struct pl_outer *outer[2];
    struct pl_gpt2 m;
    pl_outer_defaults(&s);
    assert_int_equal(pl_gpt2_init(&m, &small, &be, 1), PL_OK);
    const struct pl_outer_tensor all = { 0, m.params.total, 1, { (int64_t)m.params.total }, 0 };
    s.be = &be;
    s.tensors = &all;
    s.count = 1;
    for (int k = 0; k < 2; k++) {
        float *x = m.params.value;
        x[0] = (float)(k + 1);
        assert_int_equal(pl_outer_open(&outer[k], pl_outer_find("diloco"), &s, x, &err), PL_OK);
    }
    assert_int_equal(pl_optimizer_open_params(&o, &m.params, &lamb, &err), PL_OK);
    c.params = &m.params;
    c.optimizer = o;
    for (int with = 0; with < 2; with++) {
        struct st_file *f;
        c.outer = with ? outer[0] : NULL;
        assert_int_equal(pl_checkpoint_save(&c, path, &err), PL_OK);
        assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
        assert_true(!pl_safetensors_find(f, "outer.state") == !with);
        m.params.value[0] = 3;
        assert_int_equal(pl_checkpoint_load_outer(outer[1], m.params.value, f, &err), PL_OK);
        assert_true(pl_outer_get(outer[1], "phi")[0] == (with ? 1 : 3));
        m.params.value[0] = 0;
        assert_int_equal(pl_checkpoint_load_params(&m.params, f, pl_checkpoint_exact, &err), PL_OK);
        assert_true(m.params.value[0] == 2);
        pl_safetensors_close(f);
    }
    pl_optimizer_close(o);
    for (int k = 0; k < 2; k++) pl_outer_close(outer[k]);
    pl_gpt2_clear(&m);
}

static int setup(void **state)
{
    pl_backend_ref(&be);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vqgan_settings),
        cmocka_unit_test(halves_are_rounded),
        cmocka_unit_test(configurations_in_the_folder),
        cmocka_unit_test(the_identity_of_a_file),
        cmocka_unit_test(gpt2_sizes_from_shapes),
        cmocka_unit_test(gpt2_of_other_sizes),
        cmocka_unit_test(checkpoint_of_another_model),
        cmocka_unit_test(checkpoint_with_outer_state),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
