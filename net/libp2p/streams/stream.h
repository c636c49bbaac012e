/* stream.h - one stream of a connection, with its protocol negotiated. [spec libp2p-wire 4, 8]
 *
 * Its owner gets events, and closes it; nothing is called after stream_close. */
#ifndef PL_HOST_STREAM_H
#define PL_HOST_STREAM_H

#include "net/bytes.h"
#include "net/libp2p/peer/peer_id.h"

/* bytes that lost connections have left for readers that pause, all together: a few streams' */
#define HOST_REMAINS_MAX (64u << 20)
/* bytes of responses that may wait on a connection before its next request is read: several times
 * the largest look-up's response, and little compared with the socket's buffer */
#define ANSWERS_MAX (256u << 10)
/* responses on a connection before the other connections get their turn. One read may bring 1,600
 * requests, and a look-up among thousands of peers takes 0.1 ms */
#define ANSWERS_A_TURN 32
#define HOST_STREAM_LIMIT 10.0 /* s to negotiate a stream's protocol, as in go-libp2p */
#define HOST_PROTOCOLS_MAX 128 /* that we serve: hivemind's peers serve about 20 */

struct host;
struct stream;
struct connection;

struct stream_events {
    /* The stream that we opened is negotiated. May be NULL. */
    void (*open)(void *context, struct stream *s);
    /* stream_data has grown, or ended. Bytes that the reader leaves stay until it asks again. */
    void (*readable)(void *context, struct stream *s);
    /* stream_queued has come down to 0. May be NULL. */
    void (*drained)(void *context, struct stream *s);
    /* Reset, refused or lost, with a sentence: PL_EAGAIN too late, PL_ENOTFOUND not served there,
     * PL_ELIMIT, PL_EIO. Not called for a clean end. The owner closes the stream. */
    void (*failed)(void *context, struct stream *s, int status, const char *why);
};

/* Serving: called with each new stream of the protocol; calls stream_listen or stream_close.
 *
 * Request and response take turns on it: while a response waits to be taken, or more than
 * ANSWERS_MAX bytes of them on its connection, stream_data shows nothing and `readable` is not
 * called. So a peer that does not read its responses cannot ask any more. Connections take turns,
 * too: after ANSWERS_A_TURN responses the others are read first. And a peer's handlers have a share
 * of each second (resources.c): after that its requests wait for the next. */
typedef void stream_opened(void *context, struct stream *s);

void stream_listen(struct stream *s, const struct stream_events *events, void *context);
/* For a served protocol that is bidirectional and bounds its own output. */
void stream_both_ways(struct stream *s);

const struct peer_id *stream_peer(const struct stream *s); /* proven by the handshake */
struct host *stream_host(const struct stream *s);
struct connection *stream_connection(const struct stream *s); /* NULL: none yet, or lost */

/* The bytes that have arrived and were not taken; *ended: nothing more will come. Borrowed until
 * the next call. */
const uint8_t *stream_data(const struct stream *s, size_t *n, int *ended);
/* The next message that has its length in front as a varint; *body is borrowed like stream_data's
 * bytes, pass *used to stream_took after use. PL_EAGAIN: it is not whole yet. PL_EIO: the stream
 * ended before it was. PL_ELIMIT: longer than max. */
int stream_next_message(const struct stream *s, const uint8_t **body, size_t *n, size_t *used,
                        size_t max);
/* The first n bytes are done with: the other side may send as many more. */
void stream_took(struct stream *s, size_t n);
/* Pauses reading: arriving bytes stay in the buffer, within the usual windows and limits, and a
 * reset is reported only after they have been read. */
void stream_pause(struct stream *s);
/* Resumes reading: calls `readable` for data or an end that are there, then delivers a reset that
 * waited. May close the stream, so never call it from within the stream's callbacks. */
void stream_resume(struct stream *s);
/* A message of n bytes in all is awaited: opens the window far enough. PL_ELIMIT when too much is
 * held. */
int stream_expect(struct stream *s, size_t n);
/* Sends a copy of n bytes; errors are reported by `failed`. */
void stream_write(struct stream *s, const void *data, size_t n);
/* The same, with the memory of *data instead of a copy; see yamux_give. */
void stream_give(struct stream *s, struct bytes *data);
size_t stream_queued(const struct stream *s); /* bytes written, not yet given to the connection */
void stream_finish(struct stream *s);         /* FIN: we have written everything */
/* Done with it. After stream_finish written data are still sent; otherwise the other side gets a
 * reset. NULL may be closed. */
void stream_close(struct stream *s);

#endif
