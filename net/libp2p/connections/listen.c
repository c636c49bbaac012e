/* listen.c - accepts connections, and knows under which addresses.
 *
 * An accepted socket costs a file descriptor before its owner has proven anything, so it is charged
 * (budget_admit) before the handshakes begin. */
#include "listen.h"
#include "net/loop/socket.h"

#include <stdlib.h>
#include <string.h>

#define BACKLOG \
    512 /* connections that the kernel accepts for us within one iteration of the loop */

struct listener {
    uv_tcp_t tcp;
    struct listening *of;
    struct multiaddr at; /* bound, with the real port */
    struct listener *next;
    uv_tcp_t refused; /* placeholder for a connection without memory, until it is closed */
    int is_refusing, is_missing_one, is_closed;
};

static void on_connection(uv_stream_t *server, int status);

static void on_refused(uv_handle_t *handle)
{
    struct listener *listener = handle->data;
    struct host_core *core = listener->of->core;
    listener->is_refusing = 0;
    if (listener->is_closed) free(listener);
    else if (listener->is_missing_one && !uv_is_closing((uv_handle_t *)&listener->tcp)) {
        listener->is_missing_one = 0;
        on_connection((uv_stream_t *)&listener->tcp, 0);
    }
    core->handles--;
    core->handle_closed(core->host);
}

/* Without memory for a connection. libuv calls us for no other one until this one is accepted: left
 * alone it would end all listening. */
static void refuse_connection(struct listener *listener)
{
    struct host_core *core = listener->of->core;
    if (listener->is_refusing || uv_tcp_init(loop_uv(core->loop), &listener->refused)) {
        listener->is_missing_one = 1;
        return;
    }
    listener->refused.data = listener;
    listener->is_refusing = 1;
    core->handles++;
    uv_accept((uv_stream_t *)&listener->tcp, (uv_stream_t *)&listener->refused);
    uv_close((uv_handle_t *)&listener->refused, on_refused);
}

/* The peer that dials us while we dial it, as agreed. Its router may have chosen another port than
 * the one that the peer sent us, so only the IP address is compared. */
static const struct punch_expected *find_expected(const struct connections *all,
                                                  const struct multiaddr *remote)
{
    struct multiaddr_target from, t;
    if (multiaddr_target(&from, remote)) return NULL;
    for (const struct punch_expected *e = all->expected; e; e = e->next)
        for (size_t i = 0; i < e->count; i++)
            if (!multiaddr_target(&t, &e->from[i]) && t.family == from.family &&
                !memcmp(t.ip, from.ip, sizeof t.ip))
                return e;
    return NULL;
}

/* A socket that is refused is accepted first and then closed: left in the kernel's queue it would
 * come again. */
static void on_connection(uv_stream_t *server, int status)
{
    struct listener *listener = server->data;
    struct host_core *core = listener->of->core;
    struct sockaddr_storage sa;
    int length = sizeof sa;
    const struct punch_expected *expected = NULL;
    struct connection *c;
    const char *refusal;
    if (status) return;
    if (!(c = connection_new(listener->of->connections, 1))) {
        refuse_connection(listener);
        return;
    }
    if (uv_tcp_init(loop_uv(core->loop), &c->socket.tcp)) {
        connection_end(c, PL_ENOMEM, "no socket");
        return;
    }
    c->socket.state = SOCKET_IDLE;
    if (uv_accept(server, (uv_stream_t *)&c->socket.tcp) ||
        uv_tcp_getpeername(&c->socket.tcp, (struct sockaddr *)&sa, &length) ||
        multiaddr_of_socket(&c->remote, &sa))
        connection_end(c, PL_EIO, "the caller has disconnected");
    else if ((refusal = core->state == HOST_CLOSING ? "closing" : budget_admit(c)))
        connection_end(c, PL_ELIMIT, "%s", refusal);
    else {
        if ((expected = find_expected(listener->of->connections, &c->remote))) c->listens = 0;
        if (connection_start(c, expected ? &expected->peer : NULL))
            connection_end(c, PL_ENOMEM, "out of memory");
    }
}

/* Port 0 lets the system choose; the advertised address has the real port. */
int listening_add(struct listening *of, const char *text, struct pl_err *err)
{
    struct multiaddr a;
    struct multiaddr_target t;
    struct sockaddr_storage sa;
    struct listener *l;
    uv_os_fd_t fd;
    int rc = multiaddr_from_text(&a, text, err), length = sizeof sa;
    if (rc) return rc;
    if (multiaddr_target(&t, &a) || !t.family || t.relay.length || t.peer.length)
        return pl_fail(err, PL_EUSE, "listen: %.200s is not /ip4 or /ip6, then /tcp", text);
    if (!(l = calloc(1, sizeof *l))) return pl_fail(err, PL_ENOMEM, "listen: out of memory");
    socket_of_target(&sa, &t);
    if ((rc = uv_tcp_init(loop_uv(of->core->loop), &l->tcp))) {
        free(l);
        return pl_fail(err, PL_EIO, "listen: %s", uv_strerror(rc));
    }
    l->tcp.data = l;
    l->of = of;
    l->next = of->listeners;
    of->listeners = l;
    of->core->handles++;
    /* IPv6 alone: IPv4 has an address of its own, and both may be given with the same port. */
    rc = uv_tcp_bind(&l->tcp, (struct sockaddr *)&sa, t.family == 6 ? UV_TCP_IPV6ONLY : 0);
    if (!rc && !uv_fileno((const uv_handle_t *)&l->tcp, &fd)) socket_begin(fd, NULL);
    if (!rc) rc = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_connection);
    /* Only now: bound exclusively, a port that another peer uses is refused. */
    if (!rc && !uv_fileno((const uv_handle_t *)&l->tcp, &fd)) (void)socket_share_port(fd);
    if (!rc) rc = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&sa, &length);
    if (rc) return pl_fail(err, PL_EIO, "listen: %.200s: %s", text, uv_strerror(rc));
    return multiaddr_of_socket(&l->at, &sa);
}

static void on_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    struct host_core *core = l->of->core;
    if (l->is_refusing) l->is_closed = 1; /* on_refused frees it */
    else free(l);
    core->handles--;
    core->handle_closed(core->host);
}

void listening_stop(struct listening *of)
{
    for (struct listener *l = of->listeners, *next; l; l = next) {
        next = l->next;
        uv_close((uv_handle_t *)&l->tcp, on_closed);
    }
    of->listeners = NULL;
}

/* The listening address as others may use it: 0.0.0.0 stands for each of this machine's
 * addresses. */
static void each_address(const struct listener *l, void (*fn)(void *, const struct multiaddr *),
                         void *context)
{
    static const uint8_t any[16];
    struct multiaddr_target t;
    uv_interface_address_t *list;
    int count;
    if (multiaddr_target(&t, &l->at)) return;
    if (memcmp(t.ip, any, 16)) {
        fn(context, &l->at);
        return;
    }
    if (uv_interface_addresses(&list, &count)) return;
    for (int i = 0; i < count; i++) {
        struct multiaddr a = { 0 };
        const struct sockaddr_in *four = &list[i].address.address4;
        const struct sockaddr_in6 *six = &list[i].address.address6;
        if (t.family == 4 && four->sin_family == AF_INET)
            multiaddr_add_ip(&a, 4, (const uint8_t *)&four->sin_addr);
        else if (t.family == 6 && six->sin6_family == AF_INET6 && !six->sin6_scope_id)
            multiaddr_add_ip(&a, 6, (const uint8_t *)&six->sin6_addr);
        else continue;
        multiaddr_add_tcp(&a, t.port);
        fn(context, &a);
    }
    uv_free_interface_addresses(list, count);
}

struct address_list {
    struct multiaddr *out;
    size_t count, max;
};

/* Continues counting after the list is full, so the caller can detect truncation. */
static void add_address(void *context, const struct multiaddr *a)
{
    struct address_list *list = context;
    if (list->count < list->max) list->out[list->count] = *a;
    list->count++;
}

uint16_t listening_port(const struct listening *of, int family)
{
    struct multiaddr_target t;
    for (const struct listener *l = of->listeners; l; l = l->next)
        if (!multiaddr_target(&t, &l->at) && t.family == family) return t.port;
    return 0;
}

struct ip_search {
    struct multiaddr_target wanted;
    int found;
};

static void match_ip(void *context, const struct multiaddr *a)
{
    struct ip_search *s = context;
    struct multiaddr_target t;
    s->found |= !multiaddr_target(&t, a) && t.family == s->wanted.family &&
                !memcmp(t.ip, s->wanted.ip, sizeof t.ip);
}

int listening_is_translated(const struct listening *of, const struct multiaddr *seen)
{
    struct ip_search s = { .found = 0 };
    if (of->announce_count || multiaddr_target(&s.wanted, seen) || !s.wanted.family) return 0;
    for (const struct listener *l = of->listeners; l; l = l->next) each_address(l, match_ip, &s);
    return !s.found;
}

/* Behind NAT, the address of the router's side comes last: it leads to us only where the router
 * lets connections in, or when we dial at the same time. */
static void add_observed(const struct listening *of, struct address_list *list)
{
    double now = loop_now(of->core->loop);
    struct multiaddr a;
    for (int family = 4; family <= 6; family += 2) {
        int is_known = observed_address(&of->observed, family, now, &a) != PL_OK;
        for (size_t i = 0; i < list->count && i < list->max; i++)
            is_known |= multiaddr_equal(&list->out[i], &a);
        if (!is_known) add_address(list, &a);
    }
}

size_t listening_addresses(const struct listening *of, struct multiaddr *out, size_t max)
{
    struct address_list list = { out, 0, max };
    for (size_t i = 0; i < of->announce_count; i++) add_address(&list, &of->announce[i]);
    for (const struct listener *l = of->listeners; l && !of->announce_count; l = l->next)
        each_address(l, add_address, &list);
    if (of->mapped.length && !of->announce_count) add_address(&list, &of->mapped);
    if (of->listeners && !of->announce_count) add_observed(of, &list);
    return list.count < max ? list.count : max;
}
