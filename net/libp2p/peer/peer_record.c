/* peer_record.c - a peer's addresses under its own signature. [spec libp2p-wire 9]
 *
 *   Envelope { public key; payload type 03 01;
 *              payload = PeerRecord { id, seq, addresses }; signature }
 *
 * The signature covers more than the payload: length-prefixed domain "libp2p-peer-record", type and
 * payload, so that a signature made for another purpose is invalid here. Identify carries the
 * envelope; any peer may pass it on, and none can change it. */
#include "peer_record.h"
#include "multiaddr_fields.h"
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
    uint8_t signature[SIGNATURE_MAX];
    size_t signature_bytes;
    int rc = signed_bytes(&text, payload, n);
    if (!rc)
        rc = identity_sign(me, signature, &signature_bytes, bytes_at(&text), bytes_length(&text));
    bytes_clear(&text);
    if (rc) return rc;
    e.public_key = message_unpack(&libp2p__public_key__descriptor, bytes_at(&me->public_key),
                                  bytes_length(&me->public_key), NULL);
    if (!e.public_key) return PL_ENOMEM;
    e.has_payload_type = e.has_payload = e.has_signature = 1;
    e.payload_type = message_bytes(payload_type, sizeof payload_type);
    e.payload = message_bytes(payload, n);
    e.signature = message_bytes(signature, signature_bytes);
    rc = message_pack(out, &e.base);
    message_free(e.public_key);
    return rc;
}

int record_put(struct bytes *out, const struct identity *me, uint64_t seq,
               const struct multiaddr *addresses, size_t count)
{
    Libp2p__PeerRecord r = LIBP2P__PEER_RECORD__INIT;
    Libp2p__AddressInfo infos[RECORD_ADDRESSES_MAX], *list[RECORD_ADDRESSES_MAX];
    struct bytes payload = { 0 };
    int rc;
    if (count > RECORD_ADDRESSES_MAX) count = RECORD_ADDRESSES_MAX;
    for (size_t i = 0; i < count; i++) {
        libp2p__address_info__init(&infos[i]);
        infos[i].has_multiaddr = 1;
        multiaddr_fields(&infos[i].multiaddr, &addresses[i], 1);
        list[i] = &infos[i];
    }
    r.has_peer_id = r.has_seq = 1;
    r.peer_id = message_bytes(me->id.bytes, me->id.length);
    r.seq = seq;
    r.n_addresses = count;
    r.addresses = list;
    rc = message_pack(&payload, &r.base);
    if (!rc) rc = put_envelope(out, me, bytes_at(&payload), bytes_length(&payload));
    bytes_clear(&payload);
    return rc;
}

/* The envelope's signature, and the key that made it. */
static int check_envelope(struct peer_id *signer, const Libp2p__Envelope *e)
{
    struct bytes text = { 0 }, key = { 0 };
    int rc = PL_EFORMAT;
    if (!e->public_key || !e->has_payload || !e->has_signature || !e->has_payload_type ||
        e->payload_type.len != sizeof payload_type ||
        memcmp(e->payload_type.data, payload_type, sizeof payload_type))
        return rc;
    if ((rc = message_pack(&key, &e->public_key->base))) return rc;
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
    for (size_t i = 0; i < p->n_addresses; i++)
        multiaddr_of_fields(r->addresses, &r->address_count, RECORD_ADDRESSES_MAX,
                            &p->addresses[i]->multiaddr, 1);
done:
    message_free(p);
    message_free(e);
    return rc;
}
