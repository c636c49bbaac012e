/* dial.c - the stations from an address to a connection.
 *
 *        name               next IP address fails
 *   NEW ------> RESOLVING      +-----------+
 *    |              |          v           |
 *    |  IP          +----> CONNECTING -> HANDSHAKES -> done
 *    +------------------------^              ^
 *    |  /p2p-circuit                         |
 *    +------------------> RELAYING ----------+
 *
 * A connection leaves from the port that we listen on, so that a router's mapping of it serves
 * both ways (enum dial_port). The same pair of addresses can have one connection only: where there
 * is one already, or one that ended a moment ago, or where both sides have dialed each other at
 * the same time and neither listens, the address is dialed once more from a free port.
 *
 * libuv holds a dial while RESOLVING or CONNECTING: one that is abandoned then is freed when libuv
 * lets go. */
#include "dial.h"
#include "net/loop/socket.h"

#include <stdlib.h>
#include <string.h>

enum dial_state { DIAL_NEW, DIAL_RESOLVING, DIAL_CONNECTING, DIAL_HANDSHAKES, DIAL_RELAYING };

struct dial {
    struct dialing *of;
    enum dial_state state;
    int abandoned; /* the owner is gone, or has had the result */
    struct multiaddr at;
    struct multiaddr_target target;
    enum dial_port port;                 /* FREE also once the listening port could not be used */
    int is_invited, listens, keeps_port; /* see dial_invited */
    int is_port_taken;                   /* this attempt failed because of it */
    struct peer_id expected;             /* length 0: any peer */
    dial_done *done;
    void *context;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    struct sockaddr_storage ips[DIAL_IPS_MAX];
    int ip_count, ip_next;
    struct connection *connection;
    struct circuit_dial *circuit; /* while RELAYING */
    struct timer timer;
};

static struct loop *loop_of(const struct dial *d) { return d->of->core->loop; }

const struct multiaddr *dial_address(const struct dial *d) { return &d->at; }

void dial_invited(struct dial *d, int listens, int keeps_port)
{
    d->is_invited = 1;
    d->listens = listens;
    d->keeps_port = keeps_port;
}

int dial_in_handshake(const struct dial *d) { return d->connection && d->state != DIAL_CONNECTING; }

/* --- ends ------------------------------------------------------------------------------------- */

static void free_if_idle(struct dial *d)
{
    if (d->abandoned && d->state != DIAL_RESOLVING && d->state != DIAL_CONNECTING && !d->connection)
        free(d);
}

void dial_abandon(struct dial *d)
{
    d->abandoned = 1;
    timer_stop(&d->timer);
    if (d->circuit) d->of->circuits->cancel(d->circuit);
    d->circuit = NULL;
    if (d->state == DIAL_RESOLVING) uv_cancel((uv_req_t *)&d->resolve);
    if (d->connection) connection_end(d->connection, PL_EIO, "no longer wanted");
    free_if_idle(d);
}

void dial_release(struct dial *d)
{
    if (dial_in_handshake(d)) {
        d->connection->dialer = NULL;
        d->connection = NULL;
    }
    dial_abandon(d);
}

static void finish(struct dial *d, int status, const struct peer_id *peer, const char *why)
{
    dial_done *done = d->done;
    void *context = d->context;
    struct pl_err copy;
    if (d->abandoned) {
        free_if_idle(d);
        return;
    }
    pl_fail(&copy, status, "%s", why);
    /* The owner is notified before this is freed: it finds it in its list by its address. */
    done(context, d, status, peer, copy.text);
    dial_abandon(d);
}

static void fail(struct dial *d, int status, const char *why)
{
    char text[MULTIADDR_TEXT_MAX];
    struct pl_err err;
    multiaddr_text(text, &d->at);
    pl_fail(&err, status, "%.300s: %s", text, why);
    finish(d, status, NULL, err.text);
}

/* The daemon's limit, too; a name, four addresses and a handshake share it. */
static void on_late(void *context) { fail(context, PL_EAGAIN, "no connection within 15 s"); }

/* --- TCP -------------------------------------------------------------------------------------- */

static void try_next_ip(struct dial *d);

static void on_opened(void *context, struct connection *c)
{
    struct dial *d = context;
    struct peer_id peer = c->peer ? c->peer->id : d->expected;
    d->connection = NULL;
    finish(d, PL_OK, &peer, "");
}

static void on_ended(void *context, int status, const char *why)
{
    struct dial *d = context;
    int again = d->port == DIAL_LISTENING_PORT && !d->keeps_port &&
                (d->is_port_taken || d->connection->conn.both_dialed);
    d->connection = NULL;
    if (again && !d->abandoned) {
        d->port = DIAL_FREE_PORT;
        d->ip_next--;
        try_next_ip(d);
        return;
    }
    if (!d->abandoned && d->state != DIAL_CONNECTING && d->ip_next < d->ip_count) try_next_ip(d);
    else fail(d, status, why);
}

/* The connection tells the dial when its handshakes are done, or that it has ended. */
static void own(struct dial *d, struct connection *c)
{
    static const struct connection_dialer calls = { on_opened, on_ended };
    d->connection = c;
    c->dialer = &calls;
    c->dialer_context = d;
}

static void on_tcp(uv_connect_t *req, int status)
{
    struct dial *d = req->data;
    struct connection *c = d->connection;
    d->state = DIAL_HANDSHAKES;
    if (!c || c->state == CONNECTION_ENDING) { /* on_ended has reported it, or will */
        free_if_idle(d);
        return;
    }
    if (!status && connection_start(c, d->expected.length ? &d->expected : NULL))
        status = UV_ENOMEM;
    d->is_port_taken = status == UV_EADDRINUSE || status == UV_EADDRNOTAVAIL;
    if (status) connection_end(c, PL_EIO, "%s", uv_strerror(status));
}

/* Binds to the port that we listen on, at the address that the way out will have. Where it
 * cannot be shared the system chooses a port. */
static void share_port(struct dial *d, struct connection *c, int family)
{
    struct multiaddr_target any = { .family = family == AF_INET ? 4 : 6 };
    struct sockaddr_storage sa;
    uv_os_fd_t fd;
    any.port = listening_port(d->of->listening, any.family);
    if (!any.port || d->port != DIAL_LISTENING_PORT ||
        uv_fileno((const uv_handle_t *)&c->socket.tcp, &fd) || socket_share_port(fd))
        return;
    socket_of_target(&sa, &any);
    c->shares_port = !uv_tcp_bind(&c->socket.tcp, (struct sockaddr *)&sa,
                                  any.family == 6 ? UV_TCP_IPV6ONLY : 0);
}

static void try_next_ip(struct dial *d)
{
    const struct sockaddr *sa = (const struct sockaddr *)&d->ips[d->ip_next++];
    struct connection *c = connection_new(d->of->connections, d->is_invited);
    const char *refusal;
    uv_os_fd_t fd;
    int rc;
    d->state = DIAL_HANDSHAKES; /* until libuv connects */
    if (!c) {
        fail(d, PL_ENOMEM, "out of memory");
        return;
    }
    own(d, c);
    c->listens = d->listens;
    multiaddr_of_socket(&c->remote, sa);
    if ((refusal = budget_admit(c))) {
        connection_end(c, PL_ELIMIT, "%s", refusal);
        return;
    }
    rc = uv_tcp_init_ex(loop_uv(loop_of(d)), &c->socket.tcp, sa->sa_family);
    if (!rc) {
        c->socket.state = SOCKET_IDLE;
        d->connect.data = d;
        if (!uv_fileno((const uv_handle_t *)&c->socket.tcp, &fd)) socket_begin(fd, sa);
        share_port(d, c, sa->sa_family);
        rc = uv_tcp_connect(&d->connect, &c->socket.tcp, sa, on_tcp);
        if (!rc) d->state = DIAL_CONNECTING;
        d->is_port_taken = rc == UV_EADDRINUSE || rc == UV_EADDRNOTAVAIL;
    }
    if (rc) connection_end(c, PL_EIO, "%s", uv_strerror(rc));
}

static void use_ip(struct dial *d)
{
    socket_of_target(&d->ips[0], &d->target);
    d->ip_count = 1;
    try_next_ip(d);
}

/* --- names ------------------------------------------------------------------------------------ */

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct dial *d = req->data;
    d->state = DIAL_HANDSHAKES;
    for (const struct addrinfo *a = list; a && d->ip_count < DIAL_IPS_MAX; a = a->ai_next) {
        struct sockaddr_storage *ip = &d->ips[d->ip_count];
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        memcpy(ip, a->ai_addr, a->ai_addrlen);
        if (a->ai_family == AF_INET) ((struct sockaddr_in *)ip)->sin_port = htons(d->target.port);
        else ((struct sockaddr_in6 *)ip)->sin6_port = htons(d->target.port);
        d->ip_count++;
    }
    uv_freeaddrinfo(list);
    if (d->abandoned) free_if_idle(d);
    else if (d->ip_count) try_next_ip(d);
    else fail(d, PL_ENOTFOUND, status ? uv_strerror(status) : "the name has no address");
}

/* On a helper thread of libuv: the system's resolver blocks. */
static void resolve(struct dial *d)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    hints.ai_family = d->target.name_family == 4   ? AF_INET
                      : d->target.name_family == 6 ? AF_INET6
                                                   : AF_UNSPEC;
    d->resolve.data = d;
    d->state = DIAL_RESOLVING;
    if (!uv_getaddrinfo(loop_uv(loop_of(d)), &d->resolve, on_resolved, d->target.name, NULL,
                        &hints))
        return;
    d->state = DIAL_NEW;
    fail(d, PL_ENOMEM, "out of memory");
}

/* --- relays ----------------------------------------------------------------------------------- */

static void on_circuit(void *context, struct connection *c, int status, const char *why)
{
    struct dial *d = context;
    d->circuit = NULL;
    d->state = DIAL_HANDSHAKES;
    if (status) fail(d, status, why);
    else own(d, c);
}

/* /ip4/RELAY/tcp/PORT/p2p/RELAY-ID/p2p-circuit/p2p/PEER-ID: the relay is asked for a stream to
 * the peer. */
static void dial_circuit(struct dial *d)
{
    const struct circuit_transport *circuits = d->of->circuits;
    d->state = DIAL_RELAYING;
    if (circuits)
        d->circuit = circuits->dial(d->of->core->host, &d->at, &d->expected, on_circuit, d);
    if (!d->circuit) fail(d, PL_EUSE, "a relayed address that does not name its peer");
}

/* --- begin ------------------------------------------------------------------------------------ */

static void begin(void *context)
{
    struct dial *d = context;
    timer_start(loop_of(d), &d->timer, CONN_SETUP_LIMIT, on_late, d);
    if (multiaddr_target(&d->target, &d->at)) {
        fail(d, PL_EUSE, "not an address that we can dial");
        return;
    }
    if (!d->expected.length) d->expected = d->target.peer;
    if (peer_id_equal(&d->expected, &d->of->core->me->id)) fail(d, PL_EUSE, "that is ourselves");
    else if (d->target.relay.length) dial_circuit(d);
    else if (!d->target.family) resolve(d);
    else use_ip(d);
}

struct dial *dial_new(struct dialing *of, const struct multiaddr *a, const struct peer_id *expected,
                      enum dial_port port, dial_done *done, void *context)
{
    struct dial *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->of = of;
    d->at = *a;
    d->port = port;
    d->done = done;
    d->context = context;
    if (expected) d->expected = *expected;
    timer_start(loop_of(d), &d->timer, 0, begin, d);
    return d;
}
