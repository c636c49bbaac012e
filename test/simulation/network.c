/* network.c - TCP between the virtual computers.
 *
 * TCP hides lost packets: what a program sees of them are delays. So a segment that is lost comes
 * later, and all behind it too. While a path is cut, or the other computer is off, a segment is sent
 * again after 0.2 s, 0.4 s, 0.8 s ... as the kernel does; after 15 minutes the connection ends. Each
 * connection has a queue of its own, so messages of different connections overtake each other. */
#include "network.h"
#include "threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define SOCKETS_MAX 65536
#define RETRY_FIRST (200 * SIM_MS)
#define RETRY_LONGEST (60 * SIM_S)
#define GIVE_UP (900 * SIM_S) /* tcp_retries2 */
#define SYN_TRIES 6           /* 1 + 2 + 4 + 8 + 16 + 32 s, as tcp_syn_retries */
#define LOCAL_DELAY (30 * SIM_US)
#define SEGMENT 65536

enum kind { SEGMENT_DATA, SEGMENT_END, SEGMENT_RESET };

struct segment {
    enum kind kind;
    uint64_t at;
    size_t n, read;
    uint8_t *data;
    struct segment *next;
};
struct queue {
    struct segment *first, *last;
};

struct sim_socket {
    struct sim_peer *peer;
    int number; /* in the event log */
    struct sim_socket *other;
    sim_socket_fn *changed;
    void *context;
    int is_listening, is_closed, is_stalled;
    int connected; /* 0, UV_EAGAIN while it is tried, or why it has failed */
    int error;     /* what reading and writing return; 0: none */
    int has_end;   /* everything was received */
    int port, remote_port;
    uint32_t remote;
    struct queue sent, received;
    int is_armed;            /* a delivery event is in the queue */
    size_t unread, underway; /* bytes that the other program has not read; that have not arrived */
    uint64_t last_at, retry, stuck_since;
    struct sim_socket *waiting; /* of a listener: connections nobody has accepted */
    struct sim_socket *next_waiting;
};

struct sim_links sim_links;
uint8_t sim_cut[SIM_PEERS_MAX][SIM_PEERS_MAX];
static struct sim_socket *sockets[SOCKETS_MAX];
static int socket_count;

uint32_t sim_address(const struct sim_peer *p)
{
    /* each in a network of its own, as strangers are */
    return 45u << 24 | (uint32_t)(p->index + 1) << 16 | 7u << 8 | 9u;
}

static struct sim_peer *peer_at(uint32_t address, struct sim_peer *caller)
{
    if (address >> 24 == 127) return caller;
    for (int i = 0; i < sim_peer_count; i++)
        if (sim_address(&sim_peers[i]) == address) return &sim_peers[i];
    return NULL;
}

struct sim_socket *sim_socket_new(struct sim_peer *p)
{
    struct sim_socket *s = __real_calloc(1, sizeof *s);
    if (!s || socket_count == SOCKETS_MAX) sim_fail("more than %d sockets", SOCKETS_MAX);
    s->peer = p;
    s->number = socket_count;
    s->connected = UV_ENOTCONN;
    sockets[socket_count++] = s;
    return s;
}

void sim_socket_watch(struct sim_socket *s, sim_socket_fn *changed, void *context)
{
    s->changed = changed;
    s->context = context;
}

static void tell(struct sim_socket *s)
{
    if (s->changed && !s->is_closed) s->changed(s->context);
}

/* --- paths ------------------------------------------------------------------------------------ */

static int is_cut(const struct sim_socket *s, const struct sim_peer *to)
{
    return s->is_stalled || !to || sim_cut[s->peer->index][to->index];
}

static uint64_t path_delay(const struct sim_peer *from, const struct sim_peer *to)
{
    double s = sim_links.delay - sim_links.jitter * log(1 - sim_random_uniform(&sim_order));
    if (from == to) return LOCAL_DELAY;
    if (sim_random_happens(&sim_order, sim_links.loss))
        s += sim_links.retransmit * (1 + sim_random_uniform(&sim_order));
    return (uint64_t)(s * 1e9) + 1;
}

/* --- segments --------------------------------------------------------------------------------- */

static void append(struct queue *q, struct segment *g)
{
    g->next = NULL;
    if (q->last) q->last->next = g;
    else q->first = g;
    q->last = g;
}

static struct segment *take(struct queue *q)
{
    struct segment *g = q->first;
    q->first = g->next;
    if (!q->first) q->last = NULL;
    return g;
}

static void clear(struct queue *q)
{
    while (q->first) {
        struct segment *g = take(q);
        __real_free(g->data);
        __real_free(g);
    }
}

static void deliver(void *context, uint64_t argument);

static void arm(struct sim_socket *s)
{
    if (s->is_armed || !s->sent.first) return;
    s->is_armed = 1;
    sim_at(s->sent.first->at, deliver, s, 0);
}

static void send_segment(struct sim_socket *s, enum kind kind, const void *data, size_t n)
{
    struct segment *g = __real_calloc(1, sizeof *g);
    const struct sim_peer *to = s->other ? s->other->peer : s->peer;
    uint64_t leaves = s->peer->uplink_free > sim_now() ? s->peer->uplink_free : sim_now();
    g->kind = kind;
    g->n = n;
    if (n) {
        g->data = __real_malloc(n);
        memcpy(g->data, data, n);
    }
    if (to != s->peer) {
        leaves += (uint64_t)((double)n / s->peer->bandwidth * 1e9);
        s->peer->uplink_free = leaves;
    }
    g->at = leaves + path_delay(s->peer, to);
    if (g->at < s->last_at) g->at = s->last_at;
    s->last_at = g->at;
    s->unread += n;
    s->underway += n;
    append(&s->sent, g);
    arm(s);
}

static void on_reset(void *context, uint64_t error)
{
    struct sim_socket *s = context;
    if (s->is_closed || s->error) return;
    s->error = -(int)error;
    clear(&s->sent);
    tell(s);
}

static void receive_segment(struct sim_socket *s, struct segment *g)
{
    struct sim_socket *to = s->other;
    s->underway -= g->n;
    sim_log_bytes(g->kind == SEGMENT_DATA  ? "data"
                  : g->kind == SEGMENT_END ? "end"
                                           : "reset",
                  s->peer->index, to->peer->index, g->data, g->n);
    if (g->kind == SEGMENT_DATA && !to->is_closed && !to->error) {
        append(&to->received, g);
        tell(to);
        return;
    }
    if (g->kind == SEGMENT_DATA) /* no program has this connection any more */
        sim_after(path_delay(to->peer, s->peer), on_reset, s, (uint64_t)-UV_ECONNRESET);
    else if (g->kind == SEGMENT_RESET) on_reset(to, (uint64_t)-UV_ECONNRESET);
    else if (!to->is_closed) {
        to->has_end = 1;
        tell(to);
    }
    __real_free(g->data);
    __real_free(g);
}

static void deliver(void *context, uint64_t argument)
{
    struct sim_socket *s = context;
    struct segment *g = s->sent.first;
    (void)argument;
    s->is_armed = 0;
    if (!g) return;
    if (g->at <= sim_now()) {
        struct sim_peer *to = s->other->peer;
        if (is_cut(s, to) || is_cut(s->other, s->peer) || !to->is_on) {
            if (!s->retry) {
                s->retry = RETRY_FIRST;
                s->stuck_since = sim_now();
            }
            if (sim_now() - s->stuck_since > GIVE_UP) {
                on_reset(s, (uint64_t)-UV_ETIMEDOUT);
                clear(&s->sent);
                return;
            }
            g->at = sim_now() + s->retry;
            s->retry = 2 * s->retry < RETRY_LONGEST ? 2 * s->retry : RETRY_LONGEST;
        } else {
            s->retry = 0;
            receive_segment(s, take(&s->sent));
        }
    }
    arm(s);
}

/* --- connections ------------------------------------------------------------------------------ */

static struct sim_socket *listener_at(const struct sim_peer *p, int port)
{
    for (int i = socket_count - 1; i >= 0; i--)
        if (sockets[i]->peer == p && sockets[i]->is_listening && !sockets[i]->is_closed &&
            sockets[i]->port == port)
            return sockets[i];
    return NULL;
}

int sim_socket_bind(struct sim_socket *s, int port)
{
    if (port && listener_at(s->peer, port)) return UV_EADDRINUSE;
    s->port = port ? port : 20000 + s->peer->port++;
    return 0;
}

int sim_socket_listen(struct sim_socket *s)
{
    s->is_listening = 1;
    return 0;
}

struct sim_socket *sim_socket_accept(struct sim_socket *s)
{
    struct sim_socket *first = s->waiting;
    if (first) s->waiting = first->next_waiting;
    return first;
}

static void on_connected(void *context, uint64_t error)
{
    struct sim_socket *s = context;
    if (s->is_closed) {
        if (s->other && !error) send_segment(s, SEGMENT_RESET, NULL, 0);
        return;
    }
    s->connected = -(int)error;
    tell(s);
}

static void on_syn(void *context, uint64_t tries)
{
    struct sim_socket *s = context, *listener, *accepted, **last;
    struct sim_peer *to = peer_at(s->remote, s->peer);
    if (s->is_closed) return;
    if (is_cut(s, to) || sim_cut[to->index][s->peer->index] || !to->is_on) {
        if (tries >= SYN_TRIES) on_connected(s, (uint64_t)-UV_ETIMEDOUT);
        else sim_after(SIM_S << tries, on_syn, s, tries + 1);
        return;
    }
    listener = listener_at(to, s->remote_port);
    sim_log("syn %d to %d:%d %s", s->peer->index, to->index, s->remote_port,
            listener ? "" : "refused");
    if (!listener) {
        sim_after(path_delay(to, s->peer), on_connected, s, (uint64_t)-UV_ECONNREFUSED);
        return;
    }
    accepted = sim_socket_new(to);
    accepted->other = s;
    s->other = accepted;
    accepted->connected = 0;
    accepted->port = s->remote_port;
    accepted->remote = s->remote >> 24 == 127 ? s->remote : sim_address(s->peer);
    accepted->remote_port = s->port;
    for (last = &listener->waiting; *last; last = &(*last)->next_waiting) continue;
    *last = accepted;
    tell(listener);
    sim_after(path_delay(to, s->peer), on_connected, s, 0);
}

int sim_socket_connect(struct sim_socket *s, uint32_t address, int port)
{
    s->connected = UV_EAGAIN;
    s->remote = address;
    s->remote_port = port;
    s->port = 40000 + s->number % 20000;
    sim_after(path_delay(s->peer, peer_at(address, s->peer)), on_syn, s, 0);
    return 0;
}

int sim_socket_connected(const struct sim_socket *s) { return s->connected; }

ssize_t sim_socket_send(struct sim_socket *s, const void *data, size_t n)
{
    size_t done = 0;
    if (s->error) return s->error;
    if (s->connected) return UV_ENOTCONN;
    while (done < n && s->unread < sim_links.window) {
        size_t some = n - done, left = sim_links.window - s->unread;
        if (some > SEGMENT) some = SEGMENT;
        if (some > left) some = left;
        send_segment(s, SEGMENT_DATA, (const uint8_t *)data + done, some);
        done += some;
    }
    return done || !n ? (ssize_t)done : UV_EAGAIN;
}

static void on_window(void *context, uint64_t argument)
{
    (void)argument;
    tell(context);
}

ssize_t sim_socket_receive(struct sim_socket *s, void *data, size_t n)
{
    size_t done = 0;
    int was_full;
    while (done < n && s->received.first) {
        struct segment *g = s->received.first;
        size_t some = g->n - g->read < n - done ? g->n - g->read : n - done;
        memcpy((uint8_t *)data + done, g->data + g->read, some);
        done += some;
        g->read += some;
        if (g->read < g->n) break;
        take(&s->received);
        __real_free(g->data);
        __real_free(g);
    }
    if (!done) return s->error ? s->error : s->has_end ? UV_EOF : UV_EAGAIN;
    was_full = s->other->unread >= sim_links.window;
    s->other->unread -= done;
    if (was_full) sim_after(path_delay(s->peer, s->other->peer), on_window, s->other, 0);
    return (ssize_t)done;
}

size_t sim_socket_undelivered(const struct sim_socket *s) { return s->error ? 0 : s->underway; }

void sim_socket_close(struct sim_socket *s)
{
    struct sim_socket *w;
    if (s->is_closed) return;
    while ((w = sim_socket_accept(s))) sim_socket_close(w);
    if (s->other && !s->error && !s->connected) {
        if (s->received
                .first) { /* unread bytes: the kernel resets, and drops what it had to send */
            clear(&s->sent);
            s->underway = 0;
            send_segment(s, SEGMENT_RESET, NULL, 0);
        } else send_segment(s, SEGMENT_END, NULL, 0);
    }
    s->is_closed = 1;
    clear(&s->received);
}

void sim_socket_name(const struct sim_socket *s, int remote, struct sockaddr_in *out)
{
    memset(out, 0, sizeof *out);
    out->sin_family = AF_INET;
    out->sin_port = htons((uint16_t)(remote ? s->remote_port : s->port));
    if (remote) out->sin_addr.s_addr = htonl(s->remote);
    else if (!s->is_listening) out->sin_addr.s_addr = htonl(sim_address(s->peer));
}

/* --- faults ----------------------------------------------------------------------------------- */

void sim_network_crash(struct sim_peer *p, int power)
{
    for (int i = 0; i < socket_count; i++) {
        struct sim_socket *s = sockets[i];
        if (s->peer != p || s->is_closed) continue;
        if (!power) {
            sim_socket_close(s);
            continue;
        }
        s->is_closed = 1; /* the other side gets a reset once the computer is on again */
        clear(&s->received);
        clear(&s->sent);
    }
}

void sim_network_break(struct sim_peer *p, int stall)
{
    struct sim_socket *found = NULL;
    uint64_t n = 0;
    for (int i = 0; i < socket_count; i++) {
        struct sim_socket *s = sockets[i];
        if (s->peer != p || s->is_closed || s->connected || !s->other || s->error) continue;
        if (!sim_random_below(&sim_order, ++n)) found = s;
    }
    if (!found) return;
    sim_log("%s a connection of %d and %d", stall ? "stall" : "reset", p->index,
            found->other->peer->index);
    if (stall) {
        found->is_stalled = found->other->is_stalled = 1;
        return;
    }
    on_reset(found, (uint64_t)-UV_ECONNRESET);
    on_reset(found->other, (uint64_t)-UV_ECONNRESET);
}
