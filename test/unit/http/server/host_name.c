/* host_name.c - which Host headers name this server: its own names, its addresses in any spelling, and nothing else. */
#include "net/http/server/host_name.h"
#include "test/unit/http/http_address.h"

static struct http_hosts hosts;
static struct pl_err err;

static int has(const char *value)
{
    const struct http_address local = at("192.0.2.7");
    return http_hosts_have(&hosts, value, &local);
}

static int none(void **state)
{
    memset(&hosts, 0, sizeof hosts);
    return 0;
}

static void loopback_and_the_address_of_the_connection(void **state)
{
    static const char *const ours[] = { "localhost",   "LOCALHOST:1",       "127.0.0.1",
                                        "[::1]",       "[0:0::1]:8080",     "192.0.2.7",
                                        "192.0.2.7:1", "[::ffff:192.0.2.7]" };
    static const char *const others[] = { "localhos",  "localhost.x", "127.0.0.2", "[::2]",
                                          "192.0.2.8", "example.org", "::1" };
    for (size_t i = 0; i < PL_COUNT(ours); i++)
        if (!has(ours[i])) fail_msg("%s", ours[i]);
    for (size_t i = 0; i < PL_COUNT(others); i++)
        if (has(others[i])) fail_msg("%s", others[i]);
    assert_false(has(NULL));
}

static void names_that_were_given(void **state)
{
    assert_int_equal(http_hosts_add(&hosts, "Example.org", &err), PL_OK);
    assert_int_equal(http_hosts_add(&hosts, "2001:db8::1", &err), PL_OK);
    assert_int_equal(http_hosts_add(&hosts, "[2001:db8::2]", &err), PL_OK);
    assert_int_equal(http_hosts_add(&hosts, "198.51.100.1", &err), PL_OK);
    assert_true(has("example.ORG") && has("example.org:80"));
    assert_true(has("[2001:db8:0::1]") && has("[2001:db8::2]:443") && has("198.51.100.1"));
    assert_false(has("www.example.org") || has("example.org.") || has("[2001:db8::3]") ||
                 has("198.51.100.2") || has("2001:db8::1"));
}

/* HOST[:PORT], as browsers write it. */
static void values_that_no_browser_sends(void **state)
{
    static const char *const wrong[] = {
        "",           ":80",         "localhost:",     "localhost:8x", "localhost:80:80",
        "localhost/", "local host",  "[::1",           "[::1]x",       "[localhost]",
        "[]",         "[127.0.0.1]", "user@localhost", "localhost ",   "[::1]:",
    };
    for (size_t i = 0; i < PL_COUNT(wrong); i++)
        if (has(wrong[i])) fail_msg("%s", wrong[i]);
}

static void names_that_are_none(void **state)
{
    static const char *const wrong[] = { "",    "a b", "a:80",   "[::1]:80", "[::1",
                                         "[a]", "a/",  "::1::2", "[]" };
    char longest[HTTP_HOST_MAX];
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        assert_int_equal(http_hosts_add(&hosts, wrong[i], &err), PL_EUSE);
        assert_non_null(strstr(err.text, "is neither a name nor an address"));
    }
    memset(longest, 'a', sizeof longest);
    longest[HTTP_HOST_MAX - 2] = 0;
    assert_int_equal(http_hosts_add(&hosts, longest, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "is too long a name"));
    assert_int_equal(http_hosts_add(&hosts, longest + 1, &err), PL_OK);
    assert_true(has(longest + 1));
    while (hosts.count < HTTP_HOSTS_MAX) assert_int_equal(http_hosts_add(&hosts, "a", &err), PL_OK);
    assert_int_equal(http_hosts_add(&hosts, "b", &err), PL_ELIMIT);
    assert_false(has("b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(loopback_and_the_address_of_the_connection, none),
        cmocka_unit_test_setup(names_that_were_given, none),
        cmocka_unit_test_setup(values_that_no_browser_sends, none),
        cmocka_unit_test_setup(names_that_are_none, none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
