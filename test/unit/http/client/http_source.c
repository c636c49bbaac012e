/* http_source.c - a web server that cuts, stalls, reports wrong lengths and ranges, is busy,
 * changes the file or damages it, over HTTP and HTTPS; the source gives the right bytes or one
 * sentence. The server is a thread here. */
#include "net/http/client/http_source.h"
#include "file_server.h"
#include "test/unit/unit.h"

#include <openssl/evp.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void bytes_come_whatever_the_server_does(void **state)
{
    static const char *const paths[] = { "/good", "/busy",       "/cut",  "/long",
                                         "/more", "/redirected", "/stall" };
    for (size_t i = 0; i < PL_COUNT(paths); i++) {
        struct http_client *c = strcmp(paths[i], "/stall") ? client() : client_of(1);
        struct pl_source *s;
        uint8_t last[4];
        int rc = open_path(&s, c, paths[i], sha256);
        if (rc) fail_msg("%s: %s", paths[i], err.text);
        /* as a Parquet reader does: the end first */
        assert_int_equal(pl_source_read(s, FILE_BYTES - 4, last, 4, &err), PL_OK);
        assert_memory_equal(last, content + FILE_BYTES - 4, 4);
        if ((rc = read_all(s))) fail_msg("%s: %s", paths[i], err.text);
        assert_int_equal(read_all(s), PL_OK); /* from what was kept */
        pl_source_close(s);
        http_client_close(c);
    }
}

/* A reader that waits for stall_s each time progresses slowly, or not at all. */
static void silence_costs_little_where_answers_are_quick(void **state)
{
    struct http_client *c = client();
    struct pl_source *s;
    double began = pl_seconds(), took;
    assert_int_equal(open_path(&s, c, "/harsh", sha256), PL_OK);
    assert_int_equal(read_all(s), PL_OK);
    took = pl_seconds() - began;
    if (took < 1 || took > 40) /* the server's second; one patience is 60 s */
        fail_msg("%.1f s, %d requests", took, atomic_load(&plain.requests));
    pl_source_close(s);
    http_client_close(c);
}

/* A whole list, in spite of cuts, but no list that is too long. */
static void lists_come_in_parts_too(void **state)
{
    struct http_client *c = client();
    char url[200];
    void *data;
    size_t bytes;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/cut", plain.port);
    assert_int_equal(http_client_get(c, &data, &bytes, FILE_BYTES, url, &err), PL_OK);
    assert_int_equal(bytes, FILE_BYTES);
    assert_memory_equal(data, content, FILE_BYTES);
    free(data);
    assert_int_equal(http_client_get(c, &data, &bytes, FILE_BYTES - 1, url, &err), PL_ELIMIT);
    assert_null(data);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/whole", plain.port);
    assert_int_equal(http_client_get(c, &data, &bytes, FILE_BYTES, url, &err), PL_OK);
    assert_memory_equal(data, content, FILE_BYTES);
    free(data);
    http_client_close(c);
}

static int open_secure(struct pl_source **s, struct http_client **c, const char *host,
                       const char *ca)
{
    struct http_client_options o = http_client_options();
    char url[200];
    o.wait_s = 0.01;
    o.stall_s = 60;
    o.ca_file = ca;
    assert_int_equal(http_client_open(c, &o, &err), PL_OK);
    snprintf(url, sizeof url, "https://%s:%d/cut", host, secure.port);
    atomic_store(&secure.requests, 0);
    return http_source_open(s, *c, NULL, url, sha256, &err);
}

static void secrets_come_from_the_right_server(void **state)
{
    struct http_client *c;
    struct pl_source *s;
    /* First of all: the server may count late who came before. */
    assert_int_equal(open_secure(&s, &c, "127.0.0.1", NULL), PL_EIO); /* whose is that? */
    assert_non_null(strstr(err.text, "certificate"));
    assert_null(strchr(err.text, '\n'));
    assert_int_equal(atomic_load(&secure.requests), 1); /* and no other try mends it */
    http_client_close(c);
    if (open_secure(&s, &c, "127.0.0.1", ca_file)) fail_msg("%s", err.text);
    assert_int_equal(read_all(s), PL_OK);
    pl_source_close(s);
    http_client_close(c);
    assert_int_equal(open_secure(&s, &c, "localhost", ca_file), PL_EIO); /* another's */
    assert_non_null(strstr(err.text, "localhost"));
    assert_null(strstr(err.text, "tries"));
    http_client_close(c);
    assert_int_equal(open_secure(&s, &c, "127.0.0.1", "/nowhere.pem"), PL_EIO);
    assert_non_null(strstr(err.text, "/nowhere.pem"));
    assert_null(strstr(err.text, "tries"));
    http_client_close(c);
}

/* From the hub to another host, of which it says what it likes: the bytes come, the token does
 * not. */
static void redirects_take_no_token_along(void **state)
{
    struct http_client_options o = http_client_options();
    struct http_client *c;
    struct pl_source *s;
    char home[100], url[200];
    o.wait_s = 0.01;
    o.ca_file = ca_file;
    snprintf(home, sizeof home, "https://127.0.0.1:%d/list.txt", secure.port);
    o.credential[1] = (struct http_credential){ "secret", home };
    assert_int_equal(http_client_open(&c, &o, &err), PL_OK);
    const struct {
        const char *path, *to;
        int is_secure, tokens;
    } cases[] = {
        { "/away", "http://127.0.0.1:%d/good", 0, 1 },  /* the token's own origin asked first */
        { "/redirected", NULL, 0, 2 },                  /* to itself: both see it */
        { "/away", "https://127.0.0.1:%d/good", 1, 2 }, /* the same, as a whole URL */
        { "/away", "https://user@127.0.0.1:%d/good", 1, 1 },
        { "/away", "//127.0.0.1:%d/good", 1, 2 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        if (cases[i].to)
            snprintf(away, sizeof away, cases[i].to, cases[i].is_secure ? secure.port : plain.port);
        snprintf(url, sizeof url, "https://127.0.0.1:%d%s", secure.port, cases[i].path);
        atomic_store(&authorized, 0);
        if (http_source_open(&s, c, NULL, url, NULL, &err)) fail_msg("%s: %s", away, err.text);
        if (atomic_load(&authorized) != cases[i].tokens)
            fail_msg("%s: %d of the requests had the token", away, atomic_load(&authorized));
        pl_source_close(s);
    }
    snprintf(url, sizeof url, "https://127.0.0.1:%d/keeps", secure.port);
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_EIO);
    assert_non_null(strstr(err.text, "redirects"));
    snprintf(away, sizeof away, "file://%s", ca_file);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/away", secure.port);
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_EIO);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/good", plain.port); /* in the open: none */
    atomic_store(&authorized, 0);
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_OK);
    assert_int_equal(atomic_load(&authorized), 0);
    pl_source_close(s);
    http_client_close(c);
}

static void bad_are_reported(void **state)
{
    static const struct {
        const char *path, *words;
    } bad[] = {
        { "/none", "404" },
        { "/whole", "requests for parts" },
        { "/waits", "requests for parts" },
        { "/other", "other bytes" },
    };
    struct http_client *c = client();
    struct pl_source *s;
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        assert_int_not_equal(open_path(&s, c, bad[i].path, NULL), PL_OK);
        assert_null(s);
        if (!strstr(err.text, bad[i].words)) fail_msg("%s: %s", bad[i].path, err.text);
        assert_non_null(strstr(err.text, bad[i].path));
    }
    assert_int_equal(open_path(&s, c, "/exchanged", NULL), PL_OK);
    assert_int_not_equal(read_all(s), PL_OK);
    assert_non_null(strstr(err.text, "changed"));
    pl_source_close(s);
    assert_int_equal(open_path(&s, c, "/damaged", sha256), PL_OK);
    assert_int_equal(pl_source_read(s, 900, content + 900, 0, &err), PL_OK);
    uint8_t byte;
    int rc = PL_OK;
    for (uint64_t at = 0; at < FILE_BYTES && !rc; at += HTTP_BLOCK_BYTES)
        rc = pl_source_read(s, at, &byte, 1, &err);
    assert_int_equal(rc, PL_EFORMAT);
    assert_non_null(strstr(err.text, "SHA-256"));
    pl_source_close(s);
    http_client_close(c);
}

static void what_is_no_web_address_is_refused(void **state)
{
    struct http_client *c = client();
    struct pl_source *s;
    char url[HTTP_URL_MAX + 20];
    assert_int_not_equal(http_source_open(&s, c, NULL, "file:///etc/passwd", NULL, &err), PL_OK);
    assert_int_not_equal(http_source_open(&s, c, NULL, "http://127.0.0.1:1/x", NULL, &err), PL_OK);
    memset(url, 'a', sizeof url - 1);
    url[sizeof url - 1] = 0;
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_ELIMIT);
    http_client_close(c);
}

static int yes(void *context) { return 1; }

static void waiting_can_be_stopped(void **state)
{
    struct http_client_options o = http_client_options();
    struct http_client *c;
    struct pl_source *s;
    o.wait_s = 1000;
    o.stopped = yes;
    assert_int_equal(http_client_open(&c, &o, &err), PL_OK);
    assert_int_equal(open_path(&s, c, "/stall", NULL), PL_EAGAIN);
    http_client_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_whatever_the_server_does),
        cmocka_unit_test(silence_costs_little_where_answers_are_quick),
        cmocka_unit_test(lists_come_in_parts_too),
        cmocka_unit_test(secrets_come_from_the_right_server),
        cmocka_unit_test(redirects_take_no_token_along),
        cmocka_unit_test(bad_are_reported),
        cmocka_unit_test(what_is_no_web_address_is_refused),
        cmocka_unit_test(waiting_can_be_stopped),
    };
    if (!mkdtemp(folder)) return 1;
    return cmocka_run_group_tests(tests, serve_file, remove_folder);
}
