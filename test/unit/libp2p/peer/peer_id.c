/* peer_id.c - base58, peer IDs in both of their texts, and the order of peers, each at its bounds. */
#include "net/libp2p/peer/base58.h"
#include "net/libp2p/peer/peer_id.h"
#include "test/unit/unit.h"

/* Test vectors of draft-msporny-base58, and the ends of the range. */
static void base58_both_ways(void **state)
{
    static const struct {
        const char *data;
        size_t n;
        const char *text;
    } c[] = {
        { "", 0, "" },
        { "\0", 1, "1" },
        { "\0\0\1", 3, "112" },
        { "\x39", 1, "z" },
        { "\x3a", 1, "21" },
        { "Hello World!", 12, "2NEpo7TZRRrLZSi2U" },
        { "\0\0\x28\x7f\xb4\xcd", 6, "11233QC4" },
        { "The quick brown fox jumps over the lazy dog.", 44,
          "USm3fpXnKG5EUBx2ndxBDMPVciP5hGey2Jh4NDv6gmeo1LkMeiKrLJUUBk6Z" },
    };
    for (size_t i = 0; i < PL_COUNT(c); i++) {
        char text[BASE58_TEXT_MAX];
        uint8_t data[BASE58_BYTES_MAX];
        size_t n;
        assert_int_equal(base58_encode(text, (const uint8_t *)c[i].data, c[i].n), PL_OK);
        assert_string_equal(text, c[i].text);
        assert_int_equal(base58_decode(data, &n, text, strlen(text)), PL_OK);
        assert_int_equal(n, c[i].n);
        assert_memory_equal(data, c[i].data, n);
    }
}

static void base58_is_bounded(void **state)
{
    uint8_t data[BASE58_BYTES_MAX + 1], back[BASE58_BYTES_MAX];
    char text[BASE58_TEXT_MAX + 1];
    size_t n;
    memset(data, 0xff, sizeof data);
    assert_int_equal(base58_encode(text, data, sizeof data), PL_ELIMIT);
    assert_int_equal(base58_encode(text, data, sizeof data - 1), PL_OK);
    assert_int_equal(base58_decode(back, &n, text, strlen(text)), PL_OK);
    assert_int_equal(n, sizeof back);
    assert_memory_equal(back, data, sizeof back);
    text[strlen(text)] = '1'; /* 58 times as much takes another byte */
    text[176] = 0;
    assert_int_equal(base58_decode(back, &n, text, strlen(text)), PL_ELIMIT);
    memset(text, '1', sizeof text);
    assert_int_equal(base58_decode(back, &n, text, BASE58_BYTES_MAX), PL_OK);
    assert_int_equal(n, BASE58_BYTES_MAX);
    assert_int_equal(base58_decode(back, &n, text, BASE58_BYTES_MAX + 1), PL_ELIMIT);
    text[0] = 'z', text[1] = 'z';
    assert_int_equal(base58_decode(back, &n, text, BASE58_TEXT_MAX), PL_ELIMIT);
    memset(text, 'z', sizeof text);
    assert_int_equal(base58_decode(back, &n, text, BASE58_TEXT_MAX - 1), PL_ELIMIT);
    /* Characters outside of the alphabet, and a zero byte. */
    for (const char *wrong = "0OIl+ \xe9"; *wrong; wrong++)
        assert_int_equal(base58_decode(back, &n, wrong, 1), PL_EFORMAT);
    assert_int_equal(base58_decode(back, &n, "2\0002", 3), PL_EFORMAT);
}

/* Keys of at most 42 bytes are in the ID, longer ones by their hash. */
static void ids_of_keys(void **state)
{
    static const uint8_t sha256[] = { 0xfa, 0x26, 0x70, 0x46, 0x40, 0x54, 0xcb, 0x1d,
                                      0x42, 0xc6, 0xfa, 0xd0, 0x18, 0x69, 0xb7, 0x6e,
                                      0x6c, 0xfd, 0x4a, 0x87, 0xbe, 0xe6, 0xaf, 0x25,
                                      0x1c, 0x9a, 0x92, 0xda, 0x8d, 0xed, 0x62, 0xb6 };
    uint8_t key[43];
    struct peer_id id;
    const uint8_t *inside;
    size_t n;
    memset(key, 6, sizeof key);
    peer_id_of_key(&id, key, 42);
    assert_int_equal(id.length, 44);
    assert_memory_equal(id.bytes, "\x00\x2a", 2);
    inside = peer_id_key(&id, &n);
    assert_int_equal(n, 42);
    assert_memory_equal(inside, key, n);
    peer_id_of_key(&id, key, 43);
    assert_int_equal(id.length, 34);
    assert_memory_equal(id.bytes, "\x12\x20", 2);
    assert_memory_equal(id.bytes + 2, sha256, sizeof sha256);
    assert_null(peer_id_key(&id, &n));
    peer_id_of_key(&id, NULL, 0);
    assert_int_equal(id.length, 2);
    id.length = 0;
    assert_null(peer_id_key(&id, &n));
}

static int parse(const char *head, size_t n)
{
    uint8_t bytes[64] = { 0 };
    struct peer_id id;
    memcpy(bytes, head, 2);
    return peer_id_parse(&id, bytes, n);
}

static void what_is_an_id(void **state)
{
    assert_int_equal(parse("\x00\x01", 3), PL_OK);
    assert_int_equal(parse("\x00\x00", 2), PL_EFORMAT);
    assert_int_equal(parse("\x00\x2a", 44), PL_OK);
    assert_int_equal(parse("\x00\x2b", 45), PL_EFORMAT);
    assert_int_equal(parse("\x00\x02", 3), PL_EFORMAT); /* another length than it says */
    assert_int_equal(parse("\x12\x20", 34), PL_OK);
    assert_int_equal(parse("\x12\x1f", 33), PL_EFORMAT); /* SHA-256 has 32 bytes */
    assert_int_equal(parse("\x11\x20", 34), PL_EFORMAT); /* SHA-1, as if */
}

/* The two texts of one ID that libp2p's specification gives. */
static void texts(void **state)
{
    static const char v0[] = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
                      v1[] = "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe";
    char text[PEER_ID_TEXT_MAX];
    struct peer_id a, b;
    assert_int_equal(peer_id_from_text(&a, v0, strlen(v0)), PL_OK);
    assert_int_equal(peer_id_from_text(&b, v1, strlen(v1)), PL_OK);
    assert_true(peer_id_equal(&a, &b));
    peer_id_text(text, &a);
    assert_string_equal(text, v0);
}

static void texts_that_are_none(void **state)
{
    static const char v1[] = "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe";
    static const struct {
        size_t at;
        char with;
    } wrong[] = {
        { 58, 'f' },                         /* a bit is left over */
        { 5, 'Z' },  { 5, '1' }, { 5, '8' }, /* not in base32's alphabet */
        { 2, 'g' },                          /* another version */
        { 3, 'y' },                          /* another codec */
    };
    char text[300];
    struct peer_id id;
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        memcpy(text, v1, sizeof v1);
        text[wrong[i].at] = wrong[i].with;
        assert_int_equal(peer_id_from_text(&id, text, strlen(text)), PL_EFORMAT);
    }
    assert_int_equal(peer_id_from_text(&id, v1, strlen(v1) - 1), PL_EFORMAT);
    assert_int_equal(peer_id_from_text(&id, "b", 1), PL_EFORMAT);
    assert_int_equal(peer_id_from_text(&id, "bafz", 4), PL_EFORMAT);
    assert_int_equal(peer_id_from_text(&id, "", 0), PL_EFORMAT);
    memset(text, 'a', sizeof text);
    text[0] = 'b';
    assert_int_equal(peer_id_from_text(&id, text, 1 + 128 * 8 / 5 + 1), PL_EFORMAT); /* 128 bytes */
    assert_int_equal(peer_id_from_text(&id, text, sizeof text), PL_ELIMIT);
}

/* As Python's byte strings: a prefix comes first. */
static void order(void **state)
{
    const struct peer_id a = { 3, { 0, 1, 5 } }, b = { 3, { 0, 1, 6 } },
                         longer = { 4, { 0, 1, 5, 0 } }, high = { 3, { 0, 1, 0x80 } };
    assert_true(peer_id_compare(&a, &b) < 0 && peer_id_compare(&b, &a) > 0);
    assert_true(peer_id_compare(&a, &a) == 0 && peer_id_equal(&a, &a));
    assert_true(peer_id_compare(&a, &longer) < 0 && peer_id_compare(&longer, &a) > 0);
    assert_true(peer_id_compare(&longer, &b) < 0);
    assert_true(peer_id_compare(&b, &high) < 0); /* bytes have no sign */
    assert_false(peer_id_equal(&a, &longer) || peer_id_equal(&longer, &a) || peer_id_equal(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base58_both_ways),
        cmocka_unit_test(base58_is_bounded),
        cmocka_unit_test(ids_of_keys),
        cmocka_unit_test(what_is_an_id),
        cmocka_unit_test(texts),
        cmocka_unit_test(texts_that_are_none),
        cmocka_unit_test(order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
