/* callers.h - in a moderated swarm only members exchange anything: streams that peers open to us
 * wait until their peer has shown an access token to our DHT node, and so do our calls. */
#ifndef PL_CALLERS_H
#define PL_CALLERS_H

#include "net/hivemind/dht/dht_node.h"
#include "net/libp2p/rpc/rpc.h"

/* A stream that a peer has opened: the first member of what its owner stores for it. */
struct caller {
    struct caller_list *list;
    struct rpc_stream *stream;
    struct dht_task *proof; /* its token is being requested */
    uint64_t subnet;        /* of its peer */
    int is_protected;       /* its peer is a groupmate or a bootstrap peer */
    int is_served;          /* set by the owner: it keeps its place; others only wait */
    struct caller *next, *prev;
};
struct caller_list { /* the newest first */
    struct dht_node *node;
    void *owner; /* the service whose callbacks handle these streams */
    struct caller *first;
    size_t count;
    size_t max, peer_max;            /* places; of one peer */
    void (*evict)(struct caller *c); /* refuses and frees one that waits */
};

/* 1: there is a place for one more stream of this peer. A peer has peer_max of them; when all are
 * taken, caller_make_place decides. */
int caller_has_place(struct caller_list *l, const struct peer_id *peer);
/* Evicts the newest that waits, of the subnet with the most places, if they are more than this
 * peer's subnet has: addresses cost more than identities. A groupmate or a bootstrap peer takes any
 * other's place, and keeps its own. Returns 0 if none has to go. */
int caller_make_place(struct caller_list *l, const struct peer_id *peer);
/* Puts a stream that a peer has opened into a list; the caller is the events' context. */
void caller_add(struct caller_list *l, struct caller *c, struct rpc_stream *s,
                const struct rpc_stream_events *events);
/* 1: it may go on; if c->proof is set, when `admitted` has been called with PL_OK, and until then
 * it is paused. 0: it has been refused; close it. */
int caller_admit(struct caller *c, dht_admitted *admitted);
void caller_refuse(struct caller *c);
/* Closes the stream; the memory is its owner's to free. */
void caller_remove(struct caller *c);

/* 1: before we call this peer dht_node_admit comes first. */
int caller_needs_token(const struct dht_node *n, const struct peer_id *peer, int client_mode);

#endif
