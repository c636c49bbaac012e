/* resources.h - the use of this host by its peers, counted as in go-libp2p's resource manager: an
 * engine without sockets or clocks. [spec libp2p-wire 16]
 *
 * Each connection has an account. Its use is charged to several scopes at once:
 *
 *   system     all strangers together, or
 *   reserved   peers that we protect: groupmates, bootstrap peers; and connections that we dialed.
 *              Strangers cannot use it up
 *   transient  connections that have not proven an identity yet
 *   subnet     an IPv4 /24 or an IPv6 /64: one owner may have many addresses of it
 *   machine    in place of a subnet: one loopback address, behind which test swarms live
 *   peer       one peer ID, over all of its connections
 *   protocol   inbound streams of one protocol
 *
 * A request beyond a limit is refused. Where all strangers together reach the system's limit,
 * the largest holder has to go: not the newcomer, and not the oldest. */
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
    RESOURCE_RECORDS,    /* bytes of the DHT's that it has stored; they outlive its connections, so
                            * the DHT counts them by itself (records/dht_quota.h) */
    RESOURCE_HANDLER_US, /* microseconds that its bytes and handlers take on the loop, in this
                          * second */
    RESOURCES
};

const char *resource_name(enum resource kind); /* "held_bytes": as reports call it */

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

#define HANDLER_WINDOW 1.0 /* s; handlers' limits are for each of them */
/* When strangers have used the system's share of a second, a subnet that used less than an equal
 * share of this additional budget may continue. So a flood from one subnet does not delay the
 * others, and strangers together never get more than three quarters of the loop. */
#define HANDLER_EQUAL_US 250000u
/* Time above a peer's share is charged to the following seconds, at most five: honest peers give up
 * on a request after a few. */
#define HANDLER_DEBT_WINDOWS 5u

struct scope {
    enum scope_kind kind;
    uint8_t key[PEER_ID_MAX + 1];
    size_t used[RESOURCES];
    size_t accounts; /* that are charged to it; the last one frees it, once its time is paid for */
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
    size_t subnets;      /* subnets and machines in `scopes` */
    size_t limited;      /* how often a limit was reached */
    double window_at;    /* s; when the present second of handlers began */
    uint64_t handled_us; /* of all handlers since the host began */
};

/* Zero-initialise to begin. */
struct account {
    void *owner;                 /* the caller's, for resources_largest */
    struct resources *of;        /* NULL: closed, nothing is charged */
    struct scope *subnet, *peer; /* no peer before the handshake */
    size_t used[RESOURCES];
    double active_at; /* s; when it last did anything: the owner keeps it up to date */
    int dialed;       /* 1: by us */
    struct account *next, *prev;
};

/* descriptors: files that this process may have open, which bounds the connections. */
void resources_init(struct resources *r, size_t descriptors);
/* SIZE_MAX: no limit. */
size_t resources_limit(const struct resources *r, enum scope_kind scope, enum resource kind);
/* Frees the scopes; all accounts are closed before. */
void resources_clear(struct resources *r);

/* Opens the account of a connection with that address: transient until resources_authenticate.
 * Returns PL_OK or PL_ENOMEM. */
int resources_open(struct resources *r, struct account *a, const struct multiaddr *remote,
                   int dialed, double now);
/* The connection has proven its peer ID: its use is now charged to that peer. PL_OK or
 * PL_ENOMEM. */
int resources_authenticate(struct account *a, const struct peer_id *peer);
/* Gives back all that it uses; time on the loop stays charged. May be called twice. */
void resources_close(struct account *a);

/* Charges n more and returns NULL, or charges nothing and returns the scope that is full. */
const struct scope *resources_charge(struct account *a, enum resource kind, size_t n);
void resources_release(struct account *a, enum resource kind, size_t n);
/* Sets the system scope's total of a resource that is counted elsewhere and limited here. */
void resources_report(struct resources *r, enum resource kind, size_t n);
/* Sets the use to n, which exists already. Returns a scope that is above its limit now, or NULL. */
const struct scope *resources_count(struct account *a, enum resource kind, size_t n);
/* The largest holder within a full scope: in the subnet that uses the most, the peer that does, and
 * of its connections the fullest. Of connections themselves: in that subnet, the one that has been
 * idle longest. Protected peers are spared as long as there are others. NULL: none is used. */
struct account *resources_largest(struct resources *r, const struct scope *full,
                                  enum resource kind);

/* Time on the loop. Unlike the others it is not held and given back: each second every scope may
 * use its limit anew, and one that used more waits. So it is charged to the scopes, and stays
 * there when the account is closed: a peer that connects again has not paid. */
struct handler_charge {
    struct scope *peer, *subnet, *root; /* kept until resources_end_handler */
};
void resources_begin_handler(struct handler_charge *h, struct account *a);
void resources_end_handler(struct resources *r, struct handler_charge *h, size_t us);
/* 1: no handler may run for this account in the present second. */
int resources_must_wait(const struct account *a);
/* Begins a new second when one is over; `now` on the caller's clock. */
void resources_renew(struct resources *r, double now);

/* Counts an inbound stream of that protocol; NULL when too many are open, or no memory. */
struct scope *resources_enter_protocol(struct resources *r, const char *name);
void resources_leave_protocol(struct resources *r, struct scope *protocol); /* NULL may leave */

/* Protects a peer: its use is charged to the reserved scope. Calls are counted, and undone by as
 * many of resources_unprotect. PL_OK or PL_ENOMEM. */
int resources_protect(struct resources *r, const struct peer_id *peer);
void resources_unprotect(struct resources *r, const struct peer_id *peer);
int resources_protects(const struct resources *r, const struct peer_id *peer);

#endif
