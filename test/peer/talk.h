/* talk.h - questions to one peer that wait for the answer: what a walk through a live peer is made
 * of. From any thread but the loop's; every wait has an end. */
#ifndef PL_TALK_H
#define PL_TALK_H

#include "../../net/bytes.h"
#include "net/libp2p/rpc/rpc.h"

#include <pthread.h>

#define TALK_LIMIT 10.0 /* s for an answer that should come at once */
#define TALK_REPLY_MAX \
    (8u << 20) /* bytes of an answer; the longest honest one is a unary message */

struct talk {
    struct host *host;
    struct peer_id peer;
    /* private */
    pthread_mutex_t lock;
    pthread_cond_t changed;
};
void talk_init(struct talk *t, struct host *host, const struct peer_id *peer);
void talk_clear(struct talk *t);
void talk_sleep(double seconds);

/* How a wait for bytes ended. */
enum talk_end {
    TALK_ENOUGH, /* as many bytes as were waited for */
    TALK_CLOSED, /* the other side has finished */
    TALK_FAILED, /* reset, refused, lost: status and why */
    TALK_LATE    /* nothing more within the limit */
};
struct reply {
    struct bytes bytes;
    enum talk_end end;
    int status; /* PL_OK but for TALK_FAILED, TALK_LATE */
    char why[256];
};
void reply_clear(struct reply *s);

/* A stream of `protocol`: sends, and finishes our side if asked to; then collects until `want`
 * bytes are there (0: until its end). Closes it. */
void talk_stream(struct talk *t, const char *protocol, const void *data, size_t n, int finish,
                 size_t want, struct reply *s);
/* A unary call. TALK_CLOSED: bytes are the response. */
void talk_unary(struct talk *t, const char *name, const void *data, size_t n, struct reply *s);

/* A streaming call to any peer. */
struct talk_stream;
/* NULL: no memory. */
struct talk_stream *talk_open(struct talk *t, const struct peer_id *peer, const char *name,
                              size_t message_max);
void talk_send(struct talk_stream *s, const void *data, size_t n);
void talk_send_end(struct talk_stream *s);
/* Sends a message and the end at once. hivemind's daemon may respond without waiting for the end.
 * If the end then arrives after its response, it resets the stream and the response is lost
 * [go-libp2p-daemon, doStreamPipe]. */
void talk_send_last(struct talk_stream *s, const void *data, size_t n);
/* The next message, borrowed until the next call. PL_ENOTFOUND: the other side has ended.
 * PL_EAGAIN: none within limit_s. Otherwise it has failed; talk_why says how. */
int talk_next(struct talk_stream *s, double limit_s, const uint8_t **data, size_t *n);
const char *talk_why(const struct talk_stream *s);
void talk_close(struct talk_stream *s);

#endif
