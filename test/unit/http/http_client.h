/* http_client.h - for tests: one request over the loopback, and its response. */
#ifndef PL_TEST_HTTP_CLIENT_H
#define PL_TEST_HTTP_CLIENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include "test/unit/unit.h"

/* From another address of the loopback; NULL: the usual one. */
static inline int dial_from(int port, const char *source)
{
    struct sockaddr_in from = { .sin_family = AF_INET };
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct timeval limit = { .tv_sec = 60 };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    if (source) {
        assert_int_equal(inet_pton(AF_INET, source, &from.sin_addr), 1);
        assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline int dial(int port) { return dial_from(port, NULL); }

static inline void say(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Reads until `word` is there, or the end; the caller frees. */
static inline char *read_until(int fd, const char *word)
{
    size_t capacity = 1 << 20, n = 0;
    char *text = calloc(capacity, 1);
    ssize_t got;
    assert_non_null(text);
    while (n < capacity - 1 && !(word && strstr(text, word))) {
        got = read(fd, text + n, capacity - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    return text;
}

/* All that comes back of a request; the caller frees. */
static inline char *answer_to(int port, const char *request)
{
    int fd = dial(port);
    char *answer;
    say(fd, request);
    answer = read_until(fd, NULL);
    close(fd);
    return answer;
}

static inline char *ask(int port, const char *method, const char *path)
{
    char request[300];
    snprintf(request, sizeof request,
             "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method, path);
    return answer_to(port, request);
}

static inline void answers(int port, const char *method, const char *path, const char *want)
{
    char *got = ask(port, method, path);
    if (!strstr(got, want)) print_error("%s %s: %.300s\n", method, path, got);
    assert_non_null(strstr(got, want));
    free(got);
}

#endif
