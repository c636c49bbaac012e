/* tensor_message.c - a tensor in pieces as a stranger may send it: counts, lengths, a new tensor in the middle of
 * another. [spec hivemind-protocol 7] */
#include "net/hivemind/messages/tensor_message.h"
#include "net/bytes.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(in_one_message, begin, end),
        cmocka_unit_test_setup_teardown(as_many_messages_as_bytes, begin, end),
        cmocka_unit_test_setup_teardown(more_or_less_than_its_bytes, begin, end),
        cmocka_unit_test_setup_teardown(another_begins, begin, end),
        cmocka_unit_test_setup_teardown(limits, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
