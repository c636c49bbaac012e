/* dht_serve.c - the answers of a node, as functions of its state, the request and the time [spec
 * hivemind-protocol 1.3, 1.5]. find: the record if we have it, and the 20 nodes nearest to the
 * key that we know. store: validate, then the storage rule. ping: our id and clock.
 *
 * A node serves strangers, so the order of checks matters: sizes and life first, then who may
 * write, and the RSA signature last, since it costs the most. */
#include "dht_serve.h"
#include "net/hivemind/records/hash_index.h"

#include <stdlib.h>
#include <string.h>

/* Two stores: storage has records of which we are a replica, and hands them to newcomers; the cache
 * has copies that searches left here, which may be dropped at any time. The allowances of
 * dht_checks.h start full, since a node that hands over its records does so in one burst. */
int dht_state_init(struct dht_state *s, const struct dht_id *self, int client_mode,
                   const struct validators *validators)
{
    memset(s, 0, sizeof *s);
    s->self = *self;
    s->client_mode = client_mode;
    s->replicas = DHT_REPLICAS;
    s->validators = validators;
    dht_checks_init(&s->checks);
    s->plain_answers.rate = DHT_PLAIN_ANSWERS_A_SECOND;
    s->plain_answers.burst = DHT_PLAIN_ANSWERS_BURST;
    dht_store_init(&s->storage, DHT_STORE_MAX);
    dht_store_init(&s->cache, DHT_CACHE_MAX);
    s->storage.quota = s->cache.quota = &s->quota;
    return dht_routing_init(&s->routing, self, DHT_BUCKET_SIZE, DHT_DEPTH_MODULO);
}

void dht_state_clear(struct dht_state *s)
{
    dht_routing_clear(&s->routing);
    dht_store_clear(&s->storage);
    dht_store_clear(&s->cache);
    dht_quota_clear(&s->quota);
}

const struct dht_id *dht_state_self(const struct dht_state *s)
{
    return s->client_mode ? NULL : &s->self;
}

/* --- storing ---------------------------------------------------------------------------------- */

/* Records count against the connection's peer and subnet (dht_share.h), which are stored as hashes:
 * each record has an origin, and 16 bytes are fewer than a peer ID and an address. */
static void set_holder(struct dht_origin *from, const struct dht_caller *caller)
{
    if (!caller || caller->is_self) return;
    from->subnet = caller->subnet;
    from->caller = hash_bytes(caller->peer.bytes, caller->peer.length);
}

/* A declaration is accepted only from the peer that it names: otherwise any node could take a
 * peer out of every group by storing "false" for it. */
static int may_declare(const struct dht_caller *caller, const struct record *r)
{
    struct peer_id named;
    return record_declarer(&named, r) || (caller && peer_id_equal(&named, &caller->peer));
}

/* Without an allowance the record is refused unchecked: an honest peer stores it again. Our own
 * cost nothing: they are ours, or were checked when a search found them. */
static int may_check(struct dht_state *s, double now, const struct dht_caller *caller,
                     const struct record *r)
{
    return !caller || caller->is_self ||
           dht_checks_take(&s->checks, now, &caller->peer, caller->subnet, r);
}

/* A renewal adds nothing that readers of the key would have to read; plain values and declarations
 * count each time. */
static int may_add(struct dht_state *s, double now, const struct dht_record *r,
                   const struct dht_item *item)
{
    const struct dht_caller *caller = r->caller;
    if (!caller || caller->is_self) return 1;
    if (item->from.class == DHT_SIGNED &&
        (dht_store_holds(&s->storage, &r->key, item) || dht_store_holds(&s->cache, &r->key, item)))
        return 1;
    return dht_checks_add(&s->checks, now, &caller->peer, caller->subnet, &r->key,
                          item->from.class);
}

/* The one way into a store. Each check refuses with false in the answer, as hivemind does, not with
 * an error: other records of the same call may be good. Without validators everything is stored, as
 * on hivemind's plain bootstrap nodes; ours have them even there [spec hivemind-protocol 12]. */
static int check_and_put(struct dht_state *s, struct dht_store *to, double now,
                         const struct dht_record *r, const struct record *record)
{
    const int is_value = dht_is_regular(r);
    struct dht_item item = { .subkey = is_value ? NULL : (uint8_t *)(uintptr_t)record->subkey,
                             .subkey_n = is_value ? 0 : record->subkey_n,
                             .value = (uint8_t *)(uintptr_t)record->value, /* both are only read */
                             .n = record->n,
                             .expiration = record->expiration };
    const struct dht_entry *stored;
    int rc = PL_OK;
    set_holder(&item.from, r->caller);
    if (s->validators) {
        /* Free of charge: an expired record is refused before anything is computed for it. */
        if (record->subkey_n > RECORD_SUBKEY_MAX || record->expiration < now) return PL_EAGAIN;
        record_origin(&item.from, record);
        if (!may_declare(r->caller, record)) return PL_EAGAIN;
        /* The expiration is signed by the owner, but an owner may be Byzantine, too: no kind of
         * record lives longer than it needs (validate.h). */
        rc = record_check_life(s->validators, record, now);
        /* Hand-overs and caches repeat known records, whose signatures are not verified again. */
        if (!rc && dht_store_is_known(to, &r->key, &item)) rc = PL_EAGAIN;
        if (!rc && !may_add(s, now, r, &item)) rc = PL_EAGAIN;
        if (!rc && !may_check(s, now, r->caller, record)) rc = PL_EAGAIN;
        if (!rc) rc = record_check(s->validators, record, NULL);
    }
    /* A record that the storage's would hide is not cached. */
    if (!rc && r->in_cache && (stored = dht_store_get(&s->storage, now, &r->key)) &&
        dht_entry_class(stored) > item.from.class)
        rc = PL_EAGAIN;
    /* The storage rule: the greater expiration is the newer record. */
    if (!rc) rc = dht_store_put(to, now, &r->key, &item);
    return rc == PL_OK || rc == PL_ENOMEM ? rc : PL_EAGAIN;
}

/* The subkey is stored in our own msgpack form: equal subkeys are then equal bytes. Otherwise one
 * peer could have as many records as msgpack has forms of its name (2 in each length field). */
static int store_record(struct dht_state *s, struct dht_store *to, double now,
                        const struct dht_record *r)
{
    struct bytes subkey = { 0 };
    struct record record = { .key = r->key.bytes,
                             .key_n = DHT_ID_BYTES,
                             .subkey = r->subkey,
                             .subkey_n = r->subkey_n,
                             .value = r->value,
                             .n = r->n,
                             .expiration = r->expiration };
    int rc = PL_EAGAIN;
    if (dht_is_regular(r)) return check_and_put(s, to, now, r, &record);
    /* The bound comes before parsing. Twice the limit: other writers' forms may be longer than
     * ours. */
    if (r->subkey_n <= 2 * RECORD_SUBKEY_MAX)
        rc = dht_subkey_write(&subkey, r->subkey, r->subkey_n);
    record.subkey = bytes_at(&subkey);
    record.subkey_n = bytes_length(&subkey);
    if (!rc) rc = check_and_put(s, to, now, r, &record);
    bytes_clear(&subkey);
    return rc == PL_OK || rc == PL_ENOMEM ? rc : PL_EAGAIN;
}

/* A whole dictionary, as a node hands it to a newcomer: each item is a record of its own. hivemind
 * stops at the first refusal; here the good items behind a bad one are stored, too, and the answer
 * is still false unless all were [spec hivemind-protocol 1.3]. */
static int store_dictionary(struct dht_state *s, struct dht_store *to, double now,
                            const struct dht_record *r)
{
    struct dht_dictionary d;
    int rc = dht_dictionary_read(&d, r->value, r->n, NULL), all = PL_OK;
    if (rc) return rc == PL_ENOMEM ? rc : PL_EAGAIN;
    for (size_t i = 0; i < d.count; i++) {
        struct dht_record one = { .key = r->key,
                                  .subkey = d.items[i].subkey,
                                  .value = d.items[i].value,
                                  .subkey_n = d.items[i].subkey_n,
                                  .n = d.items[i].n,
                                  .expiration = d.items[i].expiration,
                                  .caller = r->caller };
        if ((rc = store_record(s, to, now, &one))) all = rc;
    }
    dht_dictionary_clear(&d);
    return all;
}

/* Which of the three forms: an empty subkey means a dictionary, nil a regular value. */
int dht_state_store(struct dht_state *s, double now, const struct dht_record *r)
{
    struct dht_store *to = r->in_cache ? &s->cache : &s->storage;
    return r->subkey_n ? store_record(s, to, now, r) : store_dictionary(s, to, now, r);
}

/* Storage and cache may differ, and any reader may write into the cache. The higher class is shown,
 * because otherwise one plain value in the cache would hide all declarations of a run; within a
 * class the greater expiration, and of equals the storage's record, which its writer or another
 * replica stored here. */
const struct dht_entry *dht_state_get(struct dht_state *s, double now, const struct dht_id *key)
{
    const struct dht_entry *main = dht_store_get(&s->storage, now, key);
    const struct dht_entry *cached = dht_store_get(&s->cache, now, key);
    int order;
    if (!main || !cached) return main ? main : cached;
    order = (int)dht_entry_class(main) - (int)dht_entry_class(cached);
    return order > 0 || (!order && cached->expiration <= main->expiration) ? main : cached;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* rpc_ping: our id, and our clock, from which a newcomer learns how wrong its own is. */
int dht_serve_validated(const struct dht_state *s, double now, int available, struct bytes *answer)
{
    return dht_write_ping_answer(answer, &s->self, now, available);
}

/* rpc_store. One result for each record: one that is refused does not stop the others. The caller
 * of all of them is the connection's peer, whatever the message says. */
static int serve_store(struct dht_state *s, double now, const struct dht_caller *caller,
                       const struct dht_request *r, struct bytes *answer)
{
    /* + 1: no records is legal, calloc(0) may be NULL */
    int *ok = calloc(r->count + 1, sizeof *ok);
    if (!ok) return PL_ENOMEM;
    for (size_t i = 0; i < r->count; i++) r->records[i].caller = caller;
    for (size_t i = 0; i < r->count; i++) ok[i] = dht_state_store(s, now, &r->records[i]) == PL_OK;
    dht_write_store_answer(answer, &s->self, ok, r->count);
    free(ok);
    return answer->failed;
}

/* The lowest class of records under a key that an answer shows: plain ones only as long as their
 * bytes are within the key's allowance. */
static enum dht_class least_shown(struct dht_state *s, double now, const struct dht_entry *e)
{
    size_t plain = dht_entry_plain_bytes(e);
    if (!s->validators || plain <= DHT_PLAIN_ANSWER_FREE ||
        rate_limit_take(&s->plain_answers, hash_bytes(e->key.bytes, DHT_ID_BYTES), (double)plain,
                        now))
        return DHT_PLAIN;
    return DHT_REPORTED;
}

/* rpc_find for one key: the record if we have it, and always the k nodes that we know nearest to
 * the key, without the caller, which knows itself. A client sends no id, which counts as 0:
 * hivemind excludes that id, and so do we. values: packed records, appended; the place of each
 * follows from its length, as they may move. */
static int find_one(struct dht_state *s, double now, const struct dht_request *r, size_t i,
                    struct dht_found *f, struct bytes *values)
{
    static const struct dht_id zero;
    const struct dht_entry *e = dht_state_get(s, now, &r->keys[i]);
    enum dht_class least = e ? least_shown(s, now, e) : DHT_PLAIN;
    f->nearest = calloc(DHT_BUCKET_SIZE, sizeof *f->nearest);
    if (!f->nearest) return PL_ENOMEM;
    f->nearest_count = dht_routing_nearest(&s->routing, f->nearest, DHT_BUCKET_SIZE, &r->keys[i],
                                           r->has_id ? &r->id : &zero);
    if (e && dht_entry_class(e) >= least) {
        size_t before = bytes_length(values);
        if (e->value ? dht_entry_write(values, e)
                     : dht_dictionary_write_from(values, &e->dictionary, least))
            return PL_ENOMEM;
        /* An answer is one message, which RPC_UNARY_MAX bounds. A result that does not fit counts
         * as not found: the caller has the neighbours, and can ask for the key alone. */
        if (bytes_length(values) > DHT_ANSWER_MAX) {
            values->end -= bytes_length(values) - before;
            return PL_OK;
        }
        f->type = e->value ? DHT_FOUND_REGULAR : DHT_FOUND_DICTIONARY;
        f->n = bytes_length(values) - before;
        f->expiration = e->expiration;
    }
    return PL_OK;
}

/* All values go into one buffer, which moves as it grows; so views are set when it is complete. */
static int serve_find(struct dht_state *s, double now, const struct dht_request *r,
                      struct bytes *answer)
{
    struct dht_found *found = calloc(r->count + 1, sizeof *found);
    struct bytes values = { 0 };
    size_t at = 0;
    int rc = found ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; i < r->count && !rc; i++) rc = find_one(s, now, r, i, &found[i], &values);
    for (size_t i = 0; i < r->count && !rc; i++) {
        found[i].value = bytes_at(&values) + at;
        at += found[i].n;
    }
    if (!rc) rc = dht_write_find_answer(answer, &s->self, found, r->count);
    for (size_t i = 0; found && i < r->count; i++) free(found[i].nearest);
    free(found);
    bytes_clear(&values);
    return rc;
}

/* One request to one answer. A caller that uses our own id is not added to the table: two nodes
 * cannot share one. A ping with `validate` leaves the answer empty: dht_server.c calls back
 * first. */
int dht_serve(struct dht_state *s, enum dht_call call, double now, const struct dht_caller *caller,
              const uint8_t *data, size_t n, struct bytes *answer, struct dht_request *r,
              struct pl_err *err)
{
    int rc = dht_read_request(r, call, data, n, err);
    if (rc) return rc;
    if (r->has_id && dht_id_equal(&r->id, &s->self)) r->has_id = 0;
    if (call == DHT_STORE) rc = serve_store(s, now, caller, r, answer);
    else if (call == DHT_FIND) rc = serve_find(s, now, r, answer);
    else if (!r->validate || !r->has_id) rc = dht_serve_validated(s, now, 0, answer);
    return rc ? pl_fail(err, rc, "no memory") : PL_OK;
}

/* --- newcomers -------------------------------------------------------------------------------- */

/* Replication for a node that has just come [spec hivemind-protocol 1.4]: of the replicas of a
 * key, only the nearest one hands the record over, and only if the newcomer displaces the
 * farthest. So each record arrives once, not five times. */
static int belongs_to(const struct dht_state *s, const struct dht_id *key,
                      const struct dht_id *newcomer, struct dht_contact *nearest)
{
    size_t n = dht_routing_nearest(&s->routing, nearest, s->replicas, key, newcomer);
    if (!n) return 1; /* no other node could hand it over */
    /* We are nearer than all others that we know, and the newcomer is among the replicas then. */
    return dht_id_nearer(&s->self, &nearest[0].id, key) < 0 &&
           (n < s->replicas || dht_id_nearer(newcomer, &nearest[n - 1].id, key) < 0);
}

/* Dictionaries hold the run's records and go first; plain values may come from any peer. Records
 * and bytes are limited because a newcomer costs its maker nothing: without a limit each fresh id
 * would make us pack and send all that we have. */
static void choose_records(struct dht_record *records, size_t *n, struct dht_state *s, double now,
                           const struct dht_id *newcomer, struct dht_contact *nearest,
                           struct bytes *packed, int values)
{
    size_t examined = 0;
    for (size_t i = 0; i < s->storage.count && examined < DHT_HAND_OVER_RECORDS; i++) {
        const struct dht_entry *e = s->storage.entries[i];
        struct dht_record *r = &records[*n];
        if ((e->value != NULL) != values || bytes_length(packed) >= DHT_HAND_OVER_BYTES) continue;
        examined++;
        if (!belongs_to(s, &e->key, newcomer, nearest)) continue;
        dht_store_get(&s->storage, now, &e->key); /* a read drops expired items */
        r->key = e->key;
        r->expiration = e->expiration;
        r->n = bytes_length(packed);
        dht_entry_write(packed, e);
        r->n = bytes_length(packed) - r->n;
        r->subkey = dht_no_subkey;
        r->subkey_n = e->value != NULL;
        ++*n;
    }
}

int dht_state_hand_over(struct dht_state *s, double now, const struct dht_id *newcomer,
                        struct dht_record **records, size_t *count, struct bytes *packed)
{
    struct dht_contact *nearest = calloc(s->replicas + 1, sizeof *nearest);
    size_t n = 0, at = 0;
    dht_store_prune(&s->storage, now);
    *count = 0;
    *records = calloc(2 * DHT_HAND_OVER_RECORDS + 1, sizeof **records);
    for (int values = 0; nearest && *records && values <= 1; values++)
        choose_records(*records, &n, s, now, newcomer, nearest, packed, values);
    free(nearest);
    if (!nearest || !*records || packed->failed) {
        free(*records);
        *records = NULL;
        return PL_ENOMEM;
    }
    /* From here on the buffer does not move. */
    for (size_t i = 0; i < n; i++) {
        (*records)[i].value = bytes_at(packed) + at;
        at += (*records)[i].n;
    }
    *count = n;
    return PL_OK;
}
