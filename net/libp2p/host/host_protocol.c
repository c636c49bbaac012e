/* host_protocol.c - the protocols registered with a host, and their view of it.
 *
 * A protocol stops while connections still exist, last joined first: it may use those that it was
 * started after. Its state that streams point to is freed after the last connection. */
#include "host_protocol.h"
#include "host_internal.h"

#include <stdlib.h>

static struct joined_protocol *find_joined(const struct host *h, const struct host_protocol *p)
{
    for (size_t i = 0; i < h->protocol_count; i++)
        if (h->protocols[i].protocol == p) return &h->protocols[i];
    return NULL;
}

int host_join(struct host *h, const struct host_protocol *p)
{
    if (find_joined(h, p)) return PL_OK;
    if (!h->protocols && !(h->protocols = calloc(PROTOCOLS_MAX, sizeof *h->protocols)))
        return PL_ENOMEM;
    if (h->protocol_count == PROTOCOLS_MAX) return PL_ELIMIT;
    h->protocols[h->protocol_count++].protocol = p;
    return p->start ? p->start(h) : PL_OK;
}

/* A search among six entries: protocols are asked for their state once per stream. */
void *host_state(const struct host *h, const struct host_protocol *p)
{
    const struct joined_protocol *joined = find_joined(h, p);
    return joined ? joined->state : NULL;
}

void host_set_state(struct host *h, const struct host_protocol *p, void *state)
{
    struct joined_protocol *joined = find_joined(h, p);
    if (joined) joined->state = state;
}

void host_stop_protocols(struct host *h)
{
    for (size_t i = h->protocol_count; i-- > 0;)
        if (h->protocols[i].protocol->stop) h->protocols[i].protocol->stop(h);
}

void host_free_protocols(struct host *h)
{
    for (size_t i = h->protocol_count; i-- > 0;)
        if (h->protocols[i].protocol->free) h->protocols[i].protocol->free(h);
    free(h->protocols);
}

void host_set_router(struct host *h, const struct peer_router *router)
{
    h->routing.router = router;
}

void host_set_circuits(struct host *h, const struct circuit_transport *circuits)
{
    h->dialing.circuits = circuits;
}

/* --- a protocol's view of the host ------------------------------------------------------------ */

struct peers *host_peerstore(struct host *h) { return &h->core.peers; }

struct peer *host_find_peer(const struct host *h, const struct peer_id *id)
{
    return core_find_peer(&h->core, id);
}

struct connections *host_connections(struct host *h) { return &h->connections; }
int host_is_client(const struct host *h) { return h->client_mode; }
int host_relays(const struct host *h) { return h->relay; }
int host_maps_port(const struct host *h) { return h->map_port; }
const char *host_agent(const struct host *h) { return h->agent; }

const char *host_service_name(const struct host *h, size_t i)
{
    return i < h->streams.services.count ? h->streams.services.list[i].protocol : NULL;
}

/* Relayed addresses come last: others try direct ones first. */
size_t host_own_addresses(const struct host *h, struct multiaddr *out, size_t max)
{
    size_t n = listening_addresses(&h->listening, out, max);
    const struct circuit_transport *circuits = h->dialing.circuits;
    return circuits ? n + circuits->addresses(h, out + n, max - n) : n;
}

/* Identify pushes the change to connected peers. */
void host_changed(struct host *h)
{
    if (h->core.state == HOST_RUNNING) watches_changed(h->watches);
}

int host_is_mapped(const struct host *h) { return h->listening.mapped.length > 0; }

void host_set_mapped(struct host *h, const struct multiaddr *outside)
{
    struct multiaddr *mapped = &h->listening.mapped, was = *mapped;
    if (outside) *mapped = *outside;
    else mapped->length = 0;
    if (!multiaddr_equal(&was, mapped)) host_changed(h);
}

/* Only an address observed on a connection from a listening port leads to that port. */
void host_observe(struct host *h, const struct connection *c, const struct multiaddr *seen)
{
    if (c->shares_port &&
        observed_add(&h->listening.observed, seen, &c->remote, loop_now(h->core.loop)))
        host_changed(h);
}

struct host_wait *host_dial_back(struct host *h, const struct multiaddr *a, double timeout_s,
                                 host_done *done, void *context)
{
    return routing_dial(&h->routing, a, timeout_s, DIAL_FREE_PORT, done, context);
}

struct punch *host_punch(struct host *h, const struct peer_id *peer, const struct multiaddr *to,
                         size_t count, enum punch_role role, punch_done *done, void *context)
{
    return punch_start(&h->dialing, peer, to, count, role, done, context);
}

int host_observed_address(const struct host *h, int family, struct multiaddr *a, int *agreed)
{
    const struct observed *o = &h->listening.observed;
    double now = loop_now(h->core.loop);
    *agreed = observed_address(o, family, now, a) == PL_OK;
    return *agreed ? PL_OK : observed_latest(o, family, now, a);
}

void host_identified(struct host *h, const struct peer_id *peer)
{
    watches_identified(h->watches, peer);
}

struct stream *stream_open_known(struct host *h, const struct peer_id *peer, const char *protocol,
                                 double timeout_s, const struct stream_events *events,
                                 void *context)
{
    return streams_open(&h->streams, peer, protocol, timeout_s, ROUTING_KNOWN, events, context);
}
