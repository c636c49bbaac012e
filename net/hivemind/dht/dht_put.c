/* dht_put.c - storing a record [spec hivemind-protocol 1.6]. A search finds the nodes nearest to
 * the key; the record goes to the nearest DHT_REPLICAS of them that answer. We are one of the
 * candidates, by our own distance, unless we are a client, which could not be asked for the
 * record.
 *
 *  NEW --> SEARCHING --nearest nodes--> STORING --enough answered--> DONE --late answers--> freed
 *                                        |  ^
 *                                        +--+ a node fails, or is late: the next one is asked
 *
 * "Enough" counts refusals, too: a replica that has a newer record did its work. */
#include "dht_put.h"
#include "net/list.h"

#include <math.h>
#include <stdlib.h>

struct dht_putting {
    struct dht_task task;
    struct dht_puts *puts;
    struct dht_putting *next, *prev;
    struct dht_record record;
    struct bytes subkey, value; /* memory that the record points to */
    /* INVALID: our own validators refuse the record. */
    enum { PUT_NEW, PUT_INVALID, PUT_SEARCHING, PUT_STORING, PUT_DONE } state;
    struct dht_contact to[DHT_BUCKET_SIZE + 1]; /* nearest first; peer of length 0: ourselves */
    size_t count, tried, under_way, accepted, refused;
    size_t passed; /* of `to`: asked and too slow, their places were given to others */
    size_t late;   /* of those: not answered yet */
    struct timer patience;
};

/* Late answers refer to p, so it is freed after the last of them. */
static void free_putting(struct dht_putting *p)
{
    list_remove(&p->puts->list, p);
    timer_stop(&p->patience);
    bytes_clear(&p->subkey);
    bytes_clear(&p->value);
    free(p);
}

/* hivemind's rules for our own cache after a store [spec hivemind-protocol 1.6]. The cache must not
 * contradict the result: after a success it takes the record (of a dictionary only if it has the
 * key already), after a refusal it drops a record that is not newer than the refused one. */
static void update_cache(struct dht_putting *p, int stored)
{
    struct dht_state *s = &p->puts->core->state;
    double now = dht_core_time(p->puts->core);
    const struct dht_entry *cached = dht_store_get(&s->cache, now, &p->record.key);
    if (stored && (dht_is_regular(&p->record) || cached)) {
        struct dht_record copy = p->record;
        copy.in_cache = 1;
        dht_state_store(s, now, &copy);
    } else if (!stored && cached && cached->expiration <= p->record.expiration) {
        dht_store_remove(&s->cache, &p->record.key); /* the others have a newer one */
    }
}

/* The majority of the replicas decides. hivemind reports the answer that came last, so one node
 * that refuses turns a good store into a failed one. */
static void finish(struct dht_putting *p)
{
    int status = p->state == PUT_INVALID         ? PL_EPROTO
                 : p->accepted + p->refused == 0 ? PL_EIO
                 : p->accepted >= p->refused     ? PL_OK
                                                 : PL_EAGAIN;
    if (status != PL_EPROTO) update_cache(p, status == PL_OK);
    p->state = PUT_DONE;
    timer_stop(&p->patience);
    if (!p->task.cancelled && p->task.stored) p->task.stored(p->task.context, status);
}

static void on_stored(void *context, const struct dht_contact *who, const struct dht_reply *r);
static void on_silence(void *context);

/* Asks as many nodes as replicas are missing, ourselves by the same checks as if another node had
 * sent the record; finishes when none are left to ask or to wait for.
 * A put that is done is freed with its last late answer. */
static void advance(struct dht_putting *p)
{
    struct dht_core *n = p->puts->core;
    size_t before = p->tried;
    while (p->state != PUT_DONE && p->tried < p->count &&
           p->accepted + p->refused + p->under_way < n->state.replicas) {
        const struct dht_contact *to = &p->to[p->tried++]; /* nearest first */
        if (to->peer.length) {
            if (!dht_ask_store(p->puts->calls, to, &p->record, on_stored, p)) p->under_way++;
        } else if (!dht_state_store(&n->state, dht_core_time(n), &p->record)) {
            p->accepted++;
        } else {
            p->refused++;
        }
    }
    /* Nodes that are late are waited for only while they outnumber those that have answered. */
    if (p->state != PUT_DONE && !p->under_way && p->accepted + p->refused >= p->late) finish(p);
    /* The user has the result by now; the record still goes to those that were asked. */
    if (p->state == PUT_DONE && !p->under_way && !p->late) free_putting(p);
    else if (p->state != PUT_DONE && p->tried > before)
        timer_start(n->loop, &p->patience, dht_core_patience(n), on_silence, p);
}

/* Silence: the next nodes are asked in their place. Their answers still count if they come. */
static void on_silence(void *context)
{
    struct dht_putting *p = context;
    p->passed = p->tried;
    p->late += p->under_way;
    p->under_way = 0;
    advance(p);
}

/* `to` is in the order in which nodes were asked, so the first `passed` of them were given up. */
static int was_passed(const struct dht_putting *p, const struct dht_id *who)
{
    for (size_t i = 0; i < p->passed; i++)
        if (dht_id_equal(&p->to[i].id, who)) return 1;
    return 0;
}

/* A failed call counts neither as accepted nor as refused: the next node takes its place. */
static void on_stored(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_putting *p = context;
    if (was_passed(p, &who->id)) p->late--;
    else p->under_way--;
    if (!r->status && r->stored) p->accepted++;
    else if (!r->status) p->refused++;
    advance(p);
}

/* 1: the peer is among the nodes that are asked first. */
static int is_replica(const struct dht_putting *p, const struct peer_id *peer)
{
    for (size_t i = 0; i < p->count && i < p->puts->core->state.replicas; i++)
        if (peer_id_equal(&p->to[i].peer, peer)) return 1;
    return 0;
}

/* Node ids are chosen freely: all that are nearest to a key may be one stranger's, which takes
 * records and gives none. So two places do not depend on distance: our own node keeps what we store
 * into dictionaries, and the initial peers that readers ask, too, get it (dht_search.h). A reader
 * that asks us has our declaration from the peer itself, and a false one that others report about
 * us does not count. */
static void store_where_trusted(struct dht_putting *p)
{
    struct dht_core *n = p->puts->core;
    const struct peer_id self = { .length = 0 }; /* as in p->to */
    struct dht_contact trusted[DHT_SEARCH_TRUSTED];
    size_t count = dht_core_trusted(n, trusted, &p->record.key);
    if (!n->state.client_mode && !dht_is_regular(&p->record) && !is_replica(p, &self))
        dht_state_store(&n->state, dht_core_time(n), &p->record);
    for (size_t i = 0; i < count; i++)
        if (!is_replica(p, &trusted[i].peer))
            dht_ask_store(p->puts->calls, &trusted[i], &p->record, NULL, NULL);
}

/* The replicas are the nodes nearest to the key by XOR, because that is where every search for the
 * key will end [Kademlia 2.3]. 20 candidates for 5 replicas: some may be gone by now. */
static void on_walked(void *context, struct dht_walk *w)
{
    struct dht_putting *p = context;
    const struct dht_state *s = &p->puts->core->state;
    p->count = dht_search_nearest(&w->search, p->to, DHT_BUCKET_SIZE);
    p->state = PUT_STORING;
    /* We are a node like the others: if we are among the nearest, we keep a replica. hivemind does
     * that in client mode, too, where it is useless, since a client cannot be asked. */
    if (!s->client_mode) {
        const struct dht_contact self = { .id = s->self };
        p->count = dht_contact_insert(p->to, p->count, DHT_BUCKET_SIZE + 1, &self, &p->record.key);
    }
    store_where_trusted(p);
    advance(p);
}

/* INFINITY: no record found on the way ends the search, it is about nodes. */
static void start(struct dht_putting *p)
{
    struct dht_walk *w = NULL;
    if (p->state == PUT_NEW) {
        p->state = PUT_SEARCHING;
        w = dht_walk_start(p->puts->walks, &p->record.key, INFINITY, on_walked, p);
    }
    if (w) {
        w->search.nodes_only = 1; /* the search is for nodes; records on the way are ignored */
    } else { /* no node was asked: the record is invalid, or there is no memory for a search */
        finish(p);
        free_putting(p);
    }
}

void dht_puts_run(struct dht_puts *puts)
{
    struct dht_putting *p;
    do { /* from the start of the list each time: callbacks change it */
        for (p = puts->list; p && p->state != PUT_NEW && p->state != PUT_INVALID; p = p->next) {}
        if (p) start(p);
    } while (p);
}

/* Signs the record if its owner tag is ours, and applies our own validators: other nodes would
 * refuse the same records. */
static int make_record(struct dht_putting *p, struct dht_core *n, const struct dht_id *key,
                       const void *subkey, size_t subkey_n, const void *value, size_t value_n,
                       double expiration)
{
    const struct validators *v = n->state.validators;
    struct record r = { .key = p->record.key.bytes,
                        .key_n = DHT_ID_BYTES,
                        .value = value,
                        .n = value_n,
                        .expiration = expiration };
    int rc;
    p->record.caller = &n->self;
    p->record.key = *key;
    p->record.expiration = expiration;
    if (subkey) rc = dht_subkey_write(&p->subkey, subkey, subkey_n);
    else rc = bytes_add(&p->subkey, dht_no_subkey, sizeof dht_no_subkey);
    if (rc) return rc;
    r.subkey = bytes_at(&p->subkey);
    r.subkey_n = bytes_length(&p->subkey);
    /* The signature covers key, subkey, value and expiration, so it comes when all are final. */
    if ((rc = record_sign(&p->value, v, &r))) return rc;
    r.value = p->record.value = bytes_at(&p->value);
    r.n = p->record.n = bytes_length(&p->value);
    p->record.subkey = r.subkey;
    p->record.subkey_n = r.subkey_n;
    if ((rc = record_check_life(v, &r, dht_core_time(n)))) return rc;
    return record_check(v, &r, NULL);
}

/* The record is made at once, so that the caller's buffers are free again; the search begins later
 * in this iteration of the loop. */
struct dht_task *dht_put_start(struct dht_puts *puts, const struct dht_id *key, const void *subkey,
                               size_t subkey_n, const void *value, size_t value_n,
                               double expiration, dht_stored *stored, void *context)
{
    struct dht_putting *p = calloc(1, sizeof *p);
    int rc;
    if (!p) return NULL;
    rc = make_record(p, puts->core, key, subkey, subkey_n, value, value_n, expiration);
    if (rc == PL_ENOMEM) { /* any other failure is reported by the callback, as PL_EPROTO */
        bytes_clear(&p->subkey);
        bytes_clear(&p->value);
        free(p);
        return NULL;
    }
    p->state = rc ? PUT_INVALID : PUT_NEW;
    p->puts = puts;
    p->task.part = puts;
    p->task.stored = stored;
    p->task.context = context;
    list_add(&puts->list, p);
    dht_core_wake(puts->core);
    return &p->task;
}

void dht_puts_close(struct dht_puts *puts)
{
    while (puts->list) {
        struct dht_putting *p = puts->list;
        if (p->state != PUT_DONE && !p->task.cancelled && p->task.stored)
            p->task.stored(p->task.context, PL_EAGAIN);
        free_putting(p);
    }
}
