/* connection.c - bytes between a socket and the connection's engine, and a connection's end.
 *
 * Reading is immediate: what the socket has goes through decryption and Yamux to the streams'
 * handlers. Writing is deferred: handlers append to buffers, and connections_settle encrypts and
 * sends them in one piece before the loop sleeps. So a handler that writes ten small responses
 * costs one system call.
 *
 * What the socket does not take stays with libuv, one buffer at a time. While that buffer waits,
 * the engine fills only `wire_high` bytes more (conn.h): urgent frames would otherwise wait
 * behind them. */
#include "connection.h"
#include "loop_time.h"
#include "net/loop/socket.h"
#include "net/list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* s for which an inbound connection is not preferred: a peer that probes whether we can be reached
 * (AutoNAT) closes its connection at once */
#define PROBE_SILENCE 2.0 /* s: far longer than a round trip */
#define PROBE_LIMIT 1.0

/* The loop's clock counts milliseconds, which is too coarse for round-trip times. */
static double precise_now(void) { return (double)uv_hrtime() * 1e-9; }

static double loop_time(const struct connection *c) { return loop_now(c->of->core->loop); }

void connection_touch(struct connection *c)
{
    if (c->dirty || c->state == CONNECTION_ENDING) return;
    c->dirty = 1;
    c->next_dirty = c->of->dirty;
    c->of->dirty = c;
}

void connection_end(struct connection *c, int status, const char *format, ...)
{
    va_list args;
    if (c->state == CONNECTION_ENDING) return;
    c->state = CONNECTION_ENDING;
    c->status = status;
    va_start(args, format);
    vsnprintf(c->why.text, sizeof c->why.text, format, args);
    va_end(args);
    timer_stop(&c->timer);
    /* at once: the connection admitted in its place needs the budget */
    resources_close(&c->account);
    c->next_ending = c->of->ending;
    c->of->ending = c;
}

/* The newest direct connection: an older one may be dead without our knowing. Relayed ones are
 * small and short, so they come last. */
struct connection *connection_best(const struct peer *p)
{
    struct connection *relayed = NULL, *young = NULL;
    for (struct connection *c = p ? p->connections : NULL; c; c = c->next_of_peer) {
        if (c->state == CONNECTION_ENDING || c->conn.yamux.remote_going) continue;
        if (c->relayed) relayed = relayed ? relayed : c;
        else if (!c->inbound || loop_time(c) - c->opened_at >= PROBE_LIMIT) return c;
        else young = c;
    }
    return young ? young : relayed;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    struct connection_socket *k = &c->socket;
    k->state = SOCKET_IDLE;
    k->progress_at = loop_time(c);
    /* The socket's speed decides how much may wait in front of it from now on. */
    conn_took(&c->conn, bytes_length(&k->sending), precise_now() - k->blocked_at);
    bytes_take(&k->sending, bytes_length(&k->sending));
    c->conn.under_way = 0;
    if (c->state == CONNECTION_ENDING) return;
    if (status) connection_end(c, PL_EIO, "connection lost: %s", uv_strerror(status));
    else connection_touch(c);
}

/* Writes as much as the socket takes now; the rest is lent to libuv. */
static int write_socket(struct connection *c)
{
    struct connection_socket *k = &c->socket;
    struct bytes *wire = &c->conn.wire, spare = k->sending;
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes_at(wire), (unsigned)bytes_length(wire));
    int n = uv_try_write((uv_stream_t *)&k->tcp, &buf, 1), rc;
    if (n < 0 && n != UV_EAGAIN) return n;
    if (n > 0) bytes_take(wire, (size_t)n);
    k->progress_at = loop_time(c);
    if (!bytes_length(wire)) return 0;
    /* libuv needs the bytes where they are until on_written: the engine goes on with the buffer
     * that was sent before. */
    spare.limit = wire->limit;
    k->sending = *wire;
    *wire = spare;
    c->conn.under_way = k->queue_seen = bytes_length(&k->sending);
    buf = uv_buf_init((char *)(uintptr_t)bytes_at(&k->sending), (unsigned)c->conn.under_way);
    k->write.data = c;
    k->blocked_at = precise_now();
    rc = uv_write(&k->write, (uv_stream_t *)&k->tcp, &buf, 1, on_written);
    if (!rc) k->state = SOCKET_WRITING;
    return rc;
}

static void flush(struct connection *c)
{
    while (c->socket.state != SOCKET_WRITING && c->state != CONNECTION_ENDING) {
        int rc;
        size_t n;
        if (c->carrier) c->conn.under_way = c->carrier_calls->queued(c->carrier);
        rc = conn_flush(&c->conn); /* Yamux frames, encrypted, into conn.wire */
        n = bytes_length(&c->conn.wire);
        if (rc) {
            connection_end(c, rc, "connection: %s",
                           rc == PL_ELIMIT ? "the peer does not read our responses"
                                           : pl_status_name(rc));
            return;
        }
        c->of->events->used(c);
        if (!n || c->state == CONNECTION_ENDING) return;
        if (c->carrier) {
            c->carrier_calls->write(c->carrier, bytes_at(&c->conn.wire), n);
            bytes_take(&c->conn.wire, n);
        } else if ((rc = write_socket(c))) {
            connection_end(c, PL_EIO, "connection lost: %s", uv_strerror(rc));
        }
    }
}

size_t connection_unsent(const struct connection *c)
{
    uv_os_fd_t fd;
    size_t n = c->conn.yamux.unsent + bytes_length(&c->conn.wire) + bytes_length(&c->conn.frames) +
               c->conn.under_way;
    /* The kernel's queue counts too: closing the socket may lose what is in it. */
    if (c->socket.state != SOCKET_NONE && !uv_fileno((const uv_handle_t *)&c->socket.tcp, &fd))
        n += socket_unconfirmed(fd);
    return n;
}

/* --- reading ---------------------------------------------------------------------------------- */

void connection_receive(struct connection *c, const uint8_t *data, size_t n)
{
    struct pl_err err = { "" };
    struct loop_time time;
    int rc;
    if (c->state == CONNECTION_ENDING) return;
    connection_touch(c);
    if (!c->received) c->account.active_at = loop_time(c); /* later bytes are no sign of life */
    c->received = 1;
    /* Handshakes, decryption and frames cost time before any handler runs. */
    loop_time_begin(&time, c->of->core, &c->account);
    rc = conn_receive(&c->conn, data, n, precise_now(), &err);
    c->turn_us += loop_time_end(&time);
    if (conn_has_more(&c->conn)) connections_await_turn(c->of);
    if (rc) connection_end(c, rc, "%s", err.text);
    else if (!c->carrier)
        c->of->events->used(c); /* the carrier's handler may not lose its stream */
}

/* A socket that had its turn, or whose peer has used its time of this second, is not read: what
 * it has stays in the kernel, whose window then stops the sender. */
static int must_wait(const struct connection *c)
{
    return c->of->core->state != HOST_CLOSING &&
           (c->turn_us >= CONNECTION_TURN_US || conn_has_more(&c->conn) ||
            loop_time_is_used(c->of->core, &c->account));
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct connection *c = handle->data;
    /* No buffer: libuv reads nothing, and calls on_read with UV_ENOBUFS. */
    *buf = must_wait(c) ? uv_buf_init(NULL, 0)
                        : uv_buf_init((char *)loop_scratch(c->of->core->loop), LOOP_SCRATCH);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    if (n > 0) {
        connection_receive(c, (const uint8_t *)buf->base, (size_t)n);
    } else if (n == UV_ENOBUFS) {
        uv_read_stop(stream);
        c->is_unread = 1;
        connections_await_turn(c->of);
    } else if (n < 0) {
        connection_end(c, PL_EIO, "connection lost: %s",
                       n == UV_EOF ? "the peer closed it" : uv_strerror((int)n));
    }
}

/* --- turns ------------------------------------------------------------------------------------ */

static void read_again(struct connection *c)
{
    c->is_unread = 0;
    if (uv_read_start((uv_stream_t *)&c->socket.tcp, on_alloc, on_read))
        connection_end(c, PL_EIO, "connection lost: it cannot be read any more");
}

/* With the frames that are left, then with the socket; or in the next second. */
static void go_on(struct connection *c)
{
    if (!c->is_unread && !conn_has_more(&c->conn)) return;
    if (loop_time_is_used(c->of->core, &c->account)) connections_await_second(c->of);
    else if (conn_has_more(&c->conn)) connection_receive(c, NULL, 0);
    if (c->is_unread && c->state != CONNECTION_ENDING && !must_wait(c)) read_again(c);
}

/* The loop has looked after everybody else: each connection may go on, with its socket and with the
 * first stream that it holds. */
static void next_turn(void *context)
{
    struct connections *all = context;
    for (struct connection *c = all->all; c; c = c->next) {
        c->streams.answered = 0;
        c->turn_us = 0;
        if (c->state == CONNECTION_ENDING) continue;
        go_on(c);
        if (c->streams.held) connection_touch(c); /* after its flush, held streams are read */
    }
}

void connections_await_turn(struct connections *all)
{
    if (all->core->state != HOST_CLOSING && !all->turn.is_running)
        timer_start(all->core->loop, &all->turn, 0, next_turn, all);
}

void connections_await_second(struct connections *all)
{
    if (all->core->state != HOST_CLOSING && !all->second.is_running)
        timer_start(all->core->loop, &all->second, loop_time_left(all->core), next_turn, all);
}

void connections_stop_turns(struct connections *all)
{
    timer_stop(&all->turn);
    timer_stop(&all->second);
    for (struct connection *c = all->all; c; c = c->next)
        if (c->is_unread && c->state != CONNECTION_ENDING) read_again(c);
}

/* --- time ------------------------------------------------------------------------------------- */

/* 1: bytes wait, and the socket has taken none of them for HOST_STALL_LIMIT. */
static int is_stalled(struct connection *c)
{
    struct connection_socket *k = &c->socket;
    size_t queue;
    if (k->state != SOCKET_WRITING) return 0;
    queue = uv_stream_get_write_queue_size((uv_stream_t *)&k->tcp);
    if (queue != k->queue_seen) k->progress_at = loop_time(c);
    k->queue_seen = queue;
    return loop_time(c) >= k->progress_at + HOST_STALL_LIMIT;
}

static void on_timer(void *context)
{
    struct connection *c = context;
    struct pl_err err = { "" };
    double now = precise_now(), wait;
    int rc;
    if (c->state == CONNECTION_NEW) {
        connection_end(c, PL_EAGAIN, "connection: not set up within %.0f s", CONN_SETUP_LIMIT);
        return;
    }
    if (is_stalled(c)) {
        connection_end(c, PL_EIO, "connection: the peer has taken nothing for %.0f s",
                       HOST_STALL_LIMIT);
        return;
    }
    if ((rc = conn_tick(&c->conn, now,
                        &err))) { /* Yamux's ping, and whether the last one came back */
        connection_end(c, rc, "%s", err.text);
        return;
    }
    if (c->state == CONNECTION_ENDING) return; /* a stream's handler ended it */
    connection_touch(c);
    wait = yamux_due(&c->conn.yamux) - now;
    if (wait > HOST_STALL_LIMIT / 2) wait = HOST_STALL_LIMIT / 2; /* often enough for is_stalled */
    timer_start(c->of->core->loop, &c->timer, wait, on_timer, c);
}

void connection_probe(struct connection *c)
{
    const double now = precise_now();
    if (c->state != CONNECTION_OPEN || now < c->conn.yamux.heard_at + PROBE_SILENCE) return;
    yamux_ping(&c->conn.yamux, now, &c->conn.frames);
    timer_start(c->of->core->loop, &c->timer, 0, on_timer, c); /* which waits for its answer */
}

/* --- begin and end ---------------------------------------------------------------------------- */

static void on_open(void *context)
{
    struct connection *c = context;
    const struct connection_dialer *dialer = c->dialer;
    c->state = CONNECTION_OPEN;
    c->dialer = NULL;
    c->opened_at = loop_time(c);
    c->of->events->opened(c);
    if (c->state == CONNECTION_OPEN) /* the first tick sends the first ping */
        timer_start(c->of->core->loop, &c->timer, 0, on_timer, c);
    if (dialer) dialer->opened(c->dialer_context, c);
}

struct connection *connection_new(struct connections *of, int inbound)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->of = of;
    c->inbound = c->listens = inbound;
    c->socket.tcp.data = c;
    list_add(&of->all, c);
    of->core->handles++;
    return c;
}

int connection_start(struct connection *c, const struct peer_id *expected)
{
    struct conn_events events = { on_open, c->of->events->streams };
    struct host_core *core = c->of->core;
    int rc = conn_init(&c->conn, core->me, !c->listens, c->of->securities, expected, &events, c);
    if (!rc) timer_start(core->loop, &c->timer, CONN_SETUP_LIMIT, on_timer, c);
    if (!rc && !c->carrier) {
        uv_os_fd_t fd;
        if (!uv_fileno((const uv_handle_t *)&c->socket.tcp, &fd)) socket_prepare(fd);
        uv_tcp_nodelay(&c->socket.tcp,
                       1); /* whole flushes are written: Nagle would only delay them */
        uv_tcp_keepalive(&c->socket.tcp, 1, 30);
        if (uv_read_start((uv_stream_t *)&c->socket.tcp, on_alloc, on_read)) rc = PL_EIO;
    }
    connection_touch(c);
    return rc;
}

static void free_connection(struct connection *c)
{
    struct host_core *core = c->of->core;
    list_remove(&c->of->all, c);
    bytes_clear(&c->socket.sending);
    free(c);
    core->handles--;
    core->handle_closed(core->host);
}

static void on_closed(uv_handle_t *handle) { free_connection(handle->data); }

/* The engine's last bytes: a TLS alert, or the final frames of an orderly end. */
static void write_last_bytes(struct connection *c, struct stream *carrier)
{
    size_t n = bytes_length(&c->conn.wire);
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes_at(&c->conn.wire), (unsigned)n);
    if (!n || (c->conn.state != CONN_CLOSED && c->status != PL_OK)) return;
    if (carrier) c->carrier_calls->write(carrier, bytes_at(&c->conn.wire), n);
    else if (c->socket.state == SOCKET_IDLE) uv_try_write((uv_stream_t *)&c->socket.tcp, &buf, 1);
}

/* Notifies all users of the connection. They may open and close connections meanwhile, since this
 * one is no longer in any table. */
static void finish_ended(struct connection *c)
{
    const struct connection_dialer *dialer = c->dialer;
    struct stream *carrier = c->carrier;
    c->dialer = NULL;
    c->carrier = NULL;
    c->of->events->closed(c);
    write_last_bytes(c, carrier);
    c->of->events->lost(c, c->why.text);
    conn_clear(&c->conn);
    if (dialer) dialer->ended(c->dialer_context, c->status, c->why.text);
    if (carrier) c->carrier_calls->close(carrier);
    if (c->socket.state != SOCKET_NONE) uv_close((uv_handle_t *)&c->socket.tcp, on_closed);
    else free_connection(c);
}

void connections_settle(struct connections *all)
{
    /* Either list may grow meanwhile: a flush may end a connection, an end may write to another. */
    while (all->dirty || all->ending) {
        struct connection *c = all->dirty;
        struct loop_time time;
        if (c) {
            all->dirty = c->next_dirty;
            c->dirty = 0;
            if (c->state == CONNECTION_ENDING) continue;
            all->events->before_flush(c);
            /* The peer that has asked also pays for encryption and for the system's copy. */
            loop_time_begin(&time, all->core, &c->account);
            flush(c);
            loop_time_end(&time);
            all->events->after_flush(c);
        } else {
            c = all->ending;
            all->ending = c->next_ending;
            finish_ended(c);
        }
    }
}

void socket_of_target(struct sockaddr_storage *sa, const struct multiaddr_target *t)
{
    struct sockaddr_in *four = (struct sockaddr_in *)sa;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)sa;
    memset(sa, 0, sizeof *sa);
    if (t->family == 4) {
        four->sin_family = AF_INET;
        four->sin_port = htons(t->port);
        memcpy(&four->sin_addr, t->ip, 4);
    } else {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(t->port);
        memcpy(&six->sin6_addr, t->ip, 16);
    }
}

int multiaddr_of_socket(struct multiaddr *a, const void *sa_)
{
    const struct sockaddr *sa = sa_;
    a->length = 0;
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *four = sa_;
        multiaddr_add_ip(a, 4, (const uint8_t *)&four->sin_addr);
        return multiaddr_add_tcp(a, ntohs(four->sin_port));
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = sa_;
        multiaddr_add_ip(a, 6, (const uint8_t *)&six->sin6_addr);
        return multiaddr_add_tcp(a, ntohs(six->sin6_port));
    }
    return PL_ENOTFOUND;
}
