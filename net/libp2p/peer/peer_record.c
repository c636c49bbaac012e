/* peer_record.c - a peer's addresses under its own signature. [spec libp2p-wire 9]
 *
 *   Envelope { public key; payload type 03 01;
 *              payload = PeerRecord { id, seq, addresses }; signature }
 *
 * The signature covers more than the payload: length-prefixed domain "libp2p-peer-record", type and
 * payload, so that a signature made for another purpose is invalid here. Identify carries the
 * envelope; any peer may pass it on, and none can change it. */
#include "peer_record.h"
#include "net/message.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <stdlib.h>
#include <string.h>

static const char domain[] = "libp2p-peer-record";
static const uint8_t payload_type[] = { 0x03, 0x01 };

/* The signed text: three texts, each with its length in front. */
static int signed_bytes(struct bytes *out, const uint8_t *payload, size_t n)
{
    bytes_varint(out, sizeof domain - 1);
    bytes_add(out, domain, sizeof domain - 1);
    bytes_varint(out, sizeof payload_type);
    bytes_add(out, payload_type, sizeof payload_type);
    bytes_varint(out, n);
    return bytes_add(out, payload, n);
}

/* An envelope around `payload`, signed by us. */
static int put_envelope(struct bytes *out, const struct identity *me, const uint8_t *payload,
                        size_t n)
{
    Libp2p__Envelope e = LIBP2P__ENVELOPE__INIT;
    struct bytes text = { 0 };
    uint8_t signature[SIGNATURE_MAX], *to;
    size_t signature_bytes, size;
    int rc = signed_bytes(&text, payload, n);
    if (!rc)
        rc = identity_sign(me, signature, &signature_bytes, bytes_at(&text), bytes_length(&text));
    bytes_clear(&text);
    if (rc) return rc;
    e.public_key = message_unpack(&libp2p__public_key__descriptor, bytes_at(&me->public_key),
                                  bytes_length(&me->public_key), NULL);
    if (!e.public_key) return PL_ENOMEM;
    e.has_payload_type = e.has_payload = e.has_signature = 1;
    e.payload_type = (ProtobufCBinaryData){ sizeof payload_type,
                                            (uint8_t *)(uintptr_t)payload_type };
    e.payload = (ProtobufCBinaryData){ n, (uint8_t *)(uintptr_t)payload };
    e.signature = (ProtobufCBinaryData){ signature_bytes, signature };
    size = libp2p__envelope__get_packed_size(&e);
    if ((to = bytes_reserve(out, size))) out->end += libp2p__envelope__pack(&e, to);
    message_free(e.public_key);
    return out->failed;
}

int record_put(struct bytes *out, const struct identity *me, uint64_t seq,
               const struct multiaddr *addresses, size_t count)
{
    Libp2p__PeerRecord r = LIBP2P__PEER_RECORD__INIT;
    Libp2p__AddressInfo infos[RECORD_ADDRESSES_MAX], *list[RECORD_ADDRESSES_MAX];
    struct bytes payload = { 0 };
    uint8_t *to;
    size_t size;
    int rc = PL_ENOMEM;
    if (count > RECORD_ADDRESSES_MAX) count = RECORD_ADDRESSES_MAX;
    for (size_t i = 0; i < count; i++) {
        libp2p__address_info__init(&infos[i]);
        infos[i].has_multiaddr = 1;
        infos[i].multiaddr.data = (uint8_t *)(uintptr_t)addresses[i].bytes;
        infos[i].multiaddr.len = addresses[i].length;
        list[i] = &infos[i];
    }
    r.has_peer_id = r.has_seq = 1;
    r.peer_id = (ProtobufCBinaryData){ me->id.length, (uint8_t *)(uintptr_t)me->id.bytes };
    r.seq = seq;
    r.n_addresses = count;
    r.addresses = list;
    size = libp2p__peer_record__get_packed_size(&r);
    if ((to = bytes_reserve(&payload, size))) {
        payload.end += libp2p__peer_record__pack(&r, to);
        rc = put_envelope(out, me, bytes_at(&payload), bytes_length(&payload));
    }
    bytes_clear(&payload);
    return rc;
}

/* The envelope's signature, and the key that made it. */
static int check_envelope(struct peer_id *signer, const Libp2p__Envelope *e)
{
    struct bytes text = { 0 }, key = { 0 };
    uint8_t *to;
    int rc = PL_EFORMAT;
    if (!e->public_key || !e->has_payload || !e->has_signature || !e->has_payload_type ||
        e->payload_type.len != sizeof payload_type ||
        memcmp(e->payload_type.data, payload_type, sizeof payload_type))
        return rc;
    if (!(to = bytes_reserve(&key, libp2p__public_key__get_packed_size(e->public_key))))
        return PL_ENOMEM;
    key.end += libp2p__public_key__pack(e->public_key, to);
    rc = signed_bytes(&text, e->payload.data, e->payload.len);
    if (!rc)
        rc = public_key_verify(bytes_at(&key), bytes_length(&key), bytes_at(&text),
                               bytes_length(&text), e->signature.data, e->signature.len);
    if (!rc) peer_id_of_key(signer, bytes_at(&key), bytes_length(&key));
    bytes_clear(&text);
    bytes_clear(&key);
    return rc;
}

/* Signature first, content afterwards: nothing unsigned is parsed further. */
int record_get(struct record *r, const uint8_t *envelope, size_t n)
{
    Libp2p__Envelope *e = n <= ENVELOPE_MAX
                              ? message_unpack(&libp2p__envelope__descriptor, envelope, n, NULL)
                              : NULL;
    Libp2p__PeerRecord *p = NULL;
    struct peer_id signer;
    int rc = e ? check_envelope(&signer, e) : n > ENVELOPE_MAX ? PL_ELIMIT : PL_EFORMAT;
    if (rc) goto done;
    rc = PL_EFORMAT;
    if (!(p = message_unpack(&libp2p__peer_record__descriptor, e->payload.data, e->payload.len,
                             NULL)) ||
        !p->has_peer_id || !p->has_seq || peer_id_parse(&r->peer, p->peer_id.data, p->peer_id.len))
        goto done;
    rc = PL_EPROTO;
    if (!peer_id_equal(&r->peer, &signer)) goto done;
    rc = PL_OK;
    r->seq = p->seq;
    r->address_count = 0;
    for (size_t i = 0; i < p->n_addresses && r->address_count < RECORD_ADDRESSES_MAX; i++)
        if (!multiaddr_parse(&r->addresses[r->address_count], p->addresses[i]->multiaddr.data,
                             p->addresses[i]->multiaddr.len))
            r->address_count++;
done:
    message_free(p);
    message_free(e);
    return rc;
}
