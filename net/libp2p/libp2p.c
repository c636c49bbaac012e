/* libp2p.c - the one place that knows both the host and its protocols.
 *
 * Order matters: identify first, because an unanswered identify keeps other daemons from opening
 * streams to us; a relay needs the protocols before it. */
#include "libp2p.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/protocols/ping.h"
#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/relay/dcutr.h"
#include "net/libp2p/relay/port_mapping.h"
#include "net/libp2p/relay/relay.h"

int libp2p_open(struct host **h, struct loop *l, const struct host_options *o, struct pl_err *err)
{
    static const struct host_protocol *const protocols[] = {
        &identify_protocol, &kad_protocol,   &ping_protocol,         &relay_protocol,
        &autonat_protocol,  &dcutr_protocol, &port_mapping_protocol,
    };
    return host_open(h, l, o, protocols, PL_COUNT(protocols), err);
}
