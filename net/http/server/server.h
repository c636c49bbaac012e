/* server.h - a web server for published data only: every response is made beforehand, so a request
 * costs no computation and can reach nothing else. Behind it: libmicrohttpd.
 *
 * GET and HEAD of a published path, and one stream of server-sent events; everything else is
 * refused, and so is every request that names another host than this one (host_name.h). It runs
 * on a thread of its own; the functions below may be called from any. */
#ifndef PL_HTTP_SERVER_H
#define PL_HTTP_SERVER_H

#include "ref/base.h"

/* A thousand watchers at once, and as many short requests. slots.h decides which is closed when
 * there are more. */
#define HTTP_CONNECTIONS_MAX 2200
#define HTTP_WATCHERS_MAX 1500
#define HTTP_CONNECTION_BYTES 8192 /* headers of a request, and buffers of its answer */
#define HTTP_IDLE_S 20
#define HTTP_PATHS_MAX 64
#define HTTP_PATH_MAX 64 /* characters */

struct http_server;

/* address: an IPv4 or IPv6 address, NULL: 127.0.0.1. port 0: any free one. */
int http_server_open(struct http_server **s, const char *address, int port, struct pl_err *err);
/* Call before the first request: accepts one more host name besides localhost, `address` and the
 * local address of the connection. */
int http_server_host(struct http_server *s, const char *name, struct pl_err *err);
void http_server_close(struct http_server *s);
int http_server_port(const struct http_server *s);

/* Publishes a copy of `data` under "/path", replacing an earlier one. "/" is a path, too.
 * PL_ELIMIT: more paths than HTTP_PATHS_MAX. */
int http_server_put(struct http_server *s, const char *path, const char *type, const void *data,
                    size_t n);

/* The same with a file on disk, as it is at the time of the request; `name`: the file name of a
 * download; NULL: to be shown, not saved. PL_EIO with a sentence when it cannot be opened. */
int http_server_file(struct http_server *s, const char *path, const char *type, const char *file,
                     const char *name, struct pl_err *err);
/* Takes a path back; nothing happens if it is not there. */
void http_server_remove(struct http_server *s, const char *path);

/* Where the events are; nothing is there before this call. */
int http_server_events(struct http_server *s, const char *path);
/* Sends "event: NAME" with one line of data (no line break in it) to every watcher. A watcher
 * that still receives an older event misses those in between; a new watcher gets the latest at
 * once. */
int http_server_push(struct http_server *s, const char *event, const char *data, size_t n);
size_t http_server_watchers(struct http_server *s);

#endif
