/* resources.h - who uses how much of this host, as go-libp2p's resource manager counts it: an engine
 * without sockets or clocks.
 *
 * Each connection has an account. What it uses is charged to several scopes at once:
 *
 *   system     all strangers together, or
 *   reserved   whom we have dialled or protect: groupmates, bootstrap peers. Strangers cannot use it up
 *   transient  connections that have not yet proven who they are
 *   subnet     an IPv4 /24 or an IPv6 /64: what one owner has many addresses of
 *   machine    in a subnet's place: one loopback address, behind which whole test swarms live
 *   peer       one peer ID, over all of its connections
 *   protocol   inbound streams of one protocol
 *
 * A request beyond a limit is refused. Where all together reach the system's limit, whoever uses the
 * most has to go: not the newcomer, not the oldest. */
#ifndef PL_RESOURCES_H
#define PL_RESOURCES_H

#include "net/libp2p/peer/multiaddr.h"

enum resource {
    RESOURCE_CONNECTIONS,
    RESOURCE_STREAMS,      /* opened by the other side */
    RESOURCE_HELD,         /* bytes that have come and lie unread: half a message, for one */
    RESOURCE_UNSENT,       /* bytes that wait for the other side to take them */
    RESOURCE_RESERVATIONS, /* with us as a relay */
    RESOURCE_CIRCUITS,     /* that it has asked for through us */
    RESOURCE_DIAL_BACKS,   /* that AutoNAT makes for it, each for a minute */
    RESOURCES
};

enum scope_kind {
    SCOPE_SYSTEM,
    SCOPE_RESERVED,
    SCOPE_TRANSIENT,
    SCOPE_SUBNET,
    SCOPE_MACHINE,
    SCOPE_PEER,
    SCOPE_PROTOCOL,
    SCOPES
};

struct scope {
    enum scope_kind kind;
    uint8_t key[PEER_ID_MAX + 1];
    size_t used[RESOURCES];
    size_t accounts;   /* that are charged to it; the last one frees it */
    size_t protectors; /* of a peer's: calls of resources_protect */
    size_t sum;        /* for resources_largest */
    struct scope *next;
};

struct account;

struct resources {
    size_t limits[SCOPES][RESOURCES];
    struct scope system, reserved, transient;
    struct scope *scopes; /* subnets, machines, peers, protocols */
    struct account *accounts;
    size_t limited; /* how often somebody has met a limit */
};

/* Zero-initialise to begin. */
struct account {
    void *owner;
    struct resources *of;        /* NULL: closed, nothing is charged */
    struct scope *subnet, *peer; /* no peer before the handshake */
    size_t used[RESOURCES];
    double active_at; /* s; when it last did anything: the owner's figure */
    int dialled;      /* 1: by us */
    struct account *next, *prev;
};

/* descriptors: files that this process may have open, which bounds the connections. */
void resources_init(struct resources *r, size_t descriptors);
size_t resources_limit(const struct resources *r, enum scope_kind scope, enum resource kind);

void resources_clear(struct resources *r); /* with all accounts closed */

/* Of a connection with that address; transient until resources_authenticate. PL_ENOMEM. */
int resources_open(struct resources *r, struct account *a, const struct multiaddr *remote,
                   int dialled, double now);
int resources_authenticate(struct account *a, const struct peer_id *peer);
/* Everything is given back. May be called twice. */
void resources_close(struct account *a);

/* Charges n more, or nothing: then the scope that is full. */
const struct scope *resources_charge(struct account *a, enum resource kind, size_t n);
void resources_release(struct account *a, enum resource kind, size_t n);
/* What is there already and only has to be counted: n in all. The scope above its limit, or NULL. */
const struct scope *resources_count(struct account *a, enum resource kind, size_t n);
/* The largest holder within a full scope: of the subnet that uses the most, the peer that does, its
 * fullest connection. Of connections themselves: in that subnet, the one that has been idle longest.
 * Protected peers are spared as long as there are others. NULL: nobody uses any. */
struct account *resources_largest(struct resources *r, const struct scope *full,
                                  enum resource kind);

/* An inbound stream of that protocol; NULL when too many are open, or no memory. */
struct scope *resources_enter_protocol(struct resources *r, const char *name);
void resources_leave_protocol(struct resources *r, struct scope *protocol); /* NULL may leave */

/* Counts: what a protected peer uses is charged to the reserved scope. PL_ENOMEM. */
int resources_protect(struct resources *r, const struct peer_id *peer);
void resources_unprotect(struct resources *r, const struct peer_id *peer);

#endif
