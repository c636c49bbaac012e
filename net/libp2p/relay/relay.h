/* relay.h - circuit relay v2: connections through a peer that both sides can reach, for peers
 * behind NAT. Small and short ones: look-ups and matchmaking, not averaging. [spec libp2p-wire
 * 14] */
#ifndef PL_RELAY_H
#define PL_RELAY_H

#include "net/libp2p/host/host.h"
#include "relay_message.h"

/* Our limits as a relay; go-libp2p's figures. resources.c limits the reservations and circuits of
 * each peer. */
#define RELAY_RESERVATION_S 3600.0
#define RELAY_CIRCUITS_PER_PEER 16 /* that lead to one */
#define RELAY_CIRCUIT_S 120
#define RELAY_CIRCUIT_BYTES 131072 /* in each direction */
#define RELAY_LIMIT 15.0           /* s for each step of setting a circuit up */
#define RELAY_RETRY 30.0           /* s after which a lost reservation is asked for again */

/* Serves hop (only with host_options.relay, never in client mode) and stop, and is the host's
 * circuit transport: it dials relayed addresses. */
extern const struct host_protocol relay_protocol;

/* Keeps a reservation at that peer, which must be in the address book or connected, until
 * relay_leave; advertises our addresses through it. PL_ENOMEM or PL_OK. */
int relay_use(struct host *h, const struct peer_id *relay);
void relay_leave(struct host *h, const struct peer_id *relay);
/* 1 while there is a reservation, or one is asked for. */
int relay_is_used(const struct host *h, const struct peer_id *relay);
/* 1 while the reservation holds, so that our address through it can be advertised. */
int relay_has_reservation(const struct host *h, const struct peer_id *relay);
/* Our addresses through relays, without our ID. Returns how many were stored. */
size_t relay_addresses(const struct host *h, struct multiaddr *out, size_t max);

#endif
