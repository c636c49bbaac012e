/* part_message.c - a part of an all-reduce as a stranger may write it: its type, its shape, its values at their
 * bounds. [spec hivemind-protocol 5] */
#include "net/hivemind/messages/part_message.h"
#include "ref/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void add_field(struct bytes *out, uint8_t key, const void *data, size_t n)
{
    bytes_u8(out, key);
    bytes_varint(out, n);
    bytes_add(out, data, n);
}

/* AveragingData with one tensor: its buffer, its shape as the field's bytes, its type. */
static int read_tensor(struct part_message *m, const void *buffer, size_t n, const char *shape,
                       size_t shape_n, const char *dtype, uint64_t method)
{
    struct bytes tensor = { 0 }, all = { 0 };
    struct pl_err err;
    uint8_t *exact;
    int rc;
    add_field(&tensor, 0x0a, buffer, n);
    bytes_add(&tensor, shape, shape_n);
    if (dtype) add_field(&tensor, 0x22, dtype, strlen(dtype));
    bytes_u8(&tensor, 0x28);
    bytes_varint(&tensor, method);
    add_field(&all, 0x22, bytes_at(&tensor), bytes_length(&tensor));
    assert_non_null(exact = malloc(bytes_length(&all))); /* no slack behind it */
    memcpy(exact, bytes_at(&all), bytes_length(&all));
    rc = part_message_read(m, exact, bytes_length(&all), &err);
    if (!rc && m->has_part) rc = part_message_is_finite(m) ? PL_OK : PL_EPROTO;
    free(exact);
    bytes_clear(&tensor);
    bytes_clear(&all);
    return rc;
}

static void types_and_shapes(void **state)
{
    static const float two[2] = { 1, 2 };
    struct part_message m;
    (void)state;
    assert_int_equal(read_tensor(&m, two, 8, "\x12\x01\x02", 3, "float32", 0), PL_OK);
    assert_true(m.has_part && m.elements == 2 && m.bytes == 8);
    assert_int_equal(read_tensor(&m, two, 8, "\x10\x02", 2, "float32", 0), PL_OK); /* not packed */
    /* float32 and no other type, also of as many letters */
    assert_int_equal(read_tensor(&m, two, 8, "\x12\x01\x02", 3, "float16", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x12\x01\x02", 3, "float320", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x12\x01\x02", 3, "float3", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x12\x01\x02", 3, NULL, 0), PL_EFORMAT);
    /* one axis: neither none, which is one value, nor two */
    assert_int_equal(read_tensor(&m, two, 4, "", 0, "float32", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x12\x02\x01\x02", 4, "float32", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x10\x02\x10\x01", 4, "float32", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x12\x02\x82", 3, "float32", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x10\x80\x80\x80\x80\x10", 6, "float32", 0),
                     PL_EFORMAT); /* 2^32 */
    /* the buffer is as long as shape and method need */
    assert_int_equal(read_tensor(&m, two, 7, "\x10\x02", 2, "float32", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x10\x01", 2, "float32", 0), PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 8, "\x10\x02", 2, "float32", PL_COMPRESSIONS),
                     PL_EFORMAT);
    assert_int_equal(read_tensor(&m, two, 4, "\x10\x02", 2, "float32", PL_COMPRESS_FLOAT16), PL_OK);
}

static int floats(float last)
{
    float values[3] = { 0, -1, last };
    struct part_message m;
    return read_tensor(&m, values, sizeof values, "\x10\x03", 2, "float32", PL_COMPRESS_NONE);
}

static void floats_at_their_bound(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        assert_int_equal(floats((float)sign * PART_VALUE_MAX), PL_OK);
        assert_int_equal(floats((float)sign * nextafterf(PART_VALUE_MAX, INFINITY)), PL_EPROTO);
        assert_int_equal(floats((float)sign * INFINITY), PL_EPROTO);
        assert_int_equal(floats(copysignf(NAN, (float)sign)), PL_EPROTO);
    }
}

/* Halves, and in MEANSTD16 the mean and the deviation behind them. */
static void halves(void **state)
{
    static const struct {
        uint16_t half;
        float mean, deviation;
        int rc;
    } cases[] = {
        { 0x7bff, 1, 1, PL_OK },     { 0xfbff, -PART_FACTOR_MAX, PART_FACTOR_MAX, PL_OK },
        { 0x7c00, 1, 1, PL_EPROTO },                              /* infinite */
        { 0xfc00, 1, 1, PL_EPROTO }, { 0x7e00, 1, 1, PL_EPROTO }, /* not a number */
    };
    struct part_message m;
    uint8_t buffer[2 * 2 + 8];
    (void)state;
    for (size_t i = 0; i < PL_COUNT(cases); i++)
        for (int at = 0; at < 2; at++) {
            uint16_t h[2] = { 0, 0 };
            h[at] = cases[i].half;
            memcpy(buffer, h, 4);
            memcpy(buffer + 4, &cases[i].mean, 4);
            memcpy(buffer + 8, &cases[i].deviation, 4);
            assert_int_equal(read_tensor(&m, buffer, 4, "\x10\x02", 2, "float32",
                                         PL_COMPRESS_FLOAT16),
                             cases[i].rc);
            assert_int_equal(read_tensor(&m, buffer, 12, "\x10\x02", 2, "float32",
                                         PL_COMPRESS_MEANSTD16),
                             cases[i].rc);
        }
    for (int which = 0; which < 2; which++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float factor[2] = { 1, 1 };
            memset(buffer, 0, sizeof buffer);
            factor[which] = (float)sign * nextafterf(PART_FACTOR_MAX, INFINITY);
            memcpy(buffer + 4, factor, 8);
            assert_int_equal(read_tensor(&m, buffer, 12, "\x10\x02", 2, "float32",
                                         PL_COMPRESS_MEANSTD16),
                             PL_EPROTO);
        }
}

/* Codes of 8 bits with their table, behind its length. */
static void tables(void **state)
{
    static const enum pl_compression methods[] = { PL_COMPRESS_UNIFORM8, PL_COMPRESS_QUANTILE8 };
    uint8_t buffer[8 + 4 * PL_CODES + 3] = { 0 };
    struct part_message m;
    const uint64_t codes = PL_CODES;
    (void)state;
    memcpy(buffer, &codes, 8);
    for (size_t i = 0; i < PL_COUNT(methods); i++)
        for (size_t at = 0; at < PL_CODES; at += PL_CODES - 1) {
            const float most = -PART_VALUE_MAX, more = nextafterf(PART_VALUE_MAX, INFINITY),
                        none = 0;
            memcpy(buffer + 8 + 4 * at, &most, 4);
            assert_int_equal(read_tensor(&m, buffer, sizeof buffer, "\x10\x03", 2, "float32",
                                         methods[i]),
                             PL_OK);
            memcpy(buffer + 8 + 4 * at, &more, 4);
            assert_int_equal(read_tensor(&m, buffer, sizeof buffer, "\x10\x03", 2, "float32",
                                         methods[i]),
                             PL_EPROTO);
            memcpy(buffer + 8 + 4 * at, &none, 4);
        }
}

/* Blockwise codes: scales of the blocks, then the table. Both are factors. */
static void scales(void **state)
{
    enum { N = 4097, BLOCKS = 2, ALL = 16 + 4 * (BLOCKS + PL_CODES) + N };
    static uint8_t buffer[ALL];
    const struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { N } };
    const uint64_t blocks = BLOCKS, codes = PL_CODES;
    struct part_message m;
    size_t bytes;
    (void)state;
    assert_int_equal(pl_wire_bytes(&bytes, PL_COMPRESS_BLOCKWISE8, &type, NULL), PL_OK);
    assert_int_equal(bytes, ALL);
    memcpy(buffer, &blocks, 8);
    memcpy(buffer + 8, &codes, 8);
    for (size_t at = 0; at < BLOCKS + PL_CODES; at++) {
        const float most = PART_FACTOR_MAX, more = nextafterf(PART_FACTOR_MAX, INFINITY), none = 0;
        memcpy(buffer + 16 + 4 * at, &most, 4);
        assert_int_equal(read_tensor(&m, buffer, ALL, "\x10\x81\x20", 3, "float32",
                                     PL_COMPRESS_BLOCKWISE8),
                         PL_OK);
        memcpy(buffer + 16 + 4 * at, &more, 4);
        assert_int_equal(read_tensor(&m, buffer, ALL, "\x10\x81\x20", 3, "float32",
                                     PL_COMPRESS_BLOCKWISE8),
                         PL_EPROTO);
        memcpy(buffer + 16 + 4 * at, &none, 4);
    }
}

/* Fields of other numbers and types are skipped; of a field that occurs twice the last one counts;
 * a field that is cut short is an error. */
static void fields(void **state)
{
    static const uint8_t message[] = { 0x08, 1,    0x08, 4,    0x12, 1,    'g',  0x1a, 2,  'i',
                                       'd',  0x0a, 1,    'x',  0x38, 5,    0x29, 0,    0,  0,
                                       0,    0,    0,    0xf0, 0x3f, 0x12, 2,    'h',  'i' };
    struct part_message m;
    (void)state;
    assert_int_equal(part_message_read(&m, message, sizeof message, NULL), PL_OK);
    assert_true(m.code == 4 && !m.has_part && m.weight == 1);
    assert_true(m.group_id_n == 2 && !memcmp(m.group_id, "hi", 2));
    for (size_t n = 0; n < sizeof message; n++) {
        uint8_t *exact = malloc(n + 1);
        int rc;
        memcpy(exact, message, n);
        rc = part_message_read(&m, exact, n, NULL);
        assert_true(rc == PL_OK || rc == PL_EFORMAT);
        if (n == 1 || n == 5 || n == 20 || n == sizeof message - 1)
            assert_int_equal(rc, PL_EFORMAT);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_shapes), cmocka_unit_test(floats_at_their_bound),
        cmocka_unit_test(halves),           cmocka_unit_test(tables),
        cmocka_unit_test(scales),           cmocka_unit_test(fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
