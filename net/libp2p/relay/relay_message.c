/* relay_message.c - the bytes of circuit relay's messages. Hop and stop messages differ in their
 * numbering only: a stop message has no reservation. [spec libp2p-wire 14] */
#include "relay_message.h"
#include "net/libp2p/peer/multiaddr_fields.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <string.h>

const char *relay_status_text(int status)
{
    switch (status) {
    case RELAY_OK: return "ok";
    case RELAY_RESERVATION_REFUSED: return "the relay gives no reservation";
    case RELAY_RESOURCE_LIMIT_EXCEEDED: return "the relay is full";
    case RELAY_PERMISSION_DENIED: return "the relay does not allow it";
    case RELAY_CONNECTION_FAILED: return "the relay cannot reach the peer";
    case RELAY_NO_RESERVATION: return "the peer holds no reservation at the relay";
    case RELAY_MALFORMED_MESSAGE: return "the relay did not understand";
    case RELAY_UNEXPECTED_MESSAGE: return "the relay did not expect that";
    default: return "the relay answered with an unknown status";
    }
}

int relay_put(struct bytes *out, enum relay_protocol p, const struct relay_message *m)
{
    Libp2p__HopMessage hop = LIBP2P__HOP_MESSAGE__INIT;
    Libp2p__StopMessage stop = LIBP2P__STOP_MESSAGE__INIT;
    Libp2p__RelayPeer peer = LIBP2P__RELAY_PEER__INIT;
    Libp2p__Reservation reservation = LIBP2P__RESERVATION__INIT;
    Libp2p__RelayLimit limit = LIBP2P__RELAY_LIMIT__INIT;
    ProtobufCBinaryData addresses[RELAY_ADDRESSES_MAX];
    multiaddr_fields(addresses, m->addresses, m->address_count);
    peer.has_id = 1;
    peer.id = message_bytes(m->peer.bytes, m->peer.length);
    if (m->has_reservation) {
        reservation.has_expire = 1;
        reservation.expire = m->expire;
        reservation.n_addrs = m->address_count;
        reservation.addrs = addresses;
        reservation.has_voucher = m->voucher_bytes > 0;
        reservation.voucher = message_bytes(m->voucher, m->voucher_bytes);
    } else {
        peer.n_addrs = m->address_count;
        peer.addrs = addresses;
    }
    limit.has_duration = m->duration_s > 0;
    limit.duration = m->duration_s;
    limit.has_data = m->data_bytes > 0;
    limit.data = m->data_bytes;
    if (p == RELAY_HOP) {
        hop.has_type = 1;
        hop.type = m->type;
        hop.peer = m->peer.length ? &peer : NULL;
        hop.reservation = m->has_reservation ? &reservation : NULL;
        hop.limit = m->has_limit ? &limit : NULL;
        hop.has_status = m->status != 0;
        hop.status = m->status;
        return message_pack_delimited(out, &hop.base);
    }
    stop.has_type = 1;
    stop.type = m->type;
    stop.peer = m->peer.length ? &peer : NULL;
    stop.limit = m->has_limit ? &limit : NULL;
    stop.has_status = m->status != 0;
    stop.status = m->status;
    return message_pack_delimited(out, &stop.base);
}

static int get_parts(struct relay_message *m, const Libp2p__RelayPeer *peer,
                     const Libp2p__Reservation *reservation, const Libp2p__RelayLimit *limit)
{
    if (peer) {
        if (!peer->has_id || peer_id_parse(&m->peer, peer->id.data, peer->id.len))
            return PL_EFORMAT;
        multiaddr_of_fields(m->addresses, &m->address_count, RELAY_ADDRESSES_MAX, peer->addrs,
                            peer->n_addrs);
    }
    if (reservation) {
        m->has_reservation = 1;
        m->expire = reservation->has_expire ? reservation->expire : 0;
        m->address_count = 0;
        multiaddr_of_fields(m->addresses, &m->address_count, RELAY_ADDRESSES_MAX,
                            reservation->addrs, reservation->n_addrs);
        if (reservation->has_voucher && reservation->voucher.len <= sizeof m->voucher) {
            m->voucher_bytes = reservation->voucher.len;
            if (m->voucher_bytes) memcpy(m->voucher, reservation->voucher.data, m->voucher_bytes);
        }
    }
    if (limit) {
        m->has_limit = 1;
        m->duration_s = limit->has_duration ? limit->duration : 0;
        m->data_bytes = limit->has_data ? limit->data : 0;
    }
    return PL_OK;
}

/* A reader takes only the fields that it needs; unknown ones are skipped, as protobuf demands. */
int relay_get(struct relay_message *m, enum relay_protocol p, const uint8_t *data, size_t n)
{
    int rc = PL_EFORMAT;
    memset(m, 0, sizeof *m);
    if (p == RELAY_HOP) {
        Libp2p__HopMessage *hop = message_unpack(&libp2p__hop_message__descriptor, data, n, NULL);
        if (!hop) return rc;
        rc = get_parts(m, hop->peer, hop->reservation, hop->limit);
        m->type = hop->type;
        m->status = hop->has_status ? hop->status : 0;
        message_free(hop);
    } else {
        Libp2p__StopMessage *stop = message_unpack(&libp2p__stop_message__descriptor, data, n,
                                                   NULL);
        if (!stop) return rc;
        rc = get_parts(m, stop->peer, NULL, stop->limit);
        m->type = stop->type;
        m->status = stop->has_status ? stop->status : 0;
        message_free(stop);
    }
    return rc;
}
