/* relay_message.c - hop and stop messages: each field comes back, absent fields stay absent, and
 * fields beyond their limit are left out. */
#include "net/libp2p/relay/relay_message.h"
#include "net/libp2p/peer/libp2p.pb-c.h"
#include "test/unit/unit.h"

static const struct peer_id peer = { 34, { 0x12, 0x20, 7 } };

/* Written and read again, without the length in front. */
static void there_and_back(struct relay_message *back, enum relay_protocol p,
                           const struct relay_message *m)
{
    struct bytes out = { 0 };
    struct cursor c;
    const uint8_t *body;
    size_t n;
    assert_int_equal(relay_put(&out, p, m), PL_OK);
    c = (struct cursor){ bytes_at(&out), bytes_length(&out) };
    assert_int_equal(get_delimited(&c, &body, &n, RELAY_MESSAGE_MAX), PL_OK);
    assert_int_equal(c.left, 0);
    assert_int_equal(relay_get(back, p, body, n), PL_OK);
    bytes_clear(&out);
}

static struct multiaddr numbered(unsigned port)
{
    struct multiaddr a = { 0 };
    multiaddr_add_ip(&a, 4, (const uint8_t *)"\1\2\3\4");
    multiaddr_add_tcp(&a, (uint16_t)port);
    return a;
}

static void a_reservation(void **state)
{
    static struct relay_message m, back;
    m.type = HOP_STATUS;
    m.status = RELAY_OK;
    m.peer = peer;
    m.has_reservation = 1;
    m.expire = 1700000000;
    m.voucher_bytes = sizeof m.voucher;
    memset(m.voucher, 9, sizeof m.voucher);
    m.has_limit = 1;
    m.duration_s = 120;
    m.data_bytes = 1 << 17;
    m.address_count = RELAY_ADDRESSES_MAX;
    for (unsigned i = 0; i < RELAY_ADDRESSES_MAX; i++) m.addresses[i] = numbered(i);
    there_and_back(&back, RELAY_HOP, &m);
    assert_int_equal(back.type, HOP_STATUS);
    assert_int_equal(back.status, RELAY_OK);
    assert_true(peer_id_equal(&back.peer, &peer));
    assert_true(back.has_reservation && back.expire == 1700000000);
    assert_int_equal(back.voucher_bytes, sizeof m.voucher);
    assert_memory_equal(back.voucher, m.voucher, sizeof m.voucher);
    assert_true(back.has_limit && back.duration_s == 120 && back.data_bytes == 1 << 17);
    assert_int_equal(back.address_count, RELAY_ADDRESSES_MAX);
    for (unsigned i = 0; i < RELAY_ADDRESSES_MAX; i++)
        assert_true(multiaddr_equal(&back.addresses[i], &m.addresses[i]));
}

static void a_stop_message(void **state)
{
    static struct relay_message m, back;
    m.type = STOP_CONNECT;
    m.peer = peer;
    m.has_limit = 1;
    m.data_bytes = 7;
    m.address_count = 1;
    m.addresses[0] = numbered(5);
    there_and_back(&back, RELAY_STOP, &m);
    assert_int_equal(back.type, STOP_CONNECT);
    assert_int_equal(back.status, 0);
    assert_true(peer_id_equal(&back.peer, &peer) && back.address_count == 1);
    assert_true(back.has_limit && back.duration_s == 0 && back.data_bytes == 7);
    assert_false(back.has_reservation);
    memset(&m, 0, sizeof m);
    m.type = STOP_STATUS;
    m.status = RELAY_PERMISSION_DENIED;
    there_and_back(&back, RELAY_STOP, &m);
    assert_int_equal(back.type, STOP_STATUS);
    assert_int_equal(back.status, RELAY_PERMISSION_DENIED);
    assert_true(!back.peer.length && !back.has_limit && !back.address_count);
}

/* Absent and zero are distinguished where the protocol does. */
static void what_is_absent_is_not_sent(void **state)
{
    static struct relay_message m, back;
    struct bytes out = { 0 };
    m.type = HOP_RESERVE;
    assert_int_equal(relay_put(&out, RELAY_HOP, &m), PL_OK);
    assert_int_equal(bytes_length(&out), 3); /* a length, the type */
    bytes_clear(&out);
    there_and_back(&back, RELAY_HOP, &m);
    assert_int_equal(back.type, HOP_RESERVE);
    assert_true(!back.status && !back.peer.length && !back.has_reservation && !back.has_limit);
    m.has_limit = m.has_reservation = 1; /* empty ones */
    there_and_back(&back, RELAY_HOP, &m);
    assert_true(back.has_reservation && back.has_limit);
    assert_true(!back.expire && !back.voucher_bytes && !back.duration_s && !back.data_bytes);
}

static int read_hop(struct relay_message *m, const Libp2p__HopMessage *hop)
{
    uint8_t data[8192];
    size_t n = libp2p__hop_message__pack(hop, data);
    return relay_get(m, RELAY_HOP, data, n);
}

static ProtobufCBinaryData view(const void *data, size_t n)
{
    return (ProtobufCBinaryData){ n, (uint8_t *)(uintptr_t)data };
}

static void what_a_stranger_may_send(void **state)
{
    static struct relay_message m;
    static const uint8_t voucher[sizeof m.voucher + 1];
    static struct multiaddr a[RELAY_ADDRESSES_MAX + 2];
    ProtobufCBinaryData list[RELAY_ADDRESSES_MAX + 2];
    Libp2p__HopMessage hop = LIBP2P__HOP_MESSAGE__INIT;
    Libp2p__RelayPeer p = LIBP2P__RELAY_PEER__INIT;
    Libp2p__Reservation r = LIBP2P__RESERVATION__INIT;
    hop.has_type = 1;
    hop.type = HOP_STATUS;
    hop.peer = &p; /* a peer without an ID, or with none that can be */
    assert_int_equal(read_hop(&m, &hop), PL_EFORMAT);
    p.has_id = 1;
    p.id = view("\x12\x20", 2);
    assert_int_equal(read_hop(&m, &hop), PL_EFORMAT);
    p.id = view(peer.bytes, peer.length);
    /* Addresses that cannot be read are left out, and so are those beyond the limit. */
    for (unsigned i = 0; i < PL_COUNT(a); i++) {
        a[i] = numbered(i);
        list[i] = i == 1 ? view("\xff", 1) : view(a[i].bytes, a[i].length);
    }
    p.addrs = list;
    p.n_addrs = 3;
    assert_int_equal(read_hop(&m, &hop), PL_OK);
    assert_int_equal(m.address_count, 2);
    assert_true(multiaddr_equal(&m.addresses[1], &a[2]));
    /* A reservation's addresses replace the peer's. A voucher that is too long is none. */
    hop.reservation = &r;
    r.addrs = list;
    r.n_addrs = PL_COUNT(list);
    r.has_voucher = 1;
    r.voucher = view(voucher, sizeof voucher);
    assert_int_equal(read_hop(&m, &hop), PL_OK);
    assert_int_equal(m.address_count, RELAY_ADDRESSES_MAX);
    assert_true(multiaddr_equal(&m.addresses[0], &a[0]) && multiaddr_equal(&m.addresses[2], &a[3]));
    assert_int_equal(m.voucher_bytes, 0);
    r.voucher.len--;
    assert_int_equal(read_hop(&m, &hop), PL_OK);
    assert_int_equal(m.voucher_bytes, sizeof m.voucher);
    assert_int_equal(relay_get(&m, RELAY_HOP, (const uint8_t *)"\xff", 1), PL_EFORMAT);
    assert_int_equal(relay_get(&m, RELAY_STOP, (const uint8_t *)"\xff", 1), PL_EFORMAT);
}

static void each_status_has_words(void **state)
{
    static const int all[] = { RELAY_OK,
                               RELAY_RESERVATION_REFUSED,
                               RELAY_RESOURCE_LIMIT_EXCEEDED,
                               RELAY_PERMISSION_DENIED,
                               RELAY_CONNECTION_FAILED,
                               RELAY_NO_RESERVATION,
                               RELAY_MALFORMED_MESSAGE,
                               RELAY_UNEXPECTED_MESSAGE,
                               0 };
    for (size_t i = 0; i < PL_COUNT(all); i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(relay_status_text(all[i]), relay_status_text(all[k]));
    assert_string_equal(relay_status_text(99), relay_status_text(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reservation),
        cmocka_unit_test(a_stop_message),
        cmocka_unit_test(what_is_absent_is_not_sent),
        cmocka_unit_test(what_a_stranger_may_send),
        cmocka_unit_test(each_status_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
