/* autonat.c - a peer cannot tell by itself whether others reach it, so it asks to be dialed.
 * [spec libp2p-wire 14]
 *
 *   client                                      server
 *     DIAL {my ID, my addresses}   --->
 *                                               dials them over new connections
 *                                  <---         DIAL_RESPONSE {OK, the one that worked}
 *                                          or   {E_DIAL_ERROR} {E_DIAL_REFUSED}
 *
 * A server that dialed any address would be a tool for attacks on third parties. So it dials
 * only the IP address that the request comes from, and each dial-back is charged for a minute. */
#include "autonat.h"
#include "dial_charges.h"
#include "net/libp2p/host/exchange.h"
#include "net/libp2p/host/host_protocol.h"
#include "net/libp2p/rpc/rpc_frame.h"
#include "net/libp2p/peer/multiaddr_fields.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUTONAT "/libp2p/autonat/1.0.0"

/* --- messages --------------------------------------------------------------------------------- */

int autonat_put(struct bytes *out, const struct autonat_message *m)
{
    Libp2p__AutonatMessage pb = LIBP2P__AUTONAT_MESSAGE__INIT;
    Libp2p__AutonatDial dial = LIBP2P__AUTONAT_DIAL__INIT;
    Libp2p__AutonatDialResponse response = LIBP2P__AUTONAT_DIAL_RESPONSE__INIT;
    Libp2p__RelayPeer peer = LIBP2P__RELAY_PEER__INIT;
    ProtobufCBinaryData addresses[AUTONAT_ADDRESSES_MAX];
    multiaddr_fields(addresses, m->addresses, m->address_count);
    pb.has_type = 1;
    pb.type = m->is_response;
    if (m->is_response) {
        pb.dial_response = &response;
        response.has_status = 1;
        response.status = m->status;
        response.status_text = (char *)(uintptr_t)m->text;
        response.has_addr = m->address_count > 0;
        if (m->address_count) response.addr = addresses[0];
    } else {
        pb.dial = &dial;
        dial.peer = &peer;
        peer.has_id = 1;
        peer.id = message_bytes(m->peer.bytes, m->peer.length);
        peer.n_addrs = m->address_count;
        peer.addrs = addresses;
    }
    return message_pack_delimited(out, &pb.base);
}

int autonat_get(struct autonat_message *m, const uint8_t *data, size_t n)
{
    Libp2p__AutonatMessage *pb = message_unpack(&libp2p__autonat_message__descriptor, data, n,
                                                NULL);
    const Libp2p__RelayPeer *peer = pb && pb->dial ? pb->dial->peer : NULL;
    int rc = PL_EFORMAT;
    memset(m, 0, sizeof *m);
    if (!pb || !pb->has_type || (pb->type != 0 && pb->type != 1)) goto done;
    m->is_response = pb->type;
    if (m->is_response) {
        if (!pb->dial_response) goto done;
        m->status = pb->dial_response->status;
        if (pb->dial_response->status_text)
            rpc_printable(m->text, sizeof m->text, (const uint8_t *)pb->dial_response->status_text,
                          strlen(pb->dial_response->status_text));
        multiaddr_of_fields(m->addresses, &m->address_count, AUTONAT_ADDRESSES_MAX,
                            &pb->dial_response->addr, (size_t)pb->dial_response->has_addr);
    } else {
        if (!peer || !peer->has_id || peer_id_parse(&m->peer, peer->id.data, peer->id.len))
            goto done;
        multiaddr_of_fields(m->addresses, &m->address_count, AUTONAT_ADDRESSES_MAX, peer->addrs,
                            peer->n_addrs);
    }
    rc = PL_OK;
done:
    message_free(pb);
    return rc;
}

static int next_message(struct stream *c, struct autonat_message *m)
{
    const uint8_t *body;
    size_t n, used;
    int rc = stream_next_message(c, &body, &n, &used, AUTONAT_MESSAGE_MAX);
    return rc ? rc : autonat_get(m, body, n);
}

static void say(struct stream *c, const struct autonat_message *m)
{
    struct bytes out = { 0 };
    if (!autonat_put(&out, m)) stream_write(c, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

/* --- server ----------------------------------------------------------------------------------- */

struct dial_back_job {
    struct exchange exchange;
    struct autonat_message request;
    size_t next_address;
    struct host_wait *wait;
};

struct autonat {
    struct exchange *jobs; /* of struct dial_back_job */
    struct dial_charges charges;
};

static struct autonat *autonat_of(const struct host *h) { return host_state(h, &autonat_protocol); }

static void finish(struct dial_back_job *j)
{
    host_wait_cancel(j->wait);
    exchange_end(j);
}

static void answer(struct dial_back_job *j, int status, const char *text,
                   const struct multiaddr *at)
{
    struct autonat_message m = { .is_response = 1, .status = status };
    snprintf(m.text, sizeof m.text, "%s", text);
    if (at) m.addresses[m.address_count++] = *at;
    say(j->exchange.stream, &m);
    stream_finish(j->exchange.stream);
    finish(j);
}

/* One address after the other, at most eight, until one answers. */
static void dial_next(struct dial_back_job *j);

static void on_dialed(void *context, int status, const struct peer_id *peer,
                      const struct pl_err *err)
{
    struct dial_back_job *j = context;
    const struct peer *p = host_find_peer(j->exchange.host, peer);
    j->wait = NULL;
    if (status) {
        if (j->next_address < j->request.address_count) dial_next(j);
        else answer(j, AUTONAT_DIAL_ERROR, err->text, NULL);
        return;
    }
    /* The new connection has served its purpose; the old ones go on. */
    if (p && p->connections && p->connections->next_of_peer)
        connection_end(p->connections, PL_OK, "AutoNAT has dialed back");
    answer(j, AUTONAT_OK, "", &j->request.addresses[j->next_address - 1]);
}

static void dial_next(struct dial_back_job *j)
{
    struct multiaddr a = j->request.addresses[j->next_address++];
    multiaddr_strip_peer(&a, stream_peer(j->exchange.stream));
    multiaddr_add_peer(&a, stream_peer(j->exchange.stream));
    j->wait = host_dial_back(j->exchange.host, &a, CONN_SETUP_LIMIT, on_dialed, j);
    if (!j->wait) answer(j, AUTONAT_INTERNAL_ERROR, "out of memory", NULL);
}

/* Only the requester's own address: no peer can make us dial a third party. */
static void keep_own_addresses(struct autonat_message *m, const struct multiaddr *seen)
{
    struct multiaddr_target from, to;
    size_t kept = 0;
    if (multiaddr_target(&from, seen)) from.family = -1;
    for (size_t i = 0; i < m->address_count; i++)
        if (!multiaddr_target(&to, &m->addresses[i]) && !to.relay.length &&
            to.family == from.family && !memcmp(to.ip, from.ip, 16))
            m->addresses[kept++] = m->addresses[i];
    m->address_count = kept;
}

static void on_request(void *context, struct stream *c)
{
    struct dial_back_job *j = context;
    const struct connection *l = stream_connection(c);
    struct autonat_message *m = &j->request;
    struct host *h = j->exchange.host;
    int rc;
    if (j->wait) return; /* one request a stream */
    rc = next_message(c, m);
    if (rc == PL_EAGAIN) return;
    if (rc || m->is_response || !peer_id_equal(&m->peer, stream_peer(c))) {
        answer(j, AUTONAT_BAD_REQUEST, "not a request to be dialed", NULL);
        return;
    }
    if (l) keep_own_addresses(m, &l->remote);
    if (!l || l->relayed || !m->address_count)
        answer(j, AUTONAT_REFUSED, "no address of yours is the one that I see", NULL);
    else if (dial_charges_add(&autonat_of(h)->charges, host_resources(h), l,
                              loop_now(host_loop(h))))
        answer(j, AUTONAT_REFUSED, "too many ask", NULL);
    else dial_next(j);
}

static void on_request_failed(void *context, struct stream *c, int status, const char *why)
{
    finish(context);
}

static void on_request_late(void *context)
{
    answer(context, AUTONAT_DIAL_ERROR, "no connection in time", NULL);
}

static void on_asked(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = on_request,
                                                 .failed = on_request_failed };
    exchange_serve(c, &autonat_of(context)->jobs, sizeof(struct dial_back_job), &events,
                   AUTONAT_LIMIT, on_request_late);
}

static int start(struct host *h)
{
    struct autonat *a = calloc(1, sizeof *a);
    if (!a) return PL_ENOMEM;
    host_set_state(h, &autonat_protocol, a);
    return host_is_client(h) ? PL_OK : host_serve(h, AUTONAT, on_asked, h);
}

static void stop(struct host *h)
{
    struct autonat *a = autonat_of(h);
    if (!a) return;
    while (a->jobs) finish((struct dial_back_job *)a->jobs);
    dial_charges_clear(&a->charges);
    host_set_state(h, &autonat_protocol, NULL);
    free(a);
}

const struct host_protocol autonat_protocol = { .start = start, .stop = stop };

/* --- client ----------------------------------------------------------------------------------- */

struct autonat_question {
    struct exchange exchange;
    autonat_done *done;
    void *context;
};

void autonat_cancel(struct autonat_question *a) { exchange_end(a); }

static void report(struct autonat_question *a, int status, const struct multiaddr *at,
                   const char *why)
{
    autonat_done *done = a->done;
    void *context = a->context;
    struct multiaddr copy = { 0 };
    struct pl_err text;
    if (at) copy = *at;
    pl_fail(&text, status, "%s", why);
    autonat_cancel(a);
    done(context, status, &copy, text.text);
}

/* "It could not reach us" is a result; "it did not try" is not. */
static void on_answer(void *context, struct stream *c)
{
    struct autonat_question *a = context;
    struct autonat_message m;
    struct pl_err err;
    int rc = next_message(c, &m);
    if (rc == PL_EAGAIN) return;
    stream_finish(c);
    if (rc || !m.is_response) {
        report(a, PL_EFORMAT, NULL, "the answer cannot be read");
    } else if (m.status == AUTONAT_OK) {
        report(a, PL_OK, m.address_count ? &m.addresses[0] : NULL, "");
    } else {
        pl_fail(&err, 0, "%s%s%s",
                m.status == AUTONAT_DIAL_ERROR ? "it could not reach us" : "it did not try",
                m.text[0] ? ": " : "", m.text);
        report(a, m.status == AUTONAT_DIAL_ERROR ? PL_EIO : PL_EPROTO, NULL, err.text);
    }
}

static void on_failed(void *context, struct stream *c, int status, const char *why)
{
    report(context, status, NULL, why);
}

static void on_late(void *context) { report(context, PL_EAGAIN, NULL, "no answer in time"); }

/* Ours, and where the other side sees us with the ports that we listen on: behind a router our own
 * address is one that it must not try (keep_own_addresses), and would never say so. */
static void candidates(struct autonat_message *m, const struct host *h, const struct peer_id *peer)
{
    struct multiaddr own[AUTONAT_ADDRESSES_MAX], seen;
    struct multiaddr_target t, s;
    size_t n = host_own_addresses(h, own, AUTONAT_ADDRESSES_MAX);
    if (host_observed(h, peer, &seen) || multiaddr_target(&s, &seen)) s.family = -1;
    for (size_t i = 0; i < n; i++) {
        struct multiaddr a = { .length = 0 };
        if (multiaddr_target(&t, &own[i]) || t.relay.length || t.family != s.family) continue;
        if (!memcmp(t.ip, s.ip, sizeof t.ip)) break; /* no router between us */
        multiaddr_add_ip(&a, s.family, s.ip);
        multiaddr_add_tcp(&a, t.port);
        m->addresses[m->address_count++] = a;
        break; /* one port says it for all */
    }
    for (size_t i = 0; i < n && m->address_count < AUTONAT_ADDRESSES_MAX; i++)
        m->addresses[m->address_count++] = own[i];
}

struct autonat_question *autonat_ask(struct host *h, const struct peer_id *peer, double timeout_s,
                                     autonat_done *done, void *context)
{
    static const struct stream_events events = { .readable = on_answer, .failed = on_failed };
    struct autonat_message m = { .peer = *host_id(h) };
    struct autonat_question *a = exchange_new(h, NULL, sizeof *a);
    if (!a) return NULL;
    a->done = done;
    a->context = context;
    candidates(&m, h, peer);
    a->exchange.stream = stream_open(h, peer, AUTONAT, timeout_s, &events, a);
    if (!a->exchange.stream) {
        autonat_cancel(a);
        return NULL;
    }
    timer_start(host_loop(h), &a->exchange.timer, timeout_s, on_late, a);
    say(a->exchange.stream, &m);
    return a;
}
