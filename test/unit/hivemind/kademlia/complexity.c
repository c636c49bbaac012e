/* complexity.c - the DHT's parsers and stores, with n and 2n and with the longest message. Those of the
 * transport, of averaging and of HTTP are in complexity_wire.c. */
#include "test/unit/net/complexity_work.h"
#include "net/hivemind/kademlia/dht_message.h"
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/hivemind/records/run_manifest.h"
#include "net/hivemind/records/validate.h"

static struct validators guarded;

/* --- inputs: n bytes or elements -------------------------------------------------------------- */

static void repeat(struct bytes *b, const char *what, size_t length, size_t n)
{
    uint8_t *to = bytes_reserve(b, n);
    assert_non_null(to);
    for (size_t i = 0; i < n; i++) to[i] = (uint8_t)what[i % length];
    b->end += n;
}

static void make_signatures(struct bytes *b, size_t n) { repeat(b, "[signature:", 11, n); }
static void make_closed_signatures(struct bytes *b, size_t n) { repeat(b, "[signature:]", 12, n); }
static void make_signature_lines(struct bytes *b, size_t n) { repeat(b, "[signature:x\n", 13, n); }
static void make_real_signatures(struct bytes *b, size_t n) { repeat(b, "[signature:x]", 13, n); }

/* A list of n bytes' worth of maps in maps. */
static void make_maps(struct bytes *b, size_t n)
{
    size_t count = n / 8;
    mp_list(b, count);
    for (size_t i = 0; i < count; i++) repeat(b, "\x81\xa1x\x81\xa1y\x91\xc0", 8, 8);
}

/* A tuple in a tuple, MP_DEPTH_MAX / 4 times, around n bytes. */
static void make_tuples(struct bytes *b, size_t n)
{
    struct bytes inside = { 0 }, outside = { 0 };
    repeat(&outside, "x", 1, n);
    mp_bin(&inside, bytes_at(&outside), n);
    for (int i = 0; i < MP_DEPTH_MAX / 4; i++) {
        bytes_clear(&outside);
        bytes_u8(&outside, 0x91);
        bytes_add(&outside, bytes_at(&inside), bytes_length(&inside));
        bytes_clear(&inside);
        mp_ext(&inside, MP_TUPLE_CODE, bytes_at(&outside), bytes_length(&outside));
    }
    bytes_add(b, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
    bytes_clear(&outside);
}

/* A report's map with n bytes of unknown fields. */
static void make_fields(struct bytes *b, size_t n)
{
    size_t count = n / 6;
    mp_map(b, count);
    for (size_t i = 0; i < count; i++) repeat(b, "\xa4what\xc0", 6, 6);
}

/* A dictionary with short items, 22 bytes each, under subkeys of their numbers. */
static void make_dictionary(struct bytes *b, size_t n)
{
    struct bytes inside = { 0 };
    size_t count = n / 22;
    mp_list(&inside, 3);
    mp_float(&inside, INFINITY);
    mp_float(&inside, 60);
    mp_list(&inside, count);
    for (size_t i = 0; i < count; i++) {
        mp_list(&inside, 3);
        mp_uint(&inside, UINT32_MAX + (uint64_t)i);
        mp_bin(&inside, "\xc0", 1);
        mp_float(&inside, 60);
    }
    mp_ext(b, MP_DICTIONARY_CODE, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
}

static void make_declarations(struct bytes *b, size_t n)
{
    struct bytes inside = { 0 };
    size_t count = n / 50;
    mp_list(&inside, 3);
    mp_float(&inside, INFINITY);
    mp_float(&inside, 60);
    mp_list(&inside, count);
    for (size_t i = 0; i < count; i++) {
        uint8_t peer[34] = { 0x12, 0x20 };
        memcpy(peer + 2, &i, sizeof i);
        mp_list(&inside, 3);
        mp_bin(&inside, peer, sizeof peer);
        mp_bin(&inside, "\xc3", 1);
        mp_float(&inside, 60);
    }
    mp_ext(b, MP_DICTIONARY_CODE, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
}

/* Requests, of n bytes. */
static void make_keys(struct bytes *b, size_t n)
{
    struct dht_id *keys = calloc(n / 22 + 1, sizeof *keys);
    dht_write_find(b, NULL, keys, n / 22);
    free(keys);
}

static void make_store(struct bytes *b, size_t n)
{
    size_t count = n / 40;
    struct dht_record *records = calloc(count + 1, sizeof *records);
    for (size_t i = 0; i < count; i++) {
        memcpy(records[i].key.bytes, &i, sizeof i);
        records[i].subkey = dht_no_subkey;
        records[i].subkey_n = 1;
        records[i].value = dht_no_subkey;
        records[i].n = 1;
        records[i].expiration = 60;
    }
    dht_write_store(b, NULL, records, count);
    free(records);
}

/* The caller's node repeated many times: the fields of one message are merged. */
static void make_callers(struct bytes *b, size_t n)
{
    struct dht_id self = { { 1 } };
    struct bytes one = { 0 };
    dht_write_find(&one, &self, NULL, 0);
    repeat(b, (const char *)bytes_at(&one), bytes_length(&one),
           n / bytes_length(&one) * bytes_length(&one));
    bytes_clear(&one);
}

/* A manifest's object with unknown fields of later versions, and with lists in lists. */
static void make_manifest_fields(struct bytes *b, size_t n)
{
    bytes_u8(b, '{');
    for (size_t i = 0; i < n / 16 - 1; i++) {
        char field[32];
        bytes_add(b, field,
                  (size_t)snprintf(field, sizeof field, "%s\"%08zx\":[0]", i ? "," : "", i));
    }
    bytes_u8(b, '}');
}
static void make_open_lists(struct bytes *b, size_t n) { repeat(b, "[", 1, n); }

/* --- what is done with them ------------------------------------------------------------------- */

static void strip(const uint8_t *data, size_t n)
{
    struct bytes out = { 0 };
    record_strip(&out, data, n);
    bytes_clear(&out);
}

/* As a value whose key has an owner, and as one without an owner. */
static void check(const uint8_t *data, size_t n)
{
    struct record r = { .key = (const uint8_t *)"[owner:ssh-rsa AAAA]",
                        .key_n = 20,
                        .subkey = dht_no_subkey,
                        .subkey_n = 1,
                        .value = data,
                        .n = n,
                        .expiration = 60 };
    record_check(&guarded, &r, NULL);
    r.key = (const uint8_t *)"01234567890123456789";
    record_check(&guarded, &r, NULL);
}

static void store_subkey(const uint8_t *data, size_t n)
{
    struct dht_id self = { { 1 } };
    struct dht_state node;
    struct dht_record r = {
        .subkey = data, .subkey_n = n, .value = dht_no_subkey, .n = 1, .expiration = 60
    };
    dht_state_init(&node, &self, 0, &guarded);
    dht_state_store(&node, 0, &r);
    dht_state_clear(&node);
}

static void read_value(const uint8_t *data, size_t n)
{
    struct bytes out = { 0 };
    struct mp_value *v;
    if (!mp_read(&v, data, n, NULL)) {
        mp_write(&out, v);
        mp_free(v);
    }
    bytes_clear(&out);
}

static void check_report(const uint8_t *data, size_t n)
{
    struct mp_value *v;
    if (mp_read(&v, data, n, NULL)) return;
    schema_check(&schema_report, v, NULL);
    mp_free(v);
}

static void read_manifest(const uint8_t *data, size_t n)
{
    struct run_manifest m;
    manifest_read(&m, (const char *)data, n, NULL);
}

/* A node is given a whole dictionary to keep. */
static void store_dictionary(const uint8_t *data, size_t n)
{
    struct dht_id self = { { 1 } };
    struct dht_state node;
    struct dht_record r = { .subkey = data, .value = data, .n = n, .expiration = 60 };
    dht_state_init(&node, &self, 0, &guarded);
    dht_state_store(&node, 0, &r);
    dht_state_clear(&node);
}

/* Three nodes answer with it. */
static void find_dictionary(const uint8_t *data, size_t n)
{
    const struct dht_id key = { { 1 } };
    struct dht_result r;
    dht_result_init(&r);
    for (uint8_t i = 0; i < 3; i++) {
        const struct peer_id peer = { 34, { 0x12, 0x20, i } };
        const struct dht_reporter from = { .peer = &peer };
        dht_result_merge(&r, &guarded, &key, &from, DHT_FOUND_DICTIONARY, data, n, 60);
    }
    dht_result_finish(&r, 1);
    dht_result_clear(&r);
}

static void serve(enum dht_call call, const uint8_t *data, size_t n)
{
    const struct dht_caller caller = { { 34, { 0x12, 0x20 } }, 1, 0 };
    struct dht_id self = { { 1 } };
    struct dht_state node;
    struct dht_request r;
    struct bytes answer = { 0 };
    dht_state_init(&node, &self, 0, &guarded);
    dht_serve(&node, call, 0, &caller, data, n, &answer, &r, NULL);
    dht_request_clear(&r);
    bytes_clear(&answer);
    dht_state_clear(&node);
}

static void serve_find(const uint8_t *data, size_t n) { serve(DHT_FIND, data, n); }
static void serve_store(const uint8_t *data, size_t n) { serve(DHT_STORE, data, n); }

/* n bytes of single records from many callers: the store is filled many times over, and each time a
 * record to evict is found. */
static void fill(const uint8_t *data, size_t n, int as_items)
{
    struct dht_store s;
    dht_store_init(&s, 1 << 20);
    for (uint64_t i = 0; i < n / 40; i++) {
        struct dht_id key = { { 0 } };
        struct dht_item item = { .subkey = as_items ? (uint8_t *)&i : NULL,
                                 .subkey_n = as_items ? sizeof i : 0,
                                 .value = (uint8_t *)(uintptr_t)data,
                                 .n = 1,
                                 .expiration = 60,
                                 .from = { 1, i % 100, 0, DHT_PLAIN } };
        if (!as_items) memcpy(key.bytes, &i, sizeof i);
        dht_store_put(&s, 0, &key, &item);
    }
    dht_store_clear(&s);
}

static void fill_with_values(const uint8_t *data, size_t n) { fill(data, n, 0); }
static void fill_with_items(const uint8_t *data, size_t n) { fill(data, n, 1); }

static const struct work works[] = {
    { "tags of signatures, stripped", make_signatures, strip, 0 },
    { "tags with nothing inside, stripped", make_closed_signatures, strip, 0 },
    { "broken tags, stripped", make_signature_lines, strip, 0 },
    { "signatures, stripped", make_real_signatures, strip, 0 },
    { "tags of signatures, checked", make_signatures, check, 0 },
    { "broken tags, checked", make_signature_lines, check, 0 },
    { "a long subkey", make_tuples, store_subkey, 0 },
    { "maps in a list", make_maps, read_value, 0 },
    { "tuples in each other", make_tuples, read_value, 0 },
    { "a report's fields", make_fields, check_report, 0 },
    { "a manifest's unknown fields", make_manifest_fields, read_manifest, MANIFEST_BYTES_MAX },
    { "a manifest of open lists", make_open_lists, read_manifest, MANIFEST_BYTES_MAX },
    { "a dictionary to keep", make_dictionary, store_dictionary, 0 },
    { "a dictionary found", make_dictionary, find_dictionary, 0 },
    { "declarations found", make_declarations, find_dictionary, 0 },
    { "a request for keys", make_keys, serve_find, 0 },
    { "a request to store", make_store, serve_store, 0 },
    { "a caller repeated", make_callers, serve_find, 0 },
    { "values that fill the store", make_signatures, fill_with_values, 0 },
    { "items that fill a dictionary", make_signatures, fill_with_items, 0 },
};

static void work_grows_linearly(void **state)
{
    for (size_t i = 0; i < PL_COUNT(works); i++) is_linear(&works[i]);
}

static void longest_message_is_quick(void **state)
{
    for (size_t i = 0; i < PL_COUNT(works); i++) is_quick(&works[i]);
}

static int setup(void **state) { return validators_add_run(&guarded, "run"); }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(work_grows_linearly),
                                        cmocka_unit_test(longest_message_is_quick) };
    return cmocka_run_group_tests(tests, setup, NULL);
}
