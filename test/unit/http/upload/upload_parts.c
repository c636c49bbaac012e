/* upload_parts.c - a bucket and a hub, in a thread, that take files in parts, are cut off, lose
 * parts and report wrong ones: parts that arrived are not sent again, and the file is whole in the
 * end. */
#include "net/http/upload/upload.h"
#include "test/unit/http/web_server.h"
#include "test/unit/unit.h"

#include <openssl/evp.h>

#define BYTES 300000
#define PIECE 70000
#define PARTS 5
#define BODY_MAX (1 << 20)

/* Settings of a test, and results that it reads afterwards. The thread answers one request at a
 * time, and the test reads these only when no request is under way. */
static struct {
    int cut_part, forget, regular, ignore, whole, has_it, lie, error_late, no_tag, refuse;
    int begun, part[PARTS + 1], completed, committed, put, verified, secrets, unsigned_;
    char id[20], token[40], commit[4000];
    size_t size;
} server;
static uint8_t content[BYTES], stored[BYTES];
static char folder[] = "/tmp/potluck-parts-XXXXXX", path[80], state[90], sha256[65], url[100],
            ca_file[80];
static struct pl_err err;

struct request {
    struct web_client *client;
    char *body; /* a zero behind it */
    size_t bytes;
    char method[10], where[1000];
};

static void say(const struct request *r, const char *status, const char *headers, const char *body)
{
    web_say(r->client, status, headers, body);
}

static int receive(struct request *r)
{
    struct web_client *c = r->client;
    size_t n = c->body_bytes;
    ssize_t k;
    if (sscanf(c->text, "%9s %999s", r->method, r->where) != 2) return -1;
    r->bytes = (size_t)web_number(c, "Content-Length");
    if (r->bytes > BODY_MAX || n > r->bytes) return -1;
    memcpy(r->body, c->body, n);
    while (n < r->bytes && (k = web_get(c, r->body + n, r->bytes - n)) > 0) n += (size_t)k;
    r->body[n] = 0;
    return n == r->bytes ? 0 : -1;
}

static const char *header(const struct request *r, const char *name)
{
    static char value[600];
    return web_header(r->client, name, value, sizeof value);
}

static void hash(char text[65], const void *data, size_t bytes)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL);
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static void take_part(const struct request *r, int part)
{
    char tag[60];
    if (part < 1 || part > PARTS || (size_t)(part - 1) * PIECE + r->bytes > BYTES) {
        say(r, "400 Bad", "", "");
        return;
    }
    if (server.forget) {
        say(r, "404 Gone", "", "");
        return;
    }
    server.part[part]++;
    if (part == server.cut_part) {
        server.cut_part = 0;
        return; /* nothing is sent: the connection breaks */
    }
    memcpy(stored + (part - 1) * PIECE, r->body, r->bytes);
    server.size += r->bytes;
    snprintf(tag, sizeof tag, "ETag: \"tag-%d\"\r\n", part);
    say(r, "200 OK", server.no_tag ? "" : tag, "");
}

static int names_all_tags(const char *body)
{
    char tag[20];
    for (int i = 1; i <= PARTS; i++) {
        snprintf(tag, sizeof tag, "tag-%d", i);
        if (!strstr(body, tag)) return 0;
    }
    return 1;
}

static void bucket(const struct request *r)
{
    char want[65], answer[300], id[60];
    int part;
    hash(want, r->body, r->bytes);
    if (strncmp(header(r, "Authorization"), "AWS4-HMAC-SHA256 Credential=KEY/", 32) ||
        strcmp(header(r, "x-amz-content-sha256"), want) ||
        strcmp(header(r, "x-amz-security-token"), "guest"))
        server.unsigned_++;
    snprintf(id, sizeof id, "uploadId=%s", server.id);
    if (!strcmp(r->method, "POST") && strstr(r->where, "?uploads=")) {
        server.begun++;
        server.forget = 0;
        snprintf(server.id, sizeof server.id, "id%%2F%d", server.begun);
        snprintf(answer, sizeof answer,
                 "<?xml version=\"1.0\"?><InitiateMultipartUploadResult><UploadId>%s%d</UploadId>"
                 "</InitiateMultipartUploadResult>",
                 server.lie ? "" : "id/", server.begun);
        say(r, "200 OK", "", server.lie ? "<Error/>" : answer);
    } else if (!strcmp(r->method, "PUT") &&
               sscanf(r->where, "/bucket/model.pt?partNumber=%d", &part) == 1) {
        if (strstr(r->where, id)) take_part(r, part);
        else say(r, "404 Other", "", "");
    } else if (!strcmp(r->method, "PUT")) {
        server.put++;
        memcpy(stored, r->body, r->bytes);
        server.size = r->bytes;
        say(r, server.refuse ? "403 No" : "200 OK", "", "");
    } else if (strstr(r->where, id) && names_all_tags(r->body)) {
        server.completed++;
        say(r, "200 OK", "",
            server.error_late ? "<Error><Code>InternalError</Code></Error>"
                              : "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
    } else say(r, "400 Bad", "", "");
}

static void batch(const struct request *r)
{
    char answer[3000], parts[1000] = "";
    if (!strstr(r->body, sha256) || strstr(r->where, "/datasets/user/name.git/") != r->where) {
        say(r, "400 Bad", "", "");
        return;
    }
    for (int i = 1; i <= PARTS - server.lie; i++)
        snprintf(parts + strlen(parts), sizeof parts - strlen(parts), ", \"%05d\": \"%s/part/%d\"",
                 i, url, i);
    if (server.has_it)
        snprintf(answer, sizeof answer, "{\"objects\": [{\"oid\": \"%s\"}]}", sha256);
    else if (server.refuse)
        snprintf(answer, sizeof answer,
                 "{\"objects\": [{\"error\": {\"code\": 422, \"message\": \"too much\"}}]}");
    else if (server.whole)
        snprintf(answer, sizeof answer,
                 "{\"objects\": [{\"actions\": {\"upload\": {\"href\": \"%s/whole\", \"header\": "
                 "{\"X-Own\": \"yes\"}}, \"verify\": {\"href\": \"%s/verify\"}}}]}",
                 url, url);
    else
        snprintf(answer, sizeof answer,
                 "{\"objects\": [{\"actions\": {\"upload\": {\"href\": \"%s/complete\", "
                 "\"header\": "
                 "{\"chunk_size\": \"%d\"%s}}, \"verify\": {\"href\": \"%s/verify\"}}}]}",
                 url, PIECE, parts, url);
    server.begun++;
    server.forget = 0;
    say(r, "200 OK", "", answer);
}

static void hub(const struct request *r)
{
    char answer[200];
    int part, secret = !strcmp(header(r, "Authorization"), "Bearer secret");
    if (sscanf(r->where, "/part/%d", &part) == 1) {
        server.secrets += secret;
        take_part(r, part);
    } else if (!strcmp(r->where, "/whole")) {
        server.secrets += secret;
        server.put++;
        if (!strcmp(header(r, "X-Own"), "yes")) memcpy(stored, r->body, server.size = r->bytes);
        say(r, "200 OK", "", "");
    } else if (!secret) say(r, "401 Who", "", "");
    else if (!strcmp(r->where, "/api/datasets/user/name/preupload/a%2Fbranch")) {
        snprintf(answer, sizeof answer,
                 "{\"files\": [{\"path\": \"in/model.pt\", \"uploadMode\": \"%s\", "
                 "\"shouldIgnore\": %s}]}",
                 server.regular ? "regular" : "lfs", server.ignore ? "true" : "false");
        say(r, "200 OK", "", answer);
    } else if (strstr(r->where, "/info/lfs/objects/batch")) batch(r);
    else if (!strcmp(r->where, "/complete")) {
        server.completed += names_all_tags(r->body);
        say(r, "200 OK", "", "{}");
    } else if (!strcmp(r->where, "/verify")) {
        server.verified++;
        say(r, "200 OK", "", "{}");
    } else if (!strcmp(r->where, "/api/datasets/user/name/commit/a%2Fbranch")) {
        server.committed++;
        snprintf(server.commit, sizeof server.commit, "%.3999s", r->body);
        say(r, "200 OK", "", "{\"commitOid\": \"abc\"}");
    } else say(r, "404 What", "", "");
}

static void answer(struct web_client *c)
{
    static char body[BODY_MAX + 1];
    struct request r = { .client = c, .body = body };
    if (!receive(&r)) (strstr(r.where, "/bucket/") == r.where ? bucket : hub)(&r);
}

static struct web_server web = { .answer = answer };

static int setup(void **unused)
{
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 2654435761u >> 11);
    hash(sha256, content, sizeof content);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/model.pt", folder);
    snprintf(state, sizeof state, "%s.upload", path);
    if (pl_file_write(path, content, sizeof content, &err)) return -1;
    snprintf(ca_file, sizeof ca_file, "%s/ca.pem", folder);
    if (web_server_certify(&web, ca_file) || web_server_open(&web)) return -1;
    snprintf(url, sizeof url, "https://127.0.0.1:%d", web.port);
    return 0;
}

static int teardown(void **unused)
{
    unlink(state);
    unlink(path);
    unlink(ca_file);
    return rmdir(folder);
}

static int begin(void **unused)
{
    memset(&server, 0, sizeof server);
    memset(stored, 0, sizeof stored);
    unlink(state);
    return 0;
}

static uint64_t stop_at; /* bytes; 0: never */
static int watch(void *context, uint64_t done, uint64_t size) { return stop_at && done >= stop_at; }

static int try_upload(enum http_upload_way way)
{
    struct http_upload_options o = http_upload_options();
    char to[200];
    snprintf(to, sizeof to, "%s%s", url, way == HTTP_UPLOAD_S3 ? "/bucket/model.pt" : "");
    o.way = way;
    o.credential[0] = (struct http_credential){ "secret", url };
    o.ca_file = ca_file;
    o.tries = 3;
    o.wait_s = 0.01;
    o.piece = PIECE;
    o.key_id = "KEY";
    o.secret = "hidden";
    o.session = "guest";
    o.region = "us-east-1";
    o.repository = "user/name";
    o.kind = "datasets";
    o.revision = "a/branch";
    o.name = "in/model.pt";
    o.progress = watch;
    return http_upload(to, path, &o, &err);
}

/* All parts came once, but `again` twice, and make up the file. */
static void check_parts(int again)
{
    for (int i = 1; i <= PARTS; i++) assert_int_equal(server.part[i], i == again ? 2 : 1);
    assert_memory_equal(stored, content, BYTES);
    assert_int_equal(server.completed, 1);
    assert_int_equal(server.unsigned_, 0);
    assert_int_equal(server.secrets, 0);
    assert_int_not_equal(access(state, F_OK), 0);
}

static const enum http_upload_way ways[] = { HTTP_UPLOAD_S3, HTTP_UPLOAD_HUB };

static void files_arrive_in_parts(void **unused)
{
    for (size_t i = 0; i < PL_COUNT(ways); i++) {
        begin(unused);
        server.cut_part = 3;
        if (try_upload(ways[i])) fail_msg("%s", err.text);
        check_parts(3);
    }
    assert_int_equal(server.verified, 1);
    assert_int_equal(server.committed, 1);
    assert_non_null(strstr(server.commit, "\"lfsFile\""));
    assert_non_null(strstr(server.commit, sha256));
    assert_non_null(strstr(server.commit, "\"in/model.pt\""));
}

static void a_stopped_upload_goes_on(void **unused)
{
    for (size_t i = 0; i < PL_COUNT(ways); i++) {
        begin(unused);
        stop_at = 2 * PIECE;
        assert_int_equal(try_upload(ways[i]), PL_EAGAIN);
        assert_int_equal(server.size, 2 * PIECE);
        assert_int_equal(access(state, F_OK), 0);
        stop_at = 0;
        if (try_upload(ways[i])) fail_msg("%s", err.text);
        assert_int_equal(server.begun, 1);
        check_parts(0);
    }
}

static void a_forgotten_upload_begins_anew(void **unused)
{
    for (size_t i = 0; i < PL_COUNT(ways); i++) {
        begin(unused);
        stop_at = 2 * PIECE;
        assert_int_equal(try_upload(ways[i]), PL_EAGAIN);
        stop_at = 0;
        server.forget = 1;
        if (try_upload(ways[i])) fail_msg("%s", err.text);
        assert_int_equal(server.begun, 2);
        assert_int_equal(server.completed, 1);
        assert_memory_equal(stored, content, BYTES);
    }
}

static void small_or_known_files(void **unused)
{
    struct http_upload_options o = http_upload_options();
    server.whole = 1;
    assert_int_equal(try_upload(HTTP_UPLOAD_HUB), PL_OK);
    assert_int_equal(server.put, 1);
    assert_memory_equal(stored, content, BYTES);
    assert_int_equal(server.secrets, 0);
    server.has_it = 1; /* nothing is sent but the commit */
    assert_int_equal(try_upload(HTTP_UPLOAD_HUB), PL_OK);
    assert_int_equal(server.put, 1);
    assert_int_equal(server.committed, 2);
    server.regular = 1;
    assert_int_equal(try_upload(HTTP_UPLOAD_HUB), PL_OK);
    assert_int_equal(server.begun, 2);
    assert_non_null(strstr(server.commit, "\"base64\""));
    char to[200];
    snprintf(to, sizeof to, "%s/bucket/model.pt", url);
    o.way = HTTP_UPLOAD_S3;
    o.key_id = "KEY";
    o.secret = "hidden";
    o.session = "guest";
    o.region = "r";
    o.ca_file = ca_file;
    memset(stored, 0, sizeof stored);
    assert_int_equal(http_upload(to, path, &o, &err), PL_OK); /* one piece is 8 MiB */
    assert_int_equal(server.put, 2);
    assert_int_equal(server.unsigned_, 0);
    assert_memory_equal(stored, content, BYTES);
    o.secret = NULL;
    assert_int_equal(http_upload(to, path, &o, &err), PL_EUSE);
    o.secret = "hidden"; /* nothing that it signs travels in the open */
    snprintf(to, sizeof to, "http%s/bucket/model.pt", url + 5);
    assert_int_equal(http_upload(to, path, &o, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "https"));
}

static void refused(enum http_upload_way way, const char *why)
{
    assert_int_not_equal(try_upload(way), PL_OK);
    if (!strstr(err.text, why)) fail_msg("%s, not %s", err.text, why);
    begin(NULL);
}

static void refusals_and_lies(void **unused)
{
    server.lie = 1;
    refused(HTTP_UPLOAD_S3, "without an id");
    server.no_tag = 1;
    refused(HTTP_UPLOAD_S3, "no ETag");
    server.error_late = 1;
    refused(HTTP_UPLOAD_S3, "InternalError");
    server.ignore = 1;
    refused(HTTP_UPLOAD_HUB, "ignores");
    server.lie = 1;
    refused(HTTP_UPLOAD_HUB, "do not make up");
    server.refuse = 1;
    refused(HTTP_UPLOAD_HUB, "too much");
    server.no_tag = 1;
    refused(HTTP_UPLOAD_HUB, "no ETag");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(files_arrive_in_parts, begin),
        cmocka_unit_test_setup(a_stopped_upload_goes_on, begin),
        cmocka_unit_test_setup(a_forgotten_upload_begins_anew, begin),
        cmocka_unit_test_setup(small_or_known_files, begin),
        cmocka_unit_test_setup(refusals_and_lies, begin),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
