/* dht_share.h - the holder of each record, and which holder's records are evicted when a store is
 * full.
 *
 * Identities are free, addresses are not. So the bytes that others store are charged to the caller
 * and to its subnet, and the largest holder loses first: the subnet with the most bytes, in it the
 * caller with the most bytes, of that caller's records the one that expires last. So a flood evicts
 * its own records, however many it has. [max-min fairness] */
#ifndef PL_DHT_SHARE_H
#define PL_DHT_SHARE_H

#include "ref/base.h"

/* In rising order: a record never replaces one of a later kind. */
enum dht_class {
    DHT_PLAIN,       /* any peer may write it */
    DHT_REPORTED,    /* a declaration that another node reports; found, never stored */
    DHT_DECLARATION, /* its subkey is a peer ID, and that peer has sent it */
    DHT_SIGNED,      /* its owner's signature is in it */
    DHT_CLASSES
};

struct dht_origin {
    uint64_t subnet, caller; /* hashes; both 0: ourselves */
    uint64_t owner;          /* of the owner's tag; 0: none */
    enum dht_class class;
};

/* Ourselves: the run's own records, and copies of what our searches found. */
static inline int dht_origin_is_own(const struct dht_origin *o) { return !o->subnet && !o->caller; }

struct dht_candidate {
    const struct dht_origin *from;
    double expiration;
    size_t bytes;
    void *record; /* the caller's */
    int evicted;  /* out: it gives way */
};

/* Marks the records to evict so that `excess` bytes become free; reorders the candidates. Our own
 * records are evicted last. O(n log n). PL_ENOMEM: nothing is marked. */
int dht_share_shed(struct dht_candidate *candidates, size_t n, size_t excess);

#endif
