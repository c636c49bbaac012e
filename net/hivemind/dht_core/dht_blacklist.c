/* dht_blacklist.c - exponential back-off: after its n-th failure in a row a node is left alone for
 * 5 s * 2^(n - 1), at most five minutes. One answer clears it. Without this, searches would wait
 * for the same dead nodes again and again, since other nodes still report them. */
#include "dht_blacklist.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>

void dht_blacklist_close(struct dht_blacklist *b)
{
    free(b->entries);
    b->entries = NULL;
    b->count = b->capacity = 0;
}

/* Linear in at most `max` entries, some microseconds: a search looks up a few dozen nodes. */
static struct dht_blacklisted *find(const struct dht_blacklist *b, const struct peer_id *peer)
{
    for (size_t i = 0; i < b->count; i++)
        if (peer_id_equal(&b->entries[i].peer, peer)) return &b->entries[i];
    return NULL;
}

/* A new entry; in a full list it replaces the entry whose pause ends first. NULL: no memory. */
static struct dht_blacklisted *add(struct dht_blacklist *b)
{
    struct dht_blacklisted *first = b->entries;
    if (b->count < b->max && !pl_grow(&b->entries, b->count, &b->capacity, 16))
        return &b->entries[b->count++];
    for (size_t i = 1; i < b->count; i++)
        if (b->entries[i].until < first->until) first = &b->entries[i];
    return first;
}

void dht_blacklist_failed(struct dht_blacklist *b, const struct peer_id *peer, double now)
{
    struct dht_blacklisted *e = find(b, peer);
    if (!e && (e = add(b))) *e = (struct dht_blacklisted){ .peer = *peer };
    if (!e) return;
    /* hivemind's formula; its cap is ours. */
    /* The count of failures outlives the pause: the next failure doubles it again. */
    e->until = now + fmin(b->longest, b->first * ldexp(1, e->failures));
    if (e->failures < 30) e->failures++; /* 2^30 pauses are beyond any bound */
}

/* An answer proves more than any number of failures: the node is back. The last entry fills the
 * gap. */
void dht_blacklist_answered(struct dht_blacklist *b, const struct peer_id *peer)
{
    struct dht_blacklisted *e = find(b, peer);
    if (e) *e = b->entries[--b->count];
}

int dht_blacklist_has(const struct dht_blacklist *b, const struct peer_id *peer, double now)
{
    const struct dht_blacklisted *e = find(b, peer);
    /* After the pause the entry stays, so that the next failure counts as one more. */
    return e && now < e->until;
}
