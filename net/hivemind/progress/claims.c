/* claims.c - how far peers' reports about themselves are believed. [spec hivemind-protocol 2.1, 8]
 *
 * A progress record is signed, but anybody can make a key. hivemind 1.1.12 takes the maximum of
 * all reported epochs as the global epoch, so one Byzantine peer with epoch 10^9 stops a run:
 * everybody tries to catch up. Here the median decides instead:
 *
 *   lead = the highest epoch e with  #{peers that report >= e} > n / 2
 *
 * over the groupmates of our last common round, of gradients or of parameters, if there are at
 * least two, since they have shown that they train. A single one is joined by our earlier
 * groupmates: else two pairs of a swarm that has split would stay apart. Without any it is over
 * everybody. To move the lead takes
 * more than half of the peers, and even then the lead only makes us ask for a state of that epoch.
 * If several downloads show no such state, its claimants are doubted: they do not count for 30 s,
 * then 60 s, up to 480 s.
 *
 * All functions are pure: times and records come in as arguments. */
#include "claims.h"
#include "net/hivemind/records/owner_proof.h"

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

/* The subkey names the key that signed the record: its owner. */
void claims_owner(uint8_t owner[DHT_ID_BYTES], const struct dht_item *item)
{
    struct dht_id id;
    dht_id_of(&id, item->subkey, item->subkey_n);
    memcpy(owner, id.bytes, sizeof id.bytes);
}

size_t claims_read(struct progress_record *records, const struct dht_item *items, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!progress_read(&records[count], items[i].value, items[i].n, NULL))
            claims_owner(records[count++].owner, &items[i]);
    return count;
}

struct proof {
    uint8_t owner[DHT_ID_BYTES];
    struct peer_id peer;
};

static int by_owner(const void *a_, const void *b_)
{
    const struct proof *a = a_, *b = b_;
    return memcmp(a->owner, b->owner, sizeof a->owner);
}

void claims_prove(struct progress_record *records, size_t count, const struct dht_item *items,
                  size_t n)
{
    struct proof *proofs = malloc((n + 1) * sizeof *proofs), wanted, *found;
    size_t proven = 0;
    for (size_t i = 0; proofs && i < n; i++)
        if (!identity_record_read(&proofs[proven].peer, items[i].value, items[i].n))
            claims_owner(proofs[proven++].owner, &items[i]);
    if (proven) qsort(proofs, proven, sizeof *proofs, by_owner);
    for (size_t i = 0; proven && i < count; i++) {
        memcpy(wanted.owner, records[i].owner, sizeof wanted.owner);
        found = bsearch(&wanted, proofs, proven, sizeof *proofs, by_owner);
        records[i].is_proven = found && peer_id_equal(&found->peer, &records[i].peer);
    }
    free(proofs);
}

/* Several keys may have written records for one peer id. */
static int by_peer_and_epoch(const void *a, const void *b)
{
    const struct progress_record *x = a, *y = b;
    int order = peer_id_compare(&x->peer, &y->peer);
    return order ? order : (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* A newcomer cannot know which of several keys is a peer's own. False records of a low epoch would
 * keep it from asking for a state, so at first the highest counts: no epoch is taken over without
 * its state. Then its own epoch, which a state has shown, tells the right record from others.
 * Records are in the order of their epochs. */
static struct progress_record *likeliest(struct progress_record *records, size_t count, int64_t own)
{
    struct progress_record *best = own < 0 ? &records[count - 1] : records;
    for (size_t i = 1; own >= 0 && i < count; i++)
        if (llabs(records[i].epoch - own) < llabs(best->epoch - own)) best = &records[i];
    return best;
}

static int is_by(const struct claimant *before, const struct progress_record *r)
{
    return before && !memcmp(r->owner, before->owner, sizeof r->owner);
}

/* The record of a key that is the peer's own beyond doubt, the latest of them: a peer that began
 * anew has another key, and its old record is still there. NULL: no key has been proven. */
static struct progress_record *proven(const struct claimant *before,
                                      struct progress_record *records, size_t count)
{
    struct progress_record *latest = NULL;
    for (size_t i = 0; i < count; i++) {
        records[i].is_proven |= is_by(before, &records[i]) && before->is_proven;
        if (records[i].is_proven && (!latest || records[i].time > latest->time))
            latest = &records[i];
    }
    return latest;
}

/* Picks the record of the key that is proven to be the peer's, else of the key that first wrote for
 * it. If that key was used lately, another key's record is an impostor's: NULL. Otherwise the peer
 * may have come back with a new key. */
static struct progress_record *own_record(const struct claimant *before,
                                          struct progress_record *records, size_t count,
                                          int64_t own, double now)
{
    struct progress_record *own_key = proven(before, records, count);
    /* The one sum of a part, by its leader of the moment (parts.h). */
    if (records->peers) return records;
    if (own_key) return own_key;
    if (before && before->is_disputed) return likeliest(records, count, own);
    for (size_t i = 0; i < count; i++)
        if (is_by(before, &records[i])) return &records[i];
    return before && before->renewed + CLAIMS_SILENT > now ? NULL : likeliest(records, count, own);
}

/* A key that is alone needs no proof: most polls ask for none. */
static int wants_proof(const struct claimant *before, const struct progress_record *records,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (records[i].is_proven) return 0;
    return count > 1 || (before && !is_by(before, records));
}

/* Bounds a claimed speed. A peer that fills the whole target batch between two polls cannot be
 * seen to be faster; a higher claim would only make the estimated time of the step too early. */
static double bounded_speed(double speed, double target_batch)
{
    return fmin(fmax(speed, 0), target_batch / PROGRESS_FETCH_MIN);
}

static struct claimant renewed(const struct claimant *before, const struct progress_record *r,
                               double now)
{
    struct claimant p = before ? *before : (struct claimant){ .peer = r->peer, .renewed = now };
    /* Any new time stamp shows that the peer lives: it counts as seen now. */
    if (p.time < r->time || p.time > r->time) {
        p.renewed = now;
        p.is_silent = 0;
    }
    memcpy(p.owner, r->owner, sizeof p.owner);
    p.is_proven = r->is_proven;
    p.epoch = r->epoch;
    p.time = r->time;
    p.is_client = r->client_mode;
    p.part_peers = r->peers;
    p.is_listed = 1;
    return p;
}

/* --- one name for each key -------------------------------------------------------------------- */

static int by_owner_of_claim(const void *a, const void *b)
{
    const struct claimant *const *x = a, *const *y = b;
    return memcmp((*x)->owner, (*y)->owner, sizeof(*x)->owner);
}

/* The remembered peers in the order of their owners; parts are left out, since their leaders have
 * records of their own, too. NULL: no memory. */
static const struct claimant **index_owners(const struct claims *c, size_t *count)
{
    const struct claimant **index = malloc((c->count + 1) * sizeof *index);
    *count = 0;
    for (size_t i = 0; index && i < c->count; i++)
        if (!c->list[i].part_peers) index[(*count)++] = &c->list[i];
    if (*count) qsort(index, *count, sizeof *index, by_owner_of_claim);
    return index;
}

/* A name costs nothing, and rounds wait for new peers now and then: a key that could name another
 * one each second would slow down every step. An honest process keeps its name as long as its
 * key. */
static int has_other_name(const struct claimant *const *index, size_t count,
                          const struct progress_record *r)
{
    struct claimant wanted;
    const struct claimant *key = &wanted;
    if (r->peers || !count) return 0;
    memcpy(wanted.owner, r->owner, sizeof wanted.owner);
    return bsearch(&key, index, count, sizeof *index, by_owner_of_claim) != NULL;
}

/* Peers without a record are remembered for as long as a doubt may last: else leaving and coming
 * back would clear a doubt. */
static int is_remembered(const struct claimant *p, double now)
{
    return p->renewed + CLAIMS_DOUBT_MAX > now;
}

/* Adds one record for each peer, of those known before or of those new. The list holds a
 * limited number of peers, and known ones come first: a flood of invented peers cannot displace
 * them. */
static size_t take(struct claims *next, struct progress_record *counted, const struct claims *c,
                   struct progress_record *records, size_t count, int known, double now)
{
    size_t n, taken = 0, owners = 0;
    const struct claimant **index = known ? NULL : index_owners(c, &owners);
    for (size_t i = 0; i < count; i += n) {
        struct claimant *before = find(c, &records[i].peer);
        struct progress_record *r;
        /* All records of one peer lie side by side, since they are sorted. */
        for (n = 1; i + n < count && peer_id_equal(&records[i].peer, &records[i + n].peer);) n++;
        if ((before != NULL) != known || next->count == CLAIMS_MAX) continue;
        r = own_record(before, records + i, n, c->own, now);
        next->wants_proofs |= wants_proof(before, records + i, n);
        if (!r || (!before && has_other_name(index, owners, r))) continue;
        next->list[next->count] = renewed(before, r, now);
        /* A key that is alone is the peer's, for all that we know. */
        next->list[next->count++].is_disputed = n > 1 && !r->is_proven &&
                                                (!before || before->is_disputed);
        if (before) before->renewed = -INFINITY; /* is in `next`: not remembered twice */
        counted[taken++] = *r;
    }
    free(index);
    return taken;
}

int claims_update(struct claims *c, struct progress_record *records, size_t count,
                  double target_batch, double now, size_t *counted)
{
    struct claims next = { .list = malloc((count + c->count + 1) * sizeof *next.list) };
    struct progress_record *taken = malloc((count + 1) * sizeof *taken);
    *counted = 0;
    /* Without memory no peer counts: this peer continues alone for one poll. */
    if (!next.list || !taken) {
        free(next.list);
        free(taken);
        return PL_ENOMEM;
    }
    /* Sorting and binary search: O(n log n), however many records strangers store. */
    if (count) qsort(records, count, sizeof *records, by_peer_and_epoch);
    *counted = take(&next, taken, c, records, count, 1, now);
    *counted += take(&next, taken + *counted, c, records, count, 0, now);
    for (size_t i = 0; i < *counted; i++) {
        records[i] = taken[i];
        records[i].samples_per_second = bounded_speed(taken[i].samples_per_second, target_batch);
    }
    free(taken);
    /* Peers without a record in this poll keep their doubts and their owner. */
    for (size_t i = 0; i < c->count && next.count < CLAIMS_MAX; i++)
        if (is_remembered(&c->list[i], now)) {
            next.list[next.count] = c->list[i];
            next.list[next.count++].is_listed = 0;
        }
    qsort(next.list, next.count, sizeof *next.list, by_peer);
    next.own = c->own;
    next.displayed = c->displayed;
    next.displayed_at = c->displayed_at;
    claims_clear(c);
    *c = next;
    return PL_OK;
}

/* --- the lead --------------------------------------------------------------------------------- */

/* A doubt concerns the claim to be ahead only: a doubted peer that reports our epoch or less
 * counts, and so does a groupmate. */
static int counts(const struct claimant *p, int64_t own, double now)
{
    return p->is_listed && !p->is_silent &&
           (p->epoch <= own || p->is_mate || p->doubted_until <= now);
}

int64_t claims_lead(const struct claims *c, int64_t own, double now)
{
    struct progress_vote *votes = malloc(3 * (c->count + 1) * sizeof *votes), *mates, *met;
    int64_t all, of_mates, of_met;
    size_t n = 0, m = 0, k = 0;
    if (!votes) return -1;
    mates = votes + c->count + 1;
    met = mates + c->count + 1;
    for (size_t i = 0; i < c->count; i++) {
        const struct claimant *p = &c->list[i];
        if (!counts(p, own, now)) continue;
        votes[n] = (struct progress_vote){ p->epoch, p->part_peers ? p->part_peers : 1 };
        if (p->is_mate) mates[m++] = votes[n];
        if (p->is_met) met[k++] = votes[n];
        n++;
    }
    all = progress_majority(votes, n);
    of_mates = progress_majority(mates, m);
    of_met = progress_majority(met, k);
    free(votes);
    /* Two groupmates or more decide; one of the last round does together with earlier ones. One
     * alone may only hold the lead back, never raise it. */
    if (m >= CLAIMS_MATES_MIN) return of_mates;
    if (m && k >= CLAIMS_MATES_MIN) return of_met;
    return m && of_mates < all ? of_mates : all;
}

int64_t claims_displayed(struct claims *c, int64_t lead, double now)
{
    if (lead >= c->displayed || now >= c->displayed_at + CLAIMS_DOUBT_MAX) {
        c->displayed = lead;
        c->displayed_at = now;
    }
    return c->displayed;
}

/* Clients accept no connections, so they cannot serve a state: a lead of clients alone stays a
 * claim. */
int claims_can_be_shown(const struct claims *c, int64_t own, double now)
{
    for (size_t i = 0; i < c->count; i++)
        if (counts(&c->list[i], own, now) && !c->list[i].is_client && c->list[i].epoch > own)
            return 1;
    return 0;
}

/* Clients are not pinged: they could not be dialled, and would look dead. Nor is a part. */
static int shall_be_pinged(const struct claimant *p, int64_t epoch, double now)
{
    return p->is_listed && !p->is_silent && !p->is_client && !p->part_peers && p->epoch < epoch &&
           p->asked + CLAIMS_SILENT <= now;
}

size_t claims_to_ping(struct claims *c, struct peer_id out[CLAIMS_PINGS], int64_t epoch, double now)
{
    size_t n = 0;
    while (n < CLAIMS_PINGS) {
        /* The oldest record is the most likely to be of a dead peer. */
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
    /* A report newer than the ping says more than a lost answer. */
    if (p && p->renewed <= asked) p->is_silent = 1;
}

void claims_round(struct claims *c, const struct group *g)
{
    /* Being a mate is earned in each round anew. */
    for (size_t i = 0; i < c->count; i++) {
        struct claimant *p = &c->list[i];
        p->is_mate = group_find(g, &p->peer) >= 0;
        p->is_met |= p->is_mate;
        /* It has made our step: what was nearest to our epoch is its own record. */
        if (p->is_mate && c->own >= 0) p->is_disputed = 0;
    }
}

/* --- doubts ----------------------------------------------------------------------------------- */

int claims_is_owner(const struct claims *c, const struct peer_id *peer,
                    const uint8_t owner[DHT_ID_BYTES])
{
    const struct claimant *p = find(c, peer);
    return p && !p->is_disputed && !memcmp(p->owner, owner, DHT_ID_BYTES);
}

void claims_doubt(struct claims *c, int64_t own, double now)
{
    c->displayed_at = -INFINITY; /* the next lead is shown, though it is lower */
    for (size_t i = 0; i < c->count; i++) {
        struct claimant *p = &c->list[i];
        double life = CLAIMS_DOUBT_MIN;
        if (!counts(p, own, now) || p->epoch <= own) continue;
        /* 30 s * 2^doubts: an honest peer whose donors were busy is asked again soon, an
         * impostor seldom. */
        for (int k = 0; k < p->doubts && life < CLAIMS_DOUBT_MAX; k++) life *= 2;
        p->doubted_until = now + fmin(life, CLAIMS_DOUBT_MAX);
        if (life < CLAIMS_DOUBT_MAX) p->doubts++;
    }
}

/* A peer that claims no more than the epoch that we have loaded was right. */
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
