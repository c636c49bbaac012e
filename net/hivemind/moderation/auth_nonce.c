/* auth_nonce.c - replay protection: each nonce is accepted once. Three structures share one set
 * of entries: a ring in the order of expiration (all live equally long, so the oldest is always
 * at the front), a hash table for look-up (chains through `next`), and counters for each key and
 * each user.
 *
 * Limit of a member: with F free entries, a key may hold (F - entries of its user) / 2. As the
 * table fills, F falls and every limit with it, so no member can take the last entries [dynamic
 * thresholds, Choudhury and Hahne 1998]. */
#include "auth_nonce.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

/* Five megabytes that only a moderated peer's server needs: allocated by its first request. */
static int open_table(struct auth_nonces *a)
{
    if (a->ring) return PL_OK;
    a->ring = calloc(AUTH_NONCES_MAX, sizeof *a->ring);
    a->bucket = calloc(AUTH_NONCES_MAX, sizeof *a->bucket);
    a->by_key = calloc(AUTH_NONCE_HOLDERS, sizeof *a->by_key);
    a->by_user = calloc(AUTH_NONCE_HOLDERS, sizeof *a->by_user);
    if (a->ring && a->bucket && a->by_key && a->by_user &&
        RAND_bytes(a->secret, sizeof a->secret) == 1)
        return PL_OK;
    auth_nonces_clear(a);
    return PL_ENOMEM;
}

void auth_nonces_clear(struct auth_nonces *a)
{
    free(a->ring);
    free(a->bucket);
    free(a->by_key);
    free(a->by_user);
    memset(a, 0, sizeof *a);
}

/* SHA-256 over a secret of this process: a stranger cannot choose nonces or keys that share a
 * bucket. */
static int hash(uint8_t out[32], const struct auth_nonces *a, const void *data, size_t n,
                const uint8_t *nonce)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    int good = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1 &&
               EVP_DigestUpdate(c, a->secret, sizeof a->secret) == 1 &&
               (!nonce || EVP_DigestUpdate(c, nonce, AUTH_NONCE) == 1) &&
               EVP_DigestUpdate(c, data, n) == 1 && EVP_DigestFinal_ex(c, out, NULL) == 1;
    EVP_MD_CTX_free(c);
    return good ? PL_OK : PL_ENOMEM;
}

/* The head of a bucket's chain. Links are places in the ring plus one, so that 0 ends a chain. */
static uint32_t *bucket_of(struct auth_nonces *a, const uint8_t id[16])
{
    return &a->bucket[((uint32_t)id[0] | (uint32_t)id[1] << 8 | (uint32_t)id[2] << 16) %
                      AUTH_NONCES_MAX];
}

/* Removes an entry from chain, counters and ring: O(1) except for the chain, whose expected length
 * is below 1. */
static void drop_oldest(struct auth_nonces *a)
{
    const struct auth_nonce *oldest = &a->ring[a->first];
    uint32_t *at = bucket_of(a, oldest->id), place = (uint32_t)a->first + 1;
    while (*at != place) at = &a->ring[*at - 1].next;
    *at = oldest->next;
    a->by_key[oldest->key]--;
    a->by_user[oldest->user]--;
    a->first = (a->first + 1) % AUTH_NONCES_MAX;
    a->count--;
}

int auth_nonces_take(struct auth_nonces *a, const void *key, size_t key_n, const void *user,
                     size_t user_n, const uint8_t nonce[AUTH_NONCE], double now)
{
    uint8_t id[32], of_key[32], of_user[32];
    struct auth_nonce *slot;
    uint32_t *bucket;
    uint16_t k, u;
    int rc = open_table(a);
    if (!rc) rc = hash(id, a, key, key_n, nonce);
    if (!rc) rc = hash(of_key, a, key, key_n, NULL);
    if (!rc) rc = hash(of_user, a, user, user_n, NULL);
    if (rc) return rc;
    /* Requests pay for the removal of old entries: each adds one and removes one on average. */
    while (a->count && a->ring[a->first].until < now) drop_oldest(a);
    /* Known already? The entry is named by a hash of key and nonce, as two members may choose
     * the same nonce. */
    bucket = bucket_of(a, id);
    for (uint32_t at = *bucket; at; at = a->ring[at - 1].next)
        if (!memcmp(a->ring[at - 1].id, id, sizeof a->ring->id)) return PL_EPROTO;
    /* Members whose hashes collide share a counter. That costs an honest member at most the number
     * of entries that the other one holds. */
    k = (uint16_t)(of_key[0] | of_key[1] << 8);
    u = (uint16_t)(of_user[0] | of_user[1] << 8);
    /* A user may have as many keys as it asks the authority for. All of them together hold fewer
     * entries than are free, and one of them fewer than half of those free for its user. */
    if (2 * (size_t)a->by_key[k] + a->by_user[u] >= AUTH_NONCES_MAX - a->count) return PL_EAGAIN;
    /* Accepted: at the end of the ring, at the head of its chain. */
    slot = &a->ring[(a->first + a->count) % AUTH_NONCES_MAX];
    memcpy(slot->id, id, sizeof slot->id);
    slot->until = now + AUTH_NONCE_LIFE;
    slot->key = k;
    slot->user = u;
    slot->next = *bucket;
    *bucket = (uint32_t)(slot - a->ring) + 1;
    a->by_key[k]++;
    a->by_user[u]++;
    a->count++;
    return PL_OK;
}
