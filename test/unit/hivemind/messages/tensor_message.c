/* tensor_message.c - a tensor in pieces as a stranger may send it: counts, lengths, a new tensor in the middle of
 * another. [spec hivemind-protocol 7] */
#include "net/hivemind/messages/tensor_message.h"
#include "net/bytes.h"
#include "ref/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define BYTES 16 /* four floats */

static struct tensor_join j;

static int begin(void **state)
{
    (void)state;
    memset(&j, 0, sizeof j);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tensor_join_clear(&j);
    return 0;
}

/* One message: this many bytes of the buffer; the first one with type, shape and number of messages. */
static int piece(size_t bytes, int first, uint64_t chunks)
{
    static const uint8_t values[2 * BYTES];
    struct bytes out = { 0 };
    struct pl_err err;
    uint8_t *exact;
    int rc;
    bytes_u8(&out, 0x0a);
    bytes_varint(&out, bytes);
    bytes_add(&out, values, bytes);
    if (first)
        bytes_add(&out,
                  "\x12\x01\x04\x22\x07"
                  "float32",
                  12);
    if (chunks) {
        bytes_u8(&out, 0x30);
        bytes_varint(&out, chunks);
    }
    assert_non_null(exact = malloc(bytes_length(&out)));
    memcpy(exact, bytes_at(&out), bytes_length(&out));
    rc = tensor_join_add(&j, exact, bytes_length(&out), &err);
    free(exact);
    bytes_clear(&out);
    return rc;
}

static void in_one_message(void **state)
{
    (void)state;
    for (uint64_t chunks = 0; chunks <= 1; chunks++) {
        struct tensor_message m;
        assert_int_equal(piece(BYTES, 1, chunks), PL_OK);
        tensor_join_take(&m, &j);
        assert_true(tensor_elements(&m) == 4 && m.bytes == BYTES);
        tensor_clear(&m);
        assert_int_equal(piece(BYTES - 1, 1, chunks), PL_EFORMAT);
        assert_int_equal(piece(BYTES + 1, 1, chunks), PL_EFORMAT);
    }
}

/* As many messages as bytes, of one byte each. One more would be an empty one. */
static void as_many_messages_as_bytes(void **state)
{
    (void)state;
    assert_int_equal(piece(1, 1, BYTES + 1), PL_EFORMAT);
    assert_int_equal(piece(1, 1, INT32_MAX), PL_EFORMAT);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(piece(1, !i, i ? 0 : BYTES), i < BYTES - 1 ? PL_EAGAIN : PL_OK);
}

static void more_or_less_than_its_bytes(void **state)
{
    (void)state;
    assert_int_equal(piece(BYTES - 1, 1, 2), PL_EAGAIN);
    assert_int_equal(piece(2, 0, 0), PL_EFORMAT);
    assert_int_equal(piece(BYTES - 1, 1, 2),
                     PL_EAGAIN); /* refused is over: the next one begins anew */
    assert_int_equal(piece(0, 0, 0), PL_EFORMAT);
    assert_int_equal(piece(BYTES - 1, 1, 2), PL_EAGAIN);
    assert_int_equal(piece(1, 0, 0), PL_OK);
}

static void another_begins(void **state)
{
    (void)state;
    assert_int_equal(piece(BYTES / 2, 1, 2), PL_EAGAIN);
    assert_int_equal(piece(BYTES / 2, 1, 2), PL_EFORMAT);
    assert_int_equal(piece(BYTES / 2, 0, 2), PL_EFORMAT); /* without a type: no beginning */
}

static void limits(void **state)
{
    const struct pl_wire_type same = { .dtype = PL_F32, .dims = 1, .size = { 4 } };
    const struct pl_wire_type longer = { .dtype = PL_F32, .dims = 1, .size = { 5 } };
    (void)state;
    j.limit = BYTES - 1;
    assert_int_equal(piece(BYTES, 1, 0), PL_ELIMIT);
    j.limit = BYTES;
    assert_int_equal(piece(BYTES, 1, 0), PL_OK);
    tensor_join_clear(&j);
    j.type = &longer;
    assert_int_not_equal(piece(BYTES, 1, 0), PL_OK);
    j.type = &same;
    assert_int_equal(piece(BYTES, 1, 0), PL_OK);
}

/* A tensor of other axes is refused at its first message, and the sentence names both. */
static void both_shapes_are_named(void **state)
{
    static const struct {
        struct pl_wire_type ours;
        const char *why; /* NULL: fits */
    } cases[] = {
        { { PL_F32, 1, { 4 } }, NULL },
        { { PL_F32, 2, { 2, 2 } }, "theirs is float32 (4), ours is float32 (2,2)" },
        { { PL_F32, 0, { 0 } }, "theirs is float32 (4), ours is float32 ()" },
        { { PL_F16, 1, { 4 } }, "theirs is float32 (4), ours is float16 (4)" },
        { { PL_F32, 1, { 3 } }, "theirs is float32 (4), ours is float32 (3)" },
    };
    struct tensor_message m = { .type = { PL_F32, 1, { 4 } } };
    struct pl_backend be;
    struct pl_err err;
    uint8_t *data;
    size_t n;
    (void)state;
    pl_backend_ref(&be);
    assert_int_equal(tensor_fill(&m, &be, (const float[]){ 1, 2, 3, 4 }, &err), PL_OK);
    assert_int_equal(tensor_pack_piece(&data, &n, &m, 0), PL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        j.type = &cases[i].ours;
        assert_int_equal(tensor_join_add(&j, data, n, &err), cases[i].why ? PL_EUSE : PL_OK);
        if (cases[i].why) assert_string_equal(err.text, cases[i].why);
        tensor_join_clear(&j);
    }
    free(data);
    tensor_clear(&m);
}

/* The description: element type by name, method and number of messages within their ranges, at most 16
 * axes. Each field is a byte or two of protobuf. */
static void descriptions(void **state)
{
#define BUFFER \
    "\x0a\x10" \
    "0123456789abcdef"
    static const struct {
        const char *fields;
        size_t n;
        int rc;
        const char *why;
    } cases[] = {
#define CASE(fields, rc, why) { fields, sizeof(fields) - 1, rc, why }
        CASE(BUFFER "\x12\x01\x04\x22\x07"
                    "float32",
             PL_OK, ""),
        CASE(BUFFER "\x12\x02\x02\x02\x22\x07"
                    "float32",
             PL_OK, ""),
        CASE(BUFFER "\x12\x01\x08\x22\x07"
                    "float16"
                    "\x28\x02",
             PL_OK, ""),
        CASE(BUFFER "\x12\x01\x04\x22\x07"
                    "float33",
             PL_EFORMAT, "dtype \"float33\""),
        CASE(BUFFER "\x12\x01\x04", PL_EFORMAT, "dtype \"\""),
        CASE(BUFFER "\x12\x01\x04\x22\x07"
                    "float32"
                    "\x28\x06",
             PL_EFORMAT, "compression 6, expected 0 to 5"),
        CASE(BUFFER "\x12\x01\x04\x22\x07"
                    "float32"
                    "\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
             PL_EFORMAT, "compression -1"),
        CASE(BUFFER "\x12\x01\x04\x22\x07"
                    "float32"
                    "\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
             PL_EFORMAT, "a stream of -1 messages"),
        CASE(BUFFER "\x12\x10\x04\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\x22\x07"
                    "float32",
             PL_OK, ""),
        CASE(BUFFER "\x12\x11\x04\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\x22\x07"
                    "float32",
             PL_EFORMAT, "17 axes, expected at most 16"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor_message m;
        struct pl_err err = { "" };
        uint8_t *exact = malloc(cases[i].n);
        memcpy(exact, cases[i].fields, cases[i].n);
        assert_int_equal(tensor_unpack(&m, exact, cases[i].n, &err), cases[i].rc);
        if (!strstr(err.text, cases[i].why)) fail_msg("%zu: %s", i, err.text);
        if (!cases[i].rc) {
            assert_memory_equal(m.buffer, "0123456789abcdef", 16);
            tensor_clear(&m);
        }
        free(exact);
    }
}

/* What is packed in pieces is put together again: full pieces but the last, one even for nothing. */
static void pieces_come_together(void **state)
{
    static const size_t sizes[] = {
        0, 1, TENSOR_PIECE / 4 - 1, TENSOR_PIECE / 4, TENSOR_PIECE / 4 + 1, TENSOR_PIECE / 2, 40000
    };
    static float x[40000];
    struct pl_backend be;
    (void)state;
    pl_backend_ref(&be);
    for (size_t i = 0; i < 40000; i++) x[i] = (float)i;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tensor_message m = { .type = { PL_F32, 1, { (int64_t)sizes[i] } },
                                    .requires_grad = (int)i % 2 },
                              got;
        size_t bytes = 4 * sizes[i], pieces = tensor_pieces(bytes);
        assert_int_equal(pieces, bytes ? (bytes + TENSOR_PIECE - 1) / TENSOR_PIECE : 1);
        assert_int_equal(tensor_fill(&m, &be, x, NULL), PL_OK);
        for (size_t k = 0; k < pieces; k++) {
            struct pl_err err;
            uint8_t *data;
            size_t n;
            assert_int_equal(tensor_pack_piece(&data, &n, &m, k), PL_OK);
            assert_int_equal(tensor_join_add(&j, data, n, &err),
                             k + 1 < pieces ? PL_EAGAIN : PL_OK);
            free(data);
        }
        tensor_join_take(&got, &j);
        assert_true(got.bytes == bytes && tensor_elements(&got) == sizes[i]);
        assert_int_equal(got.requires_grad, i % 2);
        if (bytes) assert_memory_equal(got.buffer, x, bytes);
        tensor_clear(&got);
        tensor_clear(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(in_one_message, begin, end),
        cmocka_unit_test_setup_teardown(as_many_messages_as_bytes, begin, end),
        cmocka_unit_test_setup_teardown(more_or_less_than_its_bytes, begin, end),
        cmocka_unit_test_setup_teardown(another_begins, begin, end),
        cmocka_unit_test_setup_teardown(limits, begin, end),
        cmocka_unit_test_setup_teardown(both_shapes_are_named, begin, end),
        cmocka_unit_test(descriptions),
        cmocka_unit_test_setup_teardown(pieces_come_together, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
