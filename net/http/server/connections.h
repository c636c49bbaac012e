/* connections.h - shared by our web servers: the listening address, and how connections share the
 * slots (slots.h). Everything but opening runs on libmicrohttpd's own thread. */
#ifndef PL_HTTP_CONNECTIONS_H
#define PL_HTTP_CONNECTIONS_H

#include "net/http/libraries.h"
#include "slots.h"

#include <sys/socket.h>

/* Seconds from the connection, or from the answer before, until a request is complete: browsers
 * take one or two, the slowest mobile network less than this. A slower one loses its
 * slot when the next connection comes. */
#define HTTP_REQUEST_S 10
/* Ended connections stay open until libmicrohttpd's next pass; it accepts this many meanwhile. */
#define HTTP_CONNECTIONS_SPARE 64

struct connections {
    struct slots slots;
};

struct connection {
    struct slot slot; /* the first member */
    struct http_address remote, local;
    int fd;
    /* During a request: called when another needs the slot; NULL: nothing to do. */
    void (*on_end)(void *context);
    void *context;
};

/* At most `most` connections, and at most as many as the process has descriptors for. */
void connections_init(struct connections *c, size_t most);
/* For MHD_OPTION_CONNECTION_LIMIT. */
unsigned connections_limit(const struct connections *c);

/* For MHD_OPTION_NOTIFY_CONNECTION; `c` is a struct connections. */
void connections_notify(void *c, struct MHD_Connection *connection, void **context,
                        enum MHD_ConnectionNotificationCode what);
/* Never NULL within a request. */
struct connection *connections_of(struct MHD_Connection *connection);
/* The request's one Host header; NULL: it has none, or several. */
const char *connections_host(struct MHD_Connection *connection);
/* A request is complete, or its answer is. */
void connections_request(struct connections *c, struct MHD_Connection *connection);
void connections_answered(struct connections *c, struct MHD_Connection *connection);

/* The address to listen at. PL_EUSE: not a valid address. */
int connections_address(struct sockaddr_storage *to, const char *address, int port,
                        struct pl_err *err);

#endif
