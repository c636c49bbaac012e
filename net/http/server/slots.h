/* slots.h - a fixed number of slots, such as a server's connections, shared by addresses. An
 * engine: no socket, no clock.
 *
 * No newcomer is refused while a slot is free, so one address may hold most of them. When all
 * are taken, a newcomer gets the slot of another:
 *
 *   1. of those that still wait for a request, the oldest of the network that has most of them;
 *   2. if none waits, the oldest of the network that holds most slots, but only if that is
 *      more than the newcomer's network then has; otherwise the newcomer is refused.
 *
 * A network is a /24 of IPv4 or a /64 of IPv6, the block that one customer gets from a provider.
 * Within a network the same holds for its addresses. So the holder of many slots pays for all
 * newcomers, silent connections last only until a slot is needed, and a slot in use is lost only to
 * a network with fewer. */
#ifndef PL_HTTP_SLOTS_H
#define PL_HTTP_SLOTS_H

#include "ref/base.h"

struct sockaddr;

/* An IPv6 address; an IPv4 address is ::ffff:a.b.c.d [RFC 4291 2.5.5.2]. */
struct http_address {
    uint8_t octets[16];
};
/* For other address families: all zero. */
void http_address_of(struct http_address *out, const struct sockaddr *from);
/* The network that it is counted in: the same address, the rest of it zero. */
void http_network_of(struct http_address *out, const struct http_address *address);

/* Held by the caller as long as it is in the table. */
struct slot {
    struct slot_holder *network, *address; /* NULL: in no table */
    struct slot *next, *previous;          /* those that changed earlier stand in front */
    int is_waiting;                        /* for a request to be complete */
    double since;                          /* s: it has been waiting, or in use */
};

struct slots {
    size_t limit, count;
    struct slot *first, *last;
};

/* Takes a slot for `from`, in use or waiting. *evicted: the slot that was taken for it, which
 * has left the table; NULL: none. PL_ELIMIT: the newcomer is refused; PL_ENOMEM. On error `slot`
 * is in no table. */
int slots_add(struct slots *s, struct slot *slot, struct slot **evicted,
              const struct http_address *from, int is_waiting, double now);
/* No effect on a slot that is in no table. */
void slots_remove(struct slots *s, struct slot *slot);
void slots_set_waiting(struct slots *s, struct slot *slot, int is_waiting, double now);
/* Removes and returns a slot that has been waiting since before `deadline`. NULL: none. */
struct slot *slots_take_overdue(struct slots *s, double deadline);

#endif
