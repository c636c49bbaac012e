/* peerstore.c - the table of known peers: what is kept of their addresses and for how long, back-off, protocols, and
 * who gives way in a full table. [spec libp2p-wire 4, 9, 11] */
#include "net/libp2p/peer/peerstore.h"
#include "test/unit/unit.h"

#include <math.h>

static struct peers all;

static struct peer_id id_of(size_t number)
{
    struct peer_id id = { .length = 34, .bytes = { 0x12, 0x20 } };
    id.bytes[32] = (uint8_t)(number >> 8);
    id.bytes[33] = (uint8_t)number;
    return id;
}

static struct peer *get(size_t number, double now)
{
    const struct peer_id id = id_of(number);
    return peers_get(&all, &id, now);
}

static struct multiaddr at(int port)
{
    struct multiaddr a;
    char text[64];
    snprintf(text, sizeof text, "/ip4/1.2.3.4/tcp/%d", port);
    assert_int_equal(multiaddr_from_text(&a, text, NULL), PL_OK);
    return a;
}

static int learn(struct peer *p, int port, double expires)
{
    const struct multiaddr a = at(port);
    return peer_learn(p, &a, expires);
}

static const struct address *address_of(const struct peer *p, int port)
{
    const struct multiaddr a = at(port);
    for (size_t i = 0; i < p->address_count; i++)
        if (multiaddr_equal(&p->addresses[i].at, &a)) return &p->addresses[i];
    return NULL;
}

static int clear(void **state)
{
    peers_clear(&all);
    return 0;
}

/* --- the table -------------------------------------------------------------------------------- */

static void count(void *context, struct peer *p) { ++*(size_t *)context; }

static void peers_are_found(void **state)
{
    const struct peer_id none = id_of(1000), small = { .length = 7 };
    size_t n = 0;
    assert_null(peers_find(&all, &none));
    for (size_t i = 0; i < 200; i++) {
        struct peer *p = get(i, 5);
        assert_true(p && p->seen == 5);
        assert_ptr_equal(get(i, 6), p);
        assert_true(p->seen == 6);
    }
    assert_int_equal(all.count, 200);
    for (size_t i = 0; i < 200; i++) {
        const struct peer_id id = id_of(i);
        assert_true(peer_id_equal(&peers_find(&all, &id)->id, &id));
    }
    assert_null(peers_find(&all, &none));
    assert_null(peers_get(&all, &small, 5));
    peers_each(&all, count, &n);
    assert_int_equal(n, 200);
}

/* No bucket is left out: 16 peers each time, which fall into other buckets by another seed. */
static void all_are_visited_and_expire(void **state)
{
    for (int round = 0; round < 16; round++) {
        size_t n = 0;
        for (size_t i = 0; i < 16; i++) assert_non_null(get(i, 5));
        peers_each(&all, count, &n);
        assert_int_equal(n, 16);
        peers_expire(&all, 6);
        assert_int_equal(all.count, 0);
        peers_clear(&all);
    }
}

/* In a full table the peer that was seen longest ago gives way, if nothing is under way with it. */
static void the_oldest_gives_way(void **state)
{
    struct peer_id id;
    for (size_t i = 0; i < PEERS_MAX; i++) assert_non_null(get(i, 100 + (double)i));
    get(0, 100000); /* seen again */
    get(1, 101)->connections = (struct connection *)&all;
    get(2, 102)->search = (struct peer_search *)&all;
    assert_non_null(get(PEERS_MAX, 200000));
    assert_int_equal(all.count, PEERS_MAX);
    for (size_t i = 0; i < 5; i++) {
        id = id_of(i);
        assert_int_equal(peers_find(&all, &id) == NULL, i == 3);
    }
    id = id_of(PEERS_MAX);
    assert_non_null(peers_find(&all, &id));
}

/* Addresses end at their time, unless the peer is connected; then the peer is forgotten. */
static void addresses_end(void **state)
{
    struct peer *p = get(1, 0), *connected = get(2, 0);
    struct peer_id id = id_of(1);
    connected->connections = (struct connection *)&all;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(learn(p, i, 10 * i), PL_OK);
        assert_int_equal(learn(connected, i, 10 * i), PL_OK);
    }
    get(3, 0)->search = (struct peer_search *)&all;
    peers_expire(&all, 9.9);
    assert_int_equal(p->address_count, 3);
    peers_expire(&all, 20);
    assert_int_equal(p->address_count, 1);
    assert_non_null(address_of(p, 3));
    peers_expire(&all, 31);
    assert_null(peers_find(&all, &id));
    assert_int_equal(connected->address_count, 3);
    assert_int_equal(all.count, 2);
}

/* --- one peer --------------------------------------------------------------------------------- */

/* An address may end in the peer's own ID, no other; a known one lives on, never shorter. */
static void addresses_are_learnt(void **state)
{
    struct peer *p = get(1, 0);
    struct multiaddr a;
    char text[MULTIADDR_TEXT_MAX], name[PEER_ID_TEXT_MAX];
    for (size_t i = 1; i <= 2; i++) {
        const struct peer_id id = id_of(i);
        peer_id_text(name, &id);
        snprintf(text, sizeof text, "/ip4/1.2.3.4/tcp/7/p2p/%s", name);
        assert_int_equal(multiaddr_from_text(&a, text, NULL), PL_OK);
        assert_int_equal(peer_learn(p, &a, 10), i == 1 ? PL_OK : PL_EPROTO);
    }
    assert_int_equal(p->address_count, 1);
    assert_int_equal(learn(p, 7, 20), PL_OK);
    assert_int_equal(learn(p, 7, 15), PL_OK);
    assert_int_equal(p->address_count, 1);
    assert_true(address_of(p, 7)->expires == 20);
    assert_int_equal(multiaddr_from_text(&a, "/ip4/1.2.3.4", NULL), PL_OK);
    assert_int_not_equal(peer_learn(p, &a, 10), PL_OK);
}

/* Of sixteen the one that failed most gives way, then the one that ends first, if the new one lives longer. */
static void the_worst_address_gives_way(void **state)
{
    struct peer *p = get(1, 0);
    const struct multiaddr failed = at(5), more = at(9);
    for (int i = 1; i <= PEER_ADDRESSES_MAX; i++)
        assert_int_equal(learn(p, i, i == 3 ? 50 : 100), PL_OK);
    assert_int_equal(learn(p, 99, 50), PL_ELIMIT);
    assert_int_equal(learn(p, 20, 51), PL_OK);
    assert_true(!address_of(p, 3) && address_of(p, 20));
    assert_int_equal(p->address_count, PEER_ADDRESSES_MAX);
    peer_address_failed(p, &failed, 0);
    peer_address_failed(p, &more, 0);
    peer_address_failed(p, &more, 0);
    assert_int_equal(learn(p, 21, 1), PL_OK); /* better than one that failed */
    assert_true(!address_of(p, 9) && address_of(p, 5) && address_of(p, 20));
    assert_int_equal(learn(p, 22, 1), PL_OK);
    assert_null(address_of(p, 5));
}

/* 5, 10, 20 ... 300 s, until it works again. */
static void back_off(void **state)
{
    static const double waits[] = { 5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300, 300, 300 };
    struct peer *p = get(1, 0);
    const struct multiaddr a = at(7), unknown = at(8);
    assert_int_equal(learn(p, 7, INFINITY), PL_OK);
    peer_address_failed(p, &unknown, 0);
    for (size_t i = 0; i < PL_COUNT(waits); i++) {
        peer_address_failed(p, &a, 1000);
        assert_true(p->addresses[0].retry_at == 1000 + waits[i]);
        assert_int_equal(p->addresses[0].failures, i + 1);
    }
    peer_address_worked(p, &unknown);
    assert_int_equal(p->addresses[0].failures, PL_COUNT(waits));
    peer_address_worked(p, &a);
    assert_true(p->addresses[0].retry_at == 0 && p->addresses[0].failures == 0);
}

static void protocols(void **state)
{
    static const char texts[] = "/a\0/ipfs/kad/1.0.0\0/b/1";
    struct peer *p = get(1, 0);
    char *long_text = calloc(PEER_PROTOCOL_TEXT_MAX + 1, 1);
    assert_non_null(long_text);
    assert_false(p->identified || peer_serves(p, "/a"));
    assert_int_equal(peer_set_protocols(p, texts, sizeof texts), PL_OK);
    assert_true(p->identified && p->serves_kad);
    assert_true(peer_serves(p, "/a") && peer_serves(p, "/b/1") && !peer_serves(p, "/b"));
    assert_int_equal(peer_set_protocols(p, long_text, PEER_PROTOCOL_TEXT_MAX + 1), PL_ELIMIT);
    assert_true(peer_serves(p, "/a"));
    assert_int_equal(peer_set_protocols(p, long_text, PEER_PROTOCOL_TEXT_MAX), PL_OK);
    assert_int_equal(peer_set_protocols(p, "/c", 3), PL_OK);
    assert_true(!p->serves_kad && !peer_serves(p, "/a") && peer_serves(p, "/c"));
    assert_int_equal(peer_set_protocols(p, NULL, 0), PL_OK);
    assert_false(peer_serves(p, "/c"));
    free(long_text);
}

/* --- where an address lies -------------------------------------------------------------------- */

static enum address_scope scope_of(const char *host)
{
    struct multiaddr a;
    char text[128];
    snprintf(text, sizeof text, "/%s/tcp/1", host);
    assert_int_equal(multiaddr_from_text(&a, text, NULL), PL_OK);
    return multiaddr_scope(&a);
}

static void scopes_at_their_bounds(void **state)
{
    static const char *const loopback[] = { "ip4/127.0.0.1",        "ip4/127.255.255.255",
                                            "ip4/0.0.0.0",          "ip6/::1",
                                            "ip6/::ffff:127.0.0.1", "dns4/localhost" };
    static const char *const private[] = {
        "ip4/10.0.0.0",      "ip4/10.255.255.255",  "ip4/172.16.0.0",  "ip4/172.31.255.255",
        "ip4/192.168.0.0",   "ip4/192.168.255.255", "ip4/169.254.1.1", "ip4/100.64.0.0",
        "ip4/100.127.255.1", "ip6/fc00::1",         "ip6/fdff::1",     "ip6/fe80::1",
        "ip6/febf::1",       "ip6/::ffff:10.1.1.1"
    };
    static const char *const public[] = {
        "ip4/9.255.255.255", "ip4/11.0.0.0",       "ip4/172.15.255.255", "ip4/172.32.0.0",
        "ip4/192.167.1.1",   "ip4/192.169.1.1",    "ip4/169.253.1.1",    "ip4/169.255.1.1",
        "ip4/100.63.255.1",  "ip4/100.128.0.0",    "ip4/171.16.0.1",     "ip4/1.0.0.0",
        "ip4/126.0.0.1",     "ip4/128.0.0.1",      "ip6/fb00::1",        "ip6/fe00::1",
        "ip6/fe7f::1",       "ip6/fec0::1",        "ip6/ff80::1",        "ip6/::2",
        "ip6/2001:db8::1",   "ip6/::ffff:1.2.3.4", "dns4/example.org",   "ip6/::fffe:127.0.0.1"
    };
    for (size_t i = 0; i < PL_COUNT(loopback); i++)
        if (scope_of(loopback[i]) != SCOPE_LOOPBACK) fail_msg("%s", loopback[i]);
    for (size_t i = 0; i < PL_COUNT(private); i++)
        if (scope_of(private[i]) != SCOPE_PRIVATE) fail_msg("%s", private[i]);
    for (size_t i = 0; i < PL_COUNT(public); i++)
        if (scope_of(public[i]) != SCOPE_PUBLIC) fail_msg("%s", public[i]);
}

/* A peer may tell of its own kind of network and of wider ones. */
static void what_a_peer_can_know(void **state)
{
    static const char *const texts[] = { "/ip4/127.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/1",
                                         "/ip4/1.2.3.4/tcp/1" };
    for (int sent = 0; sent < 3; sent++)
        for (int over = 0; over < 3; over++) {
            struct multiaddr a, b;
            assert_int_equal(multiaddr_from_text(&a, texts[sent], NULL), PL_OK);
            assert_int_equal(multiaddr_from_text(&b, texts[over], NULL), PL_OK);
            assert_int_equal(multiaddr_is_plausible(&a, &b), sent >= over);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(peers_are_found, clear),
        cmocka_unit_test_teardown(all_are_visited_and_expire, clear),
        cmocka_unit_test_teardown(the_oldest_gives_way, clear),
        cmocka_unit_test_teardown(addresses_end, clear),
        cmocka_unit_test_teardown(addresses_are_learnt, clear),
        cmocka_unit_test_teardown(the_worst_address_gives_way, clear),
        cmocka_unit_test_teardown(back_off, clear),
        cmocka_unit_test_teardown(protocols, clear),
        cmocka_unit_test(scopes_at_their_bounds),
        cmocka_unit_test(what_a_peer_can_know),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
