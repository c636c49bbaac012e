/* yaml.c - published settings; text that is not YAML, and aliases that expand without end. */
#include "data/models/vqgan_file.h"
#include "data/files/file.h"
#include "data/files/yaml.h"
#include "data/models/weights.h"
#include "runtime/models.h"
#include "test/unit/unit.h"

#include <unistd.h>

static struct pl_err err;

static json_t *parse(const char *text)
{
    json_t *json;
    return pl_yaml_parse(&json, text, strlen(text), "y", &err) ? NULL : json;
}

static void scalars_have_the_type_of_their_text(void **state)
{
    json_t *j = parse("a: 1\nb: -2.5\nc: 1.0e-08\nd: False\ne: ~\nf: '1'\ng: text\nh: [1, 2]\ni: "
                      "{j: k}\nl: .inf\n");
    assert_non_null(j);
    assert_int_equal(json_integer_value(json_object_get(j, "a")), 1);
    assert_true(json_real_value(json_object_get(j, "b")) == -2.5);
    assert_true(json_real_value(json_object_get(j, "c")) == 1e-8);
    assert_true(json_is_false(json_object_get(j, "d")));
    assert_true(json_is_null(json_object_get(j, "e")));
    assert_string_equal(json_string_value(json_object_get(j, "f")), "1");
    assert_string_equal(json_string_value(json_object_get(j, "g")), "text");
    assert_int_equal(json_array_size(json_object_get(j, "h")), 2);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "i"), "j")), "k");
    assert_true(json_is_string(json_object_get(j, "l")));
    json_decref(j);
    j = parse("a: 9223372036854775807\nb: -9223372036854775808\nc: 9223372036854775808\nd: "
              "-99999999999999999999\ne: 1e400\nf: 0x10\ng: 1e5\nh: 12 34\ni: +7\nj: nan\n");
    assert_non_null(j);
    assert_true(json_integer_value(json_object_get(j, "a")) == INT64_MAX);
    assert_true(json_integer_value(json_object_get(j, "b")) == INT64_MIN);
    assert_true(json_is_real(json_object_get(j, "c"))); /* one too large for an integer */
    assert_true(json_real_value(json_object_get(j, "c")) == 0x1p63);
    assert_true(json_real_value(json_object_get(j, "d")) == -1e20);
    assert_string_equal(json_string_value(json_object_get(j, "e")), "1e400");
    assert_string_equal(json_string_value(json_object_get(j, "f")), "0x10");
    assert_true(json_real_value(json_object_get(j, "g")) == 1e5);
    assert_string_equal(json_string_value(json_object_get(j, "h")), "12 34");
    assert_int_equal(json_integer_value(json_object_get(j, "i")), 7);
    assert_string_equal(json_string_value(json_object_get(j, "j")), "nan");
    json_decref(j);
}

static void broken_texts_are_refused(void **state)
{
    assert_null(parse(""));
    assert_null(parse("a: [1"));
    assert_null(parse("? [a]\n: b"));
    assert_null(parse("a: \"\\0\""));
    assert_null(parse("\t- x"));
    assert_null(parse("a: 1\n<<: 2"));
    assert_non_null(strstr(err.text, "<< names no mapping"));
    assert_null(parse("<<: [{a: 1}, 2]"));
    assert_null(parse("a: *b"));
}

/* Each line doubles what the last one means: 2^30 values from 30 lines. */
static void aliases_without_end_are_refused(void **state)
{
    char text[4096];
    size_t n = (size_t)sprintf(text, "a0: &a0 [x, x]\n");
    for (int i = 1; i < 30; i++)
        n += (size_t)sprintf(text + n, "a%d: &a%d [*a%d, *a%d]\n", i, i, i - 1, i - 1);
    assert_null(parse(text));
    assert_non_null(strstr(err.text, "more than"));
}

/* `levels` lists, or mappings, in each other, around a number. */
static json_t *parse_nested(int levels, int mappings)
{
    char text[1024];
    size_t n = 0;
    for (int i = 0; i < levels; i++) n += (size_t)sprintf(text + n, "%s", mappings ? "{a: " : "[");
    n += (size_t)sprintf(text + n, "1");
    for (int i = 0; i < levels; i++) n += (size_t)sprintf(text + n, "%s", mappings ? "}" : "]");
    return parse(text);
}

static void depth_is_limited(void **state)
{
    for (int mappings = 0; mappings < 2; mappings++) {
        json_t *j = parse_nested(YAML_DEPTH_MAX, mappings);
        assert_non_null(j);
        json_decref(j);
        assert_null(parse_nested(YAML_DEPTH_MAX + 1, mappings));
        assert_non_null(strstr(err.text, "nested more than"));
    }
}

static const char published[] =
    "model:\n  base_learning_rate: 4.5e-06\n  target: taming.models.vqgan.GumbelVQ\n  params:\n"
    "    kl_weight: 1.0e-08\n    embed_dim: 256\n    n_embed: 8192\n    monitor: val/rec_loss\n"
    "    temperature_scheduler_config:\n      target: taming.lr_scheduler.LambdaWarmUpCosineScheduler\n"
    "    ddconfig:\n      double_z: False\n      z_channels: 256\n      resolution: 256\n"
    "      in_channels: 3\n      out_ch: 3\n      ch: 128\n      ch_mult:\n      - 1\n      - 1\n      - 2\n"
    "      - 4\n      num_res_blocks: 2\n      attn_resolutions:\n      - 32\n      dropout: 0.0\n";

static void the_published_codec_is_known(void **state)
{
    char path[] = "/tmp/potluck-yaml-XXXXXX";
    struct pl_vqgan_config c, want;
    struct pl_vqgan m;
    int fd = mkstemp(path);
    close(fd);
    assert_int_equal(pl_file_write(path, published, strlen(published), &err), PL_OK);
    assert_int_equal(pl_vqgan_config_read(&c, path, &err), PL_OK);
    assert_int_equal(pl_vqgan_named(&want, "gumbel_f8", &err), PL_OK);
    assert_memory_equal(&c, &want, sizeof c);
    assert_int_equal(pl_vqgan_declare(&m, &c), PL_OK);
    assert_int_equal(m.params.trainable, 68995971); /* [spec images-and-text 1.3] */
    pl_vqgan_clear(&m);
    unlink(path);
}

static int read_text(struct pl_vqgan_config *c, const char *text)
{
    char path[] = "/tmp/potluck-yaml-XXXXXX";
    int fd = mkstemp(path), rc;
    close(fd);
    assert_int_equal(pl_file_write(path, text, strlen(text), &err), PL_OK);
    rc = pl_vqgan_config_read(c, path, &err);
    if (rc) assert_non_null(strstr(err.text, path));
    unlink(path);
    return rc;
}

/* Other settings that mean the published codec, and settings that mean another one or are
 * invalid. */
static void other_spellings(void **state)
{
#define DD \
    "double_z: false, z_channels: 256, resolution: 256, in_channels: 3, out_ch: 3, " \
    "ch: 128, num_res_blocks: 2, attn_resolutions: [32]"
#define FLOW(params, dd) \
    "{model: {target: taming.models.vqgan.GumbelVQ, params: {" \
    "embed_dim: 256, n_embed: 8192, " params " ddconfig: {" dd "}}}}"
#define MULT ", ch_mult: [1, 1, 2, 4]"
    static const char *const same[] = {
        FLOW("kl_weight: 1e-8,", DD MULT),
        FLOW("", DD MULT), /* the weight is GumbelVQ's default */
        FLOW("kl_weight: 1.e-08, remap: null, what: [ever],",
             DD MULT ", dropout: 0.1, resamp_with_conv: yes"),
        "# a comment\n---\nbase: &base {z_channels: 256, 'ch': 128, \"num_res_blocks\": 2} # more\n"
        "other: &other {ch: 64, resolution: 256}\nmodel:\n"
        "  target: 'taming.models.vqgan.GumbelVQ'\n  params:\n    embed_dim: &wide 256\n"
        "    n_embed: 8192\n    ddconfig:\n      <<: [*base, *other]\n"
        "      attn_resolutions: !!python/tuple [32]\n      ch_mult: [1, 1,\n        2, 4]\n...\n",
        "{\"embed_dim\": 256, \"n_embed\": 8192, \"kl_weight\": 1e-8, "
        "\"ddconfig\": {\"z_channels\": 256, \"resolution\": 256, \"ch\": 128, "
        "\"num_res_blocks\": 2, \"attn_resolutions\": [32], "
        "\"ch_mult\": [1, 1, 2, 4]}}",
    };
    static const struct {
        const char *text, *why;
    } wrong[] = {
        { FLOW("kl_weight: '1.0e-08',", DD MULT), "kl_weight is not a number" },
        { FLOW("remap: used.npy,", DD MULT), "remap" },
        { FLOW("", DD MULT ", resamp_with_conv: False"), "resamp_with_conv must be true" },
        { FLOW("", DD MULT ", attn_type: linear"), "attn_type must be vanilla" },
        { FLOW("", DD ", ch_mult: '1,1,2,4'"), "ch_mult must be a list" },
        { FLOW("", DD MULT ", double_z: 'True'"), "double_z is neither" },
        { FLOW("", DD MULT ", double_z: True"), "double_z models have no codes" },
        { FLOW("", DD MULT ", ch: '128'"), "ch is missing or no whole number" },
        { FLOW("", DD MULT ", ch: 128.0"), "ch is missing or no whole number" },
        { FLOW("", "ch: 128"), "num_res_blocks is missing" },
        { "model: {params: {ddconfig: text}}", "no VQGAN configuration" },
        { "- 1\n- 2\n", "no VQGAN configuration" },
        { "just a text", "no VQGAN configuration" },
    };
    struct pl_vqgan_config c, want;
    assert_int_equal(pl_vqgan_named(&want, "gumbel_f8", &err), PL_OK);
    for (size_t i = 0; i < PL_COUNT(same); i++) {
        if (read_text(&c, same[i])) fail_msg("%zu: %s", i, err.text);
        assert_memory_equal(&c, &want, sizeof c);
    }
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        assert_int_not_equal(read_text(&c, wrong[i].text), PL_OK);
        if (!strstr(err.text, wrong[i].why)) fail_msg("%zu: %s", i, err.text);
    }
    /* taming-transformers' multipliers if none are given; another class without a KL weight is not
     * a Gumbel model. */
    assert_int_equal(read_text(&c, FLOW("", DD)), PL_OK);
    assert_int_equal(c.levels, 4);
    assert_int_equal(c.ch_mult[3], 8);
    assert_int_equal(read_text(&c, "{model: {target: VQModel, params: {embed_dim: 256, "
                                   "n_embed: 8192, ddconfig: {" DD MULT "}}}}"),
                     PL_OK);
    assert_false(c.gumbel);
}

/* A checkpoint without any configuration: its shapes say everything. */
static void shapes_are_enough(void **state)
{
    char folder[] = "/tmp/potluck-shapes-XXXXXX", path[80];
    struct pl_vqgan_config c, want;
    struct pl_vqgan m;
    struct st_writer *w = pl_safetensors_writer_new();
    struct st_file *f;
    static const float nothing[1 << 20];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    assert_int_equal(pl_vqgan_named(&want, "gumbel_f8", &err), PL_OK);
    want.ch = 32;
    want.embed_dim = want.z_channels = 16;
    want.n_embed = 40;
    assert_int_equal(pl_vqgan_declare(&m, &want), PL_OK);
    for (size_t i = 0; i < m.params.count; i++) {
        const struct pl_param *p = &m.params.list[i];
        assert_true(p->n <= PL_COUNT(nothing));
        assert_int_equal(pl_safetensors_writer_add(w, p->name, PL_F32, p->dims, p->shape, nothing),
                         PL_OK);
    }
    assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
    pl_safetensors_writer_free(w);
    pl_vqgan_clear(&m);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    assert_int_equal(pl_vqgan_config_find(&c, f, &err), PL_OK);
    assert_memory_equal(&c, &want, sizeof c);
    pl_safetensors_close(f);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_have_the_type_of_their_text),
        cmocka_unit_test(broken_texts_are_refused),
        cmocka_unit_test(aliases_without_end_are_refused),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(the_published_codec_is_known),
        cmocka_unit_test(other_spellings),
        cmocka_unit_test(shapes_are_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
