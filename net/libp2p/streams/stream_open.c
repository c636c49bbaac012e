/* stream_open.c - opening: a peer ID leads to a connection, and that to a stream.
 *
 * At most 256 streams of ours may be unacknowledged on a connection (Yamux's rule), so a new stream
 * joins a queue there; streams_start_pending takes from it at the next flush. */
#include "stream_open.h"
#include "stream_internal.h"
#include "stream_select.h"

#include <string.h>

/* From the list of streams without a connection to the connection's queue. */
static void attach(struct stream *s, struct connection *c)
{
    struct connection_streams *list = &c->streams;
    stream_leave(s);
    s->connection = c;
    s->peer = c->peer->id;
    stream_join(s);
    s->state = STREAM_PENDING;
    s->next_pending = NULL;
    if (list->pending_last) list->pending_last->next_pending = s;
    else list->pending = s;
    list->pending_last = s;
    connection_touch(c);
}

/* The search has ended. Its connection may be gone again: a relay may refuse in the same
 * iteration. */
static void on_connected(void *context, int status, const struct peer_id *peer,
                         const struct pl_err *err)
{
    struct stream *s = context;
    struct connection *c;
    s->wait = NULL;
    if (status) {
        stream_fail(s, status, err->text);
        return;
    }
    c = connection_best(core_find_peer(s->of->core, peer));
    if (c) attach(s, c);
    else stream_fail(s, PL_EIO, "the connection was lost at once");
}

/* Its timer covers all of it: search, dialing, handshakes, negotiation. */
static struct stream *new_outbound(struct streams *all, const struct peer_id *peer,
                                   const char *protocol, double timeout_s,
                                   const struct stream_events *events, void *context)
{
    struct stream *s = stream_new(all, NULL, peer);
    if (!s) return NULL;
    s->events = *events;
    s->context = context;
    timer_start(all->core->loop, &s->timer, timeout_s, stream_on_late, s);
    if ((s->protocol = strdup(protocol))) return s;
    stream_close(s);
    return NULL;
}

struct stream *stream_open_on(struct connection *c, const char *protocol, double timeout_s,
                              const struct stream_events *events, void *context)
{
    struct stream *s = new_outbound(c->of->context, &c->peer->id, protocol, timeout_s, events,
                                    context);
    if (s) attach(s, c);
    return s;
}

struct stream *streams_open(struct streams *all, const struct peer_id *peer, const char *protocol,
                            double timeout_s, enum routing_effort effort,
                            const struct stream_events *events, void *context)
{
    struct connection *c = connection_best(core_find_peer(all->core, peer));
    struct stream *s = new_outbound(all, peer, protocol, timeout_s, events, context);
    if (!s) return NULL;
    if (c) {
        attach(s, c);
    } else if (!(s->wait = routing_connect(all->routing, peer, timeout_s, effort, on_connected,
                                           s))) {
        stream_close(s);
        return NULL;
    }
    return s;
}
