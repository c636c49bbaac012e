/* dht_quota.c - the usage of peers and of subnets, by the hashes that a record's origin has.
 * Every record is charged to both when it is stored and released when it goes, whatever the reason:
 * replaced, expired, evicted. So a sum is exactly the bytes that the holder has in the stores now.
 *
 * A limit refuses the requester before anything of others' is touched. Below the limits the stores
 * fill up and evict by max-min fairness (dht_share.c): there the largest holder loses first. */
#include "dht_quota.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>

static void clear_usage(struct dht_usage *l)
{
    free(l->of);
    hash_index_clear(&l->by_holder);
    memset(l, 0, sizeof *l);
}

/* After the stores: their records refer to it until they are released. */
void dht_quota_clear(struct dht_quota *q)
{
    clear_usage(&q->peers);
    clear_usage(&q->subnets);
}

/* Holders are hashes already (SipHash of a peer ID, of an address), so equal ones are the same. */
static size_t find_holding(const struct dht_usage *l, uint64_t holder)
{
    size_t probe = 0;
    return hash_index_next(&l->by_holder, holder, &probe);
}

/* 0 for a holder that has no usage: it has no records. */
static size_t bytes_of(const struct dht_usage *l, uint64_t holder)
{
    size_t i = find_holding(l, holder);
    return i == HASH_INDEX_END ? 0 : l->of[i].bytes;
}

/* Subtraction, not addition: sums of strangers' claims must not overflow. */
static int fits(const struct dht_usage *l, uint64_t holder, size_t bytes, size_t most)
{
    size_t held = bytes_of(l, holder);
    return !most || (held <= most && bytes <= most - held);
}

/* Both limits: one peer of a laboratory must not use up all that its neighbours may store, and an
 * owner of many identities not more than one network may. */
int dht_quota_allows(struct dht_quota *q, const struct dht_origin *holder, size_t bytes)
{
    if (dht_origin_is_own(holder) || (fits(&q->peers, holder->caller, bytes, q->peer_max) &&
                                      fits(&q->subnets, holder->subnet, bytes, q->subnet_max)))
        return 1;
    q->refused++;
    return 0;
}

/* Before a record is stored, so that a failure leaves usage and store in step. Capacity doubles: n
 * holders cost O(n) copies. */
static int reserve_holding(struct dht_usage *l)
{
    if (pl_grow(&l->of, l->count, &l->capacity, 16)) return PL_ENOMEM;
    return hash_index_reserve(&l->by_holder);
}

int dht_quota_reserve(struct dht_quota *q)
{
    return reserve_holding(&q->peers) || reserve_holding(&q->subnets) ? PL_ENOMEM : PL_OK;
}

/* O(1), as is releasing: a store of 4,096 records must not take longer because many peers have
 * some. */
static void charge(struct dht_usage *l, uint64_t holder, size_t bytes)
{
    size_t i = find_holding(l, holder);
    if (i == HASH_INDEX_END) {
        /* A new holder; dht_quota_reserve has made its place. */
        i = l->count++;
        l->of[i] = (struct dht_holding){ holder, 0 };
        hash_index_add(&l->by_holder, holder, i);
    }
    l->of[i].bytes += bytes;
}

/* A holder without records is forgotten: identities cost nothing, so their number must not grow. */
static void release(struct dht_usage *l, uint64_t holder, size_t bytes)
{
    size_t i = find_holding(l, holder), last = l->count - 1;
    if ((l->of[i].bytes -= bytes)) return;
    /* The last holding fills the gap; the index follows it. */
    hash_index_remove(&l->by_holder, holder, i);
    if (i != last) {
        l->of[i] = l->of[last];
        hash_index_move(&l->by_holder, l->of[i].holder, last, i);
    }
    l->count--;
}

/* Our own records count as no usage: their bytes are bounded by the store's alone, and max-min
 * fairness evicts them last. */
void dht_quota_charge(struct dht_quota *q, const struct dht_origin *holder, size_t bytes)
{
    if (dht_origin_is_own(holder)) return;
    charge(&q->peers, holder->caller, bytes);
    charge(&q->subnets, holder->subnet, bytes);
}

void dht_quota_release(struct dht_quota *q, const struct dht_origin *holder, size_t bytes)
{
    if (dht_origin_is_own(holder)) return;
    release(&q->peers, holder->caller, bytes);
    release(&q->subnets, holder->subnet, bytes);
}
