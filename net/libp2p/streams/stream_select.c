/* stream_select.c - negotiates a stream's protocol, then hands its bytes to the protocol's
 * handler. [spec libp2p-wire 4, 8]
 *
 *   dialer                                         listener
 *      SYN, /multistream/1.0.0, /proto, data  --->
 *                                             <---  /multistream/1.0.0, /proto     or "na"
 *
 * The dialer does not wait for the answer before it sends its first message: that saves a round
 * trip. If the listener answers "na", the message was sent for nothing. */
#include "stream_select.h"
#include "stream_budget.h"
#include "stream_turns.h"

#include <string.h>

/* --- negotiation ------------------------------------------------------------------------------ */

void stream_on_late(void *context)
{
    struct stream *s = context;
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    peer_id_text(peer, &s->peer);
    pl_fail(&err, PL_EAGAIN, "%s: no agreement on %s in time", peer,
            s->protocol ? s->protocol : "a protocol");
    stream_fail(s, PL_EAGAIN, err.text);
}

static void agreed(struct stream *s)
{
    struct host_core *core = s->of->core;
    s->state = STREAM_OPEN;
    timer_stop(&s->timer);
    s->connection->account.active_at = loop_now(core->loop);
    if (s->inbound) {
        const struct service *service = &s->of->services.list[s->select.agreed];
        s->charged = resources_enter_protocol(&core->resources, service->protocol);
        if (s->charged) service->opened(service->context, s);
        else stream_fail(s, PL_ELIMIT, "too many streams of a protocol");
    } else if (s->events.open) {
        s->events.open(s->context, s);
    }
}

/* PL_ENOTFOUND: the listener answered "na". Otherwise it does not speak multistream. */
static void refused(struct stream *s, int rc)
{
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    peer_id_text(peer, &s->peer);
    if (rc == PL_ENOTFOUND) pl_fail(&err, rc, "%s does not serve %s", peer, s->protocol);
    else pl_fail(&err, rc, "%s: a stream that negotiates no protocol", peer);
    stream_fail(s, rc, err.text);
}

static void select_protocol(struct stream *s)
{
    struct yamux_stream *mux = s->mux;
    struct connection *c = s->connection;
    struct cursor cursor = { bytes_at(&mux->in), bytes_length(&mux->in) };
    struct bytes out = { 0 };
    int rc = multistream_receive(&s->select, &cursor, &out);
    size_t used = bytes_length(&mux->in) -
                  cursor.left; /* the following bytes belong to the protocol */
    if (bytes_length(&out))
        yamux_write(&c->conn.yamux, mux, bytes_at(&out), bytes_length(&out), &c->conn.frames);
    bytes_clear(&out);
    if (used) yamux_took(&c->conn.yamux, mux, used, &c->conn.frames);
    connection_touch(c);
    if (rc == PL_EAGAIN && (mux->reset || mux->in_ended)) rc = PL_EIO;
    if (rc == PL_OK) agreed(s);
    else if (rc != PL_EAGAIN) refused(s, rc);
}

static int find_service(void *context, const char *name, size_t n)
{
    const struct streams *all = context;
    return all->core->state == HOST_CLOSING ? -1 : services_find(&all->services, name, n);
}

void stream_on_opened(void *context, struct yamux_stream *mux)
{
    struct connection *c = context;
    struct streams *all = c->of->context;
    struct bytes out = { 0 };
    struct stream *s = NULL;
    if (c->peer && c->state == CONNECTION_OPEN && !stream_budget_open(c) &&
        !(s = stream_new(all, c, &c->peer->id)))
        resources_release(&c->account, RESOURCE_STREAMS, 1);
    if (!s) {
        yamux_release(&c->conn.yamux, mux, &c->conn.frames); /* a reset */
        return;
    }
    /* The listener sends its header at once: that saves the dialer a round trip. */
    s->inbound = 1;
    s->mux = mux;
    mux->user = s;
    s->state = STREAM_SELECTING;
    multistream_listen(&s->select, find_service, all, &out);
    yamux_write(&c->conn.yamux, mux, bytes_at(&out), bytes_length(&out), &c->conn.frames);
    bytes_clear(&out);
    timer_start(all->core->loop, &s->timer, HOST_STREAM_LIMIT, stream_on_late, s);
}

/* Sends the header, the proposal and the data written so far at once. */
static void begin(struct stream *s)
{
    struct conn *k = &s->connection->conn;
    struct bytes out = { 0 };
    int early = bytes_length(&s->early) > 0;
    s->mux->user = s;
    s->state = STREAM_SELECTING;
    multistream_dial(&s->select, (const char *const *)&s->protocol, 1, &out);
    yamux_write(&k->yamux, s->mux, bytes_at(&out), bytes_length(&out), &k->frames);
    bytes_clear(&out);
    if (early)
        yamux_write(&k->yamux, s->mux, bytes_at(&s->early), bytes_length(&s->early), &k->frames);
    bytes_clear(&s->early);
    if (s->finished) yamux_finish(s->mux, &k->frames);
    if (early && !stream_queued(s) && s->events.drained) s->events.drained(s->context, s);
}

void streams_start_pending(struct connection *c)
{
    struct connection_streams *list = &c->streams;
    struct stream *s;
    while ((s = list->pending) && !yamux_open(&c->conn.yamux, &s->mux, &c->conn.frames)) {
        list->pending = s->next_pending;
        if (!list->pending) list->pending_last = NULL;
        begin(s);
    }
}

/* --- bytes for the handler -------------------------------------------------------------------- */

/* Data received before a reset are delivered: a paused reader gets them first, and so does one
 * whose stream waits for the next second. After a FIN the reset only means that our side is done
 * too. The same holds for data of a lost connection. */
static void report_reset(struct stream *s)
{
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    if (s->remains) {
        if (!s->paused || !bytes_length(&s->remains->in))
            stream_fail(s, PL_EIO, s->remains->why.text);
        return;
    }
    if (s->state != STREAM_OPEN || !s->mux->reset || s->mux->in_ended) return;
    if ((s->paused || (s->both_ways && s->is_held)) && bytes_length(&s->mux->in)) return;
    peer_id_text(peer, &s->peer);
    pl_fail(&err, PL_EIO, "%s has reset the stream", peer);
    stream_fail(s, PL_EIO, err.text);
}

/* Nothing to read and no end: the handler is not called. */
static void deliver(struct stream *s)
{
    size_t n;
    int ended;
    stream_data(s, &n, &ended);
    if (s->events.readable && (n || ended)) s->events.readable(s->context, s);
}

/* Runs the handler, and charges its time to the peer that has opened the stream. The owner may
 * close the stream in any of its callbacks: *gone is 1 then. A stream that waits because of its
 * own response is read when that is out (stream_on_writable); because of its connection, by
 * streams_release_held. */
static void read_on(struct stream *s, int *gone)
{
    struct loop_time time;
    int charged = s->inbound && s->connection;
    *gone = 0;
    s->gone = gone;
    if (charged) loop_time_begin(&time, s->of->core, &s->connection->account);
    if (s->state == STREAM_SELECTING && !turns_must_wait(s)) select_protocol(s);
    if (!*gone && s->state == STREAM_OPEN) deliver(s);
    if (charged) loop_time_end(&time);
    if (*gone) return;
    s->gone = NULL;
    turns_hold(s);
}

void stream_on_readable(void *context, struct yamux_stream *mux)
{
    struct stream *s = mux->user;
    int gone;
    if (!s) return;
    read_on(s, &gone);
    if (!gone) report_reset(s);
}

void stream_on_writable(void *context, struct yamux_stream *mux)
{
    struct stream *s = mux->user;
    int gone = 0;
    if (!s) return;
    s->gone = &gone;
    if ((s->state == STREAM_OPEN || !s->inbound) && s->events.drained)
        s->events.drained(s->context, s);
    if (gone) return;
    s->gone = NULL;
    if (s->inbound && !s->both_ways) read_on(s, &gone);
}

void stream_resume(struct stream *s)
{
    int gone;
    s->paused = 0;
    if (s->state != STREAM_OPEN) return;
    read_on(s, &gone);
    if (!gone) report_reset(s);
}

void streams_release_held(struct connection *c)
{
    struct stream *s;
    int gone;
    while (c->state != CONNECTION_ENDING && (s = c->streams.held) &&
           !turns_connection_must_wait(c)) {
        turns_leave(s);
        read_on(s, &gone);
        if (!gone) report_reset(s);
    }
    if (c->state != CONNECTION_ENDING && c->streams.held) turns_await_second(c);
}
