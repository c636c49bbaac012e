/* peer_routing.c - one search for each peer, shared by all callers that wait for a connection to
 * it.
 *
 *               known addresses used up           router has answered
 *   DIALING --------------------------> ASKING ----------------------> ASKED
 *      ^                                   |                              |
 *      +-------- dials hang for ASK_AGAIN -|------------------------------+
 *      |                                   |                              |
 *      +--- connected: all calls succeed -------- none left: all fail ---+
 *
 * Up to DIALS_AT_ONCE addresses are dialed together, direct ones before relayed ones. Behind a
 * router that drops our packets nothing answers, so after HEAD_START the relayed addresses are
 * tried as well, and other peers are asked, again and again while dials hang. An address that
 * failed is not dialed again for a while (peerstore.h), unless a user names it. */
#include "peer_routing.h"
#include "net/list.h"

#include <stdlib.h>

#define DIALS_AT_ONCE 4 /* of one peer; honest peers announce two or three addresses */
#define HEAD_START 1.0  /* s that direct addresses have before relayed ones: several round trips */
#define FIND_LIMIT 30.0 /* s for asking other peers: three rounds of ten seconds */
/* s between two questions while dials hang: a peer that has just come finds a relay, and announces
 * it, a moment after its own addresses */
#define ASK_AGAIN 2.0

enum search_state { SEARCH_DIALING, SEARCH_ASKING, SEARCH_ASKED };

struct host_wait {
    struct routing *of;
    struct peer_id peer;        /* length 0: any that answers */
    struct peer_search *search; /* waits for a search ... */
    enum routing_effort effort;
    struct dial *dial; /* ... or for one address */
    struct timer timer;
    host_done *done;
    void *context;
    int status; /* to be reported when the timer fires */
    struct pl_err why;
    struct host_wait *next, *prev;
};

struct peer_search {
    struct routing *of;
    enum search_state state;
    struct peer *peer;
    struct host_wait *waits;
    struct dial *dials[DIALS_AT_ONCE + 1]; /* one more once they are slow: a relayed one */
    size_t dial_count;
    struct router_query *query; /* while ASKING */
    double began;
    struct pl_err why;  /* the last thing that went wrong */
    struct timer timer; /* the next step, never from inside a caller's function */
    struct multiaddr tried[PEER_ADDRESSES_MAX * 2];
    size_t tried_count;
};

static struct loop *loop_of(const struct routing *r) { return r->core->loop; }

/* --- waiting ---------------------------------------------------------------------------------- */

static struct host_wait **wait_list(struct host_wait *w)
{
    return w->search ? &w->search->waits : &w->of->waits;
}

static void leave(struct host_wait *w) { list_remove(wait_list(w), w); }

/* Doubly linked: any of thousands of waits may be canceled at any moment. */
static void join(struct host_wait *w) { list_add(wait_list(w), w); }

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
    if (w->dial) dial_abandon(w->dial);
    free_wait(w); /* the search continues: another caller may soon need it */
}

static void on_wait_late(void *context)
{
    struct host_wait *w = context;
    const struct peer_search *s = w->search;
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    peer_id_text(peer, &w->peer);
    pl_fail(&err, PL_EAGAIN, "%s: %s%s%s", w->peer.length ? peer : "dialed peer",
            w->dial && dial_in_handshake(w->dial) ? "connected, but it says nothing"
                                                  : "no connection in time",
            s && s->why.text[0] ? "; " : "", s ? s->why.text : "");
    if (w->dial) dial_abandon(w->dial);
    finish_wait(w, PL_EAGAIN, NULL, &err);
}

/* An outcome that is known already is reported from the loop, never from inside the caller's
 * function. */
static void on_outcome(void *context)
{
    struct host_wait *w = context;
    struct pl_err why = w->why;
    finish_wait(w, w->status, NULL, &why);
}

static struct host_wait *new_wait(struct routing *r, const struct peer_id *peer,
                                  struct peer_search *s, host_done *done, void *context)
{
    struct host_wait *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->of = r;
    if (peer) w->peer = *peer;
    w->search = s;
    w->done = done;
    w->context = context;
    join(w);
    return w;
}

static void on_address_dialed(void *context, struct dial *d, int status, const struct peer_id *peer,
                              const char *why)
{
    struct host_wait *w = context;
    struct pl_err err;
    w->dial = NULL;
    pl_fail(&err, status, "%s", why);
    finish_wait(w, status, peer, &err);
}

struct host_wait *routing_dial(struct routing *r, const struct multiaddr *a, double timeout_s,
                               enum dial_port port, host_done *done, void *context)
{
    struct host_wait *w = new_wait(r, NULL, NULL, done, context);
    struct multiaddr_target t;
    if (!w) return NULL;
    if (!multiaddr_target(&t, a)) w->peer = t.peer;
    timer_start(loop_of(r), &w->timer, timeout_s, on_wait_late, w);
    if ((w->dial = dial_new(r->dialing, a, NULL, port, on_address_dialed, w))) return w;
    host_wait_cancel(w);
    return NULL;
}

/* --- searching -------------------------------------------------------------------------------- */

/* 1: the addresses that are being dialed have had their head start. */
static int is_slow(const struct peer_search *s)
{
    return s->dial_count && loop_now(loop_of(s->of)) >= s->began + HEAD_START;
}

/* If a connection succeeded before slower dials ended, those dials count as failed. */
static void free_search(struct peer_search *s)
{
    int slow = is_slow(s);
    s->peer->search = NULL;
    timer_stop(&s->timer);
    if (s->query) s->of->router->cancel(s->query);
    while (s->dial_count) {
        struct dial *d = s->dials[--s->dial_count];
        if (slow) peer_address_failed(s->peer, dial_address(d), loop_now(loop_of(s->of)));
        dial_abandon(d);
    }
    free(s);
}

/* A waiting caller leaves the search; its callback is called a moment later. */
static void complete_wait(struct host_wait *w, int status)
{
    const struct peer_search *s = w->search;
    char peer[PEER_ID_TEXT_MAX];
    leave(w);
    w->status = status;
    w->why = s->why;
    if (status && !s->why.text[0]) {
        peer_id_text(peer, &s->peer->id);
        pl_fail(&w->why, status, "%s: no address of it is known", peer);
    }
    w->search = NULL;
    join(w);
    timer_start(loop_of(w->of), &w->timer, 0, on_outcome, w);
}

static void end_search(struct peer_search *s, int status)
{
    while (s->waits) complete_wait(s->waits, status);
    free_search(s);
}

/* The known addresses are used up. A query for another peer must not depend on the result of this
 * one: two queries could wait for each other. */
static void complete_known_only(struct peer_search *s)
{
    for (struct host_wait *w = s->waits, *next; w; w = next) {
        next = w->next;
        if (w->effort == ROUTING_KNOWN) complete_wait(w, PL_EIO);
    }
}

static int was_tried(const struct peer_search *s, const struct multiaddr *a)
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

/* The next address to dial: direct before relayed, and not one that just failed. */
static const struct address *next_address(const struct peer_search *s, double now)
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

static void step_soon(struct peer_search *s) { timer_start(loop_of(s->of), &s->timer, 0, step, s); }

static void on_found(void *context, int status, const char *why)
{
    struct peer_search *s = context;
    s->query = NULL;
    s->state = SEARCH_ASKED;
    if (status && !s->why.text[0]) pl_fail(&s->why, status, "%s", why);
    step_soon(s);
}

/* A failed address is left alone for a while; the next one is tried in the next step. */
static void on_dialed(void *context, struct dial *d, int status, const struct peer_id *peer,
                      const char *why)
{
    struct peer_search *s = context;
    size_t i = 0;
    while (s->dials[i] != d) i++;
    s->dials[i] = s->dials[--s->dial_count];
    if (status) {
        pl_fail(&s->why, status, "%s", why);
        peer_address_failed(s->peer, dial_address(d), loop_now(loop_of(s->of)));
    } else {
        peer_address_worked(s->peer, dial_address(d));
    }
    step_soon(s);
}

/* Several at once: of the addresses that a peer announces, some are often dead. */
static void dial_more(struct peer_search *s)
{
    double now = loop_now(loop_of(s->of));
    const struct address *a;
    while (s->dial_count < DIALS_AT_ONCE + (size_t)is_slow(s) &&
           s->tried_count < PL_COUNT(s->tried) && (a = next_address(s, now))) {
        struct dial *d = dial_new(s->of->dialing, &a->at, &s->peer->id, DIAL_LISTENING_PORT,
                                  on_dialed, s);
        s->tried[s->tried_count++] = a->at;
        if (d) s->dials[s->dial_count++] = d;
    }
}

/* Asks other peers. 1: the query is under way. */
static int ask_router(struct peer_search *s)
{
    const struct peer_router *router = s->of->router;
    if (s->state == SEARCH_DIALING && s->waits && router) {
        s->state = SEARCH_ASKING;
        s->query = router->find(s->of->core->host, &s->peer->id, FIND_LIMIT, on_found, s);
        if (!s->query) s->state = SEARCH_ASKED;
    }
    return s->state == SEARCH_ASKING;
}

/* A query's own dials ask once: of many dead peers each would ask for the others again. */
static int is_asked_for(const struct peer_search *s)
{
    for (const struct host_wait *w = s->waits; w; w = w->next)
        if (w->effort == ROUTING_ASK) return 1;
    return 0;
}

static void ask_again(void *context)
{
    struct peer_search *s = context;
    s->state = SEARCH_DIALING;
    step(s);
}

static void step(void *context)
{
    struct peer_search *s = context;
    if (connection_best(s->peer)) {
        end_search(s, PL_OK);
        return;
    }
    if (peer_id_equal(&s->peer->id, &s->of->core->me->id)) {
        pl_fail(&s->why, PL_EUSE, "that is ourselves");
        end_search(s, PL_EUSE);
        return;
    }
    dial_more(s);
    if (s->dial_count && !is_slow(s)) {
        timer_start(loop_of(s->of), &s->timer, s->began + HEAD_START - loop_now(loop_of(s->of)),
                    step, s);
        return;
    }
    if (!s->dial_count) complete_known_only(s);
    if (ask_router(s)) return;
    if (!s->dial_count) end_search(s, PL_EIO);
    else if (is_asked_for(s)) timer_start(loop_of(s->of), &s->timer, ASK_AGAIN, ask_again, s);
}

/* New addresses of a peer are known, from any query's answers: its own search tries them at
 * once. */
void routing_peer_changed(const struct peer *p)
{
    if (p->search) step_soon(p->search);
}

struct host_wait *routing_connect(struct routing *r, const struct peer_id *id, double timeout_s,
                                  enum routing_effort effort, host_done *done, void *context)
{
    struct peer *p = peers_get(&r->core->peers, id, loop_now(loop_of(r)));
    struct host_wait *w;
    struct peer_search *s;
    if (!p || r->core->state == HOST_CLOSING) return NULL;
    if (connection_best(p)) {
        if ((w = new_wait(r, id, NULL, done, context)))
            timer_start(loop_of(r), &w->timer, 0, on_outcome, w);
        return w;
    }
    if (!(s = p->search)) {
        if (!(s = calloc(1, sizeof *s))) return NULL;
        s->of = r;
        s->peer = p;
        s->began = loop_now(loop_of(r));
        p->search = s;
        step_soon(s);
    }
    if (!(w = new_wait(r, id, s, done, context))) return NULL;
    w->effort = effort;
    timer_start(loop_of(r), &w->timer, timeout_s, on_wait_late, w);
    if (effort == ROUTING_KNOWN) step_soon(s); /* it may be beyond the known addresses already */
    return w;
}

static void close_search(void *context, struct peer *p)
{
    if (!p->search) return;
    pl_fail(&p->search->why, PL_EIO, "this peer is closing");
    end_search(p->search, PL_EIO);
}

void routing_close(struct routing *r)
{
    struct host_wait *w;
    struct pl_err err;
    pl_fail(&err, PL_EIO, "this peer is closing");
    peers_each(&r->core->peers, close_search, NULL);
    while ((w = r->waits)) {
        if (w->dial) dial_abandon(w->dial);
        w->dial = NULL;
        finish_wait(w, PL_EIO, NULL, &err);
    }
}
