/* dht_store.c - see dht_store.h. Keys come from strangers, so they are searched in a sorted array:
 * no choice of keys makes that slow, as it would a hash table. */
#include "dht_store.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void dht_store_init(struct dht_store *s, size_t bytes_max)
{
    memset(s, 0, sizeof *s);
    s->bytes_max = bytes_max;
    s->size_max = INFINITY;
}

static size_t cost(const struct dht_entry *e)
{
    return DHT_RECORD_COST + e->n + e->dictionary.bytes;
}

static void free_entry(struct dht_entry *e)
{
    free(e->value);
    dht_dictionary_clear(&e->dictionary);
    free(e);
}

void dht_store_clear(struct dht_store *s)
{
    for (size_t i = 0; i < s->count; i++) free_entry(s->by_key[i]);
    free(s->by_key);
    free(s->heap);
    dht_store_init(s, s->bytes_max);
}

/* --- the heap --------------------------------------------------------------------------------- */

static int earlier(const struct dht_entry *a, const struct dht_entry *b)
{
    if (a->expiration != b->expiration) return a->expiration < b->expiration;
    return dht_id_compare(&a->key, &b->key) < 0;
}

static void set(struct dht_store *s, size_t at, struct dht_entry *e)
{
    s->heap[at] = e;
    e->place = at;
}

/* e's expiration has changed, or it is new at its place. */
static void settle(struct dht_store *s, struct dht_entry *e)
{
    size_t at = e->place;
    while (at && earlier(e, s->heap[(at - 1) / 2])) {
        set(s, at, s->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < s->count && earlier(s->heap[child + 1], s->heap[child])) child++;
        if (child >= s->count || !earlier(s->heap[child], e)) break;
        set(s, at, s->heap[child]);
        at = child;
    }
    set(s, at, e);
}

/* --- the sorted array ------------------------------------------------------------------------- */

/* Where the key is, or where it would be put. */
static size_t place_of(const struct dht_store *s, const struct dht_id *key)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (dht_id_compare(&s->by_key[middle]->key, key) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static struct dht_entry *find(const struct dht_store *s, const struct dht_id *key)
{
    size_t i = place_of(s, key);
    return i < s->count && dht_id_equal(&s->by_key[i]->key, key) ? s->by_key[i] : NULL;
}

static void drop(struct dht_store *s, struct dht_entry *e)
{
    size_t i = place_of(s, &e->key);
    struct dht_entry *last = s->heap[--s->count];
    memmove(s->by_key + i, s->by_key + i + 1, (s->count - i) * sizeof *s->by_key);
    if (last != e) {
        set(s, e->place, last);
        settle(s, last);
    }
    s->bytes -= cost(e);
    free_entry(e);
}

void dht_store_remove(struct dht_store *s, const struct dht_id *key)
{
    struct dht_entry *e = find(s, key);
    if (e) drop(s, e);
}

void dht_store_prune(struct dht_store *s, double now)
{
    while (s->count && (s->heap[0]->expiration < now || (double)s->count > s->size_max))
        drop(s, s->heap[0]);
}

/* Full: what would stay longest goes first, see dht_dictionary.c. */
static void make_room(struct dht_store *s)
{
    while (s->bytes > s->bytes_max && s->count) {
        struct dht_entry *last = s->by_key[0];
        for (size_t i = 1; i < s->count; i++)
            if (s->by_key[i]->expiration > last->expiration) last = s->by_key[i];
        drop(s, last);
    }
}

/* A new entry at its place; bytes are not counted yet. */
static struct dht_entry *insert(struct dht_store *s, const struct dht_id *key, double expiration)
{
    size_t i = place_of(s, key);
    struct dht_entry *e;
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 16;
        struct dht_entry **keys = realloc(s->by_key, room * sizeof *keys), **heap;
        if (!keys) return NULL;
        s->by_key = keys;
        if (!(heap = realloc(s->heap, room * sizeof *heap))) return NULL;
        s->heap = heap;
        s->room = room;
    }
    if (!(e = calloc(1, sizeof *e))) return NULL;
    dht_dictionary_init(&e->dictionary);
    e->key = *key;
    e->expiration = expiration;
    memmove(s->by_key + i + 1, s->by_key + i, (s->count - i) * sizeof *s->by_key);
    s->by_key[i] = e;
    s->heap[s->count] = e;
    e->place = s->count++;
    settle(s, e);
    return e;
}

int dht_store_value(struct dht_store *s, double now, const struct dht_id *key, const void *value,
                    size_t n, double expiration)
{
    struct dht_entry *e = find(s, key);
    int is_new = !e;
    uint8_t *copy;
    /* isnan: such a record would never expire and never give way */
    if (isnan(expiration) || expiration < now || n > DHT_VALUE_MAX) return PL_EAGAIN;
    if (e && e->expiration >= expiration) return PL_EAGAIN;
    if (!(copy = malloc(n + 1))) return PL_ENOMEM;
    if (n) memcpy(copy, value, n);
    if (is_new && !(e = insert(s, key, expiration))) {
        free(copy);
        return PL_ENOMEM;
    }
    if (!is_new) s->bytes -= cost(e);
    dht_dictionary_clear(&e->dictionary);
    free(e->value);
    e->value = copy;
    e->n = n;
    e->expiration = expiration;
    s->bytes += cost(e);
    settle(s, e);
    if (is_new) dht_store_prune(s, now);
    if (s->bytes > s->bytes_max) {
        make_room(s);
        return find(s, key) ? PL_OK : PL_EAGAIN;
    }
    return PL_OK;
}

int dht_store_subkey(struct dht_store *s, double now, const struct dht_id *key, const void *subkey,
                     size_t subkey_n, const void *value, size_t n, double expiration)
{
    struct dht_entry *e;
    int is_new, rc;
    if (isnan(expiration)) return PL_EAGAIN;
    /* As the original: what has expired inside of the dictionary stays until a new subkey comes or
     * somebody reads, so that a renewed subkey keeps its place. */
    dht_store_prune(s, now);
    e = find(s, key);
    is_new = !e || (e->value && expiration > e->expiration);
    if (e && e->value && !is_new) return PL_EAGAIN;
    if (is_new) { /* with or instead of a regular value: a dictionary of one */
        if (expiration < now || subkey_n + n > DHT_DICTIONARY_MAX - DHT_RECORD_COST)
            return PL_EAGAIN;
        if (e) drop(s, e);
        if (!(e = insert(s, key, expiration))) return PL_ENOMEM;
        s->bytes += cost(e);
    }
    s->bytes -= cost(e);
    if (expiration > e->dictionary.latest && expiration >= now) {
        e->expiration = expiration;
        settle(s, e);
    }
    rc = dht_dictionary_store(&e->dictionary, now, subkey, subkey_n, value, n, expiration);
    s->bytes += cost(e);
    if (rc && is_new) {
        drop(s, e);
        return rc;
    }
    if (is_new) dht_store_prune(s, now);
    if (s->bytes > s->bytes_max) {
        make_room(s);
        e = find(s, key);
        if (!rc && (!e || !dht_dictionary_find(&e->dictionary, subkey, subkey_n))) rc = PL_EAGAIN;
    }
    return rc;
}

struct dht_entry *dht_store_get(struct dht_store *s, double now, const struct dht_id *key)
{
    struct dht_entry *e;
    dht_store_prune(s, now);
    if (!(e = find(s, key))) return NULL;
    s->bytes -= cost(e);
    dht_dictionary_prune(&e->dictionary, now);
    s->bytes += cost(e);
    return e;
}

int dht_entry_write(struct bytes *out, const struct dht_entry *e)
{
    return e->value ? bytes_add(out, e->value, e->n) : dht_dictionary_write(out, &e->dictionary);
}
