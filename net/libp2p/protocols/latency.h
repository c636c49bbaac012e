/* latency.h - how far away the peers of a run are: each is pinged now and then, a few at a time.
 * [spec page-and-tools 6: round-trip times] [spec libp2p-wire 10] */
#ifndef PL_LATENCY_H
#define PL_LATENCY_H

#include "net/libp2p/host/host.h"

#define LATENCY_MAX 256     /* peers; a page's table shows 200 */
#define LATENCY_AT_ONCE 8   /* pings under way */
#define LATENCY_EVERY 60.0  /* s between two of one peer */
#define LATENCY_TIMEOUT 5.0 /* s to connect, agree and answer */

struct distance {
    struct peer_id peer;
    double rtt_s; /* NAN: it did not answer the last time */
    int relayed;  /* 1: through another peer */
};

struct latency;
/* From any thread but the loop's. h is borrowed. PL_OK or PL_ENOMEM. */
int latency_open(struct latency **d, struct host *h);
/* These are the peers now, at most LATENCY_MAX of them; others are forgotten. Peers that are due
 * are pinged. Stores the known latencies in out (capacity LATENCY_MAX) and returns their number: a
 * peer that was not tried yet is not among them. From any thread but the loop's. */
size_t latency_update(struct latency *d, struct distance *out, const struct peer_id *peers,
                      size_t count);
/* Starts no further pings. To be called before the host is closed, which ends the pending ones.
 * From any thread but the loop's. NULL may be stopped. */
void latency_stop(struct latency *d);
/* After the host was closed. NULL may be closed. */
void latency_close(struct latency *d);

#endif
