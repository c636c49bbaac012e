/* complexity_wire.c - every other parser of strangers' bytes, with n and 2n bytes and with its
 * longest input: transport, protobuf messages, parts and states, access tokens, HTTP. Those of the
 * DHT are in complexity.c.
 * One long file: a table of parsers, and a function for each. */
#include "complexity_work.h"
#include "net/hivemind/matchmaking/group.h"
#include "net/hivemind/messages/averaging.pb-c.h"
#include "net/hivemind/messages/gather_message.h"
#include "net/message.h"
#include "net/hivemind/messages/part_message.h"
#include "net/hivemind/messages/signed_message.h"
#include "net/hivemind/messages/state_message.h"
#include "net/hivemind/moderation/authority.h"
#include "net/hivemind/moderation/authority_client.h"
#include "net/hivemind/verification/equivocation.h"
#include "net/http/client/folder_index.h"
#include "net/http/client/shard_list.h"
#include "net/http/server/host_name.h"
#include "net/libp2p/muxing/multistream.h"
#include "net/libp2p/muxing/yamux.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/relay/dcutr.h"
#include "net/libp2p/relay/relay_message.h"
#include "net/libp2p/rpc/rpc_frame.h"
#include "net/libp2p/security/noise.h"
#include "net/libp2p/security/tls_cert.h"

#include <openssl/evp.h>
#include <openssl/x509v3.h>

static struct identity me;

/* --- inputs: n bytes of one thing -------------------------------------------------------------- */

static void repeat(struct bytes *b, const void *what, size_t length, size_t n)
{
    for (size_t i = 0; i + length <= n; i += length) bytes_add(b, what, length);
}

/* A field of that key around n bytes of the same again. */
static void nest(struct bytes *b, uint8_t key, const void *what, size_t length, size_t n)
{
    bytes_u8(b, key);
    bytes_varint(b, n / length * length);
    repeat(b, what, length, n);
}

static void make_zeros(struct bytes *b, size_t n) { repeat(b, "", 1, n); }
static void make_letters(struct bytes *b, size_t n) { repeat(b, "abcdefgh", 8, n); }
static void make_unknown_fields(struct bytes *b, size_t n) { repeat(b, "\x78\x01", 2, n); }
static void make_empty_2(struct bytes *b, size_t n) { repeat(b, "\x12\x00", 2, n); }
static void make_empty_3(struct bytes *b, size_t n) { repeat(b, "\x1a\x00", 2, n); }
static void make_empty_8(struct bytes *b, size_t n) { repeat(b, "\x42\x00", 2, n); }
static void make_long_text(struct bytes *b, size_t n) { nest(b, 0x1a, "x", 1, n - 8); }
/* KadMessage: one peer with many empty addresses. */
static void make_kad_addresses(struct bytes *b, size_t n) { nest(b, 0x42, "\x12\x00", 2, n); }
/* HopMessage of type CONNECT: a peer with many addresses. */
static void make_relay(struct bytes *b, size_t n) { nest(b, 0x12, "\x12\x00", 2, n - 8); }
/* AutonatMessage { type 0, dial { peer { addrs ... } } } */
static void make_autonat(struct bytes *b, size_t n)
{
    struct bytes peer = { 0 }, dial = { 0 };
    nest(&peer, 0x0a, "\x12\x00", 2, n - 16);
    bytes_u8(&dial, 0x12);
    bytes_varint(&dial, bytes_length(&peer));
    bytes_add(&dial, bytes_at(&peer), bytes_length(&peer));
    bytes_add(b, "\x08\x00", 2);
    bytes_add(b, bytes_at(&dial), bytes_length(&dial));
    bytes_clear(&peer);
    bytes_clear(&dial);
}

/* HolePunch of type CONNECT: many addresses. */
static void make_punch(struct bytes *b, size_t n)
{
    bytes_add(b, "\x08\x64", 2);
    repeat(b, "\x12\x00", 2, n - 2);
}

/* Identify comes in delimited parts of at most 8 KiB. */
static void cut(struct bytes *b, size_t n, const char *field)
{
    struct bytes whole = { 0 };
    repeat(&whole, field, 2, n - n / 1024);
    for (size_t at = 0, all = bytes_length(&whole); at < all; at += 8000) {
        size_t part = all - at < 8000 ? all - at : 8000;
        bytes_varint(b, part);
        bytes_add(b, bytes_at(&whole) + at, part);
    }
    bytes_clear(&whole);
}
static void make_listen_addresses(struct bytes *b, size_t n) { cut(b, n, "\x12\x00"); }
static void make_protocols(struct bytes *b, size_t n) { cut(b, n, "\x1a\x00"); }

/* Envelope: an invalid key, a type, n bytes of payload. */
static void make_envelope(struct bytes *b, size_t n)
{
    bytes_add(b, "\x0a\x04\x08\x01\x12\x00\x12\x02\x03\x01", 10);
    nest(b, 0x1a, "\x1a\x00", 2, n - 24);
    bytes_add(b, "\x2a\x00", 2);
}

static void frame(struct bytes *b, int type, int flags, uint32_t stream, uint32_t length)
{
    const struct yamux_frame f = { 0, (uint8_t)type, (uint16_t)flags, stream, length };
    yamux_frame_put(b, &f);
}
static void make_data_frames(struct bytes *b, size_t n)
{
    frame(b, YAMUX_WINDOW_UPDATE, YAMUX_SYN, 1, 0);
    for (size_t i = 0; i < n / 13; i++) {
        frame(b, YAMUX_DATA, 0, 1, 1);
        bytes_u8(b, 'x');
    }
}
static void make_streams(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n / 12; i++)
        frame(b, YAMUX_WINDOW_UPDATE, YAMUX_SYN, (uint32_t)(1 + 2 * i), 0);
}
static void make_pings(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n / 12; i++) frame(b, YAMUX_PING, YAMUX_SYN, 0, (uint32_t)i);
}
static void make_frames_of_no_stream(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n / 12; i++) frame(b, YAMUX_WINDOW_UPDATE, 0, (uint32_t)(1 + 2 * i), 9);
}

/* A certificate with extensions that mean nothing to us, behind its own. */
static void make_certificate(struct bytes *b, size_t n)
{
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    ASN1_OBJECT *name = OBJ_txt2obj("1.3.6.1.4.1.53594.9", 1);
    X509_EXTENSION *e = X509_EXTENSION_create_by_OBJ(NULL, name, 0, value);
    unsigned char *der = NULL;
    EVP_PKEY *key;
    X509 *cert;
    int length;
    assert_int_equal(tls_cert_make(&cert, &key, &me), PL_OK);
    for (size_t i = 0; i < n / 18; i++) X509_add_ext(cert, e, -1);
    X509_sign(cert, key, EVP_sha256());
    assert_true((length = i2d_X509(cert, &der)) > 0);
    bytes_add(b, der, (size_t)length);
    OPENSSL_free(der);
    X509_free(cert);
    EVP_PKEY_free(key);
    X509_EXTENSION_free(e);
    ASN1_OBJECT_free(name);
    ASN1_OCTET_STRING_free(value);
}

static void make_proposals(struct bytes *b, size_t n)
{
    bytes_add(b, "\x13/multistream/1.0.0\n", 20);
    repeat(b, "\x04/ab\n", 5, n);
}

/* NoiseHandshakePayload: extensions with many empty names. */
static void make_muxers(struct bytes *b, size_t n) { nest(b, 0x22, "\x12\x00", 2, n - 8); }

static void make_call(struct bytes *b, size_t n)
{
    static const uint8_t data[4096];
    struct bytes inside = { 0 };
    struct rpc_unary m = { .kind = RPC_REQUEST, .proto = "x", .proto_bytes = 1, .peer = data };
    repeat(&inside, data, sizeof data, n - n / 64);
    m.data = bytes_at(&inside);
    m.n = bytes_length(&inside);
    rpc_unary_put(b, &m);
    bytes_clear(&inside);
}
static void make_call_of_unknown_fields(struct bytes *b, size_t n)
{
    struct bytes inside = { 0 };
    repeat(&inside, "\x78\x01", 2, n - 32);
    bytes_varint(b, bytes_length(&inside));
    bytes_add(b, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
}
static void make_rpc_frames(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n / (RPC_HEADER + 1); i++) {
        rpc_header_put(b, RPC_MESSAGE, 1);
        bytes_u8(b, 0);
    }
}
static void make_rpc_error(struct bytes *b, size_t n)
{
    rpc_header_put(b, RPC_END, n);
    bytes_u8(b, 0x0a);
    bytes_varint(b, n - 1 - (n > 1 << 14 ? 3 : 2));
    repeat(b, "\x01", 1, n - 1 - (n > 1 << 14 ? 3 : 2));
}

static void make_circuits(struct bytes *b, size_t n) { repeat(b, "\xa2\x02", 2, n); }
static void make_circuits_text(struct bytes *b, size_t n) { repeat(b, "/p2p-circuit", 12, n); }

/* A part of n bytes of zeros as float32, and its wrapping. */
static void make_part(struct bytes *b, size_t n)
{
    struct part_message m = { .code = 4, .weight = 1, .has_part = 1 };
    uint8_t *values;
    m.elements = (n - 64) / sizeof(float);
    m.bytes = m.elements * sizeof(float);
    part_message_write(b, &values, &m);
    if (values) memset(values, 0, m.bytes);
}
static void make_sizes(struct bytes *b, size_t n) { nest(b, 0x22, "\x10\x02", 2, n - 8); }

/* The metadata of n / 26 leaves of an optimizer. */
static void make_leaves(struct bytes *b, size_t n)
{
    struct training_state t = { .epoch = 1, .count = n / 26 };
    t.leaves = calloc(t.count + 1, sizeof *t.leaves);
    for (size_t i = 0; i < t.count; i++)
        t.leaves[i] = (struct state_leaf){ .kind = STATE_REAL, .real = 1 };
    training_state_write(b, &t);
    free(t.leaves);
}
/* A leader's list of many peers, each with a short gather message. */
static void make_group(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n / 44; i++) {
        uint8_t peer[34] = { 0x12, 0x20 };
        memcpy(peer + 2, &i, sizeof i);
        bytes_add(b, "\x22\x22", 2);
        bytes_add(b, peer, sizeof peer);
        bytes_add(b, "\x2a\x06\x93\xc0\x00\xc4\x01\xc0", 8);
    }
}
static void make_user_data(struct bytes *b, size_t n)
{
    bytes_add(b, "\x93\xc0\x00\xc5", 4);
    bytes_be16(b, (uint16_t)(n - 8));
    repeat(b, "x", 1, n - 8);
}

/* Two signed messages of n / 2 bytes, to one peer and to all: as a proof that they contradict each
 * other. */
static void make_proof(struct bytes *b, size_t n)
{
    static const uint8_t round[PL_HASH_BYTES];
    struct bytes body = { 0 }, pair = { 0 }, common = { 0 };
    struct signed_message m = { .stage = 0, .to = 1 };
    repeat(&body, "x", 1, n / 2);
    m.body = bytes_at(&body);
    m.n = bytes_length(&body);
    signed_message_write(&pair, &m, &me, round);
    m.stage = 1;
    m.to = SIGNED_TO_ALL;
    signed_message_write(&common, &m, &me, round);
    equivocation_write(b, bytes_at(&pair), bytes_length(&pair), bytes_at(&common),
                       bytes_length(&common));
    bytes_clear(&body);
    bytes_clear(&pair);
    bytes_clear(&common);
}

static void make_names(struct bytes *b, size_t n) { repeat(b, "folder/shard.parquet\n", 21, n); }
static void make_json_names(struct bytes *b, size_t n)
{
    bytes_add(b, "[\"a\"", 4);
    repeat(b, ",\"b.tar\"", 8, n - 8);
    bytes_add(b, "]", 1);
}
/* Links that differ, as in a folder of this many shards. */
static void make_links(struct bytes *b, size_t n)
{
    bytes_add(b, "<html>", 6);
    for (size_t i = 0; i < n / 32; i++) {
        char link[64];
        int length = snprintf(link, sizeof link, "<a href=\"%08zx.parquet\">x</a>",
                              i * 2654435761u);
        bytes_add(b, link, (size_t)length);
    }
}
static void make_open_tags(struct bytes *b, size_t n) { repeat(b, "<a <!-- ", 8, n); }
static void make_json_lists(struct bytes *b, size_t n)
{
    bytes_add(b, "{\"experiment_join_input\":[", 26);
    repeat(b, "[],", 3, n - 40);
    bytes_add(b, "1]}", 3);
}

/* --- what reads them --------------------------------------------------------------------------- */

static void take_all(void *context, struct yamux_stream *s)
{
    struct bytes out = { 0 };
    yamux_took(context, s, bytes_length(&s->in), &out);
    bytes_clear(&out);
}
static void ignore(void *context, struct yamux_stream *s) { (void)context, (void)s; }

static void read_yamux(const uint8_t *data, size_t n)
{
    static const struct yamux_events events = { ignore, take_all, ignore };
    struct bytes out = { 0 };
    struct yamux y;
    yamux_init(&y, 0, &events, &y, 1);
    y.send_budget = SIZE_MAX / 2;
    yamux_receive(&y, data, n, &out, NULL);
    yamux_pump(&y, &out);
    yamux_clear(&y);
    bytes_clear(&out);
}

static int find_none(void *context, const char *name, size_t n) { return -1; }
static void read_multistream(const uint8_t *data, size_t n)
{
    struct multistream m;
    struct bytes out = { 0 };
    struct cursor c = { data, n };
    multistream_listen(&m, find_none, NULL, &out);
    multistream_receive(&m, &c, &out);
    bytes_clear(&out);
}

static int pass(struct secure *to, struct bytes *from, struct bytes *plain, struct bytes *answer)
{
    int rc = to->receive(to, bytes_at(from), bytes_length(from), plain, answer, NULL);
    bytes_take(from, bytes_length(from));
    return rc;
}

/* A handshake with that payload, then as many bytes enciphered and read. */
static void shake(const uint8_t *data, size_t n, int is_payload)
{
    static const uint8_t secret[2][32] = { { 1 }, { 2 } };
    struct noise_fixed fixed = { .static_private = secret[0],
                                 .ephemeral_private = secret[1],
                                 .payload = is_payload ? data : NULL,
                                 .payload_bytes = is_payload ? n : 0 };
    struct secure *a = NULL, *b = NULL;
    struct bytes from_a = { 0 }, from_b = { 0 }, plain = { 0 };
    assert_int_equal(noise_open_fixed(&b, &me, 0, NULL, &from_b, NULL), PL_OK);
    assert_int_equal(noise_open_fixed(&a, &me, 1, NULL, &from_a, &fixed), PL_OK);
    if (!pass(b, &from_a, &plain, &from_b) && !pass(a, &from_b, &plain, &from_a) &&
        !pass(b, &from_a, &plain, &from_b) && !is_payload) {
        assert_true(a->established && b->established);
        assert_int_equal(a->send(a, data, n, &from_a), PL_OK);
        assert_int_equal(pass(b, &from_a, &plain, &from_b), PL_OK);
        assert_int_equal(bytes_length(&plain), n);
    }
    a->close(a);
    b->close(b);
    bytes_clear(&from_a);
    bytes_clear(&from_b);
    bytes_clear(&plain);
}
static void read_noise_payload(const uint8_t *data, size_t n) { shake(data, n, 1); }
static void read_noise_messages(const uint8_t *data, size_t n) { shake(data, n, 0); }

static void check_certificate(const uint8_t *data, size_t n)
{
    const unsigned char *at = data;
    struct peer_id peer;
    X509 *cert = d2i_X509(NULL, &at, (long)n);
    assert_non_null(cert);
    assert_int_equal(tls_cert_check(&peer, cert, time(NULL), NULL), PL_OK);
    X509_free(cert);
}
static void read_identify(const uint8_t *data, size_t n)
{
    static struct identify_message m; /* large */
    identify_get(&m, data, n);
    identify_clear(&m);
}
static void read_record(const uint8_t *data, size_t n)
{
    static struct record r;
    record_get(&r, data, n);
}
static void read_kad(const uint8_t *data, size_t n)
{
    struct kad_message m;
    kad_get(&m, data, n);
    kad_clear(&m);
}
static void read_relay(const uint8_t *data, size_t n)
{
    struct relay_message m;
    relay_get(&m, RELAY_HOP, data, n);
    relay_get(&m, RELAY_STOP, data, n);
}
static void read_dcutr(const uint8_t *data, size_t n)
{
    struct dcutr_message m;
    dcutr_get(&m, data, n);
}
static void read_autonat(const uint8_t *data, size_t n)
{
    struct autonat_message m;
    autonat_get(&m, data, n);
}

/* As they arrive: in ten pieces, and each time from the start. */
static void read_call(const uint8_t *data, size_t n)
{
    for (int i = 1; i <= 10; i++) {
        struct cursor c = { data, n * (size_t)i / 10 };
        struct rpc_unary m;
        size_t want;
        rpc_unary_get(&c, &m, MESSAGE, &want);
    }
}
static void read_rpc_frames(const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    struct rpc_frame f;
    char text[100];
    size_t want;
    while (!rpc_frame_get(&c, &f, MESSAGE, &want))
        if (f.marker == RPC_END) rpc_error_text(text, sizeof text, &f);
}

static void read_multiaddr(const uint8_t *data, size_t n)
{
    struct multiaddr a;
    struct multiaddr_target t;
    char text[MULTIADDR_TEXT_MAX];
    if (multiaddr_parse(&a, data, n)) return;
    multiaddr_text(text, &a);
    multiaddr_target(&t, &a);
}
static void read_multiaddr_text(const uint8_t *data, size_t n)
{
    struct multiaddr a;
    char *text = malloc(n + 1);
    memcpy(text, data, n);
    text[n] = 0;
    multiaddr_from_text(&a, text, NULL);
    free(text);
}

static void read_part(const uint8_t *data, size_t n)
{
    struct part_message m;
    if (!part_message_read(&m, data, n, NULL) && m.has_part) part_message_is_finite(&m);
}
static void read_tensor(const uint8_t *data, size_t n)
{
    struct tensor_message m;
    if (!tensor_unpack(&m, data, n, NULL)) tensor_clear(&m);
}
static void load_state(const uint8_t *data, size_t n)
{
    struct state_load l = { 0 };
    state_load_add(&l, data, n, NULL);
    state_load_clear(&l);
}
static void read_metadata(const uint8_t *data, size_t n)
{
    struct training_state t;
    assert_int_equal(training_state_read(&t, data, n, NULL), PL_OK);
    training_state_clear(&t);
}
static void read_signed(const uint8_t *data, size_t n)
{
    struct signed_message m;
    uint8_t hash[PL_HASH_BYTES];
    if (!signed_message_read(&m, data, n)) signed_hash(hash, m.body, m.n);
}
static int contradicts(const struct signed_message *pair, const struct signed_message *common,
                       size_t count)
{
    return pair->n == common->n && count == 2;
}
static void check_proof(const uint8_t *data, size_t n)
{
    static const struct equivocation_rules rules = { 2, 1, contradicts };
    const struct equivocation_scope s = { .rules = &rules, .peers = &me.id, .count = 2 };
    size_t peer;
    assert_int_equal(equivocation_check(&peer, &s, data, n), PL_OK);
}
static void read_group(const uint8_t *data, size_t n)
{
    Hivemind__MessageFromLeader *m = message_unpack(&hivemind__message_from_leader__descriptor,
                                                    data, n, NULL);
    struct group g = { 0 };
    assert_non_null(m);
    for (size_t i = 0; i < m->n_gathered; i++) {
        struct peer_id peer;
        assert_int_equal(peer_id_parse(&peer, m->ordered_peer_ids[i].data,
                                       m->ordered_peer_ids[i].len),
                         PL_OK);
        if (group_append(&g, &peer, m->gathered[i].data, m->gathered[i].len, NULL)) break;
    }
    group_check_peers(&g);
    group_clear(&g);
    message_free(m);
}
static void read_gather(const uint8_t *data, size_t n)
{
    struct gather g;
    assert_int_equal(gather_read(&g, data, n, NULL), PL_OK);
}
static void read_token(const uint8_t *data, size_t n)
{
    struct auth_token t;
    if (!auth_token_read(&t, data, n)) auth_token_clear(&t);
}
static void read_signed_request(const uint8_t *data, size_t n)
{
    struct auth a = { 0 };
    struct bytes message = { 0 };
    const uint8_t *plain;
    uint8_t nonce[AUTH_NONCE];
    size_t plain_n;
    bytes_u8(&message, 0x0a);
    bytes_varint(&message, n);
    bytes_add(&message, data, n);
    auth_check_request(&plain, &plain_n, nonce, &a, 0, bytes_at(&message), bytes_length(&message),
                       NULL);
    bytes_clear(&message);
    auth_clear(&a);
}

static void read_list(const uint8_t *data, size_t n)
{
    struct http_list l;
    if (!http_list_parse(&l, (const char *)data, n, "http://host/list", NULL)) http_list_clear(&l);
}
static void read_folder(const uint8_t *data, size_t n)
{
    char **names;
    size_t count;
    if (http_index_read(&names, &count, (const char *)data, n, HTTP_LIST_MAX, "http://host/", NULL))
        return;
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}
static void join_authority(const uint8_t *data, size_t n)
{
    struct authority a = { 0 };
    struct bytes json = { 0 };
    authority_join(&a, &json, "Bearer x", data, n, 0);
    bytes_clear(&json);
}
static void read_authority(const uint8_t *data, size_t n)
{
    struct auth_token t;
    EVP_PKEY *key;
    if (!authority_answer_read(&t, &key, (const char *)data, n, NULL)) {
        auth_token_clear(&t);
        EVP_PKEY_free(key);
    }
}
static void check_host(const uint8_t *data, size_t n)
{
    static const struct http_hosts none;
    static const struct http_address local;
    char *text = malloc(n + 1);
    memcpy(text, data, n);
    text[n] = 0;
    http_hosts_have(&none, text, &local);
    free(text);
}

/* --- all of them ------------------------------------------------------------------------------- */

static const struct work works[] = {
    { "yamux: data frames of a byte", make_data_frames, read_yamux, 0 },
    { "yamux: new streams", make_streams, read_yamux, 0 },
    { "yamux: pings", make_pings, read_yamux, 0 },
    { "yamux: frames of no stream", make_frames_of_no_stream, read_yamux, 0 },
    { "multistream: proposals", make_proposals, read_multistream, 65536 },
    { "noise: a payload of names", make_muxers, read_noise_payload, 60000 },
    { "noise: messages", make_zeros, read_noise_messages, 0 },
    { "tls: extensions of a certificate", make_certificate, check_certificate, 65536 },
    { "identify: addresses", make_listen_addresses, read_identify, 65536 },
    { "identify: protocols", make_protocols, read_identify, 65536 },
    { "a signed peer record", make_envelope, read_record, ENVELOPE_MAX },
    { "kad: peers", make_empty_8, read_kad, KAD_RESPONSE_MAX },
    { "kad: addresses of a peer", make_kad_addresses, read_kad, KAD_RESPONSE_MAX },
    { "relay: addresses", make_relay, read_relay, RELAY_MESSAGE_MAX },
    { "autonat: addresses", make_autonat, read_autonat, AUTONAT_MESSAGE_MAX },
    { "dcutr: addresses", make_punch, read_dcutr, DCUTR_MESSAGE_MAX },
    { "rpc: a call", make_call, read_call, 0 },
    { "rpc: a call of unknown fields", make_call_of_unknown_fields, read_call, 0 },
    { "rpc: frames of a byte", make_rpc_frames, read_rpc_frames, 0 },
    { "rpc: an error's text", make_rpc_error, read_rpc_frames, 65536 },
    { "multiaddr: bytes", make_circuits, read_multiaddr, MULTIADDR_MAX },
    { "multiaddr: text", make_circuits_text, read_multiaddr_text, MULTIADDR_TEXT_MAX },
    { "a part", make_part, read_part, 0 },
    { "a part: unknown fields", make_unknown_fields, read_part, 0 },
    { "a part: axes", make_sizes, read_part, 0 },
    { "a tensor: axes", make_empty_2, read_tensor, 0 },
    { "a tensor: unknown fields", make_unknown_fields, read_tensor, 0 },
    { "a state: unknown fields", make_unknown_fields, load_state, 0 },
    { "a state: metadata", make_leaves, read_metadata, STATE_METADATA_MAX / 2 },
    { "a signed message", make_letters, read_signed, 0 },
    { "a proof of two messages", make_proof, check_proof, 0 },
    { "a leader's list", make_group, read_group, 44 * GROUP_PEERS_MAX },
    { "a gather message", make_user_data, read_gather, GATHER_MAX },
    { "a token: its fields again and again", make_empty_3, read_token, 65536 },
    { "a token: a long text", make_long_text, read_token, 0 },
    { "a request's token", make_empty_2, read_signed_request, 65536 },
    { "http: a list of names", make_names, read_list, 0 },
    { "http: a list in JSON", make_json_names, read_list, 0 },
    { "http: a folder's page", make_links, read_folder, 0 },
    { "http: a page of open tags", make_open_tags, read_folder, 0 },
    { "http: a request to the authority", make_json_lists, join_authority, AUTHORITY_BODY_MAX },
    { "http: an authority's answer", make_json_lists, read_authority, AUTHORITY_ANSWER_MAX },
    { "http: a Host header", make_letters, check_host, 8192 },
};

static void work_grows_linearly(void **state)
{
    for (size_t i = 0; i < PL_COUNT(works); i++) is_linear(&works[i]);
}

static void longest_message_is_quick(void **state)
{
    for (size_t i = 0; i < PL_COUNT(works); i++) is_quick(&works[i]);
}

static int setup(void **state) { return identity_make(&me, KEY_ED25519, NULL); }

static int teardown(void **state)
{
    identity_clear(&me);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(work_grows_linearly),
                                        cmocka_unit_test(longest_message_is_quick) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
