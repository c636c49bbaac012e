/* responses.h - responses of our web servers as libmicrohttpd sends them. */
#ifndef PL_HTTP_RESPONSES_H
#define PL_HTTP_RESPONSES_H

#include "net/http/libraries.h"

#include <stddef.h>

/* PL_OK or PL_ENOMEM. */
int response_add_headers(struct MHD_Response *r, const char *type);
/* A copy of data. NULL: no memory. The caller releases it with MHD_destroy_response. */
struct MHD_Response *response_of(const char *type, const void *data, size_t n);
/* The same, compressed by gzip; NULL: that would not be shorter. */
struct MHD_Response *response_packed(const char *type, const void *data, size_t n);
struct MHD_Response *response_text(const char *text);
/* 1: the request's Accept-Encoding has gzip. */
int response_takes_gzip(struct MHD_Connection *connection);

#endif
