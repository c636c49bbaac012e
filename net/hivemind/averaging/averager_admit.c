/* averager_admit.c - in a moderated swarm, only members average with us. Both callers and the peers
 * that we call must have presented an access token to our DHT node (dht_members.c). A stream waits
 * while the node pings its peer for one. A client cannot be pinged, so clients of ours call the DHT
 * node first. */
#include "averager_internal.h"

#include <stdlib.h>

/* --- callers ---------------------------------------------------------------------------------- */

void averager_caller_add(struct caller_list *l, struct caller *c, struct averager *a,
                         struct rpc_stream *s, const struct rpc_stream_events *events)
{
    *c = (struct caller){ .a = a, .stream = s, .next = l->first };
    /* In a list, since streams of unknown callers come and go; each list has a limit of its
     * own. */
    l->first = c;
    l->count++;
    rpc_listen(s, events, c);
}

void averager_caller_refuse(struct caller *c)
{
    rpc_fail(c->stream,
             "PermissionError('this run is moderated, and you have shown no valid access token')");
}

int averager_caller_admit(struct caller *c, dht_admitted *admitted)
{
    /* In a run without moderation everybody is admitted, and nothing is asked. */
    if (dht_node_admits(c->a->node, rpc_peer(c->stream))) return 1;
    c->proof = dht_node_admit(c->a->node, rpc_peer(c->stream), admitted, c);
    /* A paused stream reads nothing: a stranger can't make us buffer its messages meanwhile. */
    if (c->proof) rpc_pause(c->stream);
    else averager_caller_refuse(c);
    return c->proof != NULL;
}

void averager_caller_remove(struct caller_list *l, struct caller *c)
{
    struct caller **at = &l->first;
    /* A search through the list: it is at most as long as the limit, and each stream leaves
     * once. */
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    l->count--;
    if (c->proof) dht_node_cancel(c->proof);
    rpc_close(c->stream);
}

/* --- peers that we call ----------------------------------------------------------------------- */

int averager_must_ask(const struct averager *a, const struct peer_id *peer)
{
    return !dht_node_admits(a->node, peer) ||
           (a->o.client_mode && dht_node_has_tokens(a->node)); /* so that it knows us */
}

/* --- groupmates ------------------------------------------------------------------------------- */

static void on_group_admitted(void *context, int status)
{
    struct admission *m = context;
    (void)status; /* who is no member is sent nothing: see averager_round.c */
    m->task = NULL;
    if (!--m->a->admission.left) averager_turn(m->a);
}

void averager_admit_group(struct averager *a)
{
    averager_admit_cancel(a);
    if (!dht_node_has_tokens(a->node) ||
        !(a->admission.list = calloc(a->round.group.count, sizeof *a->admission.list)))
        return;
    for (size_t i = 0; i < a->round.group.count; i++) {
        const struct group_member *m = &a->round.group.members[i];
        struct admission *admission = &a->admission.list[a->admission.count];
        /* All are asked at once, before the round: one after the other would cost a round
         * trip each. */
        if (i == a->round.group.self || m->gather.mode == GROUP_CLIENT ||
            !averager_must_ask(a, &m->peer))
            continue;
        admission->a = a;
        admission->task = dht_node_admit(a->node, &m->peer, on_group_admitted, admission);
        a->admission.count += admission->task != NULL;
    }
    a->admission.left = a->admission.count;
}

void averager_admit_cancel(struct averager *a)
{
    for (size_t i = 0; i < a->admission.count; i++)
        if (a->admission.list[i].task) dht_node_cancel(a->admission.list[i].task);
    free(a->admission.list);
    a->admission.list = NULL;
    a->admission.count = a->admission.left = 0;
}

/* --- streams that are done with --------------------------------------------------------------- */

static void linger_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context, (void)s, (void)data, (void)n;
}
static void linger_end(void *context, struct rpc_stream *s)
{
    (void)context;
    rpc_close(s);
}
static void linger_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    (void)context, (void)status, (void)why;
    rpc_close(s);
}

void averager_linger(struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { linger_message, linger_end, linger_failed,
                                                     NULL };
    rpc_listen(s, &events, NULL);
    /* A stream that is closed at once could lose its last answer on the way; one that is
     * never ended by the other side is closed by the deadline. */
    rpc_deadline(s, AVERAGER_LINGER);
}
