/* dht_put.c - storing a record at the nodes nearest to its key. [spec hivemind-protocol 1.6] */
#include "dht_node_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*  fresh --search--> nearest nodes, ourselves among them --store, at most as many at once as
 *  replicas are missing; whoever does not answer, or not soon, is replaced by the next--> enough
 *  answered, or nobody left but fewer late ones than have answered */
struct putting {
    struct dht_task task;
    struct putting *next_put;
    struct dht_record record;
    struct bytes subkey, value; /* what the record points to */
    int started, invalid;
    struct dht_contact to[DHT_BUCKET_SIZE + 1]; /* length 0: ourselves */
    size_t count, tried, under_way, accepted, refused;
    size_t passed,
        late; /* the first of `to` were passed over; so many of them have yet to answer */
    struct timer patience;
    int told;
};

static void free_putting(struct putting *p)
{
    struct putting **at = &p->task.node->puts;
    while (*at != p) at = &(*at)->next_put;
    *at = p->next_put;
    timer_stop(&p->patience);
    bytes_clear(&p->subkey);
    bytes_clear(&p->value);
    free(p);
}

/* What our cache says has to follow what we know now. */
static void update_cache(struct putting *p, int stored)
{
    struct dht_state *s = &p->task.node->state;
    double now = dht_node_time(p->task.node);
    const struct dht_entry *cached = dht_store_get(&s->cache, now, &p->record.key);
    if (stored && (dht_is_regular(&p->record) || cached)) {
        struct dht_record copy = p->record;
        copy.in_cache = 1;
        dht_state_store(s, now, &copy);
    } else if (!stored && cached && cached->expiration <= p->record.expiration) {
        dht_store_remove(&s->cache, &p->record.key); /* the others have a newer one */
    }
}

/* Whoever asks us hears our own declaration, however far our id is from its key: others' word about
 * us may be false. */
static void keep_declaration(struct putting *p)
{
    struct dht_state *s = &p->task.node->state;
    struct peer_id named;
    struct record r = { .subkey = p->record.subkey, .subkey_n = p->record.subkey_n };
    if (!s->client_mode && !record_declarer(&named, &r) &&
        peer_id_equal(&named, &p->task.node->self.peer))
        dht_state_store(s, dht_node_time(p->task.node), &p->record);
}

static void finish(struct putting *p)
{
    int status = p->invalid                      ? PL_EPROTO
                 : p->accepted + p->refused == 0 ? PL_EIO
                 : p->accepted >= p->refused     ? PL_OK
                                                 : PL_EAGAIN;
    if (status != PL_EPROTO) update_cache(p, status == PL_OK);
    if (status != PL_EPROTO) keep_declaration(p);
    p->told = 1;
    timer_stop(&p->patience);
    if (!p->task.cancelled) p->task.stored(p->task.context, status);
}

static void on_stored(void *context, const struct dht_contact *who, const struct dht_reply *r);
static void on_silence(void *context);

static void advance(struct putting *p)
{
    struct dht_node *n = p->task.node;
    size_t before = p->tried;
    while (!p->told && p->tried < p->count &&
           p->accepted + p->refused + p->under_way < n->state.replicas) {
        const struct dht_contact *to = &p->to[p->tried++];
        if (to->peer.length) {
            if (!dht_ask_store(n, to, &p->record, on_stored, p)) p->under_way++;
        } else if (!dht_state_store(&n->state, dht_node_time(n), &p->record)) {
            p->accepted++;
        } else {
            p->refused++;
        }
    }
    if (!p->told && !p->under_way && p->accepted + p->refused >= p->late) finish(p);
    if (p->told && !p->under_way && !p->late) free_putting(p);
    else if (!p->told && p->tried > before)
        timer_start(n->loop, &p->patience, dht_node_patience(n), on_silence, p);
}

/* The next ones take their places; what they say may still come. */
static void on_silence(void *context)
{
    struct putting *p = context;
    p->passed = p->tried;
    p->late += p->under_way;
    p->under_way = 0;
    advance(p);
}

static int was_passed(const struct putting *p, const struct dht_id *who)
{
    for (size_t i = 0; i < p->passed; i++)
        if (dht_id_equal(&p->to[i].id, who)) return 1;
    return 0;
}

static void on_stored(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct putting *p = context;
    if (was_passed(p, &who->id)) p->late--;
    else p->under_way--;
    if (!r->status && r->stored) p->accepted++;
    else if (!r->status) p->refused++;
    advance(p);
}

static void on_walked(void *context, struct dht_walk *w)
{
    struct putting *p = context;
    const struct dht_state *s = &p->task.node->state;
    size_t at;
    p->count = dht_search_nearest(&w->search, p->to, DHT_BUCKET_SIZE);
    if (!s->client_mode) { /* nobody could ask a client for it */
        struct dht_contact self = { .id = s->self };
        for (at = p->count; at && dht_id_nearer(&s->self, &p->to[at - 1].id, &p->record.key) < 0;
             at--)
            p->to[at] = p->to[at - 1];
        p->to[at] = self;
        p->count++;
    }
    advance(p);
}

/* Nobody was asked. */
static void give_up(struct putting *p)
{
    finish(p);
    free_putting(p);
}

void dht_put_turn(struct dht_node *n)
{
    struct putting *p;
    do { /* from the start: callbacks change the list */
        for (p = n->puts; p && p->started; p = p->next_put) {}
        if (p) {
            struct dht_walk *w;
            p->started = 1;
            w = p->invalid ? NULL : dht_walk_start(n, &p->record.key, INFINITY, on_walked, p);
            if (w) w->search.nodes_only = 1;
            else give_up(p);
        }
    } while (p);
}

/* Signed if it is ours, and checked: what we would refuse of others, we don't send. */
static int make_record(struct putting *p, struct dht_node *n, const struct dht_id *key,
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
    if ((rc = record_sign(&p->value, v, &r))) return rc;
    r.value = p->record.value = bytes_at(&p->value);
    r.n = p->record.n = bytes_length(&p->value);
    p->record.subkey = r.subkey;
    p->record.subkey_n = r.subkey_n;
    if ((rc = record_check_life(v, &r, dht_node_time(n), NULL))) return rc;
    return record_check(v, &r, NULL);
}

struct dht_task *dht_node_store(struct dht_node *n, const struct dht_id *key, const void *subkey,
                                size_t subkey_n, const void *value, size_t value_n,
                                double expiration, dht_stored *stored, void *context)
{
    struct putting *p = calloc(1, sizeof *p);
    int rc;
    if (!p) return NULL;
    rc = make_record(p, n, key, subkey, subkey_n, value, value_n, expiration);
    if (rc == PL_ENOMEM) {
        bytes_clear(&p->subkey);
        bytes_clear(&p->value);
        free(p);
        return NULL;
    }
    p->invalid = rc != PL_OK;
    p->task.node = n;
    p->task.stored = stored;
    p->task.context = context;
    p->next_put = n->puts;
    n->puts = p;
    dht_node_wake(n);
    return &p->task;
}

void dht_put_close(struct dht_node *n)
{
    while (n->puts) {
        if (!n->puts->told && !n->puts->task.cancelled)
            n->puts->task.stored(n->puts->task.context, PL_EAGAIN);
        free_putting(n->puts);
    }
}
