/* identify_message.c - the bytes of identify. A message in parts is the parts' bodies one after the
 * other: that is how protobuf merges. */
#include "identify.h"
#include "net/libp2p/peer/multiaddr_fields.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define PART_FULL 2048 /* bytes; go-libp2p begins its second part there */

enum {
    PUBLIC_KEY = 1,
    LISTEN_ADDRS = 2,
    PROTOCOLS = 3,
    OBSERVED = 4,
    PROTOCOL_VERSION = 5,
    AGENT = 6,
    RECORD = 8
};

struct writer {
    struct bytes *out;
    struct bytes part;
};

static void end_part(struct writer *w)
{
    size_t n = bytes_length(&w->part);
    if (!n) return;
    bytes_varint(w->out, n);
    bytes_add(w->out, bytes_at(&w->part), n);
    bytes_take(&w->part, n);
}

static void put(struct writer *w, int number, const void *data, size_t n)
{
    if (bytes_length(&w->part) + n > PART_FULL) end_part(w);
    bytes_u8(&w->part, (uint8_t)(number << 3 | 2));
    bytes_varint(&w->part, n);
    bytes_add(&w->part, data, n);
}

/* A reader takes at most 8 KiB at a time, so a long message goes out in several parts. */
int identify_put(struct bytes *out, const struct identify_message *m)
{
    struct writer w = { .out = out };
    int rc;
    if (m->public_key_bytes) put(&w, PUBLIC_KEY, m->public_key, m->public_key_bytes);
    for (size_t i = 0; i < m->address_count; i++)
        put(&w, LISTEN_ADDRS, m->addresses[i].bytes, m->addresses[i].length);
    for (size_t i = 0; i < m->protocol_count; i++)
        put(&w, PROTOCOLS, m->protocols[i], strlen(m->protocols[i]));
    if (m->observed.length) put(&w, OBSERVED, m->observed.bytes, m->observed.length);
    if (m->protocol_version)
        put(&w, PROTOCOL_VERSION, m->protocol_version, strlen(m->protocol_version));
    if (m->agent) put(&w, AGENT, m->agent, strlen(m->agent));
    if (m->record_bytes) put(&w, RECORD, m->record, m->record_bytes);
    end_part(&w);
    rc = w.part.failed ? w.part.failed : out->failed;
    bytes_clear(&w.part);
    return rc;
}

static int join_parts(struct bytes *whole, const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    for (int parts = 0; c.left; parts++) {
        const uint8_t *body;
        size_t length;
        int rc = get_delimited(&c, &body, &length, IDENTIFY_PART_MAX);
        if (rc) return rc == PL_EAGAIN ? PL_EFORMAT : rc;
        if (parts == IDENTIFY_PARTS_MAX) return PL_ELIMIT;
        if ((rc = bytes_add(whole, body, length))) return rc;
    }
    return PL_OK;
}

int identify_get(struct identify_message *m, const uint8_t *data, size_t n)
{
    struct bytes whole = { 0 };
    Libp2p__Identify *pb = NULL;
    int rc;
    memset(m, 0, sizeof *m);
    rc = join_parts(&whole, data, n);
    if (!rc && !(pb = message_unpack(&libp2p__identify__descriptor, bytes_at(&whole),
                                     bytes_length(&whole), NULL)))
        rc = PL_EFORMAT;
    bytes_clear(&whole);
    if (rc) return rc;
    m->owned = pb;
    if (pb->has_public_key) {
        m->public_key = pb->public_key.data;
        m->public_key_bytes = pb->public_key.len;
    }
    if (pb->has_signed_peer_record) {
        m->record = pb->signed_peer_record.data;
        m->record_bytes = pb->signed_peer_record.len;
    }
    multiaddr_of_fields(m->addresses, &m->address_count, IDENTIFY_ADDRESSES_MAX, pb->listen_addrs,
                        pb->n_listen_addrs);
    for (size_t i = 0; i < pb->n_protocols && m->protocol_count < IDENTIFY_PROTOCOLS_MAX; i++)
        if (pb->protocols[i][0]) m->protocols[m->protocol_count++] = pb->protocols[i];
    if (pb->has_observed_addr &&
        multiaddr_parse(&m->observed, pb->observed_addr.data, pb->observed_addr.len))
        m->observed.length = 0;
    m->protocol_version = pb->protocol_version;
    m->agent = pb->agent_version;
    return PL_OK;
}

void identify_clear(struct identify_message *m)
{
    message_free(m->owned);
    memset(m, 0, sizeof *m);
}
