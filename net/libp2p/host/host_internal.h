/* host_internal.h - a host is its parts; host_core.h lists them. Only the files host*.c see
 * this. */
#ifndef PL_HOST_INTERNAL_H
#define PL_HOST_INTERNAL_H

#include "net/libp2p/connections/listen.h"
#include "net/libp2p/streams/stream_internal.h"
#include "net/libp2p/connections/watch.h"

struct host_protocol;

struct joined_protocol {
    const struct host_protocol *protocol;
    void *state;
};

/* The end of a host: connections close as soon as their output is flushed. */
struct host_closing {
    struct timer timer;
    double close_by; /* s; even with bytes on their way */
    loop_fn *closed; /* called when the host is freed; may be NULL */
    void *context;
};

struct host {
    struct host_core core;
    struct connections connections;
    struct streams streams;
    struct dialing dialing;
    struct routing routing;
    struct listening listening;
    struct host_watch *watches;
    struct joined_protocol *protocols;
    size_t protocol_count;
    char *agent;
    int client_mode, relay, map_port;
    uv_prepare_t settle; /* right before the loop sleeps */
    struct timer sweep;  /* expired addresses are dropped */
    struct host_closing closing;
};

/* --- host_peers.c --- */
void host_enter_connection(struct connection *c); /* into its peer's list; calls the watchers */
void host_leave_connection(struct connection *c);

/* --- host_protocol.c --- */
void host_stop_protocols(struct host *h);
void host_free_protocols(struct host *h);

#endif
