/* client.h - parts of files over HTTP(S), through libcurl: several at once, each tried again by
 * itself: at once where a connection broke and had brought something, after a pause that doubles
 * where nothing came. Nothing of a server's answer is believed unchecked. */
#ifndef PL_HTTP_CLIENT_H
#define PL_HTTP_CLIENT_H

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
    double wait_s;   /* before the second try; doubles each time, up to a minute, or what a busy
                       * server's Retry-After says: 0.5 */
    int stall_s;     /* a connection that brings nothing for so long is given up, or sooner where
                       * answers come quickly: 20 */
    /* "Authorization: Bearer": each request and each redirect asks http_token_for. Borrowed. */
    struct http_credential credential[HTTP_CREDENTIALS_MAX];
    const char *ca_file; /* certificates of the authorities to believe; NULL: the system's */
    /* Not 0: give up waiting and trying, PL_EAGAIN. NULL: never asked. */
    int (*stopped)(void *context);
    void *context;
};
struct http_client_options http_client_options(void);

/* Used by one thread at a time. */
struct http_client;
int http_client_open(struct http_client **c, const struct http_client_options *options,
                     struct pl_err *err);
void http_client_close(struct http_client *c);

/* What a file's first answer says; later ones must agree. */
struct http_file {
    char url[HTTP_URL_MAX];
    uint64_t size;
    char tag[HTTP_TAG_MAX]; /* ETag, as it came; "" if there is none */
};

/* A part of a file: bytes [at, at + bytes). */
struct http_part {
    uint64_t at;
    size_t bytes;
    uint8_t *data; /* space for `bytes` bytes */
    size_t got;    /* of them, so far; `bytes` when all is well */
};

/* Asks for the first `capacity` bytes and by that for the size. data receives them, *got how
 * many there are. PL_EIO, PL_EFORMAT or PL_ELIMIT with a sentence that names the URL. */
int http_client_begin(struct http_client *c, struct http_file *file, uint8_t *data, size_t *got,
                      size_t capacity, const char *url, struct pl_err *err);
/* All parts, side by side; they lie inside the file. After an error some may be complete: see
 * got. */
int http_client_parts(struct http_client *c, const struct http_file *file, struct http_part *parts,
                      int count, struct pl_err *err);
/* A small whole file, of at most `limit` bytes: lists. *data gets a zero behind its end; free(). */
int http_client_get(struct http_client *c, void **data, size_t *bytes, size_t limit,
                    const char *url, struct pl_err *err);

#endif
