/* callers.c - streams that peers open to us, before their service handles them.
 *
 *   1. a place     a list holds l->max streams, of one peer l->peer_max. If all are taken, one that
 *                  only waits has to go: of the subnet that has the most places
 *   2. a token     in a moderated swarm our DHT node pings the peer for its access token
 *                  (dht_members.c); the stream is paused until the token has come
 *   3. a service   the list's owner handles the stream's messages
 *
 * A client cannot be pinged. It calls the other peer's DHT node first and shows its token there, so
 * step 2 finds it admitted. */
#include "callers.h"
#include "net/fair.h"
#include "net/list.h"

int caller_make_place(struct caller_list *l, const struct peer_id *peer)
{
    struct fair f = { 0 };
    struct caller *leaves = NULL;
    for (struct caller *c = l->first; c; c = c->next) fair_count(&f, c->subnet);
    /* For a protected peer the bar stays at 0: it may take the place of any subnet's. */
    if (!dht_node_protects(l->node, peer)) fair_newcomer(&f, dht_node_subnet(l->node, peer));
    for (struct caller *c = l->first; c; c = c->next)
        /* Each answer raises the bar (net/fair.h). The list has the newest first, so of the largest
         * network the newest remains: its older streams have waited longer. */
        if (!c->is_served && !c->is_protected && fair_has_more(&f, c->subnet)) leaves = c;
    if (leaves) l->evict(leaves);
    return leaves != NULL;
}

int caller_has_place(struct caller_list *l, const struct peer_id *peer)
{
    /* The peer's own limit comes first: nobody evicts others by opening one stream more. */
    size_t own = 0;
    for (struct caller *c = l->first; c; c = c->next)
        own += peer_id_equal(rpc_peer(c->stream), peer);
    return own < l->peer_max && (l->count < l->max || caller_make_place(l, peer));
}

void caller_add(struct caller_list *l, struct caller *c, struct rpc_stream *s,
                const struct rpc_stream_events *events)
{
    *c = (struct caller){ .list = l,
                          .stream = s,
                          .subnet = dht_node_subnet(l->node, rpc_peer(s)),
                          .is_protected = dht_node_protects(l->node, rpc_peer(s)) };
    list_add(&l->first, c);
    l->count++;
    rpc_listen(s, events, c);
}

void caller_refuse(struct caller *c)
{
    rpc_fail(c->stream,
             "PermissionError('this run is moderated, and you have shown no valid access token')");
}

int caller_admit(struct caller *c, dht_admitted *admitted)
{
    struct dht_node *node = c->list->node;
    /* In a run without moderation everybody is admitted, and nothing is asked. */
    if (dht_node_admits(node, rpc_peer(c->stream))) return 1;
    c->proof = dht_node_admit(node, rpc_peer(c->stream), admitted, c);
    /* `admitted` comes after a call to the peer's own DHT node, which may take seconds. A paused
     * stream reads nothing: a stranger can't make us buffer its messages meanwhile. */
    if (c->proof) rpc_pause(c->stream);
    else caller_refuse(c);
    return c->proof != NULL;
}

void caller_remove(struct caller *c)
{
    list_remove(&c->list->first, c);
    c->list->count--;
    /* Or `admitted` would be called for a stream that is gone. */
    if (c->proof) dht_node_cancel(c->proof);
    rpc_close(c->stream);
}

int caller_needs_token(const struct dht_node *n, const struct peer_id *peer, int client_mode)
{
    /* We have not seen its token. Or it cannot ping us and has to learn our token from our ping. */
    return !dht_node_admits(n, peer) || (client_mode && dht_node_has_tokens(n));
}
