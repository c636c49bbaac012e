/* dht_result.c - the findings of a search so far. Many nodes answer, some with old records, some
 * with false ones; the result is the newest valid record [spec hivemind-protocol 1.6]:
 *
 *   a regular value   the greatest expiration wins
 *   a dictionary      merged subkey by subkey, each by the greatest expiration
 *
 * hivemind accepts or rejects a reported dictionary as a whole, so one bad entry hides all
 * others; here each entry is validated alone. Declarations ("peer P looks for a group") are
 * unsigned: any node can report anything about P. So all reports are kept as claims, P's own
 * apart from others', and averaging decides which peers to ask. */
#include "dht_result.h"
#include "net/hivemind/records/hash_index.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dht_result_init(struct dht_result *r)
{
    memset(r, 0, sizeof *r);
    r->expiration = -INFINITY;
    dht_dictionary_init(&r->dictionary);
}

/* Back to "not found". Claims stay: they are of all reports, whichever record wins. */
static void reset_record(struct dht_result *r)
{
    bytes_clear(&r->value);
    dht_dictionary_clear(&r->dictionary);
    r->type = DHT_NOT_FOUND;
    r->expiration = -INFINITY;
}

void dht_result_clear(struct dht_result *r)
{
    reset_record(r);
    free(r->claims);
    dht_result_init(r);
}

/* --- claims ----------------------------------------------------------------------------------- */

/* "Peer P looks for a group until T" is msgpack true, "P does not any more" is false with the next
 * larger float64 as T, so that it wins by the storage rule [spec hivemind-protocol 4.1]. Anything
 * else is not a declaration. A claim that P itself reports is always taken; of claims by others at
 * most DHT_CLAIMS_MAX, otherwise a stranger could fill our memory with invented peers. */
static int add_claim(struct dht_result *r, const struct record *record, enum dht_class class)
{
    const uint8_t yes = 0xc3, no = 0xc2;
    struct dht_claim c = { .expiration = record->expiration,
                           .own = class == DHT_DECLARATION,
                           .reports = 1 };
    if (record->n != 1 || (record->value[0] != yes && record->value[0] != no) ||
        record_declarer(&c.peer, record) || (r->claim_count >= DHT_CLAIMS_MAX && !c.own))
        return PL_OK;
    if (pl_grow(&r->claims, r->claim_count, &r->claim_capacity, 32)) return PL_ENOMEM;
    c.active = record->value[0] == yes;
    r->claims[r->claim_count++] = c;
    return PL_OK;
}

/* Sorts claims by peer; of one peer its own report first, then the latest. At equal expirations
 * `true` comes first: a false one by another node must not hide it. */
static int by_peer(const void *a_, const void *b_)
{
    const struct dht_claim *a = a_, *b = b_;
    int order = peer_id_compare(&a->peer, &b->peer);
    if (order) return order;
    if (a->own != b->own) return b->own - a->own;
    if (a->expiration != b->expiration) return a->expiration > b->expiration ? -1 : 1;
    return b->active - a->active;
}

/* Which claims about a peer to keep: its own, then those that most nodes report. */
static int by_reports(const void *a_, const void *b_)
{
    const struct dht_claim *a = a_, *b = b_;
    if (a->own != b->own) return b->own - a->own;
    if (a->reports != b->reports) return b->reports - a->reports;
    return (a->expiration > b->expiration) - (a->expiration < b->expiration);
}

/* The n sorted claims about one peer, moved to `to`: its own latest report, if it looks for a
 * group, and reports of others that are newer (it may have declared itself again since). Those with
 * equal expiration are reports of one declaration, and an attacker with few nodes cannot imitate
 * the number of nodes that report it. Returns how many. `to` never overtakes `from`. */
static size_t keep_claims(struct dht_claim *to, const struct dht_claim *from, size_t n, double now)
{
    const struct dht_claim *own = from[0].own ? &from[0] : NULL;
    const double since = own ? own->expiration : -INFINITY;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct dht_claim c = from[i];
        /* Others' "false" is dropped, too: a hint at most. If it is true, P will simply not
         * answer. */
        if (!c.active || c.expiration < now || (i && (c.own || c.expiration <= since))) continue;
        if (kept && to[kept - 1].expiration == c.expiration) to[kept - 1].reports++;
        else to[kept++] = c;
    }
    qsort(to, kept, sizeof *to, by_reports);
    return kept < DHT_CLAIMS_OF_PEER ? kept : DHT_CLAIMS_OF_PEER;
}

/* At the end of a search, peer by peer: [i, k) are the claims about one. O(n log n). */
static void resolve_claims(struct dht_result *r, double now)
{
    size_t kept = 0;
    if (r->claim_count) qsort(r->claims, r->claim_count, sizeof *r->claims, by_peer);
    for (size_t i = 0, k; i < r->claim_count; i = k) {
        for (k = i + 1;
             k < r->claim_count && peer_id_equal(&r->claims[k].peer, &r->claims[i].peer);)
            k++;
        kept += keep_claims(r->claims + kept, r->claims + i, k - i, now);
    }
    r->claim_count = kept;
}

/* --- merging ---------------------------------------------------------------------------------- */

/* Found records are checked as stored ones are: the node that reports one may have invented it. Our
 * own storage's were checked when they came (v is NULL). */
static int is_valid(const struct validators *v, const struct record *record,
                    const struct dht_reporter *from)
{
    if (!v) return 1;
    if (record_check_life(v, record, from->now)) return 0;
    /* The reporter pays for the RSA check, as a caller of rpc_store does: node ids are free, so any
     * stranger can be among the nearest nodes to a key, and answer with thousands of false
     * records. */
    if (from->checks && from->peer &&
        !dht_checks_take(from->checks, from->now, from->peer, from->subnet, record))
        return 0;
    return !record_check(v, record, NULL);
}

/* The node that reports a record is charged for it. A declaration counts as the peer's own only
 * if that peer itself reports it, or stored it here. */
static struct dht_origin origin_of(const struct record *record, const struct dht_reporter *from)
{
    struct dht_origin origin = { 0 };
    struct peer_id named;
    record_origin(&origin, record);
    if (!from->peer) return origin; /* our own storage: no second charge */
    origin.caller = hash_bytes(from->peer->bytes, from->peer->length);
    if (origin.class == DHT_DECLARATION && !record_declarer(&named, record) &&
        !peer_id_equal(&named, from->peer))
        origin.class = DHT_REPORTED;
    return origin;
}

/* The highest class of the records found. A regular value has no subkey, so it names no owner. */
static enum dht_class class_found(const struct dht_result *r)
{
    return r->type == DHT_FOUND_DICTIONARY ? dht_dictionary_class(&r->dictionary) : DHT_PLAIN;
}

/* May a record replace one of the other form (value or dictionary)? A higher class may, a lower one
 * may not; within a class the greater expiration wins. */
static int replaces(const struct dht_result *r, enum dht_class class, double expiration)
{
    enum dht_class found = class_found(r);
    if (r->type == DHT_NOT_FOUND) return !isnan(expiration);
    return class == found ? expiration > r->expiration : class > found;
}

/* Cheap checks before the signature: most reports repeat what is known already. */
static int merge_regular(struct dht_result *r, const struct validators *v,
                         const struct dht_reporter *from, const struct record *record)
{
    struct bytes value = { 0 };
    /* Twenty nodes report the same record, and only one of these reports costs a signature
     * check. */
    if (record->n > DHT_VALUE_MAX || !replaces(r, DHT_PLAIN, record->expiration) ||
        !is_valid(v, record, from))
        return PL_EAGAIN;
    if (bytes_add(&value, record->value, record->n)) return PL_ENOMEM; /* keep the present record */
    reset_record(r); /* a newer value replaces the older one, or a whole dictionary */
    r->type = DHT_FOUND_REGULAR;
    r->expiration = record->expiration;
    r->value = value;
    return PL_OK;
}

/* One subkey of a reported dictionary. Order of checks: is it newer at all, is it valid (an RSA
 * check), and only then the change. Declarations are looked at even if they are not newer, because
 * every report of one is a claim. */
static int merge_item(struct dht_result *r, const struct validators *v,
                      const struct dht_reporter *from, const struct record *record,
                      const struct dht_item *item)
{
    const struct dht_item *mine = dht_dictionary_find(&r->dictionary, item->subkey, item->subkey_n);
    struct dht_item taken = *item;
    int is_newer, rc;
    taken.from = origin_of(record, from);
    is_newer = !mine || mine->from.class < taken.from.class ||
               (mine->from.class == taken.from.class && mine->expiration < item->expiration);
    /* A dictionary's item against a regular value that was found first: all or nothing, since a key
     * has either a value or a dictionary. */
    if (r->type == DHT_FOUND_REGULAR) is_newer = replaces(r, taken.from.class, item->expiration);
    if (taken.from.class != DHT_REPORTED && taken.from.class != DHT_DECLARATION && !is_newer)
        return PL_EAGAIN; /* known: no signature needs to be verified */
    if (isnan(item->expiration) || !is_valid(v, record, from)) return PL_EAGAIN;
    if ((rc = add_claim(r, record, taken.from.class))) return rc;
    if (!is_newer) return PL_EAGAIN;
    if (r->type == DHT_FOUND_REGULAR)
        reset_record(r); /* only now is it certain that there is a newer one */
    if ((rc = dht_dictionary_put(&r->dictionary, -INFINITY, &taken))) return rc;
    r->type = DHT_FOUND_DICTIONARY;
    /* The dictionary lives as long as its latest valid item, whatever the node claims. */
    if (item->expiration > r->expiration) r->expiration = item->expiration;
    return PL_OK;
}

/* Item by item. The wire's order is kept, so that all nodes that merge the same reports in the same
 * order have the same dictionary. One bad item costs itself, not the others. */
static int merge_dictionary(struct dht_result *r, const struct validators *v,
                            const struct dht_id *key, const struct dht_reporter *from,
                            const struct dht_dictionary *d)
{
    int changed = 0;
    for (size_t i = 0; i < d->count; i++) {
        const struct dht_item *item = &d->items[i];
        struct record record = { .key = key->bytes,
                                 .key_n = DHT_ID_BYTES,
                                 .subkey = item->subkey,
                                 .subkey_n = item->subkey_n,
                                 .value = item->value,
                                 .n = item->n,
                                 .expiration = item->expiration };
        int rc = item->subkey_n > RECORD_SUBKEY_MAX ? PL_EAGAIN
                                                    : merge_item(r, v, from, &record, item);
        if (rc == PL_ENOMEM) return rc;
        if (!rc) changed = 1;
    }
    return changed ? PL_OK : PL_EAGAIN;
}

/* `expiration` is the answer's own field. For a regular value it is covered by the signature; for a
 * dictionary it is unsigned and not used: each item has its own. */
int dht_result_merge(struct dht_result *r, const struct validators *v, const struct dht_id *key,
                     const struct dht_reporter *from, enum dht_found_type type,
                     const uint8_t *value, size_t n, double expiration)
{
    struct record regular = { .key = key->bytes,
                              .key_n = DHT_ID_BYTES,
                              .subkey = dht_no_subkey,
                              .subkey_n = sizeof dht_no_subkey,
                              .value = value,
                              .n = n,
                              .expiration = expiration };
    struct dht_dictionary d;
    int rc;
    if (type == DHT_NOT_FOUND) return PL_EAGAIN;
    if (type == DHT_FOUND_REGULAR) return merge_regular(r, v, from, &regular);
    if ((rc = dht_dictionary_read(&d, value, n, NULL))) return rc == PL_ENOMEM ? rc : PL_EAGAIN;
    rc = merge_dictionary(r, v, key, from, &d);
    dht_dictionary_clear(&d);
    return rc;
}

/* --- for the caller ------------------------------------------------------------------------ */

/* Readers get values without signatures, as hivemind's do: the value is msgpack again then. A new
 * dictionary, because an item's subkey and value share one block. */
static int strip_items(struct dht_dictionary *d)
{
    struct dht_dictionary plain;
    struct bytes value = { 0 };
    int rc = PL_OK;
    dht_dictionary_init(&plain);
    for (size_t i = 0; i < d->count && !rc; i++) {
        const struct dht_item *item = &d->items[i];
        struct dht_item copy;
        bytes_take(&value, bytes_length(&value)); /* empty again; its memory is reused */
        if ((rc = record_strip(&value, item->value, item->n))) break;
        copy = *item;
        copy.value = (uint8_t *)(uintptr_t)bytes_at(&value); /* only read */
        copy.n = bytes_length(&value);
        rc = dht_dictionary_put(&plain, -INFINITY, &copy); /* -INFINITY: nothing expires here */
    }
    bytes_clear(&value);
    if (rc) {
        dht_dictionary_clear(&plain);
        return rc;
    }
    dht_dictionary_clear(d);
    *d = plain;
    return PL_OK;
}

int dht_result_finish(struct dht_result *r, double now)
{
    resolve_claims(r, now);
    /* A search takes time: a record that was alive when it was reported may have expired since. */
    if (r->expiration < now) {
        reset_record(r);
    } else if (r->type == DHT_FOUND_DICTIONARY) {
        dht_dictionary_prune(&r->dictionary, now);
        return strip_items(&r->dictionary);
    } else if (r->type == DHT_FOUND_REGULAR) {
        struct bytes plain = { 0 };
        int rc = record_strip(&plain, bytes_at(&r->value), bytes_length(&r->value));
        bytes_clear(&r->value);
        r->value = plain;
        return rc;
    }
    return PL_OK;
}

/* A deep copy: the original keeps its signatures for storing elsewhere. */
int dht_result_copy(struct dht_result *to, const struct dht_result *from)
{
    int rc = PL_OK;
    dht_result_init(to);
    to->type = from->type;
    to->expiration = from->expiration;
    if (from->claim_count) {
        if (!(to->claims = malloc(from->claim_count * sizeof *to->claims))) return PL_ENOMEM;
        memcpy(to->claims, from->claims, from->claim_count * sizeof *to->claims);
        to->claim_count = to->claim_capacity = from->claim_count;
    }
    if (from->type == DHT_FOUND_REGULAR)
        rc = bytes_add(&to->value, bytes_at(&from->value), bytes_length(&from->value));
    for (size_t i = 0; i < from->dictionary.count && !rc; i++)
        rc = dht_dictionary_put(&to->dictionary, -INFINITY, &from->dictionary.items[i]);
    if (rc) dht_result_clear(to);
    return rc;
}

/* The record as it travels: signed, and a dictionary packed as a whole (empty subkey). */
int dht_result_record(struct dht_record *to, struct bytes *packed, const struct dht_result *r,
                      const struct dht_id *key)
{
    memset(to, 0, sizeof *to);
    to->key = *key;
    to->expiration = r->expiration;
    to->subkey = dht_no_subkey;
    if (r->type == DHT_FOUND_REGULAR) {
        to->subkey_n = sizeof dht_no_subkey;
        to->value = bytes_at(&r->value);
        to->n = bytes_length(&r->value);
        return PL_OK;
    }
    if (dht_dictionary_write(packed, &r->dictionary)) return packed->failed;
    to->value = bytes_at(packed);
    to->n = bytes_length(packed);
    return PL_OK;
}
