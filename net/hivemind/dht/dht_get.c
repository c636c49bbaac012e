/* dht_get.c - finding a record: here, in our cache, or at the nodes nearest to its key. Requests
 * for one key share a search. [spec hivemind-protocol 1.6] */
#include "dht_node_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* s before a cached record expires that was asked for, look for a newer */
#define REFETCH_BEFORE 5.0

struct getting {
    struct dht_node *node;
    struct dht_id key;
    double sufficient;
    int started;
    struct dht_task *tasks;
    struct getting *next;
};

/* Out of the list first: those who are told may ask for the same key again. */
static void tell(struct getting *get, int status, const struct dht_result *r)
{
    struct getting **at = &get->node->gets;
    while (*at != get) at = &(*at)->next;
    *at = get->next;
    while (get->tasks) {
        struct dht_task *t = get->tasks;
        get->tasks = t->next;
        if (!t->cancelled) t->got(t->context, status, r);
        free(t);
    }
    free(get);
}

/* Tells everybody who waits, and ends. best is left as it is: it is still signed. */
static void finish(struct getting *get, const struct dht_result *best)
{
    struct dht_result plain;
    int rc = dht_result_copy(&plain, best);
    if (!rc) rc = dht_result_finish(&plain, dht_node_time(get->node));
    if (!rc && plain.type == DHT_NOT_FOUND) rc = PL_ENOTFOUND;
    tell(get, rc, rc ? NULL : &plain);
    dht_result_clear(&plain);
}

/* What our storage and cache hold; refs: 1 if it came from the cache. */
static int merge_own(struct dht_result *best, struct dht_node *n, const struct dht_id *key)
{
    double now = dht_node_time(n);
    const struct dht_entry *stored = dht_store_get(&n->state.storage, now, key);
    const struct dht_entry *cached = dht_store_get(&n->state.cache, now, key), *both[2];
    int used = 0;
    both[0] = stored;
    both[1] = cached;
    for (int i = 0; i < 2; i++) {
        struct bytes packed = { 0 };
        if (both[i] && !dht_entry_write(&packed, both[i])) /* checked when it came: no validators */
            used = !dht_result_merge(best, NULL, key, &(struct dht_reporter){ NULL, now },
                                     both[i]->value ? DHT_FOUND_REGULAR : DHT_FOUND_DICTIONARY,
                                     bytes_at(&packed), bytes_length(&packed),
                                     both[i]->expiration) &&
                   i == 1;
        bytes_clear(&packed);
    }
    return used;
}

/* --- refetching ------------------------------------------------------------------------------- */

static void on_refetched(void *context, int status, const struct dht_result *r)
{
    (void)context;
    (void)status;
    (void)r; /* the search has put it into the cache */
}

static void on_refetch_timer(void *context)
{
    struct dht_node *n = context;
    double now = dht_node_time(n), next = INFINITY;
    size_t kept = 0;
    for (size_t i = 0; i < n->refetch_count; i++) {
        struct refetch r = n->refetches[i];
        if (r.at <= now) dht_node_get(n, &r.key, 1, on_refetched, NULL);
        else n->refetches[kept++] = r;
        if (r.at > now && r.at < next) next = r.at;
    }
    n->refetch_count = kept;
    if (kept) timer_start(n->loop, &n->refetch_timer, next - now, on_refetch_timer, n);
}

/* The cache was of use: have a newer record ready when this one ends. */
static void plan_refetch(struct dht_node *n, const struct dht_id *key, double expiration)
{
    double in_s = expiration - REFETCH_BEFORE - dht_node_time(n);
    if (n->refetch_count == PL_COUNT(n->refetches) || !(in_s < 3600)) return;
    for (size_t i = 0; i < n->refetch_count; i++)
        if (dht_id_equal(&n->refetches[i].key, key)) return;
    n->refetches[n->refetch_count].key = *key;
    n->refetches[n->refetch_count++].at = expiration - REFETCH_BEFORE;
    if (!n->refetch_timer.place || in_s < n->refetch_timer.at - loop_now(n->loop))
        timer_start(n->loop, &n->refetch_timer, in_s > 0 ? in_s : 0, on_refetch_timer, n);
}

/* --- searching -------------------------------------------------------------------------------- */

/* Newer than what we had: into our cache, and to the nearest node that had it not. But for
 * declarations, which nodes take from their peers alone. */
static void spread(struct dht_node *n, const struct dht_search *s)
{
    double now = dht_node_time(n);
    const struct dht_entry *own = dht_state_get(&n->state, now, &s->key);
    const struct dht_contact *to = dht_search_without(s);
    struct dht_record record;
    struct bytes packed = { 0 };
    if (s->best.type == DHT_NOT_FOUND || s->best.expiration < now ||
        s->best.dictionary.class_bytes[DHT_REPORTED] ||
        s->best.dictionary.class_bytes[DHT_DECLARATION] ||
        (own && own->expiration >= s->best.expiration) ||
        dht_result_record(&record, &packed, &s->best, &s->key))
        goto done;
    record.in_cache = 1;
    dht_state_store(&n->state, now, &record);
    if (to) dht_ask_store(n, to, &record, NULL, NULL);
done:
    bytes_clear(&packed);
}

static void on_walked(void *context, struct dht_walk *w)
{
    struct getting *get = context;
    spread(get->node, &w->search);
    finish(get, &w->search.best);
}

static void start(struct getting *get)
{
    struct dht_node *n = get->node;
    struct dht_result own;
    struct dht_walk *w;
    int from_cache;
    get->started = 1;
    dht_result_init(&own);
    from_cache = merge_own(&own, n, &get->key);
    if (own.type != DHT_NOT_FOUND && own.expiration >= get->sufficient) {
        if (from_cache) plan_refetch(n, &get->key, own.expiration);
        finish(get, &own);
    } else if ((w = dht_walk_start(n, &get->key, get->sufficient, on_walked, get))) {
        w->search.best = own; /* moved */
        return;
    } else {
        finish(get, &own);
    }
    dht_result_clear(&own);
}

void dht_get_turn(struct dht_node *n)
{
    struct getting *get;
    do { /* from the start: callbacks change the list */
        for (get = n->gets; get && get->started; get = get->next) {}
        if (get) start(get);
    } while (get);
}

struct dht_task *dht_node_get(struct dht_node *n, const struct dht_id *key, int latest,
                              dht_got *got, void *context)
{
    double sufficient = latest ? INFINITY : dht_node_time(n);
    struct dht_task *t = calloc(1, sizeof *t);
    struct getting *get;
    if (!t) return NULL;
    for (get = n->gets; get; get = get->next) /* a search begun before can't promise the latest */
        if (dht_id_equal(&get->key, key) && get->sufficient >= sufficient &&
            !(latest && get->started))
            break;
    if (!get) {
        if (!(get = calloc(1, sizeof *get))) {
            free(t);
            return NULL;
        }
        get->node = n;
        get->key = *key;
        get->sufficient = sufficient;
        get->next = n->gets;
        n->gets = get;
        dht_node_wake(n);
    }
    t->node = n;
    t->got = got;
    t->context = context;
    t->next = get->tasks;
    get->tasks = t;
    return t;
}

void dht_get_close(struct dht_node *n)
{
    while (n->gets) tell(n->gets, PL_EAGAIN, NULL);
    timer_stop(&n->refetch_timer);
}
