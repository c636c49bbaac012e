/* swarm.h - a peer of a swarm: a network thread, a libp2p host on it, a DHT node on that. Its
 * functions wait; they may be called from any thread but the network's. */
#ifndef PL_SWARM_H
#define PL_SWARM_H

#include "net/hivemind/dht/dht_node.h"
#include "net/libp2p/connections/resources.h"

#include <pthread.h>

#define SWARM_ADDRESSES_MAX 16 /* of our own; a machine has a handful */

struct swarm_options {
    const char *cmd;           /* for messages */
    const char *const *listen; /* none: a client, which others cannot dial */
    size_t listen_count;
    const char *const *announce;
    size_t announce_count;
    const char *const *join;
    size_t join_count;
    const char *identity; /* file; NULL: a fresh one */
    int visitor;          /* 1: listens, if asked to, but stays out of routing tables */
    int relay;
    int no_port_mapping; /* 1: the router is not asked to forward our port */
    int hold;            /* 1: joins the DHT at swarm_enter only */
    const struct validators *validators;
    struct auth *auth;
};

struct swarm {
    struct loop *loop;
    struct identity me;
    struct host *host;
    struct dht_node *node;
    /* private */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* of CLOCK_MONOTONIC */
    int tries, joined;      /* attempts to join, and whether the last succeeded */
    struct pl_err why;
};

/* PL_OK, or PL_EUSE with a sentence that says what to do. A peer's address needs a host and /tcp.
 * With /p2p the handshake proves the peer ID; without it any peer may be there. */
int swarm_check_peer_address(const char *text, struct pl_err *err);
/* One of ours, to listen at or to announce: any multiaddr. */
int swarm_check_own_address(const char *text, struct pl_err *err);

/* Listens (if asked to) and opens the node; returns without waiting until it has joined. */
int swarm_open(struct swarm *s, const struct swarm_options *o, struct pl_err *err);
/* After `hold`. */
void swarm_enter(struct swarm *s);
/* Waits until the first attempt to join has ended: PL_OK, or PL_EIO and err says why of each
 * initial peer. The node goes on trying; ask again. PL_EAGAIN: it has not ended within limit_s
 * (0: no limit). */
int swarm_wait_joined(struct swarm *s, double limit_s, struct pl_err *err);
void swarm_close(struct swarm *s);

/* Our address with /p2p that most others can reach: not this machine's loopback, if there is
 * another. text holds MULTIADDR_TEXT_MAX bytes. PL_ENOTFOUND: none. */
int swarm_address_for_others(struct swarm *s, char *text);
/* All of them, at most `max`; returns how many. */
size_t swarm_addresses(struct swarm *s, struct multiaddr *addresses, size_t max);
void swarm_status(struct swarm *s, struct dht_status *status);
void swarm_resources(struct swarm *s, struct resources *copy); /* only its sums may be read */

/* As dht_node_get, _store, _ping; *r is cleared with dht_result_clear. */
int swarm_get(struct swarm *s, struct dht_result *r, const struct dht_id *key, int latest);
int swarm_store(struct swarm *s, const struct dht_id *key, const struct bytes *subkey,
                const struct bytes *value, double expiration);
int swarm_ping(struct swarm *s, struct dht_pong *pong, struct pl_err *err,
               const struct peer_id *peer);
double swarm_time(struct swarm *s);

#endif
