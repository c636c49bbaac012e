/* callers.c - streams that peers open to us. A stream waits while our DHT node pings its peer for
 * an access token (dht_members.c). A client cannot be pinged, so clients of ours call the other
 * peer's DHT node first. */
#include "callers.h"
#include "net/list.h"

void caller_add(struct caller_list *l, struct caller *c, struct rpc_stream *s,
                const struct rpc_stream_events *events)
{
    *c = (struct caller){ .list = l, .stream = s };
    /* In a list, since streams of unknown callers come and go; each list has a limit of its
     * own. */
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
    /* A paused stream reads nothing: a stranger can't make us buffer its messages meanwhile. */
    if (c->proof) rpc_pause(c->stream);
    else caller_refuse(c);
    return c->proof != NULL;
}

void caller_remove(struct caller *c)
{
    list_remove(&c->list->first, c);
    c->list->count--;
    if (c->proof) dht_node_cancel(c->proof);
    rpc_close(c->stream);
}

int caller_needs_token(const struct dht_node *n, const struct peer_id *peer, int client_mode)
{
    return !dht_node_admits(n, peer) ||
           (client_mode && dht_node_has_tokens(n)); /* so that it knows us */
}
