/* multiaddr.c - addresses as go-multiaddr prints them, their limits, and which of them may be
 * dialled. */
#include "net/libp2p/protocols/kad.h"
#include "test/unit/unit.h"

/* Text, and the text that its bytes give. */
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

/* A lookup's answer comes again with each peer's way of being connected. */
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

#define ID "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"

/* Text that is no address, and its error. */
static void refused_texts(void **state)
{
    static const char *const cases[][2] = {
        { "", "does not begin with /" },
        { "ip4/1.2.3.4", "does not begin with /" },
        { "/", "empty" },
        { "/ip4/1.2.3.4/tcp/1x", "not a port" },
        { "/ip4/1.2.3.4/tcp/65536", "not a port" },
        { "/ip4/1.2.3.4/tcp/+1", "not a port" },
        { "/ip4/1.2.3.4/tcp/ 1", "not a port" },
        { "/ip4/1.2.3.4/tcp", "/tcp needs a value" },
        { "/ip4/1.2.3.4/tcp/", "/tcp needs a value" },
        { "/ip4/1.2.3", "not an IP address" },
        { "/ip4/::1", "not an IP address" },
        { "/ip6/1.2.3.4", "not an IP address" },
        { "/p2p/Qm", "not a peer ID" },
        { "/dn/a", "'dn' is not a known protocol" },
        { "/dns44/a", "'dns44' is not a known protocol" },
        { "/ip4/1.2.3.4//tcp/1", "'' is not a known protocol" },
    };
    struct multiaddr a;
    struct pl_err err;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        assert_int_equal(multiaddr_from_text(&a, cases[i][0], &err), PL_EFORMAT);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.text);
    }
    assert_int_equal(multiaddr_from_text(&a, "/ip4/1.2.3.4/tcp/65535/", NULL), PL_OK);
    assert_int_equal(a.length, 8);
    assert_memory_equal(a.bytes, "\4\1\2\3\4\6\xff\xff", 8);
}

/* Names of 255 bytes, addresses of 512. */
static void limits(void **state)
{
    char text[1200] = "/dns/", back[MULTIADDR_TEXT_MAX];
    uint8_t bytes[MULTIADDR_MAX + 1];
    struct multiaddr a, b;
    struct pl_err err;
    memset(text + 5, 'a', 256);
    assert_int_equal(multiaddr_from_text(&a, text, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "1 to 255 characters"));
    text[5 + 255] = 0;
    assert_int_equal(multiaddr_from_text(&a, text, NULL), PL_OK);
    assert_int_equal(a.length, 258); /* a length of two bytes */
    assert_int_equal(multiaddr_parse(&b, a.bytes, a.length), PL_OK);
    multiaddr_text(back, &b);
    assert_string_equal(back, text);
    a.bytes[1]++; /* 256: longer than any */
    assert_int_equal(multiaddr_parse(&b, a.bytes, 259), PL_EFORMAT);
    /* An address of 512 bytes, and one of two more. */
    a.bytes[1]--;
    a.length = 0;
    for (int i = 0; i < MULTIADDR_MAX / 2; i++) assert_int_equal(multiaddr_add_circuit(&a), PL_OK);
    assert_int_equal(a.length, MULTIADDR_MAX);
    assert_int_equal(multiaddr_add_circuit(&a), PL_ELIMIT);
    assert_int_equal(a.length, MULTIADDR_MAX);
    assert_int_equal(multiaddr_parse(&b, a.bytes, MULTIADDR_MAX), PL_OK);
    memcpy(bytes, a.bytes, MULTIADDR_MAX);
    bytes[MULTIADDR_MAX] = 0;
    assert_int_equal(multiaddr_parse(&b, bytes, MULTIADDR_MAX + 1), PL_ELIMIT);
    assert_int_equal(multiaddr_parse(&b, bytes, 0), PL_EFORMAT);
    multiaddr_text(back, &b); /* cut where the text is full */
    assert_int_equal(strlen(back), MULTIADDR_TEXT_MAX - 1);
}

static void refused_bytes(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        { "\4\1\2\3", 4 },         /* an address is cut off */
        { "\4\1\2\3\4\6\1", 7 },   /* a port */
        { "\5", 1 },               /* not a protocol */
        { "\x35\0", 2 },           /* a name of no length */
        { "\x35\3a\0b", 5 },       /* a zero byte in it */
        { "\x35\3a/b", 5 },        /* a slash */
        { "\x35\3ab", 4 },         /* cut off */
        { "\xa5\3\2\x12\x20", 5 }, /* no peer ID */
        { "\xa5", 1 },             /* half a code */
    };
    struct multiaddr a;
    for (size_t i = 0; i < PL_COUNT(cases); i++)
        assert_int_equal(multiaddr_parse(&a, (const uint8_t *)cases[i].bytes, cases[i].n),
                         PL_EFORMAT);
    assert_int_equal(multiaddr_parse(&a, (const uint8_t *)"\x90\3\3a/b", 6),
                     PL_OK); /* a path has them */
}

/* The protocols' numbers in multicodec's table. */
static void codes(void **state)
{
    static const struct {
        const char *text;
        unsigned code;
    } all[] = {
        { "/ip4/1.2.3.4", 4 },   { "/tcp/1", 6 },    { "/ip6/::1", 41 },   { "/dns/a", 53 },
        { "/dns4/a", 54 },       { "/dns6/a", 55 },  { "/dnsaddr/a", 56 }, { "/udp/1", 273 },
        { "/p2p-circuit", 290 }, { "/unix/a", 400 }, { "/p2p/" ID, 421 },  { "/ipfs/" ID, 421 },
        { "/tls", 448 },         { "/quic", 460 },   { "/quic-v1", 461 },  { "/ws", 477 },
        { "/wss", 478 },
    };
    for (size_t i = 0; i < PL_COUNT(all); i++) {
        struct multiaddr a;
        struct cursor c = { a.bytes, 0 };
        uint64_t code;
        assert_int_equal(multiaddr_from_text(&a, all[i].text, NULL), PL_OK);
        c.left = a.length;
        assert_int_equal(get_varint(&c, &code), PL_OK);
        assert_int_equal(code, all[i].code);
    }
}

/* The parts of an address that a dialer needs. */
static void targets(void **state)
{
    static const struct {
        const char *text;
        int rc, family, name_family;
        const char *name;
        int has_peer, has_relay;
    } c[] = {
        { "/ip4/1.2.3.4/tcp/258", PL_OK, 4, 0, "", 0, 0 },
        { "/ip6/::1/tcp/258", PL_OK, 6, 0, "", 0, 0 },
        { "/dns/a.b/tcp/258", PL_OK, 0, 0, "a.b", 0, 0 },
        { "/dns4/a.b/tcp/258", PL_OK, 0, 4, "a.b", 0, 0 },
        { "/dns6/a.b/tcp/258/p2p/" ID, PL_OK, 0, 6, "a.b", 1, 0 },
        { "/ip4/1.2.3.4/tcp/258/ipfs/" ID, PL_OK, 4, 0, "", 1, 0 },
        { "/ip4/1.2.3.4/tcp/258/p2p/" ID "/p2p-circuit", PL_OK, 4, 0, "", 0, 1 },
        { "/ip4/1.2.3.4/tcp/258/p2p/" ID "/p2p-circuit/p2p/" ID, PL_OK, 4, 0, "", 1, 1 },
        { "/ip4/1.2.3.4", PL_ENOTFOUND, 0, 0, "", 0, 0 },
        { "/tcp/258", PL_ENOTFOUND, 0, 0, "", 0, 0 },
        { "/ip4/1.2.3.4/udp/258", PL_ENOTFOUND, 0, 0, "", 0, 0 },
        { "/ip4/1.2.3.4/tcp/258/tcp/258", PL_ENOTFOUND, 0, 0, "", 0, 0 },
        { "/ip4/1.2.3.4/tcp/258/p2p-circuit", PL_ENOTFOUND, 0, 0, "", 0, 0 },
        { "/ip4/1.2.3.4/tcp/258/p2p/" ID "/p2p/" ID, PL_ENOTFOUND, 0, 0, "", 0, 0 },
        { "/ip4/1.2.3.4/tcp/258/p2p/" ID "/p2p-circuit/p2p-circuit", PL_ENOTFOUND, 0, 0, "", 0, 0 },
        { "/unix/a/tcp/258", PL_ENOTFOUND, 0, 0, "", 0, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(c); i++) {
        struct multiaddr_target t;
        struct multiaddr a;
        assert_int_equal(multiaddr_from_text(&a, c[i].text, NULL), PL_OK);
        assert_int_equal(multiaddr_target(&t, &a), c[i].rc);
        if (c[i].rc) continue;
        assert_int_equal(t.port, 258);
        assert_int_equal(t.family, c[i].family);
        assert_int_equal(t.name_family, c[i].name_family);
        assert_string_equal(t.name, c[i].name);
        assert_int_equal(t.peer.length, c[i].has_peer ? 34 : 0);
        assert_int_equal(t.relay.length, c[i].has_relay ? 34 : 0);
        if (t.family == 4) assert_memory_equal(t.ip, "\1\2\3\4", 4);
    }
}

/* Only this peer's ID, and only at the end of an address. */
static void peer_id_at_the_end_of_an_address(void **state)
{
    struct multiaddr a, b;
    struct peer_id id, other;
    assert_int_equal(peer_id_from_text(&id, ID, strlen(ID)), PL_OK);
    other = id;
    other.bytes[9]++;
    multiaddr_from_text(&a, "/ip4/1.2.3.4/tcp/1/p2p/" ID, NULL);
    multiaddr_from_text(&b, "/ip4/1.2.3.4/tcp/1", NULL);
    assert_false(multiaddr_equal(&a, &b) || multiaddr_equal(&b, &a));
    multiaddr_strip_peer(&a, &other);
    assert_int_equal(a.length, b.length + 37);
    multiaddr_strip_peer(&a, &id);
    assert_true(multiaddr_equal(&a, &b));
    multiaddr_strip_peer(&a, &id);
    assert_true(multiaddr_equal(&a, &b));
    a.bytes[1]++;
    assert_false(multiaddr_equal(&a, &b));
    multiaddr_from_text(&a, "/p2p/" ID, NULL); /* an ID alone stays */
    multiaddr_strip_peer(&a, &id);
    assert_int_equal(a.length, 37);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(printed),
                                        cmocka_unit_test(refused_texts),
                                        cmocka_unit_test(limits),
                                        cmocka_unit_test(refused_bytes),
                                        cmocka_unit_test(codes),
                                        cmocka_unit_test(targets),
                                        cmocka_unit_test(peer_id_at_the_end_of_an_address),
                                        cmocka_unit_test(not_dialled),
                                        cmocka_unit_test(connections) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
