/* json.c - JSON that cannot be read, whole numbers at their bounds, and what is reported once. */
#include "data/files/json.h"
#include "test/unit/data/exact_bytes.h"
#include "test/unit/unit.h"

/* A text that ends at an inaccessible page. */
static json_t *load(const char *text, json_error_t *why)
{
    uint8_t *exact = exact_copy(text, strlen(text));
    json_t *v;
    assert_non_null(exact);
    v = pl_json_load((const char *)exact, strlen(text), JSON_DECODE_ANY, why);
    exact_free(exact, strlen(text));
    return v;
}

static void texts(void **state)
{
    static const char *const good[] = { "{}", "[1, 2]", "\"text\"", "37", "null" }, *const bad[] = {
        "", "{", "{\"a\":}", "[1 2]", "{} {}", "\"text", "\"text\\"
    };
    json_error_t why;
    for (size_t i = 0; i < PL_COUNT(good); i++) {
        json_t *v = load(good[i], NULL);
        assert_non_null(v);
        json_decref(v);
    }
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        assert_null(load(bad[i], &why));
        assert_int_equal(pl_json_status(), PL_EFORMAT);
        assert_true(strlen(why.text) > 0);
    }
    /* Only as many bytes as are stated to be there. */
    assert_null(pl_json_load("[1, 2]", 5, 0, NULL));
}

/* Longer than what jansson takes at a time, with escapes, at each place of an array. */
static void long_strings(void **state)
{
    enum { LONG = 100000 };
    char *text = malloc(LONG + 64);
    for (int at = 0; at < 3; at++) {
        size_t n = (size_t)sprintf(text, "[%s\"", at == 0 ? "" : at == 1 ? "1, " : "\"\\\"\", 1, ");
        json_t *v;
        memset(text + n, 'x', LONG);
        text[n + LONG / 2] = '\\';
        text[n + LONG / 2 + 1] = '"';
        n += LONG;
        n += (size_t)sprintf(text + n, "\"]");
        v = pl_json_load(text, n, 0, NULL);
        assert_non_null(v);
        assert_int_equal(json_string_length(json_array_get(v, json_array_size(v) - 1)), LONG - 1);
        json_decref(v);
    }
    free(text);
}

static int whole(const char *text, int least, int *out)
{
    struct pl_err err = { "" };
    json_t *v = pl_json_load(text, strlen(text), 0, NULL);
    int rc;
    assert_non_null(v);
    rc = pl_json_int(out, v, "n", least, "place", &err);
    json_decref(v);
    if (rc)
        assert_string_equal(err.text, "place: n is missing or no whole number from 1 to 16777216");
    return rc;
}

static void whole_numbers(void **state)
{
    static const char *const bad[] = { "{}",           "{\"n\": 0}",     "{\"n\": 16777217}",
                                       "{\"n\": 2.0}", "{\"n\": \"2\"}", "{\"n\": null}",
                                       "{\"n\": -1}",  "{\"m\": 2}",     "{\"n\": 4294967298}" };
    int n = 0;
    assert_int_equal(whole("{\"n\": 1}", 1, &n), PL_OK);
    assert_int_equal(n, 1);
    assert_int_equal(whole("{\"n\": 16777216}", 1, &n), PL_OK);
    assert_int_equal(n, 16777216);
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        assert_int_equal(whole(bad[i], 1, &n), PL_EFORMAT);
        assert_int_equal(n, 16777216); /* as it was */
    }
}

static void built_values_are_written(void **state)
{
    json_t *v;
    char *text;
    pl_json_begin();
    v = json_pack("{s:i}", "a", 1);
    assert_false(pl_json_failed());
    text = pl_json_text(v, JSON_COMPACT);
    assert_string_equal(text, "{\"a\":1}");
    free(text);
    json_decref(v);
    assert_null(pl_json_text(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(long_strings),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(built_values_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
