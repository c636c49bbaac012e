/* kad_message.c - FIND_NODE's bytes: protobuf with a varint length in front. [spec libp2p-wire
 * 11] */
#include "kad.h"
#include "net/libp2p/peer/multiaddr_fields.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <stdlib.h>
#include <string.h>

int kad_put(struct bytes *out, const struct kad_message *m)
{
    Libp2p__KadMessage pb = LIBP2P__KAD_MESSAGE__INIT;
    Libp2p__KadPeer peers[KAD_CLOSER], *list[KAD_CLOSER];
    ProtobufCBinaryData addresses[KAD_CLOSER][KAD_ADDRESSES_MAX];
    pb.has_type = 1;
    pb.type = m->type;
    pb.has_key = m->key_bytes > 0;
    pb.key = message_bytes(m->key, m->key_bytes);
    pb.has_cluster_level_raw = m->cluster != 0;
    pb.cluster_level_raw = m->cluster;
    pb.n_closer_peers = m->closer_count < KAD_CLOSER ? m->closer_count : KAD_CLOSER;
    pb.closer_peers = list;
    for (size_t i = 0; i < pb.n_closer_peers; i++) {
        const struct kad_peer *p = &m->closer[i];
        list[i] = &peers[i];
        libp2p__kad_peer__init(&peers[i]);
        peers[i].has_id = 1;
        peers[i].id = message_bytes(p->id.bytes, p->id.length);
        peers[i].n_addrs = p->address_count;
        peers[i].addrs = addresses[i];
        peers[i].has_connection = p->connection != 0;
        peers[i].connection = p->connection;
        multiaddr_fields(addresses[i], p->addresses, p->address_count);
    }
    return message_pack_delimited(out, &pb.base);
}

static int get_peer(struct kad_peer *p, const Libp2p__KadPeer *pb)
{
    if (!pb->has_id || peer_id_parse(&p->id, pb->id.data, pb->id.len)) return PL_EFORMAT;
    p->connection = pb->has_connection ? pb->connection : 0;
    p->address_count = 0;
    multiaddr_of_fields(p->addresses, &p->address_count, KAD_ADDRESSES_MAX, pb->addrs, pb->n_addrs);
    return PL_OK;
}

int kad_get(struct kad_message *m, const uint8_t *data, size_t n)
{
    Libp2p__KadMessage *pb = message_unpack(&libp2p__kad_message__descriptor, data, n, NULL);
    size_t count;
    int rc = PL_EFORMAT;
    memset(m, 0, sizeof *m);
    if (!pb || pb->type < KAD_PUT_VALUE || pb->type > KAD_PING) goto done;
    m->type = pb->type; /* absent is 0, PUT_VALUE, by protobuf's rule */
    m->cluster = pb->cluster_level_raw;
    m->key_bytes = pb->has_key ? pb->key.len : 0;
    if (m->key_bytes > sizeof m->key) m->key_bytes = sizeof m->key;
    if (m->key_bytes) memcpy(m->key, pb->key.data, m->key_bytes);
    count = pb->n_closer_peers < KAD_CLOSER ? pb->n_closer_peers : KAD_CLOSER;
    rc = PL_ENOMEM;
    if (count && !(m->closer = malloc(count * sizeof *m->closer))) goto done;
    for (size_t i = 0; i < count; i++)
        if (!get_peer(&m->closer[m->closer_count], pb->closer_peers[i])) m->closer_count++;
    rc = PL_OK;
done:
    message_free(pb);
    return rc;
}

void kad_clear(struct kad_message *m)
{
    free(m->closer);
    memset(m, 0, sizeof *m);
}
