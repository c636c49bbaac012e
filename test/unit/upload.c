/* upload.c - a server that takes files by PUT and by tus, is busy, breaks off in the middle,
 * forgets, and lies; the file arrives whole or a sentence says why not. The server is a thread
 * here. */
#include "../../data/file.h"
#include "../../net/http/upload.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define BYTES 300000

static uint8_t content[BYTES], stored[BYTES];
static size_t have;       /* of the upload */
static char mode;         /* the path's first letter */
static int requests, creations, authorized, listening, port;
static char folder[] = "/tmp/potluck-upload-XXXXXX", path[80], state[90];
static struct pl_err err;

static void say(int fd, const char *status, const char *more)
{
    char text[400];
    snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n",
             status, more);
    send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* Bytes of a body go where they belong; *got counts them. Breaks off after `most`. */
static void receive(int fd, const char *rest, size_t n, size_t at, size_t bytes, size_t most,
                    size_t *got)
{
    char buffer[4096];
    *got = 0;
    while (*got < bytes && *got < most) {
        size_t take = n < bytes - *got ? n : bytes - *got;
        if (take > most - *got) take = most - *got;
        if (at + *got + take > BYTES) return;
        memcpy(stored + at + *got, rest, take);
        *got += take;
        if (*got == bytes || *got == most) return;
        ssize_t more = recv(fd, buffer, sizeof buffer, 0);
        if (more <= 0) return;
        rest = buffer;
        n = (size_t)more;
    }
}

static void answer(int fd)
{
    char text[8192], method[10] = "", more[100];
    size_t n = 0, bytes = 0, offset = 0, got;
    ssize_t k;
    const char *body, *line;
    text[0] = 0;
    while (!strstr(text, "\r\n\r\n") && n < sizeof text - 1 &&
           (k = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0)
        text[n += (size_t)k] = 0;
    if (sscanf(text, "%9s /%c", method, &mode) != 2 || !(body = strstr(text, "\r\n\r\n"))) return;
    body += 4;
    requests++;
    if ((line = strcasestr(text, "\r\nContent-Length:"))) bytes = (size_t)atoll(line + 17);
    if ((line = strcasestr(text, "\r\nUpload-Offset:"))) offset = (size_t)atoll(line + 16);
    authorized += strcasestr(text, "Authorization: Bearer secret") != NULL;
    if (strcasestr(text, "Expect: 100-continue"))
        send(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
    n -= (size_t)(body - text);
    if (mode == 'b' && requests % 3) { /* busy */
        say(fd, "503 Busy", "");
    } else if (mode == 'n') {
        say(fd, "403 No", "");
    } else if (!strcmp(method, "PUT")) {
        receive(fd, body, n, 0, bytes, bytes, &have);
        if (mode == 's') have /= 2; /* short */
        say(fd, "201 Created", "");
    } else if (!strcmp(method, "POST")) {
        have = 0;
        creations++;
        say(fd, "201 Created",
            mode == 'w'   ? ""
            : mode == 'c' ? "Location: /cut/1\r\n"
            : mode == 'g' ? "Location: good/1\r\n"
            : mode == 'l' ? "Location: /lies/1\r\n"
                          : "Location: /x/1\r\n");
    } else if (!strcmp(method, "HEAD")) {
        if (mode == 'x') { /* PUT's question: how long is it? */
            snprintf(more, sizeof more, "Upload-Offset: %zu\r\n", have);
            say(fd, "200 OK", more);
        } else {
            snprintf(more, sizeof more,
                     "HTTP/1.1 200 OK\r\nConnection: close\r\nUpload-Offset: "
                     "%zu\r\nContent-Length: %zu\r\n\r\n",
                     mode == 'l' ? (size_t)BYTES + 1 : have, have);
            send(fd, more, strlen(more), MSG_NOSIGNAL);
        }
    } else if (offset != have) {
        say(fd, "409 Conflict", "");
    } else { /* PATCH */
        receive(fd, body, n, have, bytes, mode == 'c' ? 70001 : bytes, &got);
        have += got;
        if (got == bytes) {
            snprintf(more, sizeof more, "Upload-Offset: %zu\r\n", have);
            say(fd, "204 Done", more);
        }
    }
}

static void *serve(void *context)
{
    char rest[4096];
    int fd;
    (void)context;
    while ((fd = accept(listening, NULL, NULL)) >= 0) {
        answer(fd);
        shutdown(fd, SHUT_WR);
        while (recv(fd, rest, sizeof rest, 0) > 0) { } /* no reset may overtake what was sent */
        close(fd);
    }
    return NULL;
}

static int setup(void **unused)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t n = sizeof a;
    pthread_t thread;
    (void)unused;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 2654435761u >> 11);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/model.pt", folder);
    snprintf(state, sizeof state, "%s.upload", path);
    if (pl_file_write(path, content, sizeof content, &err)) return -1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&a, sizeof a) || listen(listening, 20) ||
        getsockname(listening, (struct sockaddr *)&a, &n))
        return -1;
    port = ntohs(a.sin_port);
    return pthread_create(&thread, NULL, serve, NULL) || pthread_detach(thread);
}

static int teardown(void **unused)
{
    (void)unused;
    unlink(state);
    unlink(path);
    return rmdir(folder);
}

static int try_upload(const char *to, int tus, int (*progress)(void *, uint64_t, uint64_t))
{
    struct http_upload_options o = http_upload_options();
    char url[100];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, to);
    o.wait_s = 0.01;
    o.stall_s = 60;
    o.piece = 100000;
    o.way = tus ? HTTP_UPLOAD_TUS : HTTP_UPLOAD_PUT;
    o.token = "secret";
    o.progress = progress;
    memset(stored, 0, sizeof stored);
    requests = authorized = 0;
    return http_upload(url, path, &o, &err);
}

static void files_arrive_by_put(void **unused)
{
    static const char *const paths[] = { "/plain", "/busy" };
    (void)unused;
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
    (void)context;
    (void)size;
    return ++seen && done >= 100000;
}

static void files_arrive_by_tus(void **unused)
{
    static const char *const paths[] = { "/good", "/cut", "/x" };
    (void)unused;
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
    (void)unused;
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

static void lies_are_told(void **unused)
{
    (void)unused;
    assert_int_not_equal(try_upload("/without", 1, NULL), PL_OK); /* a location */
    assert_non_null(strstr(err.text, "where the upload lies"));
    assert_int_equal(try_upload("/lies", 1, stop_in_the_middle), PL_EAGAIN);
    assert_int_equal(try_upload("/lies", 1, NULL), PL_EFORMAT);
    assert_non_null(strstr(err.text, "it says"));
    unlink(state);
    assert_int_not_equal(try_upload("/no", 1, NULL), PL_OK);
    assert_int_not_equal(http_upload("http://127.0.0.1:1/", "/nonexistent",
                                     &(struct http_upload_options){ 0 }, &err),
                         PL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_arrive_by_put),
        cmocka_unit_test(files_arrive_by_tus),
        cmocka_unit_test(a_stopped_upload_goes_on),
        cmocka_unit_test(lies_are_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
