/* conn.h - one connection's layers put together, still without a socket: negotiation,
 * encryption, streams. [spec libp2p-wire 0, 4, 7]
 *
 *                  /noise or /tls agreed      handshake done         yamux agreed (if it was not
 *                                             yet)
 *   SECURITY ----------------------> HANDSHAKE --------> MUXER ------------------> OPEN
 *                                                 \___ agreed in the handshake ___/
 *   Any fault: CLOSED, with a sentence. */
#ifndef PL_CONN_H
#define PL_CONN_H

#include "multistream.h"
#include "net/libp2p/security/secure_channel.h"
#include "yamux.h"

#define CONN_SETUP_LIMIT 15.0 /* s from TCP to streams, as in go-libp2p */
/* Encrypted bytes that may wait for a slow socket: data stop at wire_high, the rest is answers to a
 * peer that reads nothing. Urgent frames wait behind them, so wire_high is the number of bytes that
 * the socket takes in CONN_WIRE_S, within these bounds. */
#define CONN_WIRE_MAX (8u << 20)
#define CONN_WIRE_HIGH (1u << 20)
#define CONN_WIRE_LOW (128u << 10)
#define CONN_WIRE_S 0.1

/* Frames without data that open and reset streams take 2 to 12 microseconds each. Large ones are
 * never that many. */
#define CONN_FRAMES_A_TURN 32

enum conn_state { CONN_SECURITY, CONN_HANDSHAKE, CONN_MUXER, CONN_OPEN, CONN_CLOSED };

struct conn_events {
    void (*open)(void *context); /* streams may be opened; secure->remote is the peer's ID */
    struct yamux_events streams;
};

enum { CONN_NOISE = 1, CONN_TLS = 2 };

struct conn {
    enum conn_state state;
    struct secure *secure;
    struct yamux yamux;
    struct bytes frames; /* output of yamux calls; conn_flush encrypts it */
    struct bytes wire;   /* to be written to the socket; the owner takes from it */
    /* bytes taken from it that the socket still holds back; the owner's figure */
    size_t under_way;
    size_t wire_high; /* see CONN_WIRE_HIGH; CONN_WIRE_LOW at first */
    int both_dialed;  /* 1: closed because the other side dialed us at the same time, too */
    /* private */
    const struct identity *me;
    struct peer_id expected;
    struct conn_events events;
    void *context;
    struct multistream select;
    struct bytes in, plain;
    int dialer, securities;
    int answered; /* the handshake's first bytes have come */
};

/* securities: CONN_NOISE | CONN_TLS, Noise preferred. expected: the dialed peer, or NULL. me is
 * borrowed. The dialer's first bytes lie in c->wire afterwards. */
int conn_init(struct conn *c, const struct identity *me, int dialer, int securities,
              const struct peer_id *expected, const struct conn_events *events, void *context);
void conn_clear(struct conn *c);

/* Bytes from the socket, or none to go on with what is left; answers go to c->wire. After an error
 * the state is CONN_CLOSED: write what is in c->wire, then close. */
int conn_receive(struct conn *c, const uint8_t *data, size_t n, double now, struct pl_err *err);
/* 1: more frames than CONN_FRAMES_A_TURN have come. The socket waits, and conn_receive is called
 * again when other connections have had their turn. */
int conn_has_more(const struct conn *c);
/* Call after any yamux_ function on c->yamux with &c->frames, and when the socket has taken bytes:
 * encrypts into c->wire and lets waiting streams fill it up to wire_high. */
int conn_flush(struct conn *c);
/* The socket has taken n bytes in this many seconds, during which bytes were always waiting. */
void conn_took(struct conn *c, size_t n, double seconds);
/* Keep-alive, once open. */
int conn_tick(struct conn *c, double now, struct pl_err *err);

#endif
