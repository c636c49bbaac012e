/* http_list.c - lists of shards in each spelling, addresses relative to the list, and files that
 * are not lists. */
#include "net/http/client/shard_list.h"
#include "test/unit/unit.h"

#define SHA "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
static struct pl_err err;
static struct http_list list;

static int parse(const char *text, const char *url)
{
    return http_list_parse(&list, text, strlen(text), url, &err);
}

static void addresses_are_relative_to_the_list(void **state)
{
    static const struct {
        const char *base, *name, *url;
    } cases[] = {
        { "http://h/a/list.txt", "b.parquet", "http://h/a/b.parquet" },
        { "http://h/a/list.txt?x=/y", "b.parquet", "http://h/a/b.parquet" },
        { "http://h/a/list.txt", "/b.parquet", "http://h/b.parquet" },
        { "http://h:1", "b", "http://h:1/b" },
        { "http://h/a/list.txt", "https://g/c", "https://g/c" },
        { "http://h/a/list.txt", "HTTP://g/c", "HTTP://g/c" },
        { "http://h/a/list.txt", "http:c", "http://h/a/http:c" },
        { "http://h?x=/y", "b", "http://h/b" },
        { "http://h", "/b", "http://h/b" },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        assert_int_equal(parse(cases[i].name, cases[i].base), PL_OK);
        assert_string_equal(list.url[0], cases[i].url);
        assert_null(list.sha256[0]);
        http_list_clear(&list);
    }
}

static void both_spellings(void **state)
{
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

/* As servers write them, shortened. */
static const char python_page[] =
    "<!DOCTYPE HTML>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<title>Directory listing for /f/</title>\n</head>\n<body>\n"
    "<h1>Directory listing for /f/</h1>\n<hr>\n<ul>\n<li><a href=\"b%20%26.parquet\">b &amp;.parquet</a></li>\n"
    "<li><a href=\"a%C3%A9.parquet\">a\303\251.parquet</a></li>\n"
    "<li><a href=\"sub/\">sub/</a></li>\n<li><a href=\"list.txt\">list.txt</a></li>\n</ul>\n";
static const char nginx_page[] =
    "<html>\r\n<head><title>Index of /f/</title></head>\r\n<body>\r\n<h1>Index of /f/</h1><hr><pre>"
    "<a href=\"../\">../</a>\r\n<a href=\"b.parquet\">b.parquet</a>   22-Nov-2026 10:00   56364\r\n"
    "<a href=\"a.parquet\">a.parquet</a>   22-Nov-2026 10:00   56364\r\n</pre><hr></body>\r\n";
static const char apache_page[] =
    "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<html><body><table>\n<tr><th><a "
    "href=\"?C=N;O=D\">Name</a></th></tr>\n<tr><td><a href=\"/\">Parent Directory</a></td></tr>\n"
    "<tr><td><a href=\"b.parquet\"><img src=\"/icons/unknown.gif\" alt=\"[   ]\"></a></td>"
    "<td><a href=\"b.parquet\">b.parquet</a></td></tr>\n"
    "<tr><td><a href=\"a.parquet\">a.parquet</a></td></tr>\n</table></body></html>\n";

static void a_folder_as_a_server_shows_it(void **state)
{
    static const struct {
        const char *page, *url[3];
    } cases[] = {
        { python_page, { "http://h/f/a%C3%A9.parquet", "http://h/f/b%20%26.parquet" } },
        { nginx_page, { "http://h/f/a.parquet", "http://h/f/b.parquet" } },
        { apache_page, { "http://h/f/a.parquet", "http://h/f/b.parquet" } },
        /* other ways to say a file of the folder: each once */
        { "\xef\xbb\xbf \n<A class=x HREF='./a.parquet' >a</A><a\thref=/f/a.parquet>a</a>"
          "<a href=\"http://h/f/a.parquet#x\">a</a><a href=%61.parquet>a</a>",
          { "http://h/f/a.parquet" } },
        { "<a href=s/a.parquet>", { "http://h/f/s/a.parquet" } },
        { "<a href=a&#39;&#x3c;&lt;&b.parquet>", { "http://h/f/a%27%3C%3C%26b.parquet" } },
        { "<a href=a&amp;&gt;&quot;&apos;.parquet>", { "http://h/f/a%26%3E%22%27.parquet" } },
        { "<a href=%61b%63.parquet>", { "http://h/f/abc.parquet" } },
        { "<a href=a.parquet class=x href=b.parquet>", { "http://h/f/a.parquet" } }, /* the first */
        { "<a href=c%3Ad.parquet>", { "http://h/f/c%3Ad.parquet" } },
        /* links that lead elsewhere, invalid ones, and one that counts */
        { "<a href=../a.parquet><a href=/g/a.parquet><a href=//g/f/a.parquet><a href=.parquet>"
          "<a href=http://g/f/a.parquet><a href=http://hh/f/a.parquet><a href=ftp:a.parquet>"
          "<a href=s/../../a.parquet><a href=%2e%2e/a.parquet><a href=..%2fa.parquet>"
          "<a href=a.parquet?x=1><a href=a%00.parquet><a href=a%0a.parquet><a href=a.parquet/>"
          "<a name=a.parquet><b href=a.parquet><!-- <a href=a.parquet> --><a x=y href=b.parquet>",
          { "http://h/f/b.parquet" } },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        size_t n = 0;
        if (parse(cases[i].page, "http://h/f/?x=/y")) fail_msg("page %zu: %s", i, err.text);
        for (; cases[i].url[n]; n++) {
            if (n >= list.count) fail_msg("page %zu: %zu names", i, list.count);
            assert_string_equal(list.url[n], cases[i].url[n]);
            assert_null(list.sha256[n]);
        }
        assert_int_equal(list.count, n);
        http_list_clear(&list);
    }
    /* a page of its own name, and of a server's root */
    assert_int_equal(parse("<a href=a.parquet>", "http://h/f/index.html"), PL_OK);
    assert_string_equal(list.url[0], "http://h/f/a.parquet");
    http_list_clear(&list);
    assert_int_equal(parse("<a href=/a.parquet>", "http://h:1"), PL_OK);
    assert_string_equal(list.url[0], "http://h:1/a.parquet");
    http_list_clear(&list);
}

static void which_urls_are_lists(void **state)
{
    static const char *const lists[] = { "http://h",
                                         "http://h:1",
                                         "http://h/",
                                         "http://h/f/?x",
                                         "http://h/a.json?download=true",
                                         "http://h/a.txt#b",
                                         "https://h/index.html",
                                         "http://h?x" },
                             *const shards[] = { "http://h/a.parquet", "http://h/a.parquet?x=/",
                                                 "http://h/f", "http://h/a?b.txt" };
    for (size_t i = 0; i < PL_COUNT(lists); i++)
        if (!http_is_list(lists[i])) fail_msg("%s", lists[i]);
    for (size_t i = 0; i < PL_COUNT(shards); i++)
        if (http_is_list(shards[i])) fail_msg("%s", shards[i]);
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
                                         "<",
                                         "<html><a href=a.txt>a.parquet</a></html>",
                                         "<!-- <a href=a.parquet>",
                                         "[{\"url\": \"a\", \"sha256\": 1}]",
                                         "[{\"url\": \"a\", \"sha256\": \"x\"}]" };
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        if (parse(wrong[i], "http://h/l") == PL_OK) fail_msg("list %zu was read", i);
        assert_int_equal(list.count, 0);
        assert_non_null(strstr(err.text, "http://h/l"));
    }
}

static void which_texts_are_urls(void **state)
{
    static const char *const urls[] = { "http://", "HTTP://h", "https://h", "Https://" },
                             *const others[] = { "",          "http:/h", "https:/h",
                                                 "httpx://h", "ftp://",  " http://h" };
    for (size_t i = 0; i < PL_COUNT(urls); i++) assert_true(http_is_url(urls[i]));
    for (size_t i = 0; i < PL_COUNT(others); i++) assert_false(http_is_url(others[i]));
}

/* 64 hexadecimal digits of either case, also where the text ends with them. */
static void digests(void **state)
{
    static const char *const wrong[] = { SHA "0", "g" SHA, "0" };
    char line[2 + sizeof SHA + 2], *exact;
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        snprintf(line, sizeof line, "a %s", wrong[i]);
        assert_int_equal(parse(line, "http://h/l"), PL_EFORMAT);
        assert_non_null(strstr(err.text, "is not a SHA-256 digest"));
    }
    for (size_t i = 0; i < 64; i++) { /* each place is read */
        snprintf(line, sizeof line, "a %s", SHA);
        line[2 + i] = 'x';
        assert_int_equal(parse(line, "http://h/l"), PL_EFORMAT);
        line[2 + i] = 'F';
        exact = malloc(2 + 64); /* nothing behind it is read */
        memcpy(exact, line, 2 + 64);
        assert_int_equal(http_list_parse(&list, exact, 2 + 64, "http://h/l", &err), PL_OK);
        assert_int_equal(strlen(list.sha256[0]), 64);
        assert_memory_equal(list.sha256[0], line + 2, 64);
        http_list_clear(&list);
        free(exact);
    }
}

/* As many entries and characters as there may be, and one more. */
static void lists_have_bounds(void **state)
{
    const size_t n = HTTP_LIST_MAX + 1;
    char *text = malloc(2 * n + HTTP_URL_MAX + 1);
    for (size_t i = 0; i < n; i++) memcpy(text + 2 * i, "a\n", 2);
    assert_int_equal(http_list_parse(&list, text, 2 * (n - 1), "http://h/l", &err), PL_OK);
    assert_int_equal(list.count, HTTP_LIST_MAX);
    assert_string_equal(list.url[HTTP_LIST_MAX - 1], "http://h/a");
    http_list_clear(&list);
    assert_int_equal(http_list_parse(&list, text, 2 * n, "http://h/l", &err), PL_ELIMIT);
    memset(text, 'a', HTTP_URL_MAX);
    assert_int_equal(http_list_parse(&list, text, HTTP_URL_MAX - 1, "http://h/l", &err), PL_OK);
    assert_int_equal(strlen(list.url[0]), strlen("http://h/") + HTTP_URL_MAX - 1);
    http_list_clear(&list);
    assert_int_equal(http_list_parse(&list, text, HTTP_URL_MAX, "http://h/l", &err), PL_EFORMAT);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_relative_to_the_list),
        cmocka_unit_test(both_spellings),
        cmocka_unit_test(a_folder_as_a_server_shows_it),
        cmocka_unit_test(which_urls_are_lists),
        cmocka_unit_test(which_texts_are_urls),
        cmocka_unit_test(digests),
        cmocka_unit_test(lists_have_bounds),
        cmocka_unit_test(what_is_no_list_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
