/* dht_walk.c - searches, run: what the engine wants asked goes out, what comes back goes in. */
#include "dht_node_internal.h"

#include <math.h>
#include <stdlib.h>

/* s; what the loop's clock counts in: with less a timer would be due again before time passes. */
#define CLOCK_STEP 0.001

struct dht_walk *dht_walk_start(struct dht_node *n, const struct dht_id *key, double sufficient,
                                void (*over)(void *, struct dht_walk *), void *context)
{
    struct dht_walk *w = calloc(1, sizeof *w);
    struct dht_contact known[DHT_BUCKET_SIZE];
    size_t count, kept = 0;
    if (!w) return NULL;
    dht_search_init(&w->search, key, &n->state.self, sufficient, n->state.validators);
    count = dht_routing_nearest(&n->state.routing, known, DHT_BUCKET_SIZE, key, NULL);
    for (size_t i = 0; i < count; i++)
        if (!dht_node_avoids(n, &known[i].peer)) known[kept++] = known[i];
    if (dht_search_add(&w->search, known, kept)) {
        dht_search_clear(&w->search);
        free(w);
        return NULL;
    }
    w->search.patience = dht_node_patience(n);
    w->node = n;
    w->over = over;
    w->context = context;
    w->fresh = 1;
    w->next = n->walks;
    n->walks = w;
    dht_node_wake(n);
    return w;
}

static void free_walk(struct dht_walk *w)
{
    struct dht_walk **at = &w->node->walks;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    timer_stop(&w->timer);
    dht_search_clear(&w->search);
    free(w);
}

static void on_found(void *context, const struct dht_contact *who, const struct dht_reply *r);
static void on_silence(void *context);

/* Asks whoever is to be asked; tells when it is over; frees when also the last answer is in. */
static void advance(struct dht_walk *w)
{
    struct dht_search *s = &w->search;
    struct dht_contact who;
    double now = s->now = loop_now(w->node->loop), due = dht_search_pass(s);
    while (!w->told && dht_search_next(s, &who)) {
        if (dht_ask_find(w->node, &who, &s->key, on_found, w)) dht_search_failed(s, &who.id);
        else due = fmin(due, now + s->patience);
    }
    if (!w->told && dht_search_is_over(s)) {
        w->told = 1;
        w->over(w->context, w);
    }
    if (w->told) timer_stop(&w->timer);
    else if (due < INFINITY)
        timer_start(w->node->loop, &w->timer, fmax(due - now, CLOCK_STEP), on_silence, w);
    if (w->told && !s->asked && !s->late) free_walk(w);
}

static void on_silence(void *context) { advance(context); }

static void on_found(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_walk *w = context;
    w->search.time = dht_node_time(w->node);
    if (w->told) w->search.nodes_only = 1; /* too late to matter: don't verify signatures */
    if (r->status || dht_search_answered(&w->search, &who->id, r->found))
        dht_search_failed(&w->search, &who->id);
    advance(w);
}

void dht_walk_turn(struct dht_node *n)
{
    struct dht_walk *w;
    do { /* from the start: callbacks change the list */
        for (w = n->walks; w && !w->fresh; w = w->next) {}
        if (w) {
            w->fresh = 0;
            advance(w);
        }
    } while (w);
}

void dht_walk_close(struct dht_node *n)
{
    while (n->walks) free_walk(n->walks);
}
