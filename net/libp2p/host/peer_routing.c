/* peer_routing.c - from a peer ID to a link, and everybody who waits for one.
 *
 *                 addresses left          none left            found some
 *   seek: DIALLING <------------- step -----------------> ASKING -------------> step
 *            |  a link is open: all who wait are told       |  nothing: all fail
 *
 * Up to DIALS_AT_ONCE addresses of a peer are tried together, direct ones before relayed ones. One
 * that leads behind a router is answered by nobody: after HEAD_START the relayed ones, and whom to
 * ask for them, are not kept waiting for it. An address that failed is left alone for a while
 * (peers.h), unless a user names it. */
#include "host_internal.h"
#include "net/libp2p/protocols/kad.h"

#include <stdlib.h>

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

void wait_finish(struct host_wait *w, int status, const struct peer_id *peer,
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
    if (w->dial) dial_abandon(w->dial);
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
            d && d->link && !d->connecting ? "connected, but it says nothing"
                                           : "no connection in time",
            w->seek && w->seek->why.text[0] ? "; " : "", w->seek ? w->seek->why.text : "");
    if (d) dial_abandon(d);
    wait_finish(w, PL_EAGAIN, NULL, &err);
}

/* What is known already is told a moment later, never from inside a caller's function. */
static void on_settled(void *context)
{
    struct host_wait *w = context;
    struct pl_err why = w->why;
    wait_finish(w, w->status, NULL, &why);
}

static struct host_wait *new_wait(struct host *h, const struct peer_id *peer,
                                  struct peer_routing *s, host_done *done, void *context)
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

/* 1: what is being dialled has had its time alone. */
static int is_slow(const struct peer_routing *s)
{
    return s->dial_count && loop_now(s->host->loop) >= s->began + HEAD_START;
}

static void free_peer_routing(struct peer_routing *s)
{
    int slow = is_slow(s);
    s->peer->seek = NULL;
    timer_stop(&s->timer);
    if (s->query) kad_cancel(s->query);
    while (s->dials) {
        struct dial *d = s->dials;
        s->dials = d->next;
        if (slow) peer_address_failed(s->peer, &d->at, loop_now(s->host->loop));
        dial_abandon(d);
    }
    free(s);
}

/* Out of the search; told a moment later. */
static void settle_wait(struct host_wait *w, int status)
{
    const struct peer_routing *s = w->seek;
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

static void peer_routing_over(struct peer_routing *s, int status)
{
    while (s->waits) settle_wait(s->waits, status);
    free_peer_routing(s);
}

/* The known addresses are used up. Whoever looks for another peer must not wait for what others say
 * about this one: two such searches would wait for each other. */
static void settle_hasty(struct peer_routing *s)
{
    for (struct host_wait *w = s->waits, *next; w; w = next) {
        next = w->next;
        if (!w->may_ask) settle_wait(w, PL_EIO);
    }
}

static int was_tried(const struct peer_routing *s, const struct multiaddr *a)
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
static const struct address *next_address(const struct peer_routing *s, double now)
{
    const struct address *relayed = NULL;
    for (size_t i = 0; i < s->peer->address_count; i++) {
        const struct address *a = &s->peer->addresses[i];
        if (a->retry_at > now || a->expires < now || was_tried(s, &a->at)) continue;
        if (!is_relayed(&a->at)) return a;
        if (!relayed) relayed = a;
    }
    return relayed && (!s->dial_count || is_slow(s)) ? relayed : NULL;
}

static void step(void *context);

static void step_soon(struct peer_routing *s) { timer_start(s->host->loop, &s->timer, 0, step, s); }

static void on_found(void *context, int status, const char *why)
{
    struct peer_routing *s = context;
    s->query = NULL;
    if (status && !s->why.text[0]) pl_fail(&s->why, status, "%s", why);
    step_soon(s);
}

void peer_routing_dial_over(struct peer_routing *s, struct dial *d, int status, const char *why)
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
    struct peer_routing *s = context;
    struct host *h = s->host;
    const struct address *a;
    if (connection_best(s->peer)) {
        peer_routing_over(s, PL_OK);
        return;
    }
    if (peer_id_equal(&s->peer->id, &h->me->id)) {
        pl_fail(&s->why, PL_EUSE, "that is ourselves");
        peer_routing_over(s, PL_EUSE);
        return;
    }
    while (s->dial_count < DIALS_AT_ONCE + (size_t)is_slow(s) &&
           s->tried_count < PL_COUNT(s->tried) && (a = next_address(s, loop_now(h->loop)))) {
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
    if (s->dial_count && !is_slow(s)) {
        timer_start(h->loop, &s->timer, s->began + HEAD_START - loop_now(h->loop), step, s);
        return;
    }
    if (!s->dial_count) settle_hasty(s);
    if (s->query) return;
    if (!s->asked && s->waits && h->kad) {
        s->asked = 1;
        if ((s->query = kad_find(h, &s->peer->id, PEER_ROUTING_FIND_LIMIT, on_found, s))) return;
    }
    if (!s->dial_count) peer_routing_over(s, PL_EIO);
}

/* A link to the peer is open, or an address of it was heard of, whoever looked for it: two searches
 * that ask each other's peers learn from each other's answers. */
void peer_routing_news(const struct peer *p)
{
    if (p->seek) step_soon(p->seek);
}

struct host_wait *connect_how(struct host *h, const struct peer_id *id, double timeout_s,
                              int may_ask, host_done *done, void *context)
{
    struct peer *p = peers_get(&h->peers, id, loop_now(h->loop));
    struct host_wait *w;
    struct peer_routing *s;
    if (!p || h->closing) return NULL;
    if (connection_best(p)) {
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

static void close_peer_routing(void *context, struct peer *p)
{
    (void)context;
    if (!p->seek) return;
    pl_fail(&p->seek->why, PL_EIO, "this peer is closing");
    peer_routing_over(p->seek, PL_EIO);
}

void waits_close_all(struct host *h)
{
    struct host_wait *w;
    struct pl_err err;
    pl_fail(&err, PL_EIO, "this peer is closing");
    peers_each(&h->peers, close_peer_routing, NULL);
    while ((w = h->dialling)) {
        if (w->dial) dial_abandon(w->dial);
        w->dial = NULL;
        wait_finish(w, PL_EIO, NULL, &err);
    }
}
