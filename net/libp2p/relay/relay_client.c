/* relay_client.c - the two ends of a circuit. [spec libp2p-wire 14]
 *
 *   reservation   RESERVE on a hop stream, again at three quarters of its time; our
 *                 address through the relay is then advertised
 *   being called  the relay opens a stop stream: CONNECT {caller}; we answer STATUS OK
 *   calling       CONNECT {callee} on a hop stream; the relay answers STATUS OK
 *
 * From then on the stream carries an ordinary connection with its own Noise or TLS handshake
 * between the two ends: the relay sees only encrypted bytes. */
#include "relay_internal.h"

#include <stdlib.h>
#include <time.h>

/* --- a stream as a socket --------------------------------------------------------------------- */

static void carrier_readable(void *context, struct stream *c)
{
    struct connection *l = context;
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    if (n) connection_receive(l, data, n);
    stream_took(c, n);
    if (ended) connection_end(l, PL_EIO, "the relayed connection was closed");
}

static void carrier_drained(void *context, struct stream *c) { connection_touch(context); }

static void carrier_failed(void *context, struct stream *c, int status, const char *why)
{
    connection_end(context, status, "the relayed connection was cut: %s", why);
}

/* remote: the address that others would dial, up to /p2p-circuit. Takes over the stream, also if
 * it fails. */
static struct connection *carry(struct host *h, struct stream *c, int inbound,
                                const struct multiaddr *remote, const struct peer_id *expected)
{
    static const struct stream_events events = { .readable = carrier_readable,
                                                 .drained = carrier_drained,
                                                 .failed = carrier_failed };
    static const struct connection_carrier carrier = { stream_queued, stream_write, stream_close,
                                                       stream_connection };
    struct connection *l = connection_new(host_connections(h), inbound);
    const char *no;
    if (!l) {
        stream_close(c);
        return NULL;
    }
    l->carrier = c;
    l->carrier_calls = &carrier;
    l->relayed = 1;
    l->remote = *remote;
    stream_both_ways(c);
    stream_listen(c, &events, l);
    if ((no = budget_admit(l))) connection_end(l, PL_ELIMIT, "%s", no);
    else if (connection_start(l, expected)) connection_end(l, PL_ENOMEM, "out of memory");
    carrier_readable(l, c); /* the first bytes may have come with the last message */
    return l;
}

/* The address of a connected relay, as far as we know it: how we reach it, then its ID, then
 * circuit. */
static int through(struct multiaddr *a, const struct connection *l, const struct peer_id *relay)
{
    int rc;
    *a = l->remote;
    rc = multiaddr_add_peer(a, relay);
    return rc ? rc : multiaddr_add_circuit(a);
}

/* --- being called ----------------------------------------------------------------------------- */

/* STOP CONNECT: only from a relay that we hold a reservation with, or anybody could claim to
 * carry a peer. */
static void on_stop_message(void *context, struct stream *c)
{
    struct exchange *s = context;
    struct host *h = s->host;
    const struct connection *l = stream_connection(c);
    struct relay_message m, answer = { .type = STOP_STATUS, .status = RELAY_OK };
    struct multiaddr remote;
    size_t used;
    int rc = relay_next(c, RELAY_STOP, &m, &used);
    if (rc == PL_EAGAIN) return;
    if (rc || m.type != STOP_CONNECT || !m.peer.length) answer.status = RELAY_MALFORMED_MESSAGE;
    else if (!l || !relay_is_used(h, stream_peer(c)) || through(&remote, l, stream_peer(c)))
        answer.status = RELAY_PERMISSION_DENIED;
    relay_send(c, RELAY_STOP, &answer);
    if (answer.status == RELAY_OK) {
        stream_took(c, used);
        s->stream = NULL; /* the link has it now */
        carry(h, c, 1, &remote, &m.peer);
    } else {
        stream_finish(c);
    }
    exchange_end(s);
}

static void on_stop(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = on_stop_message,
                                                 .failed = exchange_failed };
    exchange_serve(c, &relay_of(context)->stopping, sizeof(struct exchange), &events, RELAY_LIMIT,
                   exchange_end);
}

/* --- reservations ----------------------------------------------------------------------------- */

struct relay_user {
    struct host *host;
    struct peer_id relay;
    struct stream *stream; /* while asking */
    struct multiaddr at;   /* our address through it; length 0: no reservation */
    struct timer timer;    /* the next time to ask */
    struct relay_user *next;
};

static void ask(void *context);

static void again(struct relay_user *u, double in_s)
{
    timer_start(host_loop(u->host), &u->timer, in_s, ask, u);
}

/* The address must no longer be advertised; the next try is half a minute away. */
static void lose(struct relay_user *u)
{
    int had = u->at.length > 0;
    stream_close(u->stream);
    u->stream = NULL;
    u->at.length = 0;
    if (had) host_changed(u->host);
    again(u, RELAY_RETRY);
}

static void on_reserve_failed(void *context, struct stream *c, int status, const char *why)
{
    lose(context);
}

/* The relay says until when; a clock that differs must not make us ask each second, nor never. */
static void on_reserved(void *context, struct stream *c)
{
    struct relay_user *u = context;
    const struct connection *l = stream_connection(c);
    struct relay_message m;
    size_t used;
    double lasts;
    int rc = relay_next(c, RELAY_HOP, &m, &used), fresh = !u->at.length;
    if (rc == PL_EAGAIN) return;
    /* Others dial the address at which we have dialled the relay; one that dialled us has shown
     * none. */
    if (rc || m.type != HOP_STATUS || m.status != RELAY_OK || !m.has_reservation || !l ||
        l->inbound || through(&u->at, l, &u->relay)) {
        u->at.length = 0;
        lose(u);
        return;
    }
    stream_finish(c);
    stream_close(c);
    u->stream = NULL;
    lasts = (double)m.expire - (double)time(NULL);
    if (!(lasts > 2 * RELAY_RETRY)) lasts = 2 * RELAY_RETRY;
    if (lasts > 2 * RELAY_RESERVATION_S) lasts = 2 * RELAY_RESERVATION_S;
    again(u, lasts * 0.75);
    if (fresh) host_changed(u->host);
}

static void ask(void *context)
{
    static const struct stream_events events = { .readable = on_reserved,
                                                 .failed = on_reserve_failed };
    struct relay_user *u = context;
    struct relay_message m = { .type = HOP_RESERVE };
    stream_close(u->stream);
    u->stream = stream_open(u->host, &u->relay, HOP, RELAY_LIMIT, &events, u);
    if (u->stream) relay_send(u->stream, RELAY_HOP, &m);
    again(u, u->stream ? 2 * RELAY_LIMIT : RELAY_RETRY); /* whatever becomes of this one */
}

static struct relay_user **find_user(const struct host *h, const struct peer_id *relay)
{
    struct relay_user **at = &relay_of(h)->users;
    while (*at && !peer_id_equal(&(*at)->relay, relay)) at = &(*at)->next;
    return at;
}

int relay_use(struct host *h, const struct peer_id *relay)
{
    struct relay_user *u;
    if (*find_user(h, relay)) return PL_OK;
    if (!(u = calloc(1, sizeof *u))) return PL_ENOMEM;
    u->host = h;
    u->relay = *relay;
    u->next = relay_of(h)->users;
    relay_of(h)->users = u;
    again(u, 0);
    return PL_OK;
}

void relay_leave(struct host *h, const struct peer_id *relay)
{
    struct relay_user **at = find_user(h, relay), *u = *at;
    if (!u) return;
    *at = u->next;
    timer_stop(&u->timer);
    stream_close(u->stream);
    free(u);
    host_changed(h);
}

int relay_is_used(const struct host *h, const struct peer_id *relay)
{
    const struct relay_user *u = relay_of(h) ? *find_user(h, relay) : NULL;
    return u && (u->at.length || u->stream);
}

int relay_has_reservation(const struct host *h, const struct peer_id *relay)
{
    const struct relay_user *u = relay_of(h) ? *find_user(h, relay) : NULL;
    return u && u->at.length;
}

size_t relay_addresses(const struct host *h, struct multiaddr *out, size_t max)
{
    size_t n = 0;
    for (const struct relay_user *u = relay_of(h) ? relay_of(h)->users : NULL; u && n < max;
         u = u->next)
        if (u->at.length) out[n++] = u->at;
    return n;
}

/* A reservation goes with the last connection between the two: ours at a relay, others' at us. */
static void on_disconnected(void *context, const struct peer_id *peer)
{
    struct host *h = context;
    struct relay_user *u = *find_user(h, peer);
    relay_serve_lost(relay_of(h), peer);
    if (u && u->at.length) {
        lose(u);
        again(u, 1.0);
    }
}

/* --- calling ---------------------------------------------------------------------------------- */

struct circuit_dial {
    struct exchange exchange;
    struct multiaddr through;
    struct peer_id to;
    circuit_done *done;
    void *context;
};

static void cancel_dial(struct circuit_dial *d) { exchange_end(d); }

static void report(struct circuit_dial *d, struct connection *l, int status, const char *why)
{
    circuit_done *done = d->done;
    void *context = d->context;
    struct pl_err copy;
    pl_fail(&copy, status, "%s", why);
    cancel_dial(d);
    done(context, l, status, copy.text);
}

static void on_dial_late(void *context)
{
    report(context, NULL, PL_EAGAIN, "the relay did not answer in time");
}

static void on_dial_failed(void *context, struct stream *c, int status, const char *why)
{
    report(context, NULL, status, why);
}

/* STATUS OK: the following bytes on this stream are those of the peer behind the relay. */
static void on_dial_answer(void *context, struct stream *c)
{
    struct circuit_dial *d = context;
    struct relay_message m;
    struct connection *l;
    size_t used;
    int rc = relay_next(c, RELAY_HOP, &m, &used);
    if (rc == PL_EAGAIN) return;
    if (rc || m.type != HOP_STATUS || m.status != RELAY_OK) {
        report(d, NULL, PL_EIO,
               rc ? "the relay's answer cannot be read" : relay_status_text(m.status));
        return;
    }
    stream_took(c, used);
    d->exchange.stream = NULL; /* the link has it now */
    l = carry(d->exchange.host, c, 0, &d->through, &d->to);
    report(d, l, l ? PL_OK : PL_ENOMEM, l ? "" : "out of memory");
}

static struct circuit_dial *dial(struct host *h, const struct multiaddr *at,
                                 const struct peer_id *to, circuit_done *done, void *context)
{
    static const struct stream_events events = { .readable = on_dial_answer,
                                                 .failed = on_dial_failed };
    struct relay_message m = { .type = HOP_CONNECT, .peer = *to };
    struct multiaddr direct;
    struct multiaddr_target t;
    struct circuit_dial *d;
    if (!to->length || multiaddr_target(&t, at) || !t.relay.length) return NULL;
    if (!(d = exchange_new(h, &relay_of(h)->dials, sizeof *d))) return NULL;
    d->to = *to;
    d->done = done;
    d->context = context;
    d->through = *at;
    multiaddr_strip_peer(&d->through, to);
    direct = d->through; /* ends in /p2p/RELAY/p2p-circuit, the last of which takes two bytes */
    direct.length = (uint16_t)(direct.length - 2);
    host_learn(h, &t.relay, &direct, HOST_ADDRESS_TTL);
    d->exchange.stream = stream_open_known(h, &t.relay, HOP, RELAY_LIMIT, &events, d);
    if (!d->exchange.stream) {
        cancel_dial(d);
        return NULL;
    }
    timer_start(host_loop(h), &d->exchange.timer, RELAY_LIMIT, on_dial_late, d);
    relay_send(d->exchange.stream, RELAY_HOP, &m);
    return d;
}

/* --- begin and end ---------------------------------------------------------------------------- */

static int start(struct host *h)
{
    static const struct circuit_transport circuits = { dial, cancel_dial, relay_addresses };
    struct relay *r = calloc(1, sizeof *r);
    int rc;
    if (!r) return PL_ENOMEM;
    r->host = h;
    host_set_state(h, &relay_protocol, r);
    host_set_circuits(h, &circuits);
    r->watch.events.disconnected = on_disconnected;
    r->watch.context = h;
    host_watch(h, &r->watch);
    rc = host_serve(h, STOP, on_stop, h);
    if (!rc && host_relays(h) && !host_is_client(h)) rc = host_serve(h, HOP, relay_serve_hop, r);
    return rc;
}

static void stop(struct host *h)
{
    struct relay *r = relay_of(h);
    if (!r) return;
    host_unwatch(h, &r->watch);
    relay_serve_stop_all(r);
    while (r->stopping) exchange_end(r->stopping);
    while (r->users) {
        struct peer_id id = r->users->relay;
        relay_leave(h, &id);
    }
    while (r->dials) report((struct circuit_dial *)r->dials, NULL, PL_EIO, "this peer is closing");
    host_set_circuits(h, NULL);
    host_set_state(h, &relay_protocol, NULL);
    free(r);
}

const struct host_protocol relay_protocol = { .start = start, .stop = stop };
