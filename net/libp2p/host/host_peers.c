/* host_peers.c - which peers are connected, and where. */
#include "host.h"
#include "host_internal.h"

#include <math.h>

static double now_of(const struct host *h) { return loop_now(h->core.loop); }

/* --- connections come and go ------------------------------------------------------------------ */

void host_enter_connection(struct connection *c)
{
    struct host *h = c->of->core->host;
    struct peer *p = peers_get(&h->core.peers, &c->conn.secure->remote, now_of(h));
    size_t count = 0, most = resources_limit(&h->core.resources, SCOPE_PEER, RESOURCE_CONNECTIONS);
    int first;
    if (!p) {
        connection_end(c, PL_ELIMIT, "too many peers are known");
        return;
    }
    if (peer_id_equal(&p->id, &h->core.me->id)) {
        connection_end(c, PL_EPROTO, "the other side has our own identity");
        return;
    }
    if (resources_authenticate(&c->account, &p->id)) {
        connection_end(c, PL_ENOMEM, "out of memory");
        return;
    }
    first = !p->connections;
    /* A peer that connects again has often lost the old connection without our knowing. */
    for (struct connection *old = p->connections; old; old = old->next_of_peer)
        if (old->state != CONNECTION_ENDING && ++count == most)
            connection_end(old, PL_OK, "a newer connection took its place");
    /* From here on streams can be opened on it, and look-ups name the peer as connected. */
    c->peer = p;
    c->next_of_peer = p->connections;
    p->connections = c;
    /* A peer that we dialed is surely found there again. */
    if (!c->inbound && !c->relayed) peer_learn(p, &c->remote, now_of(h) + HOST_ADDRESS_TTL);
    routing_peer_changed(p);
    watches_connection(h->watches, c);
    if (first) watches_connected(h->watches, &p->id);
}

void host_leave_connection(struct connection *c)
{
    struct host *h = c->of->core->host;
    struct peer *p = c->peer;
    struct connection **at;
    struct peer_id id;
    if (!p) return;
    for (at = &p->connections; *at != c; at = &(*at)->next_of_peer) {}
    *at = c->next_of_peer;
    c->peer = NULL;
    p->seen = now_of(h);
    if (p->connections) return;
    for (size_t i = 0; i < p->address_count; i++) /* kept for a while after the end */
        if (p->addresses[i].expires < p->seen + HOST_ADDRESS_TTL)
            p->addresses[i].expires = p->seen + HOST_ADDRESS_TTL;
    p->observed.length = 0;
    id = p->id;
    watches_disconnected(h->watches, &id);
}

void host_watch(struct host *h, struct host_watch *w) { watches_add(&h->watches, w); }
void host_unwatch(struct host *h, struct host_watch *w) { watches_remove(&h->watches, w); }

/* --- the peerstore ---------------------------------------------------------------------------- */

/* The peerstore believes its caller, which checks before which addresses a peer may claim for
 * another (multiaddr_is_plausible). */
int host_learn(struct host *h, const struct peer_id *id, const struct multiaddr *a, double ttl_s)
{
    struct peer *p = peers_get(&h->core.peers, id, now_of(h));
    if (!p) return PL_ENOMEM;
    routing_peer_changed(p);
    return peer_learn(p, a, ttl_s > 0 ? now_of(h) + ttl_s : INFINITY);
}

int host_is_connected(const struct host *h, const struct peer_id *id)
{
    return connection_best(core_find_peer(&h->core, id)) != NULL;
}

int host_is_direct(const struct host *h, const struct peer_id *id)
{
    const struct connection *c = connection_best(core_find_peer(&h->core, id));
    return c && !c->relayed;
}

int host_remote_address(const struct host *h, const struct peer_id *id, struct multiaddr *a)
{
    const struct connection *c = connection_best(core_find_peer(&h->core, id));
    if (!c) return PL_ENOTFOUND;
    *a = c->remote;
    return PL_OK;
}

size_t host_unconfirmed(const struct host *h, const struct peer_id *id)
{
    const struct connection *c = connection_best(core_find_peer(&h->core, id));
    return c ? connection_unsent(c) : 0;
}

/* A relayed connection has no socket, so no local address. */
int host_local_address(const struct host *h, const struct peer_id *id, struct multiaddr *a)
{
    const struct connection *c = connection_best(core_find_peer(&h->core, id));
    struct sockaddr_storage sa;
    int length = sizeof sa;
    if (!c || c->socket.state == SOCKET_NONE ||
        uv_tcp_getsockname(&c->socket.tcp, (struct sockaddr *)&sa, &length))
        return PL_ENOTFOUND;
    return multiaddr_of_socket(a, &sa);
}

int host_peer_serves(const struct host *h, const struct peer_id *id, const char *protocol)
{
    const struct peer *p = core_find_peer(&h->core, id);
    return p && peer_serves(p, protocol);
}

/* Behind a router the peer sees the router's address: that is how we learn it. */
int host_observed(const struct host *h, const struct peer_id *id, struct multiaddr *a)
{
    const struct peer *p = core_find_peer(&h->core, id);
    if (!p || !p->observed.length) return PL_ENOTFOUND;
    *a = p->observed;
    return PL_OK;
}

int host_is_translated(const struct host *h, const struct multiaddr *seen)
{
    return listening_is_translated(&h->listening, seen);
}

int host_protect(struct host *h, const struct peer_id *id)
{
    return resources_protect(&h->core.resources, id);
}

void host_unprotect(struct host *h, const struct peer_id *id)
{
    resources_unprotect(&h->core.resources, id);
}

int host_protects(const struct host *h, const struct peer_id *id)
{
    return resources_protects(&h->core.resources, id);
}

struct resources *host_resources(struct host *h) { return &h->core.resources; }

/* --- new connections -------------------------------------------------------------------------- */

struct host_wait *host_connect(struct host *h, const struct peer_id *id, double timeout_s,
                               host_done *done, void *context)
{
    return routing_connect(&h->routing, id, timeout_s, ROUTING_ASK, done, context);
}

struct host_wait *host_dial(struct host *h, const struct multiaddr *a, double timeout_s,
                            host_done *done, void *context)
{
    return routing_dial(&h->routing, a, timeout_s, DIAL_LISTENING_PORT, done, context);
}
