/* dht_store.c - storage rules that no recording covers: limits, floods, invalid values. */
#include "net/hivemind/records/dht_store.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

static struct dht_id key_of(uint32_t x)
{
    struct dht_id id = { { (uint8_t)(x >> 24), (uint8_t)(x >> 16), (uint8_t)(x >> 8),
                           (uint8_t)x } };
    return id;
}

/* A plain record: an item of a dictionary, or a value without a subkey. */
static int put_subkey(struct dht_store *s, double now, const struct dht_id *key, const void *subkey,
                      size_t subkey_n, const void *value, size_t n, double expiration)
{
    struct dht_item item = { .subkey = (uint8_t *)(uintptr_t)subkey, /* only read */
                             .subkey_n = subkey_n,
                             .value = (uint8_t *)(uintptr_t)value,
                             .n = n,
                             .expiration = expiration };
    return dht_store_put(s, now, key, &item);
}

static int put_value(struct dht_store *s, double now, const struct dht_id *key, const void *value,
                     size_t n, double expiration)
{
    return put_subkey(s, now, key, NULL, 0, value, n, expiration);
}

static void newest_wins(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(put_value(&s, 0, &k, "a", 1, 10), PL_OK);
    assert_int_equal(put_value(&s, 0, &k, "b", 1, 10), PL_EAGAIN);
    assert_int_equal(put_value(&s, 0, &k, "b", 1, 5), PL_EAGAIN);
    assert_non_null(dht_store_get(&s, 6, &k)); /* the refused one has not shortened its life */
    assert_int_equal(put_subkey(&s, 6, &k, "\x01", 1, "c", 1, 10), PL_EAGAIN);
    assert_int_equal(put_subkey(&s, 6, &k, "\x01", 1, "c", 1, 11), PL_OK);
    assert_null(dht_store_get(&s, 6, &k)->value);
    assert_int_equal(put_subkey(&s, 6, &k, "\x02", 1, "d", 1, 8), PL_OK);
    assert_int_equal(dht_store_get(&s, 6, &k)->dictionary.count, 2);
    assert_int_equal(dht_store_get(&s, 9, &k)->dictionary.count, 1);
    assert_int_equal(put_value(&s, 9, &k, "e", 1, 10), PL_EAGAIN);
    assert_int_equal(put_value(&s, 9, &k, "e", 1, 12), PL_OK);
    assert_null(dht_store_get(&s, 13, &k));
    assert_int_equal(s.count, 0);
    assert_int_equal(s.bytes, 0);
    dht_store_clear(&s);
}

/* As in hivemind, a renewed subkey keeps its place, even if it had expired meanwhile and was not
 * read. */
static void renewed_in_place(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    const struct dht_dictionary *d;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(put_subkey(&s, 0, &k, "\x01", 1, "a", 1, 5), PL_OK);
    assert_int_equal(put_subkey(&s, 0, &k, "\x02", 1, "b", 1, 20), PL_OK);
    assert_int_equal(put_subkey(&s, 6, &k, "\x01", 1, "c", 1, 30), PL_OK);
    d = &dht_store_get(&s, 6, &k)->dictionary;
    assert_int_equal(d->count, 2);
    assert_memory_equal(d->items[0].value, "c", 1);
    assert_int_equal(put_subkey(&s, 25, &k, "\x03", 1, "d", 1, 40), PL_OK);
    assert_int_equal(d->count, 2); /* \x02 is evicted for the new one */
    assert_memory_equal(d->items[1].value, "d", 1);
    dht_store_clear(&s);
    /* Renewing one does not drop another that has expired: renewed later, it is where it was. */
    assert_int_equal(put_subkey(&s, 0, &k, "\x01", 1, "a", 1, 5), PL_OK);
    assert_int_equal(put_subkey(&s, 0, &k, "\x02", 1, "b", 1, 20), PL_OK);
    assert_int_equal(put_subkey(&s, 6, &k, "\x02", 1, "c", 1, 30), PL_OK);
    assert_int_equal(put_subkey(&s, 6, &k, "\x01", 1, "d", 1, 40), PL_OK);
    d = &dht_store_get(&s, 6, &k)->dictionary;
    assert_memory_equal(d->items[0].value, "d", 1);
    assert_memory_equal(d->items[1].value, "c", 1);
    dht_store_clear(&s);
}

static void no_number_is_no_expiration(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(put_value(&s, 0, &k, "a", 1, NAN), PL_EAGAIN);
    assert_int_equal(put_subkey(&s, 0, &k, "\x01", 1, "a", 1, NAN), PL_EAGAIN);
    assert_int_equal(s.count, 0);
    dht_store_clear(&s);
}

/* An item as a caller of a subnet brings it; NULL subkey: a regular value. */
static struct dht_item item_of(enum dht_class class, uint64_t subnet, uint64_t caller,
                               const char *subkey, uint8_t *value, size_t n, double expiration)
{
    return (struct dht_item){ .subkey = (uint8_t *)(uintptr_t)subkey,
                              .subkey_n = subkey ? strlen(subkey) : 0,
                              .value = value,
                              .n = n,
                              .expiration = expiration,
                              .from = { subnet, caller, 0, class } };
}

/* 72 MB of plain values, from one caller or from several of one address, longer- or shorter-lived
 * than the honest records: no honest record of any kind is evicted. */
static void floods(void **state)
{
    static const struct {
        uint32_t callers;
        uint64_t subnet;
        size_t n;
        double life;
    } cases[] = {
        { 1, 1, 1 << 20, 3600 }, { 4, 1, 1 << 20, 10 }, { 50, 1, 4000, 3600 }, { 50, 2, 4000, 10 }
    };
    uint8_t *value = calloc(1, 1 << 20);
    for (size_t c = 0; c < PL_COUNT(cases); c++) {
        struct dht_id progress = key_of(0), group = key_of(1), plain = key_of(2);
        struct dht_item honest[3] = { item_of(DHT_SIGNED, 1, 99, "\x01", value, 700, 60),
                                      item_of(DHT_DECLARATION, 1, 98, "\x02", value, 1, 60),
                                      item_of(DHT_PLAIN, 1, 97, NULL, value, 100, 60) };
        const struct dht_id *keys[3] = { &progress, &group, &plain };
        struct dht_store s;
        dht_store_init(&s, DHT_STORE_MAX);
        for (int i = 0; i < 3; i++)
            assert_int_equal(dht_store_put(&s, 0, keys[i], &honest[i]), PL_OK);
        for (size_t sent = 0, i = 3; sent < 72u << 20; sent += cases[c].n, i++) {
            struct dht_id k = key_of((uint32_t)i * 7919);
            struct dht_item flood = item_of(DHT_PLAIN, cases[c].subnet, 1 + i % cases[c].callers,
                                            NULL, value, cases[c].n, cases[c].life);
            dht_store_put(&s, 0, &k, &flood);
            assert_true(s.bytes <= DHT_STORE_MAX / 2);
        }
        for (int i = 0; i < 3; i++) assert_non_null(dht_store_get(&s, 1, keys[i]));
        assert_true(s.bytes > DHT_STORE_MAX / 8);
        dht_store_clear(&s);
    }
    free(value);
}

/* The same inside one dictionary; its answer stays short enough for a message. */
static void floods_of_a_dictionary(void **state)
{
    struct dht_id k = key_of(0);
    uint8_t *value = calloc(1, 1000);
    struct dht_item honest = item_of(DHT_SIGNED, 1, 99, "honest", value, 1000, 60);
    struct dht_store s;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(dht_store_put(&s, 0, &k, &honest), PL_OK);
    for (uint32_t i = 0; i < 40000; i++) {
        char subkey[16];
        struct dht_item flood;
        snprintf(subkey, sizeof subkey, "%u", i);
        flood = item_of(i % 2 ? DHT_SIGNED : DHT_PLAIN, 1 + i % 2, i % 7, subkey, value, 500, 3600);
        dht_store_put(&s, 0, &k, &flood);
    }
    assert_true(s.bytes <= DHT_DICTIONARY_MAX + DHT_RECORD_COST);
    assert_non_null(dht_dictionary_find(&dht_store_get(&s, 1, &k)->dictionary, "honest", 6));
    dht_store_clear(&s);
    free(value);
}

/* A value does not replace a whole dictionary that holds more than plain items. And such an item
 * replaces a value, whatever life the value claims. */
static void lower_record_kinds_replace_nothing(void **state)
{
    struct dht_id k = key_of(1);
    uint8_t value[1] = { 0xc3 };
    struct dht_store s;
    for (int class = DHT_DECLARATION; class <= DHT_SIGNED; class ++) {
        struct dht_item plain = item_of(DHT_PLAIN, 1, 1, NULL, value, 1, 3600);
        struct dht_item item = item_of((enum dht_class) class, 2, 2, "\x01", value, 1, 60);
        dht_store_init(&s, DHT_STORE_MAX);
        assert_int_equal(dht_store_put(&s, 0, &k, &item), PL_OK);
        assert_int_equal(dht_store_put(&s, 0, &k, &plain), PL_EAGAIN);
        assert_int_equal(dht_store_get(&s, 0, &k)->dictionary.count, 1);
        assert_int_equal(dht_store_put(&s, 61, &k, &plain), PL_OK); /* nothing is alive there */
        item.expiration = 120;
        assert_int_equal(dht_store_put(&s, 61, &k, &item), PL_OK);
        assert_int_equal(dht_store_get(&s, 61, &k)->dictionary.count, 1);
        item.from.class = DHT_PLAIN; /* under the same subkey */
        item.expiration = 3600;
        assert_int_equal(dht_store_put(&s, 61, &k, &item), PL_EAGAIN);
        dht_store_clear(&s);
    }
}

static void one_owner_has_few_items(void **state)
{
    uint8_t value[1] = { 0 };
    struct dht_dictionary d;
    struct dht_item again;
    int stored = 0;
    dht_dictionary_init(&d);
    for (int i = 0; i < 2066; i++) {
        char subkey[16];
        struct dht_item item;
        snprintf(subkey, sizeof subkey, "%d", i);
        item = item_of(DHT_SIGNED, 1, (uint64_t)i, subkey, value, 1, 60);
        item.from.owner = 5;
        stored += !dht_dictionary_put(&d, 0, &item);
    }
    assert_int_equal(stored, DHT_OWNER_ITEMS_MAX);
    dht_dictionary_prune(&d, 61);
    assert_int_equal(d.count, 0);
    again = item_of(DHT_SIGNED, 1, 1, "x", value, 1, 120);
    again.from.owner = 5;
    assert_int_equal(dht_dictionary_put(&d, 61, &again), PL_OK);
    dht_dictionary_clear(&d);
}

/* The largest holder loses first, a subnet before a caller; our own goes last; equal holders lose
 * no more than is needed. */
static void shares(void **state)
{
    struct dht_origin from[4] = { { 1, 1, 0, DHT_PLAIN },
                                  { 1, 2, 0, DHT_PLAIN },
                                  { 2, 3, 0, DHT_PLAIN },
                                  { 0, 0, 0, DHT_PLAIN } };
    struct dht_candidate s[40];
    size_t kept[4] = { 0 };
    for (size_t i = 0; i < 40; i++) /* 10 of each; the second caller's are five times as long */
        s[i] = (struct dht_candidate){ &from[i % 4], (double)i, i % 4 == 1 ? 50 : 10, NULL, 0 };
    assert_int_equal(dht_share_shed(s, 40, 450), PL_OK);
    for (size_t i = 0; i < 40; i++)
        if (!s[i].evicted) kept[s[i].from - from]++;
    assert_int_equal(kept[0], 10);
    assert_int_equal(kept[1], 1); /* 600 of the first subnet have to become 150 */
    assert_int_equal(kept[2], 10);
    assert_int_equal(kept[3], 10);
    for (size_t i = 0; i < 40; i++) s[i].evicted = 0;
    assert_int_equal(dht_share_shed(s, 40, 720), PL_OK); /* of others there are 700 */
    memset(kept, 0, sizeof kept);
    for (size_t i = 0; i < 40; i++) kept[s[i].from - from] += !s[i].evicted;
    assert_int_equal(kept[0] + kept[1] + kept[2], 0);
    assert_int_equal(kept[3], 8);
    for (size_t i = 0; i < 40; i++)
        s[i] = (struct dht_candidate){ &from[0], (double)i, 10, NULL, 0 };
    assert_int_equal(dht_share_shed(s, 40, 25), PL_OK);
    for (size_t i = 0; i < 40; i++) assert_int_equal(s[i].evicted, s[i].expiration >= 37);
}

/* 0 for a holder that has no usage. */
static size_t bytes_of(const struct dht_usage *l, uint64_t holder)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->of[i].holder == holder) return l->of[i].bytes;
    return 0;
}

static struct dht_item held_by(struct dht_origin from, const char *subkey, size_t n, double until)
{
    static uint8_t value[4096];
    assert_true(n <= sizeof value);
    return (struct dht_item){ .subkey = (uint8_t *)(uintptr_t)subkey,
                              .subkey_n = subkey ? strlen(subkey) : 0,
                              .value = value,
                              .n = n,
                              .expiration = until,
                              .from = from };
}

/* A peer that has stored as much as it may is refused; others are not, and it gets space again when
 * its records expire. New names of one subnet share the subnet's limit. */
static void a_peer_has_a_quota(void **state)
{
    const struct dht_origin greedy = { 1, 7, 0, DHT_PLAIN }, other = { 2, 8, 0, DHT_PLAIN };
    const struct dht_origin own = { 0, 0, 0, DHT_PLAIN };
    struct dht_quota q = { .peer_max = 10 * 1000, .subnet_max = 25 * 1000 };
    struct dht_store s;
    int taken = 0;
    dht_store_init(&s, DHT_STORE_MAX);
    s.quota = &q;
    for (uint32_t i = 0; i < 20; i++) {
        struct dht_id k = key_of(i);
        struct dht_item item = held_by(greedy, i % 2 ? "x" : NULL, 1000 - DHT_RECORD_COST - i % 2,
                                       50);
        taken += dht_store_put(&s, 0, &k, &item) == PL_OK;
    }
    assert_int_equal(taken, 10);
    assert_int_equal(bytes_of(&q.peers, 7), 10 * 1000);
    assert_int_equal(q.refused, 10);
    for (uint64_t peer = 100; peer < 120; peer++) {
        struct dht_id k = key_of((uint32_t)peer);
        struct dht_item item = held_by((struct dht_origin){ 1, peer, 0, DHT_PLAIN }, NULL,
                                       1000 - DHT_RECORD_COST, 60);
        taken += dht_store_put(&s, 0, &k, &item) == PL_OK;
    }
    assert_int_equal(taken, 25);
    assert_int_equal(bytes_of(&q.subnets, 1), 25 * 1000);
    {
        struct dht_id k = key_of(900), l = key_of(901);
        struct dht_item theirs = held_by(other, NULL, 4000, 60),
                        ours = held_by(own, NULL, 4000, 60);
        assert_int_equal(dht_store_put(&s, 0, &k, &theirs), PL_OK);
        assert_int_equal(dht_store_put(&s, 0, &l, &ours), PL_OK);
        theirs = held_by(greedy, NULL, 800, 90);
        l = key_of(902);
        assert_int_equal(dht_store_put(&s, 0, &l, &theirs), PL_EAGAIN);
        dht_store_prune(&s, 51); /* its first ten have expired */
        assert_int_equal(bytes_of(&q.peers, 7), 0);
        assert_int_equal(dht_store_put(&s, 51, &l, &theirs), PL_OK);
    }
    dht_store_clear(&s);
    assert_int_equal(q.peers.count + q.subnets.count, 0);
    dht_quota_clear(&q);
}

/* Stored, replaced, expired, evicted, a value in place of a dictionary: each holder's sum is always
 * that of its records. */
static void sums_are_those_of_the_records(void **state)
{
    static const char *const names[] = { NULL, "a", "b", "c" };
    struct dht_quota q = { 0 };
    struct dht_store s;
    struct pl_rng rng;
    pl_rng_init(&rng, 11, 0);
    dht_store_init(&s, 60000);
    s.quota = &q;
    for (int turn = 0; turn < 20000; turn++) {
        double now = turn * 0.01;
        size_t sum[8] = { 0 };
        struct dht_id k = key_of((uint32_t)pl_rng_below(&rng, 24));
        uint64_t who = 1 + pl_rng_below(&rng, 7);
        struct dht_item item =
            held_by((struct dht_origin){ who % 3, who, 0,
                                         pl_rng_below(&rng, 2) ? DHT_PLAIN : DHT_DECLARATION },
                    names[pl_rng_below(&rng, 4)], pl_rng_below(&rng, 2000),
                    now + (double)pl_rng_below(&rng, 30));
        dht_store_put(&s, now, &k, &item);
        if (turn % 50) continue;
        for (size_t i = 0; i < s.count; i++) {
            const struct dht_entry *e = s.entries[i];
            if (e->value) sum[e->from.caller] += DHT_RECORD_COST + e->n;
            for (size_t j = 0; j < e->dictionary.count; j++) {
                const struct dht_item *at = &e->dictionary.items[j];
                sum[at->from.caller] += DHT_RECORD_COST + at->subkey_n + at->n;
            }
        }
        for (uint64_t w = 1; w < 8; w++) assert_int_equal(bytes_of(&q.peers, w), sum[w]);
        assert_int_equal(bytes_of(&q.subnets, 1), sum[1] + sum[4] + sum[7]);
    }
    dht_store_clear(&s);
    assert_int_equal(q.peers.count + q.subnets.count, 0);
    dht_quota_clear(&q);
}

/* A record lives until its expiration, that moment included, and of the largest size there is. */
static void at_the_limits(void **state)
{
    struct dht_id k = key_of(1), l = key_of(2);
    struct dht_store s;
    uint8_t *value = calloc(1, DHT_VALUE_MAX);
    (void)state;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(put_value(&s, 10, &k, "a", 1, nextafter(10, 0)), PL_EAGAIN);
    assert_int_equal(put_value(&s, 10, &k, "a", 1, 10), PL_OK);
    assert_int_equal(put_subkey(&s, 10, &l, "\x01", 1, "a", 1, nextafter(10, 0)), PL_EAGAIN);
    assert_int_equal(put_subkey(&s, 10, &l, "\x01", 1, "a", 1, 10), PL_OK);
    assert_true(dht_store_get(&s, 10, &k) && dht_store_get(&s, 10, &l));
    dht_store_prune(&s, nextafter(10, 11));
    assert_int_equal(s.count, 0);
    assert_int_equal(put_value(&s, 10, &k, value, DHT_VALUE_MAX, 20), PL_OK);
    assert_int_equal(dht_store_get(&s, 20, &k)->n, DHT_VALUE_MAX);
    dht_store_clear(&s);
    free(value);
}

/* Too many keys: the earliest go, of equals the smaller key, whatever the order in which they
 * came. */
static void ties_of_the_surplus(void **state)
{
    (void)state;
    for (uint32_t first = 1; first <= 3; first++) {
        struct dht_store s;
        dht_store_init(&s, DHT_STORE_MAX);
        s.size_max = 2;
        for (uint32_t i = 0; i < 3; i++) {
            struct dht_id k = key_of(1 + (first + i) % 3);
            assert_int_equal(put_value(&s, 0, &k, "a", 1, 10), PL_OK);
        }
        for (uint32_t i = 1; i <= 3; i++) {
            struct dht_id k = key_of(i);
            assert_int_equal(dht_store_get(&s, 0, &k) != NULL, i > 1);
        }
        dht_store_clear(&s);
    }
}

static void too_large(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    uint8_t *value = calloc(1, DHT_DICTIONARY_MAX + 1);
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(put_value(&s, 0, &k, value, DHT_VALUE_MAX + 1, 9), PL_EAGAIN);
    assert_int_equal(put_subkey(&s, 0, &k, "\x01", 1, value, DHT_DICTIONARY_MAX, 9), PL_EAGAIN);
    assert_int_equal(s.count, 0);
    dht_store_clear(&s);
    free(value);
}

/* Against a slow model: a table searched and pruned from end to end. */
static void like_a_plain_table(void **state)
{
    double until[64] = { 0 };
    struct pl_rng rng;
    struct dht_store s;
    double now = 0;
    pl_rng_init(&rng, 3, 0);
    dht_store_init(&s, DHT_STORE_MAX);
    for (int step = 0; step < 20000; step++) {
        uint32_t i = (uint32_t)pl_rng_below(&rng, 64);
        struct dht_id k = key_of(i);
        double expiration = now + (double)pl_rng_below(&rng, 40) - 5;
        const struct dht_entry *e;
        int stored;
        now += pl_rng_uniform(&rng);
        stored = put_value(&s, now, &k, &i, 4, expiration);
        assert_int_equal(!stored, expiration >= now && !(until[i] >= expiration));
        if (!stored) until[i] = expiration;
        i = (uint32_t)pl_rng_below(&rng, 64);
        k = key_of(i);
        e = dht_store_get(&s, now, &k);
        assert_int_equal(e != NULL, until[i] >= now);
        if (e) assert_true(e->expiration == until[i] && !memcmp(e->value, &i, 4));
        for (size_t h = 1; h < s.count; h++)
            assert_true(s.heap[h]->expiration >= s.heap[(h - 1) / 2]->expiration &&
                        s.heap[h]->place == h);
    }
    dht_store_clear(&s);
}

/* Strangers' dictionaries. */
static void dictionaries_from_outside(void **state)
{
    struct dht_dictionary d;
    struct bytes b = { 0 }, again = { 0 };
    struct pl_err err;
    dht_dictionary_init(&d);
    dht_dictionary_store(&d, 0,
                         "\xa1"
                         "a",
                         2, "x", 1, 5);
    dht_dictionary_store(&d, 0,
                         "\xc4\x01"
                         "a",
                         3, "y", 1, 5); /* the same letter as bytes: another */
    dht_dictionary_write(&b, &d);
    dht_dictionary_clear(&d);
    assert_int_equal(dht_dictionary_read(&d, bytes_at(&b), bytes_length(&b), &err), PL_OK);
    assert_int_equal(d.count, 2);
    dht_dictionary_write(&again, &d);
    assert_true(bytes_length(&again) == bytes_length(&b));
    assert_memory_equal(bytes_at(&again), bytes_at(&b), bytes_length(&b));
    dht_dictionary_clear(&d);
    for (size_t i = 0; i < bytes_length(&b); i++) { /* cut anywhere */
        assert_int_not_equal(dht_dictionary_read(&d, bytes_at(&b), i, &err), PL_OK);
        dht_dictionary_clear(&d);
    }
    bytes_clear(&b);
    bytes_clear(&again);
    assert_int_equal(dht_subkey_write(&b, (const uint8_t *)"\x90", 1), PL_EFORMAT); /* a list */
    assert_int_equal(dht_subkey_write(&b, (const uint8_t *)"\x80", 1), PL_EFORMAT); /* a map */
    assert_int_equal(dht_subkey_write(&b, (const uint8_t *)"", 0), PL_EFORMAT);
    assert_int_equal(dht_subkey_write(&b, (const uint8_t *)"\xcc\x01", 2), PL_OK);
    assert_int_equal(bytes_length(&b), 1); /* one way of writing 1 */
    bytes_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest_wins),
        cmocka_unit_test(renewed_in_place),
        cmocka_unit_test(no_number_is_no_expiration),
        cmocka_unit_test(floods),
        cmocka_unit_test(floods_of_a_dictionary),
        cmocka_unit_test(lower_record_kinds_replace_nothing),
        cmocka_unit_test(one_owner_has_few_items),
        cmocka_unit_test(shares),
        cmocka_unit_test(a_peer_has_a_quota),
        cmocka_unit_test(sums_are_those_of_the_records),
        cmocka_unit_test(at_the_limits),
        cmocka_unit_test(ties_of_the_surplus),
        cmocka_unit_test(too_large),
        cmocka_unit_test(like_a_plain_table),
        cmocka_unit_test(dictionaries_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
