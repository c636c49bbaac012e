/* dht_dictionary.c - the storage rule of one key's subkeys, its ties and its limits, and dictionaries that
 * another node sends in a wrong form. */
#include "net/hivemind/records/dht_dictionary.h"
#include "net/hivemind/messages/msgpack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct dht_dictionary d;

static int begin(void **state)
{
    (void)state;
    dht_dictionary_init(&d);
    return 0;
}

static int end(void **state)
{
    (void)state;
    dht_dictionary_clear(&d);
    return 0;
}

static int put(double now, enum dht_class class, const char *subkey, const char *value,
               double until)
{
    struct dht_item item = { .subkey = (uint8_t *)(uintptr_t)subkey,
                             .subkey_n = strlen(subkey),
                             .value = (uint8_t *)(uintptr_t)value,
                             .n = strlen(value),
                             .expiration = until,
                             .from = { 1, 1, 0, class } };
    return dht_dictionary_put(&d, now, &item);
}

static int holds(const char *subkey, const char *value)
{
    const struct dht_item *item = dht_dictionary_find(&d, subkey, strlen(subkey));
    return item && item->n == strlen(value) && !memcmp(item->value, value, item->n);
}

static void the_greater_expiration_wins(void **state)
{
    (void)state;
    for (int class = DHT_PLAIN; class < DHT_CLASSES; class ++) {
        enum dht_class c = (enum dht_class) class;
        dht_dictionary_clear(&d);
        dht_dictionary_init(&d);
        assert_int_equal(put(0, c, "k", "one", 10), PL_OK);
        assert_int_equal(put(0, c, "k", "two", 10), PL_EAGAIN); /* an equal one changes nothing */
        assert_true(holds("k", "one"));
        assert_int_equal(put(0, c, "k", "two", nextafter(10, 11)), PL_OK);
        assert_int_equal(put(0, c, "k", "one", 10), PL_EAGAIN);
        assert_true(holds("k", "two") && d.count == 1);
    }
}

/* Between classes the class decides, whatever the expirations. */
static void a_higher_class_replaces_a_lower_one(void **state)
{
    (void)state;
    assert_int_equal(put(0, DHT_PLAIN, "k", "plain", 100), PL_OK);
    assert_int_equal(put(0, DHT_SIGNED, "k", "signed", 5), PL_OK);
    assert_int_equal(put(0, DHT_PLAIN, "k", "plain", 200), PL_EAGAIN);
    assert_true(holds("k", "signed"));
}

static void an_item_lives_until_its_expiration(void **state)
{
    (void)state;
    assert_int_equal(put(10, DHT_PLAIN, "late", "x", nextafter(10, 0)), PL_EAGAIN);
    assert_int_equal(put(10, DHT_PLAIN, "now", "x", 10), PL_OK);
    dht_dictionary_prune(&d, 10);
    assert_int_equal(d.count, 1);
    dht_dictionary_prune(&d, nextafter(10, 11));
    assert_int_equal(d.count, 0);
    assert_int_equal(d.bytes, 0);
}

/* The greatest expiration that was ever offered, and only a greater one raises it. */
static void the_latest_is_raised_even_by_a_refused_item(void **state)
{
    (void)state;
    assert_true(d.latest == -INFINITY);
    put(10, DHT_PLAIN, "k", "x", 5);
    assert_true(d.latest == 5 && !d.count);
    put(10, DHT_PLAIN, "k", "x", 30);
    put(10, DHT_PLAIN, "l", "x", 20);
    assert_true(d.latest == 30 && d.count == 2);
}

/* A limit of items that came with the dictionary: the earliest go; of equals the smaller subkey, of
 * which a prefix is one. The order in which they came does not matter. */
static void ties_of_the_surplus(void **state)
{
    static const char *const orders[][3] = { { "aa", "a", "b" },
                                             { "b", "aa", "a" },
                                             { "a", "b", "aa" } };
    (void)state;
    for (size_t i = 0; i < PL_COUNT(orders); i++) {
        dht_dictionary_clear(&d);
        dht_dictionary_init(&d);
        d.size_max = 2;
        for (int k = 0; k < 3; k++) put(0, DHT_PLAIN, orders[i][k], "x", 10);
        assert_int_equal(d.count, 2);
        assert_true(holds("aa", "x") && holds("b", "x"));
        put(0, DHT_PLAIN, "c", "x", 9); /* the earliest, no matter its name */
        assert_true(d.count == 2 && !holds("c", "x"));
        put(0, DHT_PLAIN, "c", "x", 11);
        assert_true(d.count == 2 && holds("b", "x") && holds("c", "x"));
    }
}

/* A dictionary as another node may write it: its three parts are given as msgpack. */
static int read_parts(const char *size, size_t size_n, const char *latest, size_t latest_n,
                      const struct bytes *items)
{
    struct bytes inside = { 0 }, all = { 0 };
    struct pl_err err;
    uint8_t *exact;
    int rc;
    mp_list(&inside, 3);
    bytes_add(&inside, size, size_n);
    bytes_add(&inside, latest, latest_n);
    bytes_add(&inside, bytes_at(items), bytes_length(items));
    mp_ext(&all, MP_DICTIONARY_CODE, bytes_at(&inside), bytes_length(&inside));
    assert_false(all.failed);
    assert_non_null(exact = malloc(bytes_length(&all)));
    memcpy(exact, bytes_at(&all), bytes_length(&all));
    dht_dictionary_clear(&d);
    rc = dht_dictionary_read(&d, exact, bytes_length(&all), &err);
    free(exact);
    bytes_clear(&inside);
    bytes_clear(&all);
    return rc;
}

static int read_items_of(const struct bytes *items)
{
    return read_parts("\xc0", 1, "\x07", 1, items);
}

static void add_item(struct bytes *b, const char *subkey, const void *value, size_t n, double until)
{
    mp_list(b, 3);
    mp_text(b, subkey);
    mp_bin(b, value, n);
    mp_float(b, until);
}

static void sizes_and_times_of_another_node(void **state)
{
    static const struct {
        const char *size;
        size_t n;
        double size_max;
    } good[] = { { "\xc0", 1, INFINITY },                                 /* nil */
                 { "\x05", 1, 5 },                                        /* 5 */
                 { "\x00", 1, INFINITY },                                 /* 0 is no limit */
                 { "\xff", 1, INFINITY },                                 /* nor is -1 */
                 { "\xcb\x40\x04\x00\x00\x00\x00\x00\x00", 9, 2.5 },      /* 2.5 */
                 { "\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", 9, INFINITY }, /* Python's inf */
                 { "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, 0x1p64 } };
    static const char nan[] = "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00";
    struct bytes none = { 0 };
    (void)state;
    mp_list(&none, 0);
    for (size_t i = 0; i < PL_COUNT(good); i++) {
        assert_int_equal(read_parts(good[i].size, good[i].n, "\xd0\x9c", 2, &none), PL_OK);
        assert_true(d.size_max == good[i].size_max && d.latest == -100);
    }
    assert_int_equal(read_parts(nan, 9, "\x07", 1, &none), PL_EFORMAT);
    assert_int_equal(read_parts("\x05", 1, nan, 9, &none), PL_EFORMAT);
    assert_int_equal(read_parts("\x05", 1, "\xc0", 1, &none), PL_EFORMAT);
    assert_int_equal(read_parts("\xc3", 1, "\x07", 1, &none), PL_EFORMAT);
    assert_int_equal(read_parts("", 0, "\x07", 1, &none), PL_EFORMAT); /* two parts of three */
    bytes_clear(&none);
    mp_map(&none, 0);
    assert_int_equal(read_parts("\x05", 1, "\x07", 1, &none), PL_EFORMAT);
    bytes_clear(&none);
}

/* One item of a wrong form voids the dictionary, and nothing of it stays. */
static void items_of_a_wrong_form(void **state)
{
    static const struct {
        const char *item;
        size_t n;
        int rc;
    } cases[] = {
        { "\x93\xa1x\xc4\x01v\x09", 7, PL_OK },
        { "\x93\xc7\x03\x40\x92\x01\x02\xc4\x01v\x09", 11, PL_OK },       /* (1, 2) */
        { "\x93\xc0\xc4\x01v\x09", 6, PL_OK },                            /* nil */
        { "\x92\xa1x\xc4\x01v", 6, PL_EFORMAT },                          /* two parts */
        { "\x94\xa1x\xc4\x01v\x09\x09", 8, PL_EFORMAT },                  /* four */
        { "\x81\xa1x\x09", 4, PL_EFORMAT },                               /* a map */
        { "\x93\xa1x\xa1v\x09", 6, PL_EFORMAT },                          /* text as value */
        { "\x93\xa1x\xc4\x01v\xa1z", 8, PL_EFORMAT },                     /* text as time */
        { "\x93\xa1x\xc4\x01v\xcb\x7f\xf8\0\0\0\0\0\0", 15, PL_EFORMAT }, /* NaN */
        { "\x93\x91\x01\xc4\x01v\x09", 7, PL_EFORMAT },                   /* a list as subkey */
        { "\x93\x80\xc4\x01v\x09", 6, PL_EFORMAT },                       /* a map */
        { "\x93\xd4\x07\x01\xc4\x01v\x09", 8, PL_EFORMAT },               /* another extension */
        { "\x93\xc7\x03\x40\x92\x01\x90\xc4\x01v\x09", 11, PL_EFORMAT },  /* (1, []) */
        { "\x93\xc7\x03\x40\x92\x80\x01\xc4\x01v\x09", 11, PL_EFORMAT },  /* ({}, 1) */
    };
    (void)state;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct bytes items = { 0 };
        mp_list(&items, 2);
        add_item(&items, "first", "y", 1, 5);
        bytes_add(&items, cases[i].item, cases[i].n);
        assert_int_equal(read_items_of(&items), cases[i].rc);
        assert_int_equal(d.count, cases[i].rc ? 0 : 2);
        bytes_clear(&items);
    }
}

/* Equal subkeys in different forms are one: 7 in one byte, in two, in nine. The newest counts. */
static void one_subkey_in_several_forms(void **state)
{
    struct bytes items = { 0 };
    (void)state;
    mp_list(&items, 3);
    bytes_add(&items,
              "\x93\x07\xc4\x01"
              "a\x05",
              6);
    bytes_add(&items,
              "\x93\xcc\x07\xc4\x01"
              "b\x09",
              7);
    bytes_add(&items,
              "\x93\xcf\0\0\0\0\0\0\0\x07\xc4\x01"
              "c\x09",
              14);
    assert_int_equal(read_items_of(&items), PL_OK);
    assert_int_equal(d.count, 1);
    assert_true(holds("\x07", "b")); /* c is as late: it changes nothing */
    bytes_clear(&items);
}

/* Longer than any dictionary: that item is left out, the others stay. Many within the limit of one:
 * refused as a whole. */
static void items_that_are_too_long(void **state)
{
    uint8_t *large = calloc(1, DHT_DICTIONARY_MAX + 1);
    struct bytes items = { 0 };
    (void)state;
    for (int which = 0; which < 2; which++) {
        mp_list(&items, 3);
        add_item(&items, "a", "x", 1, 5);
        mp_list(&items, 3);
        mp_bin(&items, large, which ? 1 : DHT_DICTIONARY_MAX + 1);
        mp_bin(&items, large, which ? DHT_DICTIONARY_MAX + 1 : 1);
        mp_int(&items, 9);
        add_item(&items, "b", "y", 1, 5);
        assert_int_equal(read_items_of(&items), PL_OK);
        assert_int_equal(d.count, 2);
        assert_true(holds("\xa1"
                          "a",
                          "x") &&
                    holds("\xa1"
                          "b",
                          "y"));
        bytes_clear(&items);
    }
    for (size_t n = 4; n <= 5; n++) { /* four are 8 MiB and a little: too much; so are five */
        mp_list(&items, n);
        for (size_t i = 0; i < n; i++)
            add_item(&items, (const char *const[]){ "a", "b", "c", "d", "e" }[i], large,
                     DHT_DICTIONARY_READ_MAX / 4, 5);
        assert_int_equal(read_items_of(&items), PL_ELIMIT);
        assert_int_equal(d.count, 0);
        bytes_clear(&items);
    }
    mp_list(&items, 4); /* exactly the limit: allowed */
    for (size_t i = 0; i < 4; i++)
        add_item(&items, (const char *const[]){ "a", "b", "c", "d" }[i], large,
                 DHT_DICTIONARY_READ_MAX / 4 - DHT_RECORD_COST - 2, 5);
    assert_int_equal(read_items_of(&items), PL_OK);
    assert_int_equal(d.bytes, DHT_DICTIONARY_READ_MAX);
    bytes_clear(&items);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_greater_expiration_wins, begin, end),
        cmocka_unit_test_setup_teardown(a_higher_class_replaces_a_lower_one, begin, end),
        cmocka_unit_test_setup_teardown(an_item_lives_until_its_expiration, begin, end),
        cmocka_unit_test_setup_teardown(the_latest_is_raised_even_by_a_refused_item, begin, end),
        cmocka_unit_test_setup_teardown(ties_of_the_surplus, begin, end),
        cmocka_unit_test_setup_teardown(sizes_and_times_of_another_node, begin, end),
        cmocka_unit_test_setup_teardown(items_of_a_wrong_form, begin, end),
        cmocka_unit_test_setup_teardown(one_subkey_in_several_forms, begin, end),
        cmocka_unit_test_setup_teardown(items_that_are_too_long, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
