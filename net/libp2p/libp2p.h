/* libp2p.h - a host with the protocols that a hivemind peer needs: identify, ping, Kademlia,
 * circuit relay, AutoNAT, DCUtR, port mapping. RPCs join when the first one is served (rpc/rpc.h).
 * [spec libp2p-wire 0, 15] */
#ifndef PL_LIBP2P_H
#define PL_LIBP2P_H

#include "net/libp2p/host/host.h"

/* As host_open, which documents borrowed arguments and errors; closed by host_close. */
int libp2p_open(struct host **h, struct loop *l, const struct host_options *o, struct pl_err *err);

#endif
