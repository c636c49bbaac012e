/* rpc_stream.c - calls whose request or response is a stream of messages. [spec libp2p-wire 8,
 * 13]
 *
 *   caller   message ... message  END       server   message ... message  FIN   (or ERROR, FIN)
 *
 * Messages are passed on without a copy, once they are complete. Backpressure: a reader that pauses
 * leaves them in the stream, whose window then stops the sender. Complete messages that came before
 * a reset are delivered, even to a reader that was paused at the time; so are those that came
 * before a connection was lost. */
#include "rpc.h"
#include "rpc_frame.h"
#include "rpc_service.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SMALL 4096 /* such messages travel with their header in one piece */
/* A server that ends before the caller has is answered with a broken pipe in go-libp2p-daemon's
 * client: its end waits this long for the caller's, which is usually right behind the request. */
#define FIN_WAIT 0.25 /* s */

struct rpc_stream {
    struct host *host;
    struct stream *stream; /* NULL once it has failed */
    struct peer_id peer;
    int server;
    int in_ended, out_ended; /* the other side's messages have all come; ours have been sent */
    int busy, closed;        /* in one of the owner's callbacks; closed from there */
    int orphan;              /* its owner is done with it, the other side is not */
    size_t message_max, credit;
    struct timer deadline, again, fin; /* again: reads on after credit was given */
    double deadline_s;
    struct rpc_stream_events events;
    void *context;
};

static void free_stream(struct rpc_stream *s)
{
    timer_stop(&s->deadline);
    timer_stop(&s->again);
    timer_stop(&s->fin);
    /* complete: no reset */
    if (s->stream && !s->server && s->in_ended) stream_finish(s->stream);
    stream_close(s->stream);
    free(s);
}

/* Around every callback: 1 if the owner has closed the stream in it, which is then gone. */
static int left(struct rpc_stream *s)
{
    s->busy--;
    if (s->busy || !s->closed) return s->closed;
    free_stream(s);
    return 1;
}

static void fail(struct rpc_stream *s, int status, const char *why)
{
    char text[512];
    if (!s->stream || s->closed) return;
    rpc_printable(text, sizeof text, (const uint8_t *)why, strlen(why));
    timer_stop(&s->deadline);
    stream_close(s->stream);
    s->stream = NULL;
    s->busy++;
    s->events.failed(s->context, s, status, text);
    left(s);
}

/* The time limit is for the other side: while we do not read, it does not run. */
static void restart_deadline(struct rpc_stream *s);

static void on_deadline(void *context)
{
    struct rpc_stream *s = context;
    if (s->credit) fail(s, PL_EAGAIN, "no message in time");
    else restart_deadline(s); /* the pause is ours: we do not read */
}

static void restart_deadline(struct rpc_stream *s)
{
    if (s->deadline_s > 0 && s->stream && !s->in_ended)
        timer_start(host_loop(s->host), &s->deadline, s->deadline_s, on_deadline, s);
}

static void send_fin(struct rpc_stream *s)
{
    timer_stop(&s->fin);
    if (s->stream) stream_finish(s->stream);
}

static void on_fin(void *context)
{
    struct rpc_stream *s = context;
    send_fin(s);
    if (s->orphan) free_stream(s);
}

/* The server has sent everything. */
static void end_server(struct rpc_stream *s)
{
    s->out_ended = 1;
    if (s->in_ended) send_fin(s);
    else timer_start(host_loop(s->host), &s->fin, FIN_WAIT, on_fin, s);
}

/* All of the other side's messages have come. 1: the stream is gone. */
static int ended(struct rpc_stream *s)
{
    s->in_ended = 1;
    timer_stop(&s->deadline);
    if (s->server && s->out_ended) send_fin(s);
    s->busy++;
    if (s->events.end) s->events.end(s->context, s);
    return left(s);
}

static int got_frame(struct rpc_stream *s, const struct rpc_frame *f)
{
    char text[512];
    if (f->marker == RPC_MESSAGE) {
        if (s->credit != RPC_ALWAYS) s->credit--;
        s->busy++;
        s->events.message(s->context, s, f->data, f->n);
        return left(s);
    }
    if (s->server) return ended(s); /* whatever its body */
    rpc_error_text(text, sizeof text, f);
    fail(s, PL_EPROTO, text[0] ? text : "the handler failed without a word");
    return 1;
}

/* Handles the end of the other side's stream. */
static void on_eof(struct rpc_stream *s, size_t rest)
{
    if (rest) fail(s, PL_EIO, "the stream ends within a message");
    else if (!s->server) ended(s);
    else if (s->orphan || !s->out_ended) fail(s, PL_EIO, "the caller has given up");
}

/* One message at a time, as long as the owner gives credit. */
static void on_readable(void *context, struct stream *c)
{
    struct rpc_stream *s = context;
    if (s->busy) return; /* credit was given inside a callback: we are in the loop below already */
    while (s->stream && s->credit) {
        struct cursor cursor;
        struct rpc_frame f;
        size_t n, want;
        int eof, rc;
        cursor.at = stream_data(s->stream, &n, &eof);
        cursor.left = n;
        if (s->in_ended) {
            if (s->server && n) fail(s, PL_EPROTO, "the caller sent data after its end");
            else if (eof) on_eof(s, 0);
            return;
        }
        rc = n ? rpc_frame_get(&cursor, &f, s->message_max, &want) : PL_EAGAIN;
        if (rc == PL_EAGAIN) {
            if (eof) on_eof(s, n);
            else if (n && stream_expect(s->stream, want))
                fail(s, PL_ELIMIT, "too much lies unread to take the message");
            return;
        }
        if (rc == PL_ELIMIT) fail(s, rc, "a message larger than this call allows");
        else if (rc) fail(s, rc, "a frame of an unknown kind");
        if (rc) return;
        if (got_frame(s, &f)) return;
        if (s->stream) stream_took(s->stream, n - cursor.left);
        restart_deadline(s);
    }
    if (s->stream) stream_pause(s->stream);
}

static void on_drained(void *context, struct stream *c)
{
    struct rpc_stream *s = context;
    if (!s->events.drained || s->out_ended) return;
    s->busy++;
    s->events.drained(s->context, s);
    left(s);
}

static void on_failed(void *context, struct stream *c, int status, const char *why)
{
    struct rpc_stream *s = context;
    /* A server that has sent everything does not mind how the caller leaves. */
    if (s->server && s->in_ended && s->out_ended) return;
    fail(s, status, why);
}

static const struct stream_events stream_calls = { .readable = on_readable,
                                                   .drained = on_drained,
                                                   .failed = on_failed };

static struct rpc_stream *new_stream(struct host *h, const struct peer_id *peer, size_t message_max)
{
    struct rpc_stream *s = calloc(1, sizeof *s);
    assert(message_max <= RPC_MESSAGE_MAX);
    if (!s) return NULL;
    s->host = h;
    s->peer = *peer;
    s->message_max = message_max;
    s->credit = RPC_ALWAYS;
    return s;
}

struct rpc_stream *rpc_open(struct host *h, const struct peer_id *peer, const char *name,
                            size_t message_max, double timeout_s,
                            const struct rpc_stream_events *events, void *context)
{
    struct rpc_stream *s = new_stream(h, peer, message_max);
    if (!s) return NULL;
    rpc_listen(s, events, context);
    if ((s->stream = stream_open(h, peer, name, timeout_s, &stream_calls, s))) return s;
    free(s);
    return NULL;
}

static void on_stream(void *context, struct stream *c)
{
    const struct rpc_service *service = context;
    struct rpc_stream *s = new_stream(service->host, stream_peer(c), service->message_max);
    if (!s) {
        stream_close(c);
        return;
    }
    s->server = 1;
    s->stream = c;
    stream_both_ways(c);
    stream_listen(c, &stream_calls, s);
    s->busy++;
    service->opened(service->context, s);
    assert(s->closed || s->events.failed);
    left(s);
}

int rpc_serve_stream(struct host *h, const char *name, size_t message_max, rpc_opened *opened,
                     void *context)
{
    struct rpc_service s = { .host = h,
                             .name = (char *)(uintptr_t)name,
                             .opened = opened,
                             .message_max = message_max,
                             .context = context };
    return rpc_service_add(&s, on_stream);
}

void rpc_listen(struct rpc_stream *s, const struct rpc_stream_events *events, void *context)
{
    assert(events->message && events->failed);
    s->events = *events;
    s->context = context;
}

const struct peer_id *rpc_peer(const struct rpc_stream *s) { return &s->peer; }

/* Small messages travel with their header in one piece; large ones are not copied twice. */
/* Needs no memory of its own: if a message were lost for lack of memory, the next one would take
 * its place, and parts of an average are known by their order alone. If the stream itself lacks
 * memory, its connection ends. */
int rpc_send(struct rpc_stream *s, const void *data, size_t n)
{
    uint8_t out[RPC_HEADER + SMALL];
    const int is_small = n <= SMALL;
    if (!s->stream || s->out_ended) return PL_EPROTO;
    rpc_header_write(out, RPC_MESSAGE, n);
    if (is_small && n) memcpy(out + RPC_HEADER, data, n);
    stream_write(s->stream, out, RPC_HEADER + (is_small ? n : 0));
    if (!is_small) stream_write(s->stream, data, n);
    return PL_OK;
}

int rpc_give(struct rpc_stream *s, struct bytes *data)
{
    uint8_t header[RPC_HEADER];
    if (bytes_length(data) <= SMALL) {
        int rc = rpc_send(s, bytes_at(data), bytes_length(data));
        data->begin = data->end = 0;
        return rc;
    }
    if (!s->stream || s->out_ended) return PL_EPROTO;
    rpc_header_write(header, RPC_MESSAGE, bytes_length(data));
    stream_write(s->stream, header, sizeof header);
    stream_give(s->stream, data);
    return PL_OK;
}

void rpc_end(struct rpc_stream *s)
{
    uint8_t header[RPC_HEADER];
    if (!s->stream || s->out_ended) return;
    if (s->server) {
        end_server(s);
        return;
    }
    s->out_ended = 1;
    rpc_header_write(header, RPC_END, 0); /* a FIN would be taken for giving up */
    stream_write(s->stream, header, sizeof header);
}

void rpc_fail(struct rpc_stream *s, const char *text)
{
    struct bytes out = { 0 };
    assert(s->server);
    if (!s->stream || s->out_ended) return;
    if (!rpc_error_put(&out, text)) stream_write(s->stream, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
    end_server(s);
}

static void discard_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n) {}

static void discard_end(void *context, struct rpc_stream *s)
{
    s->closed = 1; /* freed when the callback returns */
}

static void discard_failure(void *context, struct rpc_stream *s, int status, const char *why)
{
    discard_end(context, s);
}

void rpc_close(struct rpc_stream *s)
{
    static const struct rpc_stream_events discard = { discard_message, discard_end, discard_failure,
                                                      NULL };
    if (!s) return;
    if (s->server && s->out_ended && !s->in_ended && s->stream) {
        rpc_listen(s, &discard, NULL);
        rpc_deadline(s, 0);
        s->credit = RPC_ALWAYS;
        s->orphan = 1;
        return;
    }
    s->closed = 1;
    if (!s->busy) free_stream(s);
}

size_t rpc_queued(const struct rpc_stream *s) { return s->stream ? stream_queued(s->stream) : 0; }

size_t rpc_unread(const struct rpc_stream *s)
{
    size_t n = 0;
    int ended;
    if (s->stream) stream_data(s->stream, &n, &ended);
    return n;
}

void rpc_pause(struct rpc_stream *s)
{
    s->credit = 0;
    if (s->stream) stream_pause(s->stream);
}

static void read_on(void *context)
{
    struct rpc_stream *s = context;
    if (s->stream) stream_resume(s->stream);
}

/* Reading goes on in the next iteration, never inside the owner's function. */
void rpc_credit(struct rpc_stream *s, size_t messages)
{
    int paused = !s->credit;
    s->credit = messages > RPC_ALWAYS - s->credit ? RPC_ALWAYS : s->credit + messages;
    if (s->credit && paused) timer_start(host_loop(s->host), &s->again, 0, read_on, s);
}

void rpc_deadline(struct rpc_stream *s, double in_s)
{
    s->deadline_s = in_s;
    timer_stop(&s->deadline);
    restart_deadline(s);
}
