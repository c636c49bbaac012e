/* msgpack.c - values that must be refused, sizes around every boundary, and the cost of false
 * lengths. */
#include "net/hivemind/messages/msgpack.h"
#include "test/unit/unit.h"

#include <math.h>

static int read_bytes(const void *data, size_t n)
{
    struct mp_value *v;
    struct pl_err err;
    int rc = mp_read(&v, data, n, &err);
    mp_free(v);
    return rc;
}
#define READ(text) read_bytes(text, sizeof text - 1)

static void refused(void **state)
{
    assert_int_equal(READ(""), PL_EFORMAT);
    assert_int_equal(READ("\xc1"), PL_EFORMAT);     /* never used */
    assert_int_equal(READ("\x01\x02"), PL_EFORMAT); /* two values */
    assert_int_equal(READ("\xa2x"), PL_EFORMAT);    /* cut */
    assert_int_equal(READ("\xcd\x01"), PL_EFORMAT);
    assert_int_equal(READ("\x92\x01"), PL_EFORMAT);
    assert_int_equal(READ("\x81\x01\x02"), PL_EFORMAT); /* a number as key */
    assert_int_equal(READ("\x81\xc0\x02"), PL_EFORMAT);
    assert_int_equal(READ("\xa1\xff"), PL_EFORMAT);         /* not UTF-8 */
    assert_int_equal(READ("\xa2\xc0\x80"), PL_EFORMAT);     /* a long form of zero */
    assert_int_equal(READ("\xa3\xed\xa0\x80"), PL_EFORMAT); /* half of a surrogate pair */
    assert_int_equal(READ("\xa4\xf4\x90\x80\x80"), PL_EFORMAT);
    assert_int_equal(READ("\xd4\x40\x01"), PL_EFORMAT);     /* a tuple that is no list */
    assert_int_equal(READ("\xd5\x40\x90\x90"), PL_EFORMAT); /* and one with something after it */
}

static void false_lengths_cost_nothing(void **state)
{
    assert_int_equal(READ("\xdd\xff\xff\xff\xff"), PL_EFORMAT);
    assert_int_equal(READ("\xdf\xff\xff\xff\xff\xa0"), PL_EFORMAT);
    assert_int_equal(READ("\xc6\xff\xff\xff\xff\xa0"), PL_EFORMAT);
    assert_int_equal(READ("\xdb\xff\xff\xff\xff\xa0"), PL_EFORMAT);
    assert_int_equal(READ("\xc9\xff\xff\xff\xff\x40\xa0"), PL_EFORMAT);
}

static void depth(void **state)
{
    uint8_t lists[1000], tuples[4000];
    size_t n = 0;
    memset(lists, 0x91, sizeof lists);
    lists[MP_DEPTH_MAX] = 0xc0;
    assert_int_equal(read_bytes(lists, MP_DEPTH_MAX + 1), PL_OK);
    lists[MP_DEPTH_MAX] = 0x91;
    assert_int_equal(read_bytes(lists, sizeof lists), PL_ELIMIT);
    /* extensions directly inside each other must not use the stack either */
    for (size_t left = sizeof tuples; left > 6; left -= 6, n += 6) {
        const uint8_t head[6] = {
            0xc9, 0, 0, (uint8_t)((left - 6) >> 8), (uint8_t)(left - 6), 0x40
        };
        memcpy(tuples + n, head, 6);
    }
    memset(tuples + n, 0x90, sizeof tuples - n);
    assert_int_equal(read_bytes(tuples, sizeof tuples), PL_ELIMIT);
}

/* A tuple is an extension and a list: two levels. Built from the inside; the innermost is empty. */
static void depth_of_tuples(void **state)
{
    struct bytes b = { 0 };
    (void)state;
    mp_ext(&b, MP_TUPLE_CODE, "\x90", 1);
    for (int tuples = 1; tuples <= MP_DEPTH_MAX; tuples++) {
        struct bytes list = { 0 }, outer = { 0 };
        assert_int_equal(read_bytes(bytes_at(&b), bytes_length(&b)),
                         tuples <= MP_DEPTH_MAX / 2 ? PL_OK : PL_ELIMIT);
        mp_list(&list, 1);
        bytes_add(&list, bytes_at(&b), bytes_length(&b));
        mp_ext(&outer, MP_TUPLE_CODE, bytes_at(&list), bytes_length(&list));
        bytes_clear(&b);
        bytes_clear(&list);
        b = outer;
    }
    bytes_clear(&b);
}

/* As many values as one tree may have, besides its root: in one list, in two, in a map. */
static void count_of_values(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++)
        for (size_t over = 0; over <= 1; over++) {
            struct bytes b = { 0 };
            size_t n = MP_VALUES_MAX - (form == 1 ? 2 : 0) + (form == 2 ? 2 * over : over);
            if (form == 1) {
                mp_list(&b, 2);
                mp_list(&b, n / 2);
            }
            for (size_t i = 0; form == 1 && i < n / 2; i++) mp_nil(&b);
            if (form < 2) mp_list(&b, form ? n - n / 2 : n);
            else mp_map(&b, n / 2);
            for (size_t i = 0; i < (form == 1 ? n - n / 2 : n); i++) mp_str(&b, "", 0);
            assert_int_equal(read_bytes(bytes_at(&b), bytes_length(&b)), over ? PL_ELIMIT : PL_OK);
            bytes_clear(&b);
        }
}

/* Every integer around a power of two, both ways. */
static void integers(void **state)
{
    for (int bit = 0; bit < 64; bit++)
        for (int step = -2; step <= 2; step++)
            for (int negative = 0; negative <= 1; negative++) {
                int64_t x = (int64_t)(((uint64_t)1 << bit) + (uint64_t)(int64_t)step);
                struct bytes b = { 0 };
                struct mp_value *v;
                if (negative) x = (int64_t)(0 - (uint64_t)x);
                mp_int(&b, x);
                assert_int_equal(mp_read(&v, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
                assert_int_equal(v->kind, MP_INT);
                assert_int_equal(v->negative, x < 0);
                assert_true((int64_t)v->number == x);
                assert_true(mp_count(v) == (x < 0 ? -1 : x));
                mp_free(v);
                bytes_clear(&b);
            }
}

static void lengths(void **state)
{
    static const size_t sizes[] = { 0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 255, 256, 65535, 65536 };
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        for (int kind = 0; kind < 4; kind++) {
            uint8_t *data = calloc(sizes[i] + 1, 1);
            struct bytes b = { 0 }, again = { 0 };
            struct mp_value *v;
            if (kind == 0) mp_str(&b, data, sizes[i]);
            if (kind == 1) mp_bin(&b, data, sizes[i]);
            if (kind == 2) mp_ext(&b, 0x51, data, sizes[i]);
            if (kind == 3) {
                mp_list(&b, sizes[i]);
                bytes_add(&b, data, sizes[i]);
            }
            assert_int_equal(mp_read(&v, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
            assert_true(v->n == sizes[i]);
            mp_write(&again, v);
            assert_true(bytes_length(&again) == bytes_length(&b));
            assert_memory_equal(bytes_at(&again), bytes_at(&b), bytes_length(&b));
            mp_free(v);
            bytes_clear(&b);
            bytes_clear(&again);
            free(data);
        }
}

/* The first byte of each form, at the lengths where another one begins: equal values are equal bytes. */
static void the_shortest_form(void **state)
{
    static const struct {
        size_t n;
        uint8_t str, bin, ext, list, map;
    } forms[] = {
        { 0, 0xa0, 0xc4, 0xc7, 0x90, 0x80 },     { 1, 0xa1, 0xc4, 0xd4, 0x91, 0x81 },
        { 2, 0xa2, 0xc4, 0xd5, 0x92, 0x82 },     { 3, 0xa3, 0xc4, 0xc7, 0x93, 0x83 },
        { 4, 0xa4, 0xc4, 0xd6, 0x94, 0x84 },     { 8, 0xa8, 0xc4, 0xd7, 0x98, 0x88 },
        { 15, 0xaf, 0xc4, 0xc7, 0x9f, 0x8f },    { 16, 0xb0, 0xc4, 0xd8, 0xdc, 0xde },
        { 31, 0xbf, 0xc4, 0xc7, 0xdc, 0xde },    { 32, 0xd9, 0xc4, 0xc7, 0xdc, 0xde },
        { 255, 0xd9, 0xc4, 0xc7, 0xdc, 0xde },   { 256, 0xda, 0xc5, 0xc8, 0xdc, 0xde },
        { 65535, 0xda, 0xc5, 0xc8, 0xdc, 0xde }, { 65536, 0xdb, 0xc6, 0xc9, 0xdd, 0xdf },
    };
    static const uint8_t data[65536];
    (void)state;
    for (size_t i = 0; i < PL_COUNT(forms); i++) {
        struct bytes b[5] = { { 0 } };
        const uint8_t first[5] = { forms[i].str, forms[i].bin, forms[i].ext, forms[i].list,
                                   forms[i].map };
        mp_str(&b[0], data, forms[i].n);
        mp_bin(&b[1], data, forms[i].n);
        mp_ext(&b[2], 7, data, forms[i].n);
        mp_list(&b[3], forms[i].n);
        mp_map(&b[4], forms[i].n);
        for (int k = 0; k < 5; k++) {
            assert_int_equal(bytes_at(&b[k])[0], first[k]);
            bytes_clear(&b[k]);
        }
    }
}

static void maps(void **state)
{
    struct mp_value *v;
    assert_int_equal(mp_read(&v,
                             (const uint8_t *)"\x83\xa1"
                                              "a\x01\xc4\x01"
                                              "a\x02\xa1"
                                              "a\x03",
                             11, NULL),
                     PL_OK);
    assert_true(mp_count(mp_get(v, "a")) == 3); /* the last, as in Python; bytes are not text */
    assert_null(mp_get(v, "b"));
    assert_null(mp_get(&v->item[0], "a"));
    mp_free(v);
}

/* Old writers' 32-bit floats and long forms are read, and written in our one way. */
static void canonical(void **state)
{
    static const uint8_t odd[] = { 0x94, 0xca, 0x3f, 0xc0, 0,    0,    0xcd, 0,
                                   5,    0xd9, 1,    'x',  0xd1, 0xff, 0xff };
    static const uint8_t plain[] = { 0x94, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 5, 0xa1, 'x', 0xff };
    struct mp_value *v;
    struct bytes b = { 0 };
    assert_int_equal(mp_read(&v, odd, sizeof odd, NULL), PL_OK);
    mp_write(&b, v);
    assert_true(bytes_length(&b) == sizeof plain);
    assert_memory_equal(bytes_at(&b), plain, sizeof plain);
    mp_free(v);
    bytes_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(false_lengths_cost_nothing),
        cmocka_unit_test(depth),
        cmocka_unit_test(integers),
        cmocka_unit_test(lengths),
        cmocka_unit_test(maps),
        cmocka_unit_test(canonical),
        cmocka_unit_test(depth_of_tuples),
        cmocka_unit_test(the_shortest_form),
        cmocka_unit_test(count_of_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
