/* averager_search_internal.h - an averager's way into a group: matchmaking over streams and the DHT
 * (averager_join.c), and what its gather message states of its reachability
 * (averager_reachability.c). */
#ifndef PL_AVERAGER_SEARCH_INTERNAL_H
#define PL_AVERAGER_SEARCH_INTERNAL_H

#include "net/hivemind/dht/dht_node.h"
#include "net/hivemind/matchmaking/matchmaking.h"
#include "net/hivemind/sharing/callers.h"
#include "net/libp2p/connections/watch.h"
#include "net/libp2p/rpc/rpc.h"

struct averager;

/* Our request to a leader. */
enum ask_state {
    ASK_NONE,
    ASK_ADMITTING, /* its token is being requested: `proof` */
    ASK_OPEN,      /* the request is sent: `stream` */
    ASK_FAILED     /* no call was possible: the engine must not be called from its own callback, so
                    * the timer reports it */
};

struct averager_search {
    struct matchmaking mm;
    struct host_watch watch; /* for connections that excuse a peer's failure */
    int status;              /* of the search that has ended */
    struct timer timer, reach_timer;
    struct dht_task *lookup;
    struct {
        enum ask_state state;
        struct peer_id leader;
        struct bytes request;
        struct dht_task *proof;
        struct rpc_stream *stream;
        struct pl_err why; /* of the last leader that could not be asked */
    } ask;
    struct caller_list requests; /* of peers that ask us to lead */
    struct bytes gather;         /* our own gather message, for groupmates */
    uint64_t number; /* in a round that may be verified: drawn for each search, part of `gather` */
    int behind_nat;  /* as `gather` states it */
};

int averager_join_open(struct averager *a, struct pl_err *err);
void averager_join_close(struct averager *a);
void averager_search(struct averager *a); /* begins one */
void averager_search_cancel(struct averager *a);
/* The gather message has changed: for leaders that are asked from now on, and for our followers. */
void averager_search_gather(struct averager *a);

/* In our gather message; 0 behind NAT, unless the last group has direct connections to us. */
double averager_stated_bandwidth(const struct averager *a);
/* Behind NAT although it is not in client mode. */
int averager_is_behind_nat(const struct averager *a);
/* Whether others can call us becomes known, and changes, while we search. 1: the gather message has
 * changed. */
int averager_check_reachability(struct averager *a);
/* Behind NAT: opens connections to those of our group that have none to us. */
void averager_connect_group(struct averager *a);
/* Not even through a relay; 0 for a client. */
int averager_cannot_be_called(const struct averager *a);

#endif
