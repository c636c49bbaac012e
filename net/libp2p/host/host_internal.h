/* host_internal.h - what the host's own files share: links (connections with their sockets),
 * channels, searches. The layers above include host.h only.
 *
 *   host.c     life, the table of what we serve, who is connected
 *   listen.c   listening, who may come in, our own addresses
 *   budget.c   what is refused or ends when somebody uses too much: resources.h
 *   link.c     a connection: socket or relayed stream below, conn.h's engine, channels above
 *   channel.c  one stream: agreeing on its protocol, reading, writing
 *   dial.c     from a multiaddr to a link
 *   seek.c     from a peer ID to a link, for all who wait for it
 *
 * Nothing is freed while one of its callbacks may be on the stack: links that end are put aside and
 * settled right before the loop goes to sleep, together with what was written in the meantime. */
#ifndef PL_HOST_INSIDE_H
#define PL_HOST_INSIDE_H

#include "net/libp2p/muxing/conn.h"
#include "host.h"
#include "net/loop/loop_uv.h"
#include "net/libp2p/peer/peerstore.h"
#include "resources.h"
#include "net/libp2p/rpc/rpc.h"

#define DIALS_AT_ONCE 4 /* addresses of one peer that are tried together */
#define HEAD_START 1.0  /* s that direct ones have before relayed ones are tried beside them */
#define DIAL_IPS_MAX 4  /* of a name's */
#define PEER_ROUTING_FIND_LIMIT 30.0 /* s for asking others about a peer: three rounds of ten */

struct service {
    char *protocol;
    stream_opened *opened;
    void *context;
};

struct listener {
    uv_tcp_t tcp;
    struct host *host;
    struct multiaddr at; /* bound, with the real port */
    struct listener *next;
};

struct stream;
struct dial;
struct relay_dial;
struct peer_routing;

struct connection {
    struct host *host;
    struct conn conn;
    uv_tcp_t tcp;
    uv_write_t write;
    struct bytes sending; /* lent to libuv until on_written */
    int writing, has_socket;
    struct stream *carrier;  /* relayed: the stream that plays the socket; else NULL */
    struct multiaddr remote; /* the far end, without its peer ID */
    int inbound, relayed;
    int spoke;   /* 1: something has come */
    int open;    /* 1: handshakes done, in its peer's list */
    int ending;  /* 1: put aside, to be settled */
    int dirty;   /* 1: something waits to be flushed */
    int settled; /* 1: its channels have been told; only the socket's end is awaited */
    int status;  /* why it ended */
    struct pl_err why;
    struct timer timer;  /* set-up limit, then keep-alive and stalled writes */
    double progress_at;  /* s; when the socket last took something */
    double blocked_at;   /* s; since when it has had to wait, while `writing` */
    size_t queue_seen;   /* what libuv still held then */
    double close_by;     /* s; while the host closes, unless the last bytes move */
    size_t close_unsent; /* what was left of them */
    struct dial *dial;   /* whoever dialled it, until it is open */
    struct peer *peer;   /* once open */
    struct stream *channels;
    struct stream *pending, *pending_last; /* want a stream while 256 of ours are not taken */
    struct stream *held_back, *held_last;  /* their requests wait until answers have been taken */
    size_t answered;                       /* in this turn */
    double opened_at;                      /* s */
    struct account account;                /* what it uses of the host */
    struct connection *next_of_peer, *next, *prev; /* all links of the host */
    struct connection *next_dirty, *next_ending;
};

/* One address on its way to a link: resolved, connected, then the link's handshakes. */
struct dial {
    struct host *host;
    struct multiaddr at;
    struct multiaddr_target target;
    struct peer_id expected;   /* length 0: anybody */
    struct peer_routing *seek; /* whose it is, or */
    struct host_wait *wait;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    struct sockaddr_storage ips[DIAL_IPS_MAX];
    int ip_count, ip_next;
    int resolving, connecting; /* libuv holds us */
    struct connection *link;
    struct relay_dial *relay;
    struct timer timer;
    int over;                 /* the owner is gone or told: freed when libuv lets go */
    struct dial *next, *prev; /* the seek's */
};

enum stream_state {
    STREAM_CONNECTING,
    STREAM_PENDING,
    STREAM_SELECTING,
    STREAM_OPEN,
    STREAM_FAILED
};

struct stream {
    struct host *host;
    struct connection *link; /* NULL while connecting and once lost */
    struct yamux_stream *stream;
    struct peer_id peer;
    char *protocol; /* what we dial; NULL for inbound ones */
    enum stream_state state;
    int inbound, finished;   /* finished: FIN is asked for */
    int paused;              /* the reader leaves what comes; a reset waits behind it */
    int both_ways;           /* see stream_both_ways */
    int is_held_back;        /* in its link's list */
    struct scope *charged;   /* inbound: the protocol that it counts in */
    struct remains *remains; /* what a lost link has left for a paused one: no stream any more */
    struct multistream select;
    struct host_wait *wait; /* while connecting */
    struct bytes early;     /* written before there was a stream */
    struct timer timer;
    struct stream_events events;
    void *context;
    int *gone;                  /* set to 1 when it is freed, where somebody must know */
    struct stream *next, *prev; /* of the link's channels, or of the host's connecting ones */
    struct stream *next_pending;
    struct stream *next_held, *prev_held; /* of the link's held back */
};

struct host_wait {
    struct host *host;
    struct peer_id peer;       /* length 0: whoever answers */
    struct peer_routing *seek; /* waits for a search ... */
    int may_ask;               /* ... which may ask others where the peer is */
    struct dial *dial;         /* ... or for one address */
    struct timer timer;
    host_done *done;
    void *context;
    int status; /* to be told when the timer fires */
    struct pl_err why;
    struct host_wait *next, *prev;
};

/* A search for a peer, shared by all who wait for it. */
struct peer_routing {
    struct host *host;
    struct peer *peer;
    struct host_wait *waits;
    struct dial *dials;
    struct kad_query *query;
    size_t dial_count;
    int asked; /* others were asked where it is */
    double began;
    struct pl_err why;  /* the last thing that went wrong */
    struct timer timer; /* the next step, never from inside a caller's function */
    struct multiaddr tried[PEER_ADDRESSES_MAX * 2];
    size_t tried_count;
};

/* An RPC that we serve, unary or streaming. */
struct rpc_service {
    struct host *host;
    char *name;
    rpc_unary_handler *unary;
    rpc_opened *opened;
    size_t message_max;
    void *context;
    int retired;    /* 1: no longer served; freed with the last of ... */
    size_t waiting; /* ... its calls whose request has not come in whole */
    struct rpc_service *next;
};

struct kad;
struct identify;
struct relay;
struct autonat;

struct host {
    struct loop *loop;
    const struct identity *me;
    char *agent;
    int securities, client_mode, serves_relay;
    int closing;
    struct listener *listeners;
    struct multiaddr *announce;
    size_t announce_count;
    struct peers peers;
    struct service services[HOST_PROTOCOLS_MAX];
    size_t service_count;
    struct connection *links, *dirty, *ending;
    struct stream *connecting;
    struct host_wait *dialling; /* waits without a search */
    struct resources resources;
    size_t remains; /* bytes of lost links that still lie in channels */
    struct host_watch *watches;
    uv_prepare_t settle;
    struct timer sweep, goodbye, turn;
    double close_at_last; /* s; even with bytes on their way */
    int handles;          /* links, listeners, the settling and the goodbye that are not over yet */
    loop_fn *closed;
    void *closed_context;
    struct rpc_service *rpcs;
    struct identify *identify;
    struct kad *kad;
    struct relay *relay;
    struct autonat *autonat;
};

static inline struct peer *host_peer(const struct host *h, const struct peer_id *id)
{
    return peers_find(&h->peers, id);
}

/* --- link.c --- */
/* Over an accepted or connected socket (l->tcp is initialised by the caller), or over a carrier. */
struct connection *connection_new(struct host *h, int inbound);
int connection_start(struct connection *l, const struct peer_id *expected);
size_t connection_unsent(
    const struct connection *l); /* bytes written that the other side has not confirmed */
void connection_touch(
    struct connection *l); /* something was written: flush before the loop sleeps */
void connection_end(struct connection *l, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void host_settle(struct host *h);
struct connection *connection_best(const struct peer *p); /* to open a stream on, or NULL */
void connection_carried(struct connection *l, const uint8_t *data,
                        size_t n); /* bytes from the carrier */

/* --- budget.c: after l->remote is known. NULL, or a sentence why it is refused --- */
const char *budget_admit(struct connection *l);
void budget_count(
    struct connection *l); /* bytes that it holds; never from within a channel's callbacks */
int budget_expects(struct connection *l,
                   size_t n);            /* PL_ELIMIT: more than its peer may have unread */
int budget_stream(struct connection *l); /* charges one that it has opened, or PL_ELIMIT */

/* --- channel.c --- */
void stream_on_opened(void *link, struct yamux_stream *s);
void stream_on_readable(void *link, struct yamux_stream *s);
void stream_on_writable(void *link, struct yamux_stream *s);
void stream_lost(struct stream *c, int status, const char *why); /* its link is gone */
void stream_fail(struct stream *c, int status, const char *why);
void channels_close_all(struct host *h); /* those that outlive their links */
void stream_start_pending(struct connection *l);
void stream_release_held(struct connection *l); /* answers have been taken: requests are read on */
void stream_next_turn(void *host);              /* of all connections */
/* On a link of our choice. */
struct stream *stream_open_on(struct connection *l, const char *protocol, double timeout_s,
                              const struct stream_events *events, void *context);
/* Only from the address book: for those who search themselves. */
struct stream *stream_open_known(struct host *h, const struct peer_id *peer, const char *protocol,
                                 double timeout_s, const struct stream_events *events,
                                 void *context);
struct connection *stream_link(const struct stream *c); /* NULL while connecting and once lost */

/* --- dial.c --- */
/* expected: whom we want there, or NULL. It reports to its owner, d->seek or d->wait, which the caller
 * sets; later, never from in here. NULL: out of memory. */
struct dial *dial_new(struct host *h, const struct multiaddr *a, const struct peer_id *expected);
void dial_abandon(struct dial *d); /* no more interest in it: whatever is under way is dropped */
void dial_link_open(struct dial *d);
void dial_link_ended(struct dial *d, int status, const char *why);

/* --- seek.c --- */
void wait_finish(struct host_wait *w, int status, const struct peer_id *peer,
                 const struct pl_err *err);
void peer_routing_dial_over(struct peer_routing *s, struct dial *d, int status, const char *why);
void peer_routing_news(const struct peer *p); /* a link or an address that was not there */
/* may_ask 0: only addresses that are in the book. */
struct host_wait *connect_how(struct host *h, const struct peer_id *id, double timeout_s,
                              int may_ask, host_done *done, void *context);
void waits_close_all(struct host *h); /* every wait ends with PL_EIO */

/* --- rpc.c, rpc_stream.c --- */
void rpc_close_services(struct host *h);
int rpc_add_service(const struct rpc_service *service, stream_opened *opened);

/* --- host.c --- */
void host_link_open(struct connection *l);   /* into the table, watchers told */
void host_link_closed(struct connection *l); /* out of it */
int host_find_service(void *host, const char *name, size_t n);
void host_handle_closed(struct host *h);

/* --- listen.c --- */
/* On "/ip4/.../tcp/..." or "/ip6/...". After an error host_listen_stop may still be due. */
int host_listen(struct host *h, const char *text, struct pl_err *err);
void host_listen_stop(struct host *h);
/* Of a sockaddr. PL_ENOTFOUND: neither IPv4 nor IPv6. */
int multiaddr_of_socket(struct multiaddr *a, const void *sa);
/* Without our ID at the end. */
size_t host_own_addresses(const struct host *h, struct multiaddr *out, size_t max);
/* identify.c: our addresses or protocols have changed, tell connected peers; ask a new one. */
void identify_link_open(struct connection *l);
void host_changed(struct host *h);

#endif
