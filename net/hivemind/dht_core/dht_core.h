/* dht_core.h - the state that all parts of a node share: host and loop, tables and records, clock,
 * and known peers. The parts (calls, walks, gets, puts, ...) include this, and each other only
 * downwards; dht_node_internal.h puts them together. */
#ifndef PL_DHT_CORE_H
#define PL_DHT_CORE_H

#include "net/libp2p/host/host.h"
#include "net/hivemind/kademlia/dht_search.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/moderation/auth.h"
#include "dht_blacklist.h"
#include "dht_members.h"
#include "dht_task.h"

/* One of the addresses that we were given to join by. */
struct dht_initial {
    struct dht_join *join;
    struct multiaddr address;
    struct peer_id peer; /* once known */
    struct dht_id id;    /* of its node; INITIAL_GOOD: as it last reported */
    struct host_wait *dialling;
    enum { INITIAL_IDLE, INITIAL_TRYING, INITIAL_GOOD, INITIAL_BAD } state;
    double clock_error; /* NAN: not known */
    int available;      /* 1: it could open a connection to us */
    int is_protected;   /* 1: the host keeps our connection to it */
    char why[320];      /* INITIAL_BAD; may begin with the address */
};

struct dht_core {
    struct host *host;
    struct loop *loop;
    struct dht_state state;     /* routing table and records */
    struct dht_caller self;     /* the origin of records that we store ourselves */
    struct validators fallback; /* when none were given */
    struct auth *auth;          /* NULL: the swarm is not moderated */
    double call_limit;          /* s */
    double clock_offset;        /* s that DHT time is ahead of the machine's clock */
    double clock_base;          /* s from the time since boot to the machine's clock; 0: not held */
    double round_trip;          /* s that answers take, smoothed; 0: none has come yet */
    int wants_client_mode;      /* as opened; state.client_mode also depends on reachability */
    struct dht_blacklist blacklist;
    struct dht_blacklist vain; /* nodes that report others that do not answer */
    struct dht_members members;
    struct dht_initial *initials; /* of dht_join.c */
    size_t initial_count;
    int asks_initials; /* 1: while joining waits for initial peers */
    void (*wake)(void *context);
    void *context;
    uint64_t calls_made, calls_failed, calls_served;
};

double dht_core_time(const struct dht_core *c); /* DHT time, s since 1970 */
/* From the first exchange with another node on, DHT time follows the time since boot: the machine's
 * clock may be set while we run, and a peer whose time jumps would no longer see the others'
 * records, and they would not see its own. */
void dht_core_hold_clock(struct dht_core *c);
/* 1: do not ask this peer, nor believe those that report it. */
int dht_core_avoids(const struct dht_core *c, const struct peer_id *peer);
/* Reports the memory of the records to the host, and adopts its limits. */
void dht_core_count_records(struct dht_core *c);
/* A hash of the /24 (IPv4) or /64 (IPv6) that a peer is connected from, or of the loopback address
 * (SCOPE_MACHINE in resources.h); 0: not known. */
uint64_t dht_core_subnet(const struct dht_core *c, const struct peer_id *peer);
/* The initial peers nearest to the key that have answered, at most DHT_SEARCH_TRUSTED: peers that
 * joined by the same ones choose the same. Returns how many. */
size_t dht_core_trusted(const struct dht_core *c, struct dht_contact out[DHT_SEARCH_TRUSTED],
                        const struct dht_id *key);
/* A peer answered, after this many seconds. */
void dht_core_answered(struct dht_core *c, const struct peer_id *peer, double seconds);
/* s of silence after which other nodes' answers suffice: more on a slow link or a busy machine. */
double dht_core_patience(const struct dht_core *c);
/* There is something to do in this iteration of the loop, but not inside of the caller. */
void dht_core_wake(struct dht_core *c);

#endif
