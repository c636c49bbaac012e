/* connections.c - which connections a web server keeps when it cannot keep all.
 *
 *   connected   take overdue slots back - add the newcomer - end whichever slot lost (slots.c)
 *   request     the connection is in use
 *   answered    it waits for its next request, with a new time limit
 *   closed      its slot is free
 *
 * libmicrohttpd owns the sockets and closes them only in its own time. So a connection is ended
 * by shutting its socket down: libmicrohttpd then reads the end of the stream, as if the client
 * had left, and closes it. Its own limit on connections is set above the slots, since ended ones
 * still count there. */
#include "connections.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

void connections_init(struct connections *c, size_t most)
{
    struct rlimit files;
    /* A quarter of the descriptors is left to the rest of the process. */
    size_t can = getrlimit(RLIMIT_NOFILE, &files) ? most : (size_t)(files.rlim_cur / 4 * 3);
    c->slots = (struct slots){ .limit = can < most ? can : most };
}

unsigned connections_limit(const struct connections *c)
{
    return (unsigned)c->slots.limit + HTTP_CONNECTIONS_SPARE;
}

static void end_connection(struct slot *slot)
{
    struct connection *connection = (struct connection *)slot;
    if (connection->on_end) connection->on_end(connection->context);
    shutdown(connection->fd, SHUT_RDWR);
}

static void start(struct connections *c, struct MHD_Connection *mhd, void **context)
{
    const union MHD_ConnectionInfo *fd = MHD.get_connection_info(mhd,
                                                                 MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *remote =
        MHD.get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct connection *connection = calloc(1, sizeof *connection);
    struct sockaddr_storage local = { 0 };
    socklen_t n = sizeof local;
    struct slot *evicted = NULL;
    double now = pl_seconds();
    *context = connection;
    if (!connection || !fd || !remote) {
        if (fd) shutdown(fd->connect_fd, SHUT_RDWR);
        return;
    }
    connection->fd = fd->connect_fd;
    /* The local address decides later which Host headers are ours (host_name.c). */
    getsockname(connection->fd, (struct sockaddr *)&local, &n);
    http_address_of(&connection->local, (struct sockaddr *)&local);
    http_address_of(&connection->remote, remote->client_addr);
    /* A client that opens connections and sends nothing loses them before any other client is
     * evicted. */
    while ((evicted = slots_take_overdue(&c->slots, now - HTTP_REQUEST_S))) end_connection(evicted);
    if (slots_add(&c->slots, &connection->slot, &evicted, &connection->remote, 1, now))
        end_connection(&connection->slot);
    else if (evicted) end_connection(evicted);
}

void connections_notify(void *c, struct MHD_Connection *mhd, void **context,
                        enum MHD_ConnectionNotificationCode what)
{
    struct connection *connection = *context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) start(c, mhd, context);
    else if (connection) {
        slots_remove(&((struct connections *)c)->slots, &connection->slot);
        free(connection);
        *context = NULL;
    }
}

struct connection *connections_of(struct MHD_Connection *mhd)
{
    return MHD.get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

struct host_header {
    const char *value;
    int count;
};

static enum MHD_Result on_header(void *context, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    struct host_header *h = context;
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST)) return MHD_YES;
    h->value = value;
    h->count++;
    return MHD_YES;
}

const char *connections_host(struct MHD_Connection *mhd)
{
    struct host_header h = { NULL, 0 };
    MHD.get_connection_values(mhd, MHD_HEADER_KIND, on_header, &h);
    /* Two Host headers: which one counts differs between readers, so none does. [RFC 9112 3.2] */
    return h.count == 1 ? h.value : NULL;
}

void connections_request(struct connections *c, struct MHD_Connection *mhd)
{
    slots_set_waiting(&c->slots, &connections_of(mhd)->slot, 0, pl_seconds());
}

void connections_answered(struct connections *c, struct MHD_Connection *mhd)
{
    connections_of(mhd)->on_end = NULL;
    slots_set_waiting(&c->slots, &connections_of(mhd)->slot, 1, pl_seconds());
}

int connections_address(struct sockaddr_storage *to, const char *address, int port,
                        struct pl_err *err)
{
    struct sockaddr_in *four = (struct sockaddr_in *)to;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
    memset(to, 0, sizeof *to);
    if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        return PL_OK;
    }
    if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        return PL_OK;
    }
    return pl_fail(err, PL_EUSE, "'%.60s' is neither an IPv4 nor an IPv6 address", address);
}
