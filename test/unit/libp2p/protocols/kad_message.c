/* kad_message.c - FIND_NODE's messages: fields come back, unreadable peers and addresses are left
 * out, and all fields are bounded. */
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/peer/libp2p.pb-c.h"
#include "test/unit/unit.h"

static const struct peer_id id = { 34, { 0x12, 0x20, 7 } };

static void request(void **state)
{
    struct kad_message m = { .type = KAD_FIND_NODE, .key_bytes = 64, .cluster = 3 }, back;
    struct bytes out = { 0 };
    struct cursor c;
    const uint8_t *body;
    size_t n;
    memset(m.key, 5, sizeof m.key);
    assert_int_equal(kad_put(&out, &m), PL_OK);
    c = (struct cursor){ bytes_at(&out), bytes_length(&out) };
    assert_int_equal(get_delimited(&c, &body, &n, KAD_REQUEST_MAX), PL_OK);
    assert_int_equal(c.left, 0);
    assert_int_equal(kad_get(&back, body, n), PL_OK);
    assert_int_equal(back.type, KAD_FIND_NODE);
    assert_int_equal(back.cluster, 3);
    assert_int_equal(back.key_bytes, 64);
    assert_memory_equal(back.key, m.key, 64);
    assert_true(!back.closer && !back.closer_count);
    kad_clear(&back);
    bytes_clear(&out);
    m = (struct kad_message){ .type = KAD_FIND_NODE, .key_bytes = 1 };
    assert_int_equal(kad_put(&out, &m), PL_OK);
    assert_int_equal(bytes_length(&out), 6); /* a length, the type, the key */
    bytes_clear(&out);
    m = (struct kad_message){ .type = KAD_PING };
    assert_int_equal(kad_put(&out, &m), PL_OK);
    assert_int_equal(bytes_length(&out), 3); /* neither a key nor a cluster */
    bytes_clear(&out);
}

static ProtobufCBinaryData view(const void *data, size_t n)
{
    return (ProtobufCBinaryData){ n, (uint8_t *)(uintptr_t)data };
}

static int get(struct kad_message *m, const Libp2p__KadMessage *pb)
{
    static uint8_t data[1 << 16];
    return kad_get(m, data, libp2p__kad_message__pack(pb, data));
}

/* Six types; an absent one is the first. */
static void types(void **state)
{
    Libp2p__KadMessage pb = LIBP2P__KAD_MESSAGE__INIT;
    struct kad_message m;
    assert_int_equal(get(&m, &pb), PL_OK);
    assert_int_equal(m.type, KAD_PUT_VALUE);
    pb.has_type = 1;
    for (pb.type = -1; pb.type <= KAD_PING + 1; pb.type++) {
        int is_known = pb.type >= KAD_PUT_VALUE && pb.type <= KAD_PING;
        assert_int_equal(get(&m, &pb), is_known ? PL_OK : PL_EFORMAT);
        kad_clear(&m);
    }
    assert_int_equal(kad_get(&m, (const uint8_t *)"\xff", 1), PL_EFORMAT);
    kad_clear(&m);
}

static void what_a_stranger_may_send(void **state)
{
    static uint8_t key[65];
    Libp2p__KadMessage pb = LIBP2P__KAD_MESSAGE__INIT;
    Libp2p__KadPeer peer[KAD_CLOSER + 1], *list[KAD_CLOSER + 1];
    struct multiaddr a = { 0 };
    ProtobufCBinaryData addresses[KAD_ADDRESSES_MAX + 2];
    struct kad_message m;
    multiaddr_add_ip(&a, 4, (const uint8_t *)"\1\2\3\4");
    multiaddr_add_tcp(&a, 9);
    for (size_t i = 0; i < PL_COUNT(addresses); i++)
        addresses[i] = i == 0 ? view("\xff", 1) : view(a.bytes, a.length);
    for (size_t i = 0; i < PL_COUNT(list); i++) {
        libp2p__kad_peer__init(list[i] = &peer[i]);
        peer[i].has_id = i != 1; /* the second has none, the third a wrong one */
        peer[i].id = i == 2 ? view("\x12\x20", 2) : view(id.bytes, id.length);
        peer[i].addrs = addresses;
        peer[i].n_addrs = i == 0 ? PL_COUNT(addresses) : 2;
        peer[i].has_connection = i == 0;
        peer[i].connection = 2;
    }
    pb.closer_peers = list;
    pb.n_closer_peers = PL_COUNT(list);
    pb.has_key = 1;
    pb.key = view(key, sizeof key);
    assert_int_equal(get(&m, &pb), PL_OK);
    assert_int_equal(m.key_bytes, sizeof m.key);      /* cut: it matches nobody */
    assert_int_equal(m.closer_count, KAD_CLOSER - 2); /* of the first KAD_CLOSER */
    assert_int_equal(m.closer[0].address_count, KAD_ADDRESSES_MAX);
    assert_int_equal(m.closer[0].connection, 2);
    assert_int_equal(m.closer[1].address_count, 1);
    assert_int_equal(m.closer[1].connection, 0);
    assert_true(multiaddr_equal(&m.closer[1].addresses[0], &a));
    kad_clear(&m);
}

/* No more than an answer holds is written. */
static void an_answer_has_a_limit(void **state)
{
    static struct kad_peer peers[KAD_CLOSER + 1];
    struct kad_message m = { .type = KAD_FIND_NODE, .closer = peers }, back;
    for (size_t i = 0; i < PL_COUNT(peers); i++) peers[i].id = id;
    for (m.closer_count = KAD_CLOSER - 1; m.closer_count <= KAD_CLOSER + 1; m.closer_count++) {
        struct bytes out = { 0 };
        struct cursor c;
        const uint8_t *body;
        size_t n;
        assert_int_equal(kad_put(&out, &m), PL_OK);
        c = (struct cursor){ bytes_at(&out), bytes_length(&out) };
        assert_int_equal(get_delimited(&c, &body, &n, KAD_RESPONSE_MAX), PL_OK);
        assert_int_equal(kad_get(&back, body, n), PL_OK);
        assert_int_equal(back.closer_count,
                         m.closer_count < KAD_CLOSER ? m.closer_count : KAD_CLOSER);
        kad_clear(&back);
        bytes_clear(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request),
        cmocka_unit_test(types),
        cmocka_unit_test(what_a_stranger_may_send),
        cmocka_unit_test(an_answer_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
