/* stream.c - one stream of a connection: whose it is, what it speaks, what it holds. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

/* What had come before the link was lost, and why it was. */
struct remains {
    struct bytes in;
    int ended;
    struct pl_err why;
};

/* --- lists ------------------------------------------------------------------------------------ */

static struct stream **list_of(struct stream *c)
{
    return c->link ? &c->link->channels : &c->host->connecting;
}

static void join(struct stream *c)
{
    struct stream **list = list_of(c);
    c->prev = NULL;
    c->next = *list;
    if (*list) (*list)->prev = c;
    *list = c;
}

static void leave(struct stream *c)
{
    if (c->prev) c->prev->next = c->next;
    else *list_of(c) = c->next;
    if (c->next) c->next->prev = c->prev;
}

static void leave_pending(struct stream *c)
{
    struct connection *l = c->link;
    struct stream **at = &l->pending, *before = NULL;
    for (; *at; before = *at, at = &(*at)->next_pending)
        if (*at == c) {
            *at = c->next_pending;
            if (l->pending_last == c) l->pending_last = before;
            return;
        }
}

/* --- requests and answers take turns ---------------------------------------------------------- */

static int too_many_answers(const struct connection *l)
{
    return l->conn.yamux.answers > ANSWERS_MAX || l->answered >= ANSWERS_A_TURN;
}

/* When the loop has looked after everybody else. */
void stream_next_turn(void *context)
{
    struct host *h = context;
    for (struct connection *l = h->links; l; l = l->next) {
        l->answered = 0;
        if (l->held_back) connection_touch(l);
    }
}

static void count_answer(struct stream *c)
{
    struct host *h = c->host;
    if (!c->inbound || c->both_ways || ++c->link->answered != ANSWERS_A_TURN) return;
    if (h->closing || timer_start(h->loop, &h->turn, 0, stream_next_turn, h)) stream_next_turn(h);
}

/* 1 while no request is read on the channel. */
static int awaits_turn(const struct stream *c)
{
    return c->inbound && !c->both_ways && c->stream &&
           (c->stream->waiting.length || too_many_answers(c->link));
}

/* Behind the others of its connection. */
static void hold_back(struct stream *c)
{
    struct connection *l = c->link;
    if (c->is_held_back) return;
    c->is_held_back = 1;
    c->next_held = NULL;
    c->prev_held = l->held_last;
    if (l->held_last) l->held_last->next_held = c;
    else l->held_back = c;
    l->held_last = c;
}

static void leave_held(struct stream *c)
{
    if (!c->is_held_back) return;
    c->is_held_back = 0;
    if (c->prev_held) c->prev_held->next_held = c->next_held;
    else c->link->held_back = c->next_held;
    if (c->next_held) c->next_held->prev_held = c->prev_held;
    else c->link->held_last = c->prev_held;
}

/* --- ends ------------------------------------------------------------------------------------- */

/* Leaves its stream and link; the owner still holds the channel. */
static void detach(struct stream *c)
{
    struct connection *l = c->link;
    if (c->wait) host_wait_cancel(c->wait);
    c->wait = NULL;
    timer_stop(&c->timer);
    if (!l) return;
    if (c->state == STREAM_PENDING) leave_pending(c);
    leave_held(c);
    leave(c);
    if (c->inbound) resources_release(&l->account, RESOURCE_STREAMS, 1);
    resources_leave_protocol(&c->host->resources, c->charged);
    c->charged = NULL;
    if (c->stream) {
        c->stream->user = NULL;
        if (!l->ending) {
            yamux_release(&l->conn.yamux, c->stream, &l->conn.frames);
            connection_touch(l);
        }
    }
    c->stream = NULL;
    c->link = NULL;
    join(c);
}

static void drop_remains(struct stream *c)
{
    if (!c->remains) return;
    c->host->remains -= bytes_length(&c->remains->in);
    bytes_clear(&c->remains->in);
    free(c->remains);
    c->remains = NULL;
}

static void free_stream(struct stream *c)
{
    if (c->gone) *c->gone = 1;
    detach(c);
    drop_remains(c);
    leave(c);
    bytes_clear(&c->early);
    free(c->protocol);
    free(c);
}

void stream_fail(struct stream *c, int status, const char *why)
{
    struct pl_err copy;
    if (c->state == STREAM_FAILED) return;
    pl_fail(&copy, status, "%s", why); /* `why` may lie in what detach frees */
    detach(c);
    drop_remains(c);
    c->state = STREAM_FAILED;
    if (c->events.failed) c->events.failed(c->context, c, status, copy.text);
    else free_stream(c); /* nobody has taken an inbound one yet */
}

/* A reader that pauses has not looked at what has come. 1: that is kept for it. */
static int keep_remains(struct stream *c, const char *why)
{
    struct remains *r;
    struct bytes *in = c->stream ? &c->stream->in : NULL;
    if (c->state != STREAM_OPEN || !c->paused || !in || !bytes_length(in) || c->host->closing ||
        c->host->remains + bytes_length(in) > HOST_REMAINS_MAX || !(r = calloc(1, sizeof *r)))
        return 0;
    r->in = *in;
    r->ended = c->stream->in_ended;
    pl_fail(&r->why, PL_EIO, "%s", why);
    memset(in, 0, sizeof *in);
    c->link->conn.yamux.held -= bytes_length(&r->in);
    c->host->remains += bytes_length(&r->in);
    detach(c);
    c->remains = r;
    return 1;
}

void stream_lost(struct stream *c, int status, const char *why)
{
    if (!keep_remains(c, why)) stream_fail(c, status, why);
}

void channels_close_all(struct host *h)
{
    struct stream *c = h->connecting;
    while (c) {
        if (c->remains) {
            stream_fail(c, PL_EIO, "this peer is closing");
            c = h->connecting; /* its owner may have closed any of them */
        } else {
            c = c->next;
        }
    }
}

void stream_close(struct stream *c)
{
    if (!c) return;
    free_stream(c); /* yamux lets a finished stream linger and resets any other */
}

static void on_late(void *context)
{
    struct stream *c = context;
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    peer_id_text(peer, &c->peer);
    pl_fail(&err, PL_EAGAIN, "%s: no agreement on %s in time", peer,
            c->protocol ? c->protocol : "a protocol");
    stream_fail(c, PL_EAGAIN, err.text);
}

/* --- agreeing --------------------------------------------------------------------------------- */

static void arrived(struct stream *c)
{
    size_t n;
    int ended;
    stream_data(c, &n, &ended);
    if (c->events.readable && (n || ended)) c->events.readable(c->context, c);
}

static void agreed(struct stream *c)
{
    const struct service *service;
    c->state = STREAM_OPEN;
    timer_stop(&c->timer);
    c->link->account.active_at = loop_now(c->host->loop);
    if (c->inbound) {
        service = &c->host->services[c->select.agreed];
        c->charged = resources_enter_protocol(&c->host->resources, service->protocol);
        if (c->charged) service->opened(service->context, c);
        else stream_fail(c, PL_ELIMIT, "too many streams of a protocol");
    } else if (c->events.open) {
        c->events.open(c->context, c);
    }
}

static void refused(struct stream *c, int rc)
{
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    peer_id_text(peer, &c->peer);
    if (rc == PL_ENOTFOUND) pl_fail(&err, rc, "%s does not serve %s", peer, c->protocol);
    else pl_fail(&err, rc, "%s: a stream that negotiates no protocol", peer);
    stream_fail(c, rc, err.text);
}

static void select_protocol(struct stream *c)
{
    struct yamux_stream *s = c->stream;
    struct connection *l = c->link;
    struct cursor cursor = { bytes_at(&s->in), bytes_length(&s->in) };
    struct bytes out = { 0 };
    int rc = multistream_receive(&c->select, &cursor, &out);
    size_t used = bytes_length(&s->in) - cursor.left;
    if (bytes_length(&out))
        yamux_write(&l->conn.yamux, s, bytes_at(&out), bytes_length(&out), &l->conn.frames);
    bytes_clear(&out);
    if (used) yamux_took(&l->conn.yamux, s, used, &l->conn.frames);
    connection_touch(l);
    if (rc == PL_EAGAIN && (s->reset || s->in_ended)) rc = PL_EIO;
    if (rc == PL_OK) agreed(c);
    else if (rc != PL_EAGAIN) refused(c, rc);
}

/* What came before a reset counts: a reader that pauses gets it first. After a FIN the reset only
 * says that our side is done too. The same with what a lost link has left. */
static void tell_reset(struct stream *c)
{
    char peer[PEER_ID_TEXT_MAX];
    struct pl_err err;
    if (c->remains) {
        if (!c->paused || !bytes_length(&c->remains->in))
            stream_fail(c, PL_EIO, c->remains->why.text);
        return;
    }
    if (c->state != STREAM_OPEN || !c->stream->reset || c->stream->in_ended) return;
    if (c->paused && bytes_length(&c->stream->in)) return;
    peer_id_text(peer, &c->peer);
    pl_fail(&err, PL_EIO, "%s has reset the stream", peer);
    stream_fail(c, PL_EIO, err.text);
}

/* The owner may close the channel, and with it the stream, in any of its callbacks: *gone is 1 then.
 * What its own answer holds back is read once that is out; what the connection's answers hold back,
 * by stream_release_held. */
static void read_on(struct stream *c, int *gone)
{
    *gone = 0;
    c->gone = gone;
    if (c->state == STREAM_SELECTING && !awaits_turn(c)) select_protocol(c);
    if (!*gone && c->state == STREAM_OPEN) arrived(c);
    if (*gone) return;
    c->gone = NULL;
    if (awaits_turn(c) && too_many_answers(c->link)) hold_back(c);
}

void stream_on_readable(void *context, struct yamux_stream *s)
{
    struct stream *c = s->user;
    int gone;
    (void)context;
    if (!c) return;
    read_on(c, &gone);
    if (!gone) tell_reset(c);
}

void stream_on_writable(void *context, struct yamux_stream *s)
{
    struct stream *c = s->user;
    int gone = 0;
    (void)context;
    if (!c) return;
    c->gone = &gone;
    if ((c->state == STREAM_OPEN || !c->inbound) && c->events.drained)
        c->events.drained(c->context, c);
    if (gone) return;
    c->gone = NULL;
    if (c->inbound && !c->both_ways) read_on(c, &gone);
}

void stream_release_held(struct connection *l)
{
    struct stream *c;
    int gone;
    while (!l->ending && !too_many_answers(l) && (c = l->held_back)) {
        leave_held(c);
        read_on(c, &gone);
    }
}

static struct stream *new_channel(struct host *h, struct connection *l, const struct peer_id *peer)
{
    struct stream *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->host = h;
    c->link = l;
    c->peer = *peer;
    join(c);
    return c;
}

void stream_on_opened(void *context, struct yamux_stream *s)
{
    struct connection *l = context;
    struct bytes out = { 0 };
    struct stream *c = NULL;
    if (l->peer && !l->ending && !budget_stream(l) && !(c = new_channel(l->host, l, &l->peer->id)))
        resources_release(&l->account, RESOURCE_STREAMS, 1);
    if (!c) {
        yamux_release(&l->conn.yamux, s, &l->conn.frames);
        return;
    }
    c->inbound = 1;
    c->stream = s;
    s->user = c;
    c->state = STREAM_SELECTING;
    multistream_listen(&c->select, host_find_service, l->host, &out);
    yamux_write(&l->conn.yamux, s, bytes_at(&out), bytes_length(&out), &l->conn.frames);
    bytes_clear(&out);
    timer_start(l->host->loop, &c->timer, HOST_STREAM_LIMIT, on_late, c);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Header, proposal and what was written already, in one go: the other side reads token by token. */
static void begin(struct stream *c)
{
    struct connection *l = c->link;
    struct bytes out = { 0 };
    int early = bytes_length(&c->early) > 0;
    c->stream->user = c;
    c->state = STREAM_SELECTING;
    multistream_dial(&c->select, (const char *const *)&c->protocol, 1, &out);
    yamux_write(&l->conn.yamux, c->stream, bytes_at(&out), bytes_length(&out), &l->conn.frames);
    bytes_clear(&out);
    if (early)
        yamux_write(&l->conn.yamux, c->stream, bytes_at(&c->early), bytes_length(&c->early),
                    &l->conn.frames);
    bytes_clear(&c->early);
    if (c->finished) yamux_finish(&l->conn.yamux, c->stream, &l->conn.frames);
    if (early && !stream_queued(c) && c->events.drained) c->events.drained(c->context, c);
}

/* Gives streams to the channels that wait for one, as far as the connection allows. */
void stream_start_pending(struct connection *l)
{
    struct stream *c;
    while ((c = l->pending) && !yamux_open(&l->conn.yamux, &c->stream, &l->conn.frames)) {
        l->pending = c->next_pending;
        if (!l->pending) l->pending_last = NULL;
        begin(c);
    }
}

static void attach(struct stream *c, struct connection *l)
{
    leave(c);
    c->link = l;
    c->peer = l->peer->id;
    join(c);
    c->state = STREAM_PENDING;
    c->next_pending = NULL;
    if (l->pending_last) l->pending_last->next_pending = c;
    else l->pending = c;
    l->pending_last = c;
    connection_touch(l);
}

static void on_connected(void *context, int status, const struct peer_id *peer,
                         const struct pl_err *err)
{
    struct stream *c = context;
    struct connection *l;
    c->wait = NULL;
    if (status) {
        stream_fail(c, status, err->text);
        return;
    }
    l = connection_best(host_peer(c->host, peer));
    if (l) attach(c, l);
    else stream_fail(c, PL_EIO, "the connection was lost at once");
}

static struct stream *dialled(struct host *h, const struct peer_id *peer, const char *protocol,
                              double timeout_s, const struct stream_events *events, void *context)
{
    struct stream *c = new_channel(h, NULL, peer);
    if (!c) return NULL;
    c->events = *events;
    c->context = context;
    if (!(c->protocol = strdup(protocol)) ||
        timer_start(h->loop, &c->timer, timeout_s, on_late, c)) {
        free_stream(c);
        return NULL;
    }
    return c;
}

struct stream *stream_open_on(struct connection *l, const char *protocol, double timeout_s,
                              const struct stream_events *events, void *context)
{
    struct stream *c = dialled(l->host, &l->peer->id, protocol, timeout_s, events, context);
    if (c) attach(c, l);
    return c;
}

static struct stream *open_how(struct host *h, const struct peer_id *peer, const char *protocol,
                               double timeout_s, int may_ask, const struct stream_events *events,
                               void *context)
{
    struct connection *l = connection_best(host_peer(h, peer));
    struct stream *c = dialled(h, peer, protocol, timeout_s, events, context);
    if (!c) return NULL;
    if (l) {
        attach(c, l);
    } else if (!(c->wait = connect_how(h, peer, timeout_s, may_ask, on_connected, c))) {
        free_stream(c);
        return NULL;
    }
    return c;
}

struct stream *stream_open(struct host *h, const struct peer_id *peer, const char *protocol,
                           double timeout_s, const struct stream_events *events, void *context)
{
    return open_how(h, peer, protocol, timeout_s, 1, events, context);
}

struct stream *stream_open_known(struct host *h, const struct peer_id *peer, const char *protocol,
                                 double timeout_s, const struct stream_events *events,
                                 void *context)
{
    return open_how(h, peer, protocol, timeout_s, 0, events, context);
}

/* --- what the owner does ---------------------------------------------------------------------- */

void stream_listen(struct stream *c, const struct stream_events *events, void *context)
{
    c->events = *events;
    c->context = context;
}

void stream_both_ways(struct stream *c)
{
    c->both_ways = 1;
    leave_held(c);
    if (c->stream) yamux_exempt(&c->link->conn.yamux, c->stream);
}

const struct peer_id *stream_peer(const struct stream *c) { return &c->peer; }
struct host *stream_host(const struct stream *c) { return c->host; }
struct connection *stream_link(const struct stream *c) { return c->link; }

/* 1 while its stream can be used. */
static int is_live(const struct stream *c) { return c->stream && !c->link->ending; }

const uint8_t *stream_data(const struct stream *c, size_t *n, int *ended)
{
    *n = 0;
    *ended = 0;
    if (c->remains) {
        *n = bytes_length(&c->remains->in);
        *ended = c->remains->ended;
        return bytes_at(&c->remains->in);
    }
    if (!c->stream || c->state != STREAM_OPEN || awaits_turn(c)) return NULL;
    *n = bytes_length(&c->stream->in);
    *ended = c->stream->in_ended;
    return bytes_at(&c->stream->in);
}

void stream_took(struct stream *c, size_t n)
{
    if (c->remains) {
        bytes_take(&c->remains->in, n);
        c->host->remains -= n;
        return;
    }
    if (!c->stream || !n) return;
    /* Also of a link that is ending: whoever reads on would find the same again, for ever. */
    yamux_took(&c->link->conn.yamux, c->stream, n, &c->link->conn.frames);
    connection_touch(c->link);
}

void stream_pause(struct stream *c) { c->paused = 1; }

void stream_resume(struct stream *c)
{
    int gone = 0;
    c->paused = 0;
    if (c->state != STREAM_OPEN) return;
    c->gone = &gone;
    arrived(c);
    if (gone) return;
    c->gone = NULL;
    tell_reset(c);
}

int stream_expect(struct stream *c, size_t n)
{
    int rc;
    if (!is_live(c)) return PL_OK; /* its failure is on the way */
    if ((rc = budget_expects(c->link, n))) return rc;
    rc = yamux_expect(&c->link->conn.yamux, c->stream, n, &c->link->conn.frames);
    connection_touch(c->link);
    return rc;
}

void stream_write(struct stream *c, const void *data, size_t n)
{
    if (c->finished || c->state == STREAM_FAILED) return;
    if (!c->stream) {
        if (bytes_add(&c->early, data, n) && c->link)
            connection_end(c->link, PL_ENOMEM, "out of memory");
    } else if (is_live(c)) {
        int rc;
        count_answer(c);
        rc = yamux_write(&c->link->conn.yamux, c->stream, data, n, &c->link->conn.frames);
        if (rc == PL_ENOMEM) connection_end(c->link, rc, "out of memory");
        connection_touch(c->link);
    }
}

void stream_give(struct stream *c, struct bytes *data)
{
    int rc;
    if (c->finished || c->state == STREAM_FAILED || !is_live(c)) {
        stream_write(c, bytes_at(data), bytes_length(data));
        data->begin = data->end = 0;
        return;
    }
    rc = yamux_give(&c->link->conn.yamux, c->stream, data);
    if (rc == PL_ENOMEM) connection_end(c->link, rc, "out of memory");
    connection_touch(c->link);
}

size_t stream_queued(const struct stream *c)
{
    return c->stream ? c->stream->waiting.length : bytes_length(&c->early);
}

void stream_finish(struct stream *c)
{
    if (c->finished) return;
    c->finished = 1;
    if (!is_live(c)) return;
    yamux_finish(&c->link->conn.yamux, c->stream, &c->link->conn.frames);
    connection_touch(c->link);
}
