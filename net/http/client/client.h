/* client.h - parts of files over HTTP(S), through libcurl: several at once, each tried again by
 * itself: at once where a connection broke and had brought something, after a pause that doubles
 * where nothing came. Nothing of a server's answer is believed unchecked. */
#ifndef PL_HTTP_CLIENT_H
#define PL_HTTP_CLIENT_H

#include "client_options.h"

struct http_client_options http_client_options(void);

/* Used by one thread at a time. */
struct http_client;
int http_client_open(struct http_client **c, const struct http_client_options *options,
                     struct pl_err *err);
void http_client_close(struct http_client *c);

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
