/* connection.h - a connection: conn.h's engine over a TCP socket, or over a relayed stream.
 * [spec libp2p-wire 4, 5, 8, 14]
 *
 *             handshakes done                 connection_end
 *   NEW ------------------------> OPEN ----------------------------> ENDING --> freed
 *    \______________________________________________________________/
 *
 * No connection is freed while one of its callbacks may be on the stack. connection_end only
 * puts it into a list. connections_settle empties that list before the loop sleeps, and sends in
 * one piece what was written during the iteration. */
#ifndef PL_CONNECTION_H
#define PL_CONNECTION_H

#include "host_core.h"
#include "net/libp2p/muxing/conn.h"
#include "net/loop/loop_uv.h"

#define HOST_STALL_LIMIT 10.0   /* s for which a socket may accept no bytes although some wait */
#define CONNECTION_TURN_US 1000 /* of the loop's time; then other connections are read */

struct connection;
struct stream;

/* Events for the parts above. Streams' events have the connection as their context. */
struct connection_events {
    void (*opened)(struct connection *c); /* handshakes done: enter it into the tables, or end it */
    void (*closed)(struct connection *c); /* leave the tables */
    void (*lost)(struct connection *c, const char *why); /* every stream of it fails */
    void (*before_flush)(struct connection *c);          /* the last moment to write */
    void (*after_flush)(struct connection *c); /* the socket has taken as much as it could */
    void (*used)(struct connection *c);        /* the bytes that it holds have changed */
    struct yamux_events streams;
};

/* addresses of one attempt to dial at the same time (punch.h): two IP versions, local networks */
#define PUNCH_EXPECTED_MAX 8

/* A peer that we and that dial each other at the same time: if we accept its connection, we are the
 * dialer on it nevertheless. */
struct punch_expected {
    struct peer_id peer;
    struct multiaddr from[PUNCH_EXPECTED_MAX];
    size_t count;
    struct punch_expected *next, *prev;
};

/* All connections of a host. */
struct connections {
    struct host_core *core;
    int securities; /* CONN_NOISE | CONN_TLS */
    const struct connection_events *events;
    void *context; /* of the events' owner */
    struct connection *all, *dirty, *ending;
    struct punch_expected *expected;
    struct timer turn;   /* the next turn of all connections */
    struct timer second; /* the next second, for those that have used their time in this one */
};

/* A stream that carries a relayed connection in place of a socket: the functions of stream.h. */
struct connection_carrier {
    size_t (*queued)(const struct stream *s);
    void (*write)(struct stream *s, const void *data, size_t n);
    void (*close)(struct stream *s);
    struct connection *(*connection)(const struct stream *s);
};

/* Called once with the result of the dial. */
struct connection_dialer {
    void (*opened)(void *context, struct connection *c);
    void (*ended)(void *context, int status, const char *why);
};

enum connection_state { CONNECTION_NEW, CONNECTION_OPEN, CONNECTION_ENDING };
enum socket_state { SOCKET_NONE, SOCKET_IDLE, SOCKET_WRITING };

struct connection_socket {
    enum socket_state state;
    uv_tcp_t tcp;
    uv_write_t write;
    struct bytes sending; /* lent to libuv while writing */
    double progress_at;   /* s; when it last took something */
    double blocked_at;    /* s; since when it has had to wait, while writing */
    size_t queue_seen;    /* bytes in libuv's queue at that time */
};

/* The lists of the streams' part. */
struct connection_streams {
    struct stream *all;
    struct stream *pending, *pending_last; /* want a stream while 256 of ours are unacknowledged */
    struct stream *held, *held_last;       /* their requests wait for their turn */
    size_t answered;                       /* responses written in this turn */
};

struct connection {
    struct connections *of;
    enum connection_state state;
    struct conn conn;
    struct connection_socket socket;
    const struct connection_carrier *carrier_calls; /* relayed: how to use `carrier` */
    struct stream *carrier;
    struct multiaddr remote; /* the far end, without its peer ID */
    int inbound;             /* 1: the other side has dialed it, or has asked us to dial */
    int listens;             /* 1: we play the listener above TCP */
    int relayed;
    int shares_port;  /* 1: dialed from a port that we listen on */
    int upgraded;     /* 1: relayed, and a direct connection has been tried */
    int received;     /* 1: bytes have come */
    int is_unread;    /* 1: bytes in its socket wait for the connection's turn, or for its next
                       * second */
    uint64_t turn_us; /* of the loop's time that its bytes have taken in this turn */
    int dirty;        /* 1: something waits to be flushed */
    int status;       /* why it ended */
    struct pl_err why;
    struct timer timer;  /* limit of the set-up, then keep-alive and stalled writes */
    double opened_at;    /* s */
    double close_by;     /* s; while the host closes, unless the last bytes move */
    size_t close_unsent; /* how many of them were left */
    const struct connection_dialer *dialer; /* until it is open */
    void *dialer_context;
    struct peer *peer; /* in its list; NULL before and after */
    struct account account;
    struct connection_streams streams;
    struct connection *next_of_peer, *next, *prev; /* the peer's; the host's */
    struct connection *next_dirty, *next_ending;
};

/* Makes one without a socket yet. NULL: no memory. */
struct connection *connection_new(struct connections *of, int inbound);
/* Begins the handshakes over c->socket.tcp, initialized and connected by the caller, or over the
 * carrier. expected: the peer that we dialed, or NULL for any. PL_OK, PL_ENOMEM or PL_EIO. */
int connection_start(struct connection *c, const struct peer_id *expected);
/* Bytes that came through the carrier. */
void connection_receive(struct connection *c, const uint8_t *data, size_t n);
/* Something was written: it is flushed before the loop sleeps. */
void connection_touch(struct connection *c);
/* A request has had no answer. If nothing at all has come for a while, a ping finds out within
 * seconds whether the peer is still there; the next regular one may be half a minute away. */
void connection_probe(struct connection *c);
/* Ends it with a status and a sentence, before the loop sleeps. Only the first call counts. */
void connection_end(struct connection *c, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Bytes written that the other side has not acknowledged. */
size_t connection_unsent(const struct connection *c);
/* The peer's connection on which to open a stream, or NULL. */
struct connection *connection_best(const struct peer *p);
/* In the next turn, or second: reads the sockets and the held streams that had to wait for it. */
void connections_await_turn(struct connections *all);
void connections_await_second(struct connections *all);
void connections_stop_turns(struct connections *all); /* the host closes: no caller waits any
                                                       * more */
/* Before the loop sleeps: flushes connections with new output, frees those that have ended. */
void connections_settle(struct connections *all);
/* The address in a sockaddr. PL_ENOTFOUND: neither IPv4 nor IPv6. */
int multiaddr_of_socket(struct multiaddr *a, const void *sa);
/* The other way round, for a target with an IP address. */
void socket_of_target(struct sockaddr_storage *sa, const struct multiaddr_target *t);

#endif
