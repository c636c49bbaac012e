/* run_records.c - a run's dictionaries as the page's records: records that do not fit their schema
 * are counted and left out. */
#include "net/http/dashboard/run_records.h"
#include "test/unit/unit.h"

#define NOW 1000.0

static struct dht_dictionary d;
static struct run_records l;

static int begin(void **state)
{
    dht_dictionary_init(&d);
    memset(&l, 0, sizeof l);
    return 0;
}

static int end(void **state)
{
    dht_dictionary_clear(&d);
    run_records_clear(&l);
    assert_true(!l.metrics && !l.progress && !l.report && !l.searching && !l.refused &&
                !l.metrics_count && !l.progress_count && !l.report_count);
    return 0;
}

static void put(const char *subkey, const void *value, size_t n, double until)
{
    const struct dht_item item = { .subkey = (uint8_t *)(uintptr_t)subkey,
                                   .subkey_n = strlen(subkey),
                                   .value = (uint8_t *)(uintptr_t)value,
                                   .n = n,
                                   .expiration = until,
                                   .from = { 1, 1, 0, DHT_SIGNED } };
    assert_int_equal(dht_dictionary_put(&d, NOW, &item), PL_OK);
}

static void put_bytes(const char *subkey, struct bytes *b, double until)
{
    put(subkey, bytes_at(b), bytes_length(b), until);
    bytes_clear(b);
}

/* By the first 16 bytes of SHA-256("a"), in hex. */
static const char key_of_a[] = "ca978112ca1bbdcafac231b39a23dc4d";

static void metrics_of_a_run(void **state)
{
    struct bytes b = { 0 };
    assert_int_equal(metrics_write(&b, &(struct metrics_record){ 7, 2, 30, 4, 5 }), PL_OK);
    put("bad", "x", 1, NOW + 20);
    put_bytes("a", &b, NOW + 33);
    put("worse", "", 0, NOW + 20);
    for (int again = 0; again < 2; again++) { /* each poll begins anew; refused records add up */
        assert_int_equal(run_records_metrics(&l, &d), PL_OK);
        assert_int_equal(l.metrics_count, 1);
        assert_int_equal(l.refused, 2 * (again + 1));
    }
    assert_string_equal(l.metrics->key, key_of_a);
    assert_true(l.metrics->expiration == NOW + 33);
    assert_int_equal(l.metrics->record.step, 7);
    assert_int_equal(l.metrics->record.samples, 30);
}

/* nil is a peer that has left: neither shown nor refused. */
static void progress_of_a_run(void **state)
{
    struct progress_record r = { .peer = { .length = 34, .bytes = { 0x12, 0x20, 7 } },
                                 .epoch = 3,
                                 .samples = 8,
                                 .samples_per_second = 2,
                                 .time = NOW };
    struct bytes b = { 0 };
    put("bad", "x", 1, NOW + 20);
    put("left", "\xc0", 1, NOW + 20);
    assert_int_equal(progress_write(&b, &r), PL_OK);
    put_bytes("a", &b, NOW + 20);
    for (int again = 0; again < 2; again++) assert_int_equal(run_records_progress(&l, &d), PL_OK);
    assert_int_equal(l.progress_count, 1);
    assert_int_equal(l.refused, 2);
    assert_string_equal(l.progress->key, key_of_a);
    assert_int_equal(l.progress->record.epoch, 3);
    assert_true(peer_id_equal(&l.progress->record.peer, &r.peer));
}

static void reports_of_a_run(void **state)
{
    struct report_record r = { .version = "v", .device = "d", .rounds = 4, .held_out = 2 };
    struct bytes b = { 0 };
    put("bad", "x", 1, NOW + 20);
    assert_int_equal(report_write(&b, &r), PL_OK);
    put_bytes("a", &b, NOW + 20);
    for (int again = 0; again < 2; again++) assert_int_equal(run_records_report(&l, &d), PL_OK);
    assert_int_equal(l.report_count, 1);
    assert_int_equal(l.refused, 2);
    assert_string_equal(l.report->key, key_of_a);
    assert_int_equal(l.report->record.rounds, 4);
}

/* msgpack's true alone; false: found a group, or has given up. */
static void peers_that_search_for_a_group(void **state)
{
    put("a", "\xc3", 1, NOW + 20);
    put("b", "\xc2", 1, NOW + 20);
    put("c", "\xc3\xc3", 2, NOW + 20);
    put("d", "\xc3", 1, NOW + 20);
    put("e", "", 0, NOW + 20);
    for (int again = 0; again < 2; again++) assert_int_equal(run_records_group(&l, &d), PL_OK);
    assert_int_equal(l.searching, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(metrics_of_a_run, begin, end),
        cmocka_unit_test_setup_teardown(progress_of_a_run, begin, end),
        cmocka_unit_test_setup_teardown(reports_of_a_run, begin, end),
        cmocka_unit_test_setup_teardown(peers_that_search_for_a_group, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
