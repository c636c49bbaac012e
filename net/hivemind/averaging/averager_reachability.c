/* averager_reachability.c - whether others can call this peer, and what its gather message states
 * accordingly.
 *
 *   reachable             calls, matchmaking and parts: the bandwidth of the options, or what was
 *                         measured
 *   behind NAT, direct    the same, while each peer of our last group has a direct connection to
 *                         us, and no more peers will come than were in it
 *   behind NAT, relayed   calls and matchmaking, but no parts: bandwidth 0, so it reduces nothing
 *   neither               it can only ask
 *
 * All four are learned while the program runs, and change. [spec hivemind-protocol 4.3] */
#include "averager_internal.h"

#define CONNECT_LIMIT 30.0 /* s to connect to a groupmate, relay included */

/* Returns 1 if each peer of the next group is likely to have a direct connection to us, in either
 * direction: those of the last one have, and no other peer is expected. */
static int reaches_next_group(const struct averager *a)
{
    const struct peer_id *list = a->round.protected_peers, *self = host_id(a->host);
    size_t others = 0;
    for (size_t i = 0; i < a->round.protected_count; i++) {
        if (peer_id_equal(&list[i], self)) continue;
        if (!host_is_direct(a->host, &list[i])) return 0;
        others++;
    }
    return others > 0 && a->call.step.expected <= others + 1;
}

/* Only an attempt: no caller waits for it. */
static void on_connected(void *context, int status, const struct peer_id *peer,
                         const struct pl_err *err)
{
}

/* Through the relay at first; DCUtR then makes the connection a direct one, where the routers allow
 * that (libp2p/relay/dcutr.h). */
void averager_connect_group(struct averager *a)
{
    for (size_t i = 0; a->search.behind_nat && i < a->round.protected_count; i++) {
        const struct peer_id *peer = &a->round.protected_peers[i];
        if (!peer_id_equal(peer, host_id(a->host)) && !host_is_connected(a->host, peer))
            host_connect(a->host, peer, CONNECT_LIMIT, on_connected, NULL);
    }
}

/* Without direct connections a peer behind NAT states 0 and reduces nothing: parts between two such
 * peers would travel through a relay, which carries 128 KiB. Its own streams to the others, and
 * their answers on them, need none. A groupmate that nobody has expected may not reach us: it
 * loses that round, and in the next we state 0. */
double averager_stated_bandwidth(const struct averager *a)
{
    if (a->search.behind_nat && !reaches_next_group(a)) return 0;
    return a->o.bandwidth == PL_BANDWIDTH_UNKNOWN ? bandwidth_stated(a->bandwidth) : a->o.bandwidth;
}

/* Behind NAT a peer may still be reachable through a relay, which is enough for calls and
 * for matchmaking, but not for parts. A peer that has no relay either can only ask (below). */
int averager_is_behind_nat(const struct averager *a)
{
    return !a->o.client_mode && dht_node_is_behind_nat(a->node);
}

int averager_cannot_be_called(const struct averager *a)
{
    return !a->o.client_mode && !dht_node_is_reachable(a->node);
}

int averager_check_reachability(struct averager *a)
{
    struct bytes fresh = { 0 };
    struct gather gather;
    a->search.behind_nat = averager_is_behind_nat(a);
    /* Only the bandwidth in the message changes: a peer that others can't call reduces nothing, and
     * a round that fell apart may have measured the uplink. */
    if (gather_read(&gather, bytes_at(&a->search.gather), bytes_length(&a->search.gather), NULL) ||
        gather.bandwidth == averager_stated_bandwidth(a))
        return 0;
    gather.bandwidth = averager_stated_bandwidth(a);
    if (gather_write(&fresh, &gather)) {
        bytes_clear(&fresh);
        return 0;
    }
    bytes_clear(&a->search.gather);
    a->search.gather = fresh;
    return 1;
}
