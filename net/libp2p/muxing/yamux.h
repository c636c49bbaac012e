/* yamux.h - many streams in one connection: an engine without sockets or clocks.
 * [spec libp2p-wire 8] */
#ifndef PL_YAMUX_H
#define PL_YAMUX_H

#include "net/buffer_queue.h"

#define YAMUX_WINDOW 262144u /* credit of a new stream, by the protocol */
/* largest window of a busy stream; go-yamux's figure */
#define YAMUX_WINDOW_MAX (16u << 20)
#define YAMUX_MESSAGE_MAX (65u << 20) /* largest window for one awaited message */
#define YAMUX_GROWN_MAX (128u << 20)  /* of all windows of a connection, beyond 256 KiB each */
#define YAMUX_STREAMS_MAX 1024        /* inbound streams of one connection; more get a reset */
#define YAMUX_UNACKED_MAX 256         /* our opened streams that are not acknowledged yet */
#define YAMUX_BODY_MAX 65524u         /* of a frame that we send: 64 KiB with its header */
#define YAMUX_PING_EVERY 30.0         /* s */
/* s without the answer, nor anything else: the peer is dead. On a slow line a ping waits behind
 * data, and so does its answer. */
#define YAMUX_PING_LIMIT 10.0
#define YAMUX_LINGER_TICKS 2 /* pings that a released stream may make no progress */

enum yamux_type { YAMUX_DATA, YAMUX_WINDOW_UPDATE, YAMUX_PING, YAMUX_GO_AWAY };
enum { YAMUX_SYN = 1, YAMUX_ACK = 2, YAMUX_FIN = 4, YAMUX_RST = 8 };

struct yamux_frame {
    uint8_t version, type;
    uint16_t flags;
    uint32_t stream, length;
};
int yamux_frame_put(struct bytes *out, const struct yamux_frame *f);
/* PL_OK, PL_EAGAIN, or PL_EPROTO for another version or type. */
int yamux_frame_get(struct cursor *c, struct yamux_frame *f);

struct yamux_stream {
    uint32_t id;
    struct bytes in;             /* arrived and not yet taken; the reader calls yamux_took */
    int in_ended;                /* 1: FIN came; `in` holds the last bytes */
    int out_ended;               /* 1: FIN is sent, or will be once `waiting` is out */
    int reset;                   /* 1: either side reset it; nothing more comes or goes */
    struct buffer_queue waiting; /* written by us; goes out as credit and send_budget allow */
    void *user;                  /* the layer above */
    /* private */
    uint32_t credit;   /* bytes that we may still send */
    uint32_t window;   /* bytes that the other side may have under way or unread */
    uint32_t granted;  /* bytes that it may still send within the window */
    double granted_at; /* s; when credit was last given */
    int acked, fin_sent, remote_opened, released, ready, idle_ticks;
    int answers;   /* 1: its queued bytes count in the connection's answers, too */
    size_t waited; /* waiting at the last tick, for the released */
    struct yamux_stream *next, *ready_next, *ready_prev; /* in its bucket; in line to send */
};

/* Events for the layer above, from within yamux_receive and yamux_pump. */
struct yamux_events {
    void (*opened)(void *context, struct yamux_stream *s);   /* by the other side */
    void (*readable)(void *context, struct yamux_stream *s); /* bytes, FIN or a reset came */
    void (*writable)(void *context, struct yamux_stream *s); /* `waiting` ran empty */
};

struct yamux {
    struct yamux_events events;
    void *context;
    double now;         /* s on the caller's clock; the caller keeps it up to date */
    size_t send_budget; /* data bytes that may still be appended to out; the caller refills it */
    size_t held;        /* bytes in all streams' in */
    size_t unsent;      /* bytes in all streams' waiting */
    size_t answers;     /* of them in streams that the other side has opened, and asks on */
    size_t count;       /* streams */
    double rtt;         /* s of the last ping; 0 before it */
    int remote_going;   /* 1: the other side wants no new streams */
    /* private */
    struct yamux_stream **buckets, *ready_first, *ready_last;
    size_t bucket_count, inbound, unacked, grown;
    uint32_t next_id;
    int client;
    double ping_at, ping_sent; /* ping_sent < 0: none under way */
    double heard_at;
    uint32_t ping_value;
    uint8_t header[12]; /* of a frame that has not arrived whole */
    size_t header_bytes;
    struct yamux_frame body; /* the data frame whose body is arriving */
    uint32_t body_left;
};

/* client: 1 for the side that dialed. `now` in seconds of any monotonic clock. */
void yamux_init(struct yamux *y, int client, const struct yamux_events *events, void *context,
                double now);
void yamux_clear(struct yamux *y); /* frees all streams, without telling anybody */

/* Takes decrypted bytes; answers are appended to out. PL_EPROTO: out ends with a go-away, send it
 * and close. */
int yamux_receive(struct yamux *y, const uint8_t *data, size_t n, struct bytes *out,
                  struct pl_err *err);
/* The same for at most `frames` frames; the rest stays in *in. */
int yamux_receive_some(struct yamux *y, struct cursor *in, size_t frames, struct bytes *out,
                       struct pl_err *err);
/* Keep-alive; call it at yamux_due or later. The first is due at once. PL_EPROTO: the peer is
 * dead. */
int yamux_tick(struct yamux *y, double now, struct bytes *out, struct pl_err *err);
double yamux_due(const struct yamux *y);
/* Is the other side still there? Sends a ping before its time, unless one is under way. */
int yamux_ping(struct yamux *y, double now, struct bytes *out);
/* Sends queued data, one frame of each stream in turn, until send_budget is used up. */
int yamux_pump(struct yamux *y, struct bytes *out);

/* PL_EAGAIN while too many of our streams are unacknowledged, or after the peer sent go-away. The
 * stream belongs to y until yamux_release. */
int yamux_open(struct yamux *y, struct yamux_stream **s, struct bytes *out);
/* Sends as much as credit and send_budget allow, keeps a copy of the rest. */
int yamux_write(struct yamux *y, struct yamux_stream *s, const void *data, size_t n,
                struct bytes *out);
/* The same for the contents of *data, without a copy; they are sent by the next yamux_pump. *data
 * is empty afterwards, perhaps with the memory of data that were sent. */
int yamux_give(struct yamux *y, struct yamux_stream *s, struct bytes *data);
/* n bytes of s->in are done with: drops them and gives credit back. */
int yamux_took(struct yamux *y, struct yamux_stream *s, size_t n, struct bytes *out);
/* The reader waits until n bytes lie in s->in: opens the window that far, otherwise both sides
 * would wait for each other. PL_ELIMIT if n is above YAMUX_MESSAGE_MAX or other streams' windows
 * take too much. */
int yamux_expect(struct yamux *y, struct yamux_stream *s, size_t n, struct bytes *out);
/* The stream is bidirectional: its queued bytes no longer count as answers. */
void yamux_exempt(struct yamux *y, struct yamux_stream *s);
int yamux_finish(struct yamux_stream *s, struct bytes *out); /* FIN */
/* The layer above is done with the stream. A finished stream lingers until its queued data are sent
 * and the other side has ended too; otherwise it is reset. */
void yamux_release(struct yamux *y, struct yamux_stream *s, struct bytes *out);

/* --- the table of streams (yamux_table.c), for yamux.c alone -------------------------------- */

/* NULL: no stream has this ID, or no longer. */
struct yamux_stream *yamux_table_find(const struct yamux *y, uint32_t id);
/* With a whole window either way. NULL: no memory. */
struct yamux_stream *yamux_table_add(struct yamux *y, uint32_t id);
/* Frees it; all sums are as if it had never been. */
void yamux_table_remove(struct yamux *y, struct yamux_stream *s);
/* n more bytes wait in the stream, or with a minus fewer. */
void yamux_table_count_waiting(struct yamux *y, const struct yamux_stream *s, size_t n);
/* Drops data queued to be sent; drops unread data. */
void yamux_table_drop_waiting(struct yamux *y, struct yamux_stream *s);
void yamux_table_drop_in(struct yamux *y, struct yamux_stream *s);
/* The other side has acknowledged its SYN, in whatever way. */
void yamux_table_acknowledge(struct yamux *y, struct yamux_stream *s);
/* Into the queue of streams that may send, if it may; out of it. */
void yamux_ready_join(struct yamux *y, struct yamux_stream *s);
void yamux_ready_leave(struct yamux *y, struct yamux_stream *s);

#endif
