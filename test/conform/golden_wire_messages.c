/* golden_wire_messages.c - identify, look-ups, relay and calls: each message is read, compared with
 * what the recording says of it, and written again. */
#include "golden_wire.h"
#include "../../net/libp2p/identify.h"
#include "../../net/libp2p/kad.h"
#include "../../net/libp2p/relay_message.h"
#include "../../net/libp2p/rpc.h"
#include "../../net/libp2p/rpc_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- identify --------------------------------------------------------------------------------- */

static int same_text(const json_t *want, const char *got)
{
    const char *text = json_string_value(want);
    return !text || (got && !strcmp(text, got));
}

static int same_bytes(const json_t *object, const char *key, const uint8_t *data, size_t n)
{
    const char *hex = json_string_value(json_object_get(object, key));
    struct bytes want = { 0 };
    int same = !hex || (!wire_hex(&want, hex) && bytes_length(&want) == n &&
                        !memcmp(bytes_at(&want), data, n));
    bytes_clear(&want);
    return same;
}

static int same_address(const json_t *want, const struct multiaddr *got)
{
    char text[MULTIADDR_TEXT_MAX];
    multiaddr_text(text, got);
    return same_text(want, text);
}

static void check_fields(struct golden *g, const char *name, const json_t *entry,
                         const struct identify_message *m)
{
    const json_t *addresses = json_object_get(entry, "listenAddrs");
    const json_t *protocols = json_object_get(entry, "protocols");
    char what[120];
    size_t i;
    json_t *want;
    int good = same_bytes(entry, "publicKey", m->public_key, m->public_key_bytes) &&
               same_text(json_object_get(entry, "protocolVersion"), m->protocol_version) &&
               same_text(json_object_get(entry, "agentVersion"), m->agent) &&
               same_bytes(entry, "signedPeerRecord", m->record, m->record_bytes) &&
               same_address(json_object_get(entry, "observedAddr"), &m->observed);
    if (addresses) good &= json_array_size(addresses) == m->address_count;
    json_array_foreach(addresses, i, want) good = good && same_address(want, &m->addresses[i]);
    if (protocols) good &= json_array_size(protocols) == m->protocol_count;
    json_array_foreach(protocols, i, want) good = good && same_text(want, m->protocols[i]);
    snprintf(what, sizeof what, "%.80s fields", name);
    golden_check(g, what, good, "differ from the recording's");
}

static void check_record(struct golden *g, const char *name, const json_t *entry,
                         const struct identify_message *m)
{
    const json_t *parts = json_object_get(entry, "record");
    struct record r;
    struct bytes out = { 0 }, secret = { 0 }, want = { 0 };
    struct identity me = { 0 };
    char what[120];
    int rc;
    if (!m->record_bytes) return;
    rc = record_get(&r, m->record, m->record_bytes);
    snprintf(what, sizeof what, "%.80s signed record", name);
    golden_check(g, what, !rc, "refused with status %d", rc);
    if (rc) return;
    bytes_add(&want, m->record, m->record_bytes);
    want.data[want.begin + bytes_length(&want) / 2] ^= 1;
    snprintf(what, sizeof what, "%.80s altered record is refused", name);
    golden_check(g, what, record_get(&r, bytes_at(&want), bytes_length(&want)) != 0, "accepted");
    want.data[want.begin + bytes_length(&want) / 2] ^= 1;
    record_get(&r, bytes_at(&want), bytes_length(&want));
    snprintf(what, sizeof what, "%.80s record's peer", name);
    if (parts) {
        struct bytes key = { 0 };
        struct peer_id id = { 0 };
        if (wire_member(g, parts, "public_key", &key))
            peer_id_of_key(&id, bytes_at(&key), bytes_length(&key));
        golden_check(g, what, peer_id_equal(&id, &r.peer), "is another");
        bytes_clear(&key);
    }
    if (json_object_get(entry, "private_key_protobuf") &&
        wire_member(g, entry, "private_key_protobuf", &secret) &&
        !identity_parse(&me, bytes_at(&secret), bytes_length(&secret), NULL)) {
        record_put(&out, &me, r.seq, r.addresses, r.address_count);
        snprintf(what, sizeof what, "%.80s record is made again", name);
        wire_same(g, what, &out, &want);
    }
    identity_clear(&me);
    bytes_clear(&out);
    bytes_clear(&secret);
    bytes_clear(&want);
}

/* 1 if a message's fields come in the order of their numbers, as we write them. */
static int is_ordered(const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    uint64_t key, last = 0;
    const uint8_t *body;
    size_t length;
    while (c.left) {
        if (get_varint(&c, &key) || (key & 7) != 2 || get_delimited(&c, &body, &length, n))
            return 0;
        if (key < last) return 0;
        last = key;
    }
    return 1;
}

static void check_identify(struct golden *g, const char *name, const json_t *entry)
{
    struct identify_message m, again;
    struct bytes raw = { 0 }, out = { 0 };
    struct cursor c;
    const uint8_t *body;
    size_t n;
    char what[120];
    int rc;
    if (!wire_member(g, entry, "delimited", &raw)) return;
    rc = identify_get(&m, bytes_at(&raw), bytes_length(&raw));
    snprintf(what, sizeof what, "%.80s is read", name);
    golden_check(g, what, !rc, "status %d", rc);
    if (!rc) {
        check_fields(g, name, entry, &m);
        check_record(g, name, entry, &m);
        identify_put(&out, &m);
        c = (struct cursor){ bytes_at(&raw), bytes_length(&raw) };
        snprintf(what, sizeof what, "%.80s is written again", name);
        if (!get_delimited(&c, &body, &n, IDENTIFY_PART_MAX) && !c.left && is_ordered(body, n)) {
            wire_same(g, what, &out, &raw);
        } else { /* other parts or another order: the same fields */
            rc = identify_get(&again, bytes_at(&out), bytes_length(&out));
            golden_check(g, what, !rc && again.address_count == m.address_count &&
                         again.protocol_count == m.protocol_count &&
                         again.record_bytes == m.record_bytes &&
                         multiaddr_equal(&again.observed, &m.observed), "reads differently");
            if (!rc) check_fields(g, name, entry, &again);
            identify_clear(&again);
        }
    }
    identify_clear(&m);
    bytes_clear(&raw);
    bytes_clear(&out);
}

void golden_wire_identify(struct golden *g, const json_t *root)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)root, name, entry)
        if (json_object_get(entry, "delimited")) check_identify(g, name, entry);
}

/* --- look-ups --------------------------------------------------------------------------------- */

/* The body of a message: as it is, or with its length in front. */
static struct cursor body_of(const struct bytes *raw)
{
    struct cursor whole = { bytes_at(raw), bytes_length(raw) }, c = whole;
    uint64_t n;
    return !get_varint(&c, &n) && n == c.left ? c : whole;
}

int golden_wire_kad_message(struct golden *g, const char *what, const struct bytes *raw,
                            struct kad_message *m)
{
    struct cursor body = body_of(raw);
    struct bytes out = { 0 }, want = { 0 };
    int rc = kad_get(m, body.at, body.left);
    golden_check(g, what, !rc, "status %d", rc);
    if (!rc) {
        bytes_varint(&want, body.left);
        bytes_add(&want, body.at, body.left);
        kad_put(&out, m);
        wire_same(g, what, &out, &want);
    }
    bytes_clear(&out);
    bytes_clear(&want);
    return rc;
}

void golden_wire_kad(struct golden *g, const json_t *root)
{
    static const char *const members[] = { "request_delimited", "response" };
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)root, name, entry) {
        for (size_t i = 0; i < PL_COUNT(members); i++) {
            struct bytes raw = { 0 };
            struct kad_message m = { 0 };
            char what[120];
            if (!json_is_object(entry) || !json_object_get(entry, members[i])) continue;
            snprintf(what, sizeof what, "%.60s %s", name, members[i]);
            if (wire_member(g, entry, members[i], &raw) &&
                !golden_wire_kad_message(g, what, &raw, &m) && i == 0) {
                snprintf(what, sizeof what, "%.60s key", name);
                golden_check(g, what, m.type == KAD_FIND_NODE &&
                             same_bytes(entry, "target", m.key, m.key_bytes), "is not the target");
            }
            kad_clear(&m);
            bytes_clear(&raw);
        }
    }
}

/* --- relay ------------------------------------------------------------------------------------ */

void golden_wire_relay(struct golden *g, const json_t *root)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)root, name, entry) {
        enum relay_protocol p = strncmp(name, "stop", 4) ? RELAY_HOP : RELAY_STOP;
        struct bytes raw = { 0 }, want = { 0 }, out = { 0 };
        struct relay_message m;
        struct cursor body;
        int rc;
        if (!json_is_string(entry)) continue;
        if (wire_member(g, root, name, &raw)) {
            body = body_of(&raw);
            rc = relay_get(&m, p, body.at, body.left);
            golden_check(g, name, !rc, "status %d", rc);
            bytes_varint(&want, body.left);
            bytes_add(&want, body.at, body.left);
            if (!rc) relay_put(&out, p, &m);
            wire_same(g, name, &out, &want);
            if (!rc && m.has_reservation) {
                const json_t *limit = json_object_get(root, "limit");
                const json_t *status = json_object_get(root, "status");
                golden_check(g, "reservation",
                             m.expire > 0 &&
                                 m.status == json_integer_value(json_array_get(status, 0)) &&
                                 m.duration_s == json_integer_value(json_object_get(limit, "1")) &&
                                 m.data_bytes ==
                                     (uint64_t)json_integer_value(json_object_get(limit, "2")),
                             "status %d, %u s, %llu bytes", m.status, (unsigned)m.duration_s,
                             (unsigned long long)m.data_bytes);
            }
        }
        bytes_clear(&raw);
        bytes_clear(&want);
        bytes_clear(&out);
    }
}

/* --- unary calls ------------------------------------------------------------------------------ */

int golden_wire_unary_message(struct golden *g, const char *what, const struct bytes *raw,
                              struct rpc_unary *m)
{
    struct cursor c = { bytes_at(raw), bytes_length(raw) };
    struct bytes out = { 0 };
    size_t want;
    int rc = rpc_unary_get(&c, m, RPC_UNARY_MAX, &want);
    golden_check(g, what, !rc && !c.left, "status %d, %zu bytes left", rc, c.left);
    if (!rc) {
        rpc_unary_put(&out, m);
        wire_same(g, what, &out, raw);
    }
    bytes_clear(&out);
    /* Cut anywhere, it asks for more. */
    for (size_t n = 0; !rc && n < bytes_length(raw); n++) {
        struct rpc_unary part;
        c = (struct cursor){ bytes_at(raw), n };
        if (rpc_unary_get(&c, &part, RPC_UNARY_MAX, &want) != PL_EAGAIN || want <= n ||
            want > bytes_length(raw))
            golden_fail(g, what, "its first %zu bytes are not waited for", n);
    }
    return rc;
}

static void check_unary(struct golden *g, const char *name, const json_t *entry)
{
    struct bytes raw = { 0 };
    struct rpc_unary m;
    const char *proto = json_string_value(json_object_get(entry, "proto"));
    const char *error = json_string_value(json_object_get(entry, "error"));
    enum rpc_unary_kind kind = proto ? RPC_REQUEST : error ? RPC_ERROR : RPC_RESPONSE;
    char what[120];
    if (wire_member(g, entry, "delimited", &raw) && !golden_wire_unary_message(g, name, &raw, &m)) {
        int good = m.kind == kind && same_bytes(entry, "call_id", m.call_id, RPC_CALL_ID) &&
                   same_bytes(entry, "data", m.data, m.n) &&
                   same_bytes(entry, "response", m.data, m.n) &&
                   same_bytes(entry, "peer", m.peer, m.peer_bytes);
        if (proto) good &= strlen(proto) == m.proto_bytes && !memcmp(proto, m.proto, m.proto_bytes);
        if (error) good &= strlen(error) == m.n && !memcmp(error, m.data, m.n);
        snprintf(what, sizeof what, "%.80s fields", name);
        golden_check(g, what, good, "differ from the recording's");
    }
    bytes_clear(&raw);
}

void golden_wire_unary(struct golden *g, const json_t *root)
{
    const char *name;
    json_t *entry, *refused;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)root, name, entry) {
        if (json_is_object(entry) && json_object_get(entry, "delimited"))
            check_unary(g, name, entry);
        json_array_foreach(json_is_array(entry) ? entry : NULL, i, refused) {
            const char *why = json_string_value(json_object_get(refused, "why"));
            struct bytes raw = { 0 };
            if (wire_member(g, refused, "delimited", &raw)) {
                struct cursor c = { bytes_at(&raw), bytes_length(&raw) };
                struct rpc_unary m;
                size_t want;
                int rc = rpc_unary_get(&c, &m, RPC_UNARY_MAX, &want);
                golden_check(g, why ? why : "refused", rc == PL_EPROTO || rc == PL_ELIMIT,
                             "status %d", rc);
            }
            bytes_clear(&raw);
        }
    }
}

/* --- streaming calls -------------------------------------------------------------------------- */

static void check_stream_frame(struct golden *g, const json_t *entry)
{
    const char *what = json_string_value(json_object_get(entry, "what"));
    const char *text = json_string_value(json_object_get(entry, "text"));
    int is_message = json_object_get(entry, "protobuf") != NULL;
    struct bytes raw = { 0 }, out = { 0 };
    struct rpc_frame f;
    struct cursor c;
    size_t want;
    char error[256];
    int rc;
    if (!what) what = "frame";
    if (!wire_member(g, entry, "hex", &raw)) return;
    c = (struct cursor){ bytes_at(&raw), bytes_length(&raw) };
    rc = rpc_frame_get(&c, &f, RPC_MESSAGE_MAX, &want);
    golden_check(g, what, !rc && !c.left && want == bytes_length(&raw), "status %d", rc);
    if (!rc) {
        golden_check(g, what, f.marker == (is_message ? RPC_MESSAGE : RPC_END) &&
                     same_bytes(entry, "protobuf", f.data, f.n), "another kind or body");
        if (text) {
            rc = rpc_error_text(error, sizeof error, &f);
            golden_check(g, what, !rc && !strcmp(error, text), "says '%s'", rc ? "" : error);
            rpc_error_put(&out, text);
        } else {
            rpc_header_put(&out, f.marker, f.n);
            bytes_add(&out, f.data, f.n);
        }
        wire_same(g, what, &out, &raw);
    }
    bytes_clear(&raw);
    bytes_clear(&out);
}

void golden_wire_streaming(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, "frames"), i, entry) check_stream_frame(g, entry);
}
