/* golden_protocol_dht.c - recorded routing tables and storages: the same operations, step by
 * step. */
#include "golden_protocol.h"
#include "net/hivemind/kademlia/dht_routing.h"
#include "net/hivemind/records/dht_store.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- routing tables --------------------------------------------------------------------------- */

/* In these scenarios: 0x1220 and the SHA-256 of the node's id. */
static void peer_of(struct peer_id *peer, const struct dht_id *id)
{
    memset(peer, 0, sizeof *peer);
    peer->length = 34;
    peer->bytes[0] = 0x12;
    peer->bytes[1] = 0x20;
    EVP_Digest(id->bytes, DHT_ID_BYTES, peer->bytes + 2, NULL, EVP_sha256(), NULL);
}

static int is_id(const struct dht_id *id, const json_t *hex)
{
    char text[2 * DHT_ID_BYTES + 1];
    protocol_hex(text, id->bytes, DHT_ID_BYTES);
    return json_is_string(hex) && !strcmp(text, json_string_value(hex));
}

static int are_ids(const struct dht_contact *list, size_t n, const json_t *hexes)
{
    if (n != json_array_size(hexes)) return 0;
    for (size_t i = 0; i < n; i++)
        if (!is_id(&list[i].id, json_array_get(hexes, i))) return 0;
    return 1;
}

static void routing_step(struct golden *g, struct dht_routing *r, const json_t *op, size_t at)
{
    const json_t *want = json_object_get(op, "ask_to_ping");
    struct dht_contact ask = { .peer = { .length = 0 } };
    struct dht_id id;
    struct peer_id peer;
    if (!protocol_id(g, op, "node", &id)) return;
    if (!strcmp(protocol_text(op, "op"), "remove")) {
        dht_routing_remove(r, &id);
        return;
    }
    if (strcmp(protocol_text(op, "op"), "add"))
        golden_fail(g, "operation", "'%.40s' is not known", protocol_text(op, "op"));
    peer_of(&peer, &id);
    dht_routing_add(r, &id, &peer, (double)at, &ask);
    golden_check(g, "ask to ping", ask.peer.length ? is_id(&ask.id, want) : json_is_null(want),
                 "another node at operation %zu", at);
    golden_check(g, "buckets",
                 (json_int_t)r->count == json_integer_value(json_object_get(op, "buckets_after")),
                 "%zu at operation %zu", r->count, at);
}

static void check_buckets(struct golden *g, const struct dht_routing *r, const json_t *want)
{
    golden_check(g, "buckets at the end", r->count == json_array_size(want), "%zu, not %zu",
                 r->count, json_array_size(want));
    for (size_t i = 0; i < r->count && i < json_array_size(want); i++) {
        const json_t *w = json_array_get(want, i), *next = json_array_get(want, i + 1);
        const struct dht_bucket *b = &r->buckets[i];
        char what[64];
        snprintf(what, sizeof what, "bucket %zu", i);
        golden_check(g, what,
                     is_id(&b->lower, json_object_get(w, "lower")) &&
                         b->depth == (int)golden_int(g, w, "depth") &&
                         (!next ||
                          !strcmp(protocol_text(w, "upper"), protocol_text(next, "lower"))) &&
                         are_ids(b->nodes.at, b->nodes.count, json_object_get(w, "nodes")) &&
                         are_ids(b->replacements.at, b->replacements.count,
                                 json_object_get(w, "replacements")),
                     "differs");
    }
}

static void check_nearest(struct golden *g, const struct dht_routing *r, const json_t *query)
{
    long most = golden_int(g, query, "k");
    size_t k = most < 0 || most > 100000 ? 0 : (size_t)most;
    struct dht_contact *out = calloc(k + 1, sizeof *out);
    struct dht_id id, exclude;
    int excluding = json_is_string(json_object_get(query, "exclude"));
    if (out && protocol_id(g, query, "query", &id) &&
        (!excluding || protocol_id(g, query, "exclude", &exclude))) {
        size_t n = dht_routing_nearest(r, out, k, &id, excluding ? &exclude : NULL);
        golden_check(g, "nearest", are_ids(out, n, json_object_get(query, "nearest")), "others");
    }
    free(out);
}

void protocol_routing_table(struct golden *g, const json_t *root)
{
    size_t i, k;
    json_t *scenario, *item;
    json_array_foreach(json_object_get(root, "scenarios"), i, scenario)
    {
        struct dht_routing r;
        struct dht_id self;
        long size = golden_int(g, scenario, "bucket_size");
        long modulo = golden_int(g, scenario, "depth_modulo");
        if (!protocol_id(g, scenario, "node_id", &self) || size < 1 || modulo < 1 ||
            dht_routing_init(&r, &self, (size_t)size, (int)modulo))
            continue;
        json_array_foreach(json_object_get(scenario, "operations"), k, item)
            routing_step(g, &r, item, k);
        check_buckets(g, &r, json_object_get(scenario, "buckets"));
        json_array_foreach(json_object_get(scenario, "queries"), k, item)
            check_nearest(g, &r, item);
        dht_routing_clear(&r);
    }
}

/* --- storages --------------------------------------------------------------------------------- */

static int same_items(struct golden *g, const struct dht_dictionary *d, const json_t *want)
{
    const json_t *items = json_object_get(want, "items");
    if (d->latest != protocol_real(json_object_get(want, "latest")) ||
        d->count != json_array_size(items))
        return 0;
    for (size_t i = 0; i < d->count; i++) {
        const json_t *w = json_array_get(items, i);
        const struct dht_item *item = &d->items[i];
        struct bytes subkey = { 0 }, value = { 0 };
        int same = protocol_value(g, json_array_get(w, 0), &subkey) && json_array_size(w) == 3 &&
                   !wire_hex(&value, json_string_value(json_array_get(w, 1))) &&
                   item->subkey_n == bytes_length(&subkey) && item->n == bytes_length(&value) &&
                   !memcmp(item->subkey, bytes_at(&subkey), item->subkey_n) &&
                   !memcmp(item->value, bytes_at(&value), item->n) &&
                   item->expiration == protocol_real(json_array_get(w, 2));
        bytes_clear(&subkey);
        bytes_clear(&value);
        if (!same) return 0;
    }
    return 1;
}

static int same_entry(struct golden *g, const struct dht_entry *e, const json_t *want)
{
    const json_t *dictionary = json_object_get(want, "dictionary");
    struct bytes value = { 0 };
    int same;
    if (!e || json_is_null(want)) return !e && json_is_null(want);
    if (e->expiration != protocol_real(json_object_get(want, "expiration"))) return 0;
    if (dictionary) return !e->value && same_items(g, &e->dictionary, dictionary);
    same = e->value && !wire_hex(&value, protocol_text(want, "value")) &&
           e->n == bytes_length(&value) && !memcmp(e->value, bytes_at(&value), e->n);
    bytes_clear(&value);
    return same;
}

static void storage_step(struct golden *g, struct dht_store *s, const json_t *op, size_t at)
{
    const json_t *want = json_object_get(op, "result_sane");
    const char *name = protocol_text(op, "op");
    double now = protocol_real(json_object_get(op, "now"));
    double expiration = protocol_real(json_object_get(op, "expiration"));
    struct bytes subkey = { 0 }, value = { 0 };
    struct dht_item item;
    struct dht_id key;
    int stored;
    if (!protocol_id(g, op, "key", &key)) return;
    if (!strcmp(name, "get")) {
        golden_check(g, name, same_entry(g, dht_store_get(s, now, &key), want),
                     "another record at operation %zu", at);
        return;
    }
    if (!wire_member(g, op, "value", &value)) return;
    item = (struct dht_item){ .value = value.data,
                              .n = bytes_length(&value),
                              .expiration = expiration };
    if (!strcmp(name, "store_subkey") &&
        protocol_value(g, json_object_get(op, "subkey"), &subkey)) {
        item.subkey = subkey.data;
        item.subkey_n = bytes_length(&subkey);
    }
    if (!strcmp(name, "store") || item.subkey) {
        stored = !dht_store_put(s, now, &key, &item);
    } else {
        golden_fail(g, "operation", "'%.40s' is not known", name);
        stored = -1;
    }
    if (stored >= 0)
        golden_check(g, name, stored == json_is_true(want), "%s at operation %zu",
                     stored ? "stored" : "refused", at);
    bytes_clear(&subkey);
    bytes_clear(&value);
}

/* hivemind's own results, with its flaw, differ from correct ones as often as the recording
 * says. */
static void check_flaw(struct golden *g, const json_t *scenario)
{
    const json_t *count = json_object_get(scenario, "operations_that_differ");
    json_int_t differ = 0;
    size_t k;
    json_t *op;
    json_array_foreach(json_object_get(scenario, "operations"), k, op)
        differ += !json_equal(json_object_get(op, "result"), json_object_get(op, "result_sane"));
    if (count)
        golden_check(g, "operations that differ", differ == json_integer_value(count), "%lld",
                     (long long)differ);
}

void protocol_timed_storage(struct golden *g, const json_t *root)
{
    size_t i, k;
    json_t *scenario, *op;
    json_array_foreach(json_object_get(root, "scenarios"), i, scenario)
    {
        const json_t *most = json_object_get(scenario, "maxsize");
        struct dht_store s;
        dht_store_init(&s, DHT_STORE_MAX);
        if (json_is_number(most)) s.size_max = json_number_value(most);
        json_array_foreach(json_object_get(scenario, "operations"), k, op)
            storage_step(g, &s, op, k);
        dht_store_clear(&s);
        check_flaw(g, scenario);
    }
}
