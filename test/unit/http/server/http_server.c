/* http_server.c - the web server of pages: published answers, compressed once for all; refusals;
 * pushed events. */
#include "data/parquet/page_codec.h"
#include "net/http/server/server.h"
#include "test/unit/http/http_client.h"

#include <sys/resource.h>

static void published_and_nothing_else(void **state)
{
    struct http_server *s;
    struct pl_err err;
    int port;
    assert_int_equal(http_server_open(&s, NULL, 0, &err), PL_OK);
    port = http_server_port(s);
    assert_true(port > 0);
    assert_int_equal(http_server_put(s, "/a.txt", "text/plain", "one", 3), PL_OK);
    answers(port, "GET", "/a.txt", "\r\n\r\none");
    assert_int_equal(http_server_put(s, "/a.txt", "text/plain", "two", 3), PL_OK);
    answers(port, "GET", "/a.txt", "\r\n\r\ntwo");
    answers(port, "GET", "/a.txt?x=1", "\r\n\r\ntwo");
    answers(port, "GET", "/a.txt", "Content-Security-Policy: default-src 'none'");
    answers(port, "GET", "/a.txt", "X-Content-Type-Options: nosniff");
    answers(port, "HEAD", "/a.txt", "Content-Length: 3");
    answers(port, "GET", "/", "404");
    answers(port, "GET", "/../a.txt", "404");
    answers(port, "GET", "/%61.txt", "two"); /* the same path, otherwise spelt */
    answers(port, "POST", "/a.txt", "405");
    answers(port, "DELETE", "/a.txt", "405");
    for (int i = 1; i < HTTP_PATHS_MAX; i++) {
        char path[20];
        snprintf(path, sizeof path, "/%d", i);
        assert_int_equal(http_server_put(s, path, "text/plain", "", 0), PL_OK);
    }
    assert_int_equal(http_server_put(s, "/one-more", "text/plain", "", 0), PL_ELIMIT);
    http_server_close(s);
    assert_int_equal(http_server_open(&s, "localhost", 0, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "'localhost'"));
}

/* The body as gzip, if its headers say so. */
static void packed_once(void **state)
{
    static const char ask_packed[] =
        "GET /long HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: deflate, gzip\r\n"
        "Connection: close\r\n\r\n";
    static char text[5000], back[sizeof text];
    struct http_server *s;
    char *got, *body;
    size_t length;
    memset(text, 'x', sizeof text);
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(http_server_put(s, "/long", "text/plain", text, sizeof text), PL_OK);
    answers(http_server_port(s), "GET", "/long", "Content-Length: 5000");
    got = answer_to(http_server_port(s), ask_packed);
    assert_non_null(strstr(got, "Content-Encoding: gzip"));
    assert_non_null(strstr(got, "Vary: Accept-Encoding"));
    length = (size_t)atol(strstr(got, "Content-Length: ") + 16);
    body = strstr(got, "\r\n\r\n") + 4;
    assert_true(length > 0 && length < 100);
    assert_int_equal(pl_page_codec_unpack(back, sizeof back, body, length, PL_CODEC_GZIP), PL_OK);
    assert_memory_equal(back, text, sizeof text);
    free(got);
    /* A replaced answer leaves no compressed one behind. */
    assert_int_equal(http_server_put(s, "/long", "text/plain", "short", 5), PL_OK);
    got = answer_to(http_server_port(s), ask_packed);
    assert_null(strstr(got, "Content-Encoding"));
    assert_non_null(strstr(got, "\r\n\r\nshort"));
    free(got);
    http_server_close(s);
}

/* A request by another host's name is refused, whatever it asks for. */
static void asked_by_our_names_alone(void **state)
{
    static const struct {
        const char *request, *status;
    } cases[] = {
        { "GET /a HTTP/1.1\r\nHost: localhost:8000\r\n", " 200 " },
        { "GET /a HTTP/1.1\r\nHost: [::1]:5\r\n", " 200 " },
        { "GET /a HTTP/1.1\r\nHost: potluck.example\r\n", " 200 " },
        { "GET /a HTTP/1.1\r\nHost: evil.example\r\n", " 421 " },
        { "GET /a HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80\r\n", " 421 " },
        { "GET /none HTTP/1.1\r\nHost: evil.example\r\n", " 421 " },
        { "GET /events HTTP/1.1\r\nHost: evil.example\r\n", " 421 " },
        { "HEAD /a HTTP/1.1\r\nHost: evil.example\r\n", " 421 " },
        { "POST /a HTTP/1.1\r\nHost: evil.example\r\n", " 421 " },
        { "GET /a HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", " 4" },
        { "GET /a HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n", " 4" },
        { "GET /a HTTP/1.1\r\n", " 4" },
        { "GET /a HTTP/1.0\r\n", " 421 " },
        { "GET http://localhost/a HTTP/1.1\r\nHost: evil.example\r\n", " 421 " },
    };
    struct http_server *s;
    struct pl_err err;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(http_server_events(s, "/events"), PL_OK);
    assert_int_equal(http_server_host(s, "potluck.example", &err), PL_OK);
    assert_int_equal(http_server_host(s, "potluck.example:80", &err), PL_EUSE);
    assert_int_equal(http_server_put(s, "/a", "text/plain", "secret", 6), PL_OK);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        char request[300], *got;
        snprintf(request, sizeof request, "%sConnection: close\r\n\r\n", cases[i].request);
        got = answer_to(http_server_port(s), request);
        if (strncmp(got, "HTTP/1.", 7) ||
            strncmp(got + 8, cases[i].status, strlen(cases[i].status)))
            fail_msg("%s: %s", request, got);
        if (cases[i].status[1] == '4') assert_null(strstr(got, "secret"));
        free(got);
    }
    http_server_close(s);
}

/* More connections than allowed, all from one address; most of them send nothing. Those that send a
 * request are answered. */
static void silent_connections_are_evicted(void **state)
{
    enum { SILENT = HTTP_CONNECTIONS_MAX + 300 };
    static int fd[SILENT];
    struct rlimit files;
    struct http_server *s;
    int watcher;
    char *got;
    double began;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    if (files.rlim_max < 2 * SILENT || setrlimit(RLIMIT_NOFILE, &files)) skip();
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(http_server_events(s, "/events"), PL_OK);
    assert_int_equal(http_server_put(s, "/a", "text/plain", "here", 4), PL_OK);
    watcher = dial(http_server_port(s)); /* the oldest of all, but it is no silent one */
    say(watcher, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (http_server_watchers(s) < 1) usleep(1000);
    for (int i = 0; i < SILENT; i++) {
        fd[i] = dial(http_server_port(s));
        if (i % 2) say(fd[i], "GET /a HTTP/1.1\r\nHost: localh"); /* half a header */
    }
    began = pl_seconds();
    for (int i = 0; i < 50; i++) answers(http_server_port(s), "GET", "/a", "\r\n\r\nhere");
    if (pl_seconds() - began > 5) fail_msg("%.1f s", pl_seconds() - began);
    got = read_until(fd[0], NULL); /* the oldest has been ended, not left waiting */
    assert_string_equal(got, "");
    free(got);
    assert_int_equal(http_server_push(s, "state", "{}", 2), PL_OK);
    got = read_until(watcher, "data: {}");
    assert_non_null(strstr(got, "data: {}"));
    free(got);
    for (int i = 0; i < SILENT; i++) close(fd[i]);
    close(watcher);
    http_server_close(s);
}

static void upload_is_refused(void **state)
{
    struct http_server *s;
    char *answer;
    int fd;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    fd = dial(http_server_port(s));
    say(fd,
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
    answer = read_until(fd, NULL);
    assert_non_null(strstr(answer, "405"));
    free(answer);
    close(fd);
    fd = dial(http_server_port(s)); /* an endless header */
    say(fd, "GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 20; i++) {
        char many[1000];
        memset(many, 'a', sizeof many);
        if (send(fd, many, sizeof many, MSG_NOSIGNAL) < 0) break;
    }
    answer = read_until(fd, NULL);
    assert_true(!*answer || strstr(answer, " 4")); /* closed, or answered that it is too long */
    free(answer);
    close(fd);
    http_server_close(s);
}

#define WATCHERS 40

static void watchers_get_events(void **state)
{
    struct http_server *s;
    int fd[WATCHERS];
    char *got;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(http_server_events(s, "/events"), PL_OK);
    for (int i = 0; i < WATCHERS; i++) {
        fd[i] = dial(http_server_port(s));
        say(fd[i], "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    while (http_server_watchers(s) < WATCHERS) usleep(1000);
    assert_int_equal(http_server_push(s, "state", "{\"a\":1}", 7), PL_OK);
    for (int i = 0; i < WATCHERS; i++) {
        got = read_until(fd[i], "event: state\ndata: {\"a\":1}\n\n");
        assert_non_null(strstr(got, "text/event-stream"));
        assert_non_null(strstr(got, "event: state\ndata: {\"a\":1}\n\n"));
        free(got);
    }
    assert_int_equal(http_server_push(s, "state", "2", 1), PL_OK);
    got = read_until(fd[0], "data: 2\n\n");
    assert_non_null(strstr(got, "data: 2\n\n"));
    free(got);
    { /* a watcher that comes later gets the latest at once */
        int late = dial(http_server_port(s));
        say(late, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        got = read_until(late, "data: 2\n\n");
        assert_non_null(strstr(got, "data: 2\n\n"));
        free(got);
        close(late);
    }
    for (int i = 1; i < WATCHERS; i++) close(fd[i]);
    while (http_server_watchers(s) > 1) { /* noticed when there is something to say */
        http_server_push(s, "state", "3", 1);
        usleep(1000);
    }
    http_server_close(s); /* with one watcher left */
    close(fd[0]);
}

/* As many as there may be; most close, and as many come, while nothing is sent. */
static void closed_watchers_are_evicted(void **state)
{
    enum { GOING = 1000 };
    static int fd[HTTP_WATCHERS_MAX];
    struct rlimit files;
    struct http_server *s;
    char *got;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    if (files.rlim_max < 2 * HTTP_CONNECTIONS_MAX || setrlimit(RLIMIT_NOFILE, &files)) skip();
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(http_server_events(s, "/events"), PL_OK);
    for (int i = 0; i < HTTP_WATCHERS_MAX; i++) {
        fd[i] = dial(http_server_port(s));
        say(fd[i], "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    while (http_server_watchers(s) < HTTP_WATCHERS_MAX) usleep(1000);
    for (int i = 0; i < GOING; i++) close(fd[i]);
    for (int i = 0; i < GOING; i++) {
        fd[i] = dial(http_server_port(s));
        say(fd[i], "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for (int i = 0; i < GOING; i += GOING - 1) {
        got = read_until(fd[i], "\r\n\r\n");
        assert_non_null(strstr(got, " 200 "));
        free(got);
    }
    while (http_server_watchers(s) < HTTP_WATCHERS_MAX) usleep(1000);
    { /* none of its own network's watchers is evicted for a newcomer */
        int more = dial(http_server_port(s));
        say(more, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        got = read_until(more, "watch already");
        assert_non_null(strstr(got, " 503 "));
        free(got);
        close(more);
        more = dial_from(http_server_port(s), "127.0.1.1"); /* but for another network's */
        say(more, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        got = read_until(more, "\r\n\r\n");
        assert_non_null(strstr(got, " 200 "));
        free(got);
        close(more);
    }
    for (int i = 0; i < HTTP_WATCHERS_MAX; i++) close(fd[i]);
    http_server_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_and_nothing_else),
        cmocka_unit_test(packed_once),
        cmocka_unit_test(asked_by_our_names_alone),
        cmocka_unit_test(silent_connections_are_evicted),
        cmocka_unit_test(upload_is_refused),
        cmocka_unit_test(watchers_get_events),
        cmocka_unit_test(closed_watchers_are_evicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
