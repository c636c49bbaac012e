/* memory_libp2p.c - every allocation of libp2p's engines and of lists and pages of HTTP fails once: the call reports it,
 * frees what it had (checked in the sanitizer build), and the same call succeeds afterwards. */
#include "test/unit/failing_work.h"
#include "net/http/client/shard_list.h"
#include "net/http/dashboard/dashboard.h"
#include "net/libp2p/muxing/multistream.h"
#include "net/libp2p/muxing/yamux.h"
#include "net/libp2p/peer/multiaddr.h"
#include "net/libp2p/peer/peerstore.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/relay/relay_message.h"
#include "net/libp2p/security/secure_channel.h"

#include <stdlib.h>
#include <string.h>

static struct identity me, other;
static struct pl_err err;

/* --- libp2p ------------------------------------------------------------------------------------ */

static int identities(void)
{
    struct bytes file = { 0 }, record = { 0 };
    struct identity copy = { 0 };
    struct multiaddr at[2];
    struct record r;
    uint8_t signature[SIGNATURE_MAX];
    size_t n = sizeof signature;
    int rc = identity_serialize(&me, &file);
    if (!rc) rc = identity_parse(&copy, bytes_at(&file), bytes_length(&file), NULL);
    if (!rc) rc = identity_sign(&copy, signature, &n, "text", 4);
    if (!rc)
        rc = public_key_verify(bytes_at(&copy.public_key), bytes_length(&copy.public_key), "text",
                               4, signature, n);
    if (!rc) rc = multiaddr_from_text(&at[0], "/ip4/127.0.0.1/tcp/1", NULL);
    if (!rc) rc = multiaddr_from_text(&at[1], "/ip6/::1/tcp/2", NULL);
    if (!rc) rc = record_put(&record, &me, 7, at, 2);
    if (!rc) rc = record_get(&r, bytes_at(&record), bytes_length(&record));
    if (!rc && (r.address_count != 2 || !peer_id_equal(&r.peer, &me.id))) rc = PL_EPROTO;
    identity_clear(&copy);
    bytes_clear(&file);
    bytes_clear(&record);
    return rc;
}

/* What cannot be read is a mistake of who wrote it, never a lack of memory. */
static void addresses_need_no_memory(void **state)
{
    struct multiaddr a;
    struct multiaddr_target t;
    char text[MULTIADDR_TEXT_MAX];
    (void)state;
    fail_at = calls = 0;
    int rc = multiaddr_from_text(&a, "/dns4/host/tcp/1", &err);
    if (!rc) rc = multiaddr_add_peer(&a, &me.id);
    if (!rc) rc = multiaddr_target(&t, &a);
    multiaddr_text(text, &a);
    fail_at = -1;
    assert_int_equal(rc, PL_OK);
    assert_int_equal(calls, 0);
    assert_true(peer_id_equal(&t.peer, &me.id));
    assert_memory_equal(text, "/dns4/host/tcp/1/p2p/12D3", 25);
}

static int messages_of_peers(void)
{
    static const char *const protocols[] = { "/ipfs/id/1.0.0", "/a" };
    struct identify_message m = { .public_key = bytes_at(&me.public_key),
                                  .public_key_bytes = bytes_length(&me.public_key),
                                  .protocols = { protocols[0], protocols[1] },
                                  .protocol_count = 2,
                                  .agent = "us" };
    struct identify_message heard = { 0 };
    struct relay_message hop = { .type = HOP_CONNECT,
                                 .peer = me.id,
                                 .has_limit = 1,
                                 .duration_s = 9 },
                         r;
    struct kad_message find = { .type = KAD_FIND_NODE, .key_bytes = 4 }, found = { 0 };
    struct kad_peer near = { .id = other.id };
    struct bytes out = { 0 }, kad = { 0 }, relay = { 0 };
    struct cursor c;
    const uint8_t *body;
    size_t n;
    int rc = multiaddr_from_text(&m.addresses[0], "/ip4/1.2.3.4/tcp/5", NULL);
    m.address_count = 1;
    near.addresses[0] = hop.addresses[0] = m.addresses[0];
    near.address_count = hop.address_count = 1;
    find.closer = &near;
    find.closer_count = 1;
    if (!rc) rc = identify_put(&out, &m);
    if (!rc) rc = identify_get(&heard, bytes_at(&out), bytes_length(&out));
    if (!rc && (heard.protocol_count != 2 || heard.address_count != 1)) rc = PL_EPROTO;
    identify_clear(&heard);
    if (!rc) rc = kad_put(&kad, &find);
    if (!rc) {
        c = (struct cursor){ bytes_at(&kad), bytes_length(&kad) };
        rc = get_delimited(&c, &body, &n, KAD_RESPONSE_MAX);
    }
    if (!rc) rc = kad_get(&found, body, n);
    if (!rc && found.closer_count != 1) rc = PL_EPROTO;
    kad_clear(&found);
    if (!rc) rc = relay_put(&relay, RELAY_HOP, &hop);
    if (!rc) {
        c = (struct cursor){ bytes_at(&relay), bytes_length(&relay) };
        rc = get_delimited(&c, &body, &n, 4096);
    }
    if (!rc) rc = relay_get(&r, RELAY_HOP, body, n);
    bytes_clear(&out);
    bytes_clear(&kad);
    bytes_clear(&relay);
    return rc;
}

static int known_peers(void)
{
    struct peers all = { 0 };
    int rc = PL_OK;
    for (int i = 0; !rc && i < 40; i++) {
        struct peer_id id = { .length = 34, .bytes = { 0x12, 0x20, (uint8_t)i } };
        struct peer *p = peers_get(&all, &id, 1);
        struct multiaddr at = { 0 };
        if (!p) rc = PL_ENOMEM;
        for (uint16_t k = 0; !rc && k < 3; k++) {
            const uint8_t ip[4] = { 1, 2, 3, 4 };
            at.length = 0;
            multiaddr_add_ip(&at, 4, ip);
            multiaddr_add_tcp(&at, (uint16_t)(1000 + k));
            rc = peer_learn(p, &at, 100);
        }
        if (!rc) rc = peer_set_protocols(p, "/a\0/b", 6);
    }
    peers_clear(&all);
    return rc;
}

/* A handshake and a message each way. */
static int talk(int (*open)(struct secure **, const struct identity *, int, const struct peer_id *,
                            struct bytes *))
{
    struct secure *s[2] = { 0 };
    struct bytes wire[2] = { { 0 }, { 0 } }, plain = { 0 };
    int rc = open(&s[0], &me, 1, &other.id, &wire[0]);
    if (!rc) rc = open(&s[1], &other, 0, NULL, &wire[1]);
    for (int turn = 0; !rc && turn < 12; turn++) {
        int to = !(turn & 1);
        struct bytes *in = &wire[!to];
        if (bytes_length(in))
            rc = s[to]->receive(s[to], bytes_at(in), bytes_length(in), &plain, &wire[to], &err);
        bytes_take(in, bytes_length(in));
    }
    if (!rc && !(s[0]->established && s[1]->established)) rc = PL_EPROTO;
    for (int from = 0; !rc && from < 2; from++) {
        bytes_take(&plain, bytes_length(&plain));
        bytes_take(&wire[from], bytes_length(&wire[from]));
        rc = s[from]->send(s[from], (const uint8_t *)"hello", 5, &wire[from]);
        if (!rc)
            rc = s[!from]->receive(s[!from], bytes_at(&wire[from]), bytes_length(&wire[from]),
                                   &plain, &wire[!from], &err);
        if (!rc && bytes_length(&plain) != 5) rc = PL_EPROTO;
    }
    for (int i = 0; i < 2; i++) {
        if (s[i]) s[i]->close(s[i]);
        bytes_clear(&wire[i]);
    }
    bytes_clear(&plain);
    return rc;
}
static int noise(void) { return talk(noise_open); }
static int tls(void) { return talk(tls_open); }

static int find_protocol(void *context, const char *name, size_t n)
{
    return (void)context, n == 2 && !memcmp(name, "/b", 2) ? 1 : -1;
}

static int negotiations(void)
{
    static const char *const wanted[] = { "/a", "/b" };
    struct multistream dialer, listener;
    struct bytes out[2] = { { 0 }, { 0 } };
    int rc = multistream_dial(&dialer, wanted, 2, &out[0]), agreed = 0;
    if (!rc) rc = multistream_listen(&listener, find_protocol, NULL, &out[1]);
    for (int turn = 0; !rc && !agreed && turn < 6; turn++) {
        struct cursor c = { bytes_at(&out[turn & 1]), bytes_length(&out[turn & 1]) };
        rc = multistream_receive(turn & 1 ? &dialer : &listener, &c, &out[!(turn & 1)]);
        bytes_take(&out[turn & 1], bytes_length(&out[turn & 1]) - c.left);
        agreed = turn & 1 && rc == PL_OK;
        if (rc == PL_EAGAIN || !agreed) rc = rc == PL_EAGAIN ? PL_OK : rc;
    }
    for (int i = 0; i < 2; i++) {
        if (!rc) rc = out[i].failed;
        bytes_clear(&out[i]);
    }
    return rc ? rc : agreed ? PL_OK : PL_EPROTO;
}

static void heard(void *context, struct yamux_stream *s) { *(struct yamux_stream **)context = s; }
static void nothing(void *context, struct yamux_stream *s) { (void)context, (void)s; }

static int muxing(void)
{
    static const struct yamux_events events = { heard, nothing, nothing };
    struct yamux_stream *mine, *theirs = NULL, *unused;
    struct yamux a, b;
    struct bytes out = { 0 }, back = { 0 };
    uint8_t data[3000] = { 0 };
    int rc = PL_OK;
    yamux_init(&a, 1, &events, &unused, 0);
    yamux_init(&b, 0, &events, &theirs, 0);
    a.send_budget = b.send_budget = 1 << 20;
    for (int i = 0; !rc && i < 20; i++) {
        rc = yamux_open(&a, &mine, &out);
        if (!rc) rc = yamux_write(&a, mine, data, sizeof data, &out);
        if (!rc) rc = yamux_receive(&b, bytes_at(&out), bytes_length(&out), &back, &err);
        bytes_take(&out, bytes_length(&out));
        if (!rc) rc = theirs && bytes_length(&theirs->in) == sizeof data ? PL_OK : PL_ENOMEM;
        if (!rc) rc = yamux_took(&b, theirs, sizeof data, &back);
        if (!rc) rc = yamux_finish(theirs, &back);
        if (!rc) rc = yamux_receive(&a, bytes_at(&back), bytes_length(&back), &out, &err);
        bytes_take(&back, bytes_length(&back));
    }
    if (!rc) rc = out.failed ? out.failed : back.failed;
    yamux_clear(&a);
    yamux_clear(&b);
    bytes_clear(&out);
    bytes_clear(&back);
    return rc;
}

/* --- HTTP -------------------------------------------------------------------------------------- */

static int lists(void)
{
    static const char *const texts[] = {
        "a.parquet\n# b\nc.parquet\n", "[\"a\", {\"url\": \"b\", \"more\": null}]",
        "<html><a href=\"a.parquet\">a</a> <a href='b/c.parquet'>"
    };
    int rc = PL_OK;
    for (size_t i = 0; !rc && i < PL_COUNT(texts); i++) {
        struct http_list list;
        rc = http_list_parse(&list, texts[i], strlen(texts[i]), "http://host/folder/list", &err);
        if (!rc && list.count != 2) rc = PL_EPROTO;
        if (!rc) http_list_clear(&list);
    }
    return rc;
}

/* A page without a server: one update of all that it shows. */
static int a_page(void)
{
    const struct dashboard_options o = { .run = "run", .target_batch = 100, .total_steps = 10 };
    struct dashboard_metrics m = { .key = "k",
                                   .record = { .step = 2, .samples = 9, .loss = 3 },
                                   .expiration = 600 };
    struct dashboard_snapshot s = {
        .time = 100, .metrics = &m, .metrics_count = 1, .problem = "one"
    };
    struct dashboard *d = NULL;
    int rc = dashboard_open(&d, NULL, &o, &err);
    if (!rc) rc = dashboard_update(d, &s, &err);
    dashboard_close(d);
    return rc;
}

static int setup(void **state)
{
    (void)state;
    return identity_make(&me, KEY_ED25519, NULL) || identity_make(&other, KEY_ED25519, NULL);
}

static int teardown(void **state)
{
    (void)state;
    identity_clear(&me);
    identity_clear(&other);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH_FAILING(identities, 0),  EACH_FAILING(messages_of_peers, 0),
        EACH_FAILING(known_peers, 0), EACH_FAILING(noise, 0),
        EACH_FAILING(tls, 0),         EACH_FAILING(negotiations, 0),
        EACH_FAILING(muxing, 0),      EACH_FAILING(lists, 0),
        EACH_FAILING(a_page, 0),      cmocka_unit_test(addresses_need_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
