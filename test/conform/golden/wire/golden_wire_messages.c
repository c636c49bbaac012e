/* golden_wire_messages.c - peer routing (Kademlia), relay, unary and streaming calls: each message
 * is parsed, compared with the recording's description of it, and written again.
 * golden_wire_identify.c has identify. */
#include "golden_wire.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/relay/relay_message.h"
#include "net/libp2p/rpc/rpc.h"
#include "net/libp2p/rpc/rpc_frame.h"
#include "net/libp2p/peer/libp2p.pb-c.h"
#include "net/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what a reader leaves out ----------------------------------------------------------------- */

/* A protobuf reader accepts fields in any order and ignores unknown ones. A message without either
 * must be written again byte for byte; others must keep their meaning. */
static int has_unknown(const ProtobufCMessage *m)
{
    if (m->n_unknown_fields) return 1;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const uint8_t *at = (const uint8_t *)m + f->offset;
        size_t n = 1;
        if (f->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
            *(const uint32_t *)((const uint8_t *)m + f->quantifier_offset) != f->id)
            continue;
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            n = *(const size_t *)((const uint8_t *)m + f->quantifier_offset);
            at = *(const uint8_t *const *)at;
        }
        for (size_t k = 0; k < n; k++) {
            const ProtobufCMessage *inner = ((ProtobufCMessage *const *)at)[k];
            if (inner && has_unknown(inner)) return 1;
        }
    }
    return 0;
}

static int is_plain(const ProtobufCMessageDescriptor *type, struct cursor body)
{
    ProtobufCMessage *m = message_unpack(type, body.at, body.left, NULL);
    struct bytes again = { 0 };
    uint8_t *to;
    size_t n = m ? protobuf_c_message_get_packed_size(m) : 0;
    int same = m && !has_unknown(m) && n == body.left && (to = bytes_reserve(&again, n + 1)) &&
               protobuf_c_message_pack(m, to) == n && !memcmp(to, body.at, n);
    bytes_clear(&again);
    message_free(m);
    return same;
}

static int are_addresses(const ProtobufCBinaryData *list, size_t n, size_t most)
{
    struct multiaddr a;
    for (size_t i = 0; i < n; i++)
        if (multiaddr_parse(&a, list[i].data, list[i].len)) return 0;
    return n <= most;
}

/* --- peer routing ----------------------------------------------------------------------------- */

/* The body of a message: as it is, or with its length in front. */
static struct cursor body_of(const struct bytes *raw)
{
    struct cursor whole = { bytes_at(raw), bytes_length(raw) }, c = whole;
    uint64_t n;
    return !get_varint(&c, &n) && n == c.left ? c : whole;
}

/* 1 if our reader keeps everything in a Kademlia message. */
static int is_fully_read(struct cursor body)
{
    Libp2p__KadMessage *pb = message_unpack(&libp2p__kad_message__descriptor, body.at, body.left,
                                            NULL);
    int kept = is_plain(&libp2p__kad_message__descriptor, body) && pb && !pb->n_provider_peers &&
               pb->n_closer_peers <= KAD_CLOSER && pb->has_type &&
               pb->has_cluster_level_raw == !!pb->cluster_level_raw;
    for (size_t i = 0; kept && i < pb->n_closer_peers; i++) {
        const Libp2p__KadPeer *p = pb->closer_peers[i];
        struct peer_id id;
        kept = p->has_id && !peer_id_parse(&id, p->id.data, p->id.len) &&
               p->has_connection == !!p->connection &&
               are_addresses(p->addrs, p->n_addrs, KAD_ADDRESSES_MAX);
    }
    message_free(pb);
    return kept;
}

int golden_wire_kad_message(struct golden *g, const char *what, const struct bytes *raw,
                            struct kad_message *m)
{
    struct cursor body = body_of(raw);
    struct bytes out = { 0 }, want = { 0 };
    int rc = kad_get(m, body.at, body.left);
    golden_check(g, what, !rc, "status %d", rc);
    if (!rc) {
        struct kad_message again = { 0 };
        kad_put(&out, m);
        if (is_fully_read(body)) {
            bytes_varint(&want, body.left);
            bytes_add(&want, body.at, body.left);
        } else {
            struct cursor c = body_of(&out);
            if (!kad_get(&again, c.at, c.left)) kad_put(&want, &again);
            kad_clear(&again);
        }
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
    json_object_foreach((json_t *)(uintptr_t)root, name, entry)
    {
        for (size_t i = 0; i < PL_COUNT(members); i++) {
            struct bytes raw = { 0 };
            struct kad_message m = { 0 };
            char what[120];
            if (!json_is_object(entry) || !json_object_get(entry, members[i])) continue;
            snprintf(what, sizeof what, "%.60s %s", name, members[i]);
            if (wire_member(g, entry, members[i], &raw) &&
                !golden_wire_kad_message(g, what, &raw, &m) && i == 0) {
                snprintf(what, sizeof what, "%.60s key", name);
                golden_check(g, what,
                             m.type == KAD_FIND_NODE &&
                                 wire_says(entry, "target", m.key, m.key_bytes),
                             "is not the target");
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
    json_object_foreach((json_t *)(uintptr_t)root, name, entry)
    {
        enum relay_protocol p = strncmp(name, "stop", 4) ? RELAY_HOP : RELAY_STOP;
        struct bytes raw = { 0 }, want = { 0 }, out = { 0 };
        struct relay_message m, again;
        struct cursor body;
        int rc;
        if (!json_is_string(entry)) continue;
        if (wire_member(g, root, name, &raw)) {
            body = body_of(&raw);
            rc = relay_get(&m, p, body.at, body.left);
            golden_check(g, name, !rc, "status %d", rc);
            if (!rc) relay_put(&out, p, &m);
            if (rc || is_plain(p == RELAY_HOP ? &libp2p__hop_message__descriptor
                                              : &libp2p__stop_message__descriptor,
                               body)) {
                bytes_varint(&want, body.left);
                bytes_add(&want, body.at, body.left);
            } else {
                struct cursor c = body_of(&out);
                if (!relay_get(&again, p, c.at, c.left)) relay_put(&want, p, &again);
            }
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
        if (is_plain(&libp2p__persistent_connection_request__descriptor, body_of(raw))) {
            wire_same(g, what, &out, raw);
        } else {
            struct rpc_unary back = { .data = NULL };
            c = (struct cursor){ bytes_at(&out), bytes_length(&out) };
            golden_check(g, what,
                         !rpc_unary_get(&c, &back, RPC_UNARY_MAX, &want) && !c.left &&
                             back.kind == m->kind && back.n == m->n &&
                             !memcmp(back.data, m->data, m->n),
                         "reads differently");
        }
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
    if (!wire_member(g, entry, "delimited", &raw)) return;
    wire_check_body(g, name, entry, &raw);
    if (!golden_wire_unary_message(g, name, &raw, &m)) {
        int good = m.kind == kind && wire_says(entry, "call_id", m.call_id, RPC_CALL_ID) &&
                   wire_says(entry, "data", m.data, m.n) &&
                   wire_says(entry, "response", m.data, m.n) &&
                   wire_says(entry, "peer", m.peer, m.peer_bytes);
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
    json_object_foreach((json_t *)(uintptr_t)root, name, entry)
    {
        if (json_is_object(entry) && json_object_get(entry, "delimited"))
            check_unary(g, name, entry);
        json_array_foreach(json_is_array(entry) ? entry : NULL, i, refused)
        {
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
    int is_message = !text && json_object_get(entry, "protobuf");
    struct bytes raw = { 0 }, out = { 0 };
    struct rpc_frame f;
    struct cursor c;
    size_t want;
    char error[1024], shown[1024];
    int rc;
    if (!what) what = "frame";
    if (!wire_member(g, entry, "hex", &raw)) return;
    c = (struct cursor){ bytes_at(&raw), bytes_length(&raw) };
    rc = rpc_frame_get(&c, &f, RPC_MESSAGE_MAX, &want);
    golden_check(g, what, !rc && !c.left && want == bytes_length(&raw), "status %d", rc);
    if (!rc) {
        golden_check(g, what,
                     f.marker == (is_message ? RPC_MESSAGE : RPC_END) &&
                         wire_says(entry, "protobuf", f.data, f.n),
                     "another kind or body");
        if (text) {
            rc = rpc_error_text(error, sizeof error, &f);
            rpc_printable(shown, sizeof shown, (const uint8_t *)text, strlen(text));
            golden_check(g, what, !rc && !strcmp(error, shown), "says '%.200s'", rc ? "" : error);
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
