/* connection.c - a connection: the engine of conn.h between a socket and its channels. What was written
 * during a turn of the loop is enciphered and sent at its end, in one piece. */
#include "host_internal.h"
#include "net/loop/socket.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIED_FOR 1.0 /* s that a connection of others may be on trial */

static double precise_now(void)
{
    /* the loop's clock counts milliseconds: too coarse for RTT */
    return (double)uv_hrtime() * 1e-9;
}

void connection_touch(struct connection *l)
{
    if (l->dirty || l->ending) return;
    l->dirty = 1;
    l->next_dirty = l->host->dirty;
    l->host->dirty = l;
}

void connection_end(struct connection *l, int status, const char *format, ...)
{
    va_list args;
    if (l->ending) return;
    l->ending = 1;
    l->status = status;
    va_start(args, format);
    vsnprintf(l->why.text, sizeof l->why.text, format, args);
    va_end(args);
    timer_stop(&l->timer);
    resources_close(&l->account);
    l->next_ending = l->host->ending;
    l->host->ending = l;
}

/* The newest direct one: an older one may be dead without our knowing. But what others have
 * opened just now may be a call to see whether we can be reached, and ends at once. */
struct connection *connection_best(const struct peer *p)
{
    struct connection *relayed = NULL, *young = NULL;
    for (struct connection *l = p ? p->links : NULL; l; l = l->next_of_peer) {
        if (l->ending || l->conn.yamux.remote_going) continue;
        if (l->relayed) relayed = relayed ? relayed : l;
        else if (!l->inbound || loop_now(l->host->loop) - l->opened_at >= TRIED_FOR) return l;
        else young = l;
    }
    return young ? young : relayed;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void push(struct connection *l);

static void on_written(uv_write_t *write, int status)
{
    struct connection *l = write->data;
    l->writing = 0;
    l->progress_at = loop_now(l->host->loop);
    conn_took(&l->conn, bytes_length(&l->sending), precise_now() - l->blocked_at);
    bytes_take(&l->sending, bytes_length(&l->sending));
    l->conn.under_way = 0;
    if (l->ending) return;
    if (status) connection_end(l, PL_EIO, "connection lost: %s", uv_strerror(status));
    else connection_touch(l);
}

/* As much as the socket takes now; the rest is lent to libuv. */
static int push_socket(struct connection *l)
{
    struct bytes *wire = &l->conn.wire;
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes_at(wire), (unsigned)bytes_length(wire));
    struct bytes free_one = l->sending;
    int n = uv_try_write((uv_stream_t *)&l->tcp, &buf, 1);
    if (n < 0 && n != UV_EAGAIN) return n;
    if (n > 0) bytes_take(wire, (size_t)n);
    l->progress_at = loop_now(l->host->loop);
    if (!bytes_length(wire)) return 0;
    free_one.limit = wire->limit;
    l->sending = *wire;
    *wire = free_one;
    l->conn.under_way = bytes_length(&l->sending);
    l->queue_seen = l->conn.under_way;
    buf = uv_buf_init((char *)(uintptr_t)bytes_at(&l->sending), (unsigned)l->conn.under_way);
    l->write.data = l;
    l->writing = 1;
    l->blocked_at = precise_now();
    return uv_write(&l->write, (uv_stream_t *)&l->tcp, &buf, 1, on_written);
}

static void push(struct connection *l)
{
    while (!l->writing && !l->ending) {
        int rc;
        size_t n;
        if (l->carrier) l->conn.under_way = stream_queued(l->carrier);
        rc = conn_flush(&l->conn);
        n = bytes_length(&l->conn.wire);
        if (rc) {
            connection_end(l, rc, "connection: %s",
                           rc == PL_ELIMIT ? "the peer does not read our answers"
                                           : pl_status_name(rc));
            return;
        }
        budget_count(l);
        if (!n || l->ending) return;
        if (l->carrier) {
            stream_write(l->carrier, bytes_at(&l->conn.wire), n);
            bytes_take(&l->conn.wire, n);
        } else if ((rc = push_socket(l))) {
            l->writing = 0;
            connection_end(l, PL_EIO, "connection lost: %s", uv_strerror(rc));
        }
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

void connection_carried(struct connection *l, const uint8_t *data, size_t n)
{
    struct pl_err err = { "" };
    int rc;
    if (l->ending) return;
    connection_touch(l);
    if (!l->spoke) l->account.active_at = loop_now(l->host->loop); /* silent ones go first */
    l->spoke = 1;
    rc = conn_receive(&l->conn, data, n, precise_now(), &err);
    if (rc) connection_end(l, rc, "%s", err.text);
    else if (!l->carrier) budget_count(l); /* a relayed one is in its carrier's callback */
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct connection *l = handle->data;
    (void)suggested;
    *buf = uv_buf_init((char *)loop_scratch(l->host->loop), LOOP_SCRATCH);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *l = stream->data;
    if (n > 0) connection_carried(l, (const uint8_t *)buf->base, (size_t)n);
    else if (n < 0)
        connection_end(l, PL_EIO, "connection lost: %s",
                       n == UV_EOF ? "the peer closed it" : uv_strerror((int)n));
}

/* --- time ------------------------------------------------------------------------------------- */

static void on_timer(void *context)
{
    struct connection *l = context;
    struct pl_err err = { "" };
    double now = precise_now(), wait;
    int rc;
    if (!l->open) {
        connection_end(l, PL_EAGAIN, "connection: not set up within %.0f s", CONN_SETUP_LIMIT);
        return;
    }
    if (l->writing) {
        size_t queue = uv_stream_get_write_queue_size((uv_stream_t *)&l->tcp);
        if (queue != l->queue_seen) l->progress_at = loop_now(l->host->loop);
        l->queue_seen = queue;
        if (loop_now(l->host->loop) >= l->progress_at + HOST_STALL_LIMIT) {
            connection_end(l, PL_EIO, "connection: the peer has taken nothing for %.0f s",
                           HOST_STALL_LIMIT);
            return;
        }
    }
    if ((rc = conn_tick(&l->conn, now, &err))) {
        connection_end(l, rc, "%s", err.text);
        return;
    }
    if (l->ending) return; /* its own channels' doing */
    connection_touch(l);
    wait = yamux_due(&l->conn.yamux) - now;
    if (wait > HOST_STALL_LIMIT / 2) wait = HOST_STALL_LIMIT / 2; /* to look at the writes */
    timer_start(l->host->loop, &l->timer, wait, on_timer, l);
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_open(void *context)
{
    struct connection *l = context;
    struct dial *d = l->dial;
    l->open = 1;
    l->dial = NULL;
    l->opened_at = loop_now(l->host->loop);
    host_link_open(l);
    if (!l->ending) timer_start(l->host->loop, &l->timer, 0, on_timer, l); /* the first ping */
    if (d) dial_link_open(d);
}

struct connection *connection_new(struct host *h, int inbound)
{
    struct connection *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->host = h;
    l->inbound = inbound;
    l->tcp.data = l;
    l->next = h->links;
    if (h->links) h->links->prev = l;
    h->links = l;
    h->handles++;
    return l;
}

int connection_start(struct connection *l, const struct peer_id *expected)
{
    static const struct conn_events events = {
        on_open, { stream_on_opened, stream_on_readable, stream_on_writable }
    };
    int rc = conn_init(&l->conn, l->host->me, !l->inbound, l->host->securities, expected, &events,
                       l);
    if (!rc) rc = timer_start(l->host->loop, &l->timer, CONN_SETUP_LIMIT, on_timer, l);
    if (!rc && !l->carrier) {
        uv_os_fd_t fd;
        if (!uv_fileno((const uv_handle_t *)&l->tcp, &fd)) socket_prepare(fd);
        uv_tcp_nodelay(&l->tcp, 1);
        uv_tcp_keepalive(&l->tcp, 1, 30);
        if (uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read)) rc = PL_EIO;
    }
    connection_touch(l);
    return rc;
}

/* Of what was written: until it has arrived, a close may cost the rest. */
size_t connection_unsent(const struct connection *l)
{
    uv_os_fd_t fd;
    size_t n = l->conn.yamux.unsent + bytes_length(&l->conn.wire) + bytes_length(&l->conn.frames) +
               l->conn.under_way;
    if (l->has_socket && !uv_fileno((const uv_handle_t *)&l->tcp, &fd)) n += socket_unconfirmed(fd);
    return n;
}

static void free_link(struct connection *l)
{
    struct host *h = l->host;
    if (l->prev) l->prev->next = l->next;
    else h->links = l->next;
    if (l->next) l->next->prev = l->prev;
    bytes_clear(&l->sending);
    free(l);
    host_handle_closed(h);
}

static void on_closed(uv_handle_t *handle) { free_link(handle->data); }

/* Tells everybody who was on it. They may open and close what they like: nothing of this link is
 * found any more. */
static void settle_ended(struct connection *l)
{
    struct dial *d = l->dial;
    struct stream *carrier = l->carrier;
    l->dial = NULL;
    l->carrier = NULL;
    if (l->open) host_link_closed(l);
    if (l->conn.state == CONN_CLOSED || l->status == PL_OK) { /* an alert, the last words */
        size_t n = bytes_length(&l->conn.wire);
        uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes_at(&l->conn.wire), (unsigned)n);
        if (n && carrier) stream_write(carrier, bytes_at(&l->conn.wire), n);
        else if (n && l->has_socket && !l->writing) uv_try_write((uv_stream_t *)&l->tcp, &buf, 1);
    }
    while (l->channels) stream_lost(l->channels, PL_EIO, l->why.text);
    conn_clear(&l->conn);
    if (d) dial_link_ended(d, l->status, l->why.text);
    stream_close(carrier);
    l->settled = 1;
    if (l->has_socket) uv_close((uv_handle_t *)&l->tcp, on_closed);
    else free_link(l);
}

void host_settle(struct host *h)
{
    while (h->dirty || h->ending) {
        struct connection *l = h->dirty;
        if (l) {
            h->dirty = l->next_dirty;
            l->dirty = 0;
            if (l->ending) continue;
            stream_start_pending(l);
            push(l);
            stream_release_held(l);
        } else {
            l = h->ending;
            h->ending = l->next_ending;
            settle_ended(l);
        }
    }
}
