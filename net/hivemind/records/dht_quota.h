/* dht_quota.h - how many bytes of records each peer and each subnet has stored with us. Records
 * outlive the connections that brought them, so they are counted here and not in the accounts of
 * net/libp2p/connections/resources.c; the limits are in its table like all others. */
#ifndef PL_DHT_QUOTA_H
#define PL_DHT_QUOTA_H

#include "dht_share.h"
#include "hash_index.h"

struct dht_usage {
    struct dht_holding {
        uint64_t holder;
        size_t bytes;
    } * of;
    size_t count, capacity;
    struct hash_index by_holder;
};

/* Zeroed, it has no limits. */
struct dht_quota {
    size_t peer_max, subnet_max; /* bytes; 0: no limit */
    struct dht_usage peers, subnets;
    size_t refused; /* records that met a limit */
};
void dht_quota_clear(struct dht_quota *q);

/* 1: the holder's peer and subnet may have this many bytes more. Our own records are not
 * limited. */
int dht_quota_allows(struct dht_quota *q, const struct dht_origin *holder, size_t bytes);
/* Space for one holder more, so that dht_quota_charge cannot fail. PL_ENOMEM: nothing has
 * changed. */
int dht_quota_reserve(struct dht_quota *q);
void dht_quota_charge(struct dht_quota *q, const struct dht_origin *holder, size_t bytes);
void dht_quota_release(struct dht_quota *q, const struct dht_origin *holder, size_t bytes);

#endif
