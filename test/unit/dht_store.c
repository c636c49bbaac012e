/* dht_store.c - storage rules where recordings say nothing: limits, floods, values that are
 * none. */
#include "../../net/hivemind/dht_store.h"
#include "../../ref/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct dht_id key_of(uint32_t x)
{
    struct dht_id id = { { (uint8_t)(x >> 24), (uint8_t)(x >> 16), (uint8_t)(x >> 8),
                           (uint8_t)x } };
    return id;
}

static void newest_wins(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    (void)state;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(dht_store_value(&s, 0, &k, "a", 1, 10), PL_OK);
    assert_int_equal(dht_store_value(&s, 0, &k, "b", 1, 10), PL_EAGAIN);
    assert_int_equal(dht_store_value(&s, 0, &k, "b", 1, 5), PL_EAGAIN);
    assert_non_null(dht_store_get(&s, 6, &k)); /* the refused one has not shortened its life */
    assert_int_equal(dht_store_subkey(&s, 6, &k, "\x01", 1, "c", 1, 10), PL_EAGAIN);
    assert_int_equal(dht_store_subkey(&s, 6, &k, "\x01", 1, "c", 1, 11), PL_OK);
    assert_null(dht_store_get(&s, 6, &k)->value);
    assert_int_equal(dht_store_subkey(&s, 6, &k, "\x02", 1, "d", 1, 8), PL_OK);
    assert_int_equal(dht_store_get(&s, 6, &k)->dictionary.count, 2);
    assert_int_equal(dht_store_get(&s, 9, &k)->dictionary.count, 1);
    assert_int_equal(dht_store_value(&s, 9, &k, "e", 1, 10), PL_EAGAIN);
    assert_int_equal(dht_store_value(&s, 9, &k, "e", 1, 12), PL_OK);
    assert_null(dht_store_get(&s, 13, &k));
    assert_int_equal(s.count, 0);
    assert_int_equal(s.bytes, 0);
    dht_store_clear(&s);
}

/* As the original writes it: a subkey that is renewed keeps its place, even if it had expired
 * meanwhile and nobody has looked. */
static void renewed_in_place(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    const struct dht_dictionary *d;
    (void)state;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(dht_store_subkey(&s, 0, &k, "\x01", 1, "a", 1, 5), PL_OK);
    assert_int_equal(dht_store_subkey(&s, 0, &k, "\x02", 1, "b", 1, 20), PL_OK);
    assert_int_equal(dht_store_subkey(&s, 6, &k, "\x01", 1, "c", 1, 30), PL_OK);
    d = &dht_store_get(&s, 6, &k)->dictionary;
    assert_int_equal(d->count, 2);
    assert_memory_equal(d->items[0].value, "c", 1);
    assert_int_equal(dht_store_subkey(&s, 25, &k, "\x03", 1, "d", 1, 40), PL_OK);
    assert_int_equal(d->count, 2); /* a new one makes room: \x02 is gone */
    assert_memory_equal(d->items[1].value, "d", 1);
    dht_store_clear(&s);
}

static void no_number_is_no_expiration(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    (void)state;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(dht_store_value(&s, 0, &k, "a", 1, NAN), PL_EAGAIN);
    assert_int_equal(dht_store_subkey(&s, 0, &k, "\x01", 1, "a", 1, NAN), PL_EAGAIN);
    assert_int_equal(s.count, 0);
    dht_store_clear(&s);
}

/* A flood of records that would live for ever does not push out what is renewed every minute. */
static void floods(void **state)
{
    struct dht_id honest = key_of(0);
    uint8_t *value = calloc(1, 1000);
    struct dht_store s;
    (void)state;
    dht_store_init(&s, 100000);
    assert_int_equal(dht_store_subkey(&s, 0, &honest, "\x01", 1, value, 100, 60), PL_OK);
    for (uint32_t i = 1; i < 1000; i++) {
        struct dht_id k = key_of(i * 7919);
        dht_store_value(&s, 0, &k, value, 1000, 1e9 + i);
        assert_true(s.bytes <= 100000);
    }
    assert_non_null(dht_store_get(&s, 1, &honest));
    assert_true(s.count > 50);
    dht_store_clear(&s);
    /* the same inside one dictionary */
    dht_store_init(&s, DHT_STORE_MAX);
    dht_store_subkey(&s, 0, &honest, "\x01", 1, value, 100, 60);
    for (uint32_t i = 0; i < 4000; i++) {
        char subkey[16];
        int n = snprintf(subkey, sizeof subkey, "%u", i);
        dht_store_subkey(&s, 0, &honest, subkey, (size_t)n, value, 1000, 1e9 + i);
    }
    assert_true(s.bytes <= DHT_DICTIONARY_MAX + DHT_RECORD_COST);
    assert_non_null(dht_dictionary_find(&dht_store_get(&s, 1, &honest)->dictionary, "\x01", 1));
    dht_store_clear(&s);
    free(value);
}

static void too_large(void **state)
{
    struct dht_id k = key_of(1);
    struct dht_store s;
    uint8_t *value = calloc(1, DHT_DICTIONARY_MAX + 1);
    (void)state;
    dht_store_init(&s, DHT_STORE_MAX);
    assert_int_equal(dht_store_value(&s, 0, &k, value, DHT_VALUE_MAX + 1, 9), PL_EAGAIN);
    assert_int_equal(dht_store_subkey(&s, 0, &k, "\x01", 1, value, DHT_DICTIONARY_MAX, 9),
                     PL_EAGAIN);
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
    (void)state;
    pl_rng_init(&rng, 3, 0);
    dht_store_init(&s, DHT_STORE_MAX);
    for (int step = 0; step < 20000; step++) {
        uint32_t i = (uint32_t)pl_rng_below(&rng, 64);
        struct dht_id k = key_of(i);
        double expiration = now + (double)pl_rng_below(&rng, 40) - 5;
        const struct dht_entry *e;
        int stored;
        now += pl_rng_uniform(&rng);
        stored = dht_store_value(&s, now, &k, &i, 4, expiration);
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
    (void)state;
    dht_dictionary_init(&d);
    dht_dictionary_store(&d, 0, "\xa1" "a", 2, "x", 1, 5);
    dht_dictionary_store(&d, 0, "\xc4\x01" "a", 3, "y", 1, 5); /* the same letter as bytes: another */
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
        cmocka_unit_test(newest_wins), cmocka_unit_test(renewed_in_place),
        cmocka_unit_test(no_number_is_no_expiration),
        cmocka_unit_test(floods), cmocka_unit_test(too_large), cmocka_unit_test(like_a_plain_table),
        cmocka_unit_test(dictionaries_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
