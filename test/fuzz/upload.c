/* upload.c - any answers to the four ways of uploading. libcurl's transport is replaced: each
 * request is answered from the input, which says status, how many bytes of header lines and of
 * body, and those. An upload is stopped after its first piece and goes on, so what it remembers is
 * read too. */
#include "data/files/file.h"
#include "../../net/http/libraries.h"
#include "net/http/upload/upload.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 1000
#define PIECE 300
#define REQUESTS_MAX 60 /* of one input */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct {
    const uint8_t *data;
    size_t bytes;
    int requests;
    long status;
} input;

static struct {
    curl_write_callback header, body;
    curl_read_callback read;
    void *header_to, *body_to, *read_from;
    char *error;
} call;

static CURLcode set(CURL *easy, CURLoption option, ...)
{
    va_list args;
    (void)easy;
    va_start(args, option);
    switch ((int)option) {
    case CURLOPT_HEADERFUNCTION: call.header = va_arg(args, curl_write_callback); break;
    case CURLOPT_HEADERDATA: call.header_to = va_arg(args, void *); break;
    case CURLOPT_WRITEFUNCTION: call.body = va_arg(args, curl_write_callback); break;
    case CURLOPT_WRITEDATA: call.body_to = va_arg(args, void *); break;
    case CURLOPT_READFUNCTION: call.read = va_arg(args, curl_read_callback); break;
    case CURLOPT_READDATA: call.read_from = va_arg(args, void *); break;
    case CURLOPT_ERRORBUFFER: call.error = va_arg(args, char *); break;
    default: break;
    }
    va_end(args);
    return CURLE_OK;
}

static CURLcode get(CURL *easy, CURLINFO what, ...)
{
    va_list args;
    (void)easy;
    va_start(args, what);
    if (what == CURLINFO_RESPONSE_CODE) *va_arg(args, long *) = input.status;
    va_end(args);
    return CURLE_OK;
}

/* The next n bytes of the input in memory of their own, so that reading beyond them is seen. */
static char *take(size_t *n)
{
    char *copy;
    if (*n > input.bytes) *n = input.bytes;
    if ((copy = malloc(*n + 1))) memcpy(copy, input.data, *n);
    input.data += *n;
    input.bytes -= *n;
    return copy;
}

static size_t number(void)
{
    size_t n = 1;
    char *byte = take(&n);
    size_t x = n && byte ? (uint8_t)byte[0] : 0;
    free(byte);
    return x;
}

static CURLcode perform(CURL *easy)
{
    static const long statuses[] = { 200, 201, 204, 308, 403, 404, 409, 503 };
    char sink[128];
    size_t status = number(), head = number(), body = number() * 4;
    char *lines, *text;
    (void)easy;
    if (++input.requests > REQUESTS_MAX || !input.bytes) return CURLE_COULDNT_CONNECT;
    input.status = statuses[status % PL_COUNT(statuses)];
    while (call.read && call.read(sink, 1, sizeof sink, call.read_from) == sizeof sink) {}
    lines = take(&head);
    text = take(&body);
    for (size_t at = 0; lines && at < head;) { /* line by line, each in memory of its own */
        const char *end = memchr(lines + at, '\n', head - at);
        size_t n = end ? (size_t)(end - lines) + 1 - at : head - at;
        char *line = malloc(n);
        if (line) call.header(memcpy(line, lines + at, n), 1, n, call.header_to);
        free(line);
        at += n;
    }
    if (text && body) call.body(text, 1, body, call.body_to);
    free(lines);
    free(text);
    return status & 0x80 ? CURLE_RECV_ERROR : CURLE_OK;
}

static int stop_at_a_piece(void *context, uint64_t done, uint64_t size)
{
    (void)context, (void)size;
    return done >= PIECE;
}

static char path[80], state[90];

static void clean(void)
{
    unlink(state);
    unlink(path);
}

static void start(void)
{
    uint8_t content[BYTES];
    struct pl_err err;
    for (size_t i = 0; i < BYTES; i++) content[i] = (uint8_t)i;
    /* in memory where possible: the upload's state is written to the disk at once, thousands of
     * times */
    snprintf(path, sizeof path, "%s/potluck-fuzz-%ld",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (long)getpid());
    snprintf(state, sizeof state, "%s.upload", path);
    if (curl_load(&err) || pl_file_write(path, content, BYTES, &err)) abort();
    atexit(clean);
    curl.easy_setopt = set;
    curl.easy_getinfo = get;
    curl.easy_perform = perform;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct http_upload_options o = http_upload_options();
    struct pl_err err;
    if (!path[0]) start();
    if (!bytes) return 0;
    o.way = (enum http_upload_way)(data[0] % 4);
    o.credential[0] = (struct http_credential){ "x", "https://host" };
    o.key_id = o.secret = o.session = "x";
    o.region = "here";
    o.tries = 2;
    o.wait_s = 0;
    o.piece = PIECE;
    o.repository = "user/name";
    o.kind = "models";
    o.revision = "main";
    o.name = "file";
    memset(&input, 0, sizeof input);
    input.data = data + 1;
    input.bytes = bytes - 1;
    unlink(state);
    for (int again = 0; again < 2; again++) {
        o.progress = again ? NULL : stop_at_a_piece;
        memset(&call, 0, sizeof call);
        if (http_upload("https://host/bucket/file", path, &o, &err) && !err.text[0]) abort();
    }
    return 0;
}
