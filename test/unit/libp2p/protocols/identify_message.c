/* identify_message.c - identify's messages: in parts as go-libp2p sends them, and with a limit for each of a stranger's lists. */
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/peer/libp2p.pb-c.h"
#include "test/unit/unit.h"

static struct multiaddr numbered(unsigned port)
{
    struct multiaddr a = { 0 };
    multiaddr_add_ip(&a, 4, (const uint8_t *)"\1\2\3\4");
    multiaddr_add_tcp(&a, (uint16_t)port);
    return a;
}

/* How many parts a message has, and the longest of them. */
static size_t parts(const struct bytes *b, size_t *longest)
{
    struct cursor c = { bytes_at(b), bytes_length(b) };
    const uint8_t *body;
    size_t n, count = 0;
    *longest = 0;
    for (; c.left; count++) {
        assert_int_equal(get_delimited(&c, &body, &n, IDENTIFY_PART_MAX), PL_OK);
        if (n > *longest) *longest = n;
    }
    return count;
}

static void all_fields(void **state)
{
    static struct identify_message m, back;
    static const uint8_t key[] = "key", record[] = "record";
    struct bytes out = { 0 };
    size_t longest;
    m.public_key = key;
    m.public_key_bytes = sizeof key;
    m.record = record;
    m.record_bytes = sizeof record;
    m.address_count = 2;
    m.addresses[0] = numbered(1);
    m.addresses[1] = numbered(2);
    m.observed = numbered(3);
    m.protocols[0] = "/a/1";
    m.protocols[1] = "/b/2";
    m.protocol_count = 2;
    m.protocol_version = "ipfs/0.1.0";
    m.agent = "potluck";
    assert_int_equal(identify_put(&out, &m), PL_OK);
    assert_int_equal(parts(&out, &longest), 1);
    assert_int_equal(identify_get(&back, bytes_at(&out), bytes_length(&out)), PL_OK);
    assert_int_equal(back.public_key_bytes, sizeof key);
    assert_memory_equal(back.public_key, key, sizeof key);
    assert_int_equal(back.record_bytes, sizeof record);
    assert_memory_equal(back.record, record, sizeof record);
    assert_int_equal(back.address_count, 2);
    assert_true(multiaddr_equal(&back.addresses[1], &m.addresses[1]));
    assert_true(multiaddr_equal(&back.observed, &m.observed));
    assert_int_equal(back.protocol_count, 2);
    assert_string_equal(back.protocols[1], "/b/2");
    assert_string_equal(back.protocol_version, "ipfs/0.1.0");
    assert_string_equal(back.agent, "potluck");
    identify_clear(&back);
    bytes_clear(&out);
    memset(&m, 0, sizeof m); /* nothing at all: no part, not an empty one */
    assert_int_equal(identify_put(&out, &m), PL_OK);
    assert_int_equal(bytes_length(&out), 0);
    assert_int_equal(identify_get(&back, NULL, 0), PL_OK);
    assert_true(!back.public_key_bytes && !back.record_bytes && !back.observed.length &&
                !back.agent && !back.protocol_version);
    identify_clear(&back);
    bytes_clear(&out);
}

/* A part has at most 2048 bytes, so that a reader of 8 KiB takes it; no field is cut in two. */
static void long_messages_go_in_parts(void **state)
{
    static struct identify_message m, back;
    char name[64][101];
    struct bytes out = { 0 };
    size_t longest;
    for (size_t i = 0; i < 64; i++) {
        snprintf(name[i], sizeof name[i], "/%0*zu", 99, i);
        m.protocols[i] = name[i];
    }
    m.protocol_count = 64;
    assert_int_equal(identify_put(&out, &m), PL_OK);
    assert_int_equal(parts(&out, &longest), 4); /* 20 names in each */
    assert_int_equal(longest, 20 * (100 + 2));  /* with a tag and a length each */
    assert_int_equal(identify_get(&back, bytes_at(&out), bytes_length(&out)), PL_OK);
    assert_int_equal(back.protocol_count, 64);
    for (size_t i = 0; i < 64; i++) assert_string_equal(back.protocols[i], name[i]);
    identify_clear(&back);
    bytes_clear(&out);
}

static void parts_are_bounded(void **state)
{
    static struct identify_message m;
    static uint8_t large[IDENTIFY_PART_MAX + 1];
    struct bytes b = { 0 };
    for (int i = 0; i < IDENTIFY_PARTS_MAX; i++) bytes_u8(&b, 0); /* an empty part */
    assert_int_equal(identify_get(&m, bytes_at(&b), bytes_length(&b)), PL_OK);
    identify_clear(&m);
    bytes_u8(&b, 0);
    assert_int_equal(identify_get(&m, bytes_at(&b), bytes_length(&b)), PL_ELIMIT);
    identify_clear(&m);
    bytes_clear(&b);
    bytes_varint(&b, sizeof large);
    bytes_add(&b, large, sizeof large);
    assert_int_equal(identify_get(&m, bytes_at(&b), bytes_length(&b)), PL_ELIMIT);
    identify_clear(&m);
    bytes_clear(&b);
    assert_int_equal(identify_get(&m, (const uint8_t *)"\5\x0a", 2), PL_EFORMAT); /* cut off */
    identify_clear(&m);
    assert_int_equal(identify_get(&m, (const uint8_t *)"\1\xff", 2), PL_EFORMAT);
    identify_clear(&m);
}

static void lists_are_bounded(void **state)
{
    static struct identify_message m;
    static struct multiaddr a[IDENTIFY_ADDRESSES_MAX + 2];
    static ProtobufCBinaryData list[IDENTIFY_ADDRESSES_MAX + 2];
    static char *protocols[IDENTIFY_PROTOCOLS_MAX + 2];
    Libp2p__Identify pb = LIBP2P__IDENTIFY__INIT;
    struct bytes b = { 0 };
    uint8_t body[8192];
    size_t n;
    for (unsigned i = 0; i < PL_COUNT(a); i++) {
        a[i] = numbered(i);
        list[i] = (ProtobufCBinaryData){ a[i].length, a[i].bytes };
    }
    list[0].len = 1; /* one that cannot be read */
    for (size_t i = 0; i < PL_COUNT(protocols); i++) protocols[i] = i ? "/p" : "";
    pb.listen_addrs = list;
    pb.n_listen_addrs = PL_COUNT(list);
    pb.protocols = protocols;
    pb.n_protocols = PL_COUNT(protocols);
    pb.has_observed_addr = 1;
    pb.observed_addr = list[0];
    n = libp2p__identify__pack(&pb, body);
    bytes_varint(&b, n);
    bytes_add(&b, body, n);
    assert_int_equal(identify_get(&m, bytes_at(&b), bytes_length(&b)), PL_OK);
    assert_int_equal(m.address_count, IDENTIFY_ADDRESSES_MAX);
    assert_true(multiaddr_equal(&m.addresses[0], &a[1]));
    assert_int_equal(m.protocol_count, IDENTIFY_PROTOCOLS_MAX);
    assert_string_equal(m.protocols[0], "/p");
    assert_int_equal(m.observed.length, 0);
    identify_clear(&m);
    bytes_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fields),
        cmocka_unit_test(long_messages_go_in_parts),
        cmocka_unit_test(parts_are_bounded),
        cmocka_unit_test(lists_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
