/* dht_routing.h - the nodes that we know, in buckets that are finer around our own id.
 * [spec hivemind-protocol 1.4] [Kademlia 2.4] */
#ifndef PL_DHT_ROUTING_H
#define PL_DHT_ROUTING_H

#include "net/libp2p/peer/peer_id.h"
#include "net/hivemind/records/dht_id.h"

#define DHT_BUCKET_SIZE 20
#define DHT_DEPTH_MODULO 5
/* Replacements waiting for a place in one bucket; the oldest is dropped first. hivemind has no
 * limit; this many candidates are enough. */
#define DHT_REPLACEMENTS_MAX 1024

struct dht_contact {
    struct dht_id id;
    struct peer_id peer;
    double seen; /* when it was last seen */
};

struct dht_contacts { /* in the order in which they came or were seen again */
    struct dht_contact *at;
    size_t count, capacity;
};

/* Ids that begin with the first `depth` bits of `lower`, which has zeros after them. */
struct dht_bucket {
    struct dht_id lower;
    int depth;
    struct dht_contacts nodes, replacements;
    struct dht_contacts pinged; /* of nodes: pinged, not seen since */
    double updated;
};

struct dht_routing {
    struct dht_id self;
    size_t bucket_size;
    int depth_modulo;
    struct dht_bucket *buckets; /* by rising ids, without gaps */
    size_t count;
};

int dht_routing_init(struct dht_routing *r, const struct dht_id *self, size_t bucket_size,
                     int depth_modulo);
void dht_routing_clear(struct dht_routing *r);

/* A node was seen. It goes to the end of its bucket, which is split if it is full and may be split.
 * Otherwise the node waits among the replacements, and *ask (may be NULL) is the longest silent
 * node of the bucket that was not asked yet: ping it, and remove it if it does not answer. The
 * length of its peer is 0 if there is no such node. Our own id is never added. PL_OK or
 * PL_ENOMEM. */
int dht_routing_add(struct dht_routing *r, const struct dht_id *id, const struct peer_id *peer,
                    double now, struct dht_contact *ask);
/* Forgets a node; the youngest replacement of its bucket takes its place. */
void dht_routing_remove(struct dht_routing *r, const struct dht_id *id);
/* Of nodes and replacements; NULL for an unknown one. Valid until the next change. */
const struct dht_contact *dht_routing_find(const struct dht_routing *r, const struct dht_id *id);
/* By peer: its latest id. */
const struct dht_contact *dht_routing_find_peer(const struct dht_routing *r,
                                                const struct peer_id *peer);

/* Inserts a contact into a list of n that are ordered by distance to `to`, nearest first; the list
 * keeps the nearest k. Returns how many there are now. */
size_t dht_contact_insert(struct dht_contact *list, size_t n, size_t k, const struct dht_contact *c,
                          const struct dht_id *to);
/* The k nodes (no replacements) nearest to a query, nearest first; exclude may be NULL. Returns how
 * many there are, at most k. */
size_t dht_routing_nearest(const struct dht_routing *r, struct dht_contact *out, size_t k,
                           const struct dht_id *query, const struct dht_id *exclude);
size_t dht_routing_size(const struct dht_routing *r); /* nodes, without replacements */

/* Maintenance: the node that has been silent longest. NULL when the table is empty. */
const struct dht_contact *dht_routing_oldest(const struct dht_routing *r);
/* A random id inside the bucket that changed least recently, if that was before `before`; the
 * bucket then counts as updated. PL_OK, or PL_EAGAIN when all are fresh. */
int dht_routing_refresh(struct dht_routing *r, struct dht_id *id, double before, double now);

#endif
