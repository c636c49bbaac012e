/* dcutr.c - both sides of dcutr.h.
 *
 *   B   REVERSING --> ASKING --> WAITING --> PUNCHING --> direct
 *           |           ^  |                     |
 *           +-----------+  +--> relayed <--------+ after DCUTR_TRIES
 *
 *   A   ASKED --CONNECT--> ANSWERED --SYNC--> PUNCHING
 *
 * Each connection is upgraded once, so a stranger makes us dial no more often than it is relayed to
 * us; and its attempts are charged to it (dial_charges.h), on both sides. Meanwhile training uses
 * the relayed connection. */
#include "dcutr.h"
#include "dial_charges.h"
#include "net/libp2p/host/host_protocol.h"
#include "net/list.h"

#include <stdlib.h>
#include <string.h>

#define DCUTR "/libp2p/dcutr"
#define REVERSAL_ADDRESSES 4 /* as many as a search for a peer dials together */
#define REVERSAL_LIMIT 1.0   /* s for a public peer's answer: several round trips */

/* One at a time for each peer: as B, or as A. */
struct upgrade {
    struct host *host;
    struct peer_id peer;
    enum { REVERSING, ASKING, WAITING, ASKED, ANSWERED, PUNCHING } state;
    int is_asker; /* B */
    int tries, tries_max;
    double asked_at;                                 /* s */
    struct multiaddr addresses[PUNCH_ADDRESSES_MAX]; /* the other side's, that we dial */
    size_t address_count;
    struct stream *stream;
    struct punch *punch;
    struct timer timer;
    struct upgrade *next, *prev;
};

struct dcutr {
    struct upgrade *upgrades;
    struct dial_charges charges;
    struct host_watch watch;
};

static struct dcutr *dcutr_of(const struct host *h) { return host_state(h, &dcutr_protocol); }
static struct loop *loop_of(const struct upgrade *u) { return host_loop(u->host); }

static void finish(struct upgrade *u)
{
    list_remove(&dcutr_of(u->host)->upgrades, u);
    timer_stop(&u->timer);
    punch_cancel(u->punch);
    stream_close(u->stream);
    free(u);
}

static void on_over(void *context) { finish(context); }

static struct upgrade *begin(struct host *h, const struct peer_id *peer)
{
    struct upgrade *u = calloc(1, sizeof *u);
    if (!u) return NULL;
    u->host = h;
    u->peer = *peer;
    list_add(&dcutr_of(h)->upgrades, u);
    return u;
}

/* --- addresses -------------------------------------------------------------------------------- */

static void add_once(struct dcutr_message *m, const struct multiaddr *a)
{
    for (size_t i = 0; i < m->address_count; i++)
        if (multiaddr_equal(&m->addresses[i], a)) return;
    if (m->address_count < PUNCH_ADDRESSES_MAX) m->addresses[m->address_count++] = *a;
}

/* The addresses at which the other side may dial us: the observed ones, then those that we listen
 * on, which are public if there is only a firewall, and reach us from our own network. Returns 0 if
 * none can be dialed from elsewhere. *agreed: observers agree, or no router translates our
 * address. */
static int write_offer(const struct host *h, const struct multiaddr *over, struct dcutr_message *m,
                       int *agreed)
{
    struct multiaddr own[PUNCH_ADDRESSES_MAX], seen;
    size_t count = host_own_addresses(h, own, PUNCH_ADDRESSES_MAX);
    int is_local = multiaddr_scope(over) == SCOPE_LOOPBACK, good = 0, counts;
    *m = (struct dcutr_message){ .type = DCUTR_CONNECT };
    *agreed = 0;
    for (int family = 4; family <= 6 && count; family += 2) {
        if (host_observed_address(h, family, &seen, &counts)) continue;
        add_once(m, &seen);
        *agreed |= counts;
        good = 1;
    }
    for (size_t i = 0; i < count; i++) {
        struct multiaddr_target t;
        enum address_scope scope = multiaddr_scope(&own[i]);
        if (multiaddr_target(&t, &own[i]) || t.relay.length) continue;
        if (scope == SCOPE_LOOPBACK && !is_local) continue;
        add_once(m, &own[i]);
        if (scope == SCOPE_PUBLIC || is_local) *agreed = good = 1;
    }
    return good;
}

static void keep_dialable(struct upgrade *u, const struct dcutr_message *m,
                          const struct multiaddr *over)
{
    u->address_count = 0;
    for (size_t i = 0; i < m->address_count; i++)
        if (punch_may_dial(&m->addresses[i], over))
            u->addresses[u->address_count++] = m->addresses[i];
}

static void say(struct stream *s, const struct dcutr_message *m)
{
    struct bytes out = { 0 };
    if (!dcutr_put(&out, m)) stream_write(s, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

static int next_message(struct stream *s, struct dcutr_message *m)
{
    const uint8_t *body;
    size_t n, used;
    int rc = stream_next_message(s, &body, &n, &used, DCUTR_MESSAGE_MAX);
    if (!rc) rc = dcutr_get(m, body, n);
    if (!rc) stream_took(s, used);
    return rc;
}

/* --- both dial -------------------------------------------------------------------------------- */

static void ask(struct upgrade *u);

/* go-libp2p exchanged the parts until 0.40; unknown programs get the other part at the last try. */
static enum punch_role role_of(const struct upgrade *u)
{
    const struct peer *p = host_find_peer(u->host, &u->peer);
    int is_reversed = p && !strncmp(p->agent, "p2pd/", 5);
    int is_known = is_reversed || (p && !strncmp(p->agent, "potluck/", 8));
    if (u->is_asker && !is_known && u->tries == DCUTR_TRIES) is_reversed = 1;
    return u->is_asker == is_reversed ? PUNCH_DIALER : PUNCH_LISTENER;
}

static void on_punched(void *context, struct punch *p, int status, const char *why)
{
    struct upgrade *u = context;
    u->punch = NULL;
    if (status && u->is_asker) ask(u);
    else finish(u);
}

static void punch(void *context)
{
    struct upgrade *u = context;
    stream_close(u->stream);
    u->stream = NULL;
    u->state = PUNCHING;
    timer_stop(&u->timer);
    u->punch = host_punch(u->host, &u->peer, u->addresses, u->address_count, role_of(u), on_punched,
                          u);
    if (!u->punch) finish(u);
}

/* --- B: a peer has reached us through a relay ------------------------------------------------- */

static struct connection *relayed_connection(const struct host *h, const struct peer_id *peer,
                                             int inbound)
{
    const struct peer *p = host_find_peer(h, peer);
    struct connection *c = connection_best(p);
    return c && c->relayed && c->inbound == inbound ? c : NULL;
}

static void on_failed(void *context, struct stream *s, int status, const char *why)
{
    finish(context);
}

static void on_answer(void *context, struct stream *s)
{
    struct upgrade *u = context;
    const struct connection *c = stream_connection(s);
    const struct dcutr_message sync = { .type = DCUTR_SYNC };
    struct dcutr_message m;
    int rc = next_message(s, &m);
    if (rc == PL_EAGAIN || u->state != ASKING) return;
    if (!rc && c && m.type == DCUTR_CONNECT) keep_dialable(u, &m, &c->remote);
    if (rc || !u->address_count) {
        finish(u);
        return;
    }
    say(s, &sync);
    stream_finish(s);
    u->state = WAITING;
    timer_start(loop_of(u), &u->timer, (loop_now(loop_of(u)) - u->asked_at) / 2, punch, u);
}

static void ask(struct upgrade *u)
{
    static const struct stream_events events = { .readable = on_answer, .failed = on_failed };
    struct connection *c = relayed_connection(u->host, &u->peer, 1);
    struct dcutr_message m;
    int agreed;
    timer_stop(&u->timer);
    u->state = ASKING;
    u->address_count = 0;
    if (!c || !peer_serves(c->peer, DCUTR) || (u->tries && u->tries == u->tries_max) ||
        !write_offer(u->host, &c->remote, &m, &agreed)) {
        finish(u);
        return;
    }
    u->tries++;
    /* An address that observers don't agree on is a guess, which a symmetric router defeats. */
    u->tries_max = agreed ? DCUTR_TRIES : 1;
    u->asked_at = loop_now(loop_of(u));
    u->stream = stream_open_on(c, DCUTR, DCUTR_LIMIT, &events, u);
    if (!u->stream) {
        finish(u);
        return;
    }
    say(u->stream, &m);
    timer_start(loop_of(u), &u->timer, DCUTR_LIMIT, on_over, u);
}

static void on_reversed(void *context, struct punch *p, int status, const char *why)
{
    struct upgrade *u = context;
    u->punch = NULL;
    if (status) ask(u);
    else finish(u);
}

/* Handshakes that have begun go on. */
static void stop_reversing(void *context)
{
    struct upgrade *u = context;
    punch_cancel(u->punch);
    u->punch = NULL;
    ask(u);
}

/* A connection in the other direction, if the peer has an address that we may dial. */
static void reverse(struct upgrade *u, const struct connection *c)
{
    struct multiaddr to[REVERSAL_ADDRESSES] = { { 0 } };
    size_t count = 0;
    for (size_t i = 0; i < c->peer->address_count; i++) {
        const struct multiaddr *a = &c->peer->addresses[i].at;
        if (count < REVERSAL_ADDRESSES && punch_may_dial(a, &c->remote)) to[count++] = *a;
    }
    u->state = REVERSING;
    u->punch = host_punch(u->host, &u->peer, to, count, PUNCH_CALL, on_reversed, u);
    if (!u->punch) ask(u);
    else timer_start(loop_of(u), &u->timer, REVERSAL_LIMIT, stop_reversing, u);
}

static struct upgrade *find_upgrade(const struct host *h, const struct peer_id *peer)
{
    struct upgrade *u = dcutr_of(h)->upgrades;
    while (u && !peer_id_equal(&u->peer, peer)) u = u->next;
    return u;
}

/* Its addresses and protocols are known now. */
static void on_identified(void *context, const struct peer_id *peer)
{
    struct host *h = context;
    struct connection *c = relayed_connection(h, peer, 1);
    struct upgrade *u;
    if (!c || c->upgraded || find_upgrade(h, peer)) return;
    c->upgraded = 1;
    if (dial_charges_add(&dcutr_of(h)->charges, host_resources(h), c, loop_now(host_loop(h))) ||
        !(u = begin(h, peer)))
        return;
    u->is_asker = 1;
    reverse(u, c);
}

/* A direct connection of either side. It ends the upgrade a moment later: the dial that it belongs
 * to has not had its result yet. */
static void on_connection(void *context, struct connection *c)
{
    struct upgrade *u = c->relayed ? NULL : find_upgrade(context, &c->peer->id);
    if (u) timer_start(loop_of(u), &u->timer, 0, on_over, u);
}

/* --- A: we have dialed through a relay -------------------------------------------------------- */

static void on_question(void *context, struct stream *s)
{
    struct upgrade *u = context;
    const struct connection *c = stream_connection(s);
    struct dcutr_message m, offer;
    int agreed, rc;
    while (!(rc = next_message(s, &m))) {
        if (u->state == ANSWERED && m.type == DCUTR_SYNC) {
            stream_finish(s);
            punch(u);
            return;
        }
        if (u->state != ASKED || m.type != DCUTR_CONNECT || !c) break;
        keep_dialable(u, &m, &c->remote);
        if (!u->address_count || !write_offer(u->host, &c->remote, &offer, &agreed)) break;
        say(s, &offer);
        u->state = ANSWERED;
    }
    if (rc != PL_EAGAIN) finish(u); /* a reset */
}

static void on_asked(void *context, struct stream *s)
{
    static const struct stream_events events = { .readable = on_question, .failed = on_failed };
    struct host *h = context;
    const struct connection *c = stream_connection(s);
    struct upgrade *u = NULL;
    if (c && c->relayed && !c->inbound && !find_upgrade(h, &c->peer->id) &&
        !dial_charges_add(&dcutr_of(h)->charges, host_resources(h), c, loop_now(host_loop(h))))
        u = begin(h, &c->peer->id);
    if (!u) {
        stream_close(s);
        return;
    }
    u->state = ASKED;
    u->stream = s;
    stream_both_ways(s);
    stream_listen(s, &events, u);
    timer_start(loop_of(u), &u->timer, DCUTR_LIMIT, on_over, u);
}

/* --- begin and end ---------------------------------------------------------------------------- */

static int start(struct host *h)
{
    struct dcutr *d = calloc(1, sizeof *d);
    if (!d) return PL_ENOMEM;
    host_set_state(h, &dcutr_protocol, d);
    d->watch.events.identified = on_identified;
    d->watch.events.connection = on_connection;
    d->watch.context = h;
    host_watch(h, &d->watch);
    return host_serve(h, DCUTR, on_asked, h);
}

static void stop(struct host *h)
{
    struct dcutr *d = dcutr_of(h);
    if (!d) return;
    host_unwatch(h, &d->watch);
    while (d->upgrades) finish(d->upgrades);
    dial_charges_clear(&d->charges);
    host_set_state(h, &dcutr_protocol, NULL);
    free(d);
}

const struct host_protocol dcutr_protocol = { .start = start, .stop = stop };
