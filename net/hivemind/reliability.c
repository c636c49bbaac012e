/* reliability.c - see reliability.h. */
#include "reliability.h"

#include <math.h>
#include <string.h>

/* Where the peer is, or would be. */
static size_t place_of(const struct reliability *r, const struct peer_id *peer)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (peer_id_compare(&r->peers[middle].peer, peer) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static const struct reliability_peer *find(const struct reliability *r, const struct peer_id *peer)
{
    size_t at = place_of(r, peer);
    return at < r->count && peer_id_equal(&r->peers[at].peer, peer) ? &r->peers[at] : NULL;
}

static int is_less_useful(const struct reliability_peer *a, const struct reliability_peer *b)
{
    if (a->proven != b->proven) return !a->proven;
    return a->used < b->used;
}

static void evict(struct reliability *r)
{
    size_t least = 0;
    for (size_t i = 1; i < r->count; i++)
        if (is_less_useful(&r->peers[i], &r->peers[least])) least = i;
    memmove(&r->peers[least], &r->peers[least + 1], (--r->count - least) * sizeof *r->peers);
}

static struct reliability_peer *add(struct reliability *r, double now, const struct peer_id *peer)
{
    size_t at = place_of(r, peer);
    if (at == r->count || !peer_id_equal(&r->peers[at].peer, peer)) {
        if (r->count == RELIABILITY_PEERS_MAX) evict(r);
        at = place_of(r, peer);
        memmove(&r->peers[at + 1], &r->peers[at], (r->count++ - at) * sizeof *r->peers);
        r->peers[at] = (struct reliability_peer){ .peer = *peer };
    }
    r->peers[at].used = now;
    return &r->peers[at];
}

/* At random, so that those who have failed together, or were failed together, don't meet again. */
static double back_off(const struct reliability *r, double failures, double most)
{
    double jitter = (double)chance_below(&r->chance, 1024) / 4096;
    return fmin(RELIABILITY_BASE * exp2(failures - 1), most) * (1 + jitter);
}

void reliability_delivered(struct reliability *r, double now, const struct peer_id *peer,
                           double latest)
{
    struct reliability_peer *p = add(r, now, peer);
    if (!p->proven) {
        r->unproven_failures /= 2;
        if (r->unproven_failures < 1) r->unproven_until = 0;
    }
    p->proven = 1;
    p->failures = fmax(0, p->failures - RELIABILITY_REGAINED);
    p->latest = fmax(latest, 0.9 * p->latest);
}

void reliability_failed(struct reliability *r, double now, const struct peer_id *peer)
{
    struct reliability_peer *p = add(r, now, peer);
    if (!p->proven) {
        r->unproven_failures = fmin(r->unproven_failures + 1, RELIABILITY_FAILURES_MAX);
        r->unproven_until = now + back_off(r, r->unproven_failures, RELIABILITY_UNPROVEN_MAX);
    }
    p->proven = 0;
    p->failures = fmin(p->failures + 1, RELIABILITY_FAILURES_MAX);
    p->until = now + back_off(r, p->failures, RELIABILITY_MAX);
}

int reliability_is_proven(const struct reliability *r, const struct peer_id *peer)
{
    const struct reliability_peer *p = find(r, peer);
    return p && p->proven;
}

int reliability_is_paused(const struct reliability *r, double now, const struct peer_id *peer)
{
    const struct reliability_peer *p = find(r, peer);
    if (p && p->proven) return 0;
    return now < r->unproven_until || (p && now < p->until);
}

double reliability_silence(const struct reliability *r, const struct peer_id *peer, double most)
{
    const struct reliability_peer *p = find(r, peer);
    double latest = p ? p->latest : 0, failures = p ? p->failures : 0;
    return fmin(most, (fmax(RELIABILITY_SILENCE, most / 4) + 3 * latest) * exp2(failures));
}
