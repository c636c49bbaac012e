/* golden_wire_identify.c - the identify protocol: each message is parsed, compared with the
 * recording's description of it, and written again; its signed peer record likewise. */
#include "golden_wire.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/peer/libp2p.pb-c.h"
#include "net/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int same_text(const json_t *want, const char *got)
{
    const char *text = json_string_value(want);
    return !text || (got && !strcmp(text, got));
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
    struct multiaddr address;
    char what[120];
    size_t i, read = 0;
    json_t *want;
    int good = wire_says(entry, "publicKey", m->public_key, m->public_key_bytes) &&
               same_text(json_object_get(entry, "protocolVersion"), m->protocol_version) &&
               same_text(json_object_get(entry, "agentVersion"), m->agent) &&
               wire_says(entry, "signedPeerRecord", m->record, m->record_bytes) &&
               same_address(json_object_get(entry, "observedAddr"), &m->observed);
    json_array_foreach(addresses, i, want)
    { /* those that cannot be read are left out */
        const char *text = json_string_value(want);
        if (multiaddr_from_text(&address, text ? text : "", NULL)) continue;
        good = good && read < m->address_count && same_address(want, &m->addresses[read++]);
    }
    if (addresses) good = good && read == m->address_count;
    if (protocols) good &= json_array_size(protocols) == m->protocol_count;
    json_array_foreach(protocols, i, want) good = good && same_text(want, m->protocols[i]);
    snprintf(what, sizeof what, "%.80s fields", name);
    golden_check(g, what, good, "differ from the recording's");
}

/* Compares the envelope's fields with the recording's description of them. */
static int same_envelope(const json_t *parts, const struct identify_message *m)
{
    Libp2p__Envelope *e = message_unpack(&libp2p__envelope__descriptor, m->record, m->record_bytes,
                                         NULL);
    struct bytes text = { 0 };
    int good = e != NULL;
    if (good) {
        bytes_varint(&text, 18);
        bytes_add(&text, "libp2p-peer-record", 18);
        bytes_varint(&text, e->payload_type.len);
        bytes_add(&text, e->payload_type.data, e->payload_type.len);
        bytes_varint(&text, e->payload.len);
        bytes_add(&text, e->payload.data, e->payload.len);
        good = wire_says(parts, "payload_type", e->payload_type.data, e->payload_type.len) &&
               wire_says(parts, "payload", e->payload.data, e->payload.len) &&
               wire_says(parts, "signature", e->signature.data, e->signature.len) &&
               wire_says(parts, "signed_bytes", bytes_at(&text), bytes_length(&text));
        message_free(e);
    }
    bytes_clear(&text);
    return good;
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
        snprintf(what, sizeof what, "%.80s record's parts", name);
        golden_check(g, what, same_envelope(parts, m), "differ");
        bytes_clear(&key);
    }
    if (json_object_get(entry, "private_key_protobuf") &&
        wire_member(g, entry, "private_key_protobuf", &secret)) {
        rc = identity_parse(&me, bytes_at(&secret), bytes_length(&secret), NULL);
        snprintf(what, sizeof what, "%.80s private key", name);
        golden_check(g, what, !rc && peer_id_equal(&me.id, &r.peer), "is not the record's");
        if (!rc && (me.type == KEY_ED25519 || me.type == KEY_RSA)) { /* others draw numbers */
            record_put(&out, &me, r.seq, r.addresses, r.address_count);
            snprintf(what, sizeof what, "%.80s record is made again", name);
            wire_same(g, what, &out, &want);
        }
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

/* 1: the reader has left out nothing. By the protocol's rules it leaves out unknown fields and
 * addresses of unknown protocols; a message with such parts comes back with the same meaning, but
 * not with the same bytes. */
static int is_whole(const struct identify_message *m)
{
    const Libp2p__Identify *pb = m->owned;
    return !pb->base.n_unknown_fields && pb->n_listen_addrs == m->address_count &&
           pb->n_protocols == m->protocol_count && pb->has_observed_addr == !!m->observed.length;
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
    wire_check_body(g, name, entry, &raw);
    rc = identify_get(&m, bytes_at(&raw), bytes_length(&raw));
    snprintf(what, sizeof what, "%.80s is read", name);
    golden_check(g, what, !rc, "status %d", rc);
    if (!rc) {
        check_fields(g, name, entry, &m);
        check_record(g, name, entry, &m);
        identify_put(&out, &m);
        c = (struct cursor){ bytes_at(&raw), bytes_length(&raw) };
        snprintf(what, sizeof what, "%.80s is written again", name);
        if (!get_delimited(&c, &body, &n, IDENTIFY_PART_MAX) && !c.left && is_ordered(body, n) &&
            is_whole(&m)) {
            wire_same(g, what, &out, &raw);
        } else { /* other parts or another order: the same fields */
            rc = identify_get(&again, bytes_at(&out), bytes_length(&out));
            golden_check(g, what,
                         !rc && again.address_count == m.address_count &&
                             again.protocol_count == m.protocol_count &&
                             again.record_bytes == m.record_bytes &&
                             multiaddr_equal(&again.observed, &m.observed),
                         "reads differently");
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
    json_object_foreach((json_t *)(uintptr_t)root, name,
                        entry) if (json_object_get(entry, "delimited"))
        check_identify(g, name, entry);
}
