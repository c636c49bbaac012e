/* stream_internal.h - a stream as the host's parts see it.
 *
 *   opened by us       CONNECTING -> PENDING -> SELECTING -> OPEN
 *   opened by others                            SELECTING -> OPEN
 *   any of them -> FAILED, until its owner closes it
 *
 * CONNECTING: there is no connection yet. PENDING: too many of our streams are unacknowledged.
 * SELECTING: multistream-select negotiates the protocol. */
#ifndef PL_STREAM_INTERNAL_H
#define PL_STREAM_INTERNAL_H

#include "net/libp2p/connections/budget.h"
#include "net/libp2p/connections/loop_time.h"
#include "net/libp2p/connections/peer_routing.h"
#include "services.h"
#include "stream.h"

enum stream_state {
    STREAM_CONNECTING,
    STREAM_PENDING,
    STREAM_SELECTING,
    STREAM_OPEN,
    STREAM_FAILED
};

/* All streams of a host. */
struct streams {
    struct host_core *core;
    struct routing *routing;
    struct connections *connections;
    struct services services;
    struct stream *detached; /* without a connection: CONNECTING, FAILED, or with remains */
    size_t remains;          /* bytes of lost connections that still lie in streams */
};

/* Data received before the connection was lost, and the reason of the loss. */
struct remains {
    struct bytes in;
    int ended;
    struct pl_err why;
};

struct stream {
    struct streams *of;
    struct connection *connection; /* NULL while connecting and once lost */
    struct yamux_stream *mux;
    struct peer_id peer;
    char *protocol; /* that we ask for; NULL: opened by the other side */
    enum stream_state state;
    int inbound, finished;   /* finished: FIN is asked for */
    int paused;              /* the reader has paused; a reset waits behind the unread data */
    int both_ways;           /* see stream_both_ways */
    int is_held;             /* in its connection's list of those that wait for their turn */
    struct scope *charged;   /* inbound: the protocol that it counts in */
    struct remains *remains; /* data of a lost connection for a paused reader */
    struct multistream select;
    struct host_wait *wait; /* while connecting */
    struct bytes early;     /* written before there was a stream */
    struct timer timer;
    struct stream_events events;
    void *context;
    int *gone;                  /* set to 1 when the stream is freed, if not NULL */
    struct stream *next, *prev; /* of the connection's streams, or of the detached ones */
    struct stream *next_pending;
    struct stream *next_held, *prev_held;
};

/* --- stream_io.c --- */
/* In no state yet but CONNECTING. NULL: no memory. */
struct stream *stream_new(struct streams *of, struct connection *c, const struct peer_id *peer);
void stream_join(struct stream *s); /* into the list of its connection, or of the detached */
void stream_leave(struct stream *s);
/* Calls its owner, once. An inbound stream without an owner is freed. */
void stream_fail(struct stream *s, int status, const char *why);
/* The connection is gone: every stream fails but those whose readers have paused. */
void streams_lost(struct connection *c, const char *why);
/* Those that outlive their connections fail, too: the host closes. */
void streams_close_all(struct streams *all);

#endif
