/* host.h - a peer: listens, dials, keeps connections by peer ID, opens and serves streams.
 * [spec libp2p-wire]
 *
 * Everything here is called on the loop's thread, and calls back on it, except host_open (any
 * thread) and host_close (any other thread). No callback is called from inside the function that
 * asked for it. Streams: stream.h. Watchers: watch.h. The protocols that a peer needs beyond this
 * (identify, ping, Kademlia, relay, AutoNAT) join by libp2p.h. */
#ifndef PL_HOST_H
#define PL_HOST_H

#include "net/libp2p/peer/identity.h"
#include "net/libp2p/peer/multiaddr.h"
#include "net/loop/loop.h"
#include "net/libp2p/streams/stream.h"
#include "net/libp2p/connections/watch.h"

#define HOST_CLOSING_LIMIT 1.0 /* s for the last bytes at the end, as long as none move */
#define HOST_CLOSING_MAX 30.0  /* s for them in all: 7 MB at 2 Mbit/s */
#define HOST_LISTEN_MAX 16     /* addresses; a machine has a handful of interfaces */

struct host;

struct host_options {
    const struct identity *me; /* borrowed until host_close */
    const char *const *listen; /* "/ip4/0.0.0.0/tcp/0" and so on; none: a peer that only dials */
    size_t listen_count;
    const char *const *announce; /* multiaddrs advertised in place of the listening ones */
    size_t announce_count;
    int securities; /* CONN_NOISE | CONN_TLS; 0: both */
    /* 1: serves neither look-ups nor relays, is in no routing table */
    int client_mode;
    int relay;         /* 1: carries connections for others */
    int map_port;      /* 1: asks the router to forward the listening port (relay/port_mapping.h) */
    const char *agent; /* NULL: "potluck/VERSION" */
};

struct host_protocol;

/* Opens a host with these protocols, started in their order (libp2p_open has hivemind's). l is
 * borrowed and outlives the host. When it returns, the host listens. PL_EUSE: an option is wrong;
 * PL_EIO: it cannot listen there; PL_ENOMEM. */
int host_open(struct host **h, struct loop *l, const struct host_options *o,
              const struct host_protocol *const *protocols, size_t protocol_count,
              struct pl_err *err);
/* Not from the loop's thread. Ends all operations (pending callbacks get PL_EIO), sends all queued
 * output, within HOST_CLOSING_MAX, and frees the host. NULL may be closed. */
void host_close(struct host *h);

struct loop *host_loop(const struct host *h);
const struct peer_id *host_id(const struct host *h);
const struct identity *host_identity(const struct host *h);
/* Our addresses, /p2p/ID at the end: announced, or listening, and relayed. Returns how many it has
 * stored, at most max. */
size_t host_addresses(const struct host *h, struct multiaddr *out, size_t max);

/* Borrowed until host_unwatch. */
void host_watch(struct host *h, struct host_watch *w);
void host_unwatch(struct host *h, struct host_watch *w);

/* --- peers and addresses ---------------------------------------------------------------------- */

/* s that an address is kept after it was reported, as hivemind's p2pd does */
#define HOST_ADDRESS_TTL 1800.0

/* Adds an address to the peerstore for ttl_s seconds; 0: for good. A /p2p at its end must be the
 * peer's: PL_EPROTO. PL_ELIMIT: its list is full of better ones. PL_ENOMEM. */
int host_learn(struct host *h, const struct peer_id *peer, const struct multiaddr *a, double ttl_s);
int host_is_connected(const struct host *h, const struct peer_id *peer);
/* 1: connected, and not through a relay. */
int host_is_direct(const struct host *h, const struct peer_id *peer);
/* The far end of our best connection, for people and checks. PL_ENOTFOUND when there is none. */
int host_remote_address(const struct host *h, const struct peer_id *peer, struct multiaddr *a);
/* Our own end of it. */
int host_local_address(const struct host *h, const struct peer_id *peer, struct multiaddr *a);
/* 1 if the peer's identify message names the protocol. */
int host_peer_serves(const struct host *h, const struct peer_id *peer, const char *protocol);
/* Bytes written to the peer that it has not confirmed: in our buffers, the kernel's and the
 * network's. */
size_t host_unconfirmed(const struct host *h, const struct peer_id *peer);
/* Our address as this peer sees it. PL_ENOTFOUND before its identify message. */
int host_observed(const struct host *h, const struct peer_id *peer, struct multiaddr *a);
/* 1: that address, at which others see us, is a router's in front of us. */
int host_is_translated(const struct host *h, const struct multiaddr *seen);
/* 1: our router forwards a port to us. */
int host_is_mapped(const struct host *h);
/* A groupmate or a bootstrap peer: its use is charged to a share that strangers cannot use up,
 * and its requests are not held back. Calls are counted. PL_OK or PL_ENOMEM. */
int host_protect(struct host *h, const struct peer_id *peer);
void host_unprotect(struct host *h, const struct peer_id *peer);
int host_protects(const struct host *h, const struct peer_id *peer);
struct resources;
struct resources *host_resources(struct host *h); /* use of the host by its peers: resources.h */

/* A connection to the peer: the one that is there, or dialed from the peerstore, or found by
 * asking connected peers. NULL: no memory (done is not called then). */
struct host_wait *host_connect(struct host *h, const struct peer_id *peer, double timeout_s,
                               host_done *done, void *context);
/* Dials an address, whatever is open already. If it names no peer, any peer that answers will
 * do. */
struct host_wait *host_dial(struct host *h, const struct multiaddr *a, double timeout_s,
                            host_done *done, void *context);

/* --- streams ---------------------------------------------------------------------------------- */

/* Opens a stream to a peer, connecting first if need be. Data written at once are sent with the
 * negotiation. timeout_s: to connect and negotiate. NULL: no memory. */
struct stream *stream_open(struct host *h, const struct peer_id *peer, const char *protocol,
                           double timeout_s, const struct stream_events *events, void *context);
/* Serves a protocol: see stream_opened. PL_EUSE: it is served already; PL_ELIMIT; PL_ENOMEM. */
int host_serve(struct host *h, const char *protocol, stream_opened *opened, void *context);
void host_unserve(struct host *h, const char *protocol);

#endif
