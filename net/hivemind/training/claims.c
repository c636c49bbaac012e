/* claims.c - see claims.h. */
#include "claims.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_peer(const void *a, const void *b)
{
    const struct claimant *x = a, *y = b;
    return peer_id_compare(&x->peer, &y->peer);
}

static struct claimant *find(const struct claims *c, const struct peer_id *peer)
{
    const struct claimant wanted = { .peer = *peer };
    return c->count ? bsearch(&wanted, c->list, c->count, sizeof *c->list, by_peer) : NULL;
}

/* --- one record for each peer ----------------------------------------------------------------- */

size_t claims_read(struct progress_record *records, const struct dht_item *items, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        struct dht_id owner;
        if (progress_read(&records[count], items[i].value, items[i].n, NULL)) continue;
        dht_id_of(&owner, items[i].subkey, items[i].subkey_n);
        memcpy(records[count++].owner, owner.bytes, sizeof owner.bytes);
    }
    return count;
}

/* Of a peer's records the one that claims least comes first: a false lead gains nothing by it. */
static int by_peer_and_epoch(const void *a, const void *b)
{
    const struct progress_record *x = a, *y = b;
    int order = peer_id_compare(&x->peer, &y->peer);
    return order ? order : (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* The record among a peer's that is its own; NULL: none, its owner has been heard of lately. */
static struct progress_record *own_record(const struct claimant *before,
                                          struct progress_record *records, size_t count, double now)
{
    for (size_t i = 0; before && i < count; i++)
        if (!memcmp(records[i].owner, before->owner, sizeof before->owner)) return &records[i];
    return before && before->renewed + CLAIMS_SILENT > now ? NULL : records;
}

/* Whoever fills the target batch between two looks is as fast as anybody can be seen to be. */
static double bounded_speed(double speed, double target_batch)
{
    return fmin(fmax(speed, 0), target_batch / PROGRESS_FETCH_MIN);
}

static struct claimant renewed(const struct claimant *before, const struct progress_record *r,
                               double now)
{
    struct claimant p = before ? *before : (struct claimant){ .peer = r->peer, .renewed = now };
    if (p.time < r->time || p.time > r->time) {
        p.renewed = now;
        p.is_silent = 0;
    }
    memcpy(p.owner, r->owner, sizeof p.owner);
    p.epoch = r->epoch;
    p.time = r->time;
    p.is_client = r->client_mode;
    p.is_listed = 1;
    return p;
}

/* A peer that has left for a moment is remembered as long as a doubt may last. */
static int is_remembered(const struct claimant *p, double now)
{
    return p->renewed + CLAIMS_DOUBT_MAX > now;
}

/* Takes the peers into `next` that are known, or those that are not; how many of their records
 * count. Known peers come first, so that no flood of others takes their places. */
static size_t take(struct claims *next, struct progress_record *counted, const struct claims *c,
                   struct progress_record *records, size_t count, int known, double now)
{
    size_t n, taken = 0;
    for (size_t i = 0; i < count; i += n) {
        struct claimant *before = find(c, &records[i].peer);
        struct progress_record *r;
        for (n = 1; i + n < count && peer_id_equal(&records[i].peer, &records[i + n].peer);) n++;
        if ((before != NULL) != known || next->count == CLAIMS_MAX) continue;
        if (!(r = own_record(before, records + i, n, now))) continue;
        next->list[next->count++] = renewed(before, r, now);
        if (before) before->renewed = -INFINITY; /* taken over */
        counted[taken++] = *r;
    }
    return taken;
}

int claims_see(struct claims *c, struct progress_record *records, size_t count, double target_batch,
               double now, size_t *counted)
{
    struct claims next = { .list = malloc((count + c->count + 1) * sizeof *next.list) };
    struct progress_record *taken = malloc((count + 1) * sizeof *taken);
    *counted = 0;
    if (!next.list || !taken) {
        free(next.list);
        free(taken);
        return PL_ENOMEM;
    }
    if (count) qsort(records, count, sizeof *records, by_peer_and_epoch);
    *counted = take(&next, taken, c, records, count, 1, now);
    *counted += take(&next, taken + *counted, c, records, count, 0, now);
    for (size_t i = 0; i < *counted; i++) {
        records[i] = taken[i];
        records[i].samples_per_second = bounded_speed(taken[i].samples_per_second, target_batch);
    }
    free(taken);
    for (size_t i = 0; i < c->count && next.count < CLAIMS_MAX; i++)
        if (is_remembered(&c->list[i], now)) {
            next.list[next.count] = c->list[i];
            next.list[next.count++].is_listed = 0;
        }
    qsort(next.list, next.count, sizeof *next.list, by_peer);
    claims_clear(c);
    *c = next;
    return PL_OK;
}

/* --- the lead --------------------------------------------------------------------------------- */

static int counts(const struct claimant *p, int64_t own, double now)
{
    return p->is_listed && !p->is_silent &&
           (p->epoch <= own || p->is_mate || p->doubted_until <= now);
}

static int by_epoch(const void *a_, const void *b_)
{
    const int64_t *a = a_, *b = b_;
    return (*a > *b) - (*a < *b);
}

/* The highest epoch that more than half of them have reached, -1 if there are none. */
static int64_t majority(int64_t *epochs, size_t n)
{
    qsort(epochs, n, sizeof *epochs, by_epoch);
    return n ? epochs[(n - 1) / 2] : -1;
}

int64_t claims_lead(const struct claims *c, int64_t own, double now)
{
    int64_t *epochs = malloc(2 * (c->count + 1) * sizeof *epochs), *mates, all, of_mates;
    size_t n = 0, m = 0;
    if (!epochs) return -1;
    mates = epochs + c->count + 1;
    for (size_t i = 0; i < c->count; i++)
        if (counts(&c->list[i], own, now)) {
            epochs[n++] = c->list[i].epoch;
            if (c->list[i].is_mate) mates[m++] = c->list[i].epoch;
        }
    all = majority(epochs, n);
    of_mates = majority(mates, m);
    free(epochs);
    return m >= CLAIMS_MATES_MIN || (m && of_mates < all) ? of_mates : all;
}

int claims_can_be_shown(const struct claims *c, int64_t own, double now)
{
    for (size_t i = 0; i < c->count; i++)
        if (counts(&c->list[i], own, now) && !c->list[i].is_client && c->list[i].epoch > own)
            return 1;
    return 0;
}

static int shall_be_pinged(const struct claimant *p, int64_t epoch, double now)
{
    return p->is_listed && !p->is_silent && !p->is_client && p->epoch < epoch &&
           p->asked + CLAIMS_SILENT <= now;
}

size_t claims_to_ping(struct claims *c, struct peer_id out[CLAIMS_PINGS], int64_t epoch, double now)
{
    size_t n = 0;
    while (n < CLAIMS_PINGS) {
        struct claimant *oldest = NULL;
        for (size_t i = 0; i < c->count; i++)
            if (shall_be_pinged(&c->list[i], epoch, now) &&
                (!oldest || c->list[i].time < oldest->time))
                oldest = &c->list[i];
        if (!oldest) break;
        oldest->asked = now;
        out[n++] = oldest->peer;
    }
    return n;
}

void claims_silent(struct claims *c, const struct peer_id *peer, double asked)
{
    struct claimant *p = find(c, peer);
    if (p && p->renewed <= asked) p->is_silent = 1;
}

void claims_round(struct claims *c, const struct group *g)
{
    for (size_t i = 0; i < c->count; i++) c->list[i].is_mate = group_find(g, &c->list[i].peer) >= 0;
}

/* --- doubts ----------------------------------------------------------------------------------- */

void claims_doubt(struct claims *c, int64_t own, double now)
{
    for (size_t i = 0; i < c->count; i++) {
        struct claimant *p = &c->list[i];
        double life = CLAIMS_DOUBT_MIN;
        if (!counts(p, own, now) || p->epoch <= own) continue;
        for (int k = 0; k < p->doubts && life < CLAIMS_DOUBT_MAX; k++) life *= 2;
        p->doubted_until = now + fmin(life, CLAIMS_DOUBT_MAX);
        if (life < CLAIMS_DOUBT_MAX) p->doubts++;
    }
}

void claims_shown(struct claims *c, int64_t own)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->list[i].epoch <= own) {
            c->list[i].doubted_until = 0;
            c->list[i].doubts = 0;
        }
}

void claims_clear(struct claims *c)
{
    free(c->list);
    *c = (struct claims){ 0 };
}
