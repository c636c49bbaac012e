/* dht_walk.c - the iterative look-up of Kademlia over the network [Kademlia 2.3]: ask the
 * nearest known nodes for nodes nearer to the key, ask those, and so on, several at once.
 * dht_search.c decides which node is next and when to stop; here its decisions become calls, and
 * answers and timers its events. */
#include "dht_walk.h"
#include "net/list.h"

#include <math.h>
#include <stdlib.h>

/* s; resolution of the loop's clock. A shorter timer would be due again before time has passed. */
#define CLOCK_STEP 0.001

struct dht_walk *dht_walk_start(struct dht_walks *walks, const struct dht_id *key,
                                double sufficient, void (*over)(void *, struct dht_walk *),
                                void *context)
{
    struct dht_core *n = walks->core;
    struct dht_walk *w = calloc(1, sizeof *w);
    struct dht_contact known[DHT_BUCKET_SIZE], trusted[DHT_SEARCH_TRUSTED];
    size_t count, kept = 0;
    if (!w) return NULL;
    dht_search_init(&w->search, key, &n->state.self, sufficient, n->state.validators);
    /* Step 0: the k nodes of our own table that are nearest to the key. */
    count = dht_routing_nearest(&n->state.routing, known, DHT_BUCKET_SIZE, key, NULL);
    for (size_t i = 0; i < count; i++)
        if (!dht_core_avoids(n, &known[i].peer)) known[kept++] = known[i];
    count = dht_core_trusted(n, trusted, key);
    if (dht_search_add(&w->search, known, kept) || dht_search_trust(&w->search, trusted, count)) {
        dht_search_clear(&w->search);
        free(w);
        return NULL;
    }
    w->search.patience = dht_core_patience(n);
    w->search.checks = &n->state.checks;
    w->walks = walks;
    w->over = over;
    w->context = context;
    list_add(&walks->list, w);
    dht_core_wake(n);
    return w;
}

/* The search with all that it found goes, too. */
static void free_walk(struct dht_walk *w)
{
    list_remove(&w->walks->list, w);
    timer_stop(&w->timer);
    dht_search_clear(&w->search);
    free(w);
}

static void on_found(void *context, const struct dht_contact *who, const struct dht_reply *r);
static void on_silence(void *context);

/* A node whose neighbours do not exist is asked for records, but for no neighbours, for a while. */
static void on_judged(void *context, const struct peer_id *reporter, int is_vain)
{
    struct dht_core *n = context;
    if (is_vain) dht_blacklist_failed(&n->vain, reporter, loop_now(n->loop));
    else dht_blacklist_answered(&n->vain, reporter);
}

/* One step: mark nodes that are late, ask the next ones, finish if nothing more is worth waiting
 * for. The walk is freed when the last answer is in, since answers refer to it. */
static void advance(struct dht_walk *w)
{
    struct dht_search *s = &w->search;
    struct dht_core *n = w->walks->core;
    struct dht_contact who;
    double now = s->now = loop_now(n->loop), due;
    dht_search_pass(s);
    /* Alpha calls in parallel: as many as the search allows are started before any answers. */
    while (w->state != WALK_OVER && dht_search_next(s, &who)) {
        if (dht_ask_find(w->walks->calls, &who, &s->key, on_found, w))
            dht_search_failed(s, &who.id);
    }
    due = dht_search_pass(s); /* when the next of those that were asked will count as late */
    if (w->state != WALK_OVER && dht_search_is_over(s)) {
        w->state = WALK_OVER;
        dht_search_judge(s, on_judged, n);
        w->over(w->context, w);
    }
    /* Late nodes hold up nothing, but their answers still refresh the table and refer to the
     * walk. */
    if (w->state == WALK_OVER) timer_stop(&w->timer);
    else if (due < INFINITY)
        timer_start(n->loop, &w->timer, fmax(due - now, CLOCK_STEP), on_silence, w);
    if (w->state == WALK_OVER && !s->asked && !s->late) free_walk(w);
}

/* A node is late: another may be asked in its place. */
static void on_silence(void *context) { advance(context); }

static void on_found(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_walk *w = context;
    struct dht_found found;
    /* Found records are checked against the time at which they arrive. */
    w->search.time = dht_core_time(w->walks->core);
    w->search.now = loop_now(w->walks->core->loop);
    w->search.subnet = dht_core_subnet(w->walks->core, &who->peer);
    /* The result was reported: late records do not matter, so their signatures are not verified. */
    if (w->state == WALK_OVER) w->search.nodes_only = 1;
    /* A node that fails, or whose answer needs memory that we lack, is passed over like a dead
     * one. */
    if (!r->status) {
        found = *r->found;
        if (dht_blacklist_has(&w->walks->core->vain, &who->peer, w->search.now))
            found.nearest_count = 0;
    }
    if (r->status || dht_search_answered(&w->search, &who->id, &found))
        dht_search_failed(&w->search, &who->id);
    advance(w);
}

/* New walks start here and not where they are asked for, so that their owner can set the search's
 * options first, and their first calls can share messages. */
void dht_walks_run(struct dht_walks *walks)
{
    struct dht_walk *w;
    do { /* from the start of the list each time: callbacks change it */
        for (w = walks->list; w && w->state != WALK_NEW; w = w->next) {}
        if (w) {
            w->state = WALK_RUNNING;
            advance(w);
        }
    } while (w);
}

void dht_walks_close(struct dht_walks *walks)
{
    while (walks->list) free_walk(walks->list);
}
