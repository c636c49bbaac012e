/* host_core.h - the state that every part of a host needs: the loop, our identity, the peerstore,
 * the accounts.
 *
 * The parts are built on each other: each knows only those that follow it in this list.
 *
 *   host/
 *   host_open.c      opens, serves, closes: the functions of host.h
 *   host_peers.c     which peers are connected; calls its watchers
 *   host_protocol.c  libp2p's protocols register here; the host names none of them
 *   streams/
 *   stream_open.c    opens streams to a peer
 *   stream_select.c  negotiates a stream's protocol, then hands bytes to its handler
 *   stream_budget.c  ends streams when a connection holds too much
 *   stream_io.c      one stream: reading, writing, closing
 *   stream_turns.c   which request may be read now
 *   services.c       the table of protocols that we serve
 *
 *   connections/
 *   peer_routing.c   from a peer ID to a connection
 *   punch.c          dials a peer that dials us at the same time
 *   dial.c           from a multiaddr to a connection
 *   listen.c         accepts connections
 *   observed.c       how others see us, without sockets
 *   budget.c         whether a connection may begin, expect a message
 *   connection.c     a socket, or a relayed stream, under conn.h's engine
 *   loop_time.c      what takes the loop's time is charged for it
 *   watch.c          the list of watchers
 *   resources.c      counts and limits, without sockets
 *
 * Each part has a small struct of its own with a pointer to this one. A part tells the ones
 * above it through functions that they have given to it. test/layers.sh refuses circles. */
#ifndef PL_HOST_CORE_H
#define PL_HOST_CORE_H

#include "net/libp2p/peer/identity.h"
#include "net/libp2p/peer/peerstore.h"
#include "net/loop/loop.h"
#include "resources.h"

enum host_state { HOST_RUNNING, HOST_CLOSING };

struct host;

struct host_core {
    struct host *host; /* passed on to protocols; the parts never look inside */
    struct loop *loop;
    const struct identity *me; /* borrowed from the host's owner */
    enum host_state state;
    struct peers peers;
    struct resources resources;
    int handles; /* libuv handles and connections that still exist; the host is freed after them */
    void (*handle_closed)(struct host *h); /* one of them is gone */
};

static inline struct peer *core_find_peer(const struct host_core *core, const struct peer_id *id)
{
    return peers_find(&core->peers, id);
}

#endif
