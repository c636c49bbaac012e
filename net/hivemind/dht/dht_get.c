/* dht_get.c - reading a record [spec hivemind-protocol 1.6]. First our storage and cache; if their
 * records expire too early, a search asks the nodes nearest to the key, and the answers are merged:
 * the greatest expiration wins, for dictionaries subkey by subkey. All requests for one key share a
 * search.
 *
 *   NEW --own records suffice--> reported
 *    |
 *    +--> SEARCHING --walk is over--> cached here and at the nearest node without it, reported */
#include "dht_get.h"
#include "net/list.h"

#include <math.h>
#include <stdlib.h>

/* s; a cached record in use is fetched again this long before it expires. */
#define REFETCH_BEFORE 5.0

struct dht_getting {
    struct dht_gets *gets;
    struct dht_id key;
    double sufficient; /* an expiration; INFINITY: the latest of all replicas */
    enum { GET_NEW, GET_SEARCHING } state;
    struct dht_task *tasks;
    struct dht_getting *next, *prev;
};

/* Calls all waiting callbacks. The request leaves the list first, because a callback may ask for
 * the same key again. */
static void report(struct dht_getting *get, int status, const struct dht_result *r)
{
    list_remove(&get->gets->list, get);
    while (get->tasks) {
        struct dht_task *t = get->tasks;
        get->tasks = t->next;
        if (!t->cancelled) t->got(t->context, status, r);
        free(t);
    }
    free(get);
}

/* Reports a copy without signatures and expired items. `best` stays signed: it may be stored
 * elsewhere. */
static void finish(struct dht_getting *get, const struct dht_result *best)
{
    struct dht_result plain;
    int rc = dht_result_copy(&plain, best);
    if (!rc) rc = dht_result_finish(&plain, dht_core_time(get->gets->core));
    if (!rc && plain.type == DHT_NOT_FOUND) rc = PL_ENOTFOUND;
    report(get, rc, rc ? NULL : &plain);
    dht_result_clear(&plain);
}

/* The records of our storage and cache, merged like the reports of two nodes. 1: the result came
 * from the cache. */
static int merge_own(struct dht_result *best, struct dht_core *n, const struct dht_id *key)
{
    double now = dht_core_time(n);
    const struct dht_entry *both[2] = { dht_store_get(&n->state.storage, now, key),
                                        dht_store_get(&n->state.cache, now, key) };
    int used = 0;
    for (int i = 0; i < 2; i++) {
        struct bytes packed = { 0 };
        if (both[i] &&
            !dht_entry_write(&packed, both[i])) /* no validators: it was checked before */
            used = !dht_result_merge(best, NULL, key, &(struct dht_reporter){ .now = now },
                                     both[i]->value ? DHT_FOUND_REGULAR : DHT_FOUND_DICTIONARY,
                                     bytes_at(&packed), bytes_length(&packed),
                                     both[i]->expiration) &&
                   i == 1;
        bytes_clear(&packed);
    }
    return used;
}

/* --- refetching ------------------------------------------------------------------------------- */

/* The search itself has put the newer record into the cache (cache_found). */
static void on_refetched(void *context, int status, const struct dht_result *r) {}

/* Those that are due are fetched; one timer serves all, set to the earliest of the others. */
static void on_refetch_timer(void *context)
{
    struct dht_gets *g = context;
    double now = dht_core_time(g->core), next = INFINITY;
    size_t kept = 0;
    for (size_t i = 0; i < g->refetch_count; i++) {
        struct dht_refetch r = g->refetches[i];
        if (r.at <= now) dht_get_start(g, &r.key, 1, on_refetched, NULL);
        else g->refetches[kept++] = r;
        if (r.at > now && r.at < next) next = r.at;
    }
    g->refetch_count = kept;
    if (kept) timer_start(g->core->loop, &g->refetch_timer, next - now, on_refetch_timer, g);
}

/* A record that was read from the cache will probably be read again, so a newer one is fetched
 * before it expires. Otherwise every reader would meet an empty cache and a search at the same
 * moment. */
static void plan_refetch(struct dht_gets *g, const struct dht_id *key, double expiration)
{
    double in_s = expiration - REFETCH_BEFORE - dht_core_time(g->core);
    /* An hour is longer than any record lives (validate.h); the comparison also refuses NaN. */
    if (g->refetch_count == DHT_REFETCHES_MAX || !(in_s < 3600)) return;
    for (size_t i = 0; i < g->refetch_count; i++)
        if (dht_id_equal(&g->refetches[i].key, key)) return;
    g->refetches[g->refetch_count].key = *key;
    g->refetches[g->refetch_count++].at = expiration - REFETCH_BEFORE;
    if (!g->refetch_timer.is_running || in_s < g->refetch_timer.at - loop_now(g->core->loop))
        timer_start(g->core->loop, &g->refetch_timer, in_s > 0 ? in_s : 0, on_refetch_timer, g);
}

/* --- searching -------------------------------------------------------------------------------- */

/* Kademlia caches along the path [Kademlia 2.3]: a found record that is newer than ours goes
 * into our cache and to the nearest node that did not have it, so that popular keys spread
 * towards their readers. Declarations are an exception: nodes accept them only from the peers
 * that they name. */
static void cache_found(struct dht_gets *g, const struct dht_search *s)
{
    struct dht_core *n = g->core;
    double now = dht_core_time(n);
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
    if (to) dht_ask_store(g->calls, to, &record, NULL, NULL);
done:
    bytes_clear(&packed);
}

/* All nodes of the beam have answered, or a record that is good enough was found. */
static void on_walked(void *context, struct dht_walk *w)
{
    struct dht_getting *get = context;
    cache_found(get->gets, &w->search);
    finish(get, &w->search.best);
}

/* Own records first: a key whose replica we are, or whose cached record is alive, costs no
 * message. */
static void start(struct dht_getting *get)
{
    struct dht_gets *g = get->gets;
    struct dht_result own;
    struct dht_walk *w;
    int from_cache;
    get->state = GET_SEARCHING;
    dht_result_init(&own);
    from_cache = merge_own(&own, g->core, &get->key);
    if (own.type != DHT_NOT_FOUND && own.expiration >= get->sufficient) {
        if (from_cache) plan_refetch(g, &get->key, own.expiration);
        finish(get, &own);
    } else if ((w = dht_walk_start(g->walks, &get->key, get->sufficient, on_walked, get))) {
        w->search.best = own; /* moved: answers are merged into our own records */
        return;
    } else {
        finish(get, &own); /* no memory for a search: our own records are the result */
    }
    dht_result_clear(&own);
}

void dht_gets_run(struct dht_gets *gets)
{
    struct dht_getting *get;
    do { /* from the start of the list each time: callbacks change it */
        for (get = gets->list; get && get->state != GET_NEW; get = get->next) {}
        if (get) start(get);
    } while (get);
}

struct dht_task *dht_get_start(struct dht_gets *gets, const struct dht_id *key, int latest,
                               dht_got *got, void *context)
{
    /* "Good enough" is an expiration: any record that is alive, or none at all (INFINITY), and then
     * all of the nearest nodes are asked [spec hivemind-protocol 1.6]. */
    double sufficient = latest ? INFINITY : dht_core_time(gets->core);
    struct dht_task *t = calloc(1, sizeof *t);
    struct dht_getting *get;
    if (!t) return NULL;
    /* Share a pending request for the key, if it asks for no less. A search that has already
     * begun may have asked a node before its latest record arrived, so "latest" needs a new one. */
    for (get = gets->list; get; get = get->next)
        if (dht_id_equal(&get->key, key) && get->sufficient >= sufficient &&
            !(latest && get->state == GET_SEARCHING))
            break;
    if (!get) {
        if (!(get = calloc(1, sizeof *get))) {
            free(t);
            return NULL;
        }
        get->gets = gets;
        get->key = *key;
        get->sufficient = sufficient;
        list_add(&gets->list, get);
        dht_core_wake(gets->core);
    }
    t->got = got;
    dht_task_push(&get->tasks, t, gets, context);
    return t;
}

void dht_gets_close(struct dht_gets *gets)
{
    while (gets->list) report(gets->list, PL_EAGAIN, NULL);
    timer_stop(&gets->refetch_timer);
}
