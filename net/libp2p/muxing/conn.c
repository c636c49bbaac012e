/* conn.c - the layers of a connection, one state for each.
 *
 *   wire bytes -> [multistream] -> secure->receive -> plain -> [multistream] -> yamux_receive
 *   wire bytes <------------------ secure->send    <- frames <----------------- yamux_...
 *
 * Negotiation and handshake of the next layer may arrive in the same packet as the end of the
 * last, so each state hands the rest of its bytes on. */
#include "conn.h"

#include <string.h>

#define GREETING_SHOWN 40 /* characters of another protocol's greeting that are quoted */
#define GREETING_LEAST 3  /* fewer say nothing */
#define TRIM_ABOVE 4096   /* bytes of an empty buffer that are worth keeping */

static const char *const both[] = { "/noise", "/tls/1.0.0" };
static const char *const muxers[] = { "/yamux/1.0.0" };

/* As a listener: Noise and TLS as far as they are switched on. */
static int find_security(void *context, const char *name, size_t n)
{
    const struct conn *c = context;
    for (int i = 0; i < 2; i++)
        if (c->securities & 1 << i && strlen(both[i]) == n && !memcmp(both[i], name, n)) return i;
    return -1;
}

static int find_muxer(void *context, const char *name, size_t n)
{
    return strlen(muxers[0]) == n && !memcmp(muxers[0], name, n) ? 0 : -1;
}

int conn_init(struct conn *c, const struct identity *me, int dialer, int securities,
              const struct peer_id *expected, const struct conn_events *events, void *context)
{
    memset(c, 0, sizeof *c);
    c->me = me;
    c->dialer = dialer;
    c->securities = securities;
    c->events = *events;
    c->context = context;
    c->wire.limit = CONN_WIRE_MAX;
    c->wire_high = CONN_WIRE_LOW;
    if (expected) c->expected = *expected;
    if (!dialer) return multistream_listen(&c->select, find_security, c, &c->wire);
    return multistream_dial(&c->select, both + (securities == CONN_TLS),
                            securities == CONN_NOISE || securities == CONN_TLS ? 1 : 2, &c->wire);
}

void conn_clear(struct conn *c)
{
    yamux_clear(&c->yamux);
    if (c->secure) c->secure->close(c->secure);
    bytes_clear(&c->in);
    bytes_clear(&c->plain);
    bytes_clear(&c->frames);
    bytes_clear(&c->wire);
    c->secure = NULL;
    c->state = CONN_CLOSED;
}

/* The engine of the agreed protocol; the dialer's first message is sent at once. */
static int open_secure(struct conn *c, struct pl_err *err)
{
    const struct peer_id *expected = c->expected.length ? &c->expected : NULL;
    int tls = c->dialer ? !strcmp(c->select.wanted[c->select.agreed], both[1])
                        : c->select.agreed == 1;
    int rc = tls ? tls_open(&c->secure, c->me, c->dialer, expected, &c->wire)
                 : noise_open(&c->secure, c->me, c->dialer, expected, &c->wire);
    c->state = CONN_HANDSHAKE;
    return rc ? pl_fail(err, rc, "connection: out of memory") : PL_OK;
}

/* Frames are gathered and sealed together: a tag and a length for 64 KiB, not for each frame. */
static int encrypt(struct conn *c)
{
    size_t n = bytes_length(&c->frames);
    int rc = c->frames.failed;
    if (!n || rc) return rc;
    rc = c->secure->send(c->secure, bytes_at(&c->frames), n, &c->wire);
    bytes_take(&c->frames, n);
    return rc;
}

/* Data stop at wire_high, otherwise urgent frames would wait behind them. */
static void set_send_budget(struct conn *c)
{
    size_t held = bytes_length(&c->wire) + c->under_way;
    c->yamux.send_budget = held < c->wire_high ? c->wire_high - held : 0;
}

/* The last step: streams may be opened. Odd IDs are the dialer's. */
static void open_muxer(struct conn *c, double now)
{
    yamux_init(&c->yamux, c->dialer, &c->events.streams, c->context, now);
    set_send_budget(c);
    c->state = CONN_OPEN;
    c->events.open(c->context);
}

/* Says which layer, because that is where to look: a firewall, a proxy, another protocol's port. */
static int no_agreement(int rc, const char *what, struct pl_err *err)
{
    return pl_fail(err, PL_EPROTO,
                   rc == PL_ENOTFOUND ? "connection: no %s in common"
                                      : "connection: %s: not multistream",
                   what);
}

/* The greeting of another kind of server: its first line is quoted in the error. */
static int other_protocol(const struct bytes *in, struct pl_err *err)
{
    const char *text = (const char *)bytes_at(in);
    int n = 0, all = (int)(bytes_length(in) < GREETING_SHOWN ? bytes_length(in) : GREETING_SHOWN);
    while (n < all && text[n] >= ' ' && text[n] <= '~') n++;
    if (n < GREETING_LEAST) return no_agreement(PL_EPROTO, "encryption", err);
    return pl_fail(err, PL_EPROTO, "connection: it says \"%.*s\", not multistream", n, text);
}

/* Works off c->plain, which holds decrypted bytes. */
static int on_plain(struct conn *c, double now, struct pl_err *err)
{
    int rc;
    /* The peer is proven. Both may have named Yamux inside the handshake (early negotiation), which
     * saves a round trip; if not, it is negotiated now, encrypted. */
    if (c->state == CONN_HANDSHAKE && c->secure->established) {
        if (c->secure->muxer_agreed) open_muxer(c, now);
        else {
            c->state = CONN_MUXER;
            rc = c->dialer ? multistream_dial(&c->select, muxers, 1, &c->frames)
                           : multistream_listen(&c->select, find_muxer, c, &c->frames);
            if (rc) return rc;
        }
    }
    if (c->state == CONN_MUXER) {
        struct cursor cursor = { bytes_at(&c->plain), bytes_length(&c->plain) };
        rc = multistream_receive(&c->select, &cursor, &c->frames);
        bytes_take(&c->plain, bytes_length(&c->plain) - cursor.left);
        if (rc == PL_EAGAIN) return PL_OK;
        if (rc) return no_agreement(rc, "stream multiplexer", err);
        open_muxer(c, now);
    }
    if (c->state == CONN_OPEN && bytes_length(&c->plain)) {
        struct cursor in = { bytes_at(&c->plain), bytes_length(&c->plain) };
        rc = yamux_receive_some(&c->yamux, &in, CONN_FRAMES_A_TURN, &c->frames, err);
        bytes_take(&c->plain, bytes_length(&c->plain) - in.left);
        return rc;
    }
    return PL_OK;
}

int conn_has_more(const struct conn *c)
{
    return c->state == CONN_OPEN && bytes_length(&c->plain) > 0;
}

/* Two sockets that connect to each other at the same moment become one connection, without a
 * listener: both sides propose, take the other's proposal for an agreement, and begin the
 * handshake. Then the first message to arrive is a dialer's: in Noise an ephemeral key alone, in
 * TLS a ClientHello. */
static int is_from_dialer(struct conn *c, const uint8_t *data, size_t n)
{
    int tls = !strcmp(c->select.wanted[c->select.agreed], both[1]);
    if (c->answered || !n) return 0;
    c->answered = 1;
    return tls ? n > 5 && data[0] == 22 && data[5] == 1 : n > 1 && data[0] == 0 && data[1] == 32;
}

/* Bytes of the handshake, and encrypted bytes after it. */
static int receive_secure(struct conn *c, const uint8_t *data, size_t n, struct pl_err *err)
{
    if (c->dialer && c->state == CONN_HANDSHAKE && is_from_dialer(c, data, n)) {
        c->both_dialed = 1;
        return pl_fail(err, PL_EPROTO, "connection: both sides have dialed, none listens");
    }
    return c->secure->receive(c->secure, data, n, &c->plain, &c->wire, err);
}

static int receive(struct conn *c, const uint8_t *data, size_t n, double now, struct pl_err *err)
{
    int rc = PL_OK;
    if (c->state == CONN_SECURITY) {
        struct cursor cursor;
        if ((rc = bytes_add(&c->in, data, n))) return pl_fail(err, rc, "connection: out of memory");
        cursor = (struct cursor){ bytes_at(&c->in), bytes_length(&c->in) };
        rc = multistream_receive(&c->select, &cursor, &c->wire);
        if (rc == PL_EPROTO && !c->select.header_seen) return other_protocol(&c->in, err);
        bytes_take(&c->in, bytes_length(&c->in) - cursor.left);
        if (rc == PL_EAGAIN) return PL_OK;
        if (rc) return no_agreement(rc, "encryption", err);
        if ((rc = open_secure(c, err))) return rc;
        /* The beginning of the handshake may have come with the negotiation. */
        rc = receive_secure(c, bytes_at(&c->in), bytes_length(&c->in), err);
        bytes_clear(&c->in);
    } else if (n) {
        rc = receive_secure(c, data, n, err);
    }
    if (!rc) rc = on_plain(c, now, err);
    return rc;
}

int conn_receive(struct conn *c, const uint8_t *data, size_t n, double now, struct pl_err *err)
{
    struct pl_err why = { "" };
    int rc;
    if (c->state == CONN_CLOSED) return PL_OK;
    c->yamux.now = now;
    rc = receive(c, data, n, now, &why);
    if (conn_flush(c) && !rc) rc = PL_ELIMIT;
    if (!rc) return PL_OK;
    c->state = CONN_CLOSED;
    return pl_fail(err, rc, "%s", why.text[0] ? why.text : pl_status_name(rc));
}

/* Urgent frames first, then as much of the streams' data as the socket will soon take. */
int conn_flush(struct conn *c)
{
    int rc;
    if (!c->secure || !c->secure->established) return PL_OK;
    rc = encrypt(c);
    if (rc || c->state != CONN_OPEN) return rc;
    set_send_budget(c);
    rc = yamux_pump(&c->yamux, &c->frames);
    if (!rc) rc = encrypt(c);
    set_send_budget(c);
    return rc;
}

/* A line of 2 Mbit/s takes 25 KB in CONN_WIRE_S, a fast one a megabyte: on both an urgent frame
 * waits a tenth of a second at most. */
void conn_took(struct conn *c, size_t n, double seconds)
{
    double high = seconds > 0 ? (double)n / seconds * CONN_WIRE_S : CONN_WIRE_HIGH;
    c->wire_high = high > CONN_WIRE_HIGH  ? CONN_WIRE_HIGH
                   : high < CONN_WIRE_LOW ? CONN_WIRE_LOW
                                          : (size_t)high;
}

/* A burst leaves its buffer behind; a connection that is quiet again gives it back. */
static void trim(struct bytes *b)
{
    if (!bytes_length(b) && b->capacity > TRIM_ABOVE && !b->failed) bytes_clear(b);
}

int conn_tick(struct conn *c, double now, struct pl_err *err)
{
    int rc;
    if (c->state != CONN_OPEN) return PL_OK;
    trim(&c->plain);
    trim(&c->frames);
    trim(&c->wire);
    rc = yamux_tick(&c->yamux, now, &c->frames, err);
    if (!rc) rc = conn_flush(c);
    if (rc) c->state = CONN_CLOSED;
    return rc;
}
