/* yamux.c - many streams in one connection. [spec libp2p-wire 8]
 *
 *   SYN ----->  opens a stream (odd IDs: the dialer's, even: the listener's)
 *   <---- ACK   the other side has taken it
 *   DATA        at most as many bytes as the receiver's window has credit for
 *   WINDOW      the receiver has read: that many more bytes may be sent (256 KiB at first)
 *   FIN         this side has written everything;  RST: neither side goes on
 *   PING        is the other side alive, and how far;  GO_AWAY: no new streams
 *
 * A stream lives from its SYN until the layer above releases it and both sides have ended.
 * Frames for an ID that is gone are read and dropped: a reset crosses data on the way.
 *
 * Flow control is what bounds memory: a sender can have no more than the window under way or
 * unread, and the reader gives credit only for what it has read. Bodies are handed on as they
 * arrive. */
#include "yamux.h"

#include <math.h>
#include <string.h>

#define HEADER 12

static int put(struct bytes *out, enum yamux_type type, int flags, uint32_t stream, uint32_t length)
{
    struct yamux_frame f = { 0, (uint8_t)type, (uint16_t)flags, stream, length };
    return yamux_frame_put(out, &f);
}

void yamux_init(struct yamux *y, int client, const struct yamux_events *events, void *context,
                double now)
{
    memset(y, 0, sizeof *y);
    y->client = client;
    y->next_id = client ? 1 : 2;
    y->events = *events;
    y->context = context;
    y->send_budget = SIZE_MAX;
    y->now = y->ping_at = now;
    y->ping_sent = -1;
}

/* 1 when nothing more can come or go on it. */
static int is_over(const struct yamux_stream *s)
{
    return s->reset || (s->fin_sent && s->in_ended);
}

/* --- sending ---------------------------------------------------------------------------------- */

/* 256 streams may be unacknowledged: a peer that takes none is not flooded. */
int yamux_open(struct yamux *y, struct yamux_stream **s, struct bytes *out)
{
    *s = NULL;
    if (y->unacked >= YAMUX_UNACKED_MAX || y->remote_going || y->next_id > UINT32_MAX - 2)
        return PL_EAGAIN;
    if (!(*s = yamux_table_add(y, y->next_id))) return PL_ENOMEM;
    y->next_id += 2;
    y->unacked++;
    return put(out, YAMUX_WINDOW_UPDATE, YAMUX_SYN, (*s)->id, 0);
}

/* At most one frame of data; returns its length. */
static uint32_t send_frame(struct yamux *y, struct yamux_stream *s, const uint8_t *data, size_t n,
                           struct bytes *out)
{
    uint32_t part = n < YAMUX_BODY_MAX ? (uint32_t)n : YAMUX_BODY_MAX;
    if (part > s->credit) part = s->credit;
    if (!part || !y->send_budget) return 0;
    put(out, YAMUX_DATA, 0, s->id, part);
    bytes_add(out, data, part);
    s->credit -= part;
    y->send_budget -= part < y->send_budget
                          ? part
                          : y->send_budget; /* the last frame may be too large, not cut small */
    return part;
}

static int send_fin(struct yamux_stream *s, struct bytes *out)
{
    if (!s->out_ended || s->fin_sent || s->reset || s->waiting.length) return PL_OK;
    s->fin_sent = 1;
    return put(out, YAMUX_WINDOW_UPDATE, YAMUX_FIN, s->id, 0);
}

/* Data behind waiting data waits, too: a stream's bytes keep their order. */
int yamux_write(struct yamux *y, struct yamux_stream *s, const void *data, size_t n,
                struct bytes *out)
{
    const uint8_t *p = data;
    int rc;
    if (s->reset || s->out_ended) return PL_EPROTO;
    while (n && !s->waiting.length) {
        uint32_t sent = send_frame(y, s, p, n, out);
        if (!sent) break;
        p += sent;
        n -= sent;
    }
    if (out->failed || !n) return out->failed;
    if ((rc = buffer_queue_add(&s->waiting, p, n))) return rc;
    yamux_table_count_waiting(y, s, n);
    yamux_ready_join(y, s);
    return PL_OK;
}

int yamux_give(struct yamux *y, struct yamux_stream *s, struct bytes *data)
{
    size_t n = bytes_length(data);
    int rc;
    if (s->reset || s->out_ended) return PL_EPROTO;
    rc = buffer_queue_give(&s->waiting, data);
    data->begin = data->end = 0;
    if (rc) return rc;
    yamux_table_count_waiting(y, s, n);
    yamux_ready_join(y, s);
    return PL_OK;
}

int yamux_pump(struct yamux *y, struct bytes *out)
{
    struct yamux_stream *s;
    while (y->send_budget && (s = y->ready_first) && !out->failed) {
        size_t n;
        const uint8_t *piece = buffer_queue_at(&s->waiting, &n);
        uint32_t sent = send_frame(y, s, piece, n, out);
        buffer_queue_take(&s->waiting, sent);
        yamux_table_count_waiting(y, s, -(size_t)sent);
        yamux_ready_leave(y, s);
        yamux_ready_join(y, s); /* behind the others */
        if (s->waiting.length) continue;
        send_fin(s, out);
        if (!s->released) y->events.writable(y->context, s);
        else if (is_over(s)) yamux_table_remove(y, s);
    }
    return out->failed;
}

/* Credit is worth a frame once half of the window is free, or when the reader waits for `need`
 * bytes. A window that is used up within a few round trips is too small for the path: it
 * doubles. */
static int grant(struct yamux *y, struct yamux_stream *s, size_t need, struct bytes *out)
{
    size_t used = bytes_length(&s->in) + s->granted;
    uint32_t more;
    if (s->reset || s->in_ended || used >= s->window) return PL_OK;
    more = s->window - (uint32_t)used;
    if (more < s->window / 2 && used >= need) return PL_OK;
    if (s->granted_at > 0 && y->now - s->granted_at < 4 * y->rtt &&
        s->window <= YAMUX_WINDOW_MAX / 2 && y->grown + s->window <= YAMUX_GROWN_MAX) {
        y->grown += s->window;
        more += s->window;
        s->window *= 2;
    }
    s->granted_at = y->now;
    s->granted += more;
    return put(out, YAMUX_WINDOW_UPDATE, 0, s->id, more);
}

int yamux_took(struct yamux *y, struct yamux_stream *s, size_t n, struct bytes *out)
{
    bytes_take(&s->in, n);
    y->held -= n;
    return grant(y, s, 0, out);
}

int yamux_expect(struct yamux *y, struct yamux_stream *s, size_t n, struct bytes *out)
{
    if (n > YAMUX_MESSAGE_MAX) return PL_ELIMIT;
    if (n > s->window) {
        uint32_t want = (uint32_t)n + YAMUX_WINDOW, more = want - s->window;
        if (y->grown + more > YAMUX_GROWN_MAX) return PL_ELIMIT;
        y->grown += more;
        s->window = want;
    }
    return grant(y, s, n, out);
}

void yamux_exempt(struct yamux *y, struct yamux_stream *s)
{
    if (s->answers) y->answers -= s->waiting.length;
    s->answers = 0;
}

/* FIN follows the last byte; until then it waits with the data. */
int yamux_finish(struct yamux_stream *s, struct bytes *out)
{
    s->out_ended = 1;
    return send_fin(s, out);
}

static int reset_stream(struct yamux_stream *s, struct bytes *out)
{
    if (is_over(s)) return PL_OK;
    s->reset = 1;
    return put(out, YAMUX_WINDOW_UPDATE, YAMUX_RST, s->id, 0);
}

/* After FIN the stream lingers until it is flushed; without FIN the other side gets a reset. */
void yamux_release(struct yamux *y, struct yamux_stream *s, struct bytes *out)
{
    s->released = 1;
    s->user = NULL;
    yamux_table_drop_in(y, s);
    if (!s->out_ended) reset_stream(s, out);
    if (is_over(s)) yamux_table_remove(y, s);
}

/* --- receiving -------------------------------------------------------------------------------- */

static int protocol_error(struct bytes *out, struct pl_err *err, const char *what, uint32_t id)
{
    put(out, YAMUX_GO_AWAY, 0, 0, 1);
    return pl_fail(err, PL_EPROTO, "yamux: %s (stream %u)", what, (unsigned)id);
}

/* SYN: the other side opens a stream with an ID of its own parity. Above the limit it gets a reset:
 * the connection and its other streams go on. */
static int on_syn(struct yamux *y, const struct yamux_frame *f, struct bytes *out,
                  struct pl_err *err)
{
    struct yamux_stream *s;
    if (f->stream % 2 == (y->client ? 1u : 0u) || f->stream == 0)
        return protocol_error(out, err, "a new stream with an id of our own kind", f->stream);
    if (yamux_table_find(y, f->stream))
        return protocol_error(out, err, "a new stream with an id in use", f->stream);
    if (y->inbound >= YAMUX_STREAMS_MAX)
        return put(out, YAMUX_WINDOW_UPDATE, YAMUX_RST, f->stream, 0);
    if (!(s = yamux_table_add(y, f->stream))) return PL_ENOMEM;
    s->remote_opened = s->acked = s->answers = 1;
    y->inbound++;
    put(out, YAMUX_WINDOW_UPDATE, YAMUX_ACK, f->stream, 0);
    y->events.opened(y->context, s);
    return out->failed;
}

/* FIN and RST count once the frame's body is in. */
static void on_end(struct yamux *y, struct yamux_stream *s, int flags)
{
    if (flags & YAMUX_FIN) s->in_ended = 1;
    if (flags & YAMUX_RST) {
        s->reset = 1;
        yamux_table_acknowledge(y, s);
        yamux_table_drop_waiting(y, s);
    }
}

/* Notifies the layer above, or ends a stream that it no longer wants. */
static void notify(struct yamux *y, struct yamux_stream *s)
{
    if (!s->released) y->events.readable(y->context, s);
    else if (is_over(s)) yamux_table_remove(y, s);
}

/* Credit: that many more bytes may be sent on the stream. */
static int on_window_update(struct yamux *y, const struct yamux_frame *f, struct bytes *out,
                            struct pl_err *err)
{
    struct yamux_stream *s = yamux_table_find(y, f->stream);
    if (!s || s->reset) return PL_OK;
    if (f->flags & YAMUX_ACK) yamux_table_acknowledge(y, s);
    if (f->length > UINT32_MAX - s->credit)
        return protocol_error(out, err, "more credit than can be counted", f->stream);
    s->credit += f->length;
    yamux_ready_join(y, s);
    on_end(y, s, f->flags);
    if (f->flags & (YAMUX_FIN | YAMUX_RST)) notify(y, s);
    return yamux_pump(y, out);
}

/* The receiver granted a window; a sender that exceeds it is broken or hostile. */
static int on_data_header(struct yamux *y, const struct yamux_frame *f, struct bytes *out,
                          struct pl_err *err)
{
    struct yamux_stream *s = yamux_table_find(y, f->stream);
    y->body = *f;
    y->body_left = f->length;
    if (!s || s->reset) { /* gone: the body is read and dropped, up to the largest window */
        if (f->length > YAMUX_MESSAGE_MAX)
            return protocol_error(out, err, "a frame larger than any window", f->stream);
        return PL_OK;
    }
    if (f->flags & YAMUX_ACK) yamux_table_acknowledge(y, s);
    if (f->length > s->granted) return protocol_error(out, err, "more data than credit", f->stream);
    s->granted -= f->length;
    return PL_OK;
}

/* Some of the body, or nothing where the frame has none. */
static int on_body(struct yamux *y, const uint8_t *data, size_t n)
{
    struct yamux_stream *s = yamux_table_find(y, y->body.stream);
    int last;
    y->body_left -= (uint32_t)n;
    last = !y->body_left;
    if (!s || s->reset) return PL_OK;
    if (n && !s->released) {
        int rc = bytes_add(&s->in, data, n);
        if (rc) return rc;
        y->held += n;
    }
    if (last) on_end(y, s, y->body.flags);
    if ((n && !s->released) || (last && y->body.flags & (YAMUX_FIN | YAMUX_RST))) notify(y, s);
    return PL_OK;
}

static int on_header(struct yamux *y, const struct yamux_frame *f, struct bytes *out,
                     struct pl_err *err)
{
    int rc;
    if (f->type == YAMUX_PING) {
        if (f->flags & YAMUX_SYN) return put(out, YAMUX_PING, YAMUX_ACK, 0, f->length);
        if (f->flags & YAMUX_ACK && f->length == y->ping_value && y->ping_sent >= 0) {
            y->rtt = y->now - y->ping_sent;
            y->ping_sent = -1;
        }
        return PL_OK;
    }
    if (f->type == YAMUX_GO_AWAY) {
        y->remote_going = 1;
        return f->length == 0 ? PL_OK
                              : pl_fail(err, PL_EPROTO, "yamux: the peer went away, reason %u",
                                        (unsigned)f->length);
    }
    if (f->flags & YAMUX_SYN && (rc = on_syn(y, f, out, err))) return rc;
    if (f->type == YAMUX_WINDOW_UPDATE) return on_window_update(y, f, out, err);
    rc = on_data_header(y, f, out, err);
    return rc || f->length ? rc : on_body(y, NULL, 0);
}

int yamux_receive_some(struct yamux *y, struct cursor *in, size_t frames, struct bytes *out,
                       struct pl_err *err)
{
    int rc = PL_OK;
    y->heard_at = y->now;
    while (!rc && in->left && frames) {
        const uint8_t *data = in->at;
        size_t n = in->left, part;
        if (y->body_left) {
            part = n < y->body_left ? n : y->body_left;
            rc = on_body(y, data, part);
        } else {
            part = HEADER - y->header_bytes < n ? HEADER - y->header_bytes : n;
            memcpy(y->header + y->header_bytes, data, part);
            y->header_bytes += part;
            if (y->header_bytes == HEADER) {
                struct cursor c = { y->header, HEADER };
                struct yamux_frame f;
                y->header_bytes = 0;
                frames--;
                rc = yamux_frame_get(&c, &f)
                         ? protocol_error(out, err, "a frame of another version or type", f.stream)
                         : on_header(y, &f, out, err);
            }
        }
        in->at += part;
        in->left -= part;
    }
    return rc ? rc : out->failed;
}

int yamux_receive(struct yamux *y, const uint8_t *data, size_t n, struct bytes *out,
                  struct pl_err *err)
{
    struct cursor in = { data, n };
    return yamux_receive_some(y, &in, SIZE_MAX, out, err);
}

/* --- time ------------------------------------------------------------------------------------- */

/* A released stream lingers as long as its last bytes move or the other side may still end it. */
static void sweep(struct yamux *y, struct bytes *out)
{
    for (size_t i = 0; i < y->bucket_count; i++) {
        struct yamux_stream *s = y->buckets[i], *next;
        for (; s; s = next) {
            size_t waiting = s->waiting.length;
            next = s->next;
            if (!s->released) continue;
            if (waiting != s->waited) s->idle_ticks = 0;
            s->waited = waiting;
            if (++s->idle_ticks <= YAMUX_LINGER_TICKS) continue;
            reset_stream(s, out);
            yamux_table_remove(y, s);
        }
    }
}

/* Any byte that arrives proves life: on a slow line the answer to a ping waits behind data. */
static double dead_at(const struct yamux *y)
{
    double last = y->heard_at > y->ping_sent ? y->heard_at : y->ping_sent;
    return y->ping_sent >= 0 ? last + YAMUX_PING_LIMIT : INFINITY;
}

int yamux_ping(struct yamux *y, double now, struct bytes *out)
{
    if (y->ping_sent >= 0) return out->failed;
    y->ping_sent = now;
    return put(out, YAMUX_PING, YAMUX_SYN, 0, ++y->ping_value);
}

/* A ping each 30 s. Its answer gives the round-trip time, from which windows grow. */
int yamux_tick(struct yamux *y, double now, struct bytes *out, struct pl_err *err)
{
    y->now = now;
    if (now >= dead_at(y))
        return pl_fail(err, PL_EPROTO, "yamux: no answer to a ping within %.0f s",
                       YAMUX_PING_LIMIT);
    if (now < y->ping_at) return PL_OK;
    y->ping_at = now + YAMUX_PING_EVERY;
    sweep(y, out);
    return yamux_ping(y, now, out);
}

double yamux_due(const struct yamux *y) { return fmin(dead_at(y), y->ping_at); }
