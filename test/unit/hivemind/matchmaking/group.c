/* group.c - data that the peers of a group compute alike: bounds of the gather message, membership
 * of a group, shares, and the group bits compared with Python's random.sample. [spec
 * hivemind-protocol 4, 5.1] */
#include "net/hivemind/matchmaking/group.h"
#include "net/hivemind/messages/msgpack.h"
#include "test/unit/unit.h"

#include <math.h>

static struct peer_id id_of(int i)
{
    return (struct peer_id){ .length = 34, .bytes = { 0x12, 0x20, (uint8_t)i } };
}

/* [bandwidth, mode, user data of n bytes] */
static struct bytes gathered(double bandwidth, int mode, size_t n)
{
    struct bytes out = { 0 };
    uint8_t *user = calloc(n + 1, 1);
    assert_non_null(user);
    mp_list(&out, 3);
    mp_float(&out, bandwidth);
    mp_int(&out, mode);
    mp_bin(&out, user, n);
    free(user);
    assert_int_equal(out.failed, 0);
    return out;
}

static int reads(double bandwidth, int mode, size_t n)
{
    struct bytes data = gathered(bandwidth, mode, n);
    struct gather g;
    int rc = gather_read(&g, bytes_at(&data), bytes_length(&data), NULL);
    if (!rc) assert_true(g.bandwidth == bandwidth && (int)g.mode == mode && g.user_n == n);
    bytes_clear(&data);
    return rc;
}

/* A bandwidth is a finite number, or unknown; there are three modes; 4 KiB are the most. */
static void gather_messages(void **state)
{
    struct bytes data = gathered(1, 0, 0);
    size_t head = bytes_length(&data);
    bytes_clear(&data);
    assert_int_equal(reads(0, GROUP_FULL, 1), PL_OK);
    assert_int_equal(reads(1e300, GROUP_CLIENT, 1), PL_OK);
    assert_int_equal(reads(PL_BANDWIDTH_UNKNOWN, GROUP_AUXILIARY, 1), PL_OK);
    assert_int_equal(reads(INFINITY, GROUP_FULL, 1), PL_EFORMAT);
    assert_int_equal(reads(-INFINITY, GROUP_FULL, 1), PL_EFORMAT);
    assert_int_equal(reads(NAN, GROUP_FULL, 1), PL_EFORMAT);
    assert_int_equal(reads(-0.5, GROUP_FULL, 1), PL_EFORMAT);
    assert_int_equal(reads(1, GROUP_AUXILIARY + 1, 1), PL_EFORMAT);
    assert_int_equal(reads(1, -1, 1), PL_EFORMAT);
    head++; /* a length of two bytes */
    assert_int_equal(reads(1, GROUP_FULL, GATHER_MAX - head), PL_OK);
    assert_int_equal(reads(1, GROUP_FULL, GATHER_MAX - head + 1), PL_ELIMIT);
}

/* A peer is in a group once, whether it comes alone or in a list; the limit is 1,024. */
static void members(void **state)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct peer_id a = id_of(1), b = id_of(2);
    struct group g = { 0 };
    assert_int_equal(group_add(&g, &a, gather, sizeof gather, NULL), PL_OK);
    assert_int_equal(group_add(&g, &a, gather, sizeof gather, NULL), PL_EPROTO);
    assert_int_equal(group_add(&g, &b, gather, sizeof gather - 1, NULL) != PL_OK, 1);
    assert_int_equal(g.count, 1);
    assert_int_equal(group_add(&g, &b, gather, sizeof gather, NULL), PL_OK);
    assert_int_equal(group_check_peers(&g), PL_OK);
    assert_true(group_find(&g, &a) == 0 && group_find(&g, &b) == 1);
    assert_int_equal(group_append(&g, &a, gather, sizeof gather, NULL), PL_OK);
    assert_int_equal(group_check_peers(&g), PL_EPROTO);
    for (int i = 3; i < GROUP_PEERS_MAX; i++) {
        a = id_of(0);
        a.bytes[3] = (uint8_t)i, a.bytes[4] = (uint8_t)(i >> 8);
        assert_int_equal(group_append(&g, &a, gather, sizeof gather, NULL), PL_OK);
    }
    a.bytes[5] = 1;
    assert_int_equal(group_append(&g, &a, gather, sizeof gather, NULL), PL_ELIMIT);
    group_clear(&g);
}

/* Three peers' shares of 900 values. A client reduces nothing, whatever it states. If all the others
 * state 0 they share alike. */
static void shares(void **state)
{
    static const struct {
        double bandwidth[3];
        int mode[3];
        size_t want[3];
    } cases[] = {
        { { -1, -1, -1 }, { 0, 0, 0 }, { 300, 300, 300 } },
        { { -1, -1, -1 }, { 0, 1, 0 }, { 450, 0, 450 } },
        { { 5, 5, 5 }, { 1, 0, 0 }, { 0, 450, 450 } },
        { { 0, -1, -1 }, { 0, 0, 0 }, { 0, 450, 450 } },
        { { 0, 0, 0 }, { 0, 0, 0 }, { 300, 300, 300 } },
        { { 0, 0, 0 }, { 0, 1, 0 }, { 450, 0, 450 } },
        { { 0, 0, -1 }, { 0, 0, 2 }, { 0, 0, 900 } },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct group g = { 0 };
        size_t share[3];
        for (int k = 0; k < 3; k++) {
            struct bytes data = gathered(cases[i].bandwidth[k], cases[i].mode[k], 1);
            struct peer_id id = id_of(k);
            assert_int_equal(group_add(&g, &id, bytes_at(&data), bytes_length(&data), NULL), PL_OK);
            bytes_clear(&data);
        }
        assert_int_equal(group_shares(share, &g, 900, NULL), PL_OK);
        assert_memory_equal(share, cases[i].want, sizeof share);
        group_clear(&g);
    }
}

/* No bandwidth gives a member more than four equal shares. Peers that state nothing, or 0, and clients
 * have no part in the limit. The limits are those of t = (N - 2 + k) / sum b, w = (t b - 1) / (N - 2). */
static void claims_are_limited(void **state)
{
    static const struct {
        double stated[16], want[16];
        size_t n;
        int mode[5];
    } cases[] = {
        /* t = 8 / (400 + b), w = 4 / 5 */
        { { 100, 100, 1e300, 100, 100 }, { 100, 100, 295.652, 100, 100 }, 5, { 0 } },
        { { 30, 50, 200, 199, 1000 }, { 30, 50, 200, 199, 521.769 }, 5, { 0 } },
        /* of two reducers one may take everything: it does from 40 on, which is when the other has sent
         * its own values */
        { { -1, 0, 10, 500, 1e9 }, { -1, 0, 10, 40, 40 }, 5, { 0, 0, 0, 0, 1 } },
        { { 10, 500, -1, -1, -1 }, { 10, 40, -1, -1, -1 }, 5, { 0 } },
        { { -1, -1, -1, 0, 0 }, { -1, -1, -1, 0, 0 }, 5, { 0 } },
        /* fast ones among slow ones keep what they have; the rest reduces what is left */
        { { 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 120, 200, 220, 240, 240 },
          { 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 120, 200, 220, 240, 240 },
          16,
          { 0 } },
        { { 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 120, 200, 220, 350, 1e300 },
          { 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 120, 200, 220, 243, 243 },
          16,
          { 0 } },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct group g = { 0 };
        for (size_t k = 0; k < cases[i].n; k++) {
            struct bytes data = gathered(cases[i].stated[k], k < 5 ? cases[i].mode[k] : 0, 1);
            struct peer_id id = id_of((int)k);
            assert_int_equal(group_add(&g, &id, bytes_at(&data), bytes_length(&data), NULL), PL_OK);
            bytes_clear(&data);
        }
        assert_int_equal(group_limit_bandwidths(&g), PL_OK);
        for (size_t k = 0; k < cases[i].n; k++) {
            const double want = cases[i].want[k], limited = g.members[k].gather.bandwidth;
            if (want == cases[i].stated[k]) assert_true(limited == want);
            else assert_true(fabs(limited / want - 1) < 0.002);
        }
        group_clear(&g);
    }
}

/* Another bandwidth changes nothing else in a gather message. */
static void another_bandwidth(void **state)
{
    struct bytes data = gathered(7, GROUP_AUXILIARY, 3);
    struct peer_id id = id_of(1);
    struct group g = { 0 };
    struct gather read;
    assert_int_equal(group_add(&g, &id, bytes_at(&data), bytes_length(&data), NULL), PL_OK);
    assert_int_equal(group_set_bandwidth(&g.members[0], 0), PL_OK);
    assert_int_equal(gather_read(&read, g.members[0].gathered, g.members[0].gathered_n, NULL),
                     PL_OK);
    assert_true(read.bandwidth == 0 && read.mode == GROUP_AUXILIARY && read.user_n == 3);
    assert_ptr_equal(g.members[0].gather.user, read.user);
    bytes_clear(&data);
    group_clear(&g);
}

/* random.Random(id).sample(range(n), size): its first element, the middle one, the last. Python draws from a list up to a
 * threshold that depends on the size (21 for 5, 85 for 6, 277 for 64), and from a set beyond. */
static void bits_are_pythons(void **state)
{
    static const struct {
        size_t n, size, first, middle, last;
    } cases[] = {
        { 21, 5, 5, 7, 4 },     { 22, 5, 5, 21, 14 },     { 5, 5, 1, 2, 3 },
        { 6, 6, 5, 2, 3 },      { 85, 6, 23, 59, 79 },    { 86, 6, 23, 28, 17 },
        { 1, 1, 0, 0, 0 },      { 2, 2, 0, 1, 1 },        { 1024, 3, 374, 397, 460 },
        { 64, 17, 23, 50, 48 }, { 277, 64, 93, 172, 87 }, { 278, 64, 93, 15, 199 },
        { 64, 6, 23, 14, 8 },   { 64, 5, 23, 28, 17 },
    };
    uint8_t id[DHT_ID_BYTES];
    for (int i = 0; i < DHT_ID_BYTES; i++) id[i] = (uint8_t)(i * 37 + 5);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        const size_t places[] = { 0, cases[i].size / 2, cases[i].size - 1 },
                     want[] = { cases[i].first, cases[i].middle, cases[i].last };
        for (size_t k = 0; k < 3; k++) {
            char bits[GROUP_BITS_MAX + 1];
            size_t got = 0;
            assert_int_equal(group_next_bits(bits, "00000000000", id, cases[i].size, places[k],
                                             cases[i].n),
                             PL_OK);
            for (const char *b = bits; *b; b++) got = 2 * got + (size_t)(*b == '1');
            assert_int_equal(got, want[k]);
        }
        {
            char bits[GROUP_BITS_MAX + 1];
            assert_int_equal(group_next_bits(bits, "0", id, cases[i].n + 1, 0, cases[i].n),
                             PL_EUSE);
            assert_int_equal(group_next_bits(bits, "0", id, cases[i].size, cases[i].size,
                                             cases[i].n),
                             PL_EUSE);
        }
    }
}

/* New bits enter on the right; without a target there are as many as tell all members apart. */
static void next_bits(void **state)
{
    static const struct {
        size_t size, added;
    } cases[] = {
        { 1, 1 }, { 2, 1 }, { 3, 2 }, { 4, 2 }, { 5, 3 }, { 8, 3 }, { 9, 4 },
    };
    const uint8_t id[DHT_ID_BYTES] = { 1 };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        char bits[GROUP_BITS_MAX + 1];
        assert_int_equal(group_next_bits(bits, "11110000", id, cases[i].size, 0, 0), PL_OK);
        assert_int_equal(strlen(bits), 8);
        assert_memory_equal(bits, "11110000" + cases[i].added, 8 - cases[i].added);
    }
}

static void keys(void **state)
{
    static const struct {
        const char *key;
        int good;
    } cases[] = {
        { "run.0b", 1 }, { "run.0b0101", 1 }, { "run.0b2", 0 }, { ".0b", 0 },
        { "a.b.0b", 0 }, { "run.0x", 0 },     { "run", 0 },     { "run.0", 0 },
    };
    char key[GROUP_KEY_MAX], bits[GROUP_BITS_MAX + 2];
    for (size_t i = 0; i < PL_COUNT(cases); i++)
        assert_int_equal(group_key_is_valid(cases[i].key), cases[i].good);
    memset(bits, '1', sizeof bits);
    bits[GROUP_BITS_MAX] = 0;
    assert_int_equal(group_key(key, "run", bits, NULL), PL_OK);
    bits[GROUP_BITS_MAX] = '1', bits[GROUP_BITS_MAX + 1] = 0;
    assert_int_equal(group_key(key, "run", bits, NULL), PL_EUSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_messages),
        cmocka_unit_test(members),
        cmocka_unit_test(shares),
        cmocka_unit_test(claims_are_limited),
        cmocka_unit_test(another_bandwidth),
        cmocka_unit_test(bits_are_pythons),
        cmocka_unit_test(next_bits),
        cmocka_unit_test(keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
