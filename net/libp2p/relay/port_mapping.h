/* port_mapping.h - a peer behind a home router has its listening port forwarded, where the router
 * does that on request (gateway.h), and advertises the router's address.
 *
 *   asked when the host opens, if it listens on a private IPv4 address and on no public one
 *   mapped: renewed every MAPPING_RENEW, so that a router that was restarted is asked soon
 *   not mapped: asked again after MAPPING_RETRY
 *   removed when the host closes */
#ifndef PL_PORT_MAPPING_H
#define PL_PORT_MAPPING_H

#include "gateway.h"
#include "net/libp2p/host/host.h"

#define MAPPING_RENEW 60.0  /* s: two datagrams */
#define MAPPING_RETRY 300.0 /* s: a multicast to the local network */

/* Does nothing unless host_options.map_port is set. */
extern const struct host_protocol port_mapping_protocol;

enum port_mapping_state {
    PORT_MAPPING_OFF,     /* switched off, or there is no private address to map */
    PORT_MAPPING_PENDING, /* the first request is under way */
    PORT_MAPPING_KNOWN
};
/* out, where KNOWN: the result of the last request. */
enum port_mapping_state port_mapping_outcome(const struct host *h, struct gateway *out);

#endif
