/* stream_open.h - a stream to a peer, connecting first if need be. */
#ifndef PL_STREAM_OPEN_H
#define PL_STREAM_OPEN_H

#include "net/libp2p/connections/peer_routing.h"
#include "stream.h"

struct streams;

/* Data written at once are sent with the negotiation. timeout_s: to connect and negotiate. NULL: no
 * memory. */
struct stream *streams_open(struct streams *all, const struct peer_id *peer, const char *protocol,
                            double timeout_s, enum routing_effort effort,
                            const struct stream_events *events, void *context);
/* On a connection of the caller's choice, which is open. */
struct stream *stream_open_on(struct connection *c, const char *protocol, double timeout_s,
                              const struct stream_events *events, void *context);

#endif
