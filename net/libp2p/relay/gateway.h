/* gateway.h - asks this network's router for a forwarded TCP port, by NAT-PMP (RFC 6886) and by
 * UPnP-IGD; libnatpmp and libminiupnpc speak these protocols. The functions block for seconds: they
 * are for a helper thread.
 *
 * Anybody on the local network may answer in the router's place. What an answer may claim is
 * bounded: one public IPv4 address and one port, for GATEWAY_LEASE seconds. */
#ifndef PL_GATEWAY_H
#define PL_GATEWAY_H

#include "net/libp2p/peer/multiaddr.h"

#define GATEWAY_LEASE 600   /* s; renewed long before. A peer that was killed leaves it this long */
#define GATEWAY_URL_MAX 256 /* bytes of a router's control URL; more is no answer */

enum gateway_protocol { GATEWAY_NATPMP, GATEWAY_UPNP, GATEWAY_PROTOCOLS };
enum gateway_status {
    GATEWAY_NOT_ASKED, /* the other protocol was enough */
    GATEWAY_ABSENT,    /* this machine has no default gateway */
    GATEWAY_SILENT,    /* no router answers */
    GATEWAY_REFUSED,
    GATEWAY_PRIVATE, /* the router's own outside address is private: another NAT is behind it */
    GATEWAY_MAPPED
};
struct gateway_outcome {
    enum gateway_status status;
    char why[120]; /* a sentence where it is not mapped */
};

struct gateway {
    uint16_t port; /* that we listen on; set by the caller */
    struct gateway_outcome outcome[GATEWAY_PROTOCOLS];
    struct multiaddr outside; /* /ip4/.../tcp/..., if one is mapped */
    /* The UPnP router of the last answer; private. */
    char url[GATEWAY_URL_MAX], service[GATEWAY_URL_MAX], inside[16];
    uint16_t outside_port;
};
/* NAT-PMP first, UPnP where that fails. A mapping that exists is renewed. */
void gateway_map(struct gateway *g);
/* Ends the mapping that gateway_map has made; does not wait for a router that is gone. */
void gateway_unmap(struct gateway *g);
/* 1: mapped by either. */
int gateway_is_mapped(const struct gateway *g);

#endif
