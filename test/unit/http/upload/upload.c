/* upload.c - uploads by PUT and by tus to a server, a thread of this program, that is busy, breaks
 * off in the middle, loses data, and reports wrong sizes: the file arrives whole, or an error
 * states the reason. */
#include "net/http/upload/upload.h"
#include "test/unit/http/web_server.h"
#include "test/unit/unit.h"

#define BYTES 300000

static uint8_t content[BYTES], stored[BYTES];
static size_t have;                                    /* of the upload */
static char mode;                                      /* the path's first letter */
static int requests, creations, authorized, down_port; /* down_port: without TLS */
static char folder[] = "/tmp/potluck-upload-XXXXXX", path[80], state[90], ca_file[80];
static struct pl_err err;

/* Bytes of a body go where they belong; *got counts them. Breaks off after `most`. */
static void receive(struct web_client *c, size_t at, size_t bytes, size_t most, size_t *got)
{
    char buffer[4096];
    const char *rest = c->body;
    size_t n = c->body_bytes;
    *got = 0;
    while (*got < bytes && *got < most) {
        size_t take = n < bytes - *got ? n : bytes - *got;
        if (take > most - *got) take = most - *got;
        if (at + *got + take > BYTES) return;
        memcpy(stored + at + *got, rest, take);
        *got += take;
        if (*got == bytes || *got == most) return;
        ssize_t more = web_get(c, buffer, sizeof buffer);
        if (more <= 0) return;
        rest = buffer;
        n = (size_t)more;
    }
}

static void answer(struct web_client *c)
{
    char method[10] = "", more[100];
    size_t bytes, offset, got;
    if (sscanf(c->text, "%9s /%c", method, &mode) != 2) return;
    requests++;
    bytes = (size_t)web_number(c, "Content-Length");
    offset = (size_t)web_number(c, "Upload-Offset");
    authorized += !strcmp(web_header(c, "Authorization", more, sizeof more), "Bearer secret");
    if (mode == 'b' && requests % 3) { /* busy */
        web_say(c, "503 Busy", "", "");
    } else if (mode == 'n') {
        web_say(c, "403 No", "", "");
    } else if (!strcmp(method, "PUT")) {
        receive(c, 0, bytes, bytes, &have);
        if (mode == 's') have /= 2; /* short */
        web_say(c, "201 Created", "", "");
    } else if (!strcmp(method, "POST") && mode == 'd') {
        snprintf(more, sizeof more, "Location: http://127.0.0.1:%d/x/1\r\n", down_port);
        web_say(c, "201 Created", more, "");
    } else if (!strcmp(method, "POST")) {
        have = 0;
        creations++;
        web_say(c, "201 Created",
                mode == 'w'   ? ""
                : mode == 'c' ? "Location: /cut/1\r\n"
                : mode == 'g' ? "Location: good/1\r\n"
                : mode == 'l' ? "Location: /lies/1\r\n"
                              : "Location: /x/1\r\n",
                "");
    } else if (!strcmp(method, "HEAD")) {
        if (mode == 'x') { /* PUT's question: how long is it? */
            snprintf(more, sizeof more, "Upload-Offset: %zu\r\n", have);
            web_say(c, "200 OK", more, "");
        } else {
            snprintf(more, sizeof more,
                     "HTTP/1.1 200 OK\r\nConnection: close\r\nUpload-Offset: "
                     "%zu\r\nContent-Length: %zu\r\n\r\n",
                     mode == 'l' ? (size_t)BYTES + 1 : have, have);
            web_put(c, more, strlen(more));
        }
    } else if (offset != have) {
        web_say(c, "409 Conflict", "", "");
    } else { /* PATCH */
        receive(c, have, bytes, mode == 'c' ? 70001 : bytes, &got);
        have += got;
        if (got == bytes) {
            snprintf(more, sizeof more, "Upload-Offset: %zu\r\n", have);
            web_say(c, "204 Done", more, "");
        }
    }
}

static struct web_server plain = { .answer = answer }, secure = { .answer = answer };

static int setup(void **unused)
{
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 2654435761u >> 11);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/model.pt", folder);
    snprintf(state, sizeof state, "%s.upload", path);
    snprintf(ca_file, sizeof ca_file, "%s/ca.pem", folder);
    if (pl_file_write(path, content, sizeof content, &err)) return -1;
    return web_server_certify(&secure, ca_file) || web_server_open(&secure) ||
           web_server_open(&plain) || !(down_port = plain.port);
}

static int teardown(void **unused)
{
    unlink(state);
    unlink(path);
    unlink(ca_file);
    return rmdir(folder);
}

static int try_upload(const char *to, int tus, int (*progress)(void *, uint64_t, uint64_t))
{
    struct http_upload_options o = http_upload_options();
    char url[100];
    snprintf(url, sizeof url, "https://127.0.0.1:%d%s", secure.port, to);
    o.ca_file = ca_file;
    o.wait_s = 0.01;
    o.stall_s = 60;
    o.piece = 100000;
    o.way = tus ? HTTP_UPLOAD_TUS : HTTP_UPLOAD_PUT;
    o.credential[0] = (struct http_credential){ "secret", url };
    o.progress = progress;
    memset(stored, 0, sizeof stored);
    requests = authorized = 0;
    return http_upload(url, path, &o, &err);
}

static void files_arrive_by_put(void **unused)
{
    static const char *const paths[] = { "/plain", "/busy" };
    for (size_t i = 0; i < PL_COUNT(paths); i++) {
        if (try_upload(paths[i], 0, NULL)) fail_msg("%s: %s", paths[i], err.text);
        assert_int_equal(have, BYTES);
        assert_memory_equal(stored, content, BYTES);
        assert_int_equal(authorized, requests);
    }
    assert_int_not_equal(try_upload("/no", 0, NULL), PL_OK);
    assert_non_null(strstr(err.text, "403"));
    assert_int_not_equal(try_upload("/short", 0, NULL), PL_OK);
    assert_non_null(strstr(err.text, "arrived"));
}

static int seen;
static int stop_in_the_middle(void *context, uint64_t done, uint64_t size)
{
    return ++seen && done >= 100000;
}

static void files_arrive_by_tus(void **unused)
{
    static const char *const paths[] = { "/good", "/cut", "/x" };
    for (size_t i = 0; i < PL_COUNT(paths); i++) {
        if (try_upload(paths[i], 1, NULL)) fail_msg("%s: %s", paths[i], err.text);
        assert_int_equal(have, BYTES);
        assert_memory_equal(stored, content, BYTES);
        assert_int_not_equal(access(state, F_OK), 0);
    }
}

/* Stopped in the middle; another program goes on there. A changed file begins anew. */
static void a_stopped_upload_goes_on(void **unused)
{
    uint8_t first[BYTES];
    creations = 0;
    assert_int_equal(try_upload("/x", 1, stop_in_the_middle), PL_EAGAIN);
    assert_int_equal(have, 100000);
    assert_int_equal(access(state, F_OK), 0);
    memcpy(first, stored, have);
    assert_int_equal(try_upload("/x", 1, NULL), PL_OK);
    assert_int_equal(creations, 1);
    assert_memory_equal(first, content, 100000);
    assert_memory_equal(stored + 100000, content + 100000, BYTES - 100000);
    assert_int_equal(try_upload("/x", 1, stop_in_the_middle), PL_EAGAIN);
    content[5] ^= 1;
    assert_int_equal(pl_file_write(path, content, sizeof content, &err), PL_OK);
    assert_int_equal(try_upload("/x", 1, NULL), PL_OK);
    assert_int_equal(creations, 3);
    assert_memory_equal(stored, content, BYTES);
}

static void false_upload_offsets_are_reported(void **unused)
{
    assert_int_not_equal(try_upload("/without", 1, NULL), PL_OK); /* a location */
    assert_non_null(strstr(err.text, "no Location for the upload"));
    assert_int_equal(try_upload("/lies", 1, stop_in_the_middle), PL_EAGAIN);
    assert_int_equal(try_upload("/lies", 1, NULL), PL_EFORMAT);
    assert_non_null(strstr(err.text, "it says"));
    unlink(state);
    assert_int_not_equal(try_upload("/no", 1, NULL), PL_OK);
    assert_int_not_equal(http_upload("http://127.0.0.1:1/", "/nonexistent",
                                     &(struct http_upload_options){ 0 }, &err),
                         PL_OK);
}

static void token_is_sent_to_its_own_origin_only(void **unused)
{
    struct http_upload_options o = http_upload_options();
    char url[100], other[100];
    o.wait_s = 0.01;
    o.ca_file = ca_file;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/plain", plain.port); /* in the open */
    o.credential[0] = (struct http_credential){ "secret", url };
    requests = authorized = 0;
    assert_int_equal(http_upload(url, path, &o, &err), PL_OK);
    assert_int_equal(authorized, 0);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/plain", secure.port);
    snprintf(other, sizeof other, "https://127.0.0.1:%d/plain", plain.port); /* another origin's */
    o.credential[0] = (struct http_credential){ "secret", other };
    assert_int_equal(http_upload(url, path, &o, &err), PL_OK);
    assert_true(requests >= 4);
    assert_int_equal(authorized, 0);
    /* A server that leads from https to plain http gets neither file nor token there. */
    o.way = HTTP_UPLOAD_TUS;
    o.credential[0] = (struct http_credential){ "secret", url };
    snprintf(url, sizeof url, "https://127.0.0.1:%d/down", secure.port);
    atomic_store(&plain.requests, 0);
    assert_int_not_equal(http_upload(url, path, &o, &err), PL_OK);
    assert_non_null(strstr(err.text, "without https"));
    assert_int_equal(atomic_load(&plain.requests), 0);
    unlink(state);
}

static void secrets_go_to_the_right_server(void **unused)
{
    struct http_upload_options o = http_upload_options();
    char url[100];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/plain", secure.port);
    o.credential[0] = (struct http_credential){ "secret", url };
    o.wait_s = 0.01;
    o.ca_file = ca_file;
    memset(stored, 0, sizeof stored);
    requests = authorized = 0;
    if (http_upload(url, path, &o, &err)) fail_msg("%s", err.text);
    assert_memory_equal(stored, content, BYTES);
    assert_int_equal(authorized, requests);
    atomic_store(&secure.requests, 0);
    o.ca_file = NULL;
    assert_int_not_equal(http_upload(url, path, &o, &err), PL_OK);
    assert_non_null(strstr(err.text, "certificate"));
    assert_int_equal(atomic_load(&secure.requests), 1); /* no other try mends it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_arrive_by_put),
        cmocka_unit_test(files_arrive_by_tus),
        cmocka_unit_test(a_stopped_upload_goes_on),
        cmocka_unit_test(false_upload_offsets_are_reported),
        cmocka_unit_test(token_is_sent_to_its_own_origin_only),
        cmocka_unit_test(secrets_go_to_the_right_server),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
