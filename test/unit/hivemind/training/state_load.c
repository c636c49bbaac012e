/* state_load.c - a donor cannot make a newcomer keep more than its own model's state takes, or
 * tensors of another shape. */
#include "net/hivemind/messages/state_message.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

static const struct schema_tensor schema[2] = {
    { .type = { .dtype = PL_F32, .dims = 2, .size = { 100, 300 } } },
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 50 } } },
};
#define VALUES 30050
static const float values[4 * VALUES];
static struct pl_backend be;

static struct state_tensor tensor(struct pl_wire_type type)
{
    return (struct state_tensor){ type, PL_COMPRESS_NONE, values };
}

/* The status of the first message that is refused, or of the end. */
static int carry(struct state_load *l, const struct state_tensor *tensors, size_t count,
                 size_t metadata_n, struct pl_err *err)
{
    uint8_t *metadata = calloc(1, metadata_n + 1);
    struct state_source source = {
        .metadata = metadata, .metadata_n = metadata_n, .tensors = tensors, .count = count
    };
    struct bytes message = { 0 };
    int rc = PL_OK;
    state_load_expect(l, schema, 2);
    while (!rc && !state_source_next(&source, &message, &be, NULL)) {
        assert_true(bytes_length(&message) <= state_load_message_max(l) || metadata_n > 1000);
        rc = state_load_add(l, bytes_at(&message), bytes_length(&message), err);
        bytes_clear(&message);
    }
    if (!rc) rc = state_load_finish(l, err);
    state_source_clear(&source);
    free(metadata);
    return rc;
}

/* Two moments for each parameter, uncompressed: the largest honest state that there is. */
static void largest_honest(void **state)
{
    struct state_tensor t[6];
    struct state_load l;
    struct pl_err err = { "" };
    for (int i = 0; i < 6; i++) t[i] = tensor(schema[i % 2].type);
    if (carry(&l, t, 6, 300, &err)) fail_msg("%s", err.text);
    assert_int_equal(l.count, 6);
    state_load_clear(&l);
}

static void other_types(void **state)
{
    static const struct pl_wire_type wrong[] = {
        { .dtype = PL_F32, .dims = 2, .size = { 300, 100 } }, /* as many values */
        { .dtype = PL_F32, .dims = 1, .size = { 30000 } },
        { .dtype = PL_F64, .dims = 2, .size = { 100, 300 } },
        { .dtype = PL_U8, .dims = 2, .size = { 100, 300 } },
    };
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        const struct state_tensor t[2] = { tensor(wrong[i]), tensor(schema[1].type) };
        struct state_load l;
        struct pl_err err = { "" };
        assert_int_equal(carry(&l, t, 2, 10, &err), PL_EUSE);
        assert_non_null(strstr(err.text, "parameter 0"));
        assert_non_null(strstr(err.text, "ours is float32 (100,300)"));
        assert_int_equal(l.bytes, 0);
        assert_null(l.join.m.buffer); /* refused by its type, before any of it is kept */
        state_load_clear(&l);
    }
}

static void too_few(void **state)
{
    const struct state_tensor t[1] = { tensor(schema[0].type) };
    struct state_load l;
    struct pl_err err = { "" };
    assert_int_equal(carry(&l, t, 1, 10, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "1, ours has 2"));
    state_load_clear(&l);
}

static void too_much(void **state)
{
    struct state_tensor t[40];
    struct state_load l;
    struct pl_err err = { "" };
    for (int i = 0; i < 40; i++) t[i] = tensor(schema[i % 2].type);
    assert_int_equal(carry(&l, t, 40, 10, &err), PL_ELIMIT); /* of the expected size each */
    assert_true(l.bytes <= STATE_BYTES_FACTOR * VALUES * 4 + 3 * STATE_BYTES_EACH);
    state_load_clear(&l);
    for (int i = 2; i < 40; i++) t[i].type.size[0] = t[i].type.dims = 1; /* one value each */
    t[39].type.size[0] = 4 * VALUES;
    assert_int_equal(carry(&l, t, 39, STATE_METADATA_BASE + 3 * STATE_METADATA_EACH, &err),
                     PL_ELIMIT); /* of metadata */
    state_load_clear(&l);
    for (int i = 2; i < 4; i++) t[i] = t[39];
    assert_int_equal(carry(&l, t, 4, 10, &err), PL_ELIMIT); /* one tensor of an optimizer's state */
    assert_int_equal(l.count, 2);
    state_load_clear(&l);
}

/* Messages that say nothing, of no bytes or of unknown fields, end as well. */
static void endless(void **state)
{
    static const uint8_t unknown[100] = { 0xfa, 0x01, 97 }; /* field 31, 97 bytes */
    for (int i = 0; i < 2; i++) {
        struct state_load l;
        struct pl_err err;
        size_t n = 0;
        state_load_expect(&l, schema, 2);
        while (!state_load_add(&l, unknown, i ? sizeof unknown : 0, &err) && n < 10000) n++;
        assert_true(n < 1000);
        state_load_clear(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_honest), cmocka_unit_test(other_types), cmocka_unit_test(too_few),
        cmocka_unit_test(too_much),       cmocka_unit_test(endless),
    };
    pl_backend_ref(&be);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
