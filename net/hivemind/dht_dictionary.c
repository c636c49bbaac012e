/* dht_dictionary.c - see dht_dictionary.h. */
#include "dht_dictionary.h"
#include "msgpack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dht_dictionary_init(struct dht_dictionary *d)
{
    memset(d, 0, sizeof *d);
    d->latest = -INFINITY;
    d->earliest = d->size_max = INFINITY;
}

void dht_dictionary_clear(struct dht_dictionary *d)
{
    for (size_t i = 0; i < d->count; i++) free(d->items[i].subkey);
    free(d->items);
    dht_dictionary_init(d);
}

static size_t cost(const struct dht_item *item)
{
    return DHT_RECORD_COST + item->subkey_n + item->n;
}

static void drop(struct dht_dictionary *d, size_t i)
{
    d->bytes -= cost(&d->items[i]);
    free(d->items[i].subkey);
    memmove(d->items + i, d->items + i + 1, (--d->count - i) * sizeof *d->items);
}

static struct dht_item *find(const struct dht_dictionary *d, const void *subkey, size_t n)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->items[i].subkey_n == n && !memcmp(d->items[i].subkey, subkey, n))
            return &d->items[i];
    return NULL;
}

const struct dht_item *dht_dictionary_find(const struct dht_dictionary *d, const void *subkey,
                                           size_t n)
{
    return find(d, subkey, n);
}

/* Earliest first; ties by subkey, so that everybody drops the same. */
static int earlier(const struct dht_item *a, const struct dht_item *b)
{
    size_t n = a->subkey_n < b->subkey_n ? a->subkey_n : b->subkey_n;
    int order;
    if (a->expiration != b->expiration) return a->expiration < b->expiration;
    order = memcmp(a->subkey, b->subkey, n);
    return order ? order < 0 : a->subkey_n < b->subkey_n;
}

void dht_dictionary_prune(struct dht_dictionary *d, double now)
{
    if (d->earliest < now) {
        size_t kept = 0;
        d->earliest = INFINITY;
        for (size_t i = 0; i < d->count; i++) {
            if (d->items[i].expiration < now) {
                d->bytes -= cost(&d->items[i]);
                free(d->items[i].subkey);
                continue;
            }
            if (d->items[i].expiration < d->earliest) d->earliest = d->items[i].expiration;
            d->items[kept++] = d->items[i];
        }
        d->count = kept;
    }
    while ((double)d->count > d->size_max) {
        size_t first = 0;
        for (size_t i = 1; i < d->count; i++)
            if (earlier(&d->items[i], &d->items[first])) first = i;
        drop(d, first);
    }
}

/* Full: what would stay longest goes first. Honest records are renewed within seconds or minutes,
 * so that a flood of long-lived ones would otherwise push them out for good. */
static void make_room(struct dht_dictionary *d)
{
    while (d->bytes > DHT_DICTIONARY_MAX) {
        size_t last = 0;
        for (size_t i = 1; i < d->count; i++)
            if (d->items[i].expiration >= d->items[last].expiration) last = i;
        drop(d, last);
    }
}

static int make_item(struct dht_item *item, const void *subkey, size_t subkey_n, const void *value,
                     size_t n, double expiration)
{
    item->subkey = malloc(subkey_n + n + 1);
    if (!item->subkey) return PL_ENOMEM;
    item->value = item->subkey + subkey_n;
    if (subkey_n) memcpy(item->subkey, subkey, subkey_n);
    if (n) memcpy(item->value, value, n);
    item->subkey_n = subkey_n;
    item->n = n;
    item->expiration = expiration;
    return PL_OK;
}

/* The storage rule without the clock. */
static int put(struct dht_dictionary *d, const void *subkey, size_t subkey_n, const void *value,
               size_t n, double expiration)
{
    struct dht_item *present = find(d, subkey, subkey_n), item;
    if (present && present->expiration >= expiration) return PL_EAGAIN;
    if (subkey_n > DHT_DICTIONARY_MAX || n > DHT_DICTIONARY_MAX) return PL_EAGAIN;
    if (!present && d->count == d->room) {
        size_t room = d->room ? 2 * d->room : 4;
        struct dht_item *more = realloc(d->items, room * sizeof *more);
        if (!more) return PL_ENOMEM;
        d->items = more;
        d->room = room;
    }
    if (make_item(&item, subkey, subkey_n, value, n, expiration)) return PL_ENOMEM;
    if (present) {
        d->bytes -= cost(present);
        free(present->subkey);
        *present = item;
    } else {
        d->items[d->count++] = item;
    }
    d->bytes += cost(&item);
    if (expiration < d->earliest) d->earliest = expiration;
    return present ? PL_OK : 1;
}

int dht_dictionary_store(struct dht_dictionary *d, double now, const void *subkey, size_t subkey_n,
                         const void *value, size_t n, double expiration)
{
    int rc;
    if (isnan(expiration)) return PL_EAGAIN;
    if (expiration > d->latest) d->latest = expiration;
    if (expiration < now) return PL_EAGAIN;
    rc = put(d, subkey, subkey_n, value, n, expiration);
    if (rc == 1) dht_dictionary_prune(d, now); /* only a new subkey makes the original look */
    if (rc >= 0 && d->bytes > DHT_DICTIONARY_MAX) {
        make_room(d);
        return find(d, subkey, subkey_n) ? PL_OK : PL_EAGAIN;
    }
    return rc < 0 ? rc : PL_OK;
}

int dht_dictionary_write(struct bytes *out, const struct dht_dictionary *d)
{
    struct bytes inside = { 0 };
    mp_list(&inside, 3);
    if (d->size_max < 0x1p63) mp_int(&inside, (int64_t)d->size_max);
    else mp_float(&inside, d->size_max);
    mp_float(&inside, d->latest);
    mp_list(&inside, d->count);
    for (size_t i = 0; i < d->count; i++) {
        const struct dht_item *item = &d->items[i];
        mp_list(&inside, 3);
        bytes_add(&inside, item->subkey, item->subkey_n);
        mp_bin(&inside, item->value, item->n);
        mp_float(&inside, item->expiration);
    }
    if (inside.failed) out->failed = inside.failed;
    else mp_ext(out, MP_DICTIONARY_CODE, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
    return out->failed;
}

static int is_number(const struct mp_value *v)
{
    return v->kind == MP_INT || (v->kind == MP_FLOAT && !isnan(v->real));
}

static double number(const struct mp_value *v)
{
    if (v->kind == MP_FLOAT) return v->real;
    return v->negative ? (double)(int64_t)v->number : (double)v->number;
}

static int can_be_subkey(const struct mp_value *v)
{
    if (v->kind == MP_TUPLE) {
        for (size_t i = 0; i < v->n; i++)
            if (!can_be_subkey(&v->item[i])) return 0;
        return 1;
    }
    return v->kind != MP_LIST && v->kind != MP_MAP && v->kind != MP_EXT;
}

/* [maxsize, latest, [[subkey, value, expiration], ...]] */
static int read_parts(struct dht_dictionary *d, const struct mp_value *v, struct pl_err *err)
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
        mp_write(&subkey, &item->item[0]);
        rc = subkey.failed ? subkey.failed
           : put(d, bytes_at(&subkey), bytes_length(&subkey), item->item[1].bytes, item->item[1].n,
                 number(&item->item[2]));
        if (rc == PL_EAGAIN) rc = PL_OK; /* one subkey twice: the newer one counts */
        if (d->bytes > DHT_DICTIONARY_MAX)
            rc = pl_fail(err, PL_ELIMIT, "DHT dictionary: more than %u bytes", DHT_DICTIONARY_MAX);
    }
    bytes_clear(&subkey);
    d->latest = number(&v->item[1]);
    if (v->item[0].kind != MP_NIL && number(&v->item[0]) > 0) d->size_max = number(&v->item[0]);
    return rc < 0 ? rc : PL_OK;
}

int dht_dictionary_read(struct dht_dictionary *d, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v, *parts = NULL;
    int rc;
    dht_dictionary_init(d);
    if ((rc = mp_read(&v, data, n, err))) return rc;
    if (v->kind != MP_EXT || v->code != MP_DICTIONARY_CODE)
        rc = pl_fail(err, PL_EFORMAT, "DHT dictionary: another kind of value");
    else if (!(rc = mp_read(&parts, v->bytes, v->n, err)))
        rc = read_parts(d, parts, err);
    mp_free(parts);
    mp_free(v);
    if (rc) dht_dictionary_clear(d);
    return rc;
}

int dht_subkey_write(struct bytes *out, const uint8_t *data, size_t n)
{
    struct mp_value *v;
    int rc = mp_read(&v, data, n, NULL);
    if (rc) return rc == PL_ENOMEM ? rc : PL_EFORMAT;
    rc = can_be_subkey(v) ? mp_write(out, v) : PL_EFORMAT;
    mp_free(v);
    return rc;
}
