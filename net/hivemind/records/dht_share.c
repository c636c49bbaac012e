/* dht_share.c - which records a full store evicts: two levels of max-min fairness, first among
 * subnets, then among the callers of each. Find the level L with
 *
 *     sum over holders of min(bytes of holder, L) = bytes that may stay
 *
 * Holders below L keep everything; those above are cut down to L. A flood from one address thus
 * displaces its own records, and a thousand identities behind one subnet share one subnet's
 * level. */
#include "dht_share.h"

#include <stdlib.h>

/* A run of the sorted candidates: a subnet's or a caller's. */
struct holder {
    size_t first, count, bytes;
};

/* By subnet, then caller, then the latest expiration first; our own at the end. */
static int by_holder(const void *a_, const void *b_)
{
    const struct dht_candidate *a = a_, *b = b_;
    const struct dht_origin *x = a->from, *y = b->from;
    if (dht_origin_is_own(x) != dht_origin_is_own(y))
        return dht_origin_is_own(x) - dht_origin_is_own(y);
    if (x->subnet != y->subnet) return x->subnet < y->subnet ? -1 : 1;
    if (x->caller != y->caller) return x->caller < y->caller ? -1 : 1;
    return (a->expiration < b->expiration) - (a->expiration > b->expiration);
}

static int by_bytes(const void *a_, const void *b_)
{
    const struct holder *a = a_, *b = b_;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return (a->first > b->first) - (a->first < b->first);
}

/* The level at which holders, the largest first, keep `most` bytes together. If the first i + 1 are
 * cut to one level and the rest keep their bytes, the level is (most - rest) / (i + 1); it is right
 * once it is not below the next holder's bytes. Example: holders of 60, 30 and 10 that may keep 70:
 * i = 0 gives 70 - 40 = 30, which is not below 30, so the first loses 30 and the others nothing. */
static size_t find_level(const struct holder *h, size_t n, size_t most)
{
    size_t rest = 0, level = 0;
    for (size_t i = 0; i < n; i++) rest += h[i].bytes;
    for (size_t i = 0; i < n; i++) {
        size_t next = i + 1 < n ? h[i + 1].bytes : 0;
        rest -= h[i].bytes;
        level = rest < most ? (most - rest) / (i + 1) : 0;
        if (level >= next) break;
    }
    return level;
}

/* Splits candidates [first, first + count) where the holder changes. */
static size_t split(struct holder *out, const struct dht_candidate *s, size_t first, size_t count,
                    int by_caller)
{
    size_t n = 0;
    for (size_t i = first; i < first + count; i++) {
        int same = i > first && s[i].from->subnet == s[i - 1].from->subnet &&
                   (!by_caller || s[i].from->caller == s[i - 1].from->caller);
        if (!same) out[n++] = (struct holder){ i, 0, 0 };
        out[n - 1].count++;
        out[n - 1].bytes += s[i].bytes;
    }
    qsort(out, n, sizeof *out, by_bytes);
    return n;
}

/* Removes the holder's records, the latest expiration first, until it holds at most `level` bytes.
 * Returns the bytes freed. */
static size_t cut(struct dht_candidate *s, const struct holder *h, size_t level, size_t excess)
{
    size_t freed = 0;
    for (size_t i = h->first; i < h->first + h->count && freed < excess && h->bytes - freed > level;
         i++) {
        s[i].evicted = 1;
        freed += s[i].bytes;
    }
    return freed;
}

/* First the level of subnets, then in every subnet above it the level of its callers. Our own
 * records (neither subnet nor caller) are last: others cannot push them out. */
int dht_share_shed(struct dht_candidate *candidates, size_t n, size_t excess)
{
    struct holder *subnets = malloc((2 * n + 1) * sizeof *subnets), *callers = subnets + n, own;
    size_t others = 0, held = 0, subnet_count, level;
    if (!subnets) return PL_ENOMEM;
    qsort(candidates, n, sizeof *candidates, by_holder);
    while (others < n && !dht_origin_is_own(candidates[others].from))
        held += candidates[others++].bytes;
    subnet_count = split(subnets, candidates, 0, others, 0);
    level = find_level(subnets, subnet_count, held > excess ? held - excess : 0);
    for (size_t i = 0; i < subnet_count && excess; i++) {
        size_t n_callers = split(callers, candidates, subnets[i].first, subnets[i].count, 1);
        size_t each = find_level(callers, n_callers, level), over;
        if (subnets[i].bytes <= level) break; /* sorted: so are all that follow */
        over = subnets[i].bytes - level;
        if (over > excess) over = excess;
        for (size_t k = 0; k < n_callers && over; k++) {
            size_t freed = cut(candidates, &callers[k], each, over);
            over -= freed < over ? freed : over;
            excess -= freed < excess ? freed : excess;
        }
    }
    own = (struct holder){ others, n - others, 0 };
    for (size_t i = others; i < n; i++) own.bytes += candidates[i].bytes;
    if (excess) cut(candidates, &own, 0, excess);
    free(subnets);
    return PL_OK;
}
