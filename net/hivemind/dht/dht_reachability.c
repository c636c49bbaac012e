/* dht_reachability.c - can others open connections to us? A node that nobody can call loses the
 * records that it is given and keeps searches waiting. [spec hivemind-protocol 12; libp2p-wire
 * 14]
 *
 *   not known --an initial peer has dialled us--> open     (so we begin: most do not tell)
 *       |  they have tried, none could
 *       v                      relays: those initial peers that serve as one
 *    closed --reserved--> open through a relay
 *       |  no relay
 *       v
 *    like a client, until it changes; looked at again every LOOK_EVERY
 *
 * An initial peer may answer in the DHT before it has said how it sees us, and what it serves:
 * on a busy machine by seconds. Then we look as soon as it has. */
#include "dht_node_internal.h"
#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/relay/relay.h"

#include <stdlib.h>

#define LOOK_EVERY 300.0 /* s */
#define LOOK_LIMIT 20.0  /* s for dialling us; the other side gives up after AUTONAT_LIMIT */
#define PATIENCE 5.0  /* s that a first averaging waits for the first look, which takes moments */
#define PEERS_ASKED 3 /* one alone may be on our side of the router, or in trouble itself */
#define RELAYS_USED 2
#define HOP "/libp2p/circuit/relay/0.2.0/hop"

struct reach {
    struct dht_node *node;
    struct host_watch watch;
    double entered; /* loop time; 0: not yet */
    double looked;  /* loop time; 0: never */
    int is_known;   /* 1: a look has ended */
    int is_closed;  /* 1: they could not dial us */
    size_t pending, could, could_not;
    struct look {
        struct reach *reach;
        struct autonat_question *question;
    } looks[PEERS_ASKED];
};

static void on_identified(void *context, const struct peer_id *peer)
{
    struct reach *r = context;
    for (size_t i = 0; r->entered > 0 && i < r->node->initial_count; i++)
        if (peer_id_equal(&r->node->initials[i].peer, peer)) dht_reach_look(r->node);
}

int dht_reach_open(struct dht_node *n)
{
    struct reach *r = calloc(1, sizeof *r);
    if (!r) return PL_ENOMEM;
    r->node = n;
    r->watch.events.identified = on_identified;
    r->watch.context = r;
    host_watch(n->host, &r->watch);
    n->reach = r;
    return PL_OK;
}

void dht_reach_close(struct dht_node *n)
{
    if (!n->reach) return;
    host_unwatch(n->host, &n->reach->watch);
    for (int i = 0; i < PEERS_ASKED; i++)
        if (n->reach->looks[i].question) autonat_cancel(n->reach->looks[i].question);
    free(n->reach);
    n->reach = NULL;
}

int dht_reach_is_relayed(const struct dht_node *n)
{
    struct multiaddr at;
    return n->reach->is_closed && relay_addresses(n->host, &at, 1) == 1;
}

int dht_reach_is_closed(const struct dht_node *n) { return n->reach->is_closed; }

int dht_reach_is_known(const struct dht_node *n)
{
    const struct reach *r = n->reach;
    if (r->is_known || !(r->entered > 0) || loop_now(n->loop) - r->entered >= PATIENCE) return 1;
    for (size_t i = 0; i < n->initial_count; i++)
        if (n->initials[i].state == INITIAL_GOOD) return 0;
    return 1;
}

int dht_reach_is_open(const struct dht_node *n)
{
    return !n->reach->is_closed || dht_reach_is_relayed(n);
}

/* Relays are only for those who need them: each carries little. */
static void choose_relays(struct dht_node *n)
{
    size_t used = 0;
    for (size_t i = 0; i < n->initial_count; i++) {
        const struct initial *it = &n->initials[i];
        if (!it->peer.length) continue;
        if (!n->reach->is_closed) relay_leave(n->host, &it->peer);
        else if (it->state == INITIAL_GOOD && used < RELAYS_USED &&
                 host_peer_serves(n->host, &it->peer, HOP))
            used += !relay_use(n->host, &it->peer);
    }
}

static void on_looked(void *context, int status, const struct multiaddr *at, const char *why)
{
    struct look *l = context;
    struct reach *r = l->reach;
    (void)at;
    (void)why;
    l->question = NULL;
    r->could += !status;
    r->could_not += status == PL_EIO; /* others did not try: private addresses, too many asking */
    if (--r->pending) return;
    r->is_known = 1;
    if (r->could) r->is_closed = 0;
    else if (r->could_not) r->is_closed = 1;
    dht_reach_look(r->node);
}

static void ask_again(struct dht_node *n)
{
    struct reach *r = n->reach;
    r->looked = loop_now(n->loop);
    r->could = r->could_not = 0;
    for (size_t i = 0; i < n->initial_count && r->pending < PEERS_ASKED; i++) {
        struct look *l = &r->looks[r->pending];
        struct multiaddr seen; /* told with its first words; behind a router we ask about it */
        if (n->initials[i].state != INITIAL_GOOD ||
            host_observed(n->host, &n->initials[i].peer, &seen))
            continue;
        l->reach = r;
        l->question = autonat_ask(n->host, &n->initials[i].peer, LOOK_LIMIT, on_looked, l);
        r->pending += l->question != NULL;
    }
    if (!r->pending) r->looked = 0;
}

void dht_reach_look(struct dht_node *n)
{
    struct reach *r = n->reach;
    if (n->wants_client_mode) return;
    if (!(r->entered > 0)) r->entered = loop_now(n->loop);
    if (!r->pending && (!r->looked || loop_now(n->loop) - r->looked >= LOOK_EVERY)) ask_again(n);
    choose_relays(n);
    n->state.client_mode = !n->called_back || !dht_reach_is_open(n);
}
