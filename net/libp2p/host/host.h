/* host.h - a peer: listens, dials, keeps connections by peer ID, opens and serves streams.
 * [spec libp2p-wire]
 *
 * Everything here is called on the loop's thread, and calls back on it, except host_open (any
 * thread) and host_close (any other thread). No callback is called from inside the function that
 * asked for it. */
#ifndef PL_HOST_H
#define PL_HOST_H

#include "net/bytes.h"
#include "net/libp2p/peer/identity.h"
#include "net/loop/loop.h"
#include "net/libp2p/peer/multiaddr.h"

/* Limits, each against strangers. Of how much anybody may use: resources.c. */
/* bytes that lost connections have left for readers that pause, all together: a few streams' */
#define HOST_REMAINS_MAX (64u << 20)
/* bytes of answers that may wait on a connection before its next request is read: the largest
 * look-up's answer several times over, and little beside what the socket holds */
#define ANSWERS_MAX (256u << 10)
/* written on a connection before all others have had their turn: a look-up among thousands of known
 * peers takes a tenth of a millisecond, and one read brings 1,600 of them */
#define ANSWERS_A_TURN 32
#define HOST_STREAM_LIMIT 10.0 /* s to agree on a stream's protocol */
#define HOST_STALL_LIMIT 10.0  /* s that a socket may take nothing of what waits for it */
#define HOST_GOODBYE_LIMIT 1.0 /* s for the last bytes at the end, as long as none move */
#define HOST_GOODBYE_MAX 30.0  /* s for them in all: 7 MB at 2 Mbit/s */
#define HOST_PROTOCOLS_MAX 128 /* that we serve */
#define HOST_LISTEN_MAX 16

struct host;

struct host_options {
    const struct identity *me; /* borrowed until host_close */
    const char *const *listen; /* "/ip4/0.0.0.0/tcp/0" and so on; none: a peer that only dials */
    size_t listen_count;
    const char *const *announce; /* multiaddrs told to others in place of the listening ones */
    size_t announce_count;
    int securities; /* CONN_NOISE | CONN_TLS; 0: both */
    /* 1: serves neither look-ups nor relays, is in no routing table */
    int client_mode;
    int relay;         /* 1: carries connections for others */
    const char *agent; /* NULL: "potluck/VERSION" */
};

/* l is borrowed and outlives the host. When it returns, the host listens. */
int host_open(struct host **h, struct loop *l, const struct host_options *o, struct pl_err *err);
/* Not from the loop's thread. Ends what is under way (callbacks still pending come with PL_EIO),
 * sends what is written, within HOST_GOODBYE_MAX, and frees it. NULL may be closed. */
void host_close(struct host *h);

struct loop *host_loop(const struct host *h);
const struct peer_id *host_id(const struct host *h);
const struct identity *host_identity(const struct host *h);
/* Our addresses, /p2p/ID at the end: announced, or listening, and relayed. Returns how many it has
 * stored, at most max. */
size_t host_addresses(const struct host *h, struct multiaddr *out, size_t max);

/* What others hear about: `context` is the watcher's. Any may be NULL. */
struct host_events {
    void (*connected)(void *context, const struct peer_id *peer);    /* its first connection */
    void (*disconnected)(void *context, const struct peer_id *peer); /* its last one is gone */
    /* protocols, addresses known */
    void (*identified)(void *context, const struct peer_id *peer);
};
struct host_watch { /* in the watcher's struct */
    struct host_events events;
    void *context;
    struct host_watch *next;
};
void host_watch(struct host *h, struct host_watch *w);
void host_unwatch(struct host *h, struct host_watch *w);

/* --- who is where ----------------------------------------------------------------------------- */

/* s that an address is kept after we heard of it, as the original */
#define HOST_ADDRESS_TTL 1800.0

/* For the address book; a /p2p at the address's end must be the peer. ttl_s 0: for good. */
int host_learn(struct host *h, const struct peer_id *peer, const struct multiaddr *a, double ttl_s);
size_t host_known(const struct host *h, const struct peer_id *peer, struct multiaddr *out,
                  size_t max);
int host_is_connected(const struct host *h, const struct peer_id *peer);
/* Connected peers; returns how many there are and stores up to max. */
size_t host_peers(const struct host *h, struct peer_id *out, size_t max);
/* The far end of our best connection, for people and checks. PL_ENOTFOUND when there is none. */
int host_remote_address(const struct host *h, const struct peer_id *peer, struct multiaddr *a);
/* Our own end of it. */
int host_local_address(const struct host *h, const struct peer_id *peer, struct multiaddr *a);
/* 1 if the peer has said in identify that it serves the protocol. */
int host_peer_serves(const struct host *h, const struct peer_id *peer, const char *protocol);
/* Our address as this peer sees it. PL_ENOTFOUND before it has said. */
int host_observed(const struct host *h, const struct peer_id *peer, struct multiaddr *a);
void host_disconnect(struct host *h, const struct peer_id *peer);
/* A groupmate or a bootstrap peer: what it uses is charged to a share that strangers cannot use up.
 * Counts; PL_ENOMEM. */
int host_protect(struct host *h, const struct peer_id *peer);
void host_unprotect(struct host *h, const struct peer_id *peer);
struct resources;
const struct resources *host_resources(const struct host *h); /* who uses how much: resources.h */

/* status PL_OK, or why not, with a sentence that says which side to look at. */
typedef void host_done(void *context, int status, const struct peer_id *peer,
                       const struct pl_err *err);
struct host_wait; /* gone once done was called */

/* A connection to the peer: the one that is there, or dialled from the address book, or found by
 * asking connected peers. NULL: no memory (done is not called then). */
struct host_wait *host_connect(struct host *h, const struct peer_id *peer, double timeout_s,
                               host_done *done, void *context);
/* Dials an address, whatever is open already; it names its peer or else takes whoever answers. */
struct host_wait *host_dial(struct host *h, const struct multiaddr *a, double timeout_s,
                            host_done *done, void *context);
/* done is not called any more. */
void host_wait_cancel(struct host_wait *w);

/* --- streams: channels ------------------------------------------------------------------------ */

/* A channel: one stream of a connection, with its protocol agreed. Its owner is told what happens
 * and closes it; nothing is called after stream_close. */
struct stream;
struct stream_events {
    /* What we opened has been agreed on. May be NULL. */
    void (*open)(void *context, struct stream *c);
    /* stream_data has grown, or ended. What the reader leaves lies there until it asks again. */
    void (*readable)(void *context, struct stream *c);
    /* stream_queued has come down to 0. May be NULL. */
    void (*drained)(void *context, struct stream *c);
    /* Reset, refused or lost, with a sentence; the owner closes it. Not called for a clean end. */
    void (*failed)(void *context, struct stream *c, int status, const char *why);
};

/* To a peer, connecting first if need be. What is written at once travels with the negotiation.
 * timeout_s: to connect and agree. NULL: no memory. */
struct stream *stream_open(struct host *h, const struct peer_id *peer, const char *protocol,
                           double timeout_s, const struct stream_events *events, void *context);
/* Serving: called with each new stream that has agreed on `protocol`; sets its events.
 *
 * Request and answer take turns on it: while an answer waits to be taken, or more than ANSWERS_MAX
 * bytes of them on its connection, stream_data shows nothing and `readable` is not called. So
 * whoever does not read its answers soon cannot ask any more. Connections take turns, too: after
 * ANSWERS_A_TURN answers the others are read first. */
typedef void stream_opened(void *context, struct stream *c);
int host_serve(struct host *h, const char *protocol, stream_opened *opened, void *context);
void host_unserve(struct host *h, const char *protocol);
void stream_listen(struct stream *c, const struct stream_events *events, void *context);

/* For a served protocol that goes both ways at once, and bounds by itself what it writes. */
void stream_both_ways(struct stream *c);

const struct peer_id *stream_peer(const struct stream *c);
struct host *stream_host(const struct stream *c);
/* What has arrived and was not taken; *ended: nothing more will come. Borrowed until the next
 * call. */
const uint8_t *stream_data(const struct stream *c, size_t *n, int *ended);
/* n bytes are done with: the other side may send as many more. */
void stream_took(struct stream *c, size_t n);
/* The reader leaves what comes: a reset is told only when nothing lies there any more, or after it
 * has read on. Bytes lie within the windows and limits as before. */
void stream_pause(struct stream *c);
/* It reads on: `readable` for what is there or ended, then a reset that waited. May close the
 * channel, so never from within its callbacks. */
void stream_resume(struct stream *c);
/* A message of n bytes in all is awaited: opens the window so far. PL_ELIMIT when too much is
 * held. */
int stream_expect(struct stream *c, size_t n);
void stream_write(struct stream *c, const void *data, size_t n);
/* The same, with the memory of *data instead of a copy; see yamux_give. */
void stream_give(struct stream *c, struct bytes *data);
size_t stream_queued(const struct stream *c); /* written, not yet handed to the connection */
void stream_finish(struct stream *c);         /* FIN: we have written everything */
/* Done with it. After stream_finish what is written still goes out; otherwise the other side
 * gets a reset. NULL may be closed. */
void stream_close(struct stream *c);

#endif
