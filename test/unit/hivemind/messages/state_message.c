/* state_message.c - a state as it travels: what a donor sends is what a newcomer has, each bound at
 * n and n + 1, and the metadata of an optimizer there and back. state_load.c has whole loads that
 * are refused. [spec hivemind-protocol 7] */
#include "net/hivemind/messages/state_message.h"
#include "net/hivemind/messages/msgpack.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

static const struct schema_tensor schema[2] = {
    { .type = { .dtype = PL_F32, .dims = 2, .size = { 200, 300 } } },
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 50 } } },
};
#define VALUES 60050
static float values[VALUES];
static struct pl_backend be;
static struct state_load load;
static struct pl_err err;

static int begin(void **state)
{
    pl_backend_ref(&be);
    for (size_t i = 0; i < VALUES; i++) values[i] = (float)i - 1000.5f;
    memset(&load, 0, sizeof load);
    return 0;
}

static int end(void **state)
{
    state_load_clear(&load);
    return 0;
}

static struct state_source whole(const struct state_tensor tensors[2])
{
    return (struct state_source){
        .metadata = (const uint8_t *)"meta", .metadata_n = 4, .tensors = tensors, .count = 2
    };
}

static const struct state_tensor two[2] = {
    { { .dtype = PL_F32, .dims = 2, .size = { 200, 300 } }, PL_COMPRESS_NONE, values },
    { { .dtype = PL_F32, .dims = 1, .size = { 50 } }, PL_COMPRESS_NONE, values + 60000 },
};

/* Adds up to `most` messages of it. */
static int add(struct state_source *source, size_t most)
{
    struct bytes message = { 0 };
    int rc = PL_OK;
    while (!rc && most-- && !state_source_next(source, &message, &be, NULL)) {
        assert_true(bytes_length(&message) <= state_load_message_max(&load));
        rc = state_load_add(&load, bytes_at(&message), bytes_length(&message), &err);
        bytes_clear(&message);
    }
    return rc;
}

/* 240,000 bytes are four pieces; the metadata are in the first message, byte by byte. */
static void a_state_arrives_as_it_was(void **state)
{
    struct state_source source = whole(two);
    state_load_expect(&load, schema, 2);
    assert_int_equal(add(&source, 1), PL_OK);
    assert_int_equal(load.metadata_n, 4);
    assert_memory_equal(load.metadata, "meta", 4);
    assert_int_equal(load.count, 0);
    assert_int_equal(state_load_finish(&load, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "within tensor 0"));
    assert_int_equal(add(&source, 3), PL_OK);
    assert_int_equal(load.count, 1);
    assert_int_equal(state_load_finish(&load, &err), PL_EUSE); /* one of two */
    assert_int_equal(add(&source, SIZE_MAX), PL_OK);
    assert_int_equal(state_load_finish(&load, &err), PL_OK);
    assert_int_equal(load.count, 2);
    assert_int_equal(load.bytes, 4 * VALUES);
    assert_memory_equal(load.tensors[0].buffer, values, 4 * 60000);
    assert_memory_equal(load.tensors[1].buffer, values + 60000, 4 * 50);
    assert_int_equal(load.messages, 5);
    state_source_clear(&source);
}

/* What a state of this model may take at most. [state_message.h] */
static void expectations(void **state)
{
    const size_t bytes = 4 * 4 * VALUES + 3 * 16384, messages = bytes / 1024 + 48 + 1;
    state_load_expect(&load, schema, 2);
    assert_int_equal(load.bytes_max, bytes);
    assert_int_equal(load.tensors_max, 48);
    assert_int_equal(load.metadata_max, 65536 + 2 * 1024);
    assert_int_equal(state_load_message_max(&load), 65536 + 2 * 1024 + 2 * TENSOR_PIECE);
    for (size_t i = 0; i < messages; i++)
        assert_int_equal(state_load_add(&load, NULL, 0, &err), PL_OK);
    assert_int_equal(state_load_add(&load, NULL, 0, &err), PL_ELIMIT);
    state_load_clear(&load);
    state_load_expect_any(&load, 1000, 5);
    assert_int_equal(load.bytes_max, 16384 + 1000);
    assert_int_equal(load.tensors_max, 6);
    state_load_expect_any(&load, 1000, STATE_TENSORS_MAX);
    assert_int_equal(load.tensors_max, STATE_TENSORS_MAX);
}

/* With nothing expected the constants are the bounds. */
static void nothing_expected(void **state)
{
    struct state_source source = whole(two);
    assert_int_equal(state_load_message_max(&load), STATE_METADATA_MAX + 2 * TENSOR_PIECE);
    assert_int_equal(state_load_finish(&load, &err), PL_ENOTFOUND);
    assert_int_equal(add(&source, SIZE_MAX), PL_OK);
    assert_int_equal(state_load_finish(&load, &err), PL_OK);
    state_source_clear(&source);
}

/* Metadata once, in the first message, as long as they may be. */
static void metadata_come_once(void **state)
{
    const size_t most = 65536 + 2 * 1024;
    struct state_source source = whole(two);
    struct bytes message = { 0 };
    uint8_t *zeros = calloc(most + 1, 1);
    const uint8_t again[] = { 0x0a, 1, 'm' };
    state_load_expect(&load, schema, 2);
    for (size_t n = most + 1; n >= most; n--) {
        bytes_u8(&message, 0x0a);
        bytes_varint(&message, n);
        bytes_add(&message, zeros, n);
        assert_int_equal(state_load_add(&load, bytes_at(&message), bytes_length(&message), &err),
                         n > most ? PL_ELIMIT : PL_OK);
        bytes_clear(&message);
    }
    assert_int_equal(load.metadata_n, most);
    assert_int_equal(state_load_add(&load, again, sizeof again, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "metadata after the first message"));
    state_load_clear(&load);
    state_load_expect(&load, schema, 2);
    source.metadata_n = 0;
    assert_int_equal(add(&source, 2), PL_OK); /* no bytes of metadata are metadata, too */
    assert_int_equal(load.metadata_n, 0);
    assert_int_equal(state_load_add(&load, again, sizeof again, &err), PL_EFORMAT);
    state_source_clear(&source);
    free(zeros);
}

/* Tensors alone are no state. */
static void a_state_without_metadata(void **state)
{
    struct state_source source = whole(two);
    struct bytes message = { 0 };
    state_load_expect(&load, schema, 2);
    assert_int_equal(state_source_next(&source, &message, &be, NULL), PL_OK);
    bytes_take(&message, 2 + 4); /* a key, a length, "meta" */
    assert_int_equal(state_load_add(&load, bytes_at(&message), bytes_length(&message), &err),
                     PL_OK);
    assert_int_equal(add(&source, SIZE_MAX), PL_OK);
    assert_int_equal(load.count, 2);
    assert_int_equal(state_load_finish(&load, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "without metadata"));
    bytes_clear(&message);
    state_source_clear(&source);
}

static void messages_that_cannot_be_read(void **state)
{
    static const uint8_t cut[] = { 0x0a, 5, 'm' }, other[] = { 0x18, 7 };
    state_load_expect(&load, schema, 2);
    assert_int_equal(state_load_add(&load, other, sizeof other, &err), PL_OK); /* unknown: passed */
    assert_int_equal(state_load_add(&load, cut, sizeof cut, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "3 bytes are not a valid DownloadData"));
}

/* --- an optimizer's metadata ------------------------------------------------------------------ */

static void metadata_there_and_back(void **state)
{
    struct state_leaf leaves[] = {
        { .kind = STATE_TENSOR, .index = 7 }, { .kind = STATE_REAL, .real = 0.9 },
        { .kind = STATE_COUNT, .index = -3 }, { .kind = STATE_TRUTH, .index = 1 },
        { .kind = STATE_TRUTH, .index = 0 },  { .kind = STATE_NONE }
    };
    struct training_state t = { .epoch = 12, .leaves = leaves, .count = PL_COUNT(leaves) }, back;
    struct bytes out = { 0 };
    memset(t.group_bits, '1', 64);
    assert_int_equal(training_state_write(&out, &t), PL_OK);
    assert_int_equal(training_state_read(&back, bytes_at(&out), bytes_length(&out), &err), PL_OK);
    assert_int_equal(back.epoch, 12);
    assert_string_equal(back.group_bits, t.group_bits);
    assert_int_equal(back.count, PL_COUNT(leaves));
    for (size_t i = 0; i < PL_COUNT(leaves); i++) {
        assert_int_equal(back.leaves[i].kind, leaves[i].kind);
        assert_int_equal(back.leaves[i].index, leaves[i].index);
        assert_true(back.leaves[i].real == leaves[i].real);
    }
    training_state_clear(&back);
    bytes_clear(&out);
}

enum broken { WHOLE, NO_EPOCH, NEGATIVE_EPOCH, NO_LIST, LIST_IS_TEXT, LONG_BITS };

/* One state with one leaf of these texts: {"type": type, key: index or nil}. */
static int read_broken(enum broken how, const char *type, const char *key, int64_t value)
{
    struct training_state t;
    struct bytes out = { 0 };
    char bits[66] = "";
    int rc;
    memset(bits, '0', how == LONG_BITS ? 65 : 64);
    mp_map(&out, 3 - (how == NO_EPOCH) - (how == NO_LIST));
    if (how != NO_EPOCH) {
        mp_text(&out, "epoch");
        mp_int(&out, how == NEGATIVE_EPOCH ? -1 : 0);
    }
    mp_text(&out, "group_bits");
    mp_text(&out, bits);
    if (how != NO_LIST) {
        mp_text(&out, "optimizer_metadata");
        if (how == LIST_IS_TEXT) mp_text(&out, "list");
        else {
            mp_list(&out, 1);
            mp_map(&out, (size_t)(type != NULL) + (key != NULL));
            if (type) mp_text(&out, "type"), mp_text(&out, type);
            if (key) mp_text(&out, key), mp_int(&out, value);
        }
    }
    rc = training_state_read(&t, bytes_at(&out), bytes_length(&out), &err);
    if (!rc) assert_int_equal(strlen(t.group_bits), how == LONG_BITS ? 0 : 64);
    if (!rc) assert_int_equal(t.count, 1);
    training_state_clear(&t);
    bytes_clear(&out);
    return rc;
}

static void broken_metadata(void **state)
{
    assert_int_equal(read_broken(WHOLE, "tensor", "index", 0), PL_OK);
    assert_int_equal(read_broken(LONG_BITS, "tensor", "index", 0), PL_OK);
    assert_int_equal(read_broken(WHOLE, "value", "value", -5), PL_OK);
    for (int how = NO_EPOCH; how < LONG_BITS; how++) {
        assert_int_equal(read_broken((enum broken)how, "tensor", "index", 0), PL_EFORMAT);
        assert_non_null(strstr(err.text, "not a training state's"));
    }
    assert_int_equal(read_broken(WHOLE, "tensor", "index", -1), PL_EFORMAT);
    assert_int_equal(read_broken(WHOLE, "tensor", "value", 1), PL_EFORMAT);
    assert_int_equal(read_broken(WHOLE, "tensor", NULL, 0), PL_EFORMAT);
    assert_int_equal(read_broken(WHOLE, "value", "index", 1), PL_EFORMAT);
    assert_int_equal(read_broken(WHOLE, "other", "value", 1), PL_EFORMAT);
    assert_int_equal(read_broken(WHOLE, NULL, "value", 1), PL_EFORMAT);
    assert_true(training_state_read(&(struct training_state){ 0 }, (const uint8_t *)"\x81", 1,
                                    &err) != PL_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_state_arrives_as_it_was), TEST(expectations),
        TEST(nothing_expected),          TEST(metadata_come_once),
        TEST(a_state_without_metadata),  TEST(messages_that_cannot_be_read),
        TEST(metadata_there_and_back),   TEST(broken_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
