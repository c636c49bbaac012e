/* web_server.h - for tests: a web server in a thread, with or without TLS; the test makes its
 * answers. */
#ifndef PL_TEST_WEB_SERVER_H
#define PL_TEST_WEB_SERVER_H

#include "data/files/file.h"
#include "net/http/authority/authority_server.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define WEB_HEAD_MAX 16384

/* One connection, which brings one request. */
struct web_client {
    int fd, number;          /* number: of the request, from 1 on */
    SSL *tls;                /* NULL: in the open */
    char text[WEB_HEAD_MAX]; /* the request's head, a zero behind it, */
    const char *body;        /* inside text: bytes of the body that came together with the head, */
    size_t body_bytes;       /* their number */
};

struct web_server {
    void (*answer)(struct web_client *); /* in a thread of its own where parallel_for is set */
    int parallel_for;
    int port, listening;
    SSL_CTX *tls; /* NULL: in the open */
    atomic_int requests;
};

static inline void web_put(struct web_client *c, const void *data, size_t bytes)
{
    if (c->tls) SSL_write(c->tls, data, (int)bytes);
    else send(c->fd, data, bytes, MSG_NOSIGNAL);
}

/* <= 0 at the end. */
static inline ssize_t web_get(struct web_client *c, void *data, size_t bytes)
{
    return c->tls ? SSL_read(c->tls, data, (int)bytes) : recv(c->fd, data, bytes, 0);
}

/* A whole answer; headers end with CR LF each. */
static inline void web_say(struct web_client *c, const char *status, const char *headers,
                           const char *body)
{
    char text[6000];
    snprintf(text, sizeof text,
             "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n%s", status,
             strlen(body), headers, body);
    web_put(c, text, strlen(text));
}

/* The value of a header of the request, "" if there is none. */
static inline const char *web_header(const struct web_client *c, const char *name, char *value,
                                     size_t capacity)
{
    char key[60];
    const char *at;
    snprintf(key, sizeof key, "\r\n%s:", name);
    at = strcasestr(c->text, key);
    value[0] = 0;
    if (!at || at >= c->body) return value;
    at += strlen(key) + strspn(at + strlen(key), " ");
    snprintf(value, capacity, "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

static inline long long web_number(const struct web_client *c, const char *name)
{
    char value[60];
    return atoll(web_header(c, name, value, sizeof value));
}

static inline int web_read_head(struct web_client *c)
{
    size_t n = 0;
    ssize_t got;
    char *end = NULL, expects[60];
    c->text[0] = 0;
    while (!end && n < sizeof c->text - 1 &&
           (got = web_get(c, c->text + n, sizeof c->text - 1 - n)) > 0) {
        c->text[n += (size_t)got] = 0;
        end = strstr(c->text, "\r\n\r\n");
    }
    if (!end) return -1;
    c->body = end + 4;
    c->body_bytes = n - (size_t)(c->body - c->text);
    if (!strcasecmp(web_header(c, "Expect", expects, sizeof expects), "100-continue"))
        web_put(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return 0;
}

struct web_job {
    struct web_server *server;
    struct web_client client;
};

static inline void *web_serve_one(void *context)
{
    struct web_job *job = context;
    struct web_client *c = &job->client;
    char rest[4096];
    if ((!c->tls || SSL_accept(c->tls) == 1) && !web_read_head(c)) job->server->answer(c);
    if (c->tls) SSL_shutdown(c->tls);
    shutdown(c->fd, SHUT_WR);
    while (recv(c->fd, rest, sizeof rest, 0) > 0) {} /* no reset may overtake what was sent */
    SSL_free(c->tls);
    close(c->fd);
    free(job);
    return NULL;
}

static inline void *web_serve(void *context)
{
    struct web_server *s = context;
    int fd;
    while ((fd = accept(s->listening, NULL, NULL)) >= 0) {
        struct web_job *job = calloc(1, sizeof *job);
        pthread_t thread;
        if (!job) abort();
        job->server = s;
        job->client.fd = fd;
        job->client.number = atomic_fetch_add(&s->requests, 1) + 1;
        if (s->tls && (job->client.tls = SSL_new(s->tls))) SSL_set_fd(job->client.tls, fd);
        if (!s->parallel_for) web_serve_one(job);
        else if (!pthread_create(&thread, NULL, web_serve_one, job)) pthread_detach(thread);
    }
    return NULL;
}

/* On a free port of the loopback, until the program ends. 0, or -1. */
static inline int web_server_open(struct web_server *s)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t n = sizeof a;
    pthread_t thread;
    signal(SIGPIPE, SIG_IGN);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(s->listening, (struct sockaddr *)&a, sizeof a) || listen(s->listening, 50) ||
        getsockname(s->listening, (struct sockaddr *)&a, &n))
        return -1;
    s->port = ntohs(a.sin_port);
    return pthread_create(&thread, NULL, web_serve, s) || pthread_detach(thread) ? -1 : 0;
}

/* Before web_server_open: TLS with a certificate for 127.0.0.1 that only clients with ca_file
 * accept. Writes ca_file. 0, or -1. */
static inline int web_server_certify(struct web_server *s, const char *ca_file)
{
    struct bytes cert = { .limit = 1 << 16 }, key = { .limit = 1 << 16 };
    BIO *c, *k;
    X509 *x;
    EVP_PKEY *private;
    int good;
    if (certificate_make(&cert, &key, "127.0.0.1", NULL) ||
        pl_file_write(ca_file, bytes_at(&cert), strlen((const char *)bytes_at(&cert)), NULL))
        return -1;
    c = BIO_new_mem_buf(bytes_at(&cert), -1);
    k = BIO_new_mem_buf(bytes_at(&key), -1);
    x = PEM_read_bio_X509(c, NULL, NULL, NULL);
    private = PEM_read_bio_PrivateKey(k, NULL, NULL, NULL);
    s->tls = SSL_CTX_new(TLS_server_method());
    good = SSL_CTX_use_certificate(s->tls, x) == 1 && SSL_CTX_use_PrivateKey(s->tls, private) == 1;
    X509_free(x);
    EVP_PKEY_free(private);
    BIO_free(c);
    BIO_free(k);
    bytes_clear(&cert);
    bytes_clear(&key);
    return good ? 0 : -1;
}

#endif
