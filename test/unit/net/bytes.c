/* bytes.c - the buffer and the cursor that all messages are written and read with: limits, errors that stick, numbers at
 * their bounds, nothing moved by what is not whole. */
#include "net/bytes.h"
#include "test/unit/unit.h"

#include <stdint.h>

/* --- buffers ---------------------------------------------------------------------------------- */

static uint8_t nth(size_t i) { return (uint8_t)(i % 251); }

/* Adds and takes of many lengths: the bytes and their order stay. */
static void a_buffer_keeps_its_bytes(void **state)
{
    struct bytes b = { 0 };
    size_t in = 0, out = 0;
    for (size_t step = 1; step < 3000; step++) {
        const size_t n = step * 7 % 97, taken = step * 11 % 101;
        for (size_t i = 0; i < n; i++) assert_int_equal(bytes_u8(&b, nth(in++)), PL_OK);
        for (size_t i = 0; i < taken && bytes_length(&b); i++) {
            assert_int_equal(bytes_at(&b)[0], nth(out++));
            bytes_take(&b, 1);
        }
        assert_int_equal(bytes_length(&b), in - out);
        if (!bytes_length(&b)) assert_true(b.begin == 0 && b.end == 0);
    }
    bytes_clear(&b);
    assert_true(!b.data && !b.capacity && bytes_at(&b) && bytes_length(&b) == 0);
}

/* Long data at once, and after the front has been taken. */
static void a_buffer_grows_as_far_as_needed(void **state)
{
    static uint8_t data[100000];
    struct bytes b = { 0 };
    for (size_t i = 0; i < sizeof data; i++) data[i] = nth(i);
    assert_int_equal(bytes_add(&b, data, 256), PL_OK);
    assert_int_equal(b.capacity, 256);
    assert_int_equal(bytes_add(&b, data + 256, 1), PL_OK);
    assert_int_equal(b.capacity, 512);
    bytes_take(&b, 255);
    assert_int_equal(bytes_add(&b, data + 257, sizeof data - 257), PL_OK);
    assert_int_equal(bytes_length(&b), sizeof data - 255);
    assert_memory_equal(bytes_at(&b), data + 255, sizeof data - 255);
    bytes_clear(&b);
}

/* Half of the buffer is free in front: that half is used again, before more is asked for. */
static void free_space_in_front_is_used_again(void **state)
{
    static const uint8_t data[256] = { 1 };
    struct bytes b = { 0 };
    assert_int_equal(bytes_add(&b, data, 256), PL_OK);
    bytes_take(&b, 128);
    assert_int_equal(bytes_add(&b, data, 128), PL_OK);
    assert_true(b.capacity == 256 && b.begin == 0 && b.end == 256);
    bytes_take(&b, 127); /* less than half */
    assert_int_equal(bytes_add(&b, data, 127), PL_OK);
    assert_int_equal(b.capacity, 512);
    bytes_clear(&b);
}

/* The limit counts what is held; the error stays until the buffer is cleared, the limit beyond that. */
static void errors_stay(void **state)
{
    struct bytes b = { .limit = 10 };
    assert_int_equal(bytes_add(&b, "0123456789", 10), PL_OK);
    bytes_take(&b, 4);
    assert_int_equal(bytes_add(&b, "0123", 4), PL_OK);
    assert_int_equal(bytes_add(&b, "", 0), PL_OK);
    assert_int_equal(bytes_u8(&b, 0), PL_ELIMIT);
    bytes_take(&b, 5);
    assert_int_equal(bytes_u8(&b, 0), PL_ELIMIT);
    assert_int_equal(bytes_length(&b), 5);
    bytes_clear(&b);
    assert_true(b.limit == 10 && !b.failed);
    assert_int_equal(bytes_add(&b, "0123456789a", 11), PL_ELIMIT);
    bytes_clear(&b);
    b.limit = 0;
    assert_null(bytes_reserve(&b, SIZE_MAX / 4 + 1)); /* no sum of lengths overflows */
    assert_int_equal(b.failed, PL_ELIMIT);
    bytes_clear(&b);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static void numbers_are_big_endian(void **state)
{
    struct bytes b = { 0 };
    struct cursor c;
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    bytes_u8(&b, 0xf1), bytes_be16(&b, 0xf203), bytes_be32(&b, 0xf4050607);
    bytes_be64(&b, 0xf8090a0b0c0d0e0f);
    assert_int_equal(bytes_length(&b), 15);
    assert_memory_equal(bytes_at(&b),
                        "\xf1\xf2\x03\xf4\x05\x06\x07\xf8\x09\x0a\x0b\x0c\x0d\x0e\x0f", 15);
    c = (struct cursor){ bytes_at(&b), 15 };
    assert_int_equal(get_u8(&c, &one), PL_OK);
    assert_int_equal(get_be16(&c, &two), PL_OK);
    assert_int_equal(get_be32(&c, &four), PL_OK);
    assert_int_equal(get_be64(&c, &eight), PL_OK);
    assert_true(one == 0xf1 && two == 0xf203 && four == 0xf4050607 && eight == 0xf8090a0b0c0d0e0f);
    assert_int_equal(c.left, 0);
    assert_int_equal(get_u8(&c, &one), PL_EAGAIN);
    c = (struct cursor){ bytes_at(&b), 1 };
    assert_int_equal(get_be16(&c, &two), PL_EAGAIN);
    assert_true(c.left == 1 && c.at == bytes_at(&b)); /* nothing has moved */
    bytes_clear(&b);
}

/* Each number in as few bytes as it needs, and back; all of its beginnings are not yet a number. */
static void varints_there_and_back(void **state)
{
    for (int bits = 0; bits <= 64; bits++)
        for (int less = 0; less < 2; less++) {
            const uint64_t x = (bits == 64 ? 0 : (uint64_t)1 << bits) - (uint64_t)less;
            struct bytes b = { 0 };
            uint64_t back = 1;
            size_t n = 1;
            for (uint64_t rest = x >> 7; rest; rest >>= 7) n++;
            assert_int_equal(bytes_varint(&b, x), PL_OK);
            assert_int_equal(bytes_length(&b), n);
            for (size_t k = 0; k <= n; k++) {
                struct cursor c = { bytes_at(&b), k };
                assert_int_equal(get_varint(&c, &back), k < n ? PL_EAGAIN : PL_OK);
                assert_int_equal(c.left, k < n ? k : 0);
            }
            assert_true(back == x);
            bytes_clear(&b);
        }
}

/* The tenth byte holds one bit; an eleventh is none. */
static void varints_of_more_than_64_bits(void **state)
{
    uint8_t data[11];
    uint64_t x;
    for (int last = 0; last < 4; last++) {
        struct cursor c = { data, 10 };
        memset(data, 0xff, sizeof data);
        data[9] = (uint8_t)last;
        assert_int_equal(get_varint(&c, &x), last > 1 ? PL_EFORMAT : PL_OK);
        if (last == 1) assert_true(x == UINT64_MAX);
    }
    {
        struct cursor c = { data, 11 };
        memset(data, 0x80, sizeof data);
        data[10] = 0;
        assert_int_equal(get_varint(&c, &x), PL_EFORMAT);
    }
}

/* A length above the limit is refused before its bytes are there; what is not whole moves nothing. */
static void delimited_bytes(void **state)
{
    static const uint8_t data[] = { 3, 'a', 'b', 'c', 'd' };
    const uint8_t *view = NULL;
    size_t n = 0;
    for (size_t k = 0; k < 4; k++) {
        struct cursor c = { data, k };
        assert_int_equal(get_delimited(&c, &view, &n, 3), PL_EAGAIN);
        assert_true(c.left == k && c.at == data);
    }
    {
        struct cursor c = { data, 1 };
        assert_int_equal(get_delimited(&c, &view, &n, 2), PL_ELIMIT);
        assert_int_equal(c.left, 1);
        c.left = 5;
        assert_int_equal(get_delimited(&c, &view, &n, 3), PL_OK);
        assert_true(n == 3 && view == data + 1 && c.left == 1 && c.at == data + 4);
        assert_int_equal(get_bytes(&c, &view, 2), PL_EAGAIN);
        assert_int_equal(get_bytes(&c, &view, 1), PL_OK);
        assert_true(view[0] == 'd' && c.left == 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_keeps_its_bytes),
        cmocka_unit_test(a_buffer_grows_as_far_as_needed),
        cmocka_unit_test(free_space_in_front_is_used_again),
        cmocka_unit_test(errors_stay),
        cmocka_unit_test(numbers_are_big_endian),
        cmocka_unit_test(varints_there_and_back),
        cmocka_unit_test(varints_of_more_than_64_bits),
        cmocka_unit_test(delimited_bytes),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
