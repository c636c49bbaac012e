/* listen.c - where others find this peer: listening, who may come in, and our own addresses. */
#include "host_internal.h"
#include "net/libp2p/relay/relay.h"
#include "net/loop/socket.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

int multiaddr_of_socket(struct multiaddr *a, const void *sa_)
{
    const struct sockaddr *sa = sa_;
    a->length = 0;
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *four = sa_;
        multiaddr_add_ip(a, 4, (const uint8_t *)&four->sin_addr);
        return multiaddr_add_tcp(a, ntohs(four->sin_port));
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = sa_;
        multiaddr_add_ip(a, 6, (const uint8_t *)&six->sin6_addr);
        return multiaddr_add_tcp(a, ntohs(six->sin6_port));
    }
    return PL_ENOTFOUND;
}

int host_local_address(const struct host *h, const struct peer_id *id, struct multiaddr *a)
{
    const struct connection *l = connection_best(host_peer(h, id));
    struct sockaddr_storage sa;
    int length = sizeof sa;
    if (!l || !l->has_socket || uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&sa, &length))
        return PL_ENOTFOUND;
    return multiaddr_of_socket(a, &sa);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct listener *listener = server->data;
    struct host *h = listener->host;
    struct sockaddr_storage sa;
    int length = sizeof sa;
    struct connection *l;
    const char *no;
    if (status || !(l = connection_new(h, 1))) return;
    if (uv_tcp_init(loop_uv(h->loop), &l->tcp)) {
        connection_end(l, PL_ENOMEM, "no socket");
        return;
    }
    l->has_socket = 1;
    if (uv_accept(server, (uv_stream_t *)&l->tcp) ||
        uv_tcp_getpeername(&l->tcp, (struct sockaddr *)&sa, &length) ||
        multiaddr_of_socket(&l->remote, &sa))
        connection_end(l, PL_EIO, "the caller is gone");
    else if ((no = h->closing ? "closing" : budget_admit(l)))
        connection_end(l, PL_ELIMIT, "%s", no);
    else if (connection_start(l, NULL)) connection_end(l, PL_ENOMEM, "out of memory");
}

int host_listen(struct host *h, const char *text, struct pl_err *err)
{
    struct multiaddr a;
    struct multiaddr_target t;
    struct sockaddr_storage sa = { 0 };
    struct sockaddr_in *four = (struct sockaddr_in *)&sa;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&sa;
    struct listener *l;
    uv_os_fd_t fd;
    int rc = multiaddr_from_text(&a, text, err), length = sizeof sa;
    if (rc) return rc;
    if (multiaddr_target(&t, &a) || !t.family || t.relay.length || t.peer.length)
        return pl_fail(err, PL_EUSE, "listen: %.200s is not /ip4 or /ip6, then /tcp", text);
    if (!(l = calloc(1, sizeof *l))) return pl_fail(err, PL_ENOMEM, "listen: out of memory");
    if (t.family == 4) {
        four->sin_family = AF_INET;
        four->sin_port = htons(t.port);
        memcpy(&four->sin_addr, t.ip, 4);
    } else {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(t.port);
        memcpy(&six->sin6_addr, t.ip, 16);
    }
    if ((rc = uv_tcp_init(loop_uv(h->loop), &l->tcp))) {
        free(l);
        return pl_fail(err, PL_EIO, "listen: %s", uv_strerror(rc));
    }
    l->tcp.data = l;
    l->host = h;
    l->next = h->listeners;
    h->listeners = l;
    h->handles++;
    rc = uv_tcp_bind(&l->tcp, (struct sockaddr *)&sa, t.family == 6 ? UV_TCP_IPV6ONLY : 0);
    if (!rc && !uv_fileno((const uv_handle_t *)&l->tcp, &fd)) socket_begin(fd, NULL);
    if (!rc) rc = uv_listen((uv_stream_t *)&l->tcp, 512, on_connection);
    if (!rc) rc = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&sa, &length);
    if (rc) return pl_fail(err, PL_EIO, "listen: %.200s: %s", text, uv_strerror(rc));
    return multiaddr_of_socket(&l->at, &sa);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    struct host *h = l->host;
    free(l);
    host_handle_closed(h);
}

void host_listen_stop(struct host *h)
{
    for (struct listener *l = h->listeners, *next; l; l = next) {
        next = l->next;
        uv_close((uv_handle_t *)&l->tcp, on_listener_closed);
    }
    h->listeners = NULL;
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

static void add_address(void *context, const struct multiaddr *a)
{
    struct address_list *list = context;
    if (list->count < list->max) list->out[list->count] = *a;
    list->count++;
}

size_t host_own_addresses(const struct host *h, struct multiaddr *out, size_t max)
{
    struct address_list list = { out, 0, max };
    for (size_t i = 0; i < h->announce_count; i++) add_address(&list, &h->announce[i]);
    for (const struct listener *l = h->listeners; l && !h->announce_count; l = l->next)
        each_address(l, add_address, &list);
    if (list.count > max) list.count = max;
    return list.count + relay_addresses(h, out + list.count, max - list.count);
}

size_t host_addresses(const struct host *h, struct multiaddr *out, size_t max)
{
    size_t n = host_own_addresses(h, out, max);
    for (size_t i = 0; i < n; i++) multiaddr_add_peer(&out[i], &h->me->id);
    return n;
}
