/* host_open.c - a peer begins, serves, and ends in order.
 *
 * The end: protocols stop, all pending requests fail, no stream is accepted any more. Then each
 * connection closes as soon as its output is flushed, or no longer moves: the last message of a
 * leaving peer arrives. The host frees itself with the last of its handles. */
#include "host.h"
#include "host_internal.h"
#include "host_protocol.h"
#include "net/libp2p/streams/stream_budget.h"
#include "net/libp2p/streams/stream_select.h"
#include "net/libp2p/streams/stream_turns.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define SWEEP_EVERY 30.0 /* s between checks for expired addresses, which live half an hour */

/* --- serving ---------------------------------------------------------------------------------- */

int host_serve(struct host *h, const char *protocol, stream_opened *opened, void *context)
{
    int rc = services_add(&h->streams.services, protocol, opened, context);
    if (!rc) host_changed(h);
    return rc;
}

void host_unserve(struct host *h, const char *protocol)
{
    if (services_remove(&h->streams.services, protocol)) host_changed(h);
}

struct stream *stream_open(struct host *h, const struct peer_id *peer, const char *protocol,
                           double timeout_s, const struct stream_events *events, void *context)
{
    return streams_open(&h->streams, peer, protocol, timeout_s, ROUTING_ASK, events, context);
}

struct loop *host_loop(const struct host *h) { return h->core.loop; }
const struct peer_id *host_id(const struct host *h) { return &h->core.me->id; }
const struct identity *host_identity(const struct host *h) { return h->core.me; }

size_t host_addresses(const struct host *h, struct multiaddr *out, size_t max)
{
    size_t n = host_own_addresses(h, out, max);
    for (size_t i = 0; i < n; i++) multiaddr_add_peer(&out[i], &h->core.me->id);
    return n;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void free_host(struct host *h)
{
    host_free_protocols(h);
    peers_clear(&h->core.peers);
    resources_clear(&h->core.resources);
    services_clear(&h->streams.services);
    free(h->listening.announce);
    free(h->agent);
    free(h);
}

static void on_settle_closed(uv_handle_t *handle)
{
    struct host *h = handle->data;
    h->core.handles--;
    h->core.handle_closed(h);
}

/* Connections, listeners, `settle` and `closing` are a handle each. `settle` goes
 * last: it frees the connections. */
static void on_handle_closed(struct host *h)
{
    struct host_closing closing = h->closing;
    if (h->core.state != HOST_CLOSING) return;
    if (h->core.handles == 1 && !uv_is_closing((uv_handle_t *)&h->settle))
        uv_close((uv_handle_t *)&h->settle, on_settle_closed);
    if (h->core.handles) return;
    free_host(h);
    if (closing.closed) closing.closed(closing.context);
}

/* 1: relayed connections still go through it. */
static int carries_others(const struct connection *c)
{
    for (const struct connection *other = c->of->all; other; other = other->next)
        if (other->state != CONNECTION_ENDING && other->carrier &&
            other->carrier_calls->connection(other->carrier) == c)
            return 1;
    return 0;
}

/* 1: its last bytes are still on their way. */
static int is_flushing(struct connection *c, double now, double at_last)
{
    size_t left = c->state == CONNECTION_OPEN ? connection_unsent(c) : 0;
    if (left != c->close_unsent) c->close_by = now + HOST_CLOSING_LIMIT;
    c->close_unsent = left;
    return left && now < c->close_by && now < at_last;
}

/* Each connection ends by itself: as long as it is there its peer goes on asking, and all of them
 * together would never fall silent. */
static void on_closing(void *context)
{
    struct host *h = context;
    double now = loop_now(h->core.loop);
    int waiting = 0;
    for (struct connection *c = h->connections.all; c; c = c->next) {
        if (c->state == CONNECTION_ENDING) continue;
        if (is_flushing(c, now, h->closing.close_by) || carries_others(c)) waiting = 1;
        else connection_end(c, PL_OK, "this peer is closing");
    }
    if (waiting) {
        timer_start(h->core.loop, &h->closing.timer, 0.01, on_closing, h);
    } else {
        h->core.handles--;
        on_handle_closed(h);
    }
}

static void begin_close(struct host *h)
{
    h->core.state = HOST_CLOSING;
    timer_stop(&h->sweep);
    connections_stop_turns(&h->connections);
    /* Protocols first: they may still use streams. Then waiting callers, then the rest. */
    host_stop_protocols(h);
    routing_close(&h->routing);
    streams_close_all(&h->streams);
    listening_stop(&h->listening);
    h->core.handles++; /* until on_closing is through, even if every connection ends before */
    h->closing.close_by = loop_now(h->core.loop) + HOST_CLOSING_MAX;
    timer_start(h->core.loop, &h->closing.timer, 0, on_closing, h);
}

/* host_close's thread waits here for the loop's. */
struct closing {
    struct host *host;
    struct loop_request request;
};

static void on_freed(void *request) { loop_end(request, PL_OK); }

static void close_here(void *context)
{
    struct closing *c = context;
    c->host->closing.closed = on_freed;
    c->host->closing.context = &c->request;
    begin_close(c->host);
}

/* The loop's thread does the work; this one waits until the host is freed, so that its caller may
 * free all that the host had borrowed. */
void host_close(struct host *h)
{
    struct closing c = { .host = h };
    if (!h) return;
    assert(!loop_is_here(h->core.loop));
    loop_wait(h->core.loop, &c.request, close_here, &c);
}

/* --- the beginning ---------------------------------------------------------------------------- */

static void on_settle(uv_prepare_t *prepare)
{
    struct host *h = prepare->data;
    connections_settle(&h->connections);
}

static void on_sweep(void *context)
{
    struct host *h = context;
    double now = loop_now(h->core.loop);
    peers_expire(&h->core.peers, now);
    for (const struct connection *c = h->connections.all; c; c = c->next)
        if (c->shares_port && c->state == CONNECTION_OPEN)
            observed_renew(&h->listening.observed, &c->remote, now);
    timer_start(h->core.loop, &h->sweep, SWEEP_EVERY, on_sweep, h);
}

/* Behind a router with a forwarded port, the router's address must be advertised. */
static int set_announce(struct host *h, const struct host_options *o, struct pl_err *err)
{
    struct listening *l = &h->listening;
    int rc;
    if (!o->announce_count) return PL_OK;
    if (o->announce_count > HOST_LISTEN_MAX)
        return pl_fail(err, PL_EUSE, "announce: more than %d addresses", HOST_LISTEN_MAX);
    if (!(l->announce = calloc(o->announce_count, sizeof *l->announce))) return PL_ENOMEM;
    for (size_t i = 0; i < o->announce_count; i++) {
        if ((rc = multiaddr_from_text(&l->announce[i], o->announce[i], err))) return rc;
        multiaddr_strip_peer(&l->announce[i], &h->core.me->id);
        l->announce_count++;
    }
    return PL_OK;
}

/* How many files the process may open: connections must leave some for everything else. */
static size_t descriptors(void)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) ? SIZE_MAX : (size_t)files.rlim_cur;
}

/* Each part gets the parts that it builds on, and callbacks to the parts above it. */
static void assemble(struct host *h, struct loop *l, const struct host_options *o)
{
    static const struct connection_events events = {
        .opened = host_enter_connection,
        .closed = host_leave_connection,
        .lost = streams_lost,
        .before_flush = streams_start_pending,
        .after_flush = streams_release_held,
        .used = stream_budget_count,
        .streams = { stream_on_opened, stream_on_readable, stream_on_writable },
    };
    struct host_core *core = &h->core;
    core->host = h;
    core->loop = l;
    core->me = o->me;
    core->handle_closed = on_handle_closed;
    resources_init(&core->resources, descriptors());
    h->connections.core = h->dialing.core = h->routing.core = core;
    h->streams.core = h->listening.core = core;
    h->connections.events = &events;
    h->connections.context = &h->streams;
    h->connections.securities = o->securities ? o->securities : CONN_NOISE | CONN_TLS;
    h->dialing.connections = h->listening.connections = &h->connections;
    h->streams.connections = &h->connections;
    h->streams.routing = &h->routing;
    h->dialing.listening = &h->listening;
    h->routing.dialing = &h->dialing;
    h->client_mode = o->client_mode;
    h->relay = o->relay;
    h->map_port = o->map_port;
}

struct opening {
    struct host *host;
    const struct host_options *options;
    const struct host_protocol *const *protocols;
    size_t protocol_count;
    struct pl_err *err;
    int rc;
};

static void open_here(void *context)
{
    struct opening *o = context;
    struct host *h = o->host;
    const struct host_options *options = o->options;
    o->rc = PL_ENOMEM;
    /* libuv runs prepare callbacks right before it waits for events: there all writes of an
     * iteration go out together. */
    uv_prepare_init(loop_uv(h->core.loop), &h->settle);
    h->settle.data = h;
    h->core.handles = 1;
    uv_prepare_start(&h->settle, on_settle);
    timer_start(h->core.loop, &h->sweep, SWEEP_EVERY, on_sweep, h);
    if (!(h->agent = strdup(options->agent ? options->agent : "potluck/" PL_VERSION))) return;
    if ((o->rc = set_announce(h, options, o->err))) return;
    if (options->listen_count > HOST_LISTEN_MAX)
        o->rc = pl_fail(o->err, PL_EUSE, "listen: more than %d addresses", HOST_LISTEN_MAX);
    for (size_t i = 0; i < options->listen_count && !o->rc; i++)
        o->rc = listening_add(&h->listening, options->listen[i], o->err);
    for (size_t i = 0; i < o->protocol_count && !o->rc; i++) o->rc = host_join(h, o->protocols[i]);
}

int host_open(struct host **out, struct loop *l, const struct host_options *options,
              const struct host_protocol *const *protocols, size_t protocol_count,
              struct pl_err *err)
{
    struct opening o = {
        .options = options, .protocols = protocols, .protocol_count = protocol_count, .err = err
    };
    struct host *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return pl_fail(err, PL_ENOMEM, "out of memory");
    assemble(h, l, options);
    o.host = h;
    loop_call(l, open_here, &o);
    if (!o.rc) {
        *out = h;
        return PL_OK;
    }
    if (loop_is_here(l)) begin_close(h); /* it frees itself a moment later */
    else host_close(h);
    return o.rc == PL_ENOMEM ? pl_fail(err, o.rc, "out of memory") : o.rc;
}
