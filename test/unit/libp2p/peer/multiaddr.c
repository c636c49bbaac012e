/* multiaddr.c - addresses as go-multiaddr prints them; what may be kept but never dialled. */
#include "net/libp2p/protocols/kad.h"
#include "test/unit/unit.h"

/* Text, and what of it comes back from the bytes. */
static void printed(void **state)
{
    static const char *const cases[][2] = {
        { "/ip6/0:0::1/tcp/1", "/ip6/::1/tcp/1" },
        { "/ip6/::102:304/tcp/1", "/ip6/::102:304/tcp/1" }, /* not as IPv4 */
        { "/ip6/::1:0/tcp/1", "/ip6/::1:0/tcp/1" },
        { "/ip6/::ffff:102:304/tcp/1", "/ip6/::ffff:1.2.3.4/tcp/1" },
        { "/ip6/1:0:2:3:4:5:6:7/udp/9", "/ip6/1:0:2:3:4:5:6:7/udp/9" },
        { "/dns4/b\xc3\xbc"
          "cher.example/tcp/1",
          "/dns4/b\xc3\xbc"
          "cher.example/tcp/1" },
        { "/dns/a\nb\x7f/tcp/1", "/dns/a?b?/tcp/1" },
        { "/unix/run/with space.sock", "/unix/run/with space.sock" },
        { "/dnsaddr/example.org", "/dnsaddr/example.org" },
        { "/ip4/1.2.3.4/udp/1/quic", "/ip4/1.2.3.4/udp/1/quic" },
        { "/ip4/1.2.3.4/tcp/1/tls", "/ip4/1.2.3.4/tcp/1/tls" },
        { "/ip4/1.2.3.4/tcp/1/wss", "/ip4/1.2.3.4/tcp/1/wss" },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct multiaddr a, b;
        char text[MULTIADDR_TEXT_MAX];
        assert_int_equal(multiaddr_from_text(&a, cases[i][0], NULL), PL_OK);
        assert_int_equal(multiaddr_parse(&b, a.bytes, a.length), PL_OK);
        multiaddr_text(text, &b);
        assert_string_equal(text, cases[i][1]);
    }
}

static void not_dialled(void **state)
{
    static const char *const texts[] = { "/dnsaddr/example.org/tcp/1", "/ip4/1.2.3.4/udp/1/quic",
                                         "/ip4/1.2.3.4/tcp/1/tls", "/ip4/1.2.3.4/tcp/1/wss" };
    struct multiaddr_target t;
    struct multiaddr a;
    for (size_t i = 0; i < PL_COUNT(texts); i++) {
        assert_int_equal(multiaddr_from_text(&a, texts[i], NULL), PL_OK);
        assert_int_equal(multiaddr_target(&t, &a), PL_ENOTFOUND);
    }
    assert_int_equal(multiaddr_from_text(&a, "/dns/example.org/tcp/1", NULL), PL_OK);
    assert_int_equal(multiaddr_target(&t, &a), PL_OK);
}

/* A look-up's answer comes again with each peer's way of being connected. */
static void connections(void **state)
{
    for (int connection = 0; connection <= 3; connection++) {
        struct kad_peer peer = { .id = { 34, { 0x12, 0x20 } }, .connection = connection };
        struct kad_message m = { .type = KAD_FIND_NODE, .closer = &peer, .closer_count = 1 }, back;
        struct bytes out = { 0 };
        assert_int_equal(kad_put(&out, &m), PL_OK);
        assert_int_equal(kad_get(&back, bytes_at(&out) + 1, bytes_length(&out) - 1), PL_OK);
        assert_int_equal(back.closer_count, 1);
        assert_int_equal(back.closer[0].connection, connection);
        kad_clear(&back);
        bytes_clear(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(printed), cmocka_unit_test(not_dialled),
                                        cmocka_unit_test(connections) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
