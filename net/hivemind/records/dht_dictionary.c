/* dht_dictionary.c - many peers' values under one key. In a run all progress records are in one
 * dictionary: the key is RUN_progress, each subkey names its owner. On the wire it is a msgpack
 * extension of code 0x50 [spec hivemind-protocol 1.2]:
 *
 *   [maxsize, latest expiration, [[subkey, value, expiration], ...]]
 *
 * Items keep the order in which they came. Two hash indices make a store O(1): by subkey, and by
 * owner, whose number of items is limited. hivemind searches linearly, which a stranger could
 * use: 60,000 items cost it seconds each time. */
#include "dht_dictionary.h"
#include "net/hivemind/messages/msgpack.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dht_dictionary_init(struct dht_dictionary *d)
{
    memset(d, 0, sizeof *d);
    d->latest = -INFINITY;
    d->earliest = d->size_max = INFINITY; /* empty: nothing expires; no limit of items */
}

/* The cost of an item: its content and the memory around it. Without the latter, a million empty
 * items would be free. */
static size_t cost(const struct dht_item *item)
{
    return DHT_RECORD_COST + item->subkey_n + item->n;
}

static void free_item(struct dht_dictionary *d, struct dht_item *item)
{
    if (d->quota) dht_quota_release(d->quota, &item->from, cost(item));
    free(item->subkey);
}

void dht_dictionary_clear(struct dht_dictionary *d)
{
    for (size_t i = 0; i < d->count; i++) free_item(d, &d->items[i]);
    free(d->items);
    hash_index_clear(&d->by_subkey);
    hash_index_clear(&d->by_owner);
    dht_dictionary_init(d);
}

/* --- the indices ------------------------------------------------------------------------------ */

/* The place of a subkey among the items, or HASH_INDEX_END. Equal hashes are compared byte by
 * byte. */
static size_t find_position(const struct dht_dictionary *d, const void *subkey, size_t n,
                            uint64_t hash)
{
    size_t probe = 0, i;
    while ((i = hash_index_next(&d->by_subkey, hash, &probe)) != HASH_INDEX_END)
        if (d->items[i].subkey_n == n && (!n || !memcmp(d->items[i].subkey, subkey, n))) break;
    return i;
}

const struct dht_item *dht_dictionary_find(const struct dht_dictionary *d, const void *subkey,
                                           size_t n)
{
    size_t i = find_position(d, subkey, n, hash_bytes(subkey, n));
    return i == HASH_INDEX_END ? NULL : &d->items[i];
}

/* One key pair can sign any number of subkeys, each a record of its own; hivemind's peers write one
 * each. Without a limit one peer would fill the dictionary with valid signatures. Counting stops at
 * the limit, so the count is O(1), too. */
static int has_enough_items(const struct dht_dictionary *d, uint64_t owner)
{
    size_t probe = 0, n = 0;
    while (owner && n < DHT_OWNER_ITEMS_MAX &&
           hash_index_next(&d->by_owner, owner, &probe) != HASH_INDEX_END)
        n++;
    return n == DHT_OWNER_ITEMS_MAX;
}

/* Enters an item into both indices and all sums. d->earliest stays a lower bound of all
 * expirations. */
static void count_item(struct dht_dictionary *d, size_t i)
{
    const struct dht_item *item = &d->items[i];
    hash_index_add(&d->by_subkey, item->hash, i);
    /* Only signed items have an owner; others are limited by their class's bytes alone. */
    if (item->from.owner) hash_index_add(&d->by_owner, item->from.owner, i);
    d->bytes += cost(item);
    d->class_bytes[item->from.class] += cost(item);
    if (item->expiration < d->earliest) d->earliest = item->expiration;
}

/* The remaining items close up, in their order, and are counted anew: O(n) for any number of
 * removals. Removing one at a time would cost O(n) each, and a stranger could store items that
 * expire one by one. */
void dht_dictionary_drop(struct dht_dictionary *d, double now, const uint8_t *marked)
{
    size_t kept = 0;
    hash_index_empty(&d->by_subkey);
    hash_index_empty(&d->by_owner);
    memset(d->class_bytes, 0, sizeof d->class_bytes);
    d->bytes = 0;
    d->earliest = INFINITY;
    for (size_t i = 0; i < d->count; i++) {
        if (d->items[i].expiration < now || (marked && marked[i])) {
            free_item(d, &d->items[i]);
            continue;
        }
        d->items[kept] = d->items[i];
        count_item(d, kept++);
    }
    d->count = kept;
}

/* --- removal ---------------------------------------------------------------------------------- */

/* Earliest first; ties by subkey, so that all nodes drop the same. */
static int by_expiration(const void *a_, const void *b_)
{
    const struct dht_item *a = *(const struct dht_item *const *)a_;
    const struct dht_item *b = *(const struct dht_item *const *)b_;
    size_t n = a->subkey_n < b->subkey_n ? a->subkey_n : b->subkey_n;
    int order;
    if (a->expiration != b->expiration) return a->expiration < b->expiration ? -1 : 1;
    order = memcmp(a->subkey, b->subkey, n);
    return order ? order : (a->subkey_n > b->subkey_n) - (a->subkey_n < b->subkey_n);
}

/* A dictionary may carry a limit of its own. More items than size_max (a number that the wire can
 * carry; hivemind's own stores use it): the earliest of them are dropped. */
static void drop_surplus(struct dht_dictionary *d)
{
    size_t surplus = d->count - (size_t)d->size_max;
    const struct dht_item **sorted = malloc(d->count * sizeof *sorted);
    uint8_t *mark = calloc(d->count, 1);
    for (size_t i = 0; sorted && i < d->count; i++) sorted[i] = &d->items[i];
    if (sorted) qsort(sorted, d->count, sizeof *sorted, by_expiration);
    for (size_t i = 0; sorted && mark && i < surplus; i++) mark[sorted[i] - d->items] = 1;
    if (sorted && mark) dht_dictionary_drop(d, -INFINITY, mark);
    free(sorted);
    free(mark);
}

/* Called before each read and after each new subkey. `earliest` is a lower bound of all
 * expirations, so nearly all calls end at one comparison. */
void dht_dictionary_prune(struct dht_dictionary *d, double now)
{
    if (d->earliest < now) dht_dictionary_drop(d, now, NULL);
    if ((double)d->count > d->size_max) drop_surplus(d);
}

/* Each class has bytes of its own: a flood of plain values cannot push out declarations, and
 * neither can push out signed records. */
static size_t class_max(enum dht_class class)
{
    static const size_t most[DHT_CLASSES] = { DHT_DICTIONARY_PLAIN_MAX,
                                              DHT_DICTIONARY_DECLARATION_MAX,
                                              DHT_DICTIONARY_DECLARATION_MAX,
                                              DHT_DICTIONARY_SIGNED_MAX };
    return most[class];
}

int dht_dictionary_fits(const struct dht_item *item)
{
    return cost(item) <= class_max(item->from.class);
}

/* The class's bytes in this dictionary are used up, so max-min fairness evicts (dht_share.h). A
 * sixteenth more than needed is freed, so that sorting is paid for by as many new bytes. */
static int free_space(struct dht_dictionary *d, enum dht_class class)
{
    /* One candidate for each item of the class: its holder, its expiration, its bytes. */
    struct dht_candidate *candidates = malloc((d->count + 1) * sizeof *candidates);
    uint8_t *mark = calloc(d->count + 1, 1); /* 1: goes */
    size_t n = 0, most = class_max(class);
    int rc = candidates && mark ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; !rc && i < d->count; i++)
        if (d->items[i].from.class == class)
            candidates[n++] = (struct dht_candidate){ &d->items[i].from, d->items[i].expiration,
                                                      cost(&d->items[i]), &d->items[i], 0 };
    /* qsort moves the candidates, so each knows its item by address. */
    if (!rc) rc = dht_share_shed(candidates, n, d->class_bytes[class] - most + most / 16);
    for (size_t i = 0; !rc && i < n; i++)
        mark[(struct dht_item *)candidates[i].record - d->items] = (uint8_t)candidates[i].evicted;
    if (!rc) dht_dictionary_drop(d, -INFINITY, mark);
    free(candidates);
    free(mark);
    return rc;
}

/* --- storing ---------------------------------------------------------------------------------- */

/* Subkey and value share one block of memory: one allocation for each item, one to free. */
static int copy_item(struct dht_item *to, const struct dht_item *item, uint64_t hash)
{
    *to = *item;
    to->hash = hash;
    if (!(to->subkey = malloc(item->subkey_n + item->n + 1))) return PL_ENOMEM;
    to->value = to->subkey + to->subkey_n;
    if (item->subkey_n) memcpy(to->subkey, item->subkey, item->subkey_n);
    if (item->n) memcpy(to->value, item->value, item->n);
    return PL_OK;
}

/* All memory is reserved first: after it, storing cannot fail half-way. Capacity doubles, so n
 * items cost O(n) copies in all. */
static int reserve_item(struct dht_dictionary *d)
{
    if (pl_grow(&d->items, d->count, &d->capacity, 4)) return PL_ENOMEM;
    if (hash_index_reserve(&d->by_subkey)) return PL_ENOMEM;
    if (d->quota && dht_quota_reserve(d->quota)) return PL_ENOMEM;
    return hash_index_reserve(&d->by_owner);
}

/* A newer version of a known subkey keeps its place in the order. */
static void replace_item(struct dht_dictionary *d, size_t at, const struct dht_item *item)
{
    struct dht_item *old = &d->items[at];
    hash_index_remove(&d->by_subkey, old->hash, at);
    if (old->from.owner) hash_index_remove(&d->by_owner, old->from.owner, at);
    d->bytes -= cost(old);
    d->class_bytes[old->from.class] -= cost(old);
    free_item(d, old);
    *old = *item;
    count_item(d, at);
}

/* The storage rule without the clock [spec hivemind-protocol 1.5]: the expiration is the version
 * number, the greater one wins, and an equal one changes nothing, so that a record that travels in
 * circles settles. Ours besides: a record of a higher class replaces one of a lower class whatever
 * their expirations, or any stranger could overwrite a signed one. 1: a new subkey. */
static int put(struct dht_dictionary *d, const struct dht_item *item)
{
    /* SipHash: a stranger cannot choose subkeys that fall into one place (hash_index.h). */
    uint64_t hash = hash_bytes(item->subkey, item->subkey_n);
    size_t at = find_position(d, item->subkey, item->subkey_n, hash);
    struct dht_item copy;
    if (at != HASH_INDEX_END) {
        /* A known subkey: the class decides, then the expiration. */
        const struct dht_item *present = &d->items[at];
        if (present->from.class > item->from.class) return PL_EAGAIN;
        if (present->from.class == item->from.class && present->expiration >= item->expiration)
            return PL_EAGAIN;
    } else if (has_enough_items(d, item->from.owner)) {
        return PL_EAGAIN;
    }
    /* Records read from another node have passed no limit yet; sums of lengths must not
     * overflow. */
    if (item->subkey_n > DHT_DICTIONARY_MAX || item->n > DHT_DICTIONARY_MAX) return PL_EAGAIN;
    if (reserve_item(d) || copy_item(&copy, item, hash)) return PL_ENOMEM;
    if (d->quota) dht_quota_charge(d->quota, &copy.from, cost(&copy));
    if (at != HASH_INDEX_END) {
        replace_item(d, at, &copy);
        return PL_OK;
    }
    d->items[d->count] = copy;
    count_item(d, d->count++);
    return 1;
}

int dht_dictionary_put(struct dht_dictionary *d, double now, const struct dht_item *item)
{
    int rc;
    /* NaN is neither older nor newer than anything, so the item would never expire. */
    if (isnan(item->expiration)) return PL_EAGAIN;
    /* hivemind raises it even for an item that is refused afterwards. */
    if (item->expiration > d->latest) d->latest = item->expiration;
    if (item->expiration < now || !dht_dictionary_fits(item)) return PL_EAGAIN;
    rc = put(d, item);
    /* hivemind prunes only then: a renewed subkey keeps its place among those that have expired. */
    if (rc == 1) dht_dictionary_prune(d, now);
    /* Too many bytes of this class now: evict, and see whether the new item stayed. */
    if (rc >= 0 && d->class_bytes[item->from.class] > class_max(item->from.class)) {
        if ((rc = free_space(d, item->from.class))) return rc;
        return dht_dictionary_find(d, item->subkey, item->subkey_n) ? PL_OK : PL_EAGAIN;
    }
    return rc < 0 ? rc : PL_OK;
}

int dht_dictionary_store(struct dht_dictionary *d, double now, const void *subkey, size_t subkey_n,
                         const void *value, size_t n, double expiration)
{
    struct dht_item item = {
        (uint8_t *)(uintptr_t)subkey, (uint8_t *)(uintptr_t)value, subkey_n, n, expiration, { 0 }, 0
    }; /* only read */
    return dht_dictionary_put(d, now, &item);
}

/* maxsize is an integer, or a float64 infinity (Python's float("inf")) when there is no limit. */
enum dht_class dht_dictionary_class(const struct dht_dictionary *d)
{
    enum dht_class class = DHT_PLAIN;
    for (int i = DHT_PLAIN; i < DHT_CLASSES; i++)
        if (d->class_bytes[i]) class = (enum dht_class)i;
    return class;
}

int dht_dictionary_write(struct bytes *out, const struct dht_dictionary *d)
{
    return dht_dictionary_write_from(out, d, DHT_PLAIN);
}

int dht_dictionary_write_from(struct bytes *out, const struct dht_dictionary *d,
                              enum dht_class least)
{
    struct bytes inside = { 0 };
    size_t count = 0;
    for (size_t i = 0; i < d->count; i++) count += d->items[i].from.class >= least;
    mp_list(&inside, 3);
    if (d->size_max < 0x1p63) mp_int(&inside, (int64_t)d->size_max);
    else mp_float(&inside, d->size_max);
    mp_float(&inside, d->latest);
    mp_list(&inside, count);
    for (size_t i = 0; i < d->count; i++) {
        const struct dht_item *item = &d->items[i];
        if (item->from.class < least) continue;
        mp_list(&inside, 3);
        /* The subkey is msgpack already; the value is bytes that hold msgpack and a signature. */
        bytes_add(&inside, item->subkey, item->subkey_n);
        mp_bin(&inside, item->value, item->n);
        mp_float(&inside, item->expiration);
    }
    if (inside.failed) out->failed = inside.failed;
    else mp_ext(out, MP_DICTIONARY_CODE, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
    return out->failed;
}

/* Python writes 3 and 3.0 differently, and both are numbers to its reader. */
static int is_number(const struct mp_value *v)
{
    return v->kind == MP_INT || (v->kind == MP_FLOAT && !isnan(v->real));
}

static double number(const struct mp_value *v)
{
    if (v->kind == MP_FLOAT) return v->real;
    return v->negative ? (double)(int64_t)v->number : (double)v->number;
}

/* A subkey must be hashable in Python: tuples of hashable values are, lists and maps are not. A
 * dictionary with another one would raise an exception in every Python peer that reads it. The
 * depth of recursion is bounded by the reader's (MP_DEPTH_MAX). */
static int can_be_subkey(const struct mp_value *v)
{
    if (v->kind == MP_TUPLE) {
        for (size_t i = 0; i < v->n; i++)
            if (!can_be_subkey(&v->item[i])) return 0;
        return 1;
    }
    return v->kind != MP_LIST && v->kind != MP_MAP && v->kind != MP_EXT;
}

/* Without a class and a holder: those follow when the item is stored or merged. */
static int put_item(struct dht_dictionary *d, const struct bytes *subkey,
                    const struct mp_value *value, const struct mp_value *expiration)
{
    struct dht_item item = { .subkey = (uint8_t *)(uintptr_t)bytes_at(subkey), /* only read */
                             .subkey_n = bytes_length(subkey),
                             .value = (uint8_t *)(uintptr_t)value->bytes,
                             .n = value->n,
                             .expiration = number(expiration) };
    return put(d, &item);
}

/* The list in the head of this file, from another node. One malformed item voids the whole
 * dictionary. Its bytes are limited while it is read, because an item costs more memory than it has
 * bytes on the wire. */
static int read_items(struct dht_dictionary *d, const struct mp_value *v, struct pl_err *err)
{
    struct bytes subkey = { 0 };
    int rc = PL_OK;
    if (v->kind != MP_LIST || v->n != 3 || !is_number(&v->item[1]) || v->item[2].kind != MP_LIST ||
        (!is_number(&v->item[0]) && v->item[0].kind != MP_NIL))
        return pl_fail(err, PL_EFORMAT, "DHT dictionary: not a list of size, expiration, items");
    for (size_t i = 0; i < v->item[2].n && rc >= 0; i++) {
        const struct mp_value *item = &v->item[2].item[i];
        if (item->kind != MP_LIST || item->n != 3 || !can_be_subkey(&item->item[0]) ||
            item->item[1].kind != MP_BIN || !is_number(&item->item[2])) {
            rc = pl_fail(err, PL_EFORMAT,
                         "DHT dictionary: item %zu is not subkey, bytes, expiration", i);
            break;
        }
        bytes_take(&subkey, bytes_length(&subkey));
        /* msgpack has several forms of one value (7 in one byte or in nine): subkeys are
         * compared in our shortest form, as Python compares the unpacked values. */
        mp_write(&subkey, &item->item[0]);
        rc = subkey.failed ? subkey.failed : put_item(d, &subkey, &item->item[1], &item->item[2]);
        if (rc == PL_EAGAIN) rc = PL_OK; /* one subkey twice: the newer one counts */
        if (d->bytes > DHT_DICTIONARY_READ_MAX)
            rc = pl_fail(err, PL_ELIMIT, "DHT dictionary: more than %u bytes",
                         DHT_DICTIONARY_READ_MAX);
    }
    bytes_clear(&subkey);
    /* The sender's claim. Items are stored and merged one by one, so it has no effect there. */
    d->latest = number(&v->item[1]);
    if (v->item[0].kind != MP_NIL && number(&v->item[0]) > 0) d->size_max = number(&v->item[0]);
    return rc < 0 ? rc : PL_OK;
}

/* Two steps, since the extension's content is msgpack of its own. */
int dht_dictionary_read(struct dht_dictionary *d, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v, *parts = NULL;
    int rc;
    dht_dictionary_init(d);
    if ((rc = mp_read(&v, data, n, err))) return rc;
    if (v->kind != MP_EXT || v->code != MP_DICTIONARY_CODE)
        rc = pl_fail(err, PL_EFORMAT, "DHT dictionary: another kind of value");
    else if (!(rc = mp_read(&parts, v->bytes, v->n, err))) rc = read_items(d, parts, err);
    mp_free(parts);
    mp_free(v);
    if (rc) dht_dictionary_clear(d);
    return rc;
}

/* Read and written again: whatever form it came in, it leaves in ours. */
int dht_subkey_write(struct bytes *out, const uint8_t *data, size_t n)
{
    struct mp_value *v;
    int rc = mp_read(&v, data, n, NULL);
    if (rc) return rc == PL_ENOMEM ? rc : PL_EFORMAT;
    rc = can_be_subkey(v) ? mp_write(out, v) : PL_EFORMAT;
    mp_free(v);
    return rc;
}
