/* dht_members.c - who has shown an access token, in a swarm that is moderated by an authority.
 *
 * hivemind's tokens travel in DHT calls alone; its averaging calls carry none, so that there any
 * stranger could join a group or take the state. Here a peer that calls, or is called, for
 * averaging must have proven on the DHT that it is a member: a request or an answer of its own,
 * signed by the key of a token that the authority gave out and that has not expired. A token
 * that was copied from somewhere is of no use: the signature is made afresh each time, over a
 * nonce of ours if we ask. Who has not shown one yet is asked by a ping, and a real hivemind
 * peer answers that, too. */
#include "dht_node_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct dht_member *find(const struct dht_node *n, const struct peer_id *peer)
{
    for (size_t i = 0; i < n->member_count; i++)
        if (peer_id_equal(&n->members[i].peer, peer)) return &n->members[i];
    return NULL;
}

void dht_members_add(struct dht_node *n, const struct peer_id *peer, double until)
{
    struct dht_member *m = find(n, peer);
    if (!m && !n->members && !(n->members = calloc(DHT_MEMBERS_MAX, sizeof *n->members))) return;
    if (!m && n->member_count < DHT_MEMBERS_MAX) m = &n->members[n->member_count++];
    if (!m) { /* whoever expires first gives way: it is asked again when it comes */
        m = &n->members[0];
        for (size_t i = 1; i < n->member_count; i++)
            if (n->members[i].until < m->until) m = &n->members[i];
    }
    *m = (struct dht_member){ *peer, until };
}

int dht_node_has_tokens(const struct dht_node *n) { return n->auth != NULL; }

int dht_node_admits(const struct dht_node *n, const struct peer_id *peer)
{
    const struct dht_member *m = n->auth ? find(n, peer) : NULL;
    return !n->auth || (m && m->until >= dht_node_time(n));
}

static int is_refused(const struct dht_node *n, const struct peer_id *peer)
{
    for (size_t i = 0; i < n->refusal_count; i++)
        if (loop_now(n->loop) < n->refusals[i].until && peer_id_equal(&n->refusals[i].peer, peer))
            return 1;
    return 0;
}

static void refuse(struct dht_node *n, const struct peer_id *peer)
{
    struct dht_member *r = &n->refusals[n->refusal_next];
    n->refusal_next = (n->refusal_next + 1) % DHT_REFUSALS_MAX;
    if (n->refusal_count < DHT_REFUSALS_MAX) n->refusal_count++;
    *r = (struct dht_member){ *peer, loop_now(n->loop) + DHT_REFUSAL_TIME };
}

/* Another question would be the n-th in this second. */
static int asks_too_often(struct dht_node *n)
{
    double now = loop_now(n->loop);
    if (now - n->proofs_since >= 1) n->proofs_since = now, n->proofs = 0;
    return n->proofs++ >= DHT_PROOFS_A_SECOND;
}

static void on_proof(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_task *t = context, **at = &t->node->admissions;
    int admitted = dht_node_admits(t->node,
                                   &who->peer); /* its answer's signature has been checked */
    (void)r;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (!admitted) refuse(t->node, &who->peer);
    if (!t->cancelled) t->admitted(t->context, admitted ? PL_OK : PL_EPROTO);
    free(t);
}

struct dht_task *dht_node_admit(struct dht_node *n, const struct peer_id *peer,
                                dht_admitted *admitted, void *context)
{
    struct dht_task *t;
    if (is_refused(n, peer) || asks_too_often(n) || !(t = calloc(1, sizeof *t))) return NULL;
    if (dht_ask_ping(n, peer, 0, on_proof, t)) {
        free(t);
        return NULL;
    }
    t->node = n;
    t->admitted = admitted;
    t->context = context;
    t->next = n->admissions;
    n->admissions = t;
    return t;
}

void dht_members_close(struct dht_node *n)
{
    while (n->admissions) {
        struct dht_task *t = n->admissions;
        n->admissions = t->next;
        if (!t->cancelled) t->admitted(t->context, PL_EAGAIN);
        free(t);
    }
    free(n->members);
    n->members = NULL;
    n->member_count = 0;
}
