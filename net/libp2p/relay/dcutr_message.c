/* dcutr_message.c - the bytes of DCUtR: protobuf with a varint length in front.
 *
 *   CONNECT   {type: 100, obs_addrs: [multiaddr, ...]}    where the sender may be dialed
 *   SYNC      {type: 300}                                 dial now
 *
 * Relayed addresses are left out when they are read: a direct connection is what is wanted. */
#include "dcutr.h"
#include "net/libp2p/peer/multiaddr_fields.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <string.h>

int dcutr_put(struct bytes *out, const struct dcutr_message *m)
{
    Libp2p__HolePunch pb = LIBP2P__HOLE_PUNCH__INIT;
    ProtobufCBinaryData addresses[PUNCH_ADDRESSES_MAX];
    multiaddr_fields(addresses, m->addresses, m->address_count);
    pb.type = (int32_t)m->type;
    pb.n_obs_addrs = m->address_count;
    pb.obs_addrs = addresses;
    return message_pack_delimited(out, &pb.base);
}

static int is_direct(const struct multiaddr *a)
{
    struct multiaddr_target t;
    return !multiaddr_target(&t, a) && !t.relay.length;
}

int dcutr_get(struct dcutr_message *m, const uint8_t *data, size_t n)
{
    Libp2p__HolePunch *pb = message_unpack(&libp2p__hole_punch__descriptor, data, n, NULL);
    memset(m, 0, sizeof *m);
    if (!pb || (pb->type != DCUTR_CONNECT && pb->type != DCUTR_SYNC)) {
        message_free(pb);
        return PL_EFORMAT;
    }
    m->type = (enum dcutr_type)pb->type;
    for (size_t i = 0; i < pb->n_obs_addrs && m->address_count < PUNCH_ADDRESSES_MAX; i++) {
        struct multiaddr *a = &m->addresses[m->address_count];
        if (!multiaddr_parse(a, pb->obs_addrs[i].data, pb->obs_addrs[i].len) && is_direct(a))
            m->address_count++;
    }
    message_free(pb);
    return PL_OK;
}
