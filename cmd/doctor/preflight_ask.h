/* preflight_ask.h - the requests that the preflight checks make to a peer, one at a time. Each call
 * waits for its answer, on any thread but the loop's. */
#ifndef PL_CMD_PREFLIGHT_ASK_H
#define PL_CMD_PREFLIGHT_ASK_H

#include "net/hivemind/swarm/swarm.h"

#define PROBE_LIMIT 10.0 /* s for each request */

/* Once wanted, every request ends at once with PL_EAGAIN. */
struct probe_stop {
    int wanted;
};

struct probe {
    struct swarm *s;
    const struct probe_stop *stop; /* under the swarm's lock */
    struct multiaddr
        at; /* address to dial; after probe_reachability the one where we were reached */
    struct peer_id peer; /* the peer asked; after probe_dial the one that answered */
    double seconds;      /* of the last answer */
    char why[512];       /* a sentence, after one that went wrong */
    /* private */
    const char *call;
    const struct bytes *request;
    void (*cancel)(struct probe *p);
    void *under_way;
    int done, status;
};

/* The status of host_dial, ping_peer, autonat_ask, rpc_call_unary. */
int probe_dial(struct probe *p); /* PL_OK at once where p->at is connected already */
int probe_ping(struct probe *p);
int probe_reachability(struct probe *p);
int probe_call(struct probe *p, const char *name, const struct bytes *request);
/* For all probes that share it. */
void probe_stop(struct swarm *s, struct probe_stop *stop);
int probe_is_stopped(struct swarm *s, const struct probe_stop *stop);

/* Identify's report about a connection. */
struct probe_view {
    int relays;                   /* the peer is a relay */
    struct multiaddr seen, local; /* our address as the peer sees it; as we do */
    int has_seen, has_local;
};
/* Waits up to IDENTIFY_WAIT until the peer has identified itself. */
void probe_identity(struct probe *p, struct probe_view *v);

#endif
