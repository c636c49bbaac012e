/* stream_io.c - one stream: its lists, its end, and its owner's calls.
 *
 * The owner holds a `struct stream` for as long as it likes; the Yamux stream and the connection
 * below may be gone before. A stream that is lost fails at once, unless its reader has paused
 * with bytes unread: they are kept, as if they had been read before the loss. */
#include "stream_turns.h"
#include "net/list.h"

#include <stdlib.h>
#include <string.h>

/* --- lists ------------------------------------------------------------------------------------ */

static struct stream **list_of(struct stream *s)
{
    return s->connection ? &s->connection->streams.all : &s->of->detached;
}

void stream_join(struct stream *s) { list_add(list_of(s), s); }

void stream_leave(struct stream *s) { list_remove(list_of(s), s); }

/* The queue is singly linked: streams leave it early only when they fail. */
static void leave_pending(struct stream *s)
{
    struct connection_streams *list = &s->connection->streams;
    struct stream **at = &list->pending, *before = NULL;
    for (; *at; before = *at, at = &(*at)->next_pending)
        if (*at == s) {
            *at = s->next_pending;
            if (list->pending_last == s) list->pending_last = before;
            return;
        }
}

struct stream *stream_new(struct streams *of, struct connection *c, const struct peer_id *peer)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->of = of;
    s->connection = c;
    s->peer = *peer;
    stream_join(s);
    return s;
}

/* --- ends ------------------------------------------------------------------------------------- */

/* Leaves its Yamux stream and connection; the owner still holds the stream. */
static void detach(struct stream *s)
{
    struct connection *c = s->connection;
    if (s->wait) host_wait_cancel(s->wait);
    s->wait = NULL;
    timer_stop(&s->timer);
    if (!c) return;
    if (s->state == STREAM_SELECTING && !s->inbound) connection_probe(c); /* given up */
    if (s->state == STREAM_PENDING) leave_pending(s);
    turns_leave(s);
    stream_leave(s);
    if (s->inbound) resources_release(&c->account, RESOURCE_STREAMS, 1);
    resources_leave_protocol(&s->of->core->resources, s->charged);
    s->charged = NULL;
    if (s->mux) {
        s->mux->user = NULL;
        if (c->state != CONNECTION_ENDING) { /* FIN or RST, as far as it was not sent yet */
            yamux_release(&c->conn.yamux, s->mux, &c->conn.frames);
            connection_touch(c);
        }
    }
    s->mux = NULL;
    s->connection = NULL;
    stream_join(s);
}

static void drop_remains(struct stream *s)
{
    if (!s->remains) return;
    s->of->remains -= bytes_length(&s->remains->in);
    bytes_clear(&s->remains->in);
    free(s->remains);
    s->remains = NULL;
}

static void free_stream(struct stream *s)
{
    if (s->gone) *s->gone = 1;
    detach(s);
    drop_remains(s);
    stream_leave(s);
    bytes_clear(&s->early);
    free(s->protocol);
    free(s);
}

void stream_close(struct stream *s)
{
    if (s) free_stream(s); /* Yamux lets a finished stream linger and resets any other */
}

void stream_fail(struct stream *s, int status, const char *why)
{
    struct pl_err copy;
    if (s->state == STREAM_FAILED) return;
    pl_fail(&copy, status, "%s", why); /* `why` may be in memory that detach frees */
    detach(s);
    drop_remains(s);
    s->state = STREAM_FAILED;
    if (s->events.failed) s->events.failed(s->context, s, status, copy.text);
    else free_stream(s); /* an inbound one without an owner yet */
}

/* A paused reader has not seen the received data. Returns 1 if they are kept for it. */
static int keep_remains(struct stream *s, const char *why)
{
    struct streams *all = s->of;
    struct remains *r;
    struct bytes *in = s->mux ? &s->mux->in : NULL;
    if (s->state != STREAM_OPEN || !s->paused || !in || !bytes_length(in) ||
        all->core->state == HOST_CLOSING || all->remains + bytes_length(in) > HOST_REMAINS_MAX ||
        !(r = calloc(1, sizeof *r)))
        return 0;
    r->in = *in;
    r->ended = s->mux->in_ended;
    pl_fail(&r->why, PL_EIO, "%s", why);
    memset(in, 0, sizeof *in);
    s->connection->conn.yamux.held -= bytes_length(&r->in);
    all->remains += bytes_length(&r->in);
    detach(s);
    s->remains = r;
    return 1;
}

void streams_lost(struct connection *c, const char *why)
{
    struct stream *s;
    while ((s = c->streams.all))
        if (!keep_remains(s, why)) stream_fail(s, PL_EIO, why);
}

void streams_close_all(struct streams *all)
{
    struct stream *s = all->detached;
    while (s) {
        if (s->remains) {
            stream_fail(s, PL_EIO, "this peer is closing");
            s = all->detached; /* its owner may have closed any of them */
        } else {
            s = s->next;
        }
    }
}

/* --- the owner's calls ------------------------------------------------------------------------ */

void stream_listen(struct stream *s, const struct stream_events *events, void *context)
{
    s->events = *events;
    s->context = context;
}

void stream_both_ways(struct stream *s)
{
    s->both_ways = 1;
    turns_leave(s);
    if (s->mux) yamux_exempt(&s->connection->conn.yamux, s->mux);
}

const struct peer_id *stream_peer(const struct stream *s) { return &s->peer; }
struct host *stream_host(const struct stream *s) { return s->of->core->host; }
struct connection *stream_connection(const struct stream *s) { return s->connection; }

/* 1 while its Yamux stream can be used. */
static int is_live(const struct stream *s)
{
    return s->mux && s->connection->state != CONNECTION_ENDING;
}

const uint8_t *stream_data(const struct stream *s, size_t *n, int *ended)
{
    *n = 0;
    *ended = 0;
    if (s->remains) {
        *n = bytes_length(&s->remains->in);
        *ended = s->remains->ended;
        return bytes_at(&s->remains->in);
    }
    if (!s->mux || s->state != STREAM_OPEN || turns_must_wait(s)) return NULL;
    *n = bytes_length(&s->mux->in);
    *ended = s->mux->in_ended;
    return bytes_at(&s->mux->in);
}

int stream_next_message(const struct stream *s, const uint8_t **body, size_t *n, size_t *used,
                        size_t max)
{
    struct cursor c;
    size_t all;
    int ended, rc;
    c.at = stream_data(s, &all, &ended);
    c.left = all;
    rc = all ? get_delimited(&c, body, n, max) : PL_EAGAIN;
    *used = all - c.left;
    return rc == PL_EAGAIN && ended ? PL_EIO : rc;
}

/* The window opens again: Yamux gives the sender as much credit as was taken. */
void stream_took(struct stream *s, size_t n)
{
    if (s->remains) {
        bytes_take(&s->remains->in, n);
        s->of->remains -= n;
        return;
    }
    if (!s->mux || !n) return;
    /* Also of a connection that is ending: a reader in a loop would find the same bytes again and
     * again. */
    yamux_took(&s->connection->conn.yamux, s->mux, n, &s->connection->conn.frames);
    connection_touch(s->connection);
}

void stream_pause(struct stream *s) { s->paused = 1; }

/* A message larger than the window would never arrive whole: the sender waits for credit, the
 * reader for the rest. So the window grows to the message, if the peer's account allows. */
int stream_expect(struct stream *s, size_t n)
{
    struct connection *c = s->connection;
    int rc;
    if (!is_live(s)) return PL_OK; /* its failure is on the way */
    if ((rc = budget_expect(c, n))) return rc;
    rc = yamux_expect(&c->conn.yamux, s->mux, n, &c->conn.frames);
    connection_touch(c);
    return rc;
}

void stream_write(struct stream *s, const void *data, size_t n)
{
    struct connection *c = s->connection;
    if (s->finished || s->state == STREAM_FAILED) return;
    if (!s->mux) { /* before there is a stream: it travels with the negotiation */
        if (bytes_add(&s->early, data, n) && c) connection_end(c, PL_ENOMEM, "out of memory");
    } else if (is_live(s)) {
        int rc;
        turns_count_response(s);
        rc = yamux_write(&c->conn.yamux, s->mux, data, n, &c->conn.frames);
        if (rc == PL_ENOMEM) connection_end(c, rc, "out of memory");
        connection_touch(c);
    }
}

/* A megabyte moves from the encoder to the cipher without a copy in between. */
void stream_give(struct stream *s, struct bytes *data)
{
    struct connection *c = s->connection;
    int rc;
    if (s->finished || s->state == STREAM_FAILED || !is_live(s)) {
        stream_write(s, bytes_at(data), bytes_length(data));
        data->begin = data->end = 0;
        return;
    }
    rc = yamux_give(&c->conn.yamux, s->mux, data);
    if (rc == PL_ENOMEM) connection_end(c, rc, "out of memory");
    connection_touch(c);
}

size_t stream_queued(const struct stream *s)
{
    return s->mux ? s->mux->waiting.length : bytes_length(&s->early);
}

/* FIN closes our direction; the other one stays open. */
void stream_finish(struct stream *s)
{
    if (s->finished) return;
    s->finished = 1;
    if (!is_live(s)) return;
    yamux_finish(s->mux, &s->connection->conn.frames);
    connection_touch(s->connection);
}
