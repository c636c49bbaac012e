/* dht_result.c - see dht_result.h. */
#include "dht_result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dht_result_init(struct dht_result *r)
{
    memset(r, 0, sizeof *r);
    r->expiration = -INFINITY;
    dht_dictionary_init(&r->dictionary);
}

void dht_result_clear(struct dht_result *r)
{
    bytes_clear(&r->value);
    dht_dictionary_clear(&r->dictionary);
    dht_result_init(r);
}

static int is_valid(const struct validators *v, const struct dht_id *key, const uint8_t *subkey,
                    size_t subkey_n, const uint8_t *value, size_t n, double expiration)
{
    struct record record = { .key = key->bytes,
                             .key_n = DHT_ID_BYTES,
                             .subkey = subkey,
                             .subkey_n = subkey_n,
                             .value = value,
                             .n = n,
                             .expiration = expiration };
    return !v || !record_check(v, &record, NULL);
}

static int merge_regular(struct dht_result *r, const struct validators *v, const struct dht_id *key,
                         const uint8_t *value, size_t n, double expiration)
{
    /* not >=: NaN is no expiration either */
    if (!(expiration > r->expiration) || n > DHT_VALUE_MAX ||
        !is_valid(v, key, dht_no_subkey, sizeof dht_no_subkey, value, n, expiration))
        return PL_EAGAIN;
    dht_result_clear(r);
    r->type = DHT_FOUND_REGULAR;
    r->expiration = expiration;
    return bytes_add(&r->value, value, n);
}

static int merge_dictionary(struct dht_result *r, const struct validators *v,
                            const struct dht_id *key, const struct dht_dictionary *d)
{
    int changed = 0;
    for (size_t i = 0; i < d->count; i++) {
        const struct dht_item *item = &d->items[i];
        const struct dht_item *mine = dht_dictionary_find(&r->dictionary, item->subkey,
                                                          item->subkey_n);
        int rc;
        if ((mine && mine->expiration >= item->expiration) || isnan(item->expiration)) continue;
        if (!is_valid(v, key, item->subkey, item->subkey_n, item->value, item->n, item->expiration))
            continue;
        if (r->type == DHT_FOUND_REGULAR) { /* only now is it certain that there is a newer one */
            if (item->expiration <= r->expiration) continue;
            dht_result_clear(r);
        }
        rc = dht_dictionary_store(&r->dictionary, -INFINITY, item->subkey, item->subkey_n,
                                  item->value, item->n, item->expiration);
        if (rc == PL_ENOMEM) return rc;
        if (rc) continue;
        changed = 1;
        r->type = DHT_FOUND_DICTIONARY;
        /* What the node claims for the whole counts for nothing. */
        if (item->expiration > r->expiration) r->expiration = item->expiration;
    }
    return changed ? PL_OK : PL_EAGAIN;
}

int dht_result_merge(struct dht_result *r, const struct validators *v, const struct dht_id *key,
                     enum dht_found_type type, const uint8_t *value, size_t n, double expiration)
{
    struct dht_dictionary d;
    int rc;
    if (type == DHT_NOT_FOUND) return PL_EAGAIN;
    if (type == DHT_FOUND_REGULAR) return merge_regular(r, v, key, value, n, expiration);
    if (r->type == DHT_FOUND_REGULAR && !(expiration > r->expiration)) return PL_EAGAIN;
    if ((rc = dht_dictionary_read(&d, value, n, NULL))) return rc == PL_ENOMEM ? rc : PL_EAGAIN;
    rc = merge_dictionary(r, v, key, &d);
    dht_dictionary_clear(&d);
    return rc;
}

/* The items anew, without their signatures. */
static int strip_items(struct dht_dictionary *d)
{
    struct dht_dictionary plain;
    struct bytes value = { 0 };
    int rc = PL_OK;
    dht_dictionary_init(&plain);
    for (size_t i = 0; i < d->count && !rc; i++) {
        const struct dht_item *item = &d->items[i];
        bytes_take(&value, bytes_length(&value));
        if ((rc = record_strip(&value, item->value, item->n))) break;
        rc = dht_dictionary_store(&plain, -INFINITY, item->subkey, item->subkey_n, bytes_at(&value),
                                  bytes_length(&value), item->expiration);
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
    if (r->expiration < now) {
        dht_result_clear(r);
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

int dht_result_copy(struct dht_result *to, const struct dht_result *from)
{
    int rc = PL_OK;
    dht_result_init(to);
    to->type = from->type;
    to->expiration = from->expiration;
    if (from->type == DHT_FOUND_REGULAR)
        rc = bytes_add(&to->value, bytes_at(&from->value), bytes_length(&from->value));
    for (size_t i = 0; i < from->dictionary.count && !rc; i++) {
        const struct dht_item *item = &from->dictionary.items[i];
        rc = dht_dictionary_store(&to->dictionary, -INFINITY, item->subkey, item->subkey_n,
                                  item->value, item->n, item->expiration);
    }
    if (rc) dht_result_clear(to);
    return rc;
}

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
