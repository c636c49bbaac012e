/* memory_json.c - the calculator's results under the keys by which the page's script reads them:
 * each key holds its own number. */
#include "data/models/memory_json.h"
#include "test/unit/unit.h"

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void the_published_calculator(void **state)
{
    const struct pl_memory_original m = { .parameters = 1,
                                          .weights = 2,
                                          .gradients = 3,
                                          .activations = 4,
                                          .optimizer = 5,
                                          .device = 6,
                                          .host = 7,
                                          .transfer_s = 8 };
    json_t *o = pl_memory_original_to_json(&m);
    assert_int_equal(json_object_size(o), 8);
    assert_true(number(o, "parameters") == 1 && number(o, "weights") == 2);
    assert_true(number(o, "weight_gradients_gpu") == 3 && number(o, "activations") == 4);
    assert_true(number(o, "optimizer_gpu") == 5 && number(o, "gpu_total") == 6);
    assert_true(number(o, "ram_total") == 7 && number(o, "transfer_seconds") == 8);
    assert_true(json_is_integer(json_object_get(o, "parameters")));
    assert_true(json_is_real(json_object_get(o, "transfer_seconds"))); /* a time is not a count */
    json_decref(o);
}

/* Whole numbers below 2^53 are counts; a fraction, and what a double does not hold exactly, is not. */
static void the_corrected_one(void **state)
{
    struct pl_memory_use use = { .parameters = 0x1p53 - 1,
                                 .unshared = 0x1p53,
                                 .device = 2.5,
                                 .host = -3,
                                 .transfer_s = 0.25,
                                 .allreduce_bytes = 6 };
    json_t *o, *terms;
    for (int t = 0; t < PL_TERM_COUNT; t++) {
        use.term[t].device = 100 + t;
        use.term[t].host = 200 + t;
    }
    o = pl_memory_use_to_json(&use);
    assert_true(json_is_integer(json_object_get(o, "parameters")));
    assert_int_equal(json_integer_value(json_object_get(o, "parameters")), (1LL << 53) - 1);
    assert_true(json_is_real(json_object_get(o, "without_sharing")));
    assert_true(number(o, "without_sharing") == 0x1p53);
    assert_true(json_is_real(json_object_get(o, "gpu_total")) && number(o, "gpu_total") == 2.5);
    assert_true(json_is_integer(json_object_get(o, "ram_total")) && number(o, "ram_total") == -3);
    assert_true(number(o, "transfer_seconds") == 0.25 && number(o, "allreduce_bytes") == 6);
    terms = json_object_get(o, "terms");
    assert_int_equal(json_array_size(terms), PL_TERM_COUNT);
    for (int t = 0; t < PL_TERM_COUNT; t++) {
        const json_t *term = json_array_get(terms, (size_t)t);
        assert_string_equal(json_string_value(json_object_get(term, "term")),
                            pl_memory_term_name(t));
        assert_string_equal(json_string_value(json_object_get(term, "why")), pl_memory_term_why(t));
        assert_true(number(term, "gpu") == 100 + t && number(term, "ram") == 200 + t);
    }
    json_decref(o);
}

static void the_models(void **state)
{
    static const char *const families[] = { "gpt", "gptj", "bert", "t5", "blocks", "dalle" };
    json_t *root = pl_memory_models_to_json(), *list = json_object_get(root, "models");
    assert_int_equal(json_array_size(list), pl_memory_models());
    for (size_t i = 0; i < pl_memory_models(); i++) {
        const json_t *o = json_array_get(list, i);
        struct pl_memory_model m;
        assert_int_equal(pl_memory_model_at(&m, i), PL_OK);
        assert_string_equal(json_string_value(json_object_get(o, "name")), m.name);
        assert_string_equal(json_string_value(json_object_get(o, "family")), families[m.family]);
        assert_true(number(o, "sequence") == m.sequence && number(o, "width") == m.width);
        assert_true(number(o, "hidden") == m.hidden && number(o, "layers") == m.layers);
        assert_true(number(o, "vocabulary") == m.vocabulary);
        assert_true(number(o, "published_width") == m.published_width);
        assert_true(number(o, "heads") == m.heads && number(o, "head_width") == m.head_width);
        assert_true(number(o, "sets") == m.sets && number(o, "text") == m.text);
        assert_true(number(o, "sequences_at_once") == m.sequences_at_once);
        assert_true(number(o, "text_vocabulary") == m.text_vocabulary);
    }
    assert_int_equal(json_object_size(json_object_get(root, "terms")), PL_TERM_COUNT);
    assert_non_null(json_object_get(json_object_get(root, "terms"), "optimizer"));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_calculator),
        cmocka_unit_test(the_corrected_one),
        cmocka_unit_test(the_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
