/* dht_store.c - the records of one node. A hash index finds a record by key; a binary heap has the
 * earliest expiration at its root, so that dropping an expired record costs O(log n), and a check
 * without one O(1). Storing follows one rule, hivemind's [spec hivemind-protocol 1.5]: the
 * expiration is the version number. The greater one is the newer record, an equal one changes
 * nothing.
 *
 * To that come classes (dht_share.h): each class of records has its own share of the memory, and
 * within a class the largest holder is evicted first. */
#include "dht_store.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Entries are allocated one by one, so that pointers to them survive the arrays' growth. */
void dht_store_init(struct dht_store *s, size_t bytes_max)
{
    memset(s, 0, sizeof *s);
    s->bytes_max = bytes_max;
    s->size_max = INFINITY;
}

/* Bytes of the entry itself and its regular value; the dictionary counts its own items. */
static size_t entry_cost(const struct dht_entry *e) { return DHT_RECORD_COST + e->n; }

/* A change of an entry is framed by subtract_cost and add_cost, so that the sums always match the
 * contents. They bound memory: a sum that drifts would be a leak that a stranger can drive. */
static void subtract_cost(struct dht_store *s, const struct dht_entry *e)
{
    s->bytes -= entry_cost(e) + e->dictionary.bytes;
    s->class_bytes[e->from.class] -= entry_cost(e);
    for (int i = 0; i < DHT_CLASSES; i++) s->class_bytes[i] -= e->dictionary.class_bytes[i];
}

static void add_cost(struct dht_store *s, const struct dht_entry *e)
{
    s->bytes += entry_cost(e) + e->dictionary.bytes;
    s->class_bytes[e->from.class] += entry_cost(e);
    for (int i = 0; i < DHT_CLASSES; i++) s->class_bytes[i] += e->dictionary.class_bytes[i];
}

static void free_entry(struct dht_store *s, struct dht_entry *e)
{
    if (s->quota && e->value) dht_quota_release(s->quota, &e->from, entry_cost(e));
    free(e->value);
    dht_dictionary_clear(&e->dictionary);
    free(e);
}

void dht_store_clear(struct dht_store *s)
{
    for (size_t i = 0; i < s->count; i++) free_entry(s, s->entries[i]);
    free(s->entries);
    free(s->heap);
    hash_index_clear(&s->by_key);
    dht_store_init(s, s->bytes_max); /* without a quota */
}

/* --- the heap --------------------------------------------------------------------------------- */

/* Ties are broken by key: all nodes that have to drop records drop the same ones. */
static int expires_earlier(const struct dht_entry *a, const struct dht_entry *b)
{
    if (a->expiration != b->expiration) return a->expiration < b->expiration;
    return dht_id_compare(&a->key, &b->key) < 0;
}

/* An entry knows its place in the heap, so that it can be found there when it changes. */
static void set_place(struct dht_store *s, size_t at, struct dht_entry *e)
{
    s->heap[at] = e;
    e->place = at;
}

/* Restores the heap after e's expiration has changed: up while it is earlier than its parent
 * (at - 1) / 2, then down while a child 2 at + 1 or 2 at + 2 is earlier. */
static void restore_heap(struct dht_store *s, struct dht_entry *e)
{
    size_t at = e->place;
    while (at && expires_earlier(e, s->heap[(at - 1) / 2])) {
        set_place(s, at, s->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < s->count && expires_earlier(s->heap[child + 1], s->heap[child])) child++;
        if (child >= s->count || !expires_earlier(s->heap[child], e)) break;
        set_place(s, at, s->heap[child]);
        at = child;
    }
    set_place(s, at, e);
}

/* --- by key ----------------------------------------------------------------------------------- */

/* A key is SHA-1 of anything, so strangers can search for keys that collide in some bits: the index
 * needs a hash that they cannot compute. */
static uint64_t hash_of(const struct dht_id *key) { return hash_bytes(key->bytes, DHT_ID_BYTES); }

/* Different keys may have equal hashes, so the key itself is compared. */
static struct dht_entry *find_entry(const struct dht_store *s, const struct dht_id *key)
{
    uint64_t hash = hash_of(key);
    size_t probe = 0, i;
    while ((i = hash_index_next(&s->by_key, hash, &probe)) != HASH_INDEX_END)
        if (dht_id_equal(&s->entries[i]->key, key)) return s->entries[i];
    return NULL;
}

/* Both arrays stay dense: the last element takes the place of the one that leaves. */
static void remove_entry(struct dht_store *s, struct dht_entry *e)
{
    struct dht_entry *late = s->heap[--s->count], *last = s->entries[s->count];
    /* The index, the array and the heap in turn; e's own memory last. */
    hash_index_remove(&s->by_key, hash_of(&e->key), e->at);
    if (last != e) {
        hash_index_move(&s->by_key, hash_of(&last->key), last->at, e->at);
        s->entries[last->at = e->at] = last;
    }
    if (late != e) {
        set_place(s, e->place, late);
        restore_heap(s, late);
    }
    subtract_cost(s, e);
    free_entry(s, e);
}

void dht_store_remove(struct dht_store *s, const struct dht_id *key)
{
    struct dht_entry *e = find_entry(s, key);
    if (e) remove_entry(s, e);
}

/* The root expires first: when it is still alive, everything is. A key that expires takes its whole
 * dictionary along, since the key lives as long as its latest item. */
void dht_store_prune(struct dht_store *s, double now)
{
    while (s->count && (s->heap[0]->expiration < now || (double)s->count > s->size_max))
        remove_entry(s, s->heap[0]);
}

/* All memory is reserved before anything changes, so a failure leaves the store as it was. */
static int reserve_entry(struct dht_store *s)
{
    /* entries is larger than heap if the second fails: harmless, since s->capacity holds for
     * both. */
    size_t capacity = s->capacity;
    if (pl_grow(&s->entries, s->count, &capacity, 16) ||
        pl_grow(&s->heap, s->count, &s->capacity, 16))
        return PL_ENOMEM;
    return hash_index_reserve(&s->by_key);
}

/* A new entry without a value, counted. It begins at the heap's end and moves up. */
static struct dht_entry *insert_entry(struct dht_store *s, const struct dht_id *key,
                                      const struct dht_item *item)
{
    struct dht_entry *e;
    if (reserve_entry(s) || !(e = calloc(1, sizeof *e))) return NULL;
    dht_dictionary_init(&e->dictionary);
    e->dictionary.quota = s->quota;
    e->key = *key;
    e->expiration = item->expiration;
    e->from = item->from;
    e->at = e->place = s->count;
    hash_index_add(&s->by_key, hash_of(key), e->at);
    s->entries[s->count] = s->heap[s->count] = e;
    s->count++;
    restore_heap(s, e);
    add_cost(s, e);
    return e;
}

/* --- eviction --------------------------------------------------------------------------------- */

/* A run depends on signed records (progress, metrics), so they have half of the memory; each other
 * class has a quarter, and no class uses another's: a flood ends at its own class's limit. */
static size_t class_max(const struct dht_store *s, enum dht_class class)
{
    return class == DHT_SIGNED ? s->bytes_max / 2 : s->bytes_max / 4;
}

/* One record: a regular value, or an item of a dictionary. */
struct stored {
    struct dht_entry *entry;
    size_t item; /* SIZE_MAX: the value */
};

/* How long the lists below can get. */
static size_t count_records(const struct dht_store *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += s->entries[i]->value ? 1 : s->entries[i]->dictionary.count;
    return n;
}

/* All records of a class, with their holders. A dictionary's own cost is divided among its items,
 * so that at least the marked bytes become free. */
static size_t list_candidates(struct dht_candidate *candidates, struct stored *records,
                              const struct dht_store *s, enum dht_class class)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct dht_entry *e = s->entries[i];
        const struct dht_dictionary *d = &e->dictionary;
        /* Marks must not refer to positions of the sorted candidates: each carries its record's
         * address. */
        if (e->value && e->from.class == class) {
            records[n] = (struct stored){ e, SIZE_MAX };
            candidates[n] = (struct dht_candidate){ &e->from, e->expiration, entry_cost(e),
                                                    &records[n], 0 };
            n++;
        }
        for (size_t k = 0; k < d->count; k++) {
            const struct dht_item *item = &d->items[k];
            if (item->from.class != class) continue;
            records[n] = (struct stored){ e, k };
            candidates[n] = (struct dht_candidate){ &item->from, item->expiration,
                                                    DHT_RECORD_COST + item->subkey_n + item->n +
                                                        DHT_RECORD_COST / d->count,
                                                    &records[n], 0 };
            n++;
        }
    }
    return n;
}

/* Records [first, end) are of one entry: those that are marked go, and the entry when none stay. */
static int remove_marked(struct dht_store *s, const struct stored *first, const struct stored *end,
                         const uint8_t *marked)
{
    struct dht_entry *e = first->entry;
    uint8_t *mark;
    if (e->value) {
        if (marked[0]) remove_entry(s, e);
        return PL_OK;
    }
    /* The marked items of a dictionary are removed together, in O(n); the entry's sums are computed
     * anew. */
    if (!(mark = calloc(e->dictionary.count + 1, 1))) return PL_ENOMEM;
    for (const struct stored *r = first; r < end; r++) mark[r->item] = marked[r - first];
    subtract_cost(s, e);
    dht_dictionary_drop(&e->dictionary, -INFINITY, mark);
    add_cost(s, e);
    free(mark);
    if (!e->dictionary.count) remove_entry(s, e);
    return PL_OK;
}

/* This class's bytes are used up: list its records with their owners, mark what max-min fairness
 * evicts (dht_share.h), remove it. A sixteenth more than needed is freed, so that the cost of
 * sorting is spread over many new records: O(log n) for each byte stored, however fast records
 * come. */
static int free_space(struct dht_store *s, enum dht_class class)
{
    size_t all = count_records(s), n, most = class_max(s, class);
    struct stored *records = malloc((all + 1) * sizeof *records);
    struct dht_candidate *candidates = malloc((all + 1) * sizeof *candidates);
    uint8_t *marked = calloc(all + 1, 1);
    int rc = records && candidates && marked ? PL_OK : PL_ENOMEM;
    if (rc) goto done;
    n = list_candidates(candidates, records, s, class);
    /* Marks refer to records, which are still grouped by entry: candidates were sorted, `records`
     * was not. */
    rc = dht_share_shed(candidates, n, s->class_bytes[class] - most + most / 16);
    for (size_t i = 0; i < n && !rc; i++)
        marked[(struct stored *)candidates[i].record - records] = (uint8_t)candidates[i].evicted;
    /* One entry after the other: [i, k) are the records of one entry. */
    for (size_t i = 0, k; i < n && !rc; i = k) {
        int any = 0;
        for (k = i; k < n && records[k].entry == records[i].entry; k++) any |= marked[k];
        if (any) rc = remove_marked(s, records + i, records + k, marked + i);
    }
done:
    free(records);
    free(candidates);
    free(marked);
    return rc;
}

/* --- storing ---------------------------------------------------------------------------------- */

/* The latest kind of record that is alive in the entry. */
static enum dht_class class_of(struct dht_store *s, double now, struct dht_entry *e)
{
    const struct dht_dictionary *d = &e->dictionary;
    if (!e->value &&
        d->bytes != d->class_bytes[DHT_PLAIN]) { /* otherwise expired records keep their place */
        subtract_cost(s, e);
        dht_dictionary_prune(&e->dictionary, now);
        add_cost(s, e);
    }
    return dht_entry_class(e);
}

/* May a record replace one of the other form, value or dictionary? In hivemind a regular value with
 * a greater expiration destroys a dictionary [spec hivemind-protocol 1.5], so anybody could delete
 * all progress records with one plain value. Here a higher kind may, a lower one may not; of equals
 * the greater expiration is the newer. */
static int replaces(struct dht_store *s, double now, struct dht_entry *e,
                    const struct dht_item *item)
{
    enum dht_class there = class_of(s, now, e);
    return there == item->from.class ? item->expiration > e->expiration : there < item->from.class;
}

/* A regular value: needs a greater expiration than the present value or dictionary. Refusals come
 * first and change nothing: hivemind's refused store shortens the life of the newer record [spec
 * hivemind-protocol 1.5]. */
static int store_value(struct dht_store *s, double now, const struct dht_id *key,
                       const struct dht_item *item)
{
    struct dht_entry *e = find_entry(s, key);
    int is_new = !e;
    uint8_t *copy;
    if (item->expiration < now || item->n > DHT_VALUE_MAX) return PL_EAGAIN;
    if (e && !replaces(s, now, e, item)) return PL_EAGAIN;
    /* The copy before the entry: out of memory, the old value stays. */
    if (s->quota && dht_quota_reserve(s->quota)) return PL_ENOMEM;
    if (!(copy = malloc(item->n + 1))) return PL_ENOMEM;
    if (item->n) memcpy(copy, item->value, item->n);
    if (is_new && !(e = insert_entry(s, key, item))) {
        free(copy);
        return PL_ENOMEM;
    }
    subtract_cost(s, e);
    dht_dictionary_clear(&e->dictionary);
    if (s->quota && e->value) dht_quota_release(s->quota, &e->from, entry_cost(e));
    free(e->value);
    e->value = copy;
    e->n = item->n;
    e->from = item->from;
    e->expiration = item->expiration;
    add_cost(s, e);
    if (s->quota) dht_quota_charge(s->quota, &e->from, entry_cost(e));
    restore_heap(s, e);
    if (is_new) dht_store_prune(s, now);
    return PL_OK;
}

/* One item of a dictionary: several peers share a key and each writes its own subkey. A regular
 * value that is newer blocks the dictionary; an older one gives way to it, and becomes a dictionary
 * of one item [spec hivemind-protocol 1.5]. */
static int store_subkey(struct dht_store *s, double now, const struct dht_id *key,
                        const struct dht_item *item)
{
    struct dht_entry *e;
    int is_new, rc;
    /* As in hivemind, expired items stay in the dictionary until a new subkey comes or it is read,
     * so that a renewed subkey keeps its place. */
    dht_store_prune(s, now);
    e = find_entry(s, key);
    is_new = !e || (e->value && replaces(s, now, e, item));
    if (e && e->value && !is_new) return PL_EAGAIN;
    if (is_new) { /* with or instead of a regular value: a dictionary of one */
        if (item->expiration < now || !dht_dictionary_fits(item)) return PL_EAGAIN;
        if (e) remove_entry(s, e);
        if (!(e = insert_entry(s, key, item))) return PL_ENOMEM;
    }
    subtract_cost(s, e);
    /* The key lives as long as its latest item. */
    if (item->expiration > e->dictionary.latest && item->expiration >= now) {
        e->expiration = item->expiration;
        restore_heap(s, e);
    }
    rc = dht_dictionary_put(&e->dictionary, now, item);
    add_cost(s, e);
    /* An empty dictionary must not stay behind a refused first item. */
    if (rc && is_new) remove_entry(s, e);
    else if (is_new) dht_store_prune(s, now);
    return rc;
}

/* Eviction may have hit the new record itself: then the store is refused, and the caller's
 * result is false. */
int dht_store_holds(const struct dht_store *s, const struct dht_id *key,
                    const struct dht_item *item)
{
    const struct dht_entry *e = find_entry(s, key);
    return e &&
           (!item->subkey || dht_dictionary_find(&e->dictionary, item->subkey, item->subkey_n));
}

int dht_store_is_known(const struct dht_store *s, const struct dht_id *key,
                       const struct dht_item *item)
{
    const struct dht_entry *e = find_entry(s, key);
    const struct dht_item *present;
    if (!e || e->value || !item->subkey) return 0;
    present = dht_dictionary_find(&e->dictionary, item->subkey, item->subkey_n);
    return present && present->from.class >= item->from.class &&
           present->expiration >= item->expiration;
}

int dht_store_put(struct dht_store *s, double now, const struct dht_id *key,
                  const struct dht_item *item)
{
    enum dht_class class = item->from.class;
    int rc;
    /* NaN compares with nothing: such a record would never expire and never be evicted. */
    if (isnan(item->expiration)) return PL_EAGAIN;
    /* A holder that has used up its share is refused, whatever others have stored. */
    if (s->quota &&
        !dht_quota_allows(s->quota, &item->from, DHT_RECORD_COST + item->subkey_n + item->n))
        return PL_EAGAIN;
    /* Stored first, then compared with all others: the new record itself may be evicted. */
    rc = item->subkey ? store_subkey(s, now, key, item) : store_value(s, now, key, item);
    if (rc || s->class_bytes[class] <= class_max(s, class)) return rc;
    if ((rc = free_space(s, class))) return rc;
    return dht_store_holds(s, key, item) ? PL_OK : PL_EAGAIN;
}

/* A read drops expired items, as in hivemind, so all returned items are alive. That changes the
 * cost of the entry, so the sums are corrected. */
struct dht_entry *dht_store_get(struct dht_store *s, double now, const struct dht_id *key)
{
    struct dht_entry *e;
    dht_store_prune(s, now);
    if (!(e = find_entry(s, key))) return NULL;
    subtract_cost(s, e);
    dht_dictionary_prune(&e->dictionary, now);
    add_cost(s, e);
    return e;
}

enum dht_class dht_entry_class(const struct dht_entry *e)
{
    return e->value ? e->from.class : dht_dictionary_class(&e->dictionary);
}

size_t dht_entry_plain_bytes(const struct dht_entry *e)
{
    if (!e->value) return e->dictionary.class_bytes[DHT_PLAIN];
    return e->from.class == DHT_PLAIN ? e->n : 0;
}

/* A value as it was stored, signature included; a dictionary is packed anew each time, since its
 * items come and go. */
int dht_entry_write(struct bytes *out, const struct dht_entry *e)
{
    return e->value ? bytes_add(out, e->value, e->n) : dht_dictionary_write(out, &e->dictionary);
}
