/* dht_checks.h - signature checks that other nodes cause: a record that they store or report costs
 * them nothing, and us an RSA check. So each peer has an allowance of checks, and each subnet,
 * since peer IDs cost nothing either. */
#ifndef PL_DHT_CHECKS_H
#define PL_DHT_CHECKS_H

#include "dht_message.h"
#include "net/hivemind/records/validate.h"
#include "net/rate_limit.h"

/* Signature checks, in units of a 2048-bit key, each some 30 us. A node that hands over the
 * records of a run of 1,000 peers needs 2,000 at once; a trainer stores two records every 30 s.
 * A subnet may be a whole laboratory: 10 times the rate, 4 times the burst. */
#define DHT_CHECKS_BURST 4096
#define DHT_CHECKS_A_SECOND 20
#define DHT_SUBNET_CHECKS_BURST (4 * DHT_CHECKS_BURST)
#define DHT_SUBNET_CHECKS_A_SECOND (10 * DHT_CHECKS_A_SECOND)

struct dht_checks {
    struct rate_limit peers, subnets;
};
void dht_checks_init(struct dht_checks *c);
/* 1: the record may be checked, at the cost of that peer and its subnet; always where it needs no
 * check. `now`: on the clock of all calls for c. */
int dht_checks_take(struct dht_checks *c, double now, const struct peer_id *peer, uint64_t subnet,
                    const struct record *r);

#endif
