/* peer_routing.h - from a peer ID to a connection. [spec libp2p-wire 11] */
#ifndef PL_PEER_ROUTING_H
#define PL_PEER_ROUTING_H

#include "dial.h"
#include "watch.h"

/* Asks other peers for a peer's addresses: the Kademlia protocol registers it (host_protocol.h).
 * The addresses go into the peerstore. */
typedef void router_done(void *context, int status, const char *why);
struct router_query;
struct peer_router {
    /* NULL: no memory, done is not called. */
    struct router_query *(*find)(struct host *h, const struct peer_id *id, double timeout_s,
                                 router_done *done, void *context);
    void (*cancel)(struct router_query *q);
};

struct routing {
    struct host_core *core;
    struct dialing *dialing;
    const struct peer_router *router; /* NULL: no peer can be asked */
    struct host_wait *waits;          /* for one address, or completed: not those of a search */
};

enum routing_effort {
    ROUTING_KNOWN, /* only addresses in the peerstore: for callers that search themselves */
    ROUTING_ASK    /* other peers are asked when those are used up */
};

/* A connection to the peer: the one that is there, or a new one. NULL: no memory, or the host
 * closes. */
struct host_wait *routing_connect(struct routing *r, const struct peer_id *id, double timeout_s,
                                  enum routing_effort effort, host_done *done, void *context);
/* Dials one address, whatever is open already. */
struct host_wait *routing_dial(struct routing *r, const struct multiaddr *a, double timeout_s,
                               enum dial_port port, host_done *done, void *context);
/* The peer has a new connection or address, whether or not we searched for it. */
void routing_peer_changed(const struct peer *p);
/* Every wait ends with PL_EIO. */
void routing_close(struct routing *r);

#endif
