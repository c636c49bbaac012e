/* credential.c - which URLs get a secret: the hub's own, over https, and none that only looks like
 * it. */
#include "net/http/client/credential.h"
#include "ref/base.h"
#include "test/unit/unit.h"

#include <stdint.h>

#define HUB "https://huggingface.co"

static void the_same_origin_sees_it(void **unused)
{
    static const char *const pairs[][2] = {
        { HUB, HUB },
        { HUB "/datasets/a/b/resolve/main/c.parquet?download=true", HUB },
        { HUB "?a", HUB },
        { HUB "#a", HUB },
        { HUB ":443/a", HUB "/" },
        { HUB "/a@b", HUB },
        { HUB "/?next=https://evil/@", HUB },
        { "HTTPS://HuggingFace.CO/a", HUB }, /* neither schemes nor hosts have a case */
        { "https://127.0.0.1:8443/a", "https://127.0.0.1:8443" },
        { "https://[::1]:8443/a", "https://[0:0::0001]:8443" },
    };
    for (size_t i = 0; i < PL_COUNT(pairs); i++)
        if (!http_may_see(pairs[i][0], pairs[i][1]))
            fail_msg("%s does not see what belongs to %s", pairs[i][0], pairs[i][1]);
}

static void other_origins_do_not_see_a_token(void **unused)
{
    static const char *const others[] = {
        "http://huggingface.co/",
        "http://huggingface.co:443/",
        "ftp://huggingface.co/",
        "//huggingface.co/",
        "huggingface.co",
        "",
        "https://",
        "https:///",
        "https:///huggingface.co/",
        "https:huggingface.co/",
        "https:/huggingface.co/",
        "https:\\\\huggingface.co/",
        " " HUB,
        HUB " ",
        "https://hugging\tface.co",
        HUB ".evil/",
        HUB ".evil.com/",
        HUB "m/",
        "https://evil-huggingface.co/",
        "https://cdn.huggingface.co/",
        "https://huggingface/",
        "https://co/",
        HUB "./",
        "https://.huggingface.co/",
        HUB "@evil/",
        HUB ":443@evil/",
        HUB ":token@evil/",
        "https://user@huggingface.co/",
        "https://user:word@huggingface.co/",
        "https://@huggingface.co/",
        HUB "\\@evil/",
        HUB "\\.evil/",
        HUB "%2eevil/",
        HUB "%2f@evil/",
        HUB "%40evil/",
        "https://huggingface%2eco/",
        HUB "%00.evil/",
        HUB ";.evil/",
        HUB "&.evil/",
        HUB ",evil/",
        HUB "\r\nHost: evil/",
        HUB ":/",
        HUB ":444/",
        HUB ":8443/",
        HUB ":80/",
        HUB ":0/",
        HUB ":443.evil/",
        HUB ":443a/",
        HUB ":+443/",
        HUB ":65979/",
        HUB ":4294967739/", /* 443 in 16 and 32 bits */
        "https://[huggingface.co]/",
        "https://[::1]/",
        "https://huggingface.co[::1]/",
        "https://evil/" HUB,
        "https://evil/?" HUB,
        "https://evil#@huggingface.co/",
        "https://evil?@huggingface.co/",
        "https://hugg\xc4\xb1ngface.co/",
        "https://huggingface\xe3\x80\x82"
        "co/",
        "https://xn--huggingface.co/",
    };
    for (size_t i = 0; i < PL_COUNT(others); i++) {
        if (http_may_see(others[i], HUB)) fail_msg("'%s' sees it", others[i]);
        /* Nor does an invalid home let anybody see what belongs to it. */
        if (http_may_see(HUB "/", others[i]))
            fail_msg("the hub sees what belongs to '%s'", others[i]);
    }
    assert_false(
        http_may_see("http://hub.local/", "http://hub.local/")); /* its own, but in the open */
    assert_false(http_may_see(NULL, HUB));
    assert_false(http_may_see(HUB, NULL));
}

static void addresses_are_compared_as_such(void **unused)
{
    static const char home[] = "https://127.0.0.1:8443/", six[] = "https://[::1]:8443/";
    static const char *const others[] = {
        "https://127.0.0.1/",
        "https://127.1:8443/",
        "https://127.0.0.01:8443/",
        "https://2130706433:8443/",
        "https://0x7f000001:8443/",
        "https://localhost:8443/",
        "https://[::ffff:127.0.0.1]:8443/",
        "https://127.0.0.1.evil:8443/",
        "https://[::1%25lo]:8443/",
        "https://[::1%lo]:8443/",
        "https://[::1:8443/",
        "https://::1:8443/",
        "https://[::1]evil:8443/",
        "https://[::1]@evil:8443/",
        "https://[::2]:8443/",
        "https://[::1]]:8443/",
        "https://[[::1]]:8443/",
        "https://[]:8443/",
        "https://[::1]:8444/",
    };
    for (size_t i = 0; i < PL_COUNT(others); i++)
        if (http_may_see(others[i], home) || http_may_see(others[i], six))
            fail_msg("'%s' sees it", others[i]);
}

static void each_token_goes_to_its_own_origin(void **unused)
{
    const struct http_credential c[] = {
        { "own", "https://data.example/list.txt" },
        { "hub", HUB },
        { NULL, "https://empty.example" },
        { "homeless", NULL },
    };
    assert_string_equal(http_token_for("https://data.example/a", c, PL_COUNT(c)), "own");
    assert_string_equal(http_token_for(HUB "/a", c, PL_COUNT(c)), "hub");
    assert_null(http_token_for("https://empty.example", c, PL_COUNT(c)));
    assert_null(http_token_for("https://data.example.evil/a", c, PL_COUNT(c)));
    assert_null(http_token_for("http://data.example/a", c, PL_COUNT(c)));
    assert_null(http_token_for(HUB, NULL, 0));
}

/* A DNS name has at most 253 characters. */
static void the_longest_name(void **unused)
{
    for (int n = 253; n <= 254; n++) {
        char url[300];
        snprintf(url, sizeof url, "https://%0*d/", n, 0);
        assert_int_equal(http_may_see(url, url), n == 253);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_origin_sees_it),
        cmocka_unit_test(other_origins_do_not_see_a_token),
        cmocka_unit_test(addresses_are_compared_as_such),
        cmocka_unit_test(each_token_goes_to_its_own_origin),
        cmocka_unit_test(the_longest_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
