/* small_messages.c - messages with few fields, byte by byte: gather requests and pieces, the heads that BTARD's peers
 * sign, protobuf's syntax. What is too short, too long or out of range is refused. */
#include "net/hivemind/messages/gather_message.h"
#include "net/hivemind/messages/protobuf_fields.h"
#include "net/hivemind/messages/signed_message.h"
#include "test/unit/hivemind/numbered_identity.h"

#include <math.h>

/* --- gather ----------------------------------------------------------------------------------- */

static void gather_requests(void **state)
{
    static const uint8_t group[GATHER_GROUP_BYTES + 1] = "a group of 20 bytes!";
    const struct gather_request r = { group, 0x0102030405060708 };
    struct gather_request back;
    struct bytes b = { 0 };
    assert_int_equal(gather_request_write(&b, &r), PL_OK);
    assert_int_equal(bytes_length(&b), GATHER_GROUP_BYTES + 8);
    assert_memory_equal(bytes_at(&b), group, GATHER_GROUP_BYTES);
    assert_memory_equal(bytes_at(&b) + GATHER_GROUP_BYTES, "\1\2\3\4\5\6\7\x8", 8);
    assert_int_equal(gather_request_read(&back, bytes_at(&b), bytes_length(&b)), PL_OK);
    assert_memory_equal(back.group, group, GATHER_GROUP_BYTES);
    assert_true(back.offset == r.offset);
    assert_int_equal(gather_request_read(&back, bytes_at(&b), bytes_length(&b) - 1), PL_EFORMAT);
    assert_int_equal(gather_request_read(&back, bytes_at(&b), GATHER_GROUP_BYTES - 1), PL_EFORMAT);
    bytes_u8(&b, 0);
    assert_int_equal(gather_request_read(&back, bytes_at(&b), bytes_length(&b)), PL_EFORMAT);
    bytes_clear(&b);
}

static void gather_pieces(void **state)
{
    const struct gather_piece p = { 0x0908070605040302, 5, 1.5, (const uint8_t *)"abc", 3 };
    struct gather_piece back;
    struct bytes b = { 0 };
    assert_int_equal(gather_piece_write(&b, &p), PL_OK);
    assert_memory_equal(bytes_at(&b),
                        "\x9\x8\7\6\5\4\3\2"
                        "\0\0\0\0\0\0\0\5"
                        "\x3f\xf8\0\0\0\0\0\0"
                        "abc",
                        27);
    assert_int_equal(gather_piece_read(&back, bytes_at(&b), bytes_length(&b)), PL_OK);
    assert_true(back.total == p.total && back.epoch == 5 && back.weight == 1.5 && back.n == 3);
    assert_memory_equal(back.data, "abc", 3);
    assert_int_equal(gather_piece_read(&back, bytes_at(&b), 24), PL_OK); /* nothing in it */
    assert_int_equal(back.n, 0);
    for (size_t n = 0; n < 24; n++)
        assert_int_equal(gather_piece_read(&back, bytes_at(&b), n), PL_EFORMAT);
    bytes_clear(&b);
}

static void pieces_that_no_peer_has(void **state)
{
    static const struct {
        int64_t epoch;
        double weight;
        size_t n;
        int is_good;
    } cases[] = { { INT64_MAX, 0, GATHER_PIECE_MAX, 1 },
                  { 0, 1, GATHER_PIECE_MAX + 1, 0 },
                  { -1, 1, 0, 0 },
                  { 0, -0x1p-1074, 0, 0 },
                  { 0, NAN, 0, 0 },
                  { 0, INFINITY, 0, 0 } };
    uint8_t *data = calloc(GATHER_PIECE_MAX + 1, 1);
    assert_non_null(data);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        const struct gather_piece p = { 1, cases[i].epoch, cases[i].weight, data, cases[i].n };
        struct gather_piece back;
        struct bytes b = { 0 };
        assert_int_equal(gather_piece_write(&b, &p), PL_OK);
        assert_int_equal(gather_piece_read(&back, bytes_at(&b), bytes_length(&b)),
                         cases[i].is_good ? PL_OK : PL_EFORMAT);
        bytes_clear(&b);
    }
    free(data);
}

/* --- signed heads ----------------------------------------------------------------------------- */

static const uint8_t round_hash[PL_HASH_BYTES] = { 7, 7, 7 };

static struct identity ids[2]; /* RSA, Ed25519 */

static int make_identities(void **state)
{
    numbered_identity(&ids[1], 0);
    return identity_make(&ids[0], KEY_RSA, NULL);
}

static int clear_identities(void **state)
{
    identity_clear(&ids[0]);
    identity_clear(&ids[1]);
    return 0;
}

/* An Ed25519 peer ID holds its key, of others the key comes along; each field has its place. */
static void signed_messages_there_and_back(void **state)
{
    for (int ed25519 = 0; ed25519 < 2; ed25519++) {
        const struct identity *me = &ids[ed25519];
        struct signed_message m = { .stage = 3, .from = 0x0102, .to = 0x0304 }, back;
        struct bytes b = { 0 };
        uint8_t hash[PL_HASH_BYTES];
        size_t key_n;
        key_n = ed25519 ? 0 : bytes_length(&me->public_key);
        m.body = (const uint8_t *)"body";
        m.n = 4;
        assert_int_equal(signed_message_write(&b, &m, me, round_hash), PL_OK);
        signed_hash(hash, "body", 4);
        assert_memory_equal(m.hash, hash, PL_HASH_BYTES);
        assert_memory_equal(bytes_at(&b), "\3\1\2\3\4", 5);
        assert_memory_equal(bytes_at(&b) + 5, hash, PL_HASH_BYTES);
        assert_int_equal(bytes_at(&b)[5 + PL_HASH_BYTES], key_n >> 8);
        assert_int_equal(bytes_at(&b)[6 + PL_HASH_BYTES], key_n & 255);
        memset(&back, 0xff, sizeof back);
        assert_int_equal(signed_message_read(&back, bytes_at(&b), bytes_length(&b)), PL_OK);
        assert_true(back.stage == 3 && back.from == 0x0102 && back.to == 0x0304 &&
                    back.key_n == key_n && back.n == 4);
        assert_int_equal(back.head_n, bytes_length(&b) - 4);
        assert_memory_equal(back.hash, hash, PL_HASH_BYTES);
        assert_memory_equal(back.body, "body", 4);
        assert_int_equal(signed_message_check(&back, round_hash, &me->id), PL_OK);
        /* A head alone, as in a proof of equivocation. */
        assert_int_equal(signed_message_read(&back, bytes_at(&b), back.head_n), PL_OK);
        assert_int_equal(back.n, 0);
        assert_int_equal(signed_message_check(&back, round_hash, &me->id), PL_OK);
        for (size_t n = 0; n < back.head_n; n++)
            assert_int_equal(signed_message_read(&back, bytes_at(&b), n), PL_EFORMAT);
        bytes_clear(&b);
    }
}

/* Stage, places, hash and round are all signed; nobody else's name stands for the sender. */
static void what_is_signed(void **state)
{
    for (int ed25519 = 0; ed25519 < 2; ed25519++) {
        static const uint8_t other_round[PL_HASH_BYTES] = { 7, 7, 8 };
        const struct identity *me = &ids[ed25519];
        struct identity other;
        struct signed_message m = { .stage = 3, .from = 1, .to = SIGNED_TO_ALL }, read;
        struct bytes b = { 0 };
        numbered_identity(&other, 5);
        assert_int_equal(signed_message_write(&b, &m, me, round_hash), PL_OK);
        assert_int_equal(signed_message_read(&read, bytes_at(&b), bytes_length(&b)), PL_OK);
        assert_int_equal(signed_message_check(&read, round_hash, &me->id), PL_OK);
        assert_int_not_equal(signed_message_check(&read, other_round, &me->id), PL_OK);
        assert_int_not_equal(signed_message_check(&read, round_hash, &other.id), PL_OK);
        for (size_t i = 0; i < 5 + PL_HASH_BYTES; i++) {
            b.data[b.begin + i] ^= 1;
            assert_int_equal(signed_message_read(&read, bytes_at(&b), bytes_length(&b)), PL_OK);
            assert_int_not_equal(signed_message_check(&read, round_hash, &me->id), PL_OK);
            b.data[b.begin + i] ^= 1;
        }
        bytes_clear(&b);
        identity_clear(&other);
    }
}

/* Lengths of keys and signatures beyond all that there are. */
static void heads_with_long_fields(void **state)
{
    for (int is_signature = 0; is_signature < 2; is_signature++)
        for (size_t more = 0; more < 2; more++) {
            const size_t n = (is_signature ? SIGNATURE_MAX : PUBLIC_KEY_MAX) + more;
            struct signed_message m;
            struct bytes b = { 0 };
            const size_t all = 5 + PL_HASH_BYTES + 4 + n;
            uint8_t *at = bytes_reserve(&b, all);
            assert_non_null(at);
            memset(at, 0, all);
            at += 5 + PL_HASH_BYTES + (is_signature ? 2 : 0);
            at[0] = (uint8_t)(n >> 8);
            at[1] = (uint8_t)n;
            b.end += all;
            assert_int_equal(signed_message_read(&m, bytes_at(&b), all), more ? PL_EFORMAT : PL_OK);
            bytes_clear(&b);
        }
}

/* --- protobuf --------------------------------------------------------------------------------- */

static void fields_of_each_type(void **state)
{
    static const uint8_t message[] = "\x08\x96\x01"           /* 1: 150 */
                                     "\x11\1\2\3\4\5\6\7\x80" /* 2: eight bytes */
                                     "\x1a\2ab"               /* 3: two bytes */
                                     "\x25\1\2\3\4"           /* 4: four bytes */
                                     "\x80\x02\0"             /* 32: 0 */
                                     "\x22\0";                /* 4: nothing */
    struct cursor c = { message, sizeof message - 1 };
    struct field f;
    assert_int_equal(field_next(&c, &f), PL_OK);
    assert_true(f.number == 1 && f.type == FIELD_VARINT && f.value == 150 && !f.data && !f.n);
    assert_int_equal(field_next(&c, &f), PL_OK);
    assert_true(f.number == 2 && f.type == FIELD_FIXED64 && f.value == 0x8007060504030201);
    assert_int_equal(field_next(&c, &f), PL_OK);
    assert_true(f.number == 3 && f.type == FIELD_DELIMITED && f.n == 2 && !f.value);
    assert_memory_equal(f.data, "ab", 2);
    assert_int_equal(field_next(&c, &f), PL_OK);
    assert_true(f.number == 4 && f.type == FIELD_FIXED32);
    assert_int_equal(field_next(&c, &f), PL_OK);
    assert_true(f.number == 32 && f.type == FIELD_VARINT && f.value == 0);
    assert_int_equal(field_next(&c, &f), PL_OK);
    assert_true(f.number == 4 && f.type == FIELD_DELIMITED && f.n == 0);
    assert_int_equal(c.left, 0);
}

static void fields_that_are_none(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = { { "\x08", 1 },     { "\x08\x80", 2 },   { "\x11\1\2\3\4\5\6\7", 8 },
                { "\x1a\3ab", 4 }, { "\x25\1\2\3", 4 }, { "\x0b\x0c", 2 },
                { "\x0c\0", 2 },   { "\x0e\0", 2 },     { "\x0f\0", 2 } };
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct cursor c = { (const uint8_t *)bad[i].bytes, bad[i].n };
        struct field f;
        assert_int_not_equal(field_next(&c, &f), PL_OK);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_requests),         cmocka_unit_test(gather_pieces),
        cmocka_unit_test(pieces_that_no_peer_has), cmocka_unit_test(signed_messages_there_and_back),
        cmocka_unit_test(what_is_signed),          cmocka_unit_test(heads_with_long_fields),
        cmocka_unit_test(fields_of_each_type),     cmocka_unit_test(fields_that_are_none),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_identities, clear_identities);
}
