/* host_protocol.h - registration of libp2p's protocols with a host, and their view of it.
 *
 * A protocol has a `struct host_protocol`, whose address is its name, and a state that the host
 * keeps for it. It serves streams by host_serve, gets events of connections by host_watch, and may
 * register as the peer router (Kademlia) or the circuit transport (circuit relay). The host names
 * none of them: net/libp2p/libp2p.c says which ones a hivemind peer has. All on the loop's
 * thread. */
#ifndef PL_HOST_PROTOCOL_H
#define PL_HOST_PROTOCOL_H

#include "host.h"
#include "net/libp2p/connections/peer_routing.h"
#include "net/libp2p/connections/punch.h"
#include "net/libp2p/streams/stream_open.h"

#define PROTOCOLS_MAX 8 /* that join one host; there are eight */

struct host_protocol {
    int (*start)(struct host *h); /* PL_OK or a status, which fails host_open. May be NULL */
    void (*stop)(struct host *h); /* the host closes: ends all operations. May be NULL */
    void (*free)(struct host *h); /* the last connection is gone. May be NULL */
};

/* Starts a protocol; does nothing if it has joined before. PL_ELIMIT beyond PROTOCOLS_MAX. */
int host_join(struct host *h, const struct host_protocol *p);
/* The protocol's state; NULL before it has set one. */
void *host_state(const struct host *h, const struct host_protocol *p);
void host_set_state(struct host *h, const struct host_protocol *p, void *state);

/* Borrowed; NULL takes it back. */
void host_set_router(struct host *h, const struct peer_router *router);
void host_set_circuits(struct host *h, const struct circuit_transport *circuits);

/* --- a protocol's view of the host ------------------------------------------------------------ */

struct peers *host_peerstore(struct host *h);
/* In the peerstore, or NULL. */
struct peer *host_find_peer(const struct host *h, const struct peer_id *id);
struct connections *host_connections(struct host *h);
int host_is_client(const struct host *h); /* host_options.client_mode */
int host_relays(const struct host *h);    /* host_options.relay */
int host_maps_port(const struct host *h); /* host_options.map_port */
const char *host_agent(const struct host *h);
/* The i-th protocol that is served, or NULL. */
const char *host_service_name(const struct host *h, size_t i);
/* As host_addresses, without our ID at the end. */
size_t host_own_addresses(const struct host *h, struct multiaddr *out, size_t max);
/* host_dial from a port of its own (enum dial_port): whether the peer can be reached from
 * outside. */
struct host_wait *host_dial_back(struct host *h, const struct multiaddr *a, double timeout_s,
                                 host_done *done, void *context);

/* punch_start of this host. */
struct punch *host_punch(struct host *h, const struct peer_id *peer, const struct multiaddr *to,
                         size_t count, enum punch_role role, punch_done *done, void *context);
/* Our address of that IP version as others see it: the one that observers agree on (*agreed 1),
 * otherwise the one reported last. PL_ENOTFOUND: none was reported. */
int host_observed_address(const struct host *h, int family, struct multiaddr *a, int *agreed);

/* The address at which our router forwards a port to us; NULL: none. Calls the watchers where that
 * is a change. */
void host_set_mapped(struct host *h, const struct multiaddr *outside);
/* Our addresses have changed: calls the watchers. */
void host_changed(struct host *h);
/* The peer at the other end of that connection sees us at that address (identify). */
void host_observe(struct host *h, const struct connection *c, const struct multiaddr *seen);
/* Identify has received a peer's data: calls the watchers. */
void host_identified(struct host *h, const struct peer_id *peer);
/* A stream, but other peers are not asked for addresses: for callers that search themselves. */
struct stream *stream_open_known(struct host *h, const struct peer_id *peer, const char *protocol,
                                 double timeout_s, const struct stream_events *events,
                                 void *context);

#endif
