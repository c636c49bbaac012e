/* dial.c - from an address to a link: the name is resolved, its addresses connected one after the
 * other, or a relay asked; the link's handshakes follow. */
#include "host_internal.h"
#include "net/libp2p/relay/relay.h"
#include "net/loop/socket.h"

#include <stdlib.h>
#include <string.h>

static void try_next_ip(struct dial *d);

static void free_if_idle(struct dial *d)
{
    if (d->over && !d->resolving && !d->connecting && !d->link) free(d);
}

void dial_abandon(struct dial *d)
{
    d->over = 1;
    d->seek = NULL;
    d->wait = NULL;
    timer_stop(&d->timer);
    if (d->relay) relay_dial_cancel(d->relay);
    d->relay = NULL;
    if (d->resolving) uv_cancel((uv_req_t *)&d->resolve);
    if (d->link) connection_end(d->link, PL_EIO, "no longer wanted");
    free_if_idle(d);
}

static void dial_over(struct dial *d, int status, const struct peer_id *peer, const char *why)
{
    struct peer_routing *s = d->seek;
    struct host_wait *w = d->wait;
    struct pl_err err;
    if (d->over) {
        free_if_idle(d);
        return;
    }
    pl_fail(&err, status, "%s", why);
    if (s) peer_routing_dial_over(s, d, status, why);
    if (w) w->dial = NULL;
    d->wait = NULL;
    dial_abandon(d);
    if (w) wait_finish(w, status, peer, &err);
}

static void failed(struct dial *d, int status, const char *why)
{
    char text[MULTIADDR_TEXT_MAX];
    struct pl_err err;
    multiaddr_text(text, &d->at);
    pl_fail(&err, status, "%.300s: %s", text, why);
    dial_over(d, status, NULL, err.text);
}

void dial_link_open(struct dial *d)
{
    struct peer_id peer = d->link->peer ? d->link->peer->id : d->expected;
    d->link = NULL;
    dial_over(d, PL_OK, &peer, "");
}

void dial_link_ended(struct dial *d, int status, const char *why)
{
    d->link = NULL;
    if (!d->over && !d->connecting && d->ip_next < d->ip_count) try_next_ip(d);
    else failed(d, status, why);
}

static void on_dial_late(void *context)
{
    struct dial *d = context;
    failed(d, PL_EAGAIN, "no connection within 15 s");
}

static void on_tcp(uv_connect_t *req, int status)
{
    struct dial *d = req->data;
    struct connection *l = d->link;
    d->connecting = 0;
    if (!l || l->ending) { /* its end has told, or will */
        free_if_idle(d);
        return;
    }
    if (!status && connection_start(l, d->expected.length ? &d->expected : NULL))
        status = UV_ENOMEM;
    if (status) connection_end(l, PL_EIO, "%s", uv_strerror(status));
}

static void try_next_ip(struct dial *d)
{
    const struct sockaddr *sa = (const struct sockaddr *)&d->ips[d->ip_next++];
    struct connection *l;
    const char *no;
    int rc;
    if (!(l = connection_new(d->host, 0))) {
        failed(d, PL_ENOMEM, "out of memory");
        return;
    }
    d->link = l;
    l->dial = d;
    multiaddr_of_socket(&l->remote, sa);
    if ((no = budget_admit(l))) {
        connection_end(l, PL_ELIMIT, "%s", no);
        return;
    }
    rc = uv_tcp_init_ex(loop_uv(d->host->loop), &l->tcp, sa->sa_family);
    if (!rc) {
        uv_os_fd_t fd;
        l->has_socket = 1;
        d->connect.data = d;
        if (!uv_fileno((const uv_handle_t *)&l->tcp, &fd)) socket_begin(fd, sa);
        rc = uv_tcp_connect(&d->connect, &l->tcp, sa, on_tcp);
        d->connecting = !rc;
    }
    if (rc) connection_end(l, PL_EIO, "%s", uv_strerror(rc));
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct dial *d = req->data;
    d->resolving = 0;
    for (const struct addrinfo *a = list; a && d->ip_count < DIAL_IPS_MAX; a = a->ai_next) {
        struct sockaddr_storage *ip = &d->ips[d->ip_count];
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        memcpy(ip, a->ai_addr, a->ai_addrlen);
        if (a->ai_family == AF_INET) ((struct sockaddr_in *)ip)->sin_port = htons(d->target.port);
        else ((struct sockaddr_in6 *)ip)->sin6_port = htons(d->target.port);
        d->ip_count++;
    }
    uv_freeaddrinfo(list);
    if (d->over) free_if_idle(d);
    else if (d->ip_count) try_next_ip(d);
    else failed(d, PL_ENOTFOUND, status ? uv_strerror(status) : "the name has no address");
}

static void on_relayed(void *context, struct connection *l, int status, const char *why)
{
    struct dial *d = context;
    d->relay = NULL;
    if (status) {
        failed(d, status, why);
        return;
    }
    d->link = l;
    l->dial = d;
}

static void resolve(struct dial *d)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    hints.ai_family = d->target.name_family == 4   ? AF_INET
                      : d->target.name_family == 6 ? AF_INET6
                                                   : AF_UNSPEC;
    d->resolve.data = d;
    d->resolving = !uv_getaddrinfo(loop_uv(d->host->loop), &d->resolve, on_resolved, d->target.name,
                                   NULL, &hints);
    if (!d->resolving) failed(d, PL_ENOMEM, "out of memory");
}

static void use_ip(struct dial *d)
{
    struct sockaddr_in *four = (struct sockaddr_in *)&d->ips[0];
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&d->ips[0];
    d->ip_count = 1;
    if (d->target.family == 4) {
        four->sin_family = AF_INET;
        four->sin_port = htons(d->target.port);
        memcpy(&four->sin_addr, d->target.ip, 4);
    } else {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(d->target.port);
        memcpy(&six->sin6_addr, d->target.ip, 16);
    }
}

static void begin(void *context)
{
    struct dial *d = context;
    timer_start(d->host->loop, &d->timer, CONN_SETUP_LIMIT, on_dial_late, d);
    if (multiaddr_target(&d->target, &d->at)) {
        failed(d, PL_EUSE, "not an address that we can dial");
        return;
    }
    if (!d->expected.length) d->expected = d->target.peer;
    if (peer_id_equal(&d->expected, &d->host->me->id)) {
        failed(d, PL_EUSE, "that is ourselves");
    } else if (d->target.relay.length) {
        d->relay = relay_dial(d->host, &d->at, &d->expected, on_relayed, d);
        if (!d->relay) failed(d, PL_EUSE, "a relayed address that does not name whom to reach");
    } else if (!d->target.family) {
        resolve(d);
    } else {
        use_ip(d);
        try_next_ip(d);
    }
}

struct dial *dial_new(struct host *h, const struct multiaddr *a, const struct peer_id *expected)
{
    struct dial *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->host = h;
    d->at = *a;
    if (expected) d->expected = *expected;
    if (!timer_start(h->loop, &d->timer, 0, begin, d)) return d;
    free(d);
    return NULL;
}
