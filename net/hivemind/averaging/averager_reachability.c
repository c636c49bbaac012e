/* averager_reachability.c - whether others can call this peer, and what its gather message states
 * accordingly.
 *
 *   reachable             calls, matchmaking and parts: the bandwidth of the options, or what was
 *                         measured
 *   behind NAT, relayed   calls and matchmaking, but no parts: bandwidth 0, so it reduces nothing
 *   neither               it can only ask
 *
 * All three are learned while the program runs, and change. [spec hivemind-protocol 4.3] */
#include "averager_internal.h"

/* A peer behind NAT states 0 and reduces nothing: parts between two such peers would travel through
 * a relay, which carries 128 KiB. Its own streams to the others, and their answers on them,
 * need none. */
double averager_stated_bandwidth(const struct averager *a)
{
    if (a->search.behind_nat) return 0;
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
