/* peerstore.h - known peers: addresses with expiry and back-off, protocols, connections. A table
 * without sockets or clocks. [spec libp2p-wire 4, 9, 11] */
#ifndef PL_PEERS_H
#define PL_PEERS_H

#include "multiaddr.h"

#define PEERS_MAX 8192        /* known at once; a swarm of thousands is met in small pieces */
#define PEER_ADDRESSES_MAX 16 /* of one peer; honest ones have a handful */
#define PEER_PROTOCOL_TEXT_MAX 16384 /* bytes of their names */
#define PEER_AGENT_MAX 16            /* bytes of its agent's name, with the zero at the end */
#define BACKOFF_FIRST 5.0            /* s until an address that failed is dialed again; doubles */
#define BACKOFF_MAX 300.0

struct address {
    struct multiaddr at; /* without the peer's own /p2p at the end */
    double expires;      /* s; INFINITY: never */
    double retry_at;     /* s; not dialed by itself before */
    int failures;
};

struct connection;
struct peer_search;

struct peer {
    struct peer_id id;
    uint8_t place[32]; /* where Kademlia puts it: its ID's SHA-256 */
    struct address *addresses;
    size_t address_count;
    char *protocols; /* as identify named them: texts, each ending in a zero byte */
    size_t protocol_bytes;
    char agent[PEER_AGENT_MAX]; /* the beginning of its program's name and version; "": unknown */
    int identified;             /* 1: we know its protocols */
    int serves_kad;
    uint64_t record_seq;            /* of its newest signed record */
    struct multiaddr observed;      /* our address as it sees it; length 0: unknown */
    struct connection *connections; /* open ones, newest first */
    struct peer_search *search;     /* the search for a connection that is under way */
    double seen;                    /* s, when we last had to do with it */
    struct peer *next;              /* in its bucket */
};

struct peers {
    struct peer **buckets;
    size_t bucket_count, count;
    uint64_t seed; /* against strangers that choose ids for one bucket */
};

void peers_clear(struct peers *t);
struct peer *peers_find(const struct peers *t, const struct peer_id *id);
/* Finds or makes it. A full table drops the peer that was seen longest ago and has no connection;
 * NULL if there is none, or no memory. */
struct peer *peers_get(struct peers *t, const struct peer_id *id, double now);
void peer_place(uint8_t place[32], const uint8_t *id, size_t n);
/* Visits all; fn must not change the table. */
void peers_each(const struct peers *t, void (*fn)(void *context, struct peer *p), void *context);
/* Drops addresses that are over, and peers without any. */
void peers_expire(struct peers *t, double now);

/* An address without any last /p2p, or with the peer's own. Known ones live on at least till
 * `expires`. PL_EPROTO: another peer's. PL_ELIMIT: its list is full of better ones. */
int peer_learn(struct peer *p, const struct multiaddr *a, double expires);
/* The result of dialing it: after a failure it waits BACKOFF_FIRST, twice as long each time. */
void peer_address_failed(struct peer *p, const struct multiaddr *a, double now);
void peer_address_worked(struct peer *p, const struct multiaddr *a);
/* Texts, each ending in a zero byte. */
int peer_set_protocols(struct peer *p, const char *texts, size_t n);
int peer_serves(const struct peer *p, const char *protocol);

/* From where an address can be reached: this machine, this network, or anywhere. */
enum address_scope { SCOPE_LOOPBACK, SCOPE_PRIVATE, SCOPE_PUBLIC };
enum address_scope multiaddr_scope(const struct multiaddr *a);
/* Whether an `address` that a peer reported, connected over `over`, is worth keeping: public peers
 * cannot know anything of our loopback or private network. [spec libp2p-wire 9, 16] */
int multiaddr_is_plausible(const struct multiaddr *address, const struct multiaddr *over);

#endif
