/* dial.h - from one multiaddr to a connection. [spec libp2p-wire 3, 14] */
#ifndef PL_DIAL_H
#define PL_DIAL_H

#include "listen.h"

#define DIAL_IPS_MAX 4 /* addresses of a name that are tried; a home network's name has two */

/* How a relayed address is dialed: the relay protocol registers it (host_protocol.h). */
typedef void circuit_done(void *context, struct connection *c, int status, const char *why);
struct circuit_dial;
struct circuit_transport {
    /* Called once; on PL_OK the connection has begun its handshakes. NULL: no relayed address. */
    struct circuit_dial *(*dial)(struct host *h, const struct multiaddr *through,
                                 const struct peer_id *to, circuit_done *done, void *context);
    void (*cancel)(struct circuit_dial *d);
    /* Our addresses through relays, without our ID. Returns how many were stored, at most max. */
    size_t (*addresses)(const struct host *h, struct multiaddr *out, size_t max);
};

struct dialing {
    struct host_core *core;
    struct connections *connections;
    const struct listening *listening;
    const struct circuit_transport *circuits; /* NULL: no relayed address can be dialed */
};

/* The local port of a connection that we make.
 *
 * LISTENING: a router maps it as it maps the port that we listen on, so others may reach us at the
 * address that our peers observe. FREE: no router has a mapping for it yet, so it suits tests
 * whether another peer is reachable. */
enum dial_port { DIAL_LISTENING_PORT, DIAL_FREE_PORT };

struct dial;
/* status PL_OK: connected to `peer`. d is gone afterwards. */
typedef void dial_done(void *context, struct dial *d, int status, const struct peer_id *peer,
                       const char *why);
/* expected: the peer that must answer, or NULL. done is called later, never from in here. NULL: no
 * memory. */
struct dial *dial_new(struct dialing *of, const struct multiaddr *a, const struct peer_id *expected,
                      enum dial_port port, dial_done *done, void *context);
/* Before it begins: the other side has asked for it, so it is charged as a connection that it
 * dialed. listens: we play the listener above TCP. keeps_port: it fails rather than leave from a
 * free port. */
void dial_invited(struct dial *d, int listens, int keeps_port);
/* Cancels: the dial is dropped, and done is not called. */
void dial_abandon(struct dial *d);
/* The same, but a connection whose handshakes have begun continues by itself. */
void dial_release(struct dial *d);
const struct multiaddr *dial_address(const struct dial *d);
/* 1: the socket is connected, and the handshakes are under way. */
int dial_in_handshake(const struct dial *d);

#endif
