/* dht_node.h - a node of the DHT: it joins, serves, stores, finds, and keeps its table in order.
 * [spec hivemind-protocol 1]
 *
 * Everything is called on the host's loop thread and calls back on it, never from inside the
 * function that asked. No callback may close the node. */
#ifndef PL_DHT_NODE_H
#define PL_DHT_NODE_H

#include "net/libp2p/rpc/rpc.h"
#include "net/hivemind/dht_core/dht_task.h"

struct dht_node;

struct dht_node_options {
    const char *const *join; /* multiaddrs with /p2p; none: the first node of a DHT */
    size_t join_count;
    int client_mode;                     /* 1: serves nothing and is not to be called */
    const struct validators *validators; /* borrowed; NULL: signatures are checked, ours not made */
    struct auth *auth;                   /* borrowed; NULL: no tokens */
    double call_limit_s;                 /* 0: DHT_CALL_LIMIT */
    int hold;                            /* 1: initial peers are asked from dht_node_enter on */
};

/* h is borrowed and outlives the node. PL_EUSE for addresses that make no sense. */
int dht_node_open(struct dht_node **n, struct host *h, const struct dht_node_options *o,
                  dht_joined *joined, void *context, struct pl_err *err);
/* After `hold`: enters now. Until then the node can ask others, but is not part of the DHT. */
void dht_node_enter(struct dht_node *n);
/* Requests under way end with PL_EAGAIN. NULL may be closed. */
void dht_node_close(struct dht_node *n);

/* Seconds since 1970 as the swarm sees them: our clock, corrected when it is wrong. */
double dht_node_time(const struct dht_node *n);

struct dht_status {
    struct dht_id id;
    int joined, client_mode;
    int reachable;       /* 0: others cannot call us; we behave like a client until they can */
    int relayed;         /* 1: others call us through a relay */
    double clock_offset; /* added by dht_node_time */
    double clock_error;  /* median difference to others' clocks; NAN: not known */
    size_t nodes, records, cached, initial, initial_answered;
    uint64_t calls_made, calls_failed, calls_served;
};
void dht_node_status(const struct dht_node *n, struct dht_status *s);
/* 1: other peers tried to open connections to us and none could, except perhaps through a relay,
 * which carries little. 0 for a client. */
int dht_node_is_behind_nat(const struct dht_node *n);

/* Returns 0 until the first reachability check has finished, a few seconds at most after we have
 * joined. Before that, a peer's role in a group may be wrong. */
int dht_node_knows_reachability(const struct dht_node *n);

/* Returns 0 if others cannot reach us even through a relay, as far as is known, or if we are a
 * client. */
int dht_node_is_reachable(const struct dht_node *n);

int dht_node_has_tokens(const struct dht_node *n); /* 1: the swarm is moderated */
/* Returns 1 in a swarm without tokens, or if the peer has shown an unexpired token. */
int dht_node_admits(const struct dht_node *n, const struct peer_id *peer);
/* The subnet that a connected peer's requests are charged to, as a hash; 0: not known. */
uint64_t dht_node_subnet(const struct dht_node *n, const struct peer_id *peer);
/* 1: a groupmate or a bootstrap peer. */
int dht_node_protects(const struct dht_node *n, const struct peer_id *peer);

struct dht_task; /* a get, a store, a ping under way; freed after its callback */
/* The callback will not be called; the operation itself may still take place. */
void dht_node_cancel(struct dht_task *t);

/* latest: 1 asks all of the nearest nodes for their newest record; 0 takes a local one or the first
 * that arrives. NULL: no memory. */
struct dht_task *dht_node_get(struct dht_node *n, const struct dht_id *key, int latest,
                              dht_got *got, void *context);

/* subkey: msgpack, NULL for a regular value. value: msgpack; it is signed if the subkey or key is
 * ours. stored may be NULL. */
struct dht_task *dht_node_store(struct dht_node *n, const struct dht_id *key, const void *subkey,
                                size_t subkey_n, const void *value, size_t value_n,
                                double expiration, dht_stored *stored, void *context);

/* validate: 1 lets it call us back, see `available`. */
struct dht_task *dht_node_ping(struct dht_node *n, const struct peer_id *peer, int validate,
                               dht_pinged *pinged, void *context);

/* Asks a peer for its token by a ping, which shows it ours. NULL: it has just been refused, or
 * too many are being asked; `admitted` is not called then. */
struct dht_task *dht_node_admit(struct dht_node *n, const struct peer_id *peer,
                                dht_admitted *admitted, void *context);

#endif
