/* slots.c - which connection loses its slot when all are taken: one of the largest holder.
 *
 *   newcomer  -> counted with its network and address, appended to the list
 *   count > limit?
 *       evict the oldest waiting slot of the network with most waiting ones; otherwise
 *       evict the oldest slot of the network with most slots, if that has more than the
 *       newcomer's; otherwise refuse the newcomer
 *
 * A network of n slots can lose one only to a network with fewer, so no single network can push
 * others out, however fast it connects. Lists are searched linearly: a few thousand slots take some
 * microseconds, as much as a connection itself. */
#include "slots.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* A network or an address that has slots. */
struct slot_holder {
    struct http_address key;
    size_t count, waiting;
};

static const uint8_t ipv4_prefix[12] = { [10] = 0xff, [11] = 0xff };

void http_address_of(struct http_address *out, const struct sockaddr *from)
{
    memset(out, 0, sizeof *out);
    if (from && from->sa_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, sizeof *out);
    } else if (from && from->sa_family == AF_INET) {
        memcpy(out->octets, ipv4_prefix, sizeof ipv4_prefix);
        memcpy(out->octets + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    }
}

void http_network_of(struct http_address *out, const struct http_address *address)
{
    /* /24 of IPv4 (in ::ffff:a.b.c.d, 15 of 16 bytes), /64 of IPv6: the block that one customer
     * gets. */
    size_t kept = memcmp(address->octets, ipv4_prefix, sizeof ipv4_prefix) ? 8 : 15;
    memset(out, 0, sizeof *out);
    memcpy(out->octets, address->octets, kept);
}

/* -- the list and the counts ------------------------------------------------------------------ */

static void unlink_slot(struct slots *s, struct slot *slot)
{
    *(slot->previous ? &slot->previous->next : &s->first) = slot->next;
    *(slot->next ? &slot->next->previous : &s->last) = slot->previous;
}

static void append_slot(struct slots *s, struct slot *slot, double now)
{
    slot->since = now;
    slot->next = NULL;
    slot->previous = s->last;
    *(s->last ? &s->last->next : &s->first) = slot;
    s->last = slot;
}

/* The counts of a network or an address, shared by all of its slots; freed with the last. */
static struct slot_holder *find_holder(const struct slots *s, const struct http_address *key,
                                       int is_network)
{
    for (const struct slot *i = s->first; i; i = i->next) {
        struct slot_holder *h = is_network ? i->network : i->address;
        if (!memcmp(&h->key, key, sizeof *key)) return h;
    }
    struct slot_holder *h = calloc(1, sizeof *h);
    if (h) h->key = *key;
    return h;
}

static void release_holder(struct slot_holder *h)
{
    if (h && !h->count) free(h);
}

static void count_waiting(struct slot *slot, int is_waiting)
{
    if (slot->is_waiting == is_waiting) return;
    slot->is_waiting = is_waiting;
    if (is_waiting) slot->network->waiting++, slot->address->waiting++;
    else slot->network->waiting--, slot->address->waiting--;
}

void slots_remove(struct slots *s, struct slot *slot)
{
    if (!slot->network) return;
    count_waiting(slot, 0);
    unlink_slot(s, slot);
    slot->network->count--;
    slot->address->count--;
    release_holder(slot->network);
    release_holder(slot->address);
    slot->network = slot->address = NULL;
    s->count--;
}

void slots_set_waiting(struct slots *s, struct slot *slot, int is_waiting, double now)
{
    if (!slot->network) return;
    count_waiting(slot, is_waiting);
    unlink_slot(s, slot);
    /* To the end of the list: it stays ordered by the time of the last change, so "oldest" is
     * "first". */
    append_slot(s, slot, now);
}

struct slot *slots_take_overdue(struct slots *s, double deadline)
{
    struct slot *slot = s->first;
    /* The list is in the order of time: the first waiting slot is the most overdue. */
    while (slot && !slot->is_waiting) slot = slot->next;
    if (!slot || slot->since >= deadline) return NULL;
    slots_remove(s, slot);
    return slot;
}

/* -- eviction ---------------------------------------------------------------------------- */

/* Orders holders by their slots, or by those that wait: networks first, then addresses. */
static int holds_more(const struct slot *a, const struct slot *b, int waiting)
{
    if (waiting)
        return a->network->waiting != b->network->waiting
                   ? a->network->waiting > b->network->waiting
                   : a->address->waiting > b->address->waiting;
    return a->network->count != b->network->count ? a->network->count > b->network->count
                                                  : a->address->count > b->address->count;
}

/* The oldest slot of the largest holder; NULL: none waits. */
static struct slot *find_largest(const struct slots *s, const struct slot *newcomer, int waiting)
{
    struct slot *largest = NULL;
    for (struct slot *i = s->first; i; i = i->next)
        if (i != newcomer && (!waiting || i->is_waiting) &&
            (!largest || holds_more(i, largest, waiting)))
            largest = i;
    return largest;
}

int slots_add(struct slots *s, struct slot *slot, struct slot **evicted,
              const struct http_address *from, int is_waiting, double now)
{
    struct http_address network;
    *evicted = NULL;
    memset(slot, 0, sizeof *slot);
    http_network_of(&network, from);
    slot->network = find_holder(s, &network, 1);
    slot->address = find_holder(s, from, 0);
    if (!slot->network || !slot->address) {
        release_holder(slot->network);
        release_holder(slot->address);
        slot->network = slot->address = NULL;
        return PL_ENOMEM;
    }
    /* The newcomer counts before an eviction: the comparison is with the number that its network
     * would then have. */
    slot->network->count++;
    slot->address->count++;
    s->count++;
    count_waiting(slot, is_waiting);
    append_slot(s, slot, now);
    if (s->count <= s->limit) return PL_OK;
    *evicted = find_largest(s, slot, 1);
    if (!*evicted) *evicted = find_largest(s, slot, 0);
    if (*evicted && ((*evicted)->is_waiting || holds_more(*evicted, slot, 0))) {
        slots_remove(s, *evicted);
        return PL_OK;
    }
    *evicted = NULL;
    slots_remove(s, slot);
    return PL_ELIMIT;
}
