/* ping.h - is a peer there, and how far away. [spec libp2p-wire 10] */
#ifndef PL_PING_H
#define PL_PING_H

#include "net/libp2p/host/host.h"

#define PING_BYTES 32
#define PING_IDLE_LIMIT 60.0 /* s that a pinger may leave its stream open */

extern const struct host_protocol ping_protocol; /* answers pings */

/* One ping; rtt_s without the time to connect and agree. why: a sentence when status is not
 * PL_OK. */
typedef void ping_done(void *context, int status, double rtt_s, const char *why);
int ping_peer(struct host *h, const struct peer_id *peer, double timeout_s, ping_done *done,
              void *context);

#endif
