/* dial.c - from an address to a connection, and from a peer ID to one.
 *
 *                 addresses left          none left            found some
 *   seek: DIALLING <------------- step -----------------> ASKING -------------> step
 *            |  a link is open: all who wait are told       |  nothing: all fail
 *
 * Up to DIALS_AT_ONCE addresses of a peer are tried together, direct ones before relayed ones. An
 * address that failed is left alone for a while (peers.h), unless a user names it. */
#include "host_inside.h"
#include "kad.h"
#include "relay.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

/* One address on its way to a link: resolved, connected, then the link's handshakes. */
struct dial {
    struct host *host;
    struct multiaddr at;
    struct multiaddr_target target;
    struct peer_id expected; /* length 0: anybody */
    struct seek *seek;       /* whose it is, or */
    struct host_wait *wait;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    struct sockaddr_storage ips[DIAL_IPS_MAX];
    int ip_count, ip_next;
    int resolving, connecting; /* libuv holds us */
    struct link *link;
    struct relay_dial *relay;
    struct timer timer;
    int over;                  /* the owner is gone or told: freed when libuv lets go */
    struct dial *next, *prev;  /* the seek's */
};

/* --- one address ------------------------------------------------------------------------------ */

static void finish_wait(struct host_wait *w, int status, const struct peer_id *peer,
                        const struct pl_err *err);
static void seek_dial_over(struct seek *s, struct dial *d, int status, const char *why);
static void try_next_ip(struct dial *d);

static void free_if_idle(struct dial *d)
{
    if (d->over && !d->resolving && !d->connecting && !d->link) free(d);
}

/* No more interest in it: whatever is under way is dropped. */
static void abandon(struct dial *d)
{
    d->over = 1;
    d->seek = NULL;
    d->wait = NULL;
    timer_stop(&d->timer);
    if (d->relay) relay_dial_cancel(d->relay);
    d->relay = NULL;
    if (d->resolving) uv_cancel((uv_req_t *)&d->resolve);
    if (d->link) link_end(d->link, PL_EIO, "no longer wanted");
    free_if_idle(d);
}

static void dial_over(struct dial *d, int status, const struct peer_id *peer, const char *why)
{
    struct seek *s = d->seek;
    struct host_wait *w = d->wait;
    struct pl_err err;
    if (d->over) {
        free_if_idle(d);
        return;
    }
    pl_fail(&err, status, "%s", why);
    if (s) seek_dial_over(s, d, status, why);
    if (w) w->dial = NULL;
    d->wait = NULL;
    abandon(d);
    if (w) finish_wait(w, status, peer, &err);
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
    struct link *l = d->link;
    d->connecting = 0;
    if (!l || l->ending) { /* its end has told, or will */
        free_if_idle(d);
        return;
    }
    if (!status && link_start(l, d->expected.length ? &d->expected : NULL)) status = UV_ENOMEM;
    if (status) link_end(l, PL_EIO, "%s", uv_strerror(status));
}

static void try_next_ip(struct dial *d)
{
    const struct sockaddr *sa = (const struct sockaddr *)&d->ips[d->ip_next++];
    struct link *l;
    int rc;
    if (d->host->link_count >= HOST_LINKS_MAX) {
        failed(d, PL_ELIMIT, "too many connections are open");
        return;
    }
    if (!(l = link_new(d->host, 0))) {
        failed(d, PL_ENOMEM, "out of memory");
        return;
    }
    d->link = l;
    l->dial = d;
    multiaddr_of_socket(&l->remote, sa);
    rc = uv_tcp_init(loop_uv(d->host->loop), &l->tcp);
    if (!rc) {
        l->has_socket = 1;
        d->connect.data = d;
        rc = uv_tcp_connect(&d->connect, &l->tcp, sa, on_tcp);
        d->connecting = !rc;
    }
    if (rc) link_end(l, PL_EIO, "%s", uv_strerror(rc));
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

static void on_relayed(void *context, struct link *l, int status, const char *why)
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
                      : d->target.name_family == 6 ? AF_INET6 : AF_UNSPEC;
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

/* It reports to its owner later, never from in here. */
static struct dial *dial_new(struct host *h, const struct multiaddr *a,
                             const struct peer_id *expected)
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

/* --- waiting ---------------------------------------------------------------------------------- */

static struct host_wait **wait_list(struct host_wait *w)
{
    return w->seek ? &w->seek->waits : &w->host->dialling;
}

static void leave(struct host_wait *w)
{
    if (w->prev) w->prev->next = w->next;
    else *wait_list(w) = w->next;
    if (w->next) w->next->prev = w->prev;
}

static void join(struct host_wait *w)
{
    struct host_wait **list = wait_list(w);
    w->prev = NULL;
    w->next = *list;
    if (*list) (*list)->prev = w;
    *list = w;
}

static void free_wait(struct host_wait *w)
{
    leave(w);
    timer_stop(&w->timer);
    free(w);
}

static void finish_wait(struct host_wait *w, int status, const struct peer_id *peer,
                        const struct pl_err *err)
{
    host_done *done = w->done;
    void *context = w->context;
    struct peer_id id = peer ? *peer : w->peer;
    free_wait(w);
    done(context, status, &id, err);
}

void host_wait_cancel(struct host_wait *w)
{
    if (!w) return;
    if (w->dial) abandon(w->dial);
    free_wait(w); /* a search goes on: somebody else may soon ask again */
}

static void on_wait_late(void *context)
{
    struct host_wait *w = context;
    struct dial *d = w->dial;
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    peer_id_text(peer, &w->peer);
    pl_fail(&err, PL_EAGAIN, "%s: %s%s%s", w->peer.length ? peer : "dialled peer",
            d && d->link && !d->connecting ? "connected, but it says nothing" : "no connection in time",
            w->seek && w->seek->why.text[0] ? "; " : "",
            w->seek ? w->seek->why.text : "");
    if (d) abandon(d);
    finish_wait(w, PL_EAGAIN, NULL, &err);
}

/* What is known already is told a moment later, never from inside a caller's function. */
static void on_settled(void *context)
{
    struct host_wait *w = context;
    struct pl_err why = w->why;
    finish_wait(w, w->status, NULL, &why);
}

static struct host_wait *new_wait(struct host *h, const struct peer_id *peer, struct seek *s,
                                  host_done *done, void *context)
{
    struct host_wait *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->host = h;
    if (peer) w->peer = *peer;
    w->seek = s;
    w->done = done;
    w->context = context;
    join(w);
    return w;
}

struct host_wait *host_dial(struct host *h, const struct multiaddr *a, double timeout_s,
                            host_done *done, void *context)
{
    struct host_wait *w = new_wait(h, NULL, NULL, done, context);
    struct multiaddr_target t;
    if (!w) return NULL;
    if (!multiaddr_target(&t, a)) w->peer = t.peer;
    if (!(w->dial = dial_new(h, a, NULL)) ||
        timer_start(h->loop, &w->timer, timeout_s, on_wait_late, w)) {
        host_wait_cancel(w);
        return NULL;
    }
    w->dial->wait = w;
    return w;
}

/* --- searching -------------------------------------------------------------------------------- */

static void free_seek(struct seek *s)
{
    s->peer->seek = NULL;
    timer_stop(&s->timer);
    if (s->query) kad_cancel(s->query);
    while (s->dials) {
        struct dial *d = s->dials;
        s->dials = d->next;
        abandon(d);
    }
    free(s);
}

/* Out of the search; told a moment later. */
static void settle_wait(struct host_wait *w, int status)
{
    const struct seek *s = w->seek;
    char peer[PEER_ID_TEXT_MAX];
    leave(w);
    w->status = status;
    w->why = s->why;
    if (status && !s->why.text[0]) {
        peer_id_text(peer, &s->peer->id);
        pl_fail(&w->why, status, "%s: no address of it is known", peer);
    }
    w->seek = NULL;
    join(w);
    timer_start(s->host->loop, &w->timer, 0, on_settled, w);
}

static void seek_over(struct seek *s, int status)
{
    while (s->waits) settle_wait(s->waits, status);
    free_seek(s);
}

/* The known addresses are used up. Whoever looks for another peer must not wait for what others say
 * about this one: two such searches would wait for each other. */
static void settle_hasty(struct seek *s)
{
    for (struct host_wait *w = s->waits, *next; w; w = next) {
        next = w->next;
        if (!w->may_ask) settle_wait(w, PL_EIO);
    }
}

static int was_tried(const struct seek *s, const struct multiaddr *a)
{
    for (size_t i = 0; i < s->tried_count; i++)
        if (multiaddr_equal(&s->tried[i], a)) return 1;
    return 0;
}

static int is_relayed(const struct multiaddr *a)
{
    struct multiaddr_target t;
    return multiaddr_target(&t, a) || t.relay.length > 0;
}

/* The next address worth dialling: direct before relayed, and not one that just failed. */
static const struct address *next_address(const struct seek *s, double now)
{
    const struct address *relayed = NULL;
    for (size_t i = 0; i < s->peer->address_count; i++) {
        const struct address *a = &s->peer->addresses[i];
        if (a->retry_at > now || a->expires < now || was_tried(s, &a->at)) continue;
        if (!is_relayed(&a->at)) return a;
        if (!relayed) relayed = a;
    }
    return relayed && !s->dial_count ? relayed : NULL;
}

static void step(void *context);

static void step_soon(struct seek *s)
{
    timer_start(s->host->loop, &s->timer, 0, step, s);
}

static void on_found(void *context, int status, const char *why)
{
    struct seek *s = context;
    s->query = NULL;
    if (status && !s->why.text[0]) pl_fail(&s->why, status, "%s", why);
    step_soon(s);
}

static void seek_dial_over(struct seek *s, struct dial *d, int status, const char *why)
{
    if (d->prev) d->prev->next = d->next;
    else s->dials = d->next;
    if (d->next) d->next->prev = d->prev;
    s->dial_count--;
    if (status) {
        pl_fail(&s->why, status, "%s", why);
        peer_address_failed(s->peer, &d->at, loop_now(s->host->loop));
    } else {
        peer_address_worked(s->peer, &d->at);
    }
    step_soon(s);
}

static void step(void *context)
{
    struct seek *s = context;
    struct host *h = s->host;
    const struct address *a;
    if (link_best(s->peer)) {
        seek_over(s, PL_OK);
        return;
    }
    if (peer_id_equal(&s->peer->id, &h->me->id)) {
        pl_fail(&s->why, PL_EUSE, "that is ourselves");
        seek_over(s, PL_EUSE);
        return;
    }
    while (s->dial_count < DIALS_AT_ONCE && s->tried_count < PL_COUNT(s->tried) &&
           (a = next_address(s, loop_now(h->loop)))) {
        struct multiaddr at = a->at;
        struct dial *d = dial_new(h, &at, &s->peer->id);
        s->tried[s->tried_count++] = at;
        if (!d) continue;
        d->seek = s;
        d->next = s->dials;
        if (s->dials) s->dials->prev = d;
        s->dials = d;
        s->dial_count++;
    }
    if (s->dial_count) return;
    settle_hasty(s);
    if (s->query) return;
    if (!s->asked && s->waits && h->kad) {
        s->asked = 1;
        if ((s->query = kad_find(h, &s->peer->id, SEEK_FIND_LIMIT, on_found, s))) return;
    }
    seek_over(s, PL_EIO);
}

/* A link to the peer is open, or an address of it was heard of, whoever looked for it: two searches
 * that ask each other's peers learn from each other's answers. */
void seek_news(const struct peer *p)
{
    if (p->seek) step_soon(p->seek);
}

struct host_wait *connect_how(struct host *h, const struct peer_id *id, double timeout_s,
                              int may_ask, host_done *done, void *context)
{
    struct peer *p = peers_get(&h->peers, id, loop_now(h->loop));
    struct host_wait *w;
    struct seek *s;
    if (!p || h->closing) return NULL;
    if (link_best(p)) {
        if ((w = new_wait(h, id, NULL, done, context)))
            timer_start(h->loop, &w->timer, 0, on_settled, w);
        return w;
    }
    if (!(s = p->seek)) {
        if (!(s = calloc(1, sizeof *s))) return NULL;
        s->host = h;
        s->peer = p;
        s->began = loop_now(h->loop);
        p->seek = s;
        step_soon(s);
    }
    if (!(w = new_wait(h, id, s, done, context))) return NULL;
    w->may_ask = may_ask;
    timer_start(h->loop, &w->timer, timeout_s, on_wait_late, w);
    if (!may_ask) step_soon(s); /* it may be beyond the known addresses already */
    return w;
}

struct host_wait *host_connect(struct host *h, const struct peer_id *id, double timeout_s,
                               host_done *done, void *context)
{
    return connect_how(h, id, timeout_s, 1, done, context);
}

static void close_seek(void *context, struct peer *p)
{
    (void)context;
    if (!p->seek) return;
    pl_fail(&p->seek->why, PL_EIO, "this peer is closing");
    seek_over(p->seek, PL_EIO);
}

void dial_close_all(struct host *h)
{
    struct host_wait *w;
    struct pl_err err;
    pl_fail(&err, PL_EIO, "this peer is closing");
    peers_each(&h->peers, close_seek, NULL);
    while ((w = h->dialling)) {
        if (w->dial) abandon(w->dial);
        w->dial = NULL;
        finish_wait(w, PL_EIO, NULL, &err);
    }
}
