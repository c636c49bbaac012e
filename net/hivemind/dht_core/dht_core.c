/* dht_core.c - the state by which a node judges others' records and answers: the time, and which
 * nodes to ask.
 *
 * A record is valid until an absolute time, so nodes must share a clock, and the machine's may be
 * wrong. So DHT time is a clock of our own:
 *
 *   DHT time = time since boot + base + offset
 *
 * base is taken once, at the first answer: from then on a change of the machine's clock moves
 * nothing. offset is measured against the initial peers while joining.
 *
 * A node that fails to answer is avoided for a while, also when others report it. The timeout of a
 * call follows the measured round trips. */
#include "dht_core.h"
#include "net/hivemind/records/hash_index.h"
#include "net/libp2p/host/host_protocol.h"

#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Expirations are absolute times, so peers must agree on the time to some seconds. The offset comes
 * from the initial peers' clocks (dht_join.c); the machine's clock itself is never set. */
double dht_core_time(const struct dht_core *c)
{
    double now = c->clock_base != 0 ? seconds_of(CLOCK_BOOTTIME) + c->clock_base
                                    : seconds_of(CLOCK_REALTIME);
    return now + c->clock_offset;
}

void dht_core_hold_clock(struct dht_core *c)
{
    if (c->clock_base == 0) c->clock_base = seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME);
}

/* Joining went on without this initial peer's answer: it may be down, so searches skip it. */
static int is_late_initial(const struct dht_core *c, const struct peer_id *peer)
{
    for (size_t i = 0; !c->asks_initials && i < c->initial_count; i++)
        if (c->initials[i].state == INITIAL_TRYING && peer_id_equal(&c->initials[i].peer, peer))
            return 1;
    return 0;
}

/* Not only not asked: also not taken over from others' answers, or a dead node that many report
 * would take places in the beam of every search. */
int dht_core_avoids(const struct dht_core *c, const struct peer_id *peer)
{
    return dht_blacklist_has(&c->blacklist, peer, loop_now(c->loop)) || is_late_initial(c, peer);
}

size_t dht_core_trusted(const struct dht_core *c, struct dht_contact out[DHT_SEARCH_TRUSTED],
                        const struct dht_id *key)
{
    size_t count = 0;
    for (size_t i = 0; i < c->initial_count; i++) {
        const struct dht_initial *it = &c->initials[i];
        const struct dht_contact initial = { .id = it->id, .peer = it->peer };
        int is_double = 0;
        if (it->state != INITIAL_GOOD || dht_core_avoids(c, &it->peer)) continue;
        for (size_t k = 0; k < count; k++) is_double |= peer_id_equal(&out[k].peer, &it->peer);
        if (!is_double) count = dht_contact_insert(out, count, DHT_SEARCH_TRUSTED, &initial, key);
    }
    return count;
}

/* One table has all limits of what strangers may use (resources.c). Its limit for the node is
 * divided like the engine's own defaults: four fifths for the storage, the rest for the cache. */
void dht_core_count_records(struct dht_core *c)
{
    struct resources *r = host_resources(c->host);
    const size_t all = resources_limit(r, SCOPE_SYSTEM, RESOURCE_RECORDS);
    struct dht_state *s = &c->state;
    /* The limits are read each time: the host may have scaled them to its machine. */
    s->storage.bytes_max = all / 5 * 4;
    s->cache.bytes_max = all / 5;
    s->quota.peer_max = resources_limit(r, SCOPE_PEER, RESOURCE_RECORDS);
    s->quota.subnet_max = resources_limit(r, SCOPE_SUBNET, RESOURCE_RECORDS);
    r->limited += s->quota.refused;
    s->quota.refused = 0;
    resources_report(r, RESOURCE_RECORDS, s->storage.bytes + s->cache.bytes);
}

/* The subnet that a peer's requests are charged to, besides the peer: identities cost nothing,
 * addresses do. One customer of a provider usually has a /24 or a /64. For a peer behind a relay it
 * is the relay's. */
uint64_t dht_core_subnet(const struct dht_core *c, const struct peer_id *peer)
{
    struct multiaddr a;
    struct multiaddr_target t;
    if (host_remote_address(c->host, peer, &a) || multiaddr_target(&t, &a) || !t.family) return 0;
    if (multiaddr_scope(&a) == SCOPE_LOOPBACK) return hash_bytes(t.ip, t.family == 4 ? 4 : 16);
    return hash_bytes(t.ip, t.family == 4 ? 3 : 8);
}

/* An exponential moving average with factor 1/8, as TCP smooths its round-trip time (RFC 6298). */
void dht_core_answered(struct dht_core *c, const struct peer_id *peer, double seconds)
{
    dht_core_hold_clock(c);
    c->round_trip += c->round_trip > 0 ? (seconds - c->round_trip) / 8 : seconds;
    dht_blacklist_answered(&c->blacklist, peer);
}

/* Twice the usual round trip on top of a second: a busy machine answers late without being dead,
 * and a search that passes over it too soon only asks more nodes. */
double dht_core_patience(const struct dht_core *c)
{
    return DHT_SEARCH_PATIENCE + 2 * c->round_trip;
}

void dht_core_wake(struct dht_core *c) { c->wake(c->context); }
