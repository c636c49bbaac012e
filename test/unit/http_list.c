/* http_list.c - lists of shards in both spellings, addresses beside the list, and what is no
 * list. */
#include "../../net/http/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SHA "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
static struct pl_err err;
static struct http_list list;

static int parse(const char *text, const char *url)
{
    return http_list_parse(&list, text, strlen(text), url, &err);
}

static void addresses_lie_beside_the_list(void **state)
{
    static const struct { const char *base, *name, *url; } cases[] = {
        { "http://h/a/list.txt", "b.parquet", "http://h/a/b.parquet" },
        { "http://h/a/list.txt?x=/y", "b.parquet", "http://h/a/b.parquet" },
        { "http://h/a/list.txt", "/b.parquet", "http://h/b.parquet" },
        { "http://h:1", "b", "http://h:1/b" },
        { "http://h/a/list.txt", "https://g/c", "https://g/c" },
    };
    (void)state;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        assert_int_equal(parse(cases[i].name, cases[i].base), PL_OK);
        assert_string_equal(list.url[0], cases[i].url);
        assert_null(list.sha256[0]);
        http_list_clear(&list);
    }
}

static void both_spellings(void **state)
{
    (void)state;
    assert_int_equal(parse("# shards\r\na.parquet " SHA "\r\n\nb.parquet\t" SHA "\nc",
                           "http://h/l"),
                     PL_OK);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.sha256[0], SHA);
    assert_string_equal(list.url[1], "http://h/b.parquet");
    assert_null(list.sha256[2]);
    http_list_clear(&list);
    assert_int_equal(parse("{\"shards\": [\"a\", {\"url\": \"b\", \"sha256\": \"" SHA "\"}]}",
                           "http://h/l"),
                     PL_OK);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.sha256[1], SHA);
    http_list_clear(&list);
    assert_int_equal(parse("[\"a\"]", "http://h/l"), PL_OK);
    http_list_clear(&list);
}

static void what_is_no_list_is_refused(void **state)
{
    static const char *const wrong[] = { "",
                                         "# nothing\n",
                                         "{}",
                                         "[1]",
                                         "[{}]",
                                         "[\"\"]",
                                         "a.parquet 12",
                                         "[{\"url\": \"a\", \"sha256\": 1}]",
                                         "[{\"url\": \"a\", \"sha256\": \"x\"}]" };
    (void)state;
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        if (parse(wrong[i], "http://h/l") == PL_OK) fail_msg("list %zu was read", i);
        assert_int_equal(list.count, 0);
        assert_non_null(strstr(err.text, "http://h/l"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_lie_beside_the_list),
        cmocka_unit_test(both_spellings),
        cmocka_unit_test(what_is_no_list_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
