/* yamux.c - see yamux.h. A stream lives from its SYN until the layer above releases it; frames for
 * ids that are gone are read and dropped, since resets cross data on the way. */
#include "yamux.h"

#include <stdlib.h>
#include <string.h>

#define HEADER 12
#define BODY_LIMIT YAMUX_WINDOW_MAX /* no honest frame is longer than the largest window */

int yamux_frame_put(struct bytes *out, const struct yamux_frame *f)
{
    bytes_u8(out, f->version);
    bytes_u8(out, f->type);
    bytes_be16(out, f->flags);
    bytes_be32(out, f->stream);
    return bytes_be32(out, f->length);
}

int yamux_frame_get(struct cursor *c, struct yamux_frame *f)
{
    if (c->left < HEADER) return PL_EAGAIN;
    get_u8(c, &f->version);
    get_u8(c, &f->type);
    get_be16(c, &f->flags);
    get_be32(c, &f->stream);
    get_be32(c, &f->length);
    return f->version != 0 || f->type > YAMUX_GO_AWAY ? PL_EPROTO : PL_OK;
}

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
    y->ping_at = now + YAMUX_PING_EVERY;
}

static void free_stream(struct yamux_stream *s)
{
    bytes_clear(&s->in);
    bytes_clear(&s->waiting);
    free(s);
}

void yamux_clear(struct yamux *y)
{
    while (y->streams) {
        struct yamux_stream *next = y->streams->next;
        free_stream(y->streams);
        y->streams = next;
    }
    bytes_clear(&y->partial);
}

static struct yamux_stream *find(const struct yamux *y, uint32_t id)
{
    struct yamux_stream *s = y->streams;
    while (s && s->id != id) s = s->next;
    return s;
}

static struct yamux_stream *add_stream(struct yamux *y, uint32_t id)
{
    struct yamux_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->id = id;
    s->credit = s->window = s->granted = YAMUX_WINDOW;
    s->next = y->streams;
    y->streams = s;
    return s;
}

int yamux_open(struct yamux *y, struct yamux_stream **s, struct bytes *out)
{
    *s = NULL;
    if (y->unacked >= YAMUX_UNACKED_MAX || y->remote_going || y->next_id > UINT32_MAX - 2)
        return PL_EAGAIN;
    if (!(*s = add_stream(y, y->next_id))) return PL_ENOMEM;
    y->next_id += 2;
    y->unacked++;
    return put(out, YAMUX_WINDOW_UPDATE, YAMUX_SYN, (*s)->id, 0);
}

static int send_now(struct yamux_stream *s, const uint8_t *data, size_t n, struct bytes *out)
{
    int rc = PL_OK;
    while (n && !rc) {
        uint32_t part = n < YAMUX_BODY_MAX ? (uint32_t)n : YAMUX_BODY_MAX;
        rc = put(out, YAMUX_DATA, 0, s->id, part);
        if (!rc) rc = bytes_add(out, data, part);
        s->credit -= part;
        data += part;
        n -= part;
    }
    return rc;
}

static int send_fin(struct yamux_stream *s, struct bytes *out)
{
    if (!s->out_ended || s->fin_sent || s->reset || bytes_length(&s->waiting)) return PL_OK;
    s->fin_sent = 1;
    return put(out, YAMUX_WINDOW_UPDATE, YAMUX_FIN, s->id, 0);
}

int yamux_write(struct yamux *y, struct yamux_stream *s, const void *data, size_t n,
                struct bytes *out)
{
    const uint8_t *p = data;
    size_t now;
    int rc;
    (void)y;
    if (s->reset || s->out_ended) return PL_EPROTO;
    now = bytes_length(&s->waiting) ? 0 : n < s->credit ? n : s->credit;
    rc = send_now(s, p, now, out);
    return rc ? rc : bytes_add(&s->waiting, p + now, n - now);
}

static int flush(struct yamux *y, struct yamux_stream *s, struct bytes *out)
{
    size_t held = bytes_length(&s->waiting), n = held < s->credit ? held : s->credit;
    int rc;
    if (!held || !n || s->reset) return PL_OK;
    rc = send_now(s, bytes_at(&s->waiting), n, out);
    bytes_take(&s->waiting, n);
    if (!rc) rc = send_fin(s, out);
    if (!rc && n == held && !s->closed_by_user) y->events.writable(y->context, s);
    return rc;
}

/* Credit is worth a frame once half of the window is free. */
static int grant(struct yamux_stream *s, struct bytes *out)
{
    size_t used = bytes_length(&s->in) + s->granted;
    uint32_t more;
    if (s->reset || s->in_ended || used >= s->window) return PL_OK;
    more = s->window - (uint32_t)used;
    if (more < s->window / 2) return PL_OK;
    s->granted += more;
    return put(out, YAMUX_WINDOW_UPDATE, 0, s->id, more);
}

int yamux_took(struct yamux *y, struct yamux_stream *s, size_t n, struct bytes *out)
{
    (void)y;
    bytes_take(&s->in, n);
    return grant(s, out);
}

int yamux_expect(struct yamux *y, struct yamux_stream *s, size_t n, struct bytes *out)
{
    uint32_t want = n < YAMUX_WINDOW_MAX / 2 ? (uint32_t)(2 * n) : YAMUX_WINDOW_MAX;
    (void)y;
    if (want > s->window) s->window = want;
    return grant(s, out);
}

int yamux_finish(struct yamux *y, struct yamux_stream *s, struct bytes *out)
{
    (void)y;
    s->out_ended = 1;
    return send_fin(s, out);
}

int yamux_reset(struct yamux *y, struct yamux_stream *s, struct bytes *out)
{
    (void)y;
    if (s->reset) return PL_OK;
    s->reset = 1;
    return put(out, YAMUX_WINDOW_UPDATE, YAMUX_RST, s->id, 0);
}

static void forget(struct yamux *y, struct yamux_stream *s)
{
    struct yamux_stream **link = &y->streams;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    if (s->remote_opened) y->inbound--;
    else if (!s->acked) y->unacked--;
    free_stream(s);
}

/* 1 when nothing more can come or go on it. */
static int is_over(const struct yamux_stream *s)
{
    return s->reset || (s->fin_sent && s->in_ended);
}

void yamux_release(struct yamux *y, struct yamux_stream *s, struct bytes *out)
{
    s->closed_by_user = 1;
    s->user = NULL;
    /* A finished writer whose last bytes wait for credit lingers until they are out. */
    if (!is_over(s) && !(s->out_ended && s->in_ended)) yamux_reset(y, s, out);
    if (is_over(s)) forget(y, s);
}

static int protocol_error(struct bytes *out, struct pl_err *err, const char *what, uint32_t id)
{
    put(out, YAMUX_GO_AWAY, 0, 0, 1);
    return pl_fail(err, PL_EPROTO, "yamux: %s (stream %u)", what, (unsigned)id);
}

static int on_syn(struct yamux *y, const struct yamux_frame *f, struct yamux_stream **s,
                  struct bytes *out, struct pl_err *err)
{
    if (f->stream % 2 == (y->client ? 1u : 0u) || f->stream == 0)
        return protocol_error(out, err, "a new stream with an id of our own kind", f->stream);
    if (*s) return protocol_error(out, err, "a new stream with an id in use", f->stream);
    if (y->inbound >= YAMUX_STREAMS_MAX) return put(out, YAMUX_WINDOW_UPDATE, YAMUX_RST, f->stream, 0);
    if (!(*s = add_stream(y, f->stream))) return PL_ENOMEM;
    (*s)->remote_opened = (*s)->acked = 1;
    y->inbound++;
    return put(out, YAMUX_WINDOW_UPDATE, YAMUX_ACK, f->stream, 0);
}

static int on_stream_frame(struct yamux *y, const struct yamux_frame *f, const uint8_t *body,
                           struct bytes *out, struct pl_err *err)
{
    struct yamux_stream *s = find(y, f->stream);
    int fresh = 0, rc;
    if (f->flags & YAMUX_SYN) {
        rc = on_syn(y, f, &s, out, err);
        if (rc) return rc;
        fresh = s != NULL;
    }
    if (!s || s->reset) return PL_OK; /* gone: the body was read and is dropped */
    if ((f->flags & YAMUX_ACK) && !s->acked) {
        s->acked = 1;
        y->unacked--;
    }
    if (f->type == YAMUX_DATA) {
        if (f->length > s->granted)
            return protocol_error(out, err, "more data than credit", f->stream);
        s->granted -= f->length;
        if (!s->closed_by_user && (rc = bytes_add(&s->in, body, f->length))) return rc;
    } else if (f->length) {
        if (f->length > UINT32_MAX - s->credit)
            return protocol_error(out, err, "more credit than can be counted", f->stream);
        s->credit += f->length;
        if ((rc = flush(y, s, out))) return rc;
    }
    if (f->flags & YAMUX_FIN) s->in_ended = 1;
    if (f->flags & YAMUX_RST) s->reset = 1;
    if (s->closed_by_user) {
        if (is_over(s)) forget(y, s);
        return PL_OK;
    }
    if (fresh) y->events.opened(y->context, s);
    s = find(y, f->stream); /* the callback may have released it */
    if (s && !s->closed_by_user &&
        ((f->type == YAMUX_DATA && f->length) || f->flags & (YAMUX_FIN | YAMUX_RST)))
        y->events.readable(y->context, s);
    return PL_OK;
}

static int on_frame(struct yamux *y, const struct yamux_frame *f, const uint8_t *body,
                    struct bytes *out, struct pl_err *err)
{
    switch (f->type) {
    case YAMUX_PING:
        if (f->flags & YAMUX_SYN) return put(out, YAMUX_PING, YAMUX_ACK, 0, f->length);
        if (f->flags & YAMUX_ACK && f->length == y->ping_value) y->ping_sent = 0;
        return PL_OK;
    case YAMUX_GO_AWAY:
        y->remote_going = 1;
        return f->length == 0 ? PL_OK
                              : pl_fail(err, PL_EPROTO, "yamux: the peer went away, reason %u",
                                        (unsigned)f->length);
    default: return on_stream_frame(y, f, body, out, err);
    }
}

int yamux_receive(struct yamux *y, const uint8_t *data, size_t n, struct bytes *out,
                  struct pl_err *err)
{
    int held = bytes_length(&y->partial) > 0, rc = PL_OK;
    struct cursor c = { data, n };
    if (held) {
        if ((rc = bytes_add(&y->partial, data, n))) return rc;
        c = (struct cursor){ bytes_at(&y->partial), bytes_length(&y->partial) };
    }
    while (!rc && c.left >= HEADER) {
        struct cursor ahead = c;
        struct yamux_frame f;
        const uint8_t *body = NULL;
        rc = yamux_frame_get(&ahead, &f);
        if (rc) return protocol_error(out, err, "a frame of another version or type", f.stream);
        if (f.type == YAMUX_DATA) {
            if (f.length > BODY_LIMIT)
                return protocol_error(out, err, "a frame larger than any window", f.stream);
            if (get_bytes(&ahead, &body, f.length)) break;
        }
        c = ahead;
        rc = on_frame(y, &f, body, out, err);
    }
    if (rc) return rc;
    if (held) bytes_take(&y->partial, bytes_length(&y->partial) - c.left);
    else rc = bytes_add(&y->partial, c.at, c.left);
    return rc;
}

int yamux_tick(struct yamux *y, double now, struct bytes *out, struct pl_err *err)
{
    if (y->ping_sent > 0 && now >= y->ping_sent + YAMUX_PING_LIMIT)
        return pl_fail(err, PL_EPROTO, "yamux: no answer to a ping within %.0f s", YAMUX_PING_LIMIT);
    if (now < y->ping_at) return PL_OK;
    y->ping_at = now + YAMUX_PING_EVERY;
    if (y->ping_sent > 0) return PL_OK;
    y->ping_sent = now > 0 ? now : 1e-9;
    return put(out, YAMUX_PING, YAMUX_SYN, 0, ++y->ping_value);
}

double yamux_due(const struct yamux *y)
{
    double dead = y->ping_sent + YAMUX_PING_LIMIT;
    return y->ping_sent > 0 && dead < y->ping_at ? dead : y->ping_at;
}
