/* dht_result.c - what several nodes report under one key becomes one result: the newest value, or
 * the newest of each subkey; the same in any order of reports. [spec hivemind-protocol 1.6] */
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/messages/msgpack.h"
#include "test/unit/unit.h"

#include <math.h>

static const struct dht_id key = { { 7 } };
static const struct peer_id node = { 34, { 0x12, 0x20, 9 } };
static const struct dht_reporter from = { .peer = &node, .now = 1 };
static struct dht_result r;

static int begin(void **state)
{
    dht_result_init(&r);
    return 0;
}

static int end(void **state)
{
    dht_result_clear(&r);
    return 0;
}

static int report(const char *value, double expiration)
{
    return dht_result_merge(&r, NULL, &key, &from, DHT_FOUND_REGULAR, (const uint8_t *)value,
                            strlen(value), expiration);
}

/* A dictionary with the integers of `subkeys` as subkeys, and these one-byte values. */
static int report_items(const char *subkeys, const char *values, const double *expiration)
{
    struct dht_dictionary d;
    struct bytes packed = { 0 };
    int rc;
    dht_dictionary_init(&d);
    for (size_t i = 0; subkeys[i]; i++)
        assert_int_equal(dht_dictionary_store(&d, -INFINITY, &subkeys[i], 1, &values[i], 1,
                                              expiration[i]),
                         PL_OK);
    assert_int_equal(dht_dictionary_write(&packed, &d), PL_OK);
    rc = dht_result_merge(&r, NULL, &key, &from, DHT_FOUND_DICTIONARY, bytes_at(&packed),
                          bytes_length(&packed), 1e9); /* the whole's own time is not used */
    bytes_clear(&packed);
    dht_dictionary_clear(&d);
    return rc;
}

static int item_is(char subkey, char value, double expiration)
{
    const struct dht_item *item = dht_dictionary_find(&r.dictionary, &subkey, 1);
    return item && item->n == 1 && item->value[0] == (uint8_t)value &&
           item->expiration == expiration;
}

/* The later one stays, whatever order they come in; the same again is nothing new. */
static void newest_value_wins(void **state)
{
    assert_int_equal(r.type, DHT_NOT_FOUND);
    assert_int_equal(dht_result_merge(&r, NULL, &key, &from, DHT_NOT_FOUND, NULL, 0, 50),
                     PL_EAGAIN);
    assert_int_equal(report("x", NAN), PL_EAGAIN);
    assert_int_equal(r.type, DHT_NOT_FOUND);
    assert_int_equal(report("b", 20), PL_OK);
    assert_int_equal(report("a", 10), PL_EAGAIN);
    assert_int_equal(report("c", 20), PL_EAGAIN);
    assert_int_equal(report("z", NAN), PL_EAGAIN);
    assert_int_equal(r.type, DHT_FOUND_REGULAR);
    assert_true(r.expiration == 20);
    assert_int_equal(bytes_length(&r.value), 1);
    assert_int_equal(bytes_at(&r.value)[0], 'b');
    assert_int_equal(report("later", 30), PL_OK);
    assert_true(r.expiration == 30);
    assert_int_equal(bytes_length(&r.value), 5);
    assert_memory_equal(bytes_at(&r.value), "later", 5);
}

/* As long as a value may be, and one byte longer. */
static void long_values_are_left_out(void **state)
{
    uint8_t *value = calloc(DHT_VALUE_MAX + 1, 1);
    assert_int_equal(dht_result_merge(&r, NULL, &key, &from, DHT_FOUND_REGULAR, value,
                                      DHT_VALUE_MAX + 1, 10),
                     PL_EAGAIN);
    assert_int_equal(r.type, DHT_NOT_FOUND);
    assert_int_equal(dht_result_merge(&r, NULL, &key, &from, DHT_FOUND_REGULAR, value,
                                      DHT_VALUE_MAX, 10),
                     PL_OK);
    assert_int_equal(bytes_length(&r.value), DHT_VALUE_MAX);
    free(value);
}

/* Each subkey by itself; the whole lives as long as the latest of its items. */
static void dictionaries_are_merged(void **state)
{
    assert_int_equal(report_items("\1\2", "ab", (const double[]){ 10, 20 }), PL_OK);
    assert_int_equal(r.type, DHT_FOUND_DICTIONARY);
    assert_true(r.expiration == 20);
    assert_int_equal(report_items("\1\2", "ab", (const double[]){ 10, 20 }), PL_EAGAIN);
    assert_int_equal(report_items("\1\2\3", "xyc", (const double[]){ 9, 20, 5 }), PL_OK);
    assert_int_equal(r.dictionary.count, 3);
    assert_true(item_is(1, 'a', 10) && item_is(2, 'b', 20) && item_is(3, 'c', 5));
    assert_int_equal(report_items("\1", "n", (const double[]){ 15 }), PL_OK);
    assert_true(item_is(1, 'n', 15));
    assert_true(r.expiration == 20);
    assert_int_equal(report_items("\3", "m", (const double[]){ 40 }), PL_OK);
    assert_true(r.expiration == 40);
    /* Bytes that are no dictionary say nothing. */
    assert_int_equal(dht_result_merge(&r, NULL, &key, &from, DHT_FOUND_DICTIONARY,
                                      (const uint8_t *)"\xc0", 1, 50),
                     PL_EAGAIN);
    assert_int_equal(r.dictionary.count, 3);
}

/* A key has a value or a dictionary: the later one. */
static void value_and_dictionary_replace_each_other(void **state)
{
    assert_int_equal(report("v", 20), PL_OK);
    assert_int_equal(report_items("\1", "a", (const double[]){ 20 }), PL_EAGAIN);
    assert_int_equal(r.type, DHT_FOUND_REGULAR);
    assert_int_equal(report_items("\1\2", "ab", (const double[]){ 21, 19 }), PL_OK);
    assert_int_equal(r.type, DHT_FOUND_DICTIONARY);
    assert_int_equal(bytes_length(&r.value), 0);
    assert_true(item_is(1, 'a', 21) && item_is(2, 'b', 19));
    assert_int_equal(report("v", 21), PL_EAGAIN);
    assert_int_equal(report("w", 22), PL_OK);
    assert_int_equal(r.type, DHT_FOUND_REGULAR);
    assert_int_equal(r.dictionary.count, 0);
    assert_true(r.expiration == 22);
}

/* One item, reported by this node. */
static int report_item(const struct peer_id *by, const uint8_t *subkey, size_t subkey_n, char value,
                       double expiration)
{
    const struct dht_reporter reporter = { .peer = by, .now = 1 };
    struct dht_dictionary d;
    struct bytes packed = { 0 };
    int rc;
    dht_dictionary_init(&d);
    assert_int_equal(dht_dictionary_store(&d, -INFINITY, subkey, subkey_n, &value, 1, expiration),
                     PL_OK);
    assert_int_equal(dht_dictionary_write(&packed, &d), PL_OK);
    rc = dht_result_merge(&r, NULL, &key, &reporter, DHT_FOUND_DICTIONARY, bytes_at(&packed),
                          bytes_length(&packed), expiration);
    bytes_clear(&packed);
    dht_dictionary_clear(&d);
    return rc;
}

/* Any node may report a value without an owner, as late as it likes. An entry that its owner signed
 * is not hidden by it, whichever comes first. */
static void signed_entries_outlast_plain_values(void **state)
{
    static const uint8_t owned[] = "\xc4\x11[owner:ssh-rsa A]";
    assert_int_equal(report_item(&node, owned, sizeof owned - 1, 's', 10), PL_OK);
    assert_int_equal(report("later", 50), PL_EAGAIN);
    assert_int_equal(r.type, DHT_FOUND_DICTIONARY);
    assert_int_equal(r.dictionary.count, 1);
    dht_result_clear(&r);
    assert_int_equal(report("later", 50), PL_OK);
    assert_int_equal(report_item(&node, owned, sizeof owned - 1, 's', 10), PL_OK);
    assert_int_equal(r.type, DHT_FOUND_DICTIONARY);
    assert_int_equal(bytes_length(&r.value), 0);
    assert_true(r.expiration == 10);
}

/* A peer's own report of its declaration counts more than another node's, even if that one names a
 * later time. */
static void own_declarations_outlast_reported_ones(void **state)
{
    static const struct peer_id declarer = { 34, { 0x12, 0x20, 7 } };
    uint8_t subkey[36] = { 0xc4, 34 };
    memcpy(subkey + 2, declarer.bytes, 34);
    for (int own_first = 0; own_first < 2; own_first++) {
        for (int i = 0; i < 2; i++) {
            int own = i != own_first;
            int rc = own ? report_item(&declarer, subkey, sizeof subkey, 'o', 10)
                         : report_item(&node, subkey, sizeof subkey, 'n', 20);
            assert_int_equal(rc, own || !i ? PL_OK : PL_EAGAIN);
        }
        assert_int_equal(r.dictionary.count, 1);
        assert_int_equal(r.dictionary.items[0].value[0], 'o');
        assert_true(r.dictionary.items[0].expiration == 10);
        dht_result_clear(&r);
    }
}

/* A search takes time: what has expired meanwhile is dropped; what expires now is still there. */
static void finish_drops_what_has_expired(void **state)
{
    assert_int_equal(report("v", 20), PL_OK);
    assert_int_equal(dht_result_finish(&r, 20), PL_OK);
    assert_int_equal(r.type, DHT_FOUND_REGULAR);
    assert_int_equal(bytes_length(&r.value), 1);
    assert_int_equal(bytes_at(&r.value)[0], 'v');
    assert_int_equal(dht_result_finish(&r, 20.5), PL_OK);
    assert_int_equal(r.type, DHT_NOT_FOUND);
    assert_int_equal(bytes_length(&r.value), 0);
    assert_int_equal(report_items("\1\2", "ab", (const double[]){ 10, 30 }), PL_OK);
    assert_int_equal(dht_result_finish(&r, 20), PL_OK);
    assert_int_equal(r.type, DHT_FOUND_DICTIONARY);
    assert_int_equal(r.dictionary.count, 1);
    assert_true(item_is(2, 'b', 30));
    assert_int_equal(dht_result_finish(&r, 31), PL_OK);
    assert_int_equal(r.type, DHT_NOT_FOUND);
    assert_int_equal(r.dictionary.count, 0);
}

/* A copy lives on without its original. */
static void copies_are_deep(void **state)
{
    struct dht_result copy;
    assert_int_equal(report("value", 20), PL_OK);
    assert_int_equal(dht_result_copy(&copy, &r), PL_OK);
    dht_result_clear(&r);
    assert_int_equal(copy.type, DHT_FOUND_REGULAR);
    assert_true(copy.expiration == 20);
    assert_int_equal(bytes_length(&copy.value), 5);
    assert_memory_equal(bytes_at(&copy.value), "value", 5);
    dht_result_clear(&copy);
    assert_int_equal(report_items("\1\2", "ab", (const double[]){ 10, 30 }), PL_OK);
    assert_int_equal(dht_result_copy(&copy, &r), PL_OK);
    dht_result_clear(&r);
    r = copy;
    assert_int_equal(r.type, DHT_FOUND_DICTIONARY);
    assert_int_equal(r.dictionary.count, 2);
    assert_true(item_is(1, 'a', 10) && item_is(2, 'b', 30));
}

/* As it is stored at another node: a value without a subkey, a dictionary as a whole. */
static void records_to_hand_on(void **state)
{
    struct dht_record record;
    struct dht_result other;
    struct bytes packed = { 0 };
    assert_int_equal(report("value", 20), PL_OK);
    assert_int_equal(dht_result_record(&record, &packed, &r, &key), PL_OK);
    assert_memory_equal(record.key.bytes, key.bytes, DHT_ID_BYTES);
    assert_true(record.expiration == 20 && record.n == 5);
    assert_memory_equal(record.value, "value", 5);
    assert_int_equal(record.subkey_n, 1);
    assert_int_equal(record.subkey[0], 0xc0);
    dht_result_clear(&r);
    assert_int_equal(report_items("\1\2", "ab", (const double[]){ 10, 30 }), PL_OK);
    assert_int_equal(dht_result_record(&record, &packed, &r, &key), PL_OK);
    assert_int_equal(record.subkey_n, 0);
    assert_true(record.expiration == 30);
    dht_result_init(&other);
    assert_int_equal(dht_result_merge(&other, NULL, &key, &from, DHT_FOUND_DICTIONARY, record.value,
                                      record.n, record.expiration),
                     PL_OK);
    dht_result_clear(&r);
    r = other;
    assert_int_equal(r.dictionary.count, 2);
    assert_true(item_is(1, 'a', 10) && item_is(2, 'b', 30));
    bytes_clear(&packed);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(newest_value_wins),
        TEST(long_values_are_left_out),
        TEST(dictionaries_are_merged),
        TEST(value_and_dictionary_replace_each_other),
        TEST(signed_entries_outlast_plain_values),
        TEST(own_declarations_outlast_reported_ones),
        TEST(finish_drops_what_has_expired),
        TEST(copies_are_deep),
        TEST(records_to_hand_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
