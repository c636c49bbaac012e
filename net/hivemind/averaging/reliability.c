/* reliability.c - back-off by a peer's own observations: exponential, with jitter, and shared by
 * all unproven identities.
 *
 *   failure     failures + 1, and no contact for BASE * 2^(failures - 1) s
 *   charge      the same from two failures on: it has cost everybody a verified round
 *   delivery    failures - 1/4, and the peer is proven
 *   connection  ends the back-off of a proven peer's first failure
 *
 * Peers lie in an array sorted by peer ID: a look-up takes 10 comparisons of 1,024 peers. */
#include "reliability.h"

#include <math.h>
#include <string.h>

/* Where the peer is, or would be. */
static size_t place_of(const struct reliability *r, const struct peer_id *peer)
{
    /* The first peer that is not less: where it is, or where it has to be inserted. */
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

static int is_evicted_before(const struct reliability_peer *a, const struct reliability_peer *b,
                             double now)
{
    /* Order of eviction: unheard for an hour; then unproven, the newest first; then proven,
     * the one longest unheard. So identities that are made up in numbers push out one
     * another. */
    const int a_gone = a->heard + RELIABILITY_KEPT < now,
              b_gone = b->heard + RELIABILITY_KEPT < now;
    if (a_gone != b_gone) return b_gone;
    if (a->proven != b->proven) return a->proven;
    return a->proven ? b->heard < a->heard : b->seen > a->seen;
}

static void evict(struct reliability *r, double now)
{
    size_t least = 0;
    for (size_t i = 1; i < r->count; i++)
        if (is_evicted_before(&r->peers[least], &r->peers[i], now)) least = i;
    r->proven -= (size_t)r->peers[least].proven;
    memmove(&r->peers[least], &r->peers[least + 1], (--r->count - least) * sizeof *r->peers);
}

static struct reliability_peer *add(struct reliability *r, double now, const struct peer_id *peer)
{
    size_t at = place_of(r, peer);
    if (at == r->count || !peer_id_equal(&r->peers[at].peer, peer)) {
        if (r->count == RELIABILITY_PEERS_MAX) evict(r, now);
        at = place_of(r, peer);
        memmove(&r->peers[at + 1], &r->peers[at], (r->count++ - at) * sizeof *r->peers);
        r->peers[at] = (struct reliability_peer){ .peer = *peer, .seen = now };
    }
    r->peers[at].heard = now;
    return &r->peers[at];
}

void reliability_see(struct reliability *r, double now, const struct peer_id *peer, int reports)
{
    /* It stays a reporter: otherwise it could withdraw its report before it fails, and be
     * counted among the strangers. */
    add(r, now, peer)->reports |= reports != 0;
}

/* Its failure may have been its connection's, which is replaced. A charge stays. */
static void excuse(struct reliability_peer *p, double now)
{
    if (!p->is_excusable || now < p->excused_until) return;
    p->until = p->refused_until;
    p->is_excusable = 0;
    p->excused_until = now + RELIABILITY_EXCUSED;
}

void reliability_connected(struct reliability *r, double now, const struct peer_id *peer)
{
    /* Who only connects takes no place in the list. */
    const size_t at = place_of(r, peer);
    if (at == r->count || !peer_id_equal(&r->peers[at].peer, peer)) return;
    r->peers[at].connected = now;
    excuse(&r->peers[at], now);
}

/* The duration is random, so that peers that failed in one round do not meet again in the same
 * round. */
static double back_off(const struct reliability *r, double base, double failures, double most)
{
    /* min(BASE * 2^(failures - 1), MAX) * (1 + u), u uniform in [0, 1/4). */
    double jitter = (double)random_source_below(&r->random, 1024) / 4096;
    return fmin(base * exp2(failures - 1), most) * (1 + jitter);
}

void reliability_delivered(struct reliability *r, double now, const struct peer_id *peer,
                           double latest)
{
    struct reliability_peer *p = add(r, now, peer);
    /* An unproven peer that delivers shows that not all unproven ones are bad: half of the
     * suspicion goes. A peer that reports counts in both back-offs, others in the first
     * alone. */
    for (int i = 0; !p->proven && i <= p->reports; i++) {
        r->unproven[i].failures /= 2;
        if (r->unproven[i].failures < 1) r->unproven[i].until = 0;
    }
    r->proven += !p->proven;
    p->proven = 1;
    p->is_excusable = 0;
    p->disbands = 0;
    /* Four good rounds for one bad: a peer that fails every fourth round still sinks. */
    p->failures = fmax(0, p->failures - RELIABILITY_REGAINED);
    /* The slowest that it was, forgotten by a tenth a round. */
    p->latest = fmax(latest, 0.9 * p->latest);
}

/* A series of failures under names that were not there when the first of them began. */
static void fail_unproven(struct reliability *r, struct reliability_unproven *u, double now,
                          double began, double most)
{
    /* A long quiet time ends a series; the next one begins anew, with its own beginning. */
    if (now > u->until + RELIABILITY_MAX) u->failures = 0;
    if (u->failures < 1) u->since = began;
    u->failures = fmin(u->failures + 1, RELIABILITY_FAILURES_MAX);
    u->until = now + back_off(r, RELIABILITY_UNPROVEN_BASE, u->failures, most);
}

/* Only its first failure says anything about new names; the next ones are its own. */
static void fail_new_names(struct reliability *r, const struct reliability_peer *p, double now,
                           double began)
{
    for (int i = 0; !p->proven && p->failures < 1 && i <= p->reports; i++)
        fail_unproven(r, &r->unproven[i], now, began,
                      i ? RELIABILITY_REPORTER_MAX : RELIABILITY_UNPROVEN_MAX);
}

/* One failure more, but at least `least` of them in all. */
static struct reliability_peer *fail(struct reliability *r, double now, double began,
                                     const struct peer_id *peer, double least)
{
    const int is_known = find(r, peer) != NULL;
    struct reliability_peer *p = add(r, now, peer);
    double until;
    p->reports |= !is_known; /* it may have reported before it was evicted */
    fail_new_names(r, p, now, began);
    p->is_excusable = p->proven && p->failures == 0 && least <= 1;
    /* A failure makes a proven peer unproven: it has to deliver again. */
    r->proven -= (size_t)p->proven;
    p->proven = 0;
    p->failures = fmin(fmax(p->failures + 1, least), RELIABILITY_FAILURES_MAX);
    until = now + back_off(r, RELIABILITY_BASE, p->failures, RELIABILITY_MAX);
    /* A later, shorter back-off never shortens an earlier charge. */
    p->until = fmax(until, p->refused_until);
    if (p->connected > began) excuse(p, now);
    return p;
}

void reliability_failed(struct reliability *r, double now, double began, const struct peer_id *peer)
{
    fail(r, now, began, peer, 1);
}

void reliability_left(struct reliability *r, double now, double began, const struct peer_id *peer)
{
    struct reliability_peer *p = add(r, now, peer);
    if (now < p->left_until) fail(r, now, began, peer, 1);
    else fail_new_names(r, p, now, began);
    p->left_until = now + RELIABILITY_EXCUSED;
}

void reliability_disbanded(struct reliability *r, double now, double began,
                           const struct peer_id *peer)
{
    struct reliability_peer *p = add(r, now, peer);
    if (++p->disbands % RELIABILITY_DISBANDS_MAX == 0) reliability_failed(r, now, began, peer);
}

double reliability_charged(struct reliability *r, double now, double began,
                           const struct peer_id *peer)
{
    struct reliability_peer *p = fail(r, now, began, peer, RELIABILITY_CHARGE);
    p->refused_until = p->until;
    return p->until - now;
}

int reliability_is_refused(const struct reliability *r, double now, const struct peer_id *peer)
{
    const struct reliability_peer *p = find(r, peer);
    return p && now < p->refused_until;
}

int reliability_is_proven(const struct reliability *r, const struct peer_id *peer)
{
    const struct reliability_peer *p = find(r, peer);
    return p && p->proven;
}

int reliability_is_paused(const struct reliability *r, double now, const struct peer_id *peer,
                          int reports)
{
    const struct reliability_peer *p = find(r, peer);
    /* Its own back-off, or that of its class: a peer seen before the series began is not
     * meant by it. */
    const int reporter = reports || (p && p->reports);
    const struct reliability_unproven *u = &r->unproven[reporter];
    if (p && p->proven) return 0;
    if (p && now < p->until) return 1;
    return (r->proven || !reporter) && now < u->until && (!p || p->seen > u->since);
}

double reliability_silence(const struct reliability *r, const struct peer_id *peer, double most)
{
    const struct reliability_peer *p = find(r, peer);
    double latest = p ? p->latest : 0, failures = p ? p->failures : 0;
    /* (max(3 s, most / 4) + 3 * slowest) * 2^failures: a peer that was given up once is
     * waited for longer, since it may have been slow and not silent. At most the timeout. */
    return fmin(most, (fmax(RELIABILITY_SILENCE, most / 4) + 3 * latest) * exp2(failures));
}
