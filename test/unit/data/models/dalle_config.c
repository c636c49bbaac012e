/* dalle_config.c - the transformer's sizes by name and as JSON, and the names of its tensors. */
#include "data/models/dalle_config.h"
#include "data/models/dalle_names.h"
#include "runtime/dalle_run.h"
#include "data/files/file.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

#include <math.h>
#include <unistd.h>

static struct pl_dalle *skeleton(const char *name)
{
    struct pl_dalle_config c;
    struct pl_dalle *m;
    assert_int_equal(pl_dalle_config_named(&c, name, NULL), PL_OK);
    assert_int_equal(pl_dalle_open(&m, &c, NULL, 0, NULL), PL_OK);
    return m;
}

static void built_in_sizes(void **state)
{
    static const struct {
        const char *name;
        size_t parameters, tensors;
    } known[] = {
        { "run", 125894244, 423 }, /* [TTT 3.1] */
        { "middle", 29488192, 141 },
        { "small", 6081108, 93 },
        { "demo", 1363012, 56 },
    };
    struct pl_err err;
    struct pl_dalle_config c;
    for (size_t i = 0; i < PL_COUNT(known); i++) {
        struct pl_dalle *m = skeleton(known[i].name);
        assert_int_equal(m->params.trainable, known[i].parameters);
        assert_int_equal(m->params.count, known[i].tensors);
        pl_dalle_close(m);
    }
    assert_int_equal(pl_dalle_config_named(&c, "huge", &err), PL_ENOTFOUND);
    assert_non_null(strstr(err.text, "\"huge\""));
}

static void names_of_all_spellings(void **state)
{
    static const struct {
        const char *name, *param;
    } known[] = {
        { "model.transformer.layers.blocks.3.g.net.scale", "blocks.3.g.net.scale" },
        { "layers.blocks.8.f.net.fn.norm.bias", "blocks.8.f.net.fn.norm.bias" },
        { "transformer.layers.blocks.6.f.net.fn.fn.fn.to_qkv.weight",
          "blocks.2.f.net.fn.fn.fn.to_qkv" },
        { "transformer.layers.blocks.5.g.net.fn.fn.fn.fn.net.3.bias",
          "blocks.1.g.net.fn.fn.fn.net.3.b" },
        { "transformer.layers.blocks.8.f.net.fn.fn.fn.fn.fn.to_out.0.bias",
          "blocks.8.f.net.fn.fn.fn.to_o" },
        { "model.image_emb.linear.weight", "model.to_logits.1.weight" },
    };
    static const char *const unknown[] = {
        "",
        "model.",
        "layers.blocks.9.f.net.scale",
        "layers.blocks..f.net.scale",
        "text_emb.weight",
        "layers.blocks.99999999999.f.net.scale",
        "layers.blocks.1.f.net.scales",
        "layers.blocks.1",
    };
    struct pl_dalle *m = skeleton("small");
    for (size_t i = 0; i < PL_COUNT(known); i++) {
        long index = pl_dalle_find(m, known[i].name);
        assert_true(index >= 0);
        assert_non_null(strstr(m->params.list[index].name, known[i].param));
    }
    for (size_t i = 0; i < PL_COUNT(unknown); i++) {
        assert_int_equal(pl_dalle_find(m, unknown[i]), PL_DALLE_NO_TENSOR);
        assert_int_equal(pl_dalle_find_param(&m->params, unknown[i]), -1);
    }
    assert_int_equal(pl_dalle_find(m, "model.transformer.pos_emb"), PL_DALLE_POS_EMB);
    assert_int_equal(pl_dalle_find_param(&m->params, "transformer.pos_emb"), -1);
    /* Without a model a repetition is passed over, and the first name is found in any spelling. */
    assert_int_equal(pl_dalle_find_param(&m->params, known[2].name), -1);
    assert_int_equal(pl_dalle_find_param(&m->params, known[4].name),
                     pl_dalle_find(m, known[4].name));
    pl_dalle_close(m);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static int parse(struct pl_dalle_config *c, const char *text, struct pl_err *err)
{
    json_t *root = json_loads(text, JSON_DECODE_ANY, NULL);
    int rc;
    assert_non_null(root);
    rc = pl_dalle_config_from_json(c, root, 1, "x.json", err);
    json_decref(root);
    return rc;
}

static void json_there_and_back(void **state)
{
    static const char *const names[] = { "run", "middle", "small", "demo" };
    struct pl_dalle_config c, back;
    for (size_t i = 0; i <= PL_COUNT(names); i++) {
        json_t *root;
        if (i < PL_COUNT(names)) assert_int_equal(pl_dalle_config_named(&c, names[i], NULL), PL_OK);
        else
            assert_int_equal(parse(&c,
                                   "{\"base\":\"small\",\"depth\":3,\"untied\":true,\"pad\":0,"
                                   "\"attn_types\":[\"full\",\"conv3d2\",\"conv5@1.6.6\"],"
                                   "\"share_input_output_emb\":false}",
                                   NULL),
                             PL_OK);
        root = pl_dalle_config_to_json(&c);
        assert_int_equal(pl_dalle_config_from_json(&back, root, 1, "x", NULL), PL_OK);
        assert_int_equal(back.T, c.T);
        assert_int_equal(back.L, c.L);
        assert_int_equal(back.Vi, c.Vi);
        assert_int_equal(back.pad, c.pad);
        assert_int_equal(back.separate_embedding, c.separate_embedding);
        assert_string_equal(back.name, c.name);
        assert_memory_equal(back.block, c.block, (size_t)c.L * sizeof *c.block);
        json_decref(root);
    }
    assert_int_equal(c.block[1].dilation, 2);
    assert_int_equal(c.block[2].kind, PL_MASK_CONV_CORNER);
    assert_int_equal(c.block[2].group, 2);
}

static void json_refusals(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "[]", "x.json: expected a JSON object" },
        { "{\"base\":\"demo\",\"dpeth\":3}",
          "x.json: \"dpeth\": expected one of the keys there are" },
        { "{\"a\\nb\":3}", "x.json: \"a?b\"" },
        { "{\"T\":4}", "\"F\"" },
        { "{\"base\":\"demo\",\"dim\":-1}", "\"dim\": expected a whole number" },
        { "{\"base\":\"demo\",\"dim\":1e300}", "\"dim\"" },
        { "{\"base\":\"demo\",\"dim\":99999999999999}", "\"dim\"" },
        { "{\"base\":\"demo\",\"depth\":0}", "\"depth\": expected 1 to 256" },
        { "{\"base\":\"demo\",\"depth\":257}", "\"depth\": expected 1 to 256" },
        { "{\"base\":\"demo\",\"heads\":0}", "heads is 0" },
        { "{\"base\":\"demo\",\"pad\":2100}", "padding id is 2100" },
        { "{\"base\":\"demo\",\"loss_img_weight\":-1}", "weighs -1" },
        { "{\"base\":\"demo\",\"loss_img_weight\":\"7\"}", "\"loss_img_weight\"" },
        { "{\"base\":\"demo\",\"conv_kernel\":4}", "kernel 4" },
        { "{\"base\":\"demo\",\"conv_dilation\":0}", "dilation 0" },
        { "{\"base\":\"demo\",\"attn_types\":[\"full\"]}", "a list of 4 strings" },
        { "{\"base\":\"demo\",\"depth\":1,\"attn_types\":[\"sparse\"]}", "\"attn_types\"" },
        { "{\"base\":\"demo\",\"depth\":1,\"shared_ids\":[0]}", "\"shared_ids\"" },
        { "{\"base\":\"demo\",\"depth\":2,\"shared_ids\":[\"a\",\"a\"]}",
          "block 1 shares the layer" },
        { "{\"base\":\"demo\",\"reversible\":false}", "\"reversible\"" },
        { "{\"base\":\"demo\",\"untied\":1}", "\"untied\": expected true or false" },
        { "{\"base\":\"huge\"}", "\"base\"" },
        { "{\"base\":\"demo\",\"name\":\"a name of more than thirty-one letters\"}", "\"name\"" },
    };
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct pl_dalle_config c;
        struct pl_err err = { "" };
        assert_int_not_equal(parse(&c, bad[i].text, &err), PL_OK);
        if (!strstr(err.text, bad[i].says) || strchr(err.text, '\n'))
            fail_msg("%s: %s", bad[i].text, err.text);
    }
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(pl_file_write(path, text, strlen(text), NULL), PL_OK);
}

/* A word is a built-in configuration; what has a point or a slash in it is a file. */
static void by_name_or_from_a_file(void **state)
{
    char folder[] = "/tmp/potluck-config-XXXXXX", path[80];
    struct pl_err err = { "" };
    struct pl_dalle_config c;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config", folder); /* no ending: the slash tells */
    assert_int_equal(pl_dalle_config_find(&c, "demo", &err), PL_OK);
    assert_string_equal(c.name, "demo");
    assert_int_equal(pl_dalle_config_find(&c, "demo.json", &err), PL_EIO);
    assert_int_equal(pl_dalle_config_find(&c, path, &err), PL_EIO);
    write_text(path, "{\"base\":\"demo\",\"dim\":96}");
    assert_int_equal(pl_dalle_config_find(&c, path, &err), PL_OK);
    assert_int_equal(c.D, 96);
    write_text(path, "{\"base\":\n\"demo\",\n\"base\":1}");
    assert_int_equal(pl_dalle_config_find(&c, path, &err), PL_EFORMAT);
    assert_memory_equal(err.text, path, strlen(path));
    assert_non_null(strstr(err.text, ": line 3: "));
    assert_non_null(strstr(err.text, "duplicate"));
    write_text(path, "{\"dpeth\":1}");
    assert_int_equal(pl_dalle_config_find(&c, path, &err),
                     PL_EFORMAT); /* files are read strictly */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* A checkpoint's pos_emb (S+1,R) holds each angle twice, in neighbouring channels. */
static void angles_of_a_checkpoint(void **state)
{
    struct pl_backend be;
    struct pl_dalle_config config;
    struct pl_err err = { "" };
    struct pl_dalle *m;
    pl_backend_ref(&be);
    assert_int_equal(pl_dalle_config_named(&config, "demo", NULL), PL_OK);
    assert_int_equal(pl_dalle_open(&m, &config, &be, 0, &err), PL_OK);
    const struct pl_blocks *b = &m->stack.blocks;
    size_t R = (size_t)b->R, rows = (size_t)b->S + 1;
    float *x = malloc(rows * R * sizeof *x);
    assert_true(R >= 4);
    for (size_t i = 0; i < rows * R; i++) x[i] = (float)(i / 2) * 0.01f;
    assert_int_equal(pl_dalle_set_pos_emb(m, x, &err), PL_OK);
    for (size_t i = 0; i < rows * R / 2; i++) {
        assert_true(b->angle[i] == x[2 * i]);
        assert_true(fabsf(b->cosine[i] - (float)cos((double)x[2 * i])) <= 1e-6f);
        assert_true(fabsf(b->sine[i] - (float)sin((double)x[2 * i])) <= 1e-6f);
    }
    x[2 * R + 3] += 1; /* row 2, the second of the pair 2, 3 */
    assert_int_equal(pl_dalle_set_pos_emb(m, x, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "row 2: channels 2 and 3 are "));
    x[2 * R + 2] = x[2 * R + 3] = INFINITY;
    assert_int_equal(pl_dalle_set_pos_emb(m, x, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "are inf and inf"));
    free(x);
    pl_dalle_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_sizes),         cmocka_unit_test(names_of_all_spellings),
        cmocka_unit_test(json_there_and_back),    cmocka_unit_test(json_refusals),
        cmocka_unit_test(by_name_or_from_a_file), cmocka_unit_test(angles_of_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
