/* client_options.h - options of the client, and its subject: a file and its parts. */
#ifndef PL_HTTP_CLIENT_OPTIONS_H
#define PL_HTTP_CLIENT_OPTIONS_H

#include "credential.h"
#include "ref/base.h"

#define HTTP_CLIENT_CONNECTIONS_MAX 16
#define HTTP_CREDENTIALS_MAX 2 /* a server's token and a hub's */
#define HTTP_URL_MAX 4096
#define HTTP_TAG_MAX 200

struct http_client_options {
    int connections; /* to one server at once: 4 */
    int tries;       /* of a part, in a row that bring nothing, before giving up: 12, which is five
                       * minutes; at most 6, a quarter of a minute, until a first byte has come */
    /* Pause before the second try, doubled each time up to a minute, or a busy server's
     * Retry-After; 0.5. */
    double wait_s;
    /* A connection without data for this long is given up, or sooner if the server's responses are
     * fast; 20. */
    int stall_s;
    /* "Authorization: Bearer": each request and each redirect asks http_token_for. Borrowed. */
    struct http_credential credential[HTTP_CREDENTIALS_MAX];
    const char *ca_file; /* certificates of the authorities to believe; NULL: the system's */
    /* Not 0: give up waiting and trying, PL_EAGAIN. NULL: never asked. */
    int (*stopped)(void *context);
    void *context;
};

/* From a file's first response; later ones must agree. */
struct http_file {
    char url[HTTP_URL_MAX];
    uint64_t size;
    char tag[HTTP_TAG_MAX]; /* ETag as received; "" without one */
};

/* A part of a file: bytes [at, at + bytes). */
struct http_part {
    uint64_t at;
    size_t bytes;
    uint8_t *data; /* space for `bytes` bytes */
    size_t got;    /* of them, so far; `bytes` when all is well */
};

#endif
