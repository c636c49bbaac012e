/* preflight_ask.h - the questions of a check-up: one at a time, each waited for, on any thread but
 * the loop's. checkup.c says what their answers mean. */
#ifndef PL_CMD_CHECKUP_ASK_H
#define PL_CMD_CHECKUP_ASK_H

#include "net/hivemind/swarm/swarm.h"

#define PROBE_LIMIT 10.0 /* s for each question */

/* Whoever asks may be told to stop: from then on every question ends at once, with PL_EAGAIN. */
struct probe_stop {
    int wanted;
};

struct probe {
    struct swarm *s;
    const struct probe_stop *stop; /* under the swarm's lock */
    struct multiaddr at;           /* what is dialled; after probe_reach where we were reached */
    struct peer_id peer;           /* whom it is about; after probe_dial who answered */
    double seconds;                /* of the last answer */
    char why[512];                 /* a sentence, after one that went wrong */
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
int probe_reach(struct probe *p);
int probe_call(struct probe *p, const char *name, const struct bytes *request);
/* For everybody who asks with it. */
void probe_stop(struct swarm *s, struct probe_stop *stop);
int probe_is_stopped(struct swarm *s, const struct probe_stop *stop);

/* What a connection shows without asking. */
struct probe_view {
    int relays;                   /* the peer carries connections for others */
    struct multiaddr seen, local; /* our end as the peer sees it; as we do */
    int has_seen, has_local;
};
/* Waits a little until the peer has said what it serves. */
void probe_look(struct probe *p, struct probe_view *v);

#endif
