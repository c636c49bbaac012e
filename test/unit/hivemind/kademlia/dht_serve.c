/* dht_serve.c - what a node stores and answers, as functions of requests and the time: forms of records, storage and
 * cache, limits of an answer, what a newcomer gets. [spec hivemind-protocol 1.3, 1.4] */
#include "net/hivemind/kademlia/dht_serve.h"
#include "test/unit/unit.h"

#include <math.h>

static struct dht_state s;
static const uint8_t short_form[] = { 0xa2, 'a', 'b' }, long_form[] = { 0xd9, 2, 'a', 'b' };
static const uint8_t one[] = { 1 };

static struct dht_id id_of(int first, int last)
{
    struct dht_id id = { .bytes = { (uint8_t)first } };
    id.bytes[DHT_ID_BYTES - 1] = (uint8_t)last;
    return id;
}

static void begin_as(int client_mode)
{
    const struct dht_id self = id_of(0, 1);
    assert_int_equal(dht_state_init(&s, &self, client_mode, NULL), PL_OK);
}

static int begin(void **state)
{
    begin_as(0);
    return 0;
}

static int end(void **state)
{
    dht_state_clear(&s);
    return 0;
}

static int store(int in_cache, const uint8_t *subkey, size_t subkey_n, const uint8_t *value,
                 size_t n, double expiration)
{
    const struct dht_record r = { .key = id_of(0, 9),
                                  .subkey = subkey,
                                  .subkey_n = subkey_n,
                                  .value = value,
                                  .n = n,
                                  .expiration = expiration,
                                  .in_cache = in_cache };
    return dht_state_store(&s, 100, &r);
}

static int store_value(int in_cache, const uint8_t *value, double expiration)
{
    return store(in_cache, dht_no_subkey, 1, value, 1, expiration);
}

static const struct dht_entry *get(double now)
{
    const struct dht_id key = id_of(0, 9);
    return dht_state_get(&s, now, &key);
}

/* --- storing ---------------------------------------------------------------------------------- */

/* Equal subkeys are equal bytes, in whatever form of msgpack they come. */
static void subkeys_have_one_form(void **state)
{
    assert_int_equal(store(0, long_form, sizeof long_form, one, 1, 150), PL_OK);
    assert_non_null(dht_dictionary_find(&get(100)->dictionary, short_form, sizeof short_form));
    assert_int_equal(store(0, short_form, sizeof short_form, one, 1, 160), PL_OK);
    assert_int_equal(get(100)->dictionary.count, 1);
    assert_int_equal(store(0, long_form, sizeof long_form, one, 1, 155), PL_EAGAIN);
    assert_int_equal(store(0, (const uint8_t *)"\xa2z", 2, one, 1, 155), PL_EAGAIN);
}

/* The good items behind a bad one are kept; the answer says no. */
static void a_dictionary_is_taken_item_by_item(void **state)
{
    struct dht_dictionary d;
    struct bytes packed = { 0 };
    dht_dictionary_init(&d);
    assert_int_equal(dht_dictionary_store(&d, 0, short_form, 3, one, 1, 50), PL_OK); /* expired */
    assert_int_equal(dht_dictionary_store(&d, 0, "\x05", 1, one, 1, 150), PL_OK);
    assert_int_equal(dht_dictionary_store(&d, 0, "\x06", 1, one, 1, 160), PL_OK);
    assert_int_equal(dht_dictionary_write(&packed, &d), PL_OK);
    assert_int_equal(store(0, NULL, 0, bytes_at(&packed), bytes_length(&packed), 160), PL_EAGAIN);
    assert_int_equal(get(100)->dictionary.count, 2);
    assert_non_null(dht_dictionary_find(&get(100)->dictionary, "\x06", 1));
    assert_int_equal(store(0, NULL, 0, one, 1, 160), PL_EAGAIN); /* no dictionary at all */
    dht_dictionary_clear(&d);
    bytes_clear(&packed);
}

/* Of equal classes the later expiration is shown, of equal times the storage's. */
static void storage_and_cache(void **state)
{
    static const uint8_t two[] = { 2 }, three[] = { 3 };
    assert_null(get(100));
    assert_int_equal(store_value(1, one, 150), PL_OK);
    assert_int_equal(get(100)->value[0], 1);
    assert_int_equal(store_value(0, two, 150), PL_OK);
    assert_int_equal(get(100)->value[0], 2);
    assert_int_equal(store_value(1, three, 151), PL_OK);
    assert_int_equal(get(100)->value[0], 3);
    assert_true(s.storage.count == 1 && s.cache.count == 1);
    assert_int_equal(get(150.5)->value[0], 3);
    assert_null(get(151.5));
}

/* --- answers ---------------------------------------------------------------------------------- */

static int serve(enum dht_call call, const struct bytes *request, size_t count,
                 struct dht_request *r, struct dht_answer *a)
{
    const struct dht_caller caller = { .peer = { .length = 34, .bytes = { 0x12, 0x20 } } };
    struct bytes answer = { 0 };
    struct pl_err err = { "" };
    int rc = dht_serve(&s, call, 100, &caller, bytes_at(request), bytes_length(request), &answer, r,
                       &err);
    if (!rc && bytes_length(&answer) &&
        dht_read_answer(a, call, count, bytes_at(&answer), bytes_length(&answer), &err))
        fail_msg("%s", err.text);
    bytes_clear(&answer);
    return rc;
}

/* One result for each record. Only a caller with another id than ours is a node for the table. */
static void a_store_is_answered_record_by_record(void **state)
{
    const struct dht_id theirs = id_of(0, 7);
    struct dht_record records[] = { { id_of(0, 3), dht_no_subkey, one, 1, 1, 150, 0, NULL },
                                    { id_of(0, 4), dht_no_subkey, one, 1, 1, 99, 0, NULL },
                                    { id_of(0, 5), dht_no_subkey, one, 1, 1, 150, 1, NULL } };
    for (int own = 0; own < 2; own++) {
        struct bytes request = { 0 };
        struct dht_request r;
        struct dht_answer a;
        assert_int_equal(dht_write_store(&request, own ? &s.self : &theirs, records, 3), PL_OK);
        assert_int_equal(serve(DHT_STORE, &request, 3, &r, &a), PL_OK);
        assert_int_equal(r.has_id, !own);
        assert_true(a.ok[0] == !own && !a.ok[1] && a.ok[2] == !own); /* equal expirations: known */
        assert_true(s.storage.count == 1 && s.cache.count == 1);
        dht_answer_clear(&a);
        dht_request_clear(&r);
        bytes_clear(&request);
    }
}

/* The record if there is one, and the nearest nodes without the caller. */
static void a_find_brings_record_and_neighbours(void **state)
{
    const struct dht_id theirs = id_of(0, 7);
    const struct dht_id keys[] = { id_of(0, 9), id_of(0, 8), id_of(0, 9) };
    struct bytes request = { 0 };
    struct dht_request r;
    struct dht_answer a;
    for (int i = 0; i < 3; i++) {
        const struct dht_id id = id_of(0, 5 + i);
        const struct peer_id peer = { .length = 34, .bytes = { 0x12, 0x20, (uint8_t)i } };
        assert_int_equal(dht_routing_add(&s.routing, &id, &peer, 1, NULL), PL_OK);
    }
    assert_int_equal(store_value(0, one, 150), PL_OK);
    assert_int_equal(dht_write_find(&request, &theirs, keys, 3), PL_OK);
    assert_int_equal(serve(DHT_FIND, &request, 3, &r, &a), PL_OK);
    assert_int_equal(a.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(a.found[i].type, i == 1 ? DHT_NOT_FOUND : DHT_FOUND_REGULAR);
        assert_int_equal(a.found[i].nearest_count, 2);
        if (i == 1) continue;
        assert_true(a.found[i].n == 1 && a.found[i].value[0] == 1 && a.found[i].expiration == 150);
    }
    dht_answer_clear(&a);
    dht_request_clear(&r);
    bytes_clear(&request);
}

/* 3 MiB of values: what does not fit counts as not found, what follows may still fit. */
static void an_answer_is_bounded(void **state)
{
    const size_t large = DHT_VALUE_MAX, fit = DHT_ANSWER_MAX / large;
    struct dht_id keys[40];
    struct bytes request = { 0 };
    struct dht_request r;
    struct dht_answer a;
    uint8_t *value = calloc(large, 1);
    assert_non_null(value);
    assert_true(fit > 1 && fit + 2 < PL_COUNT(keys) && DHT_ANSWER_MAX % large == 0);
    for (size_t i = 0; i < fit + 2; i++) {
        struct dht_record rec = { .subkey = dht_no_subkey, .subkey_n = 1, .value = value };
        rec.key = keys[i] = id_of(1, (int)i);
        rec.n = i == fit + 1 ? 1 : i == 0 ? large - 1 : large;
        rec.expiration = 150;
        assert_int_equal(dht_state_store(&s, 100, &rec), PL_OK);
    }
    assert_int_equal(dht_write_find(&request, NULL, keys, fit + 2), PL_OK);
    assert_int_equal(serve(DHT_FIND, &request, fit + 2, &r, &a), PL_OK);
    for (size_t i = 0; i < fit + 2; i++)
        assert_int_equal(a.found[i].type, i == fit ? DHT_NOT_FOUND : DHT_FOUND_REGULAR);
    assert_int_equal(a.found[fit + 1].n, 1);
    dht_answer_clear(&a);
    dht_request_clear(&r);
    bytes_clear(&request);
    free(value);
}

static void a_client_tells_no_id(void **state)
{
    assert_ptr_equal(dht_state_self(&s), &s.self);
    dht_state_clear(&s);
    begin_as(1);
    assert_null(dht_state_self(&s));
}

/* --- newcomers -------------------------------------------------------------------------------- */

static size_t handed_over(const struct dht_id *newcomer)
{
    struct dht_record *records;
    struct bytes packed = { 0 };
    size_t count;
    assert_int_equal(dht_state_hand_over(&s, 100, newcomer, &records, &count, &packed), PL_OK);
    for (size_t i = 0; i < count; i++) {
        assert_true(dht_is_regular(&records[i]) || !records[i].subkey_n);
        assert_true(records[i].n > 0 && records[i].expiration >= 100);
    }
    free(records);
    bytes_clear(&packed);
    return count;
}

/* The nearest of a key's replicas hands it over, if the newcomer displaces the farthest. */
static void newcomers_get_what_is_theirs(void **state)
{
    struct dht_id newcomer = id_of(0, 8 ^ 4), other;
    struct peer_id peer = { .length = 34, .bytes = { 0x12, 0x20 } };
    assert_int_equal(store_value(0, one, 150), PL_OK); /* key 9: we are at distance 8 */
    assert_int_equal(handed_over(&newcomer), 1);       /* nobody else could */
    for (int i = 0; i < DHT_REPLICAS; i++) {
        other = id_of(0, 9 ^ (16 + i)); /* distances 16 to 20 */
        peer.bytes[2] = (uint8_t)i;
        assert_int_equal(dht_routing_add(&s.routing, &other, &peer, 1, NULL), PL_OK);
    }
    assert_int_equal(handed_over(&newcomer), 1);
    newcomer = id_of(0, 9 ^ 21); /* beyond all replicas */
    assert_int_equal(handed_over(&newcomer), 0);
    newcomer = id_of(0, 9 ^ 4);
    other = id_of(0, 9 ^ 7); /* nearer than we are: it hands the record over */
    peer.bytes[2] = 99;
    assert_int_equal(dht_routing_add(&s.routing, &other, &peer, 1, NULL), PL_OK);
    assert_int_equal(handed_over(&newcomer), 0);
    assert_int_equal(handed_over(&other), 1); /* unless it is the newcomer */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(subkeys_have_one_form, begin, end),
        cmocka_unit_test_setup_teardown(a_dictionary_is_taken_item_by_item, begin, end),
        cmocka_unit_test_setup_teardown(storage_and_cache, begin, end),
        cmocka_unit_test_setup_teardown(a_store_is_answered_record_by_record, begin, end),
        cmocka_unit_test_setup_teardown(a_find_brings_record_and_neighbours, begin, end),
        cmocka_unit_test_setup_teardown(an_answer_is_bounded, begin, end),
        cmocka_unit_test_setup_teardown(a_client_tells_no_id, begin, end),
        cmocka_unit_test_setup_teardown(newcomers_get_what_is_theirs, begin, end),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
