/* peerstore.c - a hash table of peers with their addresses.
 *
 * Everything in it comes from others, so everything is bounded: peers, addresses of each, bytes of
 * protocol names. A full list drops the address that failed most or expires first; a full table the
 * peer that was seen longest ago and is not connected. An address that fails is dialed again after
 * 5, 10, 20 ... up to 300 seconds. */
#include "peerstore.h"

#include <math.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

static struct peer **bucket(const struct peers *t, const struct peer_id *id)
{
    uint64_t tail; /* an id ends in a key or a hash: eight bytes of it are as good as any */
    memcpy(&tail, id->bytes + id->length - 8, 8);
    tail = (tail ^ t->seed) * 0x9e3779b97f4a7c15u;
    return &t->buckets[(tail >> 32) & (t->bucket_count - 1)];
}

static void free_peer(struct peer *p)
{
    free(p->addresses);
    free(p->protocols);
    free(p);
}

void peers_clear(struct peers *t)
{
    for (size_t i = 0; i < t->bucket_count; i++)
        while (t->buckets[i]) {
            struct peer *next = t->buckets[i]->next;
            free_peer(t->buckets[i]);
            t->buckets[i] = next;
        }
    free(t->buckets);
    memset(t, 0, sizeof *t);
}

struct peer *peers_find(const struct peers *t, const struct peer_id *id)
{
    struct peer *p;
    if (id->length < 8 || !t->bucket_count) return NULL;
    p = *bucket(t, id);
    while (p && !peer_id_equal(&p->id, id)) p = p->next;
    return p;
}

static void drop(struct peers *t, struct peer *p)
{
    struct peer **at = bucket(t, &p->id);
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    t->count--;
    free_peer(p);
}

static int is_held(const struct peer *p) { return p->connections || p->search; }

static int evict_oldest(struct peers *t)
{
    struct peer *oldest = NULL;
    for (size_t i = 0; i < t->bucket_count; i++)
        for (struct peer *p = t->buckets[i]; p; p = p->next)
            if (!is_held(p) && (!oldest || p->seen < oldest->seen)) oldest = p;
    if (oldest) drop(t, oldest);
    return oldest != NULL;
}

static int grow(struct peers *t)
{
    struct peer **old = t->buckets, **fresh;
    size_t n = t->bucket_count;
    if (!n && RAND_bytes((uint8_t *)&t->seed, sizeof t->seed) != 1) return PL_ENOMEM;
    if (!(fresh = calloc(n ? 2 * n : 16, sizeof *fresh))) return PL_ENOMEM;
    t->buckets = fresh;
    t->bucket_count = n ? 2 * n : 16;
    for (size_t i = 0; i < n; i++)
        while (old[i]) {
            struct peer *p = old[i], **at = bucket(t, &p->id);
            old[i] = p->next;
            p->next = *at;
            *at = p;
        }
    free(old);
    return PL_OK;
}

void peer_place(uint8_t place[32], const uint8_t *id, size_t n)
{
    EVP_Digest(id, n, place, NULL, EVP_sha256(), NULL);
}

struct peer *peers_get(struct peers *t, const struct peer_id *id, double now)
{
    struct peer *p = peers_find(t, id), **at;
    if (p) {
        p->seen = now;
        return p;
    }
    if (id->length < 8 || (t->count >= PEERS_MAX && !evict_oldest(t))) return NULL;
    if (t->count >= t->bucket_count && grow(t)) return NULL;
    if (!(p = calloc(1, sizeof *p))) return NULL;
    p->id = *id;
    p->seen = now;
    peer_place(p->place, id->bytes, id->length);
    at = bucket(t, id);
    p->next = *at;
    *at = p;
    t->count++;
    return p;
}

void peers_each(const struct peers *t, void (*fn)(void *context, struct peer *p), void *context)
{
    for (size_t i = 0; i < t->bucket_count; i++)
        for (struct peer *p = t->buckets[i]; p; p = p->next) fn(context, p);
}

/* A peer without addresses, connection or search is forgotten. */
void peers_expire(struct peers *t, double now)
{
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct peer *p = t->buckets[i], *next;
        for (; p; p = next) {
            size_t kept = 0;
            next = p->next;
            for (size_t k = 0; k < p->address_count; k++)
                if (p->addresses[k].expires > now || p->connections)
                    p->addresses[kept++] = p->addresses[k];
            p->address_count = kept;
            if (!kept && !is_held(p)) drop(t, p);
        }
    }
}

/* --- one peer --------------------------------------------------------------------------------- */

/* The address without a final /p2p, and the peer that this names, if any. A relayed address ends in
 * /p2p/RELAY/p2p-circuit[/p2p/PEER], of which only the last part is the peer's. */
static int strip(struct multiaddr *out, struct peer_id *last, const struct multiaddr *a)
{
    struct multiaddr_target t;
    int rc = multiaddr_target(&t, a);
    if (rc) return rc;
    *out = *a;
    *last = t.peer;
    if (t.peer.length) multiaddr_strip_peer(out, &t.peer);
    return PL_OK;
}

static struct address *find_address(struct peer *p, const struct multiaddr *a)
{
    for (size_t i = 0; i < p->address_count; i++)
        if (multiaddr_equal(&p->addresses[i].at, a)) return &p->addresses[i];
    return NULL;
}

/* The address to replace by a new one: the one that failed most, then the one that expires
 * first. */
static struct address *worst_address(struct peer *p)
{
    struct address *worst = &p->addresses[0];
    for (size_t i = 1; i < p->address_count; i++) {
        struct address *a = &p->addresses[i];
        if (a->failures > worst->failures ||
            (a->failures == worst->failures && a->expires < worst->expires))
            worst = a;
    }
    return worst;
}

int peer_learn(struct peer *p, const struct multiaddr *reported, double expires)
{
    struct multiaddr at;
    struct peer_id whose;
    struct address *a;
    int rc = strip(&at, &whose, reported);
    if (rc) return rc;
    if (whose.length && !peer_id_equal(&whose, &p->id)) return PL_EPROTO;
    if ((a = find_address(p, &at))) {
        if (expires > a->expires) a->expires = expires;
        return PL_OK;
    }
    if (p->address_count == PEER_ADDRESSES_MAX) {
        a = worst_address(p);
        if (!a->failures && a->expires >= expires) return PL_ELIMIT;
    } else {
        a = realloc(p->addresses, (p->address_count + 1) * sizeof *a);
        if (!a) return PL_ENOMEM;
        p->addresses = a;
        a += p->address_count++;
    }
    *a = (struct address){ .at = at, .expires = expires };
    return PL_OK;
}

/* 5, 10, 20 ... 300 s: a dead address costs a dial every five minutes at most. */
void peer_address_failed(struct peer *p, const struct multiaddr *dialed, double now)
{
    struct multiaddr at;
    struct peer_id whose;
    struct address *a;
    double wait;
    if (strip(&at, &whose, dialed) || !(a = find_address(p, &at))) return;
    wait = ldexp(BACKOFF_FIRST, a->failures < 10 ? a->failures : 10);
    a->retry_at = now + (wait < BACKOFF_MAX ? wait : BACKOFF_MAX);
    a->failures++;
}

void peer_address_worked(struct peer *p, const struct multiaddr *dialed)
{
    struct multiaddr at;
    struct peer_id whose;
    struct address *a;
    if (strip(&at, &whose, dialed) || !(a = find_address(p, &at))) return;
    a->retry_at = 0;
    a->failures = 0;
}

int peer_set_protocols(struct peer *p, const char *texts, size_t n)
{
    char *copy;
    if (n > PEER_PROTOCOL_TEXT_MAX) return PL_ELIMIT;
    if (!(copy = malloc(n + 1))) return PL_ENOMEM;
    if (n) memcpy(copy, texts, n);
    copy[n] = 0;
    free(p->protocols);
    p->protocols = copy;
    p->protocol_bytes = n;
    p->identified = 1;
    p->serves_kad = peer_serves(p, "/ipfs/kad/1.0.0");
    return PL_OK;
}

/* Names lie one behind the other, each ending in a zero byte. */
int peer_serves(const struct peer *p, const char *protocol)
{
    for (size_t at = 0; at < p->protocol_bytes; at += strlen(p->protocols + at) + 1)
        if (!strcmp(p->protocols + at, protocol)) return 1;
    return 0;
}

/* --- where an address lies -------------------------------------------------------------------- */

/* Loopback, private (10/8, 172.16/12, 192.168/16, link-local, carrier-grade NAT), or public. */
enum address_scope multiaddr_scope(const struct multiaddr *a)
{
    struct multiaddr_target t;
    const uint8_t *ip = t.ip;
    if (multiaddr_target(&t, a)) return SCOPE_PUBLIC;
    if (t.family == 6) {
        static const uint8_t loopback[16] = { [15] = 1 }, mapped[12] = { [10] = 255, [11] = 255 };
        if (!memcmp(ip, loopback, 16)) return SCOPE_LOOPBACK;
        if (!memcmp(ip, mapped, 12)) ip += 12; /* ::ffff:a.b.c.d is a.b.c.d */
        else
            return (ip[0] & 0xfe) == 0xfc || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80)
                       ? SCOPE_PRIVATE
                       : SCOPE_PUBLIC;
    } else if (t.family != 4) {
        return strcmp(t.name, "localhost") ? SCOPE_PUBLIC : SCOPE_LOOPBACK;
    }
    if (ip[0] == 127 || ip[0] == 0) return SCOPE_LOOPBACK;
    if (ip[0] == 10 || (ip[0] == 172 && (ip[1] & 0xf0) == 16) || (ip[0] == 192 && ip[1] == 168) ||
        (ip[0] == 169 && ip[1] == 254) || (ip[0] == 100 && (ip[1] & 0xc0) == 64))
        return SCOPE_PRIVATE;
    return SCOPE_PUBLIC;
}

/* A peer on the internet cannot know the listeners on our loopback: such an address would make us
 * dial ourselves, or our neighbours. */
int multiaddr_is_plausible(const struct multiaddr *address, const struct multiaddr *over)
{
    return multiaddr_scope(address) >= multiaddr_scope(over);
}
