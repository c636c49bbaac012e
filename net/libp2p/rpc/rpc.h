/* rpc.h - hivemind's calls between peers: unary ones and streams of messages.
 * [spec libp2p-wire 12, 13]
 *
 * All on the loop's thread (host.h). A call finds or makes the connection by itself. The peer on
 * the other side is the one that the connection has authenticated; nothing in a message counts.
 * Data given to a callback are borrowed for that call. No callback comes from inside the function
 * that asked. */
#ifndef PL_RPC_H
#define PL_RPC_H

#include "net/libp2p/host/host.h"

#define RPC_UNARY_MAX 4194304       /* bytes of a unary message with its frame, by the protocol */
#define RPC_MESSAGE_MAX (64u << 20) /* most that any streaming RPC may allow for one message */

/* --- unary calls, server ---------------------------------------------------------------------- */

struct rpc_call; /* a request to be answered exactly once, now or later */
typedef void rpc_unary_handler(void *context, struct rpc_call *call, const uint8_t *data, size_t n);

/* name: "DHTProtocol.rpc_ping". PL_ELIMIT when too many are served, PL_EUSE when it is already. */
int rpc_serve_unary(struct host *h, const char *name, rpc_unary_handler *handler, void *context);
const struct peer_id *rpc_caller(const struct rpc_call *call);
/* Called when the caller has given up; the call must still be answered (nothing is sent). */
void rpc_on_cancel(struct rpc_call *call, loop_fn *cancelled, void *context);
/* Either ends the call and frees it. */
void rpc_reply(struct rpc_call *call, const void *data, size_t n);
/* Text as Python's repr of an exception: "ValueError('thirteen')". */
void rpc_reply_error(struct rpc_call *call, const char *text);

/* --- unary calls, client ---------------------------------------------------------------------- */

struct rpc_result {
    /* PL_OK; PL_EPROTO: the handler failed, error is its text; PL_EAGAIN: too late; PL_EIO: no
     * connection, or lost; PL_ENOTFOUND: peer or RPC unknown; PL_ELIMIT */
    int status;
    const uint8_t *data; /* the response */
    size_t n;
    const char *error; /* a sentence when status is not PL_OK; unprintable bytes escaped */
};
typedef void rpc_done(void *context, const struct rpc_result *r);
struct rpc_request; /* gone once done was called */

/* data are copied. done is called exactly once, unless cancelled. NULL: no memory, no done. */
struct rpc_request *rpc_call_unary(struct host *h, const struct peer_id *peer, const char *name,
                                   const void *data, size_t n, double timeout_s, rpc_done *done,
                                   void *context);
void rpc_cancel(struct rpc_request *r); /* sends the other side a reset; done is not called */

/* --- streaming calls -------------------------------------------------------------------------- */

/* A call whose request or response is a stream, on either side. The owner closes it, also after
 * `failed`. */
struct rpc_stream;
struct rpc_stream_events {
    void (*message)(void *context, struct rpc_stream *s, const uint8_t *data, size_t n);
    /* All of the other side's messages have come. May be NULL. */
    void (*end)(void *context, struct rpc_stream *s);
    /* Over: the handler failed (PL_EPROTO, its text), the caller cancelled, or the connection is
     * lost. Statuses as in rpc_result. */
    void (*failed)(void *context, struct rpc_stream *s, int status, const char *why);
    /* rpc_queued has come down to 0: time for the next message. May be NULL. */
    void (*drained)(void *context, struct rpc_stream *s);
};
#define RPC_ALWAYS SIZE_MAX

/* message_max: longest message taken from the other side, at most RPC_MESSAGE_MAX. timeout_s: to
 * connect and agree; after that rpc_deadline. NULL: no memory. */
struct rpc_stream *rpc_open(struct host *h, const struct peer_id *peer, const char *name,
                            size_t message_max, double timeout_s,
                            const struct rpc_stream_events *events, void *context);
/* opened sets the new stream's events with rpc_listen before it returns, or closes it. */
typedef void rpc_opened(void *context, struct rpc_stream *s);
int rpc_serve_stream(struct host *h, const char *name, size_t message_max, rpc_opened *opened,
                     void *context);
void rpc_listen(struct rpc_stream *s, const struct rpc_stream_events *events, void *context);
/* For unary and streaming calls: afterwards no handler is called. Handlers still end the calls that
 * they have begun. */
void rpc_unserve(struct host *h, const char *name);

const struct peer_id *rpc_peer(const struct rpc_stream *s);
/* Copies the message and sends it as fast as the other side takes it. Watch rpc_queued: nothing
 * else bounds the queue. PL_EPROTO after rpc_end or a failure. */
int rpc_send(struct rpc_stream *s, const void *data, size_t n);
/* The same with the memory of *data, which is empty afterwards and may have another's. */
int rpc_give(struct rpc_stream *s, struct bytes *data);
/* We have sent everything. When the server's end mark is sent, the call closes. */
void rpc_end(struct rpc_stream *s);
/* Server: the handler failed. Ends the stream. */
void rpc_fail(struct rpc_stream *s, const char *text);
/* Frees it; if the call is not complete, the other side learns that it is cancelled. Messages that
 * a server has sent before rpc_end or rpc_fail are still delivered. */
void rpc_close(struct rpc_stream *s);
size_t rpc_queued(const struct rpc_stream *s); /* bytes not yet handed to the connection */
size_t rpc_unread(
    const struct rpc_stream *s); /* bytes held: partly received or undelivered messages */

/* `messages` more may be delivered; a new stream starts with RPC_ALWAYS. 0 in rpc_pause: none until
 * credit is given; the other side then runs out of window and stops. */
void rpc_pause(struct rpc_stream *s);
void rpc_credit(struct rpc_stream *s, size_t messages);
/* `failed` with PL_EAGAIN unless the other side's next message or end comes within in_s seconds;
 * every message starts it anew. 0: no limit (the default). */
void rpc_deadline(struct rpc_stream *s, double in_s);

#endif
