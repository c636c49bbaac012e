/* dht_members.c - the members of a swarm that an authority moderates.
 *
 * hivemind's tokens travel in DHT calls only; its averaging calls carry none, so any stranger could
 * join a group or download the state. Here a peer must have proven its membership on the DHT before
 * it calls, or is called, for averaging: by a request or a response signed by the key of an
 * unexpired token from the authority. A copied token is of no use: each signature is fresh, and a
 * response's covers our nonce. A peer without a proof is asked for one by a ping (dht_pings.c),
 * which real hivemind peers answer, too. */
#include "dht_members.h"
#include "net/hivemind/records/hash_index.h"

#include <stdlib.h>

void dht_members_close(struct dht_members *m)
{
    free(m->members);
    free(m->failures);
    m->members = NULL;
    m->failures = NULL;
    m->count = 0;
}

static struct dht_member *find(const struct dht_members *m, const struct peer_id *peer)
{
    for (size_t i = 0; i < m->count; i++)
        if (peer_id_equal(&m->members[i].peer, peer)) return &m->members[i];
    return NULL;
}

/* Each signed message renews it: until the token's own end, which the authority has set. */
void dht_members_add(struct dht_members *m, const struct peer_id *peer, double until)
{
    struct dht_member *e = find(m, peer);
    /* Without memory the peer stays a stranger and is asked again later. */
    if (!m->members && !(m->members = calloc(DHT_MEMBERS_MAX, sizeof *m->members))) return;
    if (!e && m->count < DHT_MEMBERS_MAX) e = &m->members[m->count++];
    if (!e) { /* full: the token that expires first is forgotten */
        e = m->members;
        for (size_t i = 1; i < m->count; i++)
            if (m->members[i].until < e->until) e = &m->members[i];
    }
    *e = (struct dht_member){ *peer, until };
}

int dht_members_has(const struct dht_members *m, const struct peer_id *peer, double dht_now)
{
    const struct dht_member *e = find(m, peer);
    return e && e->until >= dht_now;
}

/* A ring: strangers can only push out other refusals, and then are asked again, which is
 * rationed. */
void dht_members_refuse(struct dht_members *m, const struct peer_id *peer, double now)
{
    m->refusals[m->refusal_next] = (struct dht_member){ *peer, now + DHT_REFUSAL_TIME };
    m->refusal_next = (m->refusal_next + 1) % DHT_REFUSALS_MAX;
    if (m->refusal_count < DHT_REFUSALS_MAX) m->refusal_count++;
}

/* Members are exempt: their neighbours' failures cannot lock them out. */
int dht_members_may_try(const struct dht_members *m, const struct peer_id *peer, uint64_t subnet,
                        double dht_now)
{
    return !m->failures || dht_members_has(m, peer, dht_now) ||
           (rate_limit_has(&m->failures[0], hash_bytes(peer->bytes, peer->length), 1, dht_now) &&
            rate_limit_has(&m->failures[1], subnet, 1, dht_now));
}

/* Counted afterwards, so that a valid token never costs anything. Without memory nothing is
 * counted. */
void dht_members_failed(struct dht_members *m, const struct peer_id *peer, uint64_t subnet,
                        double dht_now)
{
    if (!m->failures) {
        if (!(m->failures = calloc(2, sizeof *m->failures))) return;
        m->failures[0].rate = DHT_FAILURES_A_SECOND;
        m->failures[0].burst = DHT_FAILURES_BURST;
        m->failures[1].rate = DHT_SUBNET_FAILURES_A_SECOND;
        m->failures[1].burst = DHT_SUBNET_FAILURES_BURST;
    }
    rate_limit_take(&m->failures[0], hash_bytes(peer->bytes, peer->length), 1, dht_now);
    rate_limit_take(&m->failures[1], subnet, 1, dht_now);
}

int dht_members_may_ask(struct dht_members *m, const struct peer_id *peer, double now)
{
    for (size_t i = 0; i < m->refusal_count; i++)
        if (now < m->refusals[i].until && peer_id_equal(&m->refusals[i].peer, peer)) return 0;
    /* A window of one second: strangers can make us sign, but not more than so often. */
    if (now - m->proofs_since >= 1) m->proofs_since = now, m->proofs = 0;
    return m->proofs++ < DHT_PROOFS_A_SECOND;
}
