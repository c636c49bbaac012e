/* identify.c - peers exchange their keys, addresses and protocols. [spec libp2p-wire 9]
 *
 *   /ipfs/id/1.0.0       the dialer of the stream reads: key, addresses, protocols, and under which
 *                        address the other side sees it
 *   /ipfs/id/push/1.0.0  the dialer of the stream writes the same message, because it has changed
 *
 * Both sides ask on every new connection. Only the addresses of the signed record count: other
 * peers can pass them on. An unanswered identify keeps go-libp2p from opening streams to us for a
 * minute, so we answer before anything else. */
#include "identify.h"
#include "net/libp2p/host/exchange.h"
#include "net/libp2p/host/host_protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ID "/ipfs/id/1.0.0"
#define PUSH "/ipfs/id/push/1.0.0"
#define PUSH_AFTER 0.05 /* s; handlers are registered one by one, one push tells of all */

struct identify {
    struct host_watch watch;
    struct timer push;
    struct exchange *exchanges;      /* our questions, and the pushes that we receive */
    struct exchange *pushes;         /* ours */
    struct identify_message scratch; /* too large for the stack */
    struct record record;
};

static struct identify *identify_of(const struct host *h)
{
    return host_state(h, &identify_protocol);
}

/* --- our message ------------------------------------------------------------------------------ */

static uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Key, addresses, protocols, the address that we see, and our signed record. */
static int write_message(struct host *h, const struct multiaddr *seen_as, struct bytes *out)
{
    struct identify_message *m = &identify_of(h)->scratch;
    const struct identity *me = host_identity(h);
    struct bytes record = { 0 };
    const char *name;
    int rc = PL_OK;
    memset(m, 0, sizeof *m);
    m->public_key = bytes_at(&me->public_key);
    m->public_key_bytes = bytes_length(&me->public_key);
    m->address_count = host_own_addresses(h, m->addresses, IDENTIFY_ADDRESSES_MAX);
    for (size_t i = 0; i < IDENTIFY_PROTOCOLS_MAX && (name = host_service_name(h, i)); i++)
        m->protocols[m->protocol_count++] = name;
    m->observed = *seen_as;
    m->protocol_version = "";
    m->agent = host_agent(h);
    if (m->address_count) {
        rc = record_put(&record, me, wall_ns(), m->addresses, m->address_count);
        m->record = bytes_at(&record);
        m->record_bytes = bytes_length(&record);
    }
    if (!rc) rc = identify_put(out, m);
    bytes_clear(&record);
    return rc;
}

static void send_identity(struct stream *c)
{
    const struct connection *l = stream_connection(c);
    struct bytes out = { 0 };
    if (l && !write_message(stream_host(c), &l->remote, &out))
        stream_write(c, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
    stream_finish(c);
}

static void on_asked(void *context, struct stream *c)
{
    send_identity(c);
    stream_close(c); /* lingers until it is out */
}

/* --- the other side's message ----------------------------------------------------------------- */

/* More than PEER_PROTOCOL_TEXT_MAX bytes of names are ignored, all of them. */
static void set_protocols(struct peer *p, const struct identify_message *m)
{
    struct bytes texts = { .limit = PEER_PROTOCOL_TEXT_MAX };
    for (size_t i = 0; i < m->protocol_count; i++)
        bytes_add(&texts, m->protocols[i], strlen(m->protocols[i]) + 1);
    if (!texts.failed) peer_set_protocols(p, (const char *)bytes_at(&texts), bytes_length(&texts));
    bytes_clear(&texts);
}

/* Its addresses: those of the signed record if there is a valid one, otherwise those of the
 * message. */
static void set_addresses(struct host *h, struct connection *l, const struct identify_message *m)
{
    struct record *r = &identify_of(h)->record;
    struct peer *p = l->peer;
    const struct multiaddr *list = m->addresses;
    size_t count = m->address_count;
    double until = loop_now(host_loop(h)) + HOST_ADDRESS_TTL;
    if (m->record_bytes && !record_get(r, m->record, m->record_bytes)) {
        if (!peer_id_equal(&r->peer, &p->id)) return; /* another peer's record: it is ignored */
        if (r->seq < p->record_seq) return;
        p->record_seq = r->seq;
        list = r->addresses;
        count = r->address_count;
    }
    for (size_t i = 0; i < count; i++)
        if (multiaddr_is_plausible(&list[i], &l->remote)) peer_learn(p, &list[i], until);
    routing_peer_changed(p); /* it may have come to us through a relay only */
}

static void understand(struct exchange *x, const uint8_t *data, size_t n)
{
    struct host *h = x->host;
    struct identify_message *m = &identify_of(h)->scratch;
    struct connection *l = stream_connection(x->stream);
    struct peer *p = l ? l->peer : NULL;
    if (p && !identify_get(m, data, n)) {
        struct peer_id id = p->id;
        set_protocols(p, m);
        set_addresses(h, l, m);
        snprintf(p->agent, sizeof p->agent, "%s", m->agent ? m->agent : "");
        if (m->observed.length) {
            p->observed = m->observed;
            host_observe(h, l, &m->observed);
        }
        host_identified(h, &id);
    }
    identify_clear(m);
}

/* The message ends with the stream. One that never ends is cut off by its size or by
 * IDENTIFY_LIMIT. */
static void on_readable(void *context, struct stream *c)
{
    struct exchange *x = context;
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    if (ended && x->list != &identify_of(x->host)->pushes) understand(x, data, n);
    if (ended) stream_finish(c);
    if (ended || n > IDENTIFY_PARTS_MAX * (IDENTIFY_PART_MAX + 2)) exchange_end(x);
}

static const struct stream_events events = { .readable = on_readable, .failed = exchange_failed };

static void on_pushed(void *context, struct stream *c)
{
    exchange_serve(c, &identify_of(context)->exchanges, sizeof(struct exchange), &events,
                   IDENTIFY_LIMIT, exchange_end);
}

/* A stream of ours. NULL: no memory. */
static struct stream *begin(struct host *h, struct exchange **list, struct connection *l,
                            const char *protocol)
{
    struct exchange *x = exchange_new(h, list, sizeof *x);
    if (!x) return NULL;
    timer_start(host_loop(h), &x->timer, IDENTIFY_LIMIT, exchange_end, x);
    if ((x->stream = stream_open_on(l, protocol, IDENTIFY_LIMIT, &events, x))) return x->stream;
    exchange_end(x);
    return NULL;
}

/* Each new connection is asked, also a peer's second: it may come from another address. */
static void on_connection(void *context, struct connection *l)
{
    begin(context, &identify_of(context)->exchanges, l, ID);
}

/* --- changes ---------------------------------------------------------------------------------- */

/* Only to peers that serve the push protocol. */
static void push_to_peer(void *context, struct peer *p)
{
    struct connection *l = connection_best(p);
    struct stream *c = NULL;
    if (l && peer_serves(p, PUSH)) c = begin(context, &identify_of(context)->pushes, l, PUSH);
    if (c) send_identity(c);
}

static void on_push(void *context)
{
    struct host *h = context;
    peers_each(host_peerstore(h), push_to_peer, h);
}

static void on_changed(void *context)
{
    timer_start(host_loop(context), &identify_of(context)->push, PUSH_AFTER, on_push, context);
}

/* --- begin and end ---------------------------------------------------------------------------- */

static int start(struct host *h)
{
    struct identify *id = calloc(1, sizeof *id);
    int rc;
    if (!id) return PL_ENOMEM;
    host_set_state(h, &identify_protocol, id);
    id->watch.events.connection = on_connection;
    id->watch.events.changed = on_changed;
    id->watch.context = h;
    host_watch(h, &id->watch);
    rc = host_serve(h, ID, on_asked, h);
    return rc ? rc : host_serve(h, PUSH, on_pushed, h);
}

static void stop(struct host *h)
{
    struct identify *id = identify_of(h);
    if (!id) return;
    host_unwatch(h, &id->watch);
    timer_stop(&id->push);
    while (id->exchanges) exchange_end(id->exchanges);
    while (id->pushes) exchange_end(id->pushes);
    host_set_state(h, &identify_protocol, NULL);
    free(id);
}

const struct host_protocol identify_protocol = { .start = start, .stop = stop };
