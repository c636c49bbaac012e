/* dht_routing.c - Kademlia's routing table [Kademlia 2.4, spec hivemind-protocol 1.4]. The id
 * space is cut into buckets of at most k = 20 nodes. At first one bucket covers everything; a
 * full bucket is halved if our own id is in it, so buckets become finer around ourselves:
 *
 *   0000...   0001...   001...    01...         1...            (our own id: 0000...)
 *   [ k ]     [ k ]     [  k  ]   [    k     ]  [        k        ]
 *
 * A look-up starts at the k known nodes nearest to its key. Of N nodes it needs about log2 N
 * steps, because each asked node knows k nodes in the half of the remaining distance. Lists are
 * arrays in the order in which nodes were seen: searches in them are linear, but a table of a
 * thousand nodes has 20 or so buckets of 20. */
#include "dht_routing.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>

/* --- ordered lists of nodes ------------------------------------------------------------------- */

/* Linear: a list has at most k = 20 nodes, or some replacements. */
static size_t index_of(const struct dht_contacts *l, const struct dht_id *id)
{
    size_t i = 0;
    while (i < l->count && !dht_id_equal(&l->at[i].id, id)) i++;
    return i;
}

static int remove_contact(struct dht_contacts *l, const struct dht_id *id)
{
    size_t i = index_of(l, id);
    if (i == l->count) return 0;
    memmove(l->at + i, l->at + i + 1, (--l->count - i) * sizeof *l->at);
    return 1;
}

/* Lists are in the order of last contact [Kademlia 2.2]: the head is the node that has been silent
 * longest, the tail the one seen last. So moving a node to the tail is removing and appending. */
static int append_contact(struct dht_contacts *l, const struct dht_contact *c)
{
    if (pl_grow(&l->at, l->count, &l->capacity, 8)) return PL_ENOMEM;
    l->at[l->count++] = *c;
    return PL_OK;
}

/* --- buckets ---------------------------------------------------------------------------------- */

static void clear_bucket(struct dht_bucket *b)
{
    free(b->nodes.at);
    free(b->replacements.at);
    free(b->pinged.at);
    memset(b, 0, sizeof *b);
}

/* A bucket is a node of a binary tree over ids: all ids that share the first `depth` bits with
 * `lower`. Seen from any of them, all others are nearer than 2^(160 - depth) by XOR. */
static int is_in_range(const struct dht_bucket *b, const struct dht_id *id)
{
    return dht_id_common_bits(&b->lower, id) >= b->depth;
}

/* Adds a node, or moves it to the end as the one seen last. PL_EAGAIN: the bucket is full, the
 * node waits among the replacements. */
static int add_to_bucket(struct dht_bucket *b, const struct dht_contact *c, size_t size)
{
    int rc;
    /* A message is as good as the answer to our ping: the node lives. */
    remove_contact(&b->pinged, &c->id);
    if (c->seen > b->updated) b->updated = c->seen;
    if (remove_contact(&b->nodes, &c->id) || b->nodes.count < size)
        return append_contact(&b->nodes, c);
    /* Kademlia keeps old nodes: the longer a node has been up, the longer it will stay up. The new
     * one goes into the replacement cache [Kademlia 4.1], whose tail is the best candidate. */
    if (!remove_contact(&b->replacements, &c->id) && b->replacements.count == DHT_REPLACEMENTS_MAX)
        remove_contact(&b->replacements, &b->replacements.at[0].id);
    rc = append_contact(&b->replacements, c);
    return rc ? rc : PL_EAGAIN;
}

/* Binary search: buckets are in the order of their ranges and leave no gaps. */
static struct dht_bucket *find_bucket(const struct dht_routing *r, const struct dht_id *id)
{
    size_t low = 0, high = r->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (dht_id_compare(id, &r->buckets[middle].lower) >= 0) low = middle;
        else high = middle;
    }
    return &r->buckets[low];
}

/* Halves a bucket: one bit more of the ids is fixed, 0 on the left and 1 on the right, and both
 * halves have space again, unless all nodes fell on one side. hivemind sends an id that is exactly
 * the middle to the left, where it cannot be found again; so do we: recordings hold us to it, and
 * it costs one node in 2^100. */
static int split_bucket(struct dht_routing *r, struct dht_bucket *b)
{
    size_t at = (size_t)(b - r->buckets);
    struct dht_bucket left = { .lower = b->lower, .depth = b->depth + 1 }, right = left;
    struct dht_bucket *more;
    const struct dht_contacts *lists[2] = { &b->nodes, &b->replacements };
    int rc = PL_OK;
    /* The right half begins where bit number `depth` is 1. */
    right.lower.bytes[b->depth / 8] |= (uint8_t)(0x80 >> b->depth % 8);
    left.updated = right.updated = b->updated;
    /* Nodes first, so that replacements fill only the places that are left. */
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < lists[l]->count && rc != PL_ENOMEM; i++) {
            const struct dht_contact *c = &lists[l]->at[i];
            int goes_left = dht_id_compare(&c->id, &right.lower) <= 0;
            rc = add_to_bucket(goes_left ? &left : &right, c, r->bucket_size);
        }
    /* The old bucket is freed only when both halves are complete: out of memory, it stays. */
    more = rc == PL_ENOMEM ? NULL : realloc(r->buckets, (r->count + 1) * sizeof *more);
    if (!more) {
        clear_bucket(&left);
        clear_bucket(&right);
        return PL_ENOMEM;
    }
    r->buckets = more;
    clear_bucket(&more[at]);
    memmove(more + at + 1, more + at, (r->count++ - at) * sizeof *more);
    more[at] = left;
    more[at + 1] = right;
    return PL_OK;
}

/* --- the table -------------------------------------------------------------------------------- */

/* Begins with one bucket of depth 0, the whole id space; splitting makes the rest. */
int dht_routing_init(struct dht_routing *r, const struct dht_id *self, size_t bucket_size,
                     int depth_modulo)
{
    memset(r, 0, sizeof *r);
    r->self = *self;
    r->bucket_size = bucket_size;
    r->depth_modulo = depth_modulo;
    if (!(r->buckets = calloc(1, sizeof *r->buckets))) return PL_ENOMEM;
    r->count = 1;
    return PL_OK;
}

void dht_routing_clear(struct dht_routing *r)
{
    for (size_t i = 0; i < r->count; i++) clear_bucket(&r->buckets[i]);
    free(r->buckets);
    memset(r, 0, sizeof *r);
}

/* The choice of the full buckets to split decides the size of the table and the speed of searches.
 * Our own bucket is always split, so we know our neighbourhood completely, as stores and finds of
 * nearby keys require. Another full bucket is split if its depth is not a multiple of b = 5
 * [Kademlia 4.2]: the table then has up to 2^5 - 1 buckets for each 5 bits instead of 5, and each
 * step of a search fixes 5 bits instead of one, so log_32 N hops instead of log_2 N. */
int dht_routing_add(struct dht_routing *r, const struct dht_id *id, const struct peer_id *peer,
                    double now, struct dht_contact *ask)
{
    struct dht_contact c = { .id = *id, .peer = *peer, .seen = now };
    struct dht_bucket *b;
    int rc;
    if (ask) memset(ask, 0, sizeof *ask);
    if (dht_id_equal(id, &r->self)) return PL_OK; /* distance 0: we are not our own neighbour */
    while ((rc = add_to_bucket(b = find_bucket(r, id), &c, r->bucket_size)) == PL_EAGAIN) {
        if (b->depth == DHT_ID_BITS ||
            (!is_in_range(b, &r->self) && b->depth % r->depth_modulo == 0))
            break;
        /* Again from the start: the half with this id may be as full as the whole was. */
        if ((rc = split_bucket(r, b))) return rc;
    }
    if (rc != PL_EAGAIN) return rc;
    /* No place. The node that has been silent longest is pinged, and loses its place if it does not
     * answer [Kademlia 2.2]. `pinged` remembers it until it is seen again: a flood of new ids must
     * not cause a flood of pings, so each node of the bucket is pinged once. */
    for (size_t i = 0; ask && i < b->nodes.count; i++)
        if (index_of(&b->pinged, &b->nodes.at[i].id) == b->pinged.count) {
            if (append_contact(&b->pinged, &b->nodes.at[i])) return PL_ENOMEM;
            *ask = b->nodes.at[i];
            break;
        }
    return PL_OK;
}

/* After a call that failed. The youngest replacement is the likeliest to be alive; older ones have
 * been silent since. */
void dht_routing_remove(struct dht_routing *r, const struct dht_id *id)
{
    struct dht_bucket *b = find_bucket(r, id);
    remove_contact(&b->pinged, id);
    remove_contact(&b->replacements, id);
    if (remove_contact(&b->nodes, id) && b->replacements.count)
        append_contact(
            &b->nodes,
            &b->replacements.at[--b->replacements.count]); /* cannot fail: a place is free */
}

const struct dht_contact *dht_routing_find(const struct dht_routing *r, const struct dht_id *id)
{
    const struct dht_bucket *b = find_bucket(r, id);
    size_t i = index_of(&b->nodes, id);
    if (i < b->nodes.count) return &b->nodes.at[i];
    i = index_of(&b->replacements, id);
    return i < b->replacements.count ? &b->replacements.at[i] : NULL;
}

/* A peer that restarts comes back under another id while its old one may still be listed: the id
 * seen last is the present one. */
const struct dht_contact *dht_routing_find_peer(const struct dht_routing *r,
                                                const struct peer_id *peer)
{
    const struct dht_contact *latest = NULL;
    for (size_t i = 0; i < r->count; i++) {
        const struct dht_contacts *lists[2] = { &r->buckets[i].nodes, &r->buckets[i].replacements };
        for (int l = 0; l < 2; l++)
            for (size_t k = 0; k < lists[l]->count; k++) {
                const struct dht_contact *c = &lists[l]->at[k];
                if (peer_id_equal(&c->peer, peer) && (!latest || c->seen >= latest->seen))
                    latest = c;
            }
    }
    return latest;
}

size_t dht_contact_insert(struct dht_contact *list, size_t n, size_t k, const struct dht_contact *c,
                          const struct dht_id *to)
{
    size_t at = n;
    while (at && dht_id_nearer(&c->id, &list[at - 1].id, to) < 0) at--;
    if (at == k) return n;
    if (n < k) n++;
    memmove(list + at + 1, list + at, (n - 1 - at) * sizeof *list);
    list[at] = *c;
    return n;
}

/* The k nodes nearest by XOR, by insertion into a sorted list of k: O(N k) at worst. Tables of real
 * swarms hold some hundred nodes, so this is faster than walking the buckets in the order of their
 * distance. Replacements are left out, because they have not been checked to be alive. */
size_t dht_routing_nearest(const struct dht_routing *r, struct dht_contact *out, size_t k,
                           const struct dht_id *query, const struct dht_id *exclude)
{
    size_t n = 0;
    for (size_t b = 0; k && b < r->count; b++)
        for (size_t i = 0; i < r->buckets[b].nodes.count; i++) {
            const struct dht_contact *c = &r->buckets[b].nodes.at[i];
            if (exclude && dht_id_equal(&c->id, exclude)) continue;
            n = dht_contact_insert(out, n, k, c, query);
        }
    return n;
}

size_t dht_routing_size(const struct dht_routing *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++) n += r->buckets[i].nodes.count;
    return n;
}

const struct dht_contact *dht_routing_oldest(const struct dht_routing *r)
{
    const struct dht_contact *oldest = NULL;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->buckets[i].nodes.count; k++) {
            const struct dht_contact *c = &r->buckets[i].nodes.at[k];
            if (!oldest || c->seen < oldest->seen) oldest = c;
        }
    return oldest;
}

/* A random id in the bucket that has been quiet for longest: searching for it makes nodes of that
 * range answer, and they enter the bucket [Kademlia 2.3]. Buckets that traffic passes through
 * refresh themselves. */
int dht_routing_refresh(struct dht_routing *r, struct dht_id *id, double before, double now)
{
    struct dht_bucket *b = &r->buckets[0];
    int rc;
    for (size_t i = 1; i < r->count; i++)
        if (r->buckets[i].updated < b->updated) b = &r->buckets[i];
    if (b->updated >= before) return PL_EAGAIN;
    if ((rc = dht_id_random(id))) return rc;
    /* The bucket's `depth` bits stay, the rest is random: uniform over its range. */
    for (int bit = 0; bit < b->depth; bit++) {
        uint8_t mask = (uint8_t)(0x80 >> bit % 8);
        id->bytes[bit / 8] = (uint8_t)((id->bytes[bit / 8] & ~mask) |
                                       (b->lower.bytes[bit / 8] & mask));
    }
    b->updated = now;
    return PL_OK;
}
