/* dht_checks.h - how many signature checks and new records other nodes may cause. A record costs
 * its sender nothing, and us an RSA check, and each reader of its key a place in the answer. So
 * each peer has allowances, and each subnet, since peer IDs cost nothing either. */
#ifndef PL_DHT_CHECKS_H
#define PL_DHT_CHECKS_H

#include "dht_message.h"
#include "net/hivemind/records/validate.h"
#include "net/rate_limit.h"

/* Signature checks, in units of a 2048-bit key, each some 30 us. A node that hands over the
 * records of a run of 1,000 peers needs 2,000 at once; a trainer stores two records every 30 s. */
#define DHT_CHECKS_BURST 4096
#define DHT_CHECKS_A_SECOND 20

/* Owners that a caller adds under one key. A renewal adds none, so an honest peer adds itself, and
 * a node that hands over or caches a key its owners once: 256 of progress, before a run splits it
 * into parts. What is refused here comes from its owner's own store, within 30 s for progress. */
#define DHT_OWNERS_BURST 512
#define DHT_OWNERS_A_SECOND 1
/* Records without a signature: declarations of a run of 1,000 peers, each 15 s, from one cache. */
#define DHT_UNSIGNED_BURST 8192
#define DHT_UNSIGNED_A_SECOND 80
/* For all three: a subnet may be a whole laboratory. */
#define DHT_SUBNET_BURSTS 4
#define DHT_SUBNET_RATES 10

struct dht_checks {
    struct dht_allowance {
        struct rate_limit peers, subnets;
    } signatures, owners, without;
};
void dht_checks_init(struct dht_checks *c);
/* 1: the record may be checked, at the cost of that peer and its subnet; always where it needs no
 * check. `now`: on the clock of all calls for c. */
int dht_checks_take(struct dht_checks *c, double now, const struct peer_id *peer, uint64_t subnet,
                    const struct record *r);
/* 1: that peer may store a record whose subkey is new under the key. `class`: of the record. */
int dht_checks_add(struct dht_checks *c, double now, const struct peer_id *peer, uint64_t subnet,
                   const struct dht_id *key, enum dht_class class);

#endif
