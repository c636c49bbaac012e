/* dht_checks.c - token buckets for signature checks and for new records. Verifying an RSA
 * signature costs a hundred times what sending it does, so without a limit one peer could occupy
 * the loop with records whose signatures are wrong: by rpc_store, or as the answer to any of our
 * searches, which its node id lets it take part in. A peer that has used up its allowance keeps
 * its connection: its records are refused or skipped unchecked until the allowance has grown
 * again; other nodes report the same records. The same goes for new records: each reader of a
 * key reads all of its owners'. */
#include "dht_checks.h"
#include "net/hivemind/records/hash_index.h"

static void allowance_init(struct dht_allowance *a, double burst, double a_second)
{
    a->peers.burst = burst;
    a->peers.rate = a_second;
    a->subnets.burst = DHT_SUBNET_BURSTS * burst;
    a->subnets.rate = DHT_SUBNET_RATES * a_second;
}

void dht_checks_init(struct dht_checks *c)
{
    allowance_init(&c->signatures, DHT_CHECKS_BURST, DHT_CHECKS_A_SECOND);
    allowance_init(&c->owners, DHT_OWNERS_BURST, DHT_OWNERS_A_SECOND);
    allowance_init(&c->without, DHT_UNSIGNED_BURST, DHT_UNSIGNED_A_SECOND);
}

/* Charges both or neither: if the subnet's allowance is spent, the peer's is not charged. */
static int take(struct dht_allowance *a, uint64_t peer, uint64_t subnet, double cost, double now)
{
    return rate_limit_has(&a->subnets, subnet, cost, now) &&
           rate_limit_take(&a->peers, peer, cost, now) &&
           rate_limit_take(&a->subnets, subnet, cost, now);
}

int dht_checks_take(struct dht_checks *c, double now, const struct peer_id *peer, uint64_t subnet,
                    const struct record *r)
{
    const double cost = record_check_cost(r); /* longer keys cost more, plain records nothing */
    return !cost || take(&c->signatures, hash_bytes(peer->bytes, peer->length), subnet, cost, now);
}

/* Allowances of a caller and a key together: who floods one key keeps its place under others. */
static uint64_t under_key(uint64_t holder, uint64_t key)
{
    const uint64_t both[] = { holder, key };
    return hash_bytes(both, sizeof both);
}

int dht_checks_add(struct dht_checks *c, double now, const struct peer_id *peer, uint64_t subnet,
                   const struct dht_id *key, enum dht_class class)
{
    const uint64_t caller = hash_bytes(peer->bytes, peer->length);
    const uint64_t at = hash_bytes(key->bytes, DHT_ID_BYTES);
    if (class != DHT_SIGNED) return take(&c->without, caller, subnet, 1, now);
    return take(&c->owners, under_key(caller, at), under_key(subnet, at), 1, now);
}
