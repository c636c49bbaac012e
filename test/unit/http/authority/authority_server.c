/* authority_server.c - the authority over HTTPS: one path and one method, a body with a limit, and an allowlist that is followed
 * while it runs. */
#include "data/files/file.h"
#include "net/hivemind/moderation/authority_client.h"
#include "net/http/authority/authority_server.h"
#include "net/http/libraries.h"
#include "test/unit/unit.h"

#include <openssl/evp.h>
#include <unistd.h>

#define PATH "/api/experiments/join"

static struct authority_server *server;
static struct authority authority;
static struct rsa_key authority_key, own_key;
static char folder[] = "/tmp/authority.XXXXXX", list[64], ca[64], url[64],
            secret[AUTHORITY_TOKEN_MAX];
static struct bytes line, certificate, certificate_key;

static void write_text(char path[64], const char *name, const void *text, size_t n)
{
    snprintf(path, 64, "%s/%s", folder, name);
    assert_int_equal(pl_file_write(path, text, n, NULL), PL_OK);
}

static int begin(void **state)
{
    struct pl_err err;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(authority_invite(secret, &line, "ann", &err), PL_OK);
    write_text(list, "list", bytes_at(&line), bytes_length(&line));
    assert_int_equal(certificate_make(&certificate, &certificate_key, "localhost", &err), PL_OK);
    write_text(ca, "crt", bytes_at(&certificate), bytes_length(&certificate));
    bytes_u8(&certificate, 0);
    bytes_u8(&certificate_key, 0);
    assert_int_equal(rsa_key_make(&authority_key, &err), PL_OK);
    assert_int_equal(rsa_key_make(&own_key, &err), PL_OK);
    assert_int_equal(curl_load(&err), PL_OK);
    authority = (struct authority){ .key = &authority_key, .life_s = 600 };
    if (authority_server_open(&server, &authority, list, "127.0.0.1", 0,
                              (const char *)bytes_at(&certificate),
                              (const char *)bytes_at(&certificate_key), &err))
        fail_msg("%s", err.text);
    snprintf(url, sizeof url, "https://localhost:%d", authority_server_port(server));
    return 0;
}

static int end(void **state)
{
    authority_server_close(server);
    authority_clear(&authority);
    rsa_key_clear(&authority_key);
    rsa_key_clear(&own_key);
    bytes_clear(&certificate);
    bytes_clear(&certificate_key);
    bytes_clear(&line);
    remove(list), remove(ca), remove(folder);
    return 0;
}

static int ask(void)
{
    const struct authority_ask question = {
        .url = url, .user_token = secret, .ca_file = ca, .tries = 1
    };
    struct auth auth = { .key = &own_key };
    int rc = authority_ask(&auth, &question, 1e9, NULL);
    EVP_PKEY_free(auth.authority);
    auth.authority = NULL;
    auth.key = NULL;
    auth_clear(&auth);
    return rc;
}

static size_t ignored(char *data, size_t size, size_t n, void *context) { return size * n; }

/* The status of any request. */
static long status_of(const char *method, const char *path, size_t body)
{
    char whole[128], *text = calloc(body + 1, 1);
    CURL *c = curl.easy_init();
    long status = 0;
    memset(text, 'x', body);
    snprintf(whole, sizeof whole, "%s%s", url, path);
    curl.easy_setopt(c, CURLOPT_URL, whole);
    curl.easy_setopt(c, CURLOPT_CAINFO, ca);
    curl.easy_setopt(c, CURLOPT_POSTFIELDS, text);
    curl.easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)body);
    curl.easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
    curl.easy_setopt(c, CURLOPT_WRITEFUNCTION, ignored);
    curl.easy_setopt(c, CURLOPT_TIMEOUT, 20L);
    assert_int_equal(curl.easy_perform(c), CURLE_OK);
    curl.easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl.easy_cleanup(c);
    free(text);
    return status;
}

static void one_path_and_one_method(void **state)
{
    assert_int_equal(status_of("PUT", PATH, 1), 401); /* no secret */
    assert_int_equal(status_of("PUT", "/any/base" PATH, 1), 401);
    assert_int_equal(status_of("PUT", "/", 1), 404);
    assert_int_equal(status_of("PUT", PATH "/x", 1), 404);
    assert_int_equal(status_of("PUT", "/xapi/experiments/join", 1), 404);
    assert_int_equal(status_of("POST", PATH, 1), 405);
    assert_int_equal(status_of("GET", "/x", 0), 404);
    assert_int_equal(status_of("PUT", PATH, AUTHORITY_BODY_MAX), 401);
    assert_int_equal(status_of("PUT", PATH, AUTHORITY_BODY_MAX + 1), 413);
}

static void counts(size_t *good, size_t *bad) { authority_server_counts(server, good, bad); }

/* A user taken off the list gets no further token. A broken list is ignored, and named. */
static void the_list_is_followed(void **state)
{
    size_t good, bad, better, worse;
    struct pl_err complaint;
    counts(&good, &bad);
    assert_int_equal(ask(), PL_OK);
    counts(&better, &worse);
    assert_true(better == good + 1 && worse == bad);
    write_text(list, "list", "this is no user\n", 16);
    assert_int_equal(ask(), PL_OK);
    authority_server_complaint(server, &complaint);
    assert_non_null(strstr(complaint.text, list));
    write_text(list, "list", "# nobody\n", 9);
    assert_int_equal(ask(), PL_EUSE);
    counts(&better, &worse);
    assert_true(better == good + 2 && worse == bad + 1);
    authority_server_complaint(server, &complaint);
    assert_string_equal(complaint.text, "");
    write_text(list, "list", bytes_at(&line), bytes_length(&line));
    assert_int_equal(ask(), PL_OK);
    remove(list); /* no file: the last one that was read stays valid */
    assert_int_equal(ask(), PL_OK);
}

/* So many wrong tokens of one address are checked in a minute; after that it hears of it. The right
 * secret always enters. */
static void wrong_tokens_are_counted(void **state)
{
    struct pl_err err;
    authority_server_close(server); /* another one has counted nothing yet */
    if (authority_server_open(&server, &authority, list, "127.0.0.1", 0,
                              (const char *)bytes_at(&certificate),
                              (const char *)bytes_at(&certificate_key), &err))
        fail_msg("%s", err.text);
    snprintf(url, sizeof url, "https://localhost:%d", authority_server_port(server));
    for (int i = 0; i < AUTHORITY_TRIES_MAX; i++) assert_int_equal(status_of("PUT", PATH, 1), 401);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(status_of("PUT", PATH, 1), 429);
        assert_int_equal(ask(), PL_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_path_and_one_method),
        cmocka_unit_test(wrong_tokens_are_counted),
        cmocka_unit_test(the_list_is_followed),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
