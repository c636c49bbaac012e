/* dht_checks.c - token buckets for signature checks. Verifying an RSA signature costs a hundred
 * times what sending it does, so without a limit one peer could occupy the loop with records whose
 * signatures are wrong: by rpc_store, or as the answer to any of our searches, which its node id
 * lets it take part in. A peer that has used up its allowance keeps its connection: its records are
 * refused or skipped unchecked until the allowance has grown again; other nodes report the same
 * records. */
#include "dht_checks.h"
#include "net/hivemind/records/hash_index.h"

void dht_checks_init(struct dht_checks *c)
{
    c->peers.rate = DHT_CHECKS_A_SECOND;
    c->peers.burst = DHT_CHECKS_BURST;
    c->subnets.rate = DHT_SUBNET_CHECKS_A_SECOND;
    c->subnets.burst = DHT_SUBNET_CHECKS_BURST;
}

int dht_checks_take(struct dht_checks *c, double now, const struct peer_id *peer, uint64_t subnet,
                    const struct record *r)
{
    const double cost = record_check_cost(r); /* longer keys cost more, plain records nothing */
    /* Charges both or neither: if the subnet's allowance is spent, the peer's is not charged. */
    return !cost || (rate_limit_has(&c->subnets, subnet, cost, now) &&
                     rate_limit_take(&c->peers, hash_bytes(peer->bytes, peer->length), cost, now) &&
                     rate_limit_take(&c->subnets, subnet, cost, now));
}
